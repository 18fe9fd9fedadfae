//! What a verb can fail with.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;

use crate::engine::{CreateError, McastError, ModifyError, PostError, SrqError};
use crate::ids::{CqId, Gid, Qpn, Srqn};
use crate::mem::{AdviseError, AllocError, DmError, MwType, RegisterError};
use crate::port::JoinError;
use crate::runtime::{Down, OpenError, XrcdError};
use crate::transport::work::{WcOpcode, WcStatus};
use crate::verbs::WcFlags;

/// Why a verb did not do what was asked. Nothing has changed, unless it says otherwise.
///
/// What goes wrong with a work request after it has been posted is not told here but by its
/// completion, see [`WcStatus`](super::WcStatus).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device can do nothing any more.
    #[error(transparent)]
    Down(#[from] Down),
    /// Memory cannot be had.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// Memory cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// There is no such device memory.
    #[error(transparent)]
    DeviceMemory(#[from] DmError),
    /// Advice on memory is not taken.
    #[error(transparent)]
    Advise(#[from] AdviseError),
    /// The window is of another type.
    #[error("{what} takes memory windows of {needed}, not of {found}")]
    WindowType {
        /// What was asked for.
        what: &'static str,
        /// The window's type.
        found: MwType,
        /// The type that it takes.
        needed: MwType,
    },
    /// A queue pair cannot be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A queue pair cannot be modified.
    #[error("queue pair {qpn}: {source}")]
    Modify {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        source: ModifyError,
    },
    /// A work request is not taken.
    #[error("queue pair {qpn}: {source}")]
    Post {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        source: PostError,
    },
    /// An XRC domain cannot be opened.
    #[error(transparent)]
    Xrcd(#[from] XrcdError),
    /// There is no such XRC target in the domain.
    #[doc(alias = "ENOENT")]
    #[error("queue pair {qpn} is no XRC target of this domain")]
    NoSuchTarget {
        /// What was asked for.
        qpn: Qpn,
    },
    /// A shared receive queue cannot be created or modified.
    #[error(transparent)]
    Srq(#[from] SrqError),
    /// A receive request is not taken by a shared receive queue.
    #[error("shared receive queue {srqn}: {source}")]
    PostSrq {
        /// The queue.
        srqn: Srqn,
        /// Why.
        source: PostError,
    },
    /// A queue pair is not attached to a multicast group, or not detached.
    #[error("queue pair {qpn}: {source}")]
    Mcast {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        source: McastError,
    },
    /// The port does not join a multicast group.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// More was asked for than the device has.
    #[error("{what} is {found}, not {min} to {max}")]
    Limit {
        /// The name of the attribute.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// The least there can be.
        min: u64,
        /// The most there can be.
        max: u64,
    },
    /// There are as many as there can be.
    #[doc(alias = "ENOMEM")]
    #[error("the device has {max} {what} and takes no more")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many there can be.
        max: usize,
    },
    /// It cannot be destroyed while others need it.
    #[doc(alias = "EBUSY")]
    #[error("the {what} is in use by {by}: {count}")]
    InUse {
        /// What was to be destroyed.
        what: &'static str,
        /// What needs it.
        by: &'static str,
        /// How many there are.
        count: u64,
    },
    /// What is in a completion queue does not fit the size that it is to have.
    #[doc(alias = "EINVAL")]
    #[error("completion queue {} holds {held} completions: {depth} are too few", cq.0)]
    CqTooSmall {
        /// The completion queue.
        cq: CqId,
        /// The size it was to have.
        depth: usize,
        /// What it holds.
        held: usize,
    },
    /// What is to be asked of completions they do not have.
    #[doc(alias = "EOPNOTSUPP")]
    #[error("completions have no {unsupported}")]
    CompletionFields {
        /// What they do not have.
        unsupported: WcFlags,
    },
    /// Two objects that are to work together belong to different devices.
    #[error("the {what} belongs to another device")]
    OtherDevice {
        /// What kind of object the stranger is.
        what: &'static str,
    },
    /// A completion queue can belong to a parent domain only.
    #[doc(alias = "EINVAL")]
    #[error("a completion queue was to belong to a protection domain that is no parent domain")]
    NoParentDomain,
    /// No way leads from the source GID to the peer.
    #[error("no way to {gid} from source GID {index}: no such GID, or not of one IP version")]
    Address {
        /// The peer.
        gid: Gid,
        /// The index of the source GID.
        index: u8,
    },
    /// No interface has the address of a GID at the moment.
    #[doc(alias = "ENODATA")]
    #[error("GID {index} is empty: no interface has {ip}")]
    EmptyGid {
        /// The index of the GID.
        index: usize,
        /// The address that the slot is for.
        ip: IpAddr,
    },
    /// The first bytes of a buffer are no network header of a message to this device.
    #[doc(alias = "EINVAL")]
    #[error(
        "the first 40 bytes of the buffer are no IPv6 or IPv4 header of a message to this device"
    )]
    Header,
    /// A completion is not that of a UD message which has arrived.
    #[doc(alias = "EINVAL")]
    #[error(
        "a completion of {opcode:?} with {status:?} is not that of a UD message that has arrived"
    )]
    NotADatagram {
        /// What it completes.
        opcode: WcOpcode,
        /// How it has ended.
        status: WcStatus,
    },
    /// There is no such entry in a table of the device.
    #[doc(alias = "EINVAL")]
    #[error("index {index} is not in the {table} table, which has {len}")]
    TableIndex {
        /// Which table.
        table: &'static str,
        /// The index asked for.
        index: usize,
        /// Entries of the table.
        len: usize,
    },
    /// Nothing has come in time.
    #[error("no {what} within {after:?}")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// The handler of a signal has ended a wait.
    #[doc(alias = "EINTR")]
    #[error("a signal has interrupted the wait for the next {what}")]
    Interrupted {
        /// What was waited for.
        what: &'static str,
    },
    /// The completion queue was full when a completion came, and those that came since are lost.
    #[error("completion queue {} has overrun: {depth} completions were not enough", cq.0)]
    Overrun {
        /// The completion queue.
        cq: CqId,
        /// How many it holds.
        depth: usize,
    },
    /// The system refuses something.
    #[error("{what}: {source}")]
    Os {
        /// What was asked for.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl Error {
    /// Nothing has come within the timeout of a wait.
    pub(super) fn timeout(what: &'static str, timeout: Option<Duration>) -> Self {
        Self::Timeout { what, after: timeout.unwrap_or(Duration::MAX) }
    }
}
