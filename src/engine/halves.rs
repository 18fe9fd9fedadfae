//! The two halves of a queue pair: one sends requests, the other executes requests of the peer.
//!
//! | type | send half | receive half |
//! |---|---|---|
//! | RC | [`Requester`] | [`Responder`] |
//! | XRC initiator | [`Requester`] | none |
//! | XRC target | none | [`Responder`] |
//! | UC | [`UcSender`] | [`UcReceiver`] |
//! | UD | [`UdSender`] | [`UdReceiver`] |
//!
//! The methods here exist for every service. For the functions of RC and XRC only, the queue pair
//! uses [`Halves::requester`] and [`Halves::responder`].

use crate::engine::attr::QpType;
use crate::engine::post::QpCap;
use crate::engine::remote::{Arrival, RemoteInfo};
use crate::net::Burst;
use crate::psn::Psn;
use crate::transport::build::Progress;
use crate::transport::connection::{Connection, Identity};
use crate::transport::context::Context;
use crate::transport::fault::{PacketError, TransportError};
use crate::transport::inbound::Inbound;
use crate::transport::outputs::DropReason;
use crate::transport::rc::requester::Requester;
use crate::transport::rc::responder::Responder;
use crate::transport::recv::RecvQueue;
use crate::transport::send_queue::SendQueue;
use crate::transport::send_state::SendState;
use crate::transport::uc::{UcReceiver, UcSender};
use crate::transport::ud::{Destination, UdReceiver, UdSender};
use crate::transport::window::Windows;
use crate::transport::work::{SendRequest, WcStatus};
use crate::wire::Datagram;

/// The halves of a queue pair, by its type.
#[derive(Debug)]
pub(crate) struct Halves {
    pub(crate) send: Option<SendHalf>,
    pub(crate) receive: Option<ReceiveHalf>,
}

/// The half that sends requests and receives their responses.
#[expect(clippy::large_enum_variant, reason = "most queue pairs are RC, and each has its own box")]
#[derive(Debug)]
pub(crate) enum SendHalf {
    Rc(Requester),
    Uc(UcSender),
    Ud(UdSender),
}

/// The half that receives requests and sends their responses.
#[derive(Debug)]
pub(crate) enum ReceiveHalf {
    Rc(Responder),
    Uc(UcReceiver),
    Ud(UdReceiver),
}

/// Evaluates an expression for the sender of any service.
macro_rules! for_sender {
    ($half:expr, $sender:ident => $value:expr) => {
        match $half {
            SendHalf::Rc($sender) => $value,
            SendHalf::Uc($sender) => $value,
            SendHalf::Ud($sender) => $value,
        }
    };
}

impl Halves {
    /// Returns the halves of a queue pair in RESET.
    pub(crate) fn new(qp_type: QpType, cap: &QpCap) -> Self {
        let capacity = cap.max_send_wr as usize;
        let requester = || Some(SendHalf::Rc(Requester::new(capacity)));
        let responder = || Some(ReceiveHalf::Rc(Responder::default()));
        let (send, receive) = match qp_type {
            QpType::Rc => (requester(), responder()),
            QpType::XrcIni => (requester(), None),
            QpType::XrcTgt => (None, responder()),
            QpType::Uc => (
                Some(SendHalf::Uc(UcSender::new(capacity))),
                Some(ReceiveHalf::Uc(UcReceiver::default())),
            ),
            QpType::Ud => {
                (Some(SendHalf::Ud(UdSender::new(capacity))), Some(ReceiveHalf::Ud(UdReceiver)))
            }
        };
        Self { send, receive }
    }

    /// Returns the send half of RC and XRC.
    pub(crate) fn requester(&self) -> Option<&Requester> {
        if let Some(SendHalf::Rc(requester)) = &self.send { Some(requester) } else { None }
    }

    pub(crate) fn requester_mut(&mut self) -> Option<&mut Requester> {
        if let Some(SendHalf::Rc(requester)) = &mut self.send { Some(requester) } else { None }
    }

    /// Returns the receive half of RC and XRC.
    pub(crate) fn responder(&self) -> Option<&Responder> {
        if let Some(ReceiveHalf::Rc(responder)) = &self.receive { Some(responder) } else { None }
    }

    pub(crate) fn responder_mut(&mut self) -> Option<&mut Responder> {
        if let Some(ReceiveHalf::Rc(responder)) = &mut self.receive {
            Some(responder)
        } else {
            None
        }
    }

    /// Whether a request packet may be sent in this state of the send queue.
    #[inline]
    pub(crate) fn may_transmit(&self, state: SendState) -> bool {
        self.send.as_ref().is_some_and(|send| for_sender!(send, s => s.may_transmit(state)))
    }

    /// Whether every request with sent packets is finished.
    pub(crate) fn is_drained(&self) -> bool {
        self.send.as_ref().is_none_or(|send| for_sender!(send, s => s.is_drained()))
    }

