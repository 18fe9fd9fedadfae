//! Errors of verbs.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use thiserror::Error;

use crate::engine::{CreateError, McastError, ModifyError, PostError, SrqError};
use crate::ids::{CqId, Gid, Qpn, Srqn};
use crate::mem::{AdviseError, AllocError, DmError, MwType, RegisterError};
use crate::port::JoinError;
use crate::runtime::{DeviceError, OpenError, XrcdError};
use crate::transport::work::{WcOpcode, WcStatus};
use crate::verbs::WcFlags;

/// Error of a verb. Unless a variant says otherwise, the failed verb has changed nothing.
/// Errors of a work request after it was posted are in its completion, see [`WcStatus`](super::WcStatus).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device has failed and is unusable.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Memory cannot be allocated.
    #[error(transparent)]
    Alloc(#[from] AllocError),
    /// Memory cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The device memory cannot be allocated.
    #[error(transparent)]
    DeviceMemory(#[from] DmError),
    /// The advice on memory is not valid.
    #[error(transparent)]
    Advise(#[from] AdviseError),
    /// The operation requires a memory window of another type.
    #[error("{what} takes memory windows of {needed}, not of {found}")]
    WindowType {
        /// Name of the operation.
        what: &'static str,
        /// The window's type.
        found: MwType,
        /// Type that the operation requires.
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
        /// Cause.
        source: ModifyError,
    },
    /// The queue pair does not accept a work request.
    #[error("queue pair {qpn}: {source}")]
    Post {
        /// The queue pair.
        qpn: Qpn,
        /// Cause.
        source: PostError,
    },
    /// An XRC domain cannot be opened.
    #[error(transparent)]
    Xrcd(#[from] XrcdError),
    /// The domain has no such XRC target.
    #[doc(alias = "ENOENT")]
    #[error("queue pair {qpn} is no XRC target of this domain")]
    NoSuchTarget {
        /// Requested queue pair number.
        qpn: Qpn,
    },
    /// A shared receive queue cannot be created or modified.
    #[error(transparent)]
    Srq(#[from] SrqError),
    /// The shared receive queue does not accept a receive request.
    #[error("shared receive queue {srqn}: {source}")]
    PostSrq {
        /// The shared receive queue.
        srqn: Srqn,
        /// Cause.
        source: PostError,
    },
    /// A queue pair cannot be attached to or detached from a multicast group.
    #[error("queue pair {qpn}: {source}")]
    Mcast {
        /// The queue pair.
        qpn: Qpn,
        /// Cause.
        source: McastError,
    },
    /// The port cannot join a multicast group.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// An attribute exceeds the limits of the device.
    #[error("{what} is {found}, not {min} to {max}")]
    Limit {
        /// Name of the attribute.
        what: &'static str,
        /// Requested value.
        found: u64,
        /// Minimum value.
        min: u64,
        /// Maximum value.
        max: u64,
    },
    /// The device has the maximum number of objects of a type.
    #[doc(alias = "ENOMEM")]
    #[error("the device has {max} {what} and takes no more")]
    Full {
        /// Type of the object.
        what: &'static str,
        /// Maximum number.
        max: usize,
    },
    /// The object cannot be destroyed because it is in use.
    #[doc(alias = "EBUSY")]
    #[error("the {what} is in use by {by}: {count}")]
    InUse {
        /// Type of the object.
        what: &'static str,
        /// Type of the objects that use it.
        by: &'static str,
        /// Number of objects that use it.
        count: u64,
    },
    /// A completion queue holds more completions than its new depth.
    #[doc(alias = "EINVAL")]
    #[error("completion queue {} holds {held} completions: {depth} are too few", cq.0)]
    CqTooSmall {
        /// The completion queue.
        cq: CqId,
        /// Requested depth.
        depth: usize,
        /// Number of completions in the queue.
        held: usize,
    },
    /// The device's completions lack the requested fields.
    #[doc(alias = "EOPNOTSUPP")]
    #[error("completions have no {unsupported}")]
    CompletionFields {
        /// The missing fields.
        unsupported: WcFlags,
    },
    /// Two objects belong to different devices.
    #[error("the {what} belongs to another device")]
    OtherDevice {
        /// Type of the object that belongs to another device.
        what: &'static str,
    },
    /// The domain of a completion queue is not a parent domain.
    #[doc(alias = "EINVAL")]
    #[error("a completion queue was to belong to a protection domain that is no parent domain")]
    NoParentDomain,
    /// The source GID has no route to the peer.
    #[error("no way to {gid} from source GID {index}: no such GID, or not of one IP version")]
    Address {
        /// GID of the peer.
        gid: Gid,
        /// Index of the source GID.
        index: u8,
    },
    /// No interface has the address of a GID at present.
    #[doc(alias = "ENODATA")]
    #[error("GID {index} is empty: no interface has {ip}")]
    EmptyGid {
        /// Index of the GID.
        index: usize,
        /// Address of the table entry.
        ip: IpAddr,
    },
    /// The first bytes of a buffer are not the network header of a message to this device.
    #[doc(alias = "EINVAL")]
    #[error(
        "the first 40 bytes of the buffer are no IPv6 or IPv4 header of a message to this device"
    )]
    Header,
    /// A completion is not of a received UD message.
    #[doc(alias = "EINVAL")]
    #[error(
        "a completion of {opcode:?} with {status:?} is not that of a UD message that has arrived"
    )]
    NotADatagram {
        /// Opcode of the completion.
        opcode: WcOpcode,
        /// Status of the completion.
        status: WcStatus,
    },
    /// A table of the device has no such entry.
    #[doc(alias = "EINVAL")]
    #[error("index {index} is not in the {table} table, which has {len}")]
    TableIndex {
        /// Name of the table.
        table: &'static str,
        /// Requested index.
        index: usize,
        /// Number of entries in the table.
        len: usize,
    },
    /// A wait has timed out.
    #[error("no {what} within {after:?}")]
    Timeout {
        /// Name of the awaited event.
        what: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// A signal handler has interrupted a wait.
    #[doc(alias = "EINTR")]
    #[error("a signal has interrupted the wait for the next {what}")]
    Interrupted {
        /// Name of the awaited event.
        what: &'static str,
    },
    /// The completion queue was full when a completion arrived. That completion and later ones are lost.
    #[error("completion queue {} has overrun: {depth} completions were not enough", cq.0)]
    Overrun {
        /// The completion queue.
        cq: CqId,
        /// Maximum number of completions in the queue.
        depth: usize,
    },
    /// A system call has failed.
    #[error("{what}: {source}")]
    Os {
        /// Purpose of the call.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Returns the error of a wait that has timed out.
    pub(super) fn timeout(what: &'static str, timeout: Option<Duration>) -> Self {
        Self::Timeout { what, after: timeout.unwrap_or(Duration::MAX) }
    }
}
