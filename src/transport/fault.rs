//! Every way a request can fail at the responder, and what follows from it: one table.

use crate::ids::Qpn;
use crate::transport::outputs::AsyncEvent;
use crate::transport::work::WcStatus;
use crate::wire::NakCode;

/// A request that the responder will not carry out. All of these are terminal: the queue pair goes
/// to the error state (IBTA vol 1, §9.9.3).
///
/// A gap in the sequence and a missing receive request are not faults: the peer tries again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
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

/// What follows from a [`Fault`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consequence {
    /// What the requester is told.
    pub(crate) nak: NakCode,
    /// How the receive request of the message ends, when it has one.
    pub(crate) status: WcStatus,
    /// The event raised when it has none.
    pub(crate) event: fn(Qpn) -> AsyncEvent,
}

impl Fault {
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

        let (nak, status, event): (_, _, fn(Qpn) -> AsyncEvent) = match self {
            Self::Sequence => (InvalidRequest, RemInvReqErr, QpReqErr),
            Self::Length => (InvalidRequest, RemInvReqErr, QpReqErr),
            Self::ReceiveTooShort => (InvalidRequest, LocLenErr, QpReqErr),
            Self::TooManyReads => (InvalidRequest, RemInvReqErr, QpReqErr),
            Self::Misaligned => (InvalidRequest, RemInvReqErr, QpReqErr),
            Self::Unsupported => (InvalidRequest, RemInvReqErr, QpReqErr),
            Self::NotPermitted => (RemoteAccess, RemAccessErr, QpAccessErr),
            Self::RemoteAccess => (RemoteAccess, LocAccessErr, QpAccessErr),
            Self::LocalProtection => (RemoteOperational, LocProtErr, QpReqErr),
            Self::Storage => (RemoteOperational, LocQpOpErr, QpFatal),
            Self::Invalidate => (RemoteAccess, RemInvReqErr, QpAccessErr),
            Self::WrongSrq => (InvalidRequest, RemInvReqErr, QpReqErr),
            Self::SrqFailed => (RemoteOperational, LocQpOpErr, QpFatal),
        };
        Consequence { nak, status, event }
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
