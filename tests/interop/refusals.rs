//! Requests that either side refuses, and the results on both sides.

use std::time::Duration;

use softroce::verbs::*;

use super::pair::{Pair, Setup, TARGET, WAIT_LIMIT, all, timeout};
use super::peer::PeerRegion;

/// Numbers of `ibv_wc_status`.
const SUCCESS: u8 = WcStatus::Success as u8;

/// Checks that a local request and its queue pair fail with this status.
#[track_caller]
fn ours_fails(pair: &Pair, request: SendRequest, expected: WcStatus) {
    pair.qp.post_send(request.signaled()).unwrap();
    assert_eq!(pair.ours().status, expected);
    assert_eq!(pair.qp.state().unwrap(), QpState::Err);
}

/// Checks that a request of the peer fails with this status.
#[track_caller]
fn theirs_fails(pair: &mut Pair, op: &SendOp, expected: WcStatus) {
    let lkey = pair.peer.mr.lkey;
    pair.peer.post_send(1, op, SendFlags::SIGNALED.bits(), &[(0, 8, lkey)]);
    assert_eq!(pair.theirs().status, expected as u8);
}

/// rxe checks the bounds of the region only.
#[test]
#[ignore = "needs a peer"]
fn what_is_beyond_a_memory_window_is_refused_but_by_rxe() {
    let mut pair = Pair::new(Setup::default());
    let window = pair.peer.window(MwType::Type1, 4096, 4096, Access::REMOTE_WRITE);
    let inside = request(&pair, SendOp::Write { to: window }).signaled();
    pair.qp.post_send(inside).unwrap();
    assert_eq!(pair.ours().status, WcStatus::Success);
    let outside = RemoteAddr { addr: window.addr + 4096, ..window };
    let expected = pair.peer.device.deviates(WcStatus::Success, WcStatus::RemAccessErr);
    pair.qp.post_send(request(&pair, SendOp::Write { to: outside }).signaled()).unwrap();
    assert_eq!(pair.ours().status, expected);
}

/// Returns requests for memory of the other side.
fn on_memory(at: RemoteAddr) -> [SendOp; 3] {
    [SendOp::Write { to: at }, SendOp::Read { from: at }, SendOp::FetchAdd { at, add: 1 }]
}

fn request(pair: &Pair, op: SendOp) -> SendRequest {
    SendRequest::new(1, op, pair.mr.sge(..8))
}

#[test]
#[ignore = "needs a peer"]
fn unknown_key_is_a_remote_access_error() {
    for i in 0..3 {
        let pair = Pair::new(Setup::default());
        let mut there = pair.peer.mr.remote(0);
        there.rkey = Rkey(there.rkey.0 ^ 0x5555_0000);
        ours_fails(&pair, request(&pair, on_memory(there)[i]), WcStatus::RemAccessErr);

        let mut pair = Pair::new(Setup::default());
        let mut here = pair.mr.remote(0);
        here.rkey = Rkey(here.rkey.0 ^ 0x5555_0000);
        theirs_fails(&mut pair, &on_memory(here)[i], WcStatus::RemAccessErr);
    }
}

#[test]
#[ignore = "needs a peer"]
fn what_is_out_of_range_is_a_remote_access_error() {
    for i in 0..3 {
        let pair = Pair::new(Setup::default());
        let there = pair.peer.mr.remote(super::pair::MEMORY_BYTES);
        ours_fails(&pair, request(&pair, on_memory(there)[i]), WcStatus::RemAccessErr);

        let mut pair = Pair::new(Setup::default());
        let here = pair.mr.remote(super::pair::MEMORY_BYTES);
        theirs_fails(&mut pair, &on_memory(here)[i], WcStatus::RemAccessErr);
    }
}

#[test]
#[ignore = "needs a peer"]
fn region_without_the_permission_is_a_remote_access_error() {
    for i in 0..3 {
        let mut pair = Pair::new(Setup::default());
        let region: PeerRegion = pair.peer.reg_mr(4096, 4096, Access::LOCAL_WRITE, false);
        let there = region.remote(0);
        ours_fails(&pair, request(&pair, on_memory(there)[i]), WcStatus::RemAccessErr);

        let mut pair = Pair::new(Setup::default());
        let region = pair.pd.alloc_mr(4096, Access::LOCAL_WRITE).unwrap();
        theirs_fails(&mut pair, &on_memory(region.remote(0))[i], WcStatus::RemAccessErr);
    }
}

