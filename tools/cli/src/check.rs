//! `roce check`: its options.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use softroce_pcap::check::Rule;

/// Check captures against the rules of RoCEv2.
///
/// The checker verifies every ICRC, and checks every packet: headers, lengths, opcode sequences and PSNs, and
/// responses against their requests. A finding has the number of the packet in the file as Wireshark counts,
/// seconds since the first packet, a severity, the rule, the party at fault, what was found and what was expected.
///
/// A violation contradicts the protocol. A quirk is a known deviation of a widespread stack; one that every packet
/// repeats is reported once for each direction. A note is an event and its cause: a retransmission, a NAK, packets
/// missing from the capture.
///
/// The exit status is 0 without violations, 1 with one, 2 when a file cannot be read.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// pcap or pcapng files, also compressed with gzip or zstd; - for standard input.
    #[arg(required_unless_present_any = ["explain", "ends"], value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Check captures of both ends as one; given twice, once for each end. The offset and the drift of the clocks are
    /// estimated from packets in both captures. Findings say whether a packet was lost on the way; --write writes the
    /// merged capture.
    #[arg(short = 'r', long = "end", value_name = "FILE", conflicts_with_all = ["files", "explain"], value_hint = ValueHint::FilePath)]
    pub ends: Vec<PathBuf>,
    /// Maximum number of findings to print for a file; further ones are counted.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub max: usize,
    /// Print how often each rule was broken instead of the findings.
    #[arg(long, conflicts_with = "explain")]
    pub summary: bool,
    /// Explain a rule: what it says, where the specification says it, what usually breaks it, and what to do. RULE
    /// is its name or identifier, or all.
    #[arg(long, value_name = "RULE", value_parser = rules, conflicts_with = "files")]
    pub explain: Option<Rules>,
    /// Output: text; json, one object a file; github, annotations of a GitHub Actions run; junit, one XML document.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub format: Format,
    /// Same as --format json.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Also write the capture to this pcapng file, with each finding as a comment of its packet, which Wireshark and
    /// tshark show; - for standard output, in place of the findings. All else of the capture is kept.
    #[arg(short, long, value_name = "FILE", conflicts_with = "explain", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
}

/// Rules to explain.
#[derive(Clone, Debug)]
pub struct Rules(pub Vec<Rule>);

/// How findings are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Github,
    Junit,
}

impl CheckArgs {
    /// Returns the format that the options ask for.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Parses the name or identifier of a rule.
fn rules(text: &str) -> Result<Rules, String> {
    if text == "all" {
        return Ok(Rules(Rule::ALL.to_vec()));
    }
    let found =
        Rule::ALL.iter().find(|rule| rule.name() == text || rule.id().eq_ignore_ascii_case(text));
    found.map(|rule| Rules(vec![*rule])).ok_or_else(|| {
        let near: Vec<_> = Rule::ALL.iter().map(|rule| rule.name()).filter(|name| name.contains(text)).collect();
        match near.is_empty() {
            true => "expected the name or identifier of a rule, such as icrc.bad or CRC-08; --explain all lists them".into(),
            false => format!("expected the name of a rule; those with this text are {}", near.join(", ")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_names_and_identifiers() {
        for text in ["icrc.bad", "CRC-08", "crc-08"] {
            assert_eq!(rules(text).unwrap().0, [Rule::IcrcBad]);
        }
        assert_eq!(rules("all").unwrap().0, Rule::ALL);
        assert!(rules("rnr").unwrap_err().contains("rc.rnr_"));
        assert!(rules("nothing").unwrap_err().contains("--explain all"));
    }
}
