//! Unreliable datagram: single-packet messages to any queue pair with a matching queue key, without
//! a connection.
//!
//! The first 40 bytes of a receive buffer hold the network header: a GRH in InfiniBand, the IP
//! header here. An IPv4 header is in the last 20 of them.

use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::ids::{PKey, QKey, Qpn};
use crate::mem::{LocalAccess, Placement, Spans};
use crate::net::{Burst, Ipv4Fields, Path, RxMeta};
use crate::psn::Psn;
use crate::transport::build::{self, Extension, Header, Progress, To};
use crate::transport::connection::{self, Identity, RecvEnd};
use crate::transport::context::Context;
use crate::transport::fault::{PacketError, TransportError};
use crate::transport::outputs::DropReason;
use crate::transport::recv::RecvQueue;
use crate::transport::send_budget::{Candidate, SendBudget};
use crate::transport::send_queue::SendQueue;
use crate::transport::send_state::SendState;
use crate::transport::work::{SendFlags, SendOp, SendRequest, WcOpcode, WcStatus};
use crate::transport::wqe::Wqe;
use crate::wire::encap::Headers;
use crate::wire::icrc::Flow;
use crate::wire::packet::datagram_len;
use crate::wire::{Datagram, Deth, ImmDt, Operation, Position, Suffix, Transport};

/// Bytes of a receive buffer before the payload.
pub(crate) const GRH_LEN: u32 = 40;

/// Attributes of a UD queue pair from RTR on.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) id: Identity,
    pub(crate) pkey: PKey,
    pub(crate) qkey: QKey,
    /// Payload bytes of a full packet.
    pub(crate) mtu: u32,
    /// The UDP source port of packets from each source GID.
    pub(crate) source_ports: SmallVec<[u16; 1]>,
}

/// Destination of one send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Destination {
    pub(crate) path: Path,
    pub(crate) qpn: Qpn,
    pub(crate) qkey: QKey,
}

/// The sending half of a UD queue pair.
#[derive(Debug)]
pub(crate) struct UdSender {
    queue: SendQueue,
    /// Destination of each request in `queue`.
    destinations: VecDeque<Destination>,
    next_psn: Psn,
}

impl UdSender {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            queue: SendQueue::new(capacity),
            destinations: VecDeque::new(),
            next_psn: Psn::default(),
        }
    }

    /// RTR → RTS: the first packet will have the PSN `first`.
    pub(crate) fn start(&mut self, first: Psn) {
        self.next_psn = first;
    }

    pub(crate) fn queue(&self) -> &SendQueue {
        &self.queue
    }

    pub(crate) fn post(&mut self, request: &mut SendRequest, length: u32, to: Destination) {
        self.queue.post(request, length);
        self.destinations.push_back(to);
    }

    /// Returns true: a request is one packet, so no started request is unfinished.
    #[expect(clippy::unused_self, reason = "as of the senders of other services")]
    pub(crate) fn is_drained(&self) -> bool {
        true
    }

    /// Whether there is a request to send. No request in the queue has started.
    pub(crate) fn may_transmit(&self, state: SendState) -> bool {
        !self.queue.is_empty() && state.admits_new()
    }

    /// Returns the destination of the oldest request.
    pub(crate) fn next_destination(&self) -> Option<&Destination> {
        self.destinations.front()
    }

    /// Appends packets to `out`, which goes to the destination of the oldest request.
    ///
    /// # Errors
    ///
    /// The memory of the oldest request cannot be read.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        endpoint: &Endpoint,
        out: &mut Burst,
    ) -> Result<Progress, TransportError> {
        let Some(&to) = self.destinations.front() else { return Ok(Progress::Idle) };
        let path = to.path;
        debug_assert_eq!(out.path, path, "the engine begins the burst");
        let flow = Flow::of_path(&path);
        let window = cx.shared.windows.transient_window(path.destination, cx.now);
        let mut budget = SendBudget::new(cx, window);
        let result = loop {
            let Some(next) = self.destinations.front() else { break Ok(Progress::Idle) };
            let Some(wqe) = self.queue.front_mut() else { break Ok(Progress::Idle) };
            // With GRO, the first packet of a merged burst selects the receiver's shard.
            if next.path != to.path || next.qpn.shard() != to.qpn.shard() {
                break Ok(Progress::More);
            }
            // A message longer than the MTU is not sent, and completes with success (C10-93.1.1).
            if wqe.length > endpoint.mtu {
                self.complete_oldest(cx, &endpoint.id);
                continue;
            }
            wqe.start(self.next_psn, endpoint.id.pd, endpoint.mtu, &cx.shared.memory);
            if let Some(error) = wqe.failure {
                break Err(error);
            }
            let header = header(wqe, endpoint, next);
            let len = datagram_len(header.opcode, wqe.length as usize);
            if !out.has_room(len) {
                break Ok(Progress::More);
            }
            let packet = Candidate { len, packets: 1, is_retransmitted: false };
            let takes = match budget.admit(out, packet) {
                Ok(takes) => takes,
                Err(progress) => break Ok(progress),
            };
            let to = To { flow: &flow, dest_qp: next.qpn, pkey: endpoint.pkey };
            let (pd, length) = (endpoint.id.pd, wqe.length as usize);
            let fill = |bytes: &mut [u8]| wqe.copy_out(cx, pd, 0, bytes);
            if build::push(out, to, &header, length, fill).is_err() {
                break Err(TransportError::SendProtection);
            }
            budget.spend(takes);
            self.next_psn = self.next_psn.next();
            self.complete_oldest(cx, &endpoint.id);
        };
        cx.shared.windows.charge_unacknowledged(window, cx.now, budget.spent());
        result
    }

    fn complete_oldest(&mut self, cx: &mut Context<'_>, id: &Identity) {
        let Some(wqe) = self.queue.front() else { return };
        cx.succeed(id, &wqe.end_of(), wqe.flags.contains(SendFlags::SIGNALED));
        self.let_oldest_go();
    }

    /// Completes the oldest request with `status`.
    pub(crate) fn fail_oldest(&mut self, cx: &mut Context<'_>, id: &Identity, status: WcStatus) {
        if let Some(wqe) = self.queue.front() {
            cx.complete_send(id, &wqe.end_of(), status);
            self.let_oldest_go();
        }
    }

    fn let_oldest_go(&mut self) {
        self.queue.pop_front();
        self.destinations.pop_front();
    }
}

