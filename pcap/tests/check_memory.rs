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
    // As many READs of one direction as there may be.
    let limits = Limits { window: 128, ..Limits::default() };
    assert_eq!(limits.directions * limits.window, limits.packets);
    PEAK.reset_peak_usage();
    let before = PEAK.current_usage();
    let mut checker = Checker::new(limits);
    for qp in 0..u32::try_from(limits.directions).unwrap() {
        // More of them than are remembered.
        for psn in 0..130 {
            let packet = read(psn, 8).with(|p| p.bth.dest_qp = Qpn::new(2 + qp)).build();
            checker.ip_packet(u64::from(qp * 1000 + psn), None, &packet);
        }
    }
    assert_eq!(checker.tracker().remembered(), (limits.directions, limits.packets));
    // 64 bytes for each packet and 88 for each READ: 76 MiB. Answers to atomics, and READs that are
    // resumed, may take half as much again.
    let peak = PEAK.peak_usage() - before;
    assert!(peak < 90 << 20, "{} MiB", peak >> 20);
}
