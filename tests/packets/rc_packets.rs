//! Packets that an RC queue pair drops: they change nothing except a counter, and none causes a panic.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::net::{IpAddr, SocketAddr};

use crate::support::pattern;
use crate::support::script::{OURS, PEER, Script, bytes, ok, rts_qp};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use softroce::engine::{QpAttr, QpState};
use softroce::ids::Gid;
use softroce::net::{AddressVector, Burst, Ipv4Fields, ROCE_PORT, RxBuffer, RxMeta};
use softroce::time::Instant;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{Completion, SendOp, WcOpcode, WcStatus};
use softroce::wire::icrc::{self, Flow};
use softroce::wire::{Datagram, Opcode};

const WRITE: &str = "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8";

/// Checks that a queue pair drops a damaged datagram for this reason without a response, and accepts the correct one
/// afterwards.
#[track_caller]
fn dropped(t: &mut Script, datagram: &[u8], reason: DropReason) {
    let meta = t.meta();
    dropped_from(t, datagram, meta, reason);
}

#[track_caller]
fn dropped_from(t: &mut Script, datagram: &[u8], meta: RxMeta, reason: DropReason) {
    let before = t.dropped(reason);
    t.rx_meta(0, datagram, meta);
    t.quiet(0);
    assert_eq!(t.dropped(reason), before + 1, "{reason:?}");
    assert_eq!((t.mem.load_u64(0), t.state()), (Ok(0), QpState::Rts));
}

#[track_caller]
fn still_taken(t: &mut Script) {
    t.rx(0, WRITE);
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(bytes(&t.mem, 0, 8), pattern(5, 8));
}

/// CRC-08
#[test]
fn packet_with_a_wrong_icrc_is_dropped_without_a_response() {
    let mut t = Script::responder(rts_qp());
    // Every bit except those that routers change. Changes of the opcode, the length and the queue pair number have
    // other drop reasons.
    let packet = t.packet(WRITE);
    let mut refused = 0;
    for bit in (0..packet.len() * 8).filter(|bit| bit / 8 != 4) {
        let mut damaged = packet.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let meta = t.meta();
        t.rx_meta(0, &damaged, meta);
        t.quiet(0);
        refused += u64::from(t.dropped(DropReason::BadIcrc) > refused);
    }
    assert!(refused > 250, "{refused} of {} bits are told by the ICRC alone", packet.len() * 8);
    let counters = t.engine.counters();
    let drops: u64 = DropReason::ALL.iter().map(|reason| counters.dropped(*reason)).sum();
    assert_eq!(drops, (packet.len() as u64 - 1) * 8, "every one was dropped");
    assert_eq!(t.events(), []);
    still_taken(&mut t);
}

/// CRC-08: responses too.
#[test]
fn ack_with_a_wrong_icrc_is_ignored() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    for line in ["ACK psn=5 msn=1", "NAK_ACCESS psn=5 msn=0", "NAK_PSN psn=5 msn=0"] {
        let mut packet = t.packet(line);
        let last = packet.len() - 1;
        packet[last] ^= 0x10;
        t.rx_bytes(1, &packet);
    }
    t.quiet(1000);
    assert_eq!((t.dropped(DropReason::BadIcrc), t.sends()), (3, vec![]));
}

/// CRC-04: a hidden identification is recovered, and a visible one must match.
#[test]
fn icrc_check_uses_the_known_ip_header_fields() {
    let mut t = Script::responder(rts_qp());
    let packet = t.packet(WRITE);
    let fields = |id, dont_fragment| Some(Ipv4Fields { id, dont_fragment });
    for ipv4 in [fields(1, true), fields(0, false), fields(0xffff, true)] {
        let meta = RxMeta { ipv4, ..t.meta() };
        dropped_from(&mut t, &packet, meta, DropReason::BadIcrc);
    }
    let meta = RxMeta { ipv4: fields(0, true), ..t.meta() };
    t.rx_meta(0, &packet, meta);
    t.tx(0, "ACK psn=5 msn=1");
}

