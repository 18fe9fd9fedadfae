//! The RC responder, packet by packet.
//!
//! The first expected PSN is 5, the path MTU is 256, four READs or atomics may be outstanding, and `va=0x1000
//! rkey=mem` is 64 KiB that the peer may write, read and change by atomics.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{Script, burst_lengths, bytes, failed, ok, rts_qp};
use crate::support::{Link, full_access, pattern, sge};
use softroce::engine::QpState;
use softroce::ids::Mtu;
use softroce::mem::Access;
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{Completion, Sge, WcOpcode, WcStatus};

// ---- sequence ----

/// RSP-01
#[test]
fn request_packet_advances_epsn_by_one_and_read_by_its_responses() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "ACK psn=5 msn=1");
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=600");
    t.tx(0, "READ_RESPONSE_FIRST psn=6 msn=2 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.tx(0, "READ_RESPONSE_LAST psn=8 msn=2 len=88");
    t.rx(0, "SEND_ONLY psn=9 ackreq len=1");
    t.tx(0, "ACK psn=9 msn=3");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 1)]);
}

/// The requester processes the first half while this side builds the second one. FIRST and LAST have an AETH, so a burst ends
/// after the shorter packet behind the one and before the other.
#[test]
fn long_read_response_that_is_sent_alone_begins_with_short_bursts() {
    let link = Link { mtu: Mtu::Mtu4096, ..rts_qp() };
    for (len, expected) in [(48 << 10, &[2, 8, 1, 1][..]), ((48 << 10) - 1, &[2, 9, 1])] {
        let mut t = Script::responder(link);
        t.rx(0, &format!("READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen={len}"));
        assert_eq!(burst_lengths(&t.all(0)), expected, "{len} bytes");
        t.leave();
    }
    let mut t = Script::responder(link);
    t.rx_merged(
        0,
        &[
            "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=61440",
            "READ_REQUEST psn=20 ackreq va=0x1000 rkey=mem dmalen=8",
        ],
    );
    assert_eq!(burst_lengths(&t.all(0)), [2, 12, 2], "other responses follow");
    t.leave();
}

#[test]
fn only_a_single_ack_may_be_delayed() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    assert_eq!(t.engine.owes_only_acknowledgement(), Some(t.qpn));
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.engine.owes_only_acknowledgement(), None);
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=8");
    assert_eq!(t.engine.owes_only_acknowledgement(), None);
    t.tx(0, "READ_RESPONSE_ONLY psn=6 msn=2 len=8");
    t.rx(0, "WRITE_ONLY psn=8 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    assert_eq!(t.engine.owes_only_acknowledgement(), None);
    t.tx(0, "NAK_PSN psn=7 msn=2");
}

