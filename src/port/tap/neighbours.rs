//! Neighbours on the link of a TAP port: link addresses by ARP and neighbour discovery (RFC 826, RFC 4861).
//!
//! smoltcp has a neighbour cache for its own packets, but it sends one solicitation a second in all and queues no
//! packets. Here a neighbour without an answer delays only packets to itself. The messages are those of smoltcp, and
//! the rest of a host is its part (`host`).
//!
//! ```text
//!             solicited                answered or confirmed
//!   unknown ────────▶ solicited, ─────────────────────────▶ known ◀─┐ confirmed
//!      ▲              bursts queued                           │     │
//!      │                  │ three solicitations,              ▼     │
//!      └──────────────────┴ a second each ◀──────── not confirmed for a while:
//!                                                   solicited, and still used
//! ```

use std::collections::HashMap;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags,
    NdiscRepr,
};

use super::config::{Mac, Network};
use crate::net::Burst;
use crate::port::shared::frame::QueuedBurst;
use crate::time::Instant;

/// Time for which a link address is valid without a confirmation.
const LINK_ADDRESS_TTL: Duration = Duration::from_secs(5);

/// Time for an answer, and the number of solicitations.
const SOLICITATION_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_SOLICITATIONS: u8 = 3;

/// Maximum number of neighbours.
const MAX_NEIGHBOURS: usize = 4096;

/// Maximum bytes queued for one neighbour: a message to a peer with a large receive buffer, before the first answer. A
/// loss would cost a timeout.
const MAX_BYTES_PER_NEIGHBOUR: usize = 4 << 20;

/// Maximum bytes queued for all neighbours.
const MAX_BYTES_OF_ALL: usize = 16 << 20;

/// Hop limit of neighbour discovery: no router has forwarded the message.
const DISCOVERY_HOP_LIMIT: u8 = 255;

/// Neighbour cache of a port.
#[derive(Debug)]
pub(super) struct Neighbours {
    mac: Mac,
    /// Addresses of the port.
    ips: Vec<IpAddr>,
    networks: Vec<Network>,
    gateways: Vec<IpAddr>,
    /// Neighbours that the port has sent to, or that have solicited its address.
    known: HashMap<IpAddr, Neighbour>,
    /// Bytes queued.
    waiting: usize,
    /// Time at which the next solicitation expires.
    due: Option<Instant>,
    /// Last confirmed neighbour, and the time until which it needs no further confirmation.
    confirmed: Option<(IpAddr, Mac, Instant)>,
    /// Frames with solicitations to send.
    solicitations: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Neighbour {
    mac: Option<Mac>,
    /// Time of the last confirmation.
    confirmed: Instant,
    /// The pending solicitation.
    solicitation: Option<Solicitation>,
    waiting: Vec<QueuedBurst>,
}

#[derive(Clone, Copy, Debug)]
struct Solicitation {
    /// Address of the port that solicits.
    from: IpAddr,
    at: Instant,
    times: u8,
}

impl Neighbour {
    fn new(now: Instant) -> Self {
        Self { mac: None, confirmed: now, solicitation: None, waiting: Vec::new() }
    }
}

/// How a burst is sent to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// In frames to this link address.
    To(Mac),
    /// The link address of this neighbour is not known yet; a solicitation is pending.
    Unresolved(IpAddr),
    /// Not at all: the address is in none of the networks, and there is no gateway.
    Unreachable,
}

impl Neighbours {
    pub(super) fn new(
        mac: Mac,
        ips: &[IpAddr],
        networks: Vec<Network>,
        gateways: Vec<IpAddr>,
    ) -> Self {
        Self {
            mac,
            ips: ips.to_vec(),
            networks,
            gateways,
            known: HashMap::new(),
            waiting: 0,
            due: None,
            confirmed: None,
            solicitations: Vec::new(),
        }
    }