/// Whether a packet came alone or in a run of equal ones.
#[test]
fn omitted_icrc_is_valid_through_memory_only() {
    let mut t = Script::responder(rts_qp());
    let in_memory = RxMeta { may_omit_icrc: true, ..t.meta() };
    let mut packet = t.packet(WRITE);
    icrc::omit(&mut packet);
    dropped(&mut t, &packet, DropReason::BadIcrc);
    let mut wrong = packet.clone();
    *wrong.last_mut().unwrap() = 1;
    dropped_from(&mut t, &wrong, in_memory, DropReason::BadIcrc);
    t.rx_meta(0, &packet, in_memory);
    t.tx(0, "ACK psn=5 msn=1");

    let lines = [
        "WRITE_FIRST psn=6 va=0x1000 rkey=mem dmalen=1024 len=256",
        "WRITE_MIDDLE psn=7 len=256",
        "WRITE_MIDDLE psn=8 len=256",
        "WRITE_LAST psn=9 ackreq len=256",
    ];
    let [first, middles @ .., last] = lines.map(|line| {
        let mut packet = t.packet(line);
        icrc::omit(&mut packet);
        packet
    });
    t.rx_meta(0, &first, in_memory);
    let segment_len = middles[0].len();
    for meta in [t.meta(), in_memory] {
        let data = &middles.concat();
        t.engine.handle_buffer(Instant::ZERO, RxBuffer { data, segment_len, meta });
    }
    t.rx_meta(0, &last, in_memory);
    t.tx(0, "ACK psn=9 msn=2");
    assert_eq!(t.dropped(DropReason::BadIcrc), 4, "2 of the run, which came over a network first");
}

/// PKT-08
#[test]
fn packet_with_another_transport_version_is_dropped() {
    let mut t = Script::responder(rts_qp());
    for version in 1..16 {
        let mut packet = t.packet(WRITE);
        packet[1] |= version;
        let packet = t.seal(packet);
        dropped(&mut t, &packet, DropReason::TransportVersion);
    }
    still_taken(&mut t);
}

/// PKT-09
#[test]
fn packet_with_an_unassigned_opcode_is_dropped() {
    let mut t = Script::responder(rts_qp());
    let unassigned: Vec<u8> = (0..=255).filter(|byte| Opcode::from_byte(*byte).is_none()).collect();
    assert!(unassigned.contains(&0xff) && unassigned.contains(&0x15));
    for byte in unassigned {
        // Longer than all headers, and shorter than all headers.
        for mut packet in [t.packet(WRITE), t.packet(WRITE)[..16].to_vec()] {
            packet[0] = byte;
            let packet = t.seal(packet);
            dropped(&mut t, &packet, DropReason::UnassignedOpcode);
        }
    }
    still_taken(&mut t);
}

/// PKT-07
#[test]
fn packet_shorter_than_its_headers_is_dropped() {
    let mut t = Script::responder(rts_qp());
    for opcode in Opcode::ALL {
        for pad in 0..4 {
            let least = opcode.header_len() + pad + 4;
            for len in 0..least {
                let mut packet = vec![0; len.max(12)];
                packet[..12].copy_from_slice(&t.packet(WRITE)[..12]);
                packet[0] = opcode.byte();
                packet[1] = packet[1] & !0x30 | (pad as u8) << 4;
                let packet = t.seal(packet[..len].to_vec());
                dropped(&mut t, &packet, DropReason::Malformed);
            }
        }
    }
    still_taken(&mut t);
}

/// PKT-10
#[test]
fn packet_for_another_queue_pair_is_dropped() {
    let mut t = Script::responder(rts_qp());
    let others = [0, 2, 0xff_ffff, t.qpn.value() ^ 1, t.qpn.value() ^ 0x80_0000];
    let unknown = others.map(|qpn| (qpn, DropReason::UnknownQp));
    // Queue pair 1 exists, and is of UD.
    for (qpn, reason) in unknown.into_iter().chain([(1, DropReason::WrongTransport)]) {
        let line =
            format!("RC WRITE_ONLY qp=0x{qpn:06x} psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
        let packet = t.packet(&line);
        dropped(&mut t, &packet, reason);
    }
    still_taken(&mut t);
}

/// PKT-11
#[test]
fn packet_of_another_transport_is_dropped() {
    let mut t = Script::responder(rts_qp());
    let qpn = t.qpn;
    for line in [
        format!("UC WRITE_ONLY qp={qpn} psn=5 va=0x1000 rkey=mem dmalen=8 len=8"),
        format!("UC SEND_ONLY qp={qpn} psn=5 len=8"),
        format!("UD SEND_ONLY qp={qpn} psn=5 qkey=0x00001234 srcqp=0x000012 len=8"),
        format!("XRC SEND_ONLY qp={qpn} psn=5 ackreq srqn=0x000001 len=8"),
    ] {
        let packet = t.packet(&line);
        dropped(&mut t, &packet, DropReason::WrongTransport);
    }
    still_taken(&mut t);
}

/// CC-02, CC-03: a CNP is not a request and has no response.
#[test]
fn cnp_is_counted_and_changes_nothing() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "CNP psn=5 becn");
    // An adapter may send it from UDP port 0.
    let source = SocketAddr::new(PEER, 0);
    let mut packet = t.packet("CNP psn=5 becn");
    Flow::new(source, SocketAddr::new(OURS, ROCE_PORT)).seal(0, &mut packet);
    let meta = RxMeta { source, ..t.meta() };
    t.rx_meta(0, &packet, meta);
    assert_eq!(t.engine.counters().cnps_received, 2);
    t.quiet(0);
    assert!(DropReason::ALL.iter().all(|reason| t.dropped(*reason) == 0));
    let mut packet = t.packet("CNP psn=5 becn");
    packet[5..8].copy_from_slice(&[0, 0, 0x77]);
    let for_nobody = t.seal(packet);
    dropped(&mut t, &for_nobody, DropReason::UnknownQp);
    still_taken(&mut t);
}

