use super::*;
use crate::runtime::delayed_ack::ACK_DELAY;
use crate::runtime::wire_of_tests::{End, completion, pair, unacknowledged_pair};
use crate::sync::notify::Armed;
use crate::transport::work::{Completion, RemoteAddr, SendData, Sge, WcStatus};

const NOW: Instant = Instant::ZERO;

/// Makes `b` receive a message of `a` without acknowledging it.
fn message(a: &mut End, b: &mut End) {
    b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
    a.core.post_send(NOW, a.qpn, SendRequest::send(1, a.sge(8)).signaled(), Doorbell::Now).unwrap();
    assert_eq!(b.core.turn(NOW), PollOutcome::Work);
    assert_eq!((a.log(), b.log()), (vec!["tx 1".into()], vec!["rx".into()]));
}

#[test]
fn a_turn_transmits_first_and_receives_last() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    message(&mut a, &mut b);
    assert_eq!(b.ring.completions.pop().map(|c| c.wr_id), Some(7));
    assert_eq!(b.core.deadline(NOW), Some(NOW + MAX_ACK_DELAY));
    a.core
        .post_send(NOW, a.qpn, SendRequest::write(2, a.sge(8), b.remote()), Doorbell::Now)
        .unwrap();
    assert_eq!(b.core.turn(NOW), PollOutcome::Work);
    assert_eq!(b.log(), ["tx 1", "rx"]);
}

#[test]
fn an_acknowledgement_rides_in_a_reply_of_several_packets() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    message(&mut a, &mut b);
    a.core.post_recvs(NOW, a.qpn, [RecvRequest::new(8, a.sge(8192))]).1.unwrap();
    b.core.post_send(NOW, b.qpn, SendRequest::send(2, b.sge(8192)), Doorbell::Now).unwrap();
    assert_eq!(b.log(), ["tx 3"]);
    assert!(!b.core.has_pending_tx());
    assert_eq!(a.core.turn(NOW), PollOutcome::Work);
    let wr_ids = [8, 1].map(Some);
    assert_eq!([(); 2].map(|()| a.ring.completions.pop().map(|c| c.wr_id)), wr_ids);
}

#[test]
fn a_reply_of_one_packet_does_not_wait_for_the_acknowledgement() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    message(&mut a, &mut b);
    b.core
        .post_send(NOW, b.qpn, SendRequest::write(2, b.sge(64), a.remote()), Doorbell::Now)
        .unwrap();
    assert_eq!(b.log(), ["tx 1"]);
    assert!(b.core.has_pending_tx());
    b.core.turn(NOW);
    assert_eq!(b.log(), ["tx 1"]);
    assert!(!b.core.has_pending_tx());
}

#[test]
fn polling_responder_acknowledges_after_an_idle_poll() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    message(&mut a, &mut b);
    b.core
        .post_send(NOW, b.qpn, SendRequest::write(2, b.sge(64), a.remote()), Doorbell::Now)
        .unwrap();
    b.log();
    b.core.poll(NOW);
    assert_eq!((b.log().len(), b.core.has_pending_tx()), (0, true));
    b.core.poll(NOW + ACK_DELAY);
    assert_eq!((b.log(), b.core.has_pending_tx()), (vec!["tx 1".into()], false));
}

#[test]
fn polling_responder_acknowledges_many_messages_at_once() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 64);
    let mut sent = Vec::new();
    for wr_id in 0..32 {
        let ping = SendRequest::write(wr_id, SendData::inline(b"ping"), b.remote());
        a.core.post_send(NOW, a.qpn, ping, Doorbell::Now).unwrap();
        b.core.poll(NOW);
        let pong = SendRequest::write(wr_id, SendData::inline(b"pong"), a.remote());
        b.core.post_send(NOW, b.qpn, pong, Doorbell::Now).unwrap();
        b.core.poll(NOW);
        sent.push(b.log().iter().filter(|event| event.starts_with("tx")).count());
    }
    // The response alone; each sixteenth time with an acknowledgement behind it.
    let expected: Vec<_> = (1..=32).map(|n| if n % 16 == 0 { 2 } else { 1 }).collect();
    assert_eq!(sent, expected);
}

/// Returns the bursts that `b` has sent.
fn sent_by(b: &mut End) -> usize {
    b.log().iter().filter(|event| event.starts_with("tx")).count()
}

