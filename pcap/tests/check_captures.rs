//! What is found in the golden captures, held against `captures/findings.txt`.
//!
//! With `SOFTROCE_BLESS` in the environment the file is written instead. Read the difference before
//! you commit it: each line is something that is truly in a capture.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use softroce_pcap::Reader;
use softroce_pcap::check::{Checker, Counts, Rule, Severity};
use softroce_pcap::flow::Limits;

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// Every golden capture, with its name.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for dir in ["hardware", "rxe", "softroce"] {
        for entry in std::fs::read_dir(captures().join(dir)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{dir}/{}", entry.file_name().to_string_lossy());
            files.push((name, std::fs::read(entry.path()).unwrap()));
        }
    }
    files.sort();
    files
}

/// The findings of a capture, a line each, and its counts.
fn check(file: &[u8]) -> (String, Counts) {
    let mut reader = Reader::new(file).unwrap();
    let mut checker = Checker::new(Limits::default());
    let mut text = String::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        for finding in checker.packet(&packet) {
            let softroce_pcap::check::Finding { rule, severity, packet, who, .. } = finding;
            let (seen, expected) = (&finding.seen, &finding.expected);
            writeln!(text, "{packet:4} {severity:9} {rule} {who}: {seen}; {expected}").unwrap();
        }
    }
    (text, checker.counts().clone())
}

#[test]
fn the_findings_are_those_on_record() {
    let mut found = String::new();
    for (name, bytes) in files() {
        let (text, counts) = check(&bytes);
        let Counts { packets, roce_packets, icrc_good, icrc_bad, icrc_unknown, .. } = counts;
        writeln!(
            found,
            "{name}: {packets} packets, {roce_packets} of RoCEv2; ICRC: {icrc_good} good, \
             {icrc_bad} bad, {icrc_unknown} unknown"
        )
        .unwrap();
        found.push_str(&text);
    }
    let record = captures().join("findings.txt");
    if std::env::var_os("SOFTROCE_BLESS").is_some() {
        std::fs::write(&record, &found).unwrap();
    }
    let expected = std::fs::read_to_string(record).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

/// What is known to be in these files, from how they were made: nobody else breaks a rule.
#[test]
fn violations_are_only_where_somebody_made_them() {
    let made = [
        // Packet 17 was corrupted, and an atomic misaligned.
        ("rxe/host_handmade_rc.pcap", vec![Rule::Crc08, Rule::Rsp31]),
        ("rxe/k612_awrite_misaligned.pcap", vec![Rule::Rsp32]),
    ];
    for (name, bytes) in files() {
        let (text, counts) = check(&bytes);
        let violations = counts.findings.keys().filter(|(_, of)| *of == Severity::Violation);
        let rules: Vec<_> = violations.map(|(rule, _)| *rule).collect();
        let expected = made.iter().find(|(file, _)| *file == name).map(|(_, rules)| rules.clone());
        assert_eq!(rules, expected.unwrap_or_default(), "{name}\n{text}");
    }
}

#[test]
fn every_icrc_is_verified() {
    for (name, bytes) in files() {
        let (_, counts) = check(&bytes);
        let (bad, unknown) = match name.as_str() {
            "rxe/host_handmade_rc.pcap" => (1, 0),
            "softroce/any_snapped.pcap" => (0, 5),
            _ => (0, 0),
        };
        assert_eq!((counts.icrc_bad, counts.icrc_unknown), (bad, unknown), "{name}");
        assert_eq!(counts.icrc_good + bad + unknown, counts.roce_packets, "{name}");
    }
}
