//! A port that makes another one lose, repeat, delay, reorder and corrupt datagrams, from a seed.
//!
//! It works datagram by datagram, in both directions. A burst or buffer that nothing happens to is
//! passed on whole. Of one that something happens to, the datagrams are passed on one by one, and
//! since what leaves alone has IPv4 identification 0, they are sealed for that; a corrupted one is
//! corrupted after it was sealed. In a received buffer nothing is sealed: where the port sees no IP
//! header, the receiver finds a datagram's identification as it does for a stranger's.
//!
//! To capture what is on the wire, wrap the capture and not the other way round:
//! `Impair<Capture<UdpPort>>`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, SocketAddr};
#[cfg(unix)]
use std::os::fd::RawFd;

use smallvec::SmallVec;

use super::chance::{Arrival, Dice, Faults};
use super::{JoinError, LinkState, Port, PortCounters, PortInfo, TransmitError};
use crate::ids::Gid;
use crate::net::{Burst, Ipv4Fields, Path, ROCE_PORT, RxBuffer, RxMeta};
use crate::time::Instant;
use crate::wire::icrc::Flow;

mod spec;

pub use spec::{Impairments, Side, SpecError};

/// Datagrams that each direction holds back at most; what comes on top is lost.
const MAX_HELD: usize = 8192;

/// A port that impairs what another carries.
///
/// Delayed datagrams are passed on by calls of [`transmit`](Port::transmit) and
/// [`receive`](Port::receive) at or after [`poll_timeout`](Port::poll_timeout).
#[derive(Debug)]
pub struct Impair<P> {
    port: P,
    received: Option<Lane<RxMeta>>,
    sent: Option<Lane<Path>>,
    /// The inner port had no room for a datagram that is due.
    blocked: bool,
    /// A datagram on its way out.
    single: Burst,
    scratch: Vec<u8>,
}

/// How often what happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImpairCounters {
    /// Datagrams lost, by chance.
    pub lost: u64,
    /// Datagrams repeated.
    pub duplicated: u64,
    /// Datagrams held back.
    pub reordered: u64,
    /// Datagrams corrupted.
    pub corrupted: u64,
    /// Datagrams lost because too many were held back.
    pub overflowed: u64,
}

impl<P: Port> Impair<P> {
    /// Impairs `port`.
    pub fn new(port: P, impairments: &Impairments) -> Self {
        let ip = port.info().ip;
        let lane = |side| {
            let wanted = [side, Side::Both].contains(&impairments.side);
            wanted.then(|| (seed(impairments.seed, ip, side), impairments.faults()))
        };
        Self {
            port,
            received: lane(Side::Receive).map(|(seed, faults)| Lane::new(seed, faults)),
            sent: lane(Side::Transmit).map(|(seed, faults)| Lane::new(seed, faults)),
            blocked: false,
            single: Burst::new(),
            scratch: Vec::new(),
        }
    }

    /// How often what has happened, in both directions together.
    pub fn impaired(&self) -> ImpairCounters {
        let received = self.received.as_ref().map(|lane| lane.counters).unwrap_or_default();
        let sent = self.sent.as_ref().map(|lane| lane.counters).unwrap_or_default();
        ImpairCounters {
            lost: received.lost + sent.lost,
            duplicated: received.duplicated + sent.duplicated,
            reordered: received.reordered + sent.reordered,
            corrupted: received.corrupted + sent.corrupted,
            overflowed: received.overflowed + sent.overflowed,
        }
    }

    /// The port inside.
    pub fn inner(&self) -> &P {
        &self.port
    }

    /// Sends what is due, as far as the inner port takes it.
    fn release(&mut self, now: Instant) {
        self.blocked = false;
        let Some(lane) = &mut self.sent else { return };
        while let Some(held) = lane.pop_due(now) {
            self.single.reset(held.meta, Default::default());
            self.single.push(held.datagram.len()).copy_from_slice(&held.datagram);
            // What the port refuses is lost: whoever sent it was told that it had left.
            if self.port.transmit(now, std::slice::from_ref(&self.single)) == Ok(0) {
                lane.held.push(Reverse(held));
                self.blocked = true;
                return;
            }
        }
    }
}

