//! A shard: engine and port behind a lock, with the threads that use it.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use crate::port::{Datapath, EventFd};
use crate::runtime::busy_poll::BusyPoll;
use crate::runtime::cm::CmEvents;
use crate::runtime::core::{Core, Notices, PollOutcome, descriptor_numbers};
use crate::runtime::device_error::DeviceError;
use crate::runtime::env::LogLevel;
use crate::runtime::idle_yield::IdleYield;
use crate::runtime::last_times::LastTimes;
use crate::runtime::lease::AddressLease;
use crate::runtime::listener::Listener;
use crate::runtime::log::log;
use crate::runtime::post_coalescing::{Doorbell, is_turn_expected};
use crate::runtime::queue::Queue;
use crate::runtime::shard_set::ShardSet;
use crate::runtime::{clock, generation};
use crate::sync::Mutex;
use crate::sync::progress::Progress;
use crate::sync::signal::Signal;
use crate::sys::{Woken, sleep_on};
use crate::time::Instant;

mod exit;

/// A program that polls at intervals up to this is expected to poll again: the time of a poll and a response on an
/// interface that does its work in the call.
const POLL_INTERVAL: Duration = Duration::from_micros(20);

/// The lock, and whether another thread had it.
type LockedCore<'a> = Option<(MutexGuard<'a, Core>, bool)>;

/// Engine and port behind a lock, with state that threads share without it.
#[derive(Debug)]
pub(crate) struct Shard {
    core: Mutex<Core>,
    /// Index among the shards of the device.
    index: u8,
    /// All shards of the device in order, if there are others.
    siblings: OnceLock<Box<[Weak<Self>]>>,
    pub(super) last: LastTimes,
    /// State of the threads that make progress.
    pub(super) progress: Progress,
    /// The device's thread.
    pub(super) thread: Sleeper,
    /// Idle polls, after which a thread yields the CPU.
    idle: IdleYield,
    /// The waiting thread that drives this shard.
    pub(super) driver: Driver,
    /// Reason of a failure, as [`failure`] decodes it; 0: none.
    failed: AtomicU8,
    /// The end of the process has to send requests that wait for others, or to end connections.
    has_exit_work: AtomicBool,
    /// The end of the process waits until the device's thread has done that.
    wants_flush: AtomicBool,
    generation: u32,
    /// Descriptors of the port.
    descriptors: Mutex<SmallVec<[RawFd; 4]>>,
    /// Dropped last: the lease ends after the sockets are closed.
    lease: Arc<AddressLease>,
}

impl Shard {
    pub(crate) fn new(core: Core, index: u8, lease: &Arc<AddressLease>) -> io::Result<Self> {
        Ok(Self {
            index,
            siblings: OnceLock::new(),
            descriptors: Mutex::new(descriptor_numbers(&core.port)),
            core: Mutex::new(core),
            last: LastTimes::default(),
            progress: Progress::new(),
            thread: Sleeper::new()?,
            idle: IdleYield::new(),
            driver: Driver {
                sleeper: Sleeper::new()?,
                waits: BusyPoll::new(BUSY_POLL_TIME, false),
            },
            failed: AtomicU8::new(0),
            has_exit_work: AtomicBool::new(false),
            wants_flush: AtomicBool::new(false),
            generation: lease.generation(),
            lease: Arc::clone(lease),
        })
    }

    /// Joins the shards of a device, in order.
    pub(super) fn join(&self, all: &[Arc<Self>]) {
        // Called once.
        let _ = self.siblings.set(all.iter().map(Arc::downgrade).collect());
    }

    /// Returns the shard of the device with an index, if there are several.
    fn sibling(&self, index: u8) -> Option<Arc<Self>> {
        let siblings = self.siblings.get()?;
        siblings.get(usize::from(index) % siblings.len())?.upgrade()
    }

    /// Returns the index among the shards of the device.
    pub(crate) fn index(&self) -> u8 {
        self.index
    }

