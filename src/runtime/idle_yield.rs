//! When a thread that polls yields the CPU.
//!
//! With fewer CPUs than polling programs, a peer would otherwise wait until the system preempts the polling thread. A yield
//! to a thread that polls is short, because that one yields as well. One to a thread that computes takes a time slice. The
//! caller may hold a spin lock meanwhile, as UCX does around `ibv_poll_cq`: its other threads then spend their time slices on
//! that lock. So a thread polls twice as often before the next yield after a long one, and half as often after a short one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::runtime::clock;

/// Number of idle polls in a row before a yield, if yields are short: longer than a response within a machine takes.
pub(super) const MIN_IDLE_POLLS: u32 = 128;

/// Maximum of that number: some tens of milliseconds.
const MAX_IDLE_POLLS: u32 = 1 << 16;

/// Minimum duration of a yield to a thread that computes, which keeps the CPU for a time slice.
const LONG_YIELD: Duration = Duration::from_millis(2);

/// Idle polls of the threads that take turns.
#[derive(Debug)]
pub(super) struct IdleYield {
    /// Number of idle polls in a row.
    pub(super) idle_polls: AtomicU32,
    /// Number of idle polls in a row before the next yield.
    limit: AtomicU32,
}

impl IdleYield {
    pub(super) const fn new() -> Self {
        Self { idle_polls: AtomicU32::new(0), limit: AtomicU32::new(MIN_IDLE_POLLS) }
    }

    /// Reports a poll, and yields if many in a row were idle.
    pub(super) fn polled(&self, is_idle: bool) {
        if self.is_due(is_idle) {
            let start = clock::now();
            thread::yield_now();
            self.yielded(clock::now() - start);
        }
    }

    fn is_due(&self, is_idle: bool) -> bool {
        let count = match is_idle {
            true => self.idle_polls.load(Ordering::Relaxed).saturating_add(1),
            false => 0,
        };
        self.idle_polls.store(count, Ordering::Relaxed);
        count > self.limit.load(Ordering::Relaxed)
    }

    fn yielded(&self, took: Duration) {
        let limit = self.limit.load(Ordering::Relaxed);
        let limit = if took >= LONG_YIELD {
            self.idle_polls.store(0, Ordering::Relaxed);
            limit * 2
        } else {
            limit / 2
        };
        self.limit.store(limit.clamp(MIN_IDLE_POLLS, MAX_IDLE_POLLS), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of idle polls before each of some yields of this duration.
    fn polls(idle: &IdleYield, yields: usize, took: Duration) -> Vec<u32> {
        let polls = (0..yields).map(|_| {
            let polls = (1..).find(|_| idle.is_due(true)).unwrap();
            idle.yielded(took);
            polls - 1
        });
        polls.collect()
    }

    #[test]
    fn every_idle_poll_yields_after_many_while_yields_are_short() {
        let idle = IdleYield::new();
        assert_eq!(polls(&idle, 3, Duration::from_micros(100)), [128, 0, 0]);
        assert!(!idle.is_due(false), "it has found something");
        assert_eq!(polls(&idle, 2, Duration::from_micros(100)), [128, 0]);
    }

    #[test]
    fn long_yields_become_rare() {
        let idle = IdleYield::new();
        assert_eq!(polls(&idle, 4, LONG_YIELD), [128, 256, 512, 1024]);
        assert_eq!(polls(&idle, 10, LONG_YIELD)[8..], [MAX_IDLE_POLLS; 2]);
        // The program that computes has ended.
        assert!(polls(&idle, 10, Duration::ZERO)[1..].iter().all(|polls| *polls == 0));
        assert!(!idle.is_due(false));
        assert_eq!(polls(&idle, 1, Duration::ZERO), [MIN_IDLE_POLLS]);
    }
}
