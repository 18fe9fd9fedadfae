//! A port of several ports: one for each address of a device.
//!
//! A burst leaves by the port of its source address. Receive calls visit the ports in round-robin order. The ports may
//! belong to different interfaces, and to IPv4 and IPv6.

use std::io;
use std::iter;
use std::net::IpAddr;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

use smallvec::SmallVec;

use crate::net::{Burst, RxBuffer, TransmitErrorKind};
use crate::port::counters::PortCounters;
use crate::port::traits::{Control, Datapath, JoinError, LinkState, Port, PortInfo, TransmitError};
use crate::time::Instant;

/// Ports of several addresses that act as one port.
#[derive(Debug)]
pub struct MultiHomedPort<P> {
    first: P,
    others: Vec<P>,
    /// Addresses of the ports, in order.
    ips: SmallVec<[IpAddr; 4]>,
    /// Index of the port to receive from next.
    turn: usize,
    /// Number of bursts from an address of none of the ports.
    refused: u64,
}

impl<P: Port> MultiHomedPort<P> {
    /// Joins ports with different addresses. A property that only one address can have ([`PortInfo::ip`]) is that of
    /// the first.
    pub fn new(first: P, others: Vec<P>) -> Self {
        let ips = iter::once(&first).chain(&others).map(|port| port.info().ip).collect();
        Self { first, others, ips, turn: 0, refused: 0 }
    }

    fn ports(&self) -> impl Iterator<Item = &P> {
        iter::once(&self.first).chain(&self.others)
    }

    fn ports_mut(&mut self) -> impl Iterator<Item = &mut P> {
        iter::once(&mut self.first).chain(&mut self.others)
    }

    /// Returns the port with this index.
    fn at(&mut self, place: usize) -> &mut P {
        match place.checked_sub(1).and_then(|place| self.others.get_mut(place)) {
            Some(port) => port,
            None => &mut self.first,
        }
    }

    fn with(&mut self, ip: IpAddr) -> Option<&mut P> {
        let place = self.ips.iter().position(|own| *own == ip)?;
        Some(self.at(place))
    }

    /// Returns the ports with addresses of the same IP version as `ip`.
    fn of_version(&mut self, ip: IpAddr) -> impl Iterator<Item = &mut P> {
        self.ports_mut().filter(move |port| port.info().ip.is_ipv4() == ip.is_ipv4())
    }

    /// Sends the leading bursts that have the same source address. Returns their number, and `false` if the port did
    /// not take all of them.
    fn send_run(&mut self, now: Instant, bursts: &[Burst]) -> Result<(usize, bool), TransmitError> {
        let Some(first) = bursts.first() else { return Ok((0, true)) };
        let source = first.path.source;
        let run = bursts.iter().take_while(|burst| burst.path.source == source).count();
        let Some(port) = self.with(source) else {
            self.refused += 1;
            return Err(TransmitError { taken: 0, kind: TransmitErrorKind::Other });
        };
        let taken = port.transmit(now, &bursts[..run])?;
        Ok((taken, taken == run))
    }
}

impl<P: Port> Datapath for MultiHomedPort<P> {
    fn transmit(&mut self, now: Instant, bursts: &[Burst]) -> Result<usize, TransmitError> {
        if bursts.is_empty() {
            // An empty slice lets each port send what it holds back.
            self.ports_mut().for_each(|port| _ = port.transmit(now, &[]));
        }
        let mut taken = 0;
        while taken < bursts.len() {
            let sent = self.send_run(now, &bursts[taken..]);
            let (more, all) = sent.map_err(|error| error.behind(taken))?;
            taken += more;
            if !all {
                break;
            }
        }
        Ok(taken)
    }

    fn send_last(&mut self, burst: &Burst) {
        if let Some(port) = self.with(burst.path.source) {
            port.send_last(burst);
        }
    }

    /// Receives a batch from the next port that has one, so that traffic of one port does not delay another.
    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(RxBuffer<'_>)) -> io::Result<usize> {
        let count = self.ips.len();
        for _ in 0..count {
            let place = self.turn;
            self.turn = (place + 1) % count;
            let received = self.at(place).receive(now, sink)?;
            if received > 0 {
                return Ok(received);
            }
        }
        Ok(0)
    }

    fn arm(&mut self) -> bool {
        // Each port, even if one has a packet already.
        self.ports_mut().map(Datapath::arm).filter(|armed| !armed).count() == 0
    }

    fn receive_queue_bytes(&mut self, now: Instant, to: IpAddr) -> Option<u64> {
        self.of_version(to).next()?.receive_queue_bytes(now, to)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ports().filter_map(Datapath::poll_timeout).min()
    }

    fn counters(&self) -> PortCounters {
        let mut sum = PortCounters { refused: self.refused, ..PortCounters::default() };
        self.ports().for_each(|port| sum += &port.counters());
        sum
    }

