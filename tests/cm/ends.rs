//! Rejections, disconnections, and ids that are destroyed in every state.

use softroce::cm::{Error, Event, Reject, RejectReason, State};
use softroce::engine::QpType;
use softroce::wire::cm::{Body, Dreq, Ids, Rej};

use crate::side::*;

const DISCONNECTED: Event = Event::Disconnected { answered: true };

/// CM-14, CM-08
#[test]
fn disconnection_ends_in_timewait_on_the_side_that_asks() {
    let (mut t, id) = Side::in_state(State::Established);
    t.agent.disconnect(t.now, id).unwrap();
    let sent = t.tx();
    let expected = Dreq { local_id: id.0, remote_id: PEER_ID, remote_qpn: PEER_QPN };
    assert_eq!((sent.body(), t.state(id)), (Body::Dreq(expected), Some(State::DreqSent)));
    t.agent.disconnect(t.now, id).unwrap();
    assert_eq!(t.names(), [""; 0], "once");
    t.rx(Body::Drep(ids(id)));
    assert_eq!((t.events_of(id), t.state(id)), (vec![DISCONNECTED], Some(State::Timewait)));
    t.agent.disconnect(t.now, id).unwrap();
    assert_eq!(t.names(), [""; 0]);
}

/// Copies of the peer's DREQ that arrive after the process has ended have no answer. Linux sends one every 4.3 s, longer than
/// TIMEWAIT lasts.
#[test]
fn dreps_of_the_last_seconds_are_sent_again_at_the_end_of_the_process() {
    for (end, expected) in [(0, 2), (10_000, 2), (10_001, 0)] {
        let (mut t, id) = Side::in_state(State::DreqRcvd);
        assert!(!t.agent.has_confirmations());
        t.agent.destroy(t.now, id);
        let first = t.tx();
        let start = t.now.as_nanos() / 1_000_000;
        t.run_until(start + end);
        assert_eq!((t.state(id), t.agent.has_confirmations()), (None, true));
        t.agent.repeat_last_messages(t.now);
        let sent: Vec<_> = std::iter::from_fn(|| t.agent.poll_mad(t.now)).collect();
        assert_eq!(sent.len(), expected, "{end} ms later");
        assert!(sent.iter().all(|mad| *mad.bytes == *first.bytes));
        t.agent.repeat_last_messages(t.now);
        assert_eq!((t.names(), t.agent.has_confirmations()), (vec![], false), "once");
    }
}

/// No thread repeats a message after the end of the process.
#[test]
fn last_messages_of_a_process_are_sent_twice() {
    let states = [(State::Established, "DREQ"), (State::ReqRcvd, "REJ"), (State::ReqSent, "REJ")];
    for (state, name) in states {
        let (mut t, _) = Side::in_state(state);
        t.agent.destroy_all(t.now);
        t.agent.repeat_last_messages(t.now);
        assert_eq!(t.names(), [name; 2], "{state}");
    }
}

#[test]
fn memory_for_dreps_is_bounded() {
    let (mut t, id) = Side::in_state(State::DreqRcvd);
    t.agent.disconnect(t.now, id).unwrap();
    t.tx();
    for _ in 0..2000 {
        t.rx(Body::Dreq(dreq(id)));
        assert_eq!(t.names(), ["DREP"]);
    }
    t.agent.repeat_last_messages(t.now);
    assert_eq!(t.names().len(), 2 * 1024);
}

/// CM-14, CM-08
#[test]
fn disconnection_waits_for_the_consumer_on_the_side_that_is_asked() {
    for state in [State::RepSent, State::MraRepRcvd, State::Established] {
        let (mut t, id) = Side::in_state(state);
        t.rx(Body::Dreq(dreq(id)));
        assert_eq!((t.names(), t.events_of(id)), (vec![], vec![DISCONNECTED]), "{state}");
        assert_eq!((t.state(id), t.agent.poll_timeout()), (Some(State::DreqRcvd), None));
        t.agent.disconnect(t.now, id).unwrap();
        let sent = t.tx();
        let expected = Ids { local_id: id.0, remote_id: PEER_ID };
        assert_eq!(
            (sent.body(), sent.message().transaction_id),
            (Body::Drep(expected), TRANSACTION)
        );
        assert_eq!(t.state(id), Some(State::Timewait));
    }
}

