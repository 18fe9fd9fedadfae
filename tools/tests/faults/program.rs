//! The programs in which system calls fail, and how they end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::errors::{ERRORS, Fault, is_clear};
use super::roce::{Listener, VARIABLES_OF_THE_COMMAND, command, listens, scratch};
use super::trace::{self, Site};

/// How long a program may take, in seconds. A connection gives its peer up much earlier.
const SECONDS: &str = "12";

/// How a program ends in which a call fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The program does the same as without the fault.
    Works,
    /// The program reports the fault. If the fault does not last, the example then does the same as without it.
    Says(String),
    /// A forbidden outcome.
    Bad(String),
    /// The call is not made.
    NotReached,
}

/// A program.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    kind: Kind,
    arguments: &'static [&'static str],
    /// Whether only `FAULTS` runs it.
    pub(crate) takes_long: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The example of that name: two devices in one process.
    Life,
    /// `roce perf` with faults, against a listening side without.
    PerfActive,
    /// `roce perf --listen` with faults, against an active side without.
    PerfListening,
    /// A client on the drop-in library with faults, against a server without.
    DropIn,
    /// `roce run` with a program that has no peer; both have faults.
    Run,
}

/// Programs that only `FAULTS` runs.
const LONG: [&str; 1] = ["two devices of two shards"];

/// Each program.
pub(crate) fn all() -> Vec<Program> {
    let program =
        |name, kind, arguments| Program { name, kind, arguments, takes_long: LONG.contains(&name) };
    vec![
        program("two devices by UDP", Kind::Life, &["udp", "1"]),
        program("two devices by shared memory", Kind::Life, &["shm", "1"]),
        program("two devices of two shards", Kind::Life, &["udp", "2"]),
        program("roce perf by UDP", Kind::PerfActive, &["--via=udp"]),
        program("roce perf by shared memory", Kind::PerfActive, &["--via=shm"]),
        program("roce perf of two shards", Kind::PerfActive, &["--via=udp", "--shards=2"]),
        program("roce perf --listen", Kind::PerfListening, &["--via=udp"]),
        program("ibv_rc_pingpong", Kind::DropIn, &["ibv_rc_pingpong", "-g", "0", "-n", "10"]),
        program("roce run", Kind::Run, &["ibv_devinfo", "-v"]),
        program("ib_write_bw", Kind::DropIn, &["ib_write_bw", "-n", "5"]),
    ]
}

/// What `roce perf` measures.
const PERF: [&str; 7] = ["perf", "write-bw", "-n", "20", "-s", "65536", "--no-ceiling"];

/// Beginnings of warnings of a device that works nevertheless: by UDP where it cannot have the name of its shared
/// memory, and with an assumed MTU.
const FALLBACKS: [&str; 2] =
    ["softroce: another program has the Unix socket @", "softroce: the MTU of the interface with "];

impl Program {
    /// The places at which its calls can fail.
    pub(crate) fn sites(&self) -> Vec<Site> {
        let prefix = scratch(&format!("faults-{}", std::process::id()));
        let calls: Vec<_> = ERRORS.iter().map(|(call, _)| *call).collect();
        let calls = format!("trace={},execve", calls.join(","));
        let strace = ["-ff", "-yy", "-qq", "-e", "signal=none", "-e", &calls];
        let ended = self.run(false, &strace, &prefix);
        assert!(ended.status.success(), "{}: {ended:?}", self.name);
        trace::sites(&prefix)
    }

    /// Returns whether the program may go on slowly for longer than a trial lasts: where only bursts find no room,
    /// single packets leave by another call.
    pub(crate) fn outlasts_trials(&self, fault: &Fault) -> bool {
        ["roce perf of two shards", "ib_write_bw"].contains(&self.name)
            && fault.lasts
            && fault.site.call == "sendmmsg"
            && ["ENOBUFS", "ENOMEM"].contains(&fault.error)
    }

    /// Runs it with a fault; `worker` is the number of the thread that does so.
    pub(crate) fn outcome(&self, worker: usize, fault: &Fault) -> Outcome {
        let file = scratch(&format!("faults-{}-{worker}", std::process::id()));
        let (trace, inject) = (format!("trace={}", fault.site.call), fault.inject());
        let strace =
            ["-f", "--seccomp-bpf", "-qq", "-e", "signal=none", "-e", &trace, "-e", &inject];
        let ended = self.run(fault.lasts, &strace, &file);
        let trace = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        if !trace.contains("(INJECTED)") {
            return Outcome::NotReached;
        }
        self.judge(&ended, fault)
    }

