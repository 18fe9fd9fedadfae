//! Extended reliable connections, packet by packet: targets as responders, and initiators as requesters.
//!
//! Either expects or starts with PSN 5, and the path MTU is 256. `srqn=ours` is a shared receive queue of the
//! target's domain, and `va=0x1000 rkey=mem` is 64 KiB in the protection domain of that queue, which the peer may
//! write, read and change by atomics.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{REMOTE, Script, failed, ok, rts_qp, rts_qp_of};
use crate::support::{Link, PD, RECV_CQ, SEND_CQ, XRCD, full_access, pattern, qp_init, sge};
use softroce::engine::{
    CreateError, PostError, QpAttr, QpInit, QpState, QpType, SrqError, SrqInit, XrcSrq,
};
use softroce::ids::{CqId, PdId, Srqn, XrcdId};
use softroce::mem::HostMemory;
use softroce::time::Instant;
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{RecvRequest, SendOp, SendRequest, SendTarget, WcOpcode, WcStatus};

const RECV: WcOpcode = WcOpcode::Recv;
const SEND: WcOpcode = WcOpcode::Send;

fn target() -> Script {
    Script::xrc_target()
}

fn initiator() -> Script {
    Script::requester(rts_qp_of(QpType::XrcIni))
}

/// Checks that a request is refused with this NAK, the events, and ERR.
#[track_caller]
fn refused(t: &mut Script, request: &str, nak: &str) {
    t.rx(0, request);
    t.tx(0, nak);
    let events = [AsyncEvent::QpReqErr(t.qpn), AsyncEvent::QpLastWqeReached(t.qpn)];
    assert_eq!((t.events(), t.state()), (events.to_vec(), QpState::Err), "{request}");
}

// ---- targets ----

/// A message takes a request of the queue that its packets name, and completes in that queue's completion queue.
#[test]
fn xrc_message_takes_a_request_of_its_srq() {
    let mut t = target();
    let (first, second) = (t.named.unwrap(), t.create_xrc_srq(PD, CqId(77)));
    let (one, other) =
        (t.region(1024, 0x50_0000, full_access()), t.region(1024, 0x60_0000, full_access()));
    for (srqn, region, wr_id) in [(first, &one, 1), (second, &other, 2)] {
        let request = RecvRequest::new(wr_id, sge(region, 0, 1024));
        t.engine.post_srq_recv(srqn, request).unwrap();
    }
    t.rx(0, &format!("SEND_FIRST psn=5 srqn={second} len=256"));
    t.rx(0, &format!("SEND_LAST psn=6 ackreq srqn={second} len=8"));
    t.tx(0, "ACK psn=6 msn=1");
    t.rx(0, &format!("SEND_ONLY psn=7 ackreq srqn={first} len=8"));
    t.tx(0, "ACK psn=7 msn=2");
    let completions = std::iter::from_fn(|| t.engine.poll_completion());
    let ends: Vec<_> = completions.map(|(cq, c)| (cq, c.wr_id, c.byte_len, c.qpn)).collect();
    assert_eq!(ends, [(CqId(77), 2, 264, t.qpn), (RECV_CQ, 1, 8, t.qpn)]);
    assert_eq!(
        crate::support::script::bytes(&other, 0, 264),
        [pattern(5, 256), pattern(6, 8)].concat()
    );
    assert_eq!(crate::support::script::bytes(&one, 0, 8), pattern(7, 8));
}

