//! An engine and its port, under the shard's lock: the work of a turn.

mod cm;
mod cm_slot;
mod early_requests;
mod failure;
mod link;
mod link_state;
mod mcast;
mod srq;
mod tx_batch;
mod xrc;

use std::borrow::{Borrow, BorrowMut};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::engine::{CreateError, Engine, ModifyError, PostError, QpAttr, QpInit, QpState, QpType};
use crate::ids::{QKey, Qpn, Srqn};
use crate::net::TransmitErrorKind;
use crate::port::{Control, Datapath, LiveCapture, LivePort, Port, TransmitError};
use crate::runtime::AckPolicy;
use crate::runtime::cm::CmEvents;
use crate::runtime::delayed_ack::{AckWait, DelayedAck};
use crate::runtime::post_coalescing::{Doorbell, PostCoalescing, PostPolicy};
use crate::runtime::queue::Queue;
use crate::runtime::rings::{DueRings, Rings};
use crate::runtime::shard_set::ShardSet;
use crate::sys::{has_net_raw, is_closed};
use crate::time::Instant;
use crate::transport::outputs::AsyncEvent;
use crate::transport::work::{RecvRequest, SendRequest};

use cm_slot::{CmSlot, FirstPackets};
use tx_batch::{BURSTS_PER_BATCH, TxBatch};

pub(crate) use cm_slot::Cm;
pub(crate) use link::descriptor_numbers;
pub use link_state::LinkCounters;
pub(crate) use mcast::AttachError;

/// Number of bursts after which a call begins no further batch, so that a lock is never held for long.
const MAX_TX_BURSTS: usize = 4 * BURSTS_PER_BATCH;

/// Longest delay of an acknowledgement.
pub(crate) const MAX_ACK_DELAY: Duration = Duration::from_millis(1);

/// The port of a shard, which clients of the control socket may capture.
pub(crate) type CapturedPort = LivePort<Box<dyn Port>>;

/// State that the shard's lock protects.
pub(crate) struct Core {
    pub(crate) engine: Engine,
    pub(crate) port: CapturedPort,
    batch: TxBatch,
    /// The last transmission stopped although the engine had more to send.
    has_more: bool,
    delayed_ack: DelayedAck,
    coalescing: PostCoalescing,
    /// Number of buffers to receive for bursts without acknowledgement.
    receives_due: usize,
    pub(crate) rings: Rings,
    owners: EventOwners,
    /// The connection manager.
    cm: CmSlot,
    contexts: Vec<Weak<Queue<AsyncEvent>>>,
    /// Shards with driver threads that wait for queued items.
    wakes: ShardSet,
    /// The port's descriptors have changed.
    descriptors_changed: bool,
    link: link_state::Link,
    /// Other code in this process has closed the port's socket.
    is_port_closed: bool,
}

/// Event queues of queue pairs and shared receive queues.
#[derive(Default)]
struct EventOwners {
    /// An XRC target may have been opened several times.
    qps: HashMap<Qpn, SmallVec<[Arc<Queue<AsyncEvent>>; 1]>>,
    srqs: HashMap<Srqn, Arc<Queue<AsyncEvent>>>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("port", &self.port.info()).finish_non_exhaustive()
    }
}

/// Notices for other threads and tasks, delivered when the lock is free.
#[derive(Debug)]
pub(crate) struct Notices {
    /// Shards with driver threads that wait for queued items.
    pub(crate) wakes: ShardSet,
    /// Completion queues to notify. Drivers that wait for them are woken too.
    pub(crate) due: DueRings,
    /// The port's descriptors have changed.
    pub(crate) moved: bool,
    /// Tasks to wake: they may use the device at once.
    pub(crate) wakers: Vec<Waker>,
    /// Shards at which waiters unregister: their completion queues are announced or removed.
    pub(crate) ended_waiters: SmallVec<[ShardSet; 4]>,
    /// The port can never be used again.
    pub(crate) port_closed: bool,
    /// Events of the connection manager, which may call the device.
    pub(crate) cm_events: Option<Arc<CmEvents>>,
    /// Queue pairs with a first packet, for the connection manager of shard 0.
    pub(crate) first_packets: FirstPackets,
}

/// Result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PollOutcome {
    /// There was nothing to send or receive.
    Nothing,
    /// There was work, and there may be more.
    Work,
    /// The port cannot receive; another call at once would fail too.
    BrokenPort,
}