/// RSP-01, REQ-02, at the responder.
#[test]
fn psn_wraps_within_a_message_and_a_read() {
    let mut t = Script::responder(Link { psn: [5, 0xff_fffe], ..rts_qp() });
    t.post_recv(1024);
    t.rx(0, "SEND_FIRST psn=16777214 len=256");
    t.rx(0, "SEND_MIDDLE psn=16777215 len=256");
    t.rx(0, "SEND_LAST psn=0 ackreq len=8");
    t.tx(0, "ACK psn=0 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 520)]);

    let mut t = Script::responder(Link { psn: [5, 0xff_ffff], ..rts_qp() });
    t.rx(0, "READ_REQUEST psn=16777215 ackreq va=0x1000 rkey=mem dmalen=512");
    t.tx(0, "READ_RESPONSE_FIRST psn=16777215 msn=1 len=256");
    t.tx(0, "READ_RESPONSE_LAST psn=0 msn=1 len=256");
    t.rx(0, "WRITE_ONLY psn=1 ackreq va=0x1000 rkey=mem dmalen=0 len=0");
    t.tx(0, "ACK psn=1 msn=2");
}

/// RSP-02
#[test]
fn psn_gap_sends_one_nak() {
    let mut t = Script::dropping(rts_qp());
    t.rx(0, "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "NAK_PSN psn=5 msn=0");
    t.rx(1, "WRITE_ONLY psn=7 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(1, "READ_REQUEST psn=8 ackreq va=0x1000 rkey=mem dmalen=8");
    t.quiet(5_000_000);
    assert_eq!(t.dropped(DropReason::OutOfSequence), 2);
    assert_eq!(bytes(&t.mem, 0, 8), [0; 8], "nothing was executed");
    t.rx(5_000_000, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(5_000_000, "ACK psn=5 msn=1");
    t.rx(5_000_001, "WRITE_ONLY psn=7 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(5_000_001, "NAK_PSN psn=6 msn=1");
}

/// Packets that are dropped anyway cost no ICRC check; the packet that closes the gap is checked.
#[test]
fn icrc_of_packets_behind_a_gap_is_not_checked() {
    let mut t = Script::dropping(rts_qp());
    t.rx(0, "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "NAK_PSN psn=5 msn=0");
    for psn in [7, 6, 5] {
        let line = format!("WRITE_ONLY psn={psn} ackreq va=0x1000 rkey=mem dmalen=8 len=8");
        let mut packet = t.packet(&line);
        *packet.last_mut().unwrap() ^= 0x10;
        t.rx_bytes(1, &packet);
    }
    t.quiet(1000);
    assert_eq!([DropReason::OutOfSequence, DropReason::BadIcrc].map(|why| t.dropped(why)), [2, 1]);
    assert_eq!(bytes(&t.mem, 0, 8), [0; 8]);
}

/// RSP-02
#[test]
fn gap_closed_before_its_nak_sends_none() {
    let mut t = Script::dropping(rts_qp());
    t.rx(0, "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "ACK psn=5 msn=1");
    t.rx(0, "WRITE_ONLY psn=6 va=0x1000 rkey=mem dmalen=8 len=8");
    t.quiet(100);
}

/// RSP-02: the NAK acknowledges the packets before it.
#[test]
fn nak_replaces_a_pending_ack() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_ONLY psn=7 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "NAK_PSN psn=6 msn=1");
}

/// RSP-03
#[test]
fn psns_of_half_the_circle_are_duplicates_and_the_others_ahead() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    // 6 is expected.
    t.rx(1, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(1, "ACK psn=5 msn=1");
    t.rx(2, "WRITE_ONLY psn=8388614 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(2, "ACK psn=5 msn=1");
    t.rx(3, "WRITE_ONLY psn=8388613 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(3, "NAK_PSN psn=6 msn=1");
}

// ---- acknowledgements ----

/// RSP-11, RSP-12, RSP-13
#[test]
fn first_message_is_acknowledged_with_msn_1_and_unlimited_credits() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=64");
    let ack = t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(ack.bytes[12], 0x1f, "syndrome");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 64)]);
}

/// RSP-11
#[test]
fn packet_without_ackreq_receives_no_ack() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_FIRST psn=6 va=0x1000 rkey=mem dmalen=512 len=256");
    t.quiet(100_000);
    t.rx(100_000, "WRITE_LAST psn=7 ackreq len=256");
    t.tx(100_000, "ACK psn=7 msn=2");
}

/// RSP-11, RSP-12, RSP-14: AckReq on a FIRST requests an acknowledgement of the packet.
#[test]
fn middle_packet_is_acknowledged_without_its_message() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_FIRST psn=5 ackreq va=0x1000 rkey=mem dmalen=600 len=256");
    t.tx(0, "ACK psn=5 msn=0");
    t.rx(1, "WRITE_MIDDLE psn=6 ackreq len=256");
    t.tx(1, "ACK psn=6 msn=0");
    t.rx(2, "WRITE_LAST psn=7 ackreq len=88");
    t.tx(2, "ACK psn=7 msn=1");
}

/// RSP-12
#[test]
fn one_ack_answers_all_packets_of_a_buffer() {
    let mut t = Script::responder(rts_qp());
    for psn in 5..9 {
        t.rx(0, &format!("WRITE_ONLY psn={psn} ackreq va=0x1000 rkey=mem dmalen=8 len=8"));
    }
    t.tx(0, "ACK psn=8 msn=4");
}

/// RSP-11, RSP-12
#[test]
fn pending_ack_is_sent_despite_later_packets() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_ONLY psn=6 va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "ACK psn=6 msn=2");
}

