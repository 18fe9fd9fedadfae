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
    /// Unfinished send requests.
    pub max_send_wr: u32,
    /// Unfinished receive requests.
    pub max_recv_wr: u32,
    /// Pieces of a send request.
    pub max_send_sge: u32,
    /// Pieces of a receive request.
    pub max_recv_sge: u32,
    /// Bytes of an inline send request.
    pub max_inline_data: u32,
}

impl Default for QpCap {
    /// What most programs ask for.
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
    /// The queue pair takes its receive requests from a shared queue.
    #[doc(alias = "EINVAL")]
    #[error("queue pair {qpn} has no receive queue: it takes from shared receive queue {srqn}")]
    Shared {
        /// The queue pair.
        qpn: Qpn,
        /// The queue to post to.
        srqn: Srqn,
    },
    /// Send requests are taken from RTS on, receive requests from INIT on.
    #[error("queue pair {qpn} is in {found:?}: {needed}")]
    State {
        /// The queue pair.
        qpn: Qpn,
        /// The state it is in.
        found: QpState,
        /// What it would have to be.
        needed: &'static str,
    },
    /// The queue is full.
    #[doc(alias = "ENOMEM")]
    #[error("the queue holds {capacity} requests and is full")]
    QueueFull {
        /// Requests it holds.
        capacity: usize,
    },
    /// More pieces than the queue was created for.
    #[error("{found} scatter/gather elements, of which the queue takes {max}")]
    TooManySges {
        /// Elements given.
        found: usize,
        /// Elements allowed.
        max: u32,
    },
    /// The message is too long.
    #[error("a message of {found} bytes: the longest is {max}")]
    TooLong {
        /// Bytes given.
        found: u64,
        /// Bytes allowed.
        max: u32,
    },
    /// More inline bytes than the queue pair was created for.
    #[error("{found} inline bytes, of which the queue pair takes {max}")]
    InlineTooLong {
        /// Bytes given.
        found: usize,
        /// Bytes allowed.
        max: u32,
    },
    /// A READ or atomic has no place for its answer in an inline request.
    #[error("a request with an answer cannot be inline")]
    InlineAnswer,
    /// To bind or invalidate a window takes no bytes, nor does a FLUSH.
    #[error("{operation:?} has no message, and takes no {found} bytes")]
    LocalData {
        /// Requested value.
        operation: WcOpcode,
        /// Bytes given.
        found: u64,
    },
    /// A memory window has rights of peers alone, and of type 1 it is not zero-based.
    #[error("this memory window cannot have {access}")]
    WindowAccess {
        /// The flags that it cannot have.
        access: Access,
    },
    /// An atomic works on 8 bytes.
    #[error("an atomic needs 8 bytes for its answer, not {found}")]
    AtomicLength {
        /// Bytes given.
        found: u64,
    },
    /// An ATOMIC WRITE puts 8 bytes.
    #[error("an ATOMIC WRITE is of 8 bytes, not {found}")]
    AtomicWriteLength {
        /// Bytes given.
        found: u64,
    },
    /// A FLUSH asks for global visibility, persistence, or both.
    #[error("a FLUSH is to global visibility (1), persistence (2) or both, not to {bits:#x}")]
    FlushPlacement {
        /// Requested value.
        bits: u8,
    },
    /// The service has no such operation: UC no READs and atomics, nor SENDs that invalidate; UD
    /// nothing but SEND.
    #[error("{qp_type} queue pairs have no {operation:?}")]
    NoSuchOperation {
        /// The type of the queue pair.
        qp_type: QpType,
        /// Requested value.
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
        /// The queue that it lacks: `send` or `receive`.
        queue: &'static str,
    },
    /// An XRC request needs a queue to go to.
    #[error("an XRC request needs the number of the shared receive queue that it is for")]
    NoSrqn,
    /// A UD message without a destination.
    #[error("a UD message needs a target: address, queue pair number and queue key")]
    NoTarget,
    /// The target of a UD message cannot be reached from the source GID that it names.
    #[error("no way to {gid} from source GID {index}: no such GID, or not of one IP version")]
    Address {
        /// The target.
        gid: Gid,
        /// The source GID's index.
        index: u8,
    },
    /// The queue pair was created without the operation.
    #[doc(alias = "EINVAL")]
    #[error("the queue pair was created for {declared}, not for {found}")]
    NotDeclared {
        /// Requested value.
        found: SendOps,
        /// Operations that it was created for.
        declared: SendOps,
    },
    /// The queue pair was connected with `max_rd_atomic` 0.
    #[error(
        "the queue pair allows no outgoing READ, atomic, FLUSH or ATOMIC WRITE: max_rd_atomic is 0"
    )]
    NoReads,
}

/// Checks the lengths that an operation needs, besides the maximum length of messages.
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
    /// Nothing of anything.
    pub const NONE: Self = Self {
        max_send_wr: 0,
        max_recv_wr: 0,
        max_send_sge: 0,
        max_recv_sge: 0,
        max_inline_data: 0,
    };

    /// Returns the limits granted for a request of these, none of them lower. A request holds some inline bytes at no
    /// cost.
    #[must_use]
    pub fn granted(self) -> Self {
        Self { max_inline_data: self.max_inline_data.max(INLINE_BYTES), ..self }
    }

    /// The same, for the queues that a queue pair of this type has.
    pub(crate) fn of(self, qp_type: QpType) -> Self {
        match qp_type {
            QpType::Rc | QpType::Uc | QpType::Ud => self,
            QpType::XrcIni => Self { max_recv_wr: 0, max_recv_sge: 0, ..self },
            QpType::XrcTgt => Self::NONE,
        }
    }

    /// Checks a send request against these limits and returns the length of its message.
    pub(crate) fn check_send(&self, request: &SendRequest) -> Result<u32, PostError> {
        match &request.data {
            SendData::Sges(sges) if sges.len() > self.max_send_sge as usize => {
                return Err(PostError::TooManySges { found: sges.len(), max: self.max_send_sge });
            }
            SendData::Inline(_) if request.op.has_result() => {
                return Err(PostError::InlineAnswer);
            }
            // The 8 bytes of an ATOMIC WRITE have their place in every request.
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

    /// Checks the number of pieces of a receive request.
    pub(crate) fn check_recv(&self, sges: usize) -> Result<(), PostError> {
        if sges > self.max_recv_sge as usize {
            return Err(PostError::TooManySges { found: sges, max: self.max_recv_sge });
        }
        Ok(())
    }
}
