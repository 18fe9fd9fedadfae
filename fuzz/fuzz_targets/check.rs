//! Checks arbitrary bytes as a capture file against the protocol rules; the state stays bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use softroce_fuzz::each_ip_packet;
use softroce_pcap::check::Checker;
use softroce_pcap::flow::Limits;

const LIMITS: Limits = Limits { directions: 8, window: 16, packets: 64 };

fuzz_target!(|file: &[u8]| {
    for seal in [false, true] {
        let mut checker = Checker::new(LIMITS);
        each_ip_packet(file, seal, |number, time, ip| {
            checker.ip_packet(number, time, ip);
            let (directions, packets) = checker.tracker().remembered();
            assert!(directions <= LIMITS.directions && packets <= LIMITS.packets);
        });
        let counts = checker.counts();
        let verdicts = counts.icrc.good + counts.icrc.bad + counts.icrc.unknown;
        assert_eq!(verdicts, counts.roce_packets);
    }
});
