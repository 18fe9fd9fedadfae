//! `roce check`: captures against the rules of RoCEv2.

mod explain;
mod github;
mod json;
mod junit;
mod text;

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use softroce_pcap::check::{Checker, Counts, Finding, Severity};
use softroce_pcap::flow::Limits;

use crate::annotated::Annotated;
use crate::capture;
use crate::cli::{CheckArgs, Format};
use crate::outcome::Outcome;
use crate::output::{self, Paint, Palette};

pub(crate) use json::Icrc;
pub(crate) use text::{Summary, line};

use text::painted;

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

/// The findings of one file, printed or collected.
struct Report<'a> {
    name: &'a str,
    args: &'a CheckArgs,
    palette: Palette,
    start: Option<Duration>,
    /// Findings for the formats that print them at the end.
    collected: Vec<Finding>,
    listed: usize,
    omitted: u64,
}

impl<'a> Report<'a> {
    fn new(name: &'a str, args: &'a CheckArgs, palette: Palette) -> Self {
        Self { name, args, palette, start: None, collected: Vec::new(), listed: 0, omitted: 0 }
    }

    fn since_start(&mut self, time: Option<Duration>) -> Option<Duration> {
        let time = time?;
        Some(time.saturating_sub(*self.start.get_or_insert(time)))
    }

    fn finding(
        &mut self,
        finding: &Finding,
        since_start: Option<Duration>,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        if self.args.summary {
            return Ok(());
        }
        if self.listed == self.args.max {
            self.omitted += 1;
            return Ok(());
        }
        self.listed += 1;
        match self.args.format() {
            Format::Json | Format::Junit => self.collected.push(finding.clone()),
            Format::Github => github::finding(out, self.name, finding)?,
            Format::Text => {
                if self.listed == 1 && self.args.files.len() > 1 {
                    writeln!(out, "{}", self.palette.paint(Paint::Heading, self.name))?;
                }
                writeln!(out, "{}", line(finding, since_start, self.palette))?;
            }
        }
        Ok(())
    }

    fn finish(
        self,
        counts: &Counts,
        error: Option<&anyhow::Error>,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        match self.args.format() {
            // A report includes the error, which is on standard error too.
            Format::Junit => junit::file(out, self.name, counts, &self.collected, error)?,
            _ if error.is_some() && counts.packets == 0 => {}
            Format::Json => json::file(out, self.name, counts, &self.collected, self.omitted)?,
            Format::Github if self.args.summary => github::summary(out, self.name, counts)?,
            Format::Github => {}
            Format::Text => self.text(counts, out)?,
        }
        Ok(())
    }

    fn text(&self, counts: &Counts, out: &mut impl Write) -> anyhow::Result<()> {
        if self.args.summary {
            if self.args.files.len() > 1 {
                writeln!(out, "{}", self.palette.paint(Paint::Heading, self.name))?;
            }
            for ((rule, severity), count) in &counts.findings {
                let severity = painted(*severity, self.palette);
                writeln!(out, "{count:8}  {severity:9}  {rule:26}  {}", rule.statement())?;
            }
        }
        if self.omitted > 0 {
            writeln!(out, "{} more findings are counted but not printed (--max)", self.omitted)?;
        }
        writeln!(out, "{}: {}", self.name, Summary(counts))?;
        Ok(())
    }
}
