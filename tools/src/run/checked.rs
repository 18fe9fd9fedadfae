//! `roce run --check`: captures the packets of the program, and checks them when it has ended.

use std::io;
use std::process::Command;

use softroce_cli::{CheckArgs, Format};

use crate::check;
use crate::outcome::Outcome;
use crate::output::{self, Palette};

use super::captures::Captures;
use super::supervised;

/// Maximum number of findings to print for one capture.
const MAX_FINDINGS: usize = 100;

/// Runs the program to its end. The outcome is that of the program, unless that is success and a capture has a
/// violation.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Outcome> {
    let folder = Captures::new()?;
    command.env("SOFTROCE_PCAP", folder.path().join("%p.pcapng"));
    let outcome = supervised::run(command)?;

    let files = folder.files()?;
    let mut verdict = Outcome::Yes;
    if files.is_empty() {
        output::warn("nothing to check: the program opened no device");
    } else {
        let args = CheckArgs {
            ends: Vec::new(),
            files,
            max: MAX_FINDINGS,
            summary: false,
            explain: None,
            format: Format::Text,
            json: false,
            write: None,
        };
        // Standard output belongs to the program.
        let checked = check::check(&args, &mut io::stderr().lock(), Palette::of_stderr());
        if !matches!(checked, Ok(Outcome::Yes)) {
            output::warn(format_args!("the captures are in {}", folder.keep()?.display()));
        }
        verdict = checked?;
    }
    Ok(match outcome {
        Outcome::Yes => verdict,
        failed => failed,
    })
}
