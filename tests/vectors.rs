//! The wire format, compared with 51 frames made and checked by other programs (`vectors/vectors.json`).
//!
//! Every field of every frame is compared, the frame is rebuilt from the parsed fields, its ICRC is checked with and
//! without the IP header, and invalid frames are refused for the listed reason.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::collections::BTreeMap;

use serde_json::Value;
use softroce::net::{Ipv4Fields, ROCE_PORT};
use softroce::wire::icrc::{self, Flow, Verdict};
use softroce::wire::text::PacketLine;
use softroce::wire::{Builder, Datagram, Ieth, ImmDt, ParseError, Syndrome, XrcEth, encap, packet};

struct Vector(Value);

impl Vector {
    fn all() -> Vec<Self> {
        let file: Value = serde_json::from_str(include_str!("vectors/vectors.json")).unwrap();
        let vectors = file["vectors"].as_array().unwrap();
        assert_eq!(vectors.len(), 51);
        vectors.iter().cloned().map(Self).collect()
    }

    fn valid() -> impl Iterator<Item = Self> {
        Self::all().into_iter().filter(|vector| vector.0["expect"] == "valid")
    }

    fn named(name: &str) -> Self {
        Self::all().into_iter().find(|vector| vector.name() == name).unwrap()
    }

    fn name(&self) -> &str {
        self.0["name"].as_str().unwrap()
    }

    fn frame(&self) -> Vec<u8> {
        hex(self.0["frame_hex"].as_str().unwrap())
    }

    fn payload(&self) -> Vec<u8> {
        hex(self.0["payload_hex"].as_str().unwrap())
    }

    /// Returns the offset of the IP header.
    fn l3_offset(&self) -> usize {
        usize::try_from(number(&self.0["l3_offset"])).unwrap()
    }

