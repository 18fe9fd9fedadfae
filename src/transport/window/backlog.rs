//! What is on its way to a destination and will not be acknowledged.

use std::time::Duration;

use crate::time::Instant;

/// How fast a receiver is taken to empty its buffer when nothing tells: bytes of buffer a microsecond. It
/// is a guess, and a receiver that is not scheduled for a tenth of a millisecond proves it wrong.
/// An engine of ours on one core manages more than twice this.
const DRAIN: u64 = 2_000;

/// Bytes that nobody acknowledges, by the memory they occupy, and how soon they are received.
#[derive(Debug)]
pub(super) struct Backlog {
    bytes: u64,
    /// When `bytes` was right.
    as_of: Instant,
    /// What waits is told, and nothing is taken to be received until it is.
    is_told: bool,
    /// When it was told the last time.
    told: Instant,
    /// What was sent since.
    since: u64,
    /// Bytes that were received in a microsecond, as was told: never less than [`DRAIN`].
    rate: u64,
}

impl Backlog {
    /// Nothing. `is_told`: how much waits will be told when it is asked for.
    pub(super) fn new(is_told: bool) -> Self {
        Self { bytes: 0, as_of: Instant::ZERO, is_told, told: Instant::ZERO, since: 0, rate: DRAIN }
    }

    /// What is taken to be there still.
    pub(super) fn at(&self, now: Instant) -> u64 {
        if self.is_told { self.bytes } else { self.undrained(now) }
    }

    /// What is there if it is received at the rate [`DRAIN`].
    pub(super) fn undrained(&self, now: Instant) -> u64 {
        let ns = u64::try_from(now.since(self.as_of).as_nanos()).unwrap_or(u64::MAX);
        self.bytes.saturating_sub(ns.saturating_mul(DRAIN) / 1_000)
    }

    /// Whether something may be there.
    pub(super) fn is_some(&self) -> bool {
        self.bytes > 0
    }

    /// So much is sent.
    pub(super) fn add(&mut self, now: Instant, bytes: u64) {
        self.bytes = self.at(now) + bytes;
        self.as_of = now;
        self.since += bytes;
    }

    /// Whether it is time to ask: half of `limit` is used, as far as is known, a quarter of it since that was told.
    /// Who asks only when nothing fits any more lets the receiver run dry.
    pub(super) fn is_to_be_told(&self, limit: u64) -> bool {
        self.is_told && self.bytes >= limit / 2 && self.since >= limit / 4
    }

    /// So much is there. `None` when it is not known, so that time must do.
    pub(super) fn tell(&mut self, now: Instant, bytes: Option<u64>) {
        let Some(bytes) = bytes else {
            self.is_told = false;
            return;
        };
        let received = self.bytes.saturating_sub(bytes);
        let us = u64::try_from(now.since(self.told).as_micros()).unwrap_or(u64::MAX);
        if let Some(rate) = received.checked_div(us) {
            // Who has nothing left could have received more.
            let least = if bytes == 0 { self.rate } else { DRAIN };
            self.rate = rate.max(least);
        }
        *self = Self { bytes, as_of: now, is_told: true, told: now, since: 0, ..*self };
    }

    /// When half of it will have been received. `None` when nothing is there.
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

    /// Nanoseconds from `now` on until half is received.
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
        // Slower again, but not slower than the guess.
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
        // Of 100,000 bytes 50,000 in 10 µs, then 150,000 in 10, and then 100,000 in 980.
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
