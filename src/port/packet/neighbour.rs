//! Routes, neighbours and interfaces of the kernel, by requests to `rtnetlink(7)`. The kernel answers before a request
//! returns.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use socket2::{Domain, Protocol, Socket, Type};

use super::unresolved::{NeighbourBytes, UnresolvedBytes};
use crate::net::Burst;
use crate::port::shared::frame::Link;
use crate::time::Instant;

/// Time for which a resolved route is cached.
const RESOLVED_ROUTE_TTL: Duration = Duration::from_millis(500);

/// Time for which an unresolved route is cached: the neighbour may answer soon.
const UNRESOLVED_ROUTE_TTL: Duration = Duration::from_millis(1);

/// Maximum number of reads for one answer.
const MAX_READS: usize = 256;

/// Maximum number of cached destinations, after which the cache is cleared.
const MAX_CACHED_ROUTES: usize = 4096;

/// Interface of a port, and the routes to neighbours on its link.
#[derive(Debug)]
pub(super) struct Neighbours {
    netlink: Netlink,
    ip: IpAddr,
    interface: u32,
    link_address: [u8; 6],
    known: HashMap<IpAddr, CachedRoute>,
    waiting: UnresolvedBytes,
}

/// How a burst is sent to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// In frames of this port.
    Frames {
        link: Link,
        /// Path MTU, as far as the kernel knows it.
        mtu: usize,
    },
    /// By the kernel: the route does not use this interface, or the kernel has to probe the neighbour.
    ByKernel,
    /// By the kernel, which does not know the link address and resolves it on the first packet.
    Unresolved,
}

/// Next hop of a route.
#[derive(Clone, Copy, Debug)]
struct Hop {
    ip: IpAddr,
    /// MTU of the route.
    mtu: usize,
}

#[derive(Clone, Copy, Debug)]
struct CachedRoute {
    until: Instant,
    route: Route,
    share: NeighbourBytes,
}

/// Neighbour entry of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Neighbour {
    /// Reachable, with this link address.
    Reachable([u8; 6]),
    /// Not confirmed for a while, with this link address.
    Stale([u8; 6]),
    /// Incomplete: a solicitation is pending.
    Incomplete,
    /// Failed, or no entry.
    Failed,
}

impl Neighbours {
    /// Opens the routes of the interface with the address `ip`; `None` if it is not Ethernet.
    pub(super) fn new(ip: IpAddr, interface: u32) -> io::Result<Option<Self>> {
        let netlink = Netlink::open()?;
        let Some(link_address) = link_address(&netlink, interface)? else { return Ok(None) };
        let waiting = UnresolvedBytes::default();
        Ok(Some(Self { netlink, ip, interface, link_address, known: HashMap::new(), waiting }))
    }

    /// Moves to another interface, or to a changed one. Returns `false` if it is not Ethernet, or does not exist.
    pub(super) fn follow(&mut self, interface: u32) -> bool {
        self.known.clear();
        let Ok(Some(link_address)) = link_address(&self.netlink, interface) else { return false };
        (self.interface, self.link_address) = (interface, link_address);
        true
    }

    /// Returns how to send a burst to `destination` now.
    pub(super) fn route_to(&mut self, now: Instant, destination: IpAddr) -> Route {
        let known = self.known.get(&destination);
        if let Some(known) = known.filter(|known| now < known.until) {
            return known.route;
        }
        let mut share = known.map(|known| known.share).unwrap_or_default();
        let hop = self.next_hop(destination).ok().flatten();
        let found = hop.map(|hop| (hop, self.neighbour(hop.ip).unwrap_or(Neighbour::Failed)));
        let frames = |to, Hop { mtu, .. }| {
            let link = Link { source: self.link_address, destination: to };
            Route::Frames { link, mtu }
        };
        let (route, cached) = match found {
            None => (Route::ByKernel, Route::ByKernel),
            Some((hop, Neighbour::Reachable(to))) => (frames(to, hop), frames(to, hop)),
            Some((hop, Neighbour::Stale(to))) => (Route::ByKernel, frames(to, hop)),
            Some((_, Neighbour::Incomplete | Neighbour::Failed)) => {
                (Route::Unresolved, Route::Unresolved)
            }
        };
        if !matches!(found, Some((_, Neighbour::Incomplete))) {
            self.waiting.release(mem::take(&mut share));
        }
        if self.known.len() >= MAX_CACHED_ROUTES {
            self.known.clear();
        }
        let until = now
            + if cached == Route::Unresolved { UNRESOLVED_ROUTE_TTL } else { RESOLVED_ROUTE_TTL };
        self.known.insert(destination, CachedRoute { until, route: cached, share });
        route
    }

    /// Returns whether the kernel has room for a burst to an unresolved neighbour, and counts it if so.
    pub(super) fn may_queue(&mut self, now: Instant, burst: &Burst) -> bool {
        let known = self.known.get_mut(&burst.path.destination);
        known.is_some_and(|known| self.waiting.try_charge(now, &mut known.share, burst))
    }

