//! The UC receiver, packet by packet: a message arrives complete or not at all, without a response.
//!
//! It expects PSN 5 first, the path MTU is 256, and `va=0x1000 rkey=mem` is 64 KiB that the peer may write.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{Script, bytes, failed, ok, rts_qp_of};
use crate::support::{Link, full_access, pattern, sge};
use softroce::engine::{QpAttr, QpState, QpType};
use softroce::mem::Access;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{Completion, Sge, WcOpcode, WcStatus};
use softroce::wire::Opcode;

const RECV: WcOpcode = WcOpcode::Recv;

fn uc() -> Link {
    rts_qp_of(QpType::Uc)
}

/// Checks that a message of one packet takes the oldest receive, `wr_id`.
#[track_caller]
fn takes(t: &mut Script, psn: u32, wr_id: u64) {
    t.rx(0, &format!("SEND_ONLY psn={psn} len=8"));
    assert_eq!(t.recvs(), [ok(wr_id, RECV, 8)]);
    assert_eq!(t.received(wr_id, 8), pattern(psn.into(), 8));
}

// ---- messages ----

/// PKT-19: payloads of consecutive packets.
#[test]
fn message_completes_with_its_last_packet() {
    let mut t = Script::responder(uc());
    t.post_recv(600);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_MIDDLE psn=6 len=256");
    assert_eq!(t.recvs(), []);
    t.rx(0, "SEND_LAST psn=7 len=88");
    assert_eq!(t.recvs(), [ok(1, RECV, 600)]);
    let expected = [pattern(5, 256), pattern(6, 256), pattern(7, 88)].concat();
    assert_eq!(t.received(1, 600), expected);
}

#[test]
fn last_packet_carries_immediate_data_and_solicited_bit() {
    let mut t = Script::responder(uc());
    let told = |wr_id, len| Completion { imm: Some(0x0102_0304), ..ok(wr_id, RECV, len) };
    for wr_id in 1..=2 {
        assert_eq!(t.post_recv(600), wr_id);
    }
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_LAST_IMM psn=6 solicited imm=0x01020304 len=3");
    t.rx(0, "SEND_ONLY_IMM psn=7 imm=0x01020304 len=0");
    assert_eq!(t.recvs(), [Completion { solicited: true, ..told(1, 259) }, told(2, 0)]);
}

#[test]
fn write_needs_no_receive_and_raises_no_completion() {
    let mut t = Script::responder(uc());
    t.rx(0, "WRITE_FIRST psn=5 va=0x1001 rkey=mem dmalen=600 len=256");
    t.rx(0, "WRITE_MIDDLE psn=6 len=256");
    t.rx(0, "WRITE_LAST psn=7 len=88");
    t.rx(0, "WRITE_ONLY psn=8 va=0x2000 rkey=mem dmalen=5 len=5");
    let expected = [vec![0], pattern(5, 256), pattern(6, 256), pattern(7, 88), vec![0]].concat();
    assert_eq!(bytes(&t.mem, 0, 602), expected);
    assert_eq!(bytes(&t.mem, 0x1000, 6), [pattern(8, 5), vec![0]].concat());
}

#[test]
fn write_with_immediate_takes_a_receive_at_its_end_and_writes_nothing_to_it() {
    let mut t = Script::responder(uc());
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=300 len=256");
    t.post_recv(600);
    t.rx(0, "WRITE_LAST_IMM psn=6 solicited imm=0x00000007 len=44");
    let told = Completion { imm: Some(7), ..ok(1, WcOpcode::RecvRdmaWithImm, 300) };
    assert_eq!(t.recvs(), [Completion { solicited: true, ..told }]);
    assert_eq!(t.received(1, 600), [0; 600]);
}

/// RSP-27: the key and address of an empty WRITE are not checked.
#[test]
fn empty_messages_arrive() {
    let mut t = Script::responder(uc());
    t.post_recv(0);
    t.post_recv(0);
    t.rx(0, "SEND_ONLY psn=5 len=0");
    t.rx(0, "WRITE_ONLY psn=6 va=0xdead rkey=0xdeadbeef dmalen=0 len=0");
    t.rx(0, "WRITE_ONLY_IMM psn=7 va=0xdead rkey=0xdeadbeef dmalen=0 imm=0x00000001 len=0");
    let notice = Completion { imm: Some(1), ..ok(2, WcOpcode::RecvRdmaWithImm, 0) };
    assert_eq!(t.recvs(), [ok(1, RECV, 0), notice]);
    assert_eq!(t.dropped(DropReason::Refused), 0);
}

