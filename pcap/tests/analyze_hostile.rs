//! Randomly damaged captures: the analyzer does not fail, stays within its memory limits, and its figures add up.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod damage;

use std::net::IpAddr;
use std::time::Duration;

use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use softroce::ids::Qpn;
use softroce::net::Path as Route;
use softroce::psn::Psn;
use softroce::wire::encap::Headers;
use softroce::wire::packet::datagram_len;
use softroce::wire::{Aeth, Bth, Builder, Opcode, Syndrome};
use softroce_pcap::analyze::{Analysis, Analyzer, Bins, Filter, Limits, Phase};
use softroce_pcap::flow;

use damage::{apply, damage, golden, seal};

#[global_allocator]
static PEAK: PeakAlloc = PeakAlloc;

const LIMITS: Limits = Limits {
    tracker: flow::Limits { directions: 8, window: 16, packets: 64 },
    streams: 6,
    outstanding: (8, 20),
    points: (16, 60),
};

/// Asserts properties of every analysis.
fn adds_up(analysis: &Analysis) {
    let counts = &analysis.counts;
    let verdicts = counts.icrc.good + counts.icrc.bad + counts.icrc.unknown;
    assert_eq!(verdicts, counts.roce_packets);
    for flow in &analysis.flows {
        assert!(!flow.reasons().iter().any(|reason| reason.to_string().is_empty()));
        for stream in &flow.streams {
            assert!(stream.recovery.again.total() <= stream.traffic.requests);
            assert!(stream.first <= stream.last && stream.last <= analysis.duration);
            let spent: u64 = Phase::ALL.iter().map(|phase| stream.spent(*phase)).sum();
            assert!(spent <= stream.duration(), "{spent} of {}", stream.duration());
            assert!(stream.over_time.delivered.values().len() <= Bins::MAX_BINS);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(0xa11a),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn damage_does_no_harm(
        name in prop::sample::select(vec![
            "loss_netem5_pipe.pcap",
            "loss_readresp_mid.pcap",
            "cm_rping.pcap",
            "host_handmade_rc.pcap",
            "k612_flush_global.pcap",
            "rc_srq.pcap",
            "rc_atomic_ipv6.pcap",
            "uc_write.pcap",
            "pp_ud.pcap",
        ]),
        damages in proptest::collection::vec(damage(), 1..60),
    ) {
        let mut packets = golden(name);
        for damage in &damages {
            apply(damage, &mut packets);
        }
        let mut analyzer = Analyzer::new(LIMITS, Filter::default());
        let mut now = Duration::ZERO;
        for (number, packet) in (1..).zip(&packets) {
            now += Duration::from_micros(30);
            analyzer.ip_packet(number, Some(now), packet);
            let (streams, outstanding, points) = analyzer.remembered();
            prop_assert!(streams <= LIMITS.streams);
            prop_assert!(outstanding <= LIMITS.outstanding.1);
            prop_assert!(points <= LIMITS.points.1 + 6 * 16);
        }
        adds_up(&analyzer.finish());
    }
}

/// Returns an empty packet to queue pair `qp` with IPv4 identification `id`; requests go from 10.0.0.1 to 10.0.0.2,
/// responses go `back`.
fn packet(opcode: Opcode, back: bool, (qp, psn): (u32, u32), source_port: u16, id: u16) -> Vec<u8> {
    let (dest_qp, psn) = (Qpn::new(qp), Psn::new(psn));
    let bth = Bth { opcode, dest_qp, psn, ..Bth::default() };
    let mut datagram = vec![0; datagram_len(opcode, 0)];
    let mut builder = Builder::new(&bth, &mut datagram).unwrap();
    if opcode == Opcode::RcAcknowledge {
        let credits = Aeth::UNLIMITED_CREDITS;
        builder.aeth(&Aeth { syndrome: Syndrome::Ack { credits }, msn: 1 });
    }
    let mut hosts: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
    if back {
        hosts.reverse();
    }
    let [source, destination] = hosts;
    let path = Route { source, destination, source_port, traffic_class: 0, hop_limit: 64 };
    let mut packet = Vec::new();
    Headers::write(&path, id, datagram.len(), &mut packet);
    packet.extend(datagram);
    seal(&mut packet);
    packet
}

fn send(qp: u32, psn: u32, id: u16) -> Vec<u8> {
    packet(Opcode::RcSendOnly, false, (qp, psn), 0xc000, id)
}

/// Connections without end, each with more in flight than is remembered, far apart in time: every limit at once.
#[test]
fn memory_stays_within_the_limits() {
    PEAK.reset_peak_usage();
    let before = PEAK.current_usage();
    let mut analyzer = Analyzer::new(Limits::default(), Filter::default());
    let mut number = 0;
    for round in 0..400_u32 {
        for qp in 0..1500 {
            number += 1;
            let now = Duration::from_nanos(number * number);
            analyzer.ip_packet(number, Some(now), &send(qp + 2, round * 3, 0));
        }
    }
    let analysis = analyzer.finish();
    assert_eq!(analysis.flows.len(), Limits::default().streams);
    assert!(analysis.counts.not_followed > 100_000);
    let peak = PEAK.peak_usage() - before;
    assert!(peak < 160 << 20, "{} MiB", peak >> 20);
}

/// A requester numbers a retransmission anew; the network does not.
#[test]
fn network_duplicates_are_no_retransmissions() {
    let mut analyzer = Analyzer::new(Limits::default(), Filter::default());
    for (number, (psn, id)) in (1..).zip([(1, 1), (2, 2), (2, 2), (3, 3), (3, 4)]) {
        let now = Duration::from_micros(number * 10);
        analyzer.ip_packet(number, Some(now), &send(2, psn, id));
    }
    let flow = analyzer.finish().flows.remove(0);
    let stream = &flow.streams[0];
    let again = (stream.recovery.again.total(), stream.recovery.again.unexplained);
    assert_eq!((stream.traffic.requests, stream.traffic.duplicates, again), (5, 1, (1, 1)));
}

/// A UDP sender that starts its own numbering sends the first packets with both.
#[test]
fn copies_at_the_start_of_numbering_are_no_retransmissions() {
    let mut analyzer = Analyzer::new(Limits::default(), Filter::default());
    for (number, (psn, id)) in (1..).zip([(1, 0), (2, 0), (2, 900), (3, 0), (3, 901), (4, 902)]) {
        let now = Duration::from_micros(number * 10);
        analyzer.ip_packet(number, Some(now), &send(2, psn, id));
    }
    let flow = analyzer.finish().flows.remove(0);
    let stream = &flow.streams[0];
    assert_eq!(
        (stream.traffic.requests, stream.traffic.duplicates, stream.recovery.again.total()),
        (6, 2, 0)
    );
}

/// Queue pair 0x11 is connected to 0x21, then to 0x22. Requests to it do not show the change; responses from another
/// port do.
#[test]
fn reconnected_queue_pair_has_another_flow() {
    use Opcode::{RcAcknowledge as Ack, RcSendOnly as Send};
    let packets = [
        packet(Send, false, (0x21, 10), 0xc001, 1),
        packet(Ack, true, (0x11, 10), 0xc001, 1),
        packet(Send, true, (0x11, 500), 0xc001, 2),
        packet(Send, false, (0x22, 90), 0xc002, 2),
        packet(Ack, true, (0x11, 90), 0xc002, 3),
        packet(Send, true, (0x11, 900), 0xc002, 4),
    ];
    let mut analyzer = Analyzer::new(Limits::default(), Filter::default());
    for (number, packet) in (1..).zip(&packets) {
        analyzer.ip_packet(number, Some(Duration::from_micros(number * 10)), packet);
    }
    let flows = analyzer.finish().flows;
    let ends: Vec<_> = flows.iter().map(|flow| (flow.a.qp, flow.b.qp)).collect();
    let qp = |number| Some(Qpn::new(number));
    assert_eq!(ends, [(qp(0x11), qp(0x21)), (qp(0x11), qp(0x22))]);
    for flow in &flows {
        let requests: Vec<_> = flow.streams.iter().map(|stream| stream.traffic.requests).collect();
        assert_eq!(requests, [1, 1]);
    }
}