/// RSP-01, RSP-11: the rest equals RC, and responses name no queue.
#[test]
fn xrc_requests_are_answered_like_rc_requests() {
    let mut t = target();
    t.post_recv(0);
    t.rx(0, "WRITE_FIRST psn=5 srqn=ours va=0x1000 rkey=mem dmalen=264 len=256");
    t.rx(0, "WRITE_LAST_IMM psn=6 ackreq srqn=ours imm=0x00000009 len=8");
    t.tx(0, "ACK psn=6 msn=1");
    let told = ok(1, WcOpcode::RecvRdmaWithImm, 264);
    assert_eq!(t.recvs(), [softroce::transport::work::Completion { imm: Some(9), ..told }]);
    t.rx(0, "READ_REQUEST psn=7 ackreq srqn=ours va=0x1000 rkey=mem dmalen=600");
    let first = t.tx(0, "READ_RESPONSE_FIRST psn=7 msn=2 len=256");
    assert_eq!((first.bytes[0], first.payload().to_vec()), (0xad, pattern(5, 256)));
    t.tx(0, "READ_RESPONSE_MIDDLE psn=8 len=256");
    t.tx(0, "READ_RESPONSE_LAST psn=9 msn=2 len=88");
    t.rx(0, "FETCH_ADD psn=10 ackreq srqn=ours va=0x2000 rkey=mem add=0x5");
    t.tx(0, "ATOMIC_ACK psn=10 msn=3 value=0x0");
    t.rx(0, "COMPARE_SWAP psn=11 ackreq srqn=ours va=0x2000 rkey=mem expect=0x5 swap=0x7");
    t.tx(0, "ATOMIC_ACK psn=11 msn=4 value=0x5");
    assert_eq!(t.mem.load_u64(0x1000), Ok(7));
    t.rx(0, "WRITE_ONLY psn=13 ackreq srqn=ours va=0x1000 rkey=mem dmalen=8 len=8");
    t.tx(0, "NAK_PSN psn=12 msn=4");
}

/// RSP-23: only the named queue counts.
#[test]
fn empty_xrc_srq_causes_an_rnr_nak() {
    let mut t = target();
    let other = t.create_xrc_srq(PD, RECV_CQ);
    t.engine.post_srq_recv(other, RecvRequest::default()).unwrap();
    t.rx(0, "SEND_ONLY psn=5 ackreq srqn=ours len=8");
    t.tx(0, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.post_recv(64);
    t.rx(640, "SEND_ONLY psn=5 ackreq srqn=ours len=8");
    t.tx(640, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, RECV, 8)]);
}

/// Every request names a queue of the target's domain, even if it takes no receive request.
#[test]
fn srq_of_another_xrc_domain_is_an_invalid_request() {
    let foreign = |t: &mut Script| {
        let xrc = Some(XrcSrq { domain: XrcdId(2), cq: RECV_CQ });
        t.engine.create_srq(SrqInit { pd: PD, max_wr: 1, max_sge: 1, xrc }).unwrap()
    };
    let ordinary = |t: &mut Script| {
        t.engine.create_srq(SrqInit { pd: PD, max_wr: 1, max_sge: 1, xrc: None }).unwrap()
    };
    let unknown = |_: &mut Script| Srqn::new(0xab_cdef);
    for number in [&foreign as &dyn Fn(&mut Script) -> Srqn, &ordinary, &unknown] {
        for request in [
            "SEND_ONLY psn=5 ackreq srqn=@ len=8",
            "SEND_FIRST psn=5 srqn=@ len=256",
            "WRITE_ONLY psn=5 ackreq srqn=@ va=0x1000 rkey=mem dmalen=8 len=8",
            "READ_REQUEST psn=5 ackreq srqn=@ va=0x1000 rkey=mem dmalen=8",
            "FETCH_ADD psn=5 ackreq srqn=@ va=0x1000 rkey=mem add=0x1",
        ] {
            let mut t = target();
            t.post_recv(512);
            let srqn = number(&mut t);
            refused(&mut t, &request.replace('@', &srqn.to_string()), "NAK_INV psn=5 msn=0");
            assert_eq!((t.recvs(), t.mem.load_u64(0)), (vec![], Ok(0)), "{request}");
        }
    }
}

/// RSP-02, RSP-04: the queue number of duplicates and out-of-order packets is not checked.
#[test]
fn duplicate_or_early_packet_is_no_invalid_request() {
    let mut t = target();
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=7 ackreq srqn=0xabcdef len=8");
    t.tx(0, "NAK_PSN psn=5 msn=0");
    t.rx(0, "SEND_ONLY psn=5 ackreq srqn=ours len=8");
    t.tx(0, "ACK psn=5 msn=1");
    t.rx(0, "SEND_ONLY psn=5 ackreq srqn=0xabcdef len=8");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, RECV, 8)]);
}