#[test]
fn both_sides_may_disconnect_at_once() {
    let (mut t, id) = Side::in_state(State::DreqSent);
    t.rx(Body::Dreq(dreq(id)));
    assert_eq!((t.state(id), t.events_of(id)), (Some(State::DreqRcvd), vec![DISCONNECTED]));
    t.rx(Body::Drep(ids(id)));
    assert_eq!((t.state(id), t.events()), (Some(State::Timewait), vec![]), "one DREP is enough");
}

/// CM-13
#[test]
fn consumers_rejection_has_reason_28_and_private_data() {
    let (mut t, id) = Side::in_state(State::ReqRcvd);
    t.agent.reject(t.now, id, Reject::consumer(b"not now")).unwrap();
    let sent = t.tx();
    let Body::Rej(rej) = sent.body() else { panic!() };
    let found = (rej.local_id, rej.remote_id, rej.message, rej.reason);
    assert_eq!(found, (id.0, PEER_ID, 0, 28));
    assert!(sent.message().private_data.starts_with(b"not now\0"));
    assert_eq!((t.state(id), sent.message().transaction_id), (Some(State::Idle), TRANSACTION));

    let (mut t, id) = Side::in_state(State::ReqSent);
    t.rx(Body::Rej(rej_with_info(id)));
    let events = t.events_of(id);
    let [Event::Rejected { reason, info, private_data }] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((*reason, info.as_slice()), (RejectReason::CONSUMER, &[1, 2, 3][..]));
    assert_eq!(private_data.len(), Rej::PRIVATE_DATA);
    assert!(private_data.starts_with(b"from the peer\0"));
    assert_eq!(reason.to_string(), "the consumer's decision (28)");
    assert_eq!(t.state(id), Some(State::Idle));
}

fn rej_with_info(id: softroce::cm::ConnId) -> Rej {
    rej(id, 0, 28).with_info(&[1, 2, 3])
}

#[test]
fn rejection_is_possible_until_the_connection_is_established() {
    for (state, of, then) in [
        (State::ReqSent, 2, State::Idle),
        (State::MraReqRcvd, 2, State::Idle),
        (State::RepRcvd, 1, State::Idle),
        (State::ReqRcvd, 0, State::Idle),
        (State::RepSent, 2, State::Timewait),
        (State::MraRepRcvd, 2, State::Timewait),
    ] {
        let (mut t, id) = Side::in_state(state);
        t.agent.reject(t.now, id, Reject::consumer(&[])).unwrap();
        let Body::Rej(rej) = t.tx().body() else { panic!() };
        assert_eq!((rej.message, t.state(id)), (of, Some(then)), "{state}");
        let again = t.agent.reject(t.now, id, Reject::consumer(&[]));
        assert!(matches!(again, Err(Error::State { .. })));
    }
    for found in [State::Established, State::DreqSent, State::DreqRcvd, State::Timewait] {
        let (mut t, id) = Side::in_state(found);
        let needed = "a state before ESTABLISHED";
        let refused = t.agent.reject(t.now, id, Reject::consumer(&[]));
        assert_eq!((refused, t.names()), (Err(Error::State { found, needed }), vec![]));
    }
}

#[test]
fn rej_ends_a_connection_in_every_state() {
    for (state, then) in [
        (State::MraReqRcvd, State::Idle),
        (State::ReqRcvd, State::Idle),
        (State::RepSent, State::Idle),
        (State::MraRepRcvd, State::Idle),
        (State::RepRcvd, State::Timewait),
        (State::Established, State::Timewait),
        (State::DreqSent, State::Timewait),
    ] {
        let (mut t, id) = Side::in_state(state);
        // Before the REP, only a REJ of the REQ is known to be from the peer.
        t.rx(Body::Rej(rej(id, if state == State::MraReqRcvd { 0 } else { 2 }, 28)));
        let events = t.events_of(id);
        assert!(matches!(&events[..], [Event::Rejected { .. }]), "{state}: {events:?}");
        assert_eq!((t.state(id), t.names()), (Some(then), vec![]), "{state}");
        assert_eq!(t.agent.poll_timeout().is_some(), then == State::Timewait);
    }
}

