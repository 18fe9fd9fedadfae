//! Devices with several shards.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use softroce::net::{Burst, BurstToken, Path, ROCE_PORT};
use softroce::port::udp::UdpPort;
use softroce::port::{Control, Datapath, Direction, PortConfig, Sink, wait_readable};
use softroce::runtime::control::{CaptureFilter, Request};
use softroce::time::Instant;
use softroce::transport::outputs::DropReason;
use softroce::verbs::*;
use softroce::wire::icrc::Flow;
use softroce::wire::packet::{ICRC_LEN, padding};
use softroce::wire::{Bth, Builder, Deth, Opcode};

use crate::control::Peer;
use crate::multicast::fresh_group;
use crate::node::{
    Node, PROCESS_START_LOCK, QKEY, RECV_BYTES, WAIT_LIMIT, all_access, datagrams, fresh_ip, open,
    open_with,
};
use crate::process;
use crate::tasks::block_on;
use crate::within::until;

/// Opens a device with this number of shards.
fn sharded(count: u8) -> Context {
    open_with(OpenOptions::default().shards(count))
}

/// A device with one queue pair on each of its shards, and a peer for each. All complete in one queue.
struct ShardedDevice {
    node: Node,
    qps: Vec<QueuePair>,
    peers: Vec<Node>,
}

impl ShardedDevice {
    fn new(shards: u8) -> Self {
        let ctx = sharded(shards);
        let channel = ctx.create_channel().unwrap();
        let cq = ctx.create_cq(256, Some(&channel)).unwrap();
        Self::of(Node::with_cq(ctx, cq), shards)
    }

    fn of(node: Node, shards: u8) -> Self {
        let (mut qps, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..shards {
            let (qp, peer) =
                (node.pd.create_qp(&QpConfig::rc(&node.cq)).unwrap(), Node::on(open()));
            qp.connect(&peer.qp.endpoint(), &ConnectOptions::default()).unwrap();
            peer.qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
            qps.push(qp);
            peers.push(peer);
        }
        let on: BTreeSet<_> = qps.iter().map(|qp| qp.qpn().shard()).collect();
        assert_eq!(on.len(), usize::from(shards), "one on each");
        Self { node, qps, peers }
    }

    /// Posts a receive request on each queue pair, with its index as number.
    fn listen(&self) {
        for (at, qp) in (0..).zip(&self.qps) {
            let range = 64 * at..64 * at + 64;
            qp.post_recv(RecvRequest::new(at as u64, self.node.mr.sge(range))).unwrap();
        }
    }

    /// Sends a message from each of the peers.
    fn call(&self) {
        for peer in &self.peers {
            peer.run(SendRequest::send(1, SendData::inline(b"for this queue")));
        }
    }

    /// Checks by completions that every queue pair has received a message.
    fn heard(&self, completions: impl IntoIterator<Item = Completion>) {
        let heard = |completion: Completion| {
            assert_eq!(completion.status, WcStatus::Success);
            completion.wr_id as usize
        };
        let heard: BTreeSet<_> = completions.into_iter().take(self.qps.len()).map(heard).collect();
        assert_eq!(heard, (0..self.qps.len()).collect());
    }
}

// ---- assignment to shards ----

#[test]
fn queue_pairs_are_assigned_round_robin_or_with_their_shared_objects() {
    let ctx = sharded(4);
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None).unwrap());
    let on = |qp: QueuePair| qp.qpn().shard();
    let qps: Vec<_> = (0..8).map(|_| on(pd.create_qp(&QpConfig::rc(&cq)).unwrap())).collect();
    assert_eq!(qps, [0, 1, 2, 3, 0, 1, 2, 3]);

    let srqs: Vec<_> = (0..8).map(|_| pd.create_srq(&SrqConfig::default()).unwrap()).collect();
    let numbers: BTreeSet<_> = srqs.iter().map(SharedReceiveQueue::srqn).collect();
    assert_eq!(numbers.len(), 8, "each has a number of its own");
    let shared = |srq| QpConfig { srq: Some(srq), ..QpConfig::ud(&cq) };
    for (at, srq) in (0..).zip(&srqs) {
        let takers = [(); 3].map(|()| on(pd.create_qp(&shared(srq)).unwrap()));
        assert_eq!(takers, [at % 4; 3]);
    }

    let domains = [(); 2].map(|()| ctx.open_xrcd(&XrcdOptions::default()).unwrap());
    let targets = domains.each_ref().map(|domain| {
        let targets = [(); 2].map(|()| domain.create_target().unwrap().qpn().shard());
        assert_eq!(targets[0], targets[1]);
        targets[0]
    });
    assert_ne!(targets[0], targets[1]);

    let threads = [ctx.alloc_td(), ctx.alloc_td()];
    let of_threads = threads.each_ref().map(|td| {
        let parent = ctx.alloc_parent_domain(&pd, Some(td)).unwrap();
        let qps = [(); 3].map(|()| on(parent.create_qp(&QpConfig::rc(&cq)).unwrap()));
        assert!(qps.iter().all(|shard| *shard == qps[0]));
        qps[0]
    });
    assert_ne!(of_threads[0], of_threads[1]);
}

