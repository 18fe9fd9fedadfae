//! Retransmissions, timeouts and TIMEWAIT.

use softroce::cm::{Event, RejectReason, State};
use softroce::engine::QpType;
use softroce::ids::Qpn;
use softroce::wire::cm::{Body, CommId, Ids, Mra, Req};

use crate::side::*;

/// Returns multiples of an interval from `first` on.
fn every(ms: u64, count: u64, name: &'static str) -> Vec<(u64, &'static str)> {
    (1..=count).map(|n| (n * ms, name)).collect()
}

#[test]
fn req_is_repeated_15_times_then_the_peer_is_unreachable() {
    let (mut t, id) = Side::in_state(State::ReqSent);
    assert_eq!(t.run_until(200_000), every(4608, 15, "REQ"));
    assert_eq!(t.events_of(id), [Event::Unreachable { sent: 16 }]);
    assert_eq!((t.state(id), t.agent.poll_timeout()), (Some(State::Idle), None));
    assert_eq!(t.agent.counters().unreachable, 1);
    t.agent.destroy(t.now, id);
    assert!(t.agent.is_empty());
}

/// CM-09
#[test]
fn rep_is_repeated_byte_for_byte_then_the_peer_is_unreachable() {
    let mut t = Side::new();
    t.listen(QpType::Rc, 8);
    t.rx(Body::Req(Req { max_cm_retries: 3, ..req() }));
    let id = t.request();
    t.agent.accept(t.now, id, accept()).unwrap();
    let first = t.tx();
    t.now = t.agent.poll_timeout().unwrap();
    t.agent.handle_timeout(t.now);
    assert_eq!(t.tx().bytes, first.bytes);
    assert_eq!(t.run_until(100_000), [(8192, "REP"), (12_288, "REP")]);
    assert_eq!(t.events_of(id), [Event::Unreachable { sent: 4 }]);
    assert_eq!(t.state(id), Some(State::Idle));
}

#[test]
fn dreq_is_repeated_then_the_connection_is_over() {
    let (mut t, id) = Side::in_state(State::DreqSent);
    let (start, dreqs) = (t.now, t.run_until(4096 * 16));
    assert_eq!((start.as_nanos(), dreqs), (0, every(4096, 15, "DREQ")));
    assert_eq!(t.events_of(id), [Event::Disconnected { answered: false }]);
    assert_eq!(t.state(id), Some(State::Timewait));
    t.run_until(4096 * 16 + 2048);
    assert_eq!((t.events_of(id), t.state(id)), (vec![Event::TimewaitExit], Some(State::Idle)));
}

#[test]
fn early_repetitions_of_a_req_come_within_two_seconds() {
    let mut t = Side::with(|_| {});
    t.connect();
    let times: Vec<_> = t.run_until(10_000).into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [0, 500, 1000, 2000, 4608, 9216]);
}

/// CM-12
#[test]
fn mra_extends_the_timeout_by_its_service_timeout() {
    let (mut t, id) = Side::in_state(State::MraReqRcvd);
    // 65.536 s, and the ACK timeout of 512 ms.
    assert_eq!(t.run_until(200_000), every(66_048, 3, "REQ"));
    t.rx(Body::Rep(rep(id)));
    assert_eq!(t.state(id), Some(State::RepRcvd));

    let (mut t, id) = Side::in_state(State::RepSent);
    t.rx(Body::Mra(Mra { service_timeout: 20, ..mra(id, 1) }));
    // 4.096 s, and the ACK timeout of the REQ, 2.048 s.
    assert_eq!(t.run_until(13_000), every(6144, 2, "REP"));
    assert_eq!(t.state(id), Some(State::MraRepRcvd));
    t.rx(Body::Mra(mra(id, 1)));
    assert_eq!(t.run_until(19_000), [(18_432, "REP")], "a second MRA changes nothing");
}

#[test]
fn peers_timeouts_are_limited() {
    let mut t = Side::new();
    t.listen(QpType::Rc, 8);
    t.rx(Body::Req(Req { local_cm_timeout: 31, max_cm_retries: 1, ..req() }));
    let id = t.request();
    t.agent.accept(t.now, id, accept()).unwrap();
    t.rx(Body::Mra(Mra { service_timeout: 31, ..mra(id, 1) }));
    t.run_until(2 * 70_000);
    assert_eq!(t.events_of(id), [Event::Unreachable { sent: 2 }]);
}

#[test]
fn timewait_lasts_the_ack_timeout() {
    let (mut t, id) = Side::in_state(State::Timewait);
    t.run_until(2047);
    assert_eq!((t.state(id), t.events()), (Some(State::Timewait), vec![]));
    t.run_until(2048);
    assert_eq!((t.state(id), t.events_of(id)), (Some(State::Idle), vec![Event::TimewaitExit]));
    t.agent.destroy(t.now, id);
    assert_eq!(t.state(id), None);
}

#[test]
fn idle_connections_have_no_timers() {
    for state in [State::Established, State::RepRcvd, State::ReqRcvd, State::DreqRcvd] {
        let (t, _) = Side::in_state(state);
        assert_eq!(t.agent.poll_timeout(), None, "{state}");
    }
}

/// A day passes without a message and without an event.
#[test]
fn ten_thousand_idle_connections_have_no_timers() {
    let mut t = Side::new();
    t.listen(QpType::Rc, 8);
    for number in 1..=10_000 {
        let local_id = CommId(number);
        t.rx(Body::Req(Req { local_id, qpn: Qpn::new(0x100 + number), ..req() }));
        let id = t.request();
        t.agent.accept(t.now, id, accept()).unwrap();
        t.rx(Body::Rtu(Ids { local_id, ..ids(id) }));
        assert_eq!((t.events_of(id), t.names()), (vec![Event::Established], vec!["REP"]));
    }
    assert_eq!(t.agent.poll_timeout(), None);
    assert_eq!((t.run_until(24 * 3600 * 1000), t.events()), (vec![], vec![]));
}

#[test]
fn stale_rejection_leads_to_timewait() {
    let (mut t, id) = Side::in_state(State::ReqSent);
    t.rx(Body::Rej(rej(id, 0, 10)));
    let events = t.events_of(id);
    let is_stale = |event: &Event| matches!(event, Event::Rejected { reason, .. } if *reason == RejectReason::STALE_CONNECTION);
    assert!(matches!(&events[..], [event] if is_stale(event)), "{events:?}");
    assert_eq!(t.state(id), Some(State::Timewait));
    t.run_until(512);
    assert_eq!((t.state(id), t.events_of(id)), (Some(State::Idle), vec![Event::TimewaitExit]));
}

/// Thousands of timers that expire at once send no more than the queue holds, and none is lost.
#[test]
fn timers_that_expire_together_wait_for_room() {
    let mut t = Side::new();
    for _ in 0..3000 {
        t.connect();
    }
    assert_eq!(t.sent().len(), 3000);
    t.now = t.agent.poll_timeout().unwrap();
    let mut total = 0;
    for _ in 0..4 {
        t.agent.handle_timeout(t.now);
        let sent = t.sent().len();
        assert!(sent <= 1024, "{sent}");
        total += sent;
    }
    assert_eq!(total, 3000);
    assert!(t.agent.poll_timeout().is_some_and(|at| at > t.now));
}
