//! The UC sender, packet by packet: a request completes when its last packet is sent.
//!
//! The first PSN is 5, and the path MTU is 256.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{REMOTE, Script, failed, ok, rts_qp_of};
use crate::support::{Link, full_access, pattern, request, sge};
use softroce::engine::{PostError, QpAttr, QpState, QpType};
use softroce::ids::Lkey;
use softroce::mem::Access;
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{
    SendData, SendFlags, SendOp, SendRequest, Sge, WcOpcode, WcStatus,
};

const SEND: WcOpcode = WcOpcode::Send;
const WRITE: WcOpcode = WcOpcode::RdmaWrite;

fn uc() -> Link {
    rts_qp_of(QpType::Uc)
}

/// §4.6: without waiting for a response.
#[test]
fn request_completes_when_it_is_sent() {
    let mut t = Script::requester(uc());
    t.send(1, 8);
    assert_eq!(t.sends(), []);
    let sent = t.tx(0, "SEND_ONLY psn=5 len=8");
    assert_eq!(sent.payload(), t.sent_data(0..8));
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    t.quiet(100_000_000);
    assert_eq!(t.engine.counters().retransmitted, 0);
}

/// PKT-18, PKT-19
#[test]
fn messages_are_segmented_into_packets() {
    let mut t = Script::requester(uc());
    t.send(1, 600);
    t.write(2, 512);
    t.post_op(3, SendOp::SendImm { imm: 9 }, 257);
    t.post_op(4, SendOp::WriteImm { to: REMOTE, imm: 10 }, 300);
    t.post_op(5, SendOp::WriteImm { to: REMOTE, imm: 11 }, 0);
    t.post_op(6, SendOp::SendImm { imm: 12 }, 256);
    let mut payloads = Vec::new();
    for line in [
        "SEND_FIRST psn=5 len=256",
        "SEND_MIDDLE psn=6 len=256",
        "SEND_LAST psn=7 len=88",
        "WRITE_FIRST psn=8 va=0x8000 rkey=0x00000100 dmalen=512 len=256",
        "WRITE_LAST psn=9 len=256",
        "SEND_FIRST psn=10 len=256",
        "SEND_LAST_IMM psn=11 imm=0x00000009 len=1",
        "WRITE_FIRST psn=12 va=0x8000 rkey=0x00000100 dmalen=300 len=256",
        "WRITE_LAST_IMM psn=13 imm=0x0000000a len=44",
        "WRITE_ONLY_IMM psn=14 va=0x8000 rkey=0x00000100 dmalen=0 imm=0x0000000b len=0",
        "SEND_ONLY_IMM psn=15 imm=0x0000000c len=256",
    ] {
        payloads.extend_from_slice(t.tx(0, line).payload());
    }
    let expected = [600, 512, 257, 300, 256].map(|len| t.sent_data(0..len)).concat();
    assert!(payloads == expected);
    let ends = [(1, SEND, 600), (2, WRITE, 512), (3, SEND, 257), (4, WRITE, 300), (5, WRITE, 0)];
    let mut ends: Vec<_> = ends.map(|(wr_id, opcode, len)| ok(wr_id, opcode, len)).into();
    ends.push(ok(6, SEND, 256));
    assert_eq!(t.sends(), ends);
}

/// REQ-02
#[test]
fn psn_wraps_within_a_message() {
    let mut t = Script::requester(Link { psn: [0xff_fffe, 5], ..uc() });
    t.send(1, 600);
    t.send(2, 1);
    t.tx(0, "SEND_FIRST psn=16777214 len=256");
    t.tx(0, "SEND_MIDDLE psn=16777215 len=256");
    t.tx(0, "SEND_LAST psn=0 len=88");
    t.tx(0, "SEND_ONLY psn=1 len=1");
    assert_eq!(t.sends(), [ok(1, SEND, 600), ok(2, SEND, 1)]);
}