#[test]
fn invalid_shard_options_are_refused() {
    let said = |options: OpenOptions| {
        Context::open(options.ip(fresh_ip())).map(drop).unwrap_err().to_string()
    };
    for count in [0, 3, 128] {
        let expected = format!("a device has 1, 2, 4, 8, 16, 32 or 64 shards, not {count}");
        assert_eq!(said(OpenOptions::default().shards(count)), expected);
    }
    #[cfg(feature = "packet")]
    assert_eq!(
        said(OpenOptions::default().shards(2).via(softroce::port::PortKind::Packet)),
        "2 shards are asked for by packet, and only a device by udp has more than one; several processes \
         share an address by packet"
    );
    let ctx = sharded(2);
    let again = OpenOptions::default().ip(ctx.ip());
    assert!(Context::open(again.shards(2)).is_err(), "it is open, and must be taken as it is");
}

// ---- one completion queue, several shards ----

#[test]
fn poll_returns_completions_of_all_shards() {
    let hub = ShardedDevice::new(4);
    for _ in 0..50 {
        hub.listen();
        hub.call();
        let mut found = Vec::new();
        until("a message by each shard", || {
            hub.node.cq.poll(&mut found, 16);
            found.len() >= 4
        });
        hub.heard(found);
    }
}

/// Messages to each shard wake one sleeping thread.
#[test]
fn any_shard_wakes_a_waiting_thread() {
    let hub = ShardedDevice::new(2);
    for _ in 0..50 {
        hub.listen();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| [(); 2].map(|()| hub.node.next()));
            hub.call();
            hub.heard(waiter.join().unwrap());
        });
    }
}

#[test]
fn several_threads_wait_for_several_shards() {
    let hub = ShardedDevice::new(4);
    for _ in 0..50 {
        hub.listen();
        thread::scope(|scope| {
            let waiters = [(); 4].map(|()| scope.spawn(|| hub.node.next()));
            hub.call();
            hub.heard(waiters.map(|waiter| waiter.join().unwrap()));
        });
    }
}

/// Two threads wait for different queues. Each drives a shard that also has a queue pair of the other's queue.
#[test]
fn thread_that_drives_a_shard_wakes_the_thread_that_waits_for_it() {
    let ctx = sharded(2);
    let hubs = [(); 2].map(|()| ShardedDevice::of(Node::on(ctx.clone()), 2));
    for _ in 0..50 {
        hubs.iter().for_each(ShardedDevice::listen);
        thread::scope(|scope| {
            for hub in &hubs {
                scope.spawn(|| hub.heard([hub.node.next(), hub.node.next()]));
                scope.spawn(|| hub.call());
            }
        });
    }
}

#[test]
fn channel_announces_completions_of_all_shards() {
    let hub = ShardedDevice::new(4);
    let cq = &hub.node.cq;
    let channel = cq.channel().unwrap();
    for peer in &hub.peers {
        hub.listen();
        cq.req_notify(false);
        peer.run(SendRequest::send(1, SendData::inline(b"!")));
        assert_eq!(channel.wait(WAIT_LIMIT).unwrap(), *cq);
        assert_eq!(hub.node.next().status, WcStatus::Success);
        assert!(channel.wait(std::time::Duration::ZERO).is_err(), "announced once");
    }
}

