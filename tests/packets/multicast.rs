//! Multicast: delivery of messages to group members, packet by packet and between hosts.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::support::script::{OURS, PEER, PEER_QPN, Script, ok, rts_qp_of, target};
use crate::support::{Link, QKEY, World, full_access, pattern, request, sge};
use softroce::engine::{McastError, QpAttr, QpState, QpType};
use softroce::ids::{Gid, Mtu, QKey, Qpn};
use softroce::net::{AddressVector, IpVersion, ROCE_PORT, RxMeta};
use softroce::port::sim::HostConfig;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{Completion, SendOp, SendRequest, UdTarget, WcOpcode};
use softroce::wire::Datagram;
use softroce::wire::icrc::Flow;

const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 2, 3));
const OTHER_GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 1, 2, 4));

fn gid(ip: IpAddr) -> Gid {
    ip.into()
}

/// Creates a queue pair in RTS that is a member of [`GROUP`].
fn member() -> Script {
    let mut t = Script::with(rts_qp_of(QpType::Ud), |config| config.active_mtu = Mtu::Mtu256);
    assert_eq!(t.engine.attach_mcast(t.qpn, gid(GROUP)), Ok(true));
    t
}

/// Returns a message of 8 bytes from [`PEER_QPN`] to every member.
fn message(psn: u32) -> String {
    format!("UD SEND_ONLY qp=0xffffff psn={psn} qkey=0x00001234 srcqp={PEER_QPN} len=8")
}

fn came(wr_id: u64) -> Completion {
    let ip_version = Some(IpVersion::V4);
    Completion { source_qp: Some(PEER_QPN), ip_version, ..ok(wr_id, WcOpcode::Recv, 48) }
}

/// Delivers a packet that was sent to a group.
fn rx(t: &mut Script, line: &str, from: IpAddr, group: IpAddr) {
    let source = SocketAddr::new(from, 0xc001);
    let mut packet = t.packet(line);
    Flow::new(source, SocketAddr::new(group, ROCE_PORT)).seal(0, &mut packet);
    let meta = RxMeta { source, destination: group, ..t.meta() };
    t.rx_meta(0, &packet, meta);
}

/// UD-09, UD-04: the destination in the header before the payload is the group.
#[test]
fn member_receives_messages_to_its_group() {
    let mut t = member();
    t.post_recv(64);
    rx(&mut t, &message(5), PEER, GROUP);
    assert_eq!(t.recvs(), [came(1)]);
    let got = t.received(1, 48);
    assert_eq!(got[40..], pattern(5, 8));
    assert_eq!(got[32..40], [10, 0, 0, 2, 239, 1, 2, 3], "from the peer to the group");
}

/// UD-09
#[test]
fn member_receives_ipv6_multicast() {
    let [ours, peer, group]: [IpAddr; 3] =
        ["2001:db8::1", "2001:db8::2", "ff15::1:2"].map(|ip| ip.parse().unwrap());
    let mut t = Script::with(rts_qp_of(QpType::Ud), |config| config.gids = vec![ours.into()]);
    assert_eq!(t.engine.attach_mcast(t.qpn, gid(group)), Ok(true));
    t.post_recv(64);
    rx(&mut t, &message(5), peer, group);
    assert_eq!(t.recvs(), [Completion { ip_version: Some(IpVersion::V6), ..came(1) }]);
    let IpAddr::V6(destination) = group else { panic!() };
    assert_eq!(t.received(1, 40)[24..], destination.octets());

    let to = UdTarget { av: AddressVector::to(gid(group)), ..target(PEER_QPN) };
    t.post(request(1, SendOp::Send, &[sge(&t.data, 0, 8)]).to(to)).unwrap();
    let sent = &t.all(0)[0];
    assert_eq!((sent.path.source, sent.path.destination), (ours, group));
    assert_eq!(t.sends(), [ok(1, WcOpcode::Send, 8)]);
}

/// UD-01, UD-09
#[test]
fn foreign_multicast_is_dropped_and_counted() {
    let mut t = member();
    t.post_recv(64);
    let other_key = message(5).replace("00001234", "00001235");
    let to_one = message(5).replace("0xffffff", &t.qpn.to_string());
    let connected = "UC SEND_ONLY qp=0xffffff psn=5 len=8".to_owned();
    for (line, group, reason) in [
        (&other_key, GROUP, DropReason::QKeyMismatch),
        (&message(5), OTHER_GROUP, DropReason::NoMember),
        (&to_one, GROUP, DropReason::WrongAddress),
        (&connected, GROUP, DropReason::WrongTransport),
    ] {
        rx(&mut t, line, PEER, group);
        assert_eq!((t.recvs(), t.dropped(reason)), (vec![], 1), "{line}");
    }
    // The ICRC is for another address.
    let meta = RxMeta { destination: GROUP, ..t.meta() };
    let packet = t.packet(&message(5));
    t.rx_meta(0, &packet, meta);
    assert_eq!(t.dropped(DropReason::BadIcrc), 1);
    // The multicast queue pair number with a unicast address.
    t.rx(0, &message(5));
    assert_eq!(t.dropped(DropReason::UnknownQp), 1);
    rx(&mut t, &message(6), PEER, GROUP);
    assert_eq!(t.recvs(), [came(1)]);
}

