//! One direction of an emulated link: the faults of each datagram, drawn from a seed, and its time of arrival.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use chacha20::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use smallvec::SmallVec;

use crate::port::shared::conditions::Conditions;
use crate::time::Instant;

/// One direction of an emulated link.
#[derive(Debug)]
pub(in crate::port) struct EmulatedLink {
    rng: FaultRng,
    /// Minimum of the longest delay of a reordered datagram, so that others overtake it.
    min_reorder_window: Duration,
    /// In a bad period of [`BurstLoss`](super::conditions::BurstLoss).
    is_bad: bool,
    /// Time at which the queue in front of the link is empty.
    idle_at: Instant,
    /// Latest arrival of the datagrams that keep their order.
    last_arrival: Instant,
    counters: FaultCounters,
}

/// The copies of a datagram that arrive: none of a lost one, two of a duplicated one.
pub(in crate::port) type Copies = SmallVec<[Arrival; 2]>;

/// A datagram that arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::port) struct Arrival {
    pub(in crate::port) at: Instant,
    /// A router has marked it with "congestion experienced".
    pub(in crate::port) marked: bool,
    damage: Option<Damage>,
}

/// Damage to a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    /// This bit is flipped.
    Bit(usize),
    /// The datagram ends after this many bytes.
    End(usize),
}

/// Number of faults of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounters {
    /// Datagrams lost, by chance or in an outage.
    pub lost: u64,
    /// Datagrams duplicated.
    pub duplicated: u64,
    /// Datagrams delayed so that others overtake them.
    pub reordered: u64,
    /// Datagrams with a flipped bit.
    pub corrupted: u64,
    /// Datagrams truncated.
    pub truncated: u64,
    /// Datagrams marked for congestion. Datagrams without ECN support keep their traffic class.
    pub marked: u64,
    /// Datagrams lost to a full queue.
    pub overflowed: u64,
}

impl FaultCounters {
    /// Returns the sums of both.
    pub(in crate::port) fn plus(self, other: Self) -> Self {
        Self {
            lost: self.lost + other.lost,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            corrupted: self.corrupted + other.corrupted,
            truncated: self.truncated + other.truncated,
            marked: self.marked + other.marked,
            overflowed: self.overflowed + other.overflowed,
        }
    }
}

impl EmulatedLink {
    pub(in crate::port) fn new(seed: [u8; 32], min_reorder_window: Duration) -> Self {
        Self {
            rng: FaultRng::new(seed),
            min_reorder_window,
            is_bad: false,
            idle_at: Instant::ZERO,
            last_arrival: Instant::ZERO,
            counters: FaultCounters::default(),
        }
    }

    pub(in crate::port) fn counters(&self) -> FaultCounters {
        self.counters
    }

    /// Counts a datagram lost to a full queue.
    pub(in crate::port) fn count_overflow(&mut self) {
        self.counters.overflowed += 1;
    }

    /// Returns how long the sender's port is busy instead of taking a burst; `None` if it takes it.
    pub(in crate::port) fn busy_time(&mut self, conditions: &Conditions) -> Option<Duration> {
        self.rng.chance(conditions.refuse_send).then(|| self.rng.up_to(MAX_BUSY_TIME))
    }

    /// Sends a datagram of `len` bytes and returns the copies that arrive.
    pub(in crate::port) fn send(
        &mut self,
        now: Instant,
        conditions: &Conditions,
        len: usize,
    ) -> Copies {
        let Some(departure) = self.enqueue(now, conditions, len) else { return Copies::new() };
        if self.is_lost(now, conditions) {
            self.count_loss();
            return Copies::new();
        }
        let twice = self.rng.chance(conditions.duplicate);
        self.counters.duplicated += u64::from(twice);
        (0..1 + usize::from(twice)).map(|_| self.arrival(departure, conditions, len)).collect()
    }

