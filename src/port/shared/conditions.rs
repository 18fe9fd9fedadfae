//! Conditions of an emulated link.

use std::time::Duration;

/// Conditions of one direction of a link. Probabilities are from 0 to 1, for each datagram.
///
/// The [simulator](super::super::sim) and the [link emulator](super::super::impair) apply them in the same way.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Conditions {
    /// Probability of a loss.
    pub loss: f64,
    /// Burst losses.
    pub bursts: BurstLoss,
    /// Periods in which all datagrams are lost.
    pub outages: Outages,
    /// Probability of a duplicate.
    pub duplicate: f64,
    /// Probability of reordering. A reordered datagram is delayed by up to twice [`delay`](Self::delay), or up to 20 µs
    /// (200 µs in the link emulator) if that is longer. Datagrams sent meanwhile overtake it; all others keep their
    /// order.
    pub reorder: f64,
    /// Probability of a flipped bit, of those that the ICRC covers.
    pub corrupt: f64,
    /// Probability of a truncated datagram. A real UDP socket would not deliver it. Of receivers that do not see the IP
    /// header, one in 65,536 takes it for a complete one.
    pub truncate: f64,
    /// Probability of the mark "congestion experienced" on a datagram whose sender supports ECN.
    pub mark: f64,
    /// Propagation delay.
    pub delay: Duration,
    /// Maximum of an additional delay, uniformly distributed.
    pub jitter: Duration,
    /// Rate of the link; `None`: unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// Size of the queue in front of the link, in bytes; datagrams that exceed it are lost.
    pub queue_bytes: Option<u64>,
    /// Length of the queue, in bytes, above which datagrams are marked as for [`mark`](Self::mark).
    pub mark_above_bytes: Option<u64>,
    /// Probability that the sender's port takes no burst, and none for the next 20 µs at most.
    pub refuse_send: f64,
}

impl Conditions {
    /// Returns whether the network marks datagrams with "congestion experienced".
    pub(in crate::port) fn marks(&self) -> bool {
        self.mark > 0.0 || self.mark_above_bytes.is_some()
    }

    /// Returns the time that the link takes to send `bytes`.
    pub(in crate::port) fn serialization(&self, bytes: usize) -> Duration {
        match self.rate_bits_per_s {
            None => Duration::ZERO,
            Some(rate) => {
                let ns = bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1));
                Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
            }
        }
    }

    /// Returns the number of queued bytes when the link is busy for `backlog` more.
    pub(in crate::port) fn queued(&self, backlog: Duration) -> u128 {
        let rate = u128::from(self.rate_bits_per_s.unwrap_or(0));
        backlog.as_nanos() * rate / 8 / 1_000_000_000
    }
}

/// Burst losses by the Gilbert–Elliott model: the link is good or bad, and changes between the two at random.
///
/// ```text
///                begin
///          ┌────────────────┐
///          │                ▼
///        good              bad: `loss` of what comes is lost
///          ▲                │
///          └────────────────┘
///              1 / length
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BurstLoss {
    /// Probability that a datagram begins a bad period; 0: there are none.
    pub begin: f64,
    /// Mean number of datagrams in a bad period.
    pub length: f64,
    /// Probability of a loss in a bad period.
    pub loss: f64,
}

impl Default for BurstLoss {
    /// No bad periods. If only [`begin`](Self::begin) is set, one has ten losses in a row on average.
    fn default() -> Self {
        Self { begin: 0.0, length: 10.0, loss: 1.0 }
    }
}

/// Periodic outages, in which all datagrams are lost: the last `length` of every `every`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outages {
    /// Length of an outage; zero: there are none.
    pub length: Duration,
    /// Time from the end of one outage to the end of the next.
    pub every: Duration,
}

impl Default for Outages {
    /// No outages. If only [`length`](Self::length) is set, there is one every second.
    fn default() -> Self {
        Self { length: Duration::ZERO, every: Duration::from_secs(1) }
    }
}

impl Outages {
    /// Returns whether the time `ns` after the origin is in an outage.
    pub(in crate::port) fn covers(&self, ns: u64) -> bool {
        let every = self.every.as_nanos().max(1);
        !self.length.is_zero()
            && u128::from(ns) % every >= every.saturating_sub(self.length.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_the_end_of_its_period() {
        let outages = Outages { length: Duration::from_nanos(2), every: Duration::from_nanos(5) };
        let covered: Vec<_> = (0..10).map(|ns| outages.covers(ns)).collect();
        assert_eq!(covered, [false, false, false, true, true].repeat(2));
        assert!((0..10).all(|ns| !Outages::default().covers(ns)));
    }
}
