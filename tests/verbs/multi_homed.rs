//! Devices with several addresses.

use std::net::{IpAddr, Ipv6Addr};

use softroce::verbs::*;

use crate::multicast::fresh_group;
use crate::node::{
    Node, PROCESS_START_LOCK, QKEY, RECV_BYTES, WAIT_LIMIT, datagrams, fresh_ip, open,
    open_ipv6_loopback, single_attempt,
};
use crate::prerequisite;
use crate::process::{SUCCESS_LINE, VETH_PAIR, in_namespaces, ip, role, started_by_another_test};
use crate::within::until;

/// Opens a device with this number of addresses.
fn device(addresses: usize) -> (Context, Vec<IpAddr>) {
    let ips: Vec<_> = (0..addresses).map(|_| fresh_ip()).collect();
    (open_at(&ips).unwrap(), ips)
}

fn open_at(ips: &[IpAddr]) -> Result<Context, Error> {
    Context::open(options_at(ips))
}

fn options_at(ips: &[IpAddr]) -> OpenOptions {
    let options = OpenOptions::default().ip(ips[0]);
    ips[1..].iter().fold(options, |options, ip| options.also_ip(*ip))
}

/// Connects two queue pairs, each with the address of its GID index.
fn connect(ends: [(&Node, u8); 2]) {
    // The smaller MTU of two interfaces.
    let path_mtu = Some(Mtu::Mtu1024);
    for [(node, at), (peer, there)] in [ends, [ends[1], ends[0]]] {
        let options = ConnectOptions { sgid_index: at, path_mtu, ..single_attempt() };
        node.qp.connect(&peer.qp.endpoint_at(there).unwrap(), &options).unwrap();
        assert_eq!(node.qp.endpoint(), node.qp.endpoint_at(at).unwrap());
    }
}

/// Writes from one node to the other.
fn write(from: &Node, to: &Node, seed: u32) {
    let bytes = from.fill(0, 10_000, seed);
    from.run(SendRequest::write(u64::from(seed), from.mr.sge(..10_000), to.mr.remote(20_000)));
    assert_eq!(to.bytes(20_000, 10_000), bytes);
}

#[test]
fn connection_uses_its_source_gid() {
    let (ctx, ips) = device(2);
    let peer = open();
    for (index, ip) in (0..).zip(&ips) {
        let (near, far) = (Node::on(ctx.clone()), Node::on(peer.clone()));
        connect([(&near, index), (&far, 0)]);
        assert_eq!(near.qp.endpoint().gid.ip(), *ip);
        write(&near, &far, 1);
        write(&far, &near, 2);
    }
    // The device can connect two of its own addresses.
    let (near, far) = (Node::on(ctx.clone()), Node::on(ctx));
    connect([(&near, 0), (&far, 1)]);
    write(&near, &far, 3);
    write(&far, &near, 4);
}

/// A queue pair drops packets of its peer from another source address.
#[test]
fn packets_from_another_source_address_are_dropped() {
    let (ctx, _) = device(2);
    let (near, far) = (Node::on(ctx), Node::on(open()));
    let timeout = AckTimeout::new(10).unwrap();
    let elsewhere = ConnectOptions { sgid_index: 1, timeout, ..single_attempt() };
    near.qp.connect(&far.qp.endpoint(), &elsewhere).unwrap();
    far.qp.connect(&near.qp.endpoint_at(0).unwrap(), &single_attempt()).unwrap();
    near.send(SendRequest::write(1, near.mr.sge(..8), far.mr.remote(0)));
    assert_eq!(near.end(), (1, WcStatus::RetryExcErr));
    // The requester has failed, perhaps before the responder has processed the packet.
    until("the packet to be dropped", || {
        assert_eq!(far.cq.poll_one(), None);
        far.qp.counters().unwrap().dropped(DropReason::WrongAddress) > 0
    });
}

