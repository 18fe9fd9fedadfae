//! Shared receive queues: taken and remaining requests, limits and events, packet by packet and with several queue
//! pairs.
//!
//! The queue pair of a script expects PSN 5 first, the path MTU is 256, and `va=0x1000 rkey=mem` is 64 KiB that the
//! peer may write.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use crate::support::script::{PEER, Script, failed, ok, rts_qp, rts_qp_of};
use crate::support::{Link, PD, World, full_access, line, pattern, qp_init, receive, sge};
use softroce::engine::{
    CreateError, Engine, PostError, QpAttr, QpState, QpType, SrqAttr, SrqError, SrqInit, SrqModify,
};
use softroce::ids::{PdId, Qpn, Srqn};
use softroce::mem::HostMemory;
use softroce::time::Instant;
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{RecvRequest, Sge, WcOpcode, WcStatus};

const RECV: WcOpcode = WcOpcode::Recv;

/// Creates a script with a queue pair that uses a shared receive queue of 8 requests.
fn rc() -> Script {
    Script::sharing(rts_qp(), 8)
}

fn of(qp_type: QpType) -> Script {
    Script::sharing(rts_qp_of(qp_type), 8)
}

fn srqn(t: &Script) -> Srqn {
    t.link.srq.unwrap()
}

fn set_limit(t: &mut Script, limit: u32) {
    let modify = SrqModify { limit: Some(limit), ..SrqModify::default() };
    t.engine.modify_srq(srqn(t), modify).unwrap();
}

/// Checks that a message of one packet takes the request `wr_id`.
#[track_caller]
fn takes(t: &mut Script, psn: u32, wr_id: u64) {
    t.rx(0, &format!("SEND_ONLY psn={psn} len=8"));
    assert_eq!(t.recvs(), [ok(wr_id, RECV, 8)]);
    assert_eq!(t.received(wr_id, 8), pattern(psn.into(), 8));
}

// ---- one queue pair ----