/// RSP-02, RSP-11: no NAK is sent, although the closing packet requests no acknowledgement.
#[test]
fn gap_closed_by_a_packet_without_ackreq_sends_nothing() {
    let mut t = Script::dropping(rts_qp());
    t.rx(0, "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    t.quiet(100);
}

/// RSP-12
#[test]
fn msn_counts_unacknowledged_messages() {
    let mut t = Script::responder(rts_qp());
    for psn in 5..305 {
        t.rx(0, &format!("WRITE_ONLY psn={psn} va=0x0 rkey=0x00000000 dmalen=0 len=0"));
    }
    t.rx(0, "READ_REQUEST psn=305 ackreq va=0x0 rkey=0x00000000 dmalen=0");
    t.tx(0, "READ_RESPONSE_ONLY psn=305 msn=301 len=0");
}

/// RSP-14
#[test]
fn duplicates_and_naks_do_not_advance_the_msn() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "ACK psn=5 msn=1");
    t.rx(1, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(1, "ACK psn=5 msn=1");
    t.rx(2, "SEND_ONLY psn=6 ackreq len=8");
    t.tx(2, "RNR_NAK psn=6 msn=1 timer=0.64ms");
    t.rx(3, "WRITE_ONLY psn=8 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(4, "WRITE_FIRST psn=6 va=0x1000 rkey=mem dmalen=257 len=256");
    t.rx(4, "WRITE_LAST psn=7 ackreq len=1");
    t.tx(4, "ACK psn=7 msn=2");
}

/// RSP-40
#[test]
fn responses_leave_in_request_order() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=300");
    t.rx(0, "SEND_ONLY psn=7 ackreq len=8");
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(0, "READ_RESPONSE_LAST psn=6 msn=1 len=44");
    t.tx(0, "ACK psn=7 msn=2");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 8)]);

    // The response of an atomic acknowledges the WRITE before it.
    t.rx(1, "READ_REQUEST psn=8 ackreq va=0x1000 rkey=mem dmalen=8");
    t.rx(1, "WRITE_ONLY psn=9 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(1, "FETCH_ADD psn=10 ackreq va=0x1008 rkey=mem add=0x1");
    t.tx(1, "READ_RESPONSE_ONLY psn=8 msn=3 len=8");
    t.tx(1, "ATOMIC_ACK psn=10 msn=5 value=0x0");
}

// ---- duplicates ----

/// RSP-04
#[test]
fn duplicate_send_is_acknowledged_and_not_executed() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=64");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 64)]);
    t.rx(1, "SEND_ONLY psn=5 ackreq len=64");
    t.tx(1, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), []);
}

/// RSP-04: in any position of the message, with or without AckReq.
#[test]
fn duplicate_write_is_acknowledged_with_the_newest_psn_and_not_executed() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=600 len=256");
    t.rx(0, "WRITE_MIDDLE psn=6 len=256");
    t.rx(0, "WRITE_LAST psn=7 len=88");
    t.rx(0, "WRITE_ONLY psn=8 va=0x1000 rkey=mem dmalen=0 len=0");
    t.mem.write_at(0, &[0xee; 600]).unwrap();
    for (us, again) in [
        (1, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=600 len=256"),
        (2, "WRITE_MIDDLE psn=6 len=256"),
        (3, "WRITE_LAST psn=7 ackreq len=88"),
    ] {
        t.rx(us, again);
        t.tx(us, "ACK psn=8 msn=2");
    }
    assert_eq!(bytes(&t.mem, 0, 600), [0xee; 600]);
}

/// RSP-04, REQ-12: an acknowledgement with the PSN of an atomic or READ would complete it at requesters that accept
/// this (kernel rxe does), although its response may be lost.
#[test]
fn duplicate_send_is_not_acknowledged_with_the_psn_of_an_atomic_or_read() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=64");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 64)]);
    t.rx(1, "FETCH_ADD psn=6 ackreq va=0x1000 rkey=mem add=0x1");
    t.tx(1, "ATOMIC_ACK psn=6 msn=2 value=0x0");
    t.rx(2, "READ_REQUEST psn=7 ackreq va=0x1000 rkey=mem dmalen=500");
    t.tx(2, "READ_RESPONSE_FIRST psn=7 msn=3 len=256");
    t.tx(2, "READ_RESPONSE_LAST psn=8 msn=3 len=244");
    t.rx(3, "SEND_ONLY psn=5 ackreq len=64");
    t.tx(3, "ACK psn=5 msn=3");
    t.rx(4, "WRITE_ONLY psn=9 va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(4, "SEND_ONLY psn=5 ackreq len=64");
    t.tx(4, "ACK psn=9 msn=4");
}

/// RSP-04: a repeated burst needs one acknowledgement.
#[test]
fn duplicates_of_one_buffer_are_acknowledged_once() {
    let mut t = Script::responder(rts_qp());
    for psn in 5..8 {
        t.rx(0, &format!("WRITE_ONLY psn={psn} va=0x1000 rkey=mem dmalen=8 len=8"));
    }
    for psn in 5..8 {
        t.rx(0, &format!("WRITE_ONLY psn={psn} ackreq va=0x1000 rkey=mem dmalen=8 len=8"));
    }
    t.tx(0, "ACK psn=7 msn=3");
}

