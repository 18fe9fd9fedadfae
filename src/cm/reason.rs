//! Reasons of a rejection.

use std::fmt;

use crate::wire::cm::Rej;

/// Reason of a REJ (IBTA vol 1, §12.6.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// The sender has no queue pair.
    pub const NO_QP: Self = Self(1);
    /// The sender lacks resources.
    pub const NO_RESOURCES: Self = Self(3);
    /// The sender has waited long enough.
    pub const TIMEOUT: Self = Self(4);
    /// The sender does not support the request.
    pub const UNSUPPORTED: Self = Self(5);
    /// No listener has this service ID.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// The listener has another type of queue pairs.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// The sender knows an older connection with the same identifiers.
    pub const STALE_CONNECTION: Self = Self(10);
    /// The remote GID of the primary path is not one of the receiver, or has no route.
    pub const INVALID_GID: Self = Self(12);
    /// The path MTU is larger than the sender's.
    pub const INVALID_MTU: Self = Self(26);
    /// The consumer rejects the connection.
    pub const CONSUMER: Self = Self(28);
    /// The class version is not supported.
    pub const UNSUPPORTED_VERSION: Self = Self(31);
    /// The ECE option of the vendor is not supported.
    pub const VENDOR_OPTION: Self = Self(35);

    /// Returns the reason in words.
    pub const fn text(self) -> &'static str {
        Rej::text_of(self.0)
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.0)
    }
}

impl fmt::Debug for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
