//! Ethernet, IP and UDP headers, as far as captures and packet ports need them.
//!
//! ```text
//!   IPv4 ┌────┬──────┬───────────────┐   IPv6 ┌────┬──────┬──────────────────┐
//!     0  │ 45 │ TOS  │ total length  │     0  │ 6  │class │ flow label       │
//!        ├────┴──────┼──┬────────────┤        ├────┴──────┴───┬───────┬──────┤
//!     4  │ ident.    │DF│ frag. offs.│     4  │ length        │ 17    │ hops │
//!        ├────┬──────┼──┴────────────┤        ├───────────────┴───────┴──────┤
//!     8  │TTL │ 17   │ checksum      │     8  │ source, 16 bytes             │
//!        ├────┴──────┴───────────────┤        ├──────────────────────────────┤
//!    12  │ source                    │    24  │ destination, 16 bytes        │
//!        ├───────────────────────────┤        └──────────────────────────────┘
//!    16  │ destination               │   UDP  ┌───────────────┬──────────────┐
//!        └───────────────────────────┘     0  │ source port   │ 4791         │
//!                                          4  │ length        │ checksum     │
//!                                             └───────────────┴──────────────┘
//! ```
//!
//! RoCEv2 packets have no IPv4 options, IPv6 extension headers or fragments. The UDP length, not the length of the
//! frame, determines the place of the ICRC, because Ethernet pads short frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use pnet::packet::ethernet::{EtherType, EtherTypes, EthernetPacket};
use pnet::packet::ip::{IpNextHeaderProtocol, IpNextHeaderProtocols};
use pnet::packet::ipv4::{self, Ipv4Flags, Ipv4Packet, MutableIpv4Packet};
use pnet::packet::ipv6::{Ipv6Packet, MutableIpv6Packet};
use pnet::packet::udp::{MutableUdpPacket, UdpPacket};
use pnet::packet::vlan::VlanPacket;

use crate::ids::Gid;
use crate::net::{Ipv4Fields, Path, ROCE_PORT};

use super::ParseError;
use super::packet::truncated;

/// Length in bytes of an Ethernet header without a VLAN tag.
pub const ETHERNET_LEN: usize = 14;
/// Length in bytes of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Length in bytes of an IPv6 header, and of the space for an IP header before a received UD message.
pub const IPV6_LEN: usize = 40;
/// Length in bytes of a UDP header.
pub const UDP_LEN: usize = 8;

/// IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// A parsed IP packet with a UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpDatagram<'a> {
    /// Source address and UDP port.
    pub source: SocketAddr,
    /// Destination address and UDP port.
    pub destination: SocketAddr,
    /// IPv4 TOS or IPv6 traffic class: DSCP in bits 7:2, ECN in bits 1:0.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits; 0 for IPv4.
    pub flow_label: u32,
    /// IPv4 header fields under the ICRC.
    pub ipv4: Option<Ipv4Fields>,
    /// UDP payload, the input of [`Datagram::parse`](super::Datagram::parse).
    pub payload: &'a [u8],
}

impl IpDatagram<'_> {
    /// Returns the path of the packet, which does not contain the destination port.
    pub fn path(&self) -> Path {
        Path {
            source: self.source.ip(),
            destination: self.destination.ip(),
            source_port: self.source.port(),
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        }
    }
}

/// Returns the network-layer packet in an Ethernet frame, with its EtherType. Skips VLAN tags.
///
/// # Errors
///
/// [`ParseError::Truncated`].
pub fn ethernet(frame: &[u8]) -> Result<(u16, &[u8]), ParseError> {
    let header = EthernetPacket::new(frame);
    let header = header.ok_or_else(|| truncated("Ethernet", ETHERNET_LEN, frame.len()))?;
    untagged(header.get_ethertype().0, &frame[ETHERNET_LEN..])
}

