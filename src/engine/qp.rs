//! A queue pair: two halves, a state, and its attributes.

use crate::engine::QpInit;
use crate::engine::attr::{QpAttr, QpState, QpType};
use crate::engine::flow_cache::FlowCache;
use crate::engine::halves::{Halves, ReceiveHalf, SendHalf};
use crate::engine::identification::Identification;
use crate::engine::pace::{Pacer, RateLimit};
use crate::engine::post::{PostError, QpCap};
use crate::engine::receives::Receives;
use crate::engine::remote::{Arrival, RemoteInfo};
use crate::engine::send_ops::SendOps;
use crate::ids::Srqn;
use crate::net::{Burst, BurstToken, RxMeta};
use crate::time::Instant;
use crate::transport::build::Progress;
use crate::transport::connection::{Identity, RecvEnd};
use crate::transport::context::Context;
use crate::transport::fault::{
    Consequence, Failure, PacketError, Reliable, TransportError, Unreliable,
};
use crate::transport::outputs::{AsyncEvent, DropReason};
use crate::transport::rc::requester::Requester;
use crate::transport::rc::responder::Responder;
use crate::transport::recv::RecvQueue;
use crate::transport::send_state::SendState;
use crate::transport::ud::Destination;
use crate::transport::window::{WindowId, Windows};
use crate::transport::work::{RecvRequest, SendFlags, SendOp, SendRequest, SendTarget, WcStatus};
use crate::wire::icrc::{self, Flow, Verdict};
use crate::wire::{Datagram, OpcodeFlags, Operation, Transport};

/// A queue pair of the engine.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) id: Identity,
    pub(crate) qp_type: QpType,
    /// Limits on requests, from the attributes at creation.
    limits: PostLimits,
    pub(crate) state: QpState,
    /// Attributes that are used only when they change or are queried.
    pub(crate) cold: Box<Cold>,
    pub(crate) remote: Option<RemoteInfo>,
    halves: Halves,
    pub(crate) receives: Receives,
    identification: Identification,
    /// A packet has arrived since RTR.
    established: bool,
    /// The event `SQ_DRAINED` is raised when all started requests are complete.
    drained_event_due: bool,
    /// The acknowledgement did not fit the last burst, so it is first in the next one.
    ack_first: bool,
    /// It is in the engine's list of queue pairs with something to send.
    pub(crate) ready: bool,
    /// It waits for room in this window.
    pub(crate) waiting: Option<WindowId>,
    pacer: Pacer,
}

/// Attributes of a queue pair that no packet and no work request needs.
#[derive(Debug)]
pub(crate) struct Cold {
    /// Attributes at creation, as granted.
    pub(crate) init: QpInit,
    /// Every attribute set since RESET.
    pub(crate) attr: QpAttr,
}

/// The part of [`QpInit`] that posting checks.
#[derive(Clone, Copy, Debug)]
struct PostLimits {
    cap: QpCap,
    /// Operations of the service that the queue pair was created for.
    send_ops: SendOps,
    sq_sig_all: bool,
}

/// For a packet after one of another queue pair, the whole structure is prefetched: its number of
/// cache lines matters.
const _: () = assert!(size_of::<QueuePair>() <= 12 * 64);

/// Packets that a burst may contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TxScope {
    /// Responses, requests and the acknowledgement.
    Everything,
    /// Requests, and the acknowledgement if the burst has several packets.
    Requests,
}

/// Packets left to send after a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TxOutcome {
    /// More can be sent now.
    pub(crate) more: bool,
    /// More can be sent when this window has this many bytes of room.
    pub(crate) blocked: Option<(WindowId, u64)>,
}

impl QueuePair {
    pub(crate) fn new(id: Identity, init: QpInit) -> Self {
        let QpInit { qp_type, cap, sq_sig_all, .. } = init;
        let of_service = SendOps::of(qp_type);
        let send_ops = init.send_ops.map_or(of_service, |ops| ops.intersection(of_service));
        Self {
            id,
            qp_type,
            limits: PostLimits { cap, send_ops, sq_sig_all },
            state: QpState::Reset,
            cold: Box::new(Cold { init, attr: QpAttr::default() }),
            remote: None,
            halves: Halves::new(qp_type, &cap),
            receives: Receives::new(&id, &init),
            identification: Identification::default(),
            established: false,
            drained_event_due: false,
            ack_first: false,
            ready: false,
            waiting: None,
            pacer: Pacer::default(),
        }
    }

