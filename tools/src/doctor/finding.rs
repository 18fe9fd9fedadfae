//! What was found, and what to do about it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::outcome::Outcome;
use crate::output::{self, Paint, Palette, json_line};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and there is something to know.
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

/// Something found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    /// What was looked at, in a word.
    check: &'static str,
    verdict: Verdict,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// The numbers and names behind it.
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

    /// What to do about it.
    pub(super) fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// A fact behind it.
    pub(super) fn fact(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(name.to_owned(), value.into());
        self
    }
}

/// Everything found so far. As text it is told at once: some of it takes seconds to find.
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

    /// Says how it is altogether.
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
