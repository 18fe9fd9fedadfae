//! `roce check -r A -r B`: captures of both ends as one.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::ensure;
use softroce_cli::CheckArgs;
use softroce_pcap::check::{Checker, Finding, Severity};
use softroce_pcap::flow::Limits;
use softroce_pcap::merge::{Fate, MergedPacket};
use softroce_pcap::{LinkType, Record, Writer};

use super::report::Report;
use crate::both_ends::BothEnds;
use crate::capture;
use crate::outcome::Outcome;
use crate::output::Palette;

/// Checks the captures of both ends and prints the findings.
pub(super) fn check(
    args: &CheckArgs,
    out: &mut impl Write,
    palette: Palette,
) -> anyhow::Result<Outcome> {
    let mut ends = BothEnds::open(&args.ends)?;
    let (name, names) = (ends.name(), ends.names().clone());
    let mut report = Report::new(&name, args, palette);
    let mut checker = Checker::new(Limits::default());
    let mut copy = args.write.as_deref().map(|path| MergedFile::create(path, args)).transpose()?;
    let failure = ends.for_each(|packet| {
        let since = report.since_start(Some(packet.time));
        let findings = checker.merged(packet);
        for finding in findings {
            report.merged_finding(finding, packet.sighting.numbers, since, out)?;
        }
        match &mut copy {
            Some(copy) => copy.packet(packet, findings, &names),
            None => Ok(()),
        }
    })?;
    report.merged = Some(ends.merged());
    report.finish(checker.counts(), failure.as_ref(), out)?;
    if let Some(copy) = copy {
        copy.writer.into_inner().flush()?;
    }
    match failure {
        Some(error) => Err(error),
        None if checker.counts().of(Severity::Violation) > 0 => Ok(Outcome::No),
        None => Ok(Outcome::Yes),
    }
}

/// Returns the way of a packet in words, with the names of the captures; `None` if both have it whole.
fn way(packet: &MergedPacket, names: &[String; 2]) -> Option<String> {
    let [first, second] = packet.sighting.numbers;
    let number = first.or(second).unwrap_or_default();
    let name = &names[usize::from(first.is_none())];
    let of = match packet.sighting.fate {
        Fate::Arrived | Fate::Unknown => return None,
        Fate::Damaged => "damaged on the way",
        Fate::Lost => "lost on the way",
        Fate::MissedAtSender => "missing from the sender's capture",
        Fate::Duplicated => "copy made on the way",
    };
    Some(format!("{of}: packet {number} of {name}"))
}

/// The merged capture being written.
struct MergedFile {
    writer: Writer<BufWriter<File>>,
}

impl MergedFile {
    fn create(path: &Path, args: &CheckArgs) -> anyhow::Result<Self> {
        ensure!(path.as_os_str() != "-", "--write: - is given with -r, expected a file");
        let application = concat!("roce check ", env!("CARGO_PKG_VERSION"));
        let file = capture::create(path, &args.ends)?;
        Ok(Self { writer: Writer::new(file, LinkType::Raw, application)? })
    }

    fn packet(
        &mut self,
        packet: &MergedPacket,
        findings: &[Finding],
        names: &[String; 2],
    ) -> anyhow::Result<()> {
        let lines = way(packet, names).into_iter().chain(findings.iter().map(Finding::comment));
        let comment = lines.collect::<Vec<_>>().join("\n");
        Ok(self.writer.record(&Record {
            time: packet.time,
            frame: &packet.ip,
            original_len: packet.original_len,
            comment: &comment,
            ..Record::default()
        })?)
    }
}
