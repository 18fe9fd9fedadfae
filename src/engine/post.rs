//! Limits of queue pairs, and errors of posting.

use thiserror::Error;

use crate::engine::attr::{QpState, QpType};
use crate::engine::send_ops::SendOps;
use crate::ids::{Gid, Qpn, Srqn};
use crate::mem::{Access, BindInfo};
use crate::transport::inbound::MAX_MESSAGE;
use crate::transport::work::{
    FlushPlacement, FlushTarget, INLINE_BYTES, SendData, SendOp, SendRequest, WcOpcode,
};

/// The limits of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_qp_cap")]
pub struct QpCap {
    /// Maximum number of unfinished send requests.
    pub max_send_wr: u32,
    /// Maximum number of unfinished receive requests.
    pub max_recv_wr: u32,
    /// Maximum number of scatter/gather elements of a send request.
    pub max_send_sge: u32,
    /// Maximum number of scatter/gather elements of a receive request.
    pub max_recv_sge: u32,
    /// Maximum number of bytes of an inline send request.
    pub max_inline_data: u32,
}

impl Default for QpCap {
    /// Returns limits that suit most programs.
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 256,
        }
    }
}

/// Error for a work request that was not posted. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PostError {
    /// There is no such queue pair.
    #[error("queue pair {0} does not exist")]
    NoSuchQp(Qpn),
    /// There is no such shared receive queue.
    #[error("shared receive queue {0} does not exist")]
    NoSuchSrq(Srqn),
    /// The queue pair uses a shared receive queue.
    #[doc(alias = "EINVAL")]
    #[error("queue pair {qpn} has no receive queue: it takes from shared receive queue {srqn}")]
    Shared {
        /// The queue pair.
        qpn: Qpn,
        /// The queue to post to.
        srqn: Srqn,
    },
    /// Send requests may be posted from RTS on, receive requests from INIT on.
    #[error("queue pair {qpn} is in {found:?}: {needed}")]
    State {
        /// The queue pair.
        qpn: Qpn,
        /// The current state.
        found: QpState,
        /// The required state.
        needed: &'static str,
    },
    /// The queue is full.
    #[doc(alias = "ENOMEM")]
    #[error("the queue holds {capacity} requests and is full")]
    QueueFull {
        /// Maximum number of requests.
        capacity: usize,
    },
    /// The request has more scatter/gather elements than the queue was created for.
    #[error("{found} scatter/gather elements, of which the queue takes {max}")]
    TooManySges {
        /// Number of elements.
        found: usize,
        /// Maximum number of elements.
        max: u32,
    },
    /// The message is too long.
    #[error("a message of {found} bytes: the longest is {max}")]
    TooLong {
        /// Length in bytes.
        found: u64,
        /// Maximum length in bytes.
        max: u32,
    },
    /// The request has more inline bytes than the queue pair was created for.
    #[error("{found} inline bytes, of which the queue pair takes {max}")]
    InlineTooLong {
        /// Number of bytes.
        found: usize,
        /// Maximum number of bytes.
        max: u32,
    },
    /// A READ or atomic needs memory for its response and cannot be inline.
    #[error("a request with a response cannot be inline")]
    InlineAnswer,
    /// Binding, invalidating and FLUSH requests have no data.
    #[error("{operation:?} takes no data, and has {found} bytes")]
    LocalData {
        /// The operation.
        operation: WcOpcode,
        /// Number of bytes.
        found: u64,
    },
    /// A memory window has remote access rights only, and a type 1 window is not zero-based.
    #[error("this memory window cannot have {access}")]
    WindowAccess {
        /// The unsupported flags.
        access: Access,
    },
    /// An atomic works on 8 bytes.
    #[error("an atomic needs 8 bytes for its response, not {found}")]
    AtomicLength {
        /// Number of bytes.
        found: u64,
    },
    /// An ATOMIC WRITE has exactly 8 bytes.
    #[error("an ATOMIC WRITE is of 8 bytes, not {found}")]
    AtomicWriteLength {
        /// Number of bytes.
        found: u64,
    },
    /// A FLUSH requires global visibility, persistence, or both.
    #[error("a FLUSH is to global visibility (1), persistence (2) or both, not to {bits:#x}")]
    FlushPlacement {
        /// The requested bits.
        bits: u8,
    },
    /// The service does not have the operation: UC has no READs, atomics or SENDs with invalidate;
    /// UD has SEND only.
    #[error("{qp_type} queue pairs have no {operation:?}")]
    NoSuchOperation {
        /// The type of the queue pair.
        qp_type: QpType,
        /// The operation.
        operation: WcOpcode,
    },
    /// An XRC queue pair only sends or only receives.
    #[doc(alias = "EINVAL")]
    #[error("queue pair {qpn} is {qp_type} and has no {queue} queue")]
    NoQueue {
        /// The queue pair.
        qpn: Qpn,
        /// Its type.
        qp_type: QpType,
        /// The missing queue: `send` or `receive`.
        queue: &'static str,
    },
    /// An XRC request has no shared receive queue number.
    #[error("an XRC request needs the number of the shared receive queue that it is for")]
    NoSrqn,
    /// A UD message has no destination.
    #[error("a UD message needs a target: address, queue pair number and queue key")]
    NoTarget,
    /// The destination of a UD message cannot be reached from its source GID.
    #[error("no way to {gid} from source GID {index}: no such GID, or not of one IP version")]
    Address {
        /// The GID of the destination.
        gid: Gid,
        /// Index of the source GID.
        index: u8,
    },
    /// The queue pair was created without the operation.
    #[doc(alias = "EINVAL")]
    #[error("the queue pair was created for {declared}, not for {found}")]
    NotDeclared {
        /// The operation.
        found: SendOps,
        /// Operations for which the queue pair was created.
        declared: SendOps,
    },
    /// The queue pair was connected with `max_rd_atomic` 0.
    #[error(
        "the queue pair allows no outgoing READ, atomic, FLUSH or ATOMIC WRITE: max_rd_atomic is 0"
    )]
    NoReads,
}

