//! Error recovery of the RC requester, packet by packet: NAKs, RNR NAKs, and timeouts.
//!
//! The first PSN is 5, the path MTU is 256, four READs or atomics may be outstanding, the peer's memory is `va=0x8000
//! rkey=0x00000100`, and the ACK timeout is 1048.576 µs.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::Link;
use crate::support::script::{Script, Sent, failed, ok, rts_qp};
use softroce::engine::{QpAttr, QpState};
use softroce::time::RnrTimer;
use softroce::transport::work::{WcOpcode, WcStatus};

const SEND: WcOpcode = WcOpcode::Send;
const WRITE: WcOpcode = WcOpcode::RdmaWrite;
const READ: WcOpcode = WcOpcode::RdmaRead;

fn lines(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(Sent::line).collect()
}

// ---- NAKs ----

/// REQ-18, REQ-19
#[test]
fn sequence_nak_acknowledges_earlier_packets_and_the_rest_is_retransmitted() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.send(2, 600);
    t.write(3, 8);
    t.read(4, 300);
    t.fetch_add(5, 9);
    t.send(6, 8);
    let first = t.all(0);
    t.rx(1, "NAK_PSN psn=7 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    let again = t.all(1);
    assert_eq!(lines(&again), lines(&first[2..]));
    for (a, b) in again.iter().zip(&first[2..]) {
        let len = a.bytes.len() - 4;
        assert_eq!(a.bytes[..len], b.bytes[..len], "all but the ICRC, which covers the place");
    }
    t.leave();
}

/// REQ-19: retransmitted packets leave alone, so they do not depend on the segmentation of bursts.
#[test]
fn retransmitted_packets_leave_alone() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 1000);
    assert_eq!(t.all(0).last().unwrap().burst, 1);
    t.rx(1, "NAK_PSN psn=5 msn=0");
    let bursts: Vec<_> = t.all(1).iter().map(|sent| sent.burst).collect();
    assert_eq!(bursts, [2, 3, 4, 5]);
    assert_eq!(t.engine.counters().retransmitted, 4);
}

/// REQ-19: retransmissions may leave in bursts on paths where packets behind others have arrived.
#[test]
fn retransmitted_packets_leave_in_bursts_where_bursts_arrive() {
    let mut t = Script::requester(rts_qp());
    let bursts = |sent: Vec<Sent>| sent.iter().map(|sent| sent.burst).collect::<Vec<_>>();
    t.send(1, 1500);
    assert_eq!(bursts(t.all(0)), [1; 6]);
    t.rx(1, "NAK_PSN psn=7 msn=0");
    assert_eq!(bursts(t.all(1)), [2; 4]);
    // The packet behind the first one has not arrived.
    t.rx(2, "NAK_PSN psn=8 msn=0");
    assert_eq!(bursts(t.all(2)), [3, 4, 5]);
    t.rx(3, "ACK psn=10 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 1500)]);
}

/// REQ-18
#[test]
fn duplicate_sequence_nak_is_ignored() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "NAK_PSN psn=5 msn=0");
    assert_eq!(t.all(1).len(), 2);
    t.rx(2, "NAK_PSN psn=5 msn=0");
    t.quiet(2);
    // Another gap starts another recovery.
    t.rx(3, "NAK_PSN psn=6 msn=1");
    t.tx(3, "SEND_ONLY psn=6 ackreq len=8");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// REQ-18: new requests wait until the old ones are retransmitted.
#[test]
fn new_request_follows_retransmitted_packets() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 600);
    assert_eq!(t.all(0).len(), 3);
    t.rx(1, "NAK_PSN psn=6 msn=0");
    t.send(2, 8);
    t.tx(1, "SEND_MIDDLE psn=6 len=256");
    t.tx(1, "SEND_LAST psn=7 ackreq len=88");
    t.tx(1, "SEND_ONLY psn=8 ackreq len=8");
}

