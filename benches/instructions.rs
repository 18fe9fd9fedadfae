//! Instructions of the engine per packet, of both sides together, including copies and ICRC. They depend only on the
//! compiler and the processor's features, not on time.
//!
//! `cargo bench --bench instructions` counts them with valgrind's callgrind and compares them with
//! `benches/instructions.txt`. It fails when a value is more than a tenth higher. With `SNAPSHOTS=write` it writes
//! that file.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::fmt::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

use softroce::ids::Mtu;
use softroce::transport::work::{RemoteAddr, SendOp};

use pair::Pair;

mod pair;

/// Messages in batches of `batch`, round-robin over the connections.
struct Scenario {
    name: &'static str,
    op: fn(RemoteAddr) -> SendOp,
    length: u32,
    mtu: Mtu,
    batch: u64,
    connections: u32,
}

const SEND: fn(RemoteAddr) -> SendOp = |_| SendOp::Send;
const WRITE: fn(RemoteAddr) -> SendOp = |to| SendOp::Write { to };
const READ: fn(RemoteAddr) -> SendOp = |from| SendOp::Read { from };

const fn scenario(
    name: &'static str,
    (op, length): (fn(RemoteAddr) -> SendOp, u32),
    (batch, connections): (u64, u32),
) -> Scenario {
    Scenario { name, op, length, mtu: Mtu::Mtu4096, batch, connections }
}

const SCENARIOS: [Scenario; 13] = [
    scenario("send-64", (SEND, 64), (512, 1)),
    scenario("send-64-one-by-one", (SEND, 64), (1, 1)),
    scenario("write-64", (WRITE, 64), (512, 1)),
    scenario("write-4096", (WRITE, 4096), (256, 1)),
    scenario("write-4096-one-by-one", (WRITE, 4096), (1, 1)),
    scenario("write-4096-100-connections", (WRITE, 4096), (256, 100)),
    scenario("write-4096-10000-connections", (WRITE, 4096), (256, 10_000)),
    scenario("write-65536", (WRITE, 65_536), (16, 1)),
    scenario("read-65536", (READ, 65_536), (16, 1)),
    scenario("read-8-depth-1", (READ, 8), (1, 1)),
    scenario("read-8-depth-16", (READ, 8), (16, 1)),
    scenario("read-8-depth-128", (READ, 8), (128, 1)),
    Scenario { mtu: Mtu::Mtu1024, ..scenario("write-65536-mtu-1024", (WRITE, 65_536), (16, 1)) },
];

/// Batches before and between the two counts; their difference excludes the start of the program.
const BATCHES: u64 = 8192;

/// Accepted ratio to the value in the file.
const TOLERANCE: f64 = 1.1;

impl Scenario {
    fn run(&self, batches: u64) {
        let mut pair = Pair::new(self.mtu, self.connections).unwrap();
        let op = (self.op)(pair.remote());
        for _ in 0..batches {
            if op == SendOp::Send {
                pair.post_recv(self.length, self.batch);
            }
            pair.post(op, self.length, self.batch);
            pair.run();
        }
    }

    fn packets(&self) -> u64 {
        self.batch * (self.length as usize).div_ceil(self.mtu.bytes()) as u64
    }

    fn per_packet(&self) -> f64 {
        let batches = (BATCHES / self.packets()).max(16);
        let once = self.count(batches);
        let twice = self.count(2 * batches);
        (twice - once) as f64 / (batches * self.packets()) as f64
    }

    /// Returns the instructions of a run, as counted by callgrind.
    fn count(&self, batches: u64) -> u64 {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(env::current_exe().unwrap())
            .args(["--run", self.name, &batches.to_string()])
            // Without this, a copy may be one instruction per byte.
            .env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=0x10000000")
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("valgrind: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let collected = said.lines().find_map(|line| line.split_once("Collected : ")).unwrap();
        collected.1.parse().unwrap()
    }
}

/// Returns the value of a scenario in the file.
fn known(text: &str, name: &str) -> Option<f64> {
    let row = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    row.trim().parse().ok()
}

fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    if let [run, name, batches] = &args[..]
        && run == "--run"
    {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
        scenario.run(batches.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");
    let before = fs::read_to_string(path).unwrap_or_default();
    let (mut now, mut worse) = (String::new(), false);
    for scenario in SCENARIOS {
        let found = scenario.per_packet();
        writeln!(now, "{:<30}{found:>6.0}", scenario.name).unwrap();
        let known = known(&before, scenario.name);
        let ratio = known.map_or(1.0, |known| found / known);
        worse |= ratio > TOLERANCE;
        println!("{:<30}{found:>6.0} instructions a packet, {ratio:.2} of before", scenario.name);
    }
    if env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
        fs::write(path, now).unwrap();
    } else if worse {
        eprintln!("more than {TOLERANCE} of what {path} says");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