#[test]
fn acknowledgement_of_a_write_follows_the_response_or_leaves_after_the_delay() {
    type Turn = fn(&mut Core, Instant) -> PollOutcome;
    for turn in [Core::poll as Turn, Core::turn_of_thread] {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        let ping = |a: &mut End, b: &End, wr_id| {
            let ping = SendRequest::write(wr_id, SendData::inline(b"ping"), b.remote());
            a.core.post_send(NOW, a.qpn, ping, Doorbell::Now).unwrap();
        };
        ping(&mut a, &b, 1);
        turn(&mut b.core, NOW);
        turn(&mut b.core, NOW);
        assert_eq!(sent_by(&mut b), 0, "the acknowledgement waits");
        assert_eq!(b.core.deadline(NOW), Some(NOW + ACK_DELAY));
        let pong = SendRequest::write(1, SendData::inline(b"pong"), a.remote());
        b.core.post_send(NOW, b.qpn, pong, Doorbell::Now).unwrap();
        assert_eq!(sent_by(&mut b), 1, "the response");
        b.core.turn(NOW);
        assert_eq!((sent_by(&mut b), b.core.has_pending_tx()), (1, false));

        ping(&mut a, &b, 2);
        turn(&mut b.core, NOW);
        turn(&mut b.core, NOW + ACK_DELAY);
        assert_eq!(sent_by(&mut b), 1, "no response in time");
        ping(&mut a, &b, 3);
        turn(&mut b.core, NOW);
        turn(&mut b.core, NOW);
        assert_eq!(sent_by(&mut b), 1, "the next ones do not wait");
    }
}

#[test]
fn acknowledgement_that_does_not_wait_leaves_in_one_burst_with_the_response() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    let mut now = NOW;
    let mut exchange = |wr_id| {
        let ping = SendRequest::write(wr_id, SendData::inline(b"ping"), b.remote()).signaled();
        a.core.post_send(now, a.qpn, ping, Doorbell::Now).unwrap();
        b.core.poll(now);
        let pong = SendRequest::write(wr_id, SendData::inline(b"pong"), a.remote());
        b.core.post_send(now, b.qpn, pong, Doorbell::Now).unwrap();
        let sent: Vec<_> = b.log().into_iter().filter(|event| event.starts_with("tx")).collect();
        // The peer goes on only after the acknowledgement.
        for _ in 0..4 {
            now += ACK_DELAY;
            b.core.poll(now);
            a.core.turn(now);
        }
        b.log();
        assert_eq!(a.ring.completions.pop().map(|c| c.wr_id), Some(wr_id));
        sent
    };
    assert_eq!(exchange(0), ["tx 1"], "the acknowledgement waits");
    for wr_id in 1..=64 {
        assert_eq!(exchange(wr_id), ["tx 2"], "exchange {wr_id}");
    }
    assert_eq!(exchange(65), ["tx 1"], "another attempt to wait");
}

#[test]
fn polling_receiver_of_a_stream_acknowledges_four_messages_at_once() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 64);
    let mut sent = Vec::new();
    for wr_id in 0..9 {
        b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(wr_id, b.sge(64))]).1.unwrap();
        let send = SendRequest::send(wr_id, a.sge(8)).signaled();
        a.core.post_send(NOW, a.qpn, send, Doorbell::Now).unwrap();
        b.core.poll(NOW);
        b.core.poll(NOW);
        sent.push(sent_by(&mut b));
    }
    assert_eq!(sent, [1, 0, 0, 0, 1, 0, 0, 0, 1], "the first is no stream yet");
    let completions = std::iter::from_fn(|| {
        a.core.turn(NOW);
        a.ring.completions.pop()
    });
    assert!(completions.map(|completion| completion.wr_id).eq(0..9));
}