/// REQ-20
#[test]
fn write_resumes_in_its_middle_without_a_second_reth() {
    let mut t = Script::requester(rts_qp());
    t.write(1, 600);
    let data = t.sent_data(0..600);
    t.tx(0, "WRITE_FIRST psn=5 va=0x8000 rkey=0x00000100 dmalen=600 len=256");
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "NAK_PSN psn=6 msn=0");
    assert_eq!(t.tx(1, "WRITE_MIDDLE psn=6 len=256").payload(), &data[256..512]);
    assert_eq!(t.tx(1, "WRITE_LAST psn=7 ackreq len=88").payload(), &data[512..]);
    // From the start, it is the same WRITE again.
    t.rx(2, "ACK psn=7 msn=1");
    t.write(2, 600);
    assert_eq!(t.all(2).len(), 3);
    t.rx(3, "NAK_PSN psn=8 msn=1");
    t.tx(3, "WRITE_FIRST psn=8 va=0x8000 rkey=0x00000100 dmalen=600 len=256");
    t.tx(3, "WRITE_MIDDLE psn=9 len=256");
    t.tx(3, "WRITE_LAST psn=10 ackreq len=88");
    assert_eq!(t.sends(), [ok(1, WRITE, 600)]);
}

/// REQ-18: a late acknowledgement stops the retransmission.
#[test]
fn late_ack_stops_the_retransmission() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 600);
    t.send(2, 600);
    assert_eq!(t.all(0).len(), 6);
    t.rx(1, "NAK_PSN psn=5 msn=0");
    t.tx(1, "SEND_FIRST psn=5 len=256");
    t.rx(1, "ACK psn=8 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 600)]);
    t.tx(1, "SEND_MIDDLE psn=9 len=256");
    t.tx(1, "SEND_LAST psn=10 ackreq len=88");
    t.rx(1, "ACK psn=10 msn=2");
    assert_eq!(t.sends(), [ok(2, SEND, 600)]);
    t.quiet(100_000);
}

/// REQ-21, REQ-22
#[test]
fn terminal_nak_fails_its_request_and_flushes_the_rest() {
    for (nak, status) in [
        ("NAK_INV psn=7 msn=1", WcStatus::RemInvReqErr),
        ("NAK_ACCESS psn=7 msn=1", WcStatus::RemAccessErr),
        ("NAK_OP psn=7 msn=1", WcStatus::RemOpErr),
        ("NAK_RD psn=7 msn=1", WcStatus::RemInvRdReqErr),
        // REQ-22: a reserved code fails the request too.
        ("NAK_5 psn=7 msn=1", WcStatus::RemOpErr),
        ("NAK_31 psn=7 msn=1", WcStatus::RemOpErr),
    ] {
        let mut t = Script::requester(rts_qp());
        t.post_recv(8);
        t.send(1, 8);
        t.write(2, 600);
        t.read(3, 8);
        assert_eq!(t.all(0).len(), 5);
        t.send(4, 8);
        t.rx(0, nak);
        let ends = [
            ok(1, SEND, 8),
            failed(2, status),
            failed(3, WcStatus::WrFlushErr),
            failed(4, WcStatus::WrFlushErr),
        ];
        assert_eq!(t.sends(), ends, "{nak}");
        assert_eq!(t.recvs(), [failed(1, WcStatus::WrFlushErr)]);
        assert_eq!(t.state(), QpState::Err);
        t.quiet(100_000);
    }
}