impl Core {
    pub(crate) fn new(
        engine: Engine,
        port: Box<dyn Port>,
        policy: AckPolicy,
        posts: PostPolicy,
    ) -> Self {
        let mut core = Self {
            engine,
            batch: TxBatch::new(&port.info()),
            port: LivePort::over(port, LiveCapture::default()),
            has_more: false,
            delayed_ack: DelayedAck::new(policy),
            coalescing: PostCoalescing::new(posts),
            receives_due: 0,
            rings: Rings::default(),
            owners: EventOwners::default(),
            cm: CmSlot::default(),
            contexts: Vec::new(),
            wakes: ShardSet::EMPTY,
            descriptors_changed: false,
            link: link_state::Link::default(),
            is_port_closed: false,
        };
        core.read_link_state();
        core
    }

    /// Sends pending packets, receives a batch, runs timers, and delivers completions and events.
    pub(crate) fn turn(&mut self, now: Instant) -> PollOutcome {
        self.coalescing.begin_turn();
        let sent = self.transmit_pending(now);
        self.after_sending(now, sent, AckWait::Never)
    }

    /// Takes a turn for a caller that will soon take another: an acknowledgement may wait for the next message, or for the
    /// response.
    pub(crate) fn poll(&mut self, now: Instant) -> PollOutcome {
        let waits = self.delayed_ack.waits_for_message(now) | self.delayed_ack.waits_in_stream(now);
        self.turn_while(waits, AckWait::WithoutCompletion, now)
    }

    /// Takes a turn of the device's thread: an acknowledgement may wait for the response.
    pub(crate) fn turn_of_thread(&mut self, now: Instant) -> PollOutcome {
        self.turn_while(false, AckWait::Always, now)
    }

    /// Takes a turn, in which an acknowledgement may wait.
    fn turn_while(&mut self, ack_waits: bool, wait: AckWait, now: Instant) -> PollOutcome {
        self.coalescing.begin_turn();
        let ack_waits = self.delayed_ack.waits_for_response(now) || ack_waits;
        let waits =
            ack_waits && self.batch.is_empty() && self.engine.owes_only_acknowledgement().is_some();
        let sent = !waits && self.transmit_pending(now);
        self.after_sending(now, sent, wait)
    }

    /// As [`transmit`](Self::transmit), with a fast path: most polls have nothing to send.
    fn transmit_pending(&mut self, now: Instant) -> bool {
        if self.has_pending_tx() || self.engine.wants_backlog() {
            return self.transmit(now);
        }
        self.has_more = false;
        false
    }

    fn after_sending(&mut self, now: Instant, sent: bool, wait: AckWait) -> PollOutcome {
        // Before it receives: the descriptor may be that of another file by now.
        self.poll_link(now);
        let received = self.receive(now);
        if !sent && matches!(received, Ok(0)) && !self.has_work_without_packet(now) {
            // Most polls end here, and the next one finds its packet the sooner.
            return PollOutcome::Nothing;
        }
        self.receive_for_sends(now);
        self.run_timers(now);
        self.poll_cm(now);
        if wait != AckWait::Never
            && received.as_ref().is_ok_and(|buffers| *buffers > 0)
            && self.engine.owes_only_acknowledgement().is_some()
        {
            let may_wait = wait.admits(self.engine.completes_at().is_some());
            if !may_wait || !self.delayed_ack.request_taken(now) {
                self.delayed_ack.messages_taken(now);
            }
        }
        self.deliver(now);
        match received {
            Err(_) => PollOutcome::BrokenPort,
            Ok(0) if !sent => PollOutcome::Nothing,
            Ok(_) => PollOutcome::Work,
        }
    }

    /// Takes a turn that leaves received packets in the socket.
    pub(crate) fn turn_without_receiving(&mut self, now: Instant) {
        self.transmit(now);
        self.run_timers(now);
        self.poll_cm(now);
        self.deliver(now);
    }

    /// Returns whether a timer has expired, or a call has left something to deliver.
    fn has_work_without_packet(&self, now: Instant) -> bool {
        let timers = [self.engine.poll_timeout(), self.rings.deadline(), self.cm.deadline()];
        timers.into_iter().flatten().any(|at| at <= now)
            || self.engine.has_output()
            || self.rings.is_due()
            || self.cm.has_unsent
    }

