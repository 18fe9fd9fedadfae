//! How much a requester has in flight where packets are lost.
//!
//! What is in flight behind a lost packet is lost with it (go-back-N), so a loss costs as much as is in
//! flight. A window says what the peer's receive buffer bears; that may be many times what the path holds, and
//! the rest waits in some queue, where it does no good and is lost all the same. What was sent between a
//! packet and the news that it is missing tells the rate, and the rate and the least round trip tell what
//! the path holds:
//!
//! ```text
//!   in flight when the NAK comes
//!   ──────────────────────────── × least round trip = what the path holds
//!    time since the packet left
//! ```
//!
//! Twice that keeps the path busy. Where nothing is lost there is no leash.

use std::time::Duration;

use crate::time::Instant;

/// Packets of full length that may always be in flight. The least round trip is that of an idle path; where both
/// ends have much to do, each is late to look for what has arrived. Kernel rxe has as many in flight at most.
const FEWEST: u64 = 128;

/// A leash gets twice as long when so many times its length has been acknowledged without a loss.
const PATIENCE: u64 = 64;

/// The least round trip is that of the last one or two such periods, for paths change.
const PERIOD: Duration = Duration::from_secs(10);

/// What a requester has learned of its path from losses.
#[derive(Debug, Default)]
pub(super) struct Leash {
    /// What may be in flight, as windows count it; `None`: as much as these allow.
    length: Option<u64>,
    /// It is never shorter.
    shortest: u64,
    /// Acknowledged since the last loss, or since the leash became longer.
    landed: u64,
    /// The least round trip of this period and of the one before.
    least: [Option<Duration>; 2],
    /// When this period began.
    since: Instant,
}

impl Leash {
    /// Of a requester whose packets take `cost` each at most.
    pub(super) fn new(cost: u64) -> Self {
        Self { shortest: FEWEST * cost, ..Self::default() }
    }

    /// What may be in flight, if windows allow more.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// The peer has acknowledged `cost`, of which the last was sent `round_trip` ago if that is known.
    pub(super) fn landed(&mut self, now: Instant, cost: u64, round_trip: Option<Duration>) {
        if let Some(round_trip) = round_trip {
            if now - self.since >= PERIOD {
                self.least = [None, self.least[0]];
                self.since = now;
            }
            self.least[0] = self.least[0].into_iter().chain([round_trip]).min();
        }
        let Some(length) = self.length else { return };
        self.landed += cost;
        if self.landed >= length.saturating_mul(PATIENCE) {
            self.length = length.checked_mul(2);
            self.landed = 0;
        }
    }

    /// A packet that left `ago` is missing, and `in_flight` with it.
    pub(super) fn lost(&mut self, in_flight: u64, ago: Duration) {
        self.landed = 0;
        let Some(least) = self.least.into_iter().flatten().min() else { return };
        if ago <= least * 2 {
            // Nothing waits anywhere.
            return;
        }
        let held = u128::from(in_flight) * least.as_nanos() / ago.as_nanos();
        let length = u64::try_from(held * 2).unwrap_or(u64::MAX);
        self.length = Some(length.max(self.shortest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn what_waits_in_queues_is_not_in_flight_after_a_loss() {
        let mut leash = Leash::new(1000);
        leash.lost(MB, us(100));
        assert_eq!(leash.length(), None, "no round trip is known");
        leash.landed(Instant::ZERO, MB, Some(us(10)));
        leash.landed(Instant::ZERO, MB, Some(us(90)));
        leash.lost(MB, us(20));
        assert_eq!(leash.length(), None, "the path held half of that");
        leash.lost(MB, us(100));
        assert_eq!(leash.length(), Some(200_000));
        leash.lost(200_000, us(20));
        assert_eq!(leash.length(), Some(200_000), "it is as it should be");
        leash.lost(200_000, us(1000));
        assert_eq!(leash.length(), Some(128_000), "128 packets");
    }

    #[test]
    fn without_losses_the_leash_becomes_longer() {
        let mut leash = Leash::default();
        leash.landed(Instant::ZERO, MB, Some(us(10)));
        leash.lost(MB, us(100));
        let mut lengths = Vec::new();
        for acknowledged in [32, 31, 1, 63, 1] {
            leash.landed(Instant::ZERO, acknowledged * 200_000, None);
            lengths.extend(leash.length());
        }
        assert_eq!(lengths, [200_000, 200_000, 400_000, 400_000, 400_000]);
        leash.landed(Instant::ZERO, 63 * 400_000, None);
        assert_eq!(leash.length(), Some(800_000));
        leash.landed(Instant::ZERO, 63 * 800_000, None);
        leash.lost(800_000, us(20));
        leash.landed(Instant::ZERO, 63 * 800_000, None);
        assert_eq!(leash.length(), Some(800_000), "there was a loss in between");
    }

    #[test]
    fn a_path_that_has_become_longer_is_known_after_two_periods() {
        let mut leash = Leash::default();
        let mut after = |seconds, round_trip| {
            leash.landed(Instant::ZERO + Duration::from_secs(seconds), 1, Some(us(round_trip)));
            leash.lost(MB, us(1000));
            leash.length().unwrap()
        };
        assert_eq!(
            [(1, 100), (9, 400), (11, 400), (22, 400)].map(|(s, us)| after(s, us)),
            [200_000, 200_000, 200_000, 800_000]
        );
    }
}
