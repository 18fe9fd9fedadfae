//! A network in virtual time, with seeded faults.
//!
//! A host is an address. Every ordered pair of hosts is a link with [`Conditions`] and a random stream of its own, so
//! traffic on one link does not change the faults on another. The ports tell the network the time: a port receives a
//! datagram by a call at or after its arrival. A datagram to a multicast group takes the link to each host that has
//! [joined](Control::join) it, the sender included.
//!
//! ```
//! use softroce::port::{Control, Datapath, sim};
//! use softroce::net::{Burst, BurstToken, Path, ROCE_PORT};
//! use softroce::time::Instant;
//!
//! let network = sim::Network::new(1);
//! let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
//! let (mut near, mut far) = (network.host(a), network.host(b));
//!
//! let mut burst = Burst::new();
//! let source_port = near.source_port(a, 0xc000);
//! let path = Path { source: a, destination: b, source_port, traffic_class: 0, hop_limit: 64 };
//! burst.reset(path, BurstToken(0));
//! burst.push(20).fill(7);
//! near.transmit(Instant::ZERO, &[burst])?;
//!
//! let arrival = network.next_event().expect("one datagram is under way");
//! let mut received = 0;
//! far.receive(arrival, &mut |rx| received += rx.data.len())?;
//! assert_eq!(received, 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::counters::PortCounters;
use super::shared::emulated_link::Copies;
use super::traits::{Control, Datapath, JoinError, PortInfo, SOURCE_PORTS, TransmitError};
use crate::net::{Burst, MAX_BURST_SEGMENTS, Path, RxBuffer, TransmitErrorKind};
use crate::sync::Mutex;
use crate::time::Instant;
use host::{Host, InFlightDatagram, QueuedBuffer};
use link::Link;

mod host;
mod link;

pub use super::shared::conditions::{BurstLoss, Conditions, Outages};
pub use super::shared::emulated_link::FaultCounters;
pub use host::HostConfig;

/// Decision of an [observer](Network::observe) about a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultDecision {
    /// The conditions of the link decide.
    ByConditions,
    /// The datagram is lost.
    Drop,
    /// The datagram arrives this much later; datagrams sent meanwhile overtake it.
    Delay(Duration),
    /// The datagram arrives twice.
    Duplicate,
}

/// A datagram that an [observer](Network::observe) sees.
#[derive(Clone, Copy, Debug)]
pub struct ObservedDatagram<'a> {
    /// Time of departure.
    pub at: Instant,
    /// Path of the datagram.
    pub path: &'a Path,
    /// Host that it is sent to: the destination, or a member of the destination group.
    pub to: IpAddr,
    /// IPv4 identification: its index in the burst.
    pub id: u16,
    /// Packet from BTH to ICRC.
    pub datagram: &'a [u8],
}