/// RSP-23, RSP-41
#[test]
fn message_takes_the_oldest_srq_request_or_waits() {
    let mut t = rc();
    t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    for wr_id in 1..=2 {
        assert_eq!(t.post_recv(64), wr_id);
    }
    t.rx(640, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(640, "ACK psn=5 msn=1");
    t.rx(640, "SEND_ONLY psn=6 ackreq len=0");
    t.tx(640, "ACK psn=6 msn=2");
    assert_eq!(t.recvs(), [ok(1, RECV, 8), ok(2, RECV, 0)]);
    assert_eq!(t.received(1, 8), pattern(5, 8));
}

/// RSP-24
#[test]
fn write_with_immediate_takes_a_request_at_its_end() {
    let mut t = rc();
    let notice = "WRITE_ONLY_IMM psn=5 ackreq va=0x1000 rkey=mem dmalen=8 imm=0x00000007 len=8";
    t.rx(0, notice);
    t.tx(0, "RNR_NAK psn=5 msn=0 timer=0.64ms");
    t.post_recv(0);
    t.rx(640, notice);
    t.tx(640, "ACK psn=5 msn=1");
    let completion = ok(1, WcOpcode::RecvRdmaWithImm, 8);
    assert_eq!(t.recvs(), [softroce::transport::work::Completion { imm: Some(7), ..completion }]);
}

#[test]
fn message_in_progress_occupies_its_place_in_a_full_queue() {
    let mut t = Script::sharing(rts_qp(), 2);
    t.post_recv(600);
    t.post_recv(600);
    assert_eq!(t.post_recv_sges(&[]), Err(PostError::QueueFull { capacity: 2 }));
    t.rx(0, "SEND_FIRST psn=5 len=256");
    assert_eq!(t.post_recv_sges(&[]), Err(PostError::QueueFull { capacity: 2 }));
    t.rx(0, "SEND_LAST psn=6 len=8");
    assert_eq!(t.recvs(), [ok(1, RECV, 264)]);
    assert_eq!(t.post_recv_sges(&[]), Ok(3));
}

/// MR-11: the memory of requests belongs to the domain of the queue, not of the queue pair.
#[test]
fn srq_memory_belongs_to_the_domain_of_the_queue() {
    let mut t = Script::reset(rts_qp(), |_| {});
    let pd = PdId(7);
    let srqn = t.engine.create_srq(SrqInit { pd, max_wr: 8, max_sge: 1, xrc: None }).unwrap();
    let init = softroce::engine::QpInit { srq: Some(srqn), ..qp_init(&t.link) };
    t.qpn = t.engine.create_qp(Instant::ZERO, init).unwrap();
    t.link.srq = Some(srqn);
    t.bring_to(QpState::Rts);

    let theirs = HostMemory::alloc(4096).unwrap();
    let theirs = t.memory.register(pd, theirs, Some(0x50_0000), full_access()).unwrap();
    let ours = t.region(4096, 0x60_0000, full_access());
    t.post_recv_sges(&[sge(&theirs, 0, 64)]).unwrap();
    t.post_recv_sges(&[sge(&ours, 0, 64)]).unwrap();
    t.rx(0, "SEND_ONLY psn=5 ackreq len=8");
    t.tx(0, "ACK psn=5 msn=1");
    assert_eq!(t.recvs(), [ok(1, RECV, 8)]);
    assert_eq!(crate::support::script::bytes(&theirs, 0, 8), pattern(5, 8));
    t.rx(0, "SEND_ONLY psn=6 ackreq len=8");
    t.tx(0, "NAK_OP psn=6 msn=1");
    assert_eq!(t.recvs(), [failed(2, WcStatus::LocProtErr)]);
    assert_eq!(t.events(), [AsyncEvent::QpLastWqeReached(t.qpn)]);
}

// ---- the limit ----

/// RSP-45
#[test]
fn srq_limit_event_is_reported_once() {
    let mut t = rc();
    for _ in 0..5 {
        t.post_recv(64);
    }
    set_limit(&mut t, 3);
    let event = [AsyncEvent::SrqLimitReached(srqn(&t))];
    takes(&mut t, 5, 1);
    takes(&mut t, 6, 2);
    assert_eq!((t.events(), t.engine.query_srq(srqn(&t)).unwrap().limit), (vec![], 3));
    takes(&mut t, 7, 3);
    assert_eq!((t.events(), t.engine.query_srq(srqn(&t)).unwrap().limit), (event.to_vec(), 0));
    takes(&mut t, 8, 4);
    assert_eq!(t.events(), []);
    set_limit(&mut t, 1);
    takes(&mut t, 9, 5);
    assert_eq!(t.events(), event);
}

/// RSP-45: the first packet of a message takes the request, long before the completion.
#[test]
fn first_packet_takes_the_request() {
    let mut t = rc();
    t.post_recv(600);
    set_limit(&mut t, 1);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    assert_eq!((t.recvs(), t.events()), (vec![], vec![AsyncEvent::SrqLimitReached(srqn(&t))]));
    t.rx(0, "SEND_LAST psn=6 len=8");
    assert_eq!((t.recvs().len(), t.events()), (1, vec![]));
}

/// RSP-45: only a decrease triggers the event.
#[test]
fn limit_above_the_number_of_requests_is_reported_at_the_next_taken_one() {
    let mut t = rc();
    t.post_recv(64);
    set_limit(&mut t, 8);
    t.rx(0, "WRITE_ONLY psn=5 va=0x1000 rkey=mem dmalen=8 len=8");
    assert_eq!(t.events(), []);
    takes(&mut t, 6, 1);
    assert_eq!(t.events(), [AsyncEvent::SrqLimitReached(srqn(&t))]);
}

#[test]
fn cleared_limit_is_not_reported() {
    let mut t = rc();
    t.post_recv(64);
    set_limit(&mut t, 1);
    set_limit(&mut t, 0);
    takes(&mut t, 5, 1);
    assert_eq!(t.events(), []);
}

// ---- errors and states ----

/// QPS-11
#[test]
fn err_leaves_the_requests_in_the_srq_and_reports_last_wqe_once() {
    let mut t = rc();
    t.post_recv(64);
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!((t.recvs(), t.events()), (vec![], vec![AsyncEvent::QpLastWqeReached(t.qpn)]));
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(t.events(), []);
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    t.bring_to(QpState::Rts);
    takes(&mut t, 5, 1);
}

/// QPS-04, QPS-11: its own request completes before the event.
#[test]
fn err_flushes_the_request_of_the_message_in_progress() {
    let mut t = rc();
    t.post_recv(600);
    t.post_recv(600);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(t.recvs(), [failed(1, WcStatus::WrFlushErr)]);
    assert_eq!(t.events(), [AsyncEvent::QpLastWqeReached(t.qpn)]);
}

/// QPS-11, RSP-46
#[test]
fn refused_request_fails_the_queue_pair_and_its_request_only() {
    let mut t = rc();
    t.post_recv(600);
    t.post_recv(600);
    t.rx(0, "SEND_FIRST psn=5 len=256");
    t.rx(0, "SEND_FIRST psn=6 len=256");
    t.tx(0, "NAK_INV psn=6 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::RemInvReqErr)]);
    assert_eq!(t.events(), [AsyncEvent::QpLastWqeReached(t.qpn)]);

    let mut t = rc();
    t.post_recv(600);
    t.rx(0, "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=0x00000001 dmalen=8 len=8");
    t.tx(0, "NAK_ACCESS psn=5 msn=0");
    let events = [AsyncEvent::QpAccessErr(t.qpn), AsyncEvent::QpLastWqeReached(t.qpn)];
    assert_eq!((t.recvs(), t.events()), (vec![], events.to_vec()));
}

/// RSP-22
#[test]
fn message_that_is_too_long_ends_its_request() {
    let mut t = rc();
    t.post_recv(64);
    t.post_recv(64);
    t.rx(0, "SEND_ONLY psn=5 ackreq len=65");
    t.tx(0, "NAK_INV psn=5 msn=0");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocLenErr)]);
    assert_eq!(t.events(), [AsyncEvent::QpLastWqeReached(t.qpn)]);
}

