//! Time in the engine, and the two encodings of durations in packets and verbs.
//!
//! The engine has no clock: every input carries an [`Instant`], a number of nanoseconds since an origin that the
//! caller chooses. Real ports count from the start of the process, the simulator from zero.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since an origin of the caller's choice.
///
/// Arithmetic saturates: a deadline beyond the range of 584 years never occurs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Self = Self(0);

    /// Returns the time `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Returns the time `us` microseconds after the origin.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// Returns the time `ms` milliseconds after the origin.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Returns the number of nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time elapsed since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the earlier of two optional times.
    pub(crate) fn first(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (at, None) | (None, at) => at,
        }
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, d: Duration) -> Self {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(ns))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Local ACK timeout: the 5-bit exponent of `ibv_qp_attr.timeout`.
///
/// The interval is `4.096 µs × 2^n`, and zero means "never" (IBTA vol 1, §9.7.6.1.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// No timeout: a lost packet blocks the queue pair forever.
    pub const NEVER: Self = Self(0);

    /// Returns the timeout with exponent `n`, or `None` when `n` exceeds 31.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 32 { Some(Self(n)) } else { None }
    }

    /// Returns the exponent, 0 to 31.
    pub const fn exponent(self) -> u8 {
        self.0
    }

    /// Returns the interval, or `None` for no timeout.
    pub const fn interval(self) -> Option<Duration> {
        match self.0 {
            0 => None,
            n => Some(Duration::from_nanos(4096 << n)),
        }
    }
}

/// RNR NAK timer: the 5-bit code of `ibv_qp_attr.min_rnr_timer` and of the AETH syndrome.
///
/// The codes are a table, not a formula, and code 0 is the longest (IBTA vol 1, §9.7.5.2.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// Durations in units of 10 µs, indexed by code.
    const TABLE: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    /// Returns the timer with this code, or `None` when `code` exceeds 31.
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// Returns the timer in the low 5 bits of an AETH syndrome.
    pub const fn from_syndrome(syndrome: u8) -> Self {
        Self(syndrome & 0x1f)
    }

    /// Returns the code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the minimum time that the requester waits.
    pub const fn wait(self) -> Duration {
        Duration::from_micros(Self::TABLE[self.0 as usize] as u64 * 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_timeout_is_4096_ns_doubled_n_times() {
        assert_eq!(AckTimeout::new(0).unwrap().interval(), None);
        assert_eq!(AckTimeout::new(1).unwrap().interval(), Some(Duration::from_nanos(8192)));
        assert_eq!(AckTimeout::new(14).unwrap().interval(), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(AckTimeout::new(31).unwrap().interval(), Some(Duration::from_nanos(4096 << 31)));
        assert_eq!(AckTimeout::new(32), None);
    }

    #[test]
    fn rnr_timer_follows_the_table() {
        let us = |code| RnrTimer::new(code).unwrap().wait().as_micros();
        assert_eq!(us(0), 655_360);
        assert_eq!(us(1), 10);
        assert_eq!(us(12), 640);
        assert_eq!(us(14), 1_280);
        assert_eq!(us(25), 61_440);
        assert_eq!(us(31), 491_520);
        assert_eq!(RnrTimer::new(32), None);
    }

    #[test]
    fn instants_saturate() {
        let end = Instant::from_nanos(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Instant::ZERO - end, Duration::ZERO);
    }
}
