//! Establishing connections, from both sides.

use softroce::cm::{Accept, CommId, Connect, Ece, Error, Event, Offer, State};
use softroce::engine::QpType;
use softroce::ids::Qpn;
use softroce::psn::Psn;
use softroce::wire::Mad;
use softroce::wire::cm::{Body, IpHeader, Message, Rep, Req};

use crate::side::*;

/// CM-01, CM-02, CM-03
#[test]
fn req_is_a_mad_of_256_bytes_with_addresses_before_its_private_data() {
    let mut t = Side::new();
    let id = t.connect();
    assert_eq!(t.state(id), Some(State::ReqSent));
    let sent = t.tx();
    assert_eq!((sent.path.source, sent.path.destination, sent.path.hop_limit), (OURS, PEER, 64));
    let mad = Mad::parse(sent.bytes.first_chunk().unwrap());
    let head = (mad.base_version, mad.class, mad.class_version, mad.method, mad.attribute);
    assert_eq!((head, mad.status, mad.modifier), ((1, 7, 2, 3, 0x10), 0, 0));
    // Body and addresses stand at these offsets; IPv4 addresses are the last four of 16 bytes.
    assert_eq!(sent.bytes[24 + 8..24 + 16], [0, 0, 0, 0, 1, 6, 0x1c, 6]);
    let header = [&[0, 0x40, 0x81, 0x23][..], &[0; 12], &[10, 0, 0, 1], &[0; 12], &[10, 0, 0, 2]];
    assert_eq!(sent.bytes[24 + 140..24 + 176], header.concat());
    assert_eq!(sent.bytes[24 + 176..24 + 182], *b"hello\0");
    let Body::Req(req) = sent.body() else { panic!() };
    assert_eq!((req.local_id, req.ca_guid, req.qpn), (id.0, GUID, QPN));
    assert_eq!((req.responder_resources, req.initiator_depth), (3, 4));
    assert_eq!((req.retry_count, req.rnr_retry_count, req.flow_control), (7, 6, true));
    assert_eq!((req.local_cm_timeout, req.remote_cm_timeout, req.max_cm_retries), (20, 20, 15));
    let primary = req.primary;
    assert_eq!(
        (primary.local_lid, primary.remote_lid, primary.subnet_local),
        (0xffff, 0xffff, false)
    );
    assert_eq!((primary.hop_limit, primary.ack_timeout), (64, 17));
    assert_eq!(req.alternate.local_lid, 0, "there is no alternate path");
}

/// CM-06, CM-08
#[test]
fn active_side_answers_a_rep_with_an_rtu() {
    let (mut t, id) = Side::in_state(State::ReqSent);
    t.rx(Body::Rep(rep(id)));
    assert_eq!((t.state(id), t.names()), (Some(State::RepRcvd), vec![]));
    let events = t.events_of(id);
    let [Event::Reply(reply)] = events.as_slice() else { panic!("{events:?}") };
    let offer = Offer {
        remote_qpn: PEER_QPN,
        starting_psn: Psn::new(0x654321),
        responder_resources: 6,
        initiator_depth: 5,
        rnr_retry_count: 3,
        flow_control: false,
        srq: false,
        ece: Ece::default(),
    };
    assert_eq!((reply.offer, reply.private_data.len()), (offer, Rep::PRIVATE_DATA));
    assert!(reply.private_data.starts_with(b"from the peer\0"));
    t.agent.establish(t.now, id).unwrap();
    assert_eq!(t.state(id), Some(State::Established));
    assert_eq!(
        t.tx().body(),
        Body::Rtu(softroce::wire::cm::Ids { local_id: id.0, remote_id: PEER_ID })
    );
    assert_eq!(t.events(), [], "the consumer knows");
    let found = State::Established;
    assert_eq!(t.agent.establish(t.now, id), Err(Error::State { found, needed: "REP_RCVD" }));
}

