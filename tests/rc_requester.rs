//! The RC requester, packet by packet.
//!
//! It starts with PSN 5, the path MTU is 256, four READs or atomics may be outstanding, the peer's
//! memory is `va=0x8000 rkey=0x00000100`, and an ACK is waited for 1048.576 µs.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

mod support;

use softroce::engine::{PostError, QpState};
use softroce::ids::{Lkey, Mtu};
use softroce::mem::Access;
use softroce::net::source_port;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{
    Completion, SendData, SendFlags, SendOp, SendRequest, Sge, WcOpcode, WcStatus,
};
use softroce::wire::Datagram;
use support::script::{PEER_QPN, REMOTE, Script, Sent, bytes, failed, ok, rts_qp};
use support::{Link, pattern, request, sge};

const SEND: WcOpcode = WcOpcode::Send;
const WRITE: WcOpcode = WcOpcode::RdmaWrite;
const READ: WcOpcode = WcOpcode::RdmaRead;
const ADD: WcOpcode = WcOpcode::FetchAdd;

fn lines(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(Sent::line).collect()
}

// ---- packets ----

/// REQ-01, REQ-05, PKT-18
#[test]
fn a_message_falls_into_packets_with_consecutive_psns() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 600);
    t.write(2, 257);
    let data = t.sent_data(0..600);
    assert_eq!(t.tx(0, "SEND_FIRST psn=5 len=256").payload(), &data[..256]);
    assert_eq!(t.tx(0, "SEND_MIDDLE psn=6 len=256").payload(), &data[256..512]);
    assert_eq!(t.tx(0, "SEND_LAST psn=7 ackreq len=88").payload(), &data[512..]);
    t.tx(0, "WRITE_FIRST psn=8 va=0x8000 rkey=0x00000100 dmalen=257 len=256");
    assert_eq!(t.tx(0, "WRITE_LAST psn=9 ackreq len=1").payload(), &data[256..257]);
    t.quiet(100);
    t.rx(100, "ACK psn=9 msn=2");
    assert_eq!(t.sends(), [ok(1, SEND, 600), ok(2, WRITE, 257)]);
}