/// rxe answers with an invalid request NAK (0x61); this library, as ConnectX, with a remote access error.
#[test]
#[ignore = "needs a peer"]
fn queue_pair_without_the_permission_refuses() {
    for i in 0..3 {
        let setup = Setup { access: [Access::empty(); 2], ..Setup::default() };
        let pair = Pair::new(setup);
        let there = pair.peer.mr.remote(0);
        let expected = pair.peer.device.deviates(WcStatus::RemInvReqErr, WcStatus::RemAccessErr);
        ours_fails(&pair, request(&pair, on_memory(there)[i]), expected);

        let mut pair = Pair::new(setup);
        let here = pair.mr.remote(0);
        theirs_fails(&mut pair, &on_memory(here)[i], WcStatus::RemAccessErr);
    }
}

/// rxe does not post misaligned atomics; this library sends them, and the peer refuses.
#[test]
#[ignore = "needs a peer"]
fn misaligned_atomic_is_an_invalid_request() {
    let mut pair = Pair::new(Setup::default());
    let op = SendOp::FetchAdd { at: pair.mr.remote(4), add: 1 };
    let lkey = pair.peer.mr.lkey;
    let posted = pair.peer.try_post_send(1, &op, 2, &[(0, 8, lkey)]);
    let refused = Err("error send: Invalid argument".to_owned());
    assert_eq!(posted, pair.peer.device.deviates(refused, Ok(())));
    if posted.is_ok() {
        assert_eq!(pair.theirs().status, WcStatus::RemInvReqErr as u8);
    }

    let pair = Pair::new(Setup::default());
    let at = pair.peer.mr.remote(4);
    ours_fails(&pair, request(&pair, SendOp::FetchAdd { at, add: 1 }), WcStatus::RemInvReqErr);
}

/// rxe reports its own failure for a SEND that does not fit (NAK 0x63 and `LOC_QP_OP_ERR`); this library follows the
/// specification.
#[test]
#[ignore = "needs a peer"]
fn message_longer_than_the_receive_request_fails_at_both_ends() {
    let mut pair = Pair::new(Setup::default());
    let lkey = pair.peer.mr.lkey;
    pair.peer.post_recv(2, &[(TARGET, 100, lkey)]);
    let [requester, responder] = pair.peer.device.deviates(
        [WcStatus::RemOpErr, WcStatus::LocQpOpErr],
        [WcStatus::RemInvReqErr, WcStatus::LocLenErr],
    );
    ours_fails(&pair, SendRequest::send(1, pair.mr.sge(..101)), requester);
    assert_eq!(pair.theirs().status, responder as u8);

    let mut pair = Pair::new(Setup::default());
    let lkey = pair.peer.mr.lkey;
    pair.qp.post_recv(RecvRequest::new(2, pair.mr.sge(..100))).unwrap();
    pair.peer.post_send(1, &SendOp::Send, 2, &[(0, 101, lkey)]);
    assert_eq!(pair.theirs().status, WcStatus::RemInvReqErr as u8);
    assert_eq!(pair.ours().status, WcStatus::LocLenErr);
}

/// rxe reports a local operation error; this library follows the specification.
#[test]
#[ignore = "needs a peer"]
fn receive_request_with_an_unknown_key_fails_at_both_ends() {
    let mut pair = Pair::new(Setup::default());
    let lkey = pair.peer.mr.lkey;
    pair.peer.post_recv(2, &[(TARGET, 100, lkey ^ 0x5555_0000)]);
    ours_fails(&pair, SendRequest::send(1, pair.mr.sge(..100)), WcStatus::RemOpErr);
    let expected = pair.peer.device.deviates(WcStatus::LocQpOpErr, WcStatus::LocProtErr);
    assert_eq!(pair.theirs().status, expected as u8);

    let mut pair = Pair::new(Setup::default());
    let (sge, lkey) = (pair.mr.sge(..100), pair.peer.mr.lkey);
    let unknown = Sge { lkey: Lkey(sge.lkey.0 ^ 0x5555_0000), ..sge };
    pair.qp.post_recv(RecvRequest::new(2, unknown)).unwrap();
    pair.peer.post_send(1, &SendOp::Send, 2, &[(0, 100, lkey)]);
    assert_eq!(pair.theirs().status, WcStatus::RemOpErr as u8);
    assert_eq!(pair.ours().status, WcStatus::LocProtErr);
}

