//! The command line: one struct a subcommand, from which parser, help and checks follow.

mod analyze;
mod check;
mod device;
mod devinfo;
mod doctor;
mod dump;
mod manual;
mod perf;
mod pingpong;
mod run;
mod span;
mod transport;
mod units;

use std::fmt::Write;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use softroce::runtime::VARIABLES;

pub(crate) use analyze::AnalyzeArgs;
pub(crate) use check::CheckArgs;
pub(crate) use device::DeviceArgs;
pub(crate) use devinfo::DevinfoArgs;
pub(crate) use doctor::DoctorArgs;
pub(crate) use dump::DumpArgs;
pub(crate) use manual::{CompletionsArgs, ManArgs};
pub(crate) use perf::{AtomicType, LoadArgs, Measure, PerfArgs, Test, Verb};
pub(crate) use pingpong::{PingpongArgs, PingpongLoad};
pub(crate) use run::RunArgs;
pub(crate) use span::SpanArgs;
pub(crate) use transport::Transport;

/// RDMA over Converged Ethernet (RoCEv2) without RDMA hardware.
#[derive(Parser, Debug)]
#[command(name = "roce", version, max_term_width = 100, infer_long_args = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Devinfo(DevinfoArgs),
    Doctor(DoctorArgs),
    Run(RunArgs),
    Pingpong(PingpongArgs),
    Perf(Box<PerfArgs>),
    Analyze(AnalyzeArgs),
    Check(CheckArgs),
    Dump(DumpArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

impl Cli {
    /// What the command line of this process says.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        Self::from_arg_matches(&command().try_get_matches()?)
    }
}

/// The option table.
pub(crate) fn table() -> clap::Command {
    Cli::command()
}

/// The option table, with the environment at the end of its help.
fn command() -> clap::Command {
    let mut help = String::from("Environment, where no option says otherwise:\n");
    for variable in VARIABLES {
        let (name, value, meaning) = (variable.name, variable.value, variable.meaning);
        // A string takes whatever is written to it.
        let _ = writeln!(help, "  {name:<20}  {value}: {meaning}");
    }
    table().after_help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_options_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn help_lists_the_environment() {
        let help = command().render_help().to_string();
        assert!(VARIABLES.iter().all(|variable| help.contains(variable.name)), "{help}");
    }
}