/// REQ-21: the response of an earlier READ was lost. The failed peer will not send it, but this shows only at the
/// next request.
#[test]
fn terminal_nak_after_a_lost_response_does_not_complete_the_read() {
    let mut t = Script::requester(Link { retry_cnt: 1, ..rts_qp() });
    t.read(1, 8);
    t.write(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "NAK_ACCESS psn=6 msn=1");
    t.tx(1, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=8");
    t.tx(1, "WRITE_ONLY psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    t.at(1050);
    assert_eq!(t.sends(), [failed(1, WcStatus::RetryExcErr), failed(2, WcStatus::WrFlushErr)]);
}

// ---- RNR ----

/// REQ-23
#[test]
fn rnr_nak_is_retried_after_its_timer() {
    for (timer, us) in
        [("0.01ms", 10), ("0.64ms", 640), ("491.52ms", 491_520), ("655.36ms", 655_360)]
    {
        let mut t = Script::requester(rts_qp());
        t.send(1, 300);
        t.send(2, 8);
        assert_eq!(t.all(0).len(), 3);
        t.rx(1, &format!("RNR_NAK psn=5 msn=0 timer={timer}"));
        t.quiet(us);
        t.tx(us + 1, "SEND_FIRST psn=5 len=256");
        t.tx(us + 1, "SEND_LAST psn=6 ackreq len=44");
        t.tx(us + 1, "SEND_ONLY psn=7 ackreq len=8");
    }
}

/// REQ-23: earlier packets are acknowledged.
#[test]
fn rnr_nak_acknowledges_earlier_packets() {
    let mut t = Script::requester(rts_qp());
    t.write(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "RNR_NAK psn=6 msn=1 timer=0.64ms");
    assert_eq!(t.sends(), [ok(1, WRITE, 8)]);
    t.tx(641, "SEND_ONLY psn=6 ackreq len=8");
}

/// REQ-23: new requests wait too.
#[test]
fn requester_sends_nothing_during_the_rnr_timer() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.write(2, 8);
    t.read(3, 8);
    t.quiet(640);
    assert_eq!(t.all(641).len(), 3);
}

/// REQ-24
#[test]
fn rnr_retries_are_counted() {
    for rnr_retry in [0, 1, 6] {
        let mut t = Script::requester(Link { rnr_retry, ..rts_qp() });
        t.send(1, 8);
        t.send(2, 8);
        let mut us = 0;
        assert_eq!(t.all(us).len(), 2);
        for _ in 0..rnr_retry {
            t.rx(us, "RNR_NAK psn=5 msn=0 timer=0.01ms");
            us += 10;
            t.tx(us, "SEND_ONLY psn=5 ackreq len=8");
            t.tx(us, "SEND_ONLY psn=6 ackreq len=8");
        }
        assert_eq!(t.sends(), []);
        t.rx(us, "RNR_NAK psn=5 msn=0 timer=0.01ms");
        let ends = [failed(1, WcStatus::RnrRetryExcErr), failed(2, WcStatus::WrFlushErr)];
        assert_eq!(t.sends(), ends, "{rnr_retry}");
        assert_eq!(t.state(), QpState::Err);
    }
}

/// REQ-24
#[test]
fn rnr_retry_of_7_is_unlimited() {
    let mut t = Script::requester(Link { rnr_retry: 7, retry_cnt: 0, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    for us in (0..10_000).step_by(10) {
        t.rx(us, "RNR_NAK psn=5 msn=0 timer=0.01ms");
        t.tx(us + 10, "SEND_ONLY psn=5 ackreq len=8");
    }
    t.rx(10_000, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// REQ-25
#[test]
fn ack_timer_stops_during_the_rnr_timer() {
    // 8.192 µs, without a spare retry.
    let mut t = Script::requester(Link { timeout: 1, retry_cnt: 0, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(8, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.quiet(647);
    t.tx(648, "SEND_ONLY psn=5 ackreq len=8");
    t.at(656);
    assert_eq!(t.sends(), [], "it has its whole time again");
    t.at(657);
    assert_eq!(t.sends(), [failed(1, WcStatus::RetryExcErr)]);
}

/// REQ-26
#[test]
fn sequence_nak_after_an_rnr_nak_is_ignored() {
    let mut t = Script::requester(Link { rnr_retry: 2, retry_cnt: 0, ..rts_qp() });
    t.send(1, 8);
    t.send(2, 8);
    let mut us = 0;
    assert_eq!(t.all(us).len(), 2);
    for _ in 0..2 {
        t.rx(us + 1, "RNR_NAK psn=5 msn=0 timer=0.64ms");
        t.rx(us + 2, "NAK_PSN psn=5 msn=0");
        t.quiet(us + 640);
        us += 641;
        t.tx(us, "SEND_ONLY psn=5 ackreq len=8");
        t.tx(us, "SEND_ONLY psn=6 ackreq len=8");
    }
    t.rx(us, "ACK psn=6 msn=2");
    assert_eq!(t.sends(), [ok(1, SEND, 8), ok(2, SEND, 8)]);
}

/// REQ-26: in the other order.
#[test]
fn rnr_nak_after_a_sequence_nak_starts_the_timer() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "NAK_PSN psn=5 msn=0");
    t.tx(1, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.quiet(640);
    t.tx(641, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(641, "SEND_ONLY psn=6 ackreq len=8");
}

/// REQ-23: a duplicate of the RNR NAK does not restart the timer.
#[test]
fn duplicate_rnr_nak_counts_once() {
    let mut t = Script::requester(Link { rnr_retry: 1, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.rx(100, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.tx(641, "SEND_ONLY psn=5 ackreq len=8");
}

/// REQ-30: after a late duplicate of an RNR NAK, the acknowledgement ends the wait and resets the retry counts.
#[test]
fn ack_ends_the_rnr_wait() {
    let mut t = Script::requester(Link { rnr_retry: 2, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.tx(641, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(642, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.send(2, 8);
    t.quiet(700);
    t.rx(700, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    t.tx(700, "SEND_ONLY psn=6 ackreq len=8");
    for us in [800, 810] {
        t.rx(us, "RNR_NAK psn=6 msn=1 timer=0.01ms");
        t.tx(us + 10, "SEND_ONLY psn=6 ackreq len=8");
    }
    t.rx(900, "ACK psn=6 msn=2");
    assert_eq!(t.sends(), [ok(2, SEND, 8)]);
}

// ---- timers and retry counts ----

/// REQ-27
#[test]
fn lost_packet_without_a_timeout_blocks_forever() {
    let mut t = Script::requester(Link { timeout: 0, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.quiet(1_000_000_000_000);
    t.rx(1_000_000_000_000, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// REQ-07, REQ-28
#[test]
fn unacknowledged_packet_is_retransmitted_after_the_timeout() {
    for timeout in [1, 8, 14, 20] {
        let mut t = Script::requester(Link { timeout, ..rts_qp() });
        t.send(1, 300);
        assert_eq!(t.all(0).len(), 2);
        let us = (4096_u64 << timeout).div_ceil(1000);
        t.quiet(us - 1);
        t.tx(us, "SEND_FIRST psn=5 ackreq len=256");
        t.rx(us + 1, "ACK psn=5 msn=0");
        t.tx(us + 1, "SEND_LAST psn=6 ackreq len=44");
        assert_eq!(t.engine.counters().timeouts, 1);
    }
}

/// The peer may not have been scheduled, with all packets in its receive buffer, which a full retransmission would
/// overflow. One packet probes its state, and packets that have arrived are not retransmitted.
#[test]
fn timeout_retransmits_one_packet_as_a_probe() {
    let mut t = Script::requester(rts_qp());
    t.write(1, 2560);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 11);
    t.tx(1049, "WRITE_FIRST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=2560 len=256");
    t.quiet(1500);
    // One more packet per response, because the first transmission may still be in flight.
    t.rx(1500, "ACK psn=12 msn=0");
    t.tx(1500, "WRITE_MIDDLE psn=13 ackreq len=256");
    t.tx(1500, "WRITE_LAST psn=14 ackreq len=256");
    t.quiet(1501);
    t.rx(1501, "ACK psn=14 msn=1");
    t.tx(1501, "SEND_ONLY psn=15 ackreq len=8");
    t.rx(1502, "ACK psn=15 msn=2");
    assert_eq!(t.sends(), [ok(1, WRITE, 2560), ok(2, SEND, 8)]);
    assert_eq!(t.engine.counters().retransmitted, 4);
}

/// REQ-28: a later request does not restart the timer; progress does.
#[test]
fn ack_timer_runs_from_the_oldest_packet_or_the_last_progress() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    assert_eq!(t.all(0).len(), 1);
    t.at(1000);
    t.send(2, 8);
    assert_eq!(t.all(1000).len(), 1);
    t.rx(1040, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    t.quiet(2088);
    t.tx(2089, "SEND_ONLY psn=6 ackreq len=8");
}

/// REQ-28: without outstanding requests the timer stops.
#[test]
fn ack_timer_stops_when_all_packets_are_acknowledged() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    assert_eq!(t.all(0).len(), 1);
    t.rx(1, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    t.quiet(1_000_000);
    assert_eq!(t.engine.poll_timeout(), None);
    assert_eq!(t.engine.counters().timeouts, 0);
}

/// REQ-29
#[test]
fn retry_cnt_of_k_permits_k_retransmissions() {
    for retry_cnt in [0, 1, 3, 7] {
        let mut t = Script::requester(Link { retry_cnt, ..rts_qp() });
        t.send(1, 8);
        t.send(2, 8);
        assert_eq!(t.all(0).len(), 2);
        let attempt = |n: u8| (u64::from(n) * 1_048_576).div_ceil(1000);
        for n in 1..=retry_cnt {
            t.tx(attempt(n), "SEND_ONLY psn=5 ackreq len=8");
        }
        let end = attempt(retry_cnt + 1);
        t.quiet(end - 1);
        assert_eq!(t.sends(), [], "{retry_cnt}");
        t.quiet(end);
        let ends = [failed(1, WcStatus::RetryExcErr), failed(2, WcStatus::WrFlushErr)];
        assert_eq!(t.sends(), ends, "{retry_cnt}");
        assert_eq!(t.state(), QpState::Err);
        t.quiet(end * 2);
    }
}

/// REQ-29: timeouts and NAKs share one retry count.
#[test]
fn naks_without_progress_use_the_same_retry_count() {
    let mut t = Script::requester(Link { retry_cnt: 2, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "NAK_PSN psn=5 msn=0");
    t.tx(1, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(1050, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1060, "NAK_PSN psn=5 msn=0");
    assert_eq!(t.sends(), [failed(1, WcStatus::RetryExcErr)]);
}

/// The NAK has reported the loss. If the retransmission is lost too, one packet is sent after 2 ms of silence, and not only
/// after the timeout of 67 ms. That uses no retry.
#[test]
fn retransmission_after_a_nak_is_repeated_before_the_timeout() {
    let mut t = Script::requester(Link { timeout: 14, ..rts_qp() });
    for wr_id in 1..=3 {
        t.send(wr_id, 8);
    }
    assert_eq!(t.all(0).len(), 3);
    let all = [5, 6, 7].map(|psn| format!("SEND_ONLY psn={psn} ackreq len=8"));
    t.rx(1, "NAK_PSN psn=5 msn=0");
    assert_eq!(lines(&t.all(1)), all);
    for us in [2001, 6001] {
        t.quiet(us - 1);
        t.tx(us, &all[0]);
        t.quiet(us);
    }
    t.rx(6010, "ACK psn=5 msn=1");
    assert_eq!(lines(&t.all(6010)), all[1..]);
    t.rx(6020, "ACK psn=7 msn=3");
    assert_eq!(t.sends(), [1, 2, 3].map(|wr_id| ok(wr_id, SEND, 8)));
    assert_eq!((t.engine.counters().timeouts, t.engine.counters().retries), (0, 1));
    // Without a known loss the ACK timer decides alone.
    t.send(4, 8);
    t.tx(6020, "SEND_ONLY psn=8 ackreq len=8");
    t.quiet(6020 + 67_108);
    t.tx(6020 + 67_109, "SEND_ONLY psn=8 ackreq len=8");
    assert_eq!(t.engine.counters().timeouts, 1);
    t.leave();
}

/// REQ-29: with retry_cnt 0 the first NAK fails the request.
#[test]
fn first_nak_without_retries_fails_the_request() {
    let mut t = Script::requester(Link { retry_cnt: 0, ..rts_qp() });
    t.send(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "NAK_PSN psn=6 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8), failed(2, WcStatus::RetryExcErr)]);
}

/// REQ-30
#[test]
fn progress_resets_both_retry_counts() {
    let mut t = Script::requester(Link { retry_cnt: 1, rnr_retry: 1, ..rts_qp() });
    t.send(1, 2560);
    assert_eq!(t.all(0).len(), 10);
    let mut us = 0;
    // Each NAK advances by one packet: 9 retries with retry_cnt 1.
    for psn in 6..15 {
        us += 10;
        t.rx(us, &format!("NAK_PSN psn={psn} msn=0"));
        assert!(!t.all(us).is_empty(), "from {psn} on");
    }
    t.rx(us, "ACK psn=14 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 2560)]);
    for psn in 15..20 {
        t.send(2, 8);
        us += 10;
        t.tx(us - 10, &format!("SEND_ONLY psn={psn} ackreq len=8"));
        t.rx(us, &format!("RNR_NAK psn={psn} msn=1 timer=0.01ms"));
        us += 10;
        t.tx(us, &format!("SEND_ONLY psn={psn} ackreq len=8"));
        us += 1049;
        t.tx(us, &format!("SEND_ONLY psn={psn} ackreq len=8"));
        t.rx(us, &format!("ACK psn={psn} msn=2"));
        assert_eq!(t.sends(), [ok(2, SEND, 8)]);
    }
}

/// RTS to RTS is no progress: timers continue unchanged.
#[test]
fn modified_attributes_keep_running_timers() {
    let attr = || QpAttr { min_rnr_timer: RnrTimer::new(5), ..QpAttr::to(QpState::Rts) };
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.quiet(1000);
    t.modify(attr()).unwrap();
    t.tx(1049, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1050, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.modify(attr()).unwrap();
    t.quiet(1689);
    t.tx(1690, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1691, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// REQ-24, REQ-29: changing another attribute is no progress.
#[test]
fn modified_attributes_keep_retry_counts() {
    let attr = || QpAttr { min_rnr_timer: RnrTimer::new(5), ..QpAttr::to(QpState::Rts) };
    let mut t = Script::requester(Link { retry_cnt: 1, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.modify(attr()).unwrap();
    t.tx(1049, "SEND_ONLY psn=5 ackreq len=8");
    t.modify(attr()).unwrap();
    t.quiet(10_000);
    assert_eq!(t.sends(), [failed(1, WcStatus::RetryExcErr)]);

    let mut t = Script::requester(Link { rnr_retry: 1, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(10, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.modify(attr()).unwrap();
    t.tx(650, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(660, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    assert_eq!(t.sends(), [failed(1, WcStatus::RnrRetryExcErr)]);
}

/// REQ-29: an RNR NAK is a response, so earlier losses do not count any more.
#[test]
fn rnr_nak_resets_the_retry_count() {
    let mut t = Script::requester(Link { retry_cnt: 1, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    for round in 0..3 {
        // 1048.576 µs until the retransmission, and 640 µs for the RNR timer.
        let at = round * 2000;
        t.tx(at + 1049, "SEND_ONLY psn=5 ackreq len=8");
        t.rx(at + 1360, "RNR_NAK psn=5 msn=0 timer=0.64ms");
        t.tx(at + 2000, "SEND_ONLY psn=5 ackreq len=8");
    }
    t.rx(6001, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// REQ-30: every packet of a response is progress.
#[test]
fn slow_response_is_progress() {
    let mut t = Script::requester(Link { retry_cnt: 0, ..rts_qp() });
    t.read(1, 600);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
    t.rx(1000, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(2000, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.rx(3000, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    assert_eq!(t.sends(), [ok(1, READ, 600)]);
}

#[test]
fn err_stops_the_timers() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(t.sends(), [failed(1, WcStatus::WrFlushErr)]);
    t.quiet(1_000_000);
    assert_eq!((t.engine.counters().timeouts, t.engine.poll_timeout()), (0, None));
}