/// A message fills the first of two buffers, and the second has an unknown key; a message of 0 bytes fills none.
#[test]
#[ignore = "needs a peer"]
fn receive_request_is_checked_as_far_as_the_message_reaches() {
    let mut pair = Pair::new(Setup::default());
    let (sge, lkey) = (pair.mr.sge(..100), pair.peer.mr.lkey);
    pair.peer.post_recv(2, &[(TARGET, 100, lkey), (TARGET, 100, lkey ^ 0x5555_0000)]);
    pair.peer.post_recv(3, &[(TARGET, 100, lkey ^ 0x5555_0000)]);
    for sge in [sge, pair.mr.sge(..0)] {
        pair.qp.post_send(SendRequest::send(1, sge).signaled()).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(pair.theirs().status, WcStatus::Success as u8);
        assert_eq!(pair.ours().status, WcStatus::Success);
    }

    let unknown = Sge { lkey: Lkey(sge.lkey.0 ^ 0x5555_0000), ..sge };
    pair.qp.post_recv(RecvRequest::scattered(2, &[sge, unknown])).unwrap();
    pair.qp.post_recv(RecvRequest::new(3, unknown)).unwrap();
    for length in [100, 0] {
        pair.peer.post_send(1, &SendOp::Send, 2, &[(0, length, lkey)]);
        assert_eq!(pair.theirs().status, WcStatus::Success as u8);
        assert_eq!(pair.ours().status, WcStatus::Success);
    }
}

fn rnr(timer: u8, retry: u8) -> Setup {
    let options = ConnectOptions {
        min_rnr_timer: RnrTimer::new(timer).unwrap(),
        rnr_retry: retry,
        ..Setup::default().options
    };
    Setup { options, ..Setup::default() }
}

#[test]
#[ignore = "needs a peer"]
fn message_waits_for_its_receive_request() {
    // 20 is 10 ms: several NAKs within the time slept here.
    let mut pair = Pair::new(rnr(20, 7));
    let lkey = pair.peer.mr.lkey;
    pair.fill(0, 3000, 1);
    pair.qp.post_send(SendRequest::send(1, pair.mr.sge(..3000)).signaled()).unwrap();
    assert_eq!(pair.cq.wait_one(Duration::from_millis(50)).ok(), None);
    pair.peer.post_recv(2, &[(TARGET, 3000, lkey)]);
    assert_eq!((pair.ours().status, pair.theirs().status), (WcStatus::Success, SUCCESS));
    pair.peer.check(TARGET, 3000, 1);

    pair.peer.fill(0, 3000, 2);
    pair.peer.post_send(3, &SendOp::Send, 2, &[(0, 3000, lkey)]);
    assert_eq!(pair.peer.poll(Duration::from_millis(50)), None);
    pair.qp.post_recv(RecvRequest::new(4, pair.mr.sge(TARGET..TARGET + 3000))).unwrap();
    assert_eq!((pair.theirs().status, pair.ours().status), (SUCCESS, WcStatus::Success));
    pair.check(TARGET, 3000, 2);
}

#[test]
#[ignore = "needs a peer"]
fn message_without_receive_request_fails_in_the_end() {
    let mut pair = Pair::new(rnr(12, 2));
    let lkey = pair.peer.mr.lkey;
    pair.peer.post_send(1, &SendOp::Send, 2, &[(0, 8, lkey)]);
    assert_eq!(pair.theirs().status, WcStatus::RnrRetryExcErr as u8);
    let pair = Pair::new(rnr(12, 2));
    ours_fails(&pair, SendRequest::send(1, pair.mr.sge(..8)), WcStatus::RnrRetryExcErr);
}

/// With `retry_cnt` 7 rxe would retry forever.
fn limited_retries() -> Setup {
    let options = ConnectOptions { retry_cnt: 2, timeout: timeout(14), ..Setup::default().options };
    Setup { options, ..Setup::default() }
}

#[test]
#[ignore = "needs a peer"]
fn queue_pair_that_is_gone_does_not_answer() {
    let mut pair = Pair::new(limited_retries());
    pair.peer.destroy_qp();
    ours_fails(&pair, SendRequest::send(1, pair.mr.sge(..8)), WcStatus::RetryExcErr);

    let Pair { qp, mr, mut peer, ctx, .. } = Pair::new(limited_retries());
    let lkey = peer.mr.lkey;
    drop(qp);
    peer.post_send(1, &SendOp::Write { to: mr.remote(0) }, 2, &[(0, 8, lkey)]);
    let done = peer.poll(WAIT_LIMIT).unwrap();
    assert_eq!(done.status, WcStatus::RetryExcErr as u8);
    drop(ctx);
}