/// UD-09: messages of the member itself are dropped; another host may use the same queue pair number.
#[test]
fn member_does_not_receive_its_own_messages() {
    let mut t = member();
    t.post_recv(64);
    let [theirs, ours] = [PEER_QPN, t.qpn].map(|qpn| format!("srcqp={qpn}"));
    let own = message(5).replace(&theirs, &ours);
    rx(&mut t, &own, OURS, GROUP);
    let drops: u64 = DropReason::ALL.into_iter().map(|reason| t.dropped(reason)).sum();
    assert_eq!((t.recvs(), drops), (vec![], 0));
    rx(&mut t, &own, PEER, GROUP);
    assert_eq!(t.recvs(), [Completion { source_qp: Some(t.qpn), ..came(1) }]);
}

/// UD-10
#[test]
fn multicast_packets_have_destination_qp_0xffffff() {
    let mut t = member();
    for (psn, qpn) in (5..).zip([PEER_QPN, Qpn::MULTICAST, Qpn::GSI]) {
        let av = AddressVector { hop_limit: 3, ..AddressVector::to(gid(GROUP)) };
        let request = request(psn, SendOp::Send, &[sge(&t.data, 0, 8)]);
        t.post(request.to(UdTarget { av, ..target(qpn) })).unwrap();
        let qpn = t.qpn;
        let sent = t.tx(0, &format!("SEND_ONLY psn={psn} qkey=0x00001234 srcqp={qpn} len=8"));
        assert_eq!((sent.path.destination, sent.path.hop_limit), (GROUP, 3));
        let packet = Datagram::parse(&sent.bytes).unwrap();
        assert_eq!(packet.bth.dest_qp, Qpn::MULTICAST);
        assert_eq!(t.sends(), [ok(psn, WcOpcode::Send, 8)]);
    }
}

/// CRC-13, UD-09: senders with different patterns of IPv4 identifications may send to one group.
#[test]
fn ip_id_pattern_is_learned_per_sender() {
    let mut t = member();
    for round in 0..20 {
        for (from, id) in [(PEER, 0), ([10, 0, 0, 3].into(), 0xbee0 + round)] {
            let wr_id = t.post_recv(64);
            let source = SocketAddr::new(from, 0xc001);
            let mut packet = t.packet(&message(5));
            Flow::new(source, SocketAddr::new(GROUP, ROCE_PORT)).seal(id, &mut packet);
            let meta = RxMeta { source, destination: GROUP, ..t.meta() };
            t.rx_meta(0, &packet, meta);
            assert_eq!(t.recvs(), [came(wr_id)], "round {round}, from {from}");
        }
    }
}

/// QPS-07, QPS-08: a member may be in any state, and receives from RTR on.
#[test]
fn queue_pair_attaches_in_any_state() {
    let mut t = Script::reset(rts_qp_of(QpType::Ud), |_| {});
    assert_eq!(t.engine.attach_mcast(t.qpn, gid(GROUP)), Ok(true));
    t.bring_to(QpState::Init);
    t.post_recv(64);
    rx(&mut t, &message(5), PEER, GROUP);
    assert_eq!((t.recvs(), t.dropped(DropReason::QpState)), (vec![], 1));
    t.bring_to(QpState::Rtr);
    rx(&mut t, &message(5), PEER, GROUP);
    assert_eq!(t.recvs(), [came(1)]);
    t.modify(QpAttr::to(QpState::Reset)).unwrap();
    assert_eq!(t.engine.mcast_groups(t.qpn), [gid(GROUP)]);
}

#[test]
fn detached_or_destroyed_queue_pair_receives_no_multicast() {
    let mut t = member();
    t.post_recv(64);
    assert_eq!(t.engine.attach_mcast(t.qpn, gid(GROUP)), Ok(false), "it is one already");
    assert_eq!(t.engine.attach_mcast(t.qpn, gid(OTHER_GROUP)), Ok(true));
    assert_eq!(t.engine.mcast_groups(t.qpn), [gid(GROUP), gid(OTHER_GROUP)]);
    t.engine.detach_mcast(t.qpn, gid(GROUP)).unwrap();
    assert_eq!([(); 2].map(|()| t.engine.poll_left_group()), [Some(GROUP), None]);
    let again = t.engine.detach_mcast(t.qpn, gid(GROUP));
    assert_eq!(again, Err(McastError::NotAttached { gid: gid(GROUP) }));
    rx(&mut t, &message(5), PEER, GROUP);
    assert_eq!((t.recvs(), t.dropped(DropReason::NoMember)), (vec![], 1));
    rx(&mut t, &message(5), PEER, OTHER_GROUP);
    assert_eq!(t.recvs(), [came(1)]);

    let other = t.engine.create_qp(Default::default(), crate::support::qp_init(&t.link)).unwrap();
    assert_eq!(t.engine.attach_mcast(other, gid(OTHER_GROUP)), Ok(false), "the port is there");
    t.engine.destroy_qp(Default::default(), other);
    assert_eq!(t.engine.poll_left_group(), None);
    t.engine.destroy_qp(Default::default(), t.qpn);
    assert_eq!(t.engine.poll_left_group(), Some(OTHER_GROUP));
    assert_eq!(t.engine.mcast_groups(t.qpn), []);
    t.leave();
}