    /// Returns the next hop to `destination`.
    fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        if self.networks.iter().any(|net| net.is_broadcast(destination)) {
            return None;
        }
        if self.networks.iter().any(|net| net.contains(destination)) {
            return Some(destination);
        }
        let same = |gateway: &&IpAddr| gateway.is_ipv4() == destination.is_ipv4();
        self.gateways.iter().find(same).copied()
    }

    /// Returns how to send a burst to `destination` now, from one of the port's addresses.
    pub(super) fn route_to(&mut self, now: Instant, from: IpAddr, destination: IpAddr) -> Route {
        let Some(hop) = self.next_hop(destination) else { return Route::Unreachable };
        if self.known.len() >= MAX_NEIGHBOURS && !self.known.contains_key(&hop) {
            // Neighbours with queued bursts stay.
            self.known.retain(|_, neighbour| !neighbour.waiting.is_empty());
            if self.known.len() >= MAX_NEIGHBOURS {
                return Route::Unreachable;
            }
        }
        let neighbour = self.known.entry(hop).or_insert_with(|| Neighbour::new(now));
        let doubtful =
            neighbour.mac.is_none() || now.since(neighbour.confirmed) >= LINK_ADDRESS_TTL;
        let mac = neighbour.mac;
        if doubtful && neighbour.solicitation.is_none() {
            neighbour.solicitation = Some(Solicitation { from, at: now, times: 1 });
            self.solicit(now, from, hop);
        }
        mac.map_or(Route::Unresolved(hop), Route::To)
    }

    /// Queues a burst until the neighbour has answered. Returns `false` if there is no room.
    pub(super) fn enqueue(&mut self, hop: IpAddr, burst: &Burst) -> bool {
        let Some(neighbour) = self.known.get_mut(&hop) else { return false };
        let queued = QueuedBurst::from(burst);
        let (cost, each) = (queued.memory(), memory(&neighbour.waiting));
        let fits =
            each + cost <= MAX_BYTES_PER_NEIGHBOUR && self.waiting + cost <= MAX_BYTES_OF_ALL;
        if fits {
            self.waiting += cost;
            neighbour.waiting.push(queued);
        }
        fits
    }

    /// Confirms the next hop of `ip`, as a packet of it has arrived in a frame from `mac`.
    pub(super) fn confirm(&mut self, now: Instant, ip: IpAddr, mac: Mac) {
        if self.confirmed.is_some_and(|(of, from, until)| of == ip && from == mac && now < until) {
            return;
        }
        self.confirmed = Some((ip, mac, now + SOLICITATION_TIMEOUT));
        let Some(hop) = self.next_hop(ip) else { return };
        if let Some(neighbour) = self.known.get_mut(&hop).filter(|known| known.mac == Some(mac)) {
            neighbour.confirmed = now;
            neighbour.solicitation = None;
        }
    }

    /// Processes an ARP or neighbour discovery message. Returns the bursts queued for its sender.
    pub(super) fn learn(&mut self, now: Instant, frame: &[u8]) -> Vec<QueuedBurst> {
        let Some(message) = parse_message(frame) else { return Vec::new() };
        // A host that solicits our address is about to send, and will expect a response. Other hosts do not fill the
        // cache.
        let solicits_us = message.solicits.is_some_and(|ip| self.ips.contains(&ip));
        if solicits_us
            && self.known.len() < MAX_NEIGHBOURS / 2
            && self.next_hop(message.ip) == Some(message.ip)
        {
            self.known.entry(message.ip).or_insert_with(|| Neighbour::new(now));
        }
        let Some(neighbour) = self.known.get_mut(&message.ip) else { return Vec::new() };
        if neighbour.mac.is_some_and(|mac| mac != message.mac) && !message.overrides {
            return Vec::new();
        }
        neighbour.mac = Some(message.mac);
        neighbour.confirmed = now;
        neighbour.solicitation = None;
        let released = mem::take(&mut neighbour.waiting);
        self.waiting -= memory(&released);
        released
    }

    /// Repeats due solicitations. After the last one, drops the neighbour and the bursts queued for it.
    pub(super) fn attend(&mut self, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let (mut again, mut due, mut lost) = (Vec::new(), None::<Instant>, 0);
        self.known.retain(|ip, neighbour| {
            let Some(solicitation) = &mut neighbour.solicitation else { return true };
            if now >= solicitation.at + SOLICITATION_TIMEOUT {
                if solicitation.times == MAX_SOLICITATIONS {
                    lost += memory(&neighbour.waiting);
                    return false;
                }
                again.push((solicitation.from, *ip));
                (solicitation.at, solicitation.times) = (now, solicitation.times + 1);
            }
            let next = solicitation.at + SOLICITATION_TIMEOUT;
            due = Some(due.map_or(next, |due| due.min(next)));
            true
        });
        self.waiting -= lost;
        self.due = due;
        again.into_iter().for_each(|(from, to)| self.solicit(now, from, to));
    }

    /// Returns the time of the next [`attend`](Self::attend).
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Forgets all link addresses, because the link has changed.
    pub(super) fn forget(&mut self) {
        self.known.retain(|_, neighbour| {
            neighbour.mac = None;
            neighbour.solicitation.is_some()
        });
        self.confirmed = None;
    }

    /// Announces the port's addresses on the link, so that other hosts update their caches.
    pub(super) fn announce(&mut self) {
        for ip in &self.ips {
            self.solicitations.push(match *ip {
                IpAddr::V4(ip) => self.arp(ip, ip),
                IpAddr::V6(ip) => self.advertisement(ip),
            });
        }
    }

    /// Takes the frames to send.
    pub(super) fn solicitations(&mut self) -> Vec<Vec<u8>> {
        mem::take(&mut self.solicitations)
    }

    fn solicit(&mut self, now: Instant, from: IpAddr, to: IpAddr) {
        self.solicitations.push(match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => self.arp(from, to),
            (IpAddr::V6(from), IpAddr::V6(to)) => self.solicitation(from, to),
            // The IP versions differ: there is no route.
            _ => return,
        });
        let due = now + SOLICITATION_TIMEOUT;
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
    }

    /// Returns an ARP request for `to`, to all hosts.
    fn arp(&self, from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
        let repr = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: EthernetAddress(self.mac.0),
            source_protocol_addr: from,
            target_hardware_addr: EthernetAddress([0; 6]),
            target_protocol_addr: to,
        };
        let mut body = vec![0; repr.buffer_len()];
        repr.emit(&mut ArpPacket::new_unchecked(&mut body));
        self.frame(EthernetAddress::BROADCAST, EthernetProtocol::Arp, &body)
    }

    /// Returns a neighbour solicitation for `to`, to its solicited-node group.
    fn solicitation(&self, from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
        let [.., a, b, c] = to.octets();
        let [c, b, a] = [c, b, a].map(u16::from);
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a, b << 8 | c);
        let lladdr = Some(EthernetAddress(self.mac.0).into());
        self.discovery(from, group, NdiscRepr::NeighborSolicit { target_addr: to, lladdr })
    }

    /// Returns a neighbour advertisement of `ip`, to all hosts.
    fn advertisement(&self, ip: Ipv6Addr) -> Vec<u8> {
        let lladdr = Some(EthernetAddress(self.mac.0).into());
        let flags = NdiscNeighborFlags::OVERRIDE;
        let repr = NdiscRepr::NeighborAdvert { flags, target_addr: ip, lladdr };
        self.discovery(ip, Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), repr)
    }

    fn discovery(&self, from: Ipv6Addr, group: Ipv6Addr, message: NdiscRepr<'_>) -> Vec<u8> {
        let message = Icmpv6Repr::Ndisc(message);
        let header = Ipv6Repr {
            src_addr: from,
            dst_addr: group,
            next_header: IpProtocol::Icmpv6,
            payload_len: message.buffer_len(),
            hop_limit: DISCOVERY_HOP_LIMIT,
        };
        let mut body = vec![0; header.buffer_len() + message.buffer_len()];
        let mut packet = Ipv6Packet::new_unchecked(&mut body[..]);
        header.emit(&mut packet);
        let mut icmp = Icmpv6Packet::new_unchecked(packet.payload_mut());
        message.emit(&from, &group, &mut icmp, &ChecksumCapabilities::default());
        let to = EthernetAddress(group_mac(group.into()).0);
        self.frame(to, EthernetProtocol::Ipv6, &body)
    }

    fn frame(&self, to: EthernetAddress, ethertype: EthernetProtocol, body: &[u8]) -> Vec<u8> {
        let src_addr = EthernetAddress(self.mac.0);
        let header = EthernetRepr { src_addr, dst_addr: to, ethertype };
        let mut frame = vec![0; header.buffer_len()];
        header.emit(&mut EthernetFrame::new_unchecked(&mut frame));
        frame.extend(body);
        frame
    }
}

