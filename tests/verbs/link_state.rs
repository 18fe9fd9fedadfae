//! Changes of the interface below a device, in a network namespace.

use std::net::IpAddr;

use softroce::verbs::*;

use crate::node::{QKEY, RECV_BYTES, WAIT_LIMIT, datagrams};
use crate::process::{SUCCESS_LINE, VETH_PAIR, in_namespaces, ip, role, started_by_another_test};
use crate::within::until;

/// Test that runs with an interface of its own.
const WITH_AN_INTERFACE: &str = "link_state::subprocess_with_an_interface";

#[test]
fn subprocess_with_an_interface() {
    if role().as_deref() != Some("interface") {
        return started_by_another_test();
    }
    use AsyncEvent::{GidChange, PortActive, PortErr};
    for (ip_of_ours, net) in [("10.8.0.1", 24), ("fd08::1", 64)] {
        let device = ip_of_ours.parse::<IpAddr>().unwrap();
        let ctx = Context::open(OpenOptions::default().ip(device)).unwrap();
        let expect = |event, state, mtu| {
            assert_eq!(ctx.wait_event(WAIT_LIMIT).unwrap(), event);
            let info = ctx.device_info().unwrap();
            assert_eq!((info.port_state, info.active_mtu), (state, mtu));
        };
        let both = |first, second, state| {
            assert_eq!(ctx.wait_event(WAIT_LIMIT).unwrap(), first);
            expect(second, state, Mtu::Mtu1024);
        };
        assert_eq!(ctx.device_info().unwrap().port_state, PortState::Active);
        ip(&format!("addr del {ip_of_ours}/{net} dev a0"));
        both(GidChange, PortErr, PortState::Down);
        let nodad = if device.is_ipv6() { " nodad" } else { "" };
        ip(&format!("addr add {ip_of_ours}/{net} dev a0{nodad}"));
        both(GidChange, PortActive, PortState::Active);
        // The link goes down, and the address remains.
        ip("link set b0 down");
        expect(PortErr, PortState::Down, Mtu::Mtu1024);
        ip("link set a0 mtu 9000");
        ip("link set b0 mtu 9000 up");
        expect(PortActive, PortState::Active, Mtu::Mtu4096);
        // Events cover addresses of the device only.
        ip("addr add 10.8.1.1/24 dev a0");
        ip("link set b0 down");
        expect(PortErr, PortState::Down, Mtu::Mtu4096);
        ip("addr del 10.8.1.1/24 dev a0");
        ip("link set a0 mtu 1500");
        ip("link set b0 mtu 1500 up");
        expect(PortActive, PortState::Active, Mtu::Mtu1024);
    }
    println!("\n{SUCCESS_LINE}");
}

/// Test that joins a group on that interface.
const IN_A_GROUP: &str = "link_state::subprocess_in_a_group";

#[test]
fn subprocess_in_a_group() {
    if role().as_deref() != Some("group") {
        return started_by_another_test();
    }
    for (device, group, words) in [
        ("10.8.0.1", "239.1.2.3", "10.8.0.1/24 dev a0"),
        ("fd08::1", "ff15::123", "fd08::1/64 dev a0 nodad"),
    ] {
        let device: IpAddr = device.parse().unwrap();
        let group = Gid::from(group.parse::<IpAddr>().unwrap());
        let ctx = Context::open(OpenOptions::default().ip(device)).unwrap();
        let (sender, member) = (datagrams(ctx.clone(), 0), datagrams(ctx.clone(), 2));
        member.qp.attach_mcast(group).unwrap();
        let hears = |number: u8| {
            let ah = sender.pd.create_ah(AddressVector::to(group)).unwrap();
            let message = SendRequest::send(99, SendData::inline(&[number]));
            sender.send(message.to(ah.target(Qpn::MULTICAST, QKEY)));
            assert_eq!(sender.end(), (99, WcStatus::Success));
            let completion = member.next();
            assert_eq!((completion.status, completion.byte_len), (WcStatus::Success, 41));
            assert_eq!(member.bytes(completion.wr_id as usize * RECV_BYTES + 40, 1), [number]);
        };
        hears(1);
        ip(&format!("addr del {}", words.trim_end_matches(" nodad")));
        assert_eq!(ctx.wait_event(WAIT_LIMIT).unwrap(), AsyncEvent::GidChange);
        ip(&format!("addr add {words}"));
        until("PortActive", || ctx.wait_event(WAIT_LIMIT).unwrap() == AsyncEvent::PortActive);
        hears(2);
    }
    println!("\n{SUCCESS_LINE}");
}

/// The group was joined on the interface and was not left.
#[test]
#[ignore = "makes network namespaces"]
fn multicast_resumes_when_the_address_returns() {
    in_namespaces(VETH_PAIR, IN_A_GROUP, "group");
}

/// CC-07
#[test]
#[ignore = "makes network namespaces"]
fn events_report_address_and_interface_changes() {
    in_namespaces(VETH_PAIR, WITH_AN_INTERFACE, "interface");
}
