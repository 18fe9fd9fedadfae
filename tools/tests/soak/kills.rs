//! Pairs of programs, of which one is killed at a random moment of its life.

use std::fmt;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::poll::{PollTimeout, poll};
use nix::sys::signal::Signal;
use softroce::runtime::now;
use softroce::verbs::Instant;

use super::census::{MeasurementSeries, grown, names_below};
use super::roce::{command, fresh_ip, scratch};
use super::{Folders, compiled, setting};

/// How long a survivor may go on. Its retry time is below a second; the machine may have other things to do.
const SURVIVOR_TIMEOUT: Duration = Duration::from_secs(30);

/// How long programs may go on of which a side that waits for a message, and has none of its own under way, waits for
/// ever on any adapter.
const WAITING_TIMEOUT: Duration = Duration::from_secs(6);

/// How long a pair has to write to each other, in milliseconds.
const TRAFFIC_MS: u64 = 300;

/// Numbers from a seed (SplitMix64).
struct Choice(u64);

impl Choice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    /// A moment of a program's life: as likely in its first millisecond as in the tenth part of a second after that,
    /// and as likely again around its end.
    fn moment(&mut self) -> Duration {
        Duration::from_micros(match self.below(4) {
            0 => self.below(3_000),
            1 => self.below(30_000),
            2 => 30_000 + self.below(TRAFFIC_MS * 1000),
            _ => TRAFFIC_MS * 1000 + self.below(150_000),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Program {
    Perf,
    Pingpong,
    Writers,
    WriteBw,
    Rping,
    Ucx,
}

impl Program {
    const ALL: [Self; 6] =
        [Self::Perf, Self::Pingpong, Self::Writers, Self::WriteBw, Self::Rping, Self::Ucx];

    /// Whether a side that has no request in flight waits for its peer forever. `ibv_rc_pingpong` does so on any
    /// adapter, and `ucx_perftest` before it connects: it ignores the end of its TCP connection. For a killed `rping`
    /// Linux sends a DREQ. Of softroce no part outlives the process.
    fn waits_for_messages(self) -> bool {
        matches!(self, Self::Pingpong | Self::Rping | Self::Ucx)
    }

    /// Its name in docs/KILLS.md.
    fn name(self) -> &'static str {
        match self {
            Self::Perf => "`roce perf write-bw`",
            Self::Pingpong => "`ibv_rc_pingpong`",
            Self::Writers => "a C program that writes",
            Self::WriteBw => "`ib_write_bw`",
            Self::Rping => "`rping`",
            Self::Ucx => "`ucx_perftest`",
        }
    }

    /// Exit statuses of a side that loses its peer to SIGKILL.
    fn statuses(self) -> &'static [i32] {
        match self {
            Self::Perf => &[0, 1, 2],
            Self::Pingpong | Self::WriteBw => &[0, 1],
            Self::Writers => &[0, 3, 4],
            Self::Rping | Self::Ucx => &[0, 1, 255],
        }
    }

    /// Signals by which a side may end that loses its peer: UCX aborts on an error of an endpoint without a handler, and its
    /// benchmark writes to the TCP connection of the sides.
    fn signals(self) -> &'static [Signal] {
        match self {
            Self::Ucx => &[Signal::SIGABRT, Signal::SIGPIPE],
            _ => &[],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Server,
    Client,
}

/// Two programs on this machine with an address each.
struct Pair<'a> {
    program: Program,
    via: &'a str,
    ips: [String; 2],
    writers: &'a Path,
    folders: Folders,
}

/// End of the survivor of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// It had no peer yet.
    Alone,
    /// It was about to end, and succeeded.
    Finished,
    /// It ended with an error.
    Failed,
    /// It had no request in flight, and waits for a message.
    Waits,
}

/// What has become of two programs.
#[derive(Debug)]
struct Ends {
    server: Option<ExitStatus>,
    client: Option<ExitStatus>,
    /// How long the survivor went on.
    after: Duration,
    text: String,
}