#[test]
fn attach_error_names_its_cause() {
    let mut t = Script::with(rts_qp_of(QpType::Ud), |config| {
        (config.max_mcast_grp, config.max_mcast_qp_attach) = (2, 1);
    });
    let mut link = Link { qp_type: QpType::Ud, ..t.link };
    let second = t.engine.create_qp(Default::default(), crate::support::qp_init(&link)).unwrap();
    link.qp_type = QpType::Uc;
    let connected = t.engine.create_qp(Default::default(), crate::support::qp_init(&link)).unwrap();
    let mut error = |qpn, ip: &str| {
        let ip: IpAddr = ip.parse().unwrap();
        t.engine.attach_mcast(qpn, ip.into()).map_err(|error| error.to_string())
    };
    let qpn = t.qpn;
    assert_eq!(error(qpn, "239.1.2.3"), Ok(true));
    let no_group =
        "::ffff:10.0.0.2 is no multicast group: those are ::ffff:224.0.0.0/100 and ff00::/8";
    for (qpn, ip, expected) in [
        (qpn, "10.0.0.2", no_group),
        (qpn, "ff15::1", "group ff15::1 is of another IP version than the device's addresses"),
        (
            connected,
            "239.1.2.3",
            "a queue pair of UC cannot belong to a multicast group, only one of UD",
        ),
        (
            second,
            "239.1.2.3",
            "1 queue pairs are attached to group ::ffff:239.1.2.3, and it takes no more",
        ),
        (PEER_QPN, "239.1.2.3", "queue pair 0x000012 does not exist"),
    ] {
        assert_eq!(error(qpn, ip), Err(expected.to_owned()));
    }
    assert_eq!((error(qpn, "239.1.2.4"), error(qpn, "239.1.2.3")), (Ok(true), Ok(false)));
    let too_many = "the device belongs to 2 multicast groups and can join no more";
    assert_eq!(error(second, "239.1.2.5"), Err(too_many.to_owned()));
}

// ---- between hosts ----

/// UD-09: three hosts with two queue pairs each, all but one of them members.
#[test]
fn each_member_receives_each_message_once() {
    let host = HostConfig { gro: false, ..HostConfig::default() };
    let mut world = World::with(1, 3, host, |config| config.active_mtu = Mtu::Mtu1024);
    let link = Link { qp_type: QpType::Ud, ..Link::default() };
    let mut qps = Vec::new();
    for node in 0..3 {
        let region = world.nodes[node].region(1 << 16, 1 << 32, full_access());
        for n in 0..2 {
            let qpn = world.create_qp(node, &link);
            world.connect(node, qpn, (node, qpn), &link, [0, 0]);
            for wr_id in 0..10 {
                world.post_recv(node, qpn, wr_id, &[sge(&region, wr_id as usize * 256, 256)]);
            }
            // The last queue pair is not a member, on a host that is.
            if (node, n) != (2, 1) {
                world.attach(node, qpn, GROUP);
            }
            qps.push((node, qpn));
        }
    }
    let to = |qkey| UdTarget { av: AddressVector::to(gid(GROUP)), qpn: Qpn::MULTICAST, qkey };
    let sends = [(0, QKEY), (2, QKey(1)), (3, QKEY), (5, QKEY)];
    for (number, (from, qkey)) in (0..).zip(sends) {
        let (node, qpn) = qps[from];
        let send = request(number, SendOp::SendImm { imm: number as u32 }, &[]);
        world.post_send(node, qpn, SendRequest { wr_id: number, ..send.to(to(qkey)) });
        world.run(Duration::from_millis(1));
    }
    for (index, (node, qpn)) in qps.iter().enumerate() {
        let of_this = |c: &&Completion| c.qpn == *qpn;
        let got: Vec<_> = world.nodes[*node].recvs.iter().filter(of_this).collect();
        let got: Vec<_> = got.iter().map(|c| (c.imm.unwrap(), c.source_qp.unwrap())).collect();
        let for_it = |(_, (from, qkey)): &(u32, (usize, QKey))| {
            *qkey == QKEY && *from != index && index != 5
        };
        let expected = (0..).zip(sends).filter(for_it);
        let expected: Vec<_> = expected.map(|(number, (from, _))| (number, qps[from].1)).collect();
        assert_eq!(got, expected, "queue pair {index}");
    }
}
