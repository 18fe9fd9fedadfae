//! Every way a packet or a send request can fail, and everything that follows from it: one table.
//!
//! | column | |
//! |---|---|
//! | [`Reliable`] | RC and XRC: the NAK, the event, and with them whether the queue pair goes to ERR |
//! | [`Unreliable`] | UC and UD: the reason of the drop, or that the queue pair goes to ERR or SQE |
//! | [`Consequence::status`] | status with which the work request completes |
//!
//! Both halves of a queue pair return [`TransportError`], and `QueuePair::fail` does what the table says.

use crate::ids::Qpn;
use crate::transport::outputs::{AsyncEvent, DropReason};
use crate::transport::work::WcStatus;
use crate::wire::NakCode;

/// Reason why a packet, or a send request, fails. The first rows are of the half that receives requests, the last of the
/// half that sends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransportError {
    /// There is no receive request. The peer tries again.
    NotReady,
    /// The opcode cannot follow what came before.
    Sequence,
    /// A packet's length contradicts its position, the path MTU, its padding, or its RETH.
    Length,
    /// A message longer than the receive request that took it.
    ReceiveTooShort,
    /// More requests with a response than `max_dest_rd_atomic`.
    TooManyReads,
    /// An atomic or ATOMIC WRITE on an address that is not a multiple of 8.
    Misaligned,
    /// The responder does not implement the operation.
    Unsupported,
    /// The queue pair's access flags do not allow the operation.
    NotPermitted,
    /// The R_Key, range or region rights do not allow the access, or the region is gone. Of the requests that
    /// name an R_Key only a WRITE with immediate has a receive request.
    RemoteAccess,
    /// A receive request's memory has no such key, range or permission.
    LocalProtection,
    /// A SEND has arrived whose key cannot be invalidated.
    Invalidate,
    /// The system cannot make the memory of a FLUSH persistent.
    Storage,
    /// XRC: there is no such shared receive queue in the domain of the queue pair, or it is not the one
    /// that the message began with (IBTA vol 1, annex A14).
    WrongSrq,
    /// XRC: the shared receive queue has failed.
    SrqFailed,
    /// The memory of a send request has no such key, range or permission, or the region is gone.
    SendProtection,
    /// A memory window could not be bound or invalidated.
    WindowBind,
    /// A response does not fit the oldest request.
    BadResponse,
    /// No response came in `retry_cnt + 1` attempts.
    RetriesExhausted,
    /// An RNR NAK came in each of `rnr_retry + 1` attempts.
    RnrRetriesExhausted,
    /// The peer has refused the oldest request.
    Nak(NakCode),
}

/// What follows from a [`TransportError`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consequence {
    /// Over RC and XRC.
    pub(crate) reliable: Reliable,
    /// Over UC and UD.
    pub(crate) unreliable: Unreliable,
    /// Status with which the work request completes: the oldest send request, or the receive request of the message, if
    /// the message has one and ends.
    pub(crate) status: WcStatus,
}

/// What follows from a [`TransportError`] over a service that acknowledges.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reliable {
    /// An RNR NAK is due, and the queue pair stays in its state.
    RnrNak,
    /// The queue pair goes to ERR (IBTA vol 1, §9.9.3).
    Fail {
        /// Code of the NAK that is due.
        nak: NakCode,
        /// Event that is raised when no receive request completes with the error.
        event: fn(Qpn) -> AsyncEvent,
    },
    /// The oldest send request completes with the error, and the queue pair goes to ERR.
    FailSend,
}

/// What follows from a [`TransportError`] over a service that does not acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unreliable {
    /// The packet is dropped, and its message with it: nothing in a packet can make the queue pair fail.
    Drop(DropReason),
    /// The receive request completes with the error, and the queue pair goes to ERR.
    Fail,
    /// The oldest send request completes with the error, and the queue pair goes to SQE: it goes on receiving (IBTA
    /// vol 1, §10.3.1.6).
    FailSend,
}

/// Consequence of a packet that a queue pair does not accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketError {
    /// Drop it, count it, and do nothing else.
    Drop(DropReason),
    /// Fail, as the table says.
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

/// Terminal error, and how the message ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) error: TransportError,
    /// A receive request has completed with the error's status, so no event is due.
    pub(crate) recv_completed: bool,
}

impl From<TransportError> for Failure {
    /// The error of a request that completes no receive request.
    fn from(error: TransportError) -> Self {
        Self { error, recv_completed: false }
    }
}

impl TransportError {
    /// The table.
    ///
    /// Kernel rxe differs in four places: a receive that is too short gives it 0x63, a missing
    /// permission of the queue pair 0x61, a SEND whose key cannot be invalidated is acknowledged, and the
    /// receive of a WRITE with immediate whose key is wrong ends with REM_ACCESS_ERR (IBTA vol 1, §11.6.2,
    /// has that for send requests).
    /// Hardware answers the first two as here. Of the third no NAK is asked (class J), and none is
    /// forbidden: without one the peer would take the message for received.
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

/// Returns the status of a send request that the peer answers with a terminal NAK.
const fn status_of_nak(nak: NakCode) -> WcStatus {
    match nak {
        NakCode::InvalidRequest => WcStatus::RemInvReqErr,
        NakCode::RemoteAccess => WcStatus::RemAccessErr,
        NakCode::InvalidRdRequest => WcStatus::RemInvRdReqErr,
        // A code of the future means that the peer cannot go on, whatever the reason. A sequence
        // NAK is not terminal and does not come here.
        NakCode::RemoteOperational | NakCode::Reserved(_) | NakCode::PsnSequence => {
            WcStatus::RemOpErr
        }
    }
}
