//! Failures below a packet port: changes of addresses, interfaces and MTU, in two network namespaces.

use std::fs;
use std::net::IpAddr;
use std::process::Command;

use softroce::verbs::*;

use crate::node::{Node, QKEY, datagrams};
use crate::peer_process::{PeerProcess, many_attempts};
use crate::process::{SUCCESS_LINE, in_namespaces, ip, role, started_by_another_test};
use crate::within::{found, until};

/// Test that runs in its own process.
const SUBPROCESS: &str = "frames::subprocess";

#[test]
fn subprocess() {
    if role().as_deref() != Some("faults") {
        return started_by_another_test();
    }
    for link in [V4, V6] {
        link.faults("udp");
        link.faults("packet");
    }
    println!("\n{SUCCESS_LINE}");
}

/// Script that creates the other host, namespace b.
const HOSTS: &str = r#"
    mount -t tmpfs tmpfs /run
    ip netns add b
    ip link set lo up
    exec "$@"
"#;

#[test]
#[ignore = "makes network namespaces"]
fn connections_survive_interface_changes_below_a_packet_port() {
    in_namespaces(HOSTS, SUBPROCESS, "faults");
}

/// Addresses of the link between the hosts.
#[derive(Clone, Copy)]
struct Link {
    ours: &'static str,
    theirs: &'static str,
    /// Prefix of unused addresses.
    unused_prefix: &'static str,
    /// Suffix of an address in `ip address add`.
    net: &'static str,
    /// Option of `ip` for the IP version.
    version: &'static str,
}

const V4: Link = Link {
    ours: "10.8.0.1",
    theirs: "10.8.0.2",
    unused_prefix: "10.8.0.1",
    net: "/24",
    version: "-4",
};
const V6: Link = Link {
    ours: "fd08::1",
    theirs: "fd08::2",
    unused_prefix: "fd08::9",
    net: "/64 nodad",
    version: "-6",
};

impl Link {
    /// Creates the interfaces a0 here and b0 in namespace b.
    fn lay(&self) {
        ip("link add a0 mtu 9000 type veth peer name b0 netns b mtu 9000");
        ip("link set a0 up");
        ip("-n b link set b0 up");
        // The kernel's default is to probe a neighbour after half a minute.
        for (file, value) in [
            ("base_reachable_time_ms", "1000"),
            ("delay_first_probe_time", "1"),
            ("retrans_time_ms", "200"),
            ("ucast_solicit", "1"),
        ] {
            let version = self.version.replace('-', "ipv");
            let file = format!("/proc/sys/net/{version}/neigh/a0/{file}");
            fs::write(file, value).unwrap();
        }
        self.address("add");
        ip(&format!("-n b addr add {}{} dev b0", self.theirs, self.net));
    }

    /// Adds, replaces or removes the local address.
    fn address(&self, how: &str) {
        ip(&format!("addr {how} {}{} dev a0", self.ours, self.net));
    }

    /// Adds or removes a rule by which only frames of the packet port can leave for this UDP port.
    fn frames_only(&self, how: &str) {
        ip(&format!("{} rule {how} pref 10 ipproto udp dport 4791 type blackhole", self.version));
    }

    fn faults(&self, peer_via: &str) {
        self.lay();
        let options = OpenOptions::default().ip(self.ours.parse().unwrap());
        let ctx = Context::open(options.via("packet".parse().unwrap())).unwrap();
        let there = &mut Command::new("ip");
        let mut far = PeerProcess::start(there.args(["netns", "exec", "b"]), self.theirs, peer_via);
        let near = Node::on(ctx.clone());
        far.connect(&near.qp);
        far.takes(&near);
        ecn_marks_arrive(&near, &mut far);
        unresolved_neighbour_delays_no_other_traffic(self.unused_prefix, &near, &far);
        self.remove_address_and_interface(&near, &far);
        self.replace_interface(&near, &far);
        survives_mtu_change("a0", &near, &mut far);
        ip("-n b link set b0 address 02:00:00:00:00:99");
        far.takes(&near);
        drop(far);
        ip("link del a0");
    }

    fn remove_address_and_interface(&self, near: &Node, far: &PeerProcess) {
        let del = self.net.trim_end_matches(" nodad");
        let removed = || ip(&format!("addr del {}{del} dev a0", self.ours));
        survives_outage(near, far, removed, || self.address("add"));
        survives_outage(
            near,
            far,
            || ip("link set a0 down"),
            || {
                ip("link set a0 up");
                // An interface that is down has no IPv6 address.
                self.address("replace");
            },
        );
        survives_outage(
            near,
            far,
            || ip("-n b link set b0 down"),
            || {
                ip("-n b link set b0 up");
                ip(&format!("-n b addr replace {}{} dev b0", self.theirs, self.net));
            },
        );
    }

