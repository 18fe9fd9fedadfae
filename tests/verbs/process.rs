//! This test program again, as another process of a test.

use std::io::BufRead;
use std::process::{Child, Command, Stdio};

use crate::node::STARTING;

/// Set in a process that a test has started, to what it is to do.
pub(crate) const ROLE: &str = "SOFTROCE_TEST_ROLE";

/// What this process is to do, if a test has started it.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Runs a single test of this program in a process of its own, which is told its role.
pub(crate) fn start(test: &str, role: &str) -> Child {
    start_by(&mut Command::new(std::env::current_exe().unwrap()), test, role)
}

/// The same, by a command that runs this program: with the words that follow.
pub(crate) fn start_by(command: &mut Command, test: &str, role: &str) -> Child {
    let _alone = STARTING.write().unwrap();
    command
        .args(["--exact", "--nocapture", test])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The next line of a process that starts with `key`, without it.
pub(crate) fn line(lines: &mut impl BufRead, key: &str) -> String {
    lines.lines().find_map(|line| Some(line.unwrap().strip_prefix(key)?.to_owned())).unwrap()
}