/// Skips VLAN tags: `ethertype` is the type of the first bytes of `rest`, in the argument and in the result.
///
/// # Errors
///
/// [`ParseError::Truncated`].
pub fn untagged(ethertype: u16, mut rest: &[u8]) -> Result<(u16, &[u8]), ParseError> {
    const TAG_LEN: usize = VlanPacket::minimum_packet_size();
    let mut ethertype = EtherType(ethertype);
    // 802.1Q, 802.1ad, and the tag in use before 802.1ad.
    while matches!(ethertype, EtherTypes::Vlan | EtherTypes::PBridge | EtherTypes::QinQ) {
        let tag = VlanPacket::new(rest);
        ethertype = tag.ok_or_else(|| truncated("VLAN tag", TAG_LEN, rest.len()))?.get_ethertype();
        rest = &rest[TAG_LEN..];
    }
    Ok((ethertype.0, rest))
}

/// Parses an IP packet with a UDP datagram. The caller checks the UDP port and the ICRC. IP and UDP checksums are not
/// verified, because the ICRC covers more.
///
/// # Errors
///
/// [`ParseError::Truncated`] in IPv4, IPv6, UDP or UDP payload, [`ParseError::IpVersion`],
/// [`ParseError::Ipv4HeaderLength`], [`ParseError::Fragment`], [`ParseError::Protocol`] or
/// [`ParseError::UdpLength`].
pub fn parse_ip(packet: &[u8]) -> Result<IpDatagram<'_>, ParseError> {
    let (datagram, len) = parse_ip_cut(packet)?;
    match datagram.payload.len() {
        have if have < len => Err(truncated("UDP payload", len, have)),
        _ => Ok(datagram),
    }
}

/// Parses an IP packet as [`parse_ip`], from a capture that may have truncated it: `payload` is the captured part of
/// the UDP payload, and the number is its original length.
///
/// # Errors
///
/// The errors of [`parse_ip`], except that the UDP payload may be truncated.
pub fn parse_ip_cut(packet: &[u8]) -> Result<(IpDatagram<'_>, usize), ParseError> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => parse_ipv4(packet),
        Some(6) => parse_ipv6(packet),
        Some(found) => Err(ParseError::IpVersion { found }),
        None => Err(truncated("IP", 1, 0)),
    }
}

fn parse_ipv4(packet: &[u8]) -> Result<(IpDatagram<'_>, usize), ParseError> {
    let header = Ipv4Packet::new(packet);
    let header = header.ok_or_else(|| truncated("IPv4", IPV4_LEN, packet.len()))?;
    let found = usize::from(header.get_header_length()) * 4;
    if found != IPV4_LEN {
        return Err(ParseError::Ipv4HeaderLength { found });
    }
    let (flags, offset) = (header.get_flags(), header.get_fragment_offset());
    if flags & Ipv4Flags::MoreFragments != 0 || offset != 0 {
        return Err(ParseError::Fragment { offset: usize::from(offset) * 8 });
    }
    let limit = usize::from(header.get_total_length()).saturating_sub(IPV4_LEN);
    let udp = parse_udp(header.get_next_level_protocol(), limit, &packet[IPV4_LEN..])?;
    let datagram = IpDatagram {
        source: (header.get_source(), udp.source).into(),
        destination: (header.get_destination(), udp.destination).into(),
        traffic_class: header.get_dscp() << 2 | header.get_ecn(),
        hop_limit: header.get_ttl(),
        flow_label: 0,
        ipv4: Some(Ipv4Fields {
            id: header.get_identification(),
            dont_fragment: flags & Ipv4Flags::DontFragment != 0,
        }),
        payload: udp.payload,
    };
    Ok((datagram, udp.len))
}

fn parse_ipv6(packet: &[u8]) -> Result<(IpDatagram<'_>, usize), ParseError> {
    let header = Ipv6Packet::new(packet);
    let header = header.ok_or_else(|| truncated("IPv6", IPV6_LEN, packet.len()))?;
    let limit = usize::from(header.get_payload_length());
    let udp = parse_udp(header.get_next_header(), limit, &packet[IPV6_LEN..])?;
    let datagram = IpDatagram {
        source: (header.get_source(), udp.source).into(),
        destination: (header.get_destination(), udp.destination).into(),
        traffic_class: header.get_traffic_class(),
        hop_limit: header.get_hop_limit(),
        flow_label: header.get_flow_label(),
        ipv4: None,
        payload: udp.payload,
    };
    Ok((datagram, udp.len))
}

/// A parsed UDP datagram.
struct Udp<'a> {
    source: u16,
    destination: u16,
    /// Captured part of the payload.
    payload: &'a [u8],
    /// Length of the payload in bytes.
    len: usize,
}

