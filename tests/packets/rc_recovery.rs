//! Transmission of an RC queue pair after timeouts, losses and late acknowledgements.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::support::qp_init;
use crate::support::script::{Script, Sent, ok, rts_qp};
use softroce::engine::QpState;
use softroce::time::Instant;
use softroce::transport::work::WcOpcode;

const SEND: WcOpcode = WcOpcode::Send;

fn lines(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(Sent::line).collect()
}

/// A pending acknowledgement leaves before all requests have left.
#[test]
fn ack_without_room_precedes_further_requests() {
    let mut t = Script::responder(rts_qp());
    for wr_id in 1..=100 {
        t.send(wr_id, 8);
    }
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
    let sent = lines(&t.all(0));
    assert_eq!(sent.len(), 101);
    // Sixty-four packets fill a burst.
    assert_eq!(sent.iter().position(|line| line.starts_with("ACK")), Some(64));
    t.leave();
}

/// REQ-16: a late response moves the resume point of the READ.
#[test]
fn read_continues_after_a_late_response() {
    let mut t = Script::requester(rts_qp());
    t.write(1, 8);
    t.read(2, 1024);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.rx(2, "READ_RESPONSE_FIRST psn=6 msn=2 len=256");
    assert_eq!(t.sends(), [ok(1, WcOpcode::RdmaWrite, 8)]);
    t.tx(2, "READ_REQUEST psn=7 ackreq va=0x8100 rkey=0x00000100 dmalen=768");
    t.rx(3, "READ_RESPONSE_FIRST psn=7 msn=2 len=256");
    t.rx(3, "READ_RESPONSE_MIDDLE psn=8 len=256");
    t.rx(3, "READ_RESPONSE_LAST psn=9 msn=2 len=256");
    assert_eq!(t.sends(), [ok(2, WcOpcode::RdmaRead, 1024)]);
}

/// After a timeout each response permits one more packet, including new requests.
#[test]
fn new_messages_leave_one_by_one_after_a_timeout() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.tx(1049, "SEND_ONLY psn=5 ackreq len=8");
    for wr_id in 3..=6 {
        t.send(wr_id, 8);
    }
    t.rx(1050, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    assert_eq!(lines(&t.all(1050)), [6, 7].map(|psn| format!("SEND_ONLY psn={psn} ackreq len=8")));
    t.leave();
}

/// Sends two messages, of which the first is lost, and go-back-N recovers both. Returns the time and the next PSN.
fn lose_one_of_two(t: &mut Script, (us, psn): (u64, u32)) -> (u64, u32) {
    let msn = psn - 5;
    for wr_id in [u64::from(msn) + 1, u64::from(msn) + 2] {
        t.send(wr_id, 8);
    }
    assert_eq!(t.all(us).len(), 2);
    t.rx(us + 1, &format!("NAK_PSN psn={psn} msn={msn}"));
    assert_eq!(t.all(us + 1).len(), 2);
    t.rx(us + 2, &format!("ACK psn={} msn={}", psn + 1, msn + 2));
    assert_eq!(t.sends().len(), 2);
    (us + 3, psn + 2)
}

/// After two losses a requester probes whether the peer keeps data.
#[test]
fn peer_that_keeps_data_receives_the_lost_packet_only() {
    let mut t = Script::requester(rts_qp());
    let next = lose_one_of_two(&mut t, (0, 5));
    let (us, psn) = lose_one_of_two(&mut t, next);
    assert_eq!((us, psn), (6, 9));
    for wr_id in 5..=7 {
        t.send(wr_id, 8);
    }
    assert_eq!(t.all(6).len(), 3);
    t.rx(7, "NAK_PSN psn=9 msn=4");
    t.tx(7, "SEND_ONLY psn=9 ackreq len=8");
    t.quiet(7);
    t.rx(8, "NAK_PSN psn=9 msn=4");
    t.quiet(8);
    t.rx(9, "ACK psn=11 msn=7");
    assert_eq!(t.sends(), [5, 6, 7].map(|wr_id| ok(wr_id, SEND, 8)));
    t.quiet(9);
    // From now on the lost packet is sent twice, because only the ACK timer would detect its loss.
    for wr_id in 8..=10 {
        t.send(wr_id, 8);
    }
    assert_eq!(t.all(9).len(), 3);
    t.rx(10, "NAK_PSN psn=12 msn=7");
    assert_eq!(lines(&t.all(10)), [12, 12].map(|psn| format!("SEND_ONLY psn={psn} ackreq len=8")));
    t.rx(11, "ACK psn=14 msn=10");
    assert_eq!(t.sends(), [8, 9, 10].map(|wr_id| ok(wr_id, SEND, 8)));
}

