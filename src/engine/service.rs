//! What the transport services have in common, as a queue pair sees them.

use bytes::Bytes;

use crate::engine::attr::QpType;
use crate::engine::post::QpCap;
use crate::ids::Qpn;
use crate::net::{Burst, RxMeta};
use crate::psn::Psn;
use crate::time::Instant;
use crate::transport::build::Progress;
use crate::transport::connection::{Connection, Context, Identity};
use crate::transport::fault::{PacketError, TransportError};
use crate::transport::outputs::DropReason;
use crate::transport::rc::requester::Requester;
use crate::transport::rc::responder::Responder;
use crate::transport::recv::RecvQueue;
use crate::transport::send_state::SendState;
use crate::transport::uc::{UcReceiver, UcSender};
use crate::transport::ud::{self, Destination, Endpoint, UdSender};
use crate::transport::window::{WindowId, Windows};
use crate::transport::work::{SendRequest, WcStatus};
use crate::wire::{Datagram, Transport};

/// The two halves of a queue pair, by its type.
#[expect(clippy::large_enum_variant, reason = "most queue pairs are RC, and each has its own box")]
#[derive(Debug)]
pub(crate) enum Service {
    Rc { requester: Requester, responder: Responder },
    XrcIni { requester: Requester },
    XrcTgt { responder: Responder },
    Uc { sender: UcSender, receiver: UcReceiver },
    Ud { sender: UdSender },
}

/// Whom a queue pair talks to, once it is in RTR.
#[derive(Debug)]
pub(crate) enum Peering {
    /// RC, UC and XRC: one peer.
    Connection(Connection),
    /// UD: anybody.
    Endpoint(Box<Endpoint>),
}

/// A packet and what is known of its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) packet: Datagram<'a>,
    /// The datagram that the packet is.
    pub(crate) bytes: &'a [u8],
    pub(crate) meta: &'a RxMeta,
    /// Its IPv4 identification.
    pub(crate) id: u16,
    /// The identification is the one that was to be expected.
    pub(crate) is_predicted: bool,
    /// XRC: whether it is for the receive queue at hand.
    pub(crate) addressed: Result<(), TransportError>,
}

impl Service {
    pub(crate) fn new(qp_type: QpType, cap: &QpCap) -> Self {
        let sends = cap.max_send_wr as usize;
        match qp_type {
            QpType::Rc => {
                Self::Rc { requester: Requester::new(sends), responder: Responder::default() }
            }
            QpType::Uc => {
                Self::Uc { sender: UcSender::new(sends), receiver: UcReceiver::default() }
            }
            QpType::Ud => Self::Ud { sender: UdSender::new(sends) },
            QpType::XrcIni => Self::XrcIni { requester: Requester::new(sends) },
            QpType::XrcTgt => Self::XrcTgt { responder: Responder::default() },
        }
    }