#[test]
fn channel_descriptor_is_readable_for_every_shard() {
    let hub = ShardedDevice::new(4);
    let cq = &hub.node.cq;
    let channel = cq.channel().unwrap();
    let descriptor = channel.as_fd();
    for peer in &hub.peers {
        hub.listen();
        cq.req_notify(false);
        peer.run(SendRequest::send(1, SendData::inline(b"!")));
        assert!(wait_readable(&[descriptor], Some(WAIT_LIMIT)).unwrap());
        assert_eq!(channel.wait(std::time::Duration::ZERO).unwrap(), *cq);
        assert_eq!(hub.node.next().status, WcStatus::Success);
    }
}

#[test]
fn any_shard_wakes_a_task() {
    let hub = ShardedDevice::new(4);
    for _ in 0..20 {
        hub.listen();
        thread::scope(|scope| {
            let task = scope.spawn(|| {
                let mut found = Vec::new();
                for _ in 0..4 {
                    found.push(block_on(hub.node.cq.next()).unwrap());
                }
                found
            });
            hub.call();
            hub.heard(task.join().unwrap());
        });
    }
}

/// Four completions of four shards, one of each.
#[test]
fn moderation_counts_completions_of_all_shards() {
    let hub = ShardedDevice::new(4);
    let cq = &hub.node.cq;
    cq.modify(Moderation { count: 4, period: 0 }).unwrap();
    for _ in 0..10 {
        hub.listen();
        cq.req_notify(false);
        hub.call();
        let announced = cq.channel().unwrap().wait(WAIT_LIMIT).unwrap();
        let mut found = Vec::new();
        assert_eq!((announced.poll(&mut found, 16), announced.poll(&mut found, 16)), (4, 0));
        hub.heard(found);
    }
}

/// The event is reported once, and each shard fails its queue pairs at their next completion.
#[test]
fn cq_overrun_is_reported_once() {
    let ctx = sharded(2);
    let cq = ctx.create_cq(1, None).unwrap();
    let hub = ShardedDevice::of(Node::with_cq(ctx, cq), 2);
    hub.listen();
    hub.listen();
    for peer in &hub.peers {
        for _ in 0..2 {
            peer.send(SendRequest::send(1, SendData::inline(b"!")));
        }
    }
    let event = hub.node.ctx.wait_event(WAIT_LIMIT).unwrap();
    assert_eq!(event, AsyncEvent::CqErr(hub.node.cq.id()));
    until("the queue pairs to fail", || {
        let event = hub.node.ctx.poll_event();
        assert!(!matches!(event, Some(AsyncEvent::CqErr(_))), "told twice");
        hub.qps.iter().all(|qp| qp.state().unwrap() == QpState::Err)
    });
    assert!(hub.node.cq.wait_one(WAIT_LIMIT).is_ok(), "what was in it");
    assert!(matches!(hub.node.cq.wait_one(WAIT_LIMIT), Err(Error::Overrun { .. })));
}

// ---- objects of one shard ----

#[test]
fn queue_pairs_take_from_their_srq_on_any_shard() {
    let ctx = sharded(4);
    let node = Node::on(ctx);
    let srqs = [(); 4].map(|()| node.pd.create_srq(&SrqConfig::default()).unwrap());
    for (at, srq) in (0..).zip(&srqs) {
        let shared = QpConfig { srq: Some(srq), ..QpConfig::rc(&node.cq) };
        let qps = [(); 2].map(|()| node.pd.create_qp(&shared).unwrap());
        for (round, qp) in (0..).zip(&qps) {
            let peer = Node::on(open());
            qp.connect(&peer.qp.endpoint(), &ConnectOptions::default()).unwrap();
            peer.qp.connect(&qp.endpoint(), &ConnectOptions::default()).unwrap();
            let wr_id = 10 * at + round;
            srq.post_recv(RecvRequest::new(wr_id, node.mr.sge(..64))).unwrap();
            peer.run(SendRequest::send(1, SendData::inline(b"to whom it may concern")));
            let taken = node.next();
            assert_eq!((taken.wr_id, taken.qpn), (wr_id, qp.qpn()));
        }
    }
}

