//! Shared receive queues.

use softroce::verbs::*;

use crate::node::{Node, WAIT_LIMIT, open, open_with};
use crate::within::until;

/// A device with queue pairs that share a receive queue, and their peers.
struct SrqFixture {
    hub: Node,
    srq: SharedReceiveQueue,
    spokes: Vec<Node>,
    qps: Vec<QueuePair>,
}

impl SrqFixture {
    fn new(spokes: usize, max_wr: u32) -> Self {
        let hub = Node::on(open());
        let srq = hub.pd.create_srq(&SrqConfig { max_wr, max_sge: 1 }).unwrap();
        let (mut nodes, mut qps) = (Vec::new(), Vec::new());
        for _ in 0..spokes {
            let spoke = Node::on(open());
            let config = QpConfig { srq: Some(&srq), ..QpConfig::rc(&hub.cq) };
            let qp = hub.pd.create_qp(&config).unwrap();
            qp.connect(&spoke.qp.endpoint(), &ConnectOptions::default()).unwrap();
            spoke.qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
            nodes.push(spoke);
            qps.push(qp);
        }
        Self { hub, srq, spokes: nodes, qps }
    }

    fn post(&self, wr_id: u64) {
        let at = wr_id as usize % 64 * 1024;
        self.srq.post_recv(RecvRequest::new(wr_id, self.hub.mr.sge(at..at + 1024))).unwrap();
    }
}

#[test]
fn queue_pairs_take_srq_requests_on_demand() {
    let s = SrqFixture::new(3, 64);
    for wr_id in 0..9 {
        s.post(wr_id);
    }
    // One peer sends many messages, another few.
    for (round, spoke) in [0, 0, 1, 0, 2, 0, 0, 1, 0].into_iter().enumerate() {
        let bytes = s.spokes[spoke].fill(0, 100, round as u32);
        s.spokes[spoke].run(SendRequest::send(1, s.spokes[spoke].mr.sge(..100)));
        let completion = s.hub.next();
        assert_eq!((completion.wr_id, completion.qpn), (round as u64, s.qps[spoke].qpn()));
        assert_eq!(s.hub.bytes(round * 1024, 100), bytes);
    }
}

#[test]
fn rnr_retry_takes_a_request_posted_later() {
    let s = SrqFixture::new(2, 64);
    for spoke in &s.spokes {
        spoke.send(SendRequest::send(1, spoke.mr.sge(..8)));
    }
    let told = |node: &Node| node.ctx.device_info().unwrap().counters.rnr_naks_received > 0;
    until("RNR NAKs at all", || {
        assert_eq!(s.hub.cq.poll_one(), None);
        s.spokes.iter().all(told)
    });
    s.post(1);
    s.post(2);
    let mut ids = [s.hub.end(), s.hub.end()];
    ids.sort_by_key(|(wr_id, _)| *wr_id);
    assert_eq!(ids, [(1, WcStatus::Success), (2, WcStatus::Success)]);
    for spoke in &s.spokes {
        assert_eq!(spoke.end(), (1, WcStatus::Success));
    }
}

#[test]
fn srq_limit_event_reports_few_requests() {
    let s = SrqFixture::new(1, 8);
    let (mut posted, arm) = (0, SrqModify { limit: Some(3), ..SrqModify::default() });
    let mut fill = || {
        while s.srq.post_recv(RecvRequest::new(posted, Sge::default())).is_ok() {
            posted += 1;
        }
        s.srq.modify(arm).unwrap();
        posted
    };
    assert_eq!(fill(), 8);
    for message in 0..20 {
        s.spokes[0].run(SendRequest::send(1, SendData::inline(b"")));
        assert_eq!(s.hub.end(), (message, WcStatus::Success));
        if message % 6 == 5 {
            assert_eq!(s.srq.query().unwrap().limit, 0);
            assert_eq!(s.hub.event(), AsyncEvent::SrqLimitReached(s.srq.srqn()));
            assert_eq!(fill(), message + 9);
        } else {
            assert_eq!(s.srq.query().unwrap().limit, 3, "{message}");
        }
    }
    assert_eq!(s.hub.ctx.poll_event(), None);
}

#[test]
fn full_srq_error_contains_its_size() {
    let s = SrqFixture::new(1, 3);
    let (taken, result) = s.srq.post_recvs(vec![RecvRequest::default(); 5]);
    let expected =
        format!("shared receive queue {}: the queue holds 3 requests and is full", s.srq.srqn());
    assert_eq!((taken, result.unwrap_err().to_string()), (3, expected));
    s.srq.modify(SrqModify { max_wr: Some(4), limit: None }).unwrap();
    s.srq.post_recv(RecvRequest::default()).unwrap();
    let error = s.srq.modify(SrqModify { max_wr: Some(3), limit: None }).unwrap_err().to_string();
    assert_eq!(error, "max_wr is 3, and 4 requests are unfinished");
    let error = s.srq.modify(SrqModify { max_wr: None, limit: Some(5) }).unwrap_err().to_string();
    assert_eq!(error, "the limit is 5, of a queue that holds 4");
    assert_eq!(s.srq.query().unwrap(), SrqAttr { max_wr: 4, max_sge: 1, limit: 0 });
}

