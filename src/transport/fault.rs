//! Errors of packets and send requests, with the consequences of each: one table.
//!
//! | column | |
//! |---|---|
//! | [`Reliable`] | RC and XRC: the NAK, the event, and with them whether the queue pair goes to ERR |
//! | [`Unreliable`] | UC and UD: the reason of the drop, or that the queue pair goes to ERR or SQE |
//! | [`Consequence::status`] | status with which the work request completes |
//!
//! Both halves of a queue pair return [`TransportError`], and `QueuePair::fail` applies the table.

use crate::ids::Qpn;
use crate::transport::outputs::{AsyncEvent, DropReason};
use crate::transport::work::WcStatus;
use crate::wire::NakCode;

/// Reason why a packet or a send request fails. The first rows belong to the responder, the last to
/// the requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransportError {
    /// There is no receive request. The peer retries.
    NotReady,
    /// The opcode is invalid after the previous one.
    Sequence,
    /// The packet length contradicts the position, the path MTU, the padding or the RETH.
    Length,
    /// The message is longer than its receive request.
    ReceiveTooShort,
    /// The peer sent more requests with a response than `max_dest_rd_atomic`.
    TooManyReads,
    /// The address of an atomic or ATOMIC WRITE is not a multiple of 8.
    Misaligned,
    /// The responder does not implement the operation.
    Unsupported,
    /// The queue pair's access flags do not allow the operation.
    NotPermitted,
    /// The R_Key, range or region rights do not allow the access, or the region was deregistered.
    /// Among the requests with an R_Key, only a WRITE with immediate has a receive request.
    RemoteAccess,
    /// The memory of a receive request has an invalid key, range or permission.
    LocalProtection,
    /// The key in a SEND with invalidate cannot be invalidated.
    Invalidate,
    /// The system cannot make the memory of a FLUSH persistent.
    Storage,
    /// XRC: the domain of the queue pair has no such shared receive queue, or the message began
    /// with another one (IBTA vol 1, annex A14).
    WrongSrq,
    /// XRC: the shared receive queue has failed.
    SrqFailed,
    /// The memory of a send request has an invalid key, range or permission, or the region was
    /// deregistered.
    SendProtection,
    /// A memory window could not be bound or invalidated.
    WindowBind,
    /// A response does not fit the oldest request.
    BadResponse,
    /// No response arrived to `retry_cnt + 1` attempts.
    RetriesExhausted,
    /// Each of `rnr_retry + 1` attempts received an RNR NAK.
    RnrRetriesExhausted,
    /// The peer refused the oldest request with a NAK.
    Nak(NakCode),
}

/// Consequences of a [`TransportError`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consequence {
    /// Over RC and XRC.
    pub(crate) reliable: Reliable,
    /// Over UC and UD.
    pub(crate) unreliable: Unreliable,
    /// Completion status of the affected work request: the oldest send request, or the receive
    /// request of the message, if the message has one and ends.
    pub(crate) status: WcStatus,
}

/// Consequence of a [`TransportError`] over a service with acknowledgements.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reliable {
    /// The responder sends an RNR NAK, and the queue pair stays in its state.
    RnrNak,
    /// The queue pair goes to ERR (IBTA vol 1, §9.9.3).
    Fail {
        /// NAK code to send.
        nak: NakCode,
        /// Event to raise if no receive request completes with the error.
        event: fn(Qpn) -> AsyncEvent,
    },
    /// The oldest send request completes with the error, and the queue pair goes to ERR.
    FailSend,
}

/// Consequence of a [`TransportError`] over a service without acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unreliable {
    /// The packet and its message are dropped; no packet can make the queue pair fail.
    Drop(DropReason),
    /// The receive request completes with the error, and the queue pair goes to ERR.
    Fail,
    /// The oldest send request completes with the error, and the queue pair goes to SQE, where it
    /// still receives (IBTA vol 1, §10.3.1.6).
    FailSend,
}

/// Consequence of a packet that a queue pair does not accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketError {
    /// Drop and count the packet, without further effect.
    Drop(DropReason),
    /// Fail as the table specifies.
    Fail(Failure),
}

impl From<DropReason> for PacketError {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

impl From<TransportError> for PacketError {
    fn from(error: TransportError) -> Self {
        Self::Fail(error.into())
    }
}

/// Terminal error, and whether a receive request completed with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) error: TransportError,
    /// A receive request has completed with the error's status, so no event is due.
    pub(crate) recv_completed: bool,
}