    #[cfg(unix)]
    fn descriptors(&self) -> SmallVec<[BorrowedFd<'_>; 4]> {
        self.ports().flat_map(|port| port.descriptors()).collect()
    }
}

impl<P: Port> Control for MultiHomedPort<P> {
    fn source_port(&mut self, source: IpAddr, wanted: u16) -> u16 {
        // The port refuses such bursts, whatever their source port.
        self.with(source).map_or(wanted, |port| port.source_port(source, wanted))
    }

    fn report_ip_fields(&mut self) {
        self.ports_mut().for_each(Control::report_ip_fields);
    }

    fn keep_identifications(&mut self) {
        self.ports_mut().for_each(Control::keep_identifications);
    }

    /// Joins on each interface that has one of the addresses, once for each: otherwise the port would receive each
    /// datagram as often as the interface has addresses.
    fn join(&mut self, group: IpAddr) -> Result<(), JoinError> {
        let ip = self.first.info().ip;
        let mut joined: SmallVec<[u32; 4]> = SmallVec::new();
        let mut result = Err(JoinError::NotAGroup { group, ip });
        for port in self.of_version(group) {
            let interface = port.info().interface;
            if !joined.contains(&interface) {
                joined.push(interface);
                result = port.join(group);
            }
            if result.is_err() {
                break;
            }
        }
        if result.is_err() {
            self.leave(group);
        }
        result
    }

    fn leave(&mut self, group: IpAddr) {
        self.ports_mut().for_each(|port| port.leave(group));
    }

    fn poll_link(&mut self) -> Option<LinkState> {
        self.ports_mut().find_map(Control::poll_link)
    }

