//! What the checker takes when a capture has as much as it may remember: alone in its file, for the
//! memory of the whole program is measured.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test file uses a part of it")]
mod packets;

use packets::read;
use peak_alloc::PeakAlloc;
use softroce::ids::Qpn;
use softroce_pcap::check::Checker;
use softroce_pcap::flow::Limits;

#[global_allocator]
static PEAK: PeakAlloc = PeakAlloc;

#[test]
fn as_many_reads_as_are_remembered_stay_far_below_what_the_limits_say() {
    let limits = Limits::default();
    let (directions, packets) =
        (u32::try_from(limits.directions).unwrap(), u32::try_from(limits.packets).unwrap());
    PEAK.reset_peak_usage();
    let before = PEAK.current_usage();
    let mut checker = Checker::new(limits);
    for qp in 0..directions {
        for psn in 0..packets / directions {
            let packet = read(psn, 8).with(|p| p.bth.dest_qp = Qpn::new(2 + qp)).build();
            checker.ip_packet(u64::from(qp * 1000 + psn), None, &packet);
        }
    }
    assert_eq!(checker.tracker().remembered(), (limits.directions, limits.packets));
    // 64 bytes for each packet and 88 for each READ: 76 MiB. Answers to atomics and READs that are
    // resumed may take half as much again, long lists of packets another half.
    let peak = PEAK.peak_usage() - before;
    assert!(peak < 90 << 20, "{} MiB", peak >> 20);
}
