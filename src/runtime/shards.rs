//! The shards of a device: which there are, and who of several has what to do.
//!
//! Nobody ever holds the locks of two: what concerns several is done under one lock after the other.

use std::ops::{BitOr, BitOrAssign};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::ids::Qpn;
use crate::runtime::queue::{OnSignal, Queue, Waited};
use crate::runtime::shard::{Down, Shard};
use crate::runtime::signals;
use crate::time::Instant;

/// Some of a device's shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ShardSet(u64);

impl ShardSet {
    /// None of them.
    pub(crate) const EMPTY: Self = Self(0);
    /// As many as there can be.
    pub(crate) const ALL: Self = Self(u64::MAX);

    /// The one with this index.
    pub(crate) const fn of(index: u8) -> Self {
        Self(1 << (index % Qpn::SHARDS))
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn contains(self, index: u8) -> bool {
        self.0 & Self::of(index).0 != 0
    }

    /// Those that are not among these.
    pub(crate) const fn without(self, these: Self) -> Self {
        Self(self.0 & !these.0)
    }

    /// How many they are.
    pub(crate) const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Their indices.
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (0..Qpn::SHARDS).filter(move |index| self.contains(*index))
    }
}

impl BitOr for ShardSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for ShardSet {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

/// A set that several threads change.
#[derive(Debug, Default)]
pub(crate) struct SharedShardSet(AtomicU64);

impl SharedShardSet {
    pub(crate) fn get(&self) -> ShardSet {
        ShardSet(self.0.load(Ordering::SeqCst))
    }

    /// Adds these, and returns those of them that were not there.
    pub(crate) fn insert(&self, these: ShardSet) -> ShardSet {
        these.without(ShardSet(self.0.fetch_or(these.0, Ordering::SeqCst)))
    }

    /// Empties it, and returns what was there.
    pub(crate) fn take(&self) -> ShardSet {
        ShardSet(self.0.swap(0, Ordering::SeqCst))
    }
}

/// The shards of a device: one at least.
#[derive(Debug)]
pub(crate) struct Shards {
    all: Box<[Arc<Shard>]>,
    /// How many things were put on shards in turns.
    turns: AtomicUsize,
}

impl Shards {
    /// Shards with the indices 0, 1, 2, … From now on they know each other.
    pub(super) fn new(all: impl IntoIterator<Item = Shard>) -> Arc<Self> {
        let all = all.into_iter().map(Arc::new).collect();
        let shards = Arc::new(Self { all, turns: AtomicUsize::new(0) });
        debug_assert!(!shards.all.is_empty(), "a device without a shard");
        if !shards.is_one() {
            shards.iter().for_each(|shard| shard.join(&shards));
        }
        shards
    }

    /// Whether there is one only.
    pub(crate) fn is_one(&self) -> bool {
        self.all.len() == 1
    }

    /// The one that has what a device has once: contexts to be told of events, the interfaces.
    pub(crate) fn first(&self) -> &Arc<Shard> {
        &self.all[0]
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Arc<Shard>> {
        self.all.iter()
    }

    /// The one with this index, counted around.
    pub(crate) fn at(&self, index: usize) -> &Arc<Shard> {
        &self.all[index % self.all.len()]
    }

    /// The one whose turn it is to get something new.
    pub(crate) fn next(&self) -> &Arc<Shard> {
        self.at(self.turns.fetch_add(1, Ordering::Relaxed))
    }

    /// Those of a set.
    pub(super) fn among(&self, set: ShardSet) -> impl Iterator<Item = &Arc<Shard>> {
        self.iter().filter(move |shard| set.contains(shard.index()))
    }

    /// Takes turns for someone who found `queue` empty, of those that put something into it.
    pub(crate) fn turn_for<T>(&self, feeders: ShardSet, queue: &Queue<T>) -> Result<(), Down> {
        if self.is_one() {
            return self.first().turn_for(queue);
        }
        self.among(feeders).try_for_each(|shard| shard.turn_for(queue))
    }

    /// Waits for something in `queue`, until `until`. Of the shards that put something into it the caller
    /// drives one that nobody drives, and the others are left to those who drive them, or to their
    /// threads.
    pub(crate) fn wait<T>(
        &self,
        feeders: ShardSet,
        queue: &Queue<T>,
        until: Option<Instant>,
        on_signal: OnSignal,
    ) -> Result<Waited<T>, Down> {
        // Whether there is something is mostly known at once.
        if self.check().is_ok()
            && let Some(item) = queue.pop()
        {
            return Ok(Waited::Item(item));
        }
        if on_signal == OnSignal::AsRead && until.is_none() && signals::are_mixed() {
            return self.leave_it_to_threads(feeders, queue);
        }
        if self.is_one() || self.check().is_err() {
            return self.first().wait(queue, until, on_signal);
        }
        let free = self.among(feeders).find(|shard| !shard.is_driven());
        let driven = free.or_else(|| self.among(feeders).next()).unwrap_or(self.first());
        let these = feeders.without(ShardSet::of(driven.index()));
        self.board(these);
        let _boarded = Boarded { shards: self, these };
        driven.wait(queue, until, on_signal)
    }

    /// Waits for something in `queue`, and drives nothing: in a call that the kernel restarts or not, as the
    /// handler of the signal wants.
    fn leave_it_to_threads<T>(
        &self,
        feeders: ShardSet,
        queue: &Queue<T>,
    ) -> Result<Waited<T>, Down> {
        self.check()?;
        self.board(feeders);
        let _boarded = Boarded { shards: self, these: feeders };
        self.first().block(queue, None, OnSignal::AsRead)
    }

    /// Somebody waits for what these shards bring, and leaves it to others to drive them, until
    /// [`alight`](Self::alight).
    pub(crate) fn board(&self, these: ShardSet) {
        self.among(these).for_each(|shard| shard.board());
    }

    /// He waits no more.
    pub(crate) fn alight(&self, these: ShardSet) {
        self.among(these).for_each(|shard| shard.alight());
    }

    /// Whether the device can be used. When one of them has failed all have.
    pub(crate) fn check(&self) -> Result<(), Down> {
        self.first().check()
    }

    /// Sends what is owed.
    pub(crate) fn flush(&self) {
        for shard in self.iter() {
            // In a device that has failed there is nothing to be sent.
            let _ = shard.with(|core, now| core.flush(now));
        }
    }
}

/// Somebody who waits for shards that others drive.
struct Boarded<'a> {
    shards: &'a Shards,
    these: ShardSet,
}

impl Drop for Boarded<'_> {
    fn drop(&mut self) {
        self.shards.alight(self.these);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_in() {
        let set = ShardSet::of(0) | ShardSet::of(63);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63]);
        assert_eq!(set.without(ShardSet::of(0)), ShardSet::of(63));
        assert!(!set.contains(1) && ShardSet::EMPTY.is_empty() && ShardSet::ALL.contains(17));
        let shared = SharedShardSet::default();
        assert_eq!(shared.insert(ShardSet::of(3)), ShardSet::of(3));
        assert_eq!(shared.insert(set | ShardSet::of(3)), set, "what was not there");
        assert_eq!((shared.take(), shared.get()), (set | ShardSet::of(3), ShardSet::EMPTY));
    }
}
