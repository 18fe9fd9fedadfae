//! Bursts that a capture holds as one datagram, tunnels, and truncated packets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use softroce::ids::Qpn;
use softroce::net::{Ipv4Fields, Path};
use softroce::psn::Psn;
use softroce::wire::encap::Headers;
use softroce::wire::icrc::Flow;
use softroce::wire::packet::{datagram_len, padding};
use softroce::wire::{Bth, Builder, Opcode, ParseError, Reth};
use softroce_pcap::{Extent, Icrc, LinkType, RocePacket, dissect};

const ID: u16 = 0xfffe;

/// Whether a stack counts segments in the IPv4 identification.
#[derive(Clone, Copy, PartialEq)]
enum Ids {
    Counted,
    Equal,
}

fn path(ipv6: bool) -> Path {
    let ips = if ipv6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
    let [source, destination] = ips.map(|ip| ip.parse().unwrap());
    Path { source, destination, source_port: 0xc123, traffic_class: 2, hop_limit: 64 }
}

fn datagram(path: &Path, id: u16, psn: u32, payload: usize) -> Vec<u8> {
    let opcode = Opcode::RcSendOnly;
    let pad = u8::try_from(padding(payload)).unwrap();
    let bth = Bth { opcode, pad, psn: Psn::new(psn), dest_qp: Qpn::new(0x12), ..Bth::default() };
    let mut bytes = vec![0; datagram_len(opcode, payload)];
    Builder::new(&bth, &mut bytes).unwrap().payload_mut().fill(psn.to_le_bytes()[0]);
    let to = (path.destination, 4791).into();
    Flow::new((path.source, path.source_port).into(), to).seal(id, &mut bytes);
    bytes
}

fn ip_packet(path: &Path, udp_payload: &[u8]) -> Vec<u8> {
    let ipv4 = Ipv4Fields { id: ID, dont_fragment: true };
    let mut packet = Vec::new();
    Headers { path: *path, flow_label: 0, ipv4 }.append(udp_payload.len(), &mut packet);
    packet.extend(udp_payload);
    packet
}

/// Returns a burst of SENDs with payloads of these lengths.
fn burst(ipv6: bool, ids: Ids, payloads: &[usize]) -> Vec<u8> {
    let path = path(ipv6);
    let each = payloads.iter().zip(0..).map(|(payload, i)| {
        let id = if ids == Ids::Counted { ID.wrapping_add(i) } else { ID };
        datagram(&path, id, i.into(), *payload)
    });
    ip_packet(&path, &each.collect::<Vec<_>>().concat())
}

fn segments(ip_packet: &[u8]) -> Vec<RocePacket<'_>> {
    dissect(ip_packet).unwrap().unwrap().segments().collect()
}

/// Returns PSN, payload length, extent and ICRC.
fn seen(packet: &RocePacket<'_>) -> (u32, usize, Extent, Icrc) {
    let datagram = packet.datagram.as_ref().unwrap();
    (datagram.bth.psn.value(), datagram.payload_len, packet.extent, packet.icrc)
}

#[test]
fn burst_is_split_into_its_packets() {
    for (ipv6, ids) in [(false, Ids::Counted), (false, Ids::Equal), (true, Ids::Equal)] {
        for (payload, last) in [(0, 0), (1, 1), (64, 3), (1024, 1024), (4096, 4095)] {
            let lengths = [payload, payload, payload, last];
            let packet = burst(ipv6, ids, &lengths);
            let found: Vec<_> = segments(&packet).iter().map(seen).collect();
            let expected: Vec<_> = (0..4)
                .map(|index| (index, Extent::Segment { index, of: 4 }))
                .map(|(i, extent)| (u32::try_from(i).unwrap(), lengths[i], extent, Icrc::Good))
                .collect();
            assert_eq!(found, expected, "{payload} bytes, then {last}");
        }
    }
}

#[test]
fn segments_have_the_identification_for_which_their_icrc_holds() {
    let ids = |which| {
        let packet = burst(false, which, &[8, 8, 8]);
        segments(&packet).iter().map(|s| s.ip.ipv4.unwrap().id).collect::<Vec<_>>()
    };
    assert_eq!(ids(Ids::Counted), [0xfffe, 0xffff, 0]);
    assert_eq!(ids(Ids::Equal), [0xfffe; 3]);
}

