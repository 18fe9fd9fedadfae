//! The command line: one struct a subcommand, from which parser, help and checks follow.

mod dump;
mod perf;
mod units;

use clap::{Parser, Subcommand};

pub(crate) use dump::DumpArgs;
pub(crate) use perf::{PerfArgs, Test};

/// RDMA over Converged Ethernet without RDMA hardware.
#[derive(Parser, Debug)]
#[command(name = "roce", version, max_term_width = 100, infer_long_args = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Perf(PerfArgs),
    Dump(DumpArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_table_of_options_is_sound() {
        Cli::command().debug_assert();
    }
}
