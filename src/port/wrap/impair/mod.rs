//! Middleware that emulates a bad network: [`Conditions`], drawn from a seed.
//!
//! It decides for each datagram, in both directions. It passes on a burst or buffer in one piece if no datagram of it
//! has a fault. Otherwise it passes the datagrams on one by one. A datagram that is sent alone has IPv4 identification
//! 0, so the emulator seals it for that before it corrupts it. It does not seal received datagrams, unless they have no
//! ICRC: where the port sees no IP header, the receiver finds the identification by the ICRC.
//!
//! To capture the packets on the wire, wrap the capture: `Impair<Capture<UdpPort>>`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;

use super::layer::{Layer, Middleware};
use crate::ids::Gid;
use crate::net::{Burst, Ipv4Fields, Path, ROCE_PORT, RxBuffer, RxMeta};
use crate::port::counters::PortCounters;
use crate::port::shared::conditions::Conditions;
use crate::port::shared::emulated_link::{Copies, EmulatedLink};
use crate::port::traits::{Datapath, Port, TransmitError};
use crate::time::Instant;
use crate::wire::icrc::{self, Flow};

mod spec;

pub use crate::port::shared::emulated_link::FaultCounters;
pub use spec::{Impairments, Side, SpecError};

/// Maximum number of delayed datagrams in each direction; those beyond are lost.
const MAX_DELAYED_DATAGRAMS: usize = 8192;

/// A port with a link emulator in its datapath.
///
/// [`transmit`](Datapath::transmit) and [`receive`](Datapath::receive) pass on delayed datagrams at or after
/// [`poll_timeout`](Datapath::poll_timeout).
pub type Impair<P> = Layer<P, LinkEmulator>;

/// The [`Middleware`] of an [`Impair`] port: loses, delays, duplicates and damages datagrams.
#[derive(Debug)]
pub struct LinkEmulator {
    received: Option<EmulatedDirection<RxMeta>>,
    sent: Option<EmulatedDirection<Path>>,
    /// The port below had no room for a due datagram.
    blocked: bool,
    /// Time until which the emulator takes no bursts.
    busy_until: Option<Instant>,
    refused: u64,
    /// A datagram that is sent alone.
    single: Burst,
    scratch: Vec<u8>,
}

impl<P: Port> Impair<P> {
    /// Wraps `port`.
    pub fn new(mut port: P, impairments: &Impairments) -> Self {
        let emulator = LinkEmulator::new(port.info().ip, impairments);
        if emulator.received.as_ref().is_some_and(|direction| direction.conditions.marks()) {
            // The traffic class of a datagram says whether routers may mark it.
            port.report_ip_fields();
        }
        Self::over(port, emulator)
    }

    /// Returns the number of faults so far, in both directions together.
    pub fn impaired(&self) -> FaultCounters {
        self.middleware.impaired()
    }
}

impl LinkEmulator {
    fn new(ip: IpAddr, impairments: &Impairments) -> Self {
        let conditions = impairments.conditions;
        let wants = |side| [side, Side::Both].contains(&impairments.side);
        let link = |side| EmulatedLink::new(seed(impairments.seed, ip, side), MIN_REORDER_WINDOW);
        Self {
            received: wants(Side::Receive)
                .then(|| EmulatedDirection::new(link(Side::Receive), conditions)),
            sent: wants(Side::Transmit)
                .then(|| EmulatedDirection::new(link(Side::Transmit), conditions)),
            blocked: false,
            busy_until: None,
            refused: 0,
            single: Burst::new(),
            scratch: Vec::new(),
        }
    }

    fn impaired(&self) -> FaultCounters {
        let received = self.received.as_ref().map(|direction| direction.link.counters());
        let sent = self.sent.as_ref().map(|direction| direction.link.counters());
        received.unwrap_or_default().plus(sent.unwrap_or_default())
    }

    /// Returns whether the emulator is busy instead of taking a burst.
    fn is_busy(&mut self, now: Instant) -> bool {
        self.busy_until = self.busy_until.filter(|until| *until > now);
        if self.busy_until.is_none() {
            let time = self
                .sent
                .as_mut()
                .and_then(|direction| direction.link.busy_time(&direction.conditions));
            self.busy_until = time.map(|time| now + time);
        }
        self.refused += u64::from(self.busy_until.is_some());
        self.busy_until.is_some()
    }

