//! Packets behind a lost one: the responder buffers them, and the requester retransmits only the lost one if its peer
//! buffers them.

#![allow(clippy::unwrap_used, reason = "test code")]

use crate::support::pattern;
use crate::support::script::{Script, Sent, ok, rts_qp};
use softroce::engine::QpState;
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::WcOpcode;

const SEND: WcOpcode = WcOpcode::Send;

fn write(psn: u32) -> String {
    format!("WRITE_ONLY psn={psn} ackreq va={:#x} rkey=mem dmalen=8 len=8", 0x1000 + 8 * psn)
}

fn word(t: &Script, psn: usize) -> u64 {
    t.mem.load_u64(8 * psn).unwrap()
}

// ---- the responder ----

#[test]
fn buffered_packets_execute_in_order_after_the_missing_one() {
    let mut t = Script::responder(rts_qp());
    for psn in [6, 8, 7] {
        t.rx(0, &write(psn));
    }
    t.tx(0, "NAK_PSN psn=5 msn=0");
    assert_eq!([5, 6, 7, 8].map(|psn| word(&t, psn)), [0; 4]);
    t.rx(1, &write(5));
    t.tx(1, "ACK psn=8 msn=4");
    assert!([5, 6, 7, 8].iter().all(|psn| word(&t, *psn) != 0));
    let counters = t.engine.counters();
    assert_eq!((counters.kept_ahead, counters.out_of_sequence), (3, 1));
    assert_eq!(t.dropped(DropReason::OutOfSequence), 0);
}

/// C9-105: to the requester it looks like lost acknowledgements.
#[test]
fn retransmission_of_a_buffered_packet_is_a_duplicate() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=6 ackreq len=8");
    t.tx(0, "NAK_PSN psn=5 msn=0");
    t.rx(1, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(1, "ACK psn=6 msn=2");
    t.rx(1, "SEND_ONLY psn=6 ackreq len=8");
    t.tx(1, "ACK psn=6 msn=2");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 8), ok(2, WcOpcode::Recv, 8)]);
}

/// RSP-02: a packet that is buffered during a gap causes no second NAK.
#[test]
fn message_whose_middle_arrived_last_is_complete() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(1024);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_MIDDLE psn=7 len=256");
    t.tx(0, "NAK_PSN psn=6 msn=0");
    t.rx(1, "SEND_LAST psn=8 ackreq len=88");
    t.quiet(2);
    t.rx(3, "SEND_MIDDLE psn=6 len=256");
    t.tx(3, "ACK psn=8 msn=1");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 856)]);
    let sent = [(5, 256), (6, 256), (7, 256), (8, 88)].map(|(psn, len)| pattern(psn, len));
    assert_eq!(t.received(1, 856), sent.concat());
}

/// RSP-02: one NAK per gap.
#[test]
fn second_gap_sends_a_nak_when_a_packet_follows_it() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, &write(6));
    t.rx(0, &write(8));
    t.tx(0, "NAK_PSN psn=5 msn=0");
    t.rx(1, &write(5));
    t.tx(1, "ACK psn=6 msn=2");
    t.rx(2, &write(9));
    t.tx(2, "NAK_PSN psn=7 msn=2");
    t.rx(3, &write(7));
    t.tx(3, "ACK psn=9 msn=5");
}

/// They would be answered twice, now and after the retransmission.
#[test]
fn reads_and_atomics_are_not_buffered() {
    for request in [
        "READ_REQUEST psn=6 ackreq va=0x1000 rkey=mem dmalen=8",
        "FETCH_ADD psn=6 ackreq va=0x1000 rkey=mem add=0x1",
    ] {
        let mut t = Script::responder(rts_qp());
        t.rx(0, request);
        t.tx(0, "NAK_PSN psn=5 msn=0");
        t.rx(1, request);
        t.rx(1, &write(5));
        t.tx(1, "ACK psn=5 msn=1");
        t.quiet(100);
        assert_eq!((word(&t, 0), t.dropped(DropReason::OutOfSequence)), (0, 1), "{request}");
    }
}

