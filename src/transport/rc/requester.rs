//! The requester: builds request packets from send requests.
//!
//! ```text
//!          snd_una           snd_nxt               snd_max
//!             │                 │                     │
//!   ──────────┼─────────────────┼─────────────────────┼──────────────► PSN
//!   complete  │  unacknowledged │ to be retransmitted │  never sent
//! ```
//!
//! The requester stores no packets: it builds the next one from the cursor and from registered
//! memory. A retry moves the cursor, which is at `snd_nxt`, back to `snd_una`. Without a retry in
//! progress, `snd_nxt` equals `snd_max`.
//!
//! [`Recovery`] decides when to rewind and how many packets to probe with; a [`CongestionControl`]
//! limits the data in flight.

use std::time::Duration;

use crate::net::Burst;
use crate::psn::Psn;
use crate::time::{AckTimeout, Instant};
use crate::transport::build::{self, Coverage, Extension, Header, Progress};
use crate::transport::connection::{Connection, Identity};
use crate::transport::context::Context;
use crate::transport::fault::TransportError;
use crate::transport::message;
use crate::transport::rc::charges::Charges;
use crate::transport::rc::congestion::CongestionControl;
use crate::transport::rc::flush_icrc::FlushIcrc;
use crate::transport::rc::loss_window::LossWindow;
use crate::transport::rc::peer::PeerTraits;
use crate::transport::rc::pending::PendingResponses;
use crate::transport::rc::reads::ReadPlan;
use crate::transport::rc::recovery::{Expired, Outstanding, Recovery};
use crate::transport::send_budget::{Candidate, SendBudget};
use crate::transport::send_queue::SendQueue;
use crate::transport::send_state::SendState;
use crate::transport::window::{UsableWindow, WindowId, per_burst, truesize, usable};
use crate::transport::work::{
    FlushPlacement, FlushTarget, SendFlags, SendOp, SendRequest, WcStatus,
};
use crate::transport::wqe::Wqe;
use crate::wire::feth::Selectivity;
use crate::wire::packet::datagram_len;
use crate::wire::{AtomicEth, Bth, FlushEth, Opcode, Operation, Position, Reth, Transport};

/// The sending half of an RC queue pair.
#[derive(Debug)]
pub(crate) struct Requester {
    /// Unfinished requests, oldest first.
    pub(super) queue: SendQueue,
    /// The first PSN of the next request to start.
    next_psn: Psn,
    /// The oldest PSN that is neither acknowledged nor answered.
    pub(super) snd_una: Psn,
    /// The PSN after the highest ever sent.
    pub(super) snd_max: Psn,
    /// The next packet to send: its PSN is `snd_nxt`.
    pub(super) cursor: Cursor,
    pub(super) recovery: Recovery,
    pub(super) congestion: Controller,
    pub(super) charges: Charges,
    pub(super) pending: PendingResponses,
    pub(super) peer: PeerTraits,
}

/// The congestion controller of every requester.
type Controller = LossWindow;

/// The next packet to send: packet `packet` of the request at `wqe` in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cursor {
    pub(super) wqe: usize,
    pub(super) packet: u32,
}

/// Payload of a request packet, and its place in the request.
#[derive(Clone, Copy)]
pub(super) struct Payload {
    pub(super) offset: u32,
    pub(super) len: u32,
    /// Number of PSNs of the packet.
    pub(super) psns: u32,
    /// Number of packets left to send of the message, this one included.
    pub(super) left: u32,
}