    fn run_timers(&mut self, now: Instant) {
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.engine.handle_timeout(now);
        }
        self.rings.handle_timeout(now);
    }

    /// Posts a send request, which leaves now or with others.
    pub(crate) fn post_send(
        &mut self,
        now: Instant,
        qpn: Qpn,
        request: SendRequest,
        doorbell: Doorbell,
    ) -> Result<(), PostError> {
        let bytes = request.data.len();
        self.engine.post_send(now, qpn, request)?;
        self.send_posted(now, qpn, doorbell, 1, bytes);
        Ok(())
    }

    /// Posts send requests until one is refused, and returns their number. They leave now or with others.
    pub(crate) fn post_sends(
        &mut self,
        now: Instant,
        qpn: Qpn,
        requests: impl IntoIterator<Item: BorrowMut<SendRequest>>,
        doorbell: Doorbell,
    ) -> (usize, Result<(), PostError>) {
        let mut bytes = 0;
        let requests = requests.into_iter().inspect(|request| bytes += request.borrow().data.len());
        let posted = self.engine.post_sends(now, qpn, requests);
        self.send_posted(now, qpn, doorbell, posted.0, bytes);
        posted
    }

    /// Posts send requests if all of them are valid and fit.
    pub(crate) fn post_all_sends(
        &mut self,
        now: Instant,
        qpn: Qpn,
        requests: &mut [SendRequest],
        doorbell: Doorbell,
    ) -> Result<(), PostError> {
        self.engine.check_sends(qpn, requests)?;
        self.post_sends(now, qpn, requests, doorbell).1
    }

    /// Sends the requests that were posted to a queue pair, unless they wait for others.
    fn send_posted(
        &mut self,
        now: Instant,
        qpn: Qpn,
        doorbell: Doorbell,
        requests: usize,
        bytes: u64,
    ) {
        self.delayed_ack.posted();
        if self.coalescing.waits(now, doorbell, requests, bytes) {
            // A queue pair in an error state completes them at once.
            return self.deliver(now);
        }
        if self.coalescing.has_waiting() || self.acknowledges_with_response(qpn) {
            self.transmit(now);
        } else {
            self.transmit_from(now, Some(qpn));
        }
        if self.engine.owes_only_acknowledgement() == Some(qpn) {
            self.delayed_ack.response_sent(now);
        }
        self.receive_for_sends(now);
        self.deliver(now);
    }

    /// Returns whether the acknowledgement that a queue pair owes leaves with the requests that were posted to it, because
    /// it would not wait after them.
    fn acknowledges_with_response(&mut self, qpn: Qpn) -> bool {
        let acknowledges = self.delayed_ack.is_immediate() && self.engine.owes_acknowledgement(qpn);
        if acknowledges {
            self.delayed_ack.sent_with_response();
        }
        acknowledges
    }

    /// Receives two buffers, if there are any, for each burst without acknowledgement that was sent, so that the
    /// socket's receive queue becomes shorter. Such bursts complete when they are sent: a program that posts without
    /// end finds completions at each poll and takes no turn, so the socket would overflow.
    fn receive_for_sends(&mut self, now: Instant) {
        // An error of the port is reported in the next turn too.
        while self.receives_due >= 2 * BURSTS_PER_BATCH && matches!(self.receive(now), Ok(1..)) {}
    }

    /// Posts receive requests until one is refused, and returns their number.
    pub(crate) fn post_recvs(
        &mut self,
        now: Instant,
        qpn: Qpn,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> (usize, Result<(), PostError>) {
        let posted = self.engine.post_recvs(now, qpn, requests);
        // Those of a queue pair in ERR are completed at once.
        if self.engine.has_output() {
            self.deliver(now);
        }
        posted
    }

    /// Creates a queue pair; its events go to `owner`.
    pub(crate) fn create_qp(
        &mut self,
        now: Instant,
        init: QpInit,
        owner: &Arc<Queue<AsyncEvent>>,
    ) -> Result<Qpn, CreateError> {
        if init.qp_type == QpType::Ud {
            // The header in a UD receive buffer has these fields.
            self.port.report_ip_fields();
        }
        let qpn = self.engine.create_qp(now, init)?;
        self.owners.qps.insert(qpn, smallvec![Arc::clone(owner)]);
        Ok(qpn)
    }

    /// Modifies a queue pair, after sending its pending packets.
    pub(crate) fn modify_qp(
        &mut self,
        now: Instant,
        qpn: Qpn,
        attr: &QpAttr,
    ) -> Result<(), ModifyError> {
        self.flush(now);
        if attr.qkey.is_some_and(QKey::is_controlled) {
            // The thread may have dropped the capability since.
            self.engine.allow_controlled_qkeys(has_net_raw());
        }
        let port = &mut self.port;
        self.engine.modify_qp(now, qpn, attr, |from, wanted| port.source_port(from, wanted))?;
        self.transmit(now);
        self.deliver(now);
        if attr.state == Some(QpState::Reset) {
            // Like adapters, it drops completions of earlier requests, so that they are not taken for those of later
            // ones.
            self.rings.forget(qpn);
        }
        Ok(())
    }

    /// Destroys a queue pair, after sending its pending packets: the peer waits for the acknowledgement.
    pub(crate) fn destroy_qp(&mut self, now: Instant, qpn: Qpn) {
        self.flush(now);
        self.engine.destroy_qp(now, qpn);
        self.leave_groups();
        self.deliver(now);
        self.owners.qps.remove(&qpn);
    }

    /// Sends until the engine has no more, or the port is busy.
    pub(crate) fn flush(&mut self, now: Instant) {
        // A window limits the packets sent without a response.
        while self.transmit(now) && self.has_more {}
        self.deliver(now);
    }

    /// Ends connections and sends pending packets, at the end of the process.
    pub(crate) fn flush_at_exit(&mut self, now: Instant) {
        self.end_connections(now);
        self.flush(now);
    }

    /// Sends pending bursts and acknowledgements, at most `max`, and returns their number. Every step is
    /// async-signal-safe.
    pub(crate) fn send_last(&mut self, max: usize) -> usize {
        let mut sent = 0;
        for burst in self.batch.pending().iter().take(max) {
            self.port.send_last(burst);
            sent += 1;
        }
        let burst = self.batch.discard();
        while sent < max && self.engine.poll_acknowledgement(burst) {
            self.port.send_last(burst);
            sent += 1;
        }
        sent
    }

    /// Sends a few rounds of bursts. Returns whether the port has taken any.
    pub(crate) fn transmit(&mut self, now: Instant) -> bool {
        self.delayed_ack.sent();
        self.transmit_from(now, None)
    }

    /// Sends packets of the engine, or only the requests of one queue pair.
    fn transmit_from(&mut self, now: Instant, mut only: Option<Qpn>) -> bool {
        let mut any = false;
        self.has_more = false;
        if only.is_none() {
            self.coalescing.send_all(now);
        }
        let mut sent = 0;
        while sent < MAX_TX_BURSTS {
            let is_fresh = self.batch.is_empty();
            if is_fresh {
                let Self { batch, engine, .. } = self;
                batch.fill(|burst| match only {
                    Some(qpn) => engine.poll_requests(now, qpn, burst),
                    None => engine.poll_transmit(now, burst),
                });
                self.receives_due += 2 * self.engine.take_unacknowledged();
            }
            let before = self.batch.pending().len();
            let is_taken = self.offer(now);
            let taken = before - self.batch.pending().len();
            any |= taken > 0;
            sent += taken.max(1);
            if !is_taken {
                return any;
            }
            if is_fresh && !self.batch.was_full() {
                if !self.poll_receive_queues(now) {
                    return any;
                }
                // Other queue pairs that waited for the window may go on.
                only = None;
            }
        }
        self.has_more = self.engine.wants_to_transmit();
        any
    }

    /// Reads the receive queues of hosts on this machine that a window waits for. Returns whether there was one.
    fn poll_receive_queues(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(host) = self.engine.poll_backlog() {
            let waiting = self.port.receive_queue_bytes(now, host);
            self.engine.handle_backlog(now, host, waiting);
            any = true;
        }
        any
    }

    /// Offers the batch to the port. Returns false if the port is busy.
    fn offer(&mut self, now: Instant) -> bool {
        while !self.batch.is_empty() {
            let bursts = self.batch.pending();
            match self.port.transmit(now, bursts) {
                Ok(taken) => {
                    let is_busy = taken < bursts.len();
                    self.batch.take(taken);
                    if is_busy {
                        return false;
                    }
                }
                Err(TransmitError { taken, kind }) => {
                    let token = bursts.get(taken).map(|burst| burst.token);
                    self.batch.take(taken + 1);
                    self.is_port_closed |= kind == TransmitErrorKind::Closed;
                    if let Some(token) = token {
                        self.engine.handle_transmit_error(now, token, kind);
                    }
                }
            }
        }
        true
    }

    #[inline]
    fn receive(&mut self, now: Instant) -> io::Result<usize> {
        if self.port.poll_timeout().is_some_and(|at| at <= now) {
            // Lets the port send packets that it holds back. An empty slice is never refused.
            let _ = self.port.transmit(now, &[]);
        }
        let engine = &mut self.engine;
        let received = self.port.receive(now, &mut |buffer| engine.handle_buffer(now, buffer));
        self.is_port_closed |= received.as_ref().is_err_and(is_closed);
        self.receives_due = match received {
            Ok(buffers) if buffers > 0 => self.receives_due.saturating_sub(buffers),
            _ => 0,
        };
        received
    }

    /// Moves completions to their rings and events to their owners. Due queues are announced when the lock is free.
    pub(crate) fn deliver(&mut self, now: Instant) {
        if self.delayed_ack.policy() == AckPolicy::BeforeCompletion {
            self.transmit(now);
        }
        loop {
            self.move_completions(now);
            if !self.rings.is_due() {
                return;
            }
            // A woken thread may compute for long, so the acknowledgement goes first.
            self.transmit(now);
            self.rings.announce_when_unlocked();
        }
    }

    /// Moves completions to their rings and events to their owners.
    #[inline]
    fn move_completions(&mut self, now: Instant) {
        while let Some(id) = self.engine.completes_at() {
            let put = self.rings.put(now, id, self.engine.poll_completions_at(id));
            self.wakes |= put.wakes;
            if put.overrun {
                self.engine.handle_cq_overflow(now, id);
            }
        }
        while let Some(event) = self.engine.poll_event() {
            self.report_event(event);
        }
    }

    fn report_event(&mut self, event: AsyncEvent) {
        let owners = match event {
            // The engine of each shard that adds completions reports it.
            AsyncEvent::CqErr(id) => self
                .rings
                .get(id)
                .filter(|ring| ring.take_unreported_overrun())
                .map(|ring| std::slice::from_ref(&ring.events)),
            AsyncEvent::QpFatal(qpn)
            | AsyncEvent::QpReqErr(qpn)
            | AsyncEvent::QpAccessErr(qpn)
            | AsyncEvent::CommEst(qpn)
            | AsyncEvent::SqDrained(qpn)
            | AsyncEvent::QpLastWqeReached(qpn) => {
                self.owners.qps.get(&qpn).map(SmallVec::as_slice)
            }
            AsyncEvent::SrqErr(srqn) | AsyncEvent::SrqLimitReached(srqn) => {
                self.owners.srqs.get(&srqn).map(std::slice::from_ref)
            }
            // These do not come from the engine.
            AsyncEvent::GidChange
            | AsyncEvent::PortActive
            | AsyncEvent::PortErr
            | AsyncEvent::DeviceFatal => None,
        };
        let mut wakes = ShardSet::EMPTY;
        for owner in owners.into_iter().flatten() {
            wakes |= owner.push(event).wakes();
        }
        self.wakes |= wakes;
    }

    /// Registers the event queue of a context.
    pub(crate) fn add_context(&mut self, events: &Arc<Queue<AsyncEvent>>) {
        self.contexts.retain(|context| context.strong_count() > 0);
        self.contexts.push(Arc::downgrade(events));
    }

    /// Returns the time of the next turn without a packet.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.has_more {
            return Some(now);
        }
        let port = self.port.poll_timeout();
        // A busy port that names the time of the next attempt is not called before.
        let is_blocked = port.is_some() && !self.batch.is_empty();
        let ack = self.delayed_ack.response_deadline();
        let owed =
            (self.has_pending_tx() && !is_blocked).then(|| ack.unwrap_or(now + MAX_ACK_DELAY));
        let timers = Instant::first(self.engine.poll_timeout(), port);
        let timers = Instant::first(timers, self.cm.deadline());
        Instant::first(Instant::first(timers, self.rings.deadline()), owed)
    }

    /// Returns whether posted requests wait for others.
    pub(crate) fn has_waiting_posts(&self) -> bool {
        self.coalescing.has_waiting()
    }

    /// Returns whether there is something to send.
    pub(crate) fn has_pending_tx(&self) -> bool {
        !self.batch.is_empty() || self.engine.wants_to_transmit()
    }

    /// Returns whether there are notices.
    pub(crate) fn has_notices(&self) -> bool {
        !self.wakes.is_empty()
            || self.descriptors_changed
            || self.is_port_closed
            || self.rings.has_notices()
            || self.cm.has_notices()
    }

    /// Takes the notices. Most turns have none.
    pub(crate) fn take_notices(&mut self) -> Option<Notices> {
        self.has_notices().then(|| Notices {
            wakes: std::mem::take(&mut self.wakes),
            due: self.rings.take_ready(),
            moved: std::mem::take(&mut self.descriptors_changed),
            wakers: self.rings.take_wakers(),
            ended_waiters: self.rings.take_waiters(),
            port_closed: self.is_port_closed,
            cm_events: self.cm.take_events(),
            first_packets: self.cm.take_first_packets(),
        })
    }
}

#[cfg(test)]
mod tests;