    /// Queues a datagram and returns its departure; `None` if the queue is full.
    pub(in crate::port) fn enqueue(
        &mut self,
        now: Instant,
        conditions: &Conditions,
        len: usize,
    ) -> Option<Departure> {
        let queued = conditions.queued(self.idle_at.since(now));
        let exceeds = |limit: Option<u64>| limit.is_some_and(|limit| queued > limit.into());
        if exceeds(conditions.queue_bytes) {
            self.count_overflow();
            return None;
        }
        self.idle_at = self.idle_at.max(now) + conditions.serialization(len + IP_AND_UDP);
        Some(Departure { at: self.idle_at, marked: exceeds(conditions.mark_above_bytes) })
    }

    /// Counts a loss.
    pub(in crate::port) fn count_loss(&mut self) {
        self.counters.lost += 1;
    }

    /// Returns the arrival of a datagram that keeps its order.
    pub(in crate::port) fn in_order(&mut self, departure: Departure, delay: Duration) -> Arrival {
        self.last_arrival = self.last_arrival.max(departure.at + delay);
        Arrival { at: self.last_arrival, ..departure.delayed(Duration::ZERO) }
    }

    fn is_lost(&mut self, now: Instant, conditions: &Conditions) -> bool {
        if conditions.outages.covers(now.as_nanos()) || self.rng.chance(conditions.loss) {
            return true;
        }
        let bursts = &conditions.bursts;
        let turns = if self.is_bad { 1.0 / bursts.length.max(1.0) } else { bursts.begin };
        self.is_bad ^= self.rng.chance(turns);
        self.is_bad && self.rng.chance(bursts.loss)
    }

    fn arrival(&mut self, departure: Departure, conditions: &Conditions, len: usize) -> Arrival {
        let delayed = self.rng.chance(conditions.reorder);
        let mut delay = conditions.delay + self.rng.up_to(conditions.jitter);
        if delayed {
            delay += self.rng.up_to((conditions.delay * 2).max(self.min_reorder_window));
        }
        let flipped = self.rng.chance(conditions.corrupt);
        let flip = flipped.then(|| Damage::Bit(self.rng.covered_bit(len)));
        let cut = self.rng.chance(conditions.truncate) && len > 1;
        let end = cut.then(|| Damage::End(1 + self.rng.below(len - 1)));
        let marked = departure.marked || self.rng.chance(conditions.mark);
        let counters = &mut self.counters;
        counters.reordered += u64::from(delayed);
        counters.corrupted += u64::from(flipped && !cut);
        counters.truncated += u64::from(cut);
        counters.marked += u64::from(marked);
        let arrival = match delayed {
            true => departure.delayed(delay),
            false => self.in_order(departure, delay),
        };
        Arrival { marked, damage: end.or(flip), ..arrival }
    }
}

/// Departure of a datagram from the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::port) struct Departure {
    at: Instant,
    marked: bool,
}

impl Departure {
    /// Returns an arrival `delay` later; other datagrams may overtake it.
    pub(in crate::port) fn delayed(self, delay: Duration) -> Arrival {
        Arrival { at: self.at + delay, marked: self.marked, damage: None }
    }
}

impl Arrival {
    /// Returns whether a datagram that was sent now arrives undamaged and at once.
    pub(in crate::port) fn is_without_fault(&self, now: Instant) -> bool {
        *self == Self { at: now, marked: false, damage: None }
    }

    /// Returns the datagram as it arrives. It shares the bytes with the one that was sent, unless a bit is damaged.
    pub(in crate::port) fn damaged(&self, datagram: &Bytes) -> Bytes {
        match self.damage {
            Some(Damage::Bit(bit)) => {
                let mut damaged = BytesMut::from(&datagram[..]);
                if let Some(byte) = damaged.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                damaged.freeze()
            }
            Some(Damage::End(len)) => datagram.slice(..len.min(datagram.len())),
            None => datagram.clone(),
        }
    }

