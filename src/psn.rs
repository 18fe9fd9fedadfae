//! Packet sequence numbers: 24 bits, compared by serial arithmetic.

use std::fmt;

/// A packet sequence number.
///
/// PSNs have no total order, so the type does not implement `Ord`: compare with [`is_before`](Self::is_before), or
/// measure with [`since`](Self::since). The shorter distance around the circle determines the order. At a distance of
/// exactly half the circle, each counts as before the other (IBTA vol 1, §9.7.1).
///
/// ```
/// use softroce::psn::Psn;
///
/// let last = Psn::new(0xff_ffff);
/// assert_eq!(last.next(), Psn::new(0));
/// assert!(last.is_before(Psn::new(3)));
/// assert_eq!(Psn::new(3).since(last), 4);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Number of PSNs: 2^24.
    pub const MODULUS: u32 = 1 << 24;
    /// Half of the number of PSNs: a PSN up to this far behind the expected one is a duplicate.
    pub const HALF: u32 = 1 << 23;

    /// Returns the PSN with the low 24 bits of `value`; verbs ignore the other bits too.
    pub const fn new(value: u32) -> Self {
        Self(value & (Self::MODULUS - 1))
    }

    /// Returns the 24-bit value.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the PSN after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Returns the PSN before this one.
    #[must_use]
    pub const fn previous(self) -> Self {
        self.plus(Self::MODULUS - 1)
    }

    /// Returns the PSN `n` after this one.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// Returns the distance from `earlier` to this PSN, 0 to 2^24 − 1.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & (Self::MODULUS - 1)
    }

    /// Returns whether `other` is 1 to 2^23 PSNs after this one.
    ///
    /// The responder needs the asymmetry at half the circle: expected PSN − 2^23 is a duplicate.
    pub const fn is_before(self, other: Self) -> bool {
        let ahead = other.since(self);
        ahead != 0 && ahead <= Self::HALF
    }

    /// Returns whether this PSN is one of `count` PSNs from `first` on.
    pub const fn is_within(self, first: Self, count: u32) -> bool {
        self.since(first) < count
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_half_the_circle_back_is_a_duplicate_and_one_more_is_ahead() {
        let expected = Psn::new(5);
        assert!(Psn::new(4).is_before(expected));
        assert!(expected.plus(Psn::HALF).is_before(expected), "ePSN - 2^23 is a duplicate");
        assert!(!expected.plus(Psn::HALF - 1).is_before(expected), "ePSN + 2^23 - 1 is ahead");
        assert!(!expected.is_before(expected));
    }

    #[test]
    fn psn_range_may_wrap() {
        let first = Psn::new(0xff_fffe);
        let inside: Vec<_> = (0..6).map(|n| first.plus(n).is_within(first, 4)).collect();
        assert_eq!(inside, [true, true, true, true, false, false]);
        assert_eq!(first.plus(2), Psn::new(0));
        assert_eq!(Psn::new(0).previous(), Psn::new(0xff_ffff));
    }
}