/// QPS-03: no request completes, and none is lost.
#[test]
fn reset_returns_the_request_of_the_message_in_progress() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut t = Script::sharing(rts_qp_of(qp_type), 1);
        t.post_recv(600);
        t.rx(0, "SEND_FIRST psn=5 len=256");
        t.modify(QpAttr::to(QpState::Reset)).unwrap();
        assert_eq!((t.recvs(), t.events()), (vec![], vec![]));
        t.bring_to(QpState::Rts);
        takes(&mut t, 5, 1);
        assert_eq!(t.post_recv(64), 2, "its place is free");
    }
}

#[test]
fn invalid_srq_modification_is_refused_and_changes_nothing() {
    let mut t = Script::sharing(rts_qp(), 2);
    let (srqn, none) = (srqn(&t), Srqn::new(0x999));
    let init = |max_wr| SrqInit { pd: PD, max_wr, max_sge: 1, xrc: None };
    assert_eq!(t.engine.create_srq(init(0)), Err(SrqError::Empty));

    let recv = RecvRequest::default();
    let (qpn, engine) = (t.qpn, &mut t.engine);
    let to_qp = engine.post_recv(Instant::ZERO, qpn, recv.clone());
    assert_eq!(to_qp, Err(PostError::Shared { qpn, srqn }));
    assert_eq!(engine.post_srq_recv(none, recv.clone()), Err(PostError::NoSuchSrq(none)));
    let pieces = RecvRequest::scattered(1, &[Sge::default(); 33]);
    let too_many = PostError::TooManySges { found: 33, max: 32 };
    assert_eq!(engine.post_srq_recv(srqn, pieces), Err(too_many));
    let stranger = softroce::engine::QpInit { srq: Some(none), ..qp_init(&rts_qp()) };
    assert_eq!(engine.create_qp(Instant::ZERO, stranger), Err(CreateError::NoSuchSrq(none)));

    let modify = |max_wr, limit| SrqModify { max_wr, limit };
    for (found, change, error) in [
        (none, modify(Some(1), None), SrqError::NoSuchSrq(none)),
        (srqn, modify(None, Some(3)), SrqError::Limit { found: 3, max_wr: 2 }),
        (srqn, modify(Some(4), Some(5)), SrqError::Limit { found: 5, max_wr: 4 }),
        (srqn, modify(Some(0), None), SrqError::Empty),
    ] {
        assert_eq!(engine.modify_srq(found, change), Err(error));
    }
    assert_eq!(engine.query_srq(srqn), Some(SrqAttr { max_wr: 2, max_sge: 32, limit: 0 }));
    assert_eq!(engine.query_srq(none), None);
    let info = engine.query_qp(qpn).unwrap();
    assert_eq!(
        (info.init.srq, info.init.cap.max_recv_wr, info.init.cap.max_recv_sge),
        (Some(srqn), 0, 0)
    );

    assert_eq!(engine.destroy_srq(srqn), Err(SrqError::InUse { srqn, users: 1 }));
    engine.destroy_qp(Instant::ZERO, qpn);
    assert_eq!(engine.destroy_srq(srqn), Ok(()));
    assert_eq!(engine.destroy_srq(srqn), Err(SrqError::NoSuchSrq(srqn)));
    assert_eq!(engine.post_srq_recv(srqn, recv), Err(PostError::NoSuchSrq(srqn)));
}