/// CM-06, CM-08, CM-18
#[test]
fn passive_side_answers_a_req_with_a_rep_and_waits_for_the_rtu() {
    let mut t = Side::new();
    let listener = t.listen(QpType::Rc, 8);
    t.rx(Body::Req(req()));
    let events = t.events();
    let [(id, Event::Request(request))] = events.as_slice() else { panic!("{events:?}") };
    let id = *id;
    assert_eq!((request.listener, request.token, request.qp_type), (listener, 0xabc, QpType::Rc));
    assert_eq!((request.offer.responder_resources, request.offer.initiator_depth), (6, 5));
    assert_eq!((request.retry_count, request.offer.rnr_retry_count), (5, 4));
    assert_eq!(
        (request.offer.remote_qpn, request.offer.starting_psn),
        (PEER_QPN, Psn::new(0x123456))
    );
    assert_eq!((request.ip, request.private_data.len()), (Some(ip(PEER, OURS)), 56));
    assert!(request.private_data.starts_with(b"from the peer\0"));
    let path = request.path;
    assert_eq!((path.source, path.destination), (gid(OURS), gid(PEER)));
    assert_eq!((path.flow_label, path.traffic_class), (0x54321, 0x28));
    assert_eq!((t.state(id), t.names()), (Some(State::ReqRcvd), vec![]));

    t.agent.accept(t.now, id, accept()).unwrap();
    assert_eq!(t.state(id), Some(State::RepSent));
    let sent = t.tx();
    let message = sent.message();
    assert_eq!(message.transaction_id, TRANSACTION, "that of the REQ");
    assert!(message.private_data.starts_with(b"welcome\0"));
    let Body::Rep(rep) = message.body else { panic!("{message}") };
    assert_eq!((rep.local_id, rep.remote_id, rep.ca_guid), (id.0, PEER_ID, GUID));
    assert_eq!((rep.qpn, rep.responder_resources, rep.initiator_depth), (QPN, 2, 1));
    assert_eq!((rep.rnr_retry_count, rep.flow_control, rep.srq), (7, true, false));

    t.rx(Body::Rtu(ids(id)));
    assert_eq!(
        (t.state(id), t.events_of(id)),
        (Some(State::Established), vec![Event::Established])
    );
    t.rx(Body::Rtu(ids(id)));
    assert_eq!((t.events(), t.names()), (vec![], vec![]), "a copy");
    assert_eq!(t.agent.poll_timeout(), None, "nothing is repeated");
}

/// The RTU may be lost, and the peer's first packet confirms the connection in its place.
#[test]
fn first_packet_establishes_a_connection_without_an_rtu() {
    for state in [State::RepSent, State::MraRepRcvd] {
        let (mut t, id) = Side::in_state(state);
        t.agent.handle_first_packet(t.now, Qpn::new(0x99));
        assert_eq!(t.events(), [], "of another queue pair");
        t.agent.handle_first_packet(t.now, QPN);
        assert_eq!(t.state(id), Some(State::Established));
        t.rx(Body::Rtu(ids(id)));
        t.agent.handle_first_packet(t.now, QPN);
        assert_eq!((t.events_of(id), t.agent.poll_timeout()), (vec![Event::Established], None));
    }
    let (mut t, _) = Side::in_state(State::Established);
    t.agent.handle_first_packet(t.now, QPN);
    assert_eq!(t.events(), []);
}

