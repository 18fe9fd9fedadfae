//! Memory of the checker with as much state as its limits allow. The only test of its file, because the memory of the
//! whole process is measured.

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
fn maximum_number_of_reads_stays_below_the_memory_limit() {
    // The maximum number of READs in one direction.
    let limits = Limits { window: 128, ..Limits::default() };
    assert_eq!(limits.directions * limits.window, limits.packets);
    PEAK.reset_peak_usage();
    let before = PEAK.current_usage();
    let mut checker = Checker::new(limits);
    for qp in 0..u32::try_from(limits.directions).unwrap() {
        // More READs than are remembered.
        for psn in 0..130 {
            let packet = read(psn, 8).with(|p| p.bth.dest_qp = Qpn::new(2 + qp)).build();
            checker.ip_packet(u64::from(qp * 1000 + psn), None, &packet);
        }
    }
    assert_eq!(checker.tracker().remembered(), (limits.directions, limits.packets));
    // 64 bytes for each packet and 88 for each READ: 76 MiB. Atomic responses and resumed READs may take half as much
    // again.
    let peak = PEAK.peak_usage() - before;
    assert!(peak < 90 << 20, "{} MiB", peak >> 20);
}
