//! Registered memory: regions, windows, their keys, and copies from and to them.
//!
//! A peer may write to a region at any time. So no Rust reference into a region exists, and every access is a
//! bounds-checked copy or an atomic operation, as with memory shared with another process.
//!
//! ```text
//! Memory ──key──▶ Region ──▶ HostMemory        the table; what a key names; the bytes
//!   │               ▲
//!   │ local/remote  │ Arc                      once a message: key, domain, rights, range
//!   ▼               │
//! Span, Spans ──────┘                          once a packet: one liveness word, then the copy;
//!                                              through a window two, for it may be unbound
//!   ▲
//!   │ &EpochGuard
//! EpochHandle                                  one an engine; deregistration waits for its epochs
//! ```
//!
//! A message of one packet is copied in the epoch of its lookup. It needs no reference count on the region, because
//! the epoch holds its first region (`epoch_span`).
//!
//! [`Memory::deregister`] returns when no engine can access the region any more. The data path takes no lock for
//! this: an engine copies only under an [`EpochGuard`], and deregistration marks the region dead and waits until
//! every engine has left its epoch.
//!
//! Memory that may be unmapped while registered has a `Backing`. Either instructions that recover from page faults
//! copy it (`sys::fault`), or system calls for several packets at once (`stage`).
//!
//! The last copy of a message uses [`Placement::Final`], because programs poll the last bytes of a message to detect
//! its arrival.

mod access;
mod backing;
mod binding;
mod budget;
mod device;
mod epoch;
mod epoch_span;
mod error;
mod guard;
mod keys;
#[cfg(feature = "runtime")]
mod pageable;
mod placement;
#[expect(unsafe_code, reason = "the only file of `mem` that touches registered bytes itself")]
mod raw;
mod region;
#[cfg(feature = "runtime")]
mod segment;
mod span;
mod stage;
mod table;
mod window;

pub use access::{Access, AccessError, KeyUser, LocalAccess};
pub use device::{DeviceMemory, DmError};
pub use error::{AtomicError, FlushError, Revoked};
pub use guard::{EpochGuard, EpochHandle};
pub use placement::Placement;
pub use raw::{AllocError, HostMemory};
pub use region::{RangeError, Region};
#[cfg(feature = "runtime")]
pub(crate) use segment::Segment;
pub use span::{Span, Spans};
pub use table::{
    Advice, AdviseError, DeregisterError, Memory, MemoryLimits, RegisterError, Reregister,
};
pub use window::{BindError, BindInfo, InvalidateError, MwType, TooManyWindows};
