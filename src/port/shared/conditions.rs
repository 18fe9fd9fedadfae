//! What a network does to datagrams, in numbers.

use std::time::Duration;

/// What a network does to datagrams on their way, in one direction. Probabilities are of 0 to 1, for
/// each datagram.
///
/// The same [simulated](super::super::sim) and over [another port](super::super::impair).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Conditions {
    /// It never arrives.
    pub loss: f64,
    /// Times in which many in a row are lost.
    pub bursts: Bursts,
    /// Times in which nothing arrives.
    pub outages: Outages,
    /// It arrives twice.
    pub duplicate: f64,
    /// It is held back, by up to twice [`delay`](Self::delay) and by up to 20 µs at least, 200 µs over
    /// another port, and those sent meanwhile overtake it. The others keep their order.
    pub reorder: f64,
    /// One of its bits is turned, of those that the ICRC covers.
    pub corrupt: f64,
    /// Its end is missing. A UDP socket would not deliver such a one. Where the receiver does not see
    /// the IP header, one in 65,536 passes for whole.
    pub truncate: f64,
    /// It is marked with "congestion experienced", if its sender has said that it may be (ECN).
    pub mark: f64,
    /// How long it is under way.
    pub delay: Duration,
    /// How much longer at most, evenly spread.
    pub jitter: Duration,
    /// How fast the link is; `None`: takes no time.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may wait for the link at its rate; what comes on top is lost.
    pub queue_bytes: Option<u64>,
    /// Marks what finds more bytes than this before it, as [`mark`](Self::mark) does.
    pub mark_above_bytes: Option<u64>,
    /// The sender's port is busy, for each burst, and stays so for up to 20 µs.
    pub refuse_send: f64,
}

impl Conditions {
    /// Returns whether the network marks datagrams with "congestion experienced".
    pub(in crate::port) fn marks(&self) -> bool {
        self.mark > 0.0 || self.mark_above_bytes.is_some()
    }

    /// How long the link takes to put `bytes` on the wire.
    pub(in crate::port) fn serialization(&self, bytes: usize) -> Duration {
        match self.rate_bits_per_s {
            None => Duration::ZERO,
            Some(rate) => {
                let ns = bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1));
                Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
            }
        }
    }

    /// Bytes that wait for the link when it is busy for `backlog` more.
    pub(in crate::port) fn queued(&self, backlog: Duration) -> u128 {
        let rate = u128::from(self.rate_bits_per_s.unwrap_or(0));
        backlog.as_nanos() * rate / 8 / 1_000_000_000
    }
}

/// Loss as Gilbert and Elliott have it: a link is good or bad, and changes between the two by chance.
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
pub struct Bursts {
    /// How probably a bad time begins with a datagram; 0: there are none.
    pub begin: f64,
    /// How many datagrams fall into a bad time, on average.
    pub length: f64,
    /// How probably a datagram is lost in a bad time.
    pub loss: f64,
}

impl Default for Bursts {
    /// None. Where only [`begin`](Self::begin) is given, ten are lost in a row on average.
    fn default() -> Self {
        Self { begin: 0.0, length: 10.0, loss: 1.0 }
    }
}

/// Times in which nothing arrives, one after the other at fixed distances: the last `length` of every
/// `every` are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outages {
    /// How long each is; zero: there are none.
    pub length: Duration,
    /// From one end to the next.
    pub every: Duration,
}

impl Default for Outages {
    /// None. Where only [`length`](Self::length) is given, there is one a second.
    fn default() -> Self {
        Self { length: Duration::ZERO, every: Duration::from_secs(1) }
    }
}

impl Outages {
    /// Whether one is at a time since the origin.
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