/// A stream of chance for each port and direction.
fn seed(number: u64, ip: IpAddr, side: Side) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed[8..24].copy_from_slice(&Gid::from(ip).0);
    seed[24] = u8::from(side == Side::Transmit);
    seed
}

impl<P: Port> Port for Impair<P> {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        self.release(now);
        for (taken, burst) in bursts.iter().enumerate() {
            if self.blocked {
                return Ok(taken);
            }
            let Some(lane) = &mut self.sent else {
                let rest = self.port.transmit(now, &bursts[taken..]);
                return rest
                    .map(|more| taken + more)
                    .map_err(|error| TransmitError { taken: taken + error.taken, ..error });
            };
            let fates = lane.roll(burst.segments());
            if fates.is_empty() {
                match self.port.transmit(now, std::slice::from_ref(burst)) {
                    Ok(0) => return Ok(taken),
                    Ok(_) => continue,
                    Err(error) => return Err(TransmitError { taken, ..error }),
                }
            }
            for (index, (datagram, copies)) in burst.segments().zip(&fates).enumerate() {
                self.scratch.clear();
                self.scratch.extend_from_slice(datagram);
                if index > 0 {
                    flow(&burst.path).seal(0, &mut self.scratch);
                }
                lane.hold(now, copies, &self.scratch, burst.path);
            }
            self.release(now);
        }
        Ok(bursts.len())
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        self.release(now);
        let Some(lane) = &mut self.received else { return self.port.receive(now, sink) };
        let mut count = lane.deliver(now, sink);
        self.port.receive(now, &mut |rx| {
            let fates = lane.roll(rx.segments());
            if fates.is_empty() {
                sink(rx);
                count += 1;
                return;
            }
            for (index, (datagram, copies)) in (0..).zip(rx.segments().zip(&fates)) {
                let after =
                    |first: Ipv4Fields| Ipv4Fields { id: first.id.wrapping_add(index), ..first };
                let meta = RxMeta { ipv4: rx.meta.ipv4.map(after), ..rx.meta };
                lane.hold(now, copies, datagram, meta);
            }
            count += lane.deliver(now, sink);
        })?;
        Ok(count)
    }

    fn source_port(&mut self, wanted: u16) -> u16 {
        self.port.source_port(wanted)
    }

    fn tell_ip_fields(&mut self) {
        self.port.tell_ip_fields();
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        self.port.join(group)
    }

    fn leave(&mut self, group: IpAddr) {
        self.port.leave(group);
    }

    fn poll_link(&mut self) -> Option<LinkState> {
        self.port.poll_link()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let received = self.received.as_ref().and_then(Lane::next);
        // A blocked port says itself when to try again.
        let sent = self.sent.as_ref().filter(|_| !self.blocked).and_then(Lane::next);
        [self.port.poll_timeout(), received, sent].into_iter().flatten().min()
    }

    fn info(&self) -> PortInfo {
        self.port.info()
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }

    #[cfg(unix)]
    fn descriptors(&self) -> SmallVec<[RawFd; 4]> {
        self.port.descriptors()
    }
}

fn flow(path: &Path) -> Flow {
    let destination = SocketAddr::new(path.destination, ROCE_PORT);
    Flow::new(SocketAddr::new(path.source, path.source_port), destination)
}

/// One direction: its chances, and what it holds back.
#[derive(Debug)]
struct Lane<M> {
    faults: Faults,
    dice: Dice,
    held: BinaryHeap<Reverse<Held<M>>>,
    order: u64,
    /// When the last is due of those that keep their order.
    last_due: Instant,
    counters: ImpairCounters,
}