#[test]
fn srq_resizes_down_to_its_requests() {
    let mut t = Script::sharing(rts_qp(), 2);
    let srqn = srqn(&t);
    t.post_recv(600);
    t.post_recv(64);
    let resize = |t: &mut Script, max_wr| {
        let modify = SrqModify { max_wr: Some(max_wr), limit: None };
        t.engine.modify_srq(srqn, modify)
    };
    assert_eq!(resize(&mut t, 3), Ok(()));
    assert_eq!(t.post_recv(64), 3);
    assert!(t.post_recv_sges(&[]).is_err());
    t.rx(0, "SEND_FIRST psn=5 len=256");
    assert_eq!(resize(&mut t, 2), Err(SrqError::TooSmall { found: 2, used: 3 }));
    t.rx(0, "SEND_LAST psn=6 len=8");
    assert_eq!(t.recvs().len(), 1);
    assert_eq!(resize(&mut t, 2), Ok(()));
    assert!(t.post_recv_sges(&[]).is_err());
}

// ---- UC and UD ----

/// UC-02: a request taken from a shared queue ends with an error, and the queue pair continues.
#[test]
fn abandoned_uc_message_ends_its_request() {
    for packet in [
        "SEND_LAST psn=7 len=8",
        "SEND_FIRST psn=6 len=256",
        "WRITE_ONLY psn=6 va=0x1000 rkey=mem dmalen=8 len=8",
        "SEND_MIDDLE psn=6 len=255",
    ] {
        let mut t = of(QpType::Uc);
        for _ in 0..3 {
            t.post_recv(1024);
        }
        t.rx(0, "SEND_FIRST psn=5 len=256");
        t.rx(0, packet);
        assert_eq!(t.recvs(), [failed(1, WcStatus::RemInvReqErr)], "{packet}");
        t.rx(0, "SEND_ONLY psn=20 len=8");
        let taken = t.recvs();
        assert_eq!(taken.last(), Some(&ok(if taken.len() == 1 { 2 } else { 3 }, RECV, 8)));
        assert_eq!((t.events(), t.state()), (vec![], QpState::Rts), "{packet}");
    }
}

/// UC-05
#[test]
fn uc_message_without_request_is_dropped() {
    let mut t = of(QpType::Uc);
    t.rx(0, "SEND_ONLY psn=5 len=8");
    assert_eq!(t.dropped(DropReason::NoReceive), 1);
    t.post_recv(64);
    takes(&mut t, 6, 1);
}

#[test]
fn uc_message_that_is_too_long_ends_its_request() {
    let mut t = of(QpType::Uc);
    t.post_recv(7);
    t.post_recv(8);
    t.rx(0, "SEND_ONLY psn=5 len=8");
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocLenErr)]);
    takes(&mut t, 6, 2);
}

