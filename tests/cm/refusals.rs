//! REQs that are refused or dropped, and messages that are not for an id.

use softroce::cm::{Error, Event, IpVersion, Listen, RejectReason, ServiceId, State};
use softroce::engine::QpType;
use softroce::ids::{Gid, Mtu, PKey, Qpn};
use softroce::wire::cm::{Body, CommId, Guid, IpHeader, Message, Path, Rej, Req};

use crate::side::*;

/// Delivers a REQ and returns the REJ that answers it.
#[track_caller]
fn rejected(t: &mut Side, message: &Message<'_>) -> Rej {
    t.rx_message(PEER, message);
    let sent = t.tx();
    assert_eq!((sent.path.destination, sent.message().transaction_id), (PEER, TRANSACTION));
    match sent.body() {
        Body::Rej(rej) => rej,
        other => panic!("{other:?}"),
    }
}

/// Checks that a REQ is rejected for a reason, and leaves nothing.
#[track_caller]
fn rejects(t: &mut Side, message: &Message<'_>, reason: RejectReason) {
    let ids = t.agent.ids();
    let rej = rejected(t, message);
    let found = (rej.local_id, rej.remote_id, rej.message, RejectReason(rej.reason));
    assert_eq!(found, (CommId(0), PEER_ID, 0, reason));
    assert_eq!((t.events(), t.agent.ids()), (vec![], ids));
}

/// CM-05
#[test]
fn req_without_a_listener_is_rejected_with_reason_8() {
    let mut t = Side::new();
    rejects(&mut t, &message(Body::Req(req())), RejectReason::INVALID_SERVICE_ID);
    t.listen(QpType::Ud, 8);
    rejects(&mut t, &message(Body::Req(req())), RejectReason::INVALID_SERVICE_ID);
    assert_eq!(t.agent.counters().rejects_sent, 2);
}

/// CM-04
#[test]
fn req_with_invalid_addresses_is_rejected_with_reason_28() {
    let mut t = Side::new();
    t.listen(QpType::Rc, 8);
    let of = |ip: IpHeader| Message { ip: Some(ip), ..message(Body::Req(req())) };
    let good = ip(PEER, OURS);
    let sources = ["0.0.0.0", "127.0.0.1", "239.1.2.3", "255.255.255.255"];
    let from = |source: &str| IpHeader { source_ip: source.parse().unwrap(), ..good };
    for bad in sources.into_iter().map(from).chain([
        IpHeader { version: 1, ..good },
        IpHeader { version: 0x10, ..good },
        IpHeader { ip_version: 5, ..good },
        IpHeader { ip_version: 6, ..good },
    ]) {
        rejects(&mut t, &of(bad), RejectReason::CONSUMER);
    }
    t.rx_message(PEER, &of(good));
    t.request();
}

#[test]
fn req_to_another_address_is_rejected_with_reason_12() {
    let mut t = Side::new();
    t.listen(QpType::Rc, 8);
    let primary = req().primary;
    for primary in [
        Path { remote_gid: gid(STRANGER), ..primary },
        Path { local_gid: gid("fd00::2".parse().unwrap()), ..primary },
        // As behind a translation of addresses.
        Path { local_gid: gid(STRANGER), ..primary },
    ] {
        let rej = rejected(&mut t, &message(Body::Req(Req { primary, ..req() })));
        assert_eq!(RejectReason(rej.reason), RejectReason::INVALID_GID);
        assert_eq!(rej.info.used(rej.info_len), gid(OURS).0, "an address of this port");
    }
}

#[test]
fn req_of_another_partition_is_rejected_with_reason_12() {
    let mut t = Side::with(|config| config.pkeys = vec![PKey::DEFAULT, PKey(0x8007)]);
    t.listen(QpType::Rc, 8);
    let rej = rejected(&mut t, &message(Body::Req(Req { pkey: PKey(0x8008), ..req() })));
    assert_eq!(RejectReason(rej.reason), RejectReason::INVALID_GID);
    t.rx(Body::Req(Req { pkey: PKey(0x0007), ..req() }));
    let id = t.request();
    let init = t.agent.qp_attr(id, softroce::engine::QpState::Init).unwrap();
    assert_eq!(init.pkey_index, Some(1));
    let mut foreign = connect();
    foreign.path.pkey = PKey(0x8008);
    assert_eq!(t.agent.connect(t.now, foreign), Err(Error::PKey(PKey(0x8008))));
}

