//! A descriptor besides those of the port that the device's thread waits for.

use std::fmt;
use std::os::fd::RawFd;

/// A descriptor that the device's thread waits for, and its handler.
pub(crate) trait Listener: Send + Sync + fmt::Debug {
    /// Returns the descriptor; `None` once it is unusable.
    fn descriptor(&self) -> Option<RawFd>;

    /// Handles a descriptor that is ready. The device's thread holds no lock.
    fn handle_ready(&self);
}