    /// Returns a traffic class as it arrives. Routers mark only datagrams whose sender has set one of the two ECN bits
    /// (RFC 3168, section 5).
    pub(in crate::port) fn traffic_class(&self, sent: u8) -> u8 {
        const ECN: u8 = 3;
        if self.marked && sent & ECN != 0 { sent | ECN } else { sent }
    }
}

/// Longest time that a port stays busy.
pub(in crate::port) const MAX_BUSY_TIME: Duration = Duration::from_micros(20);

/// Length of an IPv4 and a UDP header.
const IP_AND_UDP: usize = 28;

/// Seeded random numbers: the same seed and the same calls give the same results.
#[derive(Debug)]
struct FaultRng(ChaCha8Rng);

impl FaultRng {
    fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha8Rng::from_seed(seed))
    }

    /// Returns true with probability `p`.
    fn chance(&mut self, p: f64) -> bool {
        // The significand has 53 bits, so the quotient is exact and less than one.
        p > 0.0 && ((self.0.next_u64() >> 11) as f64) / ((1_u64 << 53) as f64) < p
    }

    /// Returns a number from 0 to `n - 1`; 0 if `n` is 0.
    fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        usize::try_from(self.0.next_u64() % n.max(1)).unwrap_or(0)
    }

    /// Returns a time from 1 ns to `longest`; zero if that is zero.
    fn up_to(&mut self, longest: Duration) -> Duration {
        match u64::try_from(longest.as_nanos()) {
            Ok(0) => Duration::ZERO,
            Ok(ns) => Duration::from_nanos(1 + self.0.next_u64() % ns),
            Err(_) => longest,
        }
    }

    /// Returns a bit of a datagram of `len` bytes, except those of the fifth byte: the ICRC does not cover it, so a
    /// flipped bit there is no corruption.
    fn covered_bit(&mut self, len: usize) -> usize {
        const UNCOVERED: usize = 4 * 8;
        let bit = self.below(len.saturating_sub(1) * 8);
        if bit < UNCOVERED { bit } else { bit + 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::conditions::{BurstLoss, Outages};
    use super::*;

    const NOW: Instant = Instant::from_micros(7);

    /// Returns the faults of 10,000 datagrams of 64 bytes.
    fn count(conditions: Conditions) -> (FaultCounters, Vec<Copies>) {
        let mut link = EmulatedLink::new([1; 32], Duration::ZERO);
        let copies = (0..10_000).map(|_| link.send(NOW, &conditions, 64)).collect();
        (link.counters(), copies)
    }

    #[test]
    fn faults_have_the_configured_probability() {
        let conditions = Conditions {
            loss: 0.1,
            duplicate: 0.2,
            corrupt: 0.3,
            truncate: 0.05,
            mark: 0.1,
            ..Conditions::default()
        };
        let (found, copies) = count(conditions);
        let near = |found: u64, expected: u64| found.abs_diff(expected) < expected / 10;
        assert!(near(found.lost, 1_000) && near(found.duplicated, 1_800), "{found:?}");
        let arrived = copies.iter().map(|copies| copies.len() as u64).sum::<u64>();
        assert_eq!(arrived, 10_000 - found.lost + found.duplicated);
        assert!(
            near(found.truncated, arrived / 20) && near(found.marked, arrived / 10),
            "{found:?}"
        );
        assert!(near(found.corrupted, arrived * 3 / 10 * 95 / 100), "{found:?}");
        for damage in copies.iter().flatten().filter_map(|copy| copy.damage) {
            match damage {
                Damage::Bit(bit) => assert!(bit < 64 * 8 && bit / 8 != 4, "{bit}"),
                Damage::End(len) => assert!((1..64).contains(&len), "{len}"),
            }
        }
    }

    #[test]
    fn certain_and_impossible_are_exact() {
        let (found, copies) = count(Conditions::default());
        assert_eq!(found, FaultCounters::default());
        assert!(copies.iter().all(|copies| copies.len() == 1 && copies[0].is_without_fault(NOW)));
        let (found, _) = count(Conditions { loss: 1.0, ..Conditions::default() });
        assert_eq!(found, FaultCounters { lost: 10_000, ..FaultCounters::default() });
    }

    /// The stationary share of bad periods is `begin / (begin + 1 / length)`.
    #[test]
    fn bursts_have_the_length_and_the_share_they_are_given() {
        let bursts = BurstLoss { begin: 0.01, length: 20.0, loss: 1.0 };
        let (found, copies) = count(Conditions { bursts, ..Conditions::default() });
        assert!((1_000..2_400).contains(&found.lost), "{found:?}: a sixth is 1,667");
        let begun =
            copies.windows(2).filter(|w| !w[0].is_empty() && w[1].is_empty()).count() as u64;
        assert!((14..28).contains(&(found.lost / begun)), "{found:?} in {begun} bursts");
        let bursts = BurstLoss { loss: 0.5, ..bursts };
        let (half, _) = count(Conditions { bursts, ..Conditions::default() });
        assert!((500..1_200).contains(&half.lost), "{half:?}: a twelfth is 833");
    }

    #[test]
    fn nothing_arrives_in_an_outage() {
        let outages = Outages { length: Duration::from_micros(1), every: Duration::from_micros(4) };
        let mut link = EmulatedLink::new([1; 32], Duration::ZERO);
        let conditions = Conditions { outages, ..Conditions::default() };
        let arrive = (0..8).map(|us| link.send(Instant::from_micros(us), &conditions, 64).len());
        assert_eq!(arrive.collect::<Vec<_>>(), [1, 1, 1, 0, 1, 1, 1, 0]);
        assert_eq!(link.counters().lost, 2);
    }

    #[test]
    fn a_queue_is_finite_and_marks_before_it_overflows() {
        // 100 bytes of IP packet take 100 ns.
        let conditions = Conditions {
            rate_bits_per_s: Some(8_000_000_000),
            queue_bytes: Some(350),
            mark_above_bytes: Some(150),
            ..Conditions::default()
        };
        let mut link = EmulatedLink::new([1; 32], Duration::ZERO);
        let found: Vec<_> = (0..6).map(|_| link.send(NOW, &conditions, 72)).collect();
        let at = |ns| NOW + Duration::from_nanos(ns);
        let expected = [(100, false), (200, false), (300, true), (400, true)];
        for ((ns, marked), copies) in expected.into_iter().zip(&found) {
            assert_eq!(copies[..], [Arrival { at: at(ns), marked, damage: None }]);
        }
        assert!(found[4].is_empty() && found[5].is_empty());
        assert_eq!(link.counters().overflowed, 2);
    }

    #[test]
    fn damage_is_one_bit_or_a_missing_end() {
        let unharmed = Departure { at: NOW, marked: false }.delayed(Duration::ZERO);
        let damaged = |damage| {
            Arrival { damage: Some(damage), ..unharmed }.damaged(&Bytes::from_static(&[0; 4]))
        };
        assert_eq!(damaged(Damage::Bit(17))[..], [0, 0, 2, 0]);
        assert_eq!(damaged(Damage::Bit(32))[..], [0, 0, 0, 0], "out of range does nothing");
        assert_eq!(damaged(Damage::End(3))[..], [0, 0, 0]);
        assert_eq!(unharmed.damaged(&Bytes::from_static(&[1, 2]))[..], [1, 2]);
    }

    #[test]
    fn only_ecn_capable_datagrams_are_marked() {
        let departure = Departure { at: NOW, marked: true };
        let marked = departure.delayed(Duration::ZERO);
        assert_eq!(
            [0x48, 0x49, 0x4a, 0x4b].map(|tc| marked.traffic_class(tc)),
            [0x48, 0x4b, 0x4b, 0x4b]
        );
        let calm = Arrival { marked: false, ..marked };
        assert_eq!(calm.traffic_class(0x4a), 0x4a);
    }
}
