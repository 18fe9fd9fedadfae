//! The device's side of a completion queue.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::runtime::moderation::{Moderation, Moderator, Verdict};
use crate::runtime::queue::Queue;
use crate::runtime::shard_set::{ShardSet, SharedShardSet};
use crate::sync::Mutex;
use crate::sync::notify::{Armed, NotifyRequest};
use crate::sync::wakers::Wakers;
use crate::time::Instant;
use crate::transport::outputs::AsyncEvent;
use crate::transport::work::Completion;

/// The announcement of an armed completion queue.
pub(crate) trait Announce: Send + Sync {
    /// Announces the queue. Returns the shards with drivers that wait for it.
    fn announce(&self) -> ShardSet;

    /// Whether the announcement is waited for through a descriptor.
    fn is_exported(&self) -> bool;

    /// The device has failed: nothing will be announced any more.
    fn close(&self);
}

/// Completions between the device, which puts them in, and the application.
pub(crate) struct Ring {
    pub(crate) completions: Queue<Stamped>,
    request: NotifyRequest,
    announce: Option<Box<dyn Announce>>,
    /// What is armed for and not announced yet, of all shards.
    moderator: Mutex<Moderator>,
    /// Shards that put completions in.
    feeders: SharedShardSet,
    /// Of these, the shards at which a waiter on the channel's descriptor is registered until the announcement.
    slept_on: SharedShardSet,
    /// When it is full, the oldest makes room.
    ignore_overrun: bool,
    overrun: AtomicBool,
    /// That it is full has been told.
    told: AtomicBool,
    /// Tasks that wait for completions.
    pub(crate) wakers: Wakers,
    /// Gets the event that the queue was full.
    pub(crate) events: Arc<Queue<AsyncEvent>>,
}

/// A completion, and when it was put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamped {
    pub(crate) completion: Completion,
    pub(crate) at: Instant,
}

impl Deref for Stamped {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        &self.completion
    }
}

impl From<Stamped> for Completion {
    fn from(stamped: Stamped) -> Self {
        stamped.completion
    }
}

/// What became of completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Put {
    /// There was no room, now or before.
    pub(crate) overrun: bool,
    /// How many are such as the queue is armed for.
    pub(crate) wanted: u32,
    /// The shards with drivers that wait for them.
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
            moderator: Mutex::default(),
            feeders: SharedShardSet::default(),
            slept_on: SharedShardSet::default(),
            ignore_overrun,
            overrun: AtomicBool::new(false),
            told: AtomicBool::new(false),
            wakers: Wakers::new(),
            events,
        }
    }

    /// Puts completions in. After an overrun they are thrown away: some are missing already.
    pub(crate) fn put(&self, now: Instant, completions: impl Iterator<Item = Completion>) -> Put {
        if self.is_overrun() {
            completions.for_each(drop);
            return Put { overrun: true, ..Put::default() };
        }
        let (mut put, mut solicited) = (Put::default(), 0);
        let mut filling = self.completions.fill();
        for completion in completions {
            let overrun = !filling.push(Stamped { completion, at: now }, self.ignore_overrun);
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

    /// The shards that put completions in. While there are none it is left to the first.
    pub(crate) fn feeders(&self) -> ShardSet {
        let feeders = self.feeders.get();
        if feeders.is_empty() { ShardSet::of(0) } else { feeders }
    }

    /// These shards put completions in too.
    pub(crate) fn add_feeders(&self, these: ShardSet) {
        self.feeders.insert(these);
    }

    /// Announces the next completion, or the next solicited one, that is put in from now on. The
    /// wider of two requests counts. Returns the shards at which the caller registers a waiter on the descriptor.
    pub(crate) fn arm(&self, armed: Armed) -> ShardSet {
        self.request.arm(armed);
        let exported = self.announce.as_ref().is_some_and(|announce| announce.is_exported());
        if exported { self.slept_on.insert(self.feeders()) } else { ShardSet::EMPTY }
    }

    /// Announces what has been put in. Returns the shards with drivers that wait for it.
    pub(crate) fn announce(&self) -> ShardSet {
        self.announce.as_ref().map_or(ShardSet::EMPTY, |announce| announce.announce())
    }

    /// Sets how long it waits for more. Completions that wait already follow the new rule.
    pub(crate) fn moderate(&self, moderation: Moderation) {
        self.moderator().moderate(moderation);
    }

    /// So many more than before are such as it is armed for: what is to be done about it.
    pub(crate) fn hold(&self, now: Instant, more: u32) -> Verdict {
        self.moderator().hold(now, more)
    }

    fn moderator(&self) -> MutexGuard<'_, Moderator> {
        self.moderator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is still to be told that it is full; from now on it is not.
    pub(crate) fn take_untold_overrun(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    /// The device has failed. The caller still wakes the tasks that wait.
    pub(crate) fn close(&self) {
        self.completions.close();
        if let Some(announce) = &self.announce {
            announce.close();
        }
    }

    /// Whether completions are missing.
    pub(crate) fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Ends the request of [`arm`](Self::arm). Returns whether there was one, which the caller then announces, and the
    /// shards at which the waiter on the descriptor is no longer registered.
    pub(crate) fn disarm(&self) -> (bool, ShardSet) {
        let was_armed = self.request.disarm();
        (was_armed, self.slept_on.take())
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

    fn put(ring: &Ring, solicited: bool) -> Put {
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
        assert_eq!(put(&ring, false), Put::default());
        assert!(put(&ring, false).overrun);
        ring.completions.pop();
        assert_eq!(put(&ring, false), Put { overrun: true, ..Put::default() });
        assert_eq!([(); 2].map(|()| ring.take_untold_overrun()), [true, false]);
        assert!(ring.completions.is_empty() && ring.is_overrun());
    }

    #[test]
    fn when_an_overrun_is_to_be_ignored_the_oldest_makes_room() {
        let ring = Ring::new(2, true, None, Arc::new(Queue::new(1)));
        for wr_id in 1..=4 {
            let completion = Completion { wr_id, ..completion(false) };
            let put = ring.put(Instant::from_micros(wr_id), [completion].into_iter());
            assert_eq!(put, Put::default());
        }
        let left = [(); 2].map(|()| ring.completions.pop().map(|c| (c.wr_id, c.at)));
        assert_eq!(left, [3, 4].map(|us| Some((us, Instant::from_micros(us)))));
        assert!(!ring.is_overrun());
    }
}
