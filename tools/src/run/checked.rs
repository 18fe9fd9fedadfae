//! `roce run --check`: what the program has sent and received is captured, and judged when it has ended.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use nix::sys::signal::{SigSet, Signal};

use crate::check;
use crate::cli::CheckArgs;
use crate::outcome::Outcome;

use super::captures::Captures;

/// Findings of one capture that are printed.
const MOST: usize = 100;

/// Runs the program to its end. The answer is the program's own, unless that is success and a capture has a
/// violation.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Outcome> {
    let folder = Captures::new()?;
    command.env("SOFTROCE_PCAP", folder.path().join("%p.pcapng"));
    // What ends a group of processes is for the program. The library starts it with no signal blocked.
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM]
        .into_iter()
        .collect::<SigSet>()
        .thread_block()?;
    let status = command.status()?;

    let files = folder.files()?;
    let mut verdict = Outcome::Yes;
    if files.is_empty() {
        eprintln!("roce: nothing to check: no device was opened");
    } else {
        let args = CheckArgs { files, max: MOST, json: false };
        // What the program prints is its own.
        let judged = check::judge(&args, &mut io::stderr().lock());
        if !matches!(judged, Ok(Outcome::Yes)) {
            eprintln!("roce: the captures are in {}", folder.keep()?.display());
        }
        verdict = judged?;
    }
    Ok(if status.success() { verdict } else { Outcome::Status(number(status)) })
}

/// As shells have it.
fn number(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}