/// Parses a UDP datagram behind an IP header that announces `limit` bytes of `protocol`.
fn parse_udp(
    protocol: IpNextHeaderProtocol,
    limit: usize,
    bytes: &[u8],
) -> Result<Udp<'_>, ParseError> {
    if protocol != IpNextHeaderProtocols::Udp {
        return Err(ParseError::Protocol { found: protocol.0 });
    }
    let header = UdpPacket::new(bytes);
    let header = header.ok_or_else(|| truncated("UDP", UDP_LEN, bytes.len()))?;
    let found = usize::from(header.get_length());
    let len = match found.checked_sub(UDP_LEN) {
        Some(len) if found <= limit => len,
        _ => return Err(ParseError::UdpLength { found, limit }),
    };
    let after = &bytes[UDP_LEN..];
    Ok(Udp {
        source: header.get_source(),
        destination: header.get_destination(),
        payload: &after[..len.min(after.len())],
        len,
    })
}

/// Fields of the IP and UDP headers of a packet to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    /// Addresses, UDP source port, traffic class and hop limit. The UDP destination port is 4791.
    pub path: Path,
    /// IPv6 flow label, 20 bits. Not used for IPv4.
    pub flow_label: u32,
    /// Identification and DF. Not used for IPv6.
    pub ipv4: Ipv4Fields,
}

impl Headers {
    /// Appends the headers of a datagram of `udp_payload_len` bytes for `path`, with identification `id`, DF set, and
    /// flow label and UDP checksum 0.
    pub fn write(path: &Path, id: u16, udp_payload_len: usize, out: &mut Vec<u8>) {
        let ipv4 = Ipv4Fields { id, dont_fragment: true };
        Self { path: *path, flow_label: 0, ipv4 }.append(udp_payload_len, out);
    }

    /// Appends the headers of a datagram of `udp_payload_len` bytes, with UDP checksum 0.
    pub fn append(&self, udp_payload_len: usize, out: &mut Vec<u8>) {
        match self.addresses() {
            Addresses::V4(from, to) => out.extend(self.ipv4_header(from, to, udp_payload_len)),
            Addresses::V6(from, to) => out.extend(self.ipv6_header(from, to, udp_payload_len)),
        }
        out.extend(self.udp_header(udp_payload_len));
    }

    /// Returns the IP header in the format of the 40 bytes before a received UD message: IPv6, or 20 zeros and an
    /// IPv4 header (IBTA vol 1, annex A17).
    pub fn global_route(&self, udp_payload_len: usize) -> [u8; IPV6_LEN] {
        match self.addresses() {
            Addresses::V4(from, to) => {
                let mut bytes = [0; IPV6_LEN];
                let header = self.ipv4_header(from, to, udp_payload_len);
                bytes[IPV6_LEN - IPV4_LEN..].copy_from_slice(&header);
                bytes
            }
            Addresses::V6(from, to) => self.ipv6_header(from, to, udp_payload_len),
        }
    }

    fn addresses(&self) -> Addresses {
        Addresses::new(self.path.source, self.path.destination)
    }

    fn ipv4_header(&self, from: Ipv4Addr, to: Ipv4Addr, udp_payload_len: usize) -> [u8; IPV4_LEN] {
        let mut header = [0; IPV4_LEN];
        if let Some(mut ip) = MutableIpv4Packet::new(&mut header) {
            ip.set_version(4);
            ip.set_header_length(5);
            ip.set_dscp(self.path.traffic_class >> 2);
            ip.set_ecn(self.path.traffic_class & 0b11);
            ip.set_total_length(length(IPV4_LEN + UDP_LEN + udp_payload_len));
            ip.set_identification(self.ipv4.id);
            ip.set_flags(if self.ipv4.dont_fragment { Ipv4Flags::DontFragment } else { 0 });
            ip.set_ttl(self.path.hop_limit);
            ip.set_next_level_protocol(IpNextHeaderProtocols::Udp);
            ip.set_source(from);
            ip.set_destination(to);
            ip.set_checksum(ipv4::checksum(&ip.to_immutable()));
        }
        header
    }

