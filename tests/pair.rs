//! Engines on a simulated network, in virtual time: what takes two sides to show.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

mod support;

use std::time::Duration;

use softroce::ids::Mtu;
use softroce::io::Port;
use softroce::io::sim::HostConfig;
use softroce::transport::work::{SendOp, WcStatus};
use support::{Link, World, full_access, pattern, remote, request, sge};

// ---- the receive buffer ----

/// A network, and whether its hosts merge what arrives together.
#[derive(Clone, Copy, Debug)]
struct Net([u8; 3], bool);

/// What is sent, and who receives it: the responder, or, of a READ, the requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Traffic {
    Write,
    Send,
    Read,
}

impl Traffic {
    const ALL: [Self; 3] = [Self::Write, Self::Send, Self::Read];

    /// The host that the data flows to. Requests come from host 0.
    fn receiver(self) -> usize {
        usize::from(self != Self::Read)
    }
}

/// Posts `count` messages of `len` bytes, all at once, and runs until they are complete, while
/// their receiver is polled only every 200 µs. Nothing may be lost.
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
    let counters = *world.nodes[0].engine.counters();
    assert_eq!((drops, counters.retransmitted, counters.timeouts), (0, 0, 0), "{case}");
}

/// Runs until `done`; host `slow` is polled only every 200 µs.
fn run_with_slow(world: &mut World, slow: usize, done: impl Fn(&World) -> bool) {
    let mut tick = world.now;
    while !done(world) {
        assert!(tick.as_nanos() < 10_000_000_000, "it takes more than 10 s");
        if world.now >= tick {
            while world.nodes[slow].turn(world.now) {}
            tick = tick + Duration::from_micros(200);
        }
        let fast = &mut world.nodes[1 - slow];
        while fast.turn(world.now) {}
        let next = [fast.engine.poll_timeout(), fast.port.poll_timeout(), Some(tick)];
        world.now = world.now.max(next.into_iter().flatten().min().unwrap());
    }
}

#[test]
fn a_slow_receiver_with_a_default_buffer_loses_nothing() {
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
