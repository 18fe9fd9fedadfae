//! `roce run --check`: what the program has sent and received is captured, and judged when it has ended.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};

use crate::check;
use crate::cli::CheckArgs;
use crate::outcome::Outcome;

/// Findings of one capture that are printed.
const MOST: usize = 100;

/// Runs the program to its end. The answer is the program's own, unless that is success and a capture has a
/// violation.
pub(super) fn run(command: &mut Command) -> anyhow::Result<Outcome> {
    let folder = tempfile::Builder::new().prefix("roce-check-").tempdir();
    let folder = folder.context("a directory for captures")?;
    command.env("SOFTROCE_PCAP", folder.path().join("%p.pcapng"));
    // What ends a group of processes is for the program. The library starts it with no signal blocked.
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM]
        .into_iter()
        .collect::<SigSet>()
        .thread_block()?;
    let status = command.status()?;

    let files = captures(folder.path())?;
    let mut verdict = Outcome::Yes;
    if files.is_empty() {
        eprintln!("roce: nothing to check: no device was opened");
    } else {
        let args = CheckArgs { files, max: MOST, json: false };
        // What the program prints is its own.
        let judged = check::judge(&args, &mut io::stderr().lock());
        if !matches!(judged, Ok(Outcome::Yes)) {
            eprintln!("roce: the captures are in {}", folder.keep().display());
        }
        verdict = judged?;
    }
    Ok(if status.success() { verdict } else { Outcome::Status(number(status)) })
}

/// The files that the program's processes have left.
fn captures(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.with_context(|| folder.display().to_string())?;
    let mut files: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    files.sort();
    Ok(files)
}

/// As shells have it.
fn number(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}