    fn ipv6_header(&self, from: Ipv6Addr, to: Ipv6Addr, udp_payload_len: usize) -> [u8; IPV6_LEN] {
        let mut header = [0; IPV6_LEN];
        if let Some(mut ip) = MutableIpv6Packet::new(&mut header) {
            ip.set_version(6);
            ip.set_traffic_class(self.path.traffic_class);
            ip.set_flow_label(self.flow_label);
            ip.set_payload_length(length(UDP_LEN + udp_payload_len));
            ip.set_next_header(IpNextHeaderProtocols::Udp);
            ip.set_hop_limit(self.path.hop_limit);
            ip.set_source(from);
            ip.set_destination(to);
        }
        header
    }

    fn udp_header(&self, udp_payload_len: usize) -> [u8; UDP_LEN] {
        let mut header = [0; UDP_LEN];
        if let Some(mut udp) = MutableUdpPacket::new(&mut header) {
            udp.set_source(self.path.source_port);
            udp.set_destination(ROCE_PORT);
            udp.set_length(length(UDP_LEN + udp_payload_len));
        }
        header
    }
}

/// Two addresses of one IP version as on the wire: IPv4-mapped addresses are IPv4.
pub(super) enum Addresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Addresses {
    pub(super) fn new(source: IpAddr, destination: IpAddr) -> Self {
        match (source.to_canonical(), destination.to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Self::V4(from, to),
            (from, to) => {
                Self::V6(Ipv6Addr::from(Gid::from(from).0), Ipv6Addr::from(Gid::from(to).0))
            }
        }
    }
}

