//! The golden captures, held against what `captures/MANIFEST.md` says of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use softroce_pcap::Reader;

/// The table rows of the manifest, a list of cells each.
fn manifest() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(captures().join("MANIFEST.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains(".pcap |"));
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// Frames in a file, all of them IP.
fn ip_packets(path: &Path) -> usize {
    let file = std::fs::read(path).unwrap();
    let mut reader = Reader::new(file.as_slice()).unwrap();
    let mut count = 0;
    while let Some(packet) = reader.next_packet().unwrap() {
        packet.ip.unwrap();
        count += 1;
    }
    count
}

#[test]
fn every_file_has_the_packets_its_manifest_row_says() {
    let rows = manifest();
    for row in &rows {
        // rxe: "RoCE pkts / ICRC ok" is the seventh cell; hardware: "packets" is the second.
        let (dir, cell) = if row.len() == 9 { ("rxe", &row[6]) } else { ("hardware", &row[1]) };
        let expected = cell.split('/').next().unwrap();
        let path = captures().join(dir).join(&row[0]);
        assert_eq!(ip_packets(&path).to_string(), expected, "{}", path.display());
    }
    let files = ["rxe", "hardware"].map(|d| std::fs::read_dir(captures().join(d)).unwrap().count());
    assert_eq!(rows.len(), files.iter().sum(), "a file without a row, or a row without a file");
}