#[test]
fn xrc_reply_has_the_queue_pair_as_end_to_end_context() {
    let mut t = Side::new();
    t.listen(QpType::XrcTgt, 8);
    t.rx(Body::Req(Req { transport: 3, extended_transport: 1, ..req() }));
    let id = t.request();
    t.agent.accept(t.now, id, accept()).unwrap();
    let Body::Rep(reply) = t.tx().body() else { panic!() };
    assert_eq!((reply.qpn, reply.eecn, reply.srq), (Qpn::default(), QPN.value(), true));

    let mut t = Side::new();
    let id = t.agent.connect(t.now, Connect { qp_type: QpType::XrcIni, ..connect() }).unwrap();
    let Body::Req(sent) = t.tx().body() else { panic!() };
    assert_eq!((sent.transport, sent.extended_transport, sent.qpn), (3, 1, QPN));
    t.rx(Body::Rep(Rep { qpn: Qpn::default(), eecn: PEER_QPN.value(), ..rep(id) }));
    let events = t.events_of(id);
    let [Event::Reply(reply)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(reply.offer.remote_qpn, PEER_QPN);
}

#[test]
fn ece_travels_in_the_modifier_and_the_vendor_bytes() {
    let ece = Ece { vendor: 0x12_3456, options: 0x89ab_cdef };
    let mut t = Side::new();
    t.agent.connect(t.now, Connect { ece, ..connect() }).unwrap();
    let sent = t.tx();
    let Body::Req(of_req) = sent.body() else { panic!() };
    assert_eq!((of_req.ece_vendor, sent.message().modifier), (ece.vendor, ece.options));
    t.listen(QpType::Rc, 1);
    let with_ece = Req { ece_vendor: ece.vendor, ..req() };
    t.rx_message(PEER, &Message { modifier: ece.options, ..message(Body::Req(with_ece)) });
    let events = t.events();
    let [(id, Event::Request(request))] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(request.offer.ece, ece);
    t.agent.accept(t.now, *id, Accept { ece, ..accept() }).unwrap();
    let sent = t.tx();
    let Body::Rep(reply) = sent.body() else { panic!() };
    assert_eq!((reply.ece_vendor(), sent.message().modifier), (ece.vendor, ece.options));
}

#[test]
fn agents_with_other_seeds_draw_other_ids_and_psns() {
    let of = |seed| {
        let config = softroce::cm::AgentConfig::new(GUID, OURS);
        let mut t = Side { agent: softroce::cm::Agent::new(config, seed), ..Side::new() };
        let id = t.connect();
        let Body::Req(req) = t.tx().body() else { panic!() };
        (id, req.starting_psn)
    };
    let [(id, psn), (other_id, other_psn)] = [of([1; 32]), of([2; 32])];
    assert_ne!(id, other_id);
    assert_ne!(psn, other_psn);
    assert_eq!(of([1; 32]), (id, psn), "the same seed");
}

/// CM-07
#[test]
fn proposed_reply_stays_within_the_depths_of_the_request() {
    let mut t = Side::new();
    t.listen(QpType::Rc, 8);
    t.rx(Body::Req(Req { responder_resources: 2, initiator_depth: 200, ..req() }));
    let events = t.events();
    let [(_, Event::Request(request))] = events.as_slice() else { panic!("{events:?}") };
    let most = Accept::of(request, QPN, 16);
    assert_eq!((most.responder_resources, most.initiator_depth), (16, 2));
    assert_eq!((most.qpn, most.rnr_retry_count, most.flow_control), (QPN, 7, true));
    let least = Accept::of(request, QPN, 0);
    assert_eq!((least.responder_resources, least.initiator_depth), (0, 0));
}

/// CM-19
#[test]
fn guid_of_a_device_follows_its_address() {
    let addresses = ["10.0.0.1", "10.0.0.2", "127.0.0.1", "::1", "fd00::1", "fd00::2", "fd00:1::1"];
    let guids = addresses.map(|address| softroce::cm::Guid::of(address.parse().unwrap()));
    let distinct: std::collections::HashSet<_> = guids.into_iter().collect();
    assert_eq!(distinct.len(), addresses.len());
    assert!(guids.iter().all(|guid| guid.0 != 0));
}

#[test]
fn invalid_calls_change_nothing() {
    let mut t = Side::with(|config| config.max_ids = 2);
    let base = connect();
    let long = vec![0; 57];
    for (connect, expected) in [
        (
            Connect { private_data: long.clone(), ..base.clone() },
            Error::PrivateData { found: 57, max: 56 },
        ),
        (
            Connect { ip: None, private_data: vec![0; 93], ..base.clone() },
            Error::PrivateData { found: 93, max: 92 },
        ),
        (
            Connect { qp_type: QpType::Ud, ..base.clone() },
            Error::QpType { found: QpType::Ud, call: "connect" },
        ),
        (
            Connect { retry_count: 8, ..base.clone() },
            Error::Range { name: "retry_count", found: 8, max: 7 },
        ),
    ] {
        assert_eq!(t.agent.connect(t.now, connect), Err(expected));
    }
    let mut foreign = base.clone();
    foreign.path.source = gid(STRANGER);
    assert_eq!(t.agent.connect(t.now, foreign), Err(Error::Source(gid(STRANGER))));
    let mut mixed = base.clone();
    mixed.path.destination = gid("fd00::1".parse().unwrap());
    assert!(matches!(t.agent.connect(t.now, mixed), Err(Error::Family { .. })));
    let unknown = softroce::cm::ConnId(CommId(1));
    assert_eq!(t.agent.accept(t.now, unknown, accept()), Err(Error::UnknownId(unknown)));
    assert_eq!(t.agent.disconnect(t.now, unknown), Err(Error::UnknownId(unknown)));
    assert!(t.agent.is_empty());
    let id = t.connect();
    let found = State::ReqSent;
    let needed = "REQ_RCVD";
    assert_eq!(t.agent.accept(t.now, id, accept()), Err(Error::State { found, needed }));
    t.connect();
    assert_eq!(t.agent.connect(t.now, base), Err(Error::TooMany { max: 2 }));
    assert_eq!(IpHeader::LEN + 56, Req::PRIVATE_DATA);
}
