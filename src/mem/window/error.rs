//! Why a window cannot be had, bound or invalidated.

use thiserror::Error;

use super::info::BindInfo;
use crate::ids::{MwId, Qpn, Rkey};
use crate::mem::{Access, AccessError};

/// There are as many windows as there can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("there are {max} memory windows, the most there can be")]
pub struct TooManyWindows {
    /// How many that is.
    pub max: usize,
}

/// Why a window is not bound. To who asked for it, it is `MW_BIND_ERR`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BindError {
    /// There is no such window.
    #[error("there is no memory window {}", .0.0)]
    NoSuchWindow(MwId),
    /// The window belongs to another domain than the queue pair.
    #[error("the memory window is of another protection domain")]
    WrongDomain,
    /// Type 2: it must be invalidated first.
    #[error("the memory window is bound, and must be invalidated before it is bound again")]
    Bound,
    /// Type 2: it is unbound by invalidating it.
    #[error("a memory window of type 2 cannot be bound to 0 bytes")]
    Nothing,
    /// Only windows of type 2 can be addressed from zero.
    #[error("a memory window of type 1 cannot be zero-based")]
    ZeroBased,
    /// The key would be the one that it had.
    #[error("the memory window has variant 0x{variant:02x} already, and needs another")]
    SameVariant {
        /// The low byte of the key.
        variant: u8,
    },
    /// Flags that no window has.
    #[error("a memory window has no {access}")]
    Access {
        /// Those flags.
        access: Access,
    },
    /// No region of this domain has the key.
    #[error(transparent)]
    Region(AccessError),
    /// The region is addressed from zero.
    #[error("a memory window cannot be bound to a zero-based region")]
    ZeroBasedRegion,
    /// The region was registered without these flags: [`Access::MW_BIND`], or what of FLUSH the window
    /// is to allow.
    #[error("the region does not grant {access}")]
    NotGranted {
        /// The flags that it lacks.
        access: Access,
    },
    /// Peers would write what the host itself may not.
    #[error("{access} through a memory window needs LOCAL_WRITE of the region")]
    NeedsLocalWrite {
        /// The flags that need it.
        access: Access,
    },
    /// The bytes are not all within the region.
    #[error(
        "the region covers {region_len} bytes from 0x{region_addr:x}, not {} from 0x{:x}",
        info.length, info.addr
    )]
    OutOfRange {
        /// What was asked for.
        info: BindInfo,
        /// The first address of the region.
        region_addr: u64,
        /// The bytes of the region.
        region_len: u64,
    },
}

/// Why a key is not invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum InvalidateError {
    /// Nothing has this key.
    #[error("no memory window has key {rkey}")]
    UnknownKey {
        /// The key given.
        rkey: Rkey,
    },
    /// The window belongs to another domain than the queue pair.
    #[error("key {rkey} is of another protection domain")]
    WrongDomain {
        /// The key given.
        rkey: Rkey,
    },
    /// Only windows of type 2 can be invalidated: not those of type 1, and no region that user space
    /// can register.
    #[error("key {rkey} is not of a memory window of type 2, and cannot be invalidated")]
    NotInvalidatable {
        /// The key given.
        rkey: Rkey,
    },
    /// It is not bound.
    #[error("the memory window with key {rkey} is not bound")]
    Unbound {
        /// The key given.
        rkey: Rkey,
    },
    /// The window is bound for another queue pair.
    #[error("key {rkey} is bound to queue pair {qpn}")]
    OtherQp {
        /// The key given.
        rkey: Rkey,
        /// The queue pair that may invalidate it.
        qpn: Qpn,
    },
}
