//! `roce run --check` and `--explain`, which stay while the program runs: signals, and an end by SIGKILL.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::roce::command;

/// Prints its process ID, and ends with status 7 at a signal. The wait ends at once, a command would not.
const TRAPS: &str =
    "trap 'kill $!; exit 7' HUP INT QUIT TERM USR1 USR2; sleep 60 & echo $$; wait; exit 8";

/// Starts a shell script; returns `roce run` and the process ID of the script.
fn started(option: &str, script: &str, temporary: &Path) -> (Child, String) {
    // A shell cannot handle signals that it has inherited as ignored.
    let program = ["env", "--default-signal", "bash", "-c", script];
    let mut command = command(&[&["run", option, "--"], &program[..]].concat());
    command.env("TMPDIR", temporary).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut run = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (run, line.trim().to_owned())
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn signal_to_the_command_reaches_the_program() {
    let temporary = tempfile::tempdir().unwrap();
    for option in ["--check", "--explain"] {
        for signal in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"] {
            let (mut run, _) = started(option, TRAPS, temporary.path());
            let sent =
                Command::new("kill").args(["-s", signal, &run.id().to_string()]).status().unwrap();
            assert!(sent.success());
            assert_eq!(run.wait().unwrap().code(), Some(7), "{option} {signal}");
        }
    }
}

/// Waits up to a minute until a process has ended.
fn wait_for_end(process: &str) {
    let (start, limit) = (softroce::runtime::now(), Duration::from_secs(60));
    // No event reports the end of a process that is no child.
    while Path::new("/proc").join(process).exists() {
        assert!(softroce::runtime::now() - start < limit, "{process} still runs after {limit:?}");
        thread::yield_now();
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn program_ends_with_a_command_that_is_killed() {
    let temporary = tempfile::tempdir().unwrap();
    for option in ["--check", "--explain"] {
        let (mut run, program) = started(option, "echo $$; exec sleep 60", temporary.path());
        run.kill().unwrap();
        assert_eq!(run.wait().unwrap().signal(), Some(9));
        wait_for_end(&program);
    }
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn check_that_is_killed_leaves_no_directory_for_long() {
    let temporary = tempfile::tempdir().unwrap();
    let run = |script: &str| {
        let mut command = command(&["run", "--check", "--", "sh", "-c", script]);
        command.env("TMPDIR", temporary.path()).output().unwrap().status
    };
    let left = || {
        let entries = fs::read_dir(temporary.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("roce-check-")).count()
    };
    // The end of a terminal ends the program, and `roce run` waits for that.
    assert_eq!((run("kill -HUP $PPID; exit 7").code(), left()), (Some(7), 0));
    assert_eq!((run("kill -KILL $PPID").code(), left()), (None, 1));
    assert_eq!((run("exit 7").code(), left()), (Some(7), 0));
}
