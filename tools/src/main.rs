//! The `roce` command.

#![deny(unsafe_code)]

mod ceiling;
mod cli;
mod clock;
mod control;
mod dump;
mod exchange;
mod perf;

use std::io;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let result = match &cli.command {
        Command::Perf(args) => perf::run(args),
        Command::Dump(args) => dump::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("roce: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// Prints what clap says, under our name.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // Nothing can be told to someone who does not read.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        _ => {
            let text = error.to_string();
            eprint!("roce: {}", text.strip_prefix("error: ").unwrap_or(&text));
            ExitCode::from(2)
        }
    }
}

/// Whether the reader of our output left, as `head` does: no failure of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.root_cause().downcast_ref::<io::Error>();
    io.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