/// RSP-16, RSP-46
#[test]
fn xrc_message_belongs_to_one_srq() {
    for (first, next, ends) in [
        ("SEND_FIRST psn=5 srqn=ours len=256", "SEND_LAST psn=6 ackreq srqn=@ len=8", true),
        (
            "WRITE_FIRST psn=5 srqn=ours va=0x1000 rkey=mem dmalen=512 len=256",
            "WRITE_LAST psn=6 ackreq srqn=@ len=256",
            false,
        ),
    ] {
        let mut t = target();
        let other = t.create_xrc_srq(PD, RECV_CQ);
        t.post_recv(512);
        t.engine.post_srq_recv(other, RecvRequest::default()).unwrap();
        t.rx(0, first);
        t.rx(0, &next.replace('@', &other.to_string()));
        t.tx(0, "NAK_INV psn=6 msn=0");
        let last = AsyncEvent::QpLastWqeReached(t.qpn);
        if ends {
            assert_eq!(t.recvs(), [failed(1, WcStatus::RemInvReqErr)]);
            assert_eq!(t.events(), [last]);
        } else {
            assert_eq!((t.recvs(), t.events()), (vec![], vec![AsyncEvent::QpReqErr(t.qpn), last]));
        }
    }
}

/// MR-11, RSP-26: a target has no protection domain; keys belong to that of the queue.
#[test]
fn xrc_keys_belong_to_the_domain_of_the_srq() {
    let mut t = target();
    let pd = PdId(9);
    let other = t.create_xrc_srq(pd, RECV_CQ);
    let memory = HostMemory::alloc(4096).unwrap();
    let theirs = t.memory.register(pd, memory, Some(0x8000), full_access()).unwrap();
    let request = |psn: u32, srqn: Srqn, key, op: &str| {
        format!("{op} psn={psn} ackreq srqn={srqn} va=0x8000 rkey={key} dmalen=8")
    };
    t.rx(0, &format!("{} len=8", request(5, other, theirs.rkey(), "WRITE_ONLY")));
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(crate::support::script::bytes(&theirs, 0, 8), pattern(5, 8));
    t.rx(0, &request(6, other, theirs.rkey(), "READ_REQUEST"));
    t.tx(0, "READ_RESPONSE_ONLY psn=6 msn=2 len=8");
    t.rx(0, &request(7, t.named.unwrap(), theirs.rkey(), "READ_REQUEST"));
    t.tx(0, "NAK_ACCESS psn=7 msn=2");
    let events = [AsyncEvent::QpAccessErr(t.qpn), AsyncEvent::QpLastWqeReached(t.qpn)];
    assert_eq!(t.events(), events);
}

/// RSP-05: a READ is repeated during a later message for a queue of another protection domain.
#[test]
fn duplicate_xrc_read_uses_the_domain_of_its_own_srq() {
    let read = "READ_REQUEST psn=5 ackreq srqn=ours va=0x1000 rkey=mem dmalen=8";
    let mut t = target();
    let other = t.create_xrc_srq(PdId(9), RECV_CQ);
    let memory = HostMemory::alloc(4096).unwrap();
    let theirs = t.memory.register(PdId(9), memory, Some(0x8000), full_access()).unwrap();
    t.rx(0, read);
    t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    let rkey = theirs.rkey();
    t.rx(0, &format!("WRITE_FIRST psn=6 srqn={other} va=0x8000 rkey={rkey} dmalen=264 len=256"));
    t.rx(0, read);
    t.tx(0, "READ_RESPONSE_ONLY psn=5 msn=1 len=8");
    t.rx(0, &format!("WRITE_LAST psn=7 ackreq srqn={other} len=8"));
    t.tx(0, "ACK psn=7 msn=2");
}

