//! Every way a request packet can fail at the side that receives it, and everything that follows from it: one table.
//!
//! | column | |
//! |---|---|
//! | [`Reliable`] | RC and XRC: the NAK, the event, and with them whether the queue pair goes to ERR |
//! | [`Unreliable`] | UC and UD: the reason of the drop, or that the queue pair goes to ERR |
//! | [`Consequence::status`] | how the receive request of the message completes |
//! | [`status_of_nak`] | how the send request completes at the other side, by the NAK |
//!
//! The halves of a queue pair return [`PacketError`], and the queue pair does what it says.

use crate::ids::Qpn;
use crate::transport::outputs::{AsyncEvent, DropReason};
use crate::transport::work::WcStatus;
use crate::wire::NakCode;

/// Reason why the responder does not execute a request packet.
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
    /// The opcode is one we do not carry out.
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
}

/// What follows from a [`TransportError`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consequence {
    /// Over RC and XRC.
    pub(crate) reliable: Reliable,
    /// Over UC and UD.
    pub(crate) unreliable: Unreliable,
    /// Status with which the receive request of the message completes, when the message has one and ends.
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
}

/// What follows from a [`TransportError`] over a service that does not acknowledge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unreliable {
    /// The packet is dropped, and its message with it: nothing in a packet can make the queue pair fail.
    Drop(DropReason),
    /// The receive request completes with the error, and the queue pair goes to ERR.
    Fail,
}

/// Consequence of a packet that a queue pair does not accept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketError {
    /// Drop it, count it, and do nothing else.
    Drop(DropReason),
    /// Fail: the oldest send request cannot be carried out.
    Send(WcStatus),
    /// RC and XRC: fail, since a request of the peer has been refused for good.
    Request(Failure),
    /// UC and UD: fail, since a receive request could not be used. Its completion says why.
    Receive,
}

impl From<DropReason> for PacketError {
    fn from(reason: DropReason) -> Self {
        Self::Drop(reason)
    }
}

/// Terminal error of a request, and how its message ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) error: TransportError,
    /// A receive request has completed with the error's status, so no event is due.
    pub(crate) recv_completed: bool,
}

impl TransportError {
    /// The table.
    ///
    /// Kernel rxe differs in four places: a receive that is too short gives it 0x63, a missing
    /// permission of the queue pair 0x61, a SEND whose key cannot be invalidated is acknowledged, and the
    /// receive of a WRITE with immediate whose key is wrong ends with REM_ACCESS_ERR (IBTA vol 1, §11.6.2,
    /// has that for send requests).
    /// Hardware answers the first two as here. Of the third no NAK is asked (class J), and none is
    /// forbidden: without one its sender would take for received what nobody will have.
    pub(crate) const fn consequence(self) -> Consequence {
        use AsyncEvent::{QpAccessErr, QpFatal, QpReqErr};
        use NakCode::{InvalidRequest, RemoteAccess, RemoteOperational};
        use WcStatus::{
            LocAccessErr, LocLenErr, LocProtErr, LocQpOpErr, RemAccessErr, RemInvReqErr,
        };

        const REFUSED: Unreliable = Unreliable::Drop(DropReason::Refused);
        const LATE: Unreliable = Unreliable::Drop(DropReason::OutOfSequence);
        const NO_RECEIVE: Unreliable = Unreliable::Drop(DropReason::NoReceive);
        const fn fail(nak: NakCode, event: fn(Qpn) -> AsyncEvent) -> Reliable {
            Reliable::Fail { nak, event }
        }

        let (reliable, unreliable, status) = match self {
            Self::NotReady => (Reliable::RnrNak, NO_RECEIVE, RemInvReqErr),
            Self::Sequence => (fail(InvalidRequest, QpReqErr), LATE, RemInvReqErr),
            Self::Length => (fail(InvalidRequest, QpReqErr), REFUSED, RemInvReqErr),
            Self::ReceiveTooShort => (fail(InvalidRequest, QpReqErr), REFUSED, LocLenErr),
            Self::TooManyReads => (fail(InvalidRequest, QpReqErr), REFUSED, RemInvReqErr),
            Self::Misaligned => (fail(InvalidRequest, QpReqErr), REFUSED, RemInvReqErr),
            Self::Unsupported => (fail(InvalidRequest, QpReqErr), REFUSED, RemInvReqErr),
            Self::NotPermitted => (fail(RemoteAccess, QpAccessErr), REFUSED, RemAccessErr),
            Self::RemoteAccess => (fail(RemoteAccess, QpAccessErr), REFUSED, LocAccessErr),
            Self::LocalProtection => {
                (fail(RemoteOperational, QpReqErr), Unreliable::Fail, LocProtErr)
            }
            Self::Storage => (fail(RemoteOperational, QpFatal), REFUSED, LocQpOpErr),
            Self::Invalidate => (fail(RemoteAccess, QpAccessErr), REFUSED, RemInvReqErr),
            Self::WrongSrq => (fail(InvalidRequest, QpReqErr), REFUSED, RemInvReqErr),
            Self::SrqFailed => (fail(RemoteOperational, QpFatal), REFUSED, LocQpOpErr),
        };
        Consequence { reliable, unreliable, status }
    }
}

/// How a send request ends when the peer answers with a terminal NAK.
pub(crate) const fn status_of_nak(nak: NakCode) -> WcStatus {
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
