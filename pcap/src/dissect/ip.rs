//! Takes IP packets apart: UDP, VXLAN tunnels, and the RoCEv2 packet in them.

use softroce::net::ROCE_PORT;
use softroce::wire::encap::{self, IpDatagram};
use softroce::wire::icrc;
use softroce::wire::{Datagram, ParseError};

use super::packet::{Extent, Icrc, RocePacket};
use crate::file::LinkType;

/// Takes an IP packet apart. `None` when it is not sent to UDP port 4791, itself or in a VXLAN
/// tunnel.
///
/// # Errors
///
/// The IP or UDP header is malformed, or the capture has cut it short. An IP packet of another
/// protocol is no error and gives `None`.
pub fn dissect(ip_packet: &[u8]) -> Result<Option<RocePacket<'_>>, ParseError> {
    let Some((ip, udp_len)) = udp(ip_packet)? else { return Ok(None) };
    let Some((vni, inner)) = tunneled(&ip) else {
        return Ok(roce(ip_packet, ip, udp_len, None));
    };
    // Tunnels in tunnels are not followed.
    let inner_udp = udp(inner)?;
    Ok(inner_udp.and_then(|(ip, udp_len)| roce(inner, ip, udp_len, Some(vni))))
}

/// The UDP datagram in an IP packet, and how long its payload was; `None` for another protocol.
fn udp(ip_packet: &[u8]) -> Result<Option<(IpDatagram<'_>, usize)>, ParseError> {
    match protocol(ip_packet) {
        Some(protocol) if protocol != UDP => Ok(None),
        _ => encap::parse_ip_cut(ip_packet).map(Some),
    }
}

fn roce<'a>(
    ip_packet: &[u8],
    ip: IpDatagram<'a>,
    udp_len: usize,
    vni: Option<u32>,
) -> Option<RocePacket<'a>> {
    if ip.destination.port() != ROCE_PORT {
        return None;
    }
    let icrc = match icrc::of_datagram(ip_packet, &ip) {
        _ if ip.payload.len() < udp_len => Icrc::Cut,
        Some((computed, found)) if computed == found => Icrc::Good,
        Some((computed, found)) => Icrc::Bad { found, computed },
        None => Icrc::Missing,
    };
    let datagram = Datagram::parse_cut(ip.payload, udp_len);
    let extent = Extent::of(datagram.as_ref().ok(), icrc);
    Some(RocePacket { ip, datagram, icrc, udp_len, extent, vni })
}

/// Network and IP packet in a VXLAN tunnel (RFC 7348), if this is one.
fn tunneled<'a>(ip: &IpDatagram<'a>) -> Option<(u32, &'a [u8])> {
    if ip.destination.port() != VXLAN_PORT {
        return None;
    }
    let (&[flags, _, _, _, v0, v1, v2, _], frame) = ip.payload.split_first_chunk::<8>()?;
    let inner = LinkType::Ethernet.ip(frame).ok()?;
    (flags & VXLAN_HAS_VNI != 0).then_some((u32::from_be_bytes([0, v0, v1, v2]), inner))
}

const UDP: u8 = 17;
const VXLAN_PORT: u16 = 4789;
const VXLAN_HAS_VNI: u8 = 0x08;

/// The protocol number in the IP header, also of headers that are not parsed.
fn protocol(ip_packet: &[u8]) -> Option<u8> {
    let at = if ip_packet.first()? >> 4 == 4 { 9 } else { 6 };
    ip_packet.get(at).copied()
}