/// A program that runs, and what it says.
struct Running {
    child: Child,
    text: PathBuf,
}

impl Running {
    fn start(command: &mut Command, name: &str) -> Self {
        let text = scratch(&format!("soak-{}-{name}", std::process::id()));
        let file = File::create(&text).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: command.spawn().unwrap(), text }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.text).unwrap()
    }

    /// Waits for its end.
    fn end(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let start = now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            if now() - start > timeout {
                return None;
            }
            pause(Duration::from_millis(2));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After its end it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.text);
    }
}

fn pause(time: Duration) {
    poll(&mut [], PollTimeout::try_from(time).unwrap()).unwrap();
}

/// Waits for a moment, to the microsecond.
fn wait_until(start: Instant, after: Duration) {
    while now() - start < after {
        match (after - (now() - start).min(after)).saturating_sub(Duration::from_millis(2)) {
            Duration::ZERO => thread::yield_now(),
            time => pause(time),
        }
    }
}

fn free_port() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Whether a socket of this machine listens at a TCP port: state 0A of the kernel's table.
fn listens(port: &str) -> bool {
    let port: u16 = port.parse().unwrap();
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        fs::read_to_string(table).unwrap().lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().unwrap_or_default();
            local.ends_with(&format!(":{port:04X}")) && words.nth(1) == Some("0A")
        })
    })
}

