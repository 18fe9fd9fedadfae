//! Service ID resolution (SIDR), both roles.

use std::time::Duration;

use softroce::cm::{
    CmPath, CommId, ConnId, Ece, Event, RDMA_UDP_QKEY, ServiceId, SidrReply, SidrRequest,
    SidrStatus, State,
};
use softroce::engine::QpType;
use softroce::ids::{Mtu, PKey};
use softroce::wire::cm::{Body, IpHeader, Message, SidrRep, SidrReq};

use crate::side::*;

const REQUEST_ID: CommId = CommId(0x99);

fn sidr_req() -> SidrReq {
    SidrReq { request_id: REQUEST_ID, pkey: PKey::DEFAULT, service_id: SERVICE }
}

fn reply(status: SidrStatus) -> SidrReply {
    SidrReply {
        status,
        qpn: QPN,
        qkey: RDMA_UDP_QKEY,
        ece: Ece { vendor: 0x0a_0b0c, options: 7 },
        private_data: b"here".to_vec(),
    }
}

fn request() -> SidrRequest {
    SidrRequest {
        path: CmPath::between(OURS, PEER, Mtu::Mtu1024),
        service: ServiceId(0x0111_1c06),
        ip: Some(ip(OURS, PEER)),
        private_data: b"who".to_vec(),
        retries: 15,
        timeout: Duration::from_millis(4096),
    }
}

fn sidr_rep(id: ConnId, status: u8) -> SidrRep {
    let rep = SidrRep {
        request_id: id.0,
        status,
        qpn: PEER_QPN,
        qkey: RDMA_UDP_QKEY,
        ..SidrRep::parse(&[])
    };
    SidrRep { info_len: 2, info: softroce::wire::cm::Info::new(&[8, 9, 10]), ..rep }
}

/// CM-15
#[test]
fn service_request_is_answered_with_queue_pair_and_key() {
    let mut t = Side::new();
    let listener = t.listen(QpType::Ud, 8);
    t.rx(Body::SidrReq(sidr_req()));
    let events = t.events();
    let [(id, Event::ServiceRequest(request))] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((request.listener, request.token, request.service), (listener, 0xabc, SERVICE));
    assert_eq!((request.ip, request.private_data.len()), (Some(ip(PEER, OURS)), 180));
    assert_eq!(request.path, CmPath::between(OURS, PEER, Mtu::Mtu4096));
    assert_eq!(t.state(*id), Some(State::SidrReqRcvd));
    t.rx(Body::SidrReq(sidr_req()));
    assert_eq!((t.names(), t.events()), (vec![], vec![]), "a copy");

    t.agent.reply_service(t.now, *id, reply(SidrStatus::SUCCESS)).unwrap();
    let sent = t.tx();
    let message = sent.message();
    let Body::SidrRep(rep) = message.body else { panic!("{message}") };
    assert_eq!(
        (rep.request_id, rep.status, rep.qpn, rep.qkey),
        (REQUEST_ID, 0, QPN, RDMA_UDP_QKEY)
    );
    assert_eq!((rep.service_id, rep.ece_vendor(), message.modifier), (SERVICE, 0x0a_0b0c, 7));
    assert_eq!((message.transaction_id, message.private_data.len()), (TRANSACTION, 136));
    assert!(message.private_data.starts_with(b"here\0"));
    assert_eq!((t.state(*id), t.agent.ids()), (None, 1));
    // A request that is repeated because the answer was lost is a new one.
    t.rx(Body::SidrReq(sidr_req()));
    t.request();
}

#[test]
fn service_without_a_listener_gets_status_1() {
    let mut t = Side::new();
    t.listen(QpType::Rc, 8);
    t.rx(Body::SidrReq(sidr_req()));
    assert!(
        matches!(t.tx().body(), Body::SidrRep(rep) if rep.status == 1 && rep.request_id == REQUEST_ID)
    );
    assert_eq!(t.events(), []);
}

#[test]
fn service_request_with_invalid_addresses_gets_status_2() {
    let mut t = Side::new();
    t.listen(QpType::Ud, 8);
    let ip = IpHeader { version: 1, ..ip(PEER, OURS) };
    t.rx_message(PEER, &Message { ip: Some(ip), ..message(Body::SidrReq(sidr_req())) });
    assert!(matches!(t.tx().body(), Body::SidrRep(rep) if rep.status == 2));
}

#[test]
fn destroyed_service_request_gets_status_2() {
    let mut t = Side::new();
    let listener = t.listen(QpType::Ud, 1);
    t.rx(Body::SidrReq(sidr_req()));
    let id = t.request();
    t.rx(Body::SidrReq(SidrReq { request_id: CommId(1), ..sidr_req() }));
    assert_eq!((t.names(), t.agent.counters().backlog_full), (vec![], 1));
    t.agent.destroy(t.now, id);
    assert!(matches!(t.tx().body(), Body::SidrRep(rep) if rep.status == 2));
    t.rx(Body::SidrReq(SidrReq { request_id: CommId(1), ..sidr_req() }));
    t.agent.destroy(t.now, listener);
    assert!(matches!(t.tx().body(), Body::SidrRep(rep) if rep.request_id == CommId(1)));
    assert_eq!(t.events(), []);
    assert!(t.agent.is_empty());
}

/// CM-15
#[test]
fn own_service_request_ends_with_the_reply() {
    for (status, expected) in [(0, SidrStatus::SUCCESS), (1, SidrStatus::NO_SERVICE)] {
        let mut t = Side::new();
        let id = t.agent.resolve_service(t.now, request()).unwrap();
        let sent = t.tx();
        let message = sent.message();
        let Body::SidrReq(req) = message.body else { panic!("{message}") };
        assert_eq!((req.request_id, req.service_id), (id.0, ServiceId(0x0111_1c06)));
        assert_eq!((message.ip, t.state(id)), (Some(ip(OURS, PEER)), Some(State::SidrReqSent)));
        t.rx_from(STRANGER, Body::SidrRep(sidr_rep(id, status)));
        assert_eq!(t.events(), []);
        t.rx(Body::SidrRep(sidr_rep(id, status)));
        let events = t.events_of(id);
        let [Event::ServiceReply(reply)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((reply.status, reply.qpn, reply.qkey), (expected, PEER_QPN, RDMA_UDP_QKEY));
        assert_eq!((reply.info.as_slice(), reply.private_data.len()), (&[8, 9][..], 136));
        t.rx(Body::SidrRep(sidr_rep(id, status)));
        assert_eq!((t.events(), t.agent.poll_timeout()), (vec![], None), "a copy");
        t.agent.destroy(t.now, id);
        assert!(t.agent.is_empty());
    }
}

#[test]
fn own_service_request_is_repeated_then_the_peer_is_unreachable() {
    let mut t = Side::new();
    let id = t.agent.resolve_service(t.now, SidrRequest { retries: 2, ..request() }).unwrap();
    let expected = [(0, "SIDR_REQ"), (4096, "SIDR_REQ"), (8192, "SIDR_REQ")];
    assert_eq!(t.run_until(60_000), expected);
    assert_eq!(t.events_of(id), [Event::Unreachable { sent: 3 }]);
    assert_eq!(t.state(id), Some(State::Idle));
    let id = t.agent.resolve_service(t.now, request()).unwrap();
    t.agent.destroy(t.now, id);
    assert_eq!((t.names().len(), t.agent.poll_timeout()), (1, None));
}