impl From<TransportError> for Failure {
    /// Returns the failure of a request that completes no receive request.
    fn from(error: TransportError) -> Self {
        Self { error, recv_completed: false }
    }
}

impl TransportError {
    /// Returns the row of the table.
    ///
    /// Kernel rxe differs in four places. It answers a message that is too long for the receive
    /// request with 0x63, and a missing permission of the queue pair with 0x61. It acknowledges a
    /// SEND with a key that cannot be invalidated. It completes the receive request of a WRITE with
    /// immediate and an invalid key with REM_ACCESS_ERR, which IBTA vol 1, §11.6.2, specifies for
    /// send requests. Hardware agrees with this table on the first two. For the third, IBTA
    /// requires no NAK (class J) and forbids none; without one, the peer would assume that the
    /// message was received.
    pub(crate) const fn consequence(self) -> Consequence {
        use AsyncEvent::{QpAccessErr, QpFatal, QpReqErr};
        use NakCode::{InvalidRequest, RemoteAccess, RemoteOperational};
        use WcStatus::{
            BadRespErr, LocAccessErr, LocLenErr, LocProtErr, LocQpOpErr, MwBindErr, RemAccessErr,
            RemInvReqErr, RetryExcErr, RnrRetryExcErr,
        };

        const REFUSED: Unreliable = Unreliable::Drop(DropReason::Refused);
        const LATE: Unreliable = Unreliable::Drop(DropReason::OutOfSequence);
        const NO_RECEIVE: Unreliable = Unreliable::Drop(DropReason::NoReceive);
        const SEND: (Reliable, Unreliable) = (Reliable::FailSend, Unreliable::FailSend);
        const fn fail(nak: NakCode, event: fn(Qpn) -> AsyncEvent) -> Reliable {
            Reliable::Fail { nak, event }
        }

        let ((reliable, unreliable), status) = match self {
            Self::NotReady => ((Reliable::RnrNak, NO_RECEIVE), RemInvReqErr),
            Self::Sequence => ((fail(InvalidRequest, QpReqErr), LATE), RemInvReqErr),
            Self::Length => ((fail(InvalidRequest, QpReqErr), REFUSED), RemInvReqErr),
            Self::ReceiveTooShort => ((fail(InvalidRequest, QpReqErr), REFUSED), LocLenErr),
            Self::TooManyReads => ((fail(InvalidRequest, QpReqErr), REFUSED), RemInvReqErr),
            Self::Misaligned => ((fail(InvalidRequest, QpReqErr), REFUSED), RemInvReqErr),
            Self::Unsupported => ((fail(InvalidRequest, QpReqErr), REFUSED), RemInvReqErr),
            Self::NotPermitted => ((fail(RemoteAccess, QpAccessErr), REFUSED), RemAccessErr),
            Self::RemoteAccess => ((fail(RemoteAccess, QpAccessErr), REFUSED), LocAccessErr),
            Self::LocalProtection => {
                ((fail(RemoteOperational, QpReqErr), Unreliable::Fail), LocProtErr)
            }
            Self::Storage => ((fail(RemoteOperational, QpFatal), REFUSED), LocQpOpErr),
            Self::Invalidate => ((fail(RemoteAccess, QpAccessErr), REFUSED), RemInvReqErr),
            Self::WrongSrq => ((fail(InvalidRequest, QpReqErr), REFUSED), RemInvReqErr),
            Self::SrqFailed => ((fail(RemoteOperational, QpFatal), REFUSED), LocQpOpErr),
            Self::SendProtection => (SEND, LocProtErr),
            Self::WindowBind => (SEND, MwBindErr),
            Self::BadResponse => (SEND, BadRespErr),
            Self::RetriesExhausted => (SEND, RetryExcErr),
            Self::RnrRetriesExhausted => (SEND, RnrRetryExcErr),
            Self::Nak(code) => (SEND, status_of_nak(code)),
        };
        Consequence { reliable, unreliable, status }
    }
}

/// Returns the completion status of a send request for a terminal NAK of the peer.
const fn status_of_nak(nak: NakCode) -> WcStatus {
    match nak {
        NakCode::InvalidRequest => WcStatus::RemInvReqErr,
        NakCode::RemoteAccess => WcStatus::RemAccessErr,
        NakCode::InvalidRdRequest => WcStatus::RemInvRdReqErr,
        // A reserved code means that the peer cannot continue. A sequence NAK is not terminal and
        // does not reach this function.
        NakCode::RemoteOperational | NakCode::Reserved(_) | NakCode::PsnSequence => {
            WcStatus::RemOpErr
        }
    }
}