#[test]
fn writes_of_a_stream_are_acknowledged_four_at_once_if_no_response_comes() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 64);
    let write = |a: &mut End, b: &End, wr_id| {
        let write = SendRequest::write(wr_id, a.sge(8), b.remote()).signaled();
        a.core.post_send(NOW, a.qpn, write, Doorbell::Now).unwrap();
    };
    write(&mut a, &b, 0);
    b.core.poll(NOW);
    let now = NOW + ACK_DELAY;
    b.core.poll(now);
    assert_eq!(sent_by(&mut b), 1, "no response in time");
    let sent = (1..10).map(|wr_id| {
        write(&mut a, &b, wr_id);
        b.core.poll(now);
        b.core.poll(now);
        sent_by(&mut b)
    });
    let sent: Vec<_> = sent.collect();
    assert_eq!(sent, [1, 0, 0, 0, 1, 0, 0, 0, 1], "the first is no stream yet");
    let completions = std::iter::from_fn(|| {
        a.core.turn(now);
        a.ring.completions.pop()
    });
    assert!(completions.map(|completion| completion.wr_id).eq(0..10));
}

/// A program that stops to poll leaves the acknowledgement to the device's thread.
#[test]
fn acknowledgement_of_a_stream_leaves_after_the_delay() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    for wr_id in 0..2 {
        b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(wr_id, b.sge(64))]).1.unwrap();
        a.core.post_send(NOW, a.qpn, SendRequest::send(wr_id, a.sge(8)), Doorbell::Now).unwrap();
        b.core.poll(NOW);
        b.core.poll(NOW);
    }
    assert_eq!((sent_by(&mut b), b.core.has_pending_tx()), (1, true), "that of the first");
    b.core.poll(NOW + ACK_DELAY);
    assert_eq!((sent_by(&mut b), b.core.has_pending_tx()), (1, false));
    for turn in [Core::turn_of_thread, Core::turn] {
        b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(9, b.sge(64))]).1.unwrap();
        a.core.post_send(NOW, a.qpn, SendRequest::send(9, a.sge(8)), Doorbell::Now).unwrap();
        b.core.poll(NOW);
        turn(&mut b.core, NOW);
        assert_eq!(sent_by(&mut b), 1);
    }
}

#[test]
fn only_the_thread_delays_the_acknowledgement_of_a_send() {
    type Turn = fn(&mut Core, Instant) -> PollOutcome;
    for (turn, expected) in [(Core::poll as Turn, 1), (Core::turn_of_thread, 0), (Core::turn, 1)] {
        let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
        b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
        a.core.post_send(NOW, a.qpn, SendRequest::send(1, a.sge(8)), Doorbell::Now).unwrap();
        turn(&mut b.core, NOW);
        turn(&mut b.core, NOW);
        assert_eq!(sent_by(&mut b), expected);
    }
}

#[test]
fn when_that_is_asked_for_the_acknowledgement_comes_first() {
    let (mut a, mut b) = pair(AckPolicy::BeforeCompletion, 16);
    b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
    a.core.post_send(NOW, a.qpn, SendRequest::send(1, a.sge(8)), Doorbell::Now).unwrap();
    b.core.turn(NOW);
    assert_eq!(b.log(), ["rx", "tx 1"]);
    assert!(!b.core.has_pending_tx());
}

#[test]
fn announcement_follows_the_acknowledgement() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    b.ring.arm(Armed::Any);
    b.core.post_recvs(NOW, b.qpn, [RecvRequest::new(7, b.sge(64))]).1.unwrap();
    a.core.post_send(NOW, a.qpn, SendRequest::send(1, a.sge(8)), Doorbell::Now).unwrap();
    b.core.turn(NOW);
    assert_eq!(b.log(), ["rx", "tx 1"]);
    b.announce();
    assert_eq!(b.log(), ["announce"]);
}

/// Posts WRITEs of 8 bytes as a program that polls does.
fn post_between_polls(a: &mut End, b: &End, wr_ids: std::ops::RangeInclusive<u64>) {
    for wr_id in wr_ids {
        let write = SendRequest::write(wr_id, a.sge(8), b.remote()).signaled();
        a.core.post_send(NOW, a.qpn, write, Doorbell::MayWait).unwrap();
    }
}

