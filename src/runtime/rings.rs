//! Completion queues of a shard by number, and their notifications.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Waker;

use smallvec::SmallVec;

use crate::engine::timers::Timers;
use crate::ids::{CqId, Qpn};
use crate::runtime::moderation::{Moderation, ModerationAction};
use crate::runtime::ring::{PutOutcome, Ring};
use crate::runtime::shard_set::ShardSet;
use crate::sync::Mutex;
use crate::time::Instant;
use crate::transport::work::Completion;

/// Completion queues to notify.
#[derive(Debug, Default)]
pub(crate) struct DueRings(SmallVec<[Arc<Ring>; 4]>);

impl DueRings {
    /// Notifies them. Returns the shards with drivers that wait for them.
    pub(crate) fn announce(&self) -> ShardSet {
        self.0.iter().fold(ShardSet::EMPTY, |wakes, ring| wakes | ring.announce())
    }
}

/// Completion queues of a shard.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    slots: Vec<Option<Slot>>,
    /// Queues to notify after the acknowledgement has left.
    due: DueRings,
    /// Queues to notify when the device's lock is free: a woken thread needs it at once.
    ready: DueRings,
    /// Shards at which a waiter on a channel's descriptor is registered, for each queue that is notified now or
    /// removed.
    waiters: SmallVec<[ShardSet; 4]>,
    /// Tasks to wake.
    wakers: Vec<Waker>,
    /// Times to check the moderation.
    timers: Timers,
}

#[derive(Debug)]
struct Slot {
    ring: Arc<Ring>,
    /// The engine knows of the overrun.
    overrun: bool,
}

/// Numbers of a device's completion queues, which are the same in all of its shards.
#[derive(Debug, Default)]
pub(crate) struct CqNumbers(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    /// Numbers ever taken.
    known: u32,
    /// Numbers to reuse.
    free: Vec<CqId>,
}

impl CqNumbers {
    /// Takes a number, if fewer than `max` are taken.
    pub(crate) fn take(&self, max: usize) -> Option<CqId> {
        let mut numbers = self.lock();
        if numbers.known as usize - numbers.free.len() >= max {
            return None;
        }
        if let Some(id) = numbers.free.pop() {
            return Some(id);
        }
        numbers.known += 1;
        Some(CqId(numbers.known - 1))
    }

    /// Returns a number that no shard uses any more.
    pub(crate) fn give_back(&self, id: CqId) {
        self.lock().free.push(id);
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rings {
    /// Registers a completion queue under its number.
    pub(crate) fn enter(&mut self, id: CqId, ring: Arc<Ring>) {
        let index = id.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(Slot { ring, overrun: false });
    }

    /// Removes a completion queue that no queue pair of this shard uses any more.
    pub(crate) fn remove(&mut self, id: CqId) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::take) {
            self.disarm(&slot.ring);
        }
    }

    pub(crate) fn get(&self, id: CqId) -> Option<&Arc<Ring>> {
        self.slots.get(id.0 as usize)?.as_ref().map(|slot| &slot.ring)
    }

