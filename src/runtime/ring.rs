//! The device's side of a completion queue.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::runtime::moderation::{Moderation, ModerationAction, Moderator};
use crate::runtime::queue::Queue;
use crate::runtime::shard_set::{ShardSet, SharedShardSet};
use crate::sync::Mutex;
use crate::sync::notify::{Armed, NotifyRequest};
use crate::sync::wakers::Wakers;
use crate::time::Instant;
use crate::transport::outputs::AsyncEvent;
use crate::transport::work::Completion;

/// Notification of an armed completion queue.
pub(crate) trait Announce: Send + Sync {
    /// Notifies the channel. Returns the shards with drivers that wait for it.
    fn announce(&self) -> ShardSet;

    /// Returns whether a thread may wait for the notification at a descriptor, so that it does not drive the device.
    fn needs_waiter(&self) -> bool;

    /// Closes the channel of a failed device.
    fn close(&self);
}

/// No completion is in the queue that an announcement covers.
const NONE_ANNOUNCED: u64 = u64::MAX;

/// Completions from the device to the application.
pub(crate) struct Ring {
    pub(crate) completions: Queue<TimestampedCompletion>,
    request: NotifyRequest,
    announce: Option<Box<dyn Announce>>,
    /// Number of completions that the program had taken when the queue was announced last. [`NONE_ANNOUNCED`] if it had
    /// taken all.
    taken_at_announcement: AtomicU64,
    /// Moderation of the armed completions, of all shards.
    moderator: Mutex<Moderator>,
    /// Shards that add completions.
    feeders: SharedShardSet,
    /// Shards of these at which a waiter on the channel's descriptor is registered until the notification.
    waiter_shards: SharedShardSet,
    /// A full queue drops the oldest completion.
    ignore_overrun: bool,
    overrun: AtomicBool,
    /// The overrun was reported.
    is_reported: AtomicBool,
    /// Tasks that wait for completions.
    pub(crate) wakers: Wakers,
    /// Event queue for the overrun.
    pub(crate) events: Arc<Queue<AsyncEvent>>,
}

/// A completion with the time at which it was added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimestampedCompletion {
    pub(crate) completion: Completion,
    pub(crate) at: Instant,
}

impl Deref for TimestampedCompletion {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        &self.completion
    }
}

impl From<TimestampedCompletion> for Completion {
    fn from(stamped: TimestampedCompletion) -> Self {
        stamped.completion
    }
}

/// Result of adding completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PutOutcome {
    /// The queue was full, now or before.
    pub(crate) overrun: bool,
    /// Number of completions of the armed kind.
    pub(crate) wanted: u32,
    /// Shards with drivers that wait for them.
    pub(crate) wakes: ShardSet,
    /// Tasks wait for them.
    pub(crate) awaited: bool,
}

impl Ring {
    pub(crate) fn new(
        depth: usize,
        ignore_overrun: bool,
        announce: Option<Box<dyn Announce>>,
        events: Arc<Queue<AsyncEvent>>,
    ) -> Self {
        Self {
            completions: Queue::new(depth),
            request: NotifyRequest::new(),
            announce,
            taken_at_announcement: AtomicU64::new(NONE_ANNOUNCED),
            moderator: Mutex::default(),
            feeders: SharedShardSet::default(),
            waiter_shards: SharedShardSet::default(),
            ignore_overrun,
            overrun: AtomicBool::new(false),
            is_reported: AtomicBool::new(false),
            wakers: Wakers::new(),
            events,
        }
    }

    /// Appends completions. After an overrun they are dropped: some are missing already.
    pub(crate) fn put(
        &self,
        now: Instant,
        completions: impl Iterator<Item = Completion>,
    ) -> PutOutcome {
        if self.is_overrun() {
            completions.for_each(drop);
            return PutOutcome { overrun: true, ..PutOutcome::default() };
        }
        let (mut put, mut solicited) = (PutOutcome::default(), 0);
        let mut filling = self.completions.fill();
        for completion in completions {
            let overrun =
                !filling.push(TimestampedCompletion { completion, at: now }, self.ignore_overrun);
            if overrun {
                self.overrun.store(true, Ordering::Release);
                put.overrun = true;
                break;
            }
            put.wanted += 1;
            solicited += u32::from(completion.solicited);
        }
        put.wakes = filling.end();
        match self.request.get() {
            Armed::Any => {}
            Armed::Solicited => put.wanted = solicited,
            Armed::No => put.wanted = 0,
        }
        put.awaited = self.wakers.is_waiting();
        put
    }

    /// Returns the shards that add completions; the first one if there are none.
    pub(crate) fn feeders(&self) -> ShardSet {
        let feeders = self.feeders.get();
        if feeders.is_empty() { ShardSet::of(0) } else { feeders }
    }

    /// Adds shards that add completions.
    pub(crate) fn add_feeders(&self, these: ShardSet) {
        self.feeders.insert(these);
    }