/// RSP-04, §4.4: duplicates are handled even in NAK state.
#[test]
fn duplicate_is_acknowledged_during_a_gap() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_ONLY psn=7 va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "NAK_PSN psn=6 msn=1");
    t.rx(1, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(1, "ACK psn=5 msn=1");
    t.rx(2, "WRITE_ONLY psn=8 va=0x1000 rkey=mem dmalen=8 len=8");
    t.quiet(100);
}

/// RSP-04: a pending NAK contains the acknowledgement of a duplicate.
#[test]
fn duplicate_does_not_replace_a_pending_nak() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_ONLY psn=7 va=0x1000 rkey=mem dmalen=8 len=8");
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "NAK_PSN psn=6 msn=1");
    t.quiet(100);
}

/// RSP-05
#[test]
fn duplicate_read_executes_again_with_the_same_psns() {
    let mut t = Script::responder(rts_qp());
    t.mem.write_at(0, &[1; 600]).unwrap();
    let request = "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=600";
    for (us, filling) in [(0, 1), (1, 2)] {
        t.mem.write_at(0, &[filling; 600]).unwrap();
        t.rx(us, request);
        for line in [
            "READ_RESPONSE_FIRST psn=5 msn=1 len=256",
            "READ_RESPONSE_MIDDLE psn=6 len=256",
            "READ_RESPONSE_LAST psn=7 msn=1 len=88",
        ] {
            let sent = t.tx(us, line);
            assert!(sent.payload().iter().all(|byte| *byte == filling), "memory as it is now");
        }
    }
    t.rx(2, "WRITE_ONLY psn=8 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(2, "ACK psn=8 msn=2");
}

/// RSP-06
#[test]
fn duplicate_read_resumes_at_the_requested_psn() {
    let mut t = Script::responder(rts_qp());
    let data = pattern(3, 1000);
    t.mem.write_at(0, &data).unwrap();
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=1000");
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.tx(0, "READ_RESPONSE_LAST psn=8 msn=1 len=232");

    // From the second packet to the end, the last packet alone, and a middle one alone.
    t.rx(1, "READ_REQUEST psn=6 ackreq va=0x1100 rkey=mem dmalen=744");
    assert_eq!(t.tx(1, "READ_RESPONSE_FIRST psn=6 msn=1 len=256").payload(), &data[256..512]);
    assert_eq!(t.tx(1, "READ_RESPONSE_MIDDLE psn=7 len=256").payload(), &data[512..768]);
    assert_eq!(t.tx(1, "READ_RESPONSE_LAST psn=8 msn=1 len=232").payload(), &data[768..]);
    t.rx(2, "READ_REQUEST psn=8 ackreq va=0x1300 rkey=mem dmalen=232");
    assert_eq!(t.tx(2, "READ_RESPONSE_ONLY psn=8 msn=1 len=232").payload(), &data[768..]);
    t.rx(3, "READ_REQUEST psn=6 ackreq va=0x1100 rkey=mem dmalen=256");
    assert_eq!(t.tx(3, "READ_RESPONSE_ONLY psn=6 msn=1 len=256").payload(), &data[256..512]);
    t.quiet(100);
}

/// RSP-05: the requester has abandoned the rest of the response in progress.
#[test]
fn read_duplicated_during_its_response_starts_over() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=1024");
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=1024");
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.tx(0, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.tx(0, "READ_RESPONSE_LAST psn=8 msn=1 len=256");
}

/// Repeated responses leave as single packets.
#[test]
fn repeated_response_leaves_in_single_packets() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=1024");
    let first: Vec<_> = t.all(0).iter().map(|sent| sent.burst).collect();
    assert!(first.windows(2).any(|pair| pair[0] == pair[1]), "{first:?}");
    t.rx(1, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=1024");
    let again: Vec<_> = t.all(1).iter().map(|sent| sent.burst).collect();
    assert_eq!(again.len(), 4);
    assert!(again.windows(2).all(|pair| pair[0] < pair[1]), "{again:?}");
}

/// RSP-07
#[test]
fn duplicate_read_with_other_parameters_is_dropped() {
    let mut t = Script::responder(rts_qp());
    let other = t.region(4096, 0x1000, full_access());
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=0 len=0");
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=600");
    assert_eq!(t.all(0).len(), 3);
    let other_key = format!("READ_REQUEST psn=6 ackreq va=0x1000 rkey={} dmalen=600", other.rkey());
    let wrong = [
        other_key.as_str(),
        // Another end, another start, both, or a larger length.
        "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=599",
        "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=601",
        "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=768",
        "READ_REQUEST psn=6 ackreq va=0x1001 rkey=mem dmalen=600",
        "READ_REQUEST psn=7 ackreq va=0x1000 rkey=mem dmalen=344",
        "READ_REQUEST psn=7 ackreq va=0x1100 rkey=mem dmalen=600",
        "READ_REQUEST psn=7 ackreq va=0x1100 rkey=mem dmalen=2147483648",
        "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=4294967295",
        "READ_REQUEST psn=6 ackreq va=0xffffffffffffff00 rkey=mem dmalen=600",
        // There was no such READ, or the replay cache has dropped it.
        "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=600",
        "READ_REQUEST psn=4 ackreq va=0x1000 rkey=mem dmalen=600",
        "READ_REQUEST psn=8388617 ackreq va=0x1000 rkey=mem dmalen=600",
        "FETCH_ADD psn=6 ackreq va=0x1000 rkey=mem add=0x1",
        "ATOMIC_WRITE psn=6 ackreq va=0x1000 rkey=mem dmalen=8 len=8",
    ];
    for (us, line) in (1..).zip(wrong) {
        t.rx(us, line);
        t.quiet(us);
        assert_eq!(t.dropped(DropReason::StaleDuplicate), us, "{line}");
    }
    assert_eq!(t.state(), QpState::Rts);
    t.rx(100, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=600");
    assert_eq!(t.all(100).len(), 3, "and the right one is still answered");
}

/// RSP-07: a network duplicate must not fail the queue pair.
#[test]
fn duplicate_read_of_deregistered_memory_is_dropped() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=8");
    t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    t.memory.deregister(&t.mem);
    t.rx(1, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=8");
    t.quiet(100);
    assert_eq!((t.dropped(DropReason::StaleDuplicate), t.state()), (1, QpState::Rts));
}

/// RSP-08
#[test]
fn duplicate_atomic_returns_first_result() {
    let mut t = Script::responder(rts_qp());
    t.mem.store_u64(0, 40).unwrap();
    t.rx(0, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x2");
    t.tx(0, "ATOMIC_ACK psn=5 msn=1 value=0x28");
    t.rx(0, "COMPARE_SWAP psn=6 ackreq va=0x1000 rkey=mem expect=0x2a swap=0x7");
    t.tx(0, "ATOMIC_ACK psn=6 msn=2 value=0x2a");
    t.rx(1, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x2");
    t.rx(1, "COMPARE_SWAP psn=6 ackreq va=0x1000 rkey=mem expect=0x2a swap=0x7");
    t.tx(1, "ATOMIC_ACK psn=5 msn=1 value=0x28");
    t.tx(1, "ATOMIC_ACK psn=6 msn=2 value=0x2a");
    assert_eq!(t.mem.load_u64(0), Ok(7));
}

/// RSP-09
#[test]
fn duplicate_atomic_outside_the_replay_cache_is_dropped() {
    let mut t = Script::responder(Link { rd_atomic: 2, ..rts_qp() });
    for psn in 5..8 {
        t.rx(0, &format!("FETCH_ADD psn={psn} ackreq va=0x1000 rkey=mem add=0x1"));
        t.tx(0, &format!("ATOMIC_ACK psn={psn} msn={} value={:#x}", psn - 4, psn - 5));
    }
    t.rx(1, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    t.quiet(1);
    assert_eq!(t.dropped(DropReason::StaleDuplicate), 1);
    t.rx(2, "FETCH_ADD psn=6 ackreq va=0x1000 rkey=mem add=0x1");
    t.tx(2, "ATOMIC_ACK psn=6 msn=2 value=0x1");
    assert_eq!(t.mem.load_u64(0), Ok(3));
}

/// RSP-09: SENDs and WRITEs take no entry of the replay cache.
#[test]
fn replay_cache_holds_max_dest_rd_atomic_requests() {
    let mut t = Script::responder(Link { rd_atomic: 1, ..rts_qp() });
    t.rx(0, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    t.tx(0, "ATOMIC_ACK psn=5 msn=1 value=0x0");
    for psn in 6..40 {
        t.rx(0, &format!("WRITE_ONLY psn={psn} va=0x1100 rkey=mem dmalen=8 len=8"));
    }
    t.rx(1, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    t.tx(1, "ATOMIC_ACK psn=5 msn=1 value=0x0");
    t.quiet(100);
}

/// A lost response is requested again while a later one is pending: PSN order is kept.
#[test]
fn older_repeated_response_is_sent_first() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    t.tx(0, "ATOMIC_ACK psn=5 msn=1 value=0x0");
    t.rx(1, "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=8");
    t.rx(1, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x1");
    t.tx(1, "ATOMIC_ACK psn=5 msn=1 value=0x0");
    t.tx(1, "READ_RESPONSE_ONLY psn=6 msn=2 len=8");
}

// ---- receives ----

/// RSP-23
#[test]
fn send_without_a_receive_causes_an_rnr_nak() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "SEND_ONLY psn=5 ackreq len=64"); // no receive posted
    t.tx(0, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.post_recv(64);
    t.rx(1, "SEND_ONLY psn=5 ackreq len=64");
    t.tx(1, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 64)]);
    assert_eq!(t.received(1, 64), pattern(5, 64));
}

/// RSP-23: at the FIRST of a long message, with the configured timer, every time.
#[test]
fn each_attempt_without_a_receive_causes_an_rnr_nak() {
    let mut t = Script::responder(Link { min_rnr_timer: 0, ..rts_qp() });
    for us in 0..3 {
        t.rx(us, "SEND_FIRST psn=5 len=256");
        t.tx(us, "RNR_NAK psn=5 msn=0 timer=655.36ms");
    }
    t.post_recv(512);
    t.rx(3, "SEND_FIRST psn=5 len=256");
    t.rx(3, "SEND_LAST psn=6 ackreq len=1");
    t.tx(3, "ACK psn=6 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 257)]);
}

/// RSP-24
#[test]
fn write_with_immediate_waits_for_a_receive_at_its_end() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_FIRST psn=5 va=0x1000 rkey=mem dmalen=300 len=256");
    t.rx(0, "WRITE_LAST_IMM psn=6 ackreq imm=0x01020304 len=44");
    t.tx(0, "RNR_NAK psn=6 msn=0 timer=0.64ms");
    t.post_recv(0);
    t.rx(1, "WRITE_LAST_IMM psn=6 ackreq imm=0x01020304 len=44");
    t.tx(1, "ACK psn=6 msn=1");
    let expected = ok(1, WcOpcode::RecvRdmaWithImm, 300);
    assert_eq!(t.recvs(), [Completion { imm: Some(0x0102_0304), ..expected }]);
    let written = [pattern(5, 256), pattern(6, 44)].concat();
    assert_eq!(bytes(&t.mem, 0, 300), written);
}

/// RSP-24, PKT-19, PKT-22
#[test]
fn write_with_immediate_writes_nothing_to_its_receive() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY_IMM psn=5 ackreq va=0x1010 rkey=mem dmalen=8 imm=0xfffefdfc len=8");
    t.tx(0, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.post_recv(64);
    t.rx(1, "WRITE_ONLY_IMM psn=5 ackreq va=0x1010 rkey=mem dmalen=8 imm=0xfffefdfc len=8");
    t.tx(1, "ACK psn=5 msn=1");
    let expected = ok(1, WcOpcode::RecvRdmaWithImm, 8);
    assert_eq!(t.recvs(), [Completion { imm: Some(0xfffe_fdfc), ..expected }]);
    assert_eq!(bytes(&t.mem, 16, 8), pattern(5, 8));
    assert_eq!(t.received(1, 64), [0; 64]);
}

/// RSP-24, RSP-27: an empty WRITE with immediate data takes a receive.
#[test]
fn empty_write_with_immediate_takes_a_receive() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    let write = "WRITE_ONLY_IMM psn=5 ackreq va=0x0 rkey=0x00000000 dmalen=0 imm=0x00000009 len=0";
    t.rx(0, write);
    t.tx(0, "ACK psn=5 msn=1");
    let expected = ok(1, WcOpcode::RecvRdmaWithImm, 0);
    assert_eq!(t.recvs(), [Completion { imm: Some(9), ..expected }]);
}

/// RSP-25
#[test]
fn newer_requests_after_an_rnr_nak_are_dropped_silently() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.rx(1, "SEND_ONLY psn=6 ackreq len=8");
    t.rx(1, "WRITE_ONLY psn=7 ackreq va=0x1000 rkey=mem dmalen=8 len=8");
    t.post_recv(8);
    t.post_recv(8);
    t.rx(2, "SEND_ONLY psn=6 ackreq len=8");
    t.quiet(700);
    assert_eq!(t.dropped(DropReason::OutOfSequence), 3);
    t.rx(700, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(700, "SEND_ONLY psn=6 ackreq len=8");
    t.tx(700, "ACK psn=6 msn=2");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 8), ok(2, WcOpcode::Recv, 8)]);
}