    fn slot(&mut self, id: CqId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// Adds completions to a queue.
    pub(crate) fn put(
        &mut self,
        now: Instant,
        id: CqId,
        completions: impl Iterator<Item = Completion>,
    ) -> PutOutcome {
        let Some(slot) = self.slot(id) else {
            completions.for_each(drop);
            return PutOutcome::default();
        };
        let mut put = slot.ring.put(now, completions);
        // The engine of each shard reports it once.
        put.overrun = put.overrun && !std::mem::replace(&mut slot.overrun, true);
        if put.awaited {
            let ring = Arc::clone(&slot.ring);
            ring.wakers.take(&mut self.wakers);
        }
        if put.wanted > 0 {
            self.add_pending(now, id, put.wanted);
        }
        put
    }

    /// Removes the completions of a queue pair that were not polled yet.
    pub(crate) fn forget(&self, qpn: Qpn) {
        for slot in self.slots.iter().flatten().filter(|slot| !slot.ring.completions.is_empty()) {
            slot.ring.completions.retain(|stamped| stamped.completion.qpn != qpn);
        }
    }

    /// Returns whether [`take_ready`](Self::take_ready), [`take_wakers`](Self::take_wakers) or
    /// [`take_waiters`](Self::take_waiters) returns anything.
    pub(crate) fn has_notices(&self) -> bool {
        self.has_ready() || !self.waiters.is_empty() || !self.wakers.is_empty()
    }

    /// Returns the shards at which waiters unregister: their queues are notified or removed.
    pub(crate) fn take_waiters(&mut self) -> SmallVec<[ShardSet; 4]> {
        std::mem::take(&mut self.waiters)
    }

    /// Returns the tasks to wake when the device's lock is free: they may use the device at once.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    /// Sets the moderation of a completion queue. Pending completions follow it too.
    pub(crate) fn moderate(&mut self, now: Instant, id: CqId, moderation: Moderation) {
        if let Some(slot) = self.slot(id) {
            slot.ring.moderate(moderation);
            self.add_pending(now, id, 0);
        }
    }

    /// Notifies a queue that was armed after completions had been added, if the program may not know of them.
    pub(crate) fn announce_missed(&mut self, now: Instant, id: CqId) {
        let missed = self.get(id).map_or(0, |ring| ring.missed());
        if missed > 0 {
            self.add_pending(now, id, missed);
        }
    }

    /// Notifies a queue, or schedules its notification.
    fn add_pending(&mut self, now: Instant, id: CqId, more: u32) {
        let Some(slot) = self.slot(id) else { return };
        match slot.ring.add_pending(now, more) {
            ModerationAction::Nothing => {}
            ModerationAction::Later(at) => self.timers.schedule(id.0 as usize, at),
            ModerationAction::Announce => {
                let ring = Arc::clone(&slot.ring);
                // Another shard may have notified it already.
                if self.disarm(&ring) {
                    self.due.0.push(ring);
                }
            }
        }
    }

    /// Disarms a queue. Returns whether it was armed.
    fn disarm(&mut self, ring: &Ring) -> bool {
        let (armed, waiting) = ring.disarm();
        if !waiting.is_empty() {
            self.waiters.push(waiting);
        }
        armed
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout): never too late, perhaps too early.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Checks queues with a moderation period that may have ended.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.timers.expired(now) {
            self.add_pending(now, CqId(u32::try_from(index).unwrap_or(u32::MAX)), 0);
        }
    }