/// REQ-41: the conventions for every packet define the place of the solicited bit.
#[test]
fn solicited_bit_is_set_in_the_last_packet_only() {
    let mut t = Script::requester(uc());
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    t.post_flags(1, SendOp::Send, 300, flags);
    t.post_flags(2, SendOp::Write { to: REMOTE }, 8, flags);
    t.post_flags(3, SendOp::WriteImm { to: REMOTE, imm: 1 }, 8, flags);
    t.tx(0, "SEND_FIRST psn=5 len=256");
    t.tx(0, "SEND_LAST psn=6 solicited len=44");
    t.tx(0, "WRITE_ONLY psn=7 va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    let notice = "va=0x8000 rkey=0x00000100 dmalen=8 imm=0x00000001 len=8";
    t.tx(0, &format!("WRITE_ONLY_IMM psn=8 solicited {notice}"));
    assert_eq!(t.sends().len(), 3);
}

#[test]
fn only_signaled_requests_complete_with_success() {
    let mut t = Script::requester(uc());
    t.post_flags(1, SendOp::Send, 8, SendFlags::empty());
    t.send(2, 8);
    assert_eq!(t.all(0).len(), 2);
    assert_eq!(t.sends(), [ok(2, SEND, 8)]);

    let mut t = Script::requester(Link { sq_sig_all: true, ..uc() });
    t.post_flags(1, SendOp::Send, 8, SendFlags::empty());
    assert_eq!(t.all(0).len(), 1);
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}

#[test]
fn inline_data_is_copied_when_posted() {
    let mut t = Script::requester(uc());
    let data = SendData::inline(&pattern(9, 200));
    t.post(SendRequest { data, ..request(1, SendOp::Send, &[]) }).unwrap();
    let sent = t.tx(0, "SEND_ONLY psn=5 len=200");
    assert_eq!(sent.payload(), pattern(9, 200));
    assert_eq!(t.sends(), [ok(1, SEND, 200)]);
}

/// Small messages share a burst, and the queue has its requested depth.
#[test]
fn send_queue_is_free_after_all_packets_left() {
    let mut t = Script::requester(uc());
    let capacity = t.link.cap.max_send_wr as usize;
    for round in 0..3 {
        // Long enough for the peer's receive buffer to be empty.
        t.at(round * 1000);
        for wr_id in 0..capacity as u64 {
            t.send(wr_id, 8);
        }
        let refused = t.post(request(0, SendOp::Send, &[]));
        assert_eq!(refused, Err(PostError::QueueFull { capacity }));
        let sent = t.all(round * 1000);
        let bursts = sent.last().unwrap().burst - sent[0].burst + 1;
        assert_eq!((sent.len(), bursts), (capacity, capacity.div_ceil(64)));
        assert_eq!(t.sends().len(), capacity);
    }
}

/// UC-07
#[test]
fn operations_with_a_response_are_refused() {
    let mut t = Script::requester(uc());
    let at = REMOTE;
    for op in [
        SendOp::Read { from: at },
        SendOp::CompareSwap { at, expect: 0, swap: 1 },
        SendOp::FetchAdd { at, add: 1 },
    ] {
        let refused = t.post(request(1, op, &[sge(&t.answers, 0, 8)]));
        let (qp_type, operation) = (QpType::Uc, op.wc_opcode());
        assert_eq!(refused, Err(PostError::NoSuchOperation { qp_type, operation }));
    }
    t.quiet(1000);
}

/// §4.6: UC ignores responses.
#[test]
fn responses_are_dropped() {
    let mut t = Script::requester(uc());
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 len=8");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
    let qpn = t.qpn;
    for name in ["ACK", "NAK_PSN", "NAK_ACCESS"] {
        t.rx(0, &format!("RC {name} qp={qpn} psn=5 msn=1"));
    }
    assert_eq!((t.dropped(DropReason::WrongTransport), t.state()), (3, QpState::Rts));
    t.quiet(1_000_000);
}

// ---- states ----

/// QPS-15
#[test]
fn request_with_invalid_memory_leads_to_sqe() {
    let mut t = Script::requester(uc());
    t.post_recv(64);
    t.send(1, 8);
    let bad = Sge { lkey: Lkey(1), ..sge(&t.data, 0, 600) };
    t.post(request(2, SendOp::Send, &[bad])).unwrap();
    t.send(3, 8);
    t.tx(0, "SEND_ONLY psn=5 len=8");
    t.quiet(0);
    let ends = [failed(2, WcStatus::LocProtErr), failed(3, WcStatus::WrFlushErr)];
    assert_eq!(t.sends(), [vec![ok(1, SEND, 8)], ends.into()].concat());
    assert_eq!((t.state(), t.events()), (QpState::Sqe, vec![]));
    t.send(4, 8);
    assert_eq!(t.sends(), [failed(4, WcStatus::WrFlushErr)]);
    t.rx(0, "SEND_ONLY psn=5 len=8");
    assert_eq!(t.recvs(), [ok(1, WcOpcode::Recv, 8)]);

    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.send(5, 8);
    let after = t.all(0);
    assert_eq!((after.len(), after[0].payload()), (1, &t.sent_data(0..8)[..]));
    assert_eq!(t.sends(), [ok(5, SEND, 8)]);
}

/// Half of the message was sent; the peer misses the rest, and the request must not succeed.
#[test]
fn request_with_deregistered_memory_fails() {
    let mut t = Script::requester(uc());
    let region = t.region(1 << 20, 0x90_0000, full_access());
    t.post(request(1, SendOp::Send, &[sge(&region, 0, 1 << 20)])).unwrap();
    t.tx(0, "SEND_FIRST psn=5 len=256");
    t.memory.deregister(&region);
    let rest = t.all(1000);
    assert!(rest.iter().all(|sent| sent.line().starts_with("SEND_MIDDLE")), "it has no end");
    assert_eq!(t.sends(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!(t.state(), QpState::Sqe);

    // The PSN of the next message does not follow that of the last MIDDLE, so the receiver does not continue the
    // message with it.
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.send(2, 8);
    t.tx(1000, "SEND_ONLY psn=4101 len=8");
    assert_eq!(t.sends(), [ok(2, SEND, 8)]);
}

/// QPS-15: in SQD too.
#[test]
fn rts_resumes_a_queue_pair_that_failed_in_sqd() {
    let mut t = Script::requester(uc());
    let region = t.region(1 << 20, 0x90_0000, full_access());
    t.post(request(1, SendOp::Send, &[sge(&region, 0, 1 << 20)])).unwrap();
    t.tx(0, "SEND_FIRST psn=5 len=256");
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    t.memory.deregister(&region);
    t.all(1000);
    assert_eq!(t.sends(), [failed(1, WcStatus::LocProtErr)]);
    assert_eq!((t.state(), t.events()), (QpState::Sqe, vec![]));

    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.send(2, 8);
    t.tx(1000, "SEND_ONLY psn=4101 len=8");
    assert_eq!((t.sends(), t.events()), (vec![ok(2, SEND, 8)], vec![]));
}

/// QPS-09: a started message is finished, and the others are held.
#[test]
fn uc_sqd_finishes_a_started_message() {
    let mut t = Script::requester(uc());
    t.post_op(1, SendOp::Send, 60_000);
    t.send(2, 8);
    t.tx(0, "SEND_FIRST psn=5 len=256");
    t.modify(QpAttr::to(QpState::Sqd)).unwrap();
    let rest = t.all(1000);
    assert_eq!((rest.len(), rest.last().unwrap().line()), (234, "SEND_LAST psn=239 len=96".into()));
    assert_eq!(t.sends(), [ok(1, SEND, 60_000)]);
    assert_eq!(t.events(), [AsyncEvent::SqDrained(t.qpn)]);
    t.modify(QpAttr::to(QpState::Rts)).unwrap();
    t.tx(1000, "SEND_ONLY psn=240 len=8");
    assert_eq!(t.sends(), [ok(2, SEND, 8)]);
}

/// QPS-04
#[test]
fn err_flushes_unsent_requests() {
    let mut t = Script::requester(uc());
    t.post_op(1, SendOp::Send, 60_000);
    t.send(2, 8);
    t.tx(0, "SEND_FIRST psn=5 len=256");
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(t.sends(), [1, 2].map(|wr_id| failed(wr_id, WcStatus::WrFlushErr)));
    t.all(0);
    t.quiet(1_000_000);
}

/// Sends need no access rights of the region.
#[test]
fn sends_need_no_access_rights() {
    let mut t = Script::requester(uc());
    let region = t.region(4096, 0x90_0000, Access::empty());
    t.post(request(1, SendOp::Write { to: REMOTE }, &[sge(&region, 0, 8)])).unwrap();
    t.tx(0, "WRITE_ONLY psn=5 va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    assert_eq!(t.sends(), [ok(1, WRITE, 8)]);
}