/// REQ-02: at the receiver.
#[test]
fn psn_wraps_within_a_message() {
    let mut t = Script::responder(Link { psn: [5, 0xff_fffe], ..uc() });
    t.post_recv(600);
    t.post_recv(600);
    t.rx(0, "SEND_FIRST psn=16777214 len=256");
    t.rx(0, "SEND_MIDDLE psn=16777215 len=256");
    t.rx(0, "SEND_LAST psn=0 len=8");
    assert_eq!(t.recvs(), [ok(1, RECV, 520)]);
    takes(&mut t, 1, 2);
    assert_eq!(t.engine.counters().out_of_sequence, 0);
}

#[test]
fn merged_packets_are_processed_one_by_one() {
    let mut t = Script::responder(uc());
    t.post_recv(600);
    t.post_recv(600);
    t.rx_merged(0, &["SEND_FIRST psn=5 len=256", "SEND_LAST psn=6 len=256"]);
    t.rx_merged(
        0,
        &["SEND_FIRST psn=7 len=256", "SEND_MIDDLE psn=8 len=256", "SEND_LAST psn=9 len=1"],
    );
    assert_eq!(t.recvs(), [ok(1, RECV, 512), ok(2, RECV, 513)]);
}

// ---- no responses ----

/// UC-01: not even with AckReq set, unlike kernel rxe until 2024.
#[test]
fn receiver_sends_no_response() {
    let mut t = Script::responder(uc());
    t.post_recv(600);
    t.post_recv(600);
    for line in [
        "SEND_ONLY psn=5 ackreq len=8",
        "SEND_ONLY psn=5 ackreq len=8",
        "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
        "WRITE_ONLY psn=9 ackreq va=0x1000 rkey=0xdeadbeef dmalen=8 len=8",
        "SEND_MIDDLE psn=10 ackreq len=256",
        "SEND_ONLY psn=11 ackreq len=8",
        "SEND_ONLY psn=12 ackreq len=8",
    ] {
        t.rx(0, line);
        t.quiet(0);
    }
    t.quiet(10_000_000);
    assert_eq!(t.engine.counters().tx_packets, 0);
    assert_eq!(t.recvs(), [ok(1, RECV, 8), ok(2, RECV, 8)]);
}

// ---- gaps ----

/// UC-02, UC-04
#[test]
fn psn_gap_drops_the_rest_of_the_message_and_frees_its_receive() {
    let mut t = Script::responder(uc());
    t.post_recv(1100);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_MIDDLE psn=7 len=256");
    t.rx(0, "SEND_MIDDLE psn=8 len=256");
    t.rx(0, "SEND_LAST psn=9 len=8");
    assert_eq!((t.recvs(), t.dropped(DropReason::OutOfSequence)), (vec![], 3));
    assert_eq!(t.engine.counters().out_of_sequence, 1);
    takes(&mut t, 10, 1);
}

/// UC-02: the LAST is missing, and the next message starts.
#[test]
fn message_without_last_packet_is_replaced_by_the_next() {
    for next in ["SEND_ONLY psn=8 len=8", "SEND_ONLY psn=7 len=8"] {
        let mut t = Script::responder(uc());
        t.post_recv(600);
        t.rx(0, "SEND_FIRST psn=5 len=256");
        t.rx(0, "SEND_MIDDLE psn=6 len=256");
        t.rx(0, next);
        assert_eq!(t.recvs(), [ok(1, RECV, 8)], "{next}");
    }
}

/// UC-02: the end of one message and the start of the next are missing. The remaining packets match except for their
/// PSNs.
#[test]
fn parts_of_two_messages_are_not_combined() {
    let mut t = Script::responder(uc());
    t.post_recv(1100);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    // 6 was the LAST of the message before, 7 the FIRST of this one.
    t.rx(0, "SEND_LAST psn=8 len=256");
    t.rx(0, "WRITE_FIRST psn=9 va=0x1000 rkey=mem dmalen=512 len=256");
    t.rx(0, "WRITE_LAST_IMM psn=12 imm=0x00000001 len=256");
    assert_eq!((t.recvs(), t.dropped(DropReason::OutOfSequence)), (vec![], 2));
    takes(&mut t, 13, 1);
}

