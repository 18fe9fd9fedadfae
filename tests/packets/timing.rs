//! Timers and retries of a reliable connection, to the nanosecond of virtual time.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::choice::Choice;
use crate::support::{Link, World, full_access, remote, request, sge};
use softroce::ids::Qpn;
use softroce::mem::Region;
use softroce::port::sim::{Conditions, FaultDecision};
use softroce::time::{AckTimeout, Instant, RnrTimer};
use softroce::transport::work::{SendOp, WcStatus};

/// One-way delay.
const DELAY: Duration = Duration::from_micros(5);
const AREA: usize = 64 << 10;

/// Creates two hosts with a region each, and the network between them.
fn start(seed: u64, delay: Duration, link: &Link) -> (World, [Qpn; 2], [Arc<Region>; 2]) {
    let mut world = World::new(seed, 2);
    world.network.set_conditions(Conditions { delay, ..Conditions::default() });
    let qps = world.pair(link);
    let regions = [0, 1].map(|node| world.nodes[node].region(AREA, 1 << 20, full_access()));
    (world, qps, regions)
}

/// Returns a random operation of `len` bytes that takes no receive request.
fn some_op(choice: &mut Choice, there: &Region, len: usize) -> (SendOp, usize) {
    match choice.below(3) {
        0 => (SendOp::Write { to: remote(there, 0) }, len),
        1 => (SendOp::Read { from: remote(there, 0) }, len),
        _ => (SendOp::FetchAdd { at: remote(there, 0), add: 1 }, 8),
    }
}

/// REQ-28, REQ-29: after a network cut in one or both directions, the request fails `k + 1` timeouts after the last
/// progress, within the bounds of the specification.
#[test]
fn unreachable_peer_fails_the_request_within_the_specified_time() {
    let mut in_traffic = 0;
    for seed in 0..400 {
        let mut choice = Choice::new(seed);
        let timeout = 5 + choice.below(8) as u8;
        let retry_cnt = choice.below(8) as u8;
        let link =
            Link { timeout, retry_cnt, rd_atomic: 1 + choice.below(4) as u8, ..Link::default() };
        let (mut world, qps, regions) = start(seed, DELAY, &link);
        let [a, b] = [0, 1].map(|node: usize| world.nodes[node].ip);
        let answers = Arc::new(Mutex::new(Instant::ZERO));
        let heard = answers.clone();
        world.network.observe(move |seen| {
            if seen.path.source == b {
                *heard.lock().unwrap() = seen.at + DELAY;
            }
            FaultDecision::ByConditions
        });
        for wr_id in 0..20 {
            let len = choice.below(AREA as u64) as usize;
            let (op, len) = some_op(&mut choice, &regions[1], len);
            world.post_send(0, qps[0], request(wr_id, op, &[sge(&regions[0], 0, len)]));
        }
        world.run(Duration::from_micros(choice.below(30)));
        let ways = choice.below(3);
        let cut = world.now;
        let before = *answers.lock().unwrap();
        if ways != 0 {
            world.network.cut(a, b);
        }
        if ways != 1 {
            world.network.cut(b, a);
        }
        while world.nodes[0].sends.iter().all(|c| c.status.is_success()) {
            world.settle();
            if world.nodes[0].sends.len() == 20 || !world.advance() {
                break;
            }
        }
        let Some(end) = world.nodes[0].sends.iter().find(|c| !c.status.is_success()) else {
            assert_eq!(world.nodes[0].sends.len(), 20, "seed {seed}: neither done nor failed");
            continue;
        };
        assert_eq!(end.status, WcStatus::RetryExcErr, "seed {seed}");
        // Packets sent before the cut still arrive; later ones are dropped.
        let last = if ways == 1 { *answers.lock().unwrap() } else { before };
        let interval = AckTimeout::new(timeout).unwrap().interval().unwrap();
        let took = world.now.since(last);
        let attempts = u32::from(retry_cnt) + 1;
        let bounds = interval * attempts..=interval * attempts * 4;
        assert!(bounds.contains(&took), "seed {seed}: {took:?} of {bounds:?}, cut at {cut:?}");
        in_traffic += usize::from(last > Instant::ZERO);
    }
    assert!(in_traffic > 150, "{in_traffic}");
}