/// A datagram to be passed on later, or now.
#[derive(Debug)]
struct Held<M> {
    due: Instant,
    order: u64,
    datagram: Vec<u8>,
    meta: M,
}

/// What happens to each datagram of a buffer; none when nothing happens to any.
type Fates = Vec<SmallVec<[Arrival; 2]>>;

impl<M: Copy> Lane<M> {
    fn new(seed: [u8; 32], faults: Faults) -> Self {
        Self {
            faults,
            dice: Dice::new(seed),
            held: BinaryHeap::new(),
            order: 0,
            last_due: Instant::ZERO,
            counters: ImpairCounters::default(),
        }
    }

    fn roll<'a>(&mut self, datagrams: impl Iterator<Item = &'a [u8]>) -> Fates {
        let mut fates: Fates = datagrams.map(|d| self.dice.roll(&self.faults, d.len())).collect();
        if fates.iter().all(|copies| copies[..] == [Arrival::UNHARMED]) {
            fates.clear();
        }
        fates
    }

    /// Takes in the copies of a datagram.
    fn hold(&mut self, now: Instant, copies: &[Arrival], datagram: &[u8], meta: M) {
        self.counters.lost += u64::from(copies.is_empty());
        self.counters.duplicated += u64::from(copies.len() > 1);
        for copy in copies {
            if self.held.len() >= MAX_HELD {
                self.counters.overflowed += 1;
                continue;
            }
            self.counters.reordered += u64::from(copy.held);
            self.counters.corrupted += u64::from(copy.flip.is_some());
            let mut due = now + copy.delay;
            if !copy.held {
                self.last_due = self.last_due.max(due);
                due = self.last_due;
            }
            let mut datagram = datagram.to_vec();
            copy.damage(&mut datagram);
            self.order += 1;
            self.held.push(Reverse(Held { due, order: self.order, datagram, meta }));
        }
    }

    fn pop_due(&mut self, now: Instant) -> Option<Held<M>> {
        self.next().filter(|due| *due <= now)?;
        self.held.pop().map(|Reverse(held)| held)
    }

    fn next(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse(held)| held.due)
    }
}

impl Lane<RxMeta> {
    /// Passes on what is due, and says how many there were.
    fn deliver(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> usize {
        let mut count = 0;
        while let Some(held) = self.pop_due(now) {
            let segment_len = held.datagram.len();
            sink(RxBuffer { data: &held.datagram, segment_len, meta: held.meta });
            count += 1;
        }
        count
    }
}

impl<M> Ord for Held<M> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl<M> PartialOrd for Held<M> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> PartialEq for Held<M> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<M> Eq for Held<M> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::time::Duration;

    use super::super::sim::{Conditions, HostConfig, Network, SimPort};
    use super::*;
    use crate::net::BurstToken;
    use crate::wire::icrc::Verdict;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const PATH: Path =
        Path { source: A, destination: B, source_port: 0xc123, traffic_class: 0, hop_limit: 64 };

    fn us(n: u64) -> Instant {
        Instant::from_micros(n)
    }

    /// Sealed segments that start with `first`, `first + 1`, ...
    fn burst(first: u8, segments: u8) -> Burst {
        let mut burst = Burst::new();
        burst.reset(PATH, BurstToken(0));
        for i in 0..segments {
            let segment = burst.push(40);
            segment.fill(first + i);
            flow(&PATH).seal(i.into(), segment);
        }
        burst
    }

    #[test]
    fn groups_are_joined_through_it() {
        let group = [239, 1, 2, 3].into();
        let network = Network::new(0);
        let mut a = network.host(A);
        let all = Impairments { duplicate: 1.0, ..Impairments::default() };
        let mut b: Box<dyn Port> = Box::new(Impair::new(network.host(B), &all));
        b.join(group).unwrap();
        let mut received = |now| {
            let mut to_group = burst(0, 1);
            to_group.path.destination = group;
            assert_eq!(a.transmit(us(now), &[to_group]), Ok(1));
            let mut count = 0;
            b.receive(us(now), &mut |rx| {
                assert_eq!(rx.meta.destination, group);
                count += 1;
            })
            .unwrap();
            if now == 0 {
                b.leave(group);
            }
            count
        };
        assert_eq!((received(0), received(100)), (2, 0));
    }

