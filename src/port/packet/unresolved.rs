//! What is sent to neighbours whose link address nobody has told yet.
//!
//! The kernel asks for a link address when something is sent there, keeps a little until the answer comes
//! and throws it away when none does, seconds later. Meanwhile it counts against the socket that has sent
//! it. So each neighbour may have a little waiting, and all together may have no more than leaves that
//! socket room for everybody else.

use std::time::Duration;

use crate::net::Burst;
use crate::time::Instant;

/// Bytes that may wait for one neighbour: two of the largest bursts.
const EACH: usize = 128 << 10;

/// Bytes that may wait for all: half of what a socket may have sent that asked for much, and was given
/// what the system allows by default.
const ALL: usize = 192 << 10;

/// How long the kernel keeps them at most: it asks three times, a second apart.
const KEPT: Duration = Duration::from_secs(4);

/// What the kernel has of its own in a burst that waits.
const OVERHEAD: usize = 1024;

/// What waits for all neighbours.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waiting {
    bytes: usize,
    /// By then nothing is left of it.
    until: Instant,
}

/// What waits for one neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    bytes: usize,
    /// When it began, in terms of [`Waiting::until`].
    until: Instant,
}

impl Waiting {
    /// Whether a burst may wait too, which it does then.
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

    /// Nothing waits for a neighbour any more: it has answered, or the kernel has given up.
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
