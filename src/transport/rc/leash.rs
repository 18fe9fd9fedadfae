//! How much a requester has in flight where packets are lost.
//!
//! What is in flight behind a lost packet is lost with it (go-back-N), so a loss costs as much as is in
//! flight. A window says what the peer's receive buffer bears; that may be many times what the path holds, and
//! the rest waits in some queue, where it does little good and is lost all the same. What was sent between a
//! packet and the news that it is missing tells the rate, and the rate and the least round trip tell what
//! the path holds:
//!
//! ```text
//!   in flight when the NAK comes
//!   ──────────────────────────── × least round trip = what the path holds
//!    time since the packet left
//! ```
//!
//! Twice that, `busy`, keeps the path busy most of the time: for `length / (length + busy)` of it, about, with `length` in
//! flight, for ends have other things to do too. Of what is sent a part `1 / (1 + length / gap)` is not sent in vain,
//! where `gap` lands between two losses. The product of both is greatest with
//!
//! ```text
//!   length = √(busy × gap)
//! ```
//!
//! so that the leash is the longer the rarer losses are. Where nothing is lost there is none.
//!
//! Of a peer that keeps what comes behind a lost packet (`repair`) that is not true: a loss costs a round trip there,
//! whatever is in flight. So much may be then that two losses are to be expected, for when more than that is lost
//! some queue is too short.

use std::time::Duration;

use crate::net::{MAX_BURST_BYTES, MAX_BURST_SEGMENTS};
use crate::time::Instant;

/// The least round trip is that of the last one or two such periods, for paths change.
const PERIOD: Duration = Duration::from_secs(10);

/// What a requester has learned of its path from losses.
#[derive(Debug, Default)]
pub(super) struct Leash {
    /// What may be in flight, as windows count it; `None`: as much as these allow.
    length: Option<u64>,
    /// What a burst takes. A path that holds less is quicker than its ends, which send and receive by the burst.
    burst: u64,
    /// What keeps the path busy.
    busy: u64,
    /// What lands between two losses.
    gap: u64,
    /// Nothing is lost with a packet that is lost.
    selective: bool,
    /// Acknowledged since the last loss.
    landed: u64,
    /// The least round trip of this period and of the one before.
    least: [Option<Duration>; 2],
    /// When this period began.
    since: Instant,
}

impl Leash {
    /// Of a requester whose packets have `len` bytes at most, and take `cost` each then.
    pub(super) fn new(len: usize, cost: u64) -> Self {
        let packets = (MAX_BURST_BYTES / len.max(1)).min(MAX_BURST_SEGMENTS);
        Self { burst: packets as u64 * cost, ..Self::default() }
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
        self.landed = self.landed.saturating_add(cost);
        if self.length.is_some() && self.landed / 2 >= self.gap {
            self.gap = self.landed;
            self.adjust();
        }
    }

    /// A packet that left `ago` is missing, and `in_flight` with it, unless the peer keeps that.
    pub(super) fn lost(&mut self, in_flight: u64, ago: Duration, kept: bool) {
        self.selective = kept;
        let landed = std::mem::take(&mut self.landed).max(1);
        // Half forgotten with each loss, for losses come in rows.
        self.gap = if self.gap == 0 { landed } else { geometric_mean(self.gap, landed) };
        let Some(least) = self.least.into_iter().flatten().min() else { return };
        if ago > least * 2 {
            let held = u128::from(in_flight) * least.as_nanos() / ago.as_nanos();
            let held = u64::try_from(held).unwrap_or(u64::MAX);
            self.busy = held.max(self.burst).saturating_mul(2);
            self.adjust();
        }
        // Else nothing waits anywhere.
    }

    fn adjust(&mut self) {
        let losses = if self.selective { self.gap.saturating_mul(2) } else { 0 };
        self.length = Some(geometric_mean(self.busy, self.gap).max(losses).max(self.busy / 2));
    }
}

fn geometric_mean(a: u64, b: u64) -> u64 {
    // The root of a product of two has half of its bits.
    u64::try_from((u128::from(a) * u128::from(b)).isqrt()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A leash that knows of a round trip of 10 µs, and of a loss after 1 MB. A burst takes 1500.
    fn after_a_loss(in_flight: u64, ago: u64) -> Leash {
        let mut leash = Leash::new(4112, 100);
        leash.landed(Instant::ZERO, MB / 2, Some(us(90)));
        leash.landed(Instant::ZERO, MB / 2, Some(us(10)));
        leash.lost(in_flight, us(ago), false);
        leash
    }

    #[test]
    fn what_waits_in_queues_is_not_in_flight_after_a_loss() {
        let mut leash = Leash::default();
        leash.lost(MB, us(100), false);
        assert_eq!(leash.length(), None, "no round trip is known");
        assert_eq!(after_a_loss(MB, 20).length(), None, "the path holds half of that");
        // It holds 20 kB: 40 kB and 1 MB.
        assert_eq!(after_a_loss(MB, 500).length(), Some(200_000));
        assert_eq!(after_a_loss(100 * MB, 250).length(), Some(4 * MB), "what the path holds");
        // Two bursts and 1 MB.
        assert_eq!(after_a_loss(10_000, 1000).length(), Some(54_772));
    }

    #[test]
    fn a_burst_is_always_in_flight() {
        let mut leash = after_a_loss(10_000, 1000);
        for _ in 0..10 {
            leash.lost(10_000, us(1000), false);
        }
        assert_eq!(leash.length(), Some(1500));
        assert_eq!(Leash::new(1040, 100).burst, 6200);
    }

    #[test]
    fn the_rarer_losses_are_the_longer_is_the_leash() {
        let mut leash = after_a_loss(MB, 500);
        let mut lengths = Vec::new();
        for landed in [1_000_000, 999_999, 1, 2_000_000] {
            leash.landed(Instant::ZERO, landed, None);
            lengths.extend(leash.length());
        }
        assert_eq!(lengths, [200_000, 200_000, 282_842, 400_000], "2 MB, and 4 MB, without a loss");
        // The next comes after 10 kB, and the geometric mean of that and 4 MB is 200 kB.
        leash.lost(MB, us(500), false);
        leash.landed(Instant::ZERO, 10_000, None);
        leash.lost(MB, us(500), false);
        assert_eq!(leash.length(), Some(89_442));
    }

    #[test]
    fn with_a_peer_that_keeps_the_rest_two_losses_may_be_in_flight() {
        let mut leash = after_a_loss(MB, 500);
        leash.landed(Instant::ZERO, MB, None);
        leash.lost(MB, us(500), true);
        assert_eq!(leash.length(), Some(2 * MB));
        // A burst at least, or nothing would ever be sent.
        for _ in 0..100 {
            leash.lost(10_000, us(1000), true);
        }
        assert_eq!(leash.length(), Some(1500));
    }

    #[test]
    fn a_path_that_has_become_longer_is_known_after_two_periods() {
        let mut leash = Leash::default();
        let mut after = |seconds, round_trip| {
            leash.landed(Instant::ZERO + Duration::from_secs(seconds), 1, Some(us(round_trip)));
            leash.lost(MB, us(1000), false);
            leash.length().unwrap()
        };
        assert_eq!(
            [(1, 100), (9, 400), (11, 400), (22, 400)].map(|(s, us)| after(s, us)),
            [100_000, 100_000, 100_000, 400_000]
        );
    }
}
