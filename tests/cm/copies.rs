//! Messages that arrive again.

use softroce::cm::{Event, RejectReason, State};
use softroce::wire::cm::{Body, Ids};

use crate::side::*;

/// CM-10
#[test]
fn copy_of_a_req_makes_no_second_connection() {
    let (mut t, id) = Side::in_state(State::ReqRcvd);
    t.rx(Body::Req(req()));
    let Body::Mra(mra) = t.tx().body() else { panic!() };
    let found = (mra.local_id, mra.remote_id, mra.message, mra.service_timeout);
    assert_eq!(found, (id.0, PEER_ID, 0, 24));
    for state in
        [State::RepSent, State::MraRepRcvd, State::Established, State::DreqSent, State::DreqRcvd]
    {
        let (mut t, id) = Side::in_state(state);
        t.rx(Body::Req(req()));
        assert_eq!((t.names(), t.events(), t.state(id)), (vec![], vec![], Some(state)));
        assert_eq!(t.agent.counters().duplicates, 1, "{state}");
    }
}

#[test]
fn copy_of_a_req_in_timewait_is_rejected_as_stale() {
    let (mut t, id) = Side::in_state(State::Timewait);
    t.rx(Body::Req(req()));
    let Body::Rej(rej) = t.tx().body() else { panic!() };
    let found = (rej.local_id, rej.remote_id, RejectReason(rej.reason));
    assert_eq!(found, (id.0, PEER_ID, RejectReason::STALE_CONNECTION));
    assert_eq!(t.state(id), Some(State::Timewait));
}

/// CM-09
#[test]
fn copy_of_a_rep_is_answered_by_the_rtu_again() {
    let (mut t, id) = Side::in_state(State::RepRcvd);
    t.rx(Body::Rep(rep(id)));
    let Body::Mra(mra) = t.tx().body() else { panic!() };
    assert_eq!((mra.message, mra.service_timeout, mra.remote_id), (1, 24, PEER_ID));
    t.agent.establish(t.now, id).unwrap();
    let first = t.tx();
    t.rx(Body::Rep(rep(id)));
    let second = t.tx();
    assert_eq!(first.bytes, second.bytes);
    assert_eq!(second.body(), Body::Rtu(Ids { local_id: id.0, remote_id: PEER_ID }));
    assert_eq!(t.events(), []);
}

#[test]
fn copy_of_a_dreq_is_answered_once_the_consumer_has_disconnected() {
    let (mut t, id) = Side::in_state(State::DreqRcvd);
    t.rx(Body::Dreq(dreq(id)));
    assert_eq!((t.names(), t.events()), (vec![], vec![]), "the consumer has not answered");
    t.agent.disconnect(t.now, id).unwrap();
    assert_eq!(t.names(), ["DREP"]);
    t.rx(Body::Dreq(dreq(id)));
    assert_eq!((t.names(), t.state(id)), (vec!["DREP"], Some(State::Timewait)));
    // Long afterwards too, when the id is forgotten.
    t.agent.destroy(t.now, id);
    t.run_until(60_000);
    t.rx(Body::Dreq(dreq(id)));
    let sent = t.tx();
    let expected = Ids { local_id: id.0, remote_id: PEER_ID };
    assert_eq!((sent.body(), sent.message().transaction_id), (Body::Drep(expected), TRANSACTION));
    assert_eq!(t.agent.ids(), 1, "the listener");
}

#[test]
fn copies_of_drep_and_rej_report_nothing() {
    let (mut t, id) = Side::in_state(State::DreqSent);
    t.rx(Body::Drep(ids(id)));
    assert_eq!(t.events_of(id), [Event::Disconnected { answered: true }]);
    t.rx(Body::Drep(ids(id)));
    t.rx(Body::Rej(rej(id, 2, 28)));
    assert_eq!((t.events(), t.names()), (vec![], vec![]));
    let (mut t, id) = Side::in_state(State::ReqSent);
    t.rx(Body::Rej(rej(id, 0, 28)));
    assert_eq!(t.events_of(id).len(), 1);
    t.rx(Body::Rej(rej(id, 0, 28)));
    assert_eq!(t.events(), []);
}
