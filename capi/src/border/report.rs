//! Reports of refused calls and failed requests, on standard error and for `roce run --explain`.

use std::fmt::Arguments;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use softroce::runtime::{Environment, LogLevel, is_log_level_set, is_logged, log};
use softroce::verbs::{Completion, WcStatus};

use super::errno::Errno;

/// Functions that programs call to find out whether something exists. An error is an answer.
const PROBES: [&str; 2] = ["query_", "read_sysfs_file"];

/// Functions that programs call until the queue is full.
const POSTS: [&str; 2] = ["post_", "wr_"];

/// Reports why a call has failed. `function` returns its name without `ibv_`, if it is known: some programs ask for a feature
/// with each connection, so an answer that is not written takes no text.
pub(crate) fn refused<'a>(function: impl FnOnce() -> Option<&'a str>, errno: &Errno) {
    let is_silent = !errno.is_failure() && !errno.is_mistake() && !is_logged(LogLevel::Info);
    if errno.is_normal() || is_silent {
        return;
    }
    let function = function();
    let call = function.map(|function| format!("ibv_{function}"));
    let call = call.as_deref().unwrap_or("a call");
    let begins = |names: &[&str]| {
        function.is_some_and(|function| names.iter().any(|name| function.starts_with(name)))
    };
    let is_answer =
        begins(&PROBES) || (begins(&POSTS) && errno.is_full()) || errno.is_inline_limit();
    if errno.is_failure() {
        log(LogLevel::Error, errno);
        report_first(&REFUSAL, format_args!("refused {call} {}: {errno}", errno.name()));
        return;
    }
    log(LogLevel::Info, &format_args!("{call} failed with {}: {errno}", errno.name()));
    if !errno.is_mistake() || is_answer || function.is_none() {
        return;
    }
    if !is_log_level_set() && !HINT.swap(true, Ordering::Relaxed) {
        let how = "SOFTROCE_LOG=info reports every refused call, and SOFTROCE_LOG=warn none";
        log(LogLevel::Warn, &format_args!("{call} failed with {}: {errno} ({how})", errno.name()));
    }
    report_first(&REFUSAL, format_args!("refused {call} {}: {errno}", errno.name()));
}

/// Reports why a command of `librdmacm` has failed. The library probes for commands, so there is no hint.
pub(crate) fn refused_command(call: &str, errno: &Errno) {
    if errno.is_failure() {
        log(LogLevel::Error, errno);
    } else if !errno.is_normal() {
        log(LogLevel::Info, &format_args!("{call} failed with {}: {errno}", errno.name()));
    }
}

/// Reports a completion with an error. Flushed requests follow another error.
pub(crate) fn completed(completion: &Completion) {
    if matches!(completion.status, WcStatus::Success | WcStatus::WrFlushErr) {
        return;
    }
    let (status, qpn) = (completion.status, completion.qpn);
    log(LogLevel::Info, &format_args!("a request of queue pair {qpn} completed with {status}"));
    report_first(&COMPLETION, format_args!("completed {status} queue pair {qpn}"));
}

/// Reports that the device is open.
pub(crate) fn opened(ip: IpAddr) {
    report_first(&OPENED, format_args!("opened {ip}"));
}

/// Whether the process has printed its hint.
static HINT: AtomicBool = AtomicBool::new(false);
/// Whether the process has reported that the device is open.
static OPENED: AtomicBool = AtomicBool::new(false);
/// Whether the process has reported a refused call.
static REFUSAL: AtomicBool = AtomicBool::new(false);
/// Whether the process has reported a completion with an error.
static COMPLETION: AtomicBool = AtomicBool::new(false);

/// Appends a line to the file that `roce run --explain` reads, the first time in this process.
fn report_first(is_reported: &AtomicBool, line: Arguments<'_>) {
    if is_reported.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(file) = Environment::read().ok().and_then(|environment| environment.explain) else {
        return;
    };
    let line = line.to_string().replace(char::is_control, " ");
    // One write, because other processes append too. The command may have ended, and its file is gone then.
    if let Ok(mut file) = OpenOptions::new().append(true).open(file) {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
