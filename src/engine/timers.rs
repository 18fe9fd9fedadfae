//! Deadlines of queue pairs, and of others that stand in slots.
//!
//! The deadline itself lies in the queue pair and moves with every acknowledgement. The heap is
//! touched only when it moves to before what is in the heap: an entry that comes up too early is
//! put back at the deadline as it is by then.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::time::Instant;

/// When which slot wants to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The earliest entry of each slot that counts; later ones are left-overs.
    scheduled: Vec<Option<Instant>>,
}

impl Timers {
    /// Looks at `slot` not later than `deadline`.
    pub(crate) fn schedule(&mut self, slot: usize, deadline: Instant) {
        if self.scheduled.len() <= slot {
            self.scheduled.resize(slot + 1, None);
        }
        if self.scheduled[slot].is_none_or(|at| deadline < at) {
            self.scheduled[slot] = Some(deadline);
            self.heap.push(Reverse((deadline, slot)));
        }
    }

    /// When to call [`expired`](Self::expired); never too late, perhaps too early.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// A slot to look at. It must be scheduled again if it has a later deadline.
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
