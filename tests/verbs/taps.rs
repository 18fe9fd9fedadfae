//! Ports on TAP interfaces: a device as a host on a bridge, and its peer behind a veth pair.

use std::net::IpAddr;
use std::process::Command;

use softroce::verbs::*;

use crate::frames::{
    ecn_marks_arrive, survives_mtu_change, survives_outage,
    unresolved_neighbour_delays_no_other_traffic,
};
use crate::node::{Node, QKEY, datagrams};
use crate::peer_process::PeerProcess;
use crate::process::{SUCCESS_LINE, in_namespaces, ip, role, started_by_another_test};

/// Test that runs in its own process.
const SUBPROCESS: &str = "taps::subprocess";

#[test]
fn subprocess() {
    if role().as_deref() != Some("tap") {
        return started_by_another_test();
    }
    for link in [V4, V6] {
        for peer_via in ["udp", "packet"] {
            link.plays(peer_via);
        }
    }
    tap_open_error_names_the_cause();
    println!("\n{SUCCESS_LINE}");
}

/// Script that creates the bridge br0 and the other host, namespace b.
const HOSTS: &str = r#"
    mount -t tmpfs tmpfs /run
    ip netns add b
    ip link add br0 mtu 9000 type bridge
    ip link set br0 up
    exec "$@"
"#;

#[test]
#[ignore = "makes network namespaces"]
fn tap_port_is_a_host_on_a_bridge() {
    in_namespaces(HOSTS, SUBPROCESS, "tap");
}

/// Addresses of both hosts.
#[derive(Clone, Copy)]
struct Link {
    ours: &'static str,
    theirs: &'static str,
    /// Length of the link's prefix in bits.
    prefix: u8,
    /// Prefix of unused addresses.
    unused_prefix: &'static str,
}

const V4: Link =
    Link { ours: "10.8.0.1", theirs: "10.8.0.2", prefix: 24, unused_prefix: "10.8.0.1" };
const V6: Link = Link { ours: "fd08::1", theirs: "fd08::2", prefix: 64, unused_prefix: "fd08::9" };

/// Link address of the veth interface on the bridge: higher than nearly all that the kernel generates.
const HIGH: &str = "fa:00:00:00:00:01";

impl Link {
    /// Creates the veth pair of the other host, and its address.
    fn lay(&self) {
        ip("link add a0 mtu 9000 type veth peer name b0 netns b mtu 9000");
        ip(&format!("link set a0 up address {HIGH} master br0"));
        ip("-n b link set b0 up");
        self.address("add");
    }

    fn address(&self, how: &str) {
        let nodad = if self.prefix == 64 { " nodad" } else { "" };
        ip(&format!("-n b addr {how} {}/{} dev b0{nodad}", self.theirs, self.prefix));
    }

    fn open(&self) -> Context {
        let tap = format!("tap:tap0,ip={}/{},bridge=br0", self.ours, self.prefix);
        Context::open(OpenOptions::default().via(tap.parse().unwrap())).unwrap()
    }

    fn plays(&self, peer_via: &str) {
        self.lay();
        let ctx = self.open();
        assert_eq!(ctx.ip(), self.ours.parse::<IpAddr>().unwrap());
        assert_eq!(ctx.device_info().unwrap().port.receive_buffer, 8 << 20);
        // The bridge has the lowest address of its interfaces, so its own address has not changed.
        let bridge = Command::new("ip").args(["link", "show", "br0"]).output().unwrap();
        assert!(String::from_utf8(bridge.stdout).unwrap().contains(HIGH));
        let there = &mut Command::new("ip");
        let mut far = PeerProcess::start(there.args(["netns", "exec", "b"]), self.theirs, peer_via);
        let near = Node::on(ctx.clone());
        far.connect(&near.qp);
        far.takes(&near);
        // As one packet, and as large as the MTU of the link.
        far.echoes(self.ours, 56);
        far.echoes(self.ours, 8900);
        ecn_marks_arrive(&near, &mut far);
        unresolved_neighbour_delays_no_other_traffic(self.unused_prefix, &near, &far);
        survives_outage(&near, &far, || ip("link set tap0 down"), || ip("link set tap0 up"));
        survives_outage(
            &near,
            &far,
            || ip("link del tap0"),
            || {
                ip("tuntap add dev tap0 mode tap");
                ip("link set tap0 mtu 9000 up master br0");
            },
        );
        survives_mtu_change("tap0", &near, &mut far);
        multicast_arrives(&ctx, &mut far);
        ip("-n b link set b0 address 02:00:00:00:00:99");
        far.takes(&near);
        drop((near, ctx, far));
        // The TAP interface was created again, and remains.
        ip("link del tap0");
        ip("link del a0");
    }
}