/// RSP-41
#[test]
fn empty_send_takes_a_receive() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(0);
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=0");
    t.rx(0, "SEND_ONLY_IMM psn=6 ackreq imm=0x00000007 len=0");
    t.tx(0, "ACK psn=6 msn=2");
    let with_imm = Completion { imm: Some(7), ..ok(2, WcOpcode::Recv, 0) };
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 0), with_imm]);
}

/// A message scatters over the elements of its receive in order.
#[test]
fn message_scatters_to_32_sges_in_order() {
    let mut t = Script::responder(rts_qp());
    let region = t.region(4096, 0x50_0000, Access::LOCAL_WRITE);
    let sges: Vec<Sge> = (0..32).map(|i| sge(&region, i * 64, 17)).collect();
    t.post_recv_sges(&sges).unwrap();
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_MIDDLE psn=6 len=256");
    t.rx(0, "SEND_LAST psn=7 ackreq len=32");
    t.tx(0, "ACK psn=7 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 544)]);
    let message = [pattern(5, 256), pattern(6, 256), pattern(7, 32)].concat();
    for (i, piece) in message.chunks(17).enumerate() {
        assert_eq!(bytes(&region, i * 64, 17), piece, "piece {i}");
        assert_eq!(bytes(&region, i * 64 + 17, 47), [0; 47], "behind piece {i}");
    }
}

/// PKT-17
#[test]
fn padding_is_neither_delivered_nor_checked() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    let mut packet = t.packet("SEND_ONLY psn=5 ackreq len=5");
    let end = packet.len() - 4;
    packet[end - 3..end].fill(0xff);
    let packet = t.seal(packet);
    t.rx_bytes(0, &packet);
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 5)]);
    assert_eq!(t.received(1, 8), [&pattern(5, 5)[..], &[0; 3]].concat());
}

