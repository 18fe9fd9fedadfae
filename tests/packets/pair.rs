//! Two engines on a simulated network, in virtual time.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Link, World, full_access, pattern, remote, request, sge};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use softroce::engine::{Config, QpAttr, QpState};
use softroce::ids::{Mtu, Qpn};
use softroce::mem::Region;
use softroce::net::Burst;
use softroce::port::Datapath;
use softroce::port::sim::{Conditions, FaultDecision, HostConfig};
use softroce::transport::outputs::{AsyncEvent, DropReason};
use softroce::transport::work::{SendFlags, SendOp, WcStatus};
use softroce::wire::Datagram;

/// Runs until `done`, which must become true within `limit`.
#[track_caller]
fn run_until(world: &mut World, limit: Duration, done: impl Fn(&World) -> bool) {
    let end = world.now + limit;
    loop {
        world.settle();
        if done(world) {
            return;
        }
        assert!(world.advance(), "nothing will happen any more");
        assert!(world.now < end, "not done after {limit:?}");
    }
}

/// Registers a region of `len` bytes on each host.
fn regions(world: &World, len: usize) -> [Arc<Region>; 2] {
    [0, 1].map(|node| world.nodes[node].region(len, 0x10_0000, full_access()))
}

fn contents(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Returns the completions of send requests of a host, in order.
fn ends(world: &World, node: usize) -> Vec<(u64, WcStatus)> {
    world.nodes[node].sends.iter().map(|c| (c.wr_id, c.status)).collect()
}

/// Returns the retransmitted request packets and ACK timeouts of all hosts.
fn retries(world: &World) -> (u64, u64) {
    let counters = world.nodes.iter().map(|node| node.engine.counters());
    counters.fold((0, 0), |sum, c| (sum.0 + c.retransmitted, sum.1 + c.timeouts))
}

// ---- a path that renumbers segments ----

/// Splits bursts into datagrams with identification 0, so that the ICRC of all but the first is invalid for receivers
/// that see IP headers.
fn spoils_bursts(world: &World) {
    world.network.observe(|seen| {
        if seen.id == 0 { FaultDecision::ByConditions } else { FaultDecision::Drop }
    });
}

/// Returns the number of disabled burst modes of each host.
fn given_up(world: &World) -> [u64; 2] {
    [0, 1].map(|node| world.nodes[node].engine.counters().bursts_given_up)
}

/// Retransmissions leave as single packets, and later all packets.
#[test]
fn requester_stops_bursts_on_a_path_that_damages_them() {
    let mut world = World::new(1, 2);
    let [a, _] = world.pair(&Link::default());
    let [from, to] = regions(&world, 1 << 20);
    from.write_at(0, &pattern(1, 1 << 20)).unwrap();
    let write = |world: &mut World, wr_id: u64, len| {
        let op = SendOp::Write { to: remote(&to, 0) };
        world.post_send(0, a, request(wr_id, op, &[sge(&from, 0, len)]));
        world.run(Duration::from_secs(20));
        assert_eq!(ends(world, 0).last(), Some(&(wr_id, WcStatus::Success)));
    };
    write(&mut world, 1, 100_000);
    assert_eq!((given_up(&world), retries(&world)), ([0, 0], (0, 0)));
    spoils_bursts(&world);
    let rounds = (2..50).find(|wr_id| {
        write(&mut world, *wr_id, 1 << 20);
        given_up(&world) == [1, 0]
    });
    assert!(rounds.is_some());
    assert_eq!(contents(&to), pattern(1, 1 << 20));
    // No packet is lost from now on.
    let before = retries(&world);
    write(&mut world, 99, 1 << 20);
    assert_eq!((given_up(&world), retries(&world)), ([1, 0], before));
}

/// A responder that sends only READ responses learns it from repeated requests.
#[test]
fn responder_stops_bursts_on_a_path_that_damages_them() {
    let mut world = World::new(1, 2);
    let [a, _] = world.pair(&Link::default());
    let [to, from] = regions(&world, 1 << 20);
    from.write_at(0, &pattern(1, 1 << 20)).unwrap();
    let read = |world: &mut World, wr_id: u64, len| {
        let op = SendOp::Read { from: remote(&from, 0) };
        world.post_send(0, a, request(wr_id, op, &[sge(&to, 0, len)]));
        world.run(Duration::from_secs(20));
        assert_eq!(ends(world, 0).last(), Some(&(wr_id, WcStatus::Success)));
    };
    for wr_id in 0..50 {
        read(&mut world, wr_id, 100_000);
    }
    assert_eq!((given_up(&world), retries(&world)), ([0, 0], (0, 0)));
    spoils_bursts(&world);
    let rounds = (50..99).find(|wr_id| {
        read(&mut world, *wr_id, 1 << 20);
        given_up(&world) == [0, 1]
    });
    assert!(rounds.is_some());
    assert_eq!(contents(&to), pattern(1, 1 << 20));
    // Packets in flight at that time are requested again, and none is lost from now on.
    read(&mut world, 99, 1 << 20);
    let before = retries(&world);
    read(&mut world, 100, 1 << 20);
    assert_eq!((given_up(&world), retries(&world)), ([0, 1], before));
}

/// Packet loss alone does not disable bursts, whichever READs it affects.
#[test]
fn responder_keeps_bursts_on_a_lossy_path() {
    let mut world = World::new(7, 2);
    let [a, _] = world.pair(&Link::default());
    let [to, from] = regions(&world, 1 << 20);
    world.network.set_conditions(Conditions { loss: 0.02, ..Conditions::default() });
    for wr_id in 0..200 {
        let op = SendOp::Read { from: remote(&from, 0) };
        world.post_send(0, a, request(wr_id, op, &[sge(&to, 0, 100_000)]));
        world.run(Duration::from_secs(20));
        assert_eq!(ends(&world, 0).last(), Some(&(wr_id, WcStatus::Success)));
    }
    assert!(retries(&world).0 > 50);
    assert_eq!(given_up(&world), [0, 0]);
}

// ---- connections ----

#[test]
fn queue_pairs_of_one_device_connect_to_each_other() {
    let mut world = World::new(1, 1);
    let link = Link::default();
    let [a, b] = [world.create_qp(0, &link), world.create_qp(0, &link)];
    world.connect(0, a, (0, b), &link, [1, 2]);
    world.connect(0, b, (0, a), &link, [2, 1]);
    let region = world.nodes[0].region(64 << 10, 0x10_0000, full_access());
    region.write_at(0, &pattern(1, 8000)).unwrap();
    world.post_recv(0, b, 7, &[sge(&region, 8000, 8000)]);
    world.post_send(0, a, request(1, SendOp::Send, &[sge(&region, 0, 8000)]));
    let write = SendOp::Write { to: remote(&region, 16_000) };
    world.post_send(0, b, request(2, write, &[sge(&region, 0, 8000)]));
    let read = SendOp::Read { from: remote(&region, 0) };
    world.post_send(0, a, request(3, read, &[sge(&region, 24_000, 8000)]));
    let add = SendOp::FetchAdd { at: remote(&region, 40_000), add: 5 };
    world.post_send(0, b, request(4, add, &[sge(&region, 40_008, 8)]));
    world.run(Duration::from_secs(1));
    let node = &world.nodes[0];
    assert_eq!((node.sends.len(), node.recvs.len(), retries(&world)), (4, 1, (0, 0)));
    for at in [8000, 16_000, 24_000] {
        assert!(contents(&region)[at..at + 8000] == pattern(1, 8000), "at {at}");
    }
    assert_eq!((region.load_u64(40_000), region.load_u64(40_008)), (Ok(5), Ok(0)));
}

#[test]
fn many_queue_pairs_share_one_link_evenly() {
    const QPS: usize = 64;
    const MESSAGES: usize = 8;
    for rate_bits_per_s in [None, Some(10_000_000_000)] {
        let host = HostConfig { receive_buffer: 212_992, ..HostConfig::default() };
        let mut world = World::with(2, 2, host, |_| {});
        let delay = Duration::from_micros(5);
        world.network.set_conditions(Conditions {
            rate_bits_per_s,
            delay,
            ..Conditions::default()
        });
        let link = Link { timeout: 14, ..Link::default() };
        let qps: Vec<_> = (0..QPS).map(|_| world.pair(&link)).collect();
        let [near, far] = regions(&world, 64 << 10);
        near.write_at(0, &pattern(2, 64 << 10)).unwrap();
        for (qp, [qpn, _]) in qps.iter().enumerate() {
            for n in 0..MESSAGES {
                let wr_id = (qp * MESSAGES + n) as u64;
                let write = SendOp::Write { to: remote(&far, 0) };
                world.post_send(0, *qpn, request(wr_id, write, &[sge(&near, 0, 64 << 10)]));
            }
        }
        let halfway = |world: &World| world.nodes[0].sends.len() >= QPS * MESSAGES / 2;
        run_until(&mut world, Duration::from_secs(1), halfway);
        let mut done = [0; QPS];
        for completion in &world.nodes[0].sends {
            done[completion.wr_id as usize / MESSAGES] += 1;
        }
        let spread = (done.iter().min().unwrap(), done.iter().max().unwrap());
        assert!(*spread.0 >= MESSAGES / 2 - 2, "one has {} complete, one {}", spread.0, spread.1);
        let all = |world: &World| world.nodes[0].sends.len() == QPS * MESSAGES;
        run_until(&mut world, Duration::from_secs(1), all);
        assert!(world.nodes[0].sends.iter().all(|c| c.status == WcStatus::Success));
        assert!(contents(&far) == pattern(2, 64 << 10));
        assert_eq!((retries(&world), world.nodes[1].port.counters().kernel_drops), ((0, 0), 0));
    }
}

/// REQ-29
#[test]
fn unreachable_peer_fails_the_request_after_all_retries() {
    for retry_cnt in [0, 1, 7] {
        let mut world = World::new(3, 2);
        let link = Link { retry_cnt, ..Link::default() };
        let [a, b] = world.pair(&link);
        let [near, far] = regions(&world, 64 << 10);
        let write = SendOp::Write { to: remote(&far, 0) };
        let post = |world: &mut World, wr_id| {
            world.post_send(0, a, request(wr_id, write, &[sge(&near, 0, 64 << 10)]));
        };
        post(&mut world, 1);
        run_until(&mut world, Duration::from_secs(1), |world| !world.nodes[0].sends.is_empty());
        // The timer starts here, or at the last acknowledgement.
        let peer = world.nodes[1].ip;
        world.network.observe(move |seen| {
            if seen.path.destination == peer {
                FaultDecision::Drop
            } else {
                FaultDecision::ByConditions
            }
        });
        let gone = world.now;
        post(&mut world, 2);
        post(&mut world, 3);
        let interval = Duration::from_nanos(4096 << link.timeout);
        let budget = interval * (u32::from(retry_cnt) + 1);
        world.run(budget - Duration::from_nanos(1));
        let early = world.nodes[0].sends.len();
        assert_eq!(early, 1, "retry_cnt {retry_cnt}: given up before {:?}", world.now.since(gone));
        run_until(&mut world, budget * 3, |world| world.nodes[0].sends.len() == 3);
        let expected =
            [(1, WcStatus::Success), (2, WcStatus::RetryExcErr), (3, WcStatus::WrFlushErr)];
        assert_eq!(ends(&world, 0), expected, "retry_cnt {retry_cnt}");
        assert_eq!((world.state(0, a), world.state(1, b)), (QpState::Err, QpState::Rts));
        // No further attempt follows.
        let sent = world.nodes[0].port.counters().tx_bursts;
        world.run(Duration::from_secs(100));
        assert_eq!(world.nodes[0].port.counters().tx_bursts, sent);
    }
}

/// A destroyed queue pair does not respond, and the peer's timer expires.
#[test]
fn packets_for_a_destroyed_queue_pair_are_dropped() {
    let mut world = World::new(4, 2);
    let [a, b] = world.pair(&Link { retry_cnt: 1, ..Link::default() });
    let [near, far] = regions(&world, 64);
    let now = world.now;
    world.nodes[1].engine.destroy_qp(now, b);
    let write = SendOp::Write { to: remote(&far, 0) };
    world.post_send(0, a, request(1, write, &[sge(&near, 0, 64)]));
    world.run(Duration::from_secs(1));
    assert_eq!(ends(&world, 0), [(1, WcStatus::RetryExcErr)]);
    assert_eq!(world.nodes[1].engine.counters().dropped(DropReason::UnknownQp), 2);
}

/// After an error, both sides establish the connection again with the same queue pairs.
#[test]
fn failed_connection_is_established_again() {
    let mut world = World::new(6, 2);
    let link = Link::default();
    let [a, b] = world.pair(&link);
    let [near, far] = regions(&world, 4096);
    near.write_at(0, &pattern(6, 4096)).unwrap();
    let bad = SendOp::Write { to: remote(&far, 4000) };
    world.post_send(0, a, request(1, bad, &[sge(&near, 0, 4096)]));
    world.post_recv(1, b, 9, &[]);
    world.run(Duration::from_secs(1));
    assert_eq!(ends(&world, 0), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(world.nodes[1].events, [AsyncEvent::QpAccessErr(b)]);
    assert_eq!((world.state(0, a), world.state(1, b)), (QpState::Err, QpState::Err));
    for (node, qpn) in [(0, a), (1, b)] {
        world.modify(node, qpn, QpAttr::to(QpState::Reset));
    }
    world.connect(0, a, (1, b), &link, [7, 8]);
    world.connect(1, b, (0, a), &link, [8, 7]);
    let good = SendOp::Write { to: remote(&far, 0) };
    world.post_send(0, a, request(2, good, &[sge(&near, 0, 4096)]));
    world.run(Duration::from_secs(1));
    assert_eq!(ends(&world, 0)[1..], [(2, WcStatus::Success)]);
    assert!(contents(&far) == pattern(6, 4096));
}

/// QPS-09: at any time, on a lossy network, any number of times.
#[test]
fn repeated_sqd_loses_no_request() {
    for seed in 0..10 {
        let mut world = World::new(seed, 2);
        let [a, b] = world.pair(&Link::default());
        let [near, far] = regions(&world, 128 << 10);
        near.write_at(0, &pattern(seed, 64 << 10)).unwrap();
        far.write_at(64 << 10, &pattern(seed + 1, 64 << 10)).unwrap();
        world.network.set_conditions(Conditions {
            loss: 0.02,
            reorder: 0.02,
            delay: Duration::from_micros(5),
            ..Conditions::default()
        });
        for n in 0..16 {
            let at = n * 4096;
            let write = SendOp::Write { to: remote(&far, at) };
            world.post_send(0, a, request(2 * n as u64, write, &[sge(&near, at, 4096)]));
            let (from, to) = (remote(&far, (64 << 10) + at), (64 << 10) + at);
            let read = SendOp::Read { from };
            world.post_send(0, a, request(2 * n as u64 + 1, read, &[sge(&near, to, 4096)]));
        }
        let mut drains = 0;
        while world.nodes[0].sends.len() < 32 {
            world.run(Duration::from_micros(10));
            world.modify(0, a, QpAttr::to(QpState::Sqd));
            run_until(&mut world, Duration::from_secs(1), |world| {
                world.nodes[0].events == [AsyncEvent::SqDrained(a)]
            });
            world.nodes[0].events.clear();
            world.modify(0, a, QpAttr::to(QpState::Rts));
            drains += 1;
            assert!(drains < 100, "seed {seed}: nothing gets through between two drains");
        }
        let expected: Vec<_> = (0..32).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        assert_eq!(ends(&world, 0), expected, "seed {seed}, {drains} drains");
        assert!(contents(&far)[..64 << 10] == pattern(seed, 64 << 10), "seed {seed}");
        assert!(contents(&near)[64 << 10..] == pattern(seed + 1, 64 << 10), "seed {seed}");
        assert_eq!(world.state(1, b), QpState::Rts);
    }
}

/// RSP-35
#[test]
fn atomics_of_many_queue_pairs_are_atomic() {
    const QPS: usize = 16;
    const ADDS: usize = 20;
    let mut world = World::new(7, 3);
    let link = Link { rd_atomic: 16, ..Link::default() };
    let target = world.nodes[2].region(64, 0x10_0000, full_access());
    let mut results = Vec::new();
    for node in [0, 1] {
        let answers = world.nodes[node].region(QPS * ADDS * 8, 0x10_0000, full_access());
        for qp in 0..QPS {
            let [a, b] = [world.create_qp(node, &link), world.create_qp(2, &link)];
            world.connect(node, a, (2, b), &link, [1, 2]);
            world.connect(2, b, (node, a), &link, [2, 1]);
            for n in 0..ADDS {
                let add = SendOp::FetchAdd { at: remote(&target, 8), add: 1 };
                let sges = [sge(&answers, (qp * ADDS + n) * 8, 8)];
                world.post_send(node, a, request(1, add, &sges));
            }
        }
        results.push(answers);
    }
    world.network.set_conditions(Conditions {
        loss: 0.02,
        duplicate: 0.02,
        delay: Duration::from_micros(5),
        ..Conditions::default()
    });
    world.run(Duration::from_secs(10));
    let mut found: Vec<u64> = results
        .iter()
        .flat_map(|answers| (0..QPS * ADDS).map(|n| answers.load_u64(n * 8).unwrap()))
        .collect();
    found.sort_unstable();
    assert!(found.into_iter().eq(0..2 * (QPS * ADDS) as u64), "each count was seen once");
    assert_eq!(target.load_u64(8), Ok(2 * (QPS * ADDS) as u64));
}

/// REQ-05: the peer acknowledges only requested packets. Queue pairs that share a window request the acknowledgements
/// that open it.
#[test]
fn queue_pairs_of_one_window_request_the_acks_that_open_it() {
    for (mtu, window) in Mtu::ALL
        .into_iter()
        .flat_map(|mtu| [16 << 10, 100_000, 212_992].map(|window| (mtu, window)))
    {
        let mut world = World::with(14, 1, HostConfig::default(), |_| {});
        let link = Link { mtu, timeout: 14, ..Link::default() };
        let region = world.nodes[0].region(256 << 10, 0x10_0000, full_access());
        let peer = IpAddr::from([10, 0, 0, 9]);
        world.nodes[0].engine.set_peer_receive_buffer(world.now, peer, window);
        let qps: Vec<_> = (0..16).map(|_| world.create_qp(0, &link)).collect();
        for (i, qpn) in (0..).zip(&qps) {
            world.modify(0, *qpn, crate::support::init_attr(&link));
            world.modify(0, *qpn, crate::support::rtr_attr(&link, peer, Qpn::new(0x100 + i), 1));
            world.modify(0, *qpn, crate::support::rts_attr(&link, 1));
            let write = SendOp::Write { to: remote(&region, 0) };
            let len = [256 << 10, 1000, 20_000][i as usize % 3];
            for _ in 0..3 {
                world.post_send(0, *qpn, request(1, write, &[sge(&region, 0, len)]));
            }
        }
        let (ours, engine) = (world.nodes[0].ip, &mut world.nodes[0].engine);
        let mut done = 0;
        while done < 3 * qps.len() {
            let mut acks = Vec::new();
            let mut burst = Burst::new();
            while engine.poll_transmit(world.now, &mut burst) {
                for packet in burst.segments().map(|bytes| Datagram::parse(bytes).unwrap()) {
                    let qpn = qps[packet.bth.dest_qp.value() as usize - 0x100];
                    acks.extend(packet.bth.ack_req.then_some((qpn, packet.bth.psn)));
                }
            }
            assert!(!acks.is_empty(), "path MTU {mtu}, a buffer of {window}: stalled");
            world.now += Duration::from_micros(10);
            for (qpn, psn) in acks {
                let bytes = crate::support::line::datagram(&format!("ACK psn={psn} msn=0"), qpn);
                crate::support::receive(engine, world.now, peer, ours, bytes);
            }
            done += std::iter::from_fn(|| engine.poll_completion()).count();
        }
        assert_eq!(engine.counters().timeouts, 0);
    }
}

/// For every traffic pattern and window: on a lossless network no request waits for a timer, and none is
/// retransmitted.
#[test]
fn no_traffic_pattern_stalls_on_a_lossless_network() {
    (0..60).for_each(clean_run);
}

fn clean_run(seed: u8) {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
    let mut below = |n: usize| random.next_u32() as usize % n;
    let mtu = Mtu::ALL[below(5)];
    let net = [[10, 0, 0], [127, 0, 0]][below(2)];
    let host = HostConfig { gro: below(2) == 0, ..HostConfig::default() };
    let tune: fn(&mut Config) = match below(3) {
        0 => |config| config.receive_buffer = 16 << 10,
        1 => |config| config.receive_buffer = 212_992,
        _ => |_| {},
    };
    let mut world = World::in_net(net, u64::from(seed), 2, host, tune);
    let rates = [None, Some(1_000_000_000), Some(10_000_000_000)];
    world.network.set_conditions(Conditions {
        delay: Duration::from_micros(1 + below(50) as u64),
        rate_bits_per_s: rates[below(3)],
        refuse_send: [0.0, 0.2][below(2)],
        ..Conditions::default()
    });
    let window = [8 << 10, 20_000, 65_536, 100_000, 212_992, 1 << 20][below(6)];
    for node in [0, 1] {
        let peer = world.nodes[1 - node].ip;
        world.nodes[node].engine.set_peer_receive_buffer(world.now, peer, window);
    }
    let link = Link { mtu, timeout: 16, rd_atomic: 1 + below(8) as u8, ..Link::default() };
    let qps: Vec<_> = (0..1 + below(20)).map(|_| world.pair(&link)).collect();
    let data = regions(&world, 256 << 10);
    let mut posted = [0, 0];
    for round in 0..4 {
        for pair in &qps {
            for node in [0, 1] {
                let len = [0, 1, 8, 100, mtu.bytes(), 5000, 70_000][below(7)];
                let there = remote(&data[1 - node], 0);
                let op = match below(6) {
                    0 | 1 => SendOp::Write { to: there },
                    2 => SendOp::Read { from: there },
                    3 if len == 8 => SendOp::FetchAdd { at: there, add: 1 },
                    4 => {
                        world.post_recv(1 - node, pair[1 - node], 1, &[]);
                        SendOp::WriteImm { to: there, imm: 1 }
                    }
                    _ => {
                        world.post_recv(
                            1 - node,
                            pair[1 - node],
                            1,
                            &[sge(&data[1 - node], 0, len)],
                        );
                        SendOp::Send
                    }
                };
                let mut request = request(round, op, &[sge(&data[node], 0, len)]);
                if below(5) == 0 {
                    request.flags |= SendFlags::FENCE;
                }
                world.post_send(node, pair[node], request);
                posted[node] += 1;
            }
        }
        if below(2) == 0 {
            world.run(Duration::from_micros(below(300) as u64));
        }
    }
    let done = |world: &World| [0, 1].map(|node: usize| world.nodes[node].sends.len()) == posted;
    run_until(&mut world, Duration::from_secs(1), done);
    let bad =
        world.nodes.iter().flat_map(|node| &node.sends).find(|c| c.status != WcStatus::Success);
    assert_eq!(bad, None, "seed {seed}");
    assert_eq!(retries(&world), (0, 0), "seed {seed}: window {window}, path MTU {mtu}, {link:?}");
}

/// Many queue pairs with short messages fill the window; one with a long message receives its share.
#[test]
fn long_message_gets_its_share_among_short_ones() {
    for net in [[10, 0, 0], [127, 0, 0]] {
        let mut world = World::in_net(net, 13, 2, HostConfig::default(), |_| {});
        let delay = Duration::from_micros(50);
        world.network.set_conditions(Conditions { delay, ..Conditions::default() });
        let link = Link { timeout: 14, ..Link::default() };
        let short: Vec<_> = (0..50).map(|_| world.pair(&link)[0]).collect();
        let [long, _] = world.pair(&link);
        let [near, far] = regions(&world, 1 << 20);
        let write = |world: &mut World, qpn, wr_id, len| {
            let write = SendOp::Write { to: remote(&far, 0) };
            world.post_send(0, qpn, request(wr_id, write, &[sge(&near, 0, len)]));
        };
        for (i, qpn) in short.iter().enumerate() {
            for _ in 0..100 {
                write(&mut world, *qpn, i as u64, 64);
            }
        }
        world.settle();
        write(&mut world, long, 1000, 1 << 20);
        // Each turn may use a quarter of the window, which is free again after 100 µs: 64 turns of four packets and
        // those of fifty others take 82 ms.
        let end = world.now + Duration::from_millis(160);
        let mut shorts = 0;
        'run: while world.now < end {
            world.settle();
            for completion in std::mem::take(&mut world.nodes[0].sends) {
                if completion.wr_id == 1000 {
                    break 'run;
                }
                shorts += 1;
                write(&mut world, completion.qpn, completion.wr_id, 64);
            }
            world.settle();
            world.advance();
        }
        assert!(world.now < end, "{net:?}: starved by {shorts} short messages");
    }
}

// ---- the network ----

/// Eight queue pairs WRITE 1 MiB each. Returns the duration.
fn eight_writes(world: &mut World, link: &Link) -> Duration {
    let qps: Vec<_> = (0..8).map(|_| world.pair(link)).collect();
    let [near, far] = regions(world, 8 << 20);
    near.write_at(0, &pattern(8, 8 << 20)).unwrap();
    let start = world.now;
    for (i, [a, _]) in qps.iter().enumerate() {
        let write = SendOp::Write { to: remote(&far, i << 20) };
        world.post_send(0, *a, request(i as u64, write, &[sge(&near, i << 20, 1 << 20)]));
    }
    run_until(world, Duration::from_secs(20), |world| world.nodes[0].sends.len() == 8);
    assert!(world.nodes[0].sends.iter().all(|c| c.status == WcStatus::Success));
    assert!(contents(&far) == pattern(8, 8 << 20));
    world.now.since(start)
}

#[test]
fn slow_link_with_a_long_queue_is_used_fully_without_loss() {
    let mut world = World::new(9, 2);
    world.network.set_conditions(Conditions {
        rate_bits_per_s: Some(1_000_000_000),
        queue_bytes: Some(512 << 10),
        delay: Duration::from_micros(20),
        ..Conditions::default()
    });
    let took = eight_writes(&mut world, &Link { timeout: 14, ..Link::default() });
    // 8 MiB at 1 Gbit/s are 67 ms, and the headers 3 ms.
    assert!(took < Duration::from_millis(75), "{took:?}");
    assert_eq!(retries(&world), (0, 0));
}

#[test]
fn slow_link_with_a_short_queue_loses_packets_and_delivers_all() {
    let mut world = World::new(10, 2);
    world.network.set_conditions(Conditions {
        rate_bits_per_s: Some(1_000_000_000),
        queue_bytes: Some(32 << 10),
        delay: Duration::from_micros(20),
        ..Conditions::default()
    });
    let took = eight_writes(&mut world, &Link::default());
    assert!(retries(&world).0 > 0);
    assert!(took < Duration::from_millis(700), "{took:?}, a tenth of the rate");
}

#[test]
fn busy_port_loses_no_packet() {
    let mut world = World::new(11, 2);
    world.network.set_conditions(Conditions { refuse_send: 0.5, ..Conditions::default() });
    eight_writes(&mut world, &Link { timeout: 14, ..Link::default() });
    assert!(world.nodes[0].port.counters().busy > 0);
    assert_eq!(retries(&world), (0, 0));
}

/// A burst that the port cannot send is lost, and the other packets arrive.
#[test]
fn burst_refused_by_the_port_counts_as_lost() {
    let host = HostConfig { link_mtu: 1500, ..HostConfig::default() };
    let mut world = World::with(12, 2, host, |_| {});
    let [a, _] = world.pair(&Link { mtu: Mtu::Mtu4096, retry_cnt: 2, ..Link::default() });
    let [near, far] = regions(&world, 4096);
    for (wr_id, len) in [(1, 1000), (2, 4096), (3, 1000)] {
        let write = SendOp::Write { to: remote(&far, 0) };
        world.post_send(0, a, request(wr_id, write, &[sge(&near, 0, len)]));
    }
    world.run(Duration::from_secs(1));
    let expected = [(1, WcStatus::Success), (2, WcStatus::RetryExcErr), (3, WcStatus::WrFlushErr)];
    assert_eq!(ends(&world, 0), expected);
    assert_eq!(world.nodes[0].engine.counters().transmit_errors, 3);
}

// ---- the receive buffer ----

/// A network, and whether its hosts merge packets (GRO).
#[derive(Clone, Copy, Debug)]
struct Net([u8; 3], bool);

/// Operation of the traffic, which determines the receiver: the responder, or the requester of a READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Traffic {
    Write,
    Send,
    Read,
}