type Observer = Box<dyn FnMut(ObservedDatagram<'_>) -> FaultDecision + Send>;

/// The simulated network. Clones are the same network.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

impl Network {
    /// Returns a network without faults or delay. `seed` determines all random decisions.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            seed,
            conditions: Conditions::default(),
            links: BTreeMap::new(),
            hosts: BTreeMap::new(),
            cuts: BTreeSet::new(),
            groups: BTreeMap::new(),
            departures: 0,
            observer: None,
        })))
    }

    /// Returns the port of the host at `ip`, with the properties of a UDP socket on loopback.
    pub fn host(&self, ip: IpAddr) -> SimPort {
        self.host_with(ip, HostConfig::default())
    }

    /// Returns the port of the host at `ip`. A later call for the same address replaces the port.
    pub fn host_with(&self, ip: IpAddr, config: HostConfig) -> SimPort {
        self.lock().hosts.insert(ip, Host::new(config));
        SimPort {
            network: self.clone(),
            ip,
            config,
            counters: PortCounters::default(),
            taken: Vec::new(),
        }
    }

    /// Sets the conditions of every link without its own.
    pub fn set_conditions(&self, conditions: Conditions) {
        self.lock().conditions = conditions;
    }

    /// Sets the conditions of the link from one host to another, in this direction.
    pub fn set_link(&self, from: IpAddr, to: IpAddr, conditions: Conditions) {
        self.lock().link(from, to).conditions = Some(conditions);
    }

    /// Cuts the link from one host to another, in this direction: datagrams sent from now on are lost, until the link
    /// is [mended](Self::mend). Datagrams in flight arrive.
    pub fn cut(&self, from: IpAddr, to: IpAddr) {
        self.lock().cuts.insert((from, to));
    }

    /// Mends the link from one host to another.
    pub fn mend(&self, from: IpAddr, to: IpAddr) {
        self.lock().cuts.remove(&(from, to));
    }

    /// Cuts all links between the hosts of one side and those of the other, in both directions.
    pub fn partition(&self, one: &[IpAddr], other: &[IpAddr]) {
        for (a, b) in one.iter().flat_map(|a| other.iter().map(move |b| (*a, *b))) {
            self.cut(a, b);
            self.cut(b, a);
        }
    }

    /// Mends all links.
    pub fn heal(&self) {
        self.lock().cuts.clear();
    }

    /// Returns the number of faults on the link from one host to another, in this direction.
    pub fn counters(&self, from: IpAddr, to: IpAddr) -> FaultCounters {
        self.lock().link(from, to).way.counters()
    }

    /// Shows every datagram sent from now on to `observer`, which may decide about it. The observer must not call the
    /// network.
    pub fn observe(
        &self,
        observer: impl FnMut(ObservedDatagram<'_>) -> FaultDecision + Send + 'static,
    ) {
        self.lock().observer = Some(Box::new(observer));
    }

    /// Returns the time of the next arrival or at which a busy port is free; a past time if a datagram has arrived and
    /// was not received. `None` if no event is pending.
    pub fn next_event(&self) -> Option<Instant> {
        self.lock().hosts.values().filter_map(Host::next_event).min()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The test that panicked has reported its failure.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Network")
            .field("seed", &state.seed)
            .field("hosts", &state.hosts.keys())
            .finish_non_exhaustive()
    }
}

struct State {
    seed: u64,
    conditions: Conditions,
    links: BTreeMap<(IpAddr, IpAddr), Link>,
    hosts: BTreeMap<IpAddr, Host>,
    /// Links that are cut.
    cuts: BTreeSet<(IpAddr, IpAddr)>,
    /// The hosts that have joined each multicast group.
    groups: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
    departures: u64,
    observer: Option<Observer>,
}

impl State {
    fn link(&mut self, from: IpAddr, to: IpAddr) -> &mut Link {
        let seed = self.seed;
        self.links.entry((from, to)).or_insert_with(|| Link::new(seed, from, to))
    }

    /// Returns whether the sender's port is busy instead of taking a burst to `path`.
    fn refuses(&mut self, now: Instant, path: &Path) -> bool {
        let Some(host) = self.hosts.get_mut(&path.source) else { return false };
        if host.is_busy(now) {
            return true;
        }
        let default = self.conditions;
        let link = self.link(path.source, path.destination);
        let conditions = link.conditions.unwrap_or(default);
        let Some(time) = link.way.busy_time(&conditions) else { return false };
        if let Some(host) = self.hosts.get_mut(&path.source) {
            host.set_busy_until(now + time);
        }
        true
    }

    fn depart(&mut self, now: Instant, path: &Path, id: u16, datagram: &Bytes) {
        if !path.destination.is_multicast() {
            return self.depart_to(path.destination, now, path, id, datagram);
        }
        let members = self.groups.get(&path.destination).cloned().unwrap_or_default();
        for to in members {
            self.depart_to(to, now, path, id, datagram);
        }
    }

