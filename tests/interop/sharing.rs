//! Shared receive queues on both sides.

use std::time::Duration;

use softroce::verbs::*;

use super::pair::{Pair, Setup, TARGET, WAIT_LIMIT};
use crate::within::until;

/// `IBV_EVENT_SRQ_LIMIT_REACHED`.
const LIMIT_REACHED: u32 = 15;

const SUCCESS: u8 = WcStatus::Success as u8;

/// Length of a receive request in bytes, for three packets.
const RECEIVE_BYTES: usize = 3000;

fn setup() -> Setup {
    Setup { shared: Some(16), ..Setup::default() }
}

/// Returns the offset of the receive request `id`.
fn place(id: u64) -> usize {
    TARGET + id as usize * RECEIVE_BYTES
}

fn theirs(pair: &mut Pair, id: u64) {
    let lkey = pair.peer.mr.lkey;
    pair.peer.post_recv(id, &[(place(id), RECEIVE_BYTES, lkey)]);
}

fn ours(pair: &Pair, id: u64) {
    pair.post_recv(RecvRequest::new(id, pair.mr.sge(place(id)..place(id) + RECEIVE_BYTES)));
}

/// Messages to two queue pairs of the peer take requests of one queue in order of arrival.
#[test]
#[ignore = "needs a peer"]
fn two_queue_pairs_of_the_peer_share_a_queue() {
    let setup = setup();
    let mut pair = Pair::new(setup);
    let (second, their_second) = pair.another(&setup);
    let first = pair.qp.clone();
    for id in 0..6 {
        theirs(&mut pair, id);
    }
    let receivers = [pair.peer.endpoint.qpn, their_second.qpn];
    for (id, which) in [0, 1, 1, 1, 0, 1].into_iter().enumerate() {
        let seed = 40 + id as u32;
        let bytes = 1 + id * 500;
        pair.fill(0, bytes, seed);
        let qp = [&first, &second][which];
        qp.post_send(SendRequest::send(9, pair.mr.sge(..bytes)).signaled()).unwrap();
        assert_eq!((pair.ours().status, pair.cq.poll_one()), (WcStatus::Success, None));
        let got = pair.theirs();
        let expected = (id as u64, SUCCESS, bytes as u32, receivers[which]);
        assert_eq!((got.id, got.status, got.len, got.qpn), expected);
        pair.peer.check(place(id as u64), bytes, seed);
    }
}

/// The same in the other direction, with a limit on this side.
#[test]
#[ignore = "needs a peer"]
fn two_queue_pairs_of_ours_share_a_queue() {
    let setup = setup();
    let mut pair = Pair::new(setup);
    let (second, _) = pair.another(&setup);
    let srq = pair.qp.srq().unwrap().clone();
    for id in 0..6 {
        ours(&pair, id);
    }
    srq.modify(SrqModify { limit: Some(2), ..SrqModify::default() }).unwrap();
    let receivers = [pair.qp.qpn(), second.qpn()];
    let lkey = pair.peer.mr.lkey;
    for (id, which) in [0, 1, 1, 1, 0, 1].into_iter().enumerate() {
        let seed = 50 + id as u32;
        let bytes = 1 + id * 500;
        pair.peer.choose(which);
        pair.peer.fill(0, bytes, seed);
        pair.peer.post_send(9, &SendOp::Send, SendFlags::SIGNALED.bits(), &[(0, bytes, lkey)]);
        let got = pair.ours();
        let expected = (id as u64, WcStatus::Success, bytes as u32, receivers[which]);
        assert_eq!((got.wr_id, got.status, got.byte_len, got.qpn), expected);
        assert_eq!(pair.theirs().status, SUCCESS);
        pair.check(place(id as u64), bytes, seed);
        assert_eq!(srq.query().unwrap().limit, if id < 4 { 2 } else { 0 });
    }
    assert_eq!(pair.ctx.wait_event(WAIT_LIMIT).unwrap(), AsyncEvent::SrqLimitReached(srq.srqn()));
    assert_eq!(pair.ctx.poll_event(), None);
}

/// The limit of the peer is reported once, when fewer requests are left.
#[test]
#[ignore = "needs a peer"]
fn limit_of_the_peer_is_told_once() {
    let mut pair = Pair::new(setup());
    for id in 0..4 {
        theirs(&mut pair, id);
    }
    pair.peer.set_limit(2);
    let mut told = Vec::new();
    for id in 0..4 {
        pair.qp.post_send(SendRequest::send(9, pair.mr.sge(..8)).signaled()).unwrap();
        assert_eq!((pair.ours().status, pair.theirs().id), (WcStatus::Success, id));
        told.push(pair.peer.async_event(Duration::from_millis(if id < 2 { 0 } else { 300 })));
    }
    assert_eq!(told, [None, None, Some(LIMIT_REACHED), None]);
    assert_eq!(pair.peer.limit(), 0);
}

