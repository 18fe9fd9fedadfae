//! The findings of a file as an object of JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use softroce_pcap::IcrcCounts;
use softroce_pcap::check::{self, Counts, Severity};

use crate::merged::Merged;
use crate::output::json_line;

#[derive(Serialize)]
struct File<'a> {
    file: &'a str,
    packets: u64,
    roce_packets: u64,
    icrc: Icrc,
    violations: u64,
    quirks: u64,
    notes: u64,
    /// Number of findings by rule, of any severity.
    rules: BTreeMap<&'static str, u64>,
    findings: Vec<Finding>,
    /// Findings beyond those listed.
    omitted: u64,
    /// How merged captures relate.
    #[serde(skip_serializing_if = "Option::is_none")]
    merged: Option<&'a Merged>,
}

/// Number of packets by the verdict on their ICRC.
#[derive(Serialize)]
pub(crate) struct Icrc {
    good: u64,
    bad: u64,
    unknown: u64,
}

impl From<IcrcCounts> for Icrc {
    fn from(counts: IcrcCounts) -> Self {
        let IcrcCounts { good, bad, unknown } = counts;
        Self { good, bad, unknown }
    }
}

#[derive(Serialize)]
struct Finding {
    rule: &'static str,
    id: &'static str,
    severity: &'static str,
    packet: u64,
    /// Seconds since the Unix epoch.
    time: Option<f64>,
    party: String,
    found: String,
    expected: String,
    /// Numbers of the packet in both of two merged captures.
    #[serde(skip_serializing_if = "Option::is_none")]
    numbers: Option<[Option<u64>; 2]>,
    /// The loss that a retransmission repairs, in merged captures.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<String>,
}

impl Finding {
    fn of(finding: &check::Finding, numbers: Option<[Option<u64>; 2]>) -> Self {
        Self {
            rule: finding.rule.name(),
            id: finding.rule.id(),
            severity: finding.severity.name(),
            packet: finding.packet,
            time: finding.time.map(|time| time.as_secs_f64()),
            party: finding.party.to_string(),
            found: finding.found.clone(),
            expected: finding.expected.clone(),
            loss: numbers.and(finding.loss.as_ref()).map(ToString::to_string),
            numbers,
        }
    }
}

/// Writes the object of a file.
pub(super) fn file(
    out: &mut impl Write,
    name: &str,
    counts: &Counts,
    findings: &[check::Finding],
    omitted: u64,
    merged: Option<(&Merged, &[[Option<u64>; 2]])>,
) -> io::Result<()> {
    let numbers = |at: usize| merged.and_then(|(_, numbers)| numbers.get(at).copied());
    let mut rules = BTreeMap::new();
    for ((rule, _), n) in &counts.findings {
        *rules.entry(rule.name()).or_default() += n;
    }
    let file = File {
        file: name,
        packets: counts.packets,
        roce_packets: counts.roce_packets,
        icrc: counts.icrc.into(),
        violations: counts.of(Severity::Violation),
        quirks: counts.of(Severity::Quirk),
        notes: counts.of(Severity::Note),
        rules,
        findings: findings
            .iter()
            .enumerate()
            .map(|(at, of)| Finding::of(of, numbers(at)))
            .collect(),
        omitted,
        merged: merged.map(|(merged, _)| merged),
    };
    json_line(out, &file)
}