/// REQ-23, REQ-24: the requester waits for every code of the table to the nanosecond, as often as rnr_retry permits.
#[test]
fn rnr_retry_follows_the_rnr_timer() {
    for code in 0..32 {
        for rnr_retry in [0, 1, 6] {
            let link = Link { min_rnr_timer: code, rnr_retry, timeout: 0, ..Link::default() };
            let (mut world, qps, regions) = start(code.into(), DELAY, &link);
            let near = world.nodes[0].ip;
            let log = Arc::new(Mutex::new(Vec::new()));
            let sent = log.clone();
            world.network.observe(move |seen| {
                if seen.path.source == near {
                    sent.lock().unwrap().push(seen.at);
                }
                FaultDecision::ByConditions
            });
            world.post_send(0, qps[0], request(1, SendOp::Send, &[sge(&regions[0], 0, 100)]));
            while world.nodes[0].sends.is_empty() {
                world.settle();
                assert!(!world.nodes[0].sends.is_empty() || world.advance(), "it stands still");
            }
            assert_eq!(world.nodes[0].sends[0].status, WcStatus::RnrRetryExcErr);
            let wait = RnrTimer::new(code).unwrap().wait();
            let each = wait + 2 * DELAY;
            let expected: Vec<_> =
                (0..=rnr_retry).map(|n| Instant::ZERO + each * u32::from(n)).collect();
            assert_eq!(*log.lock().unwrap(), expected, "code {code}");
            // The last NAK fails the request immediately.
            assert_eq!(world.now, *expected.last().unwrap() + 2 * DELAY, "code {code}");
        }
    }
}

/// REQ-23: a receive request posted in time is taken at the next retry.
#[test]
fn receive_posted_during_the_rnr_timer_is_taken_at_the_retry() {
    for code in [1, 12, 20, 31, 0] {
        let link = Link { min_rnr_timer: code, ..Link::default() };
        let (mut world, qps, regions) = start(1, DELAY, &link);
        world.post_send(0, qps[0], request(1, SendOp::Send, &[sge(&regions[0], 0, 100)]));
        world.run(3 * DELAY);
        world.post_recv(1, qps[1], 7, &[sge(&regions[1], 0, 100)]);
        while world.nodes[0].sends.is_empty() {
            world.settle();
            assert!(!world.nodes[0].sends.is_empty() || world.advance(), "it stands still");
        }
        let wait = RnrTimer::new(code).unwrap().wait();
        assert_eq!(world.now, Instant::ZERO + wait + 4 * DELAY, "code {code}");
        assert_eq!(world.nodes[1].recvs.len(), 1);
    }
}

/// REQ-28: no packet is retransmitted on a path with a constant delay of nearly the timeout.
#[test]
fn constant_delay_causes_no_spurious_retransmission() {
    for seed in 0..200 {
        let mut choice = Choice::new(seed);
        let timeout = 1 + choice.below(16) as u8;
        let interval = AckTimeout::new(timeout).unwrap().interval().unwrap();
        let delay = interval / 2 - Duration::from_nanos(1 + choice.below(3000));
        let link = Link { timeout, rd_atomic: 1 + choice.below(8) as u8, ..Link::default() };
        let (mut world, qps, regions) = start(seed, delay, &link);
        let mut posted = [0, 0];
        for _ in 0..20 {
            for node in [0, 1] {
                let len = choice.below(20_000) as usize;
                let (op, len) = some_op(&mut choice, &regions[1 - node], len);
                let posting = request(posted[node], op, &[sge(&regions[node], 0, len)]);
                world.post_send(node, qps[node], posting);
                posted[node] += 1;
            }
            let pause = choice.below(interval.as_nanos() as u64 * 2);
            world.run(Duration::from_nanos(pause));
        }
        world.run(interval * 1000);
        for node in &world.nodes {
            assert_eq!(node.sends.iter().filter(|c| c.status.is_success()).count(), 20, "{seed}");
            let counters = node.engine.counters();
            let again = (counters.retransmitted, counters.timeouts, counters.duplicate_requests);
            assert_eq!(again, (0, 0, 0), "seed {seed}: {delay:?} of {interval:?}");
        }
    }
}