/// Returns the value of a length field, or the maximum if the length exceeds it.
pub(super) fn length(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// Returns the initial value of a UDP checksum field for checksum offload: the sum over the pseudo header (RFC 768;
/// RFC 8200, section 8.1) of a datagram of `udp_payload_len` bytes.
#[cfg(any(feature = "packet", feature = "tap"))]
pub(crate) fn pseudo_sum(path: &Path, udp_payload_len: usize) -> u16 {
    let [len0, len1] = length(UDP_LEN + udp_payload_len).to_be_bytes();
    let tail = [0, UDP, len0, len1];
    match Addresses::new(path.source, path.destination) {
        Addresses::V4(from, to) => sum(&[&from.octets(), &to.octets(), &tail]),
        Addresses::V6(from, to) => sum(&[&from.octets(), &to.octets(), &tail]),
    }
}

#[cfg(any(feature = "packet", feature = "tap"))]
/// Returns the ones' complement sum of 16-bit words. Every part has an even length.
fn sum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.as_chunks::<2>().0);
    let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    let [c0, c1, s0, s1] = sum.to_be_bytes();
    let (sum, carry) = u16::from_be_bytes([s0, s1]).overflowing_add(u16::from_be_bytes([c0, c1]));
    sum + u16::from(carry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IP and UDP headers of a datagram of 24 bytes, from a Linux peer.
    const IPV4: [u8; 28] = [
        0x45, 0x02, 0x00, 0x34, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x26, 0xb5, 10, 0, 0, 1, 10, 0,
        0, 2, 0xc1, 0x23, 0x12, 0xb7, 0x00, 0x20, 0x00, 0x00,
    ];

    fn path(source: &str, destination: &str) -> Path {
        Path {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            source_port: 0xc123,
            traffic_class: 2,
            hop_limit: 64,
        }
    }

    fn ipv4() -> Vec<u8> {
        let mut packet = IPV4.to_vec();
        packet.extend(0..24);
        packet
    }

    fn error(packet: &[u8]) -> String {
        parse_ip(packet).unwrap_err().to_string()
    }

    /// Computed by hand: addresses, protocol and length, in words of 16 bits.
    #[cfg(any(feature = "packet", feature = "tap"))]
    #[test]
    fn initial_checksum_is_the_sum_of_the_pseudo_header() {
        let ipv4 = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 0x0011 + (8 + 24);
        assert_eq!(pseudo_sum(&path("10.0.0.1", "10.0.0.2"), 24), ipv4);
        let ipv6 = 2 * 0xfd77 + 0x0001 + 0x0002 + 0x0011 + (8 + 24_u32);
        let carried = u16::try_from((ipv6 & 0xffff) + (ipv6 >> 16)).unwrap();
        assert_eq!(pseudo_sum(&path("fd77::1", "fd77::2"), 24), carried);
    }

    #[test]
    fn ipv4_headers_have_the_golden_bytes() {
        let path = path("10.0.0.1", "10.0.0.2");
        let mut out = Vec::new();
        Headers::write(&path, 0, 24, &mut out);
        assert_eq!(out, IPV4);
        let packet = ipv4();
        let datagram = parse_ip(&packet).unwrap();
        assert_eq!(datagram.path(), path);
        assert_eq!(datagram.destination, "10.0.0.2:4791".parse().unwrap());
        assert_eq!(datagram.ipv4, Some(Ipv4Fields { id: 0, dont_fragment: true }));
        assert_eq!(datagram.payload, &packet[28..]);
    }

    #[test]
    fn ipv6_headers_have_the_golden_bytes() {
        let path = Path { traffic_class: 0xab, ..path("fd00::1", "fd00::2") };
        let ipv4 = Ipv4Fields { id: 9, dont_fragment: false };
        let mut packet = Vec::new();
        Headers { path, flow_label: 0x12345, ipv4 }.append(3, &mut packet);
        packet.extend(b"abc");
        assert_eq!(packet[..8], [0x6a, 0xb1, 0x23, 0x45, 0, 11, 17, 64]);
        assert_eq!(packet[40..48], [0xc1, 0x23, 0x12, 0xb7, 0, 11, 0, 0]);
        let datagram = parse_ip(&packet).unwrap();
        assert_eq!((datagram.path(), datagram.flow_label), (path, 0x12345));
        assert_eq!((datagram.ipv4, datagram.payload), (None, &b"abc"[..]));
    }

    #[test]
    fn ud_message_has_its_ipv4_header_at_offset_20() {
        let headers = Headers {
            path: path("10.0.0.1", "::ffff:10.0.0.2"),
            flow_label: 0,
            ipv4: Ipv4Fields { id: 0, dont_fragment: true },
        };
        let bytes = headers.global_route(24);
        assert_eq!(bytes[..20], [0; 20]);
        assert_eq!(bytes[20..], IPV4[..20]);
    }

    /// PKT-06
    #[test]
    fn bytes_after_the_udp_length_are_not_payload() {
        let mut packet = ipv4();
        packet.extend([0xee; 6]);
        assert_eq!(parse_ip(&packet).unwrap().payload.len(), 24);
    }

    #[test]
    fn vlan_tags_are_skipped() {
        let mut frame = vec![0; 12];
        frame.extend([0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 100, 0x08, 0x00, 0x45]);
        assert_eq!(ethernet(&frame), Ok((0x0800, &[0x45][..])));
        let error = |len: usize| ethernet(&frame[..len]).unwrap_err().to_string();
        assert_eq!(error(13), "truncated in Ethernet: need 14 bytes, have 13");
        assert_eq!(error(17), "truncated in VLAN tag: need 4 bytes, have 3");
    }

    /// PKT-04
    #[test]
    fn errors_contain_the_found_value() {
        let changed = |at: usize, byte: u8| {
            let mut packet = ipv4();
            packet[at] = byte;
            error(&packet)
        };
        assert_eq!(error(&[]), "truncated in IP: need 1 bytes, have 0");
        assert_eq!(changed(0, 0x55), "IP version 5, expected 4 or 6");
        assert_eq!(changed(0, 0x46), "IPv4 header of 24 bytes, expected 20");
        assert_eq!(changed(6, 0x20), "IPv4 fragment at byte 0, expected a whole packet");
        assert_eq!(changed(7, 185), "IPv4 fragment at byte 1480, expected a whole packet");
        assert_eq!(changed(9, 6), "IP protocol 6, expected 17 (UDP)");
        assert_eq!(changed(25, 7), "UDP length 7, expected 8 to 32");
        assert_eq!(changed(25, 33), "UDP length 33, expected 8 to 32");
        assert_eq!(error(&ipv4()[..19]), "truncated in IPv4: need 20 bytes, have 19");
        assert_eq!(error(&ipv4()[..27]), "truncated in UDP: need 8 bytes, have 7");
        assert_eq!(error(&ipv4()[..51]), "truncated in UDP payload: need 24 bytes, have 23");
        assert_eq!(error(&[0x60; 39]), "truncated in IPv6: need 40 bytes, have 39");
    }
}