/// PKT-11: packets of other transports, and responses, are dropped.
#[test]
fn xrc_target_accepts_xrc_requests_only() {
    let mut t = target();
    for packet in [
        "RC SEND_ONLY qp=@ psn=5 len=8",
        "UC SEND_ONLY qp=@ psn=5 len=8",
        "XRC ACKNOWLEDGE qp=@ psn=5 msn=0",
        "XRC READ_RESPONSE_ONLY qp=@ psn=5 msn=0 len=8",
    ] {
        let before = t.dropped(DropReason::WrongTransport);
        let packet = match packet {
            "XRC ACKNOWLEDGE qp=@ psn=5 msn=0" => "ACK psn=5 msn=0".to_owned(),
            other => other.replace('@', &t.qpn.to_string()),
        };
        t.rx(0, &packet);
        assert_eq!(t.dropped(DropReason::WrongTransport), before + 1, "{packet}");
    }
    t.rx(0, "CNP psn=0 becn");
    assert_eq!(t.engine.counters().cnps_received, 1);
}

/// QPS-04, QPS-11: the request of the message in progress completes in the queue's completion queue.
#[test]
fn err_flushes_the_request_of_the_message_in_progress() {
    let mut t = target();
    t.post_recv(600);
    t.post_recv(600);
    t.rx(0, "SEND_FIRST psn=5 srqn=ours len=256");
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(t.recvs(), [failed(1, WcStatus::WrFlushErr)]);
    assert_eq!(t.events(), [AsyncEvent::QpLastWqeReached(t.qpn)]);
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    t.bring_to(QpState::Rts);
    t.rx(0, "SEND_FIRST psn=5 srqn=ours len=256");
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    t.bring_to(QpState::Rts);
    t.rx(0, "SEND_ONLY psn=5 ackreq srqn=ours len=8");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(2, RECV, 8)]);
}

#[test]
fn xrc_srq_is_destroyed_during_a_message() {
    let mut t = target();
    let srqn = t.named.unwrap();
    t.post_recv(600);
    t.rx(0, "SEND_FIRST psn=5 srqn=ours len=256");
    assert_eq!(t.engine.destroy_srq(srqn), Ok(()));
    refused(&mut t, "SEND_LAST psn=6 ackreq srqn=ours len=8", "NAK_INV psn=6 msn=0");
    assert_eq!(t.engine.destroy_srq(srqn), Err(SrqError::NoSuchSrq(srqn)));
}

/// CC-10
#[test]
fn cq_overrun_fails_the_xrc_srq_and_targets_that_use_it() {
    let mut t = target();
    let srqn = t.named.unwrap();
    t.post_recv(64);
    t.engine.handle_cq_overflow(Instant::ZERO, CqId(99));
    assert_eq!(t.events(), [AsyncEvent::CqErr(CqId(99))]);
    let other = t.create_xrc_srq(PD, CqId(5));
    t.engine.handle_cq_overflow(Instant::ZERO, CqId(5));
    assert_eq!(t.events(), [AsyncEvent::CqErr(CqId(5)), AsyncEvent::SrqErr(other)]);
    t.rx(0, "SEND_ONLY psn=5 ackreq srqn=ours len=8");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, RECV, 8)]);
    assert_ne!(srqn, other);
    t.rx(0, &format!("SEND_ONLY psn=6 ackreq srqn={other} len=8"));
    t.tx(0, "NAK_OP psn=6 msn=1");
    let events = [AsyncEvent::QpFatal(t.qpn), AsyncEvent::QpLastWqeReached(t.qpn)];
    assert_eq!(t.events(), events);
}

/// CC-10: a target has no send completions, and an initiator no receive completions.
#[test]
fn cq_overrun_fails_only_the_xrc_sides_that_use_it() {
    for (mut t, failed_by_send_cq) in [(target(), false), (initiator(), true)] {
        t.engine.handle_cq_overflow(Instant::ZERO, RECV_CQ);
        assert_eq!(t.state(), QpState::Rts);
        t.engine.handle_cq_overflow(Instant::ZERO, SEND_CQ);
        assert_eq!(t.state() == QpState::Err, failed_by_send_cq);
        t.events();
    }
}