    /// Completes all send requests as flushed, in posting order.
    pub(crate) fn flush_sends(&mut self, cx: &mut Context<'_>, id: &Identity) {
        let Some(send) = &mut self.send else { return };
        while !send.queue().is_empty() {
            send.fail_oldest(cx, id, WcStatus::WrFlushErr);
        }
    }

    /// Marks the memory written by the last packets as faulted, so that the message or request
    /// fails with its next packet.
    pub(crate) fn mark_faulted(&mut self) {
        if let Some(requester) = self.requester_mut() {
            requester.mark_faulted();
        }
        if let Some(message) = self.receive.as_mut().and_then(ReceiveHalf::message) {
            message.mark_faulted();
        }
    }
}

impl SendHalf {
    pub(crate) fn queue(&self) -> &SendQueue {
        for_sender!(self, sender => sender.queue())
    }

    /// Appends a request of `length` bytes. A UD request has a destination.
    #[inline]
    pub(crate) fn post(&mut self, request: &mut SendRequest, length: u32, to: Option<Destination>) {
        match (self, to) {
            (Self::Rc(requester), _) => requester.post(request, length),
            (Self::Uc(sender), _) => sender.post(request, length),
            (Self::Ud(sender), Some(to)) => sender.post(request, length, to),
            (Self::Ud(_), None) => debug_assert!(false, "posting has checked the destination"),
        }
    }

    /// RTR → RTS: the first request will have the PSN `first`.
    pub(crate) fn start(
        &mut self,
        first: Psn,
        remote: &RemoteInfo,
        receive_buffer: u64,
        windows: &Windows,
    ) {
        match (self, remote) {
            (Self::Rc(requester), RemoteInfo::Connection(connection)) => {
                let whole = windows.is_whole(connection.window);
                requester.start(first, connection, receive_buffer, whole);
            }
            (Self::Uc(sender), RemoteInfo::Connection(_)) => sender.start(first),
            (Self::Ud(sender), RemoteInfo::Endpoint(_)) => sender.start(first),
            _ => debug_assert!(false, "{remote:?} is of another service"),
        }
    }

    /// Appends request packets to `out`. The caller has checked [`Halves::may_transmit`].
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        remote: &RemoteInfo,
        state: SendState,
        out: &mut Burst,
    ) -> Result<Progress, TransportError> {
        match (self, remote) {
            (Self::Rc(requester), RemoteInfo::Connection(connection)) => {
                Ok(requester.transmit(cx, connection, state, out))
            }
            (Self::Uc(sender), RemoteInfo::Connection(connection)) => {
                sender.transmit(cx, connection, state, out)
            }
            (Self::Ud(sender), RemoteInfo::Endpoint(endpoint)) => {
                sender.transmit(cx, endpoint, out)
            }
            _ => Ok(Progress::Idle),
        }
    }

    /// Completes the oldest request with `status`.
    pub(crate) fn fail_oldest(&mut self, cx: &mut Context<'_>, id: &Identity, status: WcStatus) {
        for_sender!(self, sender => sender.fail_oldest(cx, id, status));
    }
}

impl ReceiveHalf {
    /// INIT → RTR: the first request packet should have the PSN `expected`.
    pub(crate) fn start(&mut self, expected: Psn) {
        match self {
            Self::Rc(responder) => responder.start(expected),
            Self::Uc(receiver) => receiver.start(expected),
            Self::Ud(_) => {}
        }
    }

    /// Handles a request packet.
    #[inline]
    pub(crate) fn handle_request(
        &mut self,
        cx: &mut Context<'_>,
        remote: &RemoteInfo,
        receives: &mut RecvQueue,
        arrival: &Arrival<'_>,
    ) -> Result<(), PacketError> {
        let packet = arrival.packet;
        match (self, remote) {
            (Self::Rc(responder), RemoteInfo::Connection(connection)) => responder
                .handle_request(
                    cx,
                    connection,
                    receives,
                    (packet, arrival.bytes),
                    arrival.addressed,
                )
                .map_err(PacketError::Fail),
            (Self::Uc(receiver), RemoteInfo::Connection(connection)) => {
                receiver.handle_packet(cx, connection, receives, packet)
            }
            (Self::Ud(receiver), RemoteInfo::Endpoint(endpoint)) => {
                let came = (arrival.meta, arrival.id);
                receiver.handle_packet(cx, endpoint, receives, packet, came)
            }
            _ => Err(DropReason::QpState.into()),
        }
    }

    /// Handles a MIDDLE packet like the previous one if it is valid. Otherwise returns false and
    /// changes nothing.
    pub(crate) fn handle_middle(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        packet: &Datagram<'_>,
    ) -> bool {
        match self {
            Self::Rc(responder) => responder.handle_middle(cx, connection, packet),
            Self::Uc(receiver) => receiver.handle_middle(cx, connection, packet),
            Self::Ud(_) => false,
        }
    }

    /// Returns the message that is being received. A UD message is a single packet.
    pub(crate) fn message(&mut self) -> Option<&mut Inbound> {
        match self {
            Self::Rc(responder) => Some(responder.message()),
            Self::Uc(receiver) => Some(receiver.message()),
            Self::Ud(_) => None,
        }
    }
}
