//! Common parts of the fuzz targets: packets from arbitrary bytes, engines that receive them, and invariants.

pub mod guarded;
pub mod hosts;
pub mod packet;
pub mod side;
#[path = "../../tests/support/mod.rs"]
pub mod support;

use std::time::Duration;

use softroce::wire::encap;
use softroce::wire::icrc;
use softroce::wire::packet::ICRC_LEN;
use softroce_pcap::Reader;

/// Passes the IP packets of a capture, with number and time, to `take`, as far as the capture is readable. With
/// `seal` their ICRCs are corrected, because the checker ignores packets with an invalid ICRC, and most mutations
/// invalidate it.
pub fn each_ip_packet(
    capture: &[u8],
    seal: bool,
    mut take: impl FnMut(u64, Option<Duration>, &[u8]),
) {
    let Ok(mut reader) = Reader::new(capture) else { return };
    while let Ok(Some(packet)) = reader.next_packet() {
        match packet.ip {
            Ok(ip) if seal => take(packet.number, packet.time, &sealed(ip)),
            Ok(ip) => take(packet.number, packet.time, ip),
            Err(_) => {}
        }
    }
}

/// Returns the packet with a correct ICRC, if it has room for one.
fn sealed(ip_packet: &[u8]) -> Vec<u8> {
    let mut packet = ip_packet.to_vec();
    let icrc = icrc::of_ip_packet(ip_packet);
    if let (Some((computed, _)), Ok(ip)) = (icrc, encap::parse_ip(ip_packet)) {
        let ip_len = if ip.ipv4.is_some() { encap::IPV4_LEN } else { encap::IPV6_LEN };
        let end = ip_len + encap::UDP_LEN + ip.payload.len();
        packet[end - ICRC_LEN..end].copy_from_slice(&computed.to_le_bytes());
    }
    packet
}