#[test]
fn buffered_send_without_a_receive_causes_an_rnr_nak() {
    let mut t = Script::responder(rts_qp());
    t.post_recv(64);
    for psn in [6, 7] {
        t.rx(0, &format!("SEND_ONLY psn={psn} ackreq len=8"));
    }
    t.tx(0, "NAK_PSN psn=5 msn=0");
    t.rx(1, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(1, "RNR_NAK psn=6 msn=1 timer=0.64ms");
    t.post_recv(64);
    t.post_recv(64);
    t.rx(700, "SEND_ONLY psn=6 ackreq len=8");
    // Packets behind it are retransmitted.
    t.tx(700, "ACK psn=6 msn=2");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 8), ok(2, WcOpcode::Recv, 8)]);
}

#[test]
fn buffered_write_with_an_invalid_key_fails_in_order() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, "WRITE_ONLY psn=6 ackreq va=0x1000 rkey=0x12345678 dmalen=8 len=8");
    t.rx(0, &write(7));
    t.tx(0, "NAK_PSN psn=5 msn=0");
    assert_eq!(t.state(), QpState::Rts);
    t.rx(1, &write(5));
    t.tx(1, "NAK_ACCESS psn=6 msn=1");
    assert_eq!((t.state(), word(&t, 7)), (QpState::Err, 0));
    assert_eq!(t.events(), [AsyncEvent::QpAccessErr(t.qpn)]);
    t.quiet(1000);
}

#[test]
fn corrupt_packet_is_not_buffered() {
    let mut t = Script::responder(rts_qp());
    t.rx(0, &write(6));
    t.tx(0, "NAK_PSN psn=5 msn=0");
    let mut packet = t.packet(&write(7));
    *packet.last_mut().unwrap() ^= 0x10;
    t.rx_bytes(1, &packet);
    t.rx(2, &write(5));
    t.tx(2, "ACK psn=6 msn=2");
    assert_eq!(t.dropped(DropReason::BadIcrc), 1);
}

/// Packets that do not fit are dropped after their headers are parsed.
#[test]
fn reorder_buffer_is_limited() {
    let mut t = Script::with(rts_qp(), |config| config.reorder_buffer = 300);
    for psn in [6, 7, 8, 9] {
        t.rx(0, &write(psn));
    }
    t.tx(0, "NAK_PSN psn=5 msn=0");
    t.rx(1, &write(5));
    t.tx(1, "ACK psn=7 msn=3");
    assert_eq!((t.engine.counters().kept_ahead, t.dropped(DropReason::OutOfSequence)), (2, 2));
    t.rx(2, &write(9));
    t.tx(2, "NAK_PSN psn=8 msn=3");
    t.rx(3, &write(8));
    t.tx(3, "ACK psn=9 msn=5");
}

// ---- the requester ----

/// Creates a requester that has lost a packet three times and has retransmitted the last one, alone or not. Its
/// messages have ten packets, and the next starts with PSN 15.
fn after_three_losses(answer: &str) -> Script {
    let mut t = Script::requester(rts_qp());
    t.send(1, 2560);
    assert_eq!(t.all(0).len(), 10);
    for (psn, again) in [(6, 9), (7, 8), (8, 1)] {
        t.rx(psn, &format!("NAK_PSN psn={psn} msn=0"));
        assert_eq!(t.all(psn).len(), again, "{psn}");
    }
    t.rx(9, answer);
    t
}

fn psns(t: &mut Script, us: u64) -> Vec<u32> {
    let psn = |line: String| {
        let from = line.split_once("psn=").unwrap().1;
        from.split(' ').next().unwrap().parse().unwrap()
    };
    t.all(us).iter().map(|sent| psn(sent.line())).collect()
}

