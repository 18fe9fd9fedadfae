//! Error for a device that has failed.

use thiserror::Error;

/// Reason why a device cannot be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A panic under its lock, in the library or in code of the program (a capture, a memory backing), has left it in
    /// an unknown state. A panic of the library is a bug: please report it.
    #[error("the device has failed after a panic in the library")]
    Failed,
    /// Other code of this process has closed one of its sockets.
    #[doc(alias = "EBADF")]
    #[error("the device has failed: something else in this process has closed its socket")]
    SocketClosed,
    /// The device was opened by the parent process.
    #[error("the device belongs to the parent process; a forked child opens its own")]
    Forked,
}
