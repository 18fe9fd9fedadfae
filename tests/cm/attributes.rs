//! Attributes of queue pairs, which an engine accepts in their transitions.

use std::sync::Arc;

use softroce::cm::{Connect, Error, RDMA_UDP_QKEY, State, initial_attr};
use softroce::engine::{AttrMask, Config, Engine, QpAttr, QpInit, QpState, QpType};
use softroce::ids::{CqId, Mtu, PdId, Qpn, XrcdId};
use softroce::mem::{Access, Memory};
use softroce::psn::Psn;
use softroce::time::{AckTimeout, Instant, RnrTimer};
use softroce::wire::cm::{Body, Rep, Req};

use crate::side::*;

/// Brings a queue pair of an engine to RTS with these attributes.
#[track_caller]
fn brings_to_rts(qp_type: QpType, attrs: [QpAttr; 3]) {
    let mut engine = Engine::new(Config::new(OURS), Arc::new(Memory::new([1; 32])), [1; 32]);
    let is_xrc_target = qp_type == QpType::XrcTgt;
    let init = QpInit {
        qp_type,
        pd: PdId(1),
        send_cq: (!is_xrc_target).then_some(CqId(0)),
        recv_cq: (!matches!(qp_type, QpType::XrcTgt | QpType::XrcIni)).then_some(CqId(0)),
        cap: Default::default(),
        sq_sig_all: false,
        srq: None,
        send_ops: None,
        xrcd: is_xrc_target.then_some(XrcdId(1)),
    };
    let qpn = engine.create_qp(Instant::ZERO, init).unwrap();
    for attr in attrs {
        engine.modify_qp(Instant::ZERO, qpn, &attr, |_, wanted| wanted).unwrap();
    }
    assert_eq!(engine.query_qp(qpn).unwrap().state, QpState::Rts);
}

fn all(t: &Side, id: softroce::cm::ConnId) -> [QpAttr; 3] {
    [QpState::Init, QpState::Rtr, QpState::Rts].map(|state| t.agent.qp_attr(id, state).unwrap())
}

/// CM-06
#[test]
fn passive_attributes_are_those_of_the_req() {
    let (mut t, id) = Side::in_state(State::ReqRcvd);
    let [init, rtr, rts] = all(&t, id);
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    assert!(init.access.unwrap().contains(rights));
    let av = rtr.av.unwrap();
    assert_eq!((av.gid, av.sgid_index, av.hop_limit), (gid(PEER), 0, 64));
    assert_eq!((av.flow_label, av.traffic_class), (0x54321, 0x28));
    assert_eq!((rtr.path_mtu, rtr.dest_qpn), (Some(Mtu::Mtu1024), Some(PEER_QPN)));
    assert_eq!((rtr.max_dest_rd_atomic, rtr.min_rnr_timer), (Some(6), RnrTimer::new(0)));
    assert_eq!((rts.sq_psn, rts.timeout), (Some(Psn::new(0x123456)), AckTimeout::new(19)));
    assert_eq!((rts.retry_cnt, rts.rnr_retry, rts.max_rd_atomic), (Some(5), Some(4), Some(5)));
    brings_to_rts(QpType::Rc, [init, rtr, rts]);
    t.agent.accept(t.now, id, accept()).unwrap();
    let Body::Rep(rep) = t.tx().body() else { panic!() };
    assert_eq!(rtr.rq_psn, Some(rep.starting_psn), "the peer begins with it");
    let [_, rtr, rts] = all(&t, id);
    assert_eq!((rtr.max_dest_rd_atomic, rts.max_rd_atomic), (Some(2), Some(1)));
    t.agent.set_ack_timeout(id, AckTimeout::new(14).unwrap()).unwrap();
    assert_eq!(t.agent.qp_attr(id, QpState::Rts).unwrap().timeout, AckTimeout::new(14));
}

