//! This test program again, as another process of a test.

use std::io::BufRead;
use std::process::{Child, Command, Stdio};

use crate::node::STARTING;

/// Set in a process that a test has started, to what it is to do.
const ROLE: &str = "SOFTROCE_TEST_ROLE";

/// What this process is to do, if a test has started it.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Runs a single test of this program in a process of its own, which is told its role.
pub(crate) fn start(test: &str, role: &str) -> Child {
    let _alone = STARTING.write().unwrap();
    Command::new(std::env::current_exe().unwrap())
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
