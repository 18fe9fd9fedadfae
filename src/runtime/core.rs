//! An engine and its port, under the shard's lock: the work of a turn.

mod cm;
mod cm_slot;
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
use crate::runtime::delayed_ack::DelayedAck;
use crate::runtime::post_coalescing::{Doorbell, PostCoalescing, PostPolicy};
use crate::runtime::queue::Queue;
use crate::runtime::rings::Rings;
use crate::runtime::shard_set::ShardSet;
use crate::sys::{has_net_raw, is_closed};
use crate::time::Instant;
use crate::transport::outputs::AsyncEvent;
use crate::transport::work::{RecvRequest, SendRequest};

use cm_slot::{CmSlot, FirstPackets};
use tx_batch::{BURSTS_PER_BATCH, TxBatch};

pub(crate) use cm_slot::Cm;
pub use link_state::LinkCounters;
pub(crate) use mcast::AttachError;

/// Maximum number of rounds of [`BURSTS_PER_BATCH`] that one call sends, so that a lock is never held for long.
const MAX_TX_ROUNDS: usize = 4;

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
            port: LivePort::over(port, LiveCapture::default()),
            batch: TxBatch::new(),
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
        self.after_sending(now, sent)
    }

    /// Takes a turn for a caller that will soon take another: an acknowledgement may wait for that.
    pub(crate) fn poll(&mut self, now: Instant) -> PollOutcome {
        self.coalescing.begin_turn();
        let waits = self.batch.is_empty()
            && self.delayed_ack.may_wait(now)
            && self.engine.owes_only_acknowledgement().is_some();
        let sent = !waits && self.transmit_pending(now);
        self.after_sending(now, sent)
    }

    /// As [`transmit`](Self::transmit), with a fast path: most polls have nothing to send.
    fn transmit_pending(&mut self, now: Instant) -> bool {
        if self.has_pending_tx() || self.engine.wants_backlog() {
            return self.transmit(now);
        }
        self.has_more = false;
        false
    }

    fn after_sending(&mut self, now: Instant, sent: bool) -> PollOutcome {
        let received = self.receive(now);
        self.receive_for_sends(now);
        self.poll_link(now);
        self.run_timers(now);
        self.poll_cm(now);
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
        if self.coalescing.waits(now, doorbell, requests, bytes) {
            // A queue pair in an error state completes them at once.
            return self.deliver(now);
        }
        if self.coalescing.has_waiting() {
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
        self.deliver(now);
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
        for _ in 0..MAX_TX_ROUNDS {
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
            any |= self.batch.pending().len() < before;
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

    /// Moves completions to their rings and events to their owners, and announces due queues.
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
            self.wakes |= self.rings.announce();
        }
    }

    /// Moves completions to their rings and events to their owners.
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
        let owed = (self.has_pending_tx() && !is_blocked).then(|| now + MAX_ACK_DELAY);
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

    /// Removes the calling thread, which drives these shards, from those to wake.
    pub(crate) fn skip_driver_wake(&mut self, shard: ShardSet) {
        self.wakes = self.wakes.without(shard);
    }

    /// Takes the notices. Most turns have none.
    pub(crate) fn take_notices(&mut self) -> Option<Notices> {
        if self.wakes.is_empty()
            && !self.descriptors_changed
            && !self.is_port_closed
            && !self.rings.has_notices()
            && !self.cm.has_notices()
        {
            return None;
        }
        Some(Notices {
            wakes: std::mem::take(&mut self.wakes),
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
mod tests {
    use super::*;
    use crate::runtime::delayed_ack::ACK_DELAY;
    use crate::runtime::wire_of_tests::{End, completion, pair, unacknowledged_pair};
    use crate::sync::notify::Armed;
    use crate::transport::work::{Completion, RemoteAddr, SendData, Sge, WcStatus};

    const NOW: Instant = Instant::ZERO;

    /// Makes `b` receive a message of `a` without acknowledging it.
    fn message(a: &mut End, b: &mut End) {
        b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
        a.core
            .post_send(NOW, a.qpn, SendRequest::send(1, a.sge(8)).signaled(), Doorbell::Now)
            .unwrap();
        assert_eq!(b.core.turn(NOW), PollOutcome::Work);
        assert_eq!((a.log(), b.log()), (vec!["tx 1".into()], vec!["rx".into()]));
    }

    #[test]
    fn a_turn_transmits_first_and_receives_last() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        message(&mut a, &mut b);
        assert_eq!(b.ring.completions.pop().map(|c| c.wr_id), Some(7));
        assert_eq!(b.core.deadline(NOW), Some(NOW + MAX_ACK_DELAY));
        a.core
            .post_send(NOW, a.qpn, SendRequest::write(2, a.sge(8), b.remote()), Doorbell::Now)
            .unwrap();
        assert_eq!(b.core.turn(NOW), PollOutcome::Work);
        assert_eq!(b.log(), ["tx 1", "rx"]);
    }

    #[test]
    fn an_acknowledgement_rides_in_a_reply_of_several_packets() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        message(&mut a, &mut b);
        a.core.post_recvs(NOW, a.qpn, [RecvRequest::new(8, a.sge(8192))]).1.unwrap();
        b.core.post_send(NOW, b.qpn, SendRequest::send(2, b.sge(8192)), Doorbell::Now).unwrap();
        assert_eq!(b.log(), ["tx 3"]);
        assert!(!b.core.has_pending_tx());
        assert_eq!(a.core.turn(NOW), PollOutcome::Work);
        let wr_ids = [8, 1].map(Some);
        assert_eq!([(); 2].map(|()| a.ring.completions.pop().map(|c| c.wr_id)), wr_ids);
    }

    #[test]
    fn a_reply_of_one_packet_does_not_wait_for_the_acknowledgement() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        message(&mut a, &mut b);
        b.core
            .post_send(NOW, b.qpn, SendRequest::write(2, b.sge(64), a.remote()), Doorbell::Now)
            .unwrap();
        assert_eq!(b.log(), ["tx 1"]);
        assert!(b.core.has_pending_tx());
        b.core.turn(NOW);
        assert_eq!(b.log(), ["tx 1"]);
        assert!(!b.core.has_pending_tx());
    }

    #[test]
    fn polling_responder_acknowledges_after_an_idle_poll() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        message(&mut a, &mut b);
        b.core
            .post_send(NOW, b.qpn, SendRequest::write(2, b.sge(64), a.remote()), Doorbell::Now)
            .unwrap();
        b.log();
        b.core.poll(NOW);
        assert_eq!((b.log().len(), b.core.has_pending_tx()), (0, true));
        b.core.poll(NOW + ACK_DELAY);
        assert_eq!((b.log(), b.core.has_pending_tx()), (vec!["tx 1".into()], false));
    }

    #[test]
    fn polling_responder_acknowledges_many_messages_at_once() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 64);
        let mut sent = Vec::new();
        for wr_id in 0..32 {
            let ping = SendRequest::write(wr_id, SendData::inline(b"ping"), b.remote());
            a.core.post_send(NOW, a.qpn, ping, Doorbell::Now).unwrap();
            b.core.poll(NOW);
            let pong = SendRequest::write(wr_id, SendData::inline(b"pong"), a.remote());
            b.core.post_send(NOW, b.qpn, pong, Doorbell::Now).unwrap();
            b.core.poll(NOW);
            sent.push(b.log().iter().filter(|event| event.starts_with("tx")).count());
        }
        // The response alone; each sixteenth time with an acknowledgement behind it.
        let expected: Vec<_> = (1..=32).map(|n| if n % 16 == 0 { 2 } else { 1 }).collect();
        assert_eq!(sent, expected);
    }

    #[test]
    fn when_that_is_asked_for_the_acknowledgement_comes_first() {
        let (mut a, mut b) = pair(AckPolicy::BeforeCompletion, 16);
        b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
        a.core.post_send(NOW, a.qpn, SendRequest::send(1, a.sge(8)), Doorbell::Now).unwrap();
        b.core.turn(NOW);
        assert_eq!(b.log(), ["rx", "tx 1"]);
        assert!(!b.core.has_pending_tx());
    }

    #[test]
    fn announcement_follows_the_acknowledgement() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        b.ring.arm(Armed::Any);
        b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
        a.core.post_send(NOW, a.qpn, SendRequest::send(1, a.sge(8)), Doorbell::Now).unwrap();
        b.core.turn(NOW);
        assert_eq!(b.log(), ["rx", "tx 1", "announce"]);
    }

    /// Posts WRITEs of 8 bytes as a program that polls does.
    fn post_between_polls(a: &mut End, b: &End, wr_ids: std::ops::RangeInclusive<u64>) {
        for wr_id in wr_ids {
            let write = SendRequest::write(wr_id, a.sge(8), b.remote()).signaled();
            a.core.post_send(NOW, a.qpn, write, Doorbell::MayWait).unwrap();
        }
    }

    #[test]
    fn requests_behind_the_first_leave_together_with_the_next_poll() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        post_between_polls(&mut a, &b, 1..=5);
        assert_eq!((a.log(), a.core.has_pending_tx()), (vec!["tx 1".into()], true));
        assert_eq!(a.core.poll(NOW), PollOutcome::Work);
        assert_eq!((a.log(), a.core.has_pending_tx()), (vec!["tx 4".into()], false));
        for _ in 0..4 {
            b.core.turn(NOW);
            a.core.poll(NOW);
        }
        let done: Vec<_> = std::iter::from_fn(|| a.ring.completions.pop()).collect();
        assert_eq!(done.iter().map(|done| done.wr_id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn requests_of_a_full_burst_leave_without_a_poll() {
        let (mut a, b) = pair(AckPolicy::Lazy, 64);
        post_between_polls(&mut a, &b, 1..=33);
        assert_eq!(
            (a.log(), a.core.has_pending_tx()),
            (vec!["tx 1".into(), "tx 32".into()], false)
        );
    }

    #[test]
    fn requests_that_wait_leave_before_their_queue_pair_changes() {
        let (mut a, b) = pair(AckPolicy::Lazy, 16);
        post_between_polls(&mut a, &b, 1..=3);
        a.core.modify_qp(NOW, a.qpn, &QpAttr::to(QpState::Sqd)).unwrap();
        assert_eq!(a.log(), ["tx 1", "tx 2"]);
        let (mut a, b) = pair(AckPolicy::Lazy, 16);
        post_between_polls(&mut a, &b, 1..=3);
        a.core.destroy_qp(NOW, a.qpn);
        assert_eq!(a.log(), ["tx 1", "tx 2"]);
    }

    #[test]
    fn requests_that_wait_give_a_turn_a_deadline() {
        let (mut a, b) = pair(AckPolicy::Lazy, 16);
        post_between_polls(&mut a, &b, 1..=3);
        assert_eq!(a.core.deadline(NOW), Some(NOW + MAX_ACK_DELAY));
    }

    #[test]
    fn a_queue_pair_acknowledges_before_it_is_destroyed() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        message(&mut a, &mut b);
        b.core.destroy_qp(NOW, b.qpn);
        assert_eq!(b.log(), ["tx 1"]);
    }

    #[test]
    fn a_queue_pair_acknowledges_before_it_is_stopped() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        message(&mut a, &mut b);
        b.core.modify_qp(NOW, b.qpn, &QpAttr::to(QpState::Err)).unwrap();
        assert_eq!(b.log(), ["tx 1"]);
    }

    #[test]
    fn reset_removes_completions_of_the_queue_pair() {
        let (mut a, _b) = pair(AckPolicy::Lazy, 16);
        a.core.post_recvs(NOW, a.qpn, [RecvRequest::new(7, a.sge(8))]).1.unwrap();
        a.core.modify_qp(NOW, a.qpn, &QpAttr::to(QpState::Err)).unwrap();
        let other = Completion { qpn: Qpn::new(9), ..completion(false) };
        let _ = a.ring.put(NOW, [other].into_iter());
        a.core.modify_qp(NOW, a.qpn, &QpAttr::to(QpState::Reset)).unwrap();
        let left: Vec<_> = std::iter::from_fn(|| a.ring.completions.pop()).collect();
        assert_eq!(left.iter().map(|left| left.completion).collect::<Vec<_>>(), [other]);
    }

    #[test]
    fn bursts_of_a_busy_port_are_sent_first_and_in_order() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        a.wire.lock().unwrap().busy = true;
        for wr_id in 1..=3 {
            let write = SendRequest::write(wr_id, SendData::inline(b"x"), b.remote()).signaled();
            a.core.post_send(NOW, a.qpn, write, Doorbell::Now).unwrap();
        }
        assert_eq!((a.log().len(), a.core.has_pending_tx()), (0, true));
        a.wire.lock().unwrap().busy = false;
        a.core.turn(NOW);
        // The first was built before the others existed.
        assert_eq!(a.log(), ["tx 1", "tx 2"]);
        for _ in 0..4 {
            b.core.turn(NOW);
            a.core.turn(NOW);
        }
        let ends: Vec<_> = std::iter::from_fn(|| a.ring.completions.pop()).collect();
        let ends: Vec<_> = ends.iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(ends, [1, 2, 3].map(|wr_id| (wr_id, WcStatus::Success)));
    }

    #[test]
    fn a_busy_port_is_no_work_and_is_asked_again_at_its_time() {
        let (mut a, b) = pair(AckPolicy::Lazy, 16);
        let (retry_at, write) =
            (NOW + 4 * MAX_ACK_DELAY, SendRequest::write(1, a.sge(8), b.remote()));
        let mut wire = a.wire.lock().unwrap();
        (wire.busy, wire.retry_at) = (true, Some(retry_at));
        drop(wire);
        a.core.post_send(NOW, a.qpn, write, Doorbell::Now).unwrap();
        assert_eq!((a.core.turn(NOW), a.core.has_pending_tx()), (PollOutcome::Nothing, true));
        assert_eq!(a.core.deadline(NOW), Some(retry_at));
        let mut wire = a.wire.lock().unwrap();
        (wire.busy, wire.retry_at) = (false, None);
        drop(wire);
        assert_eq!((a.core.turn(retry_at), a.log()), (PollOutcome::Work, vec!["tx 1".into()]));
    }

    #[test]
    fn a_refused_burst_is_told_and_the_next_one_goes() {
        let (mut a, b) = pair(AckPolicy::Lazy, 16);
        a.wire.lock().unwrap().busy = true;
        for wr_id in 1..=2 {
            let write = SendRequest::write(wr_id, SendData::inline(b"x"), b.remote());
            a.core.post_send(NOW, a.qpn, write, Doorbell::Now).unwrap();
        }
        let mut wire = a.wire.lock().unwrap();
        (wire.busy, wire.refuses) = (false, Some(TransmitErrorKind::Unreachable));
        drop(wire);
        a.core.turn(NOW);
        assert_eq!(a.log(), ["tx 1"]);
        assert_eq!(a.core.engine.counters().transmit_errors, 1);
    }

    #[test]
    fn a_completion_queue_that_is_full_is_told_once() {
        let (mut a, b) = pair(AckPolicy::Lazy, 1);
        for wr_id in 1..=3 {
            let bad = SendRequest::write(wr_id, Sge { length: 8, ..Sge::default() }, b.remote());
            a.core.post_send(NOW, a.qpn, bad, Doorbell::Now).unwrap();
        }
        a.core.turn(NOW);
        assert_eq!(a.ring.completions.pop().map(|c| c.status), Some(WcStatus::LocProtErr));
        assert_eq!(a.ring.completions.pop(), None);
        assert_eq!(a.events.pop(), Some(AsyncEvent::CqErr(a.cq)));
        assert_eq!(a.events.pop(), None);
    }

    #[test]
    fn sender_of_unacknowledged_bursts_receives_between_posts() {
        let (mut a, mut b) = unacknowledged_pair(16);
        a.core.post_recvs(NOW, a.qpn, [RecvRequest::new(7, a.sge(64))]).1.unwrap();
        b.core.post_send(NOW, b.qpn, SendRequest::send(1, b.sge(8)), Doorbell::Now).unwrap();
        for wr_id in 0..BURSTS_PER_BATCH {
            assert_eq!(a.ring.completions.pop().map(|c| c.wr_id), None);
            let send = SendRequest::send(wr_id as u64, a.sge(8));
            a.core.post_send(NOW, a.qpn, send, Doorbell::Now).unwrap();
        }
        assert_eq!(a.log(), ["tx 1", "tx 1", "tx 1", "tx 1", "rx"]);
        assert_eq!(a.ring.completions.pop().map(|c| c.wr_id), Some(7));
    }

    #[test]
    fn sender_of_acknowledged_bursts_receives_in_turns_only() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        b.core
            .post_send(NOW, b.qpn, SendRequest::write(1, b.sge(8), a.remote()), Doorbell::Now)
            .unwrap();
        for _ in 0..2 * BURSTS_PER_BATCH {
            let write = SendRequest::write(1, a.sge(8), b.remote());
            a.core.post_send(NOW, a.qpn, write, Doorbell::Now).unwrap();
        }
        assert_eq!(a.log(), ["tx 1"; 2 * BURSTS_PER_BATCH]);
    }

    #[test]
    fn a_long_message_is_sent_over_several_turns() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        let to = b.region.addr();
        a.core.engine.set_peer_receive_buffer(NOW, [10, 255, 0, 2].into(), 8 << 20);
        let write = SendRequest::write(1, a.sge(1 << 20), RemoteAddr { addr: to, ..b.remote() });
        a.core.post_send(NOW, a.qpn, write.signaled(), Doorbell::Now).unwrap();
        let first = a.log().len();
        assert!(first <= BURSTS_PER_BATCH * MAX_TX_ROUNDS, "{first} bursts under one lock");
        assert_eq!(a.core.deadline(NOW), Some(NOW), "there is more to send");
        for _ in 0..1000 {
            a.core.turn(NOW);
            b.core.turn(NOW);
        }
        assert_eq!(a.ring.completions.pop().map(|c| c.status), Some(WcStatus::Success));
    }
}
