//! A queue pair: two halves, a state, and the attributes it was given.

use std::net::SocketAddr;

use crate::engine::attr::{QpAttr, QpState, QpType};
use crate::engine::identification::Identification;
use crate::engine::post::{PostError, QpCap};
use crate::ids::PKey;
use crate::net::{Burst, BurstToken, RxMeta};
use crate::time::Instant;
use crate::transport::connection::{Connection, Context, Identity, RecvEnd};
use crate::transport::outputs::{AsyncEvent, DropReason};
use crate::transport::rc::requester::{Progress, Requester};
use crate::transport::rc::responder::{Failure, Responder};
use crate::transport::recv::RecvQueue;
use crate::transport::window::WindowId;
use crate::transport::work::{RecvRequest, SendFlags, SendRequest, WcStatus};
use crate::wire::{Datagram, Transport};

/// A queue pair of the engine.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) id: Identity,
    pub(crate) qp_type: QpType,
    pub(crate) cap: QpCap,
    sq_sig_all: bool,
    pub(crate) state: QpState,
    /// Every attribute given since RESET.
    pub(crate) attr: QpAttr,
    pub(crate) connection: Option<Box<Connection>>,
    requester: Requester,
    responder: Responder,
    receives: RecvQueue,
    pub(crate) identification: Identification,
    /// A packet has arrived since RTR.
    established: bool,
    /// SQD: the event is due when what was started is complete.
    draining: bool,
    /// The acknowledgement did not fit the last burst: it comes first in the next.
    close_first: bool,
    /// It stands in the engine's list of those with something to send.
    pub(crate) ready: bool,
    /// It waits for room in a window.
    pub(crate) blocked: bool,
}

/// What a burst left undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    /// There is more to send now.
    pub(crate) more: bool,
    /// There will be more when this window has room.
    pub(crate) blocked: Option<WindowId>,
}

impl QueuePair {
    pub(crate) fn new(id: Identity, qp_type: QpType, cap: QpCap, sq_sig_all: bool) -> Self {
        Self {
            id,
            qp_type,
            cap,
            sq_sig_all,
            state: QpState::Reset,
            attr: QpAttr::default(),
            connection: None,
            requester: Requester::new(cap.max_send_wr as usize),
            responder: Responder::default(),
            receives: RecvQueue::new(cap.max_recv_wr as usize),
            identification: Identification::default(),
            established: false,
            draining: false,
            close_first: false,
            ready: false,
            blocked: false,
        }
    }

    // ---- posting ----

    pub(crate) fn post_send(
        &mut self,
        cx: &mut Context<'_>,
        mut request: SendRequest,
    ) -> Result<(), PostError> {
        if !matches!(self.state, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err) {
            let needed = "send requests are taken from RTS on";
            return Err(PostError::State { qpn: self.id.qpn, found: self.state, needed });
        }
        let length = self.cap.check_send(&request)?;
        let answers = self.connection.as_ref().map_or(0, |c| c.max_rd_atomic);
        if request.op.has_response() && answers == 0 && self.state != QpState::Err {
            return Err(PostError::NoReads);
        }
        if !self.requester.has_room() {
            return Err(PostError::QueueFull { capacity: self.requester.capacity() });
        }
        if self.sq_sig_all {
            request.flags |= SendFlags::SIGNALED;
        }
        self.requester.post(request, length);
        if self.state == QpState::Err {
            self.requester.flush(cx, &self.id, None);
        }
        Ok(())
    }

    pub(crate) fn post_recv(
        &mut self,
        cx: &mut Context<'_>,
        request: RecvRequest,
    ) -> Result<(), PostError> {
        if self.state == QpState::Reset {
            let needed = "receive requests are taken from INIT on";
            return Err(PostError::State { qpn: self.id.qpn, found: self.state, needed });
        }
        self.cap.check_recv(request.sges.len())?;
        if self.state == QpState::Err {
            let end = RecvEnd::failed(WcStatus::WrFlushErr);
            cx.complete_recv(&self.id, request.wr_id, end);
            return Ok(());
        }
        let capacity = self.receives.capacity();
        self.receives.push(request).map_err(|_| PostError::QueueFull { capacity })
    }

