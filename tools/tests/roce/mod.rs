//! Runs the command as a user does.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use softroce_pcap::{LinkType, Reader, Writer};

/// Lock of a test with polling sides: one such test at a time, or a side may wait for the CPU until the other times
/// out.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The variables that the command reads.
pub(crate) use softroce::runtime::VARIABLES as VARIABLES_OF_THE_COMMAND;

/// Returns whether a socket of this machine listens at a port: state 0A of the kernel's table.
pub(crate) fn listens(port: u16) -> bool {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap());
    tables.iter().flat_map(|table| table.lines()).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().unwrap_or_default();
        local.ends_with(&format!(":{port:04X}")) && words.nth(1) == Some("0A")
    })
}

/// Copies the command to `path`. Another process writes the file: a descriptor of this one could be inherited by a child of
/// another test, and the kernel executes no file that is open for writing (`ETXTBSY`).
pub(crate) fn copy_command(path: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_roce")).arg(path).status().unwrap();
    assert!(copied.success(), "cp to {}", path.display());
}

/// Returns the command, without its variables in the environment.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
    // Its help is as wide as the terminal.
    command.args(args).env_remove("COLUMNS");
    for variable in VARIABLES_OF_THE_COMMAND {
        command.env_remove(variable.name);
    }
    command
}

/// Runs the command to its end.
pub(crate) fn roce(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs the command, which must succeed; returns its lines.
pub(crate) fn lines(args: &[&str]) -> Vec<String> {
    let output = roce(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Runs the command, which must succeed and print JSON.
pub(crate) fn json(args: &[&str]) -> Vec<Value> {
    lines(args).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs the command, which must fail with status 2; returns standard error.
pub(crate) fn error(args: &[&str]) -> String {
    let output = roce(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
    stderr(&output)
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A listening side.
pub(crate) struct Listener {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    pub(crate) port: String,
}

impl Listener {
    /// Starts the side, and waits until it accepts connections.
    pub(crate) fn start(args: &[&str]) -> Self {
        let args = [args, &["--port=0", "--announce"]].concat();
        let mut command = command(&args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut port = String::new();
        stdout.read_line(&mut port).unwrap();
        Self { child, stdout, port: port.trim().to_owned() }
    }

    /// Waits for the end; returns exit status, standard output and standard error.
    pub(crate) fn finish(mut self) -> (Option<i32>, String, String) {
        let mut out = String::new();
        self.stdout.read_to_string(&mut out).unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), out, err)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // After `finish` the process is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcap/captures").join(name)
}

/// Returns the finding of a check; `null` if the check did not run.
pub(crate) fn finding<'a>(report: &'a Value, check: &str) -> &'a Value {
    let all = report["findings"].as_array().unwrap();
    all.iter().find(|finding| finding["check"] == check).unwrap_or(&Value::Null)
}

#[track_caller]
pub(crate) fn assert_found(report: &Value, check: &str, verdict: &str, part: &str) {
    let found = finding(report, check);
    let text = found["text"].as_str().unwrap_or_default();
    assert!(found["verdict"] == verdict && text.contains(part), "{check}: {found:#}");
}

/// Returns a loopback address that only this run of the tests uses.
pub(crate) fn fresh_ip(number: u8) -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 100 + number, high, low).to_string()
}

/// Returns the path of a file of this test run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Writes what the server of a golden capture would have captured: its clock is 5 s ahead, each packet takes 100 µs,
/// and the packet with a number was lost on the way. Returns the path.
pub(crate) fn other_end(test: &str, name: &str, lost: u64) -> String {
    let delay = Duration::from_micros(100);
    let ahead = Duration::from_secs(5);
    let bytes = fs::read(golden(name)).unwrap();
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        let is_request = packet.ip.unwrap()[15] == 2;
        let time = packet.time.unwrap() + ahead;
        let time = if is_request { time + delay } else { time.checked_sub(delay).unwrap() };
        if packet.number != lost {
            packets.push((time, packet.ip.unwrap().to_vec()));
        }
    }
    packets.sort();
    let mut writer = Writer::new(Vec::new(), LinkType::Raw, "test").unwrap();
    for (time, ip) in packets {
        writer.packet(time, None, &ip).unwrap();
    }
    let path = scratch(&format!("{test}-other-end.pcapng"));
    fs::write(&path, writer.into_inner()).unwrap();
    path.to_str().unwrap().to_owned()
}
