//! Cost of foreign packets: they allocate nothing and are counted by reason, and a flood of them delays a connection
//! but does not end it. `benches/foreign_packets.rs` measures the times.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::counting::allocations;
use crate::support::script::{OURS, PEER, Script, rts_qp};
use crate::support::{Link, World, full_access, init_attr, pattern, qp_init, remote, request, sge};
use crate::support::{rtr_attr, rts_attr};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use softroce::engine::{QpState, QpType};
use softroce::ids::Qpn;
use softroce::net::{Burst, BurstToken, Path, ROCE_PORT, RxBuffer, RxMeta};
use softroce::port::Datapath;
use softroce::port::sim::HostConfig;
use softroce::time::Instant;
use softroce::transport::outputs::DropReason;
use softroce::transport::work::{SendOp, WcStatus};
use softroce::wire::icrc::Flow;

/// Number of different packets of each kind, each from its own address where possible.
const PACKETS_PER_KIND: u32 = 4096;

fn foreign_host(number: u32) -> IpAddr {
    Ipv4Addr::from(0xc612_0000 + number).into()
}

/// An engine with an RC queue pair and a UD queue pair.
struct Host {
    t: Script,
    ud: Qpn,
}

impl Host {
    fn new() -> Self {
        let mut t = Script::responder(rts_qp());
        let link = Link { qp_type: QpType::Ud, ..rts_qp() };
        let ud = t.engine.create_qp(Instant::ZERO, qp_init(&link)).unwrap();
        for attr in [
            init_attr(&link).into(),
            rtr_attr(&link, PEER, ud, 5).into(),
            rts_attr(&link, 5).into(),
        ] {
            t.engine.modify_qp(Instant::ZERO, ud, &attr, |_, port| port).unwrap();
        }
        Self { t, ud }
    }

    /// Returns a packet with the ICRC for this source address.
    fn packet(&self, line: &str, source: IpAddr) -> (Vec<u8>, RxMeta) {
        let meta = RxMeta { source: SocketAddr::new(source, 0xc000), ..self.t.meta() };
        let mut bytes = self.t.packet(line);
        Flow::new(meta.source, SocketAddr::new(OURS, ROCE_PORT)).seal(0, &mut bytes);
        (bytes, meta)
    }

    /// Delivers all packets, alone and then merged in buffers of four. They cause no allocation and no response, and
    /// each is counted under one of the reasons.
    #[track_caller]
    fn allocates_nothing(&mut self, packets: &[(Vec<u8>, RxMeta)], reasons: &[DropReason]) {
        let merged: Vec<_> = packets.iter().map(|(bytes, meta)| (bytes.repeat(4), *meta)).collect();
        let before = self.t.engine.counters();
        let allocated = allocations(|| {
            for (all, count) in [(packets, 1), (&merged, 4)] {
                for (data, meta) in all {
                    let rx = RxBuffer { data, segment_len: data.len() / count, meta: *meta };
                    self.t.engine.handle_buffer(Instant::ZERO, rx);
                }
            }
        });
        assert_eq!(allocated, 0, "allocations");
        let now = self.t.engine.counters();
        let counted = reasons.iter().map(|why| now.dropped(*why) - before.dropped(*why));
        assert_eq!(counted.sum::<u64>(), 5 * packets.len() as u64, "{reasons:?}");
        assert!(!self.t.engine.wants_to_transmit(), "a response to a foreign packet");
        assert_eq!(
            (self.t.state(), self.t.recvs(), self.t.events()),
            (QpState::Rts, vec![], vec![])
        );
    }
}

#[test]
fn random_packets_allocate_nothing_and_are_counted() {
    let mut host = Host::new();
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[3; 32]);
    let packets: Vec<_> = (0..PACKETS_PER_KIND)
        .map(|number| {
            let mut bytes = vec![0; 1 + random.next_u32() as usize % 1500];
            random.fill_bytes(&mut bytes);
            let source = SocketAddr::new(foreign_host(number), 0xc000);
            (bytes, RxMeta { source, ..host.t.meta() })
        })
        .collect();
    use DropReason::{Malformed, TransportVersion, UnassignedOpcode, UnknownQp};
    host.allocates_nothing(&packets, &[Malformed, TransportVersion, UnassignedOpcode, UnknownQp]);
}

#[test]
fn packets_for_unknown_queue_pairs_allocate_nothing_and_are_counted() {
    let mut host = Host::new();
    let packets: Vec<_> = (0..PACKETS_PER_KIND)
        .map(|number| {
            // For another shard, so no queue pair here has the number. Queue pair 1 exists.
            let line = format!("RC SEND_ONLY qp={:#08x} psn=5 len=64", (number + 1) << 6 | 1);
            host.packet(&line, foreign_host(number))
        })
        .collect();
    host.allocates_nothing(&packets, &[DropReason::UnknownQp]);
}

