//! Sets of shards.

use std::ops::{BitOr, BitOrAssign};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::Qpn;

/// Returns whether a device can have this number of shards.
pub(crate) fn may_be_shards(count: u8) -> bool {
    count.is_power_of_two() && count <= Qpn::SHARDS
}

/// A subset of a device's shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ShardSet(u64);

impl ShardSet {
    /// The empty set.
    pub(crate) const EMPTY: Self = Self(0);
    /// The set of the maximum number of shards.
    pub(crate) const ALL: Self = Self(u64::MAX);

    /// Returns the set of the shard with this index.
    pub(crate) const fn of(index: u8) -> Self {
        Self(1 << (index % Qpn::SHARDS))
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn contains(self, index: u8) -> bool {
        self.0 & Self::of(index).0 != 0
    }

    /// Returns the difference of two sets.
    pub(crate) const fn without(self, these: Self) -> Self {
        Self(self.0 & !these.0)
    }

    /// Returns the number of shards.
    pub(crate) const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns the indices.
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

/// A set that several threads modify.
#[derive(Debug, Default)]
pub(crate) struct SharedShardSet(AtomicU64);

impl SharedShardSet {
    pub(crate) fn get(&self) -> ShardSet {
        ShardSet(self.0.load(Ordering::SeqCst))
    }

    /// Adds shards, and returns those that were not in the set.
    pub(crate) fn insert(&self, these: ShardSet) -> ShardSet {
        these.without(ShardSet(self.0.fetch_or(these.0, Ordering::SeqCst)))
    }

    /// Empties the set, and returns its former content.
    pub(crate) fn take(&self) -> ShardSet {
        ShardSet(self.0.swap(0, Ordering::SeqCst))
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
