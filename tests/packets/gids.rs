//! Devices with several addresses: source addresses and UDP source ports of packets.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::net::IpAddr;

use crate::support::script::{OURS, PEER, PEER_QPN, Script, rts_qp, rts_qp_of, target};
use crate::support::{request, sge};
use softroce::engine::{ModifyError, QpAttr, QpState, QpType};
use softroce::ids::Gid;
use softroce::net::{AddressVector, Burst, Path};
use softroce::time::Instant;
use softroce::transport::work::{SendOp, UdTarget};

const SECOND: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 7, 7, 7));

/// Creates a queue pair in RESET on a device with two addresses.
fn script(qp_type: QpType) -> Script {
    Script::reset(rts_qp_of(qp_type), |config| config.gids.push(SECOND.into()))
}

/// Returns an address vector for the peer, with this source GID.
fn way(sgid_index: u8) -> AddressVector {
    AddressVector { sgid_index, ..AddressVector::to(Gid::from(PEER)) }
}

/// Modifies the queue pair; the granted source port identifies the source address.
fn modify(t: &mut Script, attr: &QpAttr) -> Result<(), ModifyError> {
    let agree = |from: IpAddr, _: u16| if from == SECOND { 0xc200 } else { 0xc100 };
    t.engine.modify_qp(Instant::ZERO, t.qpn, attr, agree)
}

/// Takes the queue pair from RESET to RTS.
fn start(t: &mut Script) {
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let step = t.step(state);
        modify(t, &step).unwrap();
    }
}

/// Returns source address and port of the next burst.
fn source(t: &mut Script) -> (IpAddr, u16) {
    let mut burst = Burst::new();
    assert!(t.engine.poll_transmit(Instant::ZERO, &mut burst));
    let Path { source, source_port, destination, .. } = burst.path;
    assert_eq!(destination, PEER);
    (source, source_port)
}

#[test]
fn datagram_leaves_from_the_port_of_its_source_address() {
    let mut t = script(QpType::Ud);
    start(&mut t);
    t.engine.agree_on_flow(1, 7, |from, _| if from == SECOND { 0xc207 } else { 0xc107 });
    let to = |index, flow_label| AddressVector { flow_label, ..way(index) };
    for (av, expected) in [
        (to(0, 0), (OURS, 0xc100)),
        (to(1, 0), (SECOND, 0xc200)),
        (to(1, 7), (SECOND, 0xc207)),
        // The port has not granted a source port for that address.
        (to(0, 7), (OURS, 0xc100)),
    ] {
        let message = request(1, SendOp::Send, &[sge(&t.data, 0, 8)]);
        t.post(message.to(UdTarget { av, ..target(PEER_QPN) })).unwrap();
        assert_eq!(source(&mut t), expected);
    }
    assert_eq!(t.engine.query_qp(t.qpn).unwrap().source_port, Some(0xc100));
    t.leave();
}

/// In SQD the path may change, with its source address and source port.
#[test]
fn connection_changes_its_source_address_in_sqd() {
    for (index, expected) in [(0, (OURS, 0xc100)), (1, (SECOND, 0xc200))] {
        let mut t = script(QpType::Rc);
        start(&mut t);
        modify(&mut t, &QpAttr::to(QpState::Sqd)).unwrap();
        modify(&mut t, &QpAttr { av: Some(way(index)), ..QpAttr::to(QpState::Sqd) }).unwrap();
        modify(&mut t, &QpAttr::to(QpState::Rts)).unwrap();
        t.post(request(1, SendOp::Send, &[sge(&t.data, 0, 8)])).unwrap();
        assert_eq!(source(&mut t), expected);
        assert_eq!(t.engine.query_qp(t.qpn).unwrap().source_port, Some(expected.1));
        t.leave();
    }
}

#[test]
fn empty_gid_entry_refuses_new_paths_and_keeps_old_ones() {
    let mut t = Script::reset(rts_qp(), |config| config.gids.push(SECOND.into()));
    t.bring_to(QpState::Init);
    let connect = QpAttr { av: Some(way(1)), ..t.step(QpState::Rtr) };
    let gids = |t: &Script| [0, 1, 2].map(|index| t.engine.gid(index).map(|gid| gid.ip()));
    t.engine.set_gid_present(1, false);
    t.engine.set_gid_present(1, false);
    assert_eq!(gids(&t), [Some(OURS), None, None]);
    let refused = t.modify(connect).unwrap_err();
    assert_eq!(refused, ModifyError::EmptyGid { index: 1, gid: SECOND.into() });
    let text = "AV names source GID 1, which is empty: no interface has ::ffff:10.7.7.7";
    assert_eq!(refused.to_string(), text);

    t.engine.set_gid_present(1, true);
    assert_eq!(gids(&t), [Some(OURS), Some(SECOND), None]);
    t.modify(connect).unwrap();
    t.modify(t.step(QpState::Rts)).unwrap();
    t.engine.set_gid_present(1, false);
    t.post(request(1, SendOp::Send, &[sge(&t.data, 0, 8)])).unwrap();
    assert_eq!(source(&mut t).0, SECOND);
    t.leave();
}
