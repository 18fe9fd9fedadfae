//! Destruction of objects that are in use or have unacknowledged events.

use std::thread;
use std::time::Duration;

use softroce::engine::QpAttr;
use softroce::verbs::*;

use crate::node::{Node, WAIT_LIMIT, open, single_attempt};

/// Returns a queue pair that is its own peer, with a completion queue on `channel`.
fn announced(ctx: &Context, channel: &CompletionChannel) -> Node {
    let cq = ctx.create_cq(16, Some(channel)).unwrap();
    let node = Node::with_cq(ctx.clone(), cq);
    node.qp.connect(&node.qp.endpoint(), &single_attempt()).unwrap();
    node.cq.req_notify(false);
    node
}

fn refused<T>(result: Result<(), (T, Error)>) -> (T, String) {
    let (object, error) = result.err().unwrap();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    (object, error.to_string())
}

#[test]
fn completion_queues_of_one_channel_count_their_own_announcements() {
    let ctx = open();
    let channel = ctx.create_channel().unwrap();
    let nodes: Vec<_> = (0..3).map(|_| announced(&ctx, &channel)).collect();
    for node in &nodes {
        node.send(SendRequest::write(1, SendData::inline(b"x"), node.mr.remote(0)));
    }
    let mut kept = Vec::new();
    for _ in &nodes {
        kept.push(channel.wait(WAIT_LIMIT).unwrap().keep());
    }
    assert!(channel.wait(Duration::ZERO).is_err(), "each is announced once");
    for node in &nodes {
        assert_eq!(kept.iter().filter(|cq| **cq == node.cq).count(), 1);
        assert_eq!(node.cq.unacknowledged_events(), 1);
    }
    nodes[0].cq.ack_events(1);
    let counts: Vec<_> = nodes.iter().map(|node| node.cq.unacknowledged_events()).collect();
    assert_eq!(counts, [0, 1, 1]);
}

#[test]
fn cq_destruction_waits_for_the_last_acknowledgement() {
    let ctx = open();
    let channel = ctx.create_channel().unwrap();
    let Node { qp, cq, mr, .. } = announced(&ctx, &channel);
    qp.post_send(SendRequest::write(1, SendData::inline(b"x"), mr.remote(0)).signaled()).unwrap();
    let event = channel.wait(WAIT_LIMIT).unwrap();
    let (cq, said) = refused(cq.destroy());
    assert_eq!(said, "the completion queue is in use by queue pairs: 1");
    drop(qp);
    let (cq, said) = refused(cq.destroy());
    assert_eq!(said, "the completion queue is in use by unacknowledged events: 1");
    assert!(cq.wait_acknowledged(Duration::ZERO).is_err());
    thread::scope(|scope| {
        let waiter = thread::Builder::new()
            .spawn_scoped(scope, || cq.wait_acknowledged(WAIT_LIMIT).is_ok())
            .unwrap();
        drop(event);
        assert!(waiter.join().unwrap());
    });
    assert!(cq.destroy().is_ok());
    assert!(channel.destroy().is_ok());
}

#[test]
fn channel_in_use_is_not_destroyed() {
    let ctx = open();
    let channel = ctx.create_channel().unwrap();
    let cq = ctx.create_cq(4, Some(&channel)).unwrap();
    let (channel, said) = refused(channel.destroy());
    assert_eq!(said, "the completion channel is in use by completion queues: 1");
    cq.destroy().unwrap();
    channel.destroy().unwrap();
}

#[test]
fn domain_in_use_is_not_deallocated() {
    let Node { qp, cq, mr, pd, .. } = Node::on(open());
    let (pd, said) = refused(pd.dealloc());
    assert_eq!(said, "the protection domain is in use by objects made from it: 2");
    drop((qp, mr));
    pd.dealloc().unwrap();
    cq.destroy().unwrap();
}

#[test]
fn unacknowledged_async_event_prevents_destruction() {
    let node = Node::on(open());
    node.qp.connect(&node.qp.endpoint(), &single_attempt()).unwrap();
    let sqd = || node.qp.modify(QpAttr::to(QpState::Sqd)).unwrap();
    sqd();
    let event = node.ctx.get_async_event(WAIT_LIMIT).unwrap().keep();
    assert_eq!(event, AsyncEvent::SqDrained(node.qp.qpn()));
    let (qp, said) = refused(node.qp.clone().destroy());
    assert_eq!(said, "the queue pair is in use by unacknowledged events: 1");
    assert!(qp.wait_acknowledged(Duration::ZERO).is_err());
    qp.ack_async_events(1);
    qp.wait_acknowledged(Duration::ZERO).unwrap();
    // Programs need not count their acknowledgements.
    qp.modify(QpAttr::to(QpState::Rts)).unwrap();
    sqd();
    assert_eq!(node.event(), event);
    qp.destroy().unwrap();
}