/// Returns the packets in flight after a loss on a path with one measured round trip, that of the first message.
/// `retransmitted` tells whether it was retransmitted before its acknowledgement.
fn in_flight_after_a_loss(retransmitted: bool) -> usize {
    let mut t = Script::requester(rts_qp());
    let mut now = 0;
    t.send(1, 8);
    assert_eq!(t.all(now).len(), 1);
    if retransmitted {
        now = 1049;
        assert_eq!(t.all(now).len(), 1);
    }
    now += 1;
    t.rx(now, "ACK psn=5 msn=1");
    // The second message is lost, and detected 100 µs later.
    t.send(2, 8);
    t.send(3, 8);
    assert_eq!(t.all(now).len(), 2);
    now += 100;
    t.rx(now, "NAK_PSN psn=6 msn=1");
    assert_eq!(t.all(now).len(), 2);
    now += 1;
    t.rx(now, "ACK psn=7 msn=3");
    for wr_id in 4..=123 {
        t.send(wr_id, 8);
    }
    let sent = t.all(now).len();
    t.leave();
    sent
}

/// Karn's rule (RFC 6298, section 3).
#[test]
fn retransmitted_packet_gives_no_round_trip_time() {
    let known = in_flight_after_a_loss(false);
    let unknown = in_flight_after_a_loss(true);
    assert!(known < 120, "{known}");
    assert_eq!(unknown, 120, "without a round trip time nothing but the window limits");
}

/// Returns the packets in flight after a loss on a path with a round trip of 100 µs and no queue. Before that, one
/// packet was lost, or `reordered`: its first copy is acknowledged 1 µs after the second has been sent.
fn in_flight_after_a_retransmission(reordered: bool) -> usize {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    assert_eq!(t.all(0).len(), 1);
    t.rx(100, "ACK psn=5 msn=1");
    t.send(2, 8);
    t.send(3, 8);
    assert_eq!(t.all(100).len(), 2);
    t.rx(200, "NAK_PSN psn=6 msn=1");
    assert_eq!(t.all(200).len(), 2);
    let now = if reordered { 201 } else { 300 };
    t.rx(now, "ACK psn=7 msn=3");
    t.send(4, 8);
    t.send(5, 8);
    assert_eq!(t.all(now).len(), 2);
    t.rx(now + 100, "NAK_PSN psn=8 msn=3");
    assert_eq!(t.all(now + 100).len(), 2);
    t.rx(now + 200, "ACK psn=9 msn=5");
    for wr_id in 6..=125 {
        t.send(wr_id, 8);
    }
    let sent = t.all(now + 200).len();
    t.leave();
    sent
}

/// A minimum RTT of 1 µs would make a queue of the round trip of 100 µs, and limit the window.
#[test]
fn reordered_packet_that_was_retransmitted_leaves_the_minimum_rtt() {
    assert_eq!([false, true].map(in_flight_after_a_retransmission), [120, 120]);
}

/// Returns the number of bursts.
fn bursts(sent: &[Sent]) -> usize {
    let mut bursts: Vec<_> = sent.iter().map(|sent| sent.burst).collect();
    bursts.dedup();
    bursts.len()
}