    /// The transport that its packets belong to.
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Rc { .. } => Transport::Rc,
            Self::Uc { .. } => Transport::Uc,
            Self::Ud { .. } => Transport::Ud,
            Self::XrcIni { .. } | Self::XrcTgt { .. } => Transport::Xrc,
        }
    }

    // ---- the send queue ----

    /// The capacity of the send queue, unless there is room behind `ahead` more requests.
    pub(crate) fn full(&self, ahead: usize) -> Option<usize> {
        let queue = match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => requester.queue(),
            Self::XrcTgt { .. } => return Some(0),
            Self::Uc { sender, .. } => sender.queue(),
            Self::Ud { sender } => sender.queue(),
        };
        (queue.room() <= ahead).then_some(queue.capacity())
    }

    /// How many READs, atomics and the like are unfinished.
    pub(crate) fn awaited(&self) -> usize {
        match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => requester.awaited(),
            Self::Uc { .. } | Self::Ud { .. } | Self::XrcTgt { .. } => 0,
        }
    }

    /// Appends a request. Only UD has a destination for each.
    #[inline]
    pub(crate) fn post(&mut self, request: &mut SendRequest, length: u32, to: Option<Destination>) {
        match (self, to) {
            (Self::Rc { requester, .. } | Self::XrcIni { requester }, _) => {
                requester.post(request, length);
            }
            (Self::XrcTgt { .. }, _) => debug_assert!(false, "posting has found no send queue"),
            (Self::Uc { sender, .. }, _) => sender.post(request, length),
            (Self::Ud { sender }, Some(to)) => sender.post(request, length, to),
            (Self::Ud { .. }, None) => debug_assert!(false, "posting has checked the destination"),
        }
    }

    /// Whether no request has sent packets and is unfinished.
    pub(crate) fn is_drained(&self) -> bool {
        match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => requester.is_drained(),
            Self::Uc { sender, .. } => sender.is_drained(),
            Self::Ud { .. } | Self::XrcTgt { .. } => true,
        }
    }

    /// Whether there may be a request packet that this state of the send queue admits.
    pub(crate) fn may_transmit(&self, state: SendState) -> bool {
        match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => {
                requester.may_transmit(state)
            }
            Self::XrcTgt { .. } => false,
            Self::Uc { sender, .. } => sender.may_transmit(state),
            Self::Ud { sender } => sender.may_transmit(state),
        }
    }

    /// Whether answers are to be asked for again, for which there is room already.
    pub(crate) fn has_rerequests(&self) -> bool {
        match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => requester.has_rerequests(),
            Self::Uc { .. } | Self::Ud { .. } | Self::XrcTgt { .. } => false,
        }
    }

    /// Appends packets of send requests to `out`. The caller has asked whether it [may](Self::may_transmit).
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        peering: &Peering,
        state: SendState,
        out: &mut Burst,
    ) -> Result<Progress, WcStatus> {
        match (self, peering) {
            (
                Self::Rc { requester, .. } | Self::XrcIni { requester },
                Peering::Connection(connection),
            ) => Ok(requester.transmit(cx, connection, state, out)),
            (Self::Uc { sender, .. }, Peering::Connection(connection)) => {
                sender.transmit(cx, connection, state, out)
            }
            (Self::Ud { sender }, Peering::Endpoint(endpoint)) => {
                sender.transmit(cx, endpoint, out)
            }
            _ => Ok(Progress::Idle),
        }
    }

    /// UD: where the next request goes.
    pub(crate) fn next_destination(&self) -> Option<&Destination> {
        match self {
            Self::Ud { sender } => sender.next_destination(),
            Self::Rc { .. } | Self::XrcIni { .. } | Self::XrcTgt { .. } | Self::Uc { .. } => None,
        }
    }

    /// Whether bursts do not get through, so that every packet is to go alone.
    pub(crate) fn goes_alone(&self) -> bool {
        match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => requester.goes_alone(),
            Self::Uc { .. } | Self::Ud { .. } | Self::XrcTgt { .. } => false,
        }
    }

    /// How the oldest request fails because it could not be sent, once it is the oldest.
    pub(crate) fn failure(&self) -> Option<WcStatus> {
        match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => requester.failure(),
            Self::Uc { .. } | Self::Ud { .. } | Self::XrcTgt { .. } => None,
        }
    }

    pub(crate) fn fail_oldest(&mut self, cx: &mut Context<'_>, id: &Identity, status: WcStatus) {
        match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => {
                requester.fail_oldest(cx, id, status);
            }
            Self::XrcTgt { .. } => {}
            Self::Uc { sender, .. } => sender.fail_oldest(cx, id, status),
            Self::Ud { sender } => sender.fail_oldest(cx, id, status),
        }
    }

    /// Ends every send request with "flushed".
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>, id: &Identity, window: Option<WindowId>) {
        match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => {
                requester.flush(cx, id, window);
            }
            Self::XrcTgt { .. } => {}
            Self::Uc { sender, .. } => sender.flush(cx, id),
            Self::Ud { sender } => sender.flush(cx, id),
        }
    }

    /// Gives back what is in flight, without completions.
    pub(crate) fn clear(&mut self, cx: &mut Context<'_>, window: Option<WindowId>) {
        if let Self::Rc { requester, .. } | Self::XrcIni { requester } = self {
            requester.clear(cx, window);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Rc { requester, .. } | Self::XrcIni { requester } => requester.deadline(),
            Self::Uc { .. } | Self::Ud { .. } | Self::XrcTgt { .. } => None,
        }
    }

    pub(crate) fn handle_timeout(
        &mut self,
        cx: &mut Context<'_>,
        peering: &Peering,
    ) -> Result<(), WcStatus> {
        match (self, peering) {
            (
                Self::Rc { requester, .. } | Self::XrcIni { requester },
                Peering::Connection(connection),
            ) => requester.handle_timeout(cx, connection),
            _ => Ok(()),
        }
    }

    // ---- the receiving side ----

    /// Takes a packet.
    pub(crate) fn handle_packet(
        &mut self,
        cx: &mut Context<'_>,
        peering: &Peering,
        receives: &mut RecvQueue,
        arrival: &Arrival<'_>,
    ) -> Result<(), PacketError> {
        let (packet, datagram) = (&arrival.packet, (&arrival.packet, arrival.bytes));
        let is_request = packet.info.is_request();
        match (self, peering) {
            (Self::Rc { requester, responder }, Peering::Connection(connection)) if is_request => {
                requester.observe(&packet.bth);
                responder
                    .handle_request(cx, connection, receives, datagram, arrival.addressed)
                    .map_err(PacketError::Request)
            }
            (Self::XrcTgt { responder }, Peering::Connection(connection)) if is_request => {
                responder
                    .handle_request(cx, connection, receives, datagram, arrival.addressed)
                    .map_err(PacketError::Request)
            }
            (
                Self::Rc { requester, .. } | Self::XrcIni { requester },
                Peering::Connection(connection),
            ) if !is_request => {
                requester.observe(&packet.bth);
                requester.handle_response(cx, connection, datagram).map_err(PacketError::Send)
            }
            (Self::Uc { receiver, .. }, Peering::Connection(connection)) => {
                receiver.handle_packet(cx, connection, receives, packet)
            }
            (Self::Ud { .. }, Peering::Endpoint(endpoint)) => {
                let Arrival { meta, id, .. } = arrival;
                ud::handle_packet(cx, endpoint, receives, packet, meta, *id)
            }
            _ => Err(DropReason::QpState.into()),
        }
    }

    /// Takes a packet like the one before it, which was in the middle of a message, if nothing is wrong with
    /// it. Else nothing has changed.
    pub(crate) fn handle_middle(
        &mut self,
        cx: &mut Context<'_>,
        peering: &Peering,
        packet: &Datagram<'_>,
    ) -> bool {
        let Peering::Connection(connection) = peering else { return false };
        match self {
            Self::Rc { responder, .. } | Self::XrcTgt { responder } if packet.info.is_request() => {
                responder.handle_middle(cx, connection, packet)
            }
            Self::Rc { requester, .. } | Self::XrcIni { requester } => {
                requester.handle_middle(cx, connection, packet)
            }
            Self::Uc { receiver, .. } => receiver.handle_middle(cx, connection, packet),
            Self::XrcTgt { .. } | Self::Ud { .. } => false,
        }
    }

    /// Takes a packet like the one before it, which was a message of RC, if nothing is wrong with it. Else
    /// nothing has changed.
    pub(crate) fn handle_only(
        &mut self,
        cx: &mut Context<'_>,
        peering: &Peering,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
    ) -> bool {
        match (self, peering) {
            (Self::Rc { responder, .. }, Peering::Connection(connection)) => {
                responder.handle_only(cx, connection, receives, packet)
            }
            _ => false,
        }
    }

    /// Ends the message that is arriving, if a receive request belongs to it.
    pub(crate) fn end_message(
        &mut self,
        cx: &mut Context<'_>,
        qpn: Qpn,
        receives: &mut RecvQueue,
        status: WcStatus,
    ) {
        match self {
            Self::Rc { responder, .. } | Self::XrcTgt { responder } => {
                responder.end_message(cx, qpn, receives, status);
            }
            Self::Uc { receiver, .. } => receiver.end_message(cx, qpn, receives, status),
            Self::Ud { .. } | Self::XrcIni { .. } => {}
        }
    }

    /// Forgets the message that is arriving, and puts its receive request back.
    pub(crate) fn forget_message(&mut self, receives: &mut RecvQueue) {
        match self {
            Self::Rc { responder, .. } | Self::XrcTgt { responder } => {
                responder.forget_message(receives);
            }
            Self::Uc { receiver, .. } => receiver.forget_message(receives),
            Self::Ud { .. } | Self::XrcIni { .. } => {}
        }
    }

    /// What the last packets have brought could not be written. What they belong to fails with the next.
    pub(crate) fn lose_memory(&mut self) {
        match self {
            Self::Rc { requester, responder } => {
                requester.lose_memory();
                responder.lose_memory();
            }
            Self::XrcIni { requester } => requester.lose_memory(),
            Self::XrcTgt { responder } => responder.lose_memory(),
            Self::Uc { receiver, .. } => receiver.lose_memory(),
            // A packet is a message there.
            Self::Ud { .. } => {}
        }
    }

    /// XRC: whether a message has begun and not ended.
    pub(crate) fn is_within_message(&self) -> bool {
        matches!(self, Self::XrcTgt { responder } if responder.is_within_message())
    }

    /// Whether requests are kept that came ahead of a missing one.
    pub(crate) fn keeps(&self) -> bool {
        match self {
            Self::Rc { responder, .. } | Self::XrcTgt { responder } => responder.keeps(),
            Self::Uc { .. } | Self::Ud { .. } | Self::XrcIni { .. } => false,
        }
    }

    /// The request that was kept and whose turn it is now.
    pub(crate) fn take_kept(&mut self) -> Option<Bytes> {
        self.responder()?.take_kept()
    }

    /// The responder, of a service that has answers.
    pub(crate) fn responder(&mut self) -> Option<&mut Responder> {
        match self {
            Self::Rc { responder, .. } | Self::XrcTgt { responder } => Some(responder),
            Self::Uc { .. } | Self::Ud { .. } | Self::XrcIni { .. } => None,
        }
    }

    /// Whether a request packet would be dropped whatever it says, so that its ICRC need not be checked.
    pub(crate) fn ignores(&self, peering: &Peering, packet: &Datagram<'_>) -> bool {
        match (self, peering) {
            (
                Self::Rc { responder, .. } | Self::XrcTgt { responder },
                Peering::Connection(connection),
            ) => packet.info.is_request() && responder.ignores(connection, packet),
            _ => false,
        }
    }

    /// Whether an acknowledgement is owed to the peer, and nothing else.
    pub(crate) fn owes_only_acknowledgement(&self) -> bool {
        match self {
            Self::Rc { responder, .. } | Self::XrcTgt { responder } => {
                responder.owes_only_acknowledgement()
            }
            Self::Uc { .. } | Self::Ud { .. } | Self::XrcIni { .. } => false,
        }
    }

    /// Whether anything is owed to the peer.
    pub(crate) fn owes(&self) -> bool {
        match self {
            Self::Rc { responder, .. } | Self::XrcTgt { responder } => responder.owes(),
            Self::Uc { .. } | Self::Ud { .. } | Self::XrcIni { .. } => false,
        }
    }

    // ---- states ----

    /// INIT → RTR.
    pub(crate) fn start_receiving(&mut self, expected: Psn) {
        match self {
            Self::Rc { responder, .. } | Self::XrcTgt { responder } => responder.start(expected),
            Self::Uc { receiver, .. } => receiver.start(expected),
            Self::Ud { .. } | Self::XrcIni { .. } => {}
        }
    }

    /// RTR → RTS.
    pub(crate) fn start_sending(
        &mut self,
        first: Psn,
        peering: &Peering,
        receive_buffer: u64,
        windows: &Windows,
    ) {
        match (self, peering) {
            (
                Self::Rc { requester, .. } | Self::XrcIni { requester },
                Peering::Connection(connection),
            ) => {
                let whole = windows.is_whole(connection.window);
                requester.start(first, connection, receive_buffer, whole);
            }
            (Self::Uc { sender, .. }, _) => sender.start(first),
            (Self::Ud { sender }, _) => sender.start(first),
            _ => {}
        }
    }

    /// Takes attributes over that changed while connected.
    pub(crate) fn configure(&mut self, peering: &Peering) {
        if let (
            Self::Rc { requester, .. } | Self::XrcIni { requester },
            Peering::Connection(connection),
        ) = (self, peering)
        {
            requester.configure(connection);
        }
    }
}

