//! Registered memory: regions and windows, the keys that name them, and the copies in and out.
//!
//! A peer may write a region at any time, so a region is treated like memory shared with another
//! process: no Rust reference into it exists, and every access is a checked copy or an atomic.
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
//! A message of one packet is copied in the epoch in which its memory is looked up, so it needs no [`Span`]
//! that keeps a region: the epoch holds the region that it has found first, and lends it.
//!
//! [`Memory::deregister`] returns when no engine can touch the region any more. The hot path takes
//! no lock for that: an engine copies only inside an [`EpochGuard`], and deregistration marks the region
//! dead and waits until every engine has left the epoch it was in.
//!
//! Memory that may go away while it is registered stands behind a `Backing`. It is copied by instructions that survive
//! a fault (`sys::fault`), or by the system, many packets at once (`stage`).
//!
//! Copies into a region by which a message ends use [`Placement::Final`]: programs poll the last
//! bytes of a message to learn of its arrival.

mod access;
mod backing;
mod budget;
mod device;
mod epoch;
mod error;
mod guard;
mod keys;
#[cfg(feature = "runtime")]
mod pageable;
mod placement;
#[expect(unsafe_code, reason = "the only file of `mem` that touches registered bytes itself")]
mod raw;
mod reach;
mod region;
#[cfg(feature = "runtime")]
mod segment;
mod span;
mod stage;
mod table;
mod window;

pub use access::{Access, AccessError, Need, Via};
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
