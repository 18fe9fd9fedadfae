//! Prerequisites of tests that a machine may lack: IPv6, privileges, facilities of the kernel.
//!
//! A test without its prerequisite reports this and returns: `return prerequisite::missing("IPv6")`. Tests may not
//! return early in other ways (`tests/honest_tests.rs`).

use std::fmt::Display;
use std::io::{self, Write};
use std::panic::Location;
use std::{env, thread};

/// Reports that the test, or the rest of it, is not run, on standard error and past the capturing of the test harness.
///
/// # Panics
///
/// With `CI=true`: a test that is not run proves nothing.
#[track_caller]
pub(crate) fn missing(what: impl Display) {
    report(env::var_os("CI").is_some_and(|ci| ci == "true"), &what);
}

#[track_caller]
fn report(is_ci: bool, what: &dyn Display) {
    assert!(!is_ci, "a prerequisite is missing: {what}");
    let (place, thread) = (Location::caller(), thread::current());
    let test = thread.name().unwrap_or("a test");
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "NOT RUN: {test} ({place}): missing: {what}");
}

#[test]
#[should_panic(expected = "a prerequisite is missing: IPv7")]
fn missing_prerequisite_fails_in_ci() {
    report(true, &"IPv7");
}

#[test]
fn missing_prerequisite_passes_elsewhere() {
    report(false, &"IPv7, in the test of this message itself");
}