    /// Returns whether there are due queues.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.0.is_empty()
    }

    /// Leaves due queues to [`take_ready`](Self::take_ready).
    pub(crate) fn announce_when_unlocked(&mut self) {
        self.ready.0.append(&mut self.due.0);
    }

    /// Returns whether [`take_ready`](Self::take_ready) returns any.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.0.is_empty()
    }

    /// Returns the queues to notify when the device's lock is free.
    pub(crate) fn take_ready(&mut self) -> DueRings {
        std::mem::take(&mut self.ready)
    }

    /// Closes the queues of a failed device.
    pub(crate) fn close(&mut self) {
        for slot in self.slots.iter().flatten() {
            slot.ring.close();
            slot.ring.wakers.take(&mut self.wakers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::AckPolicy;
    use crate::runtime::post_coalescing::Doorbell;
    use crate::runtime::queue::Queue;
    use crate::runtime::wire_of_tests::{completion, pair};
    use crate::sync::notify::Armed;
    use crate::transport::work::{RecvRequest, SendRequest};

    /// A completion queue and the times of its notifications.
    struct Bench {
        rings: Rings,
        ring: Arc<Ring>,
        id: CqId,
    }

    impl Bench {
        fn new(count: u16, period: u16) -> Self {
            let mut rings = Rings::default();
            let ring = Arc::new(Ring::new(64, false, None, Arc::new(Queue::new(1))));
            let id = CqId(0);
            rings.enter(id, Arc::clone(&ring));
            rings.moderate(Instant::ZERO, id, Moderation { count, period });
            Self { rings, ring, id }
        }

        /// Adds completions at these times in microseconds and returns the times of notifications until 1000. The queue
        /// is armed at the start and after each notification.
        fn run(&mut self, armed: Armed, completions: &[(u64, bool)]) -> Vec<u64> {
            let mut announced = Vec::new();
            let mut coming = completions.iter().copied().peekable();
            self.ring.arm(armed);
            for us in 0..1000 {
                let now = Instant::from_micros(us);
                if self.rings.deadline().is_some_and(|at| at <= now) {
                    self.rings.handle_timeout(now);
                }
                while let Some((_, solicited)) = coming.next_if(|(at, _)| *at == us) {
                    self.rings.put(now, self.id, [completion(solicited)].into_iter());
                }
                while self.rings.is_due() {
                    self.rings.announce_when_unlocked();
                    self.rings.take_ready().announce();
                    announced.push(us);
                    self.ring.arm(armed);
                }
            }
            assert_eq!(self.rings.deadline(), None, "no timer is left");
            announced
        }
    }

    fn at(us: impl IntoIterator<Item = u64>) -> Vec<(u64, bool)> {
        us.into_iter().map(|us| (us, false)).collect()
    }

    #[test]
    fn without_moderation_each_is_announced() {
        for (count, period) in [(0, 0), (1, 0), (1, 500)] {
            let mut bench = Bench::new(count, period);
            assert_eq!(bench.run(Armed::Any, &at([3, 4, 90])), [3, 4, 90]);
        }
    }

    #[test]
    fn so_many_are_announced_together() {
        let mut bench = Bench::new(3, 0);
        assert_eq!(bench.run(Armed::Any, &at([1, 2, 30, 31, 32, 90, 91])), [30, 90]);
    }

    #[test]
    fn the_first_waits_no_longer_than_the_period() {
        let mut bench = Bench::new(0, 50);
        assert_eq!(bench.run(Armed::Any, &at([10, 11, 59, 61, 300])), [60, 111, 350]);
    }

    #[test]
    fn whichever_comes_first() {
        let mut bench = Bench::new(3, 50);
        let completions = at([10, 11, 12, 100, 120, 149, 200, 249]);
        assert_eq!(bench.run(Armed::Any, &completions), [12, 149, 250]);
    }

    #[test]
    fn only_what_it_is_armed_for_counts() {
        let mut bench = Bench::new(2, 50);
        let completions = [(10, false), (20, true), (30, false), (40, true), (60, true)];
        assert_eq!(bench.run(Armed::Solicited, &completions), [40, 110]);
    }

    #[test]
    fn a_queue_that_is_not_armed_holds_nothing() {
        let mut bench = Bench::new(3, 50);
        assert!(bench.run(Armed::No, &at([10, 11, 12])).is_empty());
    }

    #[test]
    fn pending_completions_follow_new_moderation() {
        let mut bench = Bench::new(8, 0);
        bench.ring.arm(Armed::Any);
        for _ in 0..3 {
            bench.rings.put(Instant::ZERO, bench.id, [completion(false)].into_iter());
        }
        let now = Instant::from_micros(7);
        bench.rings.moderate(now, bench.id, Moderation { count: 8, period: 5 });
        assert_eq!(
            (bench.rings.is_due(), bench.rings.deadline()),
            (false, Some(Instant::from_micros(12)))
        );
        bench.rings.moderate(now, bench.id, Moderation { count: 3, period: 5 });
        assert!(bench.rings.is_due());
    }

    #[test]
    fn numbers_are_given_out_again() {
        let numbers = CqNumbers::default();
        let ids = [(); 3].map(|()| numbers.take(2));
        assert_eq!(ids, [Some(CqId(0)), Some(CqId(1)), None]);
        numbers.give_back(CqId(0));
        assert_eq!([(); 2].map(|()| numbers.take(2)), [Some(CqId(0)), None]);
    }

    #[test]
    fn a_device_keeps_the_period() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        let (now, over) = (Instant::ZERO, Instant::from_micros(50));
        b.core.rings.moderate(now, b.cq, Moderation { count: 8, period: 50 });
        b.ring.arm(Armed::Any);
        b.core.post_recvs(now, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
        a.core.post_send(now, a.qpn, SendRequest::send(1, a.sge(8)), Doorbell::Now).unwrap();
        b.core.turn(now);
        b.core.turn(now);
        assert_eq!((b.log(), b.core.deadline(now)), (vec!["rx".into(), "tx 1".into()], Some(over)));
        b.core.turn(over);
        b.announce();
        assert_eq!((b.log(), b.core.deadline(over)), (vec!["announce".into()], None));
    }
}
