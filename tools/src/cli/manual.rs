//! `roce completions` and `roce man`: their options.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Print what makes a shell complete the options of this command.
///
/// For bash: roce completions bash > ~/.local/share/bash-completion/completions/roce
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Print the manual page, or write it and one for each subcommand to DIR.
///
/// To read it: roce man | man -l -
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Where to write roce.1, roce-perf.1 and so on; it must exist.
    pub(crate) dir: Option<PathBuf>,
}