/// Sends eight bursts of two messages, of which only the first packets arrive, as with adapters that renumber the
/// packets. Returns the time and the next PSN.
fn lose_ends_of_eight_bursts(t: &mut Script) -> (u64, u32) {
    let (mut us, mut psn) = (0, 5);
    for n in 1..=8 {
        t.send(2 * n, 8);
        t.send(2 * n + 1, 8);
        let sent = t.all(us);
        assert_eq!((sent.len(), bursts(&sent)), (2, 1), "{n}");
        us += 1100;
        assert_eq!(t.all(us).len(), 1);
        for _ in 0..2 {
            us += 1;
            t.rx(us, &format!("ACK psn={psn} msn={}", psn - 4));
            t.all(us);
            psn += 1;
        }
        assert_eq!(t.sends(), [ok(2 * n, SEND, 8), ok(2 * n + 1, SEND, 8)]);
    }
    assert_eq!(t.engine.counters().bursts_given_up, 1);
    (us, psn)
}

/// Sends two messages, and checks that each leaves alone.
#[track_caller]
fn leave_alone(t: &mut Script, (us, psn): (u64, u32)) {
    t.send(101, 8);
    t.send(102, 8);
    let sent = t.all(us);
    assert_eq!((sent.len(), bursts(&sent)), (2, 2));
    t.rx(us + 1, &format!("ACK psn={} msn={}", psn + 1, psn - 3));
    assert_eq!(t.sends(), [ok(101, SEND, 8), ok(102, SEND, 8)]);
}

#[test]
fn bursts_that_end_in_timeouts_are_disabled() {
    let mut t = Script::requester(rts_qp());
    let next = lose_ends_of_eight_bursts(&mut t);
    leave_alone(&mut t, next);
}

/// The limit of a burst is not that of the burst before, of another queue pair.
#[test]
fn packets_leave_alone_behind_a_long_burst() {
    let mut t = Script::requester(rts_qp());
    let next = lose_ends_of_eight_bursts(&mut t);
    let alone = t.qpn;
    t.qpn = t.engine.create_qp(Instant::ZERO, qp_init(&t.link)).unwrap();
    t.bring_to(QpState::Rts);
    t.send(1, 4096);
    let sent = t.all(next.0);
    assert_eq!((sent.len(), bursts(&sent)), (16, 1));
    t.rx(next.0, "ACK psn=20 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 4096)]);
    t.qpn = alone;
    leave_alone(&mut t, next);
}

/// The peer requests the second packet of each response again, which followed the first in its burst.
#[test]
fn responses_leave_one_by_one_when_no_burst_arrives() {
    let mut t = Script::responder(rts_qp());
    for n in 0..9_u32 {
        let (us, psn) = (u64::from(n), 5 + 2 * n);
        t.rx(us, &format!("READ_REQUEST psn={psn} ackreq va=0x1000 rkey=mem dmalen=512"));
        let sent = t.all(us);
        assert_eq!((sent.len(), bursts(&sent)), (2, if n == 8 { 2 } else { 1 }), "{n}");
        if n < 8 {
            t.rx(us, &format!("READ_REQUEST psn={} ackreq va=0x1100 rkey=mem dmalen=256", psn + 1));
            assert_eq!(t.all(us).len(), 1, "{n}");
        }
    }
    assert_eq!(t.engine.counters().bursts_given_up, 1);
}

/// The peer requests the third packet of each response again, so it has received the second.
#[test]
fn responses_leave_in_bursts_when_parts_arrive() {
    let mut t = Script::responder(rts_qp());
    for n in 0..20_u32 {
        let (us, psn) = (u64::from(n), 5 + 3 * n);
        t.rx(us, &format!("READ_REQUEST psn={psn} ackreq va=0x1000 rkey=mem dmalen=768"));
        // The MIDDLE is shorter than the others, so it ends a burst.
        let sent = t.all(us);
        assert_eq!((sent.len(), bursts(&sent)), (3, 2), "{n}");
        t.rx(us, &format!("READ_REQUEST psn={} ackreq va=0x1200 rkey=mem dmalen=256", psn + 2));
        assert_eq!(t.all(us).len(), 1);
    }
    assert_eq!(t.engine.counters().bursts_given_up, 0);
}
