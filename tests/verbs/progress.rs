//! Progress of devices independent of their programs, and wake-ups of waiting threads.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use softroce::port::{Direction, Sink, wait_readable};
use softroce::time::Instant;
use softroce::verbs::*;
use softroce::wire::encap::parse_ip;
use softroce::wire::{Datagram, Operation};

use crate::node::{MEMORY_BYTES, Node, WAIT_LIMIT, open, open_with, single_attempt};
use crate::within::found;

#[test]
fn side_that_never_polls_serves_writes_and_reads() {
    let (a, b) = Node::pair();
    let half = MEMORY_BYTES / 2;
    for seed in 0..10 {
        let sent = a.fill(0, half, seed);
        a.run(SendRequest::write(1, a.mr.sge(..half), b.mr.remote(half)));
        a.run(SendRequest::read(2, a.mr.sge(half..), b.mr.remote(half)));
        assert!(a.bytes(half, half) == sent);
    }
}

#[test]
fn side_that_stops_polling_serves_writes_and_reads() {
    let (a, b) = Node::pair();
    for seed in 0..50 {
        b.recv(7, 0..64);
        a.run(SendRequest::send(1, a.mr.sge(..8)));
        found("the message", || b.cq.poll_one());
        let sent = a.fill(0, 1000, seed);
        a.run(SendRequest::write(1, a.mr.sge(..1000), b.mr.remote(1000)));
        assert_eq!(b.bytes(1000, 1000), sent);
    }
}

/// Returns two nodes, of which the second has a completion channel.
fn announced_pair() -> (Node, Node, CompletionChannel) {
    let ctx = open();
    let channel = ctx.create_channel().unwrap();
    let cq = ctx.create_cq(256, Some(&channel)).unwrap();
    let (a, b) = (Node::on(open()), Node::with_cq(ctx, cq));
    a.connect(&b, &ConnectOptions::default());
    (a, b, channel)
}

#[test]
fn waiting_thread_wakes_while_the_peer_writes() {
    let (a, b, channel) = announced_pair();
    for i in 0..100 {
        b.recv(i, 0..64);
    }
    let target = b.mr.remote(0);
    let waiter = thread::Builder::new().spawn(move || {
        let mut completions = Vec::new();
        while completions.len() < 100 {
            b.cq.req_notify(false);
            if b.cq.poll(&mut completions, 16) == 0 {
                assert!(channel.wait(WAIT_LIMIT).unwrap() == b.cq);
            }
        }
        completions
    });
    for i in 0..100 {
        let write = SendRequest::write_imm(u64::from(i), a.mr.sge(..5000), target, i);
        a.run(write);
    }
    let imms: Vec<_> = waiter.unwrap().join().unwrap().iter().map(|c| c.imm).collect();
    assert_eq!(imms, (0..100).map(Some).collect::<Vec<_>>());
}

#[test]
fn solicited_only_arming_ignores_other_completions() {
    let (a, b, channel) = announced_pair();
    for i in 0..3 {
        b.recv(i, 0..64);
    }
    b.cq.req_notify(true);
    a.run(SendRequest::send(1, SendData::inline(b"quiet")));
    assert_eq!(b.end(), (0, WcStatus::Success));
    let error = channel.wait(Duration::ZERO).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    a.run(SendRequest::send(2, SendData::inline(b"loud")).solicited());
    assert!(channel.wait(WAIT_LIMIT).unwrap() == b.cq);
    assert_eq!(b.end(), (1, WcStatus::Success));
    // Each arming causes one announcement.
    a.run(SendRequest::send(3, SendData::inline(b"loud")).solicited());
    assert_eq!(b.end(), (2, WcStatus::Success));
    assert!(channel.wait(Duration::ZERO).is_err());
}

#[test]
fn error_completion_counts_as_solicited() {
    let (a, b, channel) = announced_pair();
    b.recv(1, 0..64);
    b.cq.req_notify(true);
    a.send(SendRequest::send(1, a.mr.sge(..65)));
    channel.wait(WAIT_LIMIT).unwrap();
    assert_eq!(b.end(), (1, WcStatus::LocLenErr));
}

#[test]
fn arming_for_all_overrides_solicited_only() {
    let (a, b, channel) = announced_pair();
    b.recv(1, 0..64);
    b.cq.req_notify(false);
    b.cq.req_notify(true);
    a.run(SendRequest::send(1, SendData::inline(b"quiet")));
    channel.wait(WAIT_LIMIT).unwrap();
}

