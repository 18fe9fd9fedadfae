//! The findings of one file, printed or collected.

use std::io::Write;
use std::time::Duration;

use softroce_cli::{CheckArgs, Format};
use softroce_pcap::check::{Counts, Finding};

use super::text::{Summary, line, painted};
use super::{github, json, junit};
use crate::merged::Merged;
use crate::output::{Paint, Palette};

/// The findings of one file.
pub(super) struct Report<'a> {
    name: &'a str,
    args: &'a CheckArgs,
    palette: Palette,
    start: Option<Duration>,
    /// Findings for the formats that print them at the end.
    collected: Vec<Finding>,
    /// Their numbers in both captures, if captures were merged.
    numbers: Vec<[Option<u64>; 2]>,
    /// How merged captures relate.
    pub(super) merged: Option<Merged>,
    listed: usize,
    omitted: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(name: &'a str, args: &'a CheckArgs, palette: Palette) -> Self {
        Self {
            name,
            args,
            palette,
            start: None,
            collected: Vec::new(),
            numbers: Vec::new(),
            merged: None,
            listed: 0,
            omitted: 0,
        }
    }

    pub(super) fn since_start(&mut self, time: Option<Duration>) -> Option<Duration> {
        let time = time?;
        Some(time.saturating_sub(*self.start.get_or_insert(time)))
    }

    pub(super) fn finding(
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

    /// Adds a finding of merged captures, with the numbers of its packet in both.
    pub(super) fn merged_finding(
        &mut self,
        finding: &Finding,
        numbers: [Option<u64>; 2],
        since_start: Option<Duration>,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let (listed, collected) = (self.listed, self.collected.len());
        self.finding(finding, since_start, out)?;
        if self.collected.len() > collected {
            self.numbers.push(numbers);
        } else if self.listed > listed && self.args.format() == Format::Text {
            let [first, second] =
                numbers.map(|number| number.map_or("-".to_owned(), |number| number.to_string()));
            let loss = finding.loss.as_ref().map_or(String::new(), |loss| format!("; {loss}"));
            writeln!(
                out,
                "{:23}packet {first} of the first capture, {second} of the second{loss}",
                ""
            )?;
        }
        Ok(())
    }

    pub(super) fn finish(
        self,
        counts: &Counts,
        error: Option<&anyhow::Error>,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        match self.args.format() {
            // A report includes the error, which is on standard error too.
            Format::Junit => junit::file(out, self.name, counts, &self.collected, error)?,
            _ if error.is_some() && counts.packets == 0 => {}
            Format::Json => {
                let merged = self.merged.as_ref().map(|merged| (merged, self.numbers.as_slice()));
                json::file(out, self.name, counts, &self.collected, self.omitted, merged)?;
            }
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
        if let Some(merged) = &self.merged {
            merged.text(out)?;
        }
        writeln!(out, "{}: {}", self.name, Summary(counts))?;
        Ok(())
    }
}