/// PKT-12
#[test]
fn packet_of_another_partition_is_dropped() {
    let mut t = Script::responder(rts_qp());
    for pkey in ["0x0000", "0x8000", "0x7ffe", "0xfffe", "0x8001"] {
        let line = format!("WRITE_ONLY psn=5 ackreq pkey={pkey} va=0x1000 rkey=mem dmalen=8 len=8");
        let packet = t.packet(&line);
        dropped(&mut t, &packet, DropReason::PKeyMismatch);
    }
    // This side is a full member, so it accepts limited members.
    t.rx(0, "WRITE_ONLY psn=5 ackreq pkey=0x7fff va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "ACK psn=5 msn=1");
}

/// PKT-13, PKT-24
#[test]
fn packet_from_or_to_another_address_is_dropped() {
    let mut t = Script::responder(rts_qp());
    let stranger: IpAddr = "10.0.0.3".parse().unwrap();
    let v6: IpAddr = "::ffff:10.0.0.2".parse().unwrap();
    let meta = t.meta();
    let port = meta.source.port();
    for (from, to) in [(stranger, OURS), (v6, OURS), (PEER, stranger), (OURS, PEER)] {
        let meta = RxMeta { source: SocketAddr::new(from, port), destination: to, ..meta };
        let packet = t.packet(WRITE);
        dropped_from(&mut t, &packet, meta, DropReason::WrongAddress);
    }
    still_taken(&mut t);
}

/// §1.1: the source port, TTL and TOS of a peer are arbitrary.
#[test]
fn receiver_ignores_source_port_ttl_and_tos() {
    let mut t = Script::responder(rts_qp());
    let line = WRITE;
    for (us, port) in [0_u16, 4791, 1, 0xffff].into_iter().enumerate() {
        let source = SocketAddr::new(PEER, port);
        let meta = RxMeta { source, traffic_class: 0xff, hop_limit: 1, ..t.meta() };
        let flow = Flow::new(source, SocketAddr::new(OURS, ROCE_PORT));
        let mut packet = t.packet(line);
        flow.seal(0, &mut packet);
        t.rx_meta(us as u64, &packet, meta);
        t.tx(us as u64, "ACK psn=5 msn=1");
    }
    assert_eq!(t.engine.counters().ecn_marked, 4);
}

/// PKT-14
#[test]
fn receiver_ignores_reserved_bits_fecn_becn_and_migreq() {
    let mut t = Script::responder(rts_qp());
    for (us, (at, bits)) in
        (0..).zip([(1, 0x40), (4, 0x80), (4, 0x40), (4, 0x3f), (4, 0xff), (8, 0x7f)])
    {
        let mut packet = t.packet(WRITE);
        packet[at] ^= bits;
        let packet = t.seal(packet);
        t.rx_bytes(us, &packet);
        t.tx(us, "ACK psn=5 msn=1");
    }
    assert_eq!(t.engine.counters().duplicate_requests, 5, "all were taken");
}

/// PKT-22
#[test]
fn immediate_data_arrives_unchanged() {
    for imm in [0_u32, 1, 0x0102_0304, 0x8000_0000, u32::MAX] {
        let mut t = Script::responder(rts_qp());
        t.post_recv(8);
        let line = format!("SEND_ONLY_IMM psn=5 ackreq imm=0x{imm:08x} len=8");
        let packet = t.packet(&line);
        assert_eq!(packet[12..16], imm.to_be_bytes());
        t.rx(0, &line);
        t.tx(0, "ACK psn=5 msn=1");
        assert_eq!(t.recvs(), [Completion { imm: Some(imm), ..ok(1, WcOpcode::Recv, 8) }]);
        t.post_op(1, SendOp::SendImm { imm }, 8);
        let sent = t.tx(0, &line);
        assert_eq!(sent.bytes[12..16], imm.to_be_bytes());
    }
}

/// PKT-23
#[test]
fn connection_works_over_ipv6() {
    let (ours, peer): (IpAddr, IpAddr) =
        ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let mut t = Script::reset(rts_qp(), |config| config.gids.push(ours.into()));
    t.bring_to(QpState::Init);
    let av = AddressVector { sgid_index: 1, ..AddressVector::to(Gid::from(peer)) };
    t.modify(QpAttr { av: Some(av), ..t.step(QpState::Rtr) }).unwrap();
    t.bring_to(QpState::Rts);
    let mut packet = t.packet(WRITE);
    let port = t.meta().source.port();
    let source = SocketAddr::new(peer, port);
    Flow::new(source, SocketAddr::new(ours, ROCE_PORT)).seal(0, &mut packet);
    let meta = RxMeta { source, destination: ours, ..t.meta() };
    t.rx_meta(0, &packet, meta);
    assert_eq!(bytes(&t.mem, 0, 8), pattern(5, 8));
    let mut burst = Burst::new();
    assert!(t.engine.poll_transmit(Instant::ZERO, &mut burst));
    assert_eq!((burst.path.source, burst.path.destination), (ours, peer));
    // The same packet over IPv4 has another source address.
    let packet = t.packet(WRITE);
    t.rx_bytes(0, &packet);
    assert_eq!(t.dropped(DropReason::WrongAddress), 1);
    t.leave();
}

// ---- hostile packets ----

/// State of a queue pair at the arrival of a hostile packet.
#[derive(Clone, Copy, Debug)]
enum ReceiverState {
    Idle,
    InSend,
    InWrite,
    /// A SEND, a READ and an atomic are outstanding, and the replay cache contains READs and atomics.
    Busy,
}

impl ReceiverState {
    const ALL: [Self; 4] = [Self::Idle, Self::InSend, Self::InWrite, Self::Busy];

    /// Takes a queue pair from RESET to this state.
    fn prepare(self, t: &mut Script) {
        t.modify(QpAttr::to(QpState::Reset)).unwrap();
        t.bring_to(QpState::Rts);
        t.post_recv(600);
        match self {
            Self::Idle => {}
            Self::InSend => t.rx(0, "SEND_FIRST psn=5 len=256"),
            Self::InWrite => {
                t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=600 len=256");
            }
            Self::Busy => {
                t.send(1, 8);
                t.read(2, 600);
                t.fetch_add(3, 1);
                t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=600");
                t.rx(0, "FETCH_ADD psn=8 ackreq va=0x1000 rkey=mem add=0x1");
                t.all(0);
            }
        }
    }

    /// Returns relevant PSNs: expected, duplicate, ahead, outstanding.
    fn psns(self) -> &'static [u32] {
        match self {
            Self::Idle => &[5, 4, 6],
            Self::InSend | Self::InWrite => &[6, 5],
            Self::Busy => &[5, 6, 7, 8, 9, 10],
        }
    }
}