/// UD-05, with a shared queue.
#[test]
fn ud_message_that_is_too_long_ends_its_request() {
    let mut t = of(QpType::Ud);
    t.post_recv(47);
    t.post_recv(48);
    let message = "SEND_ONLY psn=5 qkey=0x00001234 srcqp=0x000012 len=8";
    t.rx(0, message);
    assert_eq!(t.recvs(), [failed(1, WcStatus::LocLenErr)]);
    t.rx(0, message);
    assert_eq!(
        t.recvs().iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(),
        [(2, WcStatus::Success)]
    );
    t.rx(0, message);
    let drops = [DropReason::Refused, DropReason::NoReceive].map(|reason| t.dropped(reason));
    assert_eq!(drops, [1, 1]);
    assert_eq!((t.events(), t.state()), (vec![], QpState::Rts));
}

#[test]
fn datagram_stream_reports_before_it_exhausts_an_srq() {
    let mut t = Script::sharing(rts_qp_of(QpType::Ud), 100);
    for _ in 0..100 {
        t.post_recv(48);
    }
    for psn in 0..64 {
        assert!(!t.engine.is_short_of_receives(), "{psn}");
        t.rx(0, &format!("SEND_ONLY psn={psn} qkey=0x00001234 srcqp=0x000012 len=8"));
    }
    assert!(t.engine.is_short_of_receives());
    t.post_recv(48);
    assert!(!t.engine.is_short_of_receives());
    t.recvs();
}

// ---- several queue pairs ----

/// An engine with RC queue pairs in RTS that share a queue, and the memory of its requests.
struct SrqFixture {
    world: World,
    srqn: Srqn,
    qps: Vec<Qpn>,
    inbox: std::sync::Arc<softroce::mem::Region>,
    posted: u64,
}

/// Length of a request in bytes.
const REQUEST_BYTES: usize = 2048;

impl SrqFixture {
    fn new(qps: usize) -> Self {
        let mut world = World::new(1, 1);
        let engine = &mut world.nodes[0].engine;
        let srqn =
            engine.create_srq(SrqInit { pd: PD, max_wr: 64, max_sge: 1, xrc: None }).unwrap();
        let link = Link { srq: Some(srqn), psn: [5, 5], ..Link::default() };
        let create = |_| {
            let qpn = world.create_qp(0, &link);
            world.modify(0, qpn, crate::support::init_attr(&link));
            world.modify(0, qpn, crate::support::rtr_attr(&link, PEER, Qpn::new(0x12), 5));
            world.modify(0, qpn, crate::support::rts_attr(&link, 5));
            qpn
        };
        let qps = (0..qps).map(create).collect();
        let inbox = world.nodes[0].region(64 * REQUEST_BYTES, 0x30_0000, full_access());
        Self { world, srqn, qps, inbox, posted: 0 }
    }

    fn engine(&mut self) -> &mut Engine {
        &mut self.world.nodes[0].engine
    }

    fn post(&mut self, count: usize) {
        for _ in 0..count {
            let place = self.posted as usize % 64 * REQUEST_BYTES;
            self.posted += 1;
            let recv = RecvRequest::new(self.posted, sge(&self.inbox, place, REQUEST_BYTES));
            let srqn = self.srqn;
            self.engine().post_srq_recv(srqn, recv).unwrap();
        }
    }

    /// Delivers a packet to a queue pair, and returns the completed requests with their queue pair's index.
    fn rx(&mut self, qp: usize, line: &str) -> Vec<(usize, u64, WcStatus)> {
        let (qpn, to) = (self.qps[qp], self.world.nodes[0].ip);
        let bytes = line::datagram(line, qpn);
        receive(self.engine(), Instant::ZERO, PEER, to, bytes);
        self.completions()
    }

    fn completions(&mut self) -> Vec<(usize, u64, WcStatus)> {
        let engine = &mut self.world.nodes[0].engine;
        let all = std::iter::from_fn(|| engine.poll_completion());
        let index = |qpn| self.qps.iter().position(|qp| *qp == qpn).unwrap();
        all.map(|(_, c)| (index(c.qpn), c.wr_id, c.status)).collect()
    }
}

const OK: WcStatus = WcStatus::Success;

