//! Estimate of the unacknowledged bytes in the receive queue of a destination.

use std::time::Duration;

use crate::time::Instant;

/// Assumed drain rate of a receive queue without reports, in bytes of buffer per microsecond. The
/// value is an estimate: a receiver that is not scheduled for 100 µs drains nothing. One engine on
/// one core drains more than twice as fast.
const DRAIN: u64 = 2_000;

/// Unacknowledged bytes in flight, by the memory they occupy, and the rate at which they drain.
#[derive(Debug)]
pub(super) struct Backlog {
    bytes: u64,
    /// The time at which `bytes` was correct.
    as_of: Instant,
    /// The length of the receive queue is reported, and only a report reduces `bytes`.
    is_told: bool,
    /// Time of the last report.
    told: Instant,
    /// Bytes sent since the last report.
    since: u64,
    /// Reported drain rate in bytes per microsecond, at least [`DRAIN`].
    rate: u64,
}

impl Backlog {
    /// Returns an empty backlog. `is_told`: the length of the receive queue can be queried.
    pub(super) fn new(is_told: bool) -> Self {
        Self { bytes: 0, as_of: Instant::ZERO, is_told, told: Instant::ZERO, since: 0, rate: DRAIN }
    }

    /// Returns the bytes that are assumed to be queued.
    pub(super) fn at(&self, now: Instant) -> u64 {
        if self.is_told { self.bytes } else { self.undrained(now) }
    }

    /// Returns the bytes that are left if the receiver drains at the rate [`DRAIN`].
    pub(super) fn undrained(&self, now: Instant) -> u64 {
        let ns = u64::try_from(now.since(self.as_of).as_nanos()).unwrap_or(u64::MAX);
        self.bytes.saturating_sub(ns.saturating_mul(DRAIN) / 1_000)
    }

    /// Whether any bytes may be queued.
    pub(super) fn is_some(&self) -> bool {
        self.bytes > 0
    }

    /// Adds bytes that were sent.
    pub(super) fn add(&mut self, now: Instant, bytes: u64) {
        self.bytes = self.at(now) + bytes;
        self.as_of = now;
        self.since += bytes;
    }

    /// Whether the receive queue should be queried: at least half of `limit` is in use, and at
    /// least a quarter of it was sent since the last report. A query only when the window is full
    /// would let the receiver run idle.
    pub(super) fn is_to_be_told(&self, limit: u64) -> bool {
        self.is_told && self.bytes >= limit / 2 && self.since >= limit / 4
    }

    /// Records the reported number of queued bytes. `None`: unknown, so the estimated drain rate
    /// applies.
    pub(super) fn tell(&mut self, now: Instant, bytes: Option<u64>) {
        let Some(bytes) = bytes else {
            self.is_told = false;
            return;
        };
        let received = self.bytes.saturating_sub(bytes);
        let us = u64::try_from(now.since(self.told).as_micros()).unwrap_or(u64::MAX);
        if let Some(rate) = received.checked_div(us) {
            // A receiver with an empty queue may be faster than this.
            let least = if bytes == 0 { self.rate } else { DRAIN };
            self.rate = rate.max(least);
        }
        *self = Self { bytes, as_of: now, is_told: true, told: now, since: 0, ..*self };
    }

    /// Returns the time at which half of the bytes will have drained. `None` when there are none.
    pub(super) fn halves_at(&self, now: Instant) -> Option<Instant> {
        let half = self.at(now).div_ceil(2);
        let rate = if self.is_told { self.rate } else { DRAIN };
        (half > 0).then(|| now + Duration::from_nanos(half.saturating_mul(1_000).div_ceil(rate)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> Instant = Instant::from_micros;

    /// Returns the nanoseconds from `now` until half has drained.
    fn half(backlog: &Backlog, now: Instant) -> u128 {
        backlog.halves_at(now).unwrap().since(now).as_nanos()
    }

    #[test]
    fn what_nobody_tells_drains_at_the_rate_that_is_guessed() {
        let mut backlog = Backlog::new(false);
        backlog.add(AT(0), 100_000);
        assert_eq!([0, 10, 50].map(|us| backlog.at(AT(us))), [100_000, 80_000, 0]);
        assert_eq!((half(&backlog, AT(0)), backlog.halves_at(AT(50))), (25_000, None));
        backlog.add(AT(10), 20_000);
        assert_eq!(backlog.at(AT(10)), 100_000);
        assert!(!backlog.is_to_be_told(0));
    }

    #[test]
    fn who_was_seen_to_receive_fast_is_waited_for_as_long_as_he_takes() {
        let mut backlog = Backlog::new(true);
        backlog.tell(AT(0), Some(0));
        backlog.add(AT(0), 200_000);
        assert_eq!(half(&backlog, AT(0)), 50_000, "nothing is known yet");
        backlog.tell(AT(10), Some(100_000));
        assert_eq!(half(&backlog, AT(10)), 5_000, "10,000 bytes a microsecond");
        // The rate falls, but not below the estimate.
        backlog.tell(AT(20), Some(70_000));
        assert_eq!(half(&backlog, AT(20)), 11_667);
        backlog.tell(AT(120), Some(69_000));
        assert_eq!(half(&backlog, AT(120)), 17_250);
    }

    #[test]
    fn who_has_run_dry_could_have_been_faster() {
        let mut backlog = Backlog::new(true);
        for (us, left) in [(0, 0), (10, 50_000), (20, 0), (1000, 0)] {
            backlog.tell(AT(us), Some(left));
            backlog.add(AT(us), 100_000);
        }
        // Drained bytes: 50,000 of 100,000 in 10 µs, then 150,000 in 10 µs, then 100,000 in 980 µs.
        assert_eq!(half(&backlog, AT(1000)), 50_000_000_u128.div_ceil(15_000));
        assert_eq!(backlog.at(AT(2000)), 100_000, "told, not guessed");
        backlog.tell(AT(2000), None);
        assert_eq!(backlog.at(AT(2000)), 0);
    }

    #[test]
    fn it_is_asked_for_before_there_is_no_room() {
        let mut backlog = Backlog::new(true);
        let mut asked = Vec::new();
        for sent in 1..=10 {
            backlog.add(AT(sent), 10);
            if backlog.is_to_be_told(100) {
                asked.push(sent);
                backlog.tell(AT(sent), Some(40));
            }
        }
        assert_eq!(asked, [5, 8], "then three more fill a quarter");
    }
}
