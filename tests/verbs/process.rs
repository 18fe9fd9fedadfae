//! Subprocesses of tests, which run this test program again.

use std::env;
use std::fs;
use std::io::BufRead;
use std::process::{Child, Command, Stdio};

use crate::node::PROCESS_START_LOCK;
use crate::within::until;

/// Environment variable with the role of a subprocess.
pub(crate) const ROLE_VARIABLE: &str = "SOFTROCE_TEST_ROLE";

/// Returns the role of this process, if a test has started it.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE_VARIABLE).ok()
}

/// Ends a test without a role: another test starts it in a subprocess with a role, and checks its results.
pub(crate) fn started_by_another_test() {}

/// Runs a single test of this program in a subprocess, with this role.
pub(crate) fn start(test: &str, role: &str) -> Child {
    start_by(&mut Command::new(env::current_exe().unwrap()), test, role)
}

/// Runs a single test in a subprocess, by a command that runs its last arguments.
pub(crate) fn start_by(command: &mut Command, test: &str, role: &str) -> Child {
    spawn(command.args(["--exact", "--nocapture", test]).env(ROLE_VARIABLE, role))
}

/// Runs all tests of this program in another process with this environment variable, except those with names that
/// contain one of these words, and those that this process skips.
pub(crate) fn run_all((variable, value): (&str, &str), left_out: &[&str]) {
    let own: Vec<_> = env::args().collect();
    let skipped = own.windows(2).filter(|pair| pair[0] == "--skip").flatten();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(left_out.iter().flat_map(|word| ["--skip", word])).args(skipped);
    command.env(variable, value);
    let output = spawn(command.stderr(Stdio::piped())).wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{out}{err}");
}

/// Runs a script in new namespaces. The script runs a single test of this program with this role as `"$@"`, which
/// must print [`SUCCESS_LINE`] at its end.
pub(crate) fn in_namespaces(script: &str, test: &str, role: &str) {
    let is_root = spawn(Command::new("id").arg("-u")).wait_with_output().unwrap().stdout == b"0\n";
    let mut command = Command::new("unshare");
    command.arg(if is_root { "-mn" } else { "-rmn" }).args(["bash", "-euc", script, "bash"]);
    command.arg(env::current_exe().unwrap()).args(["--exact", "--nocapture", test]);
    let output =
        spawn(command.env(ROLE_VARIABLE, role).stderr(Stdio::piped())).wait_with_output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && out.contains(SUCCESS_LINE), "{out}{err}");
}

/// Script that creates a veth pair with both ends in this namespace, one with an address of each IP version.
pub(crate) const VETH_PAIR: &str = r#"
    ip link set lo up
    ip link add a0 type veth peer name b0
    ip link set a0 up
    ip link set b0 up
    ip addr add 10.8.0.1/24 dev a0
    ip addr add fd08::1/64 dev a0 nodad
    exec "$@"
"#;

/// Runs `ip` with these arguments.
pub(crate) fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

/// Line that a test prints for [`in_namespaces`] at its success.
pub(crate) const SUCCESS_LINE: &str = "has seen everything";

fn spawn(command: &mut Command) -> Child {
    let _alone = PROCESS_START_LOCK.write().unwrap();
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // `spawn` returns before the system has closed the inherited descriptors.
    until("the program to begin", || child.try_wait().unwrap().is_some() || has_begun(child.id()));
    child
}

/// Returns whether the child has executed its program: until then its arguments are those of this process, or empty.
fn has_begun(process: u32) -> bool {
    let [ours, theirs] = ["self".to_owned(), process.to_string()]
        .map(|process| fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default());
    !theirs.is_empty() && theirs != ours
}

/// Returns the next line that starts with `key`, without the key.
pub(crate) fn line(lines: &mut impl BufRead, key: &str) -> String {
    lines.lines().find_map(|line| Some(line.unwrap().strip_prefix(key)?.to_owned())).unwrap()
}
