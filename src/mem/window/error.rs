//! Errors of memory windows.

use thiserror::Error;

use super::info::BindInfo;
use crate::ids::{MwId, Qpn, Rkey};
use crate::mem::{Access, AccessError};

/// The table has the maximum number of windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("there are {max} memory windows, the most there can be")]
pub struct TooManyWindows {
    /// Maximum number of windows.
    pub max: usize,
}

/// Error of a bind. The bind request completes with `MW_BIND_ERR`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BindError {
    /// The window does not exist.
    #[error("there is no memory window {}", .0.0)]
    NoSuchWindow(MwId),
    /// The window and the queue pair belong to different protection domains.
    #[error("the memory window is of another protection domain")]
    WrongDomain,
    /// A window of type 2 must be invalidated before it is bound again.
    #[error("the memory window is bound, and must be invalidated before it is bound again")]
    Bound,
    /// A window of type 2 is unbound by invalidation, not by an empty bind.
    #[error("a memory window of type 2 cannot be bound to 0 bytes")]
    Nothing,
    /// Only windows of type 2 can be zero-based.
    #[error("a memory window of type 1 cannot be zero-based")]
    ZeroBased,
    /// The new key equals the current key.
    #[error("the memory window has variant 0x{variant:02x} already, and needs another")]
    SameVariant {
        /// Low byte of the key.
        variant: u8,
    },
    /// Windows do not support these flags.
    #[error("a memory window has no {access}")]
    Access {
        /// The unsupported flags.
        access: Access,
    },
    /// The key of the region is not valid in this domain.
    #[error(transparent)]
    Region(AccessError),
    /// The region is zero-based.
    #[error("a memory window cannot be bound to a zero-based region")]
    ZeroBasedRegion,
    /// The region lacks [`Access::MW_BIND`], or the `FLUSH_` flags of the window.
    #[error("the region does not grant {access}")]
    NotGranted {
        /// The missing flags.
        access: Access,
    },
    /// Remote writes or atomics require local write access of the region.
    #[error("{access} through a memory window needs LOCAL_WRITE of the region")]
    NeedsLocalWrite {
        /// The flags that require it.
        access: Access,
    },
    /// The bytes are not all within the region.
    #[error(
        "the region covers {region_len} bytes from 0x{region_addr:x}, not {} from 0x{:x}",
        info.length, info.addr
    )]
    OutOfRange {
        /// Requested binding.
        info: BindInfo,
        /// First address of the region.
        region_addr: u64,
        /// Length of the region in bytes.
        region_len: u64,
    },
}

/// Error of an invalidation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum InvalidateError {
    /// No region or window has this key.
    #[error("no memory window has key {rkey}")]
    UnknownKey {
        /// The key.
        rkey: Rkey,
    },
    /// The window and the queue pair belong to different protection domains.
    #[error("key {rkey} is of another protection domain")]
    WrongDomain {
        /// The key.
        rkey: Rkey,
    },
    /// Only windows of type 2 can be invalidated, not windows of type 1 or regions.
    #[error("key {rkey} is not of a memory window of type 2, and cannot be invalidated")]
    NotInvalidatable {
        /// The key.
        rkey: Rkey,
    },
    /// The window is not bound.
    #[error("the memory window with key {rkey} is not bound")]
    Unbound {
        /// The key.
        rkey: Rkey,
    },
    /// The window is bound for another queue pair.
    #[error("key {rkey} is bound to queue pair {qpn}")]
    OtherQp {
        /// The key.
        rkey: Rkey,
        /// Queue pair that may invalidate the window.
        qpn: Qpn,
    },
}