fn memory(queued: &[QueuedBurst]) -> usize {
    queued.iter().map(QueuedBurst::memory).sum()
}

/// Returns the MAC address of a multicast group (RFC 1112, section 6.4; RFC 2464, section 7).
pub(super) fn group_mac(group: IpAddr) -> Mac {
    Mac(match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    })
}

/// Link address of a host, from a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct NeighbourMessage {
    ip: IpAddr,
    mac: Mac,
    /// The override flag: replaces a different link address in the cache.
    overrides: bool,
    /// Address that it solicits.
    solicits: Option<IpAddr>,
}

/// Parses a frame with ARP or neighbour discovery.
fn parse_message(frame: &[u8]) -> Option<NeighbourMessage> {
    let frame = EthernetFrame::new_checked(frame).ok()?;
    let message = match frame.ethertype() {
        EthernetProtocol::Arp => parse_arp(frame.payload()),
        EthernetProtocol::Ipv6 => parse_discovery(frame.payload()),
        _ => None,
    }?;
    EthernetAddress(message.mac.0).is_unicast().then_some(message)
}

fn parse_arp(body: &[u8]) -> Option<NeighbourMessage> {
    let packet = ArpPacket::new_checked(body).ok()?;
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr,
        target_protocol_addr,
        ..
    } = ArpRepr::parse(&packet).ok()?
    else {
        return None;
    };
    let (ip, mac) = (source_protocol_addr.into(), Mac(source_hardware_addr.0));
    let solicits = match operation {
        ArpOperation::Request => Some(target_protocol_addr.into()),
        ArpOperation::Reply => None,
        ArpOperation::Unknown(_) => return None,
    };
    Some(NeighbourMessage { ip, mac, overrides: true, solicits })
}

