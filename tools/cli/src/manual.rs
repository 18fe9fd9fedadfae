//! `roce completions` and `roce man`: their options.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::Shell;

/// Print the completion script of a shell.
///
/// For bash: roce completions bash > ~/.local/share/bash-completion/completions/roce
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Print the manual page, or write it and one for each subcommand to DIR.
///
/// To read it: roce man | man -l -
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Existing directory for roce.1, roce-perf.1 and so on.
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}