/// CM-06
#[test]
fn active_attributes_are_those_of_the_rep() {
    let mut t = Side::new();
    let id = t.connect();
    let Body::Req(req) = t.tx().body() else { panic!() };
    t.rx(Body::Rep(rep(id)));
    let [init, rtr, rts] = all(&t, id);
    assert_eq!((rtr.rq_psn, rtr.dest_qpn), (Some(req.starting_psn), Some(PEER_QPN)));
    assert_eq!(rtr.max_dest_rd_atomic, Some(6), "the depth of the REP");
    assert_eq!((rts.sq_psn, rts.timeout), (Some(Psn::new(0x654321)), AckTimeout::new(17)));
    assert_eq!((rts.retry_cnt, rts.rnr_retry, rts.max_rd_atomic), (Some(7), Some(3), Some(5)));
    brings_to_rts(QpType::Rc, [init, rtr, rts]);
    let of_option = Connect { ack_timeout: AckTimeout::new(10), ..connect() };
    let id = t.agent.connect(t.now, of_option).unwrap();
    let Body::Req(req) = t.tx().body() else { panic!() };
    assert_eq!(req.primary.ack_timeout, 10);
    t.rx(Body::Rep(Rep { local_id: softroce::cm::CommId(2), qpn: Qpn::new(2), ..rep(id) }));
    assert_eq!(t.agent.qp_attr(id, QpState::Rts).unwrap().timeout, AckTimeout::new(10));
}

#[test]
fn uc_and_xrc_have_the_attributes_of_their_service() {
    let reads = AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER;
    let retries = AttrMask::RETRY_CNT | AttrMask::RNR_RETRY | AttrMask::MAX_QP_RD_ATOMIC;
    for (qp_type, transport, extended_transport) in
        [(QpType::Rc, 0, 0), (QpType::Uc, 1, 0), (QpType::XrcTgt, 3, 1)]
    {
        let mut t = Side::new();
        t.listen(qp_type, 8);
        t.rx(Body::Req(Req { transport, extended_transport, ..req() }));
        let id = t.request();
        let attrs = all(&t, id);
        let [_, rtr, rts] = attrs.map(|attr| attr.mask());
        assert_eq!(rtr.contains(reads), qp_type != QpType::Uc);
        assert_eq!(rts.contains(retries), qp_type == QpType::Rc);
        assert_eq!(rts.contains(AttrMask::TIMEOUT), qp_type != QpType::Uc);
        brings_to_rts(qp_type, attrs);
    }
    let mut t = Side::new();
    let id = t.agent.connect(t.now, Connect { qp_type: QpType::XrcIni, ..connect() }).unwrap();
    t.rx(Body::Rep(Rep { eecn: PEER_QPN.value(), ..rep(id) }));
    brings_to_rts(QpType::XrcIni, all(&t, id));
}

#[test]
fn attributes_exist_from_the_peers_message_to_the_disconnection() {
    for found in
        [State::ReqSent, State::MraReqRcvd, State::DreqSent, State::DreqRcvd, State::Timewait]
    {
        let (t, id) = Side::in_state(found);
        for to in [QpState::Rtr, QpState::Rts] {
            let needed = "a state from the peer's REQ or REP to ESTABLISHED";
            assert_eq!(t.agent.qp_attr(id, to), Err(Error::State { found, needed }));
        }
        assert_eq!(t.agent.qp_attr(id, QpState::Init).unwrap().state, Some(QpState::Init));
        assert_eq!(t.agent.qp_attr(id, QpState::Sqd), Err(Error::NoAttributes(QpState::Sqd)));
    }
    for state in [State::RepSent, State::MraRepRcvd, State::Established] {
        let (t, id) = Side::in_state(state);
        brings_to_rts(QpType::Rc, all(&t, id));
    }
    let nothing = Req { initiator_depth: 0, ..req() };
    let mut t = Side::new();
    t.listen(QpType::Rc, 8);
    t.rx(Body::Req(nothing));
    let id = t.request();
    assert_eq!(t.agent.qp_attr(id, QpState::Init).unwrap().access, Some(Access::REMOTE_WRITE));
    assert_eq!(initial_attr(QpType::Rc).access, Some(Access::empty()));
    assert_eq!(initial_attr(QpType::Ud).qkey, Some(RDMA_UDP_QKEY));
}
