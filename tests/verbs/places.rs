//! Several processes with packet ports at one address.

use std::process::Command;

use softroce::engine::QpAttr;
use softroce::transport::outputs::DropReason;
use softroce::verbs::*;

use crate::far::{Far, lasting};
use crate::multicast::fresh_group;
use crate::node::{KEY, Node, datagrams};
use crate::process::{SEEN_EVERYTHING, in_namespaces, played_by_another_test, role};
use crate::within::until;

/// The test that has a process to itself.
const ALONE: &str = "places::alone_in_a_process";

/// The address.
const IP: &str = "127.7.7.7";

#[test]
fn alone_in_a_process() {
    if role().as_deref() != Some("places") {
        return played_by_another_test();
    }
    let node = here();
    assert_eq!(node.qp.qpn().shard(), 0);
    let [mut b, mut c] = [(), ()].map(|()| Far::start(&mut Command::new("env"), IP, "packet"));
    assert_eq!([&b, &c].map(|far| far.endpoint.qpn.shard()), [1, 2]);
    connections_are_told_apart(&node, &mut b, &mut c);
    datagrams_are_told_apart(&node, &mut b, &mut c);
    a_place_is_free_when_its_process_has_gone(&node, &mut b, &mut c);
    println!("\n{SEEN_EVERYTHING}");
}

fn here() -> Node {
    let options = OpenOptions::default().ip(IP.parse().unwrap());
    Node::on(Context::open(options.via("packet".parse().unwrap())).unwrap())
}

fn connected(node: &Node, far: &mut Far) -> Node {
    let other = Node::on(node.ctx.clone());
    far.connect(&other.qp);
    far.takes(&other);
    other
}

fn connections_are_told_apart(node: &Node, b: &mut Far, c: &mut Far) {
    let [to_b, to_c] = [&mut *b, &mut *c].map(|far| connected(node, far));
    for _ in 0..4 {
        b.takes(&to_b);
        c.takes(&to_c);
    }
}

/// Of one burst to an address each process gets its own, of what goes to a group each gets all, and what
/// goes to the general services interface is for the first.
fn datagrams_are_told_apart(node: &Node, b: &mut Far, c: &mut Far) {
    let crowd = datagrams(node.ctx.clone(), 0);
    let ah = crowd.pd.create_ah(AddressVector::to(node.qp.endpoint().gid)).unwrap();
    let to = |qpn| SendRequest::send(0, SendData::inline(b"!")).to(ah.target(qpn, KEY));
    let mixed = (0..16).map(|place| to(if place % 3 == 0 { b.datagrams } else { c.datagrams }));
    crowd.qp.post_all(mixed).unwrap();
    b.hears(6);
    c.hears(10);

    let group = fresh_group();
    b.joins(group);
    c.joins(group);
    let all = crowd.pd.create_ah(AddressVector::to(group)).unwrap();
    let message = SendRequest::send(0, SendData::inline(b"!"));
    crowd.qp.post_send(message.to(all.target(Qpn::MULTICAST, KEY))).unwrap();
    b.hears(1);
    c.hears(1);

    let strangers = || node.ctx.counters().unwrap().protocol.dropped(DropReason::UnknownQp);
    assert_eq!(strangers(), 0);
    // Nobody has these numbers.
    let [mine, theirs] = [0x40, 0x41].map(Qpn::new);
    crowd.qp.post_all([theirs, Qpn::GSI, mine].map(to)).unwrap();
    until("the packets to be dropped", || {
        assert_eq!(node.cq.poll_one(), None);
        strangers() >= 2
    });
    assert_eq!(strangers(), 2);
}

fn a_place_is_free_when_its_process_has_gone(node: &Node, b: &mut Far, c: &mut Far) {
    let [to_b, to_c] = [&mut *b, &mut *c].map(|far| connected(node, far));
    b.kill();
    let timeout = AckTimeout::new(12).unwrap();
    let soon = ConnectOptions { timeout, retry_cnt: 1, ..lasting() };
    to_b.qp.modify(QpAttr::to(QpState::Reset)).unwrap();
    to_b.qp.connect(&b.endpoint, &soon).unwrap();
    to_b.send(SendRequest::write(1, to_b.mr.sge(..64), b.at));
    assert_eq!(to_b.end(), (1, WcStatus::RetryExcErr));
    c.takes(&to_c);
    let mut d = Far::start(&mut Command::new("env"), IP, "packet");
    assert_eq!(d.endpoint.qpn.shard(), 1);
    let _to_d = connected(node, &mut d);
    c.takes(&to_c);
}

#[test]
#[ignore = "makes network namespaces"]
fn processes_with_packet_ports_share_an_address() {
    in_namespaces("ip link set lo up; exec \"$@\"", ALONE, "places");
}