    /// Sends due datagrams, as far as the port below takes them.
    fn release(&mut self, below: &mut impl Datapath, now: Instant) {
        self.blocked = false;
        let Some(direction) = &mut self.sent else { return };
        while let Some(delayed) = direction.pop_due(now) {
            self.single.reset(delayed.meta, Default::default());
            self.single.push(delayed.datagram.len()).copy_from_slice(&delayed.datagram);
            // A refused datagram is lost: its sender was told that it was sent.
            if below.transmit(now, std::slice::from_ref(&self.single)) == Ok(0) {
                direction.delayed.push(Reverse(delayed));
                self.blocked = true;
                return;
            }
        }
    }
}

/// Returns a seed for each port and direction.
fn seed(number: u64, ip: IpAddr, side: Side) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed[8..24].copy_from_slice(&Gid::from(ip).0);
    seed[24] = u8::from(side == Side::Transmit);
    seed
}

impl Middleware for LinkEmulator {
    fn transmit(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        bursts: &[Burst],
    ) -> Result<usize, TransmitError> {
        self.release(below, now);
        for (taken, burst) in bursts.iter().enumerate() {
            if self.blocked || self.is_busy(now) {
                return Ok(taken);
            }
            let Some(direction) = &mut self.sent else {
                let rest = below.transmit(now, &bursts[taken..]);
                return rest.map(|more| taken + more).map_err(|error| error.behind(taken));
            };
            let outcomes = direction.draw(now, burst.segments());
            if outcomes.is_empty() {
                match below.transmit(now, std::slice::from_ref(burst)) {
                    Ok(0) => return Ok(taken),
                    Ok(_) => continue,
                    Err(error) => return Err(TransmitError { taken, ..error }),
                }
            }
            for (index, (datagram, copies)) in burst.segments().zip(&outcomes).enumerate() {
                self.scratch.clear();
                self.scratch.extend_from_slice(datagram);
                if index > 0 || icrc::is_omitted(datagram) {
                    Flow::of_path(&burst.path).seal(0, &mut self.scratch);
                }
                direction.enqueue(copies, &self.scratch, burst.path);
            }
            self.release(below, now);
        }
        Ok(bursts.len())
    }

    /// Sends the packet only if the emulator does not delay packets.
    fn send_last(&mut self, below: &mut impl Datapath, burst: &Burst) {
        if self.sent.is_none() {
            below.send_last(burst);
        }
    }

    fn receive(
        &mut self,
        below: &mut impl Datapath,
        now: Instant,
        sink: &mut dyn FnMut(RxBuffer<'_>),
    ) -> io::Result<usize> {
        self.release(below, now);
        let Some(direction) = &mut self.received else { return below.receive(now, sink) };
        let mut count = direction.deliver(now, sink);
        below.receive(now, &mut |rx| {
            let outcomes = direction.draw(now, rx.segments());
            if outcomes.is_empty() {
                sink(rx);
                count += 1;
                return;
            }
            for (index, (datagram, copies)) in (0..).zip(rx.segments().zip(&outcomes)) {
                let after =
                    |first: Ipv4Fields| Ipv4Fields { id: first.id.wrapping_add(index), ..first };
                let meta = RxMeta { ipv4: rx.meta.ipv4.map(after), ..rx.meta };
                if !icrc::is_exempt(&meta, datagram) {
                    direction.enqueue(copies, datagram, meta);
                    continue;
                }
                self.scratch.clear();
                self.scratch.extend_from_slice(datagram);
                let destination = SocketAddr::new(meta.destination, ROCE_PORT);
                Flow::new(meta.source, destination).seal(0, &mut self.scratch);
                let meta = RxMeta { may_omit_icrc: false, ..meta };
                direction.enqueue(copies, &self.scratch, meta);
            }
            count += direction.deliver(now, sink);
        })?;
        Ok(count)
    }

    /// Reports nothing: datagrams that the emulator delays are in no receive queue.
    fn receive_queue_bytes(
        &mut self,
        _below: &mut impl Datapath,
        _now: Instant,
        _to: IpAddr,
    ) -> Option<u64> {
        None
    }

    fn poll_timeout(&self, below: &impl Datapath) -> Option<Instant> {
        let received = self.received.as_ref().and_then(EmulatedDirection::next);
        // A blocked port says itself when to try again.
        let sent = self.sent.as_ref().filter(|_| !self.blocked).and_then(EmulatedDirection::next);
        [below.poll_timeout(), received, sent, self.busy_until].into_iter().flatten().min()
    }

    fn counters(&self, below: PortCounters) -> PortCounters {
        PortCounters { busy: below.busy + self.refused, ..below }
    }
}

/// Minimum of the longest delay of a reordered datagram.
const MIN_REORDER_WINDOW: Duration = Duration::from_micros(200);

/// One direction: its emulated link, and delayed datagrams.
#[derive(Debug)]
struct EmulatedDirection<M> {
    conditions: Conditions,
    link: EmulatedLink,
    delayed: BinaryHeap<Reverse<DelayedDatagram<M>>>,
    order: u64,
}

/// A datagram to pass on at `due`.
#[derive(Debug)]
struct DelayedDatagram<M> {
    due: Instant,
    order: u64,
    datagram: Bytes,
    meta: M,
}

/// Copies of each datagram of a buffer; empty if no datagram has a fault.
type Outcomes = Vec<Copies>;

/// Properties of a datagram besides its bytes.
trait Meta: Copy {
    fn traffic_class(&mut self) -> &mut u8;
}

impl Meta for Path {
    fn traffic_class(&mut self) -> &mut u8 {
        &mut self.traffic_class
    }
}

impl Meta for RxMeta {
    fn traffic_class(&mut self) -> &mut u8 {
        &mut self.traffic_class
    }
}

impl<M: Meta> EmulatedDirection<M> {
    fn new(link: EmulatedLink, conditions: Conditions) -> Self {
        Self { conditions, link, delayed: BinaryHeap::new(), order: 0 }
    }

