//! Multicast on the loopback interface: members on several devices and in several processes.

use std::env;
use std::io::{BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{self, Child, Command};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use softroce::transport::outputs::DropReason;
use softroce::verbs::*;

use crate::node::{Node, QKEY, RECV_BYTES, datagrams, fresh_ip, open};
use crate::process::{
    SUCCESS_LINE, in_namespaces, line, role, start, start_by, started_by_another_test,
};

/// Returns a group that no other test and no other run of the tests uses.
pub(crate) fn fresh_group() -> Gid {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = process::id().to_be_bytes();
    Ipv4Addr::new(239, NEXT.fetch_add(1, Ordering::Relaxed), high, low).into()
}

/// Sends a number to a queue pair or a group.
fn send(node: &Node, to: Gid, qpn: Qpn, number: u8) {
    let ah = node.pd.create_ah(AddressVector::to(to)).unwrap();
    let message = SendRequest::send(99, SendData::inline(&[number]));
    node.qp.post_send(message.to(ah.target(qpn, QKEY))).unwrap();
}

/// Returns the next received number, and the 40 bytes before it.
fn received(node: &Node) -> (u8, [u8; GRH_LEN]) {
    let completion = node.next();
    assert_eq!((completion.status, completion.byte_len), (WcStatus::Success, 41));
    let bytes = node.bytes(completion.wr_id as usize * RECV_BYTES, 41);
    (bytes[40], *bytes.first_chunk().unwrap())
}

/// Returns this many received numbers in ascending order. Multicast and unicast messages arrive through two sockets,
/// in any order.
fn all_received(node: &Node, count: usize) -> Vec<u8> {
    let mut numbers: Vec<_> = (0..count).map(|_| received(node).0).collect();
    assert_eq!(node.cq.poll_one(), None);
    numbers.sort_unstable();
    numbers
}

/// UD-09, UD-10: members on the sender's device and on others. A unicast message to each marks the end of the
/// multicast ones.
#[test]
fn each_group_member_except_the_sender_receives_a_message_once() {
    let group = fresh_group();
    let nodes = [(); 4].map(|()| datagrams(open(), 32));
    let beside = datagrams(nodes[0].ctx.clone(), 32);
    // The last host has joined with another queue pair only.
    let elsewhere = nodes[3].pd.create_qp(&QpConfig::ud(&nodes[3].cq)).unwrap();
    let members = [&nodes[0].qp, &nodes[1].qp, &nodes[2].qp, &beside.qp, &elsewhere];
    for qp in members {
        qp.attach_mcast(group).unwrap();
        qp.attach_mcast(group).unwrap();
    }
    for number in 0..10 {
        send(&nodes[0], group, Qpn::MULTICAST, number);
    }
    let all: Vec<_> = (0..10).collect();
    for (node, expected) in [
        (&nodes[1], &all),
        (&nodes[2], &all),
        (&beside, &all),
        (&nodes[0], &vec![]),
        (&nodes[3], &vec![]),
    ] {
        let Endpoint { gid, qpn, .. } = node.qp.endpoint();
        send(&nodes[1], gid, qpn, 100);
        let expected = [&expected[..], &[100]].concat();
        assert_eq!(all_received(node, expected.len()), expected);
    }
    for qp in members {
        assert_eq!(qp.mcast_groups().unwrap(), [group]);
        qp.detach_mcast(group).unwrap();
    }
    send(&nodes[0], group, Qpn::MULTICAST, 50);
    let Endpoint { gid, qpn, .. } = nodes[1].qp.endpoint();
    send(&nodes[0], gid, qpn, 101);
    assert_eq!(all_received(&nodes[1], 1), [101]);
    assert_eq!(nodes[1].ctx.device_info().unwrap().counters.dropped(DropReason::NoMember), 0);
}

/// A message of a group joined later wakes a thread that already waits.
#[test]
fn message_of_a_group_joined_meanwhile_wakes_a_waiting_thread() {
    let group = fresh_group();
    let (sender, node) = (datagrams(open(), 1), datagrams(open(), 1));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| received(&node).0);
        node.qp.attach_mcast(group).unwrap();
        send(&sender, group, Qpn::MULTICAST, 7);
        assert_eq!(waiter.join().unwrap(), 7);
    });
}