/// REQ-02
#[test]
fn psns_wrap_in_the_middle_of_a_message() {
    let mut t = Script::requester(Link { psn: [0xff_fffe, 5], ..rts_qp() });
    t.send(1, 1000);
    t.tx(0, "SEND_FIRST psn=16777214 len=256");
    t.tx(0, "SEND_MIDDLE psn=16777215 len=256");
    t.tx(0, "SEND_MIDDLE psn=0 len=256");
    t.tx(0, "SEND_LAST psn=1 ackreq len=232");
    // Lost from the wrap on.
    t.rx(1, "NAK_PSN psn=0 msn=0");
    t.tx(1, "SEND_MIDDLE psn=0 len=256");
    t.tx(1, "SEND_LAST psn=1 ackreq len=232");
    t.rx(2, "ACK psn=1 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 1000)]);
}

/// REQ-02: the answer to a READ too.
#[test]
fn psns_wrap_in_the_middle_of_an_answer() {
    let mut t = Script::requester(Link { psn: [0xff_ffff, 5], ..rts_qp() });
    t.read(1, 600);
    t.send(2, 8);
    t.tx(0, "READ_REQUEST psn=16777215 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
    t.tx(0, "SEND_ONLY psn=2 ackreq len=8");
    t.rx(1, "READ_RESPONSE_FIRST psn=16777215 msn=1 len=256");
    t.rx(1, "READ_RESPONSE_MIDDLE psn=0 len=256");
    t.rx(1, "READ_RESPONSE_LAST psn=1 msn=1 len=88");
    t.rx(1, "ACK psn=2 msn=2");
    assert_eq!(t.sends(), [ok(1, READ, 600), ok(2, SEND, 8)]);
    let answer = [pattern(0xff_ffff, 256), pattern(0, 256), pattern(1, 88)].concat();
    assert_eq!(t.answer(600), answer);
}

/// REQ-03, REQ-04
#[test]
fn a_read_takes_as_many_psns_as_its_answer_and_nothing_takes_one() {
    let mut t = Script::requester(Link { rd_atomic: 16, ..rts_qp() });
    for (wr_id, len) in [(1, 0), (2, 1), (3, 256), (4, 257), (5, 600)] {
        t.read(wr_id, len);
    }
    t.send(6, 0);
    t.write(7, 0);
    t.fetch_add(8, 1);
    t.send(9, 0);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=0");
    t.tx(0, "READ_REQUEST psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=1");
    t.tx(0, "READ_REQUEST psn=7 ackreq va=0x8000 rkey=0x00000100 dmalen=256");
    t.tx(0, "READ_REQUEST psn=8 ackreq va=0x8000 rkey=0x00000100 dmalen=257");
    t.tx(0, "READ_REQUEST psn=10 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
    t.tx(0, "SEND_ONLY psn=13 ackreq len=0");
    t.tx(0, "WRITE_ONLY psn=14 ackreq va=0x8000 rkey=0x00000100 dmalen=0 len=0");
    t.tx(0, "FETCH_ADD psn=15 ackreq va=0x8000 rkey=0x00000100 add=0x1");
    t.tx(0, "SEND_ONLY psn=16 ackreq len=0");
}

/// REQ-03, §4.1: the longest READ takes half the circle, and nothing fits behind it.
#[test]
fn a_read_of_2_to_the_31_bytes_goes_alone() {
    let mut t = Script::with(rts_qp(), |config| config.receive_buffer = 1 << 40);
    let region = t.region(64 << 20, 0x1_0000_0000, Access::LOCAL_WRITE);
    t.send(1, 8);
    t.post(request(2, SendOp::Read { from: REMOTE }, &[sge(&region, 0, 64 << 20); 32])).unwrap();
    t.send(3, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.quiet(100);
    t.rx(100, "ACK psn=5 msn=1");
    t.tx(100, "READ_REQUEST psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=2147483648");
    t.quiet(200);
    // The last packet of the answer is ahead of the first, not behind it.
    t.rx(200, "READ_RESPONSE_LAST psn=8388613 msn=2 len=256");
    t.tx(200, "READ_REQUEST psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=2147483648");
    // Less than half the circle must be outstanding with the SEND.
    t.rx(300, "READ_RESPONSE_FIRST psn=6 msn=2 len=256");
    t.quiet(300);
    t.rx(301, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.tx(301, "SEND_ONLY psn=8388614 ackreq len=8");
    t.quiet(400);
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    t.rx(400, "NAK_ACCESS psn=8388613 msn=2");
    assert_eq!(t.sends(), [failed(2, WcStatus::RemAccessErr), failed(3, WcStatus::WrFlushErr)]);
}

/// REQ-05: without an acknowledgement the window would stay closed.
#[test]
fn a_long_message_asks_for_acknowledgement_several_times_a_window() {
    for mtu in Mtu::ALL {
        let mut t = Script::requester(Link { mtu, ..rts_qp() });
        let region = t.region(1 << 20, 0x1_0000_0000, Access::empty());
        let write = SendOp::Write { to: REMOTE };
        t.post(request(1, write, &[sge(&region, 0, 1 << 20)])).unwrap();
        let first = t.all(0);
        assert!(asked(&first) >= 2, "{mtu}: {} of {} packets", asked(&first), first.len());
        assert!(!first.last().unwrap().line().contains("WRITE_LAST"), "the window is closed");
        // All of it was lost.
        t.rx(1, "NAK_PSN psn=5 msn=0");
        let again = t.all(1);
        assert!(asked(&again) >= 2, "{mtu}: {} of {} packets again", asked(&again), again.len());
        assert!(!again.last().unwrap().line().contains("WRITE_LAST"), "the window is closed");
        t.leave();
    }
}

/// REQ-05: a peer that acknowledges only what it is asked to, and exactly that.
#[test]
fn the_window_is_never_closed_without_an_acknowledgement_on_its_way() {
    for (mtu, window) in Mtu::ALL.into_iter().flat_map(|mtu| {
        [8 << 10, 16 << 10, 64 << 10, 100_000, 212_992, 1 << 20].map(|window| (mtu, window))
    }) {
        let mut t = Script::with(Link { mtu, timeout: 14, ..rts_qp() }, |config| {
            config.peer_receive_buffer = window;
        });
        let region = t.region(1 << 20, 0x1_0000_0000, Access::empty());
        let write = SendOp::Write { to: REMOTE };
        t.post(request(1, write, &[sge(&region, 0, 1 << 20)])).unwrap();
        let mut us = 0;
        while t.sends().is_empty() {
            let asking: Vec<_> = t.all(us).iter().filter_map(asks).collect();
            assert!(!asking.is_empty(), "{mtu} bytes, a buffer of {window}: stalled");
            us += 1;
            for psn in asking {
                t.rx(us, &format!("ACK psn={psn} msn=0"));
            }
        }
        assert_eq!(t.engine.counters().timeouts, 0);
    }
}

/// The PSN of a packet that asks for an acknowledgement.
fn asks(sent: &Sent) -> Option<u32> {
    let bth = Datagram::parse(&sent.bytes).unwrap().bth;
    bth.ack_req.then_some(bth.psn.value())
}

/// How many of these ask for an acknowledgement.
fn asked(sent: &[Sent]) -> usize {
    sent.iter().filter_map(asks).count()
}

/// REQ-41
#[test]
fn notice_is_asked_for_at_the_end_of_a_message_that_completes_there() {
    let mut t = Script::requester(rts_qp());
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    t.post_flags(1, SendOp::Send, 300, flags);
    t.post_flags(2, SendOp::SendImm { imm: 0x0102_0304 }, 8, flags);
    t.post_flags(3, SendOp::WriteImm { to: REMOTE, imm: 1 }, 300, flags);
    t.post_flags(4, SendOp::WriteImm { to: REMOTE, imm: 2 }, 8, flags);
    t.post_flags(5, SendOp::Write { to: REMOTE }, 300, flags);
    t.post_flags(6, SendOp::Read { from: REMOTE }, 8, flags);
    t.tx(0, "SEND_FIRST psn=5 len=256");
    t.tx(0, "SEND_LAST psn=6 ackreq solicited len=44");
    t.tx(0, "SEND_ONLY_IMM psn=7 ackreq solicited imm=0x01020304 len=8");
    t.tx(0, "WRITE_FIRST psn=8 va=0x8000 rkey=0x00000100 dmalen=300 len=256");
    t.tx(0, "WRITE_LAST_IMM psn=9 ackreq solicited imm=0x00000001 len=44");
    let only = "WRITE_ONLY_IMM psn=10 ackreq solicited va=0x8000 rkey=0x00000100 dmalen=8 \
                imm=0x00000002 len=8";
    let packet = t.tx(0, only).bytes;
    // PKT-19, PKT-22: RETH, then immediate data, in network order.
    assert_eq!(packet[12 + 16..][..4], [0, 0, 0, 2]);
    t.tx(0, "WRITE_FIRST psn=11 va=0x8000 rkey=0x00000100 dmalen=300 len=256");
    t.tx(0, "WRITE_LAST psn=12 ackreq len=44");
    t.tx(0, "READ_REQUEST psn=13 ackreq va=0x8000 rkey=0x00000100 dmalen=8");
}

/// PKT-15, PKT-16, PKT-18, REQ-06: what the harness checks of every packet of every script, with a
/// payload of each length modulo 4, in requests and in answers.
#[test]
fn packets_are_padded_with_zeros_and_answers_ask_for_nothing() {
    let mut t = Script::requester(rts_qp());
    for len in 0..9 {
        let psn = 5 + len;
        t.send(1, len);
        let sent = t.tx(0, &format!("SEND_ONLY psn={psn} ackreq len={len}"));
        let pad = (4 - len % 4) % 4;
        assert_eq!(sent.bytes.len(), 12 + len + pad + 4);
        assert_eq!(sent.bytes[1] >> 4 & 3, pad as u8);
        t.rx(0, &format!("READ_REQUEST psn={psn} ackreq va=0x1000 rkey=mem dmalen={len}"));
        let sent = t.tx(0, &format!("READ_RESPONSE_ONLY psn={psn} msn={} len={len}", len + 1));
        assert_eq!(sent.bytes.len(), 16 + len + pad + 4);
        assert_eq!(sent.bytes[8] & 0x80, 0);
    }
}

/// PKT-01, PKT-02
#[test]
fn the_source_port_follows_from_both_queue_pair_numbers() {
    let t = Script::requester(rts_qp());
    let info = t.engine.query_qp(t.qpn).unwrap();
    assert_eq!(info.source_port, Some(source_port(0, t.qpn, PEER_QPN)));
    assert_eq!(info.source_port, Some(source_port(0, PEER_QPN, t.qpn)));
}

/// A message is gathered from its pieces in order.
#[test]
fn thirty_two_pieces_make_one_message() {
    let mut t = Script::requester(rts_qp());
    let sges: Vec<Sge> = (0..32).map(|i| sge(&t.data, i * 100, 17)).collect();
    t.post(request(1, SendOp::Send, &sges)).unwrap();
    let message: Vec<u8> = (0..32).flat_map(|i| t.sent_data(i * 100..i * 100 + 17)).collect();
    assert_eq!(t.tx(0, "SEND_FIRST psn=5 len=256").payload(), &message[..256]);
    assert_eq!(t.tx(0, "SEND_MIDDLE psn=6 len=256").payload(), &message[256..512]);
    assert_eq!(t.tx(0, "SEND_LAST psn=7 ackreq len=32").payload(), &message[512..]);
}

/// REQ-43
#[test]
fn inline_data_is_taken_when_it_is_posted() {
    let mut t = Script::requester(rts_qp());
    let mut buffer = pattern(1, 256);
    let data = SendData::Inline(buffer.iter().copied().collect());
    t.post(SendRequest { data, ..request(1, SendOp::Send, &[]) }).unwrap();
    buffer.fill(0);
    assert_eq!(t.tx(0, "SEND_ONLY psn=5 ackreq len=256").payload(), pattern(1, 256));
    // Sent again, it is still there.
    t.rx(1, "NAK_PSN psn=5 msn=0");
    assert_eq!(t.tx(1, "SEND_ONLY psn=5 ackreq len=256").payload(), pattern(1, 256));
}

/// REQ-42
#[test]
fn what_can_never_be_sent_is_refused_at_once() {
    let mut t = Script::requester(rts_qp());
    let sges = |n: usize, len: usize| vec![Sge { length: len as u32, ..sge(&t.data, 0, 0) }; n];
    let read = SendOp::Read { from: REMOTE };
    let add = SendOp::FetchAdd { at: REMOTE, add: 1 };
    let inline = |len: usize| SendData::Inline(vec![0; len].into_iter().collect());
    let wrong = [
        (request(1, SendOp::Send, &sges(33, 1)), PostError::TooManySges { found: 33, max: 32 }),
        (
            request(1, SendOp::Send, &[sges(1, 1 << 31), sges(1, 1)].concat()),
            PostError::TooLong { found: (1 << 31) + 1, max: 1 << 31 },
        ),
        (
            request(1, read, &sges(32, u32::MAX as usize)),
            PostError::TooLong { found: 32 * u64::from(u32::MAX), max: 1 << 31 },
        ),
        (request(1, add, &sges(1, 4)), PostError::AtomicLength { found: 4 }),
        (request(1, add, &[]), PostError::AtomicLength { found: 0 }),
        (
            SendRequest { data: inline(257), ..request(1, SendOp::Send, &[]) },
            PostError::InlineTooLong { found: 257, max: 256 },
        ),
        (SendRequest { data: inline(8), ..request(1, read, &[]) }, PostError::InlineAnswer),
        (SendRequest { data: inline(8), ..request(1, add, &[]) }, PostError::InlineAnswer),
    ];
    for (request, error) in wrong {
        assert_eq!(t.post(request), Err(error));
    }
    t.quiet(100);
}

/// The send queue is full until a request completes, signaled or not.
#[test]
fn a_full_queue_takes_no_more() {
    let mut link = rts_qp();
    link.cap.max_send_wr = 2;
    let mut t = Script::requester(link);
    t.post_flags(1, SendOp::Send, 8, SendFlags::empty());
    t.send(2, 8);
    let full = PostError::QueueFull { capacity: 2 };
    assert_eq!(t.post(request(3, SendOp::Send, &[])), Err(full));
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "ACK psn=5 msn=1");
    t.send(3, 8);
    assert_eq!(t.post(request(4, SendOp::Send, &[])), Err(full));
    t.tx(1, "SEND_ONLY psn=7 ackreq len=8");
}

// ---- acknowledgements ----

/// REQ-08, REQ-36
#[test]
fn one_acknowledgement_completes_everything_before_it_in_order() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.write(2, 600);
    t.send(3, 8);
    t.send(4, 8);
    assert_eq!(t.all(0).len(), 6);
    t.rx(1, "ACK psn=9 msn=3");
    assert_eq!(t.sends(), [ok(1, SEND, 8), ok(2, WRITE, 600), ok(3, SEND, 8)]);
    t.rx(2, "ACK psn=10 msn=4");
    assert_eq!(t.sends(), [ok(4, SEND, 8)]);
    t.quiet(100_000);
}

/// REQ-09
#[test]
fn an_acknowledgement_that_nobody_asked_for_counts() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 600);
    assert_eq!(t.all(0).len(), 3);
    t.rx(1000, "ACK psn=5 msn=0");
    // It restarts the timer, and what is sent again begins behind it.
    t.quiet(2048);
    t.tx(2049, "SEND_MIDDLE psn=6 ackreq len=256");
    t.rx(2050, "ACK psn=6 msn=0");
    t.tx(2050, "SEND_LAST psn=7 ackreq len=88");
}

/// REQ-10
#[test]
fn an_acknowledgement_of_nothing_outstanding_is_ignored() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    for (us, ghost) in (1..).zip([
        "ACK psn=4 msn=0",
        "ACK psn=7 msn=2",
        "ACK psn=8388612 msn=2",
        "ACK psn=8388613 msn=2",
        "ACK psn=16777215 msn=2",
        "NAK_PSN psn=4 msn=0",
        "NAK_PSN psn=7 msn=2",
        "NAK_ACCESS psn=7 msn=0",
        "RNR_NAK psn=7 msn=0 timer=0.01ms",
        "RNR_NAK psn=4 msn=0 timer=0.01ms",
        "READ_RESPONSE_ONLY psn=4 msn=1 len=8",
        "READ_RESPONSE_ONLY psn=7 msn=1 len=8",
        "ATOMIC_ACK psn=7 msn=1 value=0x0",
        // No such syndromes.
        "ACKNOWLEDGE psn=5 msn=1 syndrome=0x40",
        "ACKNOWLEDGE psn=5 msn=1 syndrome=0x9f",
    ]) {
        t.rx(us, ghost);
        t.quiet(us);
        assert_eq!((t.sends(), t.dropped(DropReason::Ghost)), (vec![], us), "{ghost}");
    }
    t.rx(100, "ACK psn=6 msn=2");
    assert_eq!(t.sends(), [ok(1, SEND, 8), ok(2, SEND, 8)]);
    t.rx(101, "ACK psn=6 msn=2");
    t.rx(101, "NAK_PSN psn=6 msn=1");
    t.quiet(100_000);
}

