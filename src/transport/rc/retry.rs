//! Retry budget and timers of a requester.

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

/// Number of round trips of silence after which a retransmission counts as lost.
const ROUND_TRIPS: u32 = 4;

/// Shortest silence after which a retransmission counts as lost. The peer may not have been
/// scheduled.
const MIN_WAIT: Duration = Duration::from_millis(2);

/// Loss timer: expires when nothing arrives after a retransmission.
///
/// A NAK or a response ahead has reported the loss, so the retransmission need not wait for the ACK
/// timer if it is lost too: that takes a second on many connections. Each wait in a row is twice as
/// long as the one before.
#[derive(Debug, Default)]
pub(super) struct LossTimer {
    /// `None` without a known loss.
    silence: Option<Box<Silence>>,
}

/// The wait for a response after a known loss.
#[derive(Debug)]
struct Silence {
    /// Wait after the first retransmission.
    first_wait: Duration,
    /// Wait after the next retransmission.
    wait: Duration,
    /// `None` until something is sent.
    deadline: Option<Instant>,
}

impl LossTimer {
    /// Records a loss. `round_trip`: time since the oldest outstanding packet was sent. It counts
    /// only without an earlier loss, which makes it longer.
    pub(super) fn on_loss(&mut self, round_trip: Duration) {
        let silence = self.silence.get_or_insert_with(|| {
            let first_wait = (round_trip * ROUND_TRIPS).max(MIN_WAIT);
            Box::new(Silence { first_wait, wait: first_wait, deadline: None })
        });
        silence.wait = silence.first_wait;
        silence.deadline = None;
    }

    /// Starts the timer after a known loss, if it is not running.
    pub(super) fn on_sent(&mut self, now: Instant) {
        if let Some(silence) = &mut self.silence {
            silence.deadline.get_or_insert(now + silence.wait);
        }
    }

    /// Restarts a running timer, because the peer sends.
    pub(super) fn restart(&mut self, now: Instant) {
        if let Some(silence) = &mut self.silence {
            silence.wait = silence.first_wait;
            silence.deadline = silence.deadline.map(|_| now + silence.wait);
        }
    }

    /// Stops the timer, because no loss is known.
    pub(super) fn stop(&mut self) {
        self.silence = None;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.silence.as_ref()?.deadline
    }

    /// Returns whether the timer has expired. The next retransmission starts it again.
    pub(super) fn take_expired(&mut self, now: Instant) -> bool {
        let Some(silence) = &mut self.silence else { return false };
        let has_expired = silence.deadline.is_some_and(|deadline| now >= deadline);
        if has_expired {
            silence.wait *= 2;
            silence.deadline = None;
        }
        has_expired
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

    #[test]
    fn silence_after_a_loss_is_waited_for_twice_as_long_each_time() {
        let at = Instant::from_micros;
        let mut timer = LossTimer::default();
        timer.on_sent(at(0));
        assert_eq!(timer.deadline(), None, "no loss is known");
        timer.on_loss(Duration::from_micros(10));
        timer.on_sent(at(5));
        timer.on_sent(at(6));
        assert_eq!(timer.deadline(), Some(at(2005)));
        assert!(!timer.take_expired(at(2004)) && timer.take_expired(at(2005)));
        assert_eq!(timer.deadline(), None, "nothing was sent");
        timer.on_sent(at(2005));
        assert_eq!(timer.deadline(), Some(at(6005)));
        timer.restart(at(3000));
        assert_eq!(timer.deadline(), Some(at(5000)), "a response resets the wait");
        timer.stop();
        timer.on_sent(at(9000));
        assert_eq!(timer.deadline(), None);
    }

    #[test]
    fn only_the_first_loss_measures_the_round_trip() {
        let at = Instant::from_micros;
        let mut timer = LossTimer::default();
        timer.on_loss(Duration::from_millis(2));
        timer.on_sent(at(0));
        assert_eq!(timer.deadline(), Some(at(8000)));
        timer.on_loss(Duration::from_millis(100));
        timer.on_sent(at(10));
        assert_eq!(timer.deadline(), Some(at(8010)));
    }
}