/// UC-03: ahead, behind, and across the wrap of the PSN.
#[test]
fn first_packet_with_an_unexpected_psn_starts_a_message() {
    let mut t = Script::responder(uc());
    for (wr_id, psn) in (1..).zip([6_u32, 3, 0xff_fff0, 8_388_600, 8_388_700, 4]) {
        t.post_recv(600);
        t.post_recv(600);
        takes(&mut t, psn, 2 * wr_id - 1);
        t.rx(0, &format!("SEND_FIRST psn={} len=256", (psn + 10) & 0xff_ffff));
        t.rx(0, &format!("SEND_LAST psn={} len=8", (psn + 11) & 0xff_ffff));
        assert_eq!(t.recvs(), [ok(2 * wr_id, RECV, 264)], "from {psn}");
    }
}

/// UC-04
#[test]
fn packets_without_a_first_are_dropped() {
    let mut t = Script::responder(uc());
    t.post_recv(600);
    for (psn, line) in [
        (5, "SEND_MIDDLE psn=5 len=256"),
        (6, "SEND_LAST psn=6 len=8"),
        (7, "SEND_LAST_IMM psn=7 imm=0x00000001 len=8"),
        (8, "WRITE_MIDDLE psn=8 len=256"),
        (9, "WRITE_LAST psn=9 len=8"),
        (10, "WRITE_LAST_IMM psn=10 imm=0x00000001 len=8"),
    ] {
        t.rx(0, line);
        assert_eq!(t.dropped(DropReason::OutOfSequence), psn - 4, "{line}");
    }
    takes(&mut t, 11, 1);
}

// ---- duplicates ----

/// The network may duplicate a packet, which is not a new message.
#[test]
fn duplicate_message_is_dropped() {
    let mut t = Script::responder(uc());
    t.post_recv(64);
    t.post_recv(64);
    takes(&mut t, 5, 1);
    t.rx(0, "SEND_ONLY psn=5 len=8");
    assert_eq!((t.recvs(), t.dropped(DropReason::StaleDuplicate)), (vec![], 1));
    takes(&mut t, 6, 2);
    t.rx(0, "SEND_ONLY psn=5 len=8");
    assert_eq!(t.dropped(DropReason::StaleDuplicate), 2);
    assert_eq!(t.engine.counters().out_of_sequence, 0);
}

/// A duplicate does not end its message or the next one.
#[test]
fn duplicate_packet_does_not_affect_a_message() {
    let mut t = Script::responder(uc());
    t.post_recv(600);
    t.post_recv(600);
    for psn in [5, 8] {
        t.rx(0, &format!("SEND_FIRST psn={psn} len=256"));
        t.rx(0, &format!("SEND_FIRST psn={psn} len=256"));
        t.rx(0, "SEND_FIRST psn=5 len=256");
        t.rx(0, &format!("SEND_MIDDLE psn={} len=256", psn + 1));
        t.rx(0, &format!("SEND_MIDDLE psn={} len=256", psn + 1));
        t.rx(0, &format!("SEND_LAST psn={} len=8", psn + 2));
        t.rx(0, &format!("SEND_LAST psn={} len=8", psn + 2));
    }
    assert_eq!(t.recvs(), [ok(1, RECV, 520), ok(2, RECV, 520)]);
    assert_eq!(t.dropped(DropReason::StaleDuplicate), 8);
}

/// UC-03: a reordered message is late, not a duplicate.
#[test]
fn reordered_message_is_received_once() {
    let mut t = Script::responder(uc());
    for wr_id in 1..=4 {
        assert_eq!(t.post_recv(64), wr_id);
    }
    takes(&mut t, 5, 1);
    takes(&mut t, 7, 2);
    takes(&mut t, 6, 3);
    t.rx(0, "SEND_ONLY psn=6 len=8");
    t.rx(0, "SEND_ONLY psn=7 len=8");
    assert_eq!(t.dropped(DropReason::StaleDuplicate), 2);
    takes(&mut t, 8, 4);
}

