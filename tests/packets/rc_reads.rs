//! READs and atomics of the RC requester, packet by packet: complete, partial and missing responses.
//!
//! The first PSN is 5, the path MTU is 256, four READs or atomics may be outstanding, the peer's memory is `va=0x8000
//! rkey=0x00000100`, and the ACK timeout is 1048.576 µs.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{PEER, REMOTE, Script, Sent, bytes, failed, ok, rts_qp};
use crate::support::{Link, pattern, request, sge};
use softroce::engine::{ModifyError, PostError, QpAttr, QpState};
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{SendFlags, SendOp, Sge, WcOpcode, WcStatus};

const SEND: WcOpcode = WcOpcode::Send;
const WRITE: WcOpcode = WcOpcode::RdmaWrite;
const READ: WcOpcode = WcOpcode::RdmaRead;
const ADD: WcOpcode = WcOpcode::FetchAdd;

/// REQ-12
#[test]
fn ack_beyond_a_read_implies_its_lost_response() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.read(2, 300);
    t.send(3, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "READ_REQUEST psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=300");
    t.tx(0, "SEND_ONLY psn=8 ackreq len=8");
    t.rx(1, "ACK psn=8 msn=3");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    t.tx(1, "READ_REQUEST psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=300");
    t.quiet(1);
    t.rx(2, "READ_RESPONSE_FIRST psn=6 msn=3 len=256");
    t.rx(2, "READ_RESPONSE_LAST psn=7 msn=3 len=44");
    assert_eq!(t.sends(), [ok(2, READ, 300), ok(3, SEND, 8)]);
}

/// REQ-12: an acknowledgement of the READ's own PSN is no response; nor for an atomic.
#[test]
fn read_or_atomic_completes_with_its_response_only() {
    let mut t = Script::requester(rts_qp());
    t.fetch_add(1, 7);
    t.tx(0, "FETCH_ADD psn=5 ackreq va=0x8000 rkey=0x00000100 add=0x7");
    t.rx(1, "ACK psn=5 msn=1");
    t.tx(1, "FETCH_ADD psn=5 ackreq va=0x8000 rkey=0x00000100 add=0x7");
    // A duplicate has no further effect.
    t.rx(2, "ACK psn=5 msn=1");
    t.quiet(2);
    t.rx(3, "ATOMIC_ACK psn=5 msn=1 value=0x63");
    assert_eq!(t.sends(), [ok(1, ADD, 8)]);
    assert_eq!(t.answers.load_u64(0), Ok(0x63));
}

/// REQ-13
#[test]
fn response_acknowledges_all_earlier_requests() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.write(2, 300);
    t.read(3, 8);
    t.send(4, 8);
    t.fetch_add(5, 1);
    assert_eq!(t.all(0).len(), 6);
    t.rx(1, "READ_RESPONSE_ONLY psn=8 msn=3 len=8");
    assert_eq!(t.sends(), [ok(1, SEND, 8), ok(2, WRITE, 300), ok(3, READ, 8)]);
    t.rx(2, "ATOMIC_ACK psn=10 msn=5 value=0x0");
    assert_eq!(t.sends(), [ok(4, SEND, 8), ok(5, ADD, 8)]);
}

/// REQ-14, REQ-16
#[test]
fn gap_in_a_read_response_is_requested_again() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 1000);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=1000");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(1, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.rx(1, "READ_RESPONSE_LAST psn=8 msn=1 len=232");
    assert_eq!(t.answer(1000)[512..], [0; 488]);
    t.tx(1, "READ_REQUEST psn=7 ackreq va=0x8200 rkey=0x00000100 dmalen=488");
    t.rx(2, "READ_RESPONSE_FIRST psn=7 msn=1 len=256");
    t.rx(2, "READ_RESPONSE_LAST psn=8 msn=1 len=232");
    assert_eq!(t.sends(), [ok(1, READ, 1000)]);
    let parts = [pattern(5, 256), pattern(6, 256), pattern(7, 256), pattern(8, 232)];
    assert_eq!(t.answer(1000), parts.concat());
}

