//! A set of file descriptors.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of descriptors that the set can have: all numbers below it. rsockets, the largest user, has no more.
pub(crate) const MAX_DESCRIPTORS: usize = 65_536;

/// Bits of a word.
const WORD_BITS: usize = 64;

/// A set of file descriptors, which threads and signal handlers change without a lock. All zeros is the empty set.
#[repr(transparent)]
pub(crate) struct DescriptorSet([AtomicU64; MAX_DESCRIPTORS / WORD_BITS]);

impl DescriptorSet {
    #[cfg(test)]
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; MAX_DESCRIPTORS / WORD_BITS])
    }

    /// Returns the word and the bit of a descriptor; `None` for a number that no set has.
    fn place(&self, fd: c_int) -> Option<(&AtomicU64, u64)> {
        let fd = usize::try_from(fd).ok()?;
        Some((self.0.get(fd / WORD_BITS)?, 1 << (fd % WORD_BITS)))
    }

    /// Returns whether the set has the descriptor.
    pub(crate) fn contains(&self, fd: c_int) -> bool {
        self.place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }

    /// Adds a descriptor. Returns false, without a change, for a number of [`MAX_DESCRIPTORS`] or more.
    pub(crate) fn insert(&self, fd: c_int) -> bool {
        let place = self.place(fd);
        place.map(|(word, bit)| word.fetch_or(bit, Ordering::AcqRel)).is_some()
    }

    /// Removes a descriptor. Returns whether the set had it.
    pub(crate) fn remove(&self, fd: c_int) -> bool {
        self.place(fd).is_some_and(|(word, bit)| word.fetch_and(!bit, Ordering::AcqRel) & bit != 0)
    }

    /// Removes the smallest descriptor from `first` to `last`, and returns it.
    pub(crate) fn remove_between(&self, first: u32, last: u32) -> Option<c_int> {
        let first = usize::try_from(first).ok()?;
        let last = usize::try_from(last).ok()?.min(MAX_DESCRIPTORS - 1);
        for (n, word) in self.0.iter().enumerate().skip(first / WORD_BITS) {
            let start = n * WORD_BITS;
            if start > last {
                return None;
            }
            let bits = word.load(Ordering::Acquire);
            let in_range =
                |fd: &usize| (first..=last).contains(fd) && bits >> (fd - start) & 1 != 0;
            let found = (start..start + WORD_BITS).filter(|_| bits != 0).filter(in_range);
            let mut found = found.filter_map(|fd| c_int::try_from(fd).ok());
            if let Some(fd) = found.find(|fd| self.remove(*fd)) {
                return Some(fd);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_has_what_was_inserted_and_not_removed() {
        let set = DescriptorSet::new();
        for fd in [0, 63, 64, 65_535] {
            assert!(!set.contains(fd) && set.insert(fd) && set.contains(fd), "{fd}");
        }
        assert!(!set.contains(1) && !set.contains(62));
        assert!(set.remove(64) && !set.remove(64) && !set.contains(64) && set.contains(63));
    }

    #[test]
    fn numbers_out_of_range_are_in_no_set() {
        let set = DescriptorSet::new();
        for fd in [-1, c_int::MIN, 65_536, c_int::MAX] {
            assert!(!set.insert(fd) && !set.contains(fd) && !set.remove(fd), "{fd}");
        }
    }

    #[test]
    fn descriptors_of_a_range_are_removed_in_order() {
        let set = DescriptorSet::new();
        for fd in [3, 63, 64, 200, 65_535] {
            set.insert(fd);
        }
        let removed = |first, last| {
            std::iter::from_fn(|| set.remove_between(first, last)).collect::<Vec<_>>()
        };
        assert_eq!(removed(4, 199), [63, 64]);
        assert_eq!(removed(5, 4), []);
        assert_eq!(removed(0, u32::MAX), [3, 200, 65_535]);
        assert_eq!(removed(0, u32::MAX), []);
    }
}