    // ---- receiving ----

    /// Whether a packet is for this queue pair as it stands; before its ICRC is looked at.
    pub(crate) fn admits(&self, packet: &Datagram<'_>, meta: &RxMeta) -> Result<(), DropReason> {
        if packet.bth.opcode.transport() != Transport::Rc || self.qp_type != QpType::Rc {
            return Err(DropReason::WrongTransport);
        }
        let Some(connection) = self.connection.as_deref() else { return Err(DropReason::QpState) };
        let takes = match self.state {
            QpState::Rtr => packet.bth.opcode.is_request(),
            QpState::Rts | QpState::Sqd => true,
            QpState::Reset | QpState::Init | QpState::Sqe | QpState::Err => false,
        };
        if !takes {
            return Err(DropReason::QpState);
        }
        let path = &connection.path;
        if path.destination != meta.source.ip() || path.source != meta.destination {
            return Err(DropReason::WrongAddress);
        }
        if !connection.pkey.matches(packet.bth.pkey) {
            return Err(DropReason::PKeyMismatch);
        }
        Ok(())
    }

    /// Takes a packet that [`admits`](Self::admits) and the ICRC have let pass.
    pub(crate) fn handle_packet(
        &mut self,
        cx: &mut Context<'_>,
        packet: &Datagram<'_>,
        merged: bool,
    ) {
        let Some(connection) = self.connection.as_deref() else { return };
        if packet.bth.opcode.is_request() {
            if self.state == QpState::Rtr && !self.established {
                self.established = true;
                cx.outputs.events.push_back(AsyncEvent::CommEst(self.id.qpn));
            }
            let receives = &mut self.receives;
            let result = self.responder.handle_request(cx, connection, receives, packet);
            if let Err(failure) = result {
                self.fail_responder(cx, failure);
            }
        } else {
            let result = self.requester.handle_response(cx, connection, packet, merged);
            self.after_requester(cx, result);
        }
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        let Some(connection) = self.connection.as_deref() else { return };
        let result = self.requester.handle_timeout(cx, connection);
        self.after_requester(cx, result);
    }

    /// Everything that may follow from the send queue having moved.
    fn after_requester(&mut self, cx: &mut Context<'_>, result: Result<(), WcStatus>) {
        if let Some(status) = result.err().or_else(|| self.requester.failure()) {
            self.requester.fail_oldest(cx, &self.id, status);
            self.enter_error(cx);
        }
        self.check_drained(cx);
    }

    fn check_drained(&mut self, cx: &mut Context<'_>) {
        if self.draining && self.state == QpState::Sqd && self.requester.is_drained() {
            self.draining = false;
            cx.outputs.events.push_back(AsyncEvent::SqDrained(self.id.qpn));
        }
    }

    /// The responder has refused a request for good. The NAK it owes is still sent.
    fn fail_responder(&mut self, cx: &mut Context<'_>, failure: Failure) {
        if !failure.told {
            let event = failure.fault.consequence().event;
            cx.outputs.events.push_back(event(self.id.qpn));
        }
        self.enter_error(cx);
    }

    // ---- sending ----

