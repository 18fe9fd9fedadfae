//! Extended reliable connections.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use softroce::verbs::*;

use crate::node::{Node, open};

/// An initiator, a target, and a shared receive queue for each of two programs.
struct XrcFixture {
    sender: Node,
    initiator: QueuePair,
    hub: Node,
    domain: XrcDomain,
    target: XrcTarget,
    srqs: [SharedReceiveQueue; 2],
}

impl XrcFixture {
    fn new() -> Self {
        let (sender, hub) = (Node::on(open()), Node::on(open()));
        let initiator = sender.pd.create_qp(&QpConfig::xrc(&sender.cq)).unwrap();
        let domain = hub.ctx.open_xrcd(&XrcdOptions::default()).unwrap();
        let target = domain.create_target().unwrap();
        let srqs = [16, 16].map(|depth| {
            let cq = hub.ctx.create_cq(depth, None).unwrap();
            hub.pd.create_xrc_srq(&SrqConfig::default(), &domain, &cq).unwrap()
        });
        initiator.connect(&target.endpoint(), &ConnectOptions::default()).unwrap();
        target.connect(&initiator.endpoint(), &ConnectOptions::default()).unwrap();
        Self { sender, initiator, hub, domain, target, srqs }
    }

    /// Runs a request, and returns its status.
    fn run(&self, request: SendRequest) -> WcStatus {
        self.initiator.post_send(request.signaled()).unwrap();
        self.sender.next().status
    }
}

#[test]
fn overrun_of_another_cq_does_not_affect_xrc_targets() {
    let ctx = open();
    let cq = ctx.create_cq(1, None).unwrap();
    let hub = Node::with_cq(ctx, cq);
    let domain = hub.ctx.open_xrcd(&XrcdOptions::default()).unwrap();
    let target = domain.create_target().unwrap();
    let sender = Node::on(open());
    let initiator = sender.pd.create_qp(&QpConfig::xrc(&sender.cq)).unwrap();
    target.connect(&initiator.endpoint(), &ConnectOptions::default()).unwrap();
    hub.connect(&sender, &ConnectOptions::default());
    for wr_id in 0..2 {
        hub.recv(wr_id, 0..64);
        sender.send(SendRequest::send(wr_id, SendData::inline(b"!")));
    }
    let event = hub.ctx.wait_event(crate::node::WAIT_LIMIT).unwrap();
    assert_eq!(event, AsyncEvent::CqErr(hub.cq.id()));
    assert_eq!([hub.qp.state(), target.state()].map(Result::unwrap), [QpState::Err, QpState::Rts]);
}

#[test]
fn xrc_message_reaches_its_receive_queue() {
    let x = XrcFixture::new();
    for (round, which) in [0, 1, 1, 0].into_iter().enumerate() {
        let (srq, at) = (&x.srqs[which], 4096 * round);
        srq.post_recv(RecvRequest::new(round as u64, x.hub.mr.sge(at..at + 4096))).unwrap();
        let bytes = x.sender.fill(0, 3000, round as u32);
        let send = SendRequest::send(1, x.sender.mr.sge(..3000)).to(srq.srqn());
        assert_eq!(x.run(send), WcStatus::Success);
        let completion = srq.cq().unwrap().wait_one(crate::node::WAIT_LIMIT).unwrap();
        let expected = (round as u64, WcStatus::Success, 3000, x.target.qpn());
        let Completion { wr_id, status, byte_len, qpn, .. } = completion;
        assert_eq!((wr_id, status, byte_len, qpn), expected);
        assert_eq!(x.hub.bytes(at, 3000), bytes);
        assert_eq!(x.srqs[1 - which].cq().unwrap().poll_one(), None);
    }
}