#[test]
fn failed_queue_pair_reports_its_last_wqe() {
    let s = SrqFixture::new(2, 8);
    s.post(1);
    s.qps[0].modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(s.hub.event(), AsyncEvent::QpLastWqeReached(s.qps[0].qpn()));
    assert_eq!(s.hub.cq.poll_one(), None);
    s.spokes[1].run(SendRequest::send(1, s.spokes[1].mr.sge(..8)));
    assert_eq!(s.hub.end(), (1, WcStatus::Success));
}

#[test]
fn invalid_srq_attributes_are_refused() {
    let s = SrqFixture::new(1, 8);
    let error = s.qps[0].post_recv(RecvRequest::default()).unwrap_err().to_string();
    let (qpn, srqn) = (s.qps[0].qpn(), s.srq.srqn());
    let expected = format!(
        "queue pair {qpn}: queue pair {qpn} has no receive queue: it takes from shared receive \
         queue {srqn}"
    );
    assert_eq!(error, expected);
    for (config, expected) in [
        (SrqConfig { max_wr: 32_769, max_sge: 1 }, "max_wr is 32769, not 0 to 32768"),
        (SrqConfig { max_wr: 1, max_sge: 33 }, "max_sge is 33, not 0 to 32"),
        (
            SrqConfig { max_wr: 0, max_sge: 1 },
            "max_wr is 0: a shared receive queue holds 1 request at least",
        ),
    ] {
        assert_eq!(s.hub.pd.create_srq(&config).unwrap_err().to_string(), expected);
    }
    let foreign = open();
    let cq = foreign.create_cq(1, None).unwrap();
    let config = QpConfig { srq: Some(&s.srq), ..QpConfig::rc(&cq) };
    let error = foreign.alloc_pd().create_qp(&config).unwrap_err().to_string();
    assert_eq!(error, "the shared receive queue belongs to another device");
}

/// A queue pair keeps its shared receive queue alive.
#[test]
fn srq_handles_are_dropped_in_any_order() {
    let SrqFixture { hub, srq, spokes, qps } = SrqFixture::new(1, 8);
    let srqn = srq.srqn();
    srq.post_recv(RecvRequest::new(1, hub.mr.sge(..64))).unwrap();
    drop(srq);
    spokes[0].run(SendRequest::send(1, spokes[0].mr.sge(..8)));
    assert_eq!(hub.end(), (1, WcStatus::Success));
    assert_eq!(qps[0].srq().unwrap().srqn(), srqn);
    assert_eq!(qps[0].query().unwrap().init.srq, Some(srqn));
    drop(qps);
    assert_ne!(hub.pd.create_srq(&SrqConfig::default()).unwrap().srqn(), srqn);
}

/// One queue for three transport services: its requests have 40 more bytes, for the header of UD.
#[test]
fn rc_uc_and_ud_share_one_srq() {
    let (hub, spoke) = (Node::on(open()), Node::on(open_with(OpenOptions::default())));
    let srq = hub.pd.create_srq(&SrqConfig::default()).unwrap();
    let sharing = |config| QpConfig { srq: Some(&srq), ..config };
    let rc = hub.pd.create_qp(&sharing(QpConfig::rc(&hub.cq))).unwrap();
    let uc = hub.pd.create_qp(&sharing(QpConfig::uc(&hub.cq))).unwrap();
    let ud = hub.pd.create_qp(&sharing(QpConfig::ud(&hub.cq))).unwrap();
    let other_uc = spoke.pd.create_qp(&QpConfig::uc(&spoke.cq)).unwrap();
    let other_ud = spoke.pd.create_qp(&QpConfig::ud(&spoke.cq)).unwrap();
    let options = ConnectOptions::default();
    for (here, there) in [(&rc, &spoke.qp), (&uc, &other_uc)] {
        here.connect(&there.endpoint(), &options).unwrap();
        there.connect(&here.endpoint(), &options).unwrap();
    }
    let qkey = QKey(0x77);
    ud.activate(qkey).unwrap();
    other_ud.activate(qkey).unwrap();
    for wr_id in 1..=3 {
        let at = wr_id as usize * 128;
        srq.post_recv(RecvRequest::new(wr_id, hub.mr.sge(at..at + 128))).unwrap();
    }
    let target = UdTarget { av: AddressVector::to(hub.ctx.ip().into()), qpn: ud.qpn(), qkey };
    for (qp, to, receiver, head) in [
        (&spoke.qp, None, &rc, 0),
        (&other_uc, None, &uc, 0),
        (&other_ud, Some(target.into()), &ud, 40),
    ] {
        let send = SendRequest::send(1, SendData::inline(b"all"));
        qp.post_send(SendRequest { to, ..send }).unwrap();
        let completion = hub.cq.wait_one(WAIT_LIMIT).unwrap();
        assert_eq!((completion.status, completion.qpn), (WcStatus::Success, receiver.qpn()));
        assert_eq!(completion.byte_len, head + 3);
        assert_eq!(hub.bytes(completion.wr_id as usize * 128 + head as usize, 3), b"all");
    }
}
