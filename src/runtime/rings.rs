//! The completion queues of a shard by number, and when each is announced.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use crate::engine::timers::Timers;
use crate::ids::{CqId, Qpn};
use crate::runtime::ring::{Put, Ring};
use crate::time::Instant;
use crate::transport::work::Completion;

/// How long an armed completion queue waits for more before it is announced: until `count`
/// completions that it is armed for have come, or `period` after the first. Zero leaves a limit out;
/// without either it is announced at once, and so it is with a `count` of 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[doc(alias = "ibv_moderate_cq")]
pub struct Moderation {
    /// Completions that are announced together.
    #[doc(alias = "cq_count")]
    pub count: u16,
    /// Microseconds that the first of them may wait.
    #[doc(alias = "cq_period")]
    pub period: u16,
}

impl Moderation {
    fn is_off(self) -> bool {
        self.count == 1 || self == Self::default()
    }
}

/// The completion queues of a shard.
#[derive(Debug, Default)]
pub(crate) struct Rings {
    slots: Vec<Option<Slot>>,
    /// Numbers that can be given out again.
    free: Vec<CqId>,
    /// To be announced now.
    due: SmallVec<[Arc<Ring>; 4]>,
    /// Queues that somebody has slept on and that are announced now, or gone.
    told: usize,
    /// Tasks to be woken.
    wakers: Vec<Waker>,
    /// When to look whether which has been held for long enough.
    timers: Timers,
}

#[derive(Debug)]
struct Slot {
    ring: Arc<Ring>,
    moderation: Moderation,
    /// Completions that it was armed for and that are not announced yet.
    held: u32,
    /// When they are at the latest.
    until: Option<Instant>,
}

impl Slot {
    fn is_complete(&self, now: Instant) -> bool {
        let Moderation { count, .. } = self.moderation;
        let enough = self.moderation.is_off() || (count > 0 && self.held >= count.into());
        self.held > 0 && (enough || self.until.is_some_and(|until| until <= now))
    }
}

impl Rings {
    /// Takes a number for a completion queue.
    pub(crate) fn reserve(&mut self) -> CqId {
        if let Some(id) = self.free.pop() {
            return id;
        }
        self.slots.push(None);
        // As many as do not fit 32 bits do not fit memory.
        CqId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
    }