/// CM-17
#[test]
fn req_with_a_larger_path_mtu_is_rejected_with_reason_26() {
    let mut t = Side::with(|config| config.active_mtu = Mtu::Mtu1024);
    t.listen(QpType::Rc, 8);
    for path_mtu in [Some(Mtu::Mtu2048), Some(Mtu::Mtu4096), None] {
        let rej = rejected(&mut t, &message(Body::Req(Req { path_mtu, ..req() })));
        assert_eq!(RejectReason(rej.reason), RejectReason::INVALID_MTU);
        assert_eq!(rej.info.used(rej.info_len), [3], "the largest one, as a code");
    }
    t.rx(Body::Req(req()));
    t.request();
}

#[test]
fn req_of_another_transport_is_rejected() {
    let mut t = Side::new();
    t.listen(QpType::Rc, 8);
    let uc = Req { transport: 1, ..req() };
    rejects(&mut t, &message(Body::Req(uc)), RejectReason::CONSUMER);
    for (transport, extended_transport) in [(2, 0), (3, 0), (3, 2)] {
        let of_rd = Req { transport, extended_transport, ..req() };
        rejects(&mut t, &message(Body::Req(of_rd)), RejectReason::INVALID_TRANSPORT);
    }
}

#[test]
fn listener_with_an_address_precedes_one_with_any() {
    let ours6: std::net::IpAddr = "fd00::1".parse().unwrap();
    let mut t = Side::with(|config| config.gids.push(gid(ours6)));
    let any = Listen { af_only: Some(IpVersion::V4), ..listen(QpType::Rc, 8) };
    let any = t.agent.listen(SERVICE, any).unwrap();
    let with =
        |destination: Gid| Listen { destination: Some(destination), ..listen(QpType::Rc, 8) };
    let listener_of = |t: &mut Side, local_id| {
        t.rx(Body::Req(Req { local_id, qpn: Qpn::new(local_id.0), ..req() }));
        match t.events().pop() {
            Some((_, Event::Request(request))) => request.listener,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(listener_of(&mut t, CommId(11)), any);
    let specific = t.agent.listen(SERVICE, with(gid(OURS))).unwrap();
    assert_eq!(listener_of(&mut t, CommId(12)), specific);
    assert_eq!(t.agent.listen(SERVICE, with(gid(OURS))), Err(Error::ServiceInUse(SERVICE)));
    assert_eq!(t.agent.listen(SERVICE, with(gid(STRANGER))), Err(Error::Source(gid(STRANGER))));
    // A listener for IPv4 alone accepts no request to an IPv6 address.
    t.agent.destroy(t.now, specific);
    let local_gid = gid("fd00::2".parse().unwrap());
    let primary = Path { local_gid, remote_gid: gid(ours6), ..req().primary };
    let over_ipv6 = Req { primary, local_id: CommId(13), qpn: Qpn::new(13), ..req() };
    let mut bytes = Box::new([0; 256]);
    let peer6 = "fd00::2".parse().unwrap();
    Message { ip: Some(ip(peer6, ours6)), ..message(Body::Req(over_ipv6)) }.write(&mut bytes);
    let path = softroce::cm::MadPath {
        source: ours6,
        destination: peer6,
        traffic_class: 0,
        hop_limit: 64,
        pkey: PKey::DEFAULT,
    };
    let mad = softroce::cm::ReceivedMad { path, bytes };
    t.agent.handle_mad(t.now, &mad);
    assert!(matches!(t.tx().body(), Body::Rej(rej) if rej.reason == 28));
    let all = listen(QpType::Rc, 8);
    let all = t.agent.listen(SERVICE, all).unwrap();
    t.agent.handle_mad(t.now, &mad);
    let events = t.events();
    assert!(matches!(&events[..], [(_, Event::Request(request))] if request.listener == all));
}

#[test]
fn full_backlog_drops_requests_so_that_they_are_repeated() {
    let mut t = Side::new();
    t.listen(QpType::Rc, 2);
    let send = |t: &mut Side, number| {
        t.rx(Body::Req(Req { local_id: CommId(number), qpn: Qpn::new(number), ..req() }));
        t.events().first().map(|(id, _)| *id)
    };
    let first = send(&mut t, 10).unwrap();
    let second = send(&mut t, 11).unwrap();
    assert_eq!((send(&mut t, 12), t.names()), (None, vec![]));
    assert_eq!(t.agent.counters().backlog_full, 1);
    // An accepted, a rejected and a destroyed request each free a place.
    t.agent.accept(t.now, first, accept()).unwrap();
    let third = send(&mut t, 12).unwrap();
    t.agent.reject(t.now, second, softroce::cm::Reject::consumer(b"no")).unwrap();
    send(&mut t, 13).unwrap();
    t.agent.destroy(t.now, third);
    send(&mut t, 14).unwrap();
    assert_eq!(send(&mut t, 15), None);
}

#[test]
fn device_without_ids_rejects_requests() {
    let mut t = Side::with(|config| config.max_ids = 1);
    t.listen(QpType::Rc, 8);
    rejects(&mut t, &message(Body::Req(req())), RejectReason::NO_RESOURCES);
}

/// CM-11
#[test]
fn req_from_the_queue_pair_of_a_live_connection_ends_the_old_one() {
    let (mut t, id) = Side::in_state(State::Established);
    let again = Req { local_id: CommId(0x99), ..req() };
    // Another address with this GUID is another device, which ends nothing.
    t.rx_from(STRANGER, Body::Req(again));
    assert!(matches!(t.tx().body(), Body::Rej(rej) if rej.reason == 10));
    assert_eq!(t.state(id), Some(State::Established));

    t.rx(Body::Req(again));
    let sent = t.sent();
    let bodies: Vec<_> = sent.iter().map(Sent::body).collect();
    let [Body::Rej(rej), Body::Dreq(dreq)] = bodies.as_slice() else { panic!("{bodies:?}") };
    assert_eq!((rej.reason, rej.remote_id, rej.local_id), (10, CommId(0x99), CommId(0)));
    assert_eq!((dreq.local_id, dreq.remote_id, dreq.remote_qpn), (id.0, PEER_ID, PEER_QPN));
    assert_eq!((t.state(id), t.agent.counters().stale), (Some(State::DreqSent), 2));
    // The peer does not know it any more.
    t.rx(Body::Drep(ids(id)));
    assert_eq!(t.events_of(id), [Event::Disconnected { answered: true }]);
    // Its queue pair is free from TIMEWAIT on.
    t.rx(Body::Req(again));
    t.request();
}

#[test]
fn rep_of_another_connection_is_rejected_or_ignored() {
    let (mut t, old) = Side::in_state(State::Established);
    let id = t.connect();
    t.sent();
    // The same communication ID is the old connection's.
    t.rx(Body::Rep(rep(id)));
    assert_eq!((t.names(), t.state(id)), (vec![], Some(State::ReqSent)));
    let stale = softroce::wire::cm::Rep { local_id: CommId(0x55), ..rep(id) };
    t.rx(Body::Rep(stale));
    assert_eq!(t.names(), ["REJ", "DREQ"]);
    assert_eq!((t.state(id), t.state(old)), (Some(State::ReqSent), Some(State::DreqSent)));
}

#[test]
fn messages_of_strangers_change_nothing() {
    for state in [
        State::ReqSent,
        State::MraReqRcvd,
        State::RepRcvd,
        State::ReqRcvd,
        State::RepSent,
        State::MraRepRcvd,
        State::Established,
        State::DreqSent,
        State::DreqRcvd,
        State::Timewait,
    ] {
        let (mut t, id) = Side::in_state(state);
        let wrong = CommId(0x1234);
        // From another address, with another ID of the peer, and for another id of ours.
        for body in [
            Body::Rep(rep(id)),
            Body::Mra(mra(id, 0)),
            Body::Mra(mra(id, 1)),
            Body::Rtu(ids(id)),
            Body::Rej(rej(id, 0, 28)),
            Body::Rej(rej(id, 1, 10)),
            Body::Drep(ids(id)),
            Body::Dreq(dreq(id)),
        ] {
            t.rx_from(STRANGER, body);
        }
        let answers = t.names();
        assert!(answers.iter().all(|name| *name == "DREP"), "{state}: {answers:?}");
        t.rx(Body::Rtu(softroce::wire::cm::Ids { local_id: wrong, ..ids(id) }));
        t.rx(Body::Drep(softroce::wire::cm::Ids { local_id: wrong, ..ids(id) }));
        t.rx(Body::Rej(Rej { local_id: wrong, ..rej(id, 2, 28) }));
        t.rx(Body::Dreq(softroce::wire::cm::Dreq { remote_qpn: Qpn::new(5), ..dreq(id) }));
        t.rx(Body::Rtu(softroce::wire::cm::Ids { remote_id: wrong, ..ids(id) }));
        let guid = Guid(9).0.to_be_bytes();
        t.rx(Body::Rej(Rej { local_id: PEER_ID, ..rej(id, 0, 4).with_info(&guid) }));
        assert_eq!((t.state(id), t.events()), (Some(state), vec![]), "{state}");
    }
}

#[test]
fn meaningless_messages_are_counted() {
    let mut t = Side::new();
    t.rx(Body::Other(0x19));
    t.rx(Body::Req(Req { local_id: CommId(0), ..req() }));
    assert_eq!((t.agent.counters().invalid, t.names()), (2, vec![]));
    assert!(t.agent.is_empty());
    let other = ServiceId(0x1_0000_0000_0000);
    assert_eq!(other.ip_port(), None);
}
