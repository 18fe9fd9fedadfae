//! What strace prints: which system calls a program makes, and which of them were made to fail.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use super::errors::ERRORS;

/// A place in the life of a program at which a system call is made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Site {
    /// The name of the call, and the arguments that tell it from other calls of that name.
    pub(crate) name: String,
    pub(crate) call: &'static str,
    /// The how-manieth call of that name it is, in its thread.
    pub(crate) nth: usize,
}

/// The sites in the traces of a program's threads, `PREFIX.TID` for each: the first call and the last of each name.
/// The traces are removed.
pub(crate) fn sites(prefix: &Path) -> Vec<Site> {
    let mut found: BTreeMap<(String, &str), (usize, usize)> = BTreeMap::new();
    let name = prefix.file_name().unwrap().to_str().unwrap();
    let mut threads: Vec<_> = fs::read_dir(prefix.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_stem().unwrap() == name && path.extension().is_some())
        .collect();
    // The first thread has the lowest number, unless the numbers have begun anew meanwhile.
    let tid = |path: &PathBuf| path.extension().unwrap().to_str().unwrap().parse::<u32>().unwrap();
    threads.sort_by_key(tid);
    // Calls are counted for each thread: of those that the first thread makes before the program begins, the
    // others' are not made to fail.
    let mut before = HashMap::new();
    for (at, thread) in threads.into_iter().enumerate() {
        let (calls, foreign) = of_thread(&fs::read_to_string(&thread).unwrap());
        if at == 0 {
            before = foreign;
        }
        for (name, call, nth) in calls {
            if nth <= before.get(call).copied().unwrap_or_default() || is_of_example(&name) {
                continue;
            }
            let (first, last) = found.entry((name, call)).or_insert((nth, nth));
            *first = nth.min(*first);
            *last = nth.max(*last);
        }
        fs::remove_file(thread).unwrap();
    }
    let site = |((name, call), (first, last)): ((String, &'static str), (usize, usize))| {
        let first = Site { name: name.clone(), call, nth: first };
        let last = (last != first.nth).then_some(Site { name, call, nth: last });
        [Some(first), last].into_iter().flatten()
    };
    found.into_iter().flat_map(site).collect()
}

/// A call with its arguments, its name, and the how-manieth of that name it is.
type Call = (String, &'static str, usize);

/// The calls in the trace of one thread, without those of the dynamic loader and those of Rust before `main`.
fn of_thread(trace: &str) -> (Vec<Call>, HashMap<&'static str, usize>) {
    let mut counts: HashMap<&'static str, usize> = HashMap::new();
    let mut foreign = HashMap::new();
    // The last call before the program's own.
    let mut last_foreign = None;
    let mut found = Vec::new();
    for line in trace.lines() {
        let Some((call, arguments)) = line.split_once('(') else { continue };
        if call == "execve" {
            let is_rust = ["/roce\"", "/life\""].iter().any(|name| arguments.contains(name));
            last_foreign = Some(if is_rust { "rt_sigaction(SIGBUS, {" } else { "munmap(" });
        }
        if let Some((call, _)) = ERRORS.iter().find(|(name, _)| *name == call) {
            let count = counts.entry(call).or_default();
            *count += 1;
            if last_foreign.is_none() {
                found.push((named(call, arguments), *call, *count));
            }
        }
        if last_foreign.is_some_and(|last| line.starts_with(last)) {
            last_foreign = None;
            foreign = counts.clone();
        }
    }
    (found, foreign)
}

/// Whether the example makes the call to look for leaks.
fn is_of_example(name: &str) -> bool {
    let paths = ["/proc/N/fd", "/proc/N/task", "/proc/self/fd", "/proc/self/task"];
    paths.iter().any(|path| name.ends_with(path))
}

/// A call with the arguments that say what it is for, without numbers that differ from run to run.
fn named(call: &str, arguments: &str) -> String {
    let argument = |at: usize| {
        let text = arguments.split(", ").nth(at).unwrap_or_default();
        text.split([')', '=']).next().unwrap_or_default().trim().to_owned()
    };
    // In the table `|` separates columns.
    let of = |detail: String| format!("{call} {detail}").trim_end().replace('|', "+");
    match call {
        "socket" | "socketpair" => of([argument(0), argument(1), argument(2)].join(" ")),
        "setsockopt" | "getsockopt" => of(argument(2)),
        "ioctl" | "fcntl" => of(argument(1)),
        "madvise" => of(argument(2)),
        "mmap" => of([argument(2), argument(3)].join(" ")),
        "mprotect" => of(argument(2)),
        "openat" | "newfstatat" | "statx" if arguments.starts_with("AT_FDCWD") => {
            of(path(&argument(1)))
        }
        "mkdir" | "unlink" | "readlink" => of(path(&argument(0))),
        "prctl" | "rt_sigaction" => of(argument(0)),
        "clone" | "clone3" | "clock_gettime" | "brk" | "munmap" | "futex" => of(String::new()),
        "bind" | "connect" if arguments.contains("htons(4791)") => {
            of(descriptor(arguments) + " 4791")
        }
        _ => {
            let netlink = arguments.split_once("nlmsg_type=").map(|(_, message)| message);
            let message = netlink.and_then(|message| message.split([',', ' ']).next());
            of([&descriptor(arguments), message.unwrap_or_default()].join(" "))
        }
    }
}

/// Returns the kind of file of a call's first argument: `UDP` for `3<UDP:[…]>`.
fn descriptor(arguments: &str) -> String {
    let Some((number, rest)) = arguments.split_once('<') else { return String::new() };
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return String::new();
    }
    if number.parse::<u32>().is_ok_and(|number| number <= 2) {
        return ["stdin", "stdout", "stderr"][number.parse::<usize>().unwrap()].to_owned();
    }
    let kind = rest.split(['[', '>', '(']).next().unwrap_or_default().trim_end_matches(':');
    match rest {
        _ if rest.starts_with("anon_inode:[") => rest[12..].split(']').next().unwrap().to_owned(),
        _ => path(kind),
    }
}

/// A path, or a part of one, in which `N` stands for each number.
fn path(text: &str) -> String {
    let mut out = String::new();
    for character in text.trim_matches('"').chars() {
        match character {
            '0'..='9' if out.ends_with('N') => {}
            '0'..='9' => out.push('N'),
            other => out.push(other),
        }
    }
    out
}
