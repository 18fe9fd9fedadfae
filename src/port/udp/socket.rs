//! UDP sockets with the options that a port needs.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use libc::c_int;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockAddr, Socket, Type};
use thiserror::Error;

use super::{OpenError, PortConfig, filter};
use crate::net::{MAX_BURST_SEGMENTS, Path, ROCE_PORT};
use crate::port::shared::bpf::DROP;
use crate::port::shared::receive_buffer::size_receive_buffer;
use crate::sys::{self, Interface};

/// TTL or hop limit that needs no control message.
pub(super) const DEFAULT_HOP_LIMIT: u8 = 64;

/// Requested send buffer: a few bursts of maximum length.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Assumed MTU of an interface that cannot be looked up.
const ETHERNET_MTU: usize = 1500;

/// Opens a datagram socket whose packets have DF and, while it is unconnected, IPv4 identification 0 (in a burst the
/// index of the segment). A network stack without these options decides itself.
pub(super) fn open(ip: IpAddr) -> io::Result<Socket> {
    let domain = if ip.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if ip.is_ipv4() {
        if_known(sys::forbid_fragments(socket.as_fd(), ip))?;
        socket.set_ttl_v4(u32::from(DEFAULT_HOP_LIMIT))?;
    } else {
        socket.set_only_v6(true)?;
        if_known(sys::forbid_fragments(socket.as_fd(), ip))?;
        if_known(set(&socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1))?;
        socket.set_unicast_hops_v6(u32::from(DEFAULT_HOP_LIMIT))?;
    }
    // A smaller send buffer is sufficient.
    let _ = socket.set_send_buffer_size(SEND_BUFFER_BYTES / 2);
    Ok(socket)
}

fn bind(socket: &Socket, ip: IpAddr, scope: u32, port: u16) -> io::Result<()> {
    socket.bind(&address(ip, scope, port))
}

/// Returns a socket address, with the interface for link-local and multicast addresses.
fn address(ip: IpAddr, scope: u32, port: u16) -> SockAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() || ip.is_multicast() => {
            SocketAddrV6::new(ip, port, 0, scope).into()
        }
        _ => SocketAddr::new(ip, port).into(),
    }
}

/// Opens a socket that only sends. A filter drops all datagrams that arrive there.
pub(super) fn sender(ip: IpAddr, scope: u32, port: u16) -> io::Result<Socket> {
    let socket = open(ip)?;
    socket.set_recv_buffer_size(0)?;
    if_known(socket.attach_filter(&[DROP]))?;
    multicast_from(&socket, ip, scope);
    bind(&socket, ip, scope, port)?;
    Ok(socket)
}

/// Opens a socket that sends along one path, beside another with the same source port, which must allow that
/// ([`Socket::set_reuse_address`]).
pub(super) fn connected(path: &Path, scope: u32) -> io::Result<Socket> {
    let socket = open(path.source)?;
    // The kernel does not send zero.
    let (traffic_class, hop_limit) = (path.traffic_class.into(), path.hop_limit.max(1).into());
    match path.source {
        IpAddr::V4(_) => {
            socket.set_tos_v4(traffic_class)?;
            socket.set_ttl_v4(hop_limit)?;
        }
        IpAddr::V6(_) => {
            socket.set_tclass_v6(traffic_class)?;
            socket.set_unicast_hops_v6(hop_limit)?;
        }
    }
    if_known(socket.attach_filter(&[DROP]))?;
    socket.set_reuse_address(true)?;
    bind(&socket, path.source, scope, path.source_port)?;
    socket.connect(&address(path.destination, scope, ROCE_PORT))?;
    Ok(socket)
}

/// Sends multicast datagrams by the interface with the socket's address, with the TTL or hop limit of unicast, and
/// loops them back to this host.
pub(super) fn multicast_from(socket: &Socket, ip: IpAddr, scope: u32) {
    // Some sandboxes lack the options; the routing table decides then.
    let _ = match ip {
        IpAddr::V4(ip) => socket
            .set_multicast_if_v4(&ip)
            .and_then(|()| socket.set_multicast_ttl_v4(u32::from(DEFAULT_HOP_LIMIT))),
        IpAddr::V6(_) => socket
            .set_multicast_if_v6(scope)
            .and_then(|()| socket.set_multicast_hops_v6(u32::from(DEFAULT_HOP_LIMIT))),
    };
}