    // ---- posting ----

    /// Posts a send request. The caller [flushes](Self::flush_posted) it if the state [says so](Self::is_flushing).
    pub(crate) fn post_send(
        &mut self,
        request: &mut SendRequest,
        to: Option<Destination>,
    ) -> Result<(), PostError> {
        let length = self.check_send(request, 0)?;
        if self.limits.sq_sig_all {
            request.flags |= SendFlags::SIGNALED;
        }
        if let Some(send) = &mut self.halves.send {
            send.post(request, length, to);
        }
        Ok(())
    }

    /// Whether posted send requests complete as flushed at once; receive requests do so in ERR
    /// only.
    pub(crate) fn is_flushing(&self) -> bool {
        matches!(self.state, QpState::Err | QpState::Sqe)
    }

    /// Flushes the requests that were posted in ERR or SQE.
    #[cold]
    pub(crate) fn flush_posted(&mut self, cx: &mut Context<'_>) {
        self.halves.flush_sends(cx, &self.id);
        if self.state == QpState::Err {
            self.flush_receives(cx);
        }
    }

    fn flush_receives(&mut self, cx: &mut Context<'_>) {
        let Receives::Own(receives) = &mut self.receives else { return };
        let cq = receives.cq;
        for request in receives.drain() {
            let end = RecvEnd::failed(WcStatus::WrFlushErr);
            cx.complete_recv(cq, self.id.qpn, request.wr_id, end);
        }
    }

    /// Checks a send request that is to be posted after `ahead` others, and returns the length of
    /// its message.
    #[inline]
    pub(crate) fn check_send(&self, request: &SendRequest, ahead: usize) -> Result<u32, PostError> {
        let (qpn, qp_type) = (self.id.qpn, self.qp_type);
        let Some(send) = &self.halves.send else {
            return Err(PostError::NoQueue { qpn, qp_type, queue: "send" });
        };
        if !matches!(self.state, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err) {
            let needed = "send requests are taken from RTS on";
            return Err(PostError::State { qpn: self.id.qpn, found: self.state, needed });
        }
        let length = self.limits.cap.check_send(request)?;
        if !self.limits.send_ops.contains(SendOps::from(&request.op)) {
            return Err(self.excluded(&request.op));
        }
        match (qp_type, request.to) {
            (QpType::Ud, None | Some(SendTarget::Srq(_))) => return Err(PostError::NoTarget),
            (QpType::XrcIni, None | Some(SendTarget::Datagram(_))) => {
                return Err(PostError::NoSrqn);
            }
            _ => {}
        }
        if request.op.has_response()
            && self.state != QpState::Err
            && self.remote.as_ref().map_or(0, RemoteInfo::max_rd_atomic) == 0
        {
            return Err(PostError::NoReads);
        }
        let ahead = if self.is_flushing() { 0 } else { ahead };
        let queue = send.queue();
        match queue.room() > ahead {
            true => Ok(length),
            false => Err(PostError::QueueFull { capacity: queue.capacity() }),
        }
    }

    /// Returns the error for an operation for which the queue pair was not created, or that its
    /// service does not have.
    #[cold]
    fn excluded(&self, op: &SendOp) -> PostError {
        let (qp_type, found) = (self.qp_type, SendOps::from(op));
        match self.cold.init.send_ops {
            Some(declared) if SendOps::of(qp_type).contains(found) => {
                PostError::NotDeclared { found, declared }
            }
            _ => PostError::NoSuchOperation { qp_type, operation: op.wc_opcode() },
        }
    }