/// RSP-43, RSP-44
#[test]
fn solicited_bit_marks_the_completion() {
    let mut t = Script::responder(rts_qp());
    for _ in 0..4 {
        t.post_recv(8);
    }
    t.rx(0, "SEND_ONLY psn=5 len=8");
    t.rx(0, "SEND_ONLY psn=6 solicited len=8");
    let write = "WRITE_ONLY_IMM psn=7 solicited va=0x1000 rkey=mem dmalen=8 imm=0x00000000 len=8";
    t.rx(0, write);
    let with_imm = Completion { imm: Some(0), ..ok(3, WcOpcode::RecvRdmaWithImm, 8) };
    let expected = [
        ok(1, WcOpcode::Recv, 8),
        Completion { solicited: true, ..ok(2, WcOpcode::Recv, 8) },
        Completion { solicited: true, ..with_imm },
    ];
    assert_eq!(t.recvs(), expected);
    // Error completions are always solicited.
    t.rx(0, "SEND_ONLY psn=8 len=9");
    t.tx(0, "NAK_INV psn=8 msn=3");
    assert_eq!(t.recvs(), [Completion { solicited: true, ..failed(4, WcStatus::LocLenErr) }]);
}

// ---- execution ----

/// RSP-01, §4.1: 2^23 responses are half of the PSNs.
#[test]
#[ignore = "takes 2 GiB of memory"]
fn longest_read_takes_half_of_the_psns() {
    let mut t = Script::responder(rts_qp());
    let region = t.region(1 << 31, 0x1000_0000, full_access());
    let rkey = region.rkey();
    t.rx(0, &format!("READ_REQUEST psn=5 ackreq va=0x10000000 rkey={rkey} dmalen=2147483648"));
    t.tx(0, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(0, "WRITE_ONLY psn=8388613 va=0x1000 rkey=mem dmalen=8 len=8");
    assert_eq!(t.mem.load_u64(0).unwrap().to_ne_bytes()[..], pattern(8_388_613, 8)[..]);
    // The rest of the response is abandoned for a duplicate of its last packet.
    t.rx(0, &format!("READ_REQUEST psn=8388612 ackreq va=0x8fffff00 rkey={rkey} dmalen=256"));
    t.tx(0, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.tx(0, "READ_RESPONSE_ONLY psn=8388612 msn=1 len=256");
}

/// RSP-33
#[test]
fn compare_and_swap_stores_only_over_the_expected_value() {
    let mut t = Script::responder(rts_qp());
    let old = 0x0102_0304_0506_0708;
    t.mem.store_u64(8, old).unwrap();
    t.rx(0, "COMPARE_SWAP psn=5 ackreq va=0x1008 rkey=mem expect=0x102030405060709 swap=0x9");
    t.tx(0, "ATOMIC_ACK psn=5 msn=1 value=0x102030405060708");
    assert_eq!(t.mem.load_u64(8), Ok(old));
    t.rx(0, "COMPARE_SWAP psn=6 ackreq va=0x1008 rkey=mem expect=0x102030405060708 swap=0x9");
    t.tx(0, "ATOMIC_ACK psn=6 msn=2 value=0x102030405060708");
    assert_eq!(t.mem.load_u64(8), Ok(9));
}

/// RSP-34
#[test]
fn fetch_and_add_wraps() {
    let mut t = Script::responder(rts_qp());
    t.mem.store_u64(0, u64::MAX - 1).unwrap();
    t.rx(0, "FETCH_ADD psn=5 ackreq va=0x1000 rkey=mem add=0x3");
    t.tx(0, "ATOMIC_ACK psn=5 msn=1 value=0xfffffffffffffffe");
    assert_eq!(t.mem.load_u64(0), Ok(1));
}

/// RSP-39
#[test]
fn write_is_in_memory_when_the_following_send_completes() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.rx_merged(
        0,
        &["WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=64 len=64", "SEND_ONLY psn=6 ackreq len=64"],
    );
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 64)]);
    assert_eq!(bytes(&t.mem, 0, 64), pattern(5, 64));
    t.tx(0, "ACK psn=6 msn=2");
}