/// A key with this bit set in a send request selects the queue pair's own key (IBTA vol 1,
/// §10.2.5).
const OWN_QKEY: u32 = 1 << 31;

fn header(wqe: &Wqe, endpoint: &Endpoint, to: &Destination) -> Header {
    let qkey = if to.qkey.0 & OWN_QKEY != 0 { endpoint.qkey } else { to.qkey };
    let deth = Deth { qkey, source_qp: endpoint.id.qpn };
    let (operation, suffix) = wqe.op.parts().unwrap_or((Operation::Send, Suffix::None));
    let opcode = connection::opcode(Transport::Ud, operation, Position::Only, suffix);
    let extension = match wqe.op {
        SendOp::SendImm { imm } => Extension::DethImm(deth, ImmDt(imm)),
        _ => Extension::Deth(deth),
    };
    let solicited = wqe.flags.contains(SendFlags::SOLICITED);
    Header { opcode, psn: wqe.first, ack_req: false, solicited, srqn: None, extension }
}

/// The receiving half of a UD queue pair. Each packet is a message, so it keeps no state.
#[derive(Debug)]
pub(crate) struct UdReceiver;

impl UdReceiver {
    /// Handles a packet with its IPv4 identification. Only a delivered packet consumes a receive
    /// request.
    #[expect(clippy::unused_self, reason = "as of the receivers of other services")]
    pub(crate) fn handle_packet(
        &self,
        cx: &mut Context<'_>,
        endpoint: &Endpoint,
        receives: &mut RecvQueue,
        packet: &Datagram<'_>,
        (meta, id): (&RxMeta, u16),
    ) -> Result<(), PacketError> {
        let deth = packet.deth().ok_or(DropReason::Malformed)?;
        if deth.qkey != endpoint.qkey {
            return Err(DropReason::QKeyMismatch.into());
        }
        let len = u32::try_from(packet.payload.len()).map_err(|_| DropReason::Malformed)?;
        let byte_len = GRH_LEN + len;
        if len > endpoint.mtu {
            return Err(DropReason::Refused.into());
        }
        let request = receives.first().ok_or(DropReason::NoReceive)?;
        let wr_id = request.wr_id;
        if request.length() < u64::from(byte_len) {
            if receives.shared {
                // If it stayed, it would block every queue pair of the SRQ (IBTA vol 1, §9.9.3,
                // class E).
                let end = RecvEnd::failed(TransportError::ReceiveTooShort.consequence().status);
                complete(cx, endpoint, receives, wr_id, end);
            }
            return Err(DropReason::Refused.into());
        }
        let pieces = request.pieces();
        let buffer = Spans::accessible(&cx.shared.memory, receives.pd, pieces, LocalAccess::Write);
        let placed = if buffer.len() < byte_len as usize {
            Err(TransportError::LocalProtection)
        } else {
            let grh = global_route(meta, id, packet);
            buffer
                .place(cx.turn, 0, &grh, Placement::Plain)
                .and_then(|()| {
                    buffer.place(cx.turn, GRH_LEN as usize, packet.payload, Placement::Final)
                })
                .map_err(|_| TransportError::LocalProtection)
        };
        let end = match placed {
            Err(error) => RecvEnd::failed(error.consequence().status),
            Ok(()) => RecvEnd {
                status: WcStatus::Success,
                opcode: WcOpcode::Recv,
                byte_len,
                imm: packet.imm().map(|imm| imm.0),
                invalidated: None,
                solicited: packet.bth.solicited,
                source_qp: Some(deth.source_qp),
                ip_version: Some(meta.source.ip().into()),
            },
        };
        complete(cx, endpoint, receives, wr_id, end);
        placed.map_err(PacketError::from)
    }
}

/// Takes the oldest receive request and completes it.
fn complete(
    cx: &mut Context<'_>,
    endpoint: &Endpoint,
    receives: &mut RecvQueue,
    wr_id: u64,
    end: RecvEnd,
) {
    receives.take();
    receives.finish();
    cx.complete_recv(receives.cq, endpoint.id.qpn, wr_id, end);
}

/// Returns the 40 bytes before the payload. Fields that the socket does not report are 0.
fn global_route(meta: &RxMeta, id: u16, packet: &Datagram<'_>) -> [u8; GRH_LEN as usize] {
    let path = Path {
        source: meta.source.ip(),
        destination: meta.destination,
        source_port: meta.source.port(),
        traffic_class: meta.traffic_class,
        hop_limit: meta.hop_limit,
    };
    let dont_fragment = meta.ipv4.is_none_or(|seen| seen.dont_fragment);
    let headers = Headers { path, flow_label: 0, ipv4: Ipv4Fields { id, dont_fragment } };
    headers.global_route(datagram_len(packet.bth.opcode, packet.payload.len()))
}
