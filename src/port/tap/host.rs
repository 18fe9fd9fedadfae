//! The part of a host besides RoCE, implemented by smoltcp: responses to ARP, neighbour discovery and echo requests,
//! ICMP errors for closed ports, and multicast reports to routers (IGMP, MLD).

use std::fmt;
use std::mem;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use smoltcp::iface::{Config, Interface, MulticastError, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::time;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};

use super::config::{Mac, Network};
use crate::time::Instant;
use crate::wire::encap::{ETHERNET_LEN, IPV6_LEN, ethernet};

/// Maximum number of addresses: those of smoltcp (`iface-max-addr-count-8`), less the link-local one.
pub(super) const MAX_ADDRESSES: usize = 7;

/// Longest frame that is answered: an echo request in an IP packet of maximum length.
const MAX_FRAME_LEN: usize = ETHERNET_LEN + 65_535;

/// Interval of the polls for multicast reports, and their duration after a query: a router may allow ten seconds.
const REPORT_POLL_INTERVAL: Duration = Duration::from_millis(250);
const REPORT_POLL_TIME: Duration = Duration::from_secs(11);

/// The host of a TAP port.
pub(super) struct Host {
    interface: Interface,
    sockets: SocketSet<'static>,
    link: Link,
    /// Time of the next poll.
    due: Option<Instant>,
    until: Instant,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("due", &self.due).finish_non_exhaustive()
    }
}

impl Host {
    /// Returns a host with addresses, as many as there is room for.
    pub(super) fn new(now: Instant, mac: Mac, addresses: &[Network], gateways: &[IpAddr]) -> Self {
        let mut link = Link::default();
        let mac = EthernetAddress(mac.0);
        let config = Config::new(HardwareAddress::Ethernet(mac));
        let mut interface = Interface::new(config, &mut link, time_of(now));
        interface.update_ip_addrs(|all| {
            let addresses = addresses.iter().map(|at| IpCidr::new(at.ip.into(), at.prefix));
            let has_ipv6 = |at: &IpCidr| matches!(at, IpCidr::Ipv6(_));
            // Multicast reports are sent from a link-local address.
            let addresses: Vec<_> = addresses.take(MAX_ADDRESSES).collect();
            let local = IpCidr::new(local_to_link(mac).into(), 64);
            let local = addresses.iter().any(has_ipv6).then_some(local);
            for address in addresses.into_iter().chain(local) {
                let _ = all.push(address);
            }
        });
        for gateway in gateways {
            // There is room for one of each IP version.
            let _ = match *gateway {
                IpAddr::V4(ip) => interface.routes_mut().add_default_ipv4_route(ip).map(drop),
                IpAddr::V6(ip) => interface.routes_mut().add_default_ipv6_route(ip).map(drop),
            };
        }
        let sockets = SocketSet::new(Vec::new());
        Self { interface, sockets, link, due: Some(now), until: now }
    }

    /// Processes a received frame and returns the frames that respond to it.
    pub(super) fn take(&mut self, now: Instant, frame: &[u8]) -> Vec<Vec<u8>> {
        if is_odd_query(frame) {
            return Vec::new();
        }
        self.link.received.extend_from_slice(frame);
        if frame.first().is_some_and(|byte| byte & 1 == 1) {
            self.until = now + REPORT_POLL_TIME;
        }
        self.attend(now)
    }

    /// Returns the frames that are due.
    pub(super) fn attend(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.interface.poll(time_of(now), &mut self.link, &mut self.sockets);
        self.due = (now < self.until).then(|| now + REPORT_POLL_INTERVAL);
        mem::take(&mut self.link.to_send)
    }

    /// Returns the time of the next [`attend`](Self::attend).
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn join(&mut self, group: IpAddr) -> Result<(), MulticastError> {
        self.due = Some(Instant::ZERO);
        self.interface.join_multicast_group(group)
    }

    pub(super) fn leave(&mut self, group: IpAddr) {
        self.due = Some(Instant::ZERO);
        // The host has joined it.
        let _ = self.interface.leave_multicast_group(group);
    }
}

/// Returns the link-local IPv6 address of a MAC address (RFC 4291, appendix A).
fn local_to_link(EthernetAddress([a, b, c, d, e, f]): EthernetAddress) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Returns whether this is an MLD query with a maximum response delay of 0. The host drops such queries.
fn is_odd_query(frame: &[u8]) -> bool {
    const HOP_BY_HOP: u8 = 0;
    const QUERY: u8 = 130;
    let Ok((0x86dd, packet)) = ethernet(frame) else { return false };
    let Some((header, mut rest)) = packet.split_first_chunk::<IPV6_LEN>() else { return false };
    let [_, _, _, _, _, _, mut next, ..] = *header;
    while next == HOP_BY_HOP {
        let [after, words, ..] = *rest else { return false };
        next = after;
        rest = rest.get((usize::from(words) + 1) * 8..).unwrap_or_default();
    }
    matches!(rest, [QUERY, _, _, _, 0, 0, ..])
}

fn time_of(now: Instant) -> time::Instant {
    let micros = i64::try_from(now.as_nanos() / 1000).unwrap_or(i64::MAX);
    time::Instant::from_micros(micros)
}

/// Queues between smoltcp and the port: one received frame, and frames to send.
#[derive(Debug, Default)]
struct Link {
    received: Vec<u8>,
    to_send: Vec<Vec<u8>>,
}

