//! Findings as annotations of a GitHub Actions run.

use std::io::{self, Write};

use softroce_pcap::check::{Counts, Finding, Severity};

use super::text::sentence;

/// Writes the annotation of a finding.
pub(super) fn finding(out: &mut impl Write, file: &str, finding: &Finding) -> io::Result<()> {
    let message = format!("packet {}: {}", finding.packet, sentence(finding));
    annotation(out, finding.severity, file, finding.rule.name(), &message)
}

/// Writes an annotation for each rule, with how often it was broken.
pub(super) fn summary(out: &mut impl Write, file: &str, counts: &Counts) -> io::Result<()> {
    for ((rule, severity), count) in &counts.findings {
        let message = format!("{count} findings: {}", rule.statement());
        annotation(out, *severity, file, rule.name(), &message)?;
    }
    Ok(())
}

fn annotation(
    out: &mut impl Write,
    severity: Severity,
    file: &str,
    title: &str,
    message: &str,
) -> io::Result<()> {
    let level = match severity {
        Severity::Violation => "error",
        Severity::Quirk => "warning",
        Severity::Note => "notice",
    };
    writeln!(out, "::{level} file={},title={title}::{}", property(file), escaped(message))
}

/// Returns text without the characters that end a message.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Returns text without the characters that end a property.
fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_escape_what_would_end_them() {
        let mut out = Vec::new();
        annotation(&mut out, Severity::Quirk, "a,b:c%\n", "icrc.bad", "1 %\n2: 3").unwrap();
        let expected = "::warning file=a%2Cb%3Ac%25%0A,title=icrc.bad::1 %25%0A2: 3\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