#[test]
fn xrc_domain_belongs_to_one_shard() {
    let node = Node::on(sharded(4));
    for wr_id in 0..8 {
        let domain = node.ctx.open_xrcd(&XrcdOptions::default()).unwrap();
        let cq = node.ctx.create_cq(4, None).unwrap();
        let srq = node.pd.create_xrc_srq(&SrqConfig::default(), &domain, &cq).unwrap();
        let target = domain.create_target().unwrap();
        let sender = Node::on(open());
        let initiator = sender.pd.create_qp(&QpConfig::xrc(&sender.cq)).unwrap();
        initiator.connect(&target.endpoint(), &ConnectOptions::default()).unwrap();
        target.connect(&initiator.endpoint(), &ConnectOptions::default()).unwrap();
        srq.post_recv(RecvRequest::new(wr_id, node.mr.sge(..64))).unwrap();
        let hello = SendRequest::send(1, SendData::inline(b"hello"));
        initiator.post_send(hello.to(srq.srqn()).signaled()).unwrap();
        assert_eq!(sender.next().status, WcStatus::Success);
        assert_eq!(cq.wait_one(WAIT_LIMIT).unwrap().wr_id, wr_id);
    }
}

// ---- datagrams ----

/// Returns UD nodes of a device, one on each shard in order, with this many receive requests.
fn ud_per_shard(ctx: &Context, receives: u64) -> Vec<Node> {
    let member = |shard| {
        let mut node = Node::on(ctx.clone());
        let mut qps = (0..).map(|_| node.pd.create_qp(&QpConfig::ud(&node.cq)).unwrap());
        let qp = qps.by_ref().take(64).find(|qp| qp.qpn().shard() == shard).unwrap();
        drop(qps);
        node.qp = qp;
        node.qp.activate(QKEY).unwrap();
        for wr_id in 0..receives {
            let at = wr_id as usize * RECV_BYTES;
            node.recv(wr_id, at..at + RECV_BYTES);
        }
        node
    };
    (0..ctx.device_info().unwrap().shards).map(member).collect()
}

#[test]
fn group_member_on_any_shard_receives_a_message_once() {
    let ctx = sharded(4);
    let (group, members, foreign) = (fresh_group(), ud_per_shard(&ctx, 16), datagrams(open(), 0));
    for member in &members {
        member.qp.attach_mcast(group).unwrap();
    }
    let message = SendRequest::send(99, SendData::inline(b"!"));
    for sender in [&foreign, &members[2]] {
        let ah = sender.pd.create_ah(AddressVector::to(group)).unwrap();
        sender.qp.post_send(message.clone().to(ah.target(Qpn::MULTICAST, QKEY))).unwrap();
    }
    // A unicast message to each member marks the end of the earlier ones of the same socket.
    for (at, member) in members.iter().enumerate() {
        let expected = if at == 2 { 1 } else { 2 };
        for _ in 0..expected {
            assert_eq!(member.next().status, WcStatus::Success);
        }
        member.qp.detach_mcast(group).unwrap();
        assert_eq!(member.cq.poll_one(), None);
    }
}

#[test]
fn own_datagrams_reach_the_right_shard() {
    let ctx = sharded(4);
    let (members, sender) = (ud_per_shard(&ctx, 32), datagrams(open(), 0));
    let ah = sender.pd.create_ah(AddressVector::to(members[0].qp.endpoint().gid)).unwrap();
    let to = |place: usize| {
        let message = SendRequest::send(0, SendData::inline(&[place as u8]));
        message.to(ah.target(members[place * 7 % 4].qp.qpn(), QKEY))
    };
    sender.qp.post_all((0..64).map(to)).unwrap();
    for member in &members {
        for _ in 0..16 {
            assert_eq!(member.next().status, WcStatus::Success);
        }
    }
    let counters = ctx.counters().unwrap();
    assert_eq!((counters.port.misrouted, dropped(&counters.protocol)), (0, 0));
}

/// Returns the number of dropped packets, for any reason.
fn dropped(counters: &Counters) -> u64 {
    DropReason::ALL.iter().map(|reason| counters.dropped(*reason)).sum()
}

