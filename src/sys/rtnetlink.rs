//! Requests to the kernel about interfaces, routes and neighbours (`rtnetlink(7)`).
//!
//! The kernel answers before a request returns.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::IpAddr;

use libc::c_int;
use socket2::Socket;

use super::OwnDescriptor;
use super::netlink::{self, Message, attributes, u16_at, u32_at};

/// Maximum number of reads for one answer.
const MAX_READS: usize = 256;

/// Maximum number of bytes read of an answer; that about an interface is the longest.
const MAX_ANSWER_BYTES: usize = 16 << 10;

/// Lengths in bytes of the bodies `ifinfomsg`, `ndmsg` and `rtmsg`.
const LINK_BODY_LEN: usize = 16;
const NEIGHBOUR_BODY_LEN: usize = 12;
const ROUTE_BODY_LEN: usize = 12;

/// `IFLA_ADDRESS` of `linux/if_link.h`.
const LINK_ADDRESS: u16 = 1;

/// `RTAX_MTU` of `linux/rtnetlink.h`.
const METRIC_MTU: u16 = 2;

/// A unicast route that leads out of an interface, without a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnicastRoute {
    /// Index of the interface; `None` if the kernel names none.
    pub(crate) interface: Option<u32>,
    /// Address of the receiver of the frames: the gateway, or the destination itself.
    pub(crate) next_hop: IpAddr,
    /// MTU of the route in bytes; `None` if the route has none of its own.
    pub(crate) mtu: Option<u32>,
}

/// Entry of the kernel's table of neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Neighbour {
    /// Reachable, with this link address.
    Reachable([u8; 6]),
    /// Not confirmed for a while, with this link address.
    Stale([u8; 6]),
    /// Incomplete: a solicitation is pending.
    Incomplete,
    /// Failed, or no entry.
    Failed,
}

/// A socket of the netlink protocol `NETLINK_ROUTE`.
#[derive(Debug)]
pub(crate) struct RtNetlink {
    socket: OwnDescriptor<Socket>,
    /// Sequence number of the last request.
    sequence: Cell<u32>,
}