    fn draw<'a>(&mut self, now: Instant, datagrams: impl Iterator<Item = &'a [u8]>) -> Outcomes {
        let send = |d: &[u8]| self.link.send(now, &self.conditions, d.len());
        let mut outcomes: Outcomes = datagrams.map(send).collect();
        if outcomes.iter().all(|copies| copies.len() == 1 && copies[0].is_without_fault(now)) {
            outcomes.clear();
        }
        outcomes
    }

    /// Queues the copies of a datagram.
    fn enqueue(&mut self, copies: &Copies, datagram: &[u8], meta: M) {
        let datagram = Bytes::copy_from_slice(datagram);
        for copy in copies {
            if self.delayed.len() >= MAX_DELAYED_DATAGRAMS {
                self.link.count_overflow();
                continue;
            }
            let mut meta = meta;
            let traffic_class = meta.traffic_class();
            *traffic_class = copy.traffic_class(*traffic_class);
            self.order += 1;
            let (due, datagram) = (copy.at, copy.damaged(&datagram));
            self.delayed.push(Reverse(DelayedDatagram { due, order: self.order, datagram, meta }));
        }
    }
}

impl<M> EmulatedDirection<M> {
    fn pop_due(&mut self, now: Instant) -> Option<DelayedDatagram<M>> {
        self.next().filter(|due| *due <= now)?;
        self.delayed.pop().map(|Reverse(delayed)| delayed)
    }

    fn next(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse(delayed)| delayed.due)
    }
}

impl EmulatedDirection<RxMeta> {
    /// Passes on due datagrams and returns their number.
    fn deliver(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> usize {
        let mut count = 0;
        while let Some(delayed) = self.pop_due(now) {
            let segment_len = delayed.datagram.len();
            sink(RxBuffer { data: &delayed.datagram, segment_len, meta: delayed.meta });
            count += 1;
        }
        count
    }
}

impl<M> Ord for DelayedDatagram<M> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl<M> PartialOrd for DelayedDatagram<M> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> PartialEq for DelayedDatagram<M> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<M> Eq for DelayedDatagram<M> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;
    use crate::net::BurstToken;
    use crate::port::sim::{HostConfig, Network, SimPort};
    use crate::wire::icrc::Verdict;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const PATH: Path =
        Path { source: A, destination: B, source_port: 0xc123, traffic_class: 0, hop_limit: 64 };

    fn us(n: u64) -> Instant {
        Instant::from_micros(n)
    }

    /// Returns sealed segments that start with `first`, `first + 1`, ...
    fn burst(first: u8, segments: u8) -> Burst {
        let mut burst = Burst::new();
        burst.reset(PATH, BurstToken(0));
        for i in 0..segments {
            let segment = burst.push(40);
            segment.fill(first + i);
            Flow::of_path(&PATH).seal(i.into(), segment);
        }
        burst
    }