fn parse_discovery(body: &[u8]) -> Option<NeighbourMessage> {
    let packet = Ipv6Packet::new_checked(body).ok()?;
    let header = Ipv6Repr::parse(&packet).ok()?;
    if header.next_header != IpProtocol::Icmpv6 || header.hop_limit != DISCOVERY_HOP_LIMIT {
        return None;
    }
    let message = Icmpv6Packet::new_checked(packet.payload()).ok()?;
    let checksums = ChecksumCapabilities::default();
    let message =
        Icmpv6Repr::parse(&header.src_addr, &header.dst_addr, &message, &checksums).ok()?;
    let (ip, lladdr, overrides, solicits) = match message {
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborAdvert { flags, target_addr, lladdr }) => {
            (target_addr, lladdr?, flags.contains(NdiscNeighborFlags::OVERRIDE), None)
        }
        Icmpv6Repr::Ndisc(NdiscRepr::NeighborSolicit { target_addr, lladdr }) => {
            (header.src_addr, lladdr?, true, Some(target_addr.into()))
        }
        _ => return None,
    };
    let mac = lladdr.as_bytes().try_into().ok().map(Mac)?;
    Some(NeighbourMessage { ip: ip.into(), mac, overrides, solicits })
}

#[cfg(test)]
mod tests {
    use super::super::host::Host;
    use super::*;
    use crate::net::{BurstToken, Path};

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const ROUTERS: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Returns the neighbour cache of a host.
    fn host(own: &str, prefix: u8, gateways: &[&str], mac: Mac) -> Neighbours {
        let gateways = gateways.iter().map(|text| ip(text)).collect();
        Neighbours::new(mac, &[ip(own)], vec![Network { ip: ip(own), prefix }], gateways)
    }

    fn burst(from: &str, to: &str, len: usize) -> Burst {
        let mut burst = Burst::new();
        let (source, destination) = (ip(from), ip(to));
        let path =
            Path { source, destination, source_port: 0xc123, traffic_class: 0, hop_limit: 64 };
        burst.reset(path, BurstToken(0));
        burst.push(len).fill(7);
        burst
    }