    /// Posts a receive request. The caller [flushes](Self::flush_posted) it if the state [says so](Self::is_flushing).
    pub(crate) fn post_recv(&mut self, request: RecvRequest) -> Result<(), PostError> {
        let (qpn, qp_type) = (self.id.qpn, self.qp_type);
        if self.state == QpState::Reset {
            let needed = "receive requests are taken from INIT on";
            return Err(PostError::State { qpn: self.id.qpn, found: self.state, needed });
        }
        let receives = match &mut self.receives {
            Receives::Own(receives) => receives,
            Receives::Shared(srqn) => return Err(PostError::Shared { qpn, srqn: *srqn }),
            Receives::Xrc(_) | Receives::None => {
                return Err(PostError::NoQueue { qpn, qp_type, queue: "receive" });
            }
        };
        self.limits.cap.check_recv(request.sges.len())?;
        let capacity = receives.capacity();
        receives.push(request).map_err(|_| PostError::QueueFull { capacity })
    }

    // ---- receiving ----

    /// Checks whether this queue pair accepts a packet in its current state, before the ICRC check.
    pub(crate) fn admits(&self, packet: &Datagram<'_>, meta: &RxMeta) -> Result<(), DropReason> {
        let (transport, is_request) = (packet.info.transport, packet.info.is_request());
        let is_notification = transport == Transport::Cnp && self.qp_type != QpType::Ud;
        let takes = match is_request {
            true => self.halves.receive.is_some(),
            false => self.halves.send.is_some(),
        };
        if (transport != self.qp_type.transport() || !takes) && !is_notification {
            return Err(DropReason::WrongTransport);
        }
        let Some(remote) = &self.remote else { return Err(DropReason::QpState) };
        let takes = match self.state {
            QpState::Rtr => is_request,
            QpState::Rts | QpState::Sqd | QpState::Sqe => true,
            QpState::Reset | QpState::Init | QpState::Err => false,
        };
        if !takes {
            return Err(DropReason::QpState);
        }
        remote.admits(packet, meta)?;
        // After a loss, all packets in flight arrive out of order, and the ICRC check is most of
        // their cost.
        if is_request
            && let (Some(responder), Some(connection)) =
                (self.halves.responder(), remote.connection())
            && responder.ignores(connection, packet)
        {
            return Err(DropReason::OutOfSequence);
        }
        Ok(())
    }

    /// Checks the ICRC of an [admitted](Self::admits) datagram as [`Flow::check_received`] does. The identifications of a
    /// connection's peer are predicted; UD has any number of peers.
    ///
    /// [`Flow::check_received`]: crate::wire::icrc::Flow::check_received
    #[inline]
    pub(crate) fn check(
        &mut self,
        flows: &mut FlowCache,
        meta: &RxMeta,
        segment: u16,
        datagram: &[u8],
    ) -> Verdict {
        match &mut self.remote {
            Some(RemoteInfo::Connection(_)) if icrc::is_exempt(meta, datagram) => Verdict::Good,
            Some(RemoteInfo::Connection(connection)) => {
                let flow = connection.peer_flow(meta.source.port());
                self.identification.check(flow, meta.ipv4, segment, datagram)
            }
            _ => flows.of(meta).check_received(meta, segment, datagram),
        }
    }

    /// Returns the flow from the peer with the source port of `meta`. `None` for UD.
    pub(crate) fn peer_flow(&mut self, meta: &RxMeta) -> Option<Flow> {
        match &mut self.remote {
            Some(RemoteInfo::Connection(connection)) => {
                Some(*connection.peer_flow(meta.source.port()))
            }
            _ => None,
        }
    }

    /// Handles a packet that passed [`admits`](Self::admits) and the ICRC check, and the kept
    /// packets that follow it.
    pub(crate) fn handle_packet(
        &mut self,
        cx: &mut Context<'_>,
        arrival: &mut Arrival<'_>,
    ) -> Result<(), DropReason> {
        self.take(cx, arrival)?;
        let keeps = self.halves.responder().is_some_and(Responder::keeps);
        if keeps { self.take_kept(cx, arrival) } else { Ok(()) }
    }