/// UC-02: a reordered packet arrives too late for its message.
#[test]
fn message_with_reordered_packets_is_dropped() {
    let mut t = Script::responder(uc());
    t.post_recv(600);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_LAST psn=7 len=8");
    t.rx(0, "SEND_MIDDLE psn=6 len=256");
    t.rx(0, "SEND_LAST psn=7 len=8");
    assert_eq!(t.recvs(), []);
    takes(&mut t, 8, 1);
}

// ---- failures ----

/// UC-05
#[test]
fn message_without_a_receive_is_dropped_and_the_next_received() {
    let mut t = Script::responder(uc());
    t.rx(0, "SEND_ONLY psn=5 len=8");
    t.rx(0, "SEND_FIRST psn=6 len=256");
    t.post_recv(600);
    t.rx(0, "SEND_MIDDLE psn=7 len=256");
    t.rx(0, "SEND_LAST psn=8 len=8");
    assert_eq!((t.recvs(), t.dropped(DropReason::NoReceive)), (vec![], 2));
    assert_eq!(t.dropped(DropReason::OutOfSequence), 2);
    takes(&mut t, 9, 1);
    assert_eq!(t.state(), QpState::Rts);
}

/// UC-05: a WRITE with immediate data needs a receive at its end.
#[test]
fn write_with_immediate_without_a_receive_is_dropped() {
    let mut t = Script::responder(uc());
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=300 len=256");
    t.rx(0, "WRITE_LAST_IMM psn=6 imm=0x00000001 len=44");
    t.post_recv(64);
    assert_eq!((t.recvs(), t.dropped(DropReason::NoReceive)), (vec![], 1));
    takes(&mut t, 7, 1);
}

/// UC-06
#[test]
fn write_that_the_queue_pair_does_not_permit_is_dropped_silently() {
    let access = full_access().difference(Access::REMOTE_WRITE);
    let mut t = Script::responder(Link { access, ..uc() });
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    assert_eq!((t.dropped(DropReason::Refused), t.state()), (1, QpState::Rts));
    assert_eq!(bytes(&t.mem, 0, 8), [0; 8]);
}

/// UC-06: unknown key, key of another domain, out of bounds, missing rights; neither side receives an error.
#[test]
fn forbidden_write_is_dropped_silently() {
    let mut t = Script::responder(uc());
    let readable = t.region(4096, 0x9_0000, Access::LOCAL_WRITE | Access::REMOTE_READ);
    let gone = t.region(4096, 0xa_0000, full_access());
    let gone_key = gone.rkey();
    t.memory.deregister(&gone);
    let mut psn = 5;
    for target in [
        "va=0x1000 rkey=0xdeadbeef".to_owned(),
        format!("va=0x1000 rkey=0x{:08x}", t.mem.rkey().0 ^ 1),
        "va=0xff8 rkey=mem".to_owned(),
        "va=0x10ff9 rkey=mem".to_owned(),
        "va=0xfffffffffffffffc rkey=mem".to_owned(),
        format!("va=0x90000 rkey={}", readable.rkey()),
        format!("va=0xa0000 rkey={gone_key}"),
    ] {
        t.rx(0, &format!("WRITE_ONLY psn={psn} {target} dmalen=8 len=8"));
        assert_eq!(t.dropped(DropReason::Refused), u64::from(psn - 4), "{target}");
        psn += 1;
    }
    assert_eq!((t.events(), t.recvs(), t.state()), (vec![], vec![], QpState::Rts));
    assert_eq!(bytes(&t.mem, 0, 64 << 10), vec![0; 64 << 10]);
    t.post_recv(64);
    takes(&mut t, psn, 1);
}

/// UC-06: the first packet of a long WRITE is refused, so the others have no first packet.
#[test]
fn rest_of_a_refused_write_is_dropped() {
    let mut t = Script::responder(Link { access: Access::REMOTE_READ, ..uc() });
    t.post_recv(64);
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=600 len=256");
    t.rx(0, "WRITE_MIDDLE psn=6 len=256");
    t.rx(0, "WRITE_LAST_IMM psn=7 imm=0x00000001 len=88");
    assert_eq!(t.dropped(DropReason::Refused), 1, "the queue pair allows no WRITE");
    assert_eq!(t.dropped(DropReason::OutOfSequence), 2);
    assert_eq!(bytes(&t.mem, 0, 600), [0; 600]);
    takes(&mut t, 8, 1);
}