/// Sends a number from one of the node's addresses.
fn tell(node: &Node, sgid_index: u8, to: Gid, qpn: Qpn, number: u8) {
    let av = AddressVector { sgid_index, ..AddressVector::to(to) };
    let ah = node.pd.create_ah(av).unwrap();
    let message = SendRequest::send(99, SendData::inline(&[number]));
    node.qp.post_send(message.to(ah.target(qpn, QKEY))).unwrap();
}

/// Returns the next received number and the address vector for a reply.
fn heard(node: &Node) -> (u8, AddressVector) {
    let completion = node.next();
    assert_eq!((completion.status, completion.byte_len), (WcStatus::Success, 41));
    let bytes = node.bytes(completion.wr_id as usize * RECV_BYTES, 41);
    let header = bytes.first_chunk().unwrap();
    (bytes[40], node.ctx.init_ah_from_wc(&completion, header).unwrap())
}

/// UD-04: the header contains the destination address of a message, and a reply leaves from there.
#[test]
fn datagram_is_received_at_any_address_and_answered_from_it() {
    let (ctx, ips) = device(3);
    let (server, client) = (datagrams(ctx, 3), datagrams(open(), 3));
    let home = client.qp.endpoint();
    for (index, ip) in (0..).zip(&ips) {
        tell(&client, 0, (*ip).into(), server.qp.qpn(), index);
        let (number, back) = heard(&server);
        assert_eq!((number, back.sgid_index, back.gid), (index, index, home.gid));
        tell(&server, back.sgid_index, back.gid, home.qpn, 10 + index);
        let (number, from) = heard(&client);
        assert_eq!((number, from.gid.ip()), (10 + index, *ip));
    }
}

/// UD-09, UD-10: the group is joined once, although both addresses are of one interface.
#[test]
fn multicast_arrives_once_and_its_sender_chooses_the_source() {
    let (ctx, ips) = device(2);
    let group = fresh_group();
    let (member, sender) = (datagrams(ctx.clone(), 4), datagrams(ctx, 4));
    for node in [&member, &sender] {
        node.qp.attach_mcast(group).unwrap();
    }
    for (index, ip) in (0..).zip(&ips) {
        tell(&sender, index, group, Qpn::MULTICAST, index);
        let (number, from) = heard(&member);
        assert_eq!((number, from.gid.ip()), (index, *ip));
    }
    // No message arrives twice, and none at its sender.
    for node in [&member, &sender] {
        assert_eq!(node.cq.poll_one(), None);
    }
}

#[test]
fn gid_table_has_the_addresses_in_order() {
    let (ctx, ips) = device(3);
    let gids: Vec<_> = ips.iter().copied().map(Gid::from).collect();
    let gids = [&gids[..], &gids[..1]].concat();
    assert_eq!((ctx.ip(), ctx.device_info().unwrap().gids), (ips[0], gids.clone()));
    let table = ctx.query_gid_table().unwrap();
    assert_eq!(table.iter().map(|entry| entry.gid).collect::<Vec<_>>(), gids);
    assert!(table.iter().all(|entry| entry.ndev_ifindex == table[0].ndev_ifindex));
    let refused = ctx.query_gid(4).unwrap_err();
    assert_eq!(refused.to_string(), "index 4 is not in the GID table, which has 4");
}

#[test]
fn every_gid_index_of_one_address_carries_writes_and_datagrams() {
    let (here, there) = (open(), open());
    let table = here.query_gid_table().unwrap();
    let expected = [0, 1, 2, 3].map(|index| (index, here.ip()));
    assert_eq!(
        table.iter().map(|entry| (entry.gid_index, entry.ip())).collect::<Vec<_>>(),
        expected
    );
    for index in 0..4 {
        let (near, far) = (Node::on(here.clone()), Node::on(there.clone()));
        connect([(&near, index), (&far, 3 - index)]);
        write(&near, &far, u32::from(index) + 1);
    }
    let (near, far) = (datagrams(here, 4), datagrams(there, 4));
    for index in 0..4 {
        tell(&near, index, far.qp.endpoint().gid, far.qp.qpn(), 10 + index);
        let (number, back) = heard(&far);
        assert_eq!((number, back.sgid_index, back.gid), (10 + index, 0, near.qp.endpoint().gid));
    }
}

