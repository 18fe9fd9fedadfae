//! `roce check --explain`: what a rule says, and what to do when it is broken.

use std::io::{self, Write};

use anyhow::bail;
use serde::Serialize;
use softroce_cli::Format;
use softroce_pcap::check::Rule;

use crate::output::{Paint, Palette, json_line};

#[derive(Serialize)]
struct Explanation {
    rule: &'static str,
    id: &'static str,
    statement: &'static str,
    clause: String,
    typical_cause: &'static str,
    action: &'static str,
}

impl Explanation {
    fn of(rule: Rule) -> Self {
        Self {
            rule: rule.name(),
            id: rule.id(),
            statement: rule.statement(),
            clause: format!("IBTA {}", rule.clause()),
            typical_cause: rule.typical_cause(),
            action: rule.action(),
        }
    }
}

/// Prints the explanations of rules.
pub(super) fn print(out: &mut impl Write, rules: &[Rule], format: Format) -> anyhow::Result<()> {
    let palette = Palette::of_stdout();
    for (index, rule) in rules.iter().enumerate() {
        let explanation = Explanation::of(*rule);
        match format {
            Format::Json => json_line(out, &explanation)?,
            Format::Text => {
                if index > 0 {
                    writeln!(out)?;
                }
                text(out, &explanation, palette)?;
            }
            Format::Github | Format::Junit => {
                bail!("--explain: expected --format text or json")
            }
        }
    }
    Ok(())
}

fn text(out: &mut impl Write, explanation: &Explanation, palette: Palette) -> io::Result<()> {
    let Explanation { rule, id, statement, clause, typical_cause, action } = explanation;
    writeln!(out, "{} ({id})", palette.paint(Paint::Heading, rule))?;
    writeln!(out, "  rule           {statement}")?;
    writeln!(out, "  clause         {clause}")?;
    writeln!(out, "  typical cause  {typical_cause}")?;
    writeln!(out, "  what to do     {action}")
}