/// UC-06: the region is deregistered during a WRITE.
#[test]
fn write_into_deregistered_memory_ends() {
    let mut t = Script::responder(uc());
    let region = t.region(4096, 0x9_0000, full_access());
    let write = format!("WRITE_FIRST psn=5 va=0x90000 rkey={} dmalen=600 len=256", region.rkey());
    t.rx(0, &write);
    t.memory.deregister(&region);
    t.post_recv(64);
    t.rx(0, "WRITE_MIDDLE psn=6 len=256");
    t.rx(0, "WRITE_LAST_IMM psn=7 imm=0x00000001 len=88");
    assert_eq!((t.recvs(), t.dropped(DropReason::Refused)), (vec![], 1));
    takes(&mut t, 8, 1);
}

/// §4.6: lengths that contradict position, path MTU or RETH. Each packet is dropped with its message, and the next
/// message is received.
#[test]
fn message_with_a_wrong_length_is_dropped() {
    let cases: &[&[&str]] = &[
        &["SEND_FIRST psn=5 len=255"],
        &["SEND_FIRST psn=5 len=257"],
        &["SEND_ONLY psn=5 len=257"],
        &["SEND_FIRST psn=5 len=256", "SEND_MIDDLE psn=6 len=255"],
        &["SEND_FIRST psn=5 len=256", "SEND_LAST psn=6 len=0"],
        &["SEND_FIRST psn=5 len=256", "SEND_LAST psn=6 len=257"],
        &["WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=600 len=8"],
        &["WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=256 len=256"],
        &["WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=9 len=8"],
        &["WRITE_ONLY_IMM psn=5 va=0x1000 rkey=mem dmalen=7 imm=0x00000001 len=8"],
        &["WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=0 len=8"],
        &["WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=0"],
        &["WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=2147483649 len=8"],
        &["WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=300 len=256", "WRITE_LAST psn=6 len=45"],
        &[
            "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=300 len=256",
            "WRITE_LAST_IMM psn=6 imm=0x00000001 len=43",
        ],
        &["WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=300 len=256", "WRITE_MIDDLE psn=6 len=256"],
    ];
    for case in cases {
        let mut t = Script::responder(uc());
        t.post_recv(600);
        case.iter().for_each(|line| t.rx(0, line));
        assert_eq!((t.recvs(), t.dropped(DropReason::Refused)), (vec![], 1), "{case:?}");
        takes(&mut t, 4 + case.len() as u32 + 1, 1);
        assert_eq!(t.state(), QpState::Rts, "{case:?}");
    }
}

/// The receive is too short, and stays posted for a message that fits.
#[test]
fn message_longer_than_its_receive_is_dropped() {
    let mut t = Script::responder(uc());
    t.post_recv(300);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_LAST psn=6 len=45");
    assert_eq!((t.recvs(), t.dropped(DropReason::Refused)), (vec![], 1));
    t.rx(0, "SEND_FIRST psn=7 len=256");
    t.rx(0, "SEND_LAST psn=8 len=44");
    assert_eq!(t.recvs(), [ok(1, RECV, 300)]);
}

/// §4.6: only the next packet of the message may follow.
#[test]
fn packet_of_another_message_ends_the_one_in_progress() {
    for (line, drops) in [
        ("WRITE_MIDDLE psn=6 len=256", 1),
        ("WRITE_LAST psn=6 len=8", 1),
        ("WRITE_LAST_IMM psn=6 imm=0x00000001 len=8", 1),
        ("WRITE_ONLY psn=6 va=0x1000 rkey=mem dmalen=8 len=8", 0),
    ] {
        let mut t = Script::responder(uc());
        t.post_recv(600);
        t.rx(0, "SEND_FIRST psn=5 len=256");
        t.rx(0, line);
        assert_eq!(t.dropped(DropReason::OutOfSequence), drops, "{line}");
        t.rx(0, "SEND_LAST psn=7 len=8");
        assert_eq!((t.recvs(), t.dropped(DropReason::OutOfSequence)), (vec![], drops + 1));
        takes(&mut t, 8, 1);
    }
    let mut t = Script::responder(uc());
    t.post_recv(600);
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=300 len=256");
    t.rx(0, "SEND_LAST psn=6 len=8");
    t.rx(0, "WRITE_LAST_IMM psn=7 imm=0x00000001 len=44");
    assert_eq!((t.recvs(), t.dropped(DropReason::OutOfSequence)), (vec![], 2));
    takes(&mut t, 8, 1);
}

