//! The other side of a test, started by ourselves as a process of its own.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};
use nix::poll::{PollFd, PollFlags, poll};
use softroce::ids::PKey;
use softroce::runtime::Environment;

use crate::cli::{PerfArgs, Test};

/// A process that listens for us. It ends with its session, and at the latest with this value.
pub(super) struct Side {
    child: Child,
    stdout: Option<ChildStdout>,
}

impl Side {
    /// Starts it, and tells the TCP port at which it listens.
    pub(super) fn start(args: &PerfArgs) -> anyhow::Result<(Self, u16)> {
        let program = std::env::current_exe().context("our own program file")?;
        let mut command = Command::new(program);
        command.args(["perf", args.test.name(), "--listen", "--port=0", "--announce"]);
        command.arg("--second-core");
        if args.test == Test::Ceiling {
            // Raw UDP has no device that would look for an address of its own.
            command.arg("--ip=127.0.0.2");
        } else {
            let kind = args.device.port_kind(&Environment::read()?);
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
        // Those are for one of the two: an address, a file. Impairments on both sides would double the
        // requested losses.
        for variable in ["SOFTROCE_IP", "SOFTROCE_PCAP", "SOFTROCE_IMPAIR"] {
            command.env_remove(variable);
        }
        // Its standard input ends with this process, however that ends.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take();
        let mut side = Self { child, stdout };
        let mut line = String::new();
        if let Some(stdout) = &mut side.stdout {
            // Nothing comes behind the line that could be lost with this reader.
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim().parse() {
            Ok(port) => Ok((side, port)),
            // It has said on stderr why.
            Err(_) => bail!("the other side did not start"),
        }
    }
}

impl Side {
    /// How many milliseconds it may take to close its device, once the session has ended.
    const GRACE: u16 = 2000;

    /// Waits for its end, which comes with that of the session: what its device leaves behind is then
    /// whole.
    pub(super) fn let_it_end(self) {
        // It says no more, so there is something to be read when it is gone. If that cannot be waited for,
        // or takes too long, it is ended.
        if let Some(stdout) = &self.stdout {
            let mut end = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut end, Self::GRACE);
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
