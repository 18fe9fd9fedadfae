//! The other side of a local test, as a child process.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};
use nix::poll::{PollFd, PollFlags, poll};
use softroce::ids::PKey;
use softroce::runtime::Environment;
use softroce_cli::{PerfArgs, Test};

use crate::device;

/// A child process that listens. It ends with its session, and is killed at the latest when this value is dropped.
pub(super) struct ChildSide {
    child: Child,
    stdout: Option<ChildStdout>,
}

impl ChildSide {
    /// Starts the process, and returns the TCP port at which it listens.
    pub(super) fn start(args: &PerfArgs) -> anyhow::Result<(Self, u16)> {
        let program = std::env::current_exe().context("our own program file")?;
        let mut command = Command::new(program);
        command.args(["perf", args.test.name(), "--listen", "--port=0", "--announce"]);
        command.arg("--second-core");
        if args.test == Test::Ceiling {
            // Raw UDP opens no device, which would find a free address.
            command.arg("--ip=127.0.0.2");
        } else {
            let kind = device::port_kind(&args.device, &Environment::read()?);
            ensure!(
                kind.is_of_host(),
                "--via {kind}: give HOST, with roce perf --listen there; both sides of this command would be one host"
            );
            command.args(["--via", &kind.to_string()]);
        }
        if let Some(bytes) = args.device.rcvbuf {
            command.args(["--rcvbuf", &bytes.to_string()]);
        }
        // A full member may communicate with any member.
        for key in &args.device.pkey {
            command.arg(format!("--pkey={}", PKey(key.0 | 0x8000)));
        }
        // An address or a file can be used by one side only. Impairments on both sides would double the requested
        // losses.
        for variable in ["SOFTROCE_IP", "SOFTROCE_PCAP", "SOFTROCE_IMPAIR"] {
            command.env_remove(variable);
        }
        // The standard input of the child ends with this process, however that ends.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take();
        let mut side = Self { child, stdout };
        let mut line = String::new();
        if let Some(stdout) = &mut side.stdout {
            // Nothing follows the line that this reader could lose.
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim().parse() {
            Ok(port) => Ok((side, port)),
            // The child has printed the reason on standard error.
            Err(_) => bail!("the other side did not start"),
        }
    }
}

impl ChildSide {
    /// Time for closing the device after the session, in milliseconds.
    const EXIT_TIMEOUT_MS: u16 = 2000;

    /// Waits until the process has ended after its session, so that its files are complete.
    pub(super) fn wait_for_end(self) {
        // The process prints nothing more, so its output is readable when it has ended. After the timeout it is
        // killed.
        if let Some(stdout) = &self.stdout {
            let mut end = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut end, Self::EXIT_TIMEOUT_MS);
        }
    }
}

impl Drop for ChildSide {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
