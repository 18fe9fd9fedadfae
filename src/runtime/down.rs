//! Error of a device that has failed.

use thiserror::Error;

/// Reason why a device can do nothing any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum Down {
    /// A panic under its lock, in the library or in something that the program has given it (a capture,
    /// a backing of memory), has left it in an unknown state. In the library it is a bug: please report
    /// it.
    #[error("the device has failed after a panic in the library")]
    Failed,
    /// The descriptor of one of its sockets was closed by something that did not own it.
    #[doc(alias = "EBADF")]
    #[error("the device has failed: something else in this process has closed its socket")]
    SocketClosed,
    /// It belongs to the process that this one was forked from.
    #[error("the device belongs to the parent process; a forked child opens its own")]
    Forked,
}
