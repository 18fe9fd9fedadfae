//! Limits for bursts to neighbours without a known link address.
//!
//! The kernel resolves a link address on the first packet, queues a few packets meanwhile, and drops them after some
//! seconds without an answer. Until then they count against the send buffer of the socket. So the queued bytes of each
//! neighbour are limited, and those of all neighbours leave the socket room for other bursts.

use std::time::Duration;

use crate::net::Burst;
use crate::time::Instant;

/// Maximum bytes queued for one neighbour: two bursts of maximum length.
const MAX_BYTES_PER_NEIGHBOUR: usize = 128 << 10;

/// Maximum bytes queued for all neighbours: half of the send buffer that the system grants by default.
const MAX_BYTES_OF_ALL: usize = 192 << 10;

/// Longest time that the kernel queues a packet: three solicitations, a second apart.
const MAX_QUEUE_TIME: Duration = Duration::from_secs(4);

/// Overhead of the kernel for a queued burst.
const BYTES_PER_SKB: usize = 1024;

/// Bytes queued for all neighbours.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnresolvedBytes {
    bytes: usize,
    /// Time at which the kernel has dropped all of them.
    until: Instant,
}

/// Bytes queued for one neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NeighbourBytes {
    bytes: usize,
    /// Period in which they were queued: [`UnresolvedBytes::until`] at that time.
    until: Instant,
}

impl UnresolvedBytes {
    /// Returns whether a burst fits, and counts it if so.
    pub(super) fn try_charge(
        &mut self,
        now: Instant,
        share: &mut NeighbourBytes,
        burst: &Burst,
    ) -> bool {
        if now >= self.until {
            *self = Self { bytes: 0, until: now + MAX_QUEUE_TIME };
        }
        if share.until != self.until {
            *share = NeighbourBytes { bytes: 0, until: self.until };
        }
        let more = burst.byte_len() + BYTES_PER_SKB;
        let fits =
            share.bytes + more <= MAX_BYTES_PER_NEIGHBOUR && self.bytes + more <= MAX_BYTES_OF_ALL;
        if fits {
            share.bytes += more;
            self.bytes += more;
        }
        fits
    }

    /// Releases the bytes of a neighbour: it has answered, or the kernel has given up.
    pub(super) fn release(&mut self, share: NeighbourBytes) {
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
    fn one_neighbour_cannot_use_the_budget_of_all() {
        let (mut all, mut shares, large) =
            (UnresolvedBytes::default(), [NeighbourBytes::default(); 4], burst(60_000));
        let now = Instant::from_micros(1);
        let mut try_charge = |slot: usize, now| all.try_charge(now, &mut shares[slot], &large);
        let first: Vec<_> = (0..3).map(|_| try_charge(0, now)).collect();
        assert_eq!(first, [true, true, false]);
        assert_eq!([try_charge(1, now), try_charge(2, now)], [true, false], "all together");
        let later = now + MAX_QUEUE_TIME;
        assert!(try_charge(0, later), "the kernel has thrown it away");
        all.release(shares[1]);
        assert_eq!(all.bytes, 61_024, "what was given before is not counted any more");
        all.release(shares[0]);
        assert_eq!(all.bytes, 0);
    }
}
