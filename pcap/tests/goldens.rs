//! The golden captures, compared with `captures/MANIFEST.md`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use softroce_pcap::{Icrc, Reader, dissect};

/// The counts of a file.
#[derive(PartialEq, Eq, Debug, Default)]
struct Contents {
    packets: u32,
    icrc_good: u32,
    /// Opcodes in the manifest's spelling, as `RC_READ_RESP_ONLY`.
    opcodes: BTreeMap<String, u32>,
}

impl Contents {
    fn of(file: &Path) -> Self {
        let bytes = std::fs::read(file).unwrap();
        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        let mut contents = Self::default();
        while let Some(packet) = reader.next_packet().unwrap() {
            let Some(roce) = dissect(packet.ip.unwrap()).unwrap() else { continue };
            contents.packets += 1;
            contents.icrc_good += u32::from(roce.icrc == Icrc::Good);
            let opcode = roce.datagram.unwrap().bth.opcode;
            *contents.opcodes.entry(in_the_manifest(&opcode.to_string())).or_default() += 1;
        }
        contents
    }
}

/// Returns the manifest's spelling of `RC READ_RESPONSE_ONLY`.
fn in_the_manifest(opcode: &str) -> String {
    let ours = ["ACKNOWLEDGE", "REQUEST", "RESPONSE", "COMPARE", " "];
    let theirs = ["ACK", "REQ", "RESP", "CMP", "_"];
    ours.iter().zip(theirs).fold(opcode.to_owned(), |name, (from, to)| name.replace(from, to))
}

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// Returns the table rows of the manifest with `cells` cells.
fn manifest(cells: usize) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(captures().join("MANIFEST.md")).unwrap();
    let rows = text.lines().filter(|line| line.contains(".pcap |"));
    let rows = rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()));
    rows.map(Iterator::collect).filter(|row: &Vec<_>| row.len() == cells).collect()
}

#[test]
fn files_of_rxe_have_the_packets_icrcs_and_opcodes_of_their_rows() {
    for row in manifest(9) {
        let (packets, icrc_good) = row[6].split_once('/').unwrap();
        let opcodes = row[8].split(' ').map(|cell| cell.split_once(':').unwrap());
        let expected = Contents {
            packets: packets.parse().unwrap(),
            icrc_good: icrc_good.parse().unwrap(),
            opcodes: opcodes.map(|(name, n)| (name.to_owned(), n.parse().unwrap())).collect(),
        };
        assert_eq!(Contents::of(&captures().join("rxe").join(&row[0])), expected, "{}", row[0]);
    }
}

#[test]
fn files_of_hardware_have_the_packets_of_their_rows_and_good_icrcs() {
    for row in manifest(5) {
        let contents = Contents::of(&captures().join("hardware").join(&row[0]));
        let expected = row[1].parse().unwrap();
        assert_eq!((contents.packets, contents.icrc_good), (expected, expected), "{}", row[0]);
    }
}

#[test]
fn bursts_have_the_packets_of_their_rows() {
    for row in manifest(6) {
        let bytes = std::fs::read(captures().join("softroce").join(&row[0])).unwrap();
        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        let (mut records, mut icrcs) = (0, Vec::new());
        while let Some(packet) = reader.next_packet().unwrap() {
            records += 1;
            let roce = dissect(packet.ip.unwrap()).unwrap().unwrap();
            icrcs.extend(roce.segments().map(|segment| segment.icrc));
        }
        let count = |icrc| icrcs.iter().filter(|found| **found == icrc).count();
        let ok = format!("{}/{}", count(Icrc::Good), count(Icrc::Cut));
        assert_eq!([records.to_string(), icrcs.len().to_string(), ok], row[1..4], "{}", row[0]);
    }
}

#[test]
fn every_file_has_a_row() {
    for (dir, cells) in [("rxe", 9), ("hardware", 5), ("softroce", 6)] {
        let files = std::fs::read_dir(captures().join(dir)).unwrap().count();
        assert_eq!(manifest(cells).len(), files, "{dir}");
    }
}