/// A peer that gives up its REQ does not know our id yet.
#[test]
fn rej_for_a_timeout_finds_its_connection_by_guid() {
    let (mut t, id) = Side::in_state(State::ReqRcvd);
    let gave_up = Rej { remote_id: softroce::cm::CommId(0), ..rej(id, 2, 4) };
    t.rx(Body::Rej(gave_up.with_info(&PEER_GUID.0.to_be_bytes())));
    let events = t.events_of(id);
    let [Event::Rejected { reason, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(*reason, RejectReason::TIMEOUT);
}

/// Destroying an id tells the peer in every state, and leaves nothing.
#[test]
fn destroyed_id_ends_with_the_message_of_its_state() {
    for (state, messages) in [
        (State::ReqSent, &["REJ"][..]),
        (State::MraReqRcvd, &["REJ"]),
        (State::RepRcvd, &["REJ"]),
        (State::ReqRcvd, &["REJ"]),
        (State::RepSent, &["REJ"]),
        (State::MraRepRcvd, &["REJ"]),
        (State::Established, &["DREQ"]),
        (State::DreqSent, &[]),
        (State::DreqRcvd, &["DREP"]),
        (State::Timewait, &[]),
    ] {
        let (mut t, id) = Side::in_state(state);
        t.agent.destroy(t.now, id);
        let sent = t.sent();
        assert_eq!(sent.iter().map(|sent| sent.body().name()).collect::<Vec<_>>(), messages);
        if let Some(Body::Rej(rej)) = sent.first().map(Sent::body) {
            let gave_up = matches!(state, State::ReqSent | State::MraReqRcvd);
            let (reason, info) =
                if gave_up { (4, GUID.0.to_be_bytes().to_vec()) } else { (28, vec![]) };
            assert_eq!((rej.reason, rej.info.used(rej.info_len)), (reason, info.as_slice()));
        }
        assert_eq!(t.state(id), None, "{state}");
        assert_eq!(t.agent.disconnect(t.now, id), Err(Error::UnknownId(id)));
        t.run_until(100_000);
        assert_eq!(t.events(), [], "{state}");
        // The listener is all that is left.
        let listeners = t.agent.ids();
        assert!(listeners <= 1 && t.agent.poll_timeout().is_none(), "{state}");
    }
}

#[test]
fn destroyed_connection_answers_the_dreq_of_the_peer() {
    let (mut t, id) = Side::in_state(State::Established);
    t.agent.destroy(t.now, id);
    assert_eq!(t.names(), ["DREQ"]);
    t.rx(Body::Dreq(dreq(id)));
    assert_eq!((t.names(), t.events()), (vec!["DREP"], vec![]));
}

#[test]
fn destroyed_connection_repeats_its_dreq_for_one_interval() {
    let mut t = Side::with(|_| {});
    t.listen(QpType::Rc, 8);
    t.rx(Body::Req(req()));
    let id = t.request();
    t.agent.accept(t.now, id, accept()).unwrap();
    t.rx(Body::Rtu(ids(id)));
    t.names();
    t.agent.destroy(t.now, id);
    let dreqs: Vec<_> = t
        .run_until(100_000)
        .into_iter()
        .map(|(at, name)| {
            assert_eq!(name, "DREQ");
            at
        })
        .collect();
    assert_eq!(dreqs, [0, 500, 1000, 2000]);
    assert_eq!((t.events(), t.agent.ids()), (vec![], 1));
}

#[test]
fn destroyed_listener_rejects_requests_without_an_event_only() {
    let mut t = Side::new();
    let listener = t.listen(QpType::Rc, 8);
    t.rx(Body::Req(req()));
    let id = t.request();
    let second = softroce::wire::cm::Req {
        local_id: softroce::cm::CommId(5),
        qpn: softroce::ids::Qpn::new(5),
        ..req()
    };
    t.rx(Body::Req(second));
    t.agent.destroy(t.now, listener);
    let Body::Rej(rej) = t.tx().body() else { panic!() };
    assert_eq!((rej.remote_id, rej.reason), (softroce::cm::CommId(5), 28));
    assert_eq!((t.events(), t.state(id), t.state(listener)), (vec![], Some(State::ReqRcvd), None));
    t.agent.accept(t.now, id, accept()).unwrap();
    t.agent.destroy(t.now, id);
    t.run_until(10_000);
    assert_eq!(t.events(), []);
    assert!(t.agent.is_empty());
}

#[test]
fn end_of_the_process_tells_every_peer() {
    let (mut t, _) = Side::in_state(State::Established);
    t.connect();
    t.rx(Body::Req(softroce::wire::cm::Req {
        local_id: softroce::cm::CommId(5),
        qpn: softroce::ids::Qpn::new(5),
        ..req()
    }));
    t.names();
    t.agent.destroy_all(t.now);
    let mut names = t.names();
    names.sort_unstable();
    assert_eq!(names, ["DREQ", "REJ", "REJ"]);
    t.run_until(10_000);
    assert_eq!(t.events(), []);
    assert!(t.agent.is_empty());
}