impl RtNetlink {
    /// Opens the socket.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = netlink::open(libc::NETLINK_ROUTE).map(OwnDescriptor::new)?;
        Ok(Self { socket, sequence: Cell::new(0) })
    }

    /// Opens the socket again if other code of the process has closed it. Without another one requests fail.
    pub(crate) fn reopen_if_lost(&mut self) {
        if !self.socket.is_own()
            && let Ok(reopened) = Self::open()
        {
            *self = reopened;
        }
    }

    /// Returns the link address of an Ethernet or loopback interface; `None` for other interfaces, and if there is
    /// none with this index. Frames of both kinds have the same form.
    ///
    /// # Errors
    ///
    /// The kernel does not answer.
    pub(crate) fn link_address(&self, interface: u32) -> io::Result<Option<[u8; 6]>> {
        let mut body = [0; LINK_BODY_LEN];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        self.request(libc::RTM_GETLINK, &body, &[], |kind, body| {
            (kind == libc::RTM_NEWLINK).then(|| parse_link(body))?
        })
    }

    /// Returns the route of packets from `source` to `destination`; `None` if they are not sent as unicast packets out
    /// of an interface.
    ///
    /// # Errors
    ///
    /// The kernel does not answer.
    pub(crate) fn route(
        &self,
        source: IpAddr,
        destination: IpAddr,
    ) -> io::Result<Option<UnicastRoute>> {
        let mut body = [0; ROUTE_BODY_LEN];
        body[..3].copy_from_slice(&[family(destination), bits(destination), bits(source)]);
        let attributes =
            [(libc::RTA_DST, &octets(destination)[..]), (libc::RTA_SRC, &octets(source)[..])];
        self.request(libc::RTM_GETROUTE, &body, &attributes, |kind, body| {
            (kind == libc::RTM_NEWROUTE).then(|| parse_route(body, destination))?
        })
    }

    /// Returns the entry of a neighbour on an interface.
    ///
    /// # Errors
    ///
    /// The kernel does not answer.
    pub(crate) fn neighbour(&self, interface: u32, ip: IpAddr) -> io::Result<Neighbour> {
        let mut body = [0; NEIGHBOUR_BODY_LEN];
        body[0] = family(ip);
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        let attributes = [(libc::NDA_DST, &octets(ip)[..])];
        let found = self.request(libc::RTM_GETNEIGH, &body, &attributes, |kind, body| {
            (kind == libc::RTM_NEWNEIGH).then(|| parse_neighbour(body))?
        })?;
        Ok(found.unwrap_or(Neighbour::Failed))
    }

    /// Sends a request and returns its sequence number.
    fn send(&self, kind: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> io::Result<u32> {
        if !self.socket.is_own() {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        (&*self.socket).write_all(&netlink::request(kind, sequence, body, attributes))?;
        Ok(sequence)
    }

    /// Sends a request and parses its answer, of which `parse` gets the type and the body. An error of the kernel is
    /// an answer too: there is no such object.
    ///
    /// An answer to an earlier, failed request may still be unread.
    fn request<T>(
        &self,
        kind: u16,
        body: &[u8],
        attributes: &[(u16, &[u8])],
        parse: impl Fn(u16, &[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let sequence = self.send(kind, body, attributes)?;
        let mut answer = vec![0; MAX_ANSWER_BYTES];
        for _ in 0..MAX_READS {
            let len = match (&*self.socket).read(&mut answer) {
                Ok(len) => len,
                // An answer was lost for lack of space. The kernel reports that once; it may have been another answer.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => continue,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            match Message::parse(answer.get(..len).unwrap_or_default()) {
                Some(message) if message.sequence == sequence => {
                    return Ok(parse(message.kind, message.body));
                }
                _ => {}
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// Parses an `ifinfomsg` (`0 family u8   2 type u16   4 index u32   8 flags u32   12 change mask u32`) with its
/// attributes.
fn parse_link(body: &[u8]) -> Option<[u8; 6]> {
    let kind = u16_at(body, 2)?;
    if !matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
        return None;
    }
    let mut attributes = attributes(body.get(LINK_BODY_LEN..)?);
    attributes.find(|(kind, _)| *kind == LINK_ADDRESS)?.1.try_into().ok()
}

/// Parses a `rtmsg` (`0 family u8   1 destination bits u8   2 source bits u8   3 TOS u8   4 table u8   5 protocol u8
/// 6 scope u8   7 type u8   8 flags u32`) with its attributes.
fn parse_route(body: &[u8], destination: IpAddr) -> Option<UnicastRoute> {
    let kind = *body.get(7)?;
    if kind != libc::RTN_UNICAST {
        return None;
    }
    let mut route = UnicastRoute { interface: None, next_hop: destination, mtu: None };
    for (kind, value) in attributes(body.get(ROUTE_BODY_LEN..)?) {
        match kind {
            libc::RTA_OIF => route.interface = Some(u32_at(value, 0)?),
            libc::RTA_GATEWAY => route.next_hop = address(value)?,
            libc::RTA_METRICS => {
                let mtu = attributes(value).find(|(kind, _)| *kind == METRIC_MTU);
                route.mtu = mtu.and_then(|(_, value)| u32_at(value, 0));
            }
            // Through a tunnel, or a gateway of the other IP version.
            libc::RTA_VIA | libc::RTA_ENCAP => return None,
            _ => {}
        }
    }
    Some(route)
}

/// Parses a `ndmsg` (`0 family u8   4 interface u32   8 state u16   10 flags u8   11 type u8`) with its attributes.
fn parse_neighbour(body: &[u8]) -> Option<Neighbour> {
    use libc::{NUD_DELAY, NUD_INCOMPLETE, NUD_PERMANENT, NUD_PROBE, NUD_REACHABLE, NUD_STALE};
    let state = u16_at(body, 8)?;
    let address = attributes(body.get(NEIGHBOUR_BODY_LEN..)?)
        .find(|(kind, _)| *kind == libc::NDA_LLADDR)
        .and_then(|(_, value)| value.try_into().ok());
    Some(match (state, address) {
        (NUD_DELAY | NUD_PERMANENT | NUD_PROBE | NUD_REACHABLE, Some(address)) => {
            Neighbour::Reachable(address)
        }
        (NUD_STALE, Some(address)) => Neighbour::Stale(address),
        (NUD_INCOMPLETE, _) => Neighbour::Incomplete,
        _ => Neighbour::Failed,
    })
}

/// Returns the address family of an IP version, as messages have it.
fn family(ip: IpAddr) -> u8 {
    const fn narrow(family: c_int) -> u8 {
        let [family, ..] = family.to_le_bytes();
        family
    }
    if ip.is_ipv4() { narrow(libc::AF_INET) } else { narrow(libc::AF_INET6) }
}

/// Returns the length of an address in bits.
fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Returns the 4 or 16 bytes of an address.
fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().into(),
        IpAddr::V6(ip) => ip.octets().into(),
    }
}

/// Returns the address with these 4 or 16 bytes.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESTINATION: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    /// Returns the body of a message with attributes.
    fn message(body: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        netlink::request(0, 0, body, attributes)[netlink::HEADER_LEN..].to_vec()
    }

    fn route(attributes: &[(u16, &[u8])]) -> Option<UnicastRoute> {
        let body = [2, 32, 0, 0, 254, 0, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
        parse_route(&message(&body, attributes), DESTINATION)
    }

    #[test]
    fn route_without_a_gateway_leads_to_the_destination() {
        let interface = 3_u32.to_ne_bytes();
        let found = route(&[(libc::RTA_DST, &[10, 0, 0, 2]), (libc::RTA_OIF, &interface)]);
        let expected = UnicastRoute { interface: Some(3), next_hop: DESTINATION, mtu: None };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn route_has_the_gateway_and_the_mtu_of_its_metrics() {
        let metrics = message(&[], &[(1, &[0; 4]), (METRIC_MTU, &1400_u32.to_ne_bytes())]);
        let gateway = [10, 0, 0, 254];
        let found = route(&[(libc::RTA_GATEWAY, &gateway), (0x8000 | libc::RTA_METRICS, &metrics)]);
        let expected = UnicastRoute { interface: None, next_hop: gateway.into(), mtu: Some(1400) };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn tunnels_gateways_of_the_other_version_and_other_types_are_no_unicast_route() {
        assert_eq!(route(&[(libc::RTA_VIA, &[10, 0])]), None);
        assert_eq!(route(&[(libc::RTA_ENCAP, &[])]), None);
        assert_eq!(route(&[(libc::RTA_GATEWAY, &[1, 2, 3])]), None);
        let local = [2, 32, 0, 0, 255, 0, 0, 2, 0, 0, 0, 0];
        assert_eq!(parse_route(&local, DESTINATION), None);
        assert_eq!(parse_route(&local[..7], DESTINATION), None);
    }

    #[test]
    fn neighbour_needs_a_link_address_unless_it_is_incomplete() {
        let of = |state: u16, address: &[u8]| {
            let [low, high] = state.to_ne_bytes();
            let body = [2, 0, 0, 0, 1, 0, 0, 0, low, high, 0, 0];
            parse_neighbour(&message(&body, &[(libc::NDA_LLADDR, address)]))
        };
        let address = [2, 0, 0, 0, 0, 1];
        assert_eq!(of(libc::NUD_REACHABLE, &address), Some(Neighbour::Reachable(address)));
        assert_eq!(of(libc::NUD_PERMANENT, &address), Some(Neighbour::Reachable(address)));
        assert_eq!(of(libc::NUD_STALE, &address), Some(Neighbour::Stale(address)));
        assert_eq!(of(libc::NUD_STALE, &address[..5]), Some(Neighbour::Failed));
        assert_eq!(of(libc::NUD_INCOMPLETE, &[]), Some(Neighbour::Incomplete));
        assert_eq!(of(libc::NUD_FAILED, &address), Some(Neighbour::Failed));
        assert_eq!(parse_neighbour(&[0; 9]), None);
    }

    #[test]
    fn only_ethernet_and_loopback_have_a_link_address() {
        let of = |kind: u16| {
            let [low, high] = kind.to_ne_bytes();
            let body = [0, 0, low, high, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            parse_link(&message(&body, &[(3, b"lo\0"), (LINK_ADDRESS, &[0; 6])]))
        };
        assert_eq!(of(libc::ARPHRD_ETHER), Some([0; 6]));
        assert_eq!(of(libc::ARPHRD_LOOPBACK), Some([0; 6]));
        assert_eq!(of(65534), None);
    }

    fn loopback() -> u32 {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        index.trim().parse().unwrap()
    }

    #[test]
    fn earlier_answer_is_not_taken_for_the_next() {
        let netlink = RtNetlink::open().unwrap();
        let mut body = [0; LINK_BODY_LEN];
        body[4..8].copy_from_slice(&loopback().to_ne_bytes());
        netlink.send(libc::RTM_GETLINK, &body, &[]).unwrap();
        assert_eq!(netlink.link_address(0x7fff_fff0).unwrap(), None);
    }

    #[test]
    fn kernel_answers_about_loopback() {
        let netlink = RtNetlink::open().unwrap();
        assert_eq!(netlink.link_address(loopback()).unwrap(), Some([0; 6]));
        let ip = "127.0.0.1".parse().unwrap();
        // The route to an own address has the type `RTN_LOCAL`.
        assert_eq!(netlink.route(ip, "127.0.0.2".parse().unwrap()).unwrap(), None);
        let found = netlink.neighbour(loopback(), "203.0.113.7".parse().unwrap()).unwrap();
        assert_eq!(found, Neighbour::Failed);
    }
}
