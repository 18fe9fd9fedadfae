//! Retry budget and ACK timer of a requester.

use std::time::Duration;

use crate::time::{AckTimeout, Instant};

/// Value of `rnr_retry` for unlimited retries (IBTA vol 1, §9.7.5.2.8). `retry_cnt` has no such
/// value: 7 means seven.
const RNR_RETRY_FOREVER: u8 = 7;

/// The remaining retries of a requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RetryBudget {
    retry_cnt: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_retries_left: u8,
}

impl RetryBudget {
    /// Returns full budgets of the given sizes.
    pub(super) fn new(retry_cnt: u8, rnr_retry: u8) -> Self {
        Self { retry_cnt, rnr_retry, retries_left: retry_cnt, rnr_retries_left: rnr_retry }
    }

    /// Applies changed sizes. A changed budget is refilled; an unchanged one keeps its value.
    pub(super) fn configure(&mut self, retry_cnt: u8, rnr_retry: u8) {
        if self.retry_cnt != retry_cnt {
            (self.retry_cnt, self.retries_left) = (retry_cnt, retry_cnt);
        }
        if self.rnr_retry != rnr_retry {
            (self.rnr_retry, self.rnr_retries_left) = (rnr_retry, rnr_retry);
        }
    }

    /// Refills both budgets.
    pub(super) fn refill(&mut self) {
        self.retries_left = self.retry_cnt;
        self.rnr_retries_left = self.rnr_retry;
    }

    /// Takes a retry after a NAK or a timeout. Returns false if none is left.
    pub(super) fn spend_retry(&mut self) -> bool {
        let left = self.retries_left.checked_sub(1);
        self.retries_left = left.unwrap_or(0);
        left.is_some()
    }

    /// Takes a retry after an RNR NAK. Returns false if none is left.
    ///
    /// The peer has answered, so the other budget is refilled: a requester with unlimited RNR
    /// retries may lose any number of requests in between.
    pub(super) fn spend_rnr_retry(&mut self) -> bool {
        if self.rnr_retry != RNR_RETRY_FOREVER {
            let Some(left) = self.rnr_retries_left.checked_sub(1) else { return false };
            self.rnr_retries_left = left;
        }
        self.retries_left = self.retry_cnt;
        true
    }
}

/// ACK timer: expires when the peer does not respond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AckTimer {
    /// `None`: it never expires.
    interval: Option<Duration>,
    deadline: Option<Instant>,
}

impl AckTimer {
    pub(super) fn new(timeout: AckTimeout) -> Self {
        Self { interval: timeout.interval(), deadline: None }
    }

    /// Applies a changed interval. A running timer continues.
    pub(super) fn configure(&mut self, timeout: AckTimeout) {
        self.interval = timeout.interval();
    }

    /// Starts the timer if it is not running.
    pub(super) fn start(&mut self, now: Instant) {
        if self.deadline.is_none() {
            self.deadline = self.after(now);
        }
    }

    /// Restarts a running timer.
    pub(super) fn restart(&mut self, now: Instant) {
        if self.deadline.is_some() {
            self.deadline = self.after(now);
        }
    }

    /// Handles an acknowledgement: restarts the timer if packets are outstanding, and stops it
    /// otherwise.
    pub(super) fn on_ack(&mut self, now: Instant, is_outstanding: bool) {
        self.deadline = if is_outstanding { self.after(now) } else { None };
    }

    pub(super) fn stop(&mut self) {
        self.deadline = None;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    fn after(&self, now: Instant) -> Option<Instant> {
        self.interval.map(|interval| now + interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_of_7_timeouts_is_7_and_not_for_ever() {
        let mut budget = RetryBudget::new(7, 7);
        let spent = (0..8).map(|_| budget.spend_retry()).collect::<Vec<_>>();
        assert_eq!(spent, [true, true, true, true, true, true, true, false]);
        budget.refill();
        assert!(budget.spend_retry(), "progress fills the budget");
    }

    #[test]
    fn an_rnr_budget_of_7_is_for_ever_and_6_is_6() {
        let mut forever = RetryBudget::new(0, 7);
        assert!((0..100).all(|_| forever.spend_rnr_retry()));
        let mut six = RetryBudget::new(0, 6);
        assert_eq!((0..8).filter(|_| six.spend_rnr_retry()).count(), 6);
    }

    #[test]
    fn only_a_changed_size_fills_a_budget() {
        let mut budget = RetryBudget::new(2, 2);
        assert!(budget.spend_retry() && budget.spend_rnr_retry() && budget.spend_retry());
        budget.configure(2, 1);
        assert_eq!(budget, RetryBudget { retries_left: 1, ..RetryBudget::new(2, 1) });
    }

    #[test]
    fn a_running_timer_is_not_started_again() {
        let at = Instant::from_micros;
        let mut timer = AckTimer::new(AckTimeout::new(7).unwrap());
        timer.restart(at(0));
        assert_eq!(timer.deadline(), None, "nothing is outstanding");
        timer.start(at(0));
        timer.start(at(100));
        let interval = AckTimeout::new(7).unwrap().interval().unwrap();
        assert_eq!(timer.deadline(), Some(at(0) + interval));
        assert!(!timer.has_expired(at(524)) && timer.has_expired(at(525)));
        timer.restart(at(100));
        assert_eq!(timer.deadline(), Some(at(100) + interval));
        timer.on_ack(at(200), false);
        assert_eq!(timer.deadline(), None);
    }
}