    /// Returns the set of this shard only.
    pub(crate) fn set(&self) -> ShardSet {
        ShardSet::of(self.index)
    }

    /// Makes the device's thread wait for a further descriptor. Called once, before the thread runs.
    pub(super) fn listen(&self, listener: Box<dyn Listener>) {
        let _ = self.thread.listener.set(listener);
    }

    /// Returns the lease of the addresses.
    pub(super) fn lease(&self) -> &AddressLease {
        &self.lease
    }

    /// Calls `act` under the lock, and then wakes the threads and tasks that wait for its effects.
    pub(crate) fn with<R>(
        &self,
        act: impl FnOnce(&mut Core, Instant) -> R,
    ) -> Result<R, DeviceError> {
        self.with_time(clock::now, act, Self::release)
    }

    /// As [`with`](Self::with), for calls that neither start a timer nor leave something to send. They get the time that
    /// the last owner of the lock has read, because a read of the clock takes as long as the rest.
    pub(crate) fn with_old_time<R>(
        &self,
        act: impl FnOnce(&mut Core, Instant) -> R,
    ) -> Result<R, DeviceError> {
        let last = || Instant::from_nanos(self.last.read.load(Ordering::Relaxed));
        self.with_time(last, act, Self::release_unchanged)
    }

    /// Calls `act`, which posts send requests, under the lock. It learns whether they may wait for a turn: a thread takes
    /// turns, and none sleeps until a packet arrives.
    pub(crate) fn post<R>(
        &self,
        act: impl FnOnce(&mut Core, Instant, Doorbell) -> R,
    ) -> Result<R, DeviceError> {
        self.with(|core, now| {
            let previous = Instant::from_nanos(self.last.post.load(Ordering::Relaxed));
            self.last.post.store(now.as_nanos(), Ordering::Relaxed);
            let may_wait =
                is_turn_expected(now, self.last_turn(), previous) && self.wakes_at().is_none();
            act(core, now, if may_wait { Doorbell::MayWait } else { Doorbell::Now })
        })
    }