    fn replace_interface(&self, near: &Node, far: &PeerProcess) {
        let interface = || near.ctx.device_info().unwrap().port.interface;
        let before = interface();
        ip("link del a0");
        until("PortErr", || near.event() == AsyncEvent::PortErr);
        near.send(SendRequest::write(1, near.mr.sge(..64), far.at));
        // Gives the new interface another index.
        ip("link add c0 type veth peer name c1");
        self.lay();
        assert_eq!(near.end(), (1, WcStatus::Success));
        until("PortActive", || near.event() == AsyncEvent::PortActive);
        assert_ne!(interface(), before);
        self.frames_only("add");
        near.run(SendRequest::write(2, near.mr.sge(..64), far.at));
        self.frames_only("del");
        ip("link del c0");
    }
}

/// All packets carry the traffic class of their sender, and the receiver counts packets with "congestion experienced"
/// (the two low bits). Responses carry the traffic class of the responder.
pub(crate) fn ecn_marks_arrive(near: &Node, far: &mut PeerProcess) {
    let ect = Node::on(near.ctx.clone());
    far.connect_with(&ect.qp, &ConnectOptions { traffic_class: 0x4a, ..many_attempts() });
    far.takes(&ect);
    assert_eq!(far.marked(), 0);
    let marked = Node::on(near.ctx.clone());
    far.connect_with(&marked.qp, &ConnectOptions { traffic_class: 0x4b, ..many_attempts() });
    far.takes(&marked);
    assert!(far.marked() >= 6, "the packets of a WRITE at least");
    assert_eq!(near.ctx.counters().unwrap().protocol.ecn_marked, 0);
}

/// Requests to neighbours that do not answer delay no other traffic, on the network or within the host.
pub(crate) fn unresolved_neighbour_delays_no_other_traffic(
    unused_prefix: &str,
    near: &Node,
    far: &PeerProcess,
) {
    let unused_ip =
        |number: u32| -> IpAddr { format!("{unused_prefix}{number:02}").parse().unwrap() };
    let (silent, inside) = (Node::on(near.ctx.clone()), Node::on(near.ctx.clone()));
    let itself = inside.qp.endpoint();
    inside.qp.connect(&itself, &ConnectOptions::default()).unwrap();
    let gone = Endpoint { gid: unused_ip(0).into(), ..far.endpoint };
    let timeout = AckTimeout::new(14).unwrap();
    let options = ConnectOptions { timeout, retry_cnt: 3, ..ConnectOptions::default() };
    silent.qp.connect(&gone, &options).unwrap();
    let before = near.ctx.counters().unwrap().port.unresolved;
    silent.send(SendRequest::write(1, silent.mr.sge(..300_000), far.at));
    let crowd = datagrams(near.ctx.clone(), 0);
    for number in 1..50 {
        let ah = crowd.pd.create_ah(AddressVector::to(unused_ip(number).into())).unwrap();
        for _ in 0..16 {
            let message = SendRequest::send(99, crowd.mr.sge(..4096));
            crowd.send(message.to(ah.target(Qpn::new(0x123), QKEY)));
            assert_eq!(crowd.end(), (99, WcStatus::Success));
        }
    }
    let end = found("the end of the request", || {
        far.takes(near);
        inside.run(SendRequest::write(1, inside.mr.sge(..8), inside.mr.remote(8)));
        silent.cq.poll_one()
    });
    assert_eq!((end.wr_id, end.status), (1, WcStatus::RetryExcErr));
    assert!(near.ctx.counters().unwrap().port.unresolved > before + 49);
}

/// Changes the interface below a device: the device reports an event, a message waits, and arrives when the interface
/// is up again.
pub(crate) fn survives_outage(
    near: &Node,
    far: &PeerProcess,
    down: impl FnOnce(),
    up: impl FnOnce(),
) {
    down();
    until("PortErr", || near.event() == AsyncEvent::PortErr);
    near.send(SendRequest::write(1, near.mr.sge(..64), far.at));
    assert_eq!(near.cq.poll_one(), None);
    up();
    assert_eq!(near.end(), (1, WcStatus::Success));
    until("PortActive", || near.event() == AsyncEvent::PortActive);
    far.takes(near);
}

/// Reduces the MTU: connections with longer packets fail, and others continue.
pub(crate) fn survives_mtu_change(interface: &str, near: &Node, far: &mut PeerProcess) {
    let mtu = |mtu: &str| {
        ip(&format!("link set {interface} mtu {mtu}"));
        ip(&format!("-n b link set b0 mtu {mtu}"));
    };
    let refused = || near.ctx.device_info().unwrap().counters.transmit_errors;
    let long = Node::on(near.ctx.clone());
    let timeout = AckTimeout::new(12).unwrap();
    let options = ConnectOptions { timeout, retry_cnt: 1, ..ConnectOptions::default() };
    far.connect_with(&long.qp, &options);
    mtu("1500");
    let before = refused();
    long.send(SendRequest::write(1, long.mr.sge(..100_000), far.at));
    assert_eq!(long.end(), (1, WcStatus::RetryExcErr));
    assert!(refused() > before, "too long");
    // A connection with short packets continues.
    near.run(SendRequest::write(2, near.mr.sge(..64), far.at));
    let fits = Node::on(near.ctx.clone());
    far.connect(&fits.qp);
    far.takes(&fits);
    mtu("9000");
    far.takes(near);
}
