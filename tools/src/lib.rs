//! The `roce` command, as a library: cargo compiles it while the engine's machine code is generated. `main.rs` is the
//! program.

#![deny(unsafe_code)]

mod analyze;
mod analyzed;
mod annotated;
mod both_ends;
mod capture;
mod check;
mod cm;
mod counters;
mod device;
mod devinfo;
mod doctor;
mod dump;
mod exchange;
mod live;
mod manual;
mod merged;
mod outcome;
mod output;
mod perf;
mod pingpong;
mod run;
mod stats;
mod top;

use std::process::ExitCode;

use clap::error::ErrorKind;

use outcome::Outcome;
use softroce_cli::{Cli, Command};

/// Runs the command with the arguments of this process, and returns its exit status.
pub fn run() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(e) => return usage(&e),
    };
    output::set_color(cli.color);
    let result = match &cli.command {
        Command::Devinfo(args) => devinfo::run(args).map(|()| Outcome::Yes),
        Command::Doctor(args) => doctor::run(args),
        Command::Run(args) => run::run(args),
        Command::Pingpong(args) => pingpong::run(args),
        Command::Cm(args) => cm::run(args),
        Command::Perf(args) => perf::run(args),
        Command::Analyze(args) => analyze::run(args).map(|()| Outcome::Yes),
        Command::Check(args) => check::run(args),
        Command::Stats(args) => stats::run(args).map(|()| Outcome::Yes),
        Command::Dump(args) => dump::run(args).map(|()| Outcome::Yes),
        Command::Capture(args) => live::run(args).map(|()| Outcome::Yes),
        Command::Top(args) => top::run(args).map(|()| Outcome::Yes),
        Command::Extcap(args) => live::run_extcap(args).map(|()| Outcome::Yes),
        Command::Completions(args) => manual::completions(args).map(|()| Outcome::Yes),
        Command::Man(args) => manual::man(args).map(|()| Outcome::Yes),
    };
    match result {
        Ok(Outcome::Yes) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Ok(Outcome::Status(status)) => ExitCode::from(status),
        // `head` has read enough.
        Err(e) if output::is_reader_closed(&e) => ExitCode::SUCCESS,
        Err(e) => {
            output::warn(outcome::text_of(&e));
            ExitCode::from(2)
        }
    }
}

/// Prints help, or a usage error with the name of the command. Nothing is left to report to if that fails.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(2)
        }
        _ => {
            let text = error.to_string();
            output::warn(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
            ExitCode::from(2)
        }
    }
}