    /// Handles the kept packets that follow a packet.
    #[cold]
    fn take_kept(&mut self, cx: &mut Context<'_>, before: &Arrival<'_>) -> Result<(), DropReason> {
        while let Some(bytes) = self.halves.responder_mut().and_then(Responder::take_kept) {
            let Ok(packet) = Datagram::parse(&bytes) else { continue };
            self.take(cx, &mut Arrival { packet: &packet, bytes: &bytes, ..*before })?;
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, cx: &mut Context<'_>, arrival: &mut Arrival<'_>) -> Result<(), DropReason> {
        let Some(remote) = &mut self.remote else { return Err(DropReason::QpState) };
        if arrival.packet.info.operation == Operation::Cnp {
            cx.counters().cnps_received += 1;
            return Ok(());
        }
        let is_request = arrival.packet.info.is_request();
        if !self.established && self.qp_type != QpType::Ud {
            self.established = true;
            cx.shared.outputs.first_packet(self.id.qpn);
            if self.state == QpState::Rtr {
                cx.shared.outputs.events.push_back(AsyncEvent::CommEst(self.id.qpn));
            }
        }
        if let (Receives::Xrc(xrc), RemoteInfo::Connection(connection)) =
            (&mut self.receives, &mut *remote)
        {
            (connection.id.pd, arrival.addressed) = xrc.select_srq(&cx.shared.srqs, arrival.packet);
        }
        if let Some(requester) = self.halves.requester_mut() {
            requester.observe(&arrival.packet.bth);
        }
        let handled = if is_request {
            self.take_request(cx, arrival)
        } else {
            self.take_response(cx, arrival)
        };
        match handled {
            Ok(()) if is_request => {}
            Ok(()) => self.after_sending(cx, Ok(())),
            Err(PacketError::Drop(reason)) => return Err(reason),
            Err(PacketError::Fail(failure)) => self.fail(cx, failure),
        }
        Ok(())
    }

    fn take_request(
        &mut self,
        cx: &mut Context<'_>,
        arrival: &Arrival<'_>,
    ) -> Result<(), PacketError> {
        let (Some(remote), Some(receive)) = (&self.remote, &mut self.halves.receive) else {
            return Err(DropReason::QpState.into());
        };
        let is_reliable = self.qp_type.is_reliable();
        let handled = self.receives.with(cx, &self.id, |cx, receives| {
            let before = receives.len();
            let handled = receive.handle_request(cx, remote, receives, arrival);
            if !is_reliable && receives.len() < before {
                cx.shared.outputs.shortage.take(receives.len());
            }
            handled
        });
        if let Receives::Xrc(xrc) = &mut self.receives
            && !self.halves.responder().is_some_and(Responder::is_within_message)
        {
            xrc.deselect();
        }
        handled
    }

    fn take_response(
        &mut self,
        cx: &mut Context<'_>,
        arrival: &Arrival<'_>,
    ) -> Result<(), PacketError> {
        let connection = self.remote.as_ref().and_then(RemoteInfo::connection);
        let (Some(connection), Some(requester)) = (connection, self.halves.requester_mut()) else {
            return Err(DropReason::QpState.into());
        };
        let datagram = (arrival.packet, arrival.bytes);
        requester.handle_response(cx, connection, datagram).map_err(PacketError::from)
    }

    /// Handles a packet like the previous one, which was admitted and was a MIDDLE packet or an RC
    /// message. Returns false and changes nothing if it is not accepted; then
    /// [`handle_packet`](Self::handle_packet) returns the reason.
    pub(crate) fn handle_next(&mut self, cx: &mut Context<'_>, packet: &Datagram<'_>) -> bool {
        let Some(connection) = self.remote.as_ref().and_then(RemoteInfo::connection) else {
            return false;
        };
        // Only errors change the state while a buffer is processed.
        if self.state == QpState::Err {
            return false;
        }
        let halves = &mut self.halves;
        if !packet.info.is_request() {
            let requester = halves.requester_mut();
            return requester.is_some_and(|half| half.handle_middle(cx, connection, packet));
        }
        if packet.info.has(OpcodeFlags::MIDDLE) {
            let receive = &mut halves.receive;
            return receive.as_mut().is_some_and(|half| half.handle_middle(cx, connection, packet));
        }
        let Some(responder) = halves.responder_mut() else { return false };
        self.receives.with(cx, &self.id, |cx, receives| {
            responder.handle_only(cx, connection, receives, packet)
        })
    }

    /// Marks the memory written by the last packets as faulted.
    pub(crate) fn mark_faulted(&mut self) {
        self.halves.mark_faulted();
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.pacer.on_timeout(cx.now);
        let Some(remote) = &self.remote else { return };
        let result = match (self.halves.requester_mut(), remote.connection()) {
            (Some(requester), Some(connection)) => requester.handle_timeout(cx, connection),
            _ => Ok(()),
        };
        self.after_sending(cx, result);
    }

    /// Handles progress of the send queue: the oldest request may have failed, and a drain may have
    /// ended.
    fn after_sending(&mut self, cx: &mut Context<'_>, result: Result<(), TransportError>) {
        let not_sent = || self.halves.requester().and_then(Requester::failure);
        if let Some(error) = result.err().or_else(not_sent) {
            self.fail(cx, error.into());
        }
        self.check_drained(cx);
    }

    #[inline]
    fn check_drained(&mut self, cx: &mut Context<'_>) {
        if self.drained_event_due {
            self.report_drained(cx);
        }
    }

    #[cold]
    fn report_drained(&mut self, cx: &mut Context<'_>) {
        if self.state == QpState::Sqd && self.halves.is_drained() {
            self.drained_event_due = false;
            if self.cold.attr.en_sqd_async_notify != Some(false) {
                cx.shared.outputs.events.push_back(AsyncEvent::SqDrained(self.id.qpn));
            }
        }
    }

    /// Applies the consequences of an error. This is the only function that fails a queue pair for
    /// a packet or a send request. The NAK that the responder has queued is still sent, after the
    /// responses to earlier requests. If one of these fails in ERR, no further event is raised.
    #[cold]
    fn fail(&mut self, cx: &mut Context<'_>, failure: Failure) {
        let Consequence { reliable, unreliable, status } = failure.error.consequence();
        match (self.qp_type.is_reliable(), reliable, unreliable) {
            (true, Reliable::FailSend, _) => {
                self.fail_oldest(cx, status);
                self.stop(cx);
            }
            (false, _, Unreliable::FailSend) => {
                self.fail_oldest(cx, status);
                self.state = QpState::Sqe;
                self.halves.flush_sends(cx, &self.id);
            }
            (true, Reliable::Fail { nak, event }, _) if self.state != QpState::Err => {
                if !failure.recv_completed {
                    cx.shared.outputs.events.push_back(event(self.id.qpn));
                }
                cx.counters().refused(nak);
                self.enter_error(cx);
            }
            (false, _, Unreliable::Fail) => self.enter_error(cx),
            (true, Reliable::Fail { .. } | Reliable::RnrNak, _)
            | (false, _, Unreliable::Drop(_)) => {}
        }
    }

    fn fail_oldest(&mut self, cx: &mut Context<'_>, status: WcStatus) {
        if let Some(send) = &mut self.halves.send {
            send.fail_oldest(cx, &self.id, status);
        }
    }

    // ---- sending ----

    /// Whether there may be packets to send.
    #[inline]
    pub(crate) fn wants_to_send(&self) -> bool {
        self.halves.responder().is_some_and(Responder::has_pending_tx) || self.wants_to_request()
    }

    /// Whether there may be a request to send.
    #[inline]
    pub(crate) fn wants_to_request(&self) -> bool {
        let may_request = || {
            self.waiting.is_none() || self.halves.requester().is_some_and(Requester::has_rerequests)
        };
        self.halves.may_transmit(self.send_state())
            && may_request()
            && self.pacer.waits_until().is_none()
    }

    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.halves.responder().is_some_and(Responder::has_only_ack_pending)
    }

