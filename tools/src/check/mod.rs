//! `roce check`: captures against the rules of RoCEv2.

mod both;
mod explain;
mod github;
mod json;
mod junit;
mod report;
mod text;

use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use softroce_cli::{CheckArgs, Format};
use softroce_pcap::check::{Checker, Counts, Severity};
use softroce_pcap::flow::Limits;

use crate::annotated::Annotated;
use crate::capture;
use crate::outcome::Outcome;
use crate::output::{self, Palette};

pub(crate) use json::Icrc;
pub(crate) use text::{Summary, line};

use report::Report;

/// Runs the command.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<Outcome> {
    if args.write.as_deref() == Some(Path::new("-")) {
        // Standard output belongs to the copy.
        return check(args, &mut io::sink(), Palette::PLAIN);
    }
    let mut out = BufWriter::new(output::stdout());
    if let Some(rules) = &args.explain {
        explain::print(&mut out, &rules.0, args.format())?;
        out.flush()?;
        return Ok(Outcome::Yes);
    }
    check(args, &mut out, Palette::of_stdout())
}

/// Checks captures and prints the findings. A file that cannot be read does not keep the others from being checked.
pub(crate) fn check(
    args: &CheckArgs,
    out: &mut impl Write,
    palette: Palette,
) -> anyhow::Result<Outcome> {
    if !args.ends.is_empty() {
        return both::check(args, out, palette);
    }
    ensure!(
        args.write.is_none() || args.files.len() == 1,
        "--write: {} captures are given, expected one, of which a copy is written",
        args.files.len()
    );
    let mut outcome = Outcome::Yes;
    if args.format() == Format::Junit {
        junit::begin(out)?;
    }
    let result = capture::for_each(&args.files, |path| {
        let violations = file(path, args, out, palette);
        out.flush()?;
        if violations? > 0 {
            outcome = Outcome::No;
        }
        Ok(())
    });
    if args.format() == Format::Junit {
        junit::end(out)?;
    }
    out.flush()?;
    result.map(|()| outcome)
}

/// Checks a file; returns the number of violations.
fn file(
    path: &Path,
    args: &CheckArgs,
    out: &mut impl Write,
    palette: Palette,
) -> anyhow::Result<u64> {
    let name = path.display().to_string();
    let mut checker = Checker::new(Limits::default());
    let mut report = Report::new(&name, args, palette);
    let mut copy = None;
    let end = capture::open(path).and_then(|mut reader| {
        let write = args.write.as_deref();
        copy = write.map(|write| Annotated::create(write, path, "check")).transpose()?;
        let mut comments = Vec::new();
        while let Some(block) = reader.next_block().with_context(|| name.clone())? {
            comments.clear();
            if let Some(packet) = block.packet() {
                let since = report.since_start(packet.time);
                for finding in checker.packet(packet) {
                    report.finding(finding, since, out)?;
                    if copy.is_some() {
                        comments.push(finding.comment());
                    }
                }
            }
            if let Some(copy) = &mut copy {
                copy.block(&block, &comments);
            }
        }
        Ok(())
    });
    if let Err(error) = &end
        && output::is_reader_closed(error)
    {
        return end.map(|()| 0);
    }
    // A file that ends with an error is checked up to there.
    report.finish(checker.counts(), end.as_ref().err(), out)?;
    let copied = copy.map_or(Ok(()), |copy| {
        let summary =
            format!("roce check: {}{}", Summary(checker.counts()), broken(checker.counts()));
        copy.finish(&summary)
    });
    end?;
    copied?;
    Ok(checker.counts().of(Severity::Violation))
}

/// Returns the rules with findings and the number of their findings, as the end of a summary.
fn broken(counts: &Counts) -> String {
    let rules = counts.findings.iter();
    let rules =
        rules.map(|((rule, severity), n)| format!("; {} {rule}: {n} {severity}s", rule.id()));
    rules.collect()
}