impl Requester {
    /// Returns a requester in RESET, with room for `capacity` requests.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            queue: SendQueue::new(capacity),
            next_psn: Psn::default(),
            snd_una: Psn::default(),
            snd_max: Psn::default(),
            cursor: Cursor::default(),
            recovery: Recovery::new(AckTimeout::NEVER, 0, 0),
            congestion: Controller::new(0),
            charges: Charges::default(),
            pending: PendingResponses::default(),
            peer: PeerTraits::default(),
        }
    }

    /// RTR → RTS: the first request will have the PSN `first`. `whole`: bursts arrive as they were
    /// sent.
    pub(crate) fn start(
        &mut self,
        first: Psn,
        connection: &Connection,
        read_window: u64,
        whole: bool,
    ) {
        (self.next_psn, self.snd_una, self.snd_max) = (first, first, first);
        self.pending.gaps = None;
        let Connection { timeout, retry_cnt, rnr_retry, .. } = *connection;
        self.recovery = Recovery::new(timeout, retry_cnt, rnr_retry);
        let longest = answer_len(connection);
        let cost = truesize(longest);
        self.congestion = Controller::new(u64::from(per_burst(longest, whole)) * cost);
        let packets = usable(read_window) / cost;
        let at_once = if whole { 1 } else { connection.max_rd_atomic };
        self.pending.plan = ReadPlan::filling(u32::try_from(packets).unwrap_or(u32::MAX), at_once);
    }

    /// Applies changed timeouts and budgets.
    pub(crate) fn configure(&mut self, connection: &Connection) {
        let Connection { timeout, retry_cnt, rnr_retry, .. } = *connection;
        self.recovery.configure(timeout, retry_cnt, rnr_retry);
    }

    pub(crate) fn queue(&self) -> &SendQueue {
        &self.queue
    }

    /// Returns the number of unfinished requests with a response.
    pub(crate) fn awaited(&self) -> usize {
        let all = (0..self.queue.len()).filter_map(|index| self.queue.get(index));
        all.filter(|wqe| wqe.op.has_response()).count()
    }

    /// Returns the number of packets that were sent and not acknowledged.
    pub(crate) fn outstanding_packets(&self) -> u32 {
        self.snd_max.since(self.snd_una)
    }

    /// Appends a request of `length` bytes.
    #[inline]
    pub(crate) fn post(&mut self, request: &mut SendRequest, length: u32) {
        self.queue.post(request, length);
    }

    /// Whether every request with sent packets is finished.
    pub(crate) fn is_drained(&self) -> bool {
        !self.queue.front().is_some_and(|wqe| wqe.has_begun(self.snd_max))
    }

    /// Returns whether there may be a packet to send.
    #[inline]
    pub(crate) fn may_transmit(&self, state: SendState) -> bool {
        if self.recovery.is_waiting() {
            return false;
        }
        let more = self.queue.get(self.cursor.wqe).is_some_and(|wqe| self.admits(state, wqe));
        (more && self.recovery.admits(|| self.snd_nxt().since(self.snd_una)))
            || (self.has_rerequests() && state.admits(|| true))
    }

    /// Whether the state of the send queue admits a packet of a request.
    fn admits(&self, state: SendState, wqe: &Wqe) -> bool {
        state.admits(|| wqe.is_done() || wqe.has_begun(self.snd_max))
    }

    /// Appends request packets to `out`, as many as fit and the windows allow.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        state: SendState,
        out: &mut Burst,
    ) -> Progress {
        let (cwnd, in_flight) = (self.congestion.window(), self.charges.requests().total());
        let mut budget = SendBudget::within(cx, connection.window, cwnd, in_flight);
        let progress = self.fill(cx, connection, state, out, &mut budget);
        if budget.spent() == 0 {
            return progress;
        }
        self.charges.charge_requests(cx, connection, self.snd_nxt(), budget.spent());
        self.recovery.on_sent(cx.now);
        if self.recovery.take_repeat() {
            self.place_cursor();
            return Progress::More;
        }
        progress
    }

    /// Appends packets, and takes their cost from `budget`. The caller has checked that there
    /// [may be one](Self::may_transmit). Returns the reason for which the burst ends.
    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        state: SendState,
        out: &mut Burst,
        budget: &mut SendBudget,
    ) -> Progress {
        out.shorten(budget.longest_burst(answer_len(connection)));
        if self.has_rerequests() {
            if !self.rerequest_reads(cx, connection, out, budget) {
                return Progress::More;
            }
            if !self.may_transmit(state) {
                return Progress::Idle;
            }
        }
        loop {
            if let Err(progress) = self.push_next(cx, connection, state, out, budget) {
                return progress;
            }
            if !self.may_transmit(state) {
                return Progress::Idle;
            }
        }
    }

    /// Appends the packet at the cursor and those like it that follow.
    ///
    /// # Errors
    ///
    /// The reason for which the burst ends.
    // Not inlined: in the loop of its caller, the compiler would copy the connection's fields to the
    // stack in advance, for a single packet too.
    #[inline(never)]
    fn push_next(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        state: SendState,
        out: &mut Burst,
        budget: &mut SendBudget,
    ) -> Result<(), Progress> {
        let at = self.cursor.wqe;
        if self.queue.get(at).is_some_and(|wqe| wqe.op.is_local()) {
            return self.run_local_op(cx, connection);
        }
        self.start_next(cx, connection)?;
        let Some(wqe) = self.queue.get(at) else { return Err(Progress::Idle) };
        // A program often polls its memory for a plain WRITE: a thread of the device receives it, and each burst would wake
        // that thread. A READ is long in its response only.
        if build::is_long(wqe.length)
            && at == 0
            && out.is_empty()
            && !matches!(wqe.op, SendOp::Write { .. } | SendOp::Read { .. })
        {
            build::limit_first_bursts(out, self.cursor.packet.saturating_mul(connection.mtu));
        }
        let (mut header, payload) = self.build_request(connection, wqe, self.cursor.packet);
        self.check_psns(cx, connection, (header.psn, payload.psns), wqe.op.is_read())?;
        let len = datagram_len(header.opcode, payload.len as usize);
        // A network card that segments bursts may number the packets differently than the ICRC
        // assumes. Retransmitted packets are therefore sent singly, with identification 0,
        // unless bursts are known to arrive.
        let again = header.psn.is_before(self.snd_max);
        let alone = again && !self.peer.bursts.get_through();
        if !out.has_room(len) || (alone && !out.is_empty()) {
            return Err(Progress::More);
        }
        let packets = if again { 1 } else { payload.left };
        let takes = budget.admit(out, Candidate { len, packets, is_retransmitted: again })?;
        budget.spend(takes);
        self.charges.since_ack_req += takes;
        let closes = match alone {
            true => !budget.left().admits(takes),
            false => payload.left > 1 && self.ends_burst(connection, budget.left(), out, len),
        };
        header.ack_req |= closes || self.must_ask(budget);
        if header.ack_req {
            self.charges.since_ack_req = 0;
        }
        if !self.push(cx, connection, out, &header, payload) {
            budget.refund(takes);
            return Err(Progress::Idle);
        }
        if out.len() > 1 {
            self.peer.bursts.followed(header.psn);
        }
        if again {
            cx.counters().retransmitted += 1;
            return if alone { Err(Progress::More) } else { Ok(()) };
        }
        match header.opcode.position() {
            Position::Middle if !header.ack_req => {
                self.push_middles(cx, connection, &header, out, budget);
            }
            Position::Only if state.admits_new() && self.has_next() => {
                self.push_messages(cx, connection, &header, out, budget);
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends further MIDDLE packets after one. It stops before a packet that ends the burst or
    /// requests an acknowledgement.
    fn push_middles(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        before: &Header,
        out: &mut Burst,
        budget: &mut SendBudget,
    ) {
        let psn = before.psn.next();
        let (fit, takes) = self.most_behind(out, psn, budget);
        let unasked = budget.quarter().saturating_sub(self.charges.since_ack_req) / takes;
        let fit = fit.min(u32::try_from(unasked).unwrap_or(u32::MAX));
        let Some(wqe) = self.queue.get_mut(self.cursor.wqe) else { return };
        // The last packet that fits may end the burst, and the last of all ends the message.
        let count = fit.min(wqe.packets - self.cursor.packet).saturating_sub(1);
        let (pd, mtu, first) = (connection.id.pd, connection.mtu, self.cursor.packet);
        let fill = |index, _: &mut [u8], to: &mut [u8]| {
            wqe.copy_out(cx, pd, (first + index) * mtu, to).is_ok()
        };
        let count = build::repeat(out, connection, before.opcode, psn, count, fill);
        if count > 0 {
            self.peer.bursts.followed(psn);
        }
        self.cursor.packet += count;
        self.snd_max = psn.plus(count);
        let cost = u64::from(count) * takes;
        self.charges.since_ack_req += cost;
        budget.spend(cost);
    }

    /// Appends single-packet messages of the same kind as the previous one.
    fn push_messages(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        before: &Header,
        out: &mut Burst,
        budget: &mut SendBudget,
    ) {
        let from = self.cursor.wqe;
        let kind = from.checked_sub(1).and_then(|before| self.queue.get(before)?.kind());
        let is_like = |wqe: &Wqe| !wqe.is_started() && wqe.kind() == kind;
        let stops = self.recovery.is_probing() || kind.is_none();
        if stops || !self.queue.get(from).is_some_and(is_like) {
            return;
        }
        let psn = before.psn.next();
        let (count, takes) = self.most_behind(out, psn, budget);
        let (queue, pd) = (&mut self.queue, connection.id.pd);
        let fill = |index: u32, extension: &mut [u8], payload: &mut [u8]| {
            let wqe = queue.get_mut(from + index as usize).filter(|wqe| is_like(wqe));
            let Some(wqe) = wqe else { return false };
            if wqe.copy_out(cx, pd, 0, payload).is_err() {
                return false;
            }
            if let (SendOp::Write { to }, Some(reth)) = (wqe.op, extension.last_chunk_mut()) {
                Reth { addr: to.addr, rkey: to.rkey, length: wqe.length }.write(reth);
            }
            wqe.start_alone(psn.plus(index));
            true
        };
        let count = build::repeat(out, connection, before.opcode, psn, count, fill);
        if count > 0 {
            self.peer.bursts.followed(psn);
            self.cursor.wqe += count as usize;
            self.next_psn = psn.plus(count);
            self.snd_max = self.next_psn;
        }
        budget.spend(u64::from(count) * takes);
    }

    /// Whether there is a request at the cursor.
    fn has_next(&self) -> bool {
        self.cursor.wqe < self.queue.len()
    }

    /// Returns the number of packets like the last of `out` that may follow it from this PSN on,
    /// and the cost of each.
    fn most_behind(&self, out: &Burst, psn: Psn, budget: &SendBudget) -> (u32, u64) {
        let (fit, takes) = budget.packets_behind(out);
        (fit.min(Psn::HALF.saturating_sub(psn.since(self.snd_una) + 1)), takes)
    }

    /// Whether a packet must request an acknowledgement at any position in its burst.
    fn must_ask(&self, budget: &SendBudget) -> bool {
        self.charges.since_ack_req >= budget.quarter() || self.recovery.is_probing()
    }

    /// Whether the packet of `len` bytes at the cursor, which does not end its message, ends its burst.
    /// It must then request an acknowledgement, which releases its window space. The next burst of
    /// this or another queue pair may wait for that space, and a peer may acknowledge only packets
    /// with an acknowledgement request.
    fn ends_burst(
        &self,
        connection: &Connection,
        left: UsableWindow,
        out: &Burst,
        len: usize,
    ) -> bool {
        let Some(wqe) = self.queue.get(self.cursor.wqe) else { return false };
        let next = self.cursor.packet + 1;
        let segment = wqe.segmentation(connection.mtu).segment(next);
        let opcode =
            message::header(connection.transport, wqe, wqe.first.plus(next), segment).opcode;
        let next_len = datagram_len(opcode, segment.len as usize);
        !out.has_room_behind(len, next_len) || !left.admits(left.takes(next_len, true))
    }

    /// Builds the packet at the cursor and advances the cursor. Returns false if its memory was
    /// deregistered.
    fn push(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        out: &mut Burst,
        header: &Header,
        payload: Payload,
    ) -> bool {
        let Some(wqe) = self.queue.get_mut(self.cursor.wqe) else { return false };
        let pd = connection.id.pd;
        let fill = |to: &mut [u8]| wqe.copy_out(cx, pd, payload.offset, to);
        if build::push(out, connection, header, payload.len as usize, fill).is_err() {
            wqe.failure = Some(TransportError::SendProtection);
            return false;
        }
        let answered = wqe.op.has_response();
        let (is_read, packets) = (wqe.op.is_read(), wqe.packets);
        if answered {
            self.pending.outstanding += 1;
        }
        if is_read {
            self.charge_answer(cx, connection, header.psn, payload.psns);
        }
        self.cursor.packet += payload.psns;
        if self.cursor.packet >= packets {
            self.cursor = Cursor { wqe: self.cursor.wqe + 1, packet: 0 };
            self.pending.fence_count += u32::from(answered);
        }
        let after = header.psn.plus(payload.psns);
        if self.snd_max.is_before(after) {
            self.snd_max = after;
        }
        true
    }

    fn charge_answer(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        psn: Psn,
        packets: u32,
    ) {
        let cost = answer_cost(cx, connection, packets);
        self.charges.charge_response(cx, psn.plus(packets), cost);
    }

    /// Executes the local request at the cursor, and moves the cursor past it. It completes when all
    /// earlier requests have. After a retry the cursor meets it again and skips it.
    ///
    /// # Errors
    ///
    /// [`Progress::Idle`]: the request waits or has failed.
    fn run_local_op(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
    ) -> Result<(), Progress> {
        let is_oldest = self.cursor.wqe == 0;
        let Some(wqe) = self.queue.get_mut(self.cursor.wqe) else { return Err(Progress::Idle) };
        if !wqe.is_done() {
            let waits = match wqe.op {
                // IBTA vol 1, §10.6.5.1.
                SendOp::LocalInv { .. } => !is_oldest,
                _ => wqe.flags.contains(SendFlags::FENCE) && self.pending.fence_count > 0,
            };
            if waits || wqe.failure.is_some() {
                return Err(Progress::Idle);
            }
            wqe.run(self.next_psn, &connection.id, &cx.shared.memory);
            if wqe.failure.is_some() {
                return Err(Progress::Idle);
            }
        }
        self.cursor.wqe += 1;
        if is_oldest {
            self.complete_oldest(cx, connection);
        }
        Ok(())
    }

    /// Starts the request at the cursor if necessary.
    ///
    /// # Errors
    ///
    /// [`Progress::Idle`]: the request waits for others or has failed.
    #[inline]
    fn start_next(&mut self, cx: &Context<'_>, connection: &Connection) -> Result<(), Progress> {
        let Some(wqe) = self.queue.get_mut(self.cursor.wqe) else { return Err(Progress::Idle) };
        if !wqe.is_started() {
            if wqe.flags.contains(SendFlags::FENCE) && self.pending.fence_count > 0 {
                return Err(Progress::Idle);
            }
            wqe.start(self.next_psn, connection.id.pd, connection.mtu, &cx.shared.memory);
            self.next_psn = wqe.end();
        }
        let waits =
            wqe.op.has_response() && self.pending.outstanding >= connection.max_rd_atomic.into();
        if waits || wqe.failure.is_some() { Err(Progress::Idle) } else { Ok(()) }
    }

    /// Checks whether a packet with `psns` PSNs from `psn` on may be outstanding now.
    ///
    /// # Errors
    ///
    /// The reason for which the burst ends.
    #[inline]
    fn check_psns(
        &self,
        cx: &Context<'_>,
        connection: &Connection,
        (psn, psns): (Psn, u32),
        is_read: bool,
    ) -> Result<(), Progress> {
        if is_read {
            let cost = answer_cost(cx, connection, psns);
            if !cx.allowance(cx.shared.read_window).admits(cost) {
                return Err(Progress::Blocked(cx.shared.read_window, cost));
            }
        }
        // The peer distinguishes new packets from duplicates by half of the PSN space. A READ of
        // that length is sent only when nothing else is outstanding.
        if psn != self.snd_una && psn.since(self.snd_una) + psns >= Psn::HALF {
            return Err(Progress::Idle);
        }
        Ok(())
    }

    /// Returns packet `index` of a started request.
    pub(super) fn build_request(
        &self,
        connection: &Connection,
        wqe: &Wqe,
        index: u32,
    ) -> (Header, Payload) {
        let psn = wqe.first.plus(index);
        let ask = |operation, extension, psns| {
            request(connection, wqe, psn, (operation, extension), psns)
        };
        match wqe.op {
            SendOp::Read { from } => {
                let mtu = connection.mtu;
                let end = self.pending.plan.end(index, wqe.packets);
                let offset = index * mtu;
                let length = end.saturating_mul(mtu).min(wqe.length) - offset;
                let addr = from.addr.wrapping_add(offset.into());
                let reth = Reth { addr, rkey: from.rkey, length };
                ask(Operation::ReadRequest, Extension::Reth(reth), end - index)
            }
            SendOp::CompareSwap { at, expect, swap } => {
                let atomic = AtomicEth { addr: at.addr, rkey: at.rkey, swap, compare: expect };
                ask(Operation::CompareSwap, Extension::Atomic(atomic), 1)
            }
            SendOp::FetchAdd { at, add } => {
                let atomic = AtomicEth { addr: at.addr, rkey: at.rkey, swap: add, compare: 0 };
                ask(Operation::FetchAdd, Extension::Atomic(atomic), 1)
            }
            SendOp::Flush { target, placement } => {
                ask(Operation::Flush, flush(target, placement, self.peer.flush_icrc), 1)
            }
            SendOp::AtomicWrite { to } => {
                let reth = Reth { addr: to.addr, rkey: to.rkey, length: wqe.length };
                let (header, payload) = ask(Operation::AtomicWrite, Extension::Reth(reth), 1);
                (header, Payload { len: wqe.length, ..payload })
            }
            _ => {
                let segment = wqe.segmentation(connection.mtu).segment(index);
                let header = message::header(connection.transport, wqe, psn, segment);
                let (offset, len, left) = (segment.offset, segment.len, wqe.packets - index);
                (header, Payload { offset, len, psns: 1, left })
            }
        }
    }

    /// Inspects a packet of the peer for the ICRC that it expects in a FLUSH.
    pub(crate) fn observe(&mut self, bth: &Bth) {
        self.peer.flush_icrc.observe(bth);
    }

    /// Handles a possible loss of the oldest request. A FLUSH may have been dropped for its ICRC.
    pub(super) fn miss_flush(&mut self) {
        if self.queue.front().is_some_and(|wqe| matches!(wqe.op, SendOp::Flush { .. })) {
            self.peer.flush_icrc.unanswered();
        }
    }

    /// Handles a possible loss of the packets after the last acknowledged one.
    pub(super) fn miss_burst(&mut self, cx: &mut Context<'_>) {
        cx.counters().bursts_given_up += u64::from(self.peer.bursts.lost());
    }

    /// Whether bursts do not arrive, so that every packet is sent singly.
    pub(crate) fn goes_alone(&self) -> bool {
        self.peer.bursts.are_given_up()
    }

    /// Returns the PSN at the cursor.
    pub(super) fn snd_nxt(&self) -> Psn {
        match self.queue.get(self.cursor.wqe) {
            Some(wqe) if wqe.is_started() => wqe.first.plus(self.cursor.packet),
            _ => self.next_psn,
        }
    }

    /// Rewinds the cursor to `una`: everything from there on is retransmitted.
    pub(super) fn rewind_to_una(&mut self, cx: &mut Context<'_>, connection: &Connection) {
        self.place_cursor();
        (self.pending.outstanding, self.pending.fence_count) = (0, 0);
        self.charges.since_ack_req = 0;
        self.pending.gaps = None;
        self.peer.bursts.repeated();
        self.charges.abandon(cx, connection.window);
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.recovery.deadline()
    }

    /// Handles an expired timer. Fails if the retries are exhausted.
    pub(crate) fn handle_timeout(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
    ) -> Result<(), TransportError> {
        let Some(expired) = self.recovery.on_timeout(cx.now, self.outstanding()) else {
            return Ok(());
        };
        match expired {
            Expired::Rnr => return Ok(()),
            Expired::Loss if self.has_gap() => {
                self.rerequest_oldest();
                return Ok(());
            }
            Expired::Loss => self.recovery.probe(self.outstanding()),
            Expired::RetriesExhausted => {
                cx.counters().timeouts += 1;
                return Err(TransportError::RetriesExhausted);
            }
            Expired::Ack => {
                cx.counters().timeouts += 1;
                cx.counters().retries += 1;
            }
        }
        self.miss_flush();
        self.miss_burst(cx);
        self.rewind_to_una(cx, connection);
        Ok(())
    }

    /// Returns the time since the oldest outstanding packet was sent.
    pub(super) fn oldest_round_trip(&self, cx: &Context<'_>) -> Duration {
        let round_trip = self.charges.requests().oldest_round_trip(cx.now);
        round_trip.map_or(Duration::ZERO, |round_trip| round_trip.time)
    }

    /// Returns the outstanding packets, for recovery.
    pub(super) fn outstanding(&self) -> Outstanding {
        let has_response = self.queue.front().is_none_or(|wqe| wqe.op.has_response());
        Outstanding { snd_max: self.snd_max, has_response }
    }

    /// Returns the error of the oldest request if it could not be sent.
    pub(crate) fn failure(&self) -> Option<TransportError> {
        self.queue.front().and_then(|wqe| wqe.failure)
    }

    /// Completes the oldest request with `status`.
    pub(crate) fn fail_oldest(&mut self, cx: &mut Context<'_>, id: &Identity, status: WcStatus) {
        if let Some(wqe) = self.queue.front() {
            cx.complete_send(id, &wqe.end_of(), status);
            self.queue.pop_front();
        }
    }

    /// Removes every request without a completion.
    pub(crate) fn clear(&mut self, cx: &mut Context<'_>, window: Option<WindowId>) {
        self.queue.clear();
        self.cursor = Cursor::default();
        (self.pending.outstanding, self.pending.fence_count) = (0, 0);
        self.pending.gaps = None;
        self.recovery.stop();
        if let Some(window) = window {
            self.charges.abandon(cx, window);
        }
    }
}

/// Returns the bytes of the local receive buffer that a READ response of `packets` packets
/// occupies. FIRST and LAST are longer than the packets between them, so each begins a burst.
fn answer_cost(cx: &Context<'_>, connection: &Connection, packets: u32) -> u64 {
    let path = cx.shared.windows.allowance(connection.window, cx.now);
    let (len, ends) = (answer_len(connection), packets.min(2));
    u64::from(ends) * truesize(len) + path.run(len, packets - ends)
}

/// Returns the length of the longest response packet.
fn answer_len(connection: &Connection) -> usize {
    datagram_len(Opcode::RcReadResponseFirst, connection.mtu as usize)
}

/// Returns the headers of a FLUSH.
fn flush(target: FlushTarget, placement: FlushPlacement, icrc: FlushIcrc) -> Extension {
    let (selectivity, reth) = match target {
        FlushTarget::Range { at, length } => {
            (Selectivity::Range, Reth { addr: at.addr, rkey: at.rkey, length })
        }
        FlushTarget::Region { rkey } => (Selectivity::Region, Reth { addr: 0, rkey, length: 0 }),
    };
    let coverage = if icrc.is_twice() { Coverage::Twice } else { Coverage::Once };
    Extension::Flush(FlushEth { placement, selectivity }, reth, coverage)
}

/// Returns the headers of a request without payload.
fn request(
    connection: &Connection,
    wqe: &Wqe,
    psn: Psn,
    (operation, extension): (Operation, Extension),
    psns: u32,
) -> (Header, Payload) {
    let header = Header {
        opcode: connection.opcode(operation),
        psn,
        ack_req: true,
        solicited: false,
        srqn: wqe.srqn.filter(|_| connection.transport == Transport::Xrc),
        extension,
    };
    (header, Payload { offset: 0, len: 0, psns, left: 1 })
}
