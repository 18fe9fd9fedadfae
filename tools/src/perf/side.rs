//! The other side of a test, started by ourselves as a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

use crate::cli::PerfArgs;

/// A process that listens for us. It ends with its session, and at the latest with this value.
pub(super) struct Side {
    child: Child,
}

impl Side {
    /// Starts it, and tells where it listens.
    pub(super) fn start(args: &PerfArgs) -> anyhow::Result<(Self, SocketAddr)> {
        let program = std::env::current_exe().context("our own program file")?;
        let mut command = Command::new(program);
        command.args(["perf", args.test.name(), "--listen", "--announce"]);
        if let Some(bytes) = args.rcvbuf {
            command.args(["--rcvbuf", &bytes.to_string()]);
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take();
        let side = Self { child };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim().parse() {
            Ok(address) => Ok((side, address)),
            // It has said on stderr why.
            Err(_) => bail!("the other side did not start"),
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Gone already is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
