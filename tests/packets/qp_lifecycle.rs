//! Creation and destruction of queue pairs: declared operations, limits, and numbers.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::collections::HashSet;
use std::time::Duration;

use crate::support::script::{PEER_QPN, REMOTE, Script, rts_qp, rts_qp_of, target};
use crate::support::{Link, World, full_access, qp_init, remote, request, sge};
use softroce::engine::{Config, CreateError, PostError, QpAttr, QpState, QpType, SendOps};
use softroce::net::Burst;
use softroce::port::sim::HostConfig;
use softroce::time::Instant;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{RemoteAddr, SendData, SendOp, SendRequest, Sge, WcStatus};

fn ops(at: RemoteAddr) -> [SendOp; 9] {
    [
        SendOp::Send,
        SendOp::SendImm { imm: 1 },
        SendOp::Write { to: at },
        SendOp::WriteImm { to: at, imm: 1 },
        SendOp::Read { from: at },
        SendOp::CompareSwap { at, expect: 0, swap: 1 },
        SendOp::FetchAdd { at, add: 1 },
        SendOp::SendInv { rkey: at.rkey },
        SendOp::AtomicWrite { to: at },
    ]
}

#[test]
fn undeclared_operation_is_refused() {
    for op in ops(REMOTE) {
        let declared = SendOps::from(&op);
        let mut t = Script::requester(Link { send_ops: Some(declared), ..rts_qp() });
        for other in ops(REMOTE) {
            let found = SendOps::from(&other);
            let posted = t.post(request(1, other, &[sge(&t.answers.clone(), 0, 8)]));
            let refused = Err(PostError::NotDeclared { found, declared });
            assert_eq!(posted, if found == declared { Ok(()) } else { refused });
        }
        assert_eq!(t.all(0).len(), 1);
    }
}

#[test]
fn declared_operations_survive_reset() {
    let mut t = Script::requester(Link { send_ops: Some(SendOps::SEND), ..rts_qp() });
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    t.bring_to(QpState::Rts);
    let read = request(1, SendOp::Read { from: REMOTE }, &[]);
    assert!(matches!(t.post(read), Err(PostError::NotDeclared { .. })));
}

#[test]
fn operations_of_another_transport_cannot_be_declared() {
    let mut t = Script::reset(rts_qp(), |_| {});
    for (qp_type, surplus) in [
        (QpType::Uc, SendOps::RDMA_READ),
        (QpType::Ud, SendOps::RDMA_WRITE),
        (QpType::Rc, SendOps::TSO),
    ] {
        let send_ops = Some(SendOps::SEND | surplus);
        let init = qp_init(&Link { send_ops, ..rts_qp_of(qp_type) });
        let error = CreateError::SendOps { qp_type, surplus };
        assert_eq!(t.engine.create_qp(Instant::ZERO, init), Err(error));
        let said = error.to_string();
        assert_eq!(said, format!("{qp_type} queue pairs have no {surplus}"));
    }
}

#[test]
fn max_inline_data_is_granted_and_reported() {
    for (wanted, granted) in [(0, 64), (64, 64), (65, 65), (500, 500)] {
        let mut link = rts_qp();
        link.cap.max_inline_data = wanted;
        let mut t = Script::requester(link);
        let cap = t.engine.query_qp(t.qpn).unwrap().init.cap;
        assert_eq!(cap.max_inline_data, granted);
        let inline = |bytes: u32| SendRequest::send(1, SendData::inline(&vec![7; bytes as usize]));
        assert_eq!(t.post(inline(granted)), Ok(()));
        let found = granted as usize + 1;
        let error = PostError::InlineTooLong { found, max: granted };
        assert_eq!(t.post(inline(granted + 1)), Err(error));
        t.all(0);
    }
}

fn few(config: &mut Config) {
    config.max_qp = 3;
}