/// Messages of one packet each in one buffer: those before an invalid one are executed, and those behind it are not.
#[test]
fn messages_in_one_buffer_are_executed_separately() {
    let sends = ["SEND_ONLY psn=5 len=64", "SEND_ONLY psn=6 len=64", "SEND_ONLY psn=7 len=64"];

    let mut t = Script::responder(rts_qp());
    let write = |psn, va| format!("WRITE_ONLY psn={psn} ackreq va={va} rkey=mem dmalen=64 len=64");
    let writes = [(5, "0x1000"), (6, "0x1040"), (7, "0x11000"), (8, "0x1080")];
    let writes = writes.map(|(psn, va)| write(psn, va));
    t.rx_merged(0, &writes.each_ref().map(String::as_str));
    t.tx(0, "NAK_ACCESS psn=7 msn=2");
    assert_eq!(t.events(), [AsyncEvent::QpAccessErr(t.qpn)]);
    let found = [0, 64, 128].map(|at| bytes(&t.mem, at, 64));
    assert_eq!(found, [pattern(5, 64), pattern(6, 64), vec![0; 64]]);

    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.post_recv(64);
    t.rx_merged(0, &sends);
    t.tx(0, "RNR_NAK psn=7 msn=2 timer=0.64ms");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 64), ok(2, WcOpcode::Recv, 64)]);
    assert_eq!([1, 2].map(|wr_id| t.received(wr_id, 64)), [pattern(5, 64), pattern(6, 64)]);

    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.post_recv(63);
    t.rx_merged(0, &sends);
    t.tx(0, "NAK_INV psn=6 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 64), failed(2, WcStatus::LocLenErr)]);

    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.post_recv(64);
    t.rx_merged(0, &[sends[0], sends[0], sends[2]]);
    t.tx(0, "NAK_PSN psn=6 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 64)]);
    // One with AckReq set, and one without.
    t.rx_merged(1, &["SEND_ONLY psn=6 ackreq len=64", "SEND_ONLY psn=7 len=64"]);
    t.tx(1, "RNR_NAK psn=7 msn=2 timer=0.64ms");
    assert_eq!(t.recvs(), [ok(2, WcOpcode::Recv, 64)]);
}

/// PKT-21
#[test]
fn only_first_and_last_of_a_read_response_carry_an_aeth() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "READ_REQUEST psn=5 ackreq va=0x1000 rkey=mem dmalen=768");
    let lens: Vec<_> = t.all(0).iter().map(|sent| sent.bytes.len()).collect();
    assert_eq!(lens, [12 + 4 + 256 + 4, 12 + 256 + 4, 12 + 4 + 256 + 4]);
}

/// RSP-27
#[test]
fn empty_access_needs_no_key() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0xffffffffffffffff rkey=0xdeadbeef dmalen=0 len=0");
    t.tx(0, "ACK psn=5 msn=1");
    t.rx(0, "READ_REQUEST psn=6 ackreq va=0xffffffffffffffff rkey=0xdeadbeef dmalen=0");
    t.tx(0, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
    // Duplicates too.
    t.rx(1, "READ_REQUEST psn=6 ackreq va=0xffffffffffffffff rkey=0xdeadbeef dmalen=0");
    t.tx(1, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
}