impl Device for Link {
    type RxToken<'a> = HostRxToken<'a>;
    type TxToken<'a> = HostTxToken<'a>;

    fn receive(&mut self, _: time::Instant) -> Option<(HostRxToken<'_>, HostTxToken<'_>)> {
        let Self { received, to_send } = self;
        (!received.is_empty()).then_some((HostRxToken(received), HostTxToken(to_send)))
    }

    fn transmit(&mut self, _: time::Instant) -> Option<HostTxToken<'_>> {
        Some(HostTxToken(&mut self.to_send))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = MAX_FRAME_LEN;
        capabilities
    }
}

struct HostRxToken<'a>(&'a mut Vec<u8>);

impl phy::RxToken for HostRxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        let result = take(self.0);
        self.0.clear();
        result
    }
}

struct HostTxToken<'a>(&'a mut Vec<Vec<u8>>);

impl phy::TxToken for HostTxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.0.push(frame);
        result
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::neighbours::Neighbours;
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const NOW: Instant = Instant::from_millis(1);

    fn networks() -> [Network; 2] {
        ["10.0.0.1", "fd00::1"].map(|ip| Network { ip: ip.parse().unwrap(), prefix: 24 })
    }

    /// Returns a host with both addresses that is in a group of each IP version.
    fn host() -> Host {
        let mut host = Host::new(NOW, MAC, &networks(), &[]);
        for group in ["239.1.2.3", "ff15::1"] {
            host.join(group.parse().unwrap()).unwrap();
        }
        host
    }

    /// Returns frames to such a host from another: ARP, neighbour discovery, and an echo request of each IP version.
    fn frames() -> Vec<Vec<u8>> {
        let mac = Mac([2, 0, 0, 0, 0, 2]);
        let mut peer = Neighbours::new(mac, &[], networks().to_vec(), Vec::new());
        for (from, to) in [("10.0.0.2", "10.0.0.1"), ("fd00::2", "fd00::1")] {
            peer.route_to(NOW, from.parse().unwrap(), to.parse().unwrap());
        }
        let mut frames = peer.solicitations();
        let ethernet = |kind: [u8; 2]| [&MAC.0[..], &[2, 0, 0, 0, 0, 2], &kind].concat();
        let ipv4 = [0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 1, 0x26, 0xdb, 10, 0, 0, 2, 10, 0, 0, 1];
        let echo = [8, 0, 0xf7, 0xff - 1, 0, 0, 0, 1, 0, 0, 0, 0];
        frames.push([ethernet([8, 0]), ipv4.to_vec(), echo.to_vec()].concat());
        frames.push([ethernet([0x86, 0xdd]), query(100)].concat());
        frames
    }

    /// Returns an MLD query of a router with this maximum response delay.
    fn query(time: u8) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 36, 0, 1, 0xfe, 0x80];
        packet.extend([0; 13]);
        packet.extend([9, 0xff, 2]);
        packet.extend([0; 13]);
        packet.extend([1, 58, 0, 5, 2, 0, 0, 0, 0, 130, 0]);
        packet.extend((0x801b_u16 - u16::from(time)).to_be_bytes());
        packet.extend([0, time]);
        packet.extend([0; 22]);
        packet
    }

    #[test]
    fn echo_requests_and_questions_are_answered() {
        let mut host = host();
        host.attend(NOW);
        let frames = frames();
        let answers: Vec<_> = frames.iter().map(|frame| host.take(NOW, frame).len()).collect();
        assert_eq!(answers, [1, 1, 1, 0], "the last is answered later");
        let late = (1..40).find(|n| !host.attend(NOW + REPORT_POLL_INTERVAL * *n).is_empty());
        assert!(late.is_some(), "routers are told");
        let echo = Host::new(NOW, MAC, &networks()[..1], &[]).take(NOW, &frames[2]);
        assert_eq!(echo.len(), 1, "it asks who that was");
    }

    #[test]
    fn a_group_is_told_when_it_is_joined_and_left() {
        let mut host = Host::new(NOW, MAC, &networks(), &[]);
        host.attend(NOW);
        for group in ["239.1.2.3", "ff15::1"].map(|group| group.parse().unwrap()) {
            host.join(group).unwrap();
            assert_eq!(host.due(), Some(Instant::ZERO));
            assert_eq!(host.attend(NOW).len(), 1, "joined");
            assert!(host.attend(NOW).is_empty());
            host.leave(group);
            assert_eq!(host.attend(NOW).len(), 1, "left");
        }
    }

    #[test]
    fn a_question_without_time_is_dropped() {
        let mut host = host();
        let frame = |time| {
            [&[0x33, 0x33, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd], &*query(time)].concat()
        };
        assert!(is_odd_query(&frame(0)));
        assert!(!is_odd_query(&frame(1)));
        host.take(NOW, &frame(0));
    }

    proptest! {
        /// A panic would end the device.
        #[test]
        fn no_frame_makes_it_panic(
            which in 0..4_usize,
            changes in vec((0..120_usize, any::<u8>()), 0..4),
            len in 0..120_usize,
            junk in vec(any::<u8>(), 0..80),
        ) {
            let mut host = host();
            let mut frame = frames().swap_remove(which);
            for (at, byte) in changes {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            frame.truncate(len.max(20));
            host.take(NOW, &frame);
            frame.extend(junk);
            host.take(NOW, &frame);
            host.attend(NOW + REPORT_POLL_TIME);
        }
    }
}
