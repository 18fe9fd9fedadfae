//! Busy polling: when a thread that waits polls for packets before it sleeps.
//!
//! A wake-up takes longer than many responses. So if the last wait was short, a thread polls for some time before it sleeps,
//! as a socket does with `SO_BUSY_POLL`. If nothing comes, that time is lost, and if the thread yields the processor between
//! polls to a program that computes, a time slice is. So there is a budget: polling that finds something adds the time of a
//! wake-up, and polling in vain costs the time that is lost. While the budget is below zero, threads sleep at once, and each
//! short wait adds a little.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::time::Instant;

/// Time that a wake-up takes at least, in nanoseconds: polling that finds something saves it.
const SAVED_NS: i64 = 10_000;

/// What a short wait adds to a budget below zero, in nanoseconds.
const REGAINED_NS: i64 = 1_000;

/// Limits of the budget, in nanoseconds. A program that computes for a moment, as when it starts, does not end the
/// polling for long.
const MIN_BUDGET_NS: i64 = -500_000;
const MAX_BUDGET_NS: i64 = 200_000;

/// The waits of a thread, or of threads that take turns in waiting.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// Time that a thread polls. Shorter waits are short.
    limit: Duration,
    /// Threads yield the processor between polls. A thread that does not loses its time slice when it would lose it
    /// anyway.
    yields: bool,
    /// The last wait was short.
    was_short: AtomicBool,
    /// The budget in nanoseconds.
    budget: AtomicI64,
}

/// A wait that has not ended.
#[derive(Debug)]
pub(super) struct Wait {
    since: Instant,
    /// The thread polls.
    polls: bool,
}

impl Wait {
    /// Whether the thread polls before it sleeps.
    pub(super) fn polls(&self) -> bool {
        self.polls
    }
}

impl BusyPoll {
    /// Returns the waits of threads that poll for at most `limit`, and may yield the processor between polls.
    pub(super) const fn new(limit: Duration, yields: bool) -> Self {
        Self { limit, yields, was_short: AtomicBool::new(false), budget: AtomicI64::new(0) }
    }

    /// Begins a wait.
    pub(super) fn begin(&self, now: Instant) -> Wait {
        let polls =
            self.was_short.load(Ordering::Relaxed) && self.budget.load(Ordering::Relaxed) >= 0;
        Wait { since: now, polls }
    }

    /// Returns whether the thread polls, and still has time for it.
    pub(super) fn is_polling(&self, wait: &Wait, now: Instant) -> bool {
        wait.polls && now - wait.since < self.limit
    }

    /// Returns whether the thread polls once more before it sleeps.
    pub(super) fn polls_again(&self, wait: &mut Wait, now: Instant) -> bool {
        let took = now - wait.since;
        if wait.polls && took >= self.limit {
            wait.polls = false;
            let lost = if self.yields { took } else { self.limit };
            self.add(i64::try_from(lost.as_nanos()).map_or(i64::MIN, |lost| -lost));
        }
        wait.polls
    }

    /// Ends a wait that has found something.
    pub(super) fn found(&self, wait: &Wait, now: Instant) {
        let is_short = now - wait.since < self.limit;
        self.was_short.store(is_short, Ordering::Relaxed);
        if wait.polls {
            self.add(SAVED_NS);
        } else if is_short && self.budget.load(Ordering::Relaxed) < 0 {
            self.add(REGAINED_NS);
        }
    }

    /// Ends a wait that has found nothing.
    pub(super) fn gave_up(&self) {
        self.was_short.store(false, Ordering::Relaxed);
    }

    fn add(&self, nanoseconds: i64) {
        let budget = self.budget.load(Ordering::Relaxed).saturating_add(nanoseconds);
        self.budget.store(budget.clamp(MIN_BUDGET_NS, MAX_BUDGET_NS), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(50);

    /// Waits until something comes after this time, and returns whether the thread has polled.
    fn wait(waits: &BusyPoll, microseconds: u64) -> bool {
        let at = |after| Instant::from_millis(1) + after;
        let mut wait = waits.begin(at(Duration::ZERO));
        let polled = waits.polls_again(&mut wait, at(Duration::ZERO));
        let took = Duration::from_micros(microseconds);
        if took >= LIMIT {
            assert!(!waits.polls_again(&mut wait, at(took)), "long enough");
        }
        waits.found(&wait, at(took));
        polled
    }

    /// Returns the number of short waits that sleep at once before one with polling.
    fn sleeps(waits: &BusyPoll) -> usize {
        (0..).take_while(|_| !wait(waits, 49)).count()
    }

    fn waits() -> BusyPoll {
        BusyPoll::new(LIMIT, false)
    }

    #[test]
    fn wait_after_a_short_one_polls() {
        let waits = waits();
        let polled = [1000, 50, 49, 49, 1].map(|took| wait(&waits, took));
        assert_eq!(polled, [false, false, false, true, true]);
        waits.gave_up();
        assert!(!wait(&waits, 1) && wait(&waits, 1));
    }

    #[test]
    fn polling_in_vain_is_rare_unless_it_finds_something_at_other_times() {
        let waits = waits();
        // In vain it costs as much as 5 that find something, or 50 short waits asleep, add.
        assert_eq!(sleeps(&waits), 1);
        assert!(wait(&waits, 50), "a budget of one wake-up");
        assert_eq!(sleeps(&waits), 40);
        assert!(wait(&waits, 50));
        assert_eq!(sleeps(&waits), 40);
        assert!((0..10).all(|_| wait(&waits, 49)));
        assert!(wait(&waits, 50));
        assert_eq!(sleeps(&waits), 1);
    }

    #[test]
    fn yield_to_a_program_that_computes_is_not_repeated_soon() {
        for (yields, expected) in [(false, 1), (true, 500)] {
            let waits = BusyPoll { yields, ..waits() };
            assert_eq!((0..100).filter(|_| wait(&waits, 49)).count(), 99);
            assert!(wait(&waits, 3000), "a time slice");
            assert_eq!(sleeps(&waits), expected);
        }
    }
}