/// The first message takes the first request, regardless of its queue pair.
#[test]
fn messages_take_srq_requests_in_order_of_their_first_packets() {
    let mut s = SrqFixture::new(3);
    s.post(5);
    assert_eq!(s.rx(2, "SEND_ONLY psn=5 len=8"), [(2, 1, OK)]);
    assert_eq!(s.rx(0, "SEND_FIRST psn=5 len=1024"), []);
    assert_eq!(s.rx(1, "SEND_FIRST psn=5 len=1024"), []);
    assert_eq!(s.rx(2, "SEND_ONLY psn=6 len=8"), [(2, 4, OK)]);
    assert_eq!(s.rx(1, "SEND_LAST psn=6 len=8"), [(1, 3, OK)]);
    assert_eq!(s.rx(0, "SEND_LAST psn=6 len=8"), [(0, 2, OK)]);
    let mut bytes = vec![0; 1032];
    s.inbox.read_at(REQUEST_BYTES, &mut bytes).unwrap();
    assert_eq!(bytes, [pattern(5, 1024), pattern(6, 8)].concat());
}

/// A queue pair cannot take more than the request of the message in progress, whatever it receives; the other queue
/// pairs use the rest.
#[test]
fn queue_pair_with_a_stalled_message_holds_one_request() {
    let mut s = SrqFixture::new(3);
    s.post(4);
    assert_eq!(s.rx(0, "SEND_FIRST psn=5 len=1024"), []);
    // A message behind a gap takes no request.
    for psn in 7..20 {
        assert_eq!(s.rx(0, &format!("SEND_ONLY psn={psn} len=8")), []);
    }
    assert_eq!(s.rx(1, "SEND_ONLY psn=5 len=8"), [(1, 2, OK)]);
    assert_eq!(s.rx(2, "SEND_ONLY psn=5 len=8"), [(2, 3, OK)]);
    assert_eq!(s.rx(1, "SEND_ONLY psn=6 len=8"), [(1, 4, OK)]);
}

/// A message after an RNR NAK has no reservation: the next message takes the next request.
#[test]
fn rnr_nak_reserves_no_request() {
    let mut s = SrqFixture::new(2);
    assert_eq!(s.rx(0, "SEND_ONLY psn=5 ackreq len=8"), []);
    s.post(1);
    assert_eq!(s.rx(1, "SEND_ONLY psn=5 ackreq len=8"), [(1, 1, OK)]);
    assert_eq!(s.rx(0, "SEND_ONLY psn=5 ackreq len=8"), []);
    assert_eq!(s.engine().counters().rnr_naks_sent, 2);
    s.post(1);
    assert_eq!(s.rx(0, "SEND_ONLY psn=5 ackreq len=8"), [(0, 2, OK)]);
}

/// QPS-11
#[test]
fn failed_queue_pair_takes_no_request_from_others() {
    let mut s = SrqFixture::new(2);
    s.post(3);
    assert_eq!(s.rx(0, "SEND_FIRST psn=5 len=1024"), []);
    assert_eq!(s.rx(0, "WRITE_MIDDLE psn=6 len=1024"), [(0, 1, WcStatus::RemInvReqErr)]);
    let last = AsyncEvent::QpLastWqeReached(s.qps[0]);
    assert_eq!((s.engine().poll_event(), s.engine().poll_event()), (Some(last), None));
    assert_eq!(s.rx(1, "SEND_ONLY psn=5 len=8"), [(1, 2, OK)]);
    let qpn = s.qps[0];
    s.engine().destroy_qp(Instant::ZERO, qpn);
    assert_eq!(s.rx(1, "SEND_ONLY psn=6 len=8"), [(1, 3, OK)]);
    let srqn = s.srqn;
    assert_eq!(s.engine().destroy_srq(srqn), Err(SrqError::InUse { srqn, users: 1 }));
}

#[test]
fn srq_numbers_are_not_reused_soon() {
    let mut s = SrqFixture::new(0);
    let init = SrqInit { pd: PD, max_wr: 1, max_sge: 1, xrc: None };
    let mut seen = vec![s.srqn];
    for _ in 0..1000 {
        let srqn = s.engine().create_srq(init).unwrap();
        assert!(!seen.contains(&srqn));
        s.engine().destroy_srq(srqn).unwrap();
        seen.push(srqn);
    }
}
