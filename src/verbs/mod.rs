//! The objects that applications hold.
//!
//! ```text
//! Context ─┬─ ProtectionDomain ─┬─ MemoryRegion ◀── MemoryWindow
//!          │                    ├─ SharedReceiveQueue
//!          │                    └─ QueuePair ──▶ CompletionQueue ──▶ CompletionChannel
//!          ├─ XrcDomain ── XrcTarget
//!          ├─ CompletionQueue
//!          └─ CompletionChannel
//! ```
//!
//! Handles are cheap to clone, are usable from any thread, and may be dropped in any order: each keeps alive the
//! objects that it needs. Dropping the last handle of an object destroys or deregisters it. `destroy` and `dealloc`
//! behave as their counterparts in C: they fail while other objects use the object, or while events of it are
//! unacknowledged.
//!
//! The file of an object imports only the files of objects that it contains or takes as arguments, never
//! those of objects made from it. So the file of the created object defines the methods that create it:
//! [`Context::create_cq`] stands in `cq.rs`, [`ProtectionDomain::create_qp`] in `qp.rs`. A completion queue
//! and its channel refer to each other; `cq/inner.rs` holds the state that both need.
//!
//! A program posts work requests to a [`QueuePair`] and polls their completions from a [`CompletionQueue`]. The names
//! are those of `verbs.h`:
//!
//! ```
//! use softroce::verbs::*;
//!
//! let ctx = Context::open(OpenOptions::loopback())?;
//! let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
//! let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!
//! // Two queue pairs of one device, connected to each other.
//! let (a, b) = (pd.create_qp(&QpConfig::rc(&cq))?, pd.create_qp(&QpConfig::rc(&cq))?);
//! a.connect(&b.endpoint(), &ConnectOptions::default())?;
//! b.connect(&a.endpoint(), &ConnectOptions::default())?;
//!
//! mr.write_at(0, b"hello")?;
//! a.post_send(SendRequest::write(1, mr.sge(..5), mr.remote(2048)).signaled())?;
//! assert_eq!(cq.wait_one(None)?.status, WcStatus::Success);
//!
//! let mut seen = [0; 5];
//! mr.read_at(2048, &mut seen)?;
//! assert_eq!(&seen, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod ah;
mod caps;
mod channel;
pub mod cm;
mod connect;
mod context;
mod cq;
mod domain;

mod endpoint;
mod errno;
mod error;
mod event;
mod future;
mod info;
mod limits;
mod list;
mod memory;
mod mr;
mod mw;
mod open;
mod pd;
mod poll;
mod qp;
mod qp_handle;
mod srq;
mod subject;
mod tables;
mod usage;
mod wc_flags;
mod xrc;

pub use ah::{AddressHandle, GRH_LEN};
pub use caps::{AtomicCap, DeviceCaps, OdpCaps, OdpOps};
pub use channel::CompletionChannel;
pub use connect::ConnectOptions;
pub use context::Context;
pub use cq::{CompletionQueue, CqConfig};
pub use domain::ThreadDomain;
pub use endpoint::{Endpoint, EndpointError};
pub use error::Error;
pub use event::{CqEvent, PendingEvent};
#[cfg(feature = "futures")]
pub use future::Completions;
pub use future::NextCompletion;
pub use info::{DeviceInfo, LINK_SPEED, Limits, LinkSpeed, PortState};
pub use mr::{MemoryRegion, Rereg};
pub use mw::MemoryWindow;
pub use open::OpenOptions;
pub use pd::ProtectionDomain;
pub use poll::{Polling, RtValues};
pub use qp::{QpConfig, QueuePair};
pub use srq::{SharedReceiveQueue, SrqConfig};
pub use tables::GidEntry;
pub use wc_flags::WcFlags;
pub use xrc::{XrcDomain, XrcTarget, XrcdOptions};

pub use crate::counter::Counter;
pub use crate::engine::{
    FlatAttr, QpAttr, QpCap, QpInfo, QpInit, QpState, QpType, RateLimit, SendOps, SrqAttr,
    SrqModify,
};
pub use crate::ids::{Gid, Lkey, Mtu, MwId, PKey, QKey, Qpn, Rkey, Srqn};
pub use crate::mem::{
    Access, Advice, BindInfo, DeviceMemory, DmError, HostMemory, MwType, RangeError,
};
pub use crate::net::{AddressVector, IpVersion};
pub use crate::psn::Psn;
pub use crate::runtime::{AckPolicy, DeviceCounters, LinkCounters, Moderation, PostPolicy};
pub use crate::time::{AckTimeout, Instant, RnrTimer};
pub use crate::transport::outputs::{AsyncEvent, Counters, DropReason};
pub use crate::transport::work::{
    Completion, FlushPlacement, FlushTarget, RecvRequest, RemoteAddr, SendData, SendFlags, SendOp,
    SendRequest, SendTarget, Sge, SgeList, UdTarget, WcOpcode, WcStatus,
};
