//! `roce check`: a verdict on captures.

mod json;

use std::fmt;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use softroce_pcap::IcrcCounts;
use softroce_pcap::check::{Checker, Counts, Finding, Severity};
use softroce_pcap::flow::Limits;

use crate::capture;
use crate::cli::CheckArgs;
use crate::outcome::{self, Outcome};

pub(crate) use json::Icrc;

/// Runs the command.
pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<Outcome> {
    judge(args, &mut BufWriter::new(io::stdout().lock()))
}

/// Judges captures. The first file that cannot be read does not keep the others from being.
pub(crate) fn judge(args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<Outcome> {
    let mut answer = Outcome::Yes;
    let mut failure = None;
    for path in &args.files {
        let name = path.display().to_string();
        match file(path, &name, args, out) {
            Ok(violations) if violations > 0 => answer = Outcome::No,
            Ok(_) => {}
            Err(e) => {
                if let Some(earlier) = failure.replace(e) {
                    eprintln!("roce: {}", outcome::text_of(&earlier));
                }
            }
        }
        out.flush()?;
    }
    failure.map_or(Ok(answer), Err)
}

/// Checks a file, and says how many violations there are.
fn file(path: &Path, name: &str, args: &CheckArgs, out: &mut impl Write) -> anyhow::Result<u64> {
    let mut reader = capture::open(path)?;
    let mut checker = Checker::new(Limits::default());
    let mut report = Report::new(name, args);
    let end = loop {
        match reader.next_packet() {
            Ok(Some(packet)) => {
                let since = report.since_start(packet.time);
                for finding in checker.packet(&packet) {
                    report.finding(finding, since, out)?;
                }
            }
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    report.finish(checker.counts(), out)?;
    // What was readable comes first, also where the end is an error.
    end.with_context(|| name.to_owned())?;
    Ok(checker.counts().of(Severity::Violation))
}

/// What is printed of a file.
struct Report<'a> {
    name: &'a str,
    args: &'a CheckArgs,
    start: Option<Duration>,
    findings: Vec<json::Finding>,
    printed: usize,
    omitted: u64,
}

impl<'a> Report<'a> {
    fn new(name: &'a str, args: &'a CheckArgs) -> Self {
        Self { name, args, start: None, findings: Vec::new(), printed: 0, omitted: 0 }
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
    ) -> io::Result<()> {
        if self.printed == self.args.max {
            self.omitted += 1;
            return Ok(());
        }
        self.printed += 1;
        if self.args.json {
            self.findings.push(json::Finding::of(finding));
            return Ok(());
        }
        if self.printed == 1 && self.args.files.len() > 1 {
            writeln!(out, "{}", self.name)?;
        }
        writeln!(out, "{}", line(finding, since_start))
    }

    fn finish(self, counts: &Counts, out: &mut impl Write) -> anyhow::Result<()> {
        if self.args.json {
            return json::file(out, self.name, counts, self.findings, self.omitted);
        }
        if self.omitted > 0 {
            writeln!(out, "{} more findings are counted but not printed", self.omitted)?;
        }
        writeln!(out, "{}: {}", self.name, Summary(counts))?;
        Ok(())
    }
}

/// A finding on a line.
pub(crate) fn line(finding: &Finding, since_start: Option<Duration>) -> String {
    let seconds = since_start.unwrap_or_default().as_secs_f64();
    let Finding { rule, severity, packet, who, seen, expected, .. } = finding;
    format!("{packet:6} {seconds:13.9}  {severity:9}  {rule}  {who}: {seen}; {expected}")
}

/// How much of everything there was.
pub(crate) struct Summary<'a>(pub(crate) &'a Counts);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Counts { packets, roce_packets, icrc: IcrcCounts { good, bad, unknown }, .. } = self.0;
        let [notes, quirks, violations] = Severity::ALL.map(|severity| self.0.of(severity));
        write!(
            f,
            "{packets} packets, {roce_packets} of RoCEv2; ICRC: {good} good, {bad} bad, \
             {unknown} unknown; {violations} violations, {quirks} quirks, {notes} notes"
        )
    }
}