/// Checks the lengths that an operation requires, in addition to the maximum message length.
fn check_lengths(op: &SendOp, found: u64) -> Result<(), PostError> {
    match *op {
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } if found != 8 => {
            Err(PostError::AtomicLength { found })
        }
        SendOp::AtomicWrite { .. } if found != 8 => Err(PostError::AtomicWriteLength { found }),
        SendOp::Flush { placement, .. }
            if placement.is_empty() || !FlushPlacement::all().contains(placement) =>
        {
            Err(PostError::FlushPlacement { bits: placement.bits() })
        }
        SendOp::Flush { target: FlushTarget::Range { length, .. }, .. } if length > MAX_MESSAGE => {
            Err(PostError::TooLong { found: length.into(), max: MAX_MESSAGE })
        }
        _ => Ok(()),
    }
}

impl QpCap {
    /// Zero limits.
    pub const NONE: Self = Self {
        max_send_wr: 0,
        max_recv_wr: 0,
        max_send_sge: 0,
        max_recv_sge: 0,
        max_inline_data: 0,
    };

    /// Returns the limits granted for a request of these, none of them lower. Some inline bytes are
    /// always available without cost.
    #[must_use]
    pub fn granted(self) -> Self {
        Self { max_inline_data: self.max_inline_data.max(INLINE_BYTES), ..self }
    }

    /// Returns the limits for the queues of a queue pair of this type.
    pub(crate) fn of(self, qp_type: QpType) -> Self {
        match qp_type {
            QpType::Rc | QpType::Uc | QpType::Ud => self,
            QpType::XrcIni => Self { max_recv_wr: 0, max_recv_sge: 0, ..self },
            QpType::XrcTgt => Self::NONE,
        }
    }

    /// Checks a send request against these limits and returns the length of its message.
    #[inline]
    pub(crate) fn check_send(&self, request: &SendRequest) -> Result<u32, PostError> {
        match &request.data {
            SendData::Sges(sges) if sges.len() > self.max_send_sge as usize => {
                return Err(PostError::TooManySges { found: sges.len(), max: self.max_send_sge });
            }
            SendData::Inline(_) if request.op.has_result() => {
                return Err(PostError::InlineAnswer);
            }
            // Every request has room for the 8 bytes of an ATOMIC WRITE.
            SendData::Inline(bytes)
                if bytes.len() > self.max_inline_data as usize
                    && !matches!(request.op, SendOp::AtomicWrite { .. }) =>
            {
                return Err(PostError::InlineTooLong {
                    found: bytes.len(),
                    max: self.max_inline_data,
                });
            }
            _ => {}
        }
        let found = request.data.len();
        let has_data = !request.op.is_local() && !matches!(request.op, SendOp::Flush { .. });
        if !has_data && found != 0 {
            return Err(PostError::LocalData { operation: request.op.wc_opcode(), found });
        }
        if let SendOp::BindMw { to, .. } = &request.op {
            let access = to.access.difference(BindInfo::ACCESS);
            if !access.is_empty() {
                return Err(PostError::WindowAccess { access });
            }
        }
        check_lengths(&request.op, found)?;
        u32::try_from(found)
            .ok()
            .filter(|length| *length <= MAX_MESSAGE)
            .ok_or(PostError::TooLong { found, max: MAX_MESSAGE })
    }

    /// Checks the number of scatter/gather elements of a receive request.
    pub(crate) fn check_recv(&self, sges: usize) -> Result<(), PostError> {
        if sges > self.max_recv_sge as usize {
            return Err(PostError::TooManySges { found: sges, max: self.max_recv_sge });
        }
        Ok(())
    }
}