impl Pair<'_> {
    /// A side; `brief` for one that is to end soon.
    fn command(&self, role: Role, port: &str, is_brief: bool) -> Command {
        let [ip, via] = [self.ips[role as usize].as_str(), self.via];
        let host: &[&str] = if role == Role::Client { &["127.0.0.1"] } else { &[] };
        let run = ["run", "--via", via, "--ip", ip, "--"];
        let time = if is_brief { 5 } else { TRAFFIC_MS };
        let mut command = match self.program {
            Program::Perf => {
                let seconds = format!("{}", time as f64 / 1000.0);
                let listen = ["perf", "write-bw", "--listen", "--port", port];
                let measure = ["perf", "write-bw", "127.0.0.1", "--port", port, "-D", &seconds];
                let device = ["--no-ceiling", "--via", via, "--ip", ip];
                let side: &[&str] = if role == Role::Server { &listen } else { &measure };
                command(&[side, &device].concat())
            }
            Program::Pingpong => {
                let messages = if is_brief { "20" } else { "4000" };
                let program = ["ibv_rc_pingpong", "-g", "0", "-p", port, "-n", messages];
                command(&[&run[..], &program, host].concat())
            }
            Program::WriteBw => {
                let messages = if is_brief { "20" } else { "20000" };
                let program = ["ib_write_bw", "-F", "-p", port, "-n", messages];
                command(&[&run[..], &program, host].concat())
            }
            Program::Rping => {
                let rounds = if is_brief { "20" } else { "4000" };
                let side = if role == Role::Server { "-s" } else { "-c" };
                let at = self.ips[Role::Server as usize].as_str();
                // Debug messages, which name each step.
                let program = ["stdbuf", "-oL", "rping", "-d", side];
                let options = ["-a", at, "-p", port, "-C", rounds, "-V"];
                command(&[&run[..], &program, &options].concat())
            }
            Program::Ucx => {
                let messages = if is_brief { "20" } else { "20000" };
                let program =
                    ["ucx_perftest", "-p", port, "-t", "tag_bw", "-s", "65536", "-w", "10"];
                let mut command = command(&[&run[..], &program, &["-n", messages], host].concat());
                // Smaller rings than the defaults of 70 MB, no transport but RDMA, and retries for less than a second.
                command.envs([
                    ("UCX_RC_TIMEOUT", "100ms"),
                    ("UCX_TLS", "rc_verbs,ud_verbs:aux"),
                    ("UCX_RC_RX_QUEUE_LEN", "256"),
                    ("UCX_UD_RX_QUEUE_LEN", "256"),
                ]);
                command
            }
            Program::Writers => {
                let mut command = command(&run);
                // 67 ms, or a second where nothing is killed: the machine may be busy for longer than that.
                let timeout = if is_brief { "18" } else { "14" };
                command.arg(self.writers).args([port, &time.to_string(), timeout]).args(host);
                command
            }
        };
        self.folders.lend(&mut command);
        command
    }

    /// Starts both, the client when the server listens. The victim, if there is one, is killed at a moment of its
    /// life.
    fn run(&self, victim: Option<(Role, Duration)>) -> Ends {
        let port = free_port();
        let name = |role: &str| format!("{:?}-{}-{role}", self.program, self.via);
        let is_brief = victim.is_none();
        let timeout = match victim {
            Some(_) if self.program.waits_for_messages() => WAITING_TIMEOUT,
            _ => SURVIVOR_TIMEOUT,
        };
        let mut server =
            Running::start(&mut self.command(Role::Server, &port, is_brief), &name("server"));
        let of = |role: Role| victim.and_then(|(whom, after)| (whom == role).then_some(after));
        let (mut start, mut client) = (now(), None);
        let due = of(Role::Server);
        // Nothing tells when another process listens.
        while due.is_none_or(|after| now() - start < after) {
            if self.is_ready(&server, &port) {
                let mut command = self.command(Role::Client, &port, is_brief);
                client = Some(Running::start(&mut command, &name("client")));
                break;
            }
            if server.child.try_wait().unwrap().is_some() {
                break;
            }
            assert!(
                now() - start < SURVIVOR_TIMEOUT,
                "{self}: the server does not listen: {}",
                server.said()
            );
            pause(Duration::from_millis(1));
        }
        let killed = match of(Role::Client) {
            Some(after) => {
                start = now();
                client.as_mut().map(|client| (client, after))
            }
            None => due.map(|after| (&mut server, after)),
        };
        if let Some((killed, after)) = killed {
            wait_until(start, after);
            // It may have ended already.
            let _ = killed.child.kill();
            killed.child.wait().unwrap();
        }
        start = now();
        let client_end = client.as_mut().and_then(|client| client.end(timeout));
        // A server goes on to wait if its client was killed before it connected.
        let waits_for_client = victim.is_some() && listens(&port);
        let server_end = if waits_for_client { None } else { server.end(timeout) };
        let after = now() - start;
        let text = [Some(&server), client.as_ref()].into_iter().flatten().map(Running::said);
        Ends { server: server_end, client: client_end, after, text: text.collect() }
    }

    /// Whether the server listens: by TCP, or by the connection manager, which it reports.
    fn is_ready(&self, server: &Running, port: &str) -> bool {
        match self.program {
            Program::Rping => server.said().contains("rdma_listen"),
            _ => listens(port),
        }
    }

    /// A pair of which none is killed succeeds. Returns how long it takes.
    fn succeed(&self) -> Duration {
        let ends = self.run(None);
        let is_good = |status: Option<ExitStatus>| status.is_some_and(|status| status.success());
        assert!(is_good(ends.server) && is_good(ends.client), "{self}, next start: {ends:?}");
        ends.after
    }

    /// Kills one of them. Returns how long the other went on, and its end.
    fn kill(&self, victim: Role, moment: Duration) -> (Duration, Outcome) {
        let ends = self.run(Some((victim, moment)));
        let survivor = if victim == Role::Server { ends.client } else { ends.server };
        // A client is killed before it connects, or a server before there is a client.
        let is_alone = survivor.is_none() && ends.after < WAITING_TIMEOUT;
        let waits = survivor.is_none() && !is_alone;
        let allowed = self.program.statuses();
        let is_allowed = |status: ExitStatus| {
            status.code().is_some_and(|code| allowed.contains(&code))
                || self
                    .program
                    .signals()
                    .iter()
                    .any(|signal| status.signal() == Some(*signal as i32))
        };
        assert!(
            survivor.is_none_or(is_allowed) && !ends.text.contains("panicked"),
            "{self}, {victim:?} killed after {moment:?}: {ends:?}"
        );
        assert!(
            !waits || self.program.waits_for_messages(),
            "{self}, {victim:?} killed after {moment:?}: {ends:?}"
        );
        let outcome = match survivor {
            _ if is_alone => Outcome::Alone,
            _ if waits => Outcome::Waits,
            Some(status) if status.success() => Outcome::Finished,
            _ => Outcome::Failed,
        };
        (ends.after, outcome)
    }
}