    /// Returns the next hop on this interface; `None` if the route uses another.
    fn next_hop(&self, destination: IpAddr) -> io::Result<Option<Hop>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = bits(destination);
        message.header.source_prefix_length = bits(self.ip);
        message.attributes = vec![
            RouteAttribute::Destination(destination.into()),
            RouteAttribute::Source(self.ip.into()),
        ];
        let answer = self.netlink.request(RouteNetlinkMessage::GetRoute(message))?;
        let Some(RouteNetlinkMessage::NewRoute(route)) = answer else { return Ok(None) };
        let (mut hop, mut mtu) = (Some(destination), usize::MAX);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(interface) if *interface != self.interface => hop = None,
                RouteAttribute::Gateway(RouteAddress::Inet(ip)) => {
                    hop = hop.and(Some((*ip).into()))
                }
                RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => {
                    hop = hop.and(Some((*ip).into()));
                }
                RouteAttribute::Metrics(metrics) => {
                    let told = metrics.iter().find_map(|metric| match metric {
                        RouteMetric::Mtu(mtu) => usize::try_from(*mtu).ok(),
                        _ => None,
                    });
                    mtu = told.unwrap_or(mtu);
                }
                // Through a tunnel, or a gateway of the other IP version.
                RouteAttribute::Via(_) | RouteAttribute::Encap(_) => hop = None,
                _ => {}
            }
        }
        let hop = hop.filter(|_| route.header.kind == RouteType::Unicast);
        Ok(hop.map(|ip| Hop { ip, mtu }))
    }

    /// Returns the neighbour entry of `ip`.
    fn neighbour(&self, ip: IpAddr) -> io::Result<Neighbour> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(ip);
        message.header.ifindex = self.interface;
        let address = match ip {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        };
        message.attributes = vec![NeighbourAttribute::Destination(address)];
        let answer = self.netlink.request(RouteNetlinkMessage::GetNeighbour(message))?;
        let Some(RouteNetlinkMessage::NewNeighbour(neighbour)) = answer else {
            return Ok(Neighbour::Failed);
        };
        let address = neighbour.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(address) => address.as_slice().try_into().ok(),
            _ => None,
        });
        use NeighbourState::{Delay, Incomplete, Permanent, Probe, Reachable, Stale};
        Ok(match (neighbour.header.state, address) {
            (Delay | Permanent | Probe | Reachable, Some(address)) => Neighbour::Reachable(address),
            (Stale, Some(address)) => Neighbour::Stale(address),
            (Incomplete, _) => Neighbour::Incomplete,
            _ => Neighbour::Failed,
        })
    }
}

/// Returns the link address of an Ethernet or loopback interface, whose frames have the same form.
fn link_address(netlink: &Netlink, interface: u32) -> io::Result<Option<[u8; 6]>> {
    let mut message = LinkMessage::default();
    message.header.index = interface;
    let answer = netlink.request(RouteNetlinkMessage::GetLink(message))?;
    let Some(RouteNetlinkMessage::NewLink(link)) = answer else { return Ok(None) };
    let kind = link.header.link_layer_type;
    if !matches!(kind, LinkLayerType::Ether | LinkLayerType::Loopback) {
        return Ok(None);
    }
    Ok(link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Address(address) => address.as_slice().try_into().ok(),
        _ => None,
    }))
}

/// A socket of the netlink protocol `NETLINK_ROUTE`.
#[derive(Debug)]
struct Netlink {
    socket: Socket,
    /// Sequence number of the last request.
    sequence: Cell<u32>,
}

impl Netlink {
    fn open() -> io::Result<Self> {
        let (domain, protocol) =
            (Domain::from(libc::AF_NETLINK), Protocol::from(libc::NETLINK_ROUTE));
        let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, sequence: Cell::new(0) })
    }

    /// Sends a request and returns its sequence number.
    fn send(&self, message: RouteNetlinkMessage) -> io::Result<u32> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST;
        header.sequence_number = sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        (&self.socket).write_all(&bytes)?;
        Ok(sequence)
    }

    /// Returns the answer of the kernel; `None` if that is an error: there is no such object.
    ///
    /// An answer to an earlier, failed request may still be unread.
    fn request(&self, message: RouteNetlinkMessage) -> io::Result<Option<RouteNetlinkMessage>> {
        let sequence = self.send(message)?;
        // The answer about an interface is long.
        let mut answer = vec![0; 16 << 10];
        for _ in 0..MAX_READS {
            let len = match (&self.socket).read(&mut answer) {
                Ok(len) => len,
                // An answer was lost for lack of space. The kernel reports that once; it may have been another answer.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let answer = answer.get(..len).unwrap_or_default();
            let found = answer.get(8..).and_then(|rest| rest.first_chunk());
            if found.is_none_or(|found| u32::from_ne_bytes(*found) != sequence) {
                continue;
            }
            let answer = NetlinkMessage::deserialize(answer).map_err(io::Error::other)?;
            return Ok(match answer.payload {
                NetlinkPayload::InnerMessage(message) => Some(message),
                _ => None,
            });
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_routed_by_the_kernel() {
        let ip = "127.0.0.1".parse().unwrap();
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let interface = index.trim().parse().unwrap();
        let mut neighbours = Neighbours::new(ip, interface).unwrap().unwrap();
        assert_eq!(neighbours.link_address, [0; 6]);
        let now = Instant::ZERO;
        assert_eq!(neighbours.route_to(now, "127.0.0.2".parse().unwrap()), Route::ByKernel);
        assert!(neighbours.next_hop("127.0.0.2".parse().unwrap()).unwrap().is_none());
    }

    #[test]
    fn earlier_answer_is_not_taken_for_the_next() {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let mut of_loopback = LinkMessage::default();
        of_loopback.header.index = index.trim().parse().unwrap();
        let netlink = Netlink::open().unwrap();
        netlink.send(RouteNetlinkMessage::GetLink(of_loopback)).unwrap();
        assert_eq!(link_address(&netlink, 0x7fff_fff0).unwrap(), None);
    }

    #[test]
    fn an_interface_that_does_not_exist_is_none() {
        assert!(Neighbours::new("127.0.0.1".parse().unwrap(), 0x7fff_fff0).unwrap().is_none());
    }
}