/// Opens a socket that receives datagrams to a multicast group on one interface, beside other sockets of this host.
/// `config` is that of the port with the address of the interface.
pub(super) fn group_receiver(
    config: &PortConfig,
    interface: u32,
    group: IpAddr,
) -> Result<Socket, (&'static str, io::Error)> {
    let at = |what| move |error| (what, error);
    let socket = open(group).map_err(at("socket"))?;
    socket.set_reuse_address(true).map_err(at("SO_REUSEADDR"))?;
    allow_zero_checksum(&socket, group).map_err(at("UDP_NO_CHECK6_RX"))?;
    // Receive only what arrives on the interface of this socket.
    let (level, name) = match group {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL),
    };
    // IPv6 before Linux 4.20 has no such option, and delivers to members on any interface. So the socket is also bound
    // to the interface, which takes Linux 5.7 or privileges.
    let _ = set(&socket, level, name, 0);
    let _ = c_int::try_from(interface)
        .map(|interface| set(&socket, libc::SOL_SOCKET, SO_BINDTOIFINDEX, interface));
    let _ = config.gro && set(&socket, libc::IPPROTO_UDP, libc::UDP_GRO, 1).is_ok();
    filter::attach(&socket);
    size_receive_buffer(&socket, config.receive_buffer).map_err(at("SO_RCVBUF"))?;
    report_ip_fields(&socket, group);
    bind(&socket, group, interface, ROCE_PORT).map_err(at("bind"))?;
    let joined = match (group, config.ip) {
        // An unknown interface is identified by its address.
        (IpAddr::V4(group), IpAddr::V4(ip)) if interface == 0 => {
            socket.join_multicast_v4(&group, &ip)
        }
        (IpAddr::V4(group), _) => {
            socket.join_multicast_v4_n(&group, &InterfaceIndexOrAddress::Index(interface))
        }
        (IpAddr::V6(group), _) => socket.join_multicast_v6(&group, interface),
    };
    joined.map_err(at("joining"))?;
    Ok(socket)
}

/// Peers send a checksum of zero over IPv6 too, and rely on the ICRC.
fn allow_zero_checksum(socket: &Socket, ip: IpAddr) -> io::Result<()> {
    if ip.is_ipv4() {
        return Ok(());
    }
    if_known(set(socket, libc::IPPROTO_UDP, UDP_NO_CHECK6_RX, 1))
}

/// Warning about a port that cannot look up the MTU of its interface and assumes that of Ethernet.
#[derive(Debug, Error)]
#[error(
    "the MTU of the interface with {ip} is unknown, and {ETHERNET_MTU} bytes are assumed: {source}"
)]
pub(super) struct AssumedMtuWarning {
    ip: IpAddr,
    source: io::Error,
}

/// Returns the interface that was looked up for `ip`, or a warning and the MTU of Ethernet. Some sandboxes list no
/// interfaces, and an address may be local without an interface.
fn known_or_assumed(
    ip: IpAddr,
    found: io::Result<Option<Interface>>,
) -> (Interface, Option<AssumedMtuWarning>) {
    let none = || io::Error::new(io::ErrorKind::NotFound, "no interface has the address");
    match found.and_then(|interface| interface.ok_or_else(none)) {
        Ok(interface) => (interface, None),
        Err(source) => (
            Interface { index: 0, mtu: ETHERNET_MTU, running: true },
            Some(AssumedMtuWarning { ip, source }),
        ),
    }
}

/// An unbound receiving socket.
pub(super) struct PreparedSocket {
    pub(super) socket: Socket,
    /// The interface that has the address.
    pub(super) interface: Interface,
    pub(super) assumed_mtu: Option<AssumedMtuWarning>,
    /// The kernel may merge received datagrams.
    pub(super) gro: bool,
}

impl PreparedSocket {
    /// Opens the socket.
    pub(super) fn new(config: &PortConfig) -> Result<Self, OpenError> {
        let ip = config.ip;
        let os = |what| move |source| OpenError::Os { ip, what, source };
        let socket = open(ip).map_err(os("socket"))?;
        let (interface, assumed_mtu) = known_or_assumed(ip, sys::interface_of(ip, socket.as_fd()));
        allow_zero_checksum(&socket, ip).map_err(os("UDP_NO_CHECK6_RX"))?;
        multicast_from(&socket, ip, interface.index);
        if !ip.is_loopback() {
            // Routers mark congestion in it. Some sandboxes lack the option.
            let _ = report_traffic_class(&socket, ip);
        }
        let gro = config.gro && set(&socket, libc::IPPROTO_UDP, libc::UDP_GRO, 1).is_ok();
        filter::attach(&socket);
        size_receive_buffer(&socket, config.receive_buffer).map_err(os("SO_RCVBUF"))?;
        Ok(Self { socket, interface, assumed_mtu, gro })
    }

