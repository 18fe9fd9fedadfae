//! Multicast groups with members on both sides.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use softroce::verbs::*;

use super::pair::{Pair, QKEY, Setup, TARGET};

/// Length of a message, and of a receive for it, in bytes.
const LEN: usize = 100;
const RECEIVE_BYTES: usize = GRH_LEN + LEN;

/// Returns a group of the connection's IP version.
fn group(pair: &Pair) -> Gid {
    match pair.ctx.ip() {
        IpAddr::V4(_) => Ipv4Addr::new(239, 77, 1, 2).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0x77, 0x12).into(),
    }
}

fn pair() -> Pair {
    Pair::new(Setup { service: QpType::Ud, ..Setup::default() })
}

/// Sends this many pattern bytes to a group.
fn send(pair: &Pair, id: u64, group: Gid, seed: u32) {
    pair.fill(0, LEN, seed);
    let ah = pair.pd.create_ah(AddressVector::to(group)).unwrap();
    let send = SendRequest::send(id, pair.mr.sge(..LEN));
    pair.qp.post_send(send.to(ah.target(Qpn::MULTICAST, QKEY)).signaled()).unwrap();
    assert_eq!((pair.ours().wr_id, pair.qp.state().unwrap()), (id, QpState::Rts));
}

/// The peer receives each message to a group once, while it is a member.
#[test]
#[ignore = "needs a peer"]
fn peer_hears_what_is_sent_to_its_group() {
    let mut pair = pair();
    let (group, lkey) = (group(&pair), pair.peer.mr.lkey);
    for id in 1..=2 {
        pair.peer.post_recv(id, &[(TARGET + id as usize * RECEIVE_BYTES, RECEIVE_BYTES, lkey)]);
    }
    pair.peer.attach(group);
    // A switch on the path may have to learn the membership first.
    let mut sent = 0;
    let got = loop {
        sent += 1;
        assert!(sent <= 10, "of 10 messages none has arrived");
        send(&pair, sent, group, 1);
        if let Some(got) = pair.peer.poll(Duration::from_millis(500)) {
            break got;
        }
    };
    assert_eq!((got.id, got.status, got.len), (1, WcStatus::Success as u8, RECEIVE_BYTES as u32));
    assert_eq!(got.source_qp, Some(pair.qp.qpn()));
    pair.peer.check(TARGET + RECEIVE_BYTES + GRH_LEN, LEN, 1);
    assert_eq!(pair.peer.poll(Duration::from_millis(100)), None, "once");

    pair.peer.detach(group);
    send(&pair, 20, group, 2);
    assert_eq!(pair.peer.poll(Duration::from_millis(200)), None, "it has left");
}

/// Each local member receives each message of the peer once, and no other queue pair receives it.
#[test]
#[ignore = "needs a peer"]
fn our_members_hear_what_the_peer_sends_to_a_group() {
    let mut pair = pair();
    let (group, lkey) = (group(&pair), pair.peer.mr.lkey);
    let ud = || {
        let qp = pair.pd.create_qp(&QpConfig::ud(&pair.cq)).unwrap();
        qp.activate(QKEY).unwrap();
        qp
    };
    let [second, stranger] = [ud(), ud()];
    for (place, qp) in (1..).zip([&pair.qp, &second, &stranger]) {
        let at = TARGET + place * 2 * RECEIVE_BYTES;
        for at in [at, at + RECEIVE_BYTES] {
            qp.post_recv(RecvRequest::new(at as u64, pair.mr.sge(at..at + RECEIVE_BYTES))).unwrap();
        }
    }
    for qp in [&pair.qp, &second] {
        qp.attach_mcast(group).unwrap();
    }
    pair.peer.aim(&Endpoint { gid: group, qpn: Qpn::MULTICAST, psn: Psn::new(0) }, QKEY);
    pair.peer.fill(0, LEN, 3);
    let mut first = None;
    for id in 1..=10 {
        pair.peer.post_send(id, &SendOp::Send, SendFlags::SIGNALED.bits(), &[(0, LEN, lkey)]);
        assert_eq!(pair.theirs().id, id);
        first = pair.cq.wait_one(Duration::from_millis(500)).ok();
        if first.is_some() {
            break;
        }
    }
    let got = [first.expect("one of 10 messages"), pair.ours()];
    for (got, qp) in got.iter().zip([&pair.qp, &second]) {
        assert_eq!((got.status, got.qpn), (WcStatus::Success, qp.qpn()));
        assert_eq!(got.source_qp, Some(pair.peer.endpoint.qpn));
        pair.check(got.wr_id as usize + GRH_LEN, LEN, 3);
        let mut header = [0; GRH_LEN];
        pair.mr.read_at(got.wr_id as usize, &mut header).unwrap();
        let back = pair.pd.create_ah_from_header(&header).unwrap();
        assert_eq!(back.gid(), pair.peer.endpoint.gid);
    }
    assert_eq!(pair.cq.wait_one(Duration::from_millis(200)).ok(), None, "once");
}