/// The header of a multicast message contains the address of its sender.
#[test]
fn multicast_message_can_be_answered() {
    let group = fresh_group();
    let (sender, node) = (datagrams(open(), 1), datagrams(open(), 1));
    node.qp.attach_mcast(group).unwrap();
    send(&sender, group, Qpn::MULTICAST, 1);
    let (number, header) = received(&node);
    let IpAddr::V4(ip) = group.ip() else { panic!() };
    assert_eq!((number, &header[36..]), (1, &ip.octets()[..]), "it was sent to the group");
    let ah = node.pd.create_ah_from_header(&header).unwrap();
    assert_eq!(ah.gid(), sender.qp.endpoint().gid);
    send(&node, ah.gid(), sender.qp.qpn(), 2);
    assert_eq!(received(&sender).0, 2);
}

#[test]
fn dropped_queue_pair_leaves_its_groups() {
    let group = fresh_group();
    let (sender, first) = (datagrams(open(), 1), datagrams(open(), 1));
    first.qp.attach_mcast(group).unwrap();
    let ctx = first.ctx.clone();
    drop(first);
    let second = datagrams(ctx, 1);
    send(&sender, group, Qpn::MULTICAST, 1);
    let Endpoint { gid, qpn, .. } = second.qp.endpoint();
    send(&sender, gid, qpn, 2);
    assert_eq!(received(&second).0, 2);
    let counters = second.ctx.device_info().unwrap().counters;
    assert_eq!((counters.rx_packets, counters.dropped(DropReason::NoMember)), (1, 0));
}

#[test]
fn attach_error_names_queue_pair_and_cause() {
    let (node, connected) = (datagrams(open(), 0), Node::on(open()));
    let text = |result: Result<(), Error>| result.unwrap_err().to_string();
    let (group, qpn) = (fresh_group(), node.qp.qpn());
    assert_eq!(
        text(node.qp.detach_mcast(group)),
        format!("queue pair {qpn}: the queue pair is not attached to group {group}")
    );
    let peer = connected.qp.endpoint().gid;
    let no_group = "is no multicast group: those are ::ffff:224.0.0.0/100 and ff00::/8";
    assert_eq!(text(node.qp.attach_mcast(peer)), format!("queue pair {qpn}: {peer} {no_group}"));
    assert_eq!(
        text(connected.qp.attach_mcast(group)),
        format!(
            "queue pair {}: a queue pair of RC cannot belong to a multicast group, only one of UD",
            connected.qp.qpn()
        )
    );
}

/// As with libibverbs. Dropping the queue pair detaches it.
#[test]
fn attached_queue_pair_is_not_destroyed() {
    let (mut node, group) = (datagrams(open(), 0), fresh_group());
    let other = node.pd.create_qp(&QpConfig::ud(&node.cq)).unwrap();
    let qp = std::mem::replace(&mut node.qp, other);
    qp.attach_mcast(group).unwrap();
    let (qp, refused) = qp.destroy().unwrap_err();
    assert_eq!(refused.to_string(), "the queue pair is in use by multicast groups: 1");
    qp.detach_mcast(group).unwrap();
    assert!(qp.destroy().is_ok());
}

/// Test that runs one of the three processes.
const ONE_OF_THREE: &str = "multicast::one_of_three";

