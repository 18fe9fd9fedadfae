//! Any bytes as a capture file, held against the rules; what is remembered stays within its bounds.
//!
//! Twice: as it is, and with every ICRC made good, for of a packet whose ICRC is bad nothing is asked.

#![no_main]

use libfuzzer_sys::fuzz_target;
use softroce::wire::encap;
use softroce::wire::icrc;
use softroce::wire::packet::ICRC_LEN;
use softroce_pcap::check::Checker;
use softroce_pcap::flow::Limits;
use softroce_pcap::{Packet, Reader};

const LIMITS: Limits = Limits { directions: 8, window: 16, packets: 64 };

fuzz_target!(|file: &[u8]| {
    check(file, |checker, packet| {
        checker.packet(packet);
    });
    check(file, |checker, packet| {
        if let Ok(ip) = packet.ip {
            checker.ip_packet(packet.number, packet.time, &sealed(ip));
        }
    });
});

fn check(file: &[u8], take: impl Fn(&mut Checker, &Packet<'_>)) {
    let Ok(mut reader) = Reader::new(file) else { return };
    let mut checker = Checker::new(LIMITS);
    while let Ok(Some(packet)) = reader.next_packet() {
        take(&mut checker, &packet);
        let (directions, packets) = checker.tracker().remembered();
        assert!(directions <= LIMITS.directions && packets <= LIMITS.packets);
    }
    let counts = checker.counts();
    let verdicts = counts.icrc_good + counts.icrc_bad + counts.icrc_unknown;
    assert_eq!(verdicts, counts.roce_packets);
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
