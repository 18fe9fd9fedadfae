//! Properties of the wire format for all values.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;
use softroce::ids::{PKey, QKey, Qpn, Rkey};
use softroce::net::{Ipv4Fields, Path, ROCE_PORT};
use softroce::psn::Psn;
use softroce::wire::feth::{Placement, Selectivity};
use softroce::wire::icrc::{self, Flow, Verdict};
use softroce::wire::text::PacketLine;
use softroce::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Builder, Cnp, Datagram, Deth, FlushEth, Header, Ieth,
    ImmDt, Opcode, ParseError, Position, RdEth, Reth, Sequence, Syndrome, XrcEth, encap, packet,
};

fn opcode() -> impl Strategy<Value = Opcode> {
    prop::sample::select(Opcode::ALL)
}

fn qpn() -> impl Strategy<Value = Qpn> {
    any::<u32>().prop_map(Qpn::new)
}

fn bth() -> impl Strategy<Value = Bth> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let numbers = (any::<u16>(), qpn(), any::<u32>());
    (opcode(), flags, 0..4_u8, numbers).prop_map(|(opcode, flags, pad, (pkey, dest_qp, psn))| {
        let (solicited, migreq, fecn, becn, ack_req) = flags;
        let (pkey, psn) = (PKey(pkey), Psn::new(psn));
        Bth { opcode, solicited, migreq, pad, tver: 0, pkey, fecn, becn, dest_qp, ack_req, psn }
    })
}

prop_compose! {
    fn reth()(addr: u64, rkey: u32, length: u32) -> Reth {
        Reth { addr, rkey: Rkey(rkey), length }
    }
}

prop_compose! {
    fn aeth()(syndrome: u8, msn in 0..1_u32 << 24) -> Aeth {
        Aeth { syndrome: Syndrome::from_byte(syndrome), msn }
    }
}

prop_compose! {
    fn atomic_eth()(addr: u64, rkey: u32, swap: u64, compare: u64) -> AtomicEth {
        AtomicEth { addr, rkey: Rkey(rkey), swap, compare }
    }
}

prop_compose! {
    fn deth()(qkey: u32, source_qp in qpn()) -> Deth {
        Deth { qkey: QKey(qkey), source_qp }
    }
}

prop_compose! {
    fn feth()(placement in 0..16_u8, selectivity in 0..4_u8) -> FlushEth {
        FlushEth {
            placement: Placement::from_bits_retain(placement),
            selectivity: Selectivity::from_code(selectivity),
        }
    }
}

/// A value of every extension header; a packet uses those of its opcode.
#[derive(Clone, Debug)]
struct Extensions {
    reth: Reth,
    aeth: Aeth,
    atomic_eth: AtomicEth,
    atomic_ack_eth: AtomicAckEth,
    deth: Deth,
    imm: ImmDt,
    ieth: Ieth,
    xrceth: XrcEth,
    feth: FlushEth,
    rdeth: RdEth,
}

prop_compose! {
    fn extensions()(
        reth in reth(),
        aeth in aeth(),
        atomic_eth in atomic_eth(),
        original: u64,
        deth in deth(),
        words: [u32; 2],
        numbers in [0..1_u32 << 24, 0..1_u32 << 24],
        feth in feth(),
    ) -> Extensions {
        Extensions {
            reth,
            aeth,
            atomic_eth,
            atomic_ack_eth: AtomicAckEth { original },
            deth,
            imm: ImmDt(words[0]),
            ieth: Ieth(Rkey(words[1])),
            xrceth: XrcEth { srqn: numbers[0] },
            feth,
            rdeth: RdEth { ee_context: numbers[1] },
        }
    }
}

/// Builds a whole datagram, with the padding for its payload.
fn build(bth: &Bth, extensions: &Extensions, payload: &[u8]) -> (Bth, Vec<u8>) {
    let pad = u8::try_from(packet::padding(payload.len())).unwrap();
    let bth = Bth { pad, ..*bth };
    let mut bytes = vec![0xcc; packet::datagram_len(bth.opcode, payload.len())];
    let mut builder = Builder::new(&bth, &mut bytes).unwrap();
    builder.payload_mut().copy_from_slice(payload);
    for header in bth.opcode.layout().headers {
        match header {
            Header::Rdeth => builder.rdeth(&extensions.rdeth),
            Header::Deth => builder.deth(&extensions.deth),
            Header::Xrceth => builder.xrceth(&extensions.xrceth),
            Header::Feth => builder.feth(&extensions.feth),
            Header::Reth => builder.reth(&extensions.reth),
            Header::Atomic => builder.atomic_eth(&extensions.atomic_eth),
            Header::Aeth => builder.aeth(&extensions.aeth),
            Header::AtomicAck => builder.atomic_ack_eth(&extensions.atomic_ack_eth),
            Header::Imm => builder.imm(&extensions.imm),
            Header::Ieth => builder.ieth(&extensions.ieth),
            Header::Cnp => &mut builder,
        };
    }
    (bth, bytes)
}

