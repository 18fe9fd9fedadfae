//! Findings and counts as text.

use std::fmt;
use std::time::Duration;

use softroce_pcap::IcrcCounts;
use softroce_pcap::check::{Counts, Finding, Severity};

use crate::output::{Paint, Painted, Palette};

/// Returns a severity in its color.
pub(super) fn painted(severity: Severity, palette: Palette) -> Painted<Severity> {
    let paint = match severity {
        Severity::Violation => Paint::Bad,
        Severity::Quirk => Paint::Caution,
        Severity::Note => Paint::Event,
    };
    palette.paint(paint, severity)
}

/// Returns a finding as a line.
pub(crate) fn line(finding: &Finding, since_start: Option<Duration>, palette: Palette) -> String {
    let seconds = since_start.unwrap_or_default().as_secs_f64();
    let Finding { rule, severity, packet, .. } = finding;
    let severity = painted(*severity, palette);
    format!("{packet:6} {seconds:13.9}  {severity:9}  {rule:26}  {}", sentence(finding))
}

/// Returns the party, what was found, and what was expected or, in a note, the cause.
pub(super) fn sentence(finding: &Finding) -> String {
    let Finding { severity, party, found, expected, .. } = finding;
    match severity {
        Severity::Note => format!("{party}: {found}; {expected}"),
        Severity::Quirk | Severity::Violation => format!("{party}: {found}; expected {expected}"),
    }
}

/// The counts of a capture as text.
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
