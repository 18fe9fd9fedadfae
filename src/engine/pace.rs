//! Rate limit of a send queue.

use std::time::Duration;

use crate::net::MAX_BURST_BYTES;
use crate::time::Instant;

/// Maximum rate of requests of a queue pair, in UDP payload. Responses and acknowledgements to its
/// peer are not limited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[doc(alias = "ibv_qp_rate_limit_attr")]
pub struct RateLimit {
    /// Kilobits (1000 bits) of UDP payload per second; 0 is no limit.
    #[doc(alias = "rate_limit")]
    pub kbps: u32,
    /// Maximum burst in bytes, but at least one packet; 0 is the number of bytes that the rate
    /// allows per millisecond.
    #[doc(alias = "max_burst_sz")]
    pub max_burst: u32,
}

impl RateLimit {
    /// No limit.
    pub const NONE: Self = Self { kbps: 0, max_burst: 0 };

    /// Returns a limit of `kbps` kilobits per second.
    pub const fn kbps(kbps: u32) -> Self {
        Self { kbps, max_burst: 0 }
    }

    /// Returns the maximum burst in bytes.
    fn burst(self) -> usize {
        // One kilobit per second is one bit per millisecond.
        let bytes = if self.max_burst == 0 { self.kbps / 8 } else { self.max_burst };
        usize::try_from(bytes).map_or(MAX_BURST_BYTES, |bytes| bytes.min(MAX_BURST_BYTES))
    }

    /// Returns the time that this number of bytes takes.
    fn time_for(self, bytes: usize) -> Duration {
        let bits = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(8);
        Duration::from_nanos(bits.saturating_mul(1_000_000).div_ceil(self.kbps.into()))
    }
}

/// A rate limit and its current use. Most queue pairs have none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pacer(Option<Box<Limited>>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Limited {
    limit: RateLimit,
    /// Time at which all sent bytes would be transmitted at the limited rate.
    through: Instant,
    /// Time until which requests wait.
    waits_until: Option<Instant>,
}

impl Pacer {
    /// Sets the rate. Bytes sent before the call do not count.
    pub(crate) fn set(&mut self, limit: RateLimit) {
        let limited = Limited { limit, through: Instant::ZERO, waits_until: None };
        *self = Self((limit.kbps != 0).then(|| Box::new(limited)));
    }

    /// Returns the number of bytes that may be sent now; the first packet may be longer. `None` if
    /// requests must wait.
    #[inline]
    pub(crate) fn grant(&mut self, now: Instant) -> Option<usize> {
        let Some(limited) = &mut self.0 else { return Some(MAX_BURST_BYTES) };
        limited.waits_until = Some(limited.through).filter(|through| *through > now);
        limited.waits_until.is_none().then(|| limited.limit.burst())
    }

    /// Returns the time until which requests wait.
    #[inline]
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.0.as_ref()?.waits_until
    }

    /// Ends the wait of requests if it lasts until `now`.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.waits_until().is_some_and(|until| until <= now) {
            self.stop_waiting();
        }
    }

    /// Ends the wait of requests.
    pub(crate) fn stop_waiting(&mut self) {
        if let Some(limited) = &mut self.0 {
            limited.waits_until = None;
        }
    }

    /// Counts bytes that are sent now.
    pub(crate) fn charge(&mut self, now: Instant, bytes: usize) {
        if let Some(limited) = &mut self.0
            && bytes > 0
        {
            limited.through = limited.through.max(now) + limited.limit.time_for(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacer(kbps: u32, max_burst: u32) -> Pacer {
        let mut pacer = Pacer::default();
        pacer.set(RateLimit { kbps, max_burst });
        pacer
    }

    #[test]
    fn without_a_limit_everything_may_go() {
        let mut pacer = pacer(0, 100);
        pacer.charge(Instant::ZERO, 1 << 30);
        assert_eq!(pacer.grant(Instant::ZERO), Some(MAX_BURST_BYTES));
    }

    #[test]
    fn what_was_sent_takes_its_time() {
        // 8 Mbit/s is one byte per microsecond.
        let mut pacer = pacer(8_000, 0);
        let at = Instant::from_micros;
        assert_eq!(pacer.grant(at(0)), Some(1000), "a millisecond's worth");
        pacer.charge(at(0), 1000);
        assert_eq!((pacer.grant(at(999)), pacer.waits_until()), (None, Some(at(1000))));
        pacer.on_timeout(at(999));
        assert_eq!(pacer.waits_until(), Some(at(1000)));
        pacer.on_timeout(at(1000));
        assert_eq!((pacer.waits_until(), pacer.grant(at(1000))), (None, Some(1000)));
        // Unused time is not credited.
        pacer.charge(at(5000), 300);
        assert_eq!((pacer.grant(at(5200)), pacer.waits_until()), (None, Some(at(5300))));
        pacer.set(RateLimit::kbps(16_000));
        assert_eq!((pacer.waits_until(), pacer.grant(at(5200))), (None, Some(2000)));
    }

    #[test]
    fn a_burst_is_as_long_as_was_said_and_no_longer_than_there_are() {
        assert_eq!(pacer(8_000, 256).grant(Instant::ZERO), Some(256));
        assert_eq!(pacer(u32::MAX, 0).grant(Instant::ZERO), Some(MAX_BURST_BYTES));
        assert_eq!(pacer(u32::MAX, u32::MAX).grant(Instant::ZERO), Some(MAX_BURST_BYTES));
        assert_eq!(pacer(1, 0).grant(Instant::ZERO), Some(0), "a packet goes all the same");
    }
}