    /// A and B, of which one is impaired.
    fn pair(spec: &str, host: HostConfig) -> (Network, Impair<SimPort>, Impair<SimPort>) {
        let network = Network::new(0);
        let impairments: Impairments = spec.parse().unwrap();
        let (a, b) = (network.host(A), network.host_with(B, host));
        let (near, far) = match impairments.side {
            Side::Transmit => (impairments, Impairments::default()),
            _ => (Impairments::default(), impairments),
        };
        (network, Impair::new(a, &near), Impair::new(b, &far))
    }

    /// What is received at `now`: a list a buffer of the first byte and the ICRC's verdict.
    fn received(port: &mut dyn Port, now: Instant) -> Vec<Vec<(u8, Verdict)>> {
        let mut buffers = Vec::new();
        let mut take = |rx: RxBuffer<'_>| {
            let verdict = |(i, d): (u16, &[u8])| (d[0], flow(&PATH).check(rx.meta.ipv4, i, d));
            buffers.push((0..).zip(rx.segments()).map(verdict).collect());
        };
        while port.receive(now, &mut take).unwrap() > 0 {}
        buffers
    }

    fn firsts(buffers: &[Vec<(u8, Verdict)>]) -> Vec<u8> {
        buffers.iter().flatten().map(|(first, _)| *first).collect()
    }

    #[test]
    fn untouched_bursts_and_buffers_stay_whole() {
        for dir in ["rx", "tx"] {
            let spec = format!("loss=0.1,dir={dir},seed=3");
            let (network, mut a, mut b) = pair(&spec, HostConfig::default());
            let mut whole = 0;
            for i in 0..20 {
                assert_eq!(a.transmit(us(i), &[burst(0, 3)]), Ok(1));
                whole += received(&mut b, us(i)).iter().filter(|buffer| buffer.len() == 3).count();
            }
            assert!((10..20).contains(&whole), "{whole}");
            assert_eq!(network.next_event(), None);
        }
    }

    #[test]
    fn what_passes_a_lossy_port_is_valid_and_the_rest_is_counted() {
        for (dir, sees_ip_header) in [("rx", false), ("rx", true), ("tx", false), ("tx", true)] {
            let host = HostConfig { sees_ip_header, ..HostConfig::default() };
            let (_network, mut a, mut b) = pair(&format!("loss=0.3,dup=0.2,dir={dir}"), host);
            assert_eq!(a.transmit(us(0), &[burst(0, 60), burst(60, 60)]), Ok(2));
            let buffers = received(&mut b, us(0));
            let bad = buffers.iter().flatten().filter(|(_, v)| *v == Verdict::Bad).count();
            assert_eq!(bad, 0);
            let counters = if dir == "tx" { a.impaired() } else { b.impaired() };
            let arrived = firsts(&buffers).len() as u64;
            assert_eq!(arrived, 120 - counters.lost + counters.duplicated);
            assert!(counters.lost > 20 && counters.duplicated > 10, "{counters:?}");
            assert!(firsts(&buffers).is_sorted());
        }
    }

    #[test]
    fn corruption_does_not_pass_the_icrc() {
        for dir in ["rx", "tx"] {
            let spec = format!("corrupt=0.5,dir={dir}");
            let (_network, mut a, mut b) = pair(&spec, HostConfig::default());
            assert_eq!(a.transmit(us(0), &[burst(0, 60)]), Ok(1));
            let buffers = received(&mut b, us(0));
            let bad = buffers.iter().flatten().filter(|(_, v)| *v == Verdict::Bad).count();
            let corrupted = a.impaired().corrupted + b.impaired().corrupted;
            assert_eq!(bad as u64, corrupted);
            assert!((15..45).contains(&bad), "{bad}");
        }
    }

    #[test]
    fn delayed_datagrams_come_when_due() {
        for dir in ["rx", "tx"] {
            let spec = format!("delay=5us,dir={dir}");
            let (_network, mut a, mut b) = pair(&spec, HostConfig::default());
            assert_eq!(a.transmit(us(1), &[burst(0, 2)]), Ok(1));
            assert_eq!(a.transmit(us(2), &[burst(2, 1)]), Ok(1));
            let mut log = Vec::new();
            for t in 1..10 {
                assert_eq!(a.transmit(us(t), &[]), Ok(0));
                log.push(firsts(&received(&mut b, us(t))));
            }
            let expected: [&[u8]; 9] = [&[], &[], &[], &[], &[], &[0, 1], &[2], &[], &[]];
            assert_eq!(log, expected, "{dir}");
        }
    }

    #[test]
    fn held_back_datagrams_are_overtaken_and_none_is_lost() {
        for dir in ["rx", "tx"] {
            let spec = format!("reorder=0.3,dir={dir}");
            let (network, mut a, mut b) = pair(&spec, HostConfig::default());
            assert_eq!(a.transmit(us(0), &[burst(0, 50)]), Ok(1));
            let mut order = firsts(&received(&mut b, us(0)));
            let timeouts = |a: &dyn Port, b: &dyn Port| {
                [a.poll_timeout(), b.poll_timeout(), network.next_event()]
                    .into_iter()
                    .flatten()
                    .min()
            };
            while let Some(now) = timeouts(&a, &b) {
                assert!(now <= us(200));
                assert_eq!(a.transmit(now, &[]), Ok(0));
                order.extend(firsts(&received(&mut b, now)));
            }
            assert!(!order.is_sorted());
            assert_eq!((order.len(), order.iter().collect::<BTreeSet<_>>().len()), (50, 50));
        }
    }

    #[test]
    fn a_busy_port_keeps_what_is_due_and_no_more_is_taken() {
        let (network, mut a, mut b) = pair("delay=1us,dir=tx", HostConfig::default());
        assert_eq!(a.transmit(us(0), &[burst(0, 2)]), Ok(1));
        network.set_conditions(Conditions { refuse_send: 1.0, ..Conditions::default() });
        assert_eq!(a.transmit(us(1), &[burst(2, 1)]), Ok(0));
        let again = a.poll_timeout().unwrap();
        assert!(again > us(1), "not at once: {again:?}");
        network.set_conditions(Conditions::default());
        assert_eq!(a.transmit(again, &[burst(2, 1)]), Ok(1));
        assert_eq!(firsts(&received(&mut b, again)), [0, 1]);
        let due = again + Duration::from_micros(1);
        assert_eq!(a.transmit(due, &[]), Ok(0));
        assert_eq!(firsts(&received(&mut b, due)), [2]);
    }

    #[test]
    fn the_seed_decides_and_addresses_differ() {
        let run = |spec: &str, swap: bool| {
            let network = Network::new(0);
            let impairments = spec.parse().unwrap();
            let (from, to) = if swap { (B, A) } else { (A, B) };
            let mut a = Impair::new(network.host(from), &impairments);
            let mut b = network.host(to);
            let mut burst = burst(0, 50);
            burst.path = Path { source: from, destination: to, ..PATH };
            assert_eq!(a.transmit(us(0), &[burst]), Ok(1));
            firsts(&received(&mut b, us(0)))
        };
        assert_eq!(run("loss=0.5,seed=1", false), run("loss=0.5,seed=1", false));
        assert_ne!(run("loss=0.5,seed=1", false), run("loss=0.5,seed=2", false));
        assert_ne!(run("loss=0.5,seed=1", false), run("loss=0.5,seed=1", true));
    }
}