#[test]
fn requests_behind_the_first_leave_together_with_the_next_poll() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    post_between_polls(&mut a, &b, 1..=5);
    assert_eq!((a.log(), a.core.has_pending_tx()), (vec!["tx 1".into()], true));
    assert_eq!(a.core.poll(NOW), PollOutcome::Work);
    assert_eq!((a.log(), a.core.has_pending_tx()), (vec!["tx 4".into()], false));
    for _ in 0..4 {
        b.core.turn(NOW);
        a.core.poll(NOW);
    }
    let done: Vec<_> = std::iter::from_fn(|| a.ring.completions.pop()).collect();
    assert_eq!(done.iter().map(|done| done.wr_id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[test]
fn requests_of_a_full_burst_leave_without_a_poll() {
    let (mut a, b) = pair(AckPolicy::Lazy, 64);
    post_between_polls(&mut a, &b, 1..=33);
    assert_eq!((a.log(), a.core.has_pending_tx()), (vec!["tx 1".into(), "tx 32".into()], false));
}

#[test]
fn requests_that_wait_leave_before_their_queue_pair_changes() {
    let (mut a, b) = pair(AckPolicy::Lazy, 16);
    post_between_polls(&mut a, &b, 1..=3);
    a.core.modify_qp(NOW, a.qpn, &QpAttr::to(QpState::Sqd)).unwrap();
    assert_eq!(a.log(), ["tx 1", "tx 2"]);
    let (mut a, b) = pair(AckPolicy::Lazy, 16);
    post_between_polls(&mut a, &b, 1..=3);
    a.core.destroy_qp(NOW, a.qpn);
    assert_eq!(a.log(), ["tx 1", "tx 2"]);
}

#[test]
fn requests_that_wait_give_a_turn_a_deadline() {
    let (mut a, b) = pair(AckPolicy::Lazy, 16);
    post_between_polls(&mut a, &b, 1..=3);
    assert_eq!(a.core.deadline(NOW), Some(NOW + MAX_ACK_DELAY));
}

#[test]
fn a_queue_pair_acknowledges_before_it_is_destroyed() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    message(&mut a, &mut b);
    b.core.destroy_qp(NOW, b.qpn);
    assert_eq!(b.log(), ["tx 1"]);
}

#[test]
fn a_queue_pair_acknowledges_before_it_is_stopped() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    message(&mut a, &mut b);
    b.core.modify_qp(NOW, b.qpn, &QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(b.log(), ["tx 1"]);
}

#[test]
fn reset_removes_completions_of_the_queue_pair() {
    let (mut a, _b) = pair(AckPolicy::Lazy, 16);
    a.core.post_recvs(NOW, a.qpn, [RecvRequest::new(7, a.sge(8))]).1.unwrap();
    a.core.modify_qp(NOW, a.qpn, &QpAttr::to(QpState::Err)).unwrap();
    let other = Completion { qpn: Qpn::new(9), ..completion(false) };
    let _ = a.ring.put(NOW, [other].into_iter());
    a.core.modify_qp(NOW, a.qpn, &QpAttr::to(QpState::Reset)).unwrap();
    let left: Vec<_> = std::iter::from_fn(|| a.ring.completions.pop()).collect();
    assert_eq!(left.iter().map(|left| left.completion).collect::<Vec<_>>(), [other]);
}

#[test]
fn bursts_of_a_busy_port_are_sent_first_and_in_order() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    a.wire.lock().unwrap().busy = true;
    for wr_id in 1..=3 {
        let write = SendRequest::write(wr_id, SendData::inline(b"x"), b.remote()).signaled();
        a.core.post_send(NOW, a.qpn, write, Doorbell::Now).unwrap();
    }
    assert_eq!((a.log().len(), a.core.has_pending_tx()), (0, true));
    a.wire.lock().unwrap().busy = false;
    a.core.turn(NOW);
    // The first was built before the others existed.
    assert_eq!(a.log(), ["tx 1", "tx 2"]);
    for _ in 0..4 {
        b.core.turn(NOW);
        a.core.turn(NOW);
    }
    let ends: Vec<_> = std::iter::from_fn(|| a.ring.completions.pop()).collect();
    let ends: Vec<_> = ends.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(ends, [1, 2, 3].map(|wr_id| (wr_id, WcStatus::Success)));
}

#[test]
fn a_busy_port_is_no_work_and_is_asked_again_at_its_time() {
    let (mut a, b) = pair(AckPolicy::Lazy, 16);
    let (retry_at, write) = (NOW + 4 * MAX_ACK_DELAY, SendRequest::write(1, a.sge(8), b.remote()));
    let mut wire = a.wire.lock().unwrap();
    (wire.busy, wire.retry_at) = (true, Some(retry_at));
    drop(wire);
    a.core.post_send(NOW, a.qpn, write, Doorbell::Now).unwrap();
    assert_eq!((a.core.turn(NOW), a.core.has_pending_tx()), (PollOutcome::Nothing, true));
    assert_eq!(a.core.deadline(NOW), Some(retry_at));
    let mut wire = a.wire.lock().unwrap();
    (wire.busy, wire.retry_at) = (false, None);
    drop(wire);
    assert_eq!((a.core.turn(retry_at), a.log()), (PollOutcome::Work, vec!["tx 1".into()]));
}