/// Checks after any packet: the engine works, its outputs are valid, and memory outside of the granted access is
/// unchanged.
fn survives(t: &mut Script) {
    let sent = t.all(0);
    assert!(sent.len() < 40, "{} packets", sent.len());
    for completion in t.sends().into_iter().chain(t.recvs()) {
        let _: WcStatus = completion.status;
    }
    t.events();
}

/// Every opcode with every length up to 64 in every state, with a valid ICRC. (Packets with an invalid ICRC are
/// dropped earlier.)
#[test]
fn every_opcode_with_every_length_is_handled() {
    let mut t = Script::responder(rts_qp());
    for standing in ReceiverState::ALL {
        standing.prepare(&mut t);
        for (opcode, psn) in
            Opcode::ALL.iter().flat_map(|o| standing.psns().iter().map(move |psn| (o, psn)))
        {
            for len in 12..=64 {
                let mut packet = vec![0; len];
                packet[..12].copy_from_slice(&t.packet(WRITE)[..12]);
                packet[0] = opcode.byte();
                packet[1] = 0x40 | (len as u8 & 3) << 4;
                packet[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
                let packet = t.seal(packet);
                t.rx_bytes(0, &packet);
                survives(&mut t);
                if t.state() == QpState::Err {
                    standing.prepare(&mut t);
                }
            }
        }
    }
}

/// A source of random bytes.
fn random(seed: u8) -> TestRng {
    TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32])
}

