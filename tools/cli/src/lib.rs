//! The options of the `roce` command: one struct a subcommand, from which parser, help, manual pages and completions
//! follow.
//!
//! A crate of its own, because it is a quarter of the command's machine code and none of its speed: cargo compiles it
//! without optimization, while it optimizes the rest. It is no stable API.

// The help texts are the documentation. One on a variant or a flattened struct would replace that of its type.
#![allow(missing_docs)]

mod alias;
mod analyze;
mod capture;
mod capture_filter;
mod check;
mod cm;
mod device;
mod devinfo;
mod doctor;
mod dump;
mod extcap;
mod input;
mod manual;
mod perf;
mod pingpong;
mod run;
mod span;
mod stats;
mod top;
mod transport;
mod units;

use std::env;
use std::ffi::OsString;
use std::fmt::Write;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use softroce::runtime::VARIABLES;

use alias::Alias;

pub use analyze::AnalyzeArgs;
pub use capture::{ALL_DEVICES, CaptureArgs, Selection};
pub use capture_filter::parse as parse_capture_filter;
pub use check::{CheckArgs, Format};
pub use cm::{CmArgs, CmConnectArgs, CmListenArgs, CmPingArgs, CmSide};
pub use device::DeviceArgs;
pub use devinfo::DevinfoArgs;
pub use doctor::DoctorArgs;
pub use dump::{DumpArgs, FieldFormat};
pub use extcap::{EXTCAP_NAME, ExtcapArgs};
pub use input::InputArgs;
pub use manual::{CompletionsArgs, ManArgs};
pub use perf::{AtomicType, LoadArgs, MAX_QPS, Measure, PerfArgs, QueueArgs, Test, Verb};
pub use pingpong::{PingpongArgs, PingpongLoad};
pub use run::RunArgs;
pub use span::SpanArgs;
pub use stats::{StatsArgs, StatsFormat, TableName};
pub use top::{SortKey, TopArgs};
pub use transport::Transport;
pub use units::MAX_MESSAGE;

/// RDMA over Converged Ethernet (RoCEv2) without RDMA hardware.
#[derive(Parser, Debug)]
#[command(name = "roce", version, max_term_width = 100, infer_long_args = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Color the output: auto does so on a terminal unless NO_COLOR is set.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    pub color: ColorChoice,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Devinfo(DevinfoArgs),
    Doctor(DoctorArgs),
    Run(RunArgs),
    Pingpong(PingpongArgs),
    Cm(CmArgs),
    Perf(Box<PerfArgs>),
    Analyze(AnalyzeArgs),
    Check(CheckArgs),
    Dump(DumpArgs),
    Stats(StatsArgs),
    Capture(CaptureArgs),
    Top(TopArgs),
    Extcap(ExtcapArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

impl Cli {
    /// Parses the command line of this process.
    pub fn read() -> Result<Self, clap::Error> {
        Self::parse_line(env::args_os().collect())
    }

    /// Parses a command line, in which the name of another program may stand for a subcommand.
    pub fn parse_line(line: Vec<OsString>) -> Result<Self, clap::Error> {
        let (alias, line) = Alias::expand(line);
        let mut command = command().color(color_of(&line));
        if let Some(alias) = alias {
            command = alias.adapt(command);
        }
        let mut cli = Self::from_arg_matches(&command.try_get_matches_from(line)?)?;
        if let (Some(_), Command::Perf(args)) = (alias, &mut cli.command) {
            // perftest's programs listen unless they are given a host.
            args.listen |= args.host.is_none();
        }
        Ok(cli)
    }
}

/// Returns the value of `--color`, which holds for messages of the parser too.
fn color_of(line: &[OsString]) -> ColorChoice {
    let words: Vec<_> =
        line.iter().take_while(|word| *word != "--").map(|word| word.to_str()).collect();
    let inline = words.iter().flatten().find_map(|word| word.strip_prefix("--color="));
    let next = words.windows(2).find_map(|pair| pair[1].filter(|_| pair[0] == Some("--color")));
    inline.or(next).and_then(|choice| choice.parse().ok()).unwrap_or_default()
}

/// Returns the parser without the environment in its help.
pub fn table() -> clap::Command {
    Cli::command()
}

/// Returns the parser, with other programs' names and the environment at the end of its help.
fn command() -> clap::Command {
    let mut help = String::from("Other programs' names stand for a subcommand:\n");
    for alias in &Alias::ALL {
        // A string takes whatever is written to it.
        let _ = writeln!(help, "  {:<20}  {}", alias.name, alias.meaning());
    }
    help.push_str("\nEnvironment, where no option says otherwise:\n");
    for variable in VARIABLES {
        let (name, value, meaning) = (variable.name, variable.value, variable.meaning);
        let _ = writeln!(help, "  {name:<20}  {value}: {meaning}");
    }
    table().after_help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Cli {
        Cli::parse_line(words.iter().map(Into::into).collect()).unwrap()
    }

    #[test]
    fn option_table_is_sound() {
        command().debug_assert();
        for alias in &Alias::ALL {
            alias.adapt(command()).debug_assert();
        }
    }

    #[test]
    fn help_lists_the_environment_and_other_names() {
        let help = command().render_help().to_string();
        assert!(VARIABLES.iter().all(|variable| help.contains(variable.name)), "{help}");
        assert!(Alias::ALL.iter().all(|alias| help.contains(alias.name)), "{help}");
    }

    #[test]
    fn perftest_names_are_tests_that_listen_without_a_host() {
        let Command::Perf(args) =
            parse(&["roce", "ib_write_lat", "-d", "softroce0", "-x", "0"]).command
        else {
            panic!("not perf")
        };
        assert!(args.test == Test::WriteLat && args.listen && args.host.is_none());
        let Command::Perf(args) = parse(&["/usr/bin/ib_read_bw", "-l", "16", "there"]).command
        else {
            panic!("not perf")
        };
        assert!(args.test == Test::ReadBw && !args.listen && args.host.as_deref() == Some("there"));
    }

    #[test]
    fn stock_pingpong_names_have_the_options_of_those_programs() {
        for (name, transport) in
            [("ibv_rc_pingpong", Transport::Rc), ("ibv_ud_pingpong", Transport::Ud)]
        {
            let Command::Pingpong(args) = parse(&["roce", name, "-c", "-x", "0"]).command else {
                panic!("not pingpong")
            };
            assert!(args.connection == transport && args.load.chk, "{name}");
        }
        let Command::Pingpong(args) = parse(&["roce", "pingpong", "-c", "UC"]).command else {
            panic!("not pingpong")
        };
        assert!(args.connection == Transport::Uc && !args.load.chk);
    }

    #[test]
    fn color_holds_for_messages_of_the_parser() {
        let color = |words: &[&str]| color_of(&words.iter().map(Into::into).collect::<Vec<_>>());
        assert_eq!(color(&["roce", "--color", "never", "dump"]), ColorChoice::Never);
        assert_eq!(color(&["roce", "dump", "--color=always"]), ColorChoice::Always);
        assert_eq!(color(&["roce", "run", "--", "ls", "--color=always"]), ColorChoice::Auto);
    }
}