/// Joins a group, and when all processes have joined, sends its number and receives those of the others.
#[test]
fn one_of_three() {
    let Some(role) = role() else { return started_by_another_test() };
    let [me, ip, group] = role.split(' ').collect::<Vec<_>>()[..] else { panic!("{role}") };
    let ip: IpAddr = ip.parse().unwrap();
    let group = Gid::from(group.parse::<IpAddr>().unwrap());
    // More receive requests than messages.
    let node = datagrams(Context::open(OpenOptions::default().ip(ip)).unwrap(), 6);
    node.qp.attach_mcast(group).unwrap();
    println!("\njoined ");
    let mut input = std::io::stdin().lock();
    line(&mut input, "go");
    let me: u8 = me.parse().unwrap();
    send(&node, group, Qpn::MULTICAST, me);
    let mut heard = [received(&node).0, received(&node).0];
    heard.sort_unstable();
    println!("\nheard {heard:?}");
    // All messages have arrived at their destinations.
    line(&mut input, "end");
    assert_eq!(node.cq.poll_one(), None);
}

/// Three processes in a group each receive the messages of the two others, once.
fn expect_messages_of_each_other(mut children: [Child; 3]) {
    let mut outputs = children.each_mut().map(|child| BufReader::new(child.stdout.take().unwrap()));
    let mut inputs = children.each_mut().map(|child| child.stdin.take().unwrap());
    for output in &mut outputs {
        line(output, "joined");
    }
    for input in &mut inputs {
        writeln!(input, "go").unwrap();
    }
    let heard = outputs.each_mut().map(|output| line(output, "heard "));
    assert_eq!(heard, ["[1, 2]", "[0, 2]", "[0, 1]"]);
    for input in &mut inputs {
        writeln!(input, "end").unwrap();
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
}

/// UD-09
#[test]
fn processes_of_one_host_join_one_group() {
    let group = fresh_group().ip();
    expect_messages_of_each_other(
        [0, 1, 2].map(|n| start(ONE_OF_THREE, &format!("{n} {} {group}", fresh_ip()))),
    );
}

/// Test that runs with three hosts on a bridge.
const ON_A_BRIDGE: &str = "multicast::on_a_bridge";

/// Script with three hosts on a bridge with multicast snooping, which forwards only joined groups.
const BRIDGE: &str = r#"
    mount -t tmpfs tmpfs /run
    ip link add br0 type bridge mcast_snooping 1 forward_delay 0
    ip link set br0 up
    for n in 0 1 2; do
        ip netns add h$n
        ip -n h$n link set lo up
        ip link add p$n type veth peer name e0 netns h$n
        ip link set p$n master br0 up
        ip -n h$n link set e0 up
        ip -n h$n addr add 10.9.0.$((n + 1))/24 dev e0
        ip -n h$n addr add fd09::$((n + 1))/64 dev e0 nodad
    done
    exec "$@"
"#;

/// Members on three hosts, over IPv4 and IPv6.
#[test]
fn on_a_bridge() {
    if role().as_deref() != Some("bridge") {
        return started_by_another_test();
    }
    for (net, group) in [("10.9.0.", "239.1.2.3"), ("fd09::", "ff15::123"), ("fd09::", "ff02::123")]
    {
        expect_messages_of_each_other([0, 1, 2].map(|n| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &format!("h{n}")]).arg(env::current_exe().unwrap());
            start_by(&mut command, ONE_OF_THREE, &format!("{n} {net}{} {group}", n + 1))
        }));
    }
    println!("\n{SUCCESS_LINE}");
}

/// UD-09, UD-10: the bridge forwards by the group's Ethernet address.
#[test]
#[ignore = "makes network namespaces"]
fn hosts_on_a_bridge_join_one_group() {
    in_namespaces(BRIDGE, ON_A_BRIDGE, "bridge");
}

/// A stream of messages to a group arrives complete and in order, from the group's own socket.
#[test]
fn multicast_stream_arrives_in_order() {
    let group = fresh_group();
    let (sender, node) = (datagrams(open(), 0), datagrams(open(), 100));
    node.qp.attach_mcast(group).unwrap();
    for number in 0..100 {
        send(&sender, group, Qpn::MULTICAST, number);
    }
    let got: Vec<_> = (0..100).map(|_| received(&node).0).collect();
    assert_eq!(got, (0..100).collect::<Vec<_>>());
    assert_eq!(node.cq.poll_one(), None);
}