/// Returns a burst as foreign implementations may send it: datagrams to queue pairs of several shards.
fn mixed(path: Path, destinations: impl IntoIterator<Item = Qpn>) -> Burst {
    let mut burst = Burst::new();
    burst.reset(path, BurstToken(0));
    let to = (path.destination, ROCE_PORT).into();
    let flow = Flow::new((path.source, path.source_port).into(), to);
    for (id, dest_qp) in (0..).zip(destinations) {
        let opcode = Opcode::UdSendOnly;
        let payload = [id as u8; 16];
        let bth = Bth { opcode, dest_qp, pkey: PKey::DEFAULT, ..Bth::default() };
        let len = opcode.header_len() + payload.len() + padding(payload.len()) + ICRC_LEN;
        let bytes = burst.push(len);
        let mut builder = Builder::new(&bth, bytes).unwrap();
        builder.deth(&Deth { qkey: QKEY, source_qp: Qpn::new(77) });
        builder.payload_mut().copy_from_slice(&payload);
        flow.seal(id, bytes);
    }
    burst
}

#[test]
fn foreign_burst_to_several_shards_reaches_all_of_them() {
    let ctx = sharded(4);
    let members = ud_per_shard(&ctx, 8);
    let mut foreign = UdpPort::open(&PortConfig::new(fresh_ip())).unwrap();
    let source = foreign.info().ip;
    let source_port = foreign.source_port(source, 0xc000);
    let destination = ctx.ip();
    let path = Path { source, destination, source_port, traffic_class: 0, hop_limit: 64 };
    let burst = mixed(path, (0..32).map(|place: usize| members[place * 5 % 4].qp.qpn()));
    assert_eq!(foreign.transmit(Instant::ZERO, &[burst]), Ok(1));
    for member in &members {
        let arrived: Vec<_> = (0..8).map(|_| member.next()).collect();
        assert!(arrived.iter().all(|end| (end.status, end.byte_len) == (WcStatus::Success, 56)));
    }
    let counters = ctx.counters().unwrap();
    assert_eq!((counters.port.misrouted, counters.port.misrouted_lost), (24, 0));
    assert_eq!((counters.protocol.rx_packets, dropped(&counters.protocol)), (32, 0));
}

// ---- objects of the device ----

/// All shards write to a region. After its deregistration none does.
#[test]
fn deregistered_region_is_not_written_by_any_shard() {
    let hub = ShardedDevice::new(4);
    for _ in 0..5 {
        let hub = ShardedDevice::of(Node::on(hub.node.ctx.clone()), 4);
        let region = hub.node.pd.alloc_mr(4096, all_access()).unwrap();
        let writing = AtomicU64::new(0);
        thread::scope(|scope| {
            for (at, peer) in (0..).zip(&hub.peers) {
                let (region, writing) = (&region, &writing);
                scope.spawn(move || {
                    let mut word = 0_u64;
                    loop {
                        word += 1;
                        let data = SendData::inline(&word.to_ne_bytes());
                        peer.send(SendRequest::write(word, data, region.remote(8 * at)));
                        let end = peer.next().status;
                        if end != WcStatus::Success {
                            return assert_eq!(end, WcStatus::RemAccessErr);
                        }
                        writing.fetch_or(1 << at, Ordering::Relaxed);
                    }
                });
            }
            until("all to write", || {
                assert_eq!(hub.node.cq.poll_one(), None);
                writing.load(Ordering::Relaxed) == 0xf
            });
            region.deregister().unwrap();
            let words = || [0, 8, 16, 24].map(|at| region.load_u64(at).unwrap());
            let before = words();
            for _ in 0..1000 {
                hub.node.cq.poll_one();
            }
            assert_eq!(words(), before);
        });
    }
}