    fn depart_to(&mut self, to: IpAddr, now: Instant, path: &Path, id: u16, datagram: &Bytes) {
        let sighting = ObservedDatagram { at: now, path, to, id, datagram };
        let mut fate = self
            .observer
            .as_mut()
            .map_or(FaultDecision::ByConditions, |observer| observer(sighting));
        if self.cuts.contains(&(path.source, to)) {
            fate = FaultDecision::Drop;
        }
        let default = self.conditions;
        let link = self.link(path.source, to);
        let conditions = link.conditions.unwrap_or(default);
        let copies = match fate {
            FaultDecision::ByConditions => link.way.send(now, &conditions, datagram.len()),
            _ => link.way.enqueue(now, &conditions, datagram.len()).map_or_else(
                Copies::new,
                |departure| match fate {
                    FaultDecision::Delay(time) => {
                        [departure.delayed(conditions.delay + time)][..].into()
                    }
                    FaultDecision::Duplicate => {
                        [link.way.in_order(departure, conditions.delay); 2][..].into()
                    }
                    FaultDecision::Drop | FaultDecision::ByConditions => {
                        link.way.count_loss();
                        Copies::new()
                    }
                },
            ),
        };
        let Some(host) = self.hosts.get_mut(&to) else { return };
        for copy in copies {
            self.departures += 1;
            let traffic_class = copy.traffic_class(path.traffic_class);
            host.deliver(InFlightDatagram {
                arrival: copy.at,
                order: self.departures,
                path: Path { traffic_class, ..*path },
                id,
                payload: copy.damaged(datagram),
            });
        }
    }
}

/// The port of a simulated host.
#[derive(Debug)]
pub struct SimPort {
    network: Network,
    ip: IpAddr,
    config: HostConfig,
    counters: PortCounters,
    taken: Vec<QueuedBuffer>,
}

/// Maximum number of buffers that one call receives.
const RECEIVE_BATCH: usize = 32;

impl SimPort {
    fn check(&self, burst: &Burst) -> Result<(), TransmitErrorKind> {
        let ip_header = if self.ip.is_ipv4() { 20 } else { 40 };
        if burst.path.source != self.ip {
            Err(TransmitErrorKind::Other)
        } else if burst.path.destination.is_ipv4() != self.ip.is_ipv4() {
            Err(TransmitErrorKind::Unreachable)
        } else if burst.segment_len() + 8 + ip_header > self.config.link_mtu {
            Err(TransmitErrorKind::TooLong)
        } else {
            Ok(())
        }
    }
}