/// Headers with random bits and with extreme values.
#[test]
fn random_headers_change_nothing() {
    let mut t = Script::responder(rts_qp());
    let mut random = random(1);
    let mem = t.mem.rkey();
    let opcodes: Vec<_> = Opcode::ALL.iter().filter(|o| o.byte() < 0x20).collect();
    for round in 0..40_000 {
        if round % 8 == 0 || t.state() == QpState::Err {
            ReceiverState::ALL[random.next_u32() as usize % 4].prepare(&mut t);
        }
        let opcode = opcodes[random.next_u32() as usize % opcodes.len()];
        let len = match random.next_u32() % 4 {
            0 => 256,
            1 => random.next_u32() as usize % 600,
            _ => random.next_u32() as usize % 24,
        };
        let mut packet = vec![0; opcode.header_len() + len + 8];
        random.fill_bytes(&mut packet);
        packet[..12].copy_from_slice(&t.packet(WRITE)[..12]);
        packet[0] = opcode.byte();
        packet[1] = 0x40 | (random.next_u32() as u8 & 0xb0);
        let psn = 3 + random.next_u32() % 9;
        packet[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
        if let Some(at) = opcode.layout().reth {
            let at = usize::from(at);
            let va = [0x1000, 0x10ff8, 0, u64::MAX, u64::MAX - 255, 0xffff_f000];
            packet[at..at + 8].copy_from_slice(&va[random.next_u32() as usize % 6].to_be_bytes());
            packet[at + 8..at + 12].copy_from_slice(&mem.0.to_be_bytes());
            let dmalen = [0, 8, 256, 600, 1 << 31, (1 << 31) + 1, u32::MAX, random.next_u32()];
            let dmalen = dmalen[random.next_u32() as usize % 8];
            packet[at + 12..at + 16].copy_from_slice(&dmalen.to_be_bytes());
        }
        if let Some(at) = opcode.layout().aeth {
            let syndromes = [0x1f, 0, 0x20, 0x2c, 0x60, 0x61, 0x62, 0x63, 0x7f, 0x40, 0x80, 0xff];
            packet[usize::from(at)] = syndromes[random.next_u32() as usize % syndromes.len()];
        }
        let packet = t.seal(packet);
        t.rx_bytes(0, &packet);
        survives(&mut t);
    }
}

/// Random bytes without a valid ICRC.
#[test]
fn random_bytes_are_dropped() {
    let mut t = Script::responder(rts_qp());
    let mut random = random(2);
    for round in 0..20_000_u64 {
        let mut packet = vec![0; random.next_u32() as usize % 128];
        random.fill_bytes(&mut packet);
        if round % 2 == 0 && packet.len() > 12 {
            packet[..12].copy_from_slice(&t.packet(WRITE)[..12]);
            packet[0] = (random.next_u32() % 0x20) as u8;
        }
        t.rx_bytes(0, &packet);
        t.quiet(0);
    }
    let counters = t.engine.counters();
    let drops: u64 = DropReason::ALL.iter().map(|reason| counters.dropped(*reason)).sum();
    assert_eq!((counters.rx_packets, drops), (20_000, 20_000));
    still_taken(&mut t);
}

/// Invalid GRO buffers: segments longer than the buffer, of 0 bytes, of 1 byte.
#[test]
fn malformed_gro_buffers_are_handled() {
    let mut t = Script::responder(rts_qp());
    let packet = t.packet(WRITE);
    let meta = t.meta();
    for segment_len in [0, 1, 15, 16, packet.len() - 1, packet.len(), usize::MAX] {
        for data in [&packet[..], &packet[..1], &[]] {
            let buffer = RxBuffer { data, segment_len, meta };
            t.engine.handle_buffer(Instant::ZERO, buffer);
        }
    }
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(Datagram::parse(&packet).unwrap().payload, &bytes(&t.mem, 0, 8)[..]);
}
