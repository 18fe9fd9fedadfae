//! Errors of copies, flushes and atomics after a successful access check.

use thiserror::Error;

/// The bytes are no longer accessible: the region was deregistered, the window was unbound, no page is mapped, or the
/// file was truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the region was deregistered, the window unbound, or the memory unmapped while in use")]
pub struct Revoked;

/// Error of a FLUSH.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FlushError {
    /// The region has been deregistered.
    #[error("the region was deregistered while in use")]
    Revoked,
    /// The system could not write the bytes to persistent storage.
    #[error("the memory could not be made persistent")]
    Storage,
}

/// Error of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AtomicError {
    /// The region was deregistered or the window unbound.
    #[error("the region was deregistered, the window unbound, or the memory unmapped while in use")]
    Revoked,
    /// The host address is not a multiple of 8, regardless of the address in the region.
    #[error("an atomic needs 8 aligned bytes")]
    Misaligned,
    /// The memory does not support atomic stores.
    #[error("8 bytes of on-demand memory cannot be stored at once")]
    Torn,
    /// The length is not 8 bytes.
    #[error("an atomic needs 8 bytes, not {len}")]
    Length {
        /// Length in bytes.
        len: usize,
    },
}