    /// Whether there may be something to send.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.responder.owes()
            || (self.may_request() && !self.blocked && self.requester.may_transmit())
    }

    fn may_request(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.requester.deadline()
    }

    /// Builds the next burst: answers to READs and atomics, requests, and the acknowledgement, which
    /// is shorter than either and may close any burst.
    pub(crate) fn transmit(&mut self, cx: &mut Context<'_>, out: &mut Burst) -> Left {
        let mut left = Left { more: false, blocked: None };
        let Some(connection) = self.connection.as_deref() else { return left };
        out.reset(connection.path, BurstToken(self.id.qpn.value().into()));
        if self.close_first {
            self.responder.close(connection, out);
        }
        match self.responder.answer(connection, cx, out) {
            Ok(more) => left.more |= more,
            Err(failure) => {
                self.fail_responder(cx, failure);
                left.more = true;
                return left;
            }
        }
        if self.may_request() {
            match self.requester.transmit(cx, connection, out) {
                Progress::Idle => {}
                Progress::More => left.more = true,
                Progress::Blocked(window) => left.blocked = Some(window),
            }
        }
        self.responder.close(connection, out);
        self.close_first = self.responder.owes() && !self.responder.owes_answer();
        left.more |= self.responder.owes();
        self.after_requester(cx, Ok(()));
        left
    }

    // ---- states ----

    /// RESET: as if it had just been created. Nothing completes.
    pub(crate) fn reset(&mut self, cx: &mut Context<'_>) {
        let window = self.connection.as_ref().map(|connection| connection.window);
        self.requester.clear(cx, window);
        let ready = (self.ready, self.blocked);
        *self = Self::new(self.id, self.qp_type, self.cap, self.sq_sig_all);
        (self.ready, self.blocked) = ready;
    }

    /// INIT → RTR: the responder starts.
    pub(crate) fn start_responder(&mut self, connection: Connection) {
        self.responder.start(self.attr.rq_psn.unwrap_or_default());
        self.connection = Some(Box::new(connection));
    }

    /// RTR → RTS: the requester starts.
    pub(crate) fn start_requester(&mut self, receive_buffer: u64) {
        let first = self.attr.sq_psn.unwrap_or_default();
        if let Some(connection) = self.connection.as_deref() {
            self.requester.start(first, connection, receive_buffer);
        }
    }

    /// Takes attributes over that changed while connected.
    pub(crate) fn reconfigure(&mut self, connection: Connection) {
        self.requester.configure(&connection);
        self.connection = Some(Box::new(connection));
    }

    /// RTS → SQD, or SQD → RTS.
    pub(crate) fn set_draining(&mut self, cx: &mut Context<'_>, draining: bool) {
        self.requester.set_draining(draining);
        self.draining = draining;
        self.check_drained(cx);
    }

    /// Whether requests started before SQD are still unfinished.
    pub(crate) fn is_draining(&self) -> bool {
        self.state == QpState::Sqd && !self.requester.is_drained()
    }

    /// The application, or a full completion queue, has ended it: nothing is owed any more.
    pub(crate) fn stop(&mut self, cx: &mut Context<'_>) {
        self.responder.clear();
        self.enter_error(cx);
    }

    /// ERR: every request completes as flushed, in the order posted.
    fn enter_error(&mut self, cx: &mut Context<'_>) {
        self.state = QpState::Err;
        self.draining = false;
        let window = self.connection.as_ref().map(|connection| connection.window);
        self.requester.flush(cx, &self.id, window);
        self.responder.end_message(cx, &self.id, &mut self.receives, WcStatus::WrFlushErr);
        for request in self.receives.drain() {
            cx.complete_recv(&self.id, request.wr_id, RecvEnd::failed(WcStatus::WrFlushErr));
        }
    }

    /// The UDP source port of its packets, once it has a path.
    pub(crate) fn source_port(&self) -> Option<u16> {
        self.connection.as_ref().map(|connection| connection.path.source_port)
    }

    /// Builds the connection from the attributes.
    pub(crate) fn connect(&self, path: crate::net::Path, window: WindowId) -> Option<Connection> {
        let attr = &self.attr;
        let source = SocketAddr::new(path.source, path.source_port);
        let destination = SocketAddr::new(path.destination, crate::net::ROCE_PORT);
        Some(Connection {
            id: self.id,
            dest_qpn: attr.dest_qpn?,
            path,
            flow: crate::wire::icrc::Flow::new(source, destination),
            window,
            pkey: PKey::DEFAULT,
            mtu: u32::try_from(attr.path_mtu?.bytes()).ok()?,
            access: attr.access.unwrap_or_default(),
            min_rnr_timer: attr.min_rnr_timer.unwrap_or_default(),
            timeout: attr.timeout.unwrap_or_default(),
            retry_cnt: attr.retry_cnt.unwrap_or_default(),
            rnr_retry: attr.rnr_retry.unwrap_or_default(),
            max_rd_atomic: attr.max_rd_atomic.unwrap_or_default(),
            max_dest_rd_atomic: attr.max_dest_rd_atomic.unwrap_or_default(),
        })
    }
}