fn address() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    // A mapped address would parse as IPv4.
    let v6 = any::<[u8; 16]>().prop_map(|bytes| IpAddr::from(bytes).to_canonical());
    let v6 = v6.prop_filter("IPv6", IpAddr::is_ipv6);
    prop_oneof![
        any::<[[u8; 4]; 2]>().prop_map(|[from, to]| (from.into(), to.into())),
        (v6.clone(), v6),
    ]
}

prop_compose! {
    fn path()(
        (source, destination) in address(),
        source_port: u16,
        traffic_class: u8,
        hop_limit: u8,
    ) -> Path {
        Path { source, destination, source_port, traffic_class, hop_limit }
    }
}

fn flow(path: &Path) -> Flow {
    let source = SocketAddr::new(path.source, path.source_port);
    Flow::new(source, SocketAddr::new(path.destination, ROCE_PORT))
}

/// The header survives write and parse, and write sets every byte.
macro_rules! assert_comes_back {
    ($type:ident, $header:expr) => {{
        let header: $type = $header;
        let [mut bytes, mut again] = [[0x00; $type::LEN], [0xff; $type::LEN]];
        header.write(&mut bytes);
        header.write(&mut again);
        prop_assert_eq!(bytes, again);
        prop_assert_eq!($type::parse(&bytes), header);
    }};
}