/// Unassigned opcodes, and opcodes of other transports.
#[test]
fn opcode_of_another_transport_is_dropped() {
    let mut t = Script::responder(uc());
    t.post_recv(64);
    let good = t.packet("SEND_ONLY psn=5 len=8");
    for byte in 0..=255_u8 {
        let opcode = Opcode::from_byte(byte);
        if (0x20..=0x2b).contains(&byte) || opcode == Some(Opcode::Cnp) {
            continue;
        }
        let reason = match opcode {
            None => DropReason::UnassignedOpcode,
            Some(_) => DropReason::WrongTransport,
        };
        let mut packet = good.clone();
        // Long enough for every header.
        packet.extend([0; 64]);
        packet[0] = byte;
        let before = t.dropped(reason);
        let packet = t.seal(packet);
        t.rx_bytes(0, &packet);
        t.quiet(0);
        assert_eq!(t.dropped(reason), before + 1, "{byte:#04x}");
    }
    takes(&mut t, 5, 1);
}

/// A CNP is not part of the sequence.
#[test]
fn cnp_is_counted_and_changes_nothing() {
    let mut t = Script::responder(uc());
    t.post_recv(600);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "CNP psn=0 becn");
    t.quiet(0);
    assert_eq!(t.engine.counters().cnps_received, 1);
    t.rx(0, "SEND_LAST psn=6 len=8");
    assert_eq!(t.recvs(), [ok(1, RECV, 264)]);
}

// ---- local memory ----

/// A receive without write access would discard every message, so the queue pair fails and flushes all requests.
#[test]
fn receive_with_invalid_memory_fails_the_queue_pair() {
    let mut t = Script::responder(uc());
    let area = t.region(600, 0x9_0000, Access::LOCAL_WRITE);
    for lkey in [Sge::default().lkey, area.lkey()] {
        t.post_recv_sges(&[Sge { lkey, ..sge(&area, 0, 600) }]).unwrap();
    }
    t.rx(0, "SEND_FIRST psn=5 len=256");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocProtErr), failed(2, WcStatus::WrFlushErr)]);
    assert_eq!((t.events(), t.state()), (vec![], QpState::Err));
    t.quiet(1000);
}

/// The memory is deregistered during a message.
#[test]
fn receive_with_deregistered_memory_fails_the_queue_pair() {
    let mut t = Script::responder(uc());
    let area = t.region(600, 0x9_0000, Access::LOCAL_WRITE);
    t.post_recv_sges(&[sge(&area, 0, 600)]).unwrap();
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.memory.deregister(&area);
    t.rx(0, "SEND_MIDDLE psn=6 len=256");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(t.state(), QpState::Err);
}

/// QPS-04: the message in progress has taken the oldest receive.
#[test]
fn err_flushes_the_receive_of_the_message_in_progress_first() {
    let mut t = Script::responder(uc());
    t.post_recv(600);
    t.post_recv(600);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(t.recvs(), [1, 2].map(|wr_id| failed(wr_id, WcStatus::WrFlushErr)));
    t.rx(0, "SEND_LAST psn=6 len=8");
    assert_eq!(t.dropped(DropReason::QpState), 1);
}

/// The depth of a receive queue includes the request of the message in progress.
#[test]
fn abandoned_messages_occupy_no_receive() {
    let mut link = uc();
    link.cap.max_recv_wr = 2;
    let mut t = Script::responder(link);
    t.post_recv(600);
    t.post_recv(600);
    for psn in 0..1000 {
        // Every second packet is missing.
        t.rx(0, &format!("SEND_FIRST psn={} len=256", 5 + 2 * psn));
        assert!(t.post_recv_sges(&[]).is_err(), "it is full");
    }
    takes(&mut t, 2005, 1);
    takes(&mut t, 2006, 2);
    assert_eq!(t.post_recv(600), 3);
    takes(&mut t, 2007, 3);
}
