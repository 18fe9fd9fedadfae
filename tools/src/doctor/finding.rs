//! Findings, and what to do about them.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::outcome::Outcome;
use crate::output::{self, Paint, Palette, json_line};

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// No problem.
    Ok,
    /// Works, but is worth knowing.
    Note,
    /// Something does not work.
    Problem,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }

    const fn paint(self) -> Paint {
        match self {
            Self::Ok => Paint::Good,
            Self::Note => Paint::Caution,
            Self::Problem => Paint::Bad,
        }
    }
}

/// A finding.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    /// Name of the check.
    check: &'static str,
    verdict: Verdict,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// Values behind the finding.
    #[serde(skip_serializing_if = "Map::is_empty")]
    facts: Map<String, Value>,
}

impl Finding {
    pub(super) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Verdict::Ok, text)
    }

    pub(super) fn note(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Verdict::Note, text)
    }

    pub(super) fn problem(check: &'static str, text: impl Into<String>) -> Self {
        Self::new(check, Verdict::Problem, text)
    }

    fn new(check: &'static str, verdict: Verdict, text: impl Into<String>) -> Self {
        Self { check, verdict, text: text.into(), advice: None, facts: Map::new() }
    }

    /// Adds what to do about the finding.
    pub(super) fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Adds a value behind the finding.
    pub(super) fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(name.to_owned(), value.into());
        self
    }
}

/// All findings so far. Text is printed at once, because some checks take seconds.
pub(super) struct Findings {
    json: bool,
    palette: Palette,
    list: Vec<Finding>,
}

impl Findings {
    pub(super) fn new(json: bool) -> Self {
        Self { json, palette: Palette::of_stdout(), list: Vec::new() }
    }

    pub(super) fn add(&mut self, finding: Finding) -> io::Result<()> {
        if !self.json {
            let mut out = output::stdout();
            let verdict = self.palette.paint(finding.verdict.paint(), finding.verdict.name());
            writeln!(out, "{verdict:<8} {}", finding.text)?;
            if let Some(advice) = &finding.advice {
                writeln!(out, "{:<8} {advice}", "")?;
            }
            out.flush()?;
        }
        self.list.push(finding);
        Ok(())
    }

    /// Prints the overall result.
    pub(super) fn finish(self) -> io::Result<Outcome> {
        let of = |verdict| self.list.iter().filter(|finding| finding.verdict == verdict).count();
        let problems = of(Verdict::Problem);
        let mut out = output::stdout();
        if self.json {
            json_line(&mut out, &json!({ "healthy": problems == 0, "findings": self.list }))?;
        } else {
            match problems {
                0 => writeln!(out, "no problem found")?,
                1 => writeln!(out, "1 problem found")?,
                _ => writeln!(out, "{problems} problems found")?,
            }
        }
        Ok(if problems == 0 { Outcome::Yes } else { Outcome::No })
    }
}