proptest! {
    #[test]
    fn every_header_survives_write_and_parse(bth in bth(), tver in 0..16_u8, extensions in extensions()) {
        let mut bytes = [0xff; Bth::LEN];
        let bth = Bth { tver, ..bth };
        bth.write(&mut bytes);
        prop_assert_eq!(Bth::parse(&bytes), Ok(bth));
        assert_comes_back!(Reth, extensions.reth);
        assert_comes_back!(Aeth, extensions.aeth);
        assert_comes_back!(AtomicEth, extensions.atomic_eth);
        assert_comes_back!(AtomicAckEth, extensions.atomic_ack_eth);
        assert_comes_back!(Deth, extensions.deth);
        assert_comes_back!(ImmDt, extensions.imm);
        assert_comes_back!(Ieth, extensions.ieth);
        assert_comes_back!(XrcEth, extensions.xrceth);
        assert_comes_back!(FlushEth, extensions.feth);
        assert_comes_back!(RdEth, extensions.rdeth);
        assert_comes_back!(Cnp, Cnp);
    }

    #[test]
    fn every_packet_survives_build_and_parse(
        bth in bth(),
        extensions in extensions(),
        payload in prop::collection::vec(any::<u8>(), 0..300),
        path in path(),
        id: u16,
    ) {
        let (bth, mut bytes) = build(&bth, &extensions, &payload);
        flow(&path).seal(id, &mut bytes);
        let mut packet = Vec::new();
        encap::Headers::write(&path, id, bytes.len(), &mut packet);
        packet.extend(&bytes);

        let ip = encap::parse_ip(&packet).unwrap();
        prop_assert_eq!(ip.path(), path);
        prop_assert_eq!(ip.destination.port(), ROCE_PORT);
        prop_assert_eq!(ip.payload, &bytes);
        let sent = Ipv4Fields { id, dont_fragment: true };
        prop_assert_eq!(ip.ipv4, path.source.is_ipv4().then_some(sent));
        let (computed, found) = icrc::of_ip_packet(&packet).unwrap();
        prop_assert_eq!(computed, found);

        let datagram = Datagram::parse(ip.payload).unwrap();
        prop_assert_eq!(datagram.bth, bth);
        prop_assert_eq!(datagram.payload, &payload);
        prop_assert_eq!(datagram.icrc, Some(found));
        let layout = bth.opcode.layout();
        let Extensions { reth, aeth, atomic_eth, atomic_ack_eth, deth, .. } = extensions;
        prop_assert_eq!(datagram.reth(), layout.reth.map(|_| reth));
        prop_assert_eq!(datagram.aeth(), layout.aeth.map(|_| aeth));
        prop_assert_eq!(datagram.atomic_eth(), layout.atomic_eth.map(|_| atomic_eth));
        prop_assert_eq!(datagram.atomic_ack_eth(), layout.atomic_ack_eth.map(|_| atomic_ack_eth));
        prop_assert_eq!(datagram.deth(), layout.deth.map(|_| deth));
        let Extensions { imm, ieth, xrceth, feth, rdeth, .. } = extensions;
        prop_assert_eq!(datagram.imm(), layout.imm.map(|_| imm));
        prop_assert_eq!(datagram.ieth(), layout.ieth.map(|_| ieth));
        prop_assert_eq!(datagram.xrceth(), layout.xrceth.map(|_| xrceth));
        prop_assert_eq!(datagram.feth(), layout.feth.map(|_| feth));
        prop_assert_eq!(datagram.rdeth(), layout.rdeth.map(|_| rdeth));
    }

    #[test]
    fn packet_one_byte_shorter_than_its_headers_is_an_error(bth in bth(), extensions in extensions()) {
        let (bth, bytes) = build(&bth, &extensions, b"");
        let parsed = Datagram::parse(&bytes[..bytes.len() - 1]);
        prop_assert!(matches!(parsed, Err(ParseError::Truncated { .. })), "{:?}", parsed);
        let padded = Bth { pad: 1, ..bth };
        let mut bytes = bytes;
        padded.write(bytes.first_chunk_mut().unwrap());
        let parsed = Datagram::parse(&bytes);
        let expected = ParseError::Truncated { part: "padding", need: 1, have: 0 };
        prop_assert_eq!(parsed, Err(expected));
    }

    /// CRC-13
    #[test]
    fn check_recovers_an_identification_and_rejects_flipped_bits(
        payload in prop::collection::vec(any::<u8>(), 0..300),
        path in path(),
        id: u16,
        segment: u16,
        flip: prop::sample::Index,
    ) {
        let len = packet::datagram_len(Opcode::RcSendOnly, payload.len());
        let pad = u8::try_from(packet::padding(payload.len())).unwrap();
        let mut bytes = vec![0; len];
        let mut builder = Builder::new(&Bth { pad, ..Bth::default() }, &mut bytes).unwrap();
        builder.payload_mut().copy_from_slice(&payload);
        let flow = flow(&path);
        flow.seal(id, &mut bytes);
        let expected = match path.source {
            IpAddr::V4(_) if id != segment => Verdict::Recovered { id },
            _ => Verdict::Good,
        };
        prop_assert_eq!(flow.check(None, segment, &bytes), expected);

        let bit = flip.index(bytes.len() * 8);
        prop_assume!(bit / 8 != 4);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(flow.check(None, segment, &bytes), Verdict::Bad);
    }

    #[test]
    fn random_bytes_parse_to_a_packet_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(datagram) = Datagram::parse(&bytes) {
            prop_assert_eq!(datagram.bth.tver, 0);
            let around = datagram.bth.opcode.header_len() + usize::from(datagram.bth.pad) + 4;
            prop_assert_eq!(datagram.payload.len() + around, bytes.len());
            let line = format!("{:#}", PacketLine(&datagram));
            prop_assert!(line.contains(" psn="), "{}", line);
        }
        let flow = Flow::new(([10, 0, 0, 1], 0xc000).into(), ([10, 0, 0, 2], 4791).into());
        let _ = flow.check(None, 3, &bytes);
        let _ = encap::ethernet(&bytes);
        let _ = icrc::of_ip_packet(&bytes);
        if let Ok(ip) = encap::parse_ip(&bytes) {
            prop_assert!(ip.payload.len() < bytes.len());
        }
    }

    #[test]
    fn mutated_packets_parse_to_a_packet_or_an_error(
        opcode in opcode(),
        mut bytes in prop::collection::vec(any::<u8>(), 16..120),
    ) {
        bytes[0] = opcode.byte();
        bytes[1] &= 0xf0;
        let pad = usize::from(bytes[1] >> 4 & 3);
        let fits = bytes.len() >= opcode.header_len() + pad + 4;
        prop_assert_eq!(Datagram::parse(&bytes).is_ok(), fits);
    }

    #[test]
    fn accepted_sequence_consists_of_whole_messages(opcodes in prop::collection::vec(opcode(), 0..40)) {
        // The opcodes that `next` accepts form a valid sequence.
        let mut sequence = Sequence::Idle;
        let mut open: Option<Opcode> = None;
        for opcode in opcodes {
            let Ok(next) = sequence.next(opcode) else { continue };
            match open {
                None => prop_assert!(opcode.position().is_start(), "{}", opcode),
                Some(first) => {
                    prop_assert!(!opcode.position().is_start(), "{} in {}", opcode, first);
                    prop_assert_eq!(opcode.operation(), first.operation());
                }
            }
            open = match opcode.position() {
                Position::First => Some(opcode),
                Position::Middle => open,
                Position::Last | Position::Only => None,
            };
            sequence = next;
            prop_assert_eq!(sequence == Sequence::Idle, open.is_none());
        }
    }
}