    /// Binds the RoCEv2 port of the address.
    pub(super) fn bind(&self, ip: IpAddr) -> Result<(), OpenError> {
        let held = |error| OpenError::bind(ip, error);
        bind(&self.socket, ip, self.interface.index, ROCE_PORT).map_err(held)
    }
}

/// Enables reports of the traffic class of received datagrams. They cost a fiftieth of a small datagram, as those of
/// the hop limit do.
fn report_traffic_class(socket: &Socket, ip: IpAddr) -> io::Result<()> {
    if ip.is_ipv4() { socket.set_recv_tos_v4(true) } else { socket.set_recv_tclass_v6(true) }
}

/// Enables reports of traffic class and hop limit of received datagrams.
pub(super) fn report_ip_fields(socket: &Socket, ip: IpAddr) {
    // Some sandboxes lack the options; the fields stay zero then.
    let _ = report_traffic_class(socket, ip);
    let _ = match ip {
        IpAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
        IpAddr::V6(_) => socket.set_recv_hoplimit_v6(true),
    };
}

/// Ignores the error of a network stack without the option. Sandboxes have stacks of their own, with fewer options.
fn if_known(set: io::Result<()>) -> io::Result<()> {
    let is_unknown = |error: &io::Error| {
        matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP))
    };
    set.or_else(|error| if is_unknown(&error) { Ok(()) } else { Err(error) })
}

/// Returns whether the kernel splits bursts for this socket (UDP GSO).
pub(super) fn supports_gso(socket: &Socket) -> bool {
    set(socket, libc::IPPROTO_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Returns the maximum number of segments that the kernel accepts in one send.
pub(super) fn max_gso_segments() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| match send_to_itself(MAX_BURST_SEGMENTS) {
        Ok(()) => MAX_BURST_SEGMENTS,
        Err(_) => OLD_MAX_SEGMENTS,
    })
}

/// Sends `segments` datagrams of one byte as one burst from a socket to itself, over the loopback interface.
fn send_to_itself(segments: usize) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    bind(&socket, Ipv4Addr::LOCALHOST.into(), 0, 0)?;
    set(&socket, libc::IPPROTO_UDP, libc::UDP_SEGMENT, 1)?;
    let itself = socket.local_addr()?;
    socket.send_to(&vec![0; segments], &itself).map(|_| ())
}

/// `UDP_MAX_SEGMENTS` before Linux 6.10.
const OLD_MAX_SEGMENTS: usize = 64;

/// From `linux/udp.h`; not in the headers of C libraries.
const UDP_NO_CHECK6_RX: c_int = 102;

/// From `asm-generic/socket.h`; not in the headers of every C library.
const SO_BINDTOIFINDEX: c_int = 62;

fn set(socket: &Socket, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    sys::set_option(socket.as_fd(), level, name, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_options_are_left_out_and_other_errors_reported() {
        for code in [libc::ENOPROTOOPT, libc::EOPNOTSUPP] {
            if_known(Err(io::Error::from_raw_os_error(code))).unwrap();
        }
        let refused = if_known(Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn kernel_accepts_the_announced_number_of_segments() {
        let max = max_gso_segments();
        send_to_itself(max).unwrap();
        let more = send_to_itself(max + 1).map_err(|error| error.raw_os_error());
        // A limit above that of a burst does not matter.
        assert!(max == MAX_BURST_SEGMENTS || more == Err(Some(libc::EINVAL)));
    }

    #[test]
    fn mtu_that_cannot_be_looked_up_is_assumed_with_a_warning() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let known = Interface { index: 3, mtu: 9000, running: true };
        let (interface, warning) = known_or_assumed(ip, Ok(Some(known)));
        assert_eq!((interface, warning.is_none()), (known, true));
        let no_device = io::Error::from_raw_os_error(libc::ENODEV).to_string();
        let failed = Err(io::Error::from_raw_os_error(libc::ENODEV));
        for (found, why) in [(failed, &*no_device), (Ok(None), "no interface has the address")] {
            let (interface, warning) = known_or_assumed(ip, found);
            assert_eq!((interface.index, interface.mtu), (0, 1500));
            let expected = format!(
                "the MTU of the interface with 127.0.0.1 is unknown, and 1500 bytes are assumed: {why}"
            );
            assert_eq!(warning.unwrap().to_string(), expected);
        }
    }
}
