//! Limits on UC and UD packets in flight, which are not acknowledged.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::time::Duration;

use crate::support::{Link, QKEY, World, full_access, remote, request, sge};
use softroce::engine::{Config, MadPath, OutgoingMad, QpType};
use softroce::ids::{Gid, Mtu, PKey, Qpn};
use softroce::mem::Region;
use softroce::net::{AddressVector, Burst};
use softroce::port::Datapath;
use softroce::port::sim::{Conditions, HostConfig};
use softroce::transport::work::{SendOp, SendRequest, UdTarget, WcStatus};
use softroce::wire::Mad;

const AREA: usize = 1 << 16;
/// Receive buffer of a socket with default options.
const BUFFER: usize = 212_992;

/// Returns a link with queues for `messages` messages.
fn link(qp_type: QpType, messages: u64) -> Link {
    let mut link = Link { mtu: Mtu::Mtu4096, timeout: 16, qp_type, ..Link::default() };
    (link.cap.max_send_wr, link.cap.max_recv_wr) = (messages as u32, messages as u32);
    link
}

fn world(net: [u8; 3], tune: fn(&mut Config)) -> World {
    let host = HostConfig { receive_buffer: BUFFER, ..HostConfig::default() };
    World::in_net(net, 8, 2, host, tune)
}

/// Returns a SEND of `len` bytes from host 0 to `to` on host 1.
fn send(world: &World, from: &Region, len: usize, to: Qpn) -> SendRequest {
    let av = AddressVector::to(Gid::from(world.nodes[1].ip));
    let target = UdTarget { av, qpn: to, qkey: QKEY };
    request(0, SendOp::Send, &[sge(from, 0, len)]).to(target)
}

/// Posts a stream of SENDs of `len` bytes.
fn post_stream(world: &mut World, qps: [Qpn; 2], messages: u64, len: usize) {
    let [here, there] =
        [0, 1].map(|node: usize| world.nodes[node].region(2 * AREA, 1 << 32, full_access()));
    for wr_id in 0..messages {
        world.post_recv(1, qps[1], wr_id, &[sge(&there, 0, len + 40)]);
        let send = send(world, &here, len, qps[1]);
        world.post_send(0, qps[0], send);
    }
}

/// A receiver that is polled in time loses no packet, on this machine or another.
#[test]
fn default_socket_with_a_prompt_reader_does_not_overflow() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let mut world = world([10, 0, 0], |_| {});
        let qps = world.pair(&link(qp_type, 300));
        post_stream(&mut world, qps, 300, 4096);
        world.run(Duration::from_secs(1));
        assert_eq!(world.nodes[1].recvs.len(), 300, "{qp_type}");
    }
}

/// Management datagrams of queue pair 1 fill the receive buffer of the same socket.
#[test]
fn datagram_waits_for_the_room_that_mads_take() {
    let mut world = world([10, 0, 0], |_| {});
    let qps = world.pair(&link(QpType::Ud, 1));
    let path = MadPath {
        source: world.nodes[0].ip,
        destination: world.nodes[1].ip,
        traffic_class: 0,
        hop_limit: 64,
        pkey: PKey::DEFAULT,
    };
    let mut burst = Burst::new();
    let engine = &mut world.nodes[0].engine;
    for _ in 0..200 {
        let mad = OutgoingMad { path, bytes: Box::new([0; Mad::DATAGRAM_LEN]) };
        engine.send_mad(mad, |_, port| port);
    }
    // MADs do not wait themselves.
    let sent = std::iter::from_fn(|| engine.poll_transmit(world.now, &mut burst).then_some(()));
    assert_eq!(sent.count(), 200);
    post_stream(&mut world, qps, 1, 64);
    let engine = &mut world.nodes[0].engine;
    assert!(!engine.poll_transmit(world.now, &mut burst));
    assert_eq!(engine.counters().window_waits, 1);
    world.run(Duration::from_secs(1));
    assert_eq!(world.nodes[1].recvs.len(), 1);
}

/// Runs until host 0 has sent all of `messages`; host 1 sleeps for 5 ms after each poll.
fn run_with_sleeper(world: &mut World, messages: usize) {
    let nap = Duration::from_millis(5);
    let mut wakes = world.now;
    while world.nodes[0].sends.len() < messages {
        assert!(world.now.as_nanos() < 10_000_000_000, "it takes more than 10 s");
        if world.now >= wakes {
            while world.nodes[1].turn(world.now) {}
            wakes = world.now + nap;
        }
        let sender = &mut world.nodes[0];
        while sender.turn(world.now) {}
        let next = [sender.engine.poll_timeout(), sender.port.poll_timeout(), Some(wakes)];
        world.now = world.now.max(next.into_iter().flatten().min().unwrap());
    }
    world.run(Duration::from_secs(1));
}

/// Returns how many messages of a stream a sleeping host of this machine loses.
fn lost_by_a_sleeper(qp_type: QpType, messages: u64, len: usize, tune: fn(&mut Config)) -> u64 {
    let mut world = world([127, 0, 0], tune);
    world.network.set_conditions(Conditions::default());
    let qps = world.pair(&link(qp_type, messages));
    post_stream(&mut world, qps, messages, len);
    run_with_sleeper(&mut world, messages as usize);
    messages - world.nodes[1].recvs.len() as u64
}

/// The kernel reports the waiting packets of local sockets, however long their owner sleeps.
#[test]
fn local_socket_does_not_overflow_while_its_owner_sleeps() {
    let streams = [
        (QpType::Uc, 1000, 64),
        (QpType::Uc, 500, 4096),
        (QpType::Uc, 100, AREA),
        (QpType::Ud, 1000, 64),
        (QpType::Ud, 500, 4096),
    ];
    for (qp_type, messages, len) in streams {
        let lost = |tune| lost_by_a_sleeper(qp_type, messages, len, tune);
        assert_eq!(lost(|config| config.watches_backlogs = true), 0, "{qp_type}, {len} bytes");
        // The time alone is not sufficient.
        if len >= 4096 {
            assert!(lost(|_| {}) > 0, "{qp_type}, {len} bytes");
        }
    }
}

/// RC and UD share a window, and both make progress.
#[test]
fn rc_and_ud_share_a_local_socket_without_starvation() {
    let mut world = world([127, 0, 0], |config| config.watches_backlogs = true);
    world.network.set_conditions(Conditions::default());
    let datagrams = world.pair(&link(QpType::Ud, 300));
    let connected = world.pair(&link(QpType::Rc, 300));
    let [near, far] =
        [0, 1].map(|node: usize| world.nodes[node].region(AREA, 2 << 32, full_access()));
    post_stream(&mut world, datagrams, 300, 4096);
    for _ in 0..30 {
        let write = SendOp::Write { to: remote(&far, 0) };
        world.post_send(0, connected[0], request(0, write, &[sge(&near, 0, AREA)]));
    }
    run_with_sleeper(&mut world, 330);
    let [sender, receiver] = &world.nodes[..] else { panic!("two hosts") };
    assert_eq!((receiver.recvs.len(), receiver.port.counters().kernel_drops), (300, 0));
    assert!(sender.sends.iter().all(|completion| completion.status == WcStatus::Success));
    let counters = sender.engine.counters();
    assert_eq!((counters.retransmitted, counters.timeouts), (0, 0));
}