#[test]
fn device_counters_cover_all_shards() {
    let hub = ShardedDevice::new(4);
    hub.listen();
    hub.call();
    hub.heard([(); 4].map(|()| hub.node.next()));
    let counters = hub.node.ctx.counters().unwrap();
    let of_qps = hub.qps.iter().map(|qp| qp.counters().unwrap().rx_packets);
    assert_eq!(of_qps.clone().min(), Some(1));
    assert_eq!(counters.protocol.rx_packets, of_qps.sum::<u64>());
    assert_eq!(counters.port.rx_datagrams, counters.protocol.rx_packets);
    let listed: BTreeSet<_> = counters.by_qp.iter().map(|(qpn, _)| *qpn).collect();
    assert!(hub.qps.iter().all(|qp| listed.contains(&qp.qpn())));
}

/// Counts packets, and panics on request.
#[derive(Clone, Default)]
struct CountingSink {
    packets: Arc<AtomicU64>,
    panics: Arc<AtomicBool>,
}

impl Sink for CountingSink {
    fn packet(&mut self, _: Instant, _: Direction, _: &[u8]) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics.load(Ordering::Relaxed), "for a test");
    }
}

#[test]
fn capture_contains_packets_of_all_shards() {
    let watched = CountingSink::default();
    let options = OpenOptions::default().shards(4).capture(Box::new(watched.clone()));
    let hub = ShardedDevice::of(Node::on(open_with(options)), 4);
    hub.listen();
    hub.call();
    hub.heard([(); 4].map(|()| hub.node.next()));
    let Counters { tx_packets, rx_packets, .. } = hub.node.ctx.counters().unwrap().protocol;
    assert_eq!((watched.packets.load(Ordering::Relaxed), rx_packets), (tx_packets + rx_packets, 4));
}

#[test]
fn failure_of_one_shard_fails_the_device() {
    let watched = CountingSink::default();
    let options = OpenOptions::default().shards(4).capture(Box::new(watched.clone()));
    let hub = ShardedDevice::of(Node::on(open_with(options)), 4);
    hub.listen();
    watched.panics.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let events = scope.spawn(|| hub.node.ctx.wait_event(WAIT_LIMIT).unwrap());
        let send = SendRequest::send(1, SendData::inline(b"!"));
        // The panic may occur in any thread.
        let _ = catch_unwind(AssertUnwindSafe(|| hub.qps[3].post_send(send)));
        assert_eq!(events.join().unwrap(), AsyncEvent::DeviceFatal);
    });
    for qp in &hub.qps {
        assert!(matches!(qp.state(), Err(Error::Device(_))));
    }
    let mut flushed = Vec::new();
    while let Ok(completion) = hub.node.cq.wait_one(WAIT_LIMIT) {
        flushed.push((completion.wr_id, completion.status));
    }
    flushed.sort_unstable_by_key(|(wr_id, _)| *wr_id);
    let receives: Vec<_> =
        flushed.into_iter().filter(|(_, status)| *status == WcStatus::WrFlushErr).collect();
    assert!(receives.len() >= 4, "{receives:?}");
}

#[test]
fn address_with_several_shards_reopens_immediately() {
    let ip = fresh_ip();
    let _no_new_process = PROCESS_START_LOCK.read().unwrap();
    for count in [4, 1, 2, 64].repeat(4) {
        let ctx = Context::open(OpenOptions::default().ip(ip).shards(count)).unwrap();
        let peer = Node::on(open());
        for _ in 0..count.min(4) {
            let node = Node::on(ctx.clone());
            node.connect(&peer, &ConnectOptions::default());
            node.run(SendRequest::write(1, node.mr.sge(..8), peer.mr.remote(64)));
            peer.qp.modify(QpAttr::to(QpState::Reset)).unwrap();
        }
    }
}

/// A process that starts has the sockets of this one until it executes its program.
#[test]
fn shards_open_while_processes_start() {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let _alone = PROCESS_START_LOCK.write().unwrap();
                assert!(Command::new("true").status().unwrap().success());
            }
        });
        let opened: Vec<_> = (0..100)
            .map(|_| Context::open(OpenOptions::default().ip(fresh_ip()).shards(4)).map(drop))
            .collect();
        is_done.store(true, Ordering::Relaxed);
        opened.into_iter().for_each(Result::unwrap);
    });
}

