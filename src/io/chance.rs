//! What may befall a datagram under way, drawn from a seed.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use smallvec::SmallVec;

/// What may happen to each datagram. Probabilities are of 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) loss: f64,
    pub(super) duplicate: f64,
    pub(super) reorder: f64,
    pub(super) corrupt: f64,
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
    /// The longest that a datagram is held back so that others overtake it.
    pub(super) hold: Duration,
}

/// One datagram that arrives. A lost one has no copy, a duplicated one has two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Arrival {
    /// How much later than undisturbed.
    pub(super) delay: Duration,
    /// Whether others may overtake it.
    pub(super) held: bool,
    /// The bit that is turned.
    pub(super) flip: Option<usize>,
}

impl Arrival {
    /// A copy that nothing has happened to.
    pub(super) const UNHARMED: Self = Self { delay: Duration::ZERO, held: false, flip: None };

    /// Turns the bit.
    pub(super) fn damage(self, datagram: &mut [u8]) {
        if let Some(bit) = self.flip
            && let Some(byte) = datagram.get_mut(bit / 8)
        {
            *byte ^= 1 << (bit % 8);
        }
    }
}

/// A seeded source of chance: the same seed and the same questions give the same answers.
#[derive(Clone, Debug)]
pub(super) struct Dice(ChaCha8Rng);

impl Dice {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha8Rng::from_seed(seed))
    }

    /// True with a probability of `p`.
    pub(super) fn happens(&mut self, p: f64) -> bool {
        // 53 bits are what the significand holds, so the quotient is exact and less than one.
        p > 0.0 && ((self.0.next_u64() >> 11) as f64) / ((1_u64 << 53) as f64) < p
    }

    /// A number from 0 to `n - 1`; 0 when there is none.
    pub(super) fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        usize::try_from(self.0.next_u64() % n.max(1)).unwrap_or(0)
    }

    /// A time from 1 ns to `longest`; zero when that is zero.
    pub(super) fn within(&mut self, longest: Duration) -> Duration {
        match u64::try_from(longest.as_nanos()) {
            Ok(0) => Duration::ZERO,
            Ok(ns) => Duration::from_nanos(1 + self.0.next_u64() % ns),
            Err(_) => longest,
        }
    }

    /// What happens to a datagram of `len` bytes.
    pub(super) fn roll(&mut self, faults: &Faults, len: usize) -> SmallVec<[Arrival; 2]> {
        let mut copies = SmallVec::new();
        if self.happens(faults.loss) {
            return copies;
        }
        let count = if self.happens(faults.duplicate) { 2 } else { 1 };
        for _ in 0..count {
            copies.push(self.one(faults, len));
        }
        copies
    }

    fn one(&mut self, faults: &Faults, len: usize) -> Arrival {
        let held = self.happens(faults.reorder);
        let mut delay = faults.delay;
        if !faults.jitter.is_zero() {
            delay += self.within(faults.jitter);
        }
        if held {
            delay += self.within(faults.hold);
        }
        let flip = self.happens(faults.corrupt).then(|| self.covered_bit(len));
        Arrival { delay, held, flip }
    }

    /// A bit of a datagram of `len` bytes, in none but the fifth: there the ICRC covers nothing, and
    /// a turned bit would be no corruption.
    fn covered_bit(&mut self, len: usize) -> usize {
        const UNCOVERED: usize = 4 * 8;
        let bit = self.below(len.saturating_sub(1) * 8);
        if bit < UNCOVERED { bit } else { bit + 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_come_out_as_often_as_asked() {
        let mut dice = Dice::new([1; 32]);
        let faults = Faults { loss: 0.1, duplicate: 0.2, corrupt: 0.3, ..Faults::default() };
        let rolls: Vec<_> = (0..10_000).map(|_| dice.roll(&faults, 64)).collect();
        let lost = rolls.iter().filter(|copies| copies.is_empty()).count();
        assert!((900..1_100).contains(&lost), "{lost}");
        let twice = rolls.iter().filter(|copies| copies.len() == 2).count();
        assert!((1_700..1_900).contains(&twice), "{twice}");
        let bits: Vec<_> = rolls.iter().flatten().filter_map(|c| c.flip).collect();
        assert!(bits.iter().all(|bit| *bit < 64 * 8 && bit / 8 != 4));
        assert!((3_100..3_400).contains(&bits.len()), "{}", bits.len());
    }

    #[test]
    fn certain_and_impossible_are_exact() {
        let mut dice = Dice::new([2; 32]);
        assert!((0..1_000).all(|_| dice.happens(1.0) && !dice.happens(0.0)));
        assert_eq!(dice.roll(&Faults::default(), 4)[..], [Arrival::UNHARMED]);
    }

    #[test]
    fn one_bit_is_turned() {
        let mut datagram = [0; 4];
        Arrival { flip: Some(17), ..Arrival::UNHARMED }.damage(&mut datagram);
        assert_eq!(datagram, [0, 0, 2, 0]);
        Arrival { flip: Some(32), ..Arrival::UNHARMED }.damage(&mut datagram);
        assert_eq!(datagram, [0, 0, 2, 0], "out of range does nothing");
    }
}