    /// Arms the queue: the next completion, or the next solicited one, causes a notification. The wider of two requests
    /// counts. Returns the shards at which the caller registers a waiter on the descriptor.
    pub(crate) fn arm(&self, armed: Armed) -> ShardSet {
        self.request.arm(armed);
        let needs_waiter = self.announce.as_ref().is_some_and(|announce| announce.needs_waiter());
        if needs_waiter { self.waiter_shards.insert(self.feeders()) } else { ShardSet::EMPTY }
    }

    /// Returns the number of completions of the armed kind that were added before the queue was armed, and that the
    /// program may not know of: it has taken completions since the last announcement. If it has not, it is about to.
    pub(crate) fn missed(&self) -> u32 {
        if self.completions.is_empty() {
            return 0;
        }
        let announced_at = self.taken_at_announcement.load(Ordering::Relaxed);
        if self.completions.taken().is_none_or(|taken| taken == announced_at) {
            return 0;
        }
        let missed = match self.request.get() {
            Armed::Any => self.completions.count(|_| true),
            Armed::Solicited => self.completions.count(|stamped| stamped.solicited),
            Armed::No => 0,
        };
        u32::try_from(missed).unwrap_or(u32::MAX)
    }

    /// Notifies the channel. Returns the shards with drivers that wait for it.
    pub(crate) fn announce(&self) -> ShardSet {
        let taken = self.completions.taken().unwrap_or(NONE_ANNOUNCED);
        self.taken_at_announcement.store(taken, Ordering::Relaxed);
        self.announce.as_ref().map_or(ShardSet::EMPTY, |announce| announce.announce())
    }

    /// Sets the moderation. Pending completions follow it too.
    pub(crate) fn moderate(&self, moderation: Moderation) {
        self.moderator().moderate(moderation);
    }

    /// Reports `more` completions of the armed kind, and returns the action.
    pub(crate) fn add_pending(&self, now: Instant, more: u32) -> ModerationAction {
        self.moderator().add_pending(now, more)
    }

    fn moderator(&self) -> MutexGuard<'_, Moderator> {
        self.moderator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the overrun is still to be reported, and marks it as reported.
    pub(crate) fn take_unreported_overrun(&self) -> bool {
        !self.is_reported.swap(true, Ordering::Relaxed)
    }

    /// Closes the queue of a failed device. The caller still wakes waiting tasks.
    pub(crate) fn close(&self) {
        self.completions.close();
        if let Some(announce) = &self.announce {
            announce.close();
        }
    }

    /// Returns whether completions are missing.
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Disarms the queue. Returns whether it was armed, so that the caller notifies, and the shards at which the waiter
    /// on the descriptor is no longer registered.
    pub(crate) fn disarm(&self) -> (bool, ShardSet) {
        let was_armed = self.request.disarm();
        (was_armed, self.waiter_shards.take())
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("completions", &self.completions)
            .field("request", &self.request)
            .field("overrun", &self.overrun)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::wire_of_tests::completion;

    fn ring(depth: usize) -> Ring {
        Ring::new(depth, false, None, Arc::new(Queue::new(1)))
    }

    fn put(ring: &Ring, solicited: bool) -> PutOutcome {
        ring.put(Instant::ZERO, [completion(solicited)].into_iter())
    }

    #[test]
    fn it_wants_what_it_is_armed_for() {
        let ring = ring(16);
        let wanted = || [false, true].map(|solicited| put(&ring, solicited).wanted);
        assert_eq!(wanted(), [0, 0]);
        ring.arm(Armed::Solicited);
        assert_eq!(wanted(), [0, 1]);
        ring.arm(Armed::Any);
        ring.arm(Armed::Solicited);
        assert_eq!(wanted(), [1, 1], "the wider wish counts");
        ring.disarm();
        assert_eq!(wanted(), [0, 0]);
    }

    #[test]
    fn after_an_overrun_nothing_more_is_put_in() {
        let ring = ring(1);
        assert_eq!(put(&ring, false), PutOutcome::default());
        assert!(put(&ring, false).overrun);
        ring.completions.pop();
        assert_eq!(put(&ring, false), PutOutcome { overrun: true, ..PutOutcome::default() });
        assert_eq!([(); 2].map(|()| ring.take_unreported_overrun()), [true, false]);
        assert!(ring.completions.is_empty() && ring.is_overrun());
    }

    #[test]
    fn when_an_overrun_is_to_be_ignored_the_oldest_makes_room() {
        let ring = Ring::new(2, true, None, Arc::new(Queue::new(1)));
        for wr_id in 1..=4 {
            let completion = Completion { wr_id, ..completion(false) };
            let put = ring.put(Instant::from_micros(wr_id), [completion].into_iter());
            assert_eq!(put, PutOutcome::default());
        }
        let left = [(); 2].map(|()| ring.completions.pop().map(|c| (c.wr_id, c.at)));
        assert_eq!(left, [3, 4].map(|us| Some((us, Instant::from_micros(us)))));
        assert!(!ring.is_overrun());
    }
}