impl Datapath for SimPort {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        let network = self.network.clone();
        let mut state = network.lock();
        for (taken, burst) in bursts.iter().enumerate() {
            if let Err(kind) = self.check(burst) {
                self.counters.refused += 1;
                return Err(TransmitError { taken, kind });
            }
            if state.refuses(now, &burst.path) {
                self.counters.busy += 1;
                return Ok(taken);
            }
            for (id, datagram) in (0..).zip(burst.segments()) {
                state.depart(now, &burst.path, id, &Bytes::copy_from_slice(datagram));
            }
            self.counters.sent(burst);
        }
        Ok(bursts.len())
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        let mut state = self.network.lock();
        if let Some(host) = state.hosts.get_mut(&self.ip) {
            host.advance(now);
            host.is_busy(now);
            self.taken.extend(std::iter::from_fn(|| host.take()).take(RECEIVE_BATCH));
            self.counters.kernel_drops = host.drops();
        }
        // The sink may send.
        drop(state);
        let count = self.taken.len();
        for arrived in self.taken.drain(..) {
            let meta = arrived.meta(&self.config);
            let buffer = RxBuffer { data: &arrived.data, segment_len: arrived.segment_len, meta };
            self.counters.received(&buffer);
            sink(buffer);
        }
        Ok(count)
    }

    fn receive_queue_bytes(&mut self, now: Instant, to: IpAddr) -> Option<u64> {
        self.network.lock().hosts.get_mut(&to).map(|host| host.rx_queue_bytes(now))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.network.lock().hosts.get(&self.ip).and_then(Host::next_event)
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

impl Control for SimPort {
    fn source_port(&mut self, _: IpAddr, wanted: u16) -> u16 {
        wanted | *SOURCE_PORTS.start()
    }

    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        if !group.is_multicast() || group.is_ipv4() != self.ip.is_ipv4() {
            return Err(JoinError::NotAGroup { group, ip: self.ip });
        }
        self.network.lock().groups.entry(group).or_default().insert(self.ip);
        Ok(())
    }

    fn leave(&mut self, group: IpAddr) {
        if let Some(members) = self.network.lock().groups.get_mut(&group) {
            members.remove(&self.ip);
        }
    }

    fn info(&self) -> PortInfo {
        PortInfo {
            ip: self.ip,
            interface: 0,
            link_mtu: self.config.link_mtu,
            gso: true,
            max_burst_segments: MAX_BURST_SEGMENTS,
            max_batch_bytes: usize::MAX,
            gro: self.config.gro,
            receive_buffer: self.config.receive_buffer,
            sees_ip_header: self.config.sees_ip_header,
            omits_icrcs: self.config.omits_icrcs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{BurstToken, Ipv4Fields};

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn us(n: u64) -> Instant {
        Instant::from_micros(n)
    }

    /// Returns a burst from A to B: one segment of each length, filled with its index.
    fn burst(lens: &[usize]) -> Burst {
        let mut burst = Burst::new();
        let path = Path {
            source: A,
            destination: B,
            source_port: 0xc123,
            traffic_class: 2,
            hop_limit: 64,
        };
        burst.reset(path, BurstToken(0));
        for (i, len) in (0..).zip(lens) {
            burst.push(*len).fill(i);
        }
        burst
    }

    /// Returns the buffers that `port` receives at `now`: the first byte of each datagram.
    fn received(port: &mut SimPort, now: Instant) -> Vec<Vec<u8>> {
        let mut buffers = Vec::new();
        port.receive(now, &mut |rx| buffers.push(rx.segments().map(|s| s[0]).collect())).unwrap();
        buffers
    }

    fn run(seed: u64, conditions: Conditions, datagrams: u8) -> Vec<(Instant, Vec<Vec<u8>>)> {
        let network = Network::new(seed);
        let (mut a, mut b) = (network.host(A), network.host(B));
        network.set_conditions(conditions);
        for i in 0..datagrams {
            let mut one = burst(&[]);
            one.push(64).fill(i);
            assert_eq!(a.transmit(us(u64::from(i)), &[one]), Ok(1));
        }
        let mut log = Vec::new();
        while let Some(now) = network.next_event() {
            log.push((now, received(&mut b, now)));
        }
        log
    }

    #[test]
    fn datagrams_arrive_after_the_delay_and_not_before() {
        let network = Network::new(0);
        let (mut a, mut b) = (network.host(A), network.host(B));
        let delay = Duration::from_micros(5);
        network.set_conditions(Conditions { delay, ..Conditions::default() });
        assert_eq!(a.transmit(us(1), &[burst(&[100, 100, 20])]), Ok(1));
        assert_eq!((network.next_event(), b.poll_timeout()), (Some(us(6)), Some(us(6))));
        assert!(received(&mut b, us(5)).is_empty());
        assert_eq!(received(&mut b, us(6)), [[0, 1, 2]], "merged");
        assert_eq!((network.next_event(), b.poll_timeout()), (None, None));
        assert_eq!((a.counters().tx_datagrams, b.counters().rx_datagrams), (3, 3));
        assert_eq!((a.counters().tx_bytes, b.counters().rx_bytes), (220, 220));
    }

    #[test]
    fn gro_stops_after_a_shorter_datagram_and_where_it_is_off() {
        for (gro, expected) in
            [(true, vec![vec![0, 1], vec![0]]), (false, vec![vec![0], vec![1], vec![0]])]
        {
            let network = Network::new(0);
            let mut a = network.host(A);
            let mut b = network.host_with(B, HostConfig { gro, ..HostConfig::default() });
            assert_eq!(a.transmit(us(0), &[burst(&[100, 20]), burst(&[20])]), Ok(2));
            assert_eq!(received(&mut b, us(0)), expected);
        }
    }

    #[test]
    fn the_ip_header_is_seen_where_asked_for() {
        for sees_ip_header in [false, true] {
            let network = Network::new(0);
            let mut a = network.host(A);
            let config = HostConfig { sees_ip_header, ..HostConfig::default() };
            let mut b = network.host_with(B, config);
            network.observe(|seen| {
                if seen.id == 0 { FaultDecision::Drop } else { FaultDecision::ByConditions }
            });
            assert_eq!(a.transmit(us(0), &[burst(&[100, 100, 100])]), Ok(1));
            let fields = Ipv4Fields { id: 1, dont_fragment: true };
            let mut metas = Vec::new();
            b.receive(us(0), &mut |rx| metas.push((rx.meta, rx.data.len()))).unwrap();
            let expected = crate::net::RxMeta {
                source: (A, 0xc123).into(),
                destination: B,
                traffic_class: 2,
                hop_limit: 64,
                ipv4: sees_ip_header.then_some(fields),
                may_omit_icrc: false,
            };
            assert_eq!(metas, [(expected, 200)]);
        }
    }

    #[test]
    fn the_seed_decides_and_replays() {
        let conditions = Conditions {
            loss: 0.2,
            duplicate: 0.2,
            reorder: 0.3,
            jitter: Duration::from_nanos(700),
            ..Conditions::default()
        };
        assert_eq!(run(7, conditions, 100), run(7, conditions, 100));
        assert_ne!(run(7, conditions, 100), run(8, conditions, 100));
    }

    #[test]
    fn only_held_datagrams_are_overtaken() {
        let order = |conditions| -> Vec<u8> {
            run(3, conditions, 100).into_iter().flat_map(|(_, buffers)| buffers).flatten().collect()
        };
        let jitter = Duration::from_micros(9);
        let jittery = order(Conditions { jitter, ..Conditions::default() });
        assert!(jittery.is_sorted() && jittery.len() == 100);
        let mut held = order(Conditions { reorder: 0.2, ..Conditions::default() });
        assert!(!held.is_sorted());
        held.sort_unstable();
        assert!(held.into_iter().eq(0..100), "all arrive");
    }

    #[test]
    fn corruption_turns_one_bit() {
        let network = Network::new(4);
        let (mut a, mut b) = (network.host(A), network.host(B));
        network.set_link(A, B, Conditions { corrupt: 1.0, ..Conditions::default() });
        assert_eq!(a.transmit(us(0), &[burst(&[64, 64])]), Ok(1));
        let mut ones = Vec::new();
        let count = |segment: &[u8]| segment.iter().map(|byte| byte.count_ones()).sum::<u32>();
        b.receive(us(0), &mut |rx| ones.extend(rx.segments().map(count))).unwrap();
        assert_eq!(ones.len(), 2);
        assert_eq!(ones[0], 1);
        assert!([63, 65].contains(&ones[1]), "{ones:?}");
    }

    #[test]
    fn cut_link_passes_the_other_direction_until_it_is_mended() {
        let network = Network::new(0);
        let (mut a, mut b) = (network.host(A), network.host(B));
        let mut passes = |now| {
            let mut back = burst(&[20]);
            (back.path.source, back.path.destination) = (B, A);
            assert_eq!(a.transmit(us(now), &[burst(&[20])]), Ok(1));
            assert_eq!(b.transmit(us(now), &[back]), Ok(1));
            [&mut a, &mut b].map(|port| !received(port, us(now)).is_empty())
        };
        network.cut(A, B);
        assert_eq!(passes(0), [true, false]);
        network.partition(&[A], &[B]);
        assert_eq!(passes(1), [false, false]);
        network.mend(B, A);
        assert_eq!(passes(2), [true, false]);
        network.heal();
        assert_eq!(passes(3), [true, true]);
        assert_eq!([network.counters(A, B).lost, network.counters(B, A).lost], [3, 1]);
    }

    #[test]
    fn datagram_behind_a_queue_is_marked() {
        let network = Network::new(0);
        let (mut a, mut b) = (network.host(A), network.host(B));
        let conditions = Conditions {
            rate_bits_per_s: Some(8_000_000_000),
            mark_above_bytes: Some(1),
            ..Conditions::default()
        };
        network.set_conditions(conditions);
        assert_eq!(a.transmit(us(0), &[burst(&[72; 3])]), Ok(1));
        let mut classes = Vec::new();
        b.receive(us(1), &mut |rx| classes.push((rx.meta.traffic_class, rx.segments().len())))
            .unwrap();
        assert_eq!(classes, [(2, 1), (3, 1), (3, 1)]);
        assert_eq!(network.counters(A, B).marked, 2);
    }

    #[test]
    fn a_link_takes_time_and_its_queue_is_finite() {
        let network = Network::new(0);
        let mut a = network.host(A);
        let mut b = network.host_with(B, HostConfig { gro: false, ..HostConfig::default() });
        // A packet of 1000 bytes takes 1 µs; the third waits behind 1000 bytes, the fourth behind 2000.
        let conditions = Conditions {
            rate_bits_per_s: Some(8_000_000_000),
            queue_bytes: Some(2_500),
            ..Conditions::default()
        };
        network.set_conditions(conditions);
        assert_eq!(a.transmit(us(0), &[burst(&[972; 5])]), Ok(1));
        let arrivals: Vec<_> = std::iter::from_fn(|| {
            let now = network.next_event()?;
            Some((now, received(&mut b, now)))
        })
        .collect();
        assert_eq!(
            arrivals,
            [(us(1), vec![vec![0]]), (us(2), vec![vec![1]]), (us(3), vec![vec![2]])]
        );
    }

    #[test]
    fn a_busy_port_says_when_to_try_again() {
        let network = Network::new(5);
        let (mut a, _b) = (network.host(A), network.host(B));
        network.set_conditions(Conditions { refuse_send: 0.5, ..Conditions::default() });
        let bursts: Vec<_> = (0..40).map(|_| burst(&[20])).collect();
        let (mut sent, mut now, mut refusals) = (0, us(0), 0);
        while sent < bursts.len() {
            let taken = a.transmit(now, &bursts[sent..]).unwrap();
            sent += taken;
            if sent < bursts.len() {
                refusals += 1;
                let again = a.poll_timeout().unwrap();
                assert!(again > now && again <= now + Duration::from_micros(20));
                now = again;
            }
        }
        assert_eq!(a.counters().busy, refusals);
        assert!((20..80).contains(&refusals), "{refusals}");
    }

    #[test]
    fn a_full_receive_buffer_holds_what_linux_holds() {
        let held = |len: usize, gso: usize| {
            let network = Network::new(0);
            let mut a = network.host(A);
            let mut b = network
                .host_with(B, HostConfig { receive_buffer: 212_992, ..HostConfig::default() });
            for i in 0..300 {
                a.transmit(us(i), &[burst(&vec![len; gso])]).unwrap();
            }
            while b.receive(us(300), &mut |_| ()).unwrap() > 0 {}
            let counters = b.counters();
            assert_eq!(counters.kernel_drops + counters.rx_datagrams, 300 * gso as u64);
            counters.rx_datagrams
        };
        assert_eq!([held(4112, 1), held(1040, 1), held(80, 1)], [25, 92, 256]);
        assert!(held(4112, 15) > 45);
    }

    #[test]
    fn invalid_bursts_are_refused() {
        let network = Network::new(0);
        let mut a = network.host_with(A, HostConfig { link_mtu: 1500, ..HostConfig::default() });
        let mut stranger = burst(&[20]);
        stranger.path.source = B;
        let mut other_family = burst(&[20]);
        other_family.path.destination = "::1".parse().unwrap();
        let refused = |taken, kind| Err(TransmitError { taken, kind });
        let bursts = [burst(&[1472]), burst(&[1473])];
        assert_eq!(a.transmit(us(0), &bursts), refused(1, TransmitErrorKind::TooLong));
        assert_eq!(a.transmit(us(0), &[stranger]), refused(0, TransmitErrorKind::Other));
        assert_eq!(a.transmit(us(0), &[other_family]), refused(0, TransmitErrorKind::Unreachable));
        assert_eq!(a.counters().refused, 3);
    }

    #[test]
    fn each_member_of_a_group_receives_one_copy() {
        let group = [239, 1, 2, 3].into();
        let network = Network::new(0);
        let hosts = [A, B, [10, 0, 0, 3].into()];
        let mut ports = hosts.map(|ip| network.host(ip));
        for port in &mut ports[..2] {
            port.join(group).unwrap();
            port.join(group).unwrap();
        }
        let mut burst = burst(&[20, 20]);
        burst.path.destination = group;
        let mut counts = |now| -> Vec<usize> {
            assert_eq!(ports[0].transmit(us(now), &[burst.clone()]), Ok(1));
            ports
                .iter_mut()
                .map(|port| {
                    let mut segments = 0;
                    let mut count = |rx: RxBuffer<'_>| {
                        assert_eq!(rx.meta.destination, group);
                        segments += rx.segments().len();
                    };
                    port.receive(us(now), &mut count).unwrap();
                    segments
                })
                .collect()
        };
        assert_eq!(counts(0), [2, 2, 0], "the sender is a member too");
        let copies = Arc::new(Mutex::new(Vec::new()));
        let seen = copies.clone();
        network.observe(move |sighting| {
            seen.lock().unwrap().push((sighting.to, sighting.id));
            if sighting.to == A { FaultDecision::Drop } else { FaultDecision::ByConditions }
        });
        assert_eq!(counts(1), [0, 2, 0], "each copy has a fate of its own");
        assert_eq!(*copies.lock().unwrap(), [(A, 0), (B, 0), (A, 1), (B, 1)]);
        network.host(B).leave(group);
        assert_eq!(counts(2), [0, 0, 0]);
    }

    #[test]
    fn join_refuses_addresses_that_are_no_group() {
        let network = Network::new(0);
        let mut port = network.host(A);
        for ip in ["10.0.0.9", "::1", "ff15::1"] {
            let error = port.join(ip.parse().unwrap()).unwrap_err().to_string();
            let rest = "it is no multicast group of the IP version of 10.0.0.1";
            assert_eq!(error, format!("cannot join {ip}: {rest}"));
        }
    }

    #[test]
    fn observers_decide_about_single_datagrams() {
        let network = Network::new(0);
        let mut a = network.host(A);
        let mut b = network.host_with(B, HostConfig { gro: false, ..HostConfig::default() });
        network.observe(|seen| match seen.datagram[0] {
            0 => FaultDecision::Drop,
            1 => FaultDecision::Delay(Duration::from_micros(3)),
            2 => FaultDecision::Duplicate,
            _ => FaultDecision::ByConditions,
        });
        assert_eq!(a.transmit(us(0), &[burst(&[20; 4])]), Ok(1));
        assert_eq!(received(&mut b, us(0)), [[2], [2], [3]]);
        assert_eq!(received(&mut b, us(3)), [[1]]);
    }
}
