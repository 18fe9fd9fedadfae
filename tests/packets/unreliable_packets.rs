//! Packets that UC and UD queue pairs drop. No packet causes a panic, a response, or an access to memory beyond the
//! granted rights.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::net::{IpAddr, SocketAddr};

use crate::support::script::{OURS, PEER, Script, bytes, rts_qp_of};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use softroce::engine::{QpAttr, QpState, QpType};
use softroce::net::{Ipv4Fields, RxMeta};
use softroce::transport::outputs::DropReason;
use softroce::transport::work::WcStatus;
use softroce::wire::Opcode;

const SERVICES: [QpType; 2] = [QpType::Uc, QpType::Ud];

/// Returns a valid message.
fn good(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Ud => "SEND_ONLY psn=5 qkey=0x00001234 srcqp=0x000012 len=8",
        _ => "SEND_ONLY psn=5 len=8",
    }
}

/// Creates a queue pair with posted receives.
fn waiting(qp_type: QpType) -> Script {
    let mut t = Script::responder(rts_qp_of(qp_type));
    for _ in 0..3 {
        t.post_recv(600);
    }
    t
}

/// Checks that a valid packet is received after all dropped ones.
#[track_caller]
fn still_taken(mut t: Script) {
    assert_eq!((t.recvs(), t.events(), t.state()), (vec![], vec![], QpState::Rts));
    t.rx(0, good(t.link.qp_type));
    t.quiet(0);
    let ends: Vec<_> = t.recvs().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(ends, [(1, WcStatus::Success)]);
}

#[track_caller]
fn dropped(t: &mut Script, packet: &[u8], meta: RxMeta, reason: DropReason) {
    let before = t.dropped(reason);
    t.rx_meta(0, packet, meta);
    t.quiet(0);
    assert_eq!(t.dropped(reason), before + 1, "{reason:?}");
}

/// CRC-08: every bit except those that routers change.
#[test]
fn packet_with_a_wrong_icrc_is_dropped() {
    for qp_type in SERVICES {
        let mut t = waiting(qp_type);
        let packet = t.packet(good(qp_type));
        for bit in (0..packet.len() * 8).filter(|bit| bit / 8 != 4) {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            t.rx_bytes(0, &damaged);
        }
        let counters = t.engine.counters();
        let drops: u64 = DropReason::ALL.iter().map(|reason| counters.dropped(*reason)).sum();
        assert_eq!(drops, (packet.len() as u64 - 1) * 8, "{qp_type}: every one was dropped");
        assert!(t.dropped(DropReason::BadIcrc) > drops / 2);
        still_taken(t);
    }
}

/// CRC-08: a visible identification must match.
#[test]
fn icrc_check_uses_the_known_ip_header_fields() {
    for qp_type in SERVICES {
        let mut t = waiting(qp_type);
        let packet = t.packet(good(qp_type));
        for (id, dont_fragment) in [(1, true), (0, false), (0xffff, true)] {
            let ipv4 = Some(Ipv4Fields { id, dont_fragment });
            let meta = RxMeta { ipv4, ..t.meta() };
            dropped(&mut t, &packet, meta, DropReason::BadIcrc);
        }
        still_taken(t);
    }
}

/// PKT-12
#[test]
fn packet_of_another_partition_is_dropped() {
    for qp_type in SERVICES {
        let mut t = waiting(qp_type);
        for pkey in ["0x0000", "0x8000", "0x7ffe", "0xfffe"] {
            let line = good(qp_type).replace("psn=5", &format!("psn=5 pkey={pkey}"));
            let (packet, meta) = (t.packet(&line), t.meta());
            dropped(&mut t, &packet, meta, DropReason::PKeyMismatch);
        }
        still_taken(t);
    }
}

