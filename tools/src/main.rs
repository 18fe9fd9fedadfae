//! The `roce` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    softroce_tools::run()
}