impl fmt::Display for Pair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} via {}", self.program, self.via)
    }
}

/// Kills so many, each followed by a pair on the same addresses, and returns what there is to say.
fn kill_many(pair: &Pair<'_>, kills: u64, seed: u64) -> String {
    let ips = pair.ips.each_ref().map(String::as_str);
    let places = pair.folders.places(&ips);
    pair.succeed();
    let mut censuses = MeasurementSeries::default();
    let before = places.measure();
    censuses.push("before", before.clone());
    let mut choice = Choice(seed);
    let (mut longest, mut slowest, mut outcomes) = (Duration::ZERO, Duration::ZERO, Vec::new());
    for number in 0..kills {
        let victim = if choice.below(2) == 0 { Role::Server } else { Role::Client };
        let moment = choice.moment();
        let (after, outcome) = pair.kill(victim, moment);
        let left = grown(&before, &places.measure());
        assert!(left.is_empty(), "{pair}, {number}, {victim:?} killed after {moment:?}: {left:?}");
        slowest = slowest.max(pair.succeed());
        outcomes.push(outcome);
        if outcome == Outcome::Failed {
            longest = longest.max(after);
        }
    }
    censuses.push("after", places.measure());
    assert_eq!(censuses.grown(), Vec::<String>::new(), "{pair}");
    let count = |of: Outcome| outcomes.iter().filter(|outcome| **outcome == of).count();
    let counts = [Outcome::Alone, Outcome::Finished, Outcome::Failed, Outcome::Waits].map(count);
    let row = row(pair.program.name(), pair.via, counts, longest, slowest);
    format!("{row}\n{}", censuses.table())
}

/// Returns a row of the table in docs/KILLS.md, which `tools/soak.sh --write` takes from the output: the numbers of
/// survivors by their outcome, how long the slowest went on that failed, and how long the slowest next start took.
fn row(
    program: &str,
    via: &str,
    [alone, finished, failed, waits]: [usize; 4],
    longest: Duration,
    slowest: Duration,
) -> String {
    let killed = alone + finished + failed + waits;
    format!(
        "| {program} | {via} | {killed} | {alone} | {finished} | {failed} | {:.1} | {waits} | {:.1} |",
        longest.as_secs_f64(),
        slowest.as_secs_f64()
    )
}

/// The files that `roce run` tells programs of the device by.
#[test]
#[ignore = "takes SOAK_KILLS: tools/soak.sh"]
fn files_of_a_killed_run_are_completed_by_the_next() {
    let (kills, mut choice) = (setting("SOAK_KILLS", 12), Choice(setting("SOAK_SEED", 1)));
    let ip = fresh_ip(69);
    let start = |folders: &Folders| {
        let mut command = command(&["run", "--ip", &ip, "--", "true"]);
        Running::start(folders.lend(&mut command), "files")
    };
    let names = |folders: &Folders| {
        let mut names = names_below(folders.path());
        names.iter_mut().for_each(|name| *name = name.split_off(folders.path().as_os_str().len()));
        names.sort();
        names
    };
    let complete = |folders: &Folders| {
        let ended = start(folders).end(SURVIVOR_TIMEOUT).unwrap();
        assert!(ended.success(), "{ended}");
        names(folders)
    };
    let expected = complete(&Folders::new());
    let mut interrupted = 0;
    for _ in 0..kills {
        let folders = Folders::new();
        let mut running = start(&folders);
        let moment = Duration::from_micros(choice.below(5_000));
        wait_until(now(), moment);
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        let found = names(&folders).len();
        interrupted += u64::from((4..expected.len()).contains(&found));
        assert_eq!(complete(&folders), expected, "killed after {moment:?}");
    }
    println!("roce run: {kills} killed, {interrupted} of them while they wrote");
}