/// REQ-11
#[test]
fn a_repeated_acknowledgement_completes_nothing_twice() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "ACK psn=5 msn=1");
    t.rx(1, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    t.rx(2, "ACK psn=6 msn=2");
    t.rx(2, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(2, SEND, 8)]);
}

/// REQ-08: credits and message numbers of the peer change nothing.
#[test]
fn credits_and_message_numbers_are_not_looked_at() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "ACK psn=5 msn=77 credits=0");
    t.rx(2, "ACK psn=6 msn=3 credits=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8), ok(2, SEND, 8)]);
    t.send(3, 8);
    t.tx(2, "SEND_ONLY psn=7 ackreq len=8");
}

/// REQ-35
#[test]
fn an_unsignaled_request_completes_in_silence_unless_it_fails() {
    let mut t = Script::requester(rts_qp());
    for wr_id in 1..4 {
        t.post_flags(wr_id, SendOp::Send, 8, SendFlags::empty());
    }
    t.send(4, 8);
    assert_eq!(t.all(0).len(), 4);
    t.rx(1, "ACK psn=6 msn=2");
    assert_eq!(t.sends(), []);
    t.rx(2, "NAK_OP psn=7 msn=2");
    assert_eq!(t.sends(), [failed(3, WcStatus::RemOpErr), failed(4, WcStatus::WrFlushErr)]);
}