/// Multicast from other members of the groups, and from the port itself.
fn multicast_arrives(ctx: &Context, far: &mut PeerProcess) {
    let group = match ctx.ip() {
        IpAddr::V4(_) => IpAddr::from([239, 1, 2, 3]),
        IpAddr::V6(_) => "ff15::123".parse().unwrap(),
    };
    let (sender, member) = (datagrams(ctx.clone(), 0), datagrams(ctx.clone(), 1));
    far.joins(group.into());
    member.qp.attach_mcast(group.into()).unwrap();
    let ah = sender.pd.create_ah(AddressVector::to(group.into())).unwrap();
    let message = SendRequest::send(1, SendData::inline(b"!"));
    sender.send(message.to(ah.target(Qpn::MULTICAST, QKEY)));
    assert_eq!(sender.end(), (1, WcStatus::Success));
    far.hears(1);
    assert_eq!(member.next().status, WcStatus::Success);
}

/// Test that runs in its own process, without capabilities.
const UNPRIVILEGED: &str = "taps::unprivileged_subprocess";

#[test]
fn unprivileged_subprocess() {
    if role().as_deref() != Some("unprivileged") {
        return started_by_another_test();
    }
    let at = |name: &str| refused(&format!("{name},ip=10.8.0.1/24"));
    assert_eq!(
        at("tap9"),
        "there is no interface tap9, and to make a TAP needs CAP_NET_ADMIN: run the program as root, or make \
         it and give it to the user (ip tuntap add dev tap9 mode tap user NAME)"
    );
    assert_eq!(
        at("theirs"),
        "interface theirs is not this user's, and without CAP_NET_ADMIN that of nobody else can be had (ip \
         tuntap add dev theirs mode tap user NAME)"
    );
    let ours = "tap:ours,ip=10.8.0.1/24".parse().unwrap();
    let ctx = Context::open(OpenOptions::default().via(ours)).unwrap();
    assert_eq!(ctx.device_info().unwrap().port_state, PortState::Active);
    println!("\n{SUCCESS_LINE}");
}

#[test]
#[ignore = "makes network namespaces"]
fn owner_of_a_tap_needs_no_capability() {
    let script = r#"
        ip tuntap add dev ours mode tap user "$(id -u)"
        ip tuntap add dev theirs mode tap group 1
        ip link set ours up
        exec setpriv --bounding-set=-all --inh-caps=-all "$@"
    "#;
    in_namespaces(script, UNPRIVILEGED, "unprivileged");
}

fn refused(tap: &str) -> String {
    let options = OpenOptions::default().via(format!("tap:{tap}").parse().unwrap());
    Context::open(options).unwrap_err().to_string()
}

fn tap_open_error_names_the_cause() {
    let at = |tap: &str| refused(&format!("{tap},ip=10.8.0.1/24"));
    ip("tuntap add dev tap1 mode tap");
    let owner =
        Context::open(OpenOptions::default().via("tap:tap1,ip=10.8.1.1/24".parse().unwrap()));
    assert_eq!(
        at("tap1"),
        "interface tap1 is held by another program, or another device of this one; a TAP has one owner"
    );
    drop(owner);
    ip("tuntap add dev tun1 mode tun");
    for name in ["br0", "tun1"] {
        let rest = format!("such as ip tuntap add dev {name} mode tap makes");
        assert_eq!(at(name), format!("interface {name} is no TAP with one queue, {rest}"));
    }
    assert_eq!(
        at("tap2,bridge=br9"),
        "the TAP cannot be put into bridge br9: No such device (os error 19)"
    );
    assert_eq!(
        at("tap2,bridge=tap1"),
        "the TAP cannot be put into bridge tap1: Operation not supported (os error 95)"
    );
    ip("addr add 10.8.0.1/24 dev br0");
    assert_eq!(
        at("tap1"),
        "10.8.0.1 is an address of this machine; a TAP port is a host of its own, and has one that nobody \
         else has"
    );
    ip("addr del 10.8.0.1/24 dev br0");
    assert_eq!(
        refused("tap1"),
        "the TAP port on tap1 has no address: give it one and its network, as in tap:tap1,ip=10.0.0.5/24"
    );
    assert_eq!(
        at("tap1,gateway=10.9.0.1"),
        "gateway 10.9.0.1 is in no network of the TAP port on tap1"
    );
    let other = |ip: &str| {
        let options = OpenOptions::default().ip(ip.parse().unwrap());
        let tap = "tap:tap1,ip=10.8.0.1/24".parse().unwrap();
        Context::open(options.via(tap)).unwrap_err().to_string()
    };
    assert_eq!(
        other("10.9.0.1"),
        "10.9.0.1 is in no network of the TAP port on tap1: say how long its prefix is, as in \
         tap:tap1,ip=10.9.0.1/24"
    );
    let rest = "is not the address of one host; give the one that peers send to";
    assert_eq!(other("10.8.0.255"), format!("10.8.0.255 {rest}"));
    let many: String = (1..9).map(|n| format!(",ip=10.8.0.{n}/24")).collect();
    assert_eq!(refused(&format!("tap1{many}")), "8 addresses are given: a TAP port has 7 at most");
}