impl Traffic {
    const ALL: [Self; 3] = [Self::Write, Self::Send, Self::Read];

    /// Returns the host that receives the data. Requests come from host 0.
    fn receiver(self) -> usize {
        usize::from(self != Self::Read)
    }
}

/// Posts `count` messages of `len` bytes, and runs until they complete. The receiver is polled only every 200 µs. No
/// packet may be lost.
fn slow_receiver(net: Net, traffic: Traffic, mtu: Mtu, count: usize, len: usize) {
    let case = format!("{net:?}, {traffic:?}, path MTU {mtu}, {count} messages of {len} bytes");
    let host = HostConfig { gro: net.1, receive_buffer: 212_992, ..HostConfig::default() };
    let mut world = World::in_net(net.0, 1, 2, host, |_| {});
    let link = Link { mtu, rd_atomic: 16, timeout: 14, ..Link::default() };
    let qps = world.pair(&link);
    let regions = [0, 1].map(|node| world.nodes[node].region(len, 1 << 20, full_access()));
    regions[1 - traffic.receiver()].write_at(0, &pattern(7, len)).unwrap();
    for wr_id in 0..count as u64 {
        let there = remote(&regions[1], 0);
        let op = match traffic {
            Traffic::Write => SendOp::Write { to: there },
            Traffic::Send => {
                world.post_recv(1, qps[1], wr_id, &[sge(&regions[1], 0, len)]);
                SendOp::Send
            }
            Traffic::Read => SendOp::Read { from: there },
        };
        world.post_send(0, qps[0], request(wr_id, op, &[sge(&regions[0], 0, len)]));
    }
    run_with_slow(&mut world, traffic.receiver(), |world| world.nodes[0].sends.len() == count);
    assert!(world.nodes[0].sends.iter().all(|c| c.status == WcStatus::Success), "{case}");
    let mut received = vec![0; len];
    regions[traffic.receiver()].read_at(0, &mut received).unwrap();
    assert!(received == pattern(7, len), "{case}: data");
    let drops = world.nodes.iter().map(|node| node.port.counters().kernel_drops).sum::<u64>();
    let counters = world.nodes[0].engine.counters();
    assert_eq!((drops, counters.retransmitted, counters.timeouts), (0, 0, 0), "{case}");
}