/// REQ-35: `sq_sig_all` makes every request a signaled one.
#[test]
fn a_queue_pair_may_announce_everything() {
    let mut t = Script::requester(Link { sq_sig_all: true, ..rts_qp() });
    t.post_flags(1, SendOp::Send, 8, SendFlags::empty());
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

// ---- READs and atomics ----

/// REQ-12
#[test]
fn an_acknowledgement_beyond_a_read_shows_that_its_answer_was_lost() {
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
    t.tx(1, "SEND_ONLY psn=8 ackreq len=8");
    t.rx(2, "READ_RESPONSE_FIRST psn=6 msn=3 len=256");
    t.rx(2, "READ_RESPONSE_LAST psn=7 msn=3 len=44");
    t.rx(2, "ACK psn=8 msn=3");
    assert_eq!(t.sends(), [ok(2, READ, 300), ok(3, SEND, 8)]);
}

/// REQ-12: an acknowledgement of the READ's own PSN is no answer either; nor for an atomic.
#[test]
fn a_read_or_atomic_is_completed_by_its_answer_only() {
    let mut t = Script::requester(rts_qp());
    t.fetch_add(1, 7);
    t.tx(0, "FETCH_ADD psn=5 ackreq va=0x8000 rkey=0x00000100 add=0x7");
    t.rx(1, "ACK psn=5 msn=1");
    t.tx(1, "FETCH_ADD psn=5 ackreq va=0x8000 rkey=0x00000100 add=0x7");
    // The same news once more: it has been acted upon.
    t.rx(2, "ACK psn=5 msn=1");
    t.quiet(2);
    t.rx(3, "ATOMIC_ACK psn=5 msn=1 value=0x63");
    assert_eq!(t.sends(), [ok(1, ADD, 8)]);
    assert_eq!(t.answers.load_u64(0), Ok(0x63));
}

/// REQ-13
#[test]
fn an_answer_acknowledges_everything_before_it() {
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
fn a_gap_in_an_answer_is_asked_for_again_and_nothing_behind_it_is_placed() {
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

/// REQ-14: what was on its way behind the gap tells nothing new.
#[test]
fn a_gap_in_an_answer_is_asked_for_once() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 1200);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=1200");
    t.rx(1, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.tx(1, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=1200");
    t.rx(2, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.rx(2, "READ_RESPONSE_MIDDLE psn=8 len=256");
    t.rx(2, "READ_RESPONSE_LAST psn=9 msn=1 len=176");
    t.quiet(1000);
    assert_eq!(t.dropped(DropReason::ResponseAhead), 3);
}

/// REQ-14: a peer that is busy with the rest of an old answer takes up the new question after it.
#[test]
fn the_rest_of_an_old_answer_uses_up_no_retries() {
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
    // Silence after that is what the timer is for.
    t.quiet(6300 + 1048);
    assert_eq!(t.sends(), []);
    t.at(6300 + 1049);
    assert_eq!(t.sends(), [failed(1, WcStatus::RetryExcErr)]);
}

/// REQ-16: the two forms of an answer to a resumed READ, from its middle and of its last packet.
#[test]
fn a_resumed_read_may_be_answered_anew_or_carried_on() {
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

/// REQ-16: the first answer was only late; its packets are taken in its own form.
#[test]
fn a_late_answer_is_taken_though_it_was_asked_for_again() {
    let mut t = Script::requester(rts_qp());
    t.read(1, 1000);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=1000");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.tx(1050, "READ_REQUEST psn=6 ackreq va=0x8100 rkey=0x00000100 dmalen=744");
    t.rx(1051, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.rx(1051, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.rx(1051, "READ_RESPONSE_LAST psn=8 msn=1 len=232");
    assert_eq!(t.sends(), [ok(1, READ, 1000)]);
    // And then the second.
    t.rx(1052, "READ_RESPONSE_FIRST psn=6 msn=1 len=256");
    t.rx(1052, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.rx(1052, "READ_RESPONSE_LAST psn=8 msn=1 len=232");
    t.quiet(100_000);
    assert_eq!(t.dropped(DropReason::Ghost), 3);
}

/// REQ-15
#[test]
fn a_repeated_answer_does_not_touch_memory() {
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
fn an_answer_of_another_form_is_a_bad_response() {
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

/// REQ-17: an answer to what was no question.
#[test]
fn an_answer_to_a_send_is_a_bad_response() {
    for bad in ["READ_RESPONSE_ONLY psn=6 msn=2 len=0", "ATOMIC_ACK psn=6 msn=2 value=0x0"] {
        let mut t = Script::requester(rts_qp());
        t.send(1, 8);
        t.send(2, 8);
        assert_eq!(t.all(0).len(), 2);
        t.rx(1, bad);
        assert_eq!(t.sends(), [ok(1, SEND, 8), failed(2, WcStatus::BadRespErr)], "{bad}");
    }
}

/// REQ-04: a READ of no bytes has an answer of no bytes, into no memory.
#[test]
fn a_read_of_no_bytes_is_answered() {
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
fn the_value_of_an_atomic_is_in_host_order() {
    let mut t = Script::requester(rts_qp());
    let op = SendOp::CompareSwap { at: REMOTE, expect: 0x11, swap: 0x22 };
    t.post_op(1, op, 8);
    t.tx(0, "COMPARE_SWAP psn=5 ackreq va=0x8000 rkey=0x00000100 expect=0x11 swap=0x22");
    t.rx(1, "ATOMIC_ACK psn=5 msn=1 value=0x102030405060708");
    assert_eq!(t.sends(), [ok(1, WcOpcode::CompSwap, 8)]);
    assert_eq!(t.answers.load_u64(0), Ok(0x0102_0304_0506_0708));
}

/// The answer to a READ is scattered over its pieces in order.
#[test]
fn an_answer_fills_thirty_two_pieces() {
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
fn a_nak_in_the_middle_of_an_answer_ends_the_read() {
    for (nak, status) in [
        ("NAK_ACCESS psn=7 msn=2", WcStatus::RemAccessErr),
        ("NAK_OP psn=7 msn=2", WcStatus::RemOpErr),
        ("NAK_INV psn=7 msn=2", WcStatus::RemInvReqErr),
        // Packet 7 of the answer was lost too; no more of it will come.
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
fn an_answer_that_says_no_is_a_bad_response() {
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
        // It is the answer to the second request, so the first has arrived.
        assert_eq!(t.sends(), [ok(1, SEND, 8), failed(2, WcStatus::BadRespErr)], "{bad}");
        assert_eq!(t.answers.load_u64(0), Ok(0));
    }
}

/// REQ-31
#[test]
fn no_more_reads_and_atomics_are_outstanding_than_agreed() {
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

/// REQ-31: a retry does not count them twice, nor forget one.
#[test]
fn the_count_of_outstanding_reads_survives_a_retry() {
    let mut t = Script::requester(Link { rd_atomic: 2, ..rts_qp() });
    for wr_id in 1..5 {
        t.fetch_add(wr_id, wr_id);
    }
    t.tx(0, "FETCH_ADD psn=5 ackreq va=0x8000 rkey=0x00000100 add=0x1");
    t.tx(0, "FETCH_ADD psn=6 ackreq va=0x8000 rkey=0x00000100 add=0x2");
    t.tx(1049, "FETCH_ADD psn=5 ackreq va=0x8000 rkey=0x00000100 add=0x1");
    // The answer to the first is late. The second has not been sent again yet.
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
fn without_agreed_reads_none_is_taken() {
    let mut t = Script::requester(Link { rd_atomic: 0, ..rts_qp() });
    let sges = [sge(&t.answers, 0, 8)];
    let read = request(1, SendOp::Read { from: REMOTE }, &sges);
    assert_eq!(t.post(read), Err(PostError::NoReads));
    let add = request(1, SendOp::FetchAdd { at: REMOTE, add: 1 }, &sges);
    assert_eq!(t.post(add), Err(PostError::NoReads));
}

/// REQ-33
#[test]
fn a_fence_waits_for_reads_and_atomics_before_it() {
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
fn a_fence_does_not_wait_for_sends_and_writes() {
    let fenced = SendFlags::SIGNALED | SendFlags::FENCE;
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.write(2, 8);
    t.post_flags(3, SendOp::Read { from: REMOTE }, 8, fenced);
    assert_eq!(t.all(0).len(), 3);
}

/// REQ-33
#[test]
fn a_fence_holds_through_a_retry() {
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
fn completions_come_in_the_order_of_posting() {
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

/// A READ asks for no more at once than fits the own receive buffer: here, 8 packets of 256 bytes.
#[test]
fn a_long_read_is_cut_into_requests_that_the_receive_buffer_holds() {
    let mut t = Script::with(rts_qp(), |config| config.receive_buffer = 16 << 10);
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

/// The answer to a READ request of `len` bytes, packet by packet.
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

/// REQ-14, REQ-16: in the second of the requests that a READ was cut into.
#[test]
fn a_gap_in_a_later_part_of_a_long_read_is_asked_for_there() {
    let mut t = Script::with(rts_qp(), |config| config.receive_buffer = 16 << 10);
    t.read(1, 5000);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=2048");
    answer(&mut t, 1, 5, 2048);
    t.tx(1, "READ_REQUEST psn=13 ackreq va=0x8800 rkey=0x00000100 dmalen=2048");
    t.rx(2, "READ_RESPONSE_FIRST psn=13 msn=2 len=256");
    t.rx(2, "READ_RESPONSE_MIDDLE psn=15 len=256");
    t.tx(2, "READ_REQUEST psn=14 ackreq va=0x8900 rkey=0x00000100 dmalen=1792");
    answer(&mut t, 3, 14, 1792);
    t.tx(3, "READ_REQUEST psn=21 ackreq va=0x9000 rkey=0x00000100 dmalen=904");
    // An answer that goes past the end of its request is none.
    t.rx(4, "READ_RESPONSE_FIRST psn=21 msn=3 len=256");
    t.rx(4, "READ_RESPONSE_LAST psn=22 msn=3 len=256");
    assert_eq!(t.sends(), [failed(1, WcStatus::BadRespErr)]);
}

// ---- NAKs ----

/// REQ-18, REQ-19
#[test]
fn a_sequence_nak_acknowledges_what_is_before_it_and_the_rest_is_sent_again() {
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

/// REQ-19: what is sent again goes alone, so that it does not rely on how a burst is cut.
#[test]
fn packets_sent_again_go_alone() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 1000);
    assert_eq!(t.all(0).last().unwrap().burst, 1);
    t.rx(1, "NAK_PSN psn=5 msn=0");
    let bursts: Vec<_> = t.all(1).iter().map(|sent| sent.burst).collect();
    assert_eq!(bursts, [2, 3, 4, 5]);
    assert_eq!(t.engine.counters().retransmitted, 4);
}

/// REQ-18
#[test]
fn the_same_sequence_nak_is_obeyed_once() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "NAK_PSN psn=5 msn=0");
    assert_eq!(t.all(1).len(), 2);
    t.rx(2, "NAK_PSN psn=5 msn=0");
    t.quiet(2);
    // Another gap is news.
    t.rx(3, "NAK_PSN psn=6 msn=1");
    t.tx(3, "SEND_ONLY psn=6 ackreq len=8");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// REQ-18: new requests wait until the old ones are sent again.
#[test]
fn a_new_request_goes_behind_what_is_sent_again() {
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
fn a_write_is_carried_on_in_its_middle_without_a_second_reth() {
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

/// REQ-18: an acknowledgement that was only late stops the resending.
#[test]
fn a_late_acknowledgement_stops_the_retransmission() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 600);
    t.send(2, 600);
    assert_eq!(t.all(0).len(), 6);
    t.rx(1, "NAK_PSN psn=5 msn=0");
    t.tx(1, "SEND_FIRST psn=5 len=256");
    t.rx(1, "ACK psn=8 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 600)]);
    t.tx(1, "SEND_MIDDLE psn=9 len=256");
    t.rx(1, "ACK psn=10 msn=2");
    assert_eq!(t.sends(), [ok(2, SEND, 600)]);
    t.quiet(100_000);
}

/// REQ-21
#[test]
fn a_terminal_nak_ends_its_request_and_flushes_the_rest() {
    for (nak, status) in [
        ("NAK_INV psn=7 msn=1", WcStatus::RemInvReqErr),
        ("NAK_ACCESS psn=7 msn=1", WcStatus::RemAccessErr),
        ("NAK_OP psn=7 msn=1", WcStatus::RemOpErr),
        ("NAK_RD psn=7 msn=1", WcStatus::RemInvRdReqErr),
        // REQ-22: a code that is not assigned ends it all the same.
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

/// REQ-21: the answer to a READ before it was lost. The peer has failed and will not give it, but
/// that shows when it is asked.
#[test]
fn a_terminal_nak_behind_a_lost_answer_does_not_complete_the_read() {
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
fn an_rnr_nak_is_retried_after_the_timer_it_names() {
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

/// REQ-23: what came before it is acknowledged.
#[test]
fn an_rnr_nak_acknowledges_what_is_before_it() {
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
fn nothing_is_sent_while_the_peer_is_not_ready() {
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
fn an_rnr_retry_of_7_is_for_ever() {
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
fn the_ack_timer_rests_while_the_rnr_timer_runs() {
    // 8.192 µs, and no retry to spare.
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
fn a_sequence_nak_behind_an_rnr_nak_changes_nothing() {
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
fn an_rnr_nak_behind_a_sequence_nak_is_waited_for() {
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

/// REQ-23: a second copy of the RNR NAK does not restart the timer.
#[test]
fn a_repeated_rnr_nak_counts_once() {
    let mut t = Script::requester(Link { rnr_retry: 1, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.rx(100, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.tx(641, "SEND_ONLY psn=5 ackreq len=8");
}

/// REQ-30: a late copy of an RNR NAK makes it wait; the acknowledgement then ends the wait, and the
/// budget is full again.
#[test]
fn an_acknowledgement_ends_the_wait_for_the_peer() {
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

// ---- timer and budgets ----

/// REQ-27
#[test]
fn without_a_timeout_a_lost_packet_stalls_for_ever() {
    let mut t = Script::requester(Link { timeout: 0, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.quiet(1_000_000_000_000);
    t.rx(1_000_000_000_000, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

/// REQ-07, REQ-28
#[test]
fn what_is_not_acknowledged_in_time_is_sent_again() {
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

/// The peer may have been asleep with everything in its receive buffer: to send it all again would
/// overrun the buffer. One packet asks where it stands, and what has arrived is not sent again.
#[test]
fn after_a_timeout_one_packet_asks_where_the_peer_stands() {
    let mut t = Script::requester(rts_qp());
    t.write(1, 2560);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 11);
    t.tx(1049, "WRITE_FIRST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=2560 len=256");
    t.quiet(1500);
    // One packet more with each answer, for what was sent first may still be on its way.
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

/// REQ-28: a request posted later does not postpone it; progress does.
#[test]
fn the_timer_runs_from_the_oldest_packet_or_the_last_progress() {
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

/// REQ-28: nothing outstanding, no timer.
#[test]
fn the_timer_stops_when_everything_is_acknowledged() {
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
fn a_retry_count_of_k_is_k_retransmissions() {
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

/// REQ-29: timeouts and NAKs draw on one budget.
#[test]
fn naks_without_progress_use_up_the_same_budget() {
    let mut t = Script::requester(Link { retry_cnt: 2, ..rts_qp() });
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "NAK_PSN psn=5 msn=0");
    t.tx(1, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(1050, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1060, "NAK_PSN psn=5 msn=0");
    assert_eq!(t.sends(), [failed(1, WcStatus::RetryExcErr)]);
}

/// REQ-29: with a budget of 0 the first NAK ends it.
#[test]
fn without_retries_the_first_nak_is_the_last() {
    let mut t = Script::requester(Link { retry_cnt: 0, ..rts_qp() });
    t.send(1, 8);
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    t.rx(1, "NAK_PSN psn=6 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8), failed(2, WcStatus::RetryExcErr)]);
}

/// REQ-30
#[test]
fn progress_fills_both_budgets() {
    let mut t = Script::requester(Link { retry_cnt: 1, rnr_retry: 1, ..rts_qp() });
    t.send(1, 2560);
    assert_eq!(t.all(0).len(), 10);
    let mut us = 0;
    // Each NAK is one packet further on: 9 retries with a budget of 1.
    for psn in 6..15 {
        us += 10;
        t.rx(us, &format!("NAK_PSN psn={psn} msn=0"));
        assert_eq!(t.all(us).len(), 15 - psn);
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

/// REQ-30: every packet of an answer is progress.
#[test]
fn an_answer_that_comes_slowly_is_progress() {
    let mut t = Script::requester(Link { retry_cnt: 0, ..rts_qp() });
    t.read(1, 600);
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=600");
    t.rx(1000, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.rx(2000, "READ_RESPONSE_MIDDLE psn=6 len=256");
    t.rx(3000, "READ_RESPONSE_LAST psn=7 msn=1 len=88");
    assert_eq!(t.sends(), [ok(1, READ, 600)]);
}

// ---- local faults ----

/// A request whose memory cannot be used fails when it is its turn, not before.
#[test]
fn a_bad_local_key_fails_the_request_after_those_before_it() {
    let t = Script::requester(rts_qp());
    let gone = t.region(64, 0x50_0000, Access::LOCAL_WRITE);
    t.memory.deregister(&gone);
    let good = sge(&t.data, 0, 8);
    for bad in [
        Sge { lkey: Lkey(1), ..good },
        Sge { addr: 0, ..good },
        Sge { length: 1 << 20, ..good },
        sge(&gone, 0, 8),
    ] {
        let mut t = Script::requester(rts_qp());
        t.send(1, 8);
        t.post(request(2, SendOp::Send, &[good, bad])).unwrap();
        t.send(3, 8);
        t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
        t.quiet(1);
        // The one before is still sent again.
        t.rx(1, "NAK_PSN psn=5 msn=0");
        t.tx(1, "SEND_ONLY psn=5 ackreq len=8");
        assert_eq!(t.sends(), []);
        t.rx(2, "ACK psn=5 msn=1");
        let flushed = failed(3, WcStatus::WrFlushErr);
        assert_eq!(t.sends(), [ok(1, SEND, 8), failed(2, WcStatus::LocProtErr), flushed]);
        assert_eq!(t.state(), QpState::Err);
    }
}

/// The first request of all: there is nothing to wait for.
#[test]
fn a_bad_local_key_in_the_oldest_request_fails_it_at_once() {
    let mut t = Script::requester(rts_qp());
    let read_only = t.region(64, 0x50_0000, Access::empty());
    let read = SendOp::Read { from: REMOTE };
    t.post(request(1, read, &[sge(&read_only, 0, 64)])).unwrap();
    t.quiet(0);
    assert_eq!(t.sends(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(t.state(), QpState::Err);
}

/// Sending needs no right to write.
#[test]
fn a_read_only_region_can_be_sent() {
    let mut t = Script::requester(rts_qp());
    let read_only = t.region(64, 0x50_0000, Access::empty());
    t.post(request(1, SendOp::Send, &[sge(&read_only, 0, 64)])).unwrap();
    t.tx(0, "SEND_ONLY psn=5 ackreq len=64");
}

/// Memory that goes away while it is being sent, or before it must be sent again.
#[test]
fn a_region_deregistered_under_a_request_fails_it() {
    let mut t = Script::requester(rts_qp());
    let region = t.region(1 << 20, 0x1_0000_0000, Access::LOCAL_WRITE);
    t.send(1, 8);
    t.post(request(2, SendOp::Send, &[sge(&region, 0, 600)])).unwrap();
    assert_eq!(t.all(0).len(), 4);
    t.memory.deregister(&region);
    t.rx(1, "NAK_PSN psn=7 msn=1");
    t.quiet(1);
    assert_eq!(t.sends(), [ok(1, SEND, 8), failed(2, WcStatus::LocProtErr)]);

    let mut t = Script::requester(rts_qp());
    let region = t.region(512, 0x1_0000_0000, Access::LOCAL_WRITE);
    t.post(request(1, SendOp::Read { from: REMOTE }, &[sge(&region, 0, 512)])).unwrap();
    t.tx(0, "READ_REQUEST psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=512");
    t.rx(1, "READ_RESPONSE_FIRST psn=5 msn=1 len=256");
    t.memory.deregister(&region);
    t.rx(2, "READ_RESPONSE_LAST psn=6 msn=1 len=256");
    assert_eq!(t.sends(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(bytes(&region, 256, 256), [0; 256]);
}

/// A message that has arrived does not need its memory any more.
#[test]
fn a_region_may_go_once_its_message_has_been_sent() {
    let mut t = Script::requester(rts_qp());
    let region = t.region(512, 0x1_0000_0000, Access::LOCAL_WRITE);
    t.post(request(1, SendOp::Send, &[sge(&region, 0, 512)])).unwrap();
    assert_eq!(t.all(0).len(), 2);
    t.memory.deregister(&region);
    t.rx(1, "ACK psn=6 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 512)]);
}

/// The error completion is solicited, whatever the request asked for.
#[test]
fn a_failed_request_is_announced_as_solicited() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "NAK_INV psn=5 msn=0");
    assert_eq!(t.sends(), [Completion { solicited: true, ..failed(1, WcStatus::RemInvReqErr) }]);
}
