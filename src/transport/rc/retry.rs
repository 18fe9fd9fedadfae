//! How often and when a requester tries again.

use std::time::Duration;

use crate::psn::Psn;
use crate::time::{AckTimeout, Instant, RnrTimer};

/// `rnr_retry` of this value means for ever (IBTA vol 1, §9.7.5.2.8). `retry_cnt` knows no such
/// value: 7 means seven.
const RNR_FOREVER: u8 = 7;

/// The retry budgets and timers of one requester.
///
/// ```text
///                 send                        timeout, budget left: go back
///   idle ──────────────────► ACK timer runs ───────────────────────┐
///    ▲                        │   ▲   │                            │
///    │ all acknowledged       │   └───┼────────────────────────────┘
///    └────────────────────────┘       │ RNR NAK, budget left
///                     RNR timer over  ▼
///             send again ◄─────── waiting: nothing is sent, the ACK timer rests
/// ```
///
/// Any progress fills both budgets up again; an RNR NAK fills up that of retries, for it is an answer.
#[derive(Debug)]
pub(crate) struct Retry {
    interval: Option<Duration>,
    retry_cnt: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_left: u8,
    ack_deadline: Option<Instant>,
    rnr_until: Option<Instant>,
    /// The PSN from which a NAK, explicit or implied, has made us send again. The packets that were
    /// on their way behind the lost one bring the same news; only the first counts.
    recovering: Option<Psn>,
}

impl Retry {
    pub(crate) fn new(timeout: AckTimeout, retry_cnt: u8, rnr_retry: u8) -> Self {
        Self {
            interval: timeout.interval(),
            retry_cnt,
            rnr_retry,
            retries_left: retry_cnt,
            rnr_left: rnr_retry,
            ack_deadline: None,
            rnr_until: None,
            recovering: None,
        }
    }

    /// Takes changed attributes over. A budget is full when its size has changed, and otherwise as it was; timers
    /// that run go on.
    pub(crate) fn configure(&mut self, timeout: AckTimeout, retry_cnt: u8, rnr_retry: u8) {
        self.interval = timeout.interval();
        if self.retry_cnt != retry_cnt {
            (self.retry_cnt, self.retries_left) = (retry_cnt, retry_cnt);
        }
        if self.rnr_retry != rnr_retry {
            (self.rnr_retry, self.rnr_left) = (rnr_retry, rnr_retry);
        }
    }

    /// Something was sent that asks for an answer.
    pub(crate) fn sent(&mut self, now: Instant) {
        if self.ack_deadline.is_none() {
            self.ack_deadline = self.interval.map(|interval| now + interval);
        }
    }

    /// The peer has acknowledged something, or answered; `outstanding` tells whether more is due.
    ///
    /// A wait is over with it: what the peer was not ready for was the oldest request.
    pub(crate) fn progress(&mut self, now: Instant, outstanding: bool) {
        self.retries_left = self.retry_cnt;
        self.rnr_left = self.rnr_retry;
        self.recovering = None;
        self.rnr_until = None;
        self.ack_deadline =
            if outstanding { self.interval.map(|interval| now + interval) } else { None };
    }

    /// The peer has sent something from which nothing is learned, and so is not gone. The timer
    /// starts anew, the budget stays as it is.
    ///
    /// A peer that is busy with the rest of an old answer takes our question for its missing part
    /// when it is done with that.
    pub(crate) fn heard(&mut self, now: Instant) {
        if self.ack_deadline.is_some() {
            self.ack_deadline = self.interval.map(|interval| now + interval);
        }
    }

    /// Whether to go back to `missing` because a NAK says so: not if that has been done.
    pub(crate) fn is_news(&self, missing: Psn) -> bool {
        self.rnr_until.is_none() && self.recovering != Some(missing)
    }

    /// Starts over from `missing` after a NAK. False when the budget is exhausted.
    pub(crate) fn retry_from(&mut self, missing: Psn) -> bool {
        self.recovering = Some(missing);
        self.spend()
    }

    /// Starts over after a timeout. False when the budget is exhausted.
    pub(crate) fn retry_after_timeout(&mut self) -> bool {
        self.recovering = None;
        self.spend()
    }

    fn spend(&mut self) -> bool {
        self.ack_deadline = None;
        let left = self.retries_left.checked_sub(1);
        self.retries_left = left.unwrap_or(0);
        left.is_some()
    }