/// During a message. The peer's process ends; on this side the socket is closed.
#[test]
#[ignore = "needs a peer"]
fn peer_that_dies_does_not_answer() {
    const WRITES: u64 = 32;
    let fails = |ends: &[u8]| {
        let flushed = ends.iter().filter(|status| **status == WcStatus::WrFlushErr as u8).count();
        let done = ends.iter().filter(|status| **status == SUCCESS).count();
        let failed = ends[done..].first().copied();
        assert_eq!(failed, Some(WcStatus::RetryExcErr as u8), "{ends:?}");
        assert_eq!(done + 1 + flushed, ends.len(), "{ends:?}");
    };

    let Pair { qp, cq, mr, peer, .. } = Pair::new(limited_retries());
    let to = peer.mr.remote(0);
    for id in 0..WRITES {
        qp.post_send(SendRequest::write(id, mr.sge(..1 << 20), to).signaled()).unwrap();
    }
    drop(peer);
    let ends = (0..WRITES).map(|_| cq.wait_one(WAIT_LIMIT).unwrap().status as u8);
    fails(&ends.collect::<Vec<_>>());

    let mut pair = Pair::new(limited_retries());
    let (to, lkey) = (pair.mr.remote(0), pair.peer.mr.lkey);
    for id in 0..WRITES {
        pair.peer.post_send(id, &SendOp::Write { to }, 2, &[(0, 1 << 20, lkey)]);
    }
    let Pair { ctx, pd, cq, qp, mr, mut peer, .. } = pair;
    drop((qp, mr, cq, pd, ctx));
    let ends = (0..WRITES).map(|_| peer.poll(WAIT_LIMIT).unwrap().status);
    fails(&ends.collect::<Vec<_>>());
}

#[test]
#[ignore = "needs a peer"]
fn region_of_another_domain_is_a_remote_access_error() {
    let mut pair = Pair::new(Setup::default());
    let at = pair.peer.reg_mr(4096, 4096, all(), true).remote(0);
    ours_fails(&pair, request(&pair, SendOp::Write { to: at }), WcStatus::RemAccessErr);
    let mut pair = Pair::new(Setup::default());
    let other = pair.ctx.alloc_pd().alloc_mr(4096, all()).unwrap();
    theirs_fails(&mut pair, &SendOp::Write { to: other.remote(0) }, WcStatus::RemAccessErr);
}

/// The write is dropped without a response, and the connection continues.
#[test]
#[ignore = "needs a peer"]
fn write_with_an_unknown_key_is_dropped_over_uc() {
    let mut pair = Pair::new(Setup { service: QpType::Uc, ..Setup::default() });
    let lkey = pair.peer.mr.lkey;
    let unknown =
        |there: RemoteAddr| RemoteAddr { rkey: Rkey(there.rkey.0 ^ 0x5555_0000), ..there };
    let op = SendOp::Write { to: unknown(pair.peer.mr.remote(0)) };
    pair.peer.post_recv(2, &[(TARGET, 8, lkey)]);
    pair.qp.post_send(request(&pair, op).signaled()).unwrap();
    pair.qp.post_send(SendRequest::send(3, pair.mr.sge(..8)).signaled()).unwrap();
    assert_eq!((pair.ours().status, pair.ours().wr_id), (WcStatus::Success, 3));
    assert_eq!((pair.theirs().id, pair.peer.poll(Duration::ZERO)), (2, None));

    let op = SendOp::Write { to: unknown(pair.mr.remote(0)) };
    pair.qp.post_recv(RecvRequest::new(4, pair.mr.sge(TARGET..TARGET + 8))).unwrap();
    pair.peer.post_send(5, &op, 2, &[(0, 8, lkey)]);
    pair.peer.post_send(6, &SendOp::Send, 2, &[(0, 8, lkey)]);
    assert_eq!((pair.theirs().status, pair.theirs().id), (SUCCESS, 6));
    assert_eq!((pair.ours().wr_id, pair.qp.state().unwrap()), (4, QpState::Rts));
}
