//! The findings in the golden captures, compared with `captures/findings.txt`.
//!
//! With `SOFTROCE_BLESS` in the environment the file is written instead. Read the difference before you commit it:
//! each line must be true of its capture.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use softroce::wire::{Operation, Syndrome};
use softroce_pcap::check::{Checker, Counts, Rule, Severity};
use softroce_pcap::flow::Limits;
use softroce_pcap::{IcrcCounts, Reader, dissect};

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// Returns every golden capture with its name.
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

/// Returns the findings of a capture as lines, and its counts.
fn check(file: &[u8]) -> (String, Counts) {
    let mut reader = Reader::new(file).unwrap();
    let mut checker = Checker::new(Limits::default());
    let mut text = String::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        for finding in checker.packet(&packet) {
            let softroce_pcap::check::Finding { rule, severity, packet, party, .. } = finding;
            let (seen, expected) = (&finding.found, &finding.expected);
            writeln!(text, "{packet:4} {severity:9} {rule} {party}: {seen}; {expected}").unwrap();
        }
    }
    (text, checker.counts().clone())
}

#[test]
fn findings_are_those_on_record() {
    let mut found = String::new();
    for (name, bytes) in files() {
        let (text, counts) = check(&bytes);
        let Counts { packets, roce_packets, icrc: IcrcCounts { good, bad, unknown }, .. } = counts;
        writeln!(
            found,
            "{name}: {packets} packets, {roce_packets} of RoCEv2; ICRC: {good} good, \
             {bad} bad, {unknown} unknown"
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

/// The violations that were put into these files on purpose; no host breaks a rule otherwise.
#[test]
fn violations_are_those_made_on_purpose() {
    let made = [
        // Packet 17 was corrupted, and an atomic misaligned.
        ("rxe/host_handmade_rc.pcap", vec![Rule::IcrcBad, Rule::AtomicAlignment]),
        ("rxe/k612_awrite_misaligned.pcap", vec![Rule::AtomicWrite]),
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
        assert_eq!((counts.icrc.bad, counts.icrc.unknown), (bad, unknown), "{name}");
        assert_eq!(counts.icrc.good + bad + unknown, counts.roce_packets, "{name}");
    }
}

/// Returns the packets with a repeated request, by counting PSNs with a path MTU of 1024, and those with a NAK or RNR
/// NAK.
fn asked_again_and_refused(file: &[u8]) -> [BTreeSet<u64>; 2] {
    let mut reader = Reader::new(file).unwrap();
    let mut next = HashMap::new();
    let [mut again, mut refused] = [BTreeSet::new(), BTreeSet::new()];
    while let Some(packet) = reader.next_packet().unwrap() {
        let datagram = dissect(packet.ip.unwrap()).unwrap().unwrap().datagram.unwrap();
        let bth = datagram.bth;
        if !bth.opcode.is_request() {
            let syndrome = datagram.aeth().map(|aeth| aeth.syndrome);
            if matches!(syndrome, Some(Syndrome::Nak(_) | Syndrome::Rnr { .. })) {
                refused.insert(packet.number);
            }
            continue;
        }
        let read = datagram.reth().filter(|_| bth.opcode.operation() == Operation::ReadRequest);
        let end = bth.psn.plus(read.map_or(1, |reth| reth.length.div_ceil(1024)));
        let next = next.entry(bth.dest_qp).or_insert(bth.psn);
        if bth.psn.is_before(*next) {
            again.insert(packet.number);
        }
        if next.is_before(end) {
            *next = end;
        }
    }
    [again, refused]
}

#[test]
fn every_retransmission_and_every_nak_has_its_cause() {
    let mut seen = [0, 0];
    for (name, bytes) in files() {
        let is_of_trouble = ["loss_", "rnr", "retry", "_inv_", "_acc_", "_remop_"];
        if !is_of_trouble.iter().any(|part| name.contains(part)) {
            continue;
        }
        let mut reader = Reader::new(bytes.as_slice()).unwrap();
        let mut checker = Checker::new(Limits::default());
        let [mut again, mut refused] = [BTreeSet::new(), BTreeSet::new()];
        while let Some(packet) = reader.next_packet().unwrap() {
            for finding in checker.packet(&packet) {
                if finding.found.contains(" retransmitted, ") {
                    assert!(!finding.expected.contains("no reason"), "{name}: {finding:?}");
                    again.insert(finding.packet);
                } else if finding.found.contains("NAK") {
                    refused.insert(finding.packet);
                }
            }
        }
        seen[0] += again.len();
        seen[1] += refused.len();
        assert_eq!([again, refused], asked_again_and_refused(&bytes), "{name}");
    }
    assert!(seen[0] >= 270 && seen[1] >= 71, "{seen:?}");
}