#[test]
fn corrupt_packet_does_not_hide_boundaries_of_others() {
    for changed in 0..4 {
        let mut packet = burst(false, Ids::Counted, &[256; 4]);
        packet[28 + changed * 272 + 100] ^= 4;
        let icrcs: Vec<_> = segments(&packet).iter().map(|s| s.icrc == Icrc::Good).collect();
        let expected: Vec<_> = (0..4).map(|i| i != changed).collect();
        assert_eq!(icrcs, expected);
    }
}

#[test]
fn burst_without_matching_icrcs_stays_unsplit() {
    let mut packet = burst(false, Ids::Counted, &[2048; 3]);
    for segment in 0..3 {
        packet[28 + segment * 2064 + 100] ^= 4;
    }
    let [whole] = segments(&packet)[..] else { panic!("one expected") };
    assert_eq!(whole.extent, Extent::Unsplit);
    assert!(matches!(whole.icrc, Icrc::Bad { .. }));
    // A datagram with a correct ICRC is one packet, also if it is too long for one.
    let long = burst(false, Ids::Counted, &[5000]);
    let [whole] = segments(&long)[..] else { panic!("one expected") };
    assert_eq!(seen(&whole), (0, 5000, Extent::Whole, Icrc::Good));
    // A datagram that may be one packet is one.
    let mut packet = burst(false, Ids::Counted, &[2048]);
    packet[100] ^= 4;
    let [whole] = segments(&packet)[..] else { panic!("one expected") };
    assert_eq!(whole.extent, Extent::Whole);
}

#[test]
fn truncated_burst_shows_its_captured_packets() {
    let packet = burst(false, Ids::Counted, &[64; 5]);
    // Two packets, and the third without the end of its payload.
    let cut = &packet[..28 + 2 * 80 + 20];
    let found: Vec<_> = segments(cut).iter().map(seen).collect();
    let place = |index| Extent::Segment { index, of: 5 };
    let expected = [
        (0, 64, place(0), Icrc::Good),
        (1, 64, place(1), Icrc::Good),
        (2, 64, place(2), Icrc::Cut),
    ];
    assert_eq!(found, expected);
}

#[test]
fn truncated_packet_has_its_captured_headers() {
    let path = path(false);
    let bth = Bth { opcode: Opcode::RcWriteOnly, ..Bth::default() };
    let mut bytes = vec![0; datagram_len(bth.opcode, 100)];
    let reth = Reth { addr: 0x1000, length: 100, ..Reth::default() };
    Builder::new(&bth, &mut bytes).unwrap().reth(&reth);
    let packet = ip_packet(&path, &bytes);
    let headers = 28 + 12 + 16;
    for len in headers..packet.len() {
        let roce = dissect(&packet[..len]).unwrap().unwrap();
        let datagram = roce.datagram.unwrap();
        assert_eq!((datagram.reth(), datagram.payload_len), (Some(reth), 100), "{len} bytes");
        assert_eq!(datagram.payload.len(), (len - headers).min(100), "{len} bytes");
        assert_eq!(roce.icrc, Icrc::Cut, "{len} bytes");
    }
    let roce = dissect(&packet[..headers - 1]).unwrap().unwrap();
    let expected = ParseError::Truncated { part: "RETH", need: 16, have: 15 };
    assert_eq!(roce.datagram.unwrap_err(), expected);
    assert!(dissect(&packet[..27]).is_err());
}

#[test]
fn packet_in_a_vxlan_tunnel_is_found() {
    let inner = burst(true, Ids::Equal, &[32]);
    let mut tunnel = vec![0x08, 0, 0, 0, 0, 0x12, 0x34, 0];
    tunnel.extend([[0; 12].as_slice(), &[0x86, 0xdd], &inner].concat());
    let mut outer = ip_packet(&path(false), &tunnel);
    outer[22..24].copy_from_slice(&4789u16.to_be_bytes());
    let frame = [[0; 12].as_slice(), &[0x81, 0, 0, 5, 0x08, 0], &outer].concat();
    let roce = dissect(LinkType::Ethernet.ip(&frame).unwrap()).unwrap().unwrap();
    assert_eq!((roce.vni, roce.icrc), (Some(0x1234), Icrc::Good));
    assert_eq!(roce.ip.path().source, path(true).source);
    // Without the flag there is no VNI, and the following bytes may have any value.
    outer[28] = 0;
    assert!(dissect(&outer).unwrap().is_none());
}
