//! Randomly damaged captures: the checker does not fail, and stays within its memory limits.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod damage;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use softroce::ids::Qpn;
use softroce::net::Path as Route;
use softroce::psn::Psn;
use softroce::wire::encap::Headers;
use softroce::wire::packet::datagram_len;
use softroce::wire::{Bth, Builder, Opcode};
use softroce_pcap::check::Checker;
use softroce_pcap::flow::Limits;

use damage::{apply, damage, golden, seal};

const LIMITS: Limits = Limits { directions: 8, window: 16, packets: 64 };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(0x5eed),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn damage_does_no_harm(
        name in prop::sample::select(vec![
            "loss_netem5_pipe.pcap",
            "cm_rping.pcap",
            "host_handmade_rc.pcap",
            "k612_flush_global.pcap",
            "rc_srq.pcap",
            "rc_atomic_ipv6.pcap",
        ]),
        damages in proptest::collection::vec(damage(), 1..60),
    ) {
        let mut packets = golden(name);
        for damage in &damages {
            apply(damage, &mut packets);
        }
        let mut checker = Checker::new(LIMITS);
        let mut now = Duration::ZERO;
        for (number, packet) in (1..).zip(&packets) {
            now += Duration::from_micros(30);
            checker.ip_packet(number, Some(now), packet);
            let (directions, remembered) = checker.tracker().remembered();
            prop_assert!(directions <= LIMITS.directions);
            prop_assert!(remembered <= LIMITS.packets);
        }
        let counts = checker.counts();
        prop_assert_eq!(
            counts.icrc.good + counts.icrc.bad + counts.icrc.unknown,
            counts.roce_packets
        );
    }
}

/// Returns the maximum number of directions and packets remembered while each of many queue pairs gets `each`
/// packets.
fn most_remembered(each: u32) -> (usize, usize) {
    let limits = Limits { directions: 100, window: 1000, packets: 2000 };
    let mut checker = Checker::new(limits);
    let mut most = (0, 0);
    for n in 0..20_000_u32 {
        let opcode = Opcode::RcSendOnly;
        let bth =
            Bth { opcode, dest_qp: Qpn::new(2 + n / each), psn: Psn::new(n), ..Bth::default() };
        let mut datagram = vec![0; datagram_len(opcode, 0)];
        Builder::new(&bth, &mut datagram).unwrap();
        let path = Route {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            source_port: 0xc000,
            traffic_class: 0,
            hop_limit: 64,
        };
        let mut packet = Vec::new();
        Headers::write(&path, 0, datagram.len(), &mut packet);
        packet.extend(datagram);
        seal(&mut packet);
        checker.ip_packet(n.into(), None, &packet);
        let (directions, packets) = checker.tracker().remembered();
        most = (most.0.max(directions), most.1.max(packets));
    }
    assert!(checker.tracker().forgotten() > 300);
    most
}

#[test]
fn old_connections_are_forgotten() {
    assert_eq!(most_remembered(7), (100, 700));
    let (directions, packets) = most_remembered(37);
    assert!(directions < 100);
    assert_eq!(packets, 2000);
}

#[test]
fn one_long_connection_remembers_its_window() {
    let limits = Limits { directions: 4, window: 50, packets: 1000 };
    let mut checker = Checker::new(limits);
    for (number, packet) in (1..).zip(golden("loss_netem5_pipe.pcap")) {
        checker.ip_packet(number, None, &packet);
    }
    assert_eq!(checker.tracker().remembered(), (2, 50));
}
