//! Deadlines of slots, such as those of queue pairs.
//!
//! The owner of a slot stores its deadline, which moves with every acknowledgement. The heap
//! changes only when a deadline moves before its heap entry: an entry that expires too early is
//! inserted again at the current deadline.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Instant;

/// Heap of deadlines, by slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The earliest entry of each slot, which is the valid one; later ones are stale.
    scheduled: Vec<Option<Instant>>,
}

impl Timers {
    /// Schedules `slot` to expire not later than `deadline`.
    #[inline]
    pub(crate) fn schedule(&mut self, slot: usize, deadline: Instant) {
        if self.scheduled.len() <= slot {
            self.scheduled.resize(slot + 1, None);
        }
        if self.scheduled[slot].is_none_or(|at| deadline < at) {
            self.scheduled[slot] = Some(deadline);
            self.heap.push(Reverse((deadline, slot)));
        }
    }

    /// Returns the time to call [`expired`](Self::expired): never too late, perhaps too early.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Returns an expired slot. The caller must schedule it again if it has a later deadline.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<usize> {
        while let Some(Reverse((at, slot))) = self.heap.peek().copied()
            && at <= now
        {
            self.heap.pop();
            if self.scheduled[slot] == Some(at) {
                self.scheduled[slot] = None;
                return Some(slot);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_earliest_entry_of_a_slot_counts() {
        let at = Instant::from_micros;
        let mut timers = Timers::default();
        timers.schedule(3, at(50));
        timers.schedule(3, at(20));
        timers.schedule(3, at(90));
        timers.schedule(1, at(30));
        assert_eq!(timers.next(), Some(at(20)));
        assert_eq!(timers.expired(at(19)), None);
        assert_eq!(timers.expired(at(60)), Some(3));
        assert_eq!(timers.expired(at(60)), Some(1));
        assert_eq!(timers.expired(at(60)), None, "the entry at 50 is a left-over");
        assert_eq!(timers.next(), None);
    }
}