/// A program polls, arms the queue and sleeps, and a message comes in between.
#[test]
fn arming_announces_completions_since_the_last_poll() {
    let (a, b, channel) = announced_pair();
    (0..6).for_each(|i| b.recv(i, 0..64));
    let receive = |send: SendRequest| {
        a.run(send);
        // The completion is in the queue when the device's lock is free.
        b.qp.state().unwrap();
    };
    let message = |i| SendRequest::send(i, SendData::inline(b"x"));
    let is_announced = |limit| channel.wait(limit).is_ok();
    receive(message(0));
    b.cq.req_notify(false);
    assert!(is_announced(WAIT_LIMIT), "the program has not polled yet");
    receive(message(1));
    b.cq.req_notify(false);
    assert!(!is_announced(Duration::ZERO), "it is about to poll because of the announcement");
    receive(message(2));
    assert!(is_announced(WAIT_LIMIT), "armed");
    assert_eq!([b.end(), b.end(), b.end()].map(|(wr_id, _)| wr_id), [0, 1, 2]);
    b.cq.req_notify(true);
    receive(message(3));
    assert!(!is_announced(Duration::ZERO), "not solicited");
    receive(message(4).solicited());
    assert!(is_announced(WAIT_LIMIT), "solicited");
    assert_eq!(b.end().0, 3);
    b.cq.req_notify(true);
    assert!(is_announced(WAIT_LIMIT), "a solicited one has been left");
    assert_eq!(b.end().0, 4);
    receive(message(5));
    b.cq.req_notify(true);
    assert!(!is_announced(Duration::ZERO), "the one that has been left is not solicited");
    b.cq.req_notify(false);
    assert!(is_announced(WAIT_LIMIT), "the wider request");
}

#[test]
fn channel_descriptor_is_readable_while_announcements_are_pending() {
    let (a, b, channel) = announced_pair();
    let fd = channel.as_fd();
    for i in 0..3 {
        b.recv(i, 0..64);
        b.cq.req_notify(false);
        assert!(!wait_readable(&[fd], Some(Duration::ZERO)).unwrap());
        a.run(SendRequest::send(i, SendData::inline(b"x")));
        assert!(wait_readable(&[fd], Some(WAIT_LIMIT)).unwrap());
        assert!(channel.wait(Duration::ZERO).unwrap() == b.cq);
        assert_eq!(b.end(), (i, WcStatus::Success));
    }
}

#[test]
fn context_descriptor_is_readable_while_events_are_pending() {
    let (a, b) = Node::pair();
    let fd = b.ctx.event_fd().unwrap();
    assert!(!wait_readable(&[fd], Some(Duration::ZERO)).unwrap());
    a.send(SendRequest::write(1, a.mr.sge(..8), RemoteAddr::default()));
    assert!(wait_readable(&[fd], Some(WAIT_LIMIT)).unwrap());
    assert_eq!(b.ctx.poll_event(), Some(AsyncEvent::QpAccessErr(b.qp.qpn())));
    assert!(!wait_readable(&[fd], Some(Duration::ZERO)).unwrap());
}

#[test]
fn many_threads_wait_on_one_device() {
    let (near, far) = (open(), open());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (a, b) = Node::pair_on(near.clone(), far.clone());
            let echo = move || {
                for i in 0..200 {
                    b.recv(i, 0..64);
                    assert_eq!(b.end(), (i, WcStatus::Success));
                    b.qp.post_send(SendRequest::send(i, b.mr.sge(..8))).unwrap();
                }
            };
            let ask = move || {
                for i in 0..200 {
                    a.recv(i, 0..64);
                    a.qp.post_send(SendRequest::send(i, a.mr.sge(..8))).unwrap();
                    assert_eq!(a.end(), (i, WcStatus::Success));
                }
            };
            let start = |work: Box<dyn FnOnce() + Send>| thread::Builder::new().spawn(work);
            (start(Box::new(echo)).unwrap(), start(Box::new(ask)).unwrap())
        })
        .collect();
    for (echo, ask) in threads {
        ask.join().unwrap();
        echo.join().unwrap();
    }
}

#[test]
fn wait_ends_at_its_timeout() {
    let node = Node::on(open());
    let error = node.cq.wait_one(Duration::from_millis(5)).unwrap_err().to_string();
    assert_eq!(error, "no completion within 5ms");
}

/// Operations of the packets that a device has sent.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<Operation>>>);

impl Sink for Sent {
    fn packet(&mut self, _: Instant, direction: Direction, ip_packet: &[u8]) {
        let packet = parse_ip(ip_packet).unwrap();
        let operation = Datagram::parse(packet.payload).unwrap().bth.opcode.operation();
        if direction == Direction::Sent {
            self.0.lock().unwrap().push(operation);
        }
    }
}

impl Sent {
    fn acknowledgements(&self) -> usize {
        let sent = self.0.lock().unwrap();
        sent.iter().filter(|operation| **operation == Operation::Acknowledge).count()
    }
}

