//! `roce check -r A -r B`: captures of both ends as one.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use softroce_pcap::check::{Checker, Finding, Severity};
use softroce_pcap::flow::Limits;
use softroce_pcap::merge::{Alignment, Fate, MergedPacket, Merger, Survey};
use softroce_pcap::{LinkType, Reader, Record, Writer};

use super::merged::Merged;
use super::report::Report;
use crate::capture;
use crate::cli::CheckArgs;
use crate::outcome::Outcome;
use crate::output::Palette;

/// Checks the captures of both ends and prints the findings.
pub(super) fn check(
    args: &CheckArgs,
    out: &mut impl Write,
    palette: Palette,
) -> anyhow::Result<Outcome> {
    let [first, second] = args.ends.as_slice() else {
        bail!("-r: {} captures are given, expected two, one of each end", args.ends.len());
    };
    let files = [first.as_path(), second.as_path()];
    for file in files {
        ensure!(
            file.as_os_str() != "-",
            "-r: standard input is given, expected a file, which is read twice"
        );
    }
    let names = files.map(|file| file.display().to_string());
    let surveys = [survey(files[0])?, survey(files[1])?];
    let alignment = Alignment::of(&surveys[0], &surveys[1])
        .with_context(|| format!("{} and {}", names[0], names[1]))?;
    let mut merger = Merger::new(alignment);
    let mut readers = [Some(capture::open(files[0])?), Some(capture::open(files[1])?)];
    let name = format!("{} and {}", names[0], names[1]);
    let mut report = Report::new(&name, args, palette);
    let mut checker = Checker::new(Limits::default());
    let mut copy = args.write.as_deref().map(|path| MergedFile::create(path, args)).transpose()?;
    let mut failure = None;
    while let Some(end) = merger.wants() {
        if let Err(error) = read(&mut readers[end], end, &mut merger) {
            // The part before the error is checked too.
            failure.get_or_insert(error.context(names[end].clone()));
        }
        while let Some(packet) = merger.next_packet() {
            let since = report.since_start(Some(packet.time));
            let findings = checker.merged(&packet);
            for finding in findings {
                report.merged_finding(finding, packet.sighting.numbers, since, out)?;
            }
            if let Some(copy) = &mut copy {
                copy.packet(&packet, findings, &names)?;
            }
        }
    }
    report.merged = Some(Merged::of(&merger, &names));
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

/// Returns a sample of a capture. A capture that ends with an error is sampled up to there.
fn survey(path: &Path) -> anyhow::Result<Survey> {
    let mut reader = capture::open(path)?;
    let mut survey = Survey::default();
    while let Ok(Some(packet)) = reader.next_packet() {
        survey.packet(&packet);
    }
    Ok(survey)
}

/// Reads the next packet of a capture into the merger.
fn read(
    reader: &mut Option<Reader<Box<dyn Read>>>,
    end: usize,
    merger: &mut Merger,
) -> anyhow::Result<()> {
    let packet = match reader {
        Some(reader) => reader.next_packet(),
        None => Ok(None),
    };
    match packet {
        Ok(Some(packet)) => merger.packet(end, &packet),
        Ok(None) => merger.end(end),
        Err(error) => {
            merger.end(end);
            return Err(error.into());
        }
    }
    Ok(())
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