#[test]
#[ignore = "takes SOAK_KILLS: tools/soak.sh"]
fn killed_programs_leave_nothing_behind_and_hinder_no_other() {
    let (kills, seed) = (setting("SOAK_KILLS", 12), setting("SOAK_SEED", 1));
    println!("\nSOAK_SEED={seed}");
    let writers = compiled("writers");
    let programs = Program::ALL;
    let lane = |number: u8, via: &'static str| {
        let kinds = (0..).zip(programs).map(|(kind, program)| {
            let ips = [0, 1].map(|side| fresh_ip(70 + number * 12 + kind * 2 + side));
            let pair = Pair { program, via, ips, writers: &writers, folders: Folders::new() };
            let share = kills.div_ceil(2 * programs.len() as u64);
            kill_many(&pair, share, seed + u64::from(number * 12 + kind))
        });
        kinds.collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let shm = scope.spawn(|| lane(1, "shm"));
        let udp = lane(0, "udp");
        for text in udp.into_iter().chain(shm.join().unwrap()) {
            println!("{text}");
        }
    });
}

/// Two ranks that send to each other; the second kills itself if it gets a time.
const RANKS: &str = r#"
export UCX_TLS=rc_verbs,ud_verbs:aux,self UCX_RC_RX_QUEUE_LEN=256 UCX_UD_RX_QUEUE_LEN=256
exec mpirun.mpich -n 1 "$1" "$2" : -n 1 "$@"
"#;

/// Compiles a program with MPICH's compiler.
fn compiled_for_mpi(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/soak").join(name);
    let program = scratch(&format!("soak-{name}"));
    let mut cc = Command::new("mpicc.mpich");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    let built = cc.arg(source.with_extension("c")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

#[test]
#[ignore = "takes SOAK_KILLS: tools/soak.sh"]
fn job_of_a_killed_rank_ends_and_hinders_no_other() {
    let (kills, seed) = (setting("SOAK_KILLS", 12), setting("SOAK_SEED", 1));
    println!("\nSOAK_SEED={seed}");
    let (program, folders, mut choice) = (compiled_for_mpi("ranks"), Folders::new(), Choice(seed));
    let job = |time: u64, death: Option<Duration>| {
        let mut command = command(&["run", "--", "bash", "-c", RANKS, "-"]);
        command.arg(&program).arg(time.to_string());
        command.args(death.map(|death| death.as_micros().to_string()));
        Running::start(folders.lend(&mut command), "ranks")
    };
    let places = folders.places(&[]);
    let succeed = || {
        let (mut whole, start) = (job(5, None), now());
        let ended = whole.end(SURVIVOR_TIMEOUT);
        assert!(ended.is_some_and(|status| status.success()), "{ended:?}: {}", whole.said());
        now() - start
    };
    let (mut longest, mut slowest) = (Duration::ZERO, Duration::ZERO);
    succeed();
    let (before, mut counts) = (places.measure(), [0; 4]);
    for number in 0..kills.div_ceil(6) {
        let moment = choice.moment();
        let (mut killed, start) = (job(TRAFFIC_MS, Some(moment)), now());
        let ended = killed.end(moment + SURVIVOR_TIMEOUT);
        assert!(ended.is_some(), "{number}, killed after {moment:?}: {}", killed.said());
        longest = longest.max((now() - start).saturating_sub(moment));
        counts[if ended.is_some_and(|status| status.success()) { 1 } else { 2 }] += 1;
        let left = grown(&before, &places.measure());
        assert!(left.is_empty(), "{number}, killed after {moment:?}: {left:?}");
        slowest = slowest.max(succeed());
    }
    println!("{}", row("MPICH, one of two ranks", "udp", counts, longest, slowest));
}
