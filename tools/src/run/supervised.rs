//! Programs that run to their end before the command does.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use nix::sys::signal::{SigSet, Signal};

use crate::outcome::Outcome;

/// Runs the program to its end, and returns its outcome. Signals to the process group are for the program.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Outcome> {
    // The standard library starts it with no signal blocked.
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM]
        .into_iter()
        .collect::<SigSet>()
        .thread_block()?;
    Ok(outcome(command.status()?))
}

/// Returns the outcome of a program, with the exit status as shells report it: 128 and the signal for a program that was
/// killed.
fn outcome(status: ExitStatus) -> Outcome {
    if status.success() {
        return Outcome::Yes;
    }
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Outcome::Status(number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX))
}