    fn with_time<R>(
        &self,
        time: impl FnOnce() -> Instant,
        act: impl FnOnce(&mut Core, Instant) -> R,
        release: impl FnOnce(&Self, MutexGuard<'_, Core>, Instant),
    ) -> Result<R, DeviceError> {
        self.check()?;
        let _guard = PanicGuard(self);
        let mut core = self.lock()?;
        // Under the lock: the engine's time never runs backwards.
        let now = time();
        let result = act(&mut core, now);
        release(self, core, now);
        Ok(result)
    }

    /// Takes a turn for a caller that found `queue` empty, unless another thread is taking one.
    pub(crate) fn turn_for<T>(&self, queue: &Queue<T>) -> Result<(), DeviceError> {
        self.check()?;
        let _guard = PanicGuard(self);
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::WouldBlock) => {
                // The device's thread, if it has the lock, leaves the next turn to the caller.
                self.record_turn(clock::now());
                return Ok(());
            }
            Err(TryLockError::Poisoned(poisoned)) => {
                drop(poisoned);
                return Err(self.fail(DeviceError::Failed));
            }
        };
        // It may have failed meanwhile.
        self.check()?;
        let now = clock::now();
        let polls = self.idle_for(now) < POLL_INTERVAL;
        self.record_turn(now);
        let found = if polls { core.poll(now) } else { core.turn(now) };
        if !polls && queue.is_empty() && core.has_pending_tx() {
            // A caller that finds nothing may not come back soon.
            core.transmit(now);
            core.deliver(now);
            self.release(core, now);
        } else if found == PollOutcome::Nothing {
            self.release_unchanged(core, now);
        } else {
            self.release(core, now);
        }
        self.idle.polled(found != PollOutcome::Work);
        Ok(())
    }

    /// Reports that a thread other than the device's begins a turn.
    pub(super) fn record_turn(&self, now: Instant) {
        self.last.turn.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Unlocks, and wakes a thread that sleeps beyond the next deadline, or although there is something to receive.
    pub(super) fn release(&self, core: MutexGuard<'_, Core>, now: Instant) {
        self.release_except(ShardSet::EMPTY, core, now);
    }

    /// As [`release`](Self::release), but wakes no driver of these shards: they are awake.
    pub(super) fn release_except(
        &self,
        awake: ShardSet,
        mut core: MutexGuard<'_, Core>,
        now: Instant,
    ) {
        self.last.read.store(now.as_nanos(), Ordering::Relaxed);
        let has_exit_work = core.has_waiting_posts() || core.has_connections();
        self.has_exit_work.store(has_exit_work, Ordering::Relaxed);
        // In most cases no thread sleeps while another polls.
        let overslept = self.wakes_at().is_some_and(|until| {
            core.deadline(now).is_some_and(|due| until > due) || !core.port.arm()
        });
        let notices = core.take_notices();
        if notices.as_ref().is_some_and(|notices| notices.moved) {
            *self.port_descriptors() = descriptor_numbers(&core.port);
        }
        drop(core);
        if let Some(notices) = notices {
            self.deliver_notices(notices, awake);
        }
        if overslept {
            self.wake_sleeper();
        }
    }

    /// Unlocks after a turn or a call that has moved no deadline and leaves nothing to send.
    #[inline]
    fn release_unchanged(&self, core: MutexGuard<'_, Core>, now: Instant) {
        if self.wakes_at().is_some() || core.has_notices() {
            return self.release(core, now);
        }
        self.last.read.store(now.as_nanos(), Ordering::Relaxed);
    }

    fn deliver_notices(&self, notices: Notices, awake: ShardSet) {
        let wakes = (notices.wakes | notices.due.announce()).without(awake);
        let Notices { moved, wakers, ended_waiters, port_closed, cm_events, first_packets, .. } =
            notices;
        for waiting in ended_waiters {
            self.each(waiting, Self::unregister_waiter);
        }
        wakers.into_iter().for_each(Waker::wake);
        let wakes = if moved { wakes | self.set() } else { wakes };
        self.each(wakes, |shard| shard.wake(&shard.driver.sleeper));
        if moved {
            // A sleeping thread sleeps on the old descriptors.
            self.wake(&self.thread);
        }
        if let Some(events) = cm_events {
            self.deliver_cm_events(&events);
        }
        if !first_packets.is_empty()
            && let Some(first) = self.sibling(0)
        {
            // A failed device has no connections left.
            let _ = first.with(|core, now| {
                first_packets.iter().for_each(|qpn| core.handle_first_packet(now, *qpn));
            });
        }
        if port_closed {
            self.fail(DeviceError::SocketClosed);
        }
    }

    /// Delivers events of the connection manager, and rejects requests without a listener.
    fn deliver_cm_events(&self, events: &CmEvents) {
        for request in events.deliver() {
            // A failed device rejects nothing.
            let _ = self.with(|core, now| core.with_cm(now, |cm| cm.agent.destroy(now, request)));
        }
    }

    /// Calls `act` for each of these shards of the device.
    fn each(&self, these: ShardSet, act: impl Fn(&Self)) {
        if these.contains(self.index) {
            act(self);
        }
        let others = these.without(self.set());
        others.iter().filter_map(|index| self.sibling(index)).for_each(|shard| act(&shard));
    }

    /// Returns the time at which the first thread that sleeps on the port wakes up.
    fn wakes_at(&self) -> Option<Instant> {
        Instant::first(self.thread.sleep.get(), self.driver.sleeper.sleep.get())
    }

    fn wake_sleeper(&self) {
        let driver = &self.driver.sleeper;
        self.wake(if driver.sleep.get().is_some() { driver } else { &self.thread });
    }

    /// Wakes a thread. Fails the device if other code of the process has closed the descriptor for that.
    pub(super) fn wake(&self, sleeper: &Sleeper) {
        sleeper.event_fd.ring();
        if sleeper.event_fd.is_lost() {
            self.fail(DeviceError::SocketClosed);
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, Core>, DeviceError> {
        let core = self.core.lock().map_err(|poisoned| {
            // The guard in the error holds the lock.
            drop(poisoned);
            self.fail(DeviceError::Failed)
        })?;
        // It may have failed during the wait for the lock.
        self.check().map(|()| core)
    }

    /// Locks, and returns whether another thread had the lock. `None` if it has the lock and `leaves` says to leave it.
    pub(super) fn lock_unless(
        &self,
        leaves: impl FnOnce() -> bool,
    ) -> Result<LockedCore<'_>, DeviceError> {
        match self.core.try_lock() {
            Ok(core) => self.check().map(|()| Some((core, false))),
            Err(TryLockError::WouldBlock) if leaves() => Ok(None),
            Err(_) => self.lock().map(|core| Some((core, true))),
        }
    }

    /// Returns whether a thread has the lock.
    pub(super) fn is_locked(&self) -> bool {
        matches!(self.core.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Returns an error if the device cannot be used.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        if self.generation != generation() {
            return Err(DeviceError::Forked);
        }
        match self.failed.load(Ordering::Acquire) {
            0 => Ok(()),
            number => Err(failure(number)),
        }
    }

    /// Fails the device: flushes every queue pair of every shard and wakes all waiting threads and tasks. Returns the
    /// reason of the first failure. The flush is complete when this returns, in whichever thread it ran.
    pub(super) fn fail(&self, why: DeviceError) -> DeviceError {
        let mut is_first = false;
        self.each_of_device(|shard| is_first |= shard.flush_failed(why));
        if is_first {
            if why == DeviceError::SocketClosed {
                log(LogLevel::Warn, &why);
            }
            // A thread that finds its queue closed finds every shard failed.
            self.each_of_device(Self::close_queues);
        }
        failure(self.failed.load(Ordering::Acquire))
    }

    /// Calls `act` for each shard of the device. Shard 0, which callers check for a failure, is the last.
    fn each_of_device(&self, mut act: impl FnMut(&Self)) {
        match self.siblings.get() {
            Some(all) => all.iter().rev().filter_map(Weak::upgrade).for_each(|shard| act(&shard)),
            None => act(self),
        }
    }

    /// Flushes the shard and marks it as failed. Returns false if it has failed before.
    fn flush_failed(&self, why: DeviceError) -> bool {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failed.load(Ordering::Relaxed) != 0 {
            return false;
        }
        core.fail(clock::now());
        // After the flush: a thread that finds the shard failed finds all flushed requests.
        let number = u8::from(why == DeviceError::SocketClosed) + 1;
        self.failed.store(number, Ordering::Release);
        drop(core);
        self.core.clear_poison();
        true
    }

    /// Closes the queues of a failed shard, and wakes its threads and tasks.
    fn close_queues(&self) {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        core.close_queues();
        let wakers = core.rings.take_wakers();
        let cm_events = Arc::clone(core.cm_events());
        drop(core);
        wakers.into_iter().for_each(Waker::wake);
        cm_events.fail();
        for event_fd in [&self.driver.sleeper.event_fd, &self.thread.event_fd] {
            // The program may have closed all descriptors just now, and the number may be that of one of its files.
            if event_fd.is_own() {
                event_fd.ring();
            }
        }
    }

    /// Returns whether there is something to receive.
    pub(super) fn has_packets(&self) -> Result<bool, DeviceError> {
        let has = !self.lock()?.port.arm();
        let descriptors = self.port_descriptors();
        let woken = sleep_on(&descriptors, Some(Duration::ZERO));
        Ok(has || woken.is_ok_and(|woken| matches!(woken, Woken::Ready | Woken::Closed)))
    }

    /// Returns the port's descriptors.
    pub(super) fn port_descriptors(&self) -> MutexGuard<'_, SmallVec<[RawFd; 4]>> {
        self.descriptors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decodes the reason of a failure.
fn failure(number: u8) -> DeviceError {
    if number == 2 { DeviceError::SocketClosed } else { DeviceError::Failed }
}

/// Fails the device at once after a panic under its lock, not when the next caller finds the lock poisoned. The guard
/// is created before the lock is taken, and so dropped after the lock is released.
pub(super) struct PanicGuard<'a>(pub(super) &'a Shard);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if self.0.core.is_poisoned() {
            self.0.fail(DeviceError::Failed);
        }
    }
}

