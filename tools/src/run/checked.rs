//! `roce run --check`: captures the packets of the program, and checks them when it has ended.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use nix::sys::signal::{SigSet, Signal};

use crate::check;
use crate::cli::{CheckArgs, Format};
use crate::outcome::Outcome;
use crate::output::{self, Palette};

use super::captures::Captures;

/// Maximum number of findings to print for one capture.
const MAX_FINDINGS: usize = 100;

/// Runs the program to its end. The outcome is that of the program, unless that is success and a capture has a
/// violation.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Outcome> {
    let folder = Captures::new()?;
    command.env("SOFTROCE_PCAP", folder.path().join("%p.pcapng"));
    // Signals to the process group are for the program. The standard library starts it with no signal blocked.
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM]
        .into_iter()
        .collect::<SigSet>()
        .thread_block()?;
    let status = command.status()?;

    let files = folder.files()?;
    let mut verdict = Outcome::Yes;
    if files.is_empty() {
        output::warn("nothing to check: the program opened no device");
    } else {
        let args = CheckArgs {
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
    Ok(if status.success() { verdict } else { Outcome::Status(shell_status(status)) })
}

/// Returns the exit status as shells report it: 128 and the signal for a program that was killed.
fn shell_status(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}