#[test]
fn peer_with_a_reorder_buffer_receives_only_the_lost_packet() {
    let mut t = after_three_losses("ACK psn=14 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 2560)]);
    t.send(2, 2560);
    assert_eq!(t.all(10).len(), 10);
    t.rx(11, "NAK_PSN psn=16 msn=1");
    // Two times as a single packet, because no later packet would reveal its loss.
    let again = t.all(11);
    assert_eq!(
        again.iter().map(Sent::line).collect::<Vec<_>>(),
        ["SEND_MIDDLE psn=16 ackreq len=256"; 2]
    );
    assert_ne!(again[0].burst, again[1].burst);
    t.quiet(12);
    // Another packet is missing; it leaves with the next one.
    t.rx(13, "ACK psn=18 msn=1");
    assert_eq!(psns(&mut t, 13), [19, 20]);
    t.rx(14, "ACK psn=24 msn=2");
    assert_eq!(t.sends(), [ok(2, SEND, 2560)]);
    assert_eq!(t.engine.counters().retransmitted, 9 + 8 + 1 + 4);
}

/// After one attempt, the requester retransmits all packets for some losses.
#[test]
fn peer_without_a_reorder_buffer_receives_all_packets_again() {
    let mut t = after_three_losses("ACK psn=8 msn=0");
    assert_eq!(psns(&mut t, 9), [9, 10]);
    t.rx(10, "ACK psn=9 msn=0");
    assert_eq!(psns(&mut t, 10), [11, 12]);
    t.rx(11, "ACK psn=12 msn=0");
    assert_eq!(psns(&mut t, 11), [13, 14]);
    t.rx(12, "ACK psn=14 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 2560)]);
    t.send(2, 2560);
    assert_eq!(t.all(13).len(), 10);
    t.rx(14, "NAK_PSN psn=16 msn=1");
    assert_eq!(t.all(14).len(), 9);
}

/// A READ would be answered twice.
#[test]
fn lost_read_request_is_retransmitted_once() {
    let mut t = after_three_losses("ACK psn=14 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 2560)]);
    t.read(2, 256);
    t.send(3, 256);
    assert_eq!(t.all(10).len(), 2);
    t.rx(11, "NAK_PSN psn=15 msn=1");
    assert_eq!(psns(&mut t, 11), [15]);
    t.rx(12, "READ_RESPONSE_ONLY psn=15 msn=2 len=256");
    t.rx(12, "ACK psn=16 msn=3");
    assert_eq!(t.sends(), [ok(2, WcOpcode::RdmaRead, 256), ok(3, SEND, 256)]);
}

/// A missing response reveals nothing about the peer's buffer.
#[test]
fn lost_selective_retransmission_is_repeated_after_the_timeout() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 2560);
    t.all(0);
    for psn in [6, 7, 8] {
        t.rx(psn, &format!("NAK_PSN psn={psn} msn=0"));
        t.all(psn);
    }
    t.quiet(1000);
    assert_eq!(psns(&mut t, 1057), [8]);
    t.rx(1060, "ACK psn=14 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 2560)]);
    t.send(2, 2560);
    t.all(1061);
    t.rx(1062, "NAK_PSN psn=16 msn=1");
    assert_eq!(psns(&mut t, 1062), [16]);
}

/// The response that ends the retransmission shows it, before any further loss.
#[test]
fn timeout_of_a_peer_with_a_reorder_buffer_sends_one_packet_twice() {
    let mut t = after_three_losses("ACK psn=14 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 2560)]);
    t.send(2, 256);
    assert_eq!(psns(&mut t, 10), [15]);
    let again = t.all(1100);
    assert_eq!(
        again.iter().map(Sent::line).collect::<Vec<_>>(),
        ["SEND_ONLY psn=15 ackreq len=256"; 2]
    );
    assert_ne!(again[0].burst, again[1].burst);
    t.leave();
}

/// The second NAK names the next packet, so the peer has no reorder buffer.
#[test]
fn second_nak_during_selective_retransmission_sends_all_packets_again() {
    let mut t = after_three_losses("NAK_PSN psn=9 msn=0");
    assert_eq!(psns(&mut t, 9), [9, 10, 11, 12, 13, 14]);
    t.rx(10, "ACK psn=14 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 2560)]);
}
