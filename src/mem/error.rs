//! Errors of copies, flushes and atomics on bytes that were found.

use thiserror::Error;

/// The region was deregistered, or the window unbound, while a message was using it; or its bytes
/// are not there, because nothing is mapped or the file was cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the region was deregistered, the window unbound, or the memory unmapped while in use")]
pub struct Revoked;

/// Why a flush could not be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FlushError {
    /// The region has been deregistered.
    #[error("the region was deregistered while in use")]
    Revoked,
    /// The system could not write what is to be persistent to its medium.
    #[error("the memory could not be made persistent")]
    Storage,
}

/// Why an atomic could not be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AtomicError {
    /// The region has been deregistered or the window unbound.
    #[error("the region was deregistered, the window unbound, or the memory unmapped while in use")]
    Revoked,
    /// The host address is not a multiple of 8, whatever the address in the region's addressing.
    #[error("an atomic needs 8 aligned bytes")]
    Misaligned,
    /// The memory cannot be stored to so that no reader sees a half.
    #[error("8 bytes of on-demand memory cannot be stored at once")]
    Torn,
    /// The span is not of 8 bytes.
    #[error("an atomic needs 8 bytes, not {len}")]
    Length {
        /// How many there are.
        len: usize,
    },
}
