//! Errors of verbs and of work requests.

use std::cell::RefCell;
use std::net::UdpSocket;

use softroce::engine::InitAttr;
use softroce::verbs::*;

use crate::node::{
    MEMORY_BYTES, Node, PROCESS_START_LOCK, WAIT_LIMIT, fresh_ip, open, single_attempt,
};

/// Runs a request that the peer refuses, and returns its status and the event of the peer.
fn refused(request: impl Fn(&Node, &Node) -> SendRequest) -> (WcStatus, AsyncEvent, Qpn) {
    let (a, b) = Node::pair();
    a.send(request(&a, &b));
    let status = a.next().status;
    assert_eq!(a.qp.state().unwrap(), QpState::Err);
    let event = b.event();
    assert_eq!(b.qp.state().unwrap(), QpState::Err);
    (status, event, b.qp.qpn())
}

#[test]
fn invalid_keys_ranges_and_rights_are_remote_access_errors() {
    // Keeps the regions registered.
    let kept = RefCell::new(Vec::new());
    let write = |a: &Node, to| SendRequest::write(1, a.mr.sge(..8), to);
    let foreign = |a: &Node, b: &Node| {
        let rkey = Rkey(b.mr.rkey().0 ^ 0x100);
        write(a, RemoteAddr { rkey, ..b.mr.remote(0) })
    };
    let beyond = |a: &Node, b: &Node| write(a, b.mr.remote(MEMORY_BYTES - 7));
    let read_only = |a: &Node, b: &Node| {
        let mr = b.pd.alloc_mr(64, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
        let to = mr.remote(0);
        kept.borrow_mut().push(mr);
        write(a, to)
    };
    let other_domain = |a: &Node, b: &Node| {
        let pd = b.ctx.alloc_pd();
        let mr = pd.alloc_mr(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let to = mr.remote(0);
        kept.borrow_mut().push(mr);
        write(a, to)
    };
    let deregistered = |a: &Node, b: &Node| {
        let mr = b.pd.alloc_mr(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        write(a, mr.remote(0))
    };
    for (what, request) in [
        ("foreign", &foreign as &dyn Fn(&Node, &Node) -> SendRequest),
        ("beyond", &beyond),
        ("read_only", &read_only),
        ("other_domain", &other_domain),
        ("deregistered", &deregistered),
    ] {
        let (status, event, qpn) = refused(request);
        assert_eq!(status, WcStatus::RemAccessErr, "{what}");
        assert_eq!(event, AsyncEvent::QpAccessErr(qpn), "{what}");
    }
}

#[test]
fn access_that_the_queue_pair_forbids_is_a_remote_access_error() {
    let (a, b) = (Node::on(open()), Node::on(open()));
    a.connect(&b, &ConnectOptions { access: Access::REMOTE_READ, ..Default::default() });
    a.run(SendRequest::read(1, a.mr.sge(..8), b.mr.remote(0)));
    a.send(SendRequest::write(2, a.mr.sge(..8), b.mr.remote(0)));
    assert_eq!(a.end(), (2, WcStatus::RemAccessErr));
}

#[test]
fn misaligned_atomic_is_an_invalid_request() {
    let add = |a: &Node, b: &Node| SendRequest::fetch_add(1, a.mr.sge(..8), b.mr.remote(4), 1);
    let (status, event, qpn) = refused(add);
    assert_eq!((status, event), (WcStatus::RemInvReqErr, AsyncEvent::QpReqErr(qpn)));
}

#[test]
fn local_memory_is_checked_when_the_request_executes() {
    for bad in [
        |a: &Node| Sge { lkey: Lkey(a.mr.lkey().0 ^ 0x100), ..a.mr.sge(..8) },
        |a: &Node| a.mr.sge(MEMORY_BYTES - 7..MEMORY_BYTES + 1),
        |a: &Node| a.ctx.alloc_pd().alloc_mr(64, Access::empty()).unwrap().sge(..),
    ] {
        let (a, b) = Node::pair();
        a.send(SendRequest::write(1, bad(&a), b.mr.remote(0)));
        a.send(SendRequest::write(2, a.mr.sge(..8), b.mr.remote(0)));
        assert_eq!(a.end(), (1, WcStatus::LocProtErr));
        assert_eq!(a.end(), (2, WcStatus::WrFlushErr));
    }
}

#[test]
fn too_short_receive_request_fails_both_sides() {
    let (a, b) = Node::pair();
    b.recv(7, 0..100);
    b.recv(8, 0..100);
    a.send(SendRequest::send(1, a.mr.sge(..101)));
    assert_eq!(a.end(), (1, WcStatus::RemInvReqErr));
    assert_eq!(b.end(), (7, WcStatus::LocLenErr));
    assert_eq!(b.end(), (8, WcStatus::WrFlushErr));
}

#[test]
fn send_without_a_receive_request_is_retried_rnr_retry_times() {
    let (a, b) = (Node::on(open()), Node::on(open()));
    let min_rnr_timer = RnrTimer::new(1).unwrap();
    a.connect(&b, &ConnectOptions { rnr_retry: 2, min_rnr_timer, ..single_attempt() });
    a.send(SendRequest::send(1, a.mr.sge(..8)));
    assert_eq!(a.end(), (1, WcStatus::RnrRetryExcErr));
    assert_eq!(a.ctx.device_info().unwrap().counters.rnr_naks_received, 3);
}

#[test]
fn request_to_a_destroyed_peer_exceeds_its_retries() {
    let (a, b) = (Node::on(open()), Node::on(open()));
    let timeout = AckTimeout::new(14).unwrap();
    a.connect(&b, &ConnectOptions { timeout, retry_cnt: 1, ..Default::default() });
    let to = b.mr.remote(0);
    drop(b);
    a.send(SendRequest::write(2, a.mr.sge(..8), to));
    assert_eq!(a.end(), (2, WcStatus::RetryExcErr));
    assert_eq!(a.ctx.device_info().unwrap().counters.timeouts, 2);
}

#[test]
fn mtu_mismatch_fails_the_request() {
    let (a, b) = (Node::on(open()), Node::on(open()));
    let with = |mtu| ConnectOptions { path_mtu: Some(mtu), ..Default::default() };
    a.qp.connect(&b.qp.endpoint(), &with(Mtu::Mtu1024)).unwrap();
    b.qp.connect(&a.qp.endpoint(), &with(Mtu::Mtu4096)).unwrap();
    a.run(SendRequest::write(1, a.mr.sge(..1024), b.mr.remote(0)));
    a.send(SendRequest::write(2, a.mr.sge(..1025), b.mr.remote(0)));
    assert_eq!(a.end(), (2, WcStatus::RemInvReqErr));
}

#[test]
fn modify_names_missing_attributes() {
    let node = Node::on(open());
    node.qp.modify(InitAttr::Connected { access: Access::REMOTE_WRITE }).unwrap();
    let attr = QpAttr { path_mtu: Some(Mtu::Mtu1024), ..QpAttr::to(QpState::Rtr) };
    let expected = format!(
        "queue pair {}: INIT to RTR lacks AV, RQ_PSN, MIN_RNR_TIMER, MAX_DEST_RD_ATOMIC, DEST_QPN",
        node.qp.qpn()
    );
    assert_eq!(node.qp.modify(attr).unwrap_err().to_string(), expected);
    assert_eq!(node.qp.state().unwrap(), QpState::Init);
}

#[test]
fn unconnected_queue_pair_refuses_send_requests() {
    let node = Node::on(open());
    let error = node.qp.post_send(SendRequest::send(1, node.mr.sge(..8))).unwrap_err();
    let expected = format!(
        "queue pair {0}: queue pair {0} is in Reset: send requests are taken from RTS on",
        node.qp.qpn()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn cq_overrun_fails_its_queue_pairs() {
    let ctx = open();
    let small = ctx.create_cq(2, None).unwrap();
    let (a, b) = (Node::with_cq(ctx, small.clone()), Node::on(open()));
    a.connect(&b, &ConnectOptions::default());
    for i in 0..4 {
        a.send(SendRequest::write(i, a.mr.sge(..8), b.mr.remote(0)));
    }
    assert_eq!(a.event(), AsyncEvent::CqErr(small.id()));
    assert_eq!(a.qp.state().unwrap(), QpState::Err);
    assert_eq!((a.end(), a.end()), ((0, WcStatus::Success), (1, WcStatus::Success)));
    let error = small.wait_one(WAIT_LIMIT).unwrap_err().to_string();
    let id = small.id().0;
    assert_eq!(error, format!("completion queue {id} has overrun: 2 completions were not enough"));
}

#[test]
fn limit_error_contains_the_requested_value() {
    let ctx = open();
    let error = ctx.create_cq(0, None).unwrap_err().to_string();
    assert_eq!(error, "the depth of a completion queue is 0, not 1 to 4194304");
    let cq = ctx.create_cq(1, None).unwrap();
    let cap = QpCap { max_send_sge: 33, ..QpCap::default() };
    let error = ctx.alloc_pd().create_qp(&QpConfig { cap, ..QpConfig::rc(&cq) }).unwrap_err();
    assert_eq!(error.to_string(), "max_send_sge is 33, not 0 to 32");
}

#[test]
fn objects_of_different_devices_are_refused() {
    let (one, other) = (open(), open());
    let cq = other.create_cq(1, None).unwrap();
    let error = one.alloc_pd().create_qp(&QpConfig::rc(&cq)).unwrap_err();
    assert_eq!(error.to_string(), "the completion queue belongs to another device");
    let channel = other.create_channel().unwrap();
    let error = one.create_cq(1, Some(&channel)).unwrap_err();
    assert_eq!(error.to_string(), "the completion channel belongs to another device");
}

#[test]
fn bound_roce_port_prevents_opening_the_address() {
    let ip = fresh_ip();
    let _no_new_process = PROCESS_START_LOCK.read().unwrap();
    let socket = UdpSocket::bind((ip, 4791)).unwrap();
    let error = Context::open(OpenOptions::default().ip(ip)).unwrap_err();
    let expected =
        format!("UDP port 4791 of {ip} is held by this process; an address can have one holder");
    assert_eq!(error.to_string(), expected);
    drop(socket);
    Context::open(OpenOptions::default().ip(ip)).unwrap();
}

#[test]
fn open_device_refuses_other_options() {
    let ctx = open();
    let again = || OpenOptions::default().ip(ctx.ip());
    Context::open(again()).unwrap();
    let error = Context::open(again().receive_buffer(4096)).unwrap_err();
    let expected = format!(
        "the device at {} is open already; options must be given when it is opened first",
        ctx.ip()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn address_of_another_host_is_refused() {
    let error = Context::open(OpenOptions::default().ip("192.0.2.1".parse().unwrap()));
    assert_eq!(error.unwrap_err().to_string(), "192.0.2.1 is not an address of this machine");
}

#[test]
fn device_creates_max_cq_completion_queues() {
    let ctx = open();
    let max = ctx.device_info().unwrap().limits.max_cq;
    let mut cqs: Vec<_> = (0..max).map(|_| ctx.create_cq(1, None).unwrap()).collect();
    let said = ctx.create_cq(1, None).unwrap_err().to_string();
    assert_eq!(said, format!("the device has {max} completion queues and takes no more"));
    cqs.pop();
    ctx.create_cq(1, None).unwrap();
}

/// The device enforces the limits that it reports.
#[test]
fn queue_pair_enforces_the_limits_of_its_device() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(1, None).unwrap());
    let limits = ctx.device_info().unwrap().limits;
    let said: std::collections::HashMap<_, _> = limits.iter().collect();
    for (what, limit) in [
        ("max_send_wr", "max_qp_wr"),
        ("max_recv_wr", "max_qp_wr"),
        ("max_send_sge", "max_sge"),
        ("max_recv_sge", "max_sge"),
        ("max_inline_data", "max_inline_data"),
    ] {
        let max = said[limit] as u32;
        let create = |found| {
            let mut cap = QpCap::default();
            match what {
                "max_send_wr" => cap.max_send_wr = found,
                "max_recv_wr" => cap.max_recv_wr = found,
                "max_send_sge" => cap.max_send_sge = found,
                "max_recv_sge" => cap.max_recv_sge = found,
                _ => cap.max_inline_data = found,
            }
            pd.create_qp(&QpConfig { cap, ..QpConfig::rc(&cq) })
        };
        assert!(create(max).is_ok(), "{what}");
        let error = create(max + 1).unwrap_err().to_string();
        assert_eq!(error, format!("{what} is {}, not 0 to {max}", max + 1));
    }
}
