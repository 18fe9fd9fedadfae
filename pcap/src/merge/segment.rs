//! A packet of a burst as an IP packet of its own.

use crate::dissect::{Extent, RocePacket};

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;

/// Returns the IP packet of a RoCE packet that was captured in `ip`: of a burst or of a tunnel, one with headers of its
/// own.
pub(super) fn ip_packet(ip: &[u8], roce: &RocePacket<'_>) -> Vec<u8> {
    if roce.extent == Extent::Whole && roce.vni.is_none() {
        return ip.to_vec();
    }
    let udp_len = u16::try_from(UDP_LEN + roce.udp_len).unwrap_or(u16::MAX);
    let mut out = Vec::with_capacity(IPV6_LEN + UDP_LEN + roce.ip.payload.len());
    match (roce.ip.source.ip(), roce.ip.destination.ip()) {
        (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) => {
            let total = udp_len.saturating_add(20);
            out.extend([0x45, roce.ip.traffic_class]);
            out.extend(total.to_be_bytes());
            out.extend(roce.ip.ipv4.map_or(0, |ipv4| ipv4.id).to_be_bytes());
            let dont_fragment = roce.ip.ipv4.is_none_or(|ipv4| ipv4.dont_fragment);
            out.extend([if dont_fragment { 0x40 } else { 0 }, 0, roce.ip.hop_limit, 17, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
            let checksum = checksum(&out).to_be_bytes();
            out.splice(10..12, checksum);
            debug_assert_eq!(out.len(), IPV4_LEN);
        }
        (source, destination) => {
            let octets = |ip| match ip {
                std::net::IpAddr::V4(ip) => std::net::Ipv4Addr::to_ipv6_mapped(&ip).octets(),
                std::net::IpAddr::V6(ip) => ip.octets(),
            };
            let class = roce.ip.traffic_class;
            out.extend([0x60 | class >> 4, class << 4, 0, 0]);
            out.extend(udp_len.to_be_bytes());
            out.extend([17, roce.ip.hop_limit]);
            out.extend(octets(source));
            out.extend(octets(destination));
        }
    }
    out.extend(roce.ip.source.port().to_be_bytes());
    out.extend(roce.ip.destination.port().to_be_bytes());
    out.extend(udp_len.to_be_bytes());
    out.extend([0, 0]);
    out.extend(roce.ip.payload);
    out
}

/// Returns the checksum of an IPv4 header, in which it is 0.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or_default()
}
