//! What the kernel knows of the link: addresses of interfaces and neighbours, and what is behind which
//! (`rtnetlink(7)`). It answers before a request returns.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{LinkAttribute, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use socket2::{Domain, Protocol, Socket, Type};

use super::frame::Link;
use crate::time::Instant;

/// How long what the kernel has said is believed.
const FRESH: Duration = Duration::from_millis(500);

/// Destinations that are remembered at most.
const MOST: usize = 4096;

/// The interface of a port, and who can be reached on its link.
#[derive(Debug)]
pub(super) struct Neighbours {
    netlink: Socket,
    ip: IpAddr,
    interface: u32,
    hardware: [u8; 6],
    known: HashMap<IpAddr, Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    until: Instant,
    link: Option<Link>,
}

impl Neighbours {
    /// Those of an interface that has the address `ip`; `None` when its frames are not of Ethernet.
    pub(super) fn new(ip: IpAddr, interface: u32) -> io::Result<Option<Self>> {
        let (domain, protocol) =
            (Domain::from(libc::AF_NETLINK), Protocol::from(libc::NETLINK_ROUTE));
        let netlink = Socket::new(domain, Type::DGRAM, Some(protocol))?;
        netlink.set_nonblocking(true)?;
        let Some(hardware) = hardware(&netlink, interface)? else { return Ok(None) };
        Ok(Some(Self { netlink, ip, interface, hardware, known: HashMap::new() }))
    }

    /// The link addresses of a frame to `destination`. `None` when no frame of this interface gets there,
    /// or the kernel does not know to whom it would have to go: it finds out when it sends.
    pub(super) fn to(&mut self, now: Instant, destination: IpAddr) -> Option<Link> {
        if let Some(known) = self.known.get(&destination).filter(|known| now < known.until) {
            return known.link;
        }
        let hop = self.next_hop(destination).ok().flatten();
        let neighbour = hop.and_then(|hop| self.neighbour(hop).ok().flatten());
        let link = neighbour.map(|destination| Link { source: self.hardware, destination });
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(destination, Known { until: now + FRESH, link });
        link
    }

    /// Who on the link of this interface a packet would go to; `None` when it would go elsewhere.
    fn next_hop(&self, destination: IpAddr) -> io::Result<Option<IpAddr>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = bits(destination);
        message.header.source_prefix_length = bits(self.ip);
        message.attributes = vec![
            RouteAttribute::Destination(destination.into()),
            RouteAttribute::Source(self.ip.into()),
        ];
        let answer = ask(&self.netlink, RouteNetlinkMessage::GetRoute(message))?;
        let Some(RouteNetlinkMessage::NewRoute(route)) = answer else { return Ok(None) };
        let mut hop = Some(destination);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(interface) if *interface != self.interface => hop = None,
                RouteAttribute::Gateway(RouteAddress::Inet(ip)) => {
                    hop = hop.and(Some((*ip).into()))
                }
                RouteAttribute::Gateway(RouteAddress::Inet6(ip)) => {
                    hop = hop.and(Some((*ip).into()));
                }
                // Through a tunnel, or a gateway of the other IP version.
                RouteAttribute::Via(_) | RouteAttribute::Encap(_) => hop = None,
                _ => {}
            }
        }
        Ok(hop.filter(|_| route.header.kind == RouteType::Unicast))
    }

    /// The link address of `ip`, if the kernel knows it.
    fn neighbour(&self, ip: IpAddr) -> io::Result<Option<[u8; 6]>> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(ip);
        message.header.ifindex = self.interface;
        let address = match ip {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        };
        message.attributes = vec![NeighbourAttribute::Destination(address)];
        let answer = ask(&self.netlink, RouteNetlinkMessage::GetNeighbour(message))?;
        let Some(RouteNetlinkMessage::NewNeighbour(neighbour)) = answer else { return Ok(None) };
        use NeighbourState::{Delay, Permanent, Probe, Reachable, Stale};
        if !matches!(neighbour.header.state, Delay | Permanent | Probe | Reachable | Stale) {
            return Ok(None);
        }
        Ok(neighbour.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(address) => address.as_slice().try_into().ok(),
            _ => None,
        }))
    }
}

/// The link address of an interface of Ethernet, or of the loopback interface, whose frames look the same.
fn hardware(netlink: &Socket, interface: u32) -> io::Result<Option<[u8; 6]>> {
    let mut message = LinkMessage::default();
    message.header.index = interface;
    let answer = ask(netlink, RouteNetlinkMessage::GetLink(message))?;
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

/// What the kernel answers; `None` when that is an error: there is no such thing.
fn ask(
    mut netlink: &Socket,
    message: RouteNetlinkMessage,
) -> io::Result<Option<RouteNetlinkMessage>> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    netlink.write_all(&bytes)?;
    // An interface says much of itself.
    let mut answer = vec![0; 16 << 10];
    let len = netlink.read(&mut answer)?;
    let answer = answer.get(..len).unwrap_or_default();
    let answer = NetlinkMessage::deserialize(answer).map_err(io::Error::other)?;
    Ok(match answer.payload {
        NetlinkPayload::InnerMessage(message) => Some(message),
        _ => None,
    })
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
    fn nobody_on_the_loopback_interface_is_a_neighbour() {
        let ip = "127.0.0.1".parse().unwrap();
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let interface = index.trim().parse().unwrap();
        let mut neighbours = Neighbours::new(ip, interface).unwrap().unwrap();
        assert_eq!(neighbours.hardware, [0; 6]);
        let now = Instant::ZERO;
        assert_eq!(neighbours.to(now, "127.0.0.2".parse().unwrap()), None);
        assert_eq!(neighbours.next_hop("127.0.0.2".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn an_interface_that_does_not_exist_is_none() {
        assert!(Neighbours::new("127.0.0.1".parse().unwrap(), 0x7fff_fff0).unwrap().is_none());
    }
}
