//! The RC requester, packet by packet.
//!
//! The first PSN is 5, the path MTU is 256, four READs or atomics may be outstanding, the peer's memory is `va=0x8000
//! rkey=0x00000100`, and the ACK timeout is 1048.576 µs.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{
    PEER, PEER_QPN, REMOTE, Script, Sent, burst_lengths, bytes, failed, ok, rts_qp,
};
use crate::support::{Link, pattern, request, sge};
use softroce::engine::{PostError, QpState};
use softroce::ids::{Lkey, Mtu, PdId};
use softroce::mem::{Access, HostMemory};
use softroce::net::source_port;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{
    Completion, RemoteAddr, SendData, SendFlags, SendOp, SendRequest, Sge, WcOpcode, WcStatus,
};
use softroce::wire::Datagram;

const SEND: WcOpcode = WcOpcode::Send;
const WRITE: WcOpcode = WcOpcode::RdmaWrite;
const READ: WcOpcode = WcOpcode::RdmaRead;

// ---- packets ----

/// REQ-01, REQ-05, PKT-18
#[test]
fn message_is_segmented_into_packets_with_consecutive_psns() {
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

/// The peer processes the first half while this side builds the second one.
#[test]
fn long_message_that_is_sent_alone_begins_with_a_short_burst() {
    let imm = SendOp::WriteImm { to: REMOTE, imm: 1 };
    for (op, len, expected) in [
        (SendOp::Send, 64 << 10, &[8, 8][..]),
        (SendOp::Send, 48 << 10, &[8, 4]),
        (SendOp::Send, (48 << 10) - 1, &[12]),
        // A WRITE has a RETH in its first packet, and the second, shorter packet ends the burst.
        (imm, 64 << 10, &[2, 8, 5, 1]),
        // The end of a plain WRITE is often waited for in memory.
        (SendOp::Write { to: REMOTE }, 64 << 10, &[2, 14]),
    ] {
        let mut t = Script::requester(Link { mtu: Mtu::Mtu4096, ..rts_qp() });
        t.engine.set_peer_receive_buffer(Default::default(), PEER, 8 << 20);
        t.post_op(1, op, len);
        assert_eq!(burst_lengths(&t.all(0)), expected, "{op:?} of {len} bytes");
        t.leave();
    }
}

#[test]
fn long_message_behind_another_fills_its_bursts() {
    let mut t = Script::requester(Link { mtu: Mtu::Mtu4096, ..rts_qp() });
    t.engine.set_peer_receive_buffer(Default::default(), PEER, 8 << 20);
    t.send(1, 1);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=1");
    t.send(2, 64 << 10);
    assert_eq!(burst_lengths(&t.all(0)), [15, 1]);
    t.leave();
}

/// Requests of one kind that are posted together are built together.
#[test]
fn messages_in_one_burst_have_their_own_addresses_flags_and_bytes() {
    let mut t = Script::requester(rts_qp());
    let data = t.sent_data(0..64);
    let region = t.region(256, 0x50_0000, Access::empty());
    region.write_at(0, &pattern(9, 256)).unwrap();
    let write = |wr_id: u64, at: usize| {
        let to = RemoteAddr { addr: REMOTE.addr + at as u64, ..REMOTE };
        request(wr_id, SendOp::Write { to }, &[sge(&region, at, 64)])
    };
    for wr_id in 1..4 {
        t.post(write(wr_id, 64 * (wr_id as usize - 1))).unwrap();
    }
    t.send(4, 64);
    t.send(5, 64);
    t.post_flags(6, SendOp::Send, 64, SendFlags::SIGNALED | SendFlags::SOLICITED);
    t.send(7, 60);
    t.send(8, 60);
    let of_region = |at: usize| bytes(&region, at, 64);
    let first = t.tx(0, "WRITE_ONLY psn=5 ackreq va=0x8000 rkey=0x00000100 dmalen=64 len=64");
    assert_eq!(first.payload(), of_region(0));
    let second = t.tx(0, "WRITE_ONLY psn=6 ackreq va=0x8040 rkey=0x00000100 dmalen=64 len=64");
    assert_eq!(second.payload(), of_region(64));
    let third = t.tx(0, "WRITE_ONLY psn=7 ackreq va=0x8080 rkey=0x00000100 dmalen=64 len=64");
    assert_eq!(third.payload(), of_region(128));
    assert_eq!(t.tx(0, "SEND_ONLY psn=8 ackreq len=64").payload(), data);
    assert_eq!(t.tx(0, "SEND_ONLY psn=9 ackreq len=64").payload(), data);
    t.tx(0, "SEND_ONLY psn=10 ackreq solicited len=64");
    t.tx(0, "SEND_ONLY psn=11 ackreq len=60");
    t.tx(0, "SEND_ONLY psn=12 ackreq len=60");
    t.quiet(0);
    // From the second on, all packets are retransmitted one by one.
    t.rx(1, "NAK_PSN psn=6 msn=1");
    let again = t.all(1);
    let lens: Vec<_> = again.iter().map(|sent| sent.payload().len()).collect();
    assert_eq!(lens, [64, 64, 64, 64, 64, 60, 60]);
    assert_eq!(again[1].payload(), of_region(128));
    t.rx(2, "ACK psn=12 msn=8");
    assert_eq!(t.sends().len(), 8);
}

/// A key becomes invalid in the middle of a burst.
#[test]
fn messages_before_one_that_cannot_be_sent_are_sent() {
    let mut t = Script::requester(rts_qp());
    let gone = t.region(64, 0x50_0000, Access::empty());
    t.send(1, 64);
    t.send(2, 64);
    t.post(request(3, SendOp::Send, &[sge(&gone, 0, 64)])).unwrap();
    t.send(4, 64);
    t.memory.deregister(&gone);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=64");
    t.tx(0, "SEND_ONLY psn=6 ackreq len=64");
    t.quiet(0);
    t.rx(1, "ACK psn=6 msn=2");
    let ended = [failed(3, WcStatus::LocProtErr), failed(4, WcStatus::WrFlushErr)];
    assert_eq!(t.sends(), [&[ok(1, SEND, 64), ok(2, SEND, 64)][..], &ended].concat());
}

/// REQ-02
#[test]
fn psns_wrap_within_a_message() {
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

/// REQ-02: also in the response of a READ.
#[test]
fn psns_wrap_within_a_response() {
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
fn read_takes_one_psn_per_response_packet() {
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

/// REQ-03, §4.1: the longest READ takes half of the PSNs, and no request fits behind it.
#[test]
fn read_of_2_to_the_31_bytes_is_sent_alone() {
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
    // The last packet of the response is ahead of the first, not behind it.
    t.rx(200, "READ_RESPONSE_LAST psn=8388613 msn=2 len=256");
    t.tx(200, "READ_REQUEST psn=6 ackreq va=0x8000 rkey=0x00000100 dmalen=2147483648");
    // The outstanding requests with the SEND must take less than half of the PSNs.
    t.rx(300, "READ_RESPONSE_FIRST psn=6 msn=2 len=256");
    t.quiet(300);
    t.rx(301, "READ_RESPONSE_MIDDLE psn=7 len=256");
    t.tx(301, "SEND_ONLY psn=8388614 ackreq len=8");
    t.quiet(400);
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    t.rx(400, "NAK_ACCESS psn=8388613 msn=2");
    assert_eq!(t.sends(), [failed(2, WcStatus::RemAccessErr), failed(3, WcStatus::WrFlushErr)]);
}

/// REQ-05: without an acknowledgement the window would remain closed.
#[test]
fn long_message_requests_several_acks_per_window() {
    for mtu in Mtu::ALL {
        let mut t = Script::requester(Link { mtu, ..rts_qp() });
        let region = t.region(1 << 20, 0x1_0000_0000, Access::empty());
        let write = SendOp::Write { to: REMOTE };
        t.post(request(1, write, &[sge(&region, 0, 1 << 20)])).unwrap();
        let first = t.all(0);
        assert!(asked(&first) >= 2, "{mtu}: {} of {} packets", asked(&first), first.len());
        assert!(!first.last().unwrap().line().contains("WRITE_LAST"), "the window is closed");
        // All packets were lost.
        t.rx(1, "NAK_PSN psn=5 msn=0");
        let again = t.all(1);
        assert!(asked(&again) >= 2, "{mtu}: {} of {} packets again", asked(&again), again.len());
        assert!(!again.last().unwrap().line().contains("WRITE_LAST"), "the window is closed");
        t.leave();
    }
}

/// A receive buffer of this size holds 11 datagrams of this length, of which three quarters may be used: by bursts of
/// two, because the FIRST is longer than the others. A fourth burst does not fit.
#[test]
fn burst_takes_a_quarter_of_the_window() {
    let mut t = Script::with(Link { mtu: Mtu::Mtu4096, ..rts_qp() }, |config| {
        config.peer_receive_buffer = 100_000;
    });
    let region = t.region(1 << 20, 0x1_0000_0000, Access::empty());
    t.post(request(1, SendOp::Write { to: REMOTE }, &[sge(&region, 0, 1 << 20)])).unwrap();
    let bursts: Vec<_> = t.all(0).iter().map(|sent| sent.burst).collect();
    assert_eq!(bursts, [1, 2, 2, 3, 3, 4, 4]);
    t.leave();
}

/// Starting with less would split messages into ever smaller bursts.
#[test]
fn burst_waits_for_a_quarter_of_the_window() {
    let mut t = Script::requester(Link { mtu: Mtu::Mtu4096, ..rts_qp() });
    let region = t.region(1 << 20, 0x1_0000_0000, Access::empty());
    let write = |t: &mut Script, len| {
        t.post(request(1, SendOp::Write { to: REMOTE }, &[sge(&region, 0, len)])).unwrap();
        t.all(0).len()
    };
    let lone: Vec<_> = (0..17).map(|_| write(&mut t, 4096)).collect();
    assert_eq!((lone, write(&mut t, 1 << 20)), (vec![1; 17], 0));
    let sent: Vec<_> = (1..6)
        .map(|us| {
            t.rx(us, &format!("ACK psn={} msn={us}", us + 4));
            t.all(us).len()
        })
        .collect();
    assert_eq!(sent, [0, 0, 0, 2, 0]);
    t.leave();
}

/// REQ-05: the peer acknowledges requested packets only.
#[test]
fn closed_window_always_has_a_requested_ack() {
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

/// Returns the PSN of a packet with AckReq set.
fn asks(sent: &Sent) -> Option<u32> {
    let bth = Datagram::parse(&sent.bytes).unwrap().bth;
    bth.ack_req.then_some(bth.psn.value())
}

/// Returns the number of packets with AckReq set.
fn asked(sent: &[Sent]) -> usize {
    sent.iter().filter_map(asks).count()
}

/// REQ-41
#[test]
fn solicited_bit_is_set_at_the_end_of_a_message() {
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

/// PKT-15, PKT-16, PKT-18, REQ-06: the harness checks every packet of every script; here with payloads of each length
/// modulo 4, in requests and responses.
#[test]
fn packets_are_padded_with_zeros_and_responses_have_no_ackreq() {
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
fn both_queue_pair_numbers_determine_the_source_port() {
    let t = Script::requester(rts_qp());
    let info = t.engine.query_qp(t.qpn).unwrap();
    assert_eq!(info.source_port, Some(source_port(0, t.qpn, PEER_QPN)));
    assert_eq!(info.source_port, Some(source_port(0, PEER_QPN, t.qpn)));
}

/// A message gathers its elements in order.
#[test]
fn message_gathers_32_sges() {
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
fn inline_data_is_copied_when_posted() {
    let mut t = Script::requester(rts_qp());
    let mut buffer = pattern(1, 256);
    let data = SendData::Inline(buffer.iter().copied().collect());
    t.post(SendRequest { data, ..request(1, SendOp::Send, &[]) }).unwrap();
    buffer.fill(0);
    assert_eq!(t.tx(0, "SEND_ONLY psn=5 ackreq len=256").payload(), pattern(1, 256));
    // It is still available for retransmission.
    t.rx(1, "NAK_PSN psn=5 msn=0");
    assert_eq!(t.tx(1, "SEND_ONLY psn=5 ackreq len=256").payload(), pattern(1, 256));
}

/// REQ-42
#[test]
fn invalid_send_requests_are_refused_when_posted() {
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

/// The send queue remains full until a request completes, signaled or not.
#[test]
fn full_send_queue_refuses_requests() {
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
fn ack_completes_all_earlier_requests_in_order() {
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
fn unrequested_ack_counts() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 600);
    assert_eq!(t.all(0).len(), 3);
    t.rx(1000, "ACK psn=5 msn=0");
    // It restarts the timer, and retransmission starts after it.
    t.quiet(2048);
    t.tx(2049, "SEND_MIDDLE psn=6 ackreq len=256");
    t.rx(2050, "ACK psn=6 msn=0");
    t.tx(2050, "SEND_LAST psn=7 ackreq len=88");
}

/// REQ-10
#[test]
fn ack_without_outstanding_requests_is_ignored() {
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
        // Unassigned syndromes.
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
fn duplicate_ack_completes_nothing_twice() {
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

/// REQ-08: credits and MSN of the peer have no effect.
#[test]
fn requester_ignores_credits_and_msn() {
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
fn unsignaled_request_completes_only_with_an_error() {
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
fn sq_sig_all_completes_every_request() {
    let mut t = Script::requester(Link { sq_sig_all: true, ..rts_qp() });
    t.post_flags(1, SendOp::Send, 8, SendFlags::empty());
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

// ---- local errors ----

/// A request with invalid memory fails in order, not earlier.
#[test]
fn invalid_local_key_fails_the_request_in_order() {
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
        // The request before it is still retransmitted.
        t.rx(1, "NAK_PSN psn=5 msn=0");
        t.tx(1, "SEND_ONLY psn=5 ackreq len=8");
        assert_eq!(t.sends(), []);
        t.rx(2, "ACK psn=5 msn=1");
        let flushed = failed(3, WcStatus::WrFlushErr);
        assert_eq!(t.sends(), [ok(1, SEND, 8), failed(2, WcStatus::LocProtErr), flushed]);
        assert_eq!(t.state(), QpState::Err);
    }
}

/// The oldest request need not wait.
#[test]
fn invalid_local_key_of_the_oldest_request_fails_it_immediately() {
    let mut t = Script::requester(rts_qp());
    let read_only = t.region(64, 0x50_0000, Access::empty());
    let read = SendOp::Read { from: REMOTE };
    t.post(request(1, read, &[sge(&read_only, 0, 64)])).unwrap();
    t.quiet(0);
    assert_eq!(t.sends(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(t.state(), QpState::Err);
}

/// MR-11
#[test]
fn key_of_another_domain_fails_the_request() {
    let mut t = Script::requester(rts_qp());
    let memory = HostMemory::alloc(64).unwrap();
    let foreign = t.memory.register(PdId(9), memory, None, Access::LOCAL_WRITE).unwrap();
    t.post(request(1, SendOp::Send, &[sge(&foreign, 0, 8)])).unwrap();
    t.quiet(0);
    assert_eq!(t.sends(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(t.state(), QpState::Err);
}

/// Sends need no write access.
#[test]
fn read_only_region_can_be_sent() {
    let mut t = Script::requester(rts_qp());
    let read_only = t.region(64, 0x50_0000, Access::empty());
    t.post(request(1, SendOp::Send, &[sge(&read_only, 0, 64)])).unwrap();
    t.tx(0, "SEND_ONLY psn=5 ackreq len=64");
}

/// Memory that is deregistered during a message, or before its retransmission.
#[test]
fn region_deregistered_during_a_request_fails_it() {
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

/// An acknowledged message does not need its memory.
#[test]
fn region_may_be_deregistered_after_its_message_is_acknowledged() {
    let mut t = Script::requester(rts_qp());
    let region = t.region(512, 0x1_0000_0000, Access::LOCAL_WRITE);
    t.post(request(1, SendOp::Send, &[sge(&region, 0, 512)])).unwrap();
    assert_eq!(t.all(0).len(), 2);
    t.memory.deregister(&region);
    t.rx(1, "ACK psn=6 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 512)]);
}

/// The error completion is solicited, regardless of the request.
#[test]
fn failed_request_completes_as_solicited() {
    let mut t = Script::requester(rts_qp());
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.rx(1, "NAK_INV psn=5 msn=0");
    assert_eq!(t.sends(), [Completion { solicited: true, ..failed(1, WcStatus::RemInvReqErr) }]);
}