#[test]
fn a_refused_burst_is_told_and_the_next_one_goes() {
    let (mut a, b) = pair(AckPolicy::Lazy, 16);
    a.wire.lock().unwrap().busy = true;
    for wr_id in 1..=2 {
        let write = SendRequest::write(wr_id, SendData::inline(b"x"), b.remote());
        a.core.post_send(NOW, a.qpn, write, Doorbell::Now).unwrap();
    }
    let mut wire = a.wire.lock().unwrap();
    (wire.busy, wire.refuses) = (false, Some(TransmitErrorKind::Unreachable));
    drop(wire);
    a.core.turn(NOW);
    assert_eq!(a.log(), ["tx 1"]);
    assert_eq!(a.core.engine.counters().transmit_errors, 1);
}

#[test]
fn a_completion_queue_that_is_full_is_told_once() {
    let (mut a, b) = pair(AckPolicy::Lazy, 1);
    for wr_id in 1..=3 {
        let bad = SendRequest::write(wr_id, Sge { length: 8, ..Sge::default() }, b.remote());
        a.core.post_send(NOW, a.qpn, bad, Doorbell::Now).unwrap();
    }
    a.core.turn(NOW);
    assert_eq!(a.ring.completions.pop().map(|c| c.status), Some(WcStatus::LocProtErr));
    assert_eq!(a.ring.completions.pop(), None);
    assert_eq!(a.events.pop(), Some(AsyncEvent::CqErr(a.cq)));
    assert_eq!(a.events.pop(), None);
}

#[test]
fn sender_of_unacknowledged_bursts_receives_between_posts() {
    let (mut a, mut b) = unacknowledged_pair(16);
    a.core.post_recvs(NOW, a.qpn, [RecvRequest::new(7, a.sge(64))]).1.unwrap();
    b.core.post_send(NOW, b.qpn, SendRequest::send(1, b.sge(8)), Doorbell::Now).unwrap();
    for wr_id in 0..BURSTS_PER_BATCH {
        assert_eq!(a.ring.completions.pop().map(|c| c.wr_id), None);
        let send = SendRequest::send(wr_id as u64, a.sge(8));
        a.core.post_send(NOW, a.qpn, send, Doorbell::Now).unwrap();
    }
    assert_eq!(a.log(), ["tx 1", "tx 1", "tx 1", "tx 1", "rx"]);
    assert_eq!(a.ring.completions.pop().map(|c| c.wr_id), Some(7));
}

#[test]
fn sender_of_acknowledged_bursts_receives_in_turns_only() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    b.core
        .post_send(NOW, b.qpn, SendRequest::write(1, b.sge(8), a.remote()), Doorbell::Now)
        .unwrap();
    for _ in 0..2 * BURSTS_PER_BATCH {
        let write = SendRequest::write(1, a.sge(8), b.remote());
        a.core.post_send(NOW, a.qpn, write, Doorbell::Now).unwrap();
    }
    assert_eq!(a.log(), ["tx 1"; 2 * BURSTS_PER_BATCH]);
}

#[test]
fn a_long_message_is_sent_over_several_turns() {
    let (mut a, mut b) = pair(AckPolicy::Lazy, 16);
    let to = b.region.addr();
    a.core.engine.set_peer_receive_buffer(NOW, [10, 255, 0, 2].into(), 8 << 20);
    let write = SendRequest::write(1, a.sge(1 << 20), RemoteAddr { addr: to, ..b.remote() });
    a.core.post_send(NOW, a.qpn, write.signaled(), Doorbell::Now).unwrap();
    let first = a.log().len();
    assert!(first <= MAX_TX_BURSTS, "{first} bursts under one lock");
    assert_eq!(a.core.deadline(NOW), Some(NOW), "there is more to send");
    for _ in 0..1000 {
        a.core.turn(NOW);
        b.core.turn(NOW);
    }
    assert_eq!(a.ring.completions.pop().map(|c| c.status), Some(WcStatus::Success));
}