#[test]
fn packets_from_other_addresses_allocate_nothing_and_are_counted() {
    let mut host = Host::new();
    let packets: Vec<_> = (0..PACKETS_PER_KIND)
        .map(|number| host.packet("SEND_ONLY psn=5 ackreq len=64", foreign_host(number)))
        .collect();
    host.allocates_nothing(&packets, &[DropReason::WrongAddress]);
}

#[test]
fn spoofed_packets_allocate_nothing_and_are_counted() {
    let mut host = Host::new();
    let damaged: Vec<_> = (0..PACKETS_PER_KIND)
        .map(|psn| {
            let (mut bytes, meta) =
                host.packet(&format!("SEND_ONLY psn={psn} ackreq len=64"), PEER);
            // Two bytes, so that no identification compensates for the change.
            bytes[20] ^= 1;
            bytes[60] ^= 1;
            (bytes, meta)
        })
        .collect();
    host.allocates_nothing(&damaged, &[DropReason::BadIcrc]);
    let other: Vec<_> = (0..PACKETS_PER_KIND)
        .map(|psn| {
            host.packet(&format!("SEND_ONLY psn={psn} pkey=0x{:04x} len=64", psn & 0xfff), PEER)
        })
        .collect();
    host.allocates_nothing(&other, &[DropReason::PKeyMismatch]);
    let qpn = host.t.qpn;
    let other: Vec<_> = (0..PACKETS_PER_KIND)
        .map(|psn| host.packet(&format!("UC SEND_ONLY qp={qpn} psn={psn} len=64"), PEER))
        .collect();
    host.allocates_nothing(&other, &[DropReason::WrongTransport]);
}

#[test]
fn datagrams_with_guessed_qkeys_allocate_nothing_and_are_counted() {
    let mut host = Host::new();
    let packets: Vec<_> = (0..PACKETS_PER_KIND)
        .map(|number| {
            let (ud, qkey) = (host.ud, number + 0x2000);
            let line =
                format!("UD SEND_ONLY qp={ud} psn=5 qkey={qkey:#010x} srcqp=0x000012 len=64");
            host.packet(&line, foreign_host(number))
        })
        .collect();
    host.allocates_nothing(&packets, &[DropReason::QKeyMismatch]);
}

/// Returns a burst that fills a receive buffer, from the third host to the second.
fn flood(world: &World, len: usize) -> Burst {
    let mut burst = Burst::new();
    let (source, destination) = (world.nodes[2].ip, world.nodes[1].ip);
    let path = Path { source, destination, source_port: 0xc000, traffic_class: 0, hop_limit: 64 };
    burst.reset(path, BurstToken(0));
    burst.push(len).fill(0xff);
    burst
}

/// An unlimited flood: whenever the slow receiver has emptied its receive buffer, foreign packets fill it before the
/// peer's packets arrive. The connection makes no progress during the flood, and completes after it.
#[test]
fn connection_survives_a_flood_of_its_receive_buffer() {
    for seed in 0..20 {
        let host = HostConfig { receive_buffer: 64 << 10, ..HostConfig::default() };
        let mut world = World::with(seed, 3, host, |_| {});
        // 1 ms and 7 retries: no request fails within 8 ms.
        let link = Link { timeout: 8, retry_cnt: 7, ..Link::default() };
        let [a, b] = world.pair(&link);
        let source = world.nodes[0].region(1 << 16, 0x1000, full_access());
        let target = world.nodes[1].region(1 << 16, 0x1000, full_access());
        source.write_at(0, &pattern(seed, 1 << 16)).unwrap();
        let stranger = flood(&world, 2048);
        for wr_id in 0..16 {
            let at = wr_id as usize * 4096;
            let op = SendOp::Write { to: remote(&target, at) };
            world.post_send(0, a, request(wr_id, op, &[sge(&source, at, 4096)]));
        }

        let end = Instant::from_millis(6);
        let mut step = 0;
        while world.now < end {
            if step % 10 == 0 {
                world.nodes[1].turn(world.now);
            }
            for _ in 0..32 {
                let bursts = std::slice::from_ref(&stranger);
                assert_eq!(world.nodes[2].port.transmit(world.now, bursts), Ok(1));
            }
            // The peer's packets find the buffer full.
            world.now += Duration::from_micros(10);
            world.nodes[0].turn(world.now);
            step += 1;
        }
        let counters = world.nodes[1].engine.counters();
        assert!(world.nodes[0].sends.is_empty(), "seed {seed}: it has not starved");
        assert!(counters.dropped(DropReason::TransportVersion) > 1000, "{counters:?}");

        world.run(Duration::from_millis(20));
        let done: Vec<_> = world.nodes[0].sends.iter().map(|c| (c.wr_id, c.status)).collect();
        let expected: Vec<_> = (0..16).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        assert_eq!(done, expected, "seed {seed}");
        let mut seen = vec![0; 1 << 16];
        target.read_at(0, &mut seen).unwrap();
        assert!(seen == pattern(seed, 1 << 16), "seed {seed}: other bytes");
        assert_eq!([(0, a), (1, b)].map(|(node, qp)| world.state(node, qp)), [QpState::Rts; 2]);
    }
}