#[test]
fn gid_index_beyond_the_table_is_refused() {
    let (ctx, _) = device(2);
    let (node, peer) = (Node::on(ctx), open());
    let options = ConnectOptions { sgid_index: 4, ..single_attempt() };
    let there = Endpoint { gid: peer.query_gid(0).unwrap(), ..node.qp.endpoint() };
    let text = |result: Result<(), Error>| result.unwrap_err().to_string();
    assert_eq!(
        text(node.qp.connect(&there, &options)),
        format!("queue pair {}: AV names source GID 4 of 4", node.qp.qpn())
    );
    assert_eq!(
        text(node.qp.endpoint_at(4).map(drop)),
        "index 4 is not in the GID table, which has 4"
    );
    let av = AddressVector { sgid_index: 4, ..AddressVector::to(there.gid) };
    let rest = "no such GID, or not of one IP version";
    assert_eq!(
        text(node.pd.create_ah(av).map(drop)),
        format!("no way to {} from source GID 4: {rest}", there.gid)
    );
}

#[test]
fn open_error_names_the_bound_address_and_closes_the_others() {
    // A process start inherits the sockets of this process for a moment.
    let _nobody_starts = PROCESS_START_LOCK.read().unwrap();
    let taken = open();
    let (first, last) = (fresh_ip(), fresh_ip());
    let refused = open_at(&[first, taken.ip(), last]).unwrap_err();
    let device = taken.ip();
    let expected = format!("{device} belongs to the device at {device}, which is open already");
    assert_eq!(refused.to_string(), expected);
    // A socket of another program, and an unassigned address.
    let other_socket = std::net::UdpSocket::bind((last, 4791)).unwrap();
    let refused = open_at(&[first, fresh_ip(), last]).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("UDP port 4791 of {last} is held by")), "{refused}");
    let unused_ip = "192.0.2.1".parse().unwrap();
    let refused = open_at(&[first, last, unused_ip]).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("UDP port 4791 of {last} is held by")), "{refused}");
    drop(other_socket);
    let refused = open_at(&[first, last, unused_ip]).unwrap_err().to_string();
    assert_eq!(refused, "192.0.2.1 is not an address of this machine");
    let both = open_at(&[first, last]).unwrap();
    let refused = open_at(&[last]).unwrap_err().to_string();
    assert_eq!(refused, format!("{last} belongs to the device at {first}, which is open already"));
    drop(both);
    assert_eq!(open_at(&[last, first]).unwrap().ip(), last);
}

#[test]
fn device_is_shared_by_contexts_with_equal_options() {
    let (ctx, ips) = device(2);
    for same in [&ips[..], &ips[..1]] {
        assert_eq!(open_at(same).unwrap().device_info().unwrap().gids.len(), 4);
    }
    let refused = |ips: &[IpAddr]| open_at(ips).unwrap_err().to_string();
    let rest = "is open already; options must be given when it is opened first";
    let more = [&ips[..], &[fresh_ip()]].concat();
    assert_eq!(refused(&more), format!("the device at {} {rest}", ctx.ip()));
    let twice = fresh_ip();
    let expected = "is given twice: the addresses of a device differ";
    assert_eq!(refused(&[twice, fresh_ip(), twice]), format!("{twice} {expected}"));
    let many: Vec<_> = (0..257).map(|_| fresh_ip()).collect();
    assert_eq!(refused(&many), "257 addresses are given: a device takes 256 at most");
}

/// Transfers data on a device with addresses of both IP versions.
#[test]
fn ipv4_and_ipv6_work_on_one_device() {
    let ips = [fresh_ip(), Ipv6Addr::LOCALHOST.into()];
    let Some((_turn, ctx)) = open_ipv6_loopback(options_at(&ips)) else {
        return prerequisite::missing("IPv6 (::1)");
    };
    let other = Node::on(open());
    let v4 = Node::on(ctx.clone());
    connect([(&v4, 0), (&other, 0)]);
    write(&v4, &other, 1);
    let (a, b) = (Node::on(ctx.clone()), Node::on(ctx));
    let refused = a.qp.connect(&b.qp.endpoint_at(1).unwrap(), &single_attempt()).unwrap_err();
    assert!(refused.to_string().ends_with("not of one IP version"), "{refused}");
    connect([(&a, 1), (&b, 1)]);
    write(&a, &b, 2);
    write(&v4, &other, 3);
}