/// Sends a message to a device with a capture, which then is not polled.
fn message_to(options: OpenOptions) -> (Node, Node, Sent) {
    let sent = Sent::default();
    let ctx = open_with(options.capture(Box::new(sent.clone())));
    let (a, b) = (Node::on(open()), Node::on(ctx));
    a.connect(&b, &single_attempt());
    b.recv(7, 0..64);
    a.send(SendRequest::send(1, a.mr.sge(..8)));
    (a, b, sent)
}

#[test]
fn side_that_stops_polling_sends_its_acknowledgement() {
    for _ in 0..100 {
        let (a, b, sent) = message_to(OpenOptions::default());
        found("the message", || b.cq.poll_one());
        assert_eq!(a.end(), (1, WcStatus::Success));
        // The packet may have left before its capture has ended.
        b.ctx.device_info().unwrap();
        assert_eq!(sent.acknowledgements(), 1);
    }
}

#[test]
fn dropped_context_has_sent_its_acknowledgement() {
    for _ in 0..100 {
        let (_a, b, sent) = message_to(OpenOptions::default());
        found("the message", || b.cq.poll_one());
        drop(b.ctx);
        assert_eq!(sent.acknowledgements(), 1);
    }
}

#[test]
fn immediate_ack_policy_acknowledges_before_the_completion() {
    for _ in 0..100 {
        let policy = AckPolicy::BeforeCompletion;
        let (_a, b, sent) = message_to(OpenOptions::default().ack_policy(policy));
        found("the message", || b.cq.poll_one());
        assert_eq!(sent.acknowledgements(), 1);
    }
}

#[test]
fn announcement_follows_the_acknowledgement() {
    for _ in 0..100 {
        let sent = Sent::default();
        let ctx = open_with(OpenOptions::default().capture(Box::new(sent.clone())));
        let channel = ctx.create_channel().unwrap();
        let cq = ctx.create_cq(256, Some(&channel)).unwrap();
        let (a, b) = (Node::on(open()), Node::with_cq(ctx, cq));
        a.connect(&b, &single_attempt());
        b.recv(7, 0..64);
        b.cq.req_notify(false);
        a.send(SendRequest::send(1, a.mr.sge(..8)));
        channel.wait(WAIT_LIMIT).unwrap();
        assert_eq!(sent.acknowledgements(), 1);
    }
}

/// Returns how many times the threads of this name have slept (voluntary context switches).
fn sleeps(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let statuses =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
    let ours = statuses.filter(|status| status.starts_with(&format!("Name:\t{name}\n")));
    ours.flat_map(|status| {
        let lines: Vec<_> = status.lines().map(str::to_owned).collect();
        lines.into_iter().filter_map(|line| {
            line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok()
        })
    })
    .sum()
}

#[test]
fn idle_device_does_not_wake() {
    let idle = open_with(OpenOptions::default().name("idle-device"));
    let other = open();
    let wait = |ms| assert!(other.wait_event(Duration::from_millis(ms)).is_err());
    wait(20);
    let before = sleeps("idle-device");
    wait(100);
    assert_eq!(sleeps("idle-device"), before);
    drop(idle);
}

/// Bytes of memory that a test looks at until they change.
fn until_written(node: &Node, offset: usize, expected: &[u8]) {
    let (start, limit) = (softroce::runtime::now(), Duration::from_secs(60));
    while node.bytes(offset, expected.len()) != expected {
        assert!(softroce::runtime::now() - start < limit, "nothing was written within {limit:?}");
        thread::yield_now();
    }
}

#[test]
fn requests_leave_though_their_program_calls_nothing_more() {
    let (a, b) = Node::pair();
    for round in 0..20_u8 {
        // A program that polls is expected to poll again, so the second request may wait for that.
        assert!(a.cq.poll_one().is_none());
        for place in [0, 100] {
            let data = SendData::inline(&[round + 1; 8]);
            a.qp.post_send(SendRequest::write(1, data, b.mr.remote(place))).unwrap();
        }
        until_written(&b, 100, &[round + 1; 8]);
    }
}

#[test]
fn each_post_leaves_at_once_when_that_was_asked_for() {
    let ctx = open_with(OpenOptions::default().post_policy(PostPolicy::Immediate));
    let (a, b) = (Node::on(ctx), Node::on(open()));
    a.connect(&b, &ConnectOptions::default());
    let sent = || a.ctx.counters().unwrap().port.tx_bursts;
    for _ in 0..10 {
        assert!(a.cq.poll_one().is_none());
        let before = sent();
        for place in 0..4 {
            let data = SendData::inline(&[1; 8]);
            a.qp.post_send(SendRequest::write(1, data, b.mr.remote(place))).unwrap();
        }
        assert!(sent() >= before + 4);
    }
}