/// REQ-14: packets in flight behind the gap cause no further request.
#[test]
fn gap_in_a_read_response_is_requested_once() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 1200);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=1200");
    t.rx(1, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.tx(1, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=1200");
    t.rx(2, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.rx(2, "READ_RESPONSE_MIDDLE psn=8 len=256");
    t.rx(2, "READ_RESPONSE_LAST psn=9 msn=1 len=176");
    t.quiet(1000);
    // The packet is buffered until the gap is filled.
    assert_eq!((t.sends(), t.engine.counters().kept_ahead), (vec![], 4));
    t.rx(1000, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    assert_eq!(t.sends(), [ok(1, READ, 1200)]);
    let parts = [5, 6, 7, 8].map(|psn| pattern(psn, 256));
    assert_eq!(t.answer(1200), [parts.concat(), pattern(9, 176)].concat());
    // Duplicates have no effect.
    t.rx(1001, "READ_RESPONSE_MIDDLE psn=6 len=256");
    assert_eq!(t.dropped(DropReason::Ghost), 1);
}

/// REQ-14: exactly the missing parts of each READ are requested again.
#[test]
fn received_packets_behind_a_gap_are_not_requested_again() {
    let mut t = Script::requester(rts_qp());
    for wr_id in 1..=3 {
        t.read(wr_id, 600);
    }
    t.fetch_add(4, 7);
    t.send(5, 8);
    t.all(0);
    // The middle of the first response is lost, and all of the second.
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(1, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    t.tx(1, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=344");
    t.rx(2, "READ_RESPONSE_FIRST psn=11 msn=3 len=256");
    t.tx(2, "READ_REQUEST psn=8 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
    t.rx(3, "READ_RESPONSE_MIDDLE psn=12 len=256");
    t.quiet(3);
    // The end of the third is lost too, and the response of the atomic.
    t.rx(4, "ACK psn=15 msn=5");
    t.tx(4, "READ_REQUEST psn=13 ackreq va=0x8200 rkey=0x00000100 dmalen=88");
    t.tx(4, "FETCH_ADD psn=14 ackreq va=0x8000 rkey=0x00000100 add=0x7");
    t.quiet(4);
    assert_eq!(t.sends(), []);
    t.rx(5, "READ_RESPONSE_FIRST psn=6 msn=1 len=256");
    assert_eq!(t.sends(), [ok(1, READ, 600)]);
    for line in ["FIRST psn=8 msn=2 len=256", "MIDDLE psn=9 len=256", "LAST psn=10 msn=2 len=88"] {
        t.rx(6, &format!("READ_RESPONSE_{line}"));
    }
    assert_eq!(t.sends(), [ok(2, READ, 600)]);
    t.rx(7, "READ_RESPONSE_ONLY psn=13 msn=3 len=88");
    t.rx(7, "ATOMIC_ACK psn=14 msn=4 value=0x63");
    assert_eq!(t.sends(), [ok(3, READ, 600), ok(4, ADD, 8), ok(5, SEND, 8)]);
}

/// REQ-14: repeated requests occupy the peer's window like others. Here three single packets fill it.
#[test]
fn repeated_read_request_occupies_the_window() {
    let mut t = Script::with(rts_qp(), |config| {
        // A burst to a local address is charged less than its packets sent alone.
        config.gids.push(PEER.into());
        config.peer_receive_buffer = 4096;
    });
    t.read(1, 600);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(1, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    t.tx(1, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=344");
    t.send(2, 8);
    t.send(3, 8);
    t.tx(1, "SEND_ONLY psn=8 ackreq len=8");
    t.quiet(2);
    t.rx(2, "READ_RESPONSE_FIRST psn=6 msn=1 len=256");
    t.tx(2, "SEND_ONLY psn=9 ackreq len=8");
    t.rx(3, "ACK psn=9 msn=3");
    assert_eq!(t.sends(), [ok(1, READ, 600), ok(2, SEND, 8), ok(3, SEND, 8)]);
}

/// Returns the number of bursts with repeated requests of two READs without a response. The requests leave one by one
/// before.
fn bursts_of_repeated_requests(t: &mut Script, us: u64, first: u32) -> usize {
    for wr_id in 11..=13 {
        t.read(wr_id, 8);
        assert_eq!(t.all(us).len(), 1);
    }
    t.rx(us, &format!("READ_RESPONSE_ONLY psn={} msn=13 len=8", first + 2));
    let line = |sent: &Sent| sent.line();
    let sent = t.all(us);
    let expected = [first, first + 1]
        .map(|psn| format!("READ_REQUEST psn={psn} ackreq va=0x8000 rkey=0x00000100 dmalen=8"));
    assert_eq!(sent.iter().map(line).collect::<Vec<_>>(), expected);
    for psn in [first, first + 1] {
        t.rx(us, &format!("READ_RESPONSE_ONLY psn={psn} msn=13 len=8"));
    }
    assert_eq!(t.sends(), [11, 12, 13].map(|wr_id| ok(wr_id, READ, 8)));
    sent[1].burst - sent[0].burst + 1
}

/// REQ-14
#[test]
fn repeated_read_requests_share_a_burst() {
    let mut t = Script::requester(rts_qp());
    assert_eq!(bursts_of_repeated_requests(&mut t, 0, 5), 1);
    // A burst of which the second packet may be lost.
    t.send(1, 512);
    let sent = t.all(1);
    assert_eq!((sent.len(), sent[0].burst), (2, sent[1].burst));
    t.tx(1049, "SEND_FIRST psn=8 ackreq len=256");
    t.rx(1050, "ACK psn=9 msn=14");
    assert_eq!(t.sends(), [ok(1, SEND, 512)]);
    assert_eq!(bursts_of_repeated_requests(&mut t, 1050, 10), 2);
}

/// REQ-14: a duplicate of a buffered response has no effect.
#[test]
fn duplicate_of_a_buffered_response_is_ignored() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 600);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
    t.rx(1, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.tx(1, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
    t.rx(2, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.quiet(3);
    assert_eq!(t.engine.counters().kept_ahead, 1);
    t.rx(3, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(3, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    assert_eq!(t.sends(), [ok(1, READ, 600)]);
}

/// REQ-14: without a response buffer the requester returns to the first missing packet.
#[test]
fn full_response_buffer_causes_a_request_for_all_packets() {
    let mut t = Script::with(rts_qp(), |config| config.reorder_buffer = 0);
    t.read(1, 600);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(1, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    t.tx(1, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=344");
    t.tx(1, "SEND_ONLY psn=8 ackreq len=8");
    t.rx(2, "READ_RESPONSE_FIRST psn=6 msn=1 len=256");
    t.rx(2, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    t.rx(2, "ACK psn=8 msn=2");
    assert_eq!(t.sends(), [ok(1, READ, 600), ok(2, SEND, 8)]);
}

/// REQ-14: a short ACK timer detects the second loss, and everything is requested again.
#[test]
fn response_lost_twice_is_requested_after_a_timeout() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 300);
    t.read(2, 8);
    t.all(0);
    t.rx(1, "READ_RESPONSE_LAST psn=6 msn=1 len=44");
    t.rx(1, "READ_RESPONSE_ONLY psn=7 msn=2 len=8");
    t.tx(1, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=300");
    t.quiet(1000);
    t.tx(1050, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=300");
    t.rx(1051, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(1051, "READ_RESPONSE_LAST psn=6 msn=1 len=44");
    t.tx(1051, "READ_REQUEST psn=7 ackreq va=0x8000 rkey=0x00000100 dmalen=8");
    t.rx(1052, "READ_RESPONSE_ONLY psn=7 msn=2 len=8");
    assert_eq!(t.sends(), [ok(1, READ, 300), ok(2, READ, 8)]);
}

/// ACK timeout of 67 ms.
fn long_timeout() -> Link {
    Link { timeout: 14, ..rts_qp() }
}

/// REQ-14: the second loss of a response is known after 2 ms of silence, a third after 4 ms more. The ACK timer is for the
/// rest, and then everything is requested again.
#[test]
fn request_for_a_lost_response_is_repeated_until_the_timeout() {
    let mut t = Script::requester(long_timeout());
    t.read(1, 300);
    t.read(2, 8);
    t.all(0);
    t.rx(1, "READ_RESPONSE_LAST psn=6 msn=1 len=44");
    t.rx(1, "READ_RESPONSE_ONLY psn=7 msn=2 len=8");
    let again = "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=300";
    t.tx(1, again);
    for us in [2001, 6001, 14_001, 30_001, 62_001] {
        t.quiet(us - 1);
        t.tx(us, again);
    }
    assert_eq!((t.engine.counters().timeouts, t.engine.counters().retries), (0, 0));
    t.tx(67_110, again);
    assert_eq!((t.engine.counters().timeouts, t.engine.counters().retries), (1, 1));
    t.rx(67_111, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(67_111, "READ_RESPONSE_LAST psn=6 msn=1 len=44");
    t.tx(67_111, "READ_REQUEST psn=7 ackreq va=0x8000 rkey=0x00000100 dmalen=8");
    t.rx(67_112, "READ_RESPONSE_ONLY psn=7 msn=2 len=8");
    assert_eq!(t.sends(), [ok(1, READ, 300), ok(2, READ, 8)]);
}

/// REQ-14: the wait is four round trips, and each response begins it anew.
#[test]
fn wait_for_a_repeated_response_follows_the_round_trip() {
    let mut t = Script::requester(long_timeout());
    t.read(1, 1000);
    t.all(0);
    t.rx(2000, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(2000, "READ_RESPONSE_LAST psn=8 msn=1 len=232");
    let from_6 = "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=744";
    t.tx(2000, from_6);
    t.quiet(9999);
    t.tx(10_000, from_6);
    t.rx(20_000, "READ_RESPONSE_FIRST psn=6 msn=1 len=256");
    // Packet 7 is still missing.
    t.quiet(27_999);
    t.tx(28_000, "READ_REQUEST psn=7 ackreq va=0x8200 rkey=0x00000100 dmalen=488");
    t.rx(30_000, "READ_RESPONSE_FIRST psn=7 msn=1 len=256");
    assert_eq!(t.sends(), [ok(1, READ, 1000)]);
    t.quiet(200_000);
}

/// REQ-14: a peer that still sends the rest of an old response answers the new request afterwards.
#[test]
fn rest_of_an_old_response_uses_no_retries() {
    let mut t = Script::requester(Link { retry_cnt: 1, ..rts_qp() });
    t.read(1, 256 * 10);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=2560");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(2, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.tx(2, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=2304");
    for psn in 8..14 {
        t.rx(900 * (psn - 7), &format!("READ_RESPONSE_MIDDLE psn={psn} len=256"));
    }
    t.rx(6300, "READ_RESPONSE_LAST psn=14 msn=1 len=256");
    // The timer covers the silence after that.
    t.quiet(6300 + 1048);
    t.tx(6300 + 1049, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=2304");
    t.quiet(6300 + 2096);
    assert_eq!(t.sends(), []);
    t.at(6300 + 2100);
    assert_eq!(t.sends(), [failed(1, WcStatus::RetryExcErr)]);
}

/// REQ-16: the two forms of a response to a resumed READ: from the middle, and of the last packet.
#[test]
fn resumed_read_response_may_start_with_first_or_middle() {
    for (first, last) in [
        ("READ_RESPONSE_FIRST psn=6 msn=1 len=256", "READ_RESPONSE_ONLY psn=7 msn=1 len=88"),
        ("READ_RESPONSE_MIDDLE psn=6 len=256", "READ_RESPONSE_LAST psn=7 msn=1 len=88"),
    ] {
        let mut t = Script::requester(rts_qp());
        t.read(1, 600);
        t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
        t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
        t.tx(1050, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=344");
        t.rx(1060, first);
        t.tx(2109, "READ_REQUEST psn=7 ackreq va=0x8200 rkey=0x00000100 dmalen=88");
        t.rx(2110, last);
        assert_eq!(t.sends(), [ok(1, READ, 600)]);
        let answer = [pattern(5, 256), pattern(6, 256), pattern(7, 88)].concat();
        assert_eq!(t.answer(600), answer);
    }
}

/// REQ-16: the first response was late, and its packets are accepted.
#[test]
fn late_response_is_accepted_after_a_repeated_request() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 1000);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=1000");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(1050, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=744");
    t.rx(1051, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.rx(1051, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.rx(1051, "READ_RESPONSE_LAST psn=8 msn=1 len=232");
    assert_eq!(t.sends(), [ok(1, READ, 1000)]);
    // Then the second response.
    t.rx(1052, "READ_RESPONSE_FIRST psn=6 msn=1 len=256");
    t.rx(1052, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.rx(1052, "READ_RESPONSE_LAST psn=8 msn=1 len=232");
    t.quiet(100_000);
    assert_eq!(t.dropped(DropReason::Ghost), 3);
}

/// REQ-15
#[test]
fn duplicate_response_does_not_write_memory() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 512);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=512");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.answers.write_at(0, &[0xee; 512]).unwrap();
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(2, "READ_RESPONSE_LAST psn=6 msn=1 len=256");
    assert_eq!(t.sends(), [ok(1, READ, 512)]);
    t.rx(3, "READ_RESPONSE_LAST psn=6 msn=1 len=256");
    assert_eq!(t.answer(512), [vec![0xee; 256], pattern(6, 256)].concat());
    t.quiet(100_000);
}

/// REQ-17
#[test]
fn response_with_another_opcode_is_a_bad_response() {
    let wrong: [(&[&str], &str); 13] = [
        (&[], "READ_RESPONSE_MIDDLE psn=5 len=256"),
        (&[], "READ_RESPONSE_LAST psn=5 msn=1 len=88"),
        (&[], "READ_RESPONSE_ONLY psn=5 msn=1 len=256"),
        (&[], "READ_RESPONSE_FIRST psn=5 msn=1 len=255"),
        (&[], "READ_RESPONSE_FIRST psn=5 msn=1 len=0"),
        (&[], "READ_RESPONSE_FIRST psn=5 msn=1 len=1024"),
        (&[], "ATOMIC_ACK psn=5 msn=1 value=0x1"),
        (&["READ_RESPONSE_FIRST psn=5 msn=1 len=256"], "READ_RESPONSE_FIRST psn=6 msn=1 len=256"),
        (&["READ_RESPONSE_FIRST psn=5 msn=1 len=256"], "READ_RESPONSE_LAST psn=6 msn=1 len=256"),
        (&["READ_RESPONSE_FIRST psn=5 msn=1 len=256"], "READ_RESPONSE_MIDDLE psn=6 len=252"),
        (
            &["READ_RESPONSE_FIRST psn=5 msn=1 len=256", "READ_RESPONSE_MIDDLE psn=6 len=256"],
            "READ_RESPONSE_MIDDLE psn=7 len=256",
        ),
        (
            &["READ_RESPONSE_FIRST psn=5 msn=1 len=256", "READ_RESPONSE_MIDDLE psn=6 len=256"],
            "READ_RESPONSE_LAST psn=7 msn=1 len=89",
        ),
        (
            &["READ_RESPONSE_FIRST psn=5 msn=1 len=256", "READ_RESPONSE_MIDDLE psn=6 len=256"],
            "READ_RESPONSE_LAST psn=7 msn=1 len=0",
        ),
    ];
    for (before, bad) in wrong {
        let mut t = Script::requester(rts_qp());
        t.post_recv(8);
        t.read(1, 600);
        t.send(2, 8);
        assert_eq!(t.all(0).len(), 2);
        for line in before {
            t.rx(1, line);
        }
        t.rx(1, bad);
        let ends = [failed(1, WcStatus::BadRespErr), failed(2, WcStatus::WrFlushErr)];
        assert_eq!(t.sends(), ends, "{bad}");
        assert_eq!(t.recvs(), [failed(1, WcStatus::WrFlushErr)]);
        assert_eq!(t.state(), QpState::Err);
    }
}

/// REQ-17: a response to another request.
#[test]
fn read_response_to_a_send_is_a_bad_response() {
    for bad in ["READ_RESPONSE_ONLY psn=6 msn=2 len=0", "ATOMIC_ACK psn=6 msn=2 value=0x0"] {
        let mut t = Script::requester(rts_qp());
        t.send(1, 8);
        t.send(2, 8);
        assert_eq!(t.all(0).len(), 2);
        t.rx(1, bad);
        assert_eq!(t.sends(), [ok(1, SEND, 8), failed(2, WcStatus::BadRespErr)], "{bad}");
    }
}

/// REQ-04: an empty READ has an empty response, and writes no memory.
#[test]
fn empty_read_is_answered() {
    let mut t = Script::requester(rts_qp());
    t.post(request(1, SendOp::Read { from: REMOTE }, &[])).unwrap();
    t.read(2, 0);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=0");
    t.tx(0, "READ_REQUEST psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=0");
    t.rx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=0");
    t.rx(1, "READ_RESPONSE_ONLY psn=6 msn=2 len=0");
    assert_eq!(t.sends(), [ok(1, READ, 0), ok(2, READ, 0)]);
}

/// REQ-37
#[test]
fn atomic_result_is_in_host_byte_order() {
    let mut t = Script::requester(rts_qp());
    let op = SendOp::CompareSwap { at: REMOTE, expect: 0x11, swap: 0x22 };
    t.post_op(1, op, 8);
    t.tx(0, "COMPARE_SWAP psn=5 ackreq va=0x8000 rkey=0x00000100 expect=0x11 swap=0x22");
    t.rx(1, "ATOMIC_ACK psn=5 msn=1 value=0x102030405060708");
    assert_eq!(t.sends(), [ok(1, WcOpcode::CompSwap, 8)]);
    assert_eq!(t.answers.load_u64(0), Ok(0x0102_0304_0506_0708));
}

/// The response of a READ scatters over its elements in order.
#[test]
fn response_scatters_to_32_sges() {
    let mut t = Script::requester(rts_qp());
    let sges: Vec<Sge> = (0..32).map(|i| sge(&t.answers, i * 64, 17)).collect();
    t.post(request(1, SendOp::Read { from: REMOTE }, &sges)).unwrap();
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=544");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(1, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.rx(1, "READ_RESPONSE_LAST psn=7 msn=1 len=32");
    assert_eq!(t.sends(), [ok(1, READ, 544)]);
    let message = [pattern(5, 256), pattern(6, 256), pattern(7, 32)].concat();
    for (i, piece) in message.chunks(17).enumerate() {
        assert_eq!(bytes(&t.answers, i * 64, 17), piece, "piece {i}");
    }
}

/// REQ-38
#[test]
fn nak_within_a_read_response_fails_the_read() {
    for (nak, status) in [
        ("NAK_ACCESS psn=7 msn=2", WcStatus::RemAccessErr),
        ("NAK_OP psn=7 msn=2", WcStatus::RemOpErr),
        ("NAK_INV psn=7 msn=2", WcStatus::RemInvReqErr),
        // Packet 7 of the response was lost too, and will not be sent again.
        ("NAK_ACCESS psn=8 msn=2", WcStatus::RemAccessErr),
    ] {
        let mut t = Script::requester(rts_qp());
        t.send(1, 8);
        t.read(2, 1000);
        t.send(3, 8);
        assert_eq!(t.all(0).len(), 3);
        t.rx(1, "READ_RESPONSE_FIRST psn=6 msn=2 len=256");
        t.rx(1, nak);
        let ends = [ok(1, SEND, 8), failed(2, status), failed(3, WcStatus::WrFlushErr)];
        assert_eq!(t.sends(), ends, "{nak}");
        t.quiet(100_000);
    }
}

/// REQ-39
#[test]
fn read_response_with_a_nak_syndrome_is_a_bad_response() {
    for (read, bad) in [
        (true, "READ_RESPONSE_ONLY psn=6 msn=2 syndrome=0x62 len=8"),
        (true, "READ_RESPONSE_ONLY psn=6 msn=2 syndrome=0x60 len=8"),
        (true, "READ_RESPONSE_ONLY psn=6 msn=2 syndrome=0x2c len=8"),
        (true, "READ_RESPONSE_ONLY psn=6 msn=2 syndrome=0x80 len=8"),
        (false, "ATOMIC_ACK psn=6 msn=2 syndrome=0x62 value=0x0"),
        (false, "ATOMIC_ACK psn=6 msn=2 syndrome=0x2c value=0x0"),
    ] {
        let mut t = Script::requester(rts_qp());
        t.send(1, 8);
        if read {
            t.read(2, 8)
        } else {
            t.fetch_add(2, 1)
        }
        assert_eq!(t.all(0).len(), 2);
        t.rx(1, bad);
        // The response to the second request implies the arrival of the first.
        assert_eq!(t.sends(), [ok(1, SEND, 8), failed(2, WcStatus::BadRespErr)], "{bad}");
        assert_eq!(t.answers.load_u64(0), Ok(0));
    }
}

/// REQ-31
#[test]
fn outstanding_reads_and_atomics_stay_within_max_rd_atomic() {
    let mut t = Script::requester(Link { rd_atomic: 2, ..rts_qp() });
    t.read(1, 300);
    t.fetch_add(2, 1);
    t.read(3, 8);
    t.send(4, 8);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=300");
    t.tx(0, "FETCH_ADD psn=7 ackreq va=0x8000 rkey=0x00000100 add=0x1");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.quiet(1);
    t.rx(2, "READ_RESPONSE_LAST psn=6 msn=1 len=44");
    t.tx(2, "READ_REQUEST psn=8 ackreq va=0x8000 rkey=0x00000100 dmalen=8");
    t.tx(2, "SEND_ONLY psn=9 ackreq len=8");
    assert_eq!(t.sends(), [ok(1, READ, 300)]);
}

/// REQ-31: retries neither count requests twice nor lose one.
#[test]
fn count_of_outstanding_reads_survives_a_retry() {
    let mut t = Script::requester(Link { rd_atomic: 2, ..rts_qp() });
    for wr_id in 1..5 {
        t.fetch_add(wr_id, wr_id);
    }
    t.tx(0, "FETCH_ADD psn=5 ackreq va=0x8000 rkey=0x00000100 add=0x1");
    t.tx(0, "FETCH_ADD psn=6 ackreq va=0x8000 rkey=0x00000100 add=0x2");
    t.tx(1049, "FETCH_ADD psn=5 ackreq va=0x8000 rkey=0x00000100 add=0x1");
    // The response to the first is late. The second was not retransmitted yet.
    t.rx(1049, "ATOMIC_ACK psn=5 msn=1 value=0x0");
    t.tx(1049, "FETCH_ADD psn=6 ackreq va=0x8000 rkey=0x00000100 add=0x2");
    t.tx(1049, "FETCH_ADD psn=7 ackreq va=0x8000 rkey=0x00000100 add=0x3");
    t.quiet(1050);
    t.rx(1050, "ATOMIC_ACK psn=6 msn=2 value=0x0");
    t.tx(1050, "FETCH_ADD psn=8 ackreq va=0x8000 rkey=0x00000100 add=0x4");
    assert_eq!(t.sends(), [ok(1, ADD, 8), ok(2, ADD, 8)]);
}

/// REQ-32
#[test]
fn reads_without_max_rd_atomic_are_refused() {
    let mut t = Script::requester(Link { rd_atomic: 0, ..rts_qp() });
    let sges = [sge(&t.answers, 0, 8)];
    let read = request(1, SendOp::Read { from: REMOTE }, &sges);
    assert_eq!(t.post(read), Err(PostError::NoReads));
    let add = request(1, SendOp::FetchAdd { at: REMOTE, add: 1 }, &sges);
    assert_eq!(t.post(add), Err(PostError::NoReads));
}

/// REQ-32: kernel rxe accepts the attribute, and its send queue stalls.
#[test]
fn outstanding_reads_stay_counted_until_answered() {
    let none = QpAttr { max_rd_atomic: Some(0), ..QpAttr::to(QpState::Sqd) };
    let mut t = Script::requester(rts_qp());
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
    t.read(1, 8);
    t.fetch_add(2, 1);
    t.send(3, 8);
    assert_eq!(t.modify(none), Err(ModifyError::ReadsPosted { posted: 2 }));
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=8");
    t.tx(0, "FETCH_ADD psn=6 ackreq va=0x8000 rkey=0x00000100 add=0x1");
    t.tx(0, "SEND_ONLY psn=7 ackreq len=8");
    t.rx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    t.rx(1, "ATOMIC_ACK psn=6 msn=2 value=0x0");
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    t.rx(2, "ACK psn=7 msn=3");
    assert_eq!(t.sends(), [ok(1, READ, 8), ok(2, ADD, 8), ok(3, SEND, 8)]);
    assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
    assert_eq!(t.modify(none), Ok(()));
}

/// REQ-33
#[test]
fn fence_waits_for_earlier_reads_and_atomics() {
    let fenced = SendFlags::SIGNALED | SendFlags::FENCE;
    let mut t = Script::requester(rts_qp());
    t.read(1, 8);
    t.write(2, 8);
    t.fetch_add(3, 1);
    t.post_flags(4, SendOp::Send, 8, fenced);
    t.send(5, 8);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=8");
    t.tx(0, "WRITE_ONLY psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    t.tx(0, "FETCH_ADD psn=7 ackreq va=0x8000 rkey=0x00000100 add=0x1");
    t.rx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    t.quiet(1);
    t.rx(2, "ATOMIC_ACK psn=7 msn=3 value=0x0");
    t.tx(2, "SEND_ONLY psn=8 ackreq len=8");
    t.tx(2, "SEND_ONLY psn=9 ackreq len=8");
    assert_eq!(t.sends(), [ok(1, READ, 8), ok(2, WRITE, 8), ok(3, ADD, 8)]);
}

/// REQ-33
#[test]
fn fence_does_not_wait_for_sends_and_writes() {
    let fenced = SendFlags::SIGNALED | SendFlags::FENCE;
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.write(2, 8);
    t.post_flags(3, SendOp::Read { from: REMOTE }, 8, fenced);
    assert_eq!(t.all(0).len(), 3);
}

/// REQ-33
#[test]
fn fence_holds_through_a_retry() {
    let fenced = SendFlags::SIGNALED | SendFlags::FENCE;
    let mut t = Script::requester(rts_qp());
    t.read(1, 600);
    t.post_flags(2, SendOp::Write { to: REMOTE }, 8, fenced);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(1050, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=344");
    t.quiet(1060);
    t.rx(1060, "READ_RESPONSE_FIRST psn=6 msn=1 len=256");
    t.quiet(1061);
    t.rx(1061, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    t.tx(1061, "WRITE_ONLY psn=8 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    assert_eq!(t.sends(), [ok(1, READ, 600)]);
}

/// REQ-36
#[test]
fn completions_arrive_in_posting_order() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    // The SEND is acknowledged first; it does not complete before the READ.
    t.rx(1, "ACK psn=6 msn=2");
    assert_eq!(t.sends(), []);
    t.rx(1, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    t.rx(1, "ACK psn=6 msn=2");
    assert_eq!(t.sends(), [ok(1, READ, 8), ok(2, SEND, 8)]);
}

/// READs request at most as much as the receive buffer holds: here 8 packets of 256 bytes.
#[test]
fn long_read_is_split_to_fit_the_receive_buffer() {
    let link = Link { rd_atomic: 1, ..rts_qp() };
    let mut t = Script::with(link, |config| config.receive_buffer = 16 << 10);
    t.read(1, 5000);
    t.send(2, 8);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=2048");
    t.quiet(1);
    answer(&mut t, 1, 5, 2048);
    t.tx(1, "READ_REQUEST psn=13 ackreq va=0x8800 rkey=0x00000100 dmalen=2048");
    t.quiet(2);
    answer(&mut t, 2, 13, 2048);
    t.tx(2, "READ_REQUEST psn=21 ackreq va=0x9000 rkey=0x00000100 dmalen=904");
    t.tx(2, "SEND_ONLY psn=25 ackreq len=8");
    assert_eq!(t.sends(), []);
    answer(&mut t, 3, 21, 904);
    assert_eq!(t.sends(), [ok(1, READ, 5000)]);
    let packets: Vec<_> =
        (5..24).flat_map(|psn| pattern(psn, 256)).chain(pattern(24, 136)).collect();
    assert_eq!(t.answer(5000), packets);
}

/// Delivers the response to a READ request of `len` bytes, packet by packet.
fn answer(t: &mut Script, us: u64, first: u32, len: usize) {
    let packets = len.div_ceil(256).max(1);
    for (psn, index) in (first..).zip(0..packets) {
        let len = if index + 1 == packets { len - 256 * index } else { 256 };
        let line = match (index == 0, index + 1 == packets) {
            (true, true) => format!("READ_RESPONSE_ONLY psn={psn} msn=1 len={len}"),
            (true, false) => format!("READ_RESPONSE_FIRST psn={psn} msn=1 len={len}"),
            (false, false) => format!("READ_RESPONSE_MIDDLE psn={psn} len={len}"),
            (false, true) => format!("READ_RESPONSE_LAST psn={psn} msn=1 len={len}"),
        };
        t.rx(us, &line);
    }
}

/// Each request covers a quarter of the receive buffer, so the next one leaves before the buffer is empty.
#[test]
fn several_requests_of_a_long_read_are_outstanding() {
    let mut t = Script::with(rts_qp(), |config| config.receive_buffer = 16 << 10);
    t.read(1, 5000);
    for (psn, va) in [(5, 0x8000), (7, 0x8200), (9, 0x8400), (11, 0x8600)] {
        t.tx(0, &format!("READ_REQUEST psn={psn} ackreq va={va:#x} rkey=0x00000100 dmalen=512"));
    }
    t.quiet(1);
    answer(&mut t, 1, 5, 512);
    t.tx(1, "READ_REQUEST psn=13 ackreq va=0x8800 rkey=0x00000100 dmalen=512");
    t.quiet(2);
}

/// REQ-14, REQ-16: in the second request of a split READ.
#[test]
fn gap_in_a_later_part_of_a_long_read_is_requested_there() {
    let link = Link { rd_atomic: 1, ..rts_qp() };
    let mut t = Script::with(link, |config| config.receive_buffer = 16 << 10);
    t.read(1, 5000);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=2048");
    answer(&mut t, 1, 5, 2048);
    t.tx(1, "READ_REQUEST psn=13 ackreq va=0x8800 rkey=0x00000100 dmalen=2048");
    t.rx(2, "READ_RESPONSE_FIRST psn=13 msn=2 len=256");
    t.rx(2, "READ_RESPONSE_MIDDLE psn=15 len=256");
    t.tx(2, "READ_REQUEST psn=14 ackreq va=0x8900 rkey=0x00000100 dmalen=1792");
    answer(&mut t, 3, 14, 1792);
    t.tx(3, "READ_REQUEST psn=21 ackreq va=0x9000 rkey=0x00000100 dmalen=904");
    // A response beyond the end of its request is invalid.
    t.rx(4, "READ_RESPONSE_FIRST psn=21 msn=3 len=256");
    t.rx(4, "READ_RESPONSE_LAST psn=22 msn=3 len=256");
    assert_eq!(t.sends(), [failed(1, WcStatus::BadRespErr)]);
}
