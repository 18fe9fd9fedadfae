//! What happens between two hosts.

use std::net::IpAddr;
use std::time::Duration;

use crate::ids::Gid;
use crate::io::chance::{Arrival, Dice, Faults};
use crate::time::Instant;

/// What a link does to datagrams. Probabilities are of 0 to 1, for each datagram.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Conditions {
    /// It never arrives.
    pub loss: f64,
    /// It arrives twice.
    pub duplicate: f64,
    /// It is held back, by up to twice [`delay`](Self::delay) and by up to 20 µs at least, and those
    /// sent meanwhile overtake it. The others keep their order.
    pub reorder: f64,
    /// One of its bits is turned, of those that the ICRC covers.
    pub corrupt: f64,
    /// How long it is under way.
    pub delay: Duration,
    /// How much longer at most, evenly spread.
    pub jitter: Duration,
    /// How fast the link is; `None`: takes no time.
    pub rate_bits_per_s: Option<u64>,
    /// Bytes that may wait for the link at its rate; what comes on top is lost.
    pub queue_bytes: Option<u64>,
    /// The sender's port is busy, for each burst, and stays so for up to 20 µs.
    pub refuse_send: f64,
}

impl Conditions {
    pub(super) fn faults(&self) -> Faults {
        Faults {
            loss: self.loss,
            duplicate: self.duplicate,
            reorder: self.reorder,
            corrupt: self.corrupt,
            delay: self.delay,
            jitter: self.jitter,
            hold: (self.delay * 2).max(Duration::from_micros(20)),
        }
    }

    /// How long the link takes to put `bytes` on the wire.
    fn serialization(&self, bytes: usize) -> Duration {
        match self.rate_bits_per_s {
            None => Duration::ZERO,
            Some(rate) => {
                let ns = bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1));
                Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
            }
        }
    }

    /// Whether the queue is too long for a datagram, when the link is busy for `backlog` more.
    fn overflows(&self, backlog: Duration) -> bool {
        match (self.rate_bits_per_s, self.queue_bytes) {
            (Some(rate), Some(limit)) => {
                backlog.as_nanos() * u128::from(rate) / 8 / 1_000_000_000 > u128::from(limit)
            }
            _ => false,
        }
    }
}

/// One direction between two hosts.
pub(super) struct Link {
    pub(super) conditions: Option<Conditions>,
    pub(super) dice: Dice,
    /// When all that was sent is on the wire.
    idle_at: Instant,
    /// The latest arrival of those that keep their order.
    last_arrival: Instant,
}

impl Link {
    pub(super) fn new(seed: u64, from: IpAddr, to: IpAddr) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..20].copy_from_slice(&Gid::from(from).0[4..]);
        bytes[20..].copy_from_slice(&Gid::from(to).0[4..]);
        Self {
            conditions: None,
            dice: Dice::new(bytes),
            idle_at: Instant::ZERO,
            last_arrival: Instant::ZERO,
        }
    }

    /// When the last bit is on the wire, or `None` when the queue has no room.
    pub(super) fn serialize(
        &mut self,
        now: Instant,
        conditions: &Conditions,
        len: usize,
    ) -> Option<Instant> {
        if conditions.overflows(self.idle_at.since(now)) {
            return None;
        }
        self.idle_at = self.idle_at.max(now) + conditions.serialization(len + IP_AND_UDP);
        Some(self.idle_at)
    }

    pub(super) fn arrival(&mut self, sent: Instant, copy: Arrival) -> Instant {
        let arrival = sent + copy.delay;
        if copy.held {
            return arrival;
        }
        self.last_arrival = self.last_arrival.max(arrival);
        self.last_arrival
    }
}

/// Bytes of an IPv4 and a UDP header.
const IP_AND_UDP: usize = 28;