/// Without a request the sender waits, in either direction, until one is posted.
#[test]
#[ignore = "needs a peer"]
fn empty_queue_makes_the_sender_wait() {
    let mut pair = Pair::new(setup());
    let lkey = pair.peer.mr.lkey;
    pair.qp.post_send(SendRequest::send(1, pair.mr.sge(..8)).signaled()).unwrap();
    let naks = || pair.ctx.device_info().unwrap().counters.rnr_naks_received;
    until("two RNR NAKs", || {
        assert_eq!(pair.cq.poll_one(), None);
        naks() >= 2
    });
    theirs(&mut pair, 3);
    assert_eq!((pair.ours().wr_id, pair.theirs().id), (1, 3));

    pair.peer.post_send(4, &SendOp::Send, SendFlags::SIGNALED.bits(), &[(0, 8, lkey)]);
    let naks = || pair.ctx.device_info().unwrap().counters.rnr_naks_sent;
    until("two RNR NAKs", || {
        assert_eq!(pair.cq.poll_one(), None);
        naks() >= 2
    });
    ours(&pair, 5);
    assert_eq!((pair.ours().wr_id, pair.theirs().id), (5, 4));
}

/// Over UC as over RC, and with UD messages too, for which a request has space for the header.
#[test]
#[ignore = "needs a peer"]
fn other_services_take_from_a_shared_queue() {
    for service in [QpType::Uc, QpType::Ud] {
        let mut pair = Pair::new(Setup { service, ..setup() });
        let (lkey, head) = (pair.peer.mr.lkey, if service == QpType::Ud { GRH_LEN } else { 0 });
        let mut lost = 0;
        for id in 0..4_u64 {
            let seed = 60 + id as u32;
            pair.fill(0, 700, seed);
            pair.peer.fill(0, 700, seed + 10);
            theirs(&mut pair, id);
            ours(&pair, id);
            let send = pair.request(9, SendOp::Send, pair.mr.sge(..700)).signaled();
            pair.qp.post_send(send).unwrap();
            assert_eq!(pair.ours().wr_id, 9);
            // Unreliable messages may be lost at a full socket.
            let Some(got) = pair.peer.poll(WAIT_LIMIT / 12) else {
                lost += 1;
                continue;
            };
            assert_eq!((got.status, got.len as usize), (SUCCESS, head + 700), "{service}");
            pair.peer.check(place(got.id) + head, 700, seed);

            let signaled = SendFlags::SIGNALED.bits();
            pair.peer.post_send(8, &SendOp::Send, signaled, &[(0, 700, lkey)]);
            assert_eq!(pair.theirs().id, 8);
            let got = pair.ours();
            assert_eq!((got.status, got.byte_len as usize), (WcStatus::Success, head + 700));
            pair.check(place(got.wr_id) + head, 700, seed + 10);
        }
        assert!(lost < 4, "{service}: nothing arrives");
    }
}

/// A failed queue pair leaves the queue to the other.
#[test]
#[ignore = "needs a peer"]
fn queue_pair_that_fails_leaves_the_requests() {
    let setup = setup();
    let mut pair = Pair::new(setup);
    let (second, _) = pair.another(&setup);
    ours(&pair, 1);
    let lkey = pair.peer.mr.lkey;
    // No local region permits this access.
    pair.peer.choose(0);
    let to = RemoteAddr { addr: pair.mr.remote(0).addr, rkey: Rkey(!pair.mr.rkey().0) };
    pair.peer.post_send(2, &SendOp::Write { to }, SendFlags::SIGNALED.bits(), &[(0, 8, lkey)]);
    assert_eq!(pair.theirs().status, WcStatus::RemAccessErr as u8);
    let qpn = pair.qp.qpn();
    let events =
        [pair.ctx.wait_event(WAIT_LIMIT).unwrap(), pair.ctx.wait_event(WAIT_LIMIT).unwrap()];
    assert_eq!(events, [AsyncEvent::QpAccessErr(qpn), AsyncEvent::QpLastWqeReached(qpn)]);
    assert_eq!(pair.cq.poll_one(), None);
    pair.peer.choose(1);
    pair.peer.post_send(3, &SendOp::Send, SendFlags::SIGNALED.bits(), &[(0, 8, lkey)]);
    let got = pair.ours();
    assert_eq!((got.wr_id, got.status, got.qpn), (1, WcStatus::Success, second.qpn()));
}
