//! Analyzes arbitrary bytes as a capture file; the state stays bounded, and no stream accounts for more time than it
//! lasted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use softroce_fuzz::each_ip_packet;
use softroce_pcap::analyze::{Analyzer, Filter, Limits, Phase};
use softroce_pcap::flow;

const LIMITS: Limits = Limits {
    tracker: flow::Limits { directions: 8, window: 16, packets: 64 },
    streams: 6,
    outstanding: (8, 20),
    points: (16, 60),
};

fuzz_target!(|file: &[u8]| {
    for seal in [false, true] {
        let mut analyzer = Analyzer::new(LIMITS, Filter::default());
        each_ip_packet(file, seal, |number, time, ip| {
            analyzer.ip_packet(number, time, ip);
            let (streams, outstanding, points) = analyzer.remembered();
            assert!(streams <= LIMITS.streams && outstanding <= LIMITS.outstanding.1);
            // Room for points is made when there are too many, and each stream may be at it.
            assert!(points <= LIMITS.points.1 + LIMITS.streams * LIMITS.points.0);
        });
        for flow in &analyzer.finish().flows {
            assert!(flow.reasons().iter().all(|reason| !reason.to_string().is_empty()));
            for stream in &flow.streams {
                let spent: u64 = Phase::ALL.iter().map(|phase| stream.spent(*phase)).sum();
                assert!(spent <= stream.duration());
            }
        }
    }
});
