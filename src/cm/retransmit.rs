//! Retransmission of a message until the peer answers.

use std::time::Duration;

use crate::time::Instant;
use crate::wire::Mad;

/// Times after the first transmission at which a message is repeated, before the intervals of Linux begin. A lost
/// message delays a connection by half a second and not by four.
const EARLY: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_millis(1000), Duration::from_millis(2000)];

/// A message that is repeated until the peer answers.
#[derive(Clone, Debug)]
pub(super) struct Retransmission {
    bytes: Box<[u8; Mad::DATAGRAM_LEN]>,
    /// Time of the first transmission.
    first: Instant,
    /// End of the present interval.
    interval_end: Instant,
    interval: Duration,
    /// Intervals that may still follow.
    left: u8,
    /// Early repetitions that were sent, or do not apply.
    early: usize,
    /// Times that the message was sent.
    sent: u32,
}

impl Retransmission {
    /// Begins with the first transmission.
    pub(super) fn new(
        now: Instant,
        bytes: Box<[u8; Mad::DATAGRAM_LEN]>,
        (interval, retries): (Duration, u8),
        with_early: bool,
    ) -> Self {
        let early = if with_early { 0 } else { EARLY.len() };
        let interval_end = now + interval;
        Self { bytes, first: now, interval_end, interval, left: retries, early, sent: 1 }
    }

    /// Returns the bytes, the same for each transmission.
    pub(super) fn bytes(&self) -> &[u8; Mad::DATAGRAM_LEN] {
        &self.bytes
    }

    /// Returns the number of transmissions.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// Returns the time of the next transmission, or of the end.
    pub(super) fn deadline(&self) -> Instant {
        match EARLY.get(self.early).map(|after| self.first + *after) {
            Some(early) if early < self.interval_end => early,
            _ => self.interval_end,
        }
    }

    /// Handles the deadline. Returns whether the message must be sent again; if not, the peer has not answered in
    /// time.
    pub(super) fn expire(&mut self) -> bool {
        let at = self.deadline();
        if at < self.interval_end {
            self.early += 1;
        } else if self.left == 0 {
            return false;
        } else {
            self.left -= 1;
            self.early = EARLY.len();
            self.interval_end = at + self.interval;
        }
        self.sent += 1;
        true
    }

    /// Waits for this interval from now on, after an MRA.
    pub(super) fn extend(&mut self, now: Instant, interval: Duration) {
        self.early = EARLY.len();
        self.interval = interval;
        self.interval_end = now + interval;
    }

    /// Ends with the present interval.
    pub(super) fn end_soon(&mut self) {
        self.left = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the times of all deadlines in milliseconds.
    fn deadlines(mut message: Retransmission) -> Vec<u64> {
        let mut at = Vec::new();
        for _ in 0..100 {
            at.push(message.deadline().as_nanos() / 1_000_000);
            if !message.expire() {
                return at;
            }
        }
        panic!("no end: {at:?}")
    }

    fn message(interval: u64, retries: u8, with_early: bool) -> Retransmission {
        let times = (Duration::from_millis(interval), retries);
        Retransmission::new(Instant::ZERO, Box::new([0; Mad::DATAGRAM_LEN]), times, with_early)
    }

    #[test]
    fn early_repetitions_precede_the_intervals_of_linux() {
        assert_eq!(deadlines(message(4096, 2, true)), [500, 1000, 2000, 4096, 8192, 12_288]);
        assert_eq!(deadlines(message(4096, 2, false)), [4096, 8192, 12_288]);
        assert_eq!(deadlines(message(600, 1, true)), [500, 600, 1200]);
    }

    #[test]
    fn extension_ends_the_early_repetitions() {
        let mut message = message(4096, 1, true);
        message.extend(Instant::from_millis(100), Duration::from_secs(65));
        assert_eq!(deadlines(message.clone()), [65_100, 130_100]);
        message.end_soon();
        assert_eq!(deadlines(message), [65_100]);
    }
}
