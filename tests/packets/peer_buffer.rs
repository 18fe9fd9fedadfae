//! Queue pairs that wait for room in the receive buffer of one peer.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use crate::support::{Link, World, full_access, remote, request, sge};
use softroce::ids::Qpn;
use softroce::net::Burst;
use softroce::transport::work::{SendOp, WcStatus};

const LONG: usize = 200_000;

/// Two queue pairs to one peer. The first has filled the peer's receive buffer and waits for room.
struct Full {
    world: World,
    qps: [Qpn; 2],
    burst: Burst,
}

impl Full {
    fn new() -> Self {
        let mut world = World::new(1, 2);
        let link = Link { timeout: 20, ..Link::default() };
        let (first, second) = (world.pair(&link)[0], world.pair(&link)[0]);
        let peer = world.nodes[1].ip;
        world.nodes[0].engine.set_peer_receive_buffer(world.now, peer, 64 << 10);
        let mut full = Self { world, qps: [first, second], burst: Burst::new() };
        full.write(first, 1, LONG);
        let mut bursts = 0;
        while full.poll() {
            bursts += 1;
        }
        assert!(bursts > 1, "{bursts}");
        full
    }

    fn write(&mut self, qpn: Qpn, wr_id: u64, len: usize) {
        let at = wr_id << 32;
        let source = self.world.nodes[0].region(len, at, full_access());
        let target = self.world.nodes[1].region(len, at, full_access());
        let op = SendOp::Write { to: remote(&target, 0) };
        self.world.post_send(0, qpn, request(wr_id, op, &[sge(&source, 0, len)]));
    }

    /// Takes a burst off the engine and drops it.
    fn poll(&mut self) -> bool {
        let World { now, nodes, .. } = &mut self.world;
        nodes[0].engine.poll_transmit(*now, &mut self.burst)
    }
}

#[test]
fn short_message_does_not_overtake_a_waiting_queue_pair() {
    let mut full = Full::new();
    let [_, second] = full.qps;
    full.write(second, 2, 8);
    assert!(!full.poll(), "it would fit into the rest of the buffer");
}

#[test]
fn larger_receive_buffer_wakes_waiting_queue_pairs() {
    let mut full = Full::new();
    let [_, second] = full.qps;
    full.write(second, 2, 8);
    assert!(!full.poll());
    let peer = full.world.nodes[1].ip;
    full.world.nodes[0].engine.set_peer_receive_buffer(full.world.now, peer, 4 << 20);
    assert!(full.world.nodes[0].engine.wants_to_transmit() && full.poll());
    full.world.run(Duration::from_secs(60));
    let mut ends: Vec<_> = full.world.nodes[0].sends.iter().map(|c| (c.wr_id, c.status)).collect();
    ends.sort_by_key(|end| end.0);
    assert_eq!(ends, [(1, WcStatus::Success), (2, WcStatus::Success)]);
}
