//! A file's verdict as an object of JSON.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use softroce_pcap::check::{self, Counts, Severity};

#[derive(Serialize)]
struct File<'a> {
    file: &'a str,
    packets: u64,
    roce_packets: u64,
    icrc: Icrc,
    violations: u64,
    quirks: u64,
    notes: u64,
    /// By rule, whatever the severity.
    rules: BTreeMap<&'static str, u64>,
    findings: Vec<Finding>,
    /// Findings beyond those listed.
    omitted: u64,
}

#[derive(Serialize)]
struct Icrc {
    good: u64,
    bad: u64,
    unknown: u64,
}

#[derive(Serialize)]
pub(super) struct Finding {
    rule: &'static str,
    severity: &'static str,
    packet: u64,
    /// Seconds since the Unix epoch.
    time: Option<f64>,
    who: String,
    seen: String,
    expected: String,
}

impl Finding {
    pub(super) fn of(finding: &check::Finding) -> Self {
        Self {
            rule: finding.rule.id(),
            severity: finding.severity.name(),
            packet: finding.packet,
            time: finding.time.map(|time| time.as_secs_f64()),
            who: finding.who.to_string(),
            seen: finding.seen.clone(),
            expected: finding.expected.clone(),
        }
    }
}

/// Writes the object of a file.
pub(super) fn file(
    out: &mut impl Write,
    name: &str,
    counts: &Counts,
    findings: Vec<Finding>,
    omitted: u64,
) -> anyhow::Result<()> {
    let mut rules = BTreeMap::new();
    for ((rule, _), n) in &counts.findings {
        *rules.entry(rule.id()).or_default() += n;
    }
    let Counts { packets, roce_packets, icrc_good, icrc_bad, icrc_unknown, .. } = *counts;
    let file = File {
        file: name,
        packets,
        roce_packets,
        icrc: Icrc { good: icrc_good, bad: icrc_bad, unknown: icrc_unknown },
        violations: counts.of(Severity::Violation),
        quirks: counts.of(Severity::Quirk),
        notes: counts.of(Severity::Note),
        rules,
        findings,
        omitted,
    };
    serde_json::to_writer(&mut *out, &file)?;
    Ok(writeln!(out)?)
}