    #[test]
    fn groups_are_joined_through_it() {
        let group = [239, 1, 2, 3].into();
        let network = Network::new(0);
        let mut a = network.host(A);
        let all: Impairments = "dup=1".parse().unwrap();
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

    /// Returns the ports of A and B, of which one is impaired.
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

    /// Returns the buffers received at `now`: first byte and ICRC verdict of each datagram.
    fn received(port: &mut dyn Port, now: Instant) -> Vec<Vec<(u8, Verdict)>> {
        let mut buffers = Vec::new();
        let mut take = |rx: RxBuffer<'_>| {
            let verdict =
                |(i, d): (u16, &[u8])| (d[0], Flow::of_path(&PATH).check(rx.meta.ipv4, i, d));
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
    fn lossy_port_passes_valid_datagrams_and_counts_losses() {
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
    fn corruption_of_a_datagram_without_icrc_is_noticed() {
        for dir in ["rx", "tx"] {
            let host = HostConfig { omits_icrcs: true, ..HostConfig::default() };
            let (_network, mut a, mut b) = pair(&format!("corrupt=0.5,dir={dir}"), host);
            let mut omitting = burst(0, 0).omitting_icrcs(true);
            for first in 0..60 {
                let datagram = omitting.push(40);
                datagram.fill(first);
                icrc::omit(datagram);
            }
            assert_eq!(a.transmit(us(0), &[omitting]), Ok(1));
            let (mut good, mut bad) = (0, 0);
            let mut take = |rx: RxBuffer<'_>| {
                for (index, datagram) in (0..).zip(rx.segments()) {
                    let verdict = Flow::of_path(&PATH).check_received(&rx.meta, index, datagram);
                    let is_good = verdict != Verdict::Bad;
                    *if is_good { &mut good } else { &mut bad } += 1;
                }
            };
            while b.receive(us(0), &mut take).unwrap() > 0 {}
            assert_eq!(good + bad, 60);
            assert_eq!(bad, a.impaired().corrupted + b.impaired().corrupted);
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
    fn a_port_that_refuses_says_when_to_try_again() {
        let (_network, mut a, mut b) = pair("refuse=1,dir=tx", HostConfig::default());
        assert_eq!(a.transmit(us(3), &[burst(0, 1)]), Ok(0));
        let again = a.poll_timeout().unwrap();
        assert!(again > us(3) && again <= us(23), "{again:?}");
        assert_eq!((received(&mut b, us(30)).len(), a.counters().busy), (0, 1));
    }

    #[test]
    fn a_slow_link_spreads_a_burst_and_loses_what_its_queue_does_not_hold() {
        for dir in ["rx", "tx"] {
            // A packet of 40 bytes with its IP and UDP headers takes 68 µs.
            let spec = format!("rate=8mbit,queue=210,dir={dir}");
            let (network, mut a, mut b) = pair(&spec, HostConfig::default());
            assert_eq!(a.transmit(us(0), &[burst(0, 6)]), Ok(1));
            let mut log = Vec::new();
            for t in [0, 67, 68, 136, 204, 272, 340] {
                assert_eq!(a.transmit(us(t), &[]), Ok(0));
                log.push(firsts(&received(&mut b, us(t))));
            }
            let expected: [&[u8]; 7] = [&[], &[], &[0], &[1], &[2], &[3], &[]];
            assert_eq!(log, expected, "{dir}");
            assert_eq!(a.impaired().overflowed + b.impaired().overflowed, 2);
            assert_eq!(network.next_event(), None);
        }
    }

    #[test]
    fn emulator_marks_ecn_capable_datagrams() {
        for dir in ["rx", "tx"] {
            let (_network, mut a, mut b) =
                pair(&format!("mark=1,dir={dir}"), HostConfig::default());
            for (sent, arrived) in [(0x48, 0x48), (0x4a, 0x4b)] {
                let mut burst = burst(0, 1);
                burst.path.traffic_class = sent;
                assert_eq!(a.transmit(us(0), &[burst]), Ok(1));
                let mut found = None;
                b.receive(us(0), &mut |rx| found = Some(rx.meta.traffic_class)).unwrap();
                assert_eq!(found, Some(arrived), "{dir}");
            }
        }
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