    fn info(&self) -> PortInfo {
        self.others.iter().map(Control::info).fold(self.first.info(), |all, one| PortInfo {
            link_mtu: all.link_mtu.min(one.link_mtu),
            gso: all.gso && one.gso,
            max_burst_segments: all.max_burst_segments.min(one.max_burst_segments),
            max_batch_bytes: all.max_batch_bytes.min(one.max_batch_bytes),
            gro: all.gro || one.gro,
            receive_buffer: all.receive_buffer.min(one.receive_buffer),
            sees_ip_header: all.sees_ip_header && one.sees_ip_header,
            omits_icrcs: all.omits_icrcs && one.omits_icrcs,
            ..all
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{BurstToken, Path};
    use crate::port::sim::{Conditions, HostConfig, Network, SimPort};

    const NOW: Instant = Instant::ZERO;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    const OURS: [&str; 3] = ["10.0.0.1", "10.0.0.2", "fd00::1"];

    /// Returns a port with three addresses, and a peer for each IP version.
    fn ports() -> (Network, MultiHomedPort<SimPort>, [SimPort; 2]) {
        let network = Network::new(0);
        // Without GRO, each buffer is one datagram.
        let config = HostConfig { gro: false, ..HostConfig::default() };
        let host = |at| network.host_with(ip(at), config);
        let [first, others @ ..] = OURS.map(host);
        let peers = ["10.0.0.9", "fd00::9"].map(host);
        (network, MultiHomedPort::new(first, others.into()), peers)
    }

    /// Returns a burst of one datagram that is filled with `number`.
    fn burst(from: &str, to: &str, number: u8) -> Burst {
        let path = Path {
            source: ip(from),
            destination: ip(to),
            source_port: 0xc123,
            traffic_class: 0,
            hop_limit: 64,
        };
        let mut burst = Burst::new();
        burst.reset(path, BurstToken(0));
        burst.push(64).fill(number);
        burst
    }

    /// Returns the buffers of one receive call: number, source and destination.
    fn received(port: &mut impl Port) -> Vec<(u8, IpAddr, IpAddr)> {
        let mut found = Vec::new();
        let take = |rx: RxBuffer<'_>| {
            found.push((rx.data[0], rx.meta.source.ip(), rx.meta.destination));
        };
        port.receive(NOW, &mut { take }).unwrap();
        found
    }

    #[test]
    fn a_burst_leaves_by_the_port_of_its_source() {
        let (_network, mut port, [mut v4, mut v6]) = ports();
        let bursts = [
            burst("10.0.0.2", "10.0.0.9", 1),
            burst("10.0.0.2", "10.0.0.9", 2),
            burst("fd00::1", "fd00::9", 3),
            burst("10.0.0.1", "10.0.0.9", 4),
        ];
        assert_eq!(port.transmit(NOW, &bursts), Ok(4));
        let from = |number, source| (number, ip(source), ip("10.0.0.9"));
        let expected = [from(1, "10.0.0.2"), from(2, "10.0.0.2"), from(4, "10.0.0.1")];
        assert_eq!(received(&mut v4), expected);
        assert_eq!(received(&mut v6), [(3, ip("fd00::1"), ip("fd00::9"))]);
        let counters = port.counters();
        assert_eq!((counters.tx_bursts, counters.tx_bytes), (4, 256));
    }

    #[test]
    fn a_refusal_counts_all_that_were_taken_before() {
        let (_network, mut port, _peers) = ports();
        let good = || burst("10.0.0.2", "10.0.0.9", 1);
        for (bad, kind) in [
            (burst("10.0.0.3", "10.0.0.9", 2), TransmitErrorKind::Other),
            (burst("fd00::1", "10.0.0.9", 2), TransmitErrorKind::Unreachable),
        ] {
            let bursts = [burst("10.0.0.1", "10.0.0.9", 0), good(), good(), bad, good()];
            assert_eq!(port.transmit(NOW, &bursts), Err(TransmitError { taken: 3, kind }));
        }
        assert_eq!(port.counters().refused, 2);
    }

    #[test]
    fn busy_port_stops_the_bursts_behind() {
        let (network, mut port, [mut v4, mut v6]) = ports();
        network.set_conditions(Conditions { refuse_send: 1.0, ..Conditions::default() });
        let bursts = [burst("10.0.0.1", "10.0.0.9", 1), burst("fd00::1", "fd00::9", 2)];
        assert_eq!(port.transmit(NOW, &bursts), Ok(0));
        network.set_conditions(Conditions::default());
        assert_eq!((received(&mut v4), received(&mut v6)), (vec![], vec![]));
        assert_eq!(port.counters().busy, 1);
    }

    #[test]
    fn traffic_of_one_address_does_not_delay_the_others() {
        let (_network, mut port, [mut v4, mut v6]) = ports();
        let flood: Vec<_> = (0..100).map(|_| burst("10.0.0.9", "10.0.0.1", 1)).collect();
        assert_eq!(v4.transmit(NOW, &flood), Ok(100));
        assert_eq!(v4.transmit(NOW, &[burst("10.0.0.9", "10.0.0.2", 2)]), Ok(1));
        assert_eq!(v6.transmit(NOW, &[burst("fd00::9", "fd00::1", 3)]), Ok(1));
        let calls: Vec<_> = (0..8).map(|_| received(&mut port)).collect();
        let at: Vec<_> = calls.iter().map(|call| call.first().map(|(_, _, at)| *at)).collect();
        let [one, two, three] = OURS.map(|at| Some(ip(at)));
        assert_eq!(at, [one, two, three, one, one, one, None, None], "a batch each, in turn");
        assert_eq!(calls.iter().map(Vec::len).sum::<usize>(), 102);
        assert_eq!(port.counters().rx_datagrams, 102);
    }

    #[test]
    fn info_has_the_minimum_of_all_ports() {
        let network = Network::new(0);
        let host = |at, link_mtu, receive_buffer| {
            let config = HostConfig { link_mtu, receive_buffer, ..HostConfig::default() };
            network.host_with(ip(at), config)
        };
        let first = host(OURS[0], 9000, 4096);
        let expected = PortInfo { link_mtu: 1500, receive_buffer: 1024, ..first.info() };
        let others = vec![host(OURS[1], 1500, 8192), host(OURS[2], 4200, 1024)];
        assert_eq!(MultiHomedPort::new(first, others).info(), expected);
    }

    #[test]
    fn a_group_is_joined_once_an_interface() {
        let (_network, mut port, [mut v4, mut v6]) = ports();
        let (group, group6) = ("239.1.2.3", "ff15::1");
        port.join(ip(group)).unwrap();
        port.join(ip(group)).unwrap();
        assert_eq!(v4.transmit(NOW, &[burst("10.0.0.9", group, 1)]), Ok(1));
        assert_eq!(v6.transmit(NOW, &[burst("fd00::9", group6, 2)]), Ok(1));
        // Both IPv4 addresses belong to one interface; no port has joined the other group.
        assert_eq!(received(&mut port), [(1, ip("10.0.0.9"), ip(group))]);
        assert_eq!(received(&mut port), []);
        port.join(ip(group6)).unwrap();
        assert_eq!(v6.transmit(NOW, &[burst("fd00::9", group6, 3)]), Ok(1));
        assert_eq!(received(&mut port), [(3, ip("fd00::9"), ip(group6))]);
        port.leave(ip(group));
        assert_eq!(v4.transmit(NOW, &[burst("10.0.0.9", group, 4)]), Ok(1));
        assert_eq!(received(&mut port), []);
    }

    #[test]
    fn a_group_of_no_version_of_ours_is_refused() {
        let network = Network::new(0);
        let [first, second] = ["10.0.0.1", "10.0.0.2"].map(|at| network.host(ip(at)));
        let error = MultiHomedPort::new(first, vec![second]).join(ip("ff15::1")).unwrap_err();
        let rest = "it is no multicast group of the IP version of 10.0.0.1";
        assert_eq!(error.to_string(), format!("cannot join ff15::1: {rest}"));
    }
}