    /// Returns the IP packet in the frame.
    fn ip_packet(&self) -> Vec<u8> {
        self.frame()[self.l3_offset()..].to_vec()
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Fields, with the names of the file.
type Fields = BTreeMap<String, Value>;

/// Returns the fields of the file, with nested objects flattened: `bth.psn`.
fn expected_fields(vector: &Vector) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in vector.0["fields"].as_object().unwrap() {
        match value.as_object() {
            Some(inner) => {
                let inner = inner.iter().map(|(key, v)| (format!("{name}.{key}"), v.clone()));
                fields.extend(inner);
            }
            None => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    // `wire` does not parse the contents of management datagrams.
    fields.retain(|name, _| !name.starts_with("mad."));
    fields
}

/// Returns the parsed fields, with the names of the file.
fn parsed_fields(ip: &encap::IpDatagram<'_>, udp_checksum: u16, datagram: &Datagram<'_>) -> Fields {
    let mut fields = Fields::new();
    let mut add = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    add("ip_version", if ip.source.is_ipv4() { 4 } else { 6 }.into());
    add("src_ip", ip.source.ip().to_string().into());
    add("dst_ip", ip.destination.ip().to_string().into());
    add("tos_or_tclass", ip.traffic_class.into());
    add("ttl_or_hop_limit", ip.hop_limit.into());
    match ip.ipv4 {
        Some(ipv4) => {
            add("ipv4_id", ipv4.id.into());
            add("ipv4_df", u8::from(ipv4.dont_fragment).into());
        }
        None => add("flow_label", ip.flow_label.into()),
    }
    add("udp_sport", ip.source.port().into());
    add("udp_dport", ip.destination.port().into());
    add("udp_checksum", udp_checksum.into());
    add("payload_len", datagram.payload.len().into());

    let bth = &datagram.bth;
    add("bth.opcode", bth.opcode.byte().into());
    add("bth.se", u8::from(bth.solicited).into());
    add("bth.migreq", u8::from(bth.migreq).into());
    add("bth.pad", bth.pad.into());
    add("bth.tver", bth.tver.into());
    add("bth.p_key", bth.pkey.0.into());
    add("bth.fecn", u8::from(bth.fecn).into());
    add("bth.becn", u8::from(bth.becn).into());
    add("bth.dest_qp", bth.dest_qp.value().into());
    add("bth.ackreq", u8::from(bth.ack_req).into());
    add("bth.psn", bth.psn.value().into());

    if let Some(reth) = datagram.reth() {
        add("reth.va", reth.addr.into());
        add("reth.rkey", reth.rkey.0.into());
        add("reth.dma_len", reth.length.into());
    }
    if let Some(aeth) = datagram.aeth() {
        add("aeth.syndrome", aeth.syndrome.byte().into());
        add("aeth.msn", aeth.msn.into());
        if let Syndrome::Rnr { timer } = aeth.syndrome {
            add("aeth.rnr_timer_code", timer.code().into());
        }
    }
    if let Some(eth) = datagram.atomic_eth() {
        add("atomiceth.va", eth.addr.into());
        add("atomiceth.rkey", eth.rkey.0.into());
        add("atomiceth.swap_add", eth.swap.into());
        add("atomiceth.compare", eth.compare.into());
    }
    if let Some(eth) = datagram.atomic_ack_eth() {
        add("atomicacketh", eth.original.into());
    }
    if let Some(deth) = datagram.deth() {
        add("deth.q_key", deth.qkey.0.into());
        add("deth.src_qp", deth.source_qp.value().into());
    }
    if let Some(ImmDt(imm)) = datagram.imm() {
        add("immdt", imm.into());
    }
    if let Some(Ieth(rkey)) = datagram.ieth() {
        add("ieth_rkey", rkey.0.into());
    }
    if let Some(XrcEth { srqn }) = datagram.xrceth() {
        add("xrceth_srqn", srqn.into());
    }
    if let Some(feth) = datagram.feth() {
        add("feth.plt", feth.placement.bits().into());
        add("feth.sel", feth.selectivity.code().into());
    }
    fields
}

/// Builds a datagram from parsed fields, with its ICRC.
fn rebuild(datagram: &Datagram<'_>, flow: &Flow, id: u16) -> Vec<u8> {
    let len = packet::datagram_len(datagram.bth.opcode, datagram.payload.len());
    let mut bytes = vec![0xcc; len];
    let mut builder = Builder::new(&datagram.bth, &mut bytes).unwrap();
    builder.payload_mut().copy_from_slice(datagram.payload);
    if let Some(header) = datagram.reth() {
        builder.reth(&header);
    }
    if let Some(header) = datagram.aeth() {
        builder.aeth(&header);
    }
    if let Some(header) = datagram.atomic_eth() {
        builder.atomic_eth(&header);
    }
    if let Some(header) = datagram.atomic_ack_eth() {
        builder.atomic_ack_eth(&header);
    }
    if let Some(header) = datagram.deth() {
        builder.deth(&header);
    }
    if let Some(header) = datagram.imm() {
        builder.imm(&header);
    }
    if let Some(header) = datagram.ieth() {
        builder.ieth(&header);
    }
    if let Some(header) = datagram.xrceth() {
        builder.xrceth(&header);
    }
    if let Some(header) = datagram.feth() {
        builder.feth(&header);
    }
    flow.seal(id, &mut bytes);
    bytes
}

#[test]
fn every_field_of_every_valid_frame_is_parsed() {
    let mut count = 0;
    for vector in Vector::valid() {
        let frame = vector.frame();
        let (ethertype, l3) = encap::ethernet(&frame).unwrap();
        assert_eq!(frame.len() - l3.len(), vector.l3_offset(), "{}", vector.name());
        let ip = encap::parse_ip(l3).unwrap();
        assert_eq!(ethertype, if ip.source.is_ipv4() { 0x0800 } else { 0x86dd });
        let udp = if ip.source.is_ipv4() { 20 } else { 40 };
        let udp_checksum = u16::from_be_bytes([l3[udp + 6], l3[udp + 7]]);
        let datagram = Datagram::parse(ip.payload).unwrap();
        let parsed = parsed_fields(&ip, udp_checksum, &datagram);
        assert_eq!(parsed, expected_fields(&vector), "{}", vector.name());
        assert_eq!(datagram.payload, vector.payload(), "{}", vector.name());
        assert_eq!(ip.destination.port(), ROCE_PORT);
        count += 1;
    }
    assert_eq!(count, 47);
}

#[test]
fn every_valid_frame_is_rebuilt_byte_for_byte() {
    for vector in Vector::valid() {
        let frame = vector.frame();
        let (_, l3) = encap::ethernet(&frame).unwrap();
        let ip = encap::parse_ip(l3).unwrap();
        let ipv4 = ip.ipv4.unwrap_or(Ipv4Fields { id: 0, dont_fragment: true });
        let datagram = Datagram::parse(ip.payload).unwrap();
        let datagram = rebuild(&datagram, &Flow::new(ip.source, ip.destination), ipv4.id);

        let mut built = frame[..vector.l3_offset()].to_vec();
        let headers = encap::Headers { path: ip.path(), flow_label: ip.flow_label, ipv4 };
        headers.append(datagram.len(), &mut built);
        built.extend(&datagram);
        // A short frame is padded after the ICRC.
        built.resize(frame.len(), 0);
        assert_eq!(built, frame, "{}", vector.name());
    }
}

/// CRC-01, CRC-09
#[test]
fn icrc_of_every_valid_frame_matches() {
    for vector in Vector::valid() {
        let listed = vector.0["icrc_u32"].as_str().unwrap().trim_start_matches("0x");
        let listed = u32::from_str_radix(listed, 16).unwrap();
        let wire = hex(vector.0["icrc_wire_hex"].as_str().unwrap());
        assert_eq!(listed.to_le_bytes(), wire[..], "{}", vector.name());

        let l3 = vector.ip_packet();
        assert_eq!(icrc::of_ip_packet(&l3), Some((listed, listed)), "{}", vector.name());
        let ip = encap::parse_ip(&l3).unwrap();
        let flow = Flow::new(ip.source, ip.destination);
        let (covered, found) = ip.payload.split_last_chunk::<4>().unwrap();
        assert_eq!(found, &wire[..], "{}", vector.name());
        let fields = ip.ipv4.unwrap_or(Ipv4Fields { id: 0, dont_fragment: true });
        assert_eq!(flow.compute(fields, covered), listed, "{}", vector.name());
        assert_eq!(flow.check(ip.ipv4, 0, ip.payload), Verdict::Good, "{}", vector.name());
    }
}

#[test]
fn crc_register_before_the_payload_matches() {
    for vector in Vector::valid().filter(|v| v.0["header_crc_state_after_bth_and_ext"].is_string())
    {
        let state = vector.0["header_crc_state_after_bth_and_ext"].as_str().unwrap();
        let state = u32::from_str_radix(state.trim_start_matches("0x"), 16).unwrap();
        let l3 = vector.ip_packet();
        let ip = encap::parse_ip(&l3).unwrap();
        let datagram = Datagram::parse(ip.payload).unwrap();
        let start = datagram.bth.opcode.header_len();
        // The listed register is before the final inversion.
        let mut hasher = crc32fast::Hasher::new_with_initial(!state);
        hasher.update(&ip.payload[start..ip.payload.len() - packet::ICRC_LEN]);
        assert_eq!(Some(hasher.finalize()), datagram.icrc, "{}", vector.name());
    }
}

/// CRC-13
#[test]
fn check_recovers_the_identification_of_every_valid_frame() {
    for vector in Vector::valid() {
        let l3 = vector.ip_packet();
        let ip = encap::parse_ip(&l3).unwrap();
        let flow = Flow::new(ip.source, ip.destination);
        for segment in [0, 1, 7, 63] {
            let expected = match ip.ipv4 {
                Some(ipv4) if ipv4.id != segment => Verdict::Recovered { id: ipv4.id },
                _ => Verdict::Good,
            };
            assert_eq!(flow.check(None, segment, ip.payload), expected, "{}", vector.name());
        }
    }
}

/// CRC-02
#[test]
fn invalid_frames_are_refused() {
    let mut count = 0;
    for vector in Vector::all() {
        let l3 = vector.ip_packet();
        let ip = encap::parse_ip(&l3).unwrap();
        let flow = Flow::new(ip.source, ip.destination);
        let parsed = Datagram::parse(ip.payload);
        match vector.0["expect"].as_str().unwrap() {
            "valid" => continue,
            "drop" => assert_eq!(parsed, Err(ParseError::TransportVersion { found: 1 })),
            "drop_bad_icrc" => assert!(parsed.is_ok(), "{}: {parsed:?}", vector.name()),
            expect => panic!("{}: what is {expect}?", vector.name()),
        }
        let (computed, found) = icrc::of_ip_packet(&l3).unwrap();
        assert_ne!(computed, found, "{}", vector.name());
        assert_eq!(flow.check(ip.ipv4, 0, ip.payload), Verdict::Bad, "{}", vector.name());
        assert_eq!(flow.check(None, 0, ip.payload), Verdict::Bad, "{}", vector.name());
        if vector.name() == "neg_icrc_big_endian" {
            assert_eq!(computed.swap_bytes(), found);
        }
        count += 1;
    }
    assert_eq!(count, 4);
}

/// Flips every bit of the headers of `vector` alone, and returns whether the ICRC is still valid.
fn survives(vector: &Vector, headers: usize) -> Vec<bool> {
    let mut packet = vector.ip_packet();
    let flip = |bit: usize| {
        packet[bit / 8] ^= 0x80 >> (bit % 8);
        let survives =
            icrc::of_ip_packet(&packet).is_some_and(|(computed, found)| computed == found);
        packet[bit / 8] ^= 0x80 >> (bit % 8);
        survives
    };
    (0..headers * 8).map(flip).collect()
}

/// PKT-05, CRC-03, CRC-04, CRC-05, CRC-06
#[test]
fn icrc_ignores_only_fields_that_routers_change() {
    // Masked bytes, from the IP header to the BTH.
    let ipv4 = [1, 8, 10, 11, 26, 27, 32];
    let survived = survives(&Vector::named("rc_send_only_5B_pad3"), 40);
    let expected: Vec<_> = (0..40 * 8).map(|bit| ipv4.contains(&(bit / 8))).collect();
    assert_eq!(survived, expected);

    let ipv6 = [1, 2, 3, 7, 46, 47, 52];
    let survived = survives(&Vector::named("rc_send_only_ipv6"), 60);
    let masked = |bit| ipv6.contains(&(bit / 8)) || (4..8).contains(&bit);
    let expected: Vec<_> = (0..60 * 8).map(masked).collect();
    assert_eq!(survived, expected);
}

/// CRC-04, CRC-07
#[test]
fn vlan_tag_and_identification_are_parsed() {
    let icrc = |name: &str| icrc::of_ip_packet(&Vector::named(name).ip_packet()).unwrap().0;
    let plain = icrc("rc_send_only_5B_pad3");
    assert_eq!(plain, icrc("rc_send_only_ttl3_ce_fecn"));
    assert_ne!(plain, icrc("rc_send_only_ipid_0x1234"));
    assert_ne!(plain, icrc("rc_send_only_migreq0_rxe_style"));
    let vlan = Vector::named("rc_send_only_vlan100_prio3");
    assert_eq!(vlan.l3_offset(), 18);
    let untagged = [&vlan.frame()[..12], &vlan.frame()[16..]].concat();
    let (_, l3) = encap::ethernet(&untagged).unwrap();
    assert_eq!(icrc::of_ip_packet(l3).map(|(computed, _)| computed), Some(icrc(vlan.name())));
    assert_eq!(encap::ethernet(&vlan.frame()).unwrap().1, l3);
}

#[test]
fn truncated_frame_is_an_error() {
    for vector in Vector::all() {
        let l3 = vector.ip_packet();
        let ip = encap::parse_ip(&l3).unwrap();
        let headers = if ip.source.is_ipv4() { 20 + 8 } else { 40 + 8 };
        for len in 0..headers + ip.payload.len() {
            assert!(encap::parse_ip(&l3[..len]).is_err(), "{} cut at {len}", vector.name());
            assert_eq!(icrc::of_ip_packet(&l3[..len]), None, "{} cut at {len}", vector.name());
        }
        let flow = Flow::new(ip.source, ip.destination);
        for len in 0..ip.payload.len() {
            let cut = &ip.payload[..len];
            assert_eq!(flow.check(ip.ipv4, 0, cut), Verdict::Bad, "{} cut at {len}", vector.name());
            let overhead = ip.payload.len() - vector.payload().len();
            if len < overhead {
                assert!(Datagram::parse(cut).is_err(), "{} cut at {len}", vector.name());
            }
        }
    }
}

#[test]
fn every_valid_frame_formats_as_listed() {
    let mut lines = String::new();
    for vector in Vector::valid() {
        let l3 = vector.ip_packet();
        let ip = encap::parse_ip(&l3).unwrap();
        let datagram = Datagram::parse(ip.payload).unwrap();
        lines += &format!("{} {:#}\n", vector.0["id"], PacketLine(&datagram));
    }
    assert_eq!(lines, include_str!("vectors/lines.txt"));
}