/// Runs until `done`, and polls host `slow` only every 200 µs.
fn run_with_slow(world: &mut World, slow: usize, done: impl Fn(&World) -> bool) {
    let mut tick = world.now;
    while !done(world) {
        assert!(tick.as_nanos() < 10_000_000_000, "it takes more than 10 s");
        if world.now >= tick {
            while world.nodes[slow].turn(world.now) {}
            tick += Duration::from_micros(200);
        }
        let fast = &mut world.nodes[1 - slow];
        while fast.turn(world.now) {}
        let next = [fast.engine.poll_timeout(), fast.port.poll_timeout(), Some(tick)];
        world.now = world.now.max(next.into_iter().flatten().min().unwrap());
    }
}

#[test]
fn slow_receiver_with_a_default_buffer_loses_nothing() {
    for net in [Net([10, 0, 0], false), Net([10, 0, 0], true), Net([127, 0, 0], true)] {
        for traffic in Traffic::ALL {
            slow_receiver(net, traffic, Mtu::Mtu4096, 64, 64 << 10);
            slow_receiver(net, traffic, Mtu::Mtu1024, 64, 64 << 10);
            slow_receiver(net, traffic, Mtu::Mtu256, 64, 64 << 10);
            slow_receiver(net, traffic, Mtu::Mtu4096, 100, 12 << 10);
            slow_receiver(net, traffic, Mtu::Mtu4096, 100, 8 << 10);
            slow_receiver(net, traffic, Mtu::Mtu1024, 100, 1 << 10);
            slow_receiver(net, traffic, Mtu::Mtu1024, 100, 64);
        }
    }
}
