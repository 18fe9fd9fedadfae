//! Long life of whole programs: one that makes and destroys objects through the C API, and pairs of programs of which
//! one is killed at a random moment.
//!
//! `tools/soak.sh` runs these tests. `SOAK_SECONDS` says how long the program runs, `SOAK_KILLS` how many programs are
//! killed, and `SOAK_SEED` when.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../tests/support/census.rs"]
#[allow(dead_code, reason = "the library's test uses the rest")]
mod census;
#[path = "soak/kills.rs"]
mod kills;
mod roce;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use census::{Measurement, MeasurementSeries, Measurements, SystemNames};
use roce::{command, fresh_ip, scratch};

/// Returns a number from the environment.
fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Compiles a C program with Debian's header and library.
fn compiled(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/soak").join(name);
    let program = scratch(&format!("soak-{name}"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    let told = cc.arg(source.with_extension("c")).arg("-libverbs").output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    program
}

/// Directories in which programs find no files of others.
struct Folders(tempfile::TempDir);

impl Folders {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tmp", "run"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let owner = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(folder.path().join("run"), owner).unwrap();
        Self(folder)
    }

    fn lend<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let path = |name: &str| self.0.path().join(name);
        command.env("TMPDIR", path("tmp")).env("XDG_RUNTIME_DIR", path("run"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn places(&self, addresses: &[&str]) -> SystemNames {
        let addresses = addresses.iter().map(|ip| ip.parse::<Ipv4Addr>().unwrap());
        SystemNames::new(addresses, [self.0.path().to_owned()])
    }
}

/// What the library may keep of a destroyed queue pair in the heap as long as its number is not used again: a table
/// and a queue of 28 bytes, each up to twice as long as it has to be.
const BYTES_IN_TIMEWAIT: i64 = 64;

/// Returns a figure of the program, with its allowed growth for this number of queue pairs in timewait.
fn figure(line: &str, in_timewait: i64) -> Measurement {
    let (name, value) = line.split_once(' ').unwrap();
    let (name, tolerance) = match name {
        "descriptors" => ("descriptors", 0),
        "threads" => ("threads", 0),
        "mappings" => ("mappings", 24),
        "resident" => ("resident KiB", 16 << 10),
        "proportional" => ("proportional KiB", 16 << 10),
        "heap" => ("heap KiB", (2 << 10) + in_timewait * BYTES_IN_TIMEWAIT / 1024),
        other => panic!("no figure is called {other}"),
    };
    Measurement { name, tolerance, value: value.parse().unwrap() }
}

/// Returns the censuses of one stage of the program.
fn censuses(told: &str, stage: &str) -> MeasurementSeries {
    let mut censuses = MeasurementSeries::default();
    for part in told.split("census ").skip(1) {
        let (head, rest) = part.split_once('\n').unwrap();
        if let Some(when) = head.strip_prefix(stage) {
            let figures = rest.lines().take_while(|line| !line.starts_with("counts"));
            let (in_timewait, figures): (Vec<_>, Vec<_>) =
                figures.partition(|line| line.starts_with("timewait "));
            let in_timewait = in_timewait[0].rsplit(' ').next().unwrap().parse().unwrap();
            let figures = figures.into_iter().map(|line| figure(line, in_timewait));
            censuses.push(when.trim(), figures.collect::<Measurements>());
        }
    }
    censuses
}

#[test]
#[ignore = "takes SOAK_SECONDS: tools/soak.sh"]
fn creating_and_destroying_objects_leaves_nothing_behind() {
    let (program, seconds) = (compiled("churn"), setting("SOAK_SECONDS", 10));
    for (number, via) in (0..).zip(["udp", "shm"]) {
        let (ip, folders) = (fresh_ip(60 + number), Folders::new());
        let places = folders.places(&[&ip]);
        // The files that describe the device stay for the next program.
        let listed = folders.lend(&mut command(&["run", "--ip", &ip, "--", "true"])).status();
        assert!(listed.unwrap().success());
        let mut left = MeasurementSeries::default();
        left.push("before", places.measure());
        let seconds = (seconds as f64 / 2.0).to_string();
        let mut run = command(&["run", "--via", via, "--ip", &ip, "--"]);
        let ended = folders.lend(run.arg(&program).arg(&seconds)).output().unwrap();
        let [told, wrong] =
            [&ended.stdout, &ended.stderr].map(|text| String::from_utf8_lossy(text));
        assert!(ended.status.success(), "via {via}: {}: {told}{wrong}", ended.status);
        left.push("after", places.measure());
        let counts = told.lines().find_map(|line| line.strip_prefix("counts ")).unwrap();
        println!("\nC program via {via}, {seconds} s: {counts}");
        let stages = ["open", "closed"].map(|stage| censuses(&told, stage));
        println!(
            "a device stays open:\n{}\nno device stays open:\n{}",
            stages[0].table(),
            stages[1].table()
        );
        println!("outside the program:\n{}", left.table());
        let grown = [&stages[0], &stages[1], &left].map(MeasurementSeries::grown).concat();
        assert!(grown.is_empty(), "via {via}: {grown:?}");
    }
}