#[test]
fn xrc_memory_access_uses_the_domain_of_the_srq() {
    let x = XrcFixture::new();
    let srqn = x.srqs[0].srqn();
    let bytes = x.sender.fill(0, 5000, 1);
    let there = x.hub.mr.remote(0);
    let write = SendRequest::write(1, x.sender.mr.sge(..5000), there).to(srqn);
    assert_eq!(x.run(write), WcStatus::Success);
    assert_eq!(x.hub.bytes(0, 5000), bytes);
    let read = SendRequest::read(2, x.sender.mr.sge(8192..13192), there).to(srqn);
    assert_eq!(x.run(read), WcStatus::Success);
    assert_eq!(x.sender.bytes(8192, 5000), bytes);
    let at = x.hub.mr.remote(8192);
    let add = SendRequest::fetch_add(3, x.sender.mr.sge(..8), at, 5).to(srqn);
    assert_eq!(x.run(add), WcStatus::Success);
    assert_eq!(x.hub.mr.load_u64(8192), Ok(5));

    // A region of another domain than that of the queue.
    let foreign = x.hub.ctx.alloc_pd();
    let mr = foreign.alloc_mr(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let write = SendRequest::write(4, x.sender.mr.sge(..8), mr.remote(0)).to(srqn);
    assert_eq!(x.run(write), WcStatus::RemAccessErr);
}

#[test]
fn request_for_a_destroyed_xrc_srq_is_invalid() {
    let mut x = XrcFixture::new();
    let [gone, stays] = [x.srqs[0].srqn(), x.srqs[1].srqn()];
    x.srqs[0] = x.srqs[1].clone();
    let none = SendData::inline(b"");
    x.srqs[1].post_recv(RecvRequest::default()).unwrap();
    assert_eq!(x.run(SendRequest::send(1, none.clone()).to(stays)), WcStatus::Success);
    assert_eq!(x.run(SendRequest::send(2, none).to(gone)), WcStatus::RemInvReqErr);
    let qpn = x.target.qpn();
    let events = [x.hub.event(), x.hub.event()];
    assert_eq!(events, [AsyncEvent::QpReqErr(qpn), AsyncEvent::QpLastWqeReached(qpn)]);
}

/// Opens a file of its own for a test.
fn file(name: &str) -> File {
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file
}

#[test]
fn contexts_share_a_domain_by_file_and_a_target_by_number() {
    let file = file("xrcd");
    let options = XrcdOptions { file: Some(file.as_fd()), create: true, exclusive: false };
    let creator = open();
    let opener = Context::open(OpenOptions::default().ip(creator.ip())).unwrap();
    let ours = creator.open_xrcd(&options).unwrap();
    let theirs = opener.open_xrcd(&XrcdOptions { create: false, ..options }).unwrap();
    assert!(ours.is_same(&theirs));

    let target = ours.create_target().unwrap();
    let same = theirs.open_target(target.qpn()).unwrap();
    assert_eq!(same.endpoint(), target.endpoint());
    // It exists until both handles are dropped, and both contexts receive its events.
    let qpn = target.qpn();
    same.connect(&same.endpoint(), &ConnectOptions::default()).unwrap();
    assert_eq!(target.state().unwrap(), QpState::Rts);
    target.modify(QpAttr::to(QpState::Err)).unwrap();
    for context in [&creator, &opener] {
        let event = context.wait_event(crate::node::WAIT_LIMIT).unwrap();
        assert_eq!(event, AsyncEvent::QpLastWqeReached(qpn));
    }
    drop(target);
    assert_eq!(same.state().unwrap(), QpState::Err);
    same.modify(QpAttr::to(QpState::Reset)).unwrap();
    drop(same);
    let error = theirs.open_target(qpn).unwrap_err().to_string();
    assert_eq!(error, format!("queue pair {qpn} is no XRC target of this domain"));
}

#[test]
fn xrcd_options_select_the_domain() {
    let (file, ctx) = (file("options"), open());
    let options = |create, exclusive| XrcdOptions { file: Some(file.as_fd()), create, exclusive };
    let error = ctx.open_xrcd(&options(false, false)).unwrap_err().to_string();
    assert_eq!(error, "no XRC domain is open for this file, and none is to be created");
    let domain = ctx.open_xrcd(&options(true, true)).unwrap();
    assert!(domain.is_same(&ctx.open_xrcd(&options(true, false)).unwrap()));
    let error = ctx.open_xrcd(&options(true, true)).unwrap_err().to_string();
    assert_eq!(error, "an XRC domain is open for this file already");
    // A domain without a file is private, and a domain without handles is closed.
    assert!(!domain.is_same(&ctx.open_xrcd(&XrcdOptions::default()).unwrap()));
    drop(domain);
    assert!(ctx.open_xrcd(&options(false, false)).is_err());
    // Objects created from a domain keep it open.
    let target = ctx.open_xrcd(&options(true, true)).unwrap().create_target().unwrap();
    assert!(ctx.open_xrcd(&options(false, false)).unwrap().open_target(target.qpn()).is_ok());
}

#[test]
fn objects_of_another_device_or_domain_are_refused() {
    let x = XrcFixture::new();
    let other = x.hub.ctx.open_xrcd(&XrcdOptions::default()).unwrap();
    let (qpn, initiator) = (x.target.qpn(), x.initiator.qpn());
    for number in [qpn, x.hub.qp.qpn(), Qpn::new(0xab_cdef)] {
        assert!(other.open_target(number).is_err(), "{number}");
    }
    assert!(x.domain.open_target(qpn).is_ok());

    let error = x.initiator.post_send(SendRequest::send(1, SendData::inline(b""))).unwrap_err();
    let expected = format!(
        "queue pair {initiator}: an XRC request needs the number of the shared receive queue that it \
         is for"
    );
    assert_eq!(error.to_string(), expected);
    let error = x.initiator.post_recv(RecvRequest::default()).unwrap_err().to_string();
    let expected = format!(
        "queue pair {initiator}: queue pair {initiator} is XRC_INI and has no receive queue"
    );
    assert_eq!(error, expected);

    let srqn = x.srqs[0].srqn();
    let config = QpConfig { srq: Some(&x.srqs[0]), ..QpConfig::rc(&x.hub.cq) };
    let error = x.hub.pd.create_qp(&config).unwrap_err().to_string();
    let expected =
        format!("RC queue pairs do not take from shared receive queue {srqn}: it is for XRC");
    assert_eq!(error, expected);
    let config = QpConfig { qp_type: QpType::XrcTgt, ..QpConfig::rc(&x.hub.cq) };
    let error = x.hub.pd.create_qp(&config).unwrap_err().to_string();
    assert_eq!(error, "an XRC target needs an XRC domain");

    let foreign = open();
    let cq = foreign.create_cq(1, None).unwrap();
    let (pd, config) = (foreign.alloc_pd(), SrqConfig::default());
    let error = pd.create_xrc_srq(&config, &x.domain, &cq).unwrap_err().to_string();
    assert_eq!(error, "the XRC domain belongs to another device");
    let error = x.hub.pd.create_xrc_srq(&config, &x.domain, &cq).unwrap_err().to_string();
    assert_eq!(error, "the completion queue belongs to another device");
}
