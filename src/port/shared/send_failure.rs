//! Reasons why the kernel does not take a burst.

use std::io;

use crate::net::TransmitErrorKind;
use crate::sys;

/// Reason why a burst was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::port) enum SendFailure {
    /// The kernel has no room now.
    Busy,
    /// The burst will never be sent.
    Refused(TransmitErrorKind),
    /// The kernel cannot split this burst (GSO).
    GsoUnsupported,
}

impl SendFailure {
    /// Returns the reason for an error of a send call, for a burst of this many segments.
    pub(in crate::port) fn from_os(error: &io::Error, segments: usize) -> Self {
        let kind = match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR) => return Self::Busy,
            // The route leads through IPsec or an interface without checksum offload, or there are too many segments.
            Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP) if segments > 1 => {
                return Self::GsoUnsupported;
            }
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EHOSTDOWN) => {
                TransmitErrorKind::Unreachable
            }
            Some(libc::EMSGSIZE) => TransmitErrorKind::TooLong,
            Some(libc::EPERM | libc::EACCES) => TransmitErrorKind::Forbidden,
            _ if sys::is_closed(error) => TransmitErrorKind::Closed,
            _ => TransmitErrorKind::Other,
        };
        Self::Refused(kind)
    }
}

impl From<SendFailure> for TransmitErrorKind {
    /// Returns the kind of error for a burst that is not tried again.
    fn from(failure: SendFailure) -> Self {
        match failure {
            SendFailure::Refused(kind) => kind,
            SendFailure::Busy => Self::NoRoom,
            SendFailure::GsoUnsupported => Self::Other,
        }
    }
}