/// A thread that may sleep on the port's descriptors.
#[derive(Debug)]
pub(super) struct Sleeper {
    /// Time until which it sleeps.
    pub(super) sleep: AtomicDeadline,
    /// Wakes it.
    pub(super) event_fd: EventFd,
    /// A further descriptor that it waits for.
    pub(super) listener: OnceLock<Box<dyn Listener>>,
    /// Number of sleeps in a row that a closed descriptor has ended.
    pub(super) closed_sleeps: AtomicU32,
}

impl Sleeper {
    fn new() -> io::Result<Self> {
        let (sleep, listener) = (AtomicDeadline::default(), OnceLock::new());
        let closed_sleeps = AtomicU32::new(0);
        Ok(Self { sleep, event_fd: EventFd::open()?, listener, closed_sleeps })
    }
}

/// Time that a waiting thread polls before it sleeps: as long as a wake-up may take.
pub(super) const BUSY_POLL_TIME: Duration = Duration::from_micros(50);

/// The thread of the program that drives a shard while it waits.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) sleeper: Sleeper,
    pub(super) waits: BusyPoll,
}

/// An optional time that is read without a lock.
#[derive(Debug, Default)]
pub(crate) struct AtomicDeadline(AtomicU64);

impl AtomicDeadline {
    pub(crate) const NEVER: Instant = Instant::from_nanos(u64::MAX);