#[test]
fn srq_in_use_is_not_destroyed() {
    let ctx = open();
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(4, None).unwrap());
    let srq = pd.create_srq(&SrqConfig::default()).unwrap();
    let qp = pd.create_qp(&QpConfig { srq: Some(&srq), ..QpConfig::rc(&cq) }).unwrap();
    qp.connect(&qp.endpoint(), &single_attempt()).unwrap();
    srq.post_recv(RecvRequest::default()).unwrap();
    srq.modify(SrqModify { limit: Some(1), ..SrqModify::default() }).unwrap();
    qp.post_send(SendRequest::send(1, SendData::inline(b""))).unwrap();
    let event = ctx.get_async_event(WAIT_LIMIT).unwrap();
    assert_eq!(*event, AsyncEvent::SrqLimitReached(srq.srqn()));
    let (srq, said) = refused(srq.destroy());
    assert_eq!(said, "the shared receive queue is in use by queue pairs: 1");
    drop(qp);
    let (srq, said) = refused(srq.destroy());
    assert_eq!(said, "the shared receive queue is in use by unacknowledged events: 1");
    drop(event);
    srq.destroy().unwrap();
}

#[test]
fn destroyed_object_has_no_events() {
    let ctx = open();
    let (a, b) = (Node::on(ctx.clone()), Node::on(ctx.clone()));
    for node in [&a, &b] {
        node.qp.connect(&node.qp.endpoint(), &single_attempt()).unwrap();
        node.qp.modify(QpAttr::to(QpState::Sqd)).unwrap();
    }
    let qpn = b.qp.qpn();
    drop(a.qp);
    assert_eq!(ctx.poll_event(), Some(AsyncEvent::SqDrained(qpn)));
    assert_eq!(ctx.poll_event(), None);
}

#[test]
fn overrun_cq_is_destroyed_after_its_event_is_acknowledged() {
    let ctx = open();
    let node = Node::with_cq(ctx.clone(), ctx.create_cq(1, None).unwrap());
    node.qp.connect(&node.qp.endpoint(), &single_attempt()).unwrap();
    for wr_id in 0..2 {
        node.send(SendRequest::write(wr_id, SendData::inline(b"x"), node.mr.remote(0)));
    }
    let event = ctx.get_async_event(WAIT_LIMIT).unwrap();
    assert_eq!(*event, AsyncEvent::CqErr(node.cq.id()));
    assert_eq!(node.qp.state().unwrap(), QpState::Err);
    let Node { qp, cq, .. } = node;
    drop(qp);
    let (cq, said) = refused(cq.destroy());
    assert_eq!(said, "the completion queue is in use by unacknowledged events: 1");
    drop(event);
    cq.destroy().unwrap();
}

#[test]
fn parent_domain_stands_for_its_protection_domain() {
    let ctx = open();
    let (pd, td) = (ctx.alloc_pd(), ctx.alloc_td());
    let parent = ctx.alloc_parent_domain(&pd, Some(&td)).unwrap();
    assert_eq!((parent.thread_domain(), pd.thread_domain()), (Some(&td), None));
    // Both domains may use memory of either.
    let mr = pd.alloc_mr(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let cq =
        ctx.create_cq_ex(&CqConfig { parent_domain: Some(&parent), ..CqConfig::new(4) }).unwrap();
    let qp = parent.create_qp(&QpConfig::rc(&cq)).unwrap();
    qp.connect(&qp.endpoint(), &single_attempt()).unwrap();
    qp.post_send(SendRequest::write(1, mr.sge(..8), mr.remote(8)).signaled()).unwrap();
    assert_eq!(cq.wait_one(WAIT_LIMIT).unwrap().status, WcStatus::Success);

    let (td, said) = refused(td.dealloc());
    assert_eq!(said, "the thread domain is in use by parent domains: 1");
    let (pd, said) = refused(pd.dealloc());
    assert_eq!(said, "the protection domain is in use by objects made from it: 2");
    let (parent, _) = refused(parent.dealloc());
    drop((qp, cq));
    parent.dealloc().unwrap();
    td.dealloc().unwrap();
    drop(mr);
    pd.dealloc().unwrap();
}

#[test]
fn domains_of_different_devices_are_refused() {
    let (one, other) = (open(), open());
    let (pd, td) = (one.alloc_pd(), one.alloc_td());
    for (error, expected) in [
        (one.alloc_parent_domain(&other.alloc_pd(), None).unwrap_err(), "protection domain"),
        (other.alloc_parent_domain(&other.alloc_pd(), Some(&td)).unwrap_err(), "thread domain"),
    ] {
        assert_eq!(error.to_string(), format!("the {expected} belongs to another device"));
    }
    let config = CqConfig { parent_domain: Some(&pd), ..CqConfig::new(4) };
    let error = one.create_cq_ex(&config).unwrap_err();
    assert!(matches!(error, Error::NoParentDomain), "{error}");
    let parent = one.alloc_parent_domain(&pd, None).unwrap();
    let config = CqConfig { parent_domain: Some(&parent), ..config };
    assert!(matches!(other.create_cq_ex(&config), Err(Error::OtherDevice { .. })));
}