#[test]
fn xrc_initiator_and_target_accept_their_own_requests_only() {
    let mut t = target();
    let qpn = t.qpn;
    let no_queue = |qp_type, queue| Err(PostError::NoQueue { qpn, qp_type, queue });
    let send = SendRequest::send(1, sge(&t.data, 0, 8)).to(Srqn::new(1));
    assert_eq!(t.post(send.clone()), no_queue(QpType::XrcTgt, "send"));
    let recv = t.engine.post_recv(Instant::ZERO, qpn, RecvRequest::default());
    assert_eq!(recv, no_queue(QpType::XrcTgt, "receive"));
    let cap = t.engine.query_qp(qpn).unwrap().init.cap;
    assert_eq!((cap.max_send_wr, cap.max_recv_wr), (0, 0));

    let mut t = initiator();
    let qpn = t.qpn;
    let recv = t.engine.post_recv(Instant::ZERO, qpn, RecvRequest::default());
    let expected = PostError::NoQueue { qpn, qp_type: QpType::XrcIni, queue: "receive" };
    assert_eq!(recv, Err(expected));
    assert_eq!(t.post(SendRequest { to: None, ..send.clone() }), Err(PostError::NoSrqn));
    let elsewhere = SendTarget::Datagram(crate::support::script::target(qpn));
    assert_eq!(t.post(SendRequest { to: Some(elsewhere), ..send }), Err(PostError::NoSrqn));
    let cap = t.engine.query_qp(qpn).unwrap().init.cap;
    assert_eq!((cap.max_send_wr, cap.max_recv_wr), (128, 0));
}

#[test]
fn xrc_srqs_and_other_srqs_are_not_interchangeable() {
    let mut t = target();
    let srqn = t.named.unwrap();
    let create = |t: &mut Script, qp_type, srq, xrcd| {
        let link = Link { qp_type, ..rts_qp() };
        t.engine.create_qp(Instant::ZERO, QpInit { srq, xrcd, ..qp_init(&link) })
    };
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let error = create(&mut t, qp_type, Some(srqn), None).unwrap_err();
        assert_eq!(error, CreateError::SrqType { srqn, qp_type, other: "XRC" });
    }
    for qp_type in [QpType::XrcIni, QpType::XrcTgt] {
        let error = create(&mut t, qp_type, Some(srqn), Some(XRCD)).unwrap_err();
        assert_eq!(error, CreateError::SrqType { srqn, qp_type, other: "requests that name it" });
    }
    assert_eq!(create(&mut t, QpType::XrcTgt, None, None), Err(CreateError::NoXrcd));
    assert!(create(&mut t, QpType::XrcIni, None, None).is_ok());
}

#[test]
fn xrc_srq_requires_a_completion_queue() {
    let mut t = target();
    let mut create = |qp_type, send_cq, recv_cq| {
        let link = Link { qp_type, xrcd: Some(XRCD), ..rts_qp() };
        let init = QpInit { send_cq, recv_cq, ..qp_init(&link) };
        t.engine.create_qp(Instant::ZERO, init).map(|_| ())
    };
    let missing = |qp_type, queue| Err(CreateError::NoCq { qp_type, queue });
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        assert_eq!(create(qp_type, None, Some(RECV_CQ)), missing(qp_type, "send"));
        assert_eq!(create(qp_type, Some(SEND_CQ), None), missing(qp_type, "receive"));
    }
    assert_eq!(create(QpType::XrcIni, None, Some(RECV_CQ)), missing(QpType::XrcIni, "send"));
    assert_eq!(create(QpType::XrcIni, Some(SEND_CQ), None), Ok(()));
    assert_eq!(create(QpType::XrcTgt, None, None), Ok(()));
}

// ---- initiators ----