    /// Runs it under strace to its end.
    fn run(&self, lasts: bool, strace: &[&str], trace: &Path) -> Output {
        let trace = trace.to_str().unwrap();
        let roce = env!("CARGO_BIN_EXE_roce");
        let traced = |program: &str, arguments: &[&str]| {
            let mut traced = Command::new("timeout");
            traced.args(["-s", "KILL", SECONDS, "strace"]).args(strace).args(["-o", trace]);
            traced.arg(program).args(arguments);
            for variable in VARIABLES_OF_THE_COMMAND {
                traced.env_remove(variable.name);
            }
            traced.stdin(Stdio::null());
            traced
        };
        match self.kind {
            Kind::Life => {
                // A fault that lasts is there in the second attempt too.
                let attempts = if lasts { "1" } else { "2" };
                let arguments = [self.arguments, &[attempts]].concat();
                traced(life().to_str().unwrap(), &arguments).output().unwrap()
            }
            Kind::PerfActive => {
                let arguments = ["perf", "write-bw", "--listen", self.arguments[0]];
                let listener = Listener::start(&arguments);
                let port = format!("--port={}", listener.port);
                let arguments = [&PERF[..], self.arguments, &["127.0.0.1", &port]].concat();
                traced(roce, &arguments).output().unwrap()
            }
            Kind::PerfListening => {
                let arguments = ["perf", "write-bw", "--listen", "--port=0", "--announce"];
                with_active(traced(roce, &[&arguments, self.arguments].concat()), self.arguments)
            }
            Kind::DropIn => {
                let port = free_port();
                let at = ["-p", &port.to_string()].map(str::to_owned);
                let at = at.each_ref().map(String::as_str);
                let program = [self.arguments, &at].concat();
                let _server = Server::start(&program, port);
                // Filters do not work for strace behind the libraries that `roce run` loads into it.
                let strace = strace.iter().copied().filter(|option| *option != "--seccomp-bpf");
                let strace: Vec<_> = ["strace", "-o", trace].into_iter().chain(strace).collect();
                // perftest sleeps for a second before it looks whether the server is there.
                let hastens: &[_] = &["-e", "inject=clock_nanosleep:retval=0"];
                let timeout = ["run", "--", "timeout", "-s", "KILL", SECONDS];
                let client = [&timeout, &strace[..], hastens, &program, &["127.0.0.1"]];
                command(&client.concat()).output().unwrap()
            }
            Kind::Run => traced(roce, &[&["run", "--"], self.arguments].concat()).output().unwrap(),
        }
    }

    fn judge(&self, ended: &Output, fault: &Fault) -> Outcome {
        let Output { status, stdout, stderr } = ended;
        let stderr = String::from_utf8_lossy(stderr);
        let said: Vec<_> = stderr
            .lines()
            .filter(|line| !FALLBACKS.iter().any(|fallback| line.starts_with(fallback)))
            .collect();
        let said = said.join("\n").trim().to_owned();
        let signal = status.signal().or(status.code().filter(|code| *code > 128));
        let is_c = matches!(self.kind, Kind::DropIn | Kind::Run);
        match (signal, status.code()) {
            (Some(9 | 137), _) => Outcome::Bad(format!("hangs: {said}")),
            (Some(signal), _) => Outcome::Bad(format!("signal {signal}: {said}")),
            _ if said.contains("panicked") => Outcome::Bad(format!("panics: {said}")),
            (_, Some(3)) if self.kind == Kind::Life => Outcome::Bad(said),
            (_, Some(0)) if said.is_empty() || self.kind != Kind::Life => Outcome::Works,
            (_, Some(2)) if self.kind == Kind::Life && !fault.lasts => {
                Outcome::Bad(format!("fails again without the fault: {said}"))
            }
            // Programs in C have messages of their own, some on standard output.
            _ if is_c && !(said.is_empty() && stdout.is_empty()) => Outcome::Says(said),
            _ if is_clear(&said, fault) => Outcome::Says(said),
            _ => Outcome::Bad(format!("{status}, without a word of the error: {said:?}")),
        }
    }
}

fn life() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_roce")).with_file_name("examples").join("life")
}

fn free_port() -> u16 {
    std::net::TcpListener::bind(("0.0.0.0", 0)).unwrap().local_addr().unwrap().port()
}

/// Runs the listening side, with an active side as soon as that can connect.
fn with_active(mut listening: Command, options: &[&str]) -> Output {
    let mut child = listening.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut port = String::new();
    stdout.read_line(&mut port).unwrap();
    let mut active = None;
    if let Ok(port) = port.trim().parse::<u16>() {
        let port = format!("--port={port}");
        let mut command = command(&[&PERF[..], options, &["127.0.0.1", &port]].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        active = Some(command.spawn().unwrap());
    }
    let ended = child.wait_with_output().unwrap();
    if let Some(mut active) = active {
        // Its peer has gone.
        active.kill().unwrap();
        active.wait().unwrap();
    }
    ended
}

/// The server of a client on the drop-in library. It ends with this value.
struct Server(Child);

impl Server {
    /// Starts it, and waits until it listens at `port`.
    fn start(program: &[&str], port: u16) -> Self {
        let arguments = [&["run", "--", "timeout", "-s", "KILL", SECONDS], program].concat();
        let mut command = command(&arguments);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (start, limit) = (softroce::runtime::now(), Duration::from_secs(60));
        while !listens(port) {
            assert_eq!(child.try_wait().unwrap(), None, "{program:?}");
            assert!(softroce::runtime::now() - start < limit, "{program:?} does not listen");
            thread::yield_now();
        }
        Self(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.0.id().try_into().unwrap());
        // `timeout` leads a group; when all of it have ended there is none.
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