#[test]
fn device_creates_max_qp_queue_pairs() {
    let mut t = Script::reset(rts_qp(), few);
    let init = qp_init(&t.link);
    let first = t.engine.create_qp(Instant::ZERO, init).unwrap();
    t.engine.create_qp(Instant::ZERO, init).unwrap();
    let error = CreateError::TooMany { max: 3 };
    assert_eq!(t.engine.create_qp(Instant::ZERO, init), Err(error));
    assert_eq!(error.to_string(), "the device has 3 queue pairs and takes no more");
    // Its number is not reused yet, its slot is.
    t.engine.destroy_qp(Instant::ZERO, first);
    t.engine.create_qp(Instant::ZERO, init).unwrap();
}

/// QPS-14: recently used numbers are not assigned, among all the numbers of a shard.
#[test]
fn queue_pair_number_is_not_reused_soon() {
    let mut t = Script::reset(rts_qp(), |_| {});
    let init = qp_init(&t.link);
    let mut used = HashSet::from([t.qpn]);
    // Random numbers without this rule would repeat thousands of times among 2^18.
    let error = loop {
        match t.engine.create_qp(Instant::ZERO, init) {
            Ok(qpn) => {
                assert!(used.insert(qpn), "{qpn} again");
                t.engine.destroy_qp(Instant::ZERO, qpn);
            }
            Err(error) => break error,
        }
    };
    let resting = used.len() - 1;
    assert_eq!((error, used.len()), (CreateError::NumbersRest { resting }, (1 << 18) / 4 * 3));
    let early = Instant::from_nanos(10_000_000_000 - 1);
    assert_eq!(t.engine.create_qp(early, init), Err(error));
    assert!(t.engine.create_qp(Instant::from_millis(10_000), init).is_ok());
}

/// QPS-14: packets for a destroyed queue pair reach no other.
#[test]
fn packets_for_a_destroyed_queue_pair_reach_no_other() {
    let mut t = Script::responder(rts_qp());
    t.engine.destroy_qp(Instant::ZERO, t.qpn);
    let init = qp_init(&t.link);
    for _ in 0..100 {
        t.engine.create_qp(Instant::ZERO, init).unwrap();
    }
    t.rx(1, "SEND_ONLY psn=5 ackreq len=8");
    assert_eq!(t.dropped(DropReason::UnknownQp), 1);
    t.quiet(1000);
}

#[test]
fn queue_pair_is_destroyed_with_outstanding_work() {
    let mut world = World::with(7, 2, HostConfig::default(), |_| {});
    let link = Link { retry_cnt: 1, ..Link::default() };
    let qps = world.pair(&link);
    let near = world.nodes[0].region(1 << 20, 1 << 32, full_access());
    let far = world.nodes[1].region(1 << 20, 1 << 32, full_access());
    for (wr_id, op) in (0..).zip([
        SendOp::Write { to: remote(&far, 0) },
        SendOp::Read { from: remote(&far, 0) },
        SendOp::Write { to: remote(&far, 0) },
    ]) {
        world.post_send(0, qps[0], request(wr_id, op, &[sge(&near, 0, 1 << 20)]));
    }
    world.post_recv(0, qps[0], 9, &[]);
    world.run(Duration::from_micros(100));
    let now = world.now;
    world.nodes[0].engine.destroy_qp(now, qps[0]);
    world.run(Duration::from_secs(5));
    // No request completes, and the window is free: another queue pair continues immediately.
    assert_eq!((world.nodes[0].sends.len(), world.nodes[0].recvs.len()), (0, 0));
    assert_eq!(world.nodes[0].engine.query_qp(qps[0]), None);
    let qps = world.pair(&link);
    let write = request(7, SendOp::Write { to: remote(&far, 0) }, &[sge(&near, 0, 1 << 20)]);
    world.post_send(0, qps[0], write);
    world.run(Duration::from_secs(5));
    let ends: Vec<_> = world.nodes[0].sends.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(ends, [(7, WcStatus::Success)]);
}