    /// The peer had no receive request: waits. False when the budget is exhausted.
    pub(crate) fn wait(&mut self, now: Instant, timer: RnrTimer) -> bool {
        if self.rnr_retry != RNR_FOREVER {
            let Some(left) = self.rnr_left.checked_sub(1) else { return false };
            self.rnr_left = left;
        }
        // It has answered. Who waits for ever may lose any number of questions meanwhile.
        self.retries_left = self.retry_cnt;
        self.ack_deadline = None;
        self.recovering = None;
        self.rnr_until = Some(now + timer.wait());
        true
    }

    /// Whether an RNR timer runs, and nothing may be sent.
    pub(crate) fn is_waiting(&self) -> bool {
        self.rnr_until.is_some()
    }

    /// When [`expired`](Self::expired) will have something to say.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.rnr_until.or(self.ack_deadline)
    }

    /// Which timer is over, if one is. An RNR timer stops with this call.
    pub(crate) fn expired(&mut self, now: Instant) -> Option<Expired> {
        if let Some(until) = self.rnr_until {
            if now < until {
                return None;
            }
            self.rnr_until = None;
            return Some(Expired::Rnr);
        }
        self.ack_deadline.filter(|deadline| now >= *deadline).map(|_| Expired::Ack)
    }

    /// Stops both timers.
    pub(crate) fn stop(&mut self) {
        self.ack_deadline = None;
        self.rnr_until = None;
    }
}

/// A timer that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expired {
    /// The peer has had time to find a receive request.
    Rnr,
    /// The peer has not answered.
    Ack,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(timeout: u8, retry_cnt: u8, rnr_retry: u8) -> Retry {
        Retry::new(AckTimeout::new(timeout).unwrap(), retry_cnt, rnr_retry)
    }

    #[test]
    fn a_budget_of_7_timeouts_is_7_and_not_for_ever() {
        let mut retry = retry(14, 7, 7);
        let spent = (0..8).map(|_| retry.retry_after_timeout()).collect::<Vec<_>>();
        assert_eq!(spent, [true, true, true, true, true, true, true, false]);
        retry.progress(Instant::ZERO, true);
        assert!(retry.retry_after_timeout(), "progress fills the budget");
    }

    #[test]
    fn an_rnr_budget_of_7_is_for_ever_and_6_is_6() {
        let timer = RnrTimer::new(12).unwrap();
        let mut forever = retry(14, 0, 7);
        assert!((0..100).all(|_| forever.wait(Instant::ZERO, timer)));
        let mut six = retry(14, 0, 6);
        assert_eq!((0..8).filter(|_| six.wait(Instant::ZERO, timer)).count(), 6);
    }

    #[test]
    fn the_ack_timer_rests_while_the_rnr_timer_runs() {
        let mut retry = retry(1, 7, 7);
        retry.sent(Instant::ZERO);
        assert!(retry.wait(Instant::ZERO, RnrTimer::new(12).unwrap()));
        let over = Instant::from_micros(640);
        assert_eq!(retry.deadline(), Some(over));
        assert_eq!(retry.expired(Instant::from_micros(639)), None);
        assert_eq!(retry.expired(over), Some(Expired::Rnr));
        assert_eq!(retry.deadline(), None);
    }

    #[test]
    fn ack_timer_runs_from_the_oldest_packet() {
        let mut retry = retry(1, 7, 7);
        let interval = AckTimeout::new(1).unwrap().interval().unwrap();
        let at = Instant::from_micros;
        retry.heard(at(0));
        assert_eq!(retry.deadline(), None, "nothing is awaited");
        retry.sent(at(1));
        retry.sent(at(2));
        assert_eq!(retry.deadline(), Some(at(1) + interval));
        retry.heard(at(3));
        assert_eq!(retry.deadline(), Some(at(3) + interval));
    }

    #[test]
    fn the_same_gap_is_news_once() {
        let mut retry = retry(14, 7, 7);
        assert!(retry.is_news(Psn::new(5)));
        assert!(retry.retry_from(Psn::new(5)));
        assert!(!retry.is_news(Psn::new(5)));
        assert!(retry.is_news(Psn::new(6)));
        retry.progress(Instant::ZERO, true);
        assert!(retry.is_news(Psn::new(5)));
    }
}
