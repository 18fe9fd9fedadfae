//! Limits for bursts to neighbours without a known link address.
//!
//! The kernel resolves a link address on the first packet, queues a few packets meanwhile, and drops them after some
//! seconds without an answer. Until then they count against the send buffer of the socket. So the queued bytes of each
//! neighbour are limited, and those of all neighbours leave the socket room for other bursts.

use std::time::Duration;

use crate::net::Burst;
use crate::time::Instant;

/// Maximum bytes queued for one neighbour: two bursts of maximum length.
const EACH: usize = 128 << 10;

/// Maximum bytes queued for all neighbours: half of the send buffer that the system grants by default.
const ALL: usize = 192 << 10;

/// Longest time that the kernel queues a packet: three solicitations, a second apart.
const KEPT: Duration = Duration::from_secs(4);

/// Overhead of the kernel for a queued burst.
const OVERHEAD: usize = 1024;

/// Bytes queued for all neighbours.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    bytes: usize,
    /// Time at which the kernel has dropped all of them.
    until: Instant,
}

/// Bytes queued for one neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    bytes: usize,
    /// Period in which they were queued: [`Waiting::until`] at that time.
    until: Instant,
}

impl Waiting {
    /// Returns whether a burst fits, and counts it if so.
    pub(super) fn takes(&mut self, now: Instant, share: &mut Share, burst: &Burst) -> bool {
        if now >= self.until {
            *self = Self { bytes: 0, until: now + KEPT };
        }
        if share.until != self.until {
            *share = Share { bytes: 0, until: self.until };
        }
        let more = burst.data().len() + OVERHEAD;
        let fits = share.bytes + more <= EACH && self.bytes + more <= ALL;
        if fits {
            share.bytes += more;
            self.bytes += more;
        }
        fits
    }

    /// Releases the bytes of a neighbour: it has answered, or the kernel has given up.
    pub(super) fn is_over(&mut self, share: Share) {
        if share.until == self.until {
            self.bytes = self.bytes.saturating_sub(share.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(len: usize) -> Burst {
        let mut burst = Burst::new();
        burst.push(len).fill(1);
        burst
    }

    #[test]
    fn one_neighbour_does_not_take_the_room_of_all() {
        let (mut all, mut shares, large) =
            (Waiting::default(), [Share::default(); 4], burst(60_000));
        let now = Instant::from_micros(1);
        let mut takes = |place: usize, now| all.takes(now, &mut shares[place], &large);
        let first: Vec<_> = (0..3).map(|_| takes(0, now)).collect();
        assert_eq!(first, [true, true, false]);
        assert_eq!([takes(1, now), takes(2, now)], [true, false], "all together");
        let later = now + KEPT;
        assert!(takes(0, later), "the kernel has thrown it away");
        all.is_over(shares[1]);
        assert_eq!(all.bytes, 61_024, "what was given before is not counted any more");
        all.is_over(shares[0]);
        assert_eq!(all.bytes, 0);
    }
}