/// Every packet of every request names the queue, before the other headers.
#[test]
fn every_xrc_request_packet_names_its_srq() {
    let mut t = initiator();
    t.send(1, 520);
    t.tx(0, "SEND_FIRST psn=5 srqn=0x000345 len=256");
    t.tx(0, "SEND_MIDDLE psn=6 srqn=0x000345 len=256");
    let last = t.tx(0, "SEND_LAST psn=7 ackreq srqn=0x000345 len=8");
    assert_eq!((last.bytes[0], &last.bytes[12..16]), (0xa2, &[0, 0, 0x03, 0x45][..]));
    t.write(2, 8);
    t.tx(0, "WRITE_ONLY psn=8 ackreq srqn=0x000345 va=0x8000 rkey=0x00000100 dmalen=8 len=8");
    t.post_op(3, SendOp::WriteImm { to: REMOTE, imm: 7 }, 8);
    t.tx(
        0,
        "WRITE_ONLY_IMM psn=9 ackreq srqn=0x000345 va=0x8000 rkey=0x00000100 dmalen=8 \
         imm=0x00000007 len=8",
    );
    t.read(4, 8);
    t.tx(0, "READ_REQUEST psn=10 ackreq srqn=0x000345 va=0x8000 rkey=0x00000100 dmalen=8");
    t.fetch_add(5, 3);
    t.tx(0, "FETCH_ADD psn=11 ackreq srqn=0x000345 va=0x8000 rkey=0x00000100 add=0x3");
    t.rx(1, "ACK psn=9 msn=3");
    t.rx(1, "READ_RESPONSE_ONLY psn=10 msn=4 len=8");
    t.rx(1, "ATOMIC_ACK psn=11 msn=5 value=0x9");
    let ends: Vec<_> = t.sends().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(ends, [1, 2, 3, 4, 5].map(|wr_id| (wr_id, WcStatus::Success)));
    assert_eq!(t.answer(8), 9_u64.to_ne_bytes());
}

#[test]
fn each_xrc_request_selects_its_srq() {
    let mut t = initiator();
    for srqn in [0x11, 0x22] {
        let send = SendRequest::send(srqn, sge(&t.data, 0, 8)).to(Srqn::new(srqn as u32));
        t.post(send.signaled()).unwrap();
    }
    t.tx(0, "SEND_ONLY psn=5 ackreq srqn=0x000011 len=8");
    t.tx(0, "SEND_ONLY psn=6 ackreq srqn=0x000022 len=8");
    t.rx(1, "ACK psn=6 msn=2");
    assert_eq!(t.sends(), [ok(0x11, SEND, 8), ok(0x22, SEND, 8)]);
}

/// REQ-19, REQ-23: retransmissions name the same queue.
#[test]
fn xrc_retransmission_names_the_same_srq() {
    let mut t = initiator();
    t.send(1, 300);
    t.tx(0, "SEND_FIRST psn=5 srqn=0x000345 len=256");
    t.tx(0, "SEND_LAST psn=6 ackreq srqn=0x000345 len=44");
    t.rx(10, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.tx(650, "SEND_FIRST psn=5 srqn=0x000345 len=256");
    t.tx(650, "SEND_LAST psn=6 ackreq srqn=0x000345 len=44");
    t.rx(660, "NAK_PSN psn=6 msn=0");
    t.tx(660, "SEND_LAST psn=6 ackreq srqn=0x000345 len=44");
    t.rx(670, "ACK psn=6 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 300)]);
}

/// REQ-21: the peer does not have the queue.
#[test]
fn nak_fails_the_xrc_request() {
    let mut t = initiator();
    t.send(1, 8);
    t.send(2, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq srqn=0x000345 len=8");
    t.tx(0, "SEND_ONLY psn=6 ackreq srqn=0x000345 len=8");
    t.rx(1, "NAK_INV psn=5 msn=0");
    assert_eq!(t.sends(), [failed(1, WcStatus::RemInvReqErr), failed(2, WcStatus::WrFlushErr)]);
    assert_eq!((t.events(), t.state()), (vec![], QpState::Err));
}

#[test]
fn xrc_initiator_accepts_xrc_responses_only() {
    let mut t = initiator();
    t.send(1, 8);
    t.tx(0, "SEND_ONLY psn=5 ackreq srqn=0x000345 len=8");
    let qpn = t.qpn.to_string();
    for packet in [
        "RC READ_RESPONSE_ONLY qp=@ psn=5 msn=1 len=0",
        "XRC SEND_ONLY qp=@ psn=5 srqn=0x000001 len=8",
    ] {
        let before = t.dropped(DropReason::WrongTransport);
        t.rx(1, &packet.replace('@', &qpn));
        assert_eq!(t.dropped(DropReason::WrongTransport), before + 1, "{packet}");
    }
    t.rx(2, "ACK psn=5 msn=1");
    assert_eq!(t.sends(), [ok(1, SEND, 8)]);
}
