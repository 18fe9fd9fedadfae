//! Any bytes as a capture file, held against the rules; what is remembered stays within its bounds.
//!
//! A good start: `cp pcap/captures/*/*.pcap fuzz/corpus/check/`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use softroce_pcap::Reader;
use softroce_pcap::check::Checker;
use softroce_pcap::flow::Limits;

const LIMITS: Limits = Limits { directions: 8, window: 16, packets: 64 };

fuzz_target!(|file: &[u8]| {
    let Ok(mut reader) = Reader::new(file) else { return };
    let mut checker = Checker::new(LIMITS);
    while let Ok(Some(packet)) = reader.next_packet() {
        checker.packet(&packet);
        let (directions, packets) = checker.tracker().remembered();
        assert!(directions <= LIMITS.directions && packets <= LIMITS.packets);
    }
    let counts = checker.counts();
    let verdicts = counts.icrc_good + counts.icrc_bad + counts.icrc_unknown;
    assert_eq!(verdicts, counts.roce_packets);
});
