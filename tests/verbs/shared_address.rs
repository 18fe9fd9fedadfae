//! Several processes with packet ports at one address.

use std::process::Command;

use softroce::engine::QpAttr;
use softroce::transport::outputs::DropReason;
use softroce::verbs::*;

use crate::multicast::fresh_group;
use crate::node::{Node, QKEY, datagrams};
use crate::peer_process::{PeerProcess, many_attempts};
use crate::process::{SUCCESS_LINE, in_namespaces, role, started_by_another_test};
use crate::within::until;

/// Test that runs in its own process.
const SUBPROCESS: &str = "shared_address::subprocess";

/// Common address of the processes.
const IP: &str = "127.7.7.7";

#[test]
fn subprocess() {
    if role().as_deref() != Some("places") {
        return started_by_another_test();
    }
    let node = here();
    assert_eq!(node.qp.qpn().shard(), 0);
    let [mut b, mut c] =
        [(), ()].map(|()| PeerProcess::start(&mut Command::new("env"), IP, "packet"));
    assert_eq!([&b, &c].map(|far| far.endpoint.qpn.shard()), [1, 2]);
    connections_reach_their_processes(&node, &mut b, &mut c);
    datagrams_reach_their_processes(&node, &mut b, &mut c);
    place_of_an_exited_process_is_reused(&node, &mut b, &mut c);
    println!("\n{SUCCESS_LINE}");
}

fn here() -> Node {
    let options = OpenOptions::default().ip(IP.parse().unwrap());
    Node::on(Context::open(options.via("packet".parse().unwrap())).unwrap())
}

fn connected(node: &Node, far: &mut PeerProcess) -> Node {
    let other = Node::on(node.ctx.clone());
    far.connect(&other.qp);
    far.takes(&other);
    other
}

fn connections_reach_their_processes(node: &Node, b: &mut PeerProcess, c: &mut PeerProcess) {
    let [to_b, to_c] = [&mut *b, &mut *c].map(|far| connected(node, far));
    for _ in 0..4 {
        b.takes(&to_b);
        c.takes(&to_c);
    }
}

/// Each process receives its unicast datagrams of a burst, all receive multicast, and the first receives datagrams
/// for the general services interface.
fn datagrams_reach_their_processes(node: &Node, b: &mut PeerProcess, c: &mut PeerProcess) {
    let crowd = datagrams(node.ctx.clone(), 0);
    let ah = crowd.pd.create_ah(AddressVector::to(node.qp.endpoint().gid)).unwrap();
    let to = |qpn| SendRequest::send(0, SendData::inline(b"!")).to(ah.target(qpn, QKEY));
    let mixed = (0..16).map(|place| to(if place % 3 == 0 { b.datagrams } else { c.datagrams }));
    crowd.qp.post_all(mixed).unwrap();
    b.hears(6);
    c.hears(10);

    let group = fresh_group();
    b.joins(group);
    c.joins(group);
    let all = crowd.pd.create_ah(AddressVector::to(group)).unwrap();
    let message = SendRequest::send(0, SendData::inline(b"!"));
    crowd.qp.post_send(message.to(all.target(Qpn::MULTICAST, QKEY))).unwrap();
    b.hears(1);
    c.hears(1);

    // Queue pair 1 has another Q_Key.
    let dropped = || {
        let counters = node.ctx.counters().unwrap().protocol;
        [DropReason::UnknownQp, DropReason::QKeyMismatch].map(|reason| counters.dropped(reason))
    };
    assert_eq!(dropped(), [0, 0]);
    // Unused queue pair numbers.
    let [mine, theirs] = [0x40, 0x41].map(Qpn::new);
    crowd.qp.post_all([theirs, Qpn::GSI, mine].map(to)).unwrap();
    until("the packets to be dropped", || {
        assert_eq!(node.cq.poll_one(), None);
        dropped().iter().sum::<u64>() >= 2
    });
    assert_eq!(dropped(), [1, 1]);
}

fn place_of_an_exited_process_is_reused(node: &Node, b: &mut PeerProcess, c: &mut PeerProcess) {
    let [to_b, to_c] = [&mut *b, &mut *c].map(|far| connected(node, far));
    b.kill();
    let timeout = AckTimeout::new(12).unwrap();
    let soon = ConnectOptions { timeout, retry_cnt: 1, ..many_attempts() };
    to_b.qp.modify(QpAttr::to(QpState::Reset)).unwrap();
    to_b.qp.connect(&b.endpoint, &soon).unwrap();
    to_b.send(SendRequest::write(1, to_b.mr.sge(..64), b.at));
    assert_eq!(to_b.end(), (1, WcStatus::RetryExcErr));
    c.takes(&to_c);
    let mut d = PeerProcess::start(&mut Command::new("env"), IP, "packet");
    assert_eq!(d.endpoint.qpn.shard(), 1);
    let _to_d = connected(node, &mut d);
    c.takes(&to_c);
}

#[test]
#[ignore = "makes network namespaces"]
fn processes_with_packet_ports_share_an_address() {
    in_namespaces("ip link set lo up; exec \"$@\"", SUBPROCESS, "places");
}