/// Each shard of a device with several addresses has a socket at each.
#[test]
fn every_shard_has_all_addresses_of_the_device() {
    let spare: IpAddr = fresh_ip();
    let hub = Node::on(open_with(OpenOptions::default().also_ip(spare).shards(2)));
    for _ in 0..2 {
        let (qp, peer) = (hub.pd.create_qp(&QpConfig::rc(&hub.cq)).unwrap(), Node::on(open()));
        let options = ConnectOptions { sgid_index: 1, ..ConnectOptions::default() };
        qp.connect(&peer.qp.endpoint(), &options).unwrap();
        peer.qp.connect(&qp.endpoint_at(1).unwrap(), &ConnectOptions::default()).unwrap();
        qp.post_recv(RecvRequest::new(7, hub.mr.sge(..64))).unwrap();
        peer.run(SendRequest::send(1, SendData::inline(b"by another way")));
        assert_eq!(hub.next().wr_id, 7);
    }
}

// ---- connection manager ----

#[test]
fn queue_pairs_of_every_shard_are_connected_by_address_and_port() {
    let [near, far] = [(); 2].map(|()| Node::on(sharded(4)));
    let listener = cm::Listener::bind(&far.ctx, "0.0.0.0:0".parse().unwrap()).unwrap();
    let address = SocketAddr::new(far.ctx.ip(), listener.local_addr().port());
    for _ in 0..8 {
        let [near_qp, far_qp] =
            [&near, &far].map(|node| node.pd.create_qp(&QpConfig::rc(&node.cq)).unwrap());
        let options = cm::Connect::default();
        let connecting = cm::Connecting::start(&near.ctx, address, &near_qp, &options).unwrap();
        let incoming = listener.accept(WAIT_LIMIT).unwrap();
        let far_end = incoming.accept(&far_qp, &cm::Accept::default()).unwrap();
        let near_end = connecting.wait(WAIT_LIMIT).unwrap();
        let write = SendRequest::write(1, near.mr.sge(..64), far.mr.remote(0));
        near_qp.post_send(write.signaled()).unwrap();
        assert_eq!(near.end(), (1, WcStatus::Success));
        drop(near_end);
        let events = [(); 2].map(|()| far_end.wait(WAIT_LIMIT).unwrap());
        let disconnected = cm::ConnectionEvent::Disconnected { answered: true };
        assert_eq!(events, [cm::ConnectionEvent::Established, disconnected]);
    }
}

// ---- all other tests ----

/// Runs all other tests on devices with this number of shards. Excluded are tests that set the number of shards or
/// the port, tests without free descriptors or memory, and the test that closes one socket, which may belong to a
/// shard without a queue pair.
fn run_all_tests_with_shards(shards: u8) {
    let left_out = [
        "shards::",
        "ports::",
        "name_conflict::",
        "without_free_descriptors",
        "process_without_memory",
        "closed_socket_fails_the_device",
    ];
    process::run_all(("SOFTROCE_SHARDS", &shards.to_string()), &left_out);
}

#[test]
#[ignore = "takes as long as all the others"]
fn all_tests_pass_with_two_shards() {
    run_all_tests_with_shards(2);
}

#[test]
#[ignore = "takes as long as all the others"]
fn all_tests_pass_with_four_shards() {
    run_all_tests_with_shards(4);
}

#[test]
fn capture_of_a_device_with_shards_has_the_packets_of_all() {
    let (ctx, peer) = (sharded(2), open());
    let pairs = [(); 2].map(|()| Node::pair_on(ctx.clone(), peer.clone()));
    let [(a, b), (c, d)] = &pairs;
    assert_ne!(a.qp.qpn().shard(), c.qp.qpn().shard());
    let expected: BTreeSet<_> = [a, b, c, d].map(|node| node.qp.qpn()).into();
    let mut client = Peer::connect(&ctx);
    client.request(&Request::Capture(CaptureFilter::default()));
    for (near, far) in &pairs {
        near.run(SendRequest::write(1, near.mr.sge(..64), far.mr.remote(0)));
    }
    drop((pairs, ctx));
    let destination = |packet: &[u8]| Bth::destination(packet[28..].first_chunk().unwrap());
    let found: BTreeSet<_> =
        client.records().iter().map(|(_, packet)| destination(packet)).collect();
    assert_eq!(found, expected);
}
