//! What the targets share: the packets in any bytes, engines that are sent them, and what must hold.

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

/// Gives the IP packets of a capture as far as it can be read, with number and time. With `seal` their
/// ICRCs are made good: of a packet whose ICRC is bad nothing is asked, and damage makes most so.
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

/// The packet with the ICRC that belongs to it, where it has room for one.
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