/// Test that runs with an interface of its own.
const WITH_AN_INTERFACE: &str = "multi_homed::subprocess_with_an_interface";

/// Removes an address of a device and adds it again, while connections use it and another address.
#[test]
fn subprocess_with_an_interface() {
    if role().as_deref() != Some("several") {
        return started_by_another_test();
    }
    let ips = ["10.8.0.1", "fd08::1"].map(|text| text.parse::<IpAddr>().unwrap());
    let ctx = open_at(&ips).unwrap();
    let peer = open_at(&["127.0.0.1", "::1"].map(|text| text.parse().unwrap())).unwrap();
    for (leaving, staying, words) in
        [(1, 0, "fd08::1/64 dev a0 nodad"), (0, 1, "10.8.0.1/24 dev a0")]
    {
        let pair = |index| {
            let (near, far) = (Node::on(ctx.clone()), Node::on(peer.clone()));
            connect([(&near, index), (&far, index)]);
            (near, far)
        };
        let (old, other) = (pair(leaving), pair(staying));
        write(&old.0, &old.1, 1);
        ip(&format!("addr del {}", words.trim_end_matches(" nodad")));
        assert_eq!(ctx.wait_event(WAIT_LIMIT).unwrap(), AsyncEvent::GidChange);
        let index = usize::from(leaving);
        assert_eq!(ctx.query_gid(index).unwrap(), Gid::EMPTY);
        let gone = ctx.query_gid_ex(index).unwrap_err().to_string();
        let expected = format!("GID {leaving} is empty: no interface has {}", ips[index]);
        assert_eq!(gone, expected);
        let table = ctx.query_gid_table().unwrap();
        let left: Vec<_> = table.iter().map(|entry| entry.gid_index).collect();
        assert_eq!(left, [1 - index, 3 - index]);
        let info = ctx.device_info().unwrap();
        assert_eq!((info.port_state, info.gids[index]), (PortState::Active, Gid::EMPTY));
        // New connections from that address fail, and the other address is not affected.
        let (near, far) = (Node::on(ctx.clone()), Node::on(peer.clone()));
        let there = far.qp.endpoint_at(leaving).unwrap();
        let options = ConnectOptions { sgid_index: leaving, ..single_attempt() };
        let refused = near.qp.connect(&there, &options).unwrap_err().to_string();
        assert!(refused.contains("which is empty: no interface has"), "{refused}");
        let av = AddressVector { sgid_index: leaving, ..AddressVector::to(there.gid) };
        assert_eq!(near.pd.create_ah(av).unwrap_err().to_string(), expected);
        write(&other.0, &other.1, 2);

        ip(&format!("addr add {words}"));
        assert_eq!(ctx.wait_event(WAIT_LIMIT).unwrap(), AsyncEvent::GidChange);
        assert_eq!(ctx.query_gid(index).unwrap().ip(), ips[index]);
        // The GID table entry is as before, for old and new connections.
        write(&old.0, &old.1, 3);
        write(&old.1, &old.0, 4);
        let new = pair(leaving);
        write(&new.1, &new.0, 5);
        assert_eq!(ctx.poll_event(), None);
    }
    ip("link set b0 down");
    assert_eq!(ctx.wait_event(WAIT_LIMIT).unwrap(), AsyncEvent::PortErr);
    println!("\n{SUCCESS_LINE}");
}

#[test]
#[ignore = "makes network namespaces"]
fn returning_address_keeps_its_gid_index() {
    in_namespaces(VETH_PAIR, WITH_AN_INTERFACE, "several");
}
