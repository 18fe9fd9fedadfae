//! Findings as JUnit XML: a test suite for each file, a test case for each rule that was broken.

use std::io::{self, Write};

use softroce_pcap::check::{Counts, Finding, Severity};

use super::text::{Summary, sentence};
use crate::outcome;

/// Begins the document.
pub(super) fn begin(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"roce check\">")
}

/// Ends the document.
pub(super) fn end(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "</testsuites>")
}

/// Writes the suite of a file. `error` says why the file could not be read to its end.
pub(super) fn file(
    out: &mut impl Write,
    file: &str,
    counts: &Counts,
    findings: &[Finding],
    error: Option<&anyhow::Error>,
) -> io::Result<()> {
    let name = escaped(file);
    let violations = counts.findings.iter().filter(|((_, of), _)| *of == Severity::Violation);
    let violations: Vec<_> = violations.map(|((rule, _), count)| (*rule, *count)).collect();
    let (tests, failures, errors) =
        (violations.len() + 1, violations.len(), usize::from(error.is_some()));
    writeln!(
        out,
        "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">"
    )?;
    match error {
        None => writeln!(out, "    <testcase classname=\"{name}\" name=\"readable\"/>")?,
        Some(error) => {
            let text = escaped(&outcome::text_of(error));
            writeln!(out, "    <testcase classname=\"{name}\" name=\"readable\">")?;
            writeln!(out, "      <error message=\"{text}\"/>\n    </testcase>")?;
        }
    }
    for (rule, count) in violations {
        let statement = escaped(rule.statement());
        writeln!(out, "    <testcase classname=\"{name}\" name=\"{rule}\">")?;
        write!(out, "      <failure message=\"{count} violations: {statement}\">")?;
        let of_rule =
            |finding: &&Finding| finding.rule == rule && finding.severity == Severity::Violation;
        for finding in findings.iter().filter(of_rule) {
            write!(out, "\npacket {}: {}", finding.packet, escaped(&sentence(finding)))?;
        }
        writeln!(out, "</failure>\n    </testcase>")?;
    }
    writeln!(out, "    <system-out>{}", escaped(&Summary(counts).to_string()))?;
    for finding in findings.iter().filter(|finding| finding.severity != Severity::Violation) {
        let Finding { packet, severity, rule, .. } = finding;
        writeln!(out, "packet {packet}: {severity} {rule}: {}", escaped(&sentence(finding)))?;
    }
    writeln!(out, "</system-out>\n  </testsuite>")
}

/// Returns text as XML has it, without the control characters that XML does not allow.
fn escaped(text: &str) -> String {
    let mut xml = String::new();
    for c in text.chars() {
        match c {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\n' | '\t' => xml.push(c),
            c if c.is_control() => xml.push('\u{fffd}'),
            c => xml.push(c),
        }
    }
    xml
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_escapes_markup_and_control_characters() {
        assert_eq!(escaped("<a&\"b\">\u{1}"), "&lt;a&amp;&quot;b&quot;&gt;\u{fffd}");
    }
}
