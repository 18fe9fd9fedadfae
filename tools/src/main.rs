//! The `roce` command.

#![deny(unsafe_code)]

mod analyze;
mod capture;
mod ceiling;
mod check;
mod cli;
mod clock;
mod completion;
mod control;
mod counters;
mod device;
mod devinfo;
mod doctor;
mod dump;
mod exchange;
mod hex;
mod manual;
mod outcome;
mod perf;
mod pingpong;
mod run;
mod tcp;

use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;

use cli::{Cli, Command};
use outcome::Outcome;

fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    let answer = match &cli.command {
        Command::Devinfo(args) => devinfo::run(args).map(|()| Outcome::Yes),
        Command::Doctor(args) => doctor::run(args),
        Command::Run(args) => run::run(args),
        Command::Pingpong(args) => pingpong::run(args),
        Command::Perf(args) => perf::run(args),
        Command::Analyze(args) => analyze::run(args).map(|()| Outcome::Yes),
        Command::Check(args) => check::run(args),
        Command::Dump(args) => dump::run(args).map(|()| Outcome::Yes),
        Command::Completions(args) => manual::completions(args).map(|()| Outcome::Yes),
        Command::Man(args) => manual::man(args).map(|()| Outcome::Yes),
    };
    match answer {
        Ok(Outcome::Yes) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Ok(Outcome::Status(status)) => ExitCode::from(status),
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("roce: {}", outcome::text_of(&e));
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
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
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