/// A queue pair that is reset with unsent requests sends nothing, and the burst of the queue pair before it does not
/// leave again.
#[test]
fn reset_queue_pair_sends_nothing() {
    for (qp_type, to) in [
        (QpType::Rc, QpState::Reset),
        (QpType::Rc, QpState::Err),
        (QpType::Uc, QpState::Reset),
        (QpType::Uc, QpState::Err),
    ] {
        let mut world = World::new(1, 2);
        let link = Link { qp_type, ..Link::default() };
        let [first, second] = [world.pair(&link), world.pair(&link)].map(|[qpn, _]| qpn);
        let source = world.nodes[0].region(64, 0x1000, full_access());
        for qpn in [first, second] {
            world.post_send(0, qpn, request(1, SendOp::Send, &[sge(&source, 0, 64)]));
        }
        let (now, engine) = (world.now, &mut world.nodes[0].engine);
        let mut burst = Burst::new();
        assert!(engine.poll_transmit(now, &mut burst) && burst.len() == 1, "{qp_type}");
        engine.modify_qp(now, second, &QpAttr::to(to), |_, wanted| wanted).unwrap();
        assert!(!engine.poll_transmit(now, &mut burst) && burst.is_empty(), "{qp_type} in {to}");
        assert_eq!(engine.counters().tx_packets, 1, "{qp_type} in {to}");
    }
}

/// QPS-15: requests posted in SQE are flushed too.
#[test]
fn send_queue_in_sqe_resumes_by_rts() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let mut t = Script::requester(rts_qp_of(qp_type));
        let bad = Sge { length: 8, ..Default::default() };
        let to = Some(target(PEER_QPN).into());
        t.post(SendRequest { to, ..request(1, SendOp::Send, &[bad]) }).unwrap();
        t.send(2, 8);
        assert_eq!(t.all(0).len(), 0);
        assert_eq!(t.state(), QpState::Sqe);
        t.send(3, 8);
        let ends: Vec<_> = t.sends().iter().map(|c| (c.wr_id, c.status)).collect();
        let flushed = WcStatus::WrFlushErr;
        assert_eq!(ends, [(1, WcStatus::LocProtErr), (2, flushed), (3, flushed)]);
        let attr = QpAttr { cur_state: Some(QpState::Sqe), ..QpAttr::to(QpState::Rts) };
        t.modify(attr).unwrap();
        t.send(4, 8);
        assert_eq!(t.all(0).len(), 1, "{qp_type}");
        let ends: Vec<_> = t.sends().iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(ends, [(4, WcStatus::Success)]);
    }
}

#[test]
fn post_all_posts_all_requests_or_none() {
    let mut link = rts_qp();
    link.cap.max_send_wr = 3;
    let mut t = Script::requester(link);
    let good = |wr_id| request(wr_id, SendOp::Send, &[]);
    let bad = SendRequest::send(9, SendData::inline(&[0; 300]));
    let check = |t: &Script, list: &[SendRequest]| t.engine.check_sends(t.qpn, list);
    assert_eq!(check(&t, &[good(1), good(2), good(3)]), Ok(()));
    let too_long = Err(PostError::InlineTooLong { found: 300, max: 256 });
    assert_eq!(check(&t, &[good(1), bad.clone(), good(3)]), too_long);
    let full = Err(PostError::QueueFull { capacity: 3 });
    assert_eq!(check(&t, &[good(1), good(2), good(3), bad]), too_long);
    assert_eq!(check(&t, &[good(1), good(2), good(3), good(4)]), full);
    // Posted requests count.
    t.post(good(1)).unwrap();
    assert_eq!(check(&t, &[good(2), good(3)]), Ok(()));
    assert_eq!(check(&t, &[good(2), good(3), good(4)]), full);
    assert_eq!(t.all(0).len(), 1, "to check posts nothing");
    // In ERR each request completes immediately and frees its slot.
    t.modify(QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(check(&t, &[good(2), good(3), good(4), good(5)]), Ok(()));
    assert_eq!(t.sends().len(), 1);
}