impl Peering {
    /// The window to the one peer there is.
    pub(crate) fn window(&self) -> Option<WindowId> {
        match self {
            Self::Connection(connection) => Some(connection.window),
            Self::Endpoint(_) => None,
        }
    }

    /// The UDP source ports of its packets: the one of a connection, or of datagrams by source GID.
    pub(crate) fn source_ports(&self) -> &[u16] {
        match self {
            Self::Connection(connection) => std::slice::from_ref(&connection.path.source_port),
            Self::Endpoint(endpoint) => &endpoint.source_ports,
        }
    }

    /// READs and atomics that may be outstanding from here.
    pub(crate) fn max_rd_atomic(&self) -> u8 {
        match self {
            Self::Connection(connection) => connection.max_rd_atomic,
            Self::Endpoint(_) => 0,
        }
    }

    /// Whether a packet comes from whom it may, and to us.
    pub(crate) fn admits(&self, packet: &Datagram<'_>, meta: &RxMeta) -> Result<(), DropReason> {
        let pkey = match self {
            Self::Connection(connection) => {
                let path = &connection.path;
                if path.destination != meta.source.ip() || path.source != meta.destination {
                    return Err(DropReason::WrongAddress);
                }
                connection.pkey
            }
            Self::Endpoint(endpoint) => endpoint.pkey,
        };
        if !pkey.matches(packet.bth.pkey) {
            return Err(DropReason::PKeyMismatch);
        }
        Ok(())
    }
}