    /// Enters the completion queue that a number was taken for.
    pub(crate) fn enter(&mut self, id: CqId, ring: Arc<Ring>) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize) {
            let moderation = Moderation::default();
            *slot = Some(Slot { ring, moderation, held: 0, until: None });
        }
    }

    /// Gives a number back. No queue pair uses it any more.
    pub(crate) fn remove(&mut self, id: CqId) {
        if let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::take) {
            self.told += usize::from(slot.ring.disarm());
            self.free.push(id);
        }
    }

    pub(crate) fn get(&self, id: CqId) -> Option<&Arc<Ring>> {
        self.slots.get(id.0 as usize)?.as_ref().map(|slot| &slot.ring)
    }

    fn slot(&mut self, id: CqId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts completions where they belong.
    pub(crate) fn put(
        &mut self,
        now: Instant,
        id: CqId,
        completions: impl Iterator<Item = Completion>,
    ) -> Put {
        let Some(slot) = self.slot(id) else {
            completions.for_each(drop);
            return Put::default();
        };
        let put = slot.ring.put(now, completions);
        let wakers = if put.awaited { slot.ring.take_wakers() } else { Vec::new() };
        if put.wanted > 0 {
            slot.held += put.wanted;
            self.hold(now, id);
        }
        self.wakers.extend(wakers);
        put
    }

    /// Takes out what a queue pair has put in and nobody has seen.
    pub(crate) fn forget(&self, qpn: Qpn) {
        for slot in self.slots.iter().flatten().filter(|slot| !slot.ring.completions.is_empty()) {
            slot.ring.completions.retain(|stamped| stamped.completion.qpn != qpn);
        }
    }

    /// Whether there is something to [take](Self::take_wakers) or [to take](Self::take_told).
    pub(crate) fn has_notices(&self) -> bool {
        self.told > 0 || !self.wakers.is_empty()
    }

    /// How many queues that somebody has slept on are announced or gone.
    pub(crate) fn take_told(&mut self) -> usize {
        std::mem::take(&mut self.told)
    }

    /// Tasks to be woken when the device's lock is free: they may use the device at once.
    pub(crate) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    /// Sets how long a completion queue waits for more. What waits already goes by the new rule.
    pub(crate) fn moderate(&mut self, now: Instant, id: CqId, moderation: Moderation) {
        let Some(slot) = self.slot(id) else { return };
        (slot.moderation, slot.until) = (moderation, None);
        self.hold(now, id);
    }

    /// Announces what is held, or sees to it that it is announced in time.
    fn hold(&mut self, now: Instant, id: CqId) {
        let Some(slot) = self.slot(id).filter(|slot| slot.held > 0) else { return };
        if slot.is_complete(now) {
            self.release(id);
        } else if slot.until.is_none() && slot.moderation.period > 0 {
            let until = now + Duration::from_micros(slot.moderation.period.into());
            slot.until = Some(until);
            self.timers.schedule(id.0 as usize, until);
        }
    }

    /// Announces what is held.
    fn release(&mut self, id: CqId) {
        let Some(slot) = self.slot(id) else { return };
        (slot.held, slot.until) = (0, None);
        let ring = Arc::clone(&slot.ring);
        self.told += usize::from(ring.disarm());
        self.due.push(ring);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout): never too late, perhaps too early.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Some may have been held for long enough.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(index) = self.timers.expired(now) {
            let Some(slot) = self.slots.get_mut(index).and_then(Option::as_mut) else { continue };
            if slot.is_complete(now) {
                self.release(CqId(u32::try_from(index).unwrap_or(u32::MAX)));
            } else if let Some(until) = slot.until {
                self.timers.schedule(index, until);
            }
        }
    }

    /// Whether [`announce`](Self::announce) has something to do.
    pub(crate) fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Announces what is due. True when the thread that drives the device waits for that.
    pub(crate) fn announce(&mut self) -> bool {
        let mut wake_driver = false;
        while let Some(ring) = self.due.pop() {
            wake_driver |= ring.announce();
        }
        wake_driver
    }

    /// The device has failed.
    pub(crate) fn close(&self) {
        for slot in self.slots.iter().flatten() {
            slot.ring.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::AckPolicy;
    use crate::runtime::queue::Queue;
    use crate::runtime::ring::Armed;
    use crate::runtime::wire_of_tests::{completion, pair};
    use crate::transport::work::{RecvRequest, SendRequest};

    /// A completion queue, and at which microsecond it is announced.
    struct Bench {
        rings: Rings,
        ring: Arc<Ring>,
        id: CqId,
    }

    impl Bench {
        fn new(count: u16, period: u16) -> Self {
            let mut rings = Rings::default();
            let ring = Arc::new(Ring::new(64, false, None, Arc::new(Queue::new(1))));
            let id = rings.reserve();
            rings.enter(id, Arc::clone(&ring));
            rings.moderate(Instant::ZERO, id, Moderation { count, period });
            Self { rings, ring, id }
        }

        /// Completions that come at these microseconds, and when the queue is announced by 1000. It
        /// is armed at the start and after each announcement.
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
                    self.rings.announce();
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
        assert_eq!(bench.run(Armed::No, &at([10, 11, 12])), []);
    }

    #[test]
    fn what_is_held_goes_by_the_new_rule() {
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
        let mut bench = Bench::new(0, 0);
        let second = bench.rings.reserve();
        assert_eq!((bench.id, second, bench.rings.len()), (CqId(0), CqId(1), 2));
        bench.rings.remove(bench.id);
        assert_eq!((bench.rings.reserve(), bench.rings.len()), (CqId(0), 2));
    }

    #[test]
    fn a_device_keeps_the_period() {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        let (now, over) = (Instant::ZERO, Instant::from_micros(50));
        b.core.rings.moderate(now, b.cq, Moderation { count: 8, period: 50 });
        b.ring.arm(Armed::Any);
        b.core.post_recvs(now, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
        a.core.post_send(now, a.qpn, SendRequest::send(1, a.sge(8))).unwrap();
        b.core.turn(now);
        b.core.turn(now);
        assert_eq!((b.log(), b.core.deadline(now)), (vec!["rx".into(), "tx 1".into()], Some(over)));
        b.core.turn(over);
        assert_eq!((b.log(), b.core.deadline(over)), (vec!["announce".into()], None));
    }
}