    pub(crate) fn owes_only_acknowledgement(&self) -> bool {
        self.owes_acknowledgement() && !self.wants_to_request()
    }

    /// Returns the send permission in the current state.
    fn send_state(&self) -> SendState {
        match self.state {
            QpState::Rts => SendState::Running,
            QpState::Sqd => SendState::Draining,
            QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqe | QpState::Err => {
                SendState::Halted
            }
        }
    }

    #[inline]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let recovery = self.halves.requester().and_then(Requester::deadline);
        match (recovery, self.pacer.waits_until()) {
            (Some(recovery), Some(pacer)) => Some(recovery.min(pacer)),
            (recovery, pacer) => recovery.or(pacer),
        }
    }

    /// Clears `out` and sets the path, the token and the limit for the next burst of this queue
    /// pair. Senders only append packets and do not change these.
    #[inline]
    pub(crate) fn begin_burst(&self, windows: &Windows, out: &mut Burst) {
        let to = match (&self.remote, &self.halves.send) {
            (Some(RemoteInfo::Connection(connection)), _) => {
                Some((&connection.path, windows.max_segments(connection.window)))
            }
            (Some(RemoteInfo::Endpoint(_)), Some(SendHalf::Ud(sender))) => sender
                .next_destination()
                .map(|to| (&to.path, windows.max_segments_to(to.path.destination))),
            _ => None,
        };
        let goes_alone = self.halves.requester().is_some_and(Requester::goes_alone);
        let limit = if goes_alone { 0 } else { usize::MAX };
        match to {
            Some((path, segments)) => {
                out.begin(path, BurstToken(self.id.qpn.value().into()), limit, segments);
            }
            None => out.clear(),
        }
    }

    /// Fills a burst that has [begun](Self::begin_burst): responses to READs and atomics, requests,
    /// and the acknowledgement, which is shorter than both and may end any burst.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        scope: TxScope,
        out: &mut Burst,
    ) -> TxOutcome {
        let mut outcome = TxOutcome { more: false, blocked: None };
        let Some(remote) = &self.remote else { return outcome };
        if let (RemoteInfo::Connection(connection), Some(responder)) =
            (remote, self.halves.responder_mut())
            && scope == TxScope::Everything
        {
            if self.ack_first {
                responder.push_ack(connection, out);
            }
            if let Err(failure) = responder.push_responses(connection, cx, out) {
                self.fail(cx, failure);
                outcome.more = true;
                return outcome;
            }
        }
        let mut result = Ok(());
        let state = self.send_state();
        if self.halves.may_transmit(state)
            && let (Some(bytes), Some(send)) = (self.pacer.grant(cx.now), &mut self.halves.send)
        {
            let before = out.byte_len();
            let progress = out.fill_within(bytes, |out| send.transmit(cx, remote, state, out));
            self.pacer.charge(cx.now, out.byte_len().saturating_sub(before));
            match progress {
                Ok(Progress::Idle) => {}
                Ok(Progress::More) => outcome.more = true,
                Ok(Progress::Blocked(window, want)) => outcome.blocked = Some((window, want)),
                Err(error) => result = Err(error),
            }
        }
        if let (RemoteInfo::Connection(connection), Some(responder)) =
            (remote, self.halves.responder_mut())
        {
            if scope == TxScope::Everything || out.len() > 1 {
                responder.push_ack(connection, out);
            }
            // While responses are pending, `push_ack` has no effect.
            self.ack_first = responder.has_pending_tx();
            outcome.more |= self.ack_first;
        }
        self.after_sending(cx, result);
        outcome
    }

    /// Appends the pending acknowledgement or NAK to a burst that has [begun](Self::begin_burst),
    /// unless a response precedes it.
    pub(crate) fn acknowledge(&mut self, out: &mut Burst) {
        if let Some(RemoteInfo::Connection(connection)) = &self.remote
            && let Some(responder) = self.halves.responder_mut()
        {
            responder.push_ack(connection, out);
        }
    }

    // ---- states ----

    /// Any state → RESET: the queue pair is as created. No request completes.
    pub(crate) fn reset(&mut self, cx: &mut Context<'_>) {
        let window = self.remote.as_ref().and_then(RemoteInfo::window);
        if let Some(requester) = self.halves.requester_mut() {
            requester.clear(cx, window);
        }
        // The next peer must not have access through these memory windows.
        cx.shared.memory.unbind_all_for(self.id.qpn);
        // A receive request of a shared queue returns to that queue.
        if let Some(message) = self.halves.receive.as_mut().and_then(ReceiveHalf::message) {
            self.receives.with(cx, &self.id, |_, receives| message.forget(receives));
        }
        if let (Some(waits_for), Some(slot)) = (self.waiting, cx.slot) {
            cx.shared.windows.forget_waiter(waits_for, slot);
        }
        if let Some(window) = window {
            cx.shared.windows.leave(window);
        }
        let ready = self.ready;
        *self = Self::new(self.id, self.cold.init);
        self.ready = ready;
    }

    /// INIT → RTR: receiving starts.
    pub(crate) fn start_receiving(&mut self, remote: RemoteInfo) {
        if let Some(receive) = &mut self.halves.receive {
            receive.start(self.cold.attr.rq_psn.unwrap_or_default());
        }
        self.remote = Some(remote);
    }

    /// RTR → RTS: sending starts.
    pub(crate) fn start_sending(&mut self, receive_buffer: u64, windows: &Windows) {
        let first = self.cold.attr.sq_psn.unwrap_or_default();
        if let (Some(send), Some(remote)) = (&mut self.halves.send, &self.remote) {
            send.start(first, remote, receive_buffer, windows);
        }
    }

    /// Changes the rate limit of requests.
    pub(crate) fn set_rate(&mut self, limit: RateLimit) {
        self.pacer.set(limit);
    }

    /// Applies attributes that changed while connected.
    pub(crate) fn reconfigure(&mut self, remote: RemoteInfo) {
        if let (Some(requester), Some(connection)) =
            (self.halves.requester_mut(), remote.connection())
        {
            requester.configure(connection);
        }
        self.remote = Some(remote);
    }

    /// RTS → SQD: the event `SQ_DRAINED` is raised later.
    pub(crate) fn start_draining(&mut self, cx: &mut Context<'_>) {
        self.drained_event_due = true;
        self.check_drained(cx);
    }

    /// SQD or SQE → RTS.
    pub(crate) fn resume_sending(&mut self) {
        self.drained_event_due = false;
    }

    /// Returns the number of unfinished requests with a response.
    pub(crate) fn awaited(&self) -> usize {
        self.halves.requester().map_or(0, Requester::awaited)
    }

    /// Returns the numbers of unfinished send requests and of unacknowledged packets.
    pub(crate) fn send_load(&self) -> (usize, u32) {
        let posted = self.halves.send.as_ref().map_or(0, |send| send.queue().len());
        (posted, self.halves.requester().map_or(0, Requester::outstanding_packets))
    }

    /// Whether requests started before SQD are still unfinished.
    pub(crate) fn is_draining(&self) -> bool {
        self.state == QpState::Sqd && !self.halves.is_drained()
    }

    /// Fails the queue pair after a request of the application, an overrun of a completion queue,
    /// or a failed send request. The responder sends no more packets.
    pub(crate) fn stop(&mut self, cx: &mut Context<'_>) {
        if let Some(responder) = self.halves.responder_mut() {
            responder.clear();
        }
        self.enter_error(cx);
    }

    /// Enters ERR: every request completes as flushed, in posting order. Requests of a shared queue
    /// stay for its other users; an event reports that this queue pair consumes no more of them.
    fn enter_error(&mut self, cx: &mut Context<'_>) {
        let fails = std::mem::replace(&mut self.state, QpState::Err) != QpState::Err;
        self.drained_event_due = false;
        self.pacer.stop_waiting();
        let window = self.remote.as_ref().and_then(RemoteInfo::window);
        self.halves.flush_sends(cx, &self.id);
        if let Some(requester) = self.halves.requester_mut() {
            requester.clear(cx, window);
        }
        if let Some(responder) = self.halves.responder_mut() {
            responder.drop_kept();
        }
        let qpn = self.id.qpn;
        if let Some(message) = self.halves.receive.as_mut().and_then(ReceiveHalf::message) {
            self.receives.with(cx, &self.id, |cx, receives| {
                message.end(cx, qpn, receives, WcStatus::WrFlushErr);
            });
        }
        self.flush_receives(cx);
        if fails && matches!(self.receives, Receives::Shared(_) | Receives::Xrc(_)) {
            cx.shared.outputs.events.push_back(AsyncEvent::QpLastWqeReached(qpn));
        }
    }

    /// Handles the destruction of a shared receive queue. A receive request that a message holds
    /// ends without a completion.
    pub(crate) fn forget_srq(&mut self, srqn: Srqn) {
        if let Receives::Xrc(xrc) = &mut self.receives
            && xrc.is_at(srqn)
            && let Some(message) = self.halves.receive.as_mut().and_then(ReceiveHalf::message)
        {
            message.forget(&mut RecvQueue::default());
        }
    }

    /// Returns the UDP source ports of its packets, once it has any.
    pub(crate) fn source_ports(&self) -> &[u16] {
        self.remote.as_ref().map_or(&[], RemoteInfo::source_ports)
    }
}