/// PKT-13: UC only; UD receives messages from any address (`tests/packets/ud.rs`).
#[test]
fn uc_packet_from_or_to_another_address_is_dropped() {
    let mut t = waiting(QpType::Uc);
    let stranger: IpAddr = "10.0.0.3".parse().unwrap();
    let port = t.meta().source.port();
    for (from, to) in [(stranger, OURS), (PEER, stranger), (OURS, PEER)] {
        let packet = t.packet(good(QpType::Uc));
        let meta = RxMeta { source: SocketAddr::new(from, port), destination: to, ..t.meta() };
        dropped(&mut t, &packet, meta, DropReason::WrongAddress);
    }
    still_taken(t);
}

/// PKT-14
#[test]
fn ignored_bits_have_no_effect() {
    for qp_type in SERVICES {
        let mut t = waiting(qp_type);
        // MigReq, FECN, BECN, reserved, AckReq and reserved.
        for (psn, (at, bits)) in (5..).zip([(1, 0x40), (4, 0xff), (8, 0xff)]) {
            let mut packet = t.packet(&good(qp_type).replace("psn=5", &format!("psn={psn}")));
            packet[at] ^= bits;
            let packet = t.seal(packet);
            t.rx_bytes(0, &packet);
            t.quiet(0);
        }
        assert_eq!(t.recvs().len(), 3, "{qp_type}");
    }
}

/// Random headers with a valid ICRC, in any position of a message.
#[test]
fn random_headers_change_nothing() {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[4; 32]);
    for qp_type in SERVICES {
        let mut t = waiting(qp_type);
        let secret = t.region(4096, 0x5000_0000, softroce::mem::Access::LOCAL_WRITE);
        let transport = if qp_type == QpType::Uc { 0x20 } else { 0x60 };
        let opcodes: Vec<_> =
            Opcode::ALL.iter().filter(|opcode| opcode.byte() & 0xe0 == transport).collect();
        for round in 0..20_000 {
            if round % 16 == 0 {
                t.modify(QpAttr::to(QpState::Reset)).unwrap();
                t.bring_to(QpState::Rts);
                for len in [600, 40, 0] {
                    t.post_recv(len);
                }
            }
            let opcode = opcodes[random.next_u32() as usize % opcodes.len()];
            let len = [256, 256, 8, random.next_u32() as usize % 600][round % 4];
            let mut packet = vec![0; opcode.header_len() + len + 4];
            random.fill_bytes(&mut packet);
            packet[..12].copy_from_slice(&t.packet(good(qp_type))[..12]);
            packet[0] = opcode.byte();
            packet[1] = 0x40 | [0x00, 0x80, 0x10, 0x30][random.next_u32() as usize % 4];
            packet[9..12].copy_from_slice(&(3 + random.next_u32() % 9).to_be_bytes()[1..]);
            if let Some(at) = opcode.layout().reth {
                let at = usize::from(at);
                let va = [0x1000, 0x10ff8, 0, u64::MAX, u64::MAX - 255, 0x5000_0000];
                packet[at..at + 8]
                    .copy_from_slice(&va[random.next_u32() as usize % 6].to_be_bytes());
                let rkey = [t.mem.rkey(), secret.rkey()][random.next_u32() as usize % 2];
                packet[at + 8..at + 12].copy_from_slice(&rkey.0.to_be_bytes());
                let dmalen = [0, 8, 256, 600, 1 << 31, u32::MAX][random.next_u32() as usize % 6];
                packet[at + 12..at + 16].copy_from_slice(&dmalen.to_be_bytes());
            }
            if let Some(at) = opcode.layout().deth
                && round % 2 == 0
            {
                let at = usize::from(at);
                packet[at..at + 4].copy_from_slice(&0x1234_u32.to_be_bytes());
            }
            let packet = t.seal(packet);
            t.rx_bytes(0, &packet);
            t.quiet(0);
            assert_eq!((t.events(), t.state()), (vec![], QpState::Rts));
            t.recvs();
        }
        assert_eq!(bytes(&secret, 0, 4096), [0; 4096]);
        assert!(qp_type == QpType::Ud || bytes(&t.mem, 0, 256) != [0; 256], "some were taken");
    }
}
