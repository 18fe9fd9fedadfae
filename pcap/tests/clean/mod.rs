//! The captures of the repository in which no host breaks a rule, and their findings.

use std::path::Path;
use std::time::Duration;

use softroce_pcap::Reader;
use softroce_pcap::check::{Checker, Finding};
use softroce_pcap::flow::Limits;

/// Captures with a packet that was made wrong on purpose.
const MADE_WRONG: [&str; 2] = ["rxe/host_handmade_rc.pcap", "rxe/k612_awrite_misaligned.pcap"];

/// An IP packet of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) bytes: Vec<u8>,
    pub(crate) time: Option<Duration>,
}

/// Returns every clean capture of the repository with its name, sorted by name.
pub(crate) fn captures() -> Vec<(String, Vec<Captured>)> {
    let mut captures = Vec::new();
    for dir in ["hardware", "rxe", "softroce"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("captures").join(dir);
        for entry in std::fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{dir}/{}", entry.file_name().to_string_lossy());
            if !MADE_WRONG.contains(&name.as_str()) {
                captures.push((name, packets(&std::fs::read(entry.path()).unwrap())));
            }
        }
    }
    captures.sort_by(|(a, _), (b, _)| a.cmp(b));
    captures
}

fn packets(file: &[u8]) -> Vec<Captured> {
    let mut reader = Reader::new(file).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        if let Ok(ip) = packet.ip {
            packets.push(Captured { bytes: ip.to_vec(), time: packet.time });
        }
    }
    packets
}

/// Returns the findings of each packet. The first packet has number 1.
pub(crate) fn check(packets: &[Captured]) -> Vec<Vec<Finding>> {
    let mut checker = Checker::new(Limits::default());
    let packets = (1..).zip(packets);
    packets.map(|(n, packet)| checker.ip_packet(n, packet.time, &packet.bytes).to_vec()).collect()
}