    /// Returns the answer of another host, with the address `own`, to a solicitation.
    fn answer(own: &str, mac: Mac, question: &[u8]) -> Vec<u8> {
        let (network, now) = (Network { ip: ip(own), prefix: 24 }, Instant::ZERO);
        let answers = Host::new(now, mac, &[network], &[]).take(now, question);
        let is_answer = |frame: &Vec<u8>| parse_message(frame).is_some();
        answers.into_iter().find(is_answer).expect("an answer")
    }

    #[test]
    fn answer_releases_queued_bursts() {
        for (own, peer) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let mut near = host(own, 24, &[], OURS);
            assert_eq!(near.route_to(at(0), ip(own), ip(peer)), Route::Unresolved(ip(peer)));
            assert!(near.enqueue(ip(peer), &burst(own, peer, 100)));
            assert_eq!(near.route_to(at(1), ip(own), ip(peer)), Route::Unresolved(ip(peer)));
            let solicitations = near.solicitations();
            assert_eq!(solicitations.len(), 1, "one is enough");
            let answer = answer(peer, THEIRS, &solicitations[0]);
            assert_eq!(answer[..6], OURS.0);
            let released = near.learn(at(2), &answer);
            assert_eq!(released.iter().map(|queued| queued.data.len()).collect::<Vec<_>>(), [100]);
            assert_eq!(near.route_to(at(2), ip(own), ip(peer)), Route::To(THEIRS));
            assert_eq!((near.solicitations().len(), near.waiting), (0, 0));
        }
    }

    #[test]
    fn silent_neighbour_is_solicited_three_times_and_delays_no_other() {
        let mut near = host("10.0.0.1", 24, &[], OURS);
        let [own, silent, other] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        let large = burst(own, silent, 60_000);
        near.route_to(at(0), ip(own), ip(silent));
        let queued = (0..100).take_while(|_| near.enqueue(ip(silent), &large)).count();
        assert_eq!(queued, MAX_BYTES_PER_NEIGHBOUR / 61_024);
        near.route_to(at(10), ip(own), ip(other));
        assert!(near.enqueue(ip(other), &burst(own, other, 60_000)));
        let mut solicitation = vec![near.solicitations().len()];
        for ms in [999, 1000, 1010, 2500, 3500, 3600] {
            near.attend(at(ms));
            solicitation.push(near.solicitations().len());
        }
        assert_eq!(solicitation, [2, 0, 1, 1, 2, 0, 0]);
        assert_eq!((near.waiting, near.known.len(), near.due()), (0, 0, None));
        assert!(!near.enqueue(ip(silent), &large), "who is given up has to be solicitation first");
        near.route_to(at(4000), ip(own), ip(silent));
        assert!(near.enqueue(ip(silent), &large));
        assert_eq!(near.solicitations().len(), 1);
    }

    #[test]
    fn confirmed_neighbour_is_not_solicited_and_an_unconfirmed_one_is_removed() {
        let mut near = host("10.0.0.1", 24, &[], OURS);
        let [own, peer] = [ip("10.0.0.1"), ip("10.0.0.2")];
        near.route_to(at(0), own, peer);
        let question = near.solicitations().remove(0);
        near.learn(at(0), &answer("10.0.0.2", THEIRS, &question));
        let mut solicits = |ms| {
            let route = near.route_to(at(ms), own, peer);
            near.attend(at(ms));
            (route, near.solicitations().len())
        };
        assert_eq!(solicits(4999), (Route::To(THEIRS), 0));
        assert_eq!(solicits(5000), (Route::To(THEIRS), 1));
        near.confirm(at(5500), peer, ROUTERS);
        near.attend(at(6000));
        assert_eq!(near.solicitations().len(), 1, "another has its address, or pretends to");
        near.confirm(at(6500), peer, THEIRS);
        near.attend(at(7000));
        assert_eq!((near.solicitations().len(), near.due()), (0, None));
        let mut solicits = |ms| {
            let route = near.route_to(at(ms), own, peer);
            near.attend(at(ms));
            (route, near.solicitations().len())
        };
        assert_eq!(solicits(11_499), (Route::To(THEIRS), 0));
        for ms in [11_500, 12_500, 13_500] {
            assert_eq!(solicits(ms), (Route::To(THEIRS), 1));
        }
        assert_eq!(solicits(14_500), (Route::To(THEIRS), 0), "this was the last");
        assert_eq!(solicits(14_501), (Route::Unresolved(peer), 1));
    }

    #[test]
    fn a_new_link_address_is_believed() {
        let mut near = host("10.0.0.1", 24, &[], OURS);
        let [own, peer] = [ip("10.0.0.1"), ip("10.0.0.2")];
        near.route_to(at(0), own, peer);
        let question = near.solicitations().remove(0);
        near.learn(at(0), &answer("10.0.0.2", THEIRS, &question));
        for announced in ["10.0.0.2", "10.0.0.3", "fd00::2"] {
            let mut other = host(announced, 24, &[], ROUTERS);
            other.announce();
            let frame = other.solicitations().remove(0);
            assert_eq!(parse_message(&frame).unwrap().ip, ip(announced));
            near.learn(at(1), &frame);
        }
        assert_eq!(near.route_to(at(1), own, peer), Route::To(ROUTERS));
        assert_eq!(near.known.len(), 1, "nobody is remembered who was not solicitation");
    }

    #[test]
    fn soliciting_host_enters_the_cache() {
        for [own, peer, far] in
            [["10.0.0.1", "10.0.0.2", "192.0.2.2"], ["fd00::1", "fd00::2", "fe00::2"]]
        {
            let mut near = host(own, 24, &[], OURS);
            for (from, to) in [(peer, own), (far, own), (peer, "10.0.0.9"), (peer, "fd00::9")] {
                let mut other = host(from, 24, &[], THEIRS);
                other.networks[0] = Network { ip: ip(to), prefix: 24 };
                other.route_to(at(0), ip(from), ip(to));
                other.solicitations().iter().for_each(|frame| _ = near.learn(at(0), frame));
            }
            assert_eq!(near.route_to(at(0), ip(own), ip(peer)), Route::To(THEIRS));
            assert_eq!((near.known.len(), near.solicitations().len()), (1, 0));
        }
    }

    #[test]
    fn other_networks_are_reached_by_the_gateway() {
        let mut near = host("10.0.0.1", 24, &["10.0.0.9"], OURS);
        let own = ip("10.0.0.1");
        for far in ["192.0.2.1", "192.0.2.2"] {
            assert_eq!(near.route_to(at(0), own, ip(far)), Route::Unresolved(ip("10.0.0.9")));
        }
        let solicitations = near.solicitations();
        assert_eq!(solicitations.len(), 1);
        near.learn(at(0), &answer("10.0.0.9", ROUTERS, &solicitations[0]));
        assert_eq!(near.route_to(at(4000), own, ip("192.0.2.3")), Route::To(ROUTERS));
        near.confirm(at(4000), ip("192.0.2.1"), ROUTERS);
        assert_eq!(near.route_to(at(6000), own, ip("192.0.2.3")), Route::To(ROUTERS));
        assert_eq!(near.solicitations().len(), 0, "what came through it was confirmed");
        for nobody in ["fd00::1", "10.0.0.255", "255.255.255.255"] {
            assert_eq!(near.route_to(at(6000), own, ip(nobody)), Route::Unreachable, "{nobody}");
        }
        let mut alone = host("10.0.0.1", 24, &[], OURS);
        assert_eq!(alone.route_to(at(0), own, ip("192.0.2.1")), Route::Unreachable);
    }

    #[test]
    fn truncated_messages_are_ignored() {
        for own in ["10.0.0.1", "fd00::1"] {
            let mut host = host(own, 24, &[], OURS);
            host.announce();
            let frame = host.solicitations().remove(0);
            assert!(parse_message(&frame).is_some());
            for len in 0..frame.len() {
                assert_eq!(parse_message(&frame[..len]), None, "{len} bytes");
            }
        }
    }

    #[test]
    fn groups_have_link_addresses() {
        let mac = |text| group_mac(ip(text)).to_string();
        assert_eq!(mac("239.129.2.3"), "01:00:5e:01:02:03");
        assert_eq!(mac("ff15::1:2:3"), "33:33:00:02:00:03");
    }
}