    /// Zero stands for `None`.
    pub(crate) fn set(&self, at: Option<Instant>) {
        let nanos = at.map_or(0, |at| at.as_nanos().max(1));
        self.0.store(nanos, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Instant> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::fd::AsFd;
    use std::thread;

    use super::*;
    use crate::ids::CqId;
    use crate::port::wait_readable;
    use crate::runtime::AckPolicy;
    use crate::runtime::idle_backoff::IdleBackoff;
    use crate::runtime::idle_yield::MIN_IDLE_POLLS;
    use crate::runtime::queue::{OnSignal, WaitOutcome};
    use crate::runtime::ring::{Announce, Ring, TimestampedCompletion};
    use crate::runtime::wire_of_tests::{Shared, pair};
    use crate::sync::progress::ThreadState;
    use crate::transport::outputs::AsyncEvent;
    use crate::transport::work::{RecvRequest, SendRequest, WcStatus};

    /// Returns a shard without a thread that has a message to receive, and the sender.
    pub(in crate::runtime) fn shard(ip: [u8; 4]) -> (Shard, Shared, Arc<Ring>) {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        b.core.post_recvs(Instant::ZERO, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
        a.core
            .post_send(Instant::ZERO, a.qpn, SendRequest::send(1, a.sge(8)), Doorbell::Now)
            .unwrap();
        let lease = AddressLease::of_tests(ip);
        (Shard::new(b.core, 0, &Arc::new(lease)).unwrap(), b.wire, b.ring)
    }

    pub(super) fn log(wire: &Shared) -> Vec<String> {
        std::mem::take(&mut wire.lock().unwrap().log)
    }

    fn rung(event_fd: &EventFd) -> bool {
        let rung = wait_readable(&[event_fd.as_fd()], Some(Duration::ZERO)).unwrap();
        event_fd.silence();
        rung
    }

    #[test]
    fn a_shard_reports_its_failure_only_after_the_flush() {
        let (mut a, b) = pair(AckPolicy::Lazy, 16);
        let events = Arc::new(Queue::new(16));
        a.core.add_context(&events);
        a.core.post_recvs(Instant::ZERO, a.qpn, [RecvRequest::new(7, a.sge(8))]).1.unwrap();
        let lease = AddressLease::of_tests([10, 255, 1, 13]);
        let (ring, shard) = (a.ring, Shard::new(a.core, 0, &Arc::new(lease)).unwrap());
        drop(b);
        thread::scope(|scope| {
            // The failing thread is at the event, which follows the completions.
            let held = events.fill();
            let failing = scope.spawn(|| shard.fail(DeviceError::Failed));
            let flushed = ring.completions.block(None, OnSignal::Wait).item().unwrap();
            assert_eq!((flushed.wr_id, flushed.status), (7, WcStatus::WrFlushErr));
            assert_eq!(shard.check(), Ok(()));
            drop(held);
            assert_eq!(
                shard.fail(DeviceError::SocketClosed),
                DeviceError::Failed,
                "the first reason"
            );
            assert_eq!(events.pop(), Some(AsyncEvent::DeviceFatal), "fail waits for the flush");
            assert_eq!(failing.join().unwrap(), DeviceError::Failed);
        });
        assert_eq!(shard.check(), Err(DeviceError::Failed));
    }

    /// Records, when its queue is closed, whether each shard of a device has failed.
    #[derive(Default)]
    struct Closing {
        shards: OnceLock<[Weak<Shard>; 2]>,
        have_failed: Mutex<Vec<bool>>,
    }

    impl Announce for Arc<Closing> {
        fn announce(&self) -> ShardSet {
            ShardSet::EMPTY
        }

        fn needs_waiter(&self) -> bool {
            false
        }

        fn close(&self) {
            let shards = self.shards.get().unwrap().iter().filter_map(Weak::upgrade);
            self.have_failed.lock().unwrap().extend(shards.map(|shard| shard.check().is_err()));
        }
    }

    #[test]
    fn queues_are_closed_after_every_shard_has_failed() {
        let (a, b) = pair(AckPolicy::Lazy, 16);
        let lease = Arc::new(AddressLease::of_tests([10, 255, 1, 14]));
        let closing = Arc::new(Closing::default());
        let ends = [(a.core, 0), (b.core, 1)];
        let shards = ends.map(|(mut core, index)| {
            let announce = Box::new(Arc::clone(&closing));
            let ring = Ring::new(1, false, Some(announce), Arc::new(Queue::new(1)));
            core.rings.enter(CqId(1), Arc::new(ring));
            Arc::new(Shard::new(core, index, &lease).unwrap())
        });
        shards.iter().for_each(|shard| shard.join(&shards));
        closing.shards.set(shards.each_ref().map(Arc::downgrade)).unwrap();
        assert_eq!(shards[1].fail(DeviceError::SocketClosed), DeviceError::SocketClosed);
        assert_eq!(*closing.have_failed.lock().unwrap(), [true; 4]);
        assert_eq!(
            shards[0].fail(DeviceError::Failed),
            DeviceError::SocketClosed,
            "the first reason"
        );
    }

    #[test]
    fn a_poll_that_finds_something_leaves_the_acknowledgement_for_later() {
        let (shard, wire, ring) = shard([10, 255, 1, 1]);
        shard.turn_for(&ring.completions).unwrap();
        assert_eq!(log(&wire), ["rx"]);
        assert!(ring.completions.pop().is_some());
        shard.turn_for(&ring.completions).unwrap();
        assert_eq!(log(&wire), ["tx 1"]);
    }

    #[test]
    fn a_poll_that_finds_nothing_has_acknowledged() {
        let (shard, wire, _) = shard([10, 255, 1, 2]);
        // A poll of the queue does not find the completion yet.
        shard.turn_for(&Queue::<()>::new(1)).unwrap();
        assert_eq!(log(&wire), ["rx", "tx 1"]);
    }

    #[test]
    fn a_poll_among_many_leaves_it_to_the_next() {
        let (shard, wire, _) = shard([10, 255, 1, 4]);
        // The previous poll was no time ago.
        shard.last.turn.store(u64::MAX, Ordering::Relaxed);
        shard.turn_for(&Queue::<()>::new(1)).unwrap();
        assert_eq!(log(&wire), ["rx"]);
        shard.turn_for(&Queue::<()>::new(1)).unwrap();
        assert_eq!(log(&wire), ["tx 1"]);
    }

    #[test]
    fn idle_polls_yield_the_cpu() {
        let (shard, _, ring) = shard([10, 255, 1, 8]);
        let idle = || shard.idle.idle_polls.load(Ordering::Relaxed);
        shard.turn_for(&ring.completions).unwrap();
        assert_eq!(idle(), 0);
        // The first still acknowledges.
        for _ in 0..=MIN_IDLE_POLLS {
            shard.turn_for(&ring.completions).unwrap();
        }
        assert_eq!(idle(), MIN_IDLE_POLLS);
        shard.turn_for(&ring.completions).unwrap();
        // 0 if a program that computes had the CPU meanwhile.
        assert!([0, MIN_IDLE_POLLS + 1].contains(&idle()), "{}", idle());
    }

    #[test]
    fn a_poll_does_not_wait_for_another() {
        let (shard, wire, ring) = shard([10, 255, 1, 3]);
        let held = shard.lock().unwrap();
        shard.turn_for(&ring.completions).unwrap();
        drop(held);
        assert!(log(&wire).is_empty());
    }

    #[test]
    fn due_packets_are_sent_by_the_polling_thread() {
        let (shard, wire, ring) = shard([10, 255, 1, 7]);
        // It leaves an acknowledgement pending, which is due in a millisecond.
        shard.turn_for(&ring.completions).unwrap();
        assert_eq!(log(&wire), ["rx"]);
        shard.last.turn.store(u64::MAX, Ordering::Relaxed);
        let mut backoff = IdleBackoff::new();
        for _ in 0..3 {
            assert_eq!(shard.watch(&mut backoff), Ok(ThreadState::Watch));
        }
        assert!(log(&wire).is_empty());
        shard.last.turn.store(0, Ordering::Relaxed);
        assert_eq!(
            shard.watch(&mut backoff),
            Ok(ThreadState::Watch),
            "there was one since it last looked"
        );
        assert_eq!(shard.watch(&mut backoff), Ok(ThreadState::Socket));
    }

    #[test]
    fn thread_leaves_the_socket_to_polling_threads_until_a_task_registers() {
        let (shard, _, ring) = shard([10, 255, 1, 16]);
        let mut backoff = IdleBackoff::new();
        shard.register_waiter();
        shard.last.turn.store(u64::MAX - 100, Ordering::Relaxed);
        let leaves = (0..100).any(|number| {
            // Another thread has just begun a turn, then posted, and this one does not sleep.
            let last = if number < 8 { &shard.last.turn } else { &shard.last.post };
            last.store(u64::MAX - 99 + number, Ordering::Relaxed);
            shard.thread.event_fd.ring();
            shard.socket(&mut backoff) == Ok(ThreadState::Watch)
        });
        assert!(leaves, "the thread is still on the socket");
        shard.turn_for(&ring.completions).unwrap();
        shard.last.turn.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(shard.watch(&mut backoff), Ok(ThreadState::Watch));
        shard.register_waiter();
        assert_eq!(shard.watch(&mut backoff), Ok(ThreadState::Socket));
    }

    #[test]
    fn long_turn_counts_as_polling() {
        let (shard, _, _) = shard([10, 255, 1, 9]);
        let mut backoff = IdleBackoff::new();
        let held = shard.lock().unwrap();
        for _ in 0..3 {
            assert_eq!(shard.watch(&mut backoff), Ok(ThreadState::Watch));
        }
        drop(held);
        assert_eq!(shard.watch(&mut backoff), Ok(ThreadState::Socket));
    }

    #[test]
    fn poll_during_a_locked_turn_is_recorded() {
        let (shard, _, ring) = shard([10, 255, 1, 10]);
        let held = shard.lock().unwrap();
        let before = clock::now();
        shard.turn_for(&ring.completions).unwrap();
        assert_eq!(shard.idle_for(before), Duration::ZERO);
        drop(held);
    }

    #[test]
    fn thread_that_sleeps_past_the_deadline_is_woken() {
        let soon = clock::now() + Duration::from_micros(1);
        let cases = [
            (None, None, (false, false)),
            (Some(AtomicDeadline::NEVER), None, (true, false)),
            (Some(AtomicDeadline::NEVER), Some(AtomicDeadline::NEVER), (false, true)),
            (Some(soon), Some(AtomicDeadline::NEVER), (false, false)),
        ];
        for (case, (thread, driver, expected)) in (0..).zip(cases) {
            let (shard, _, ring) = shard([10, 255, 2, case]);
            shard.thread.sleep.set(thread);
            shard.driver.sleeper.sleep.set(driver);
            // It leaves an acknowledgement pending, which is a deadline.
            shard.turn_for(&ring.completions).unwrap();
            let woken = (rung(&shard.thread.event_fd), rung(&shard.driver.sleeper.event_fd));
            assert_eq!(woken, expected, "{thread:?} {driver:?}");
        }
    }

    #[test]
    fn panic_under_the_lock_fails_the_device_and_wakes_waiting_threads() {
        let (shard, _, ring) = shard([10, 255, 1, 5]);
        thread::scope(|scope| {
            let asleep = Queue::<()>::new(1);
            let waiter =
                scope.spawn(|| ring.completions.block(None, OnSignal::Wait).item().is_some());
            let panicking = scope.spawn(|| shard.with(|_, _| panic!("for a test")).is_ok());
            assert!(panicking.join().is_err());
            // No other thread has used the device since.
            assert!(waiter.join().unwrap(), "the receive request is flushed");
            assert_eq!(shard.turn_for(&asleep), Err(DeviceError::Failed));
            assert_eq!(shard.wait(&asleep, None, OnSignal::Wait), Err(DeviceError::Failed));
            assert!(!shard.core.is_poisoned());
        });
    }

    #[test]
    fn thread_silences_its_eventfd_after_a_failed_receive() {
        let (shard, wire, _) = shard([10, 255, 1, 15]);
        wire.lock().unwrap().receive_error = Some(libc::EIO);
        shard.thread.event_fd.ring();
        assert_eq!(shard.socket(&mut IdleBackoff::new()), Ok(ThreadState::Socket));
        assert!(log(&wire).is_empty(), "the next receive is left to the next call");
        assert!(!rung(&shard.thread.event_fd));
    }

    #[test]
    fn the_thread_takes_no_turn_once_the_device_closes() {
        let (shard, wire, _) = shard([10, 255, 1, 12]);
        shard.stop();
        assert_eq!(shard.socket(&mut IdleBackoff::new()), Ok(ThreadState::Socket));
        assert!(log(&wire).is_empty());
    }

    #[test]
    fn flushed_completions_of_a_failed_device_can_be_waited_for() {
        let (shard, wire, ring) = shard([10, 255, 1, 6]);
        wire.lock().unwrap().receive_error = Some(libc::EBADF);
        shard.turn_for(&ring.completions).unwrap();
        let wait = || shard.wait(&ring.completions, None, OnSignal::Wait);
        let status = |waited: WaitOutcome<TimestampedCompletion>| {
            waited.item().map(|stamped| stamped.status)
        };
        assert_eq!(wait().map(status), Ok(Some(WcStatus::WrFlushErr)));
        assert_eq!(wait(), Err(DeviceError::SocketClosed));
        assert_eq!(shard.with(|_, _| ()), Err(DeviceError::SocketClosed));
    }
}
