//! The console blocks of the pages do what they show. A block with the info string `console run` is run, in order with
//! the others of its page, and its output must be the page's, but for figures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

/// The pages with blocks to run, below the root of the project.
const PAGES: [&str; 6] = [
    "README.md",
    "docs/start/install.md",
    "docs/start/first-program.md",
    "docs/start/first-capture.md",
    "docs/guides/measure.md",
    "docs/reference/captures.md",
];

/// Units that may stand behind a figure in place of each other.
const UNITS: [&str; 13] =
    ["%", "s", "ms", "µs", "ns", "B", "KiB", "MiB", "GiB", "Mbit/s", "Gbit/s", "second", "seconds"];

/// The line that ends the output of a command; its exit status follows.
const END: &str = "==== end of the command:";

#[test]
#[ignore = "needs Debian's programs: tools/ci.sh pages"]
fn console_blocks_print_what_the_pages_show() {
    let mut wrong = Vec::new();
    for page in PAGES {
        let steps = steps(&fs::read_to_string(root().join(page)).unwrap());
        assert!(!steps.is_empty(), "{page}: no block has the info string `console run`");
        let mut shell = Shell::start(page);
        for step in steps {
            println!("{page}: {}", step.command);
            if let Err(difference) = shell.run(&step) {
                wrong.push(format!("{page}: $ {}\n{difference}", step.command));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn figures_and_units_may_differ_and_words_may_not() {
    let same = |shown: &str, printed: &str| {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        compare(&lines(shown), &lines(printed)).is_ok()
    };
    assert!(same(" 65536   11.2 ms  SEND psn=12", "65536 3 s  SEND psn=7"));
    assert!(same("a\n…\nz 1", "a\nb\nc\nz 2"));
    assert!(same("…\nz", "z") && same("a\n…", "a\nb"));
    assert!(!same("65536 SEND", "65536 WRITE"));
    assert!(!same("65536 SEND", "many SEND"));
    assert!(!same("a", "a\nb") && !same("a\nb", "a"));
}

/// A command of a page and the output that the page shows; empty if it shows none.
struct Step {
    command: String,
    output: Vec<String>,
}

/// The commands of the blocks that are run.
fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut is_run = false;
    for event in Parser::new_ext(page, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                is_run = &*info == "console run"
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)) => is_run = false,
            Event::Text(text) if is_run => {
                for line in text.lines() {
                    add_line(&mut steps, line);
                }
            }
            Event::End(_) => is_run = false,
            _ => {}
        }
    }
    steps
}

fn add_line(steps: &mut Vec<Step>, line: &str) {
    let Some(commands) = line.strip_prefix("$ ") else {
        let step: &mut Step = steps.last_mut().unwrap();
        return step.output.push(line.to_owned());
    };
    // A server and its client on one line: the client starts when the server listens.
    let mut rest = commands;
    while let Some((background, next)) = rest.split_once(" & ") {
        steps.push(Step { command: format!("{background} &"), output: Vec::new() });
        rest = next;
    }
    steps.push(Step { command: rest.to_owned(), output: Vec::new() });
}

/// A shell in a folder of its own, with the command on its path.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The standard error of the commands.
    errors: PathBuf,
}

impl Shell {
    fn start(page: &str) -> Self {
        let folder = roce::scratch(&format!("page-{}", page.replace('/', "-")));
        if folder.exists() {
            fs::remove_dir_all(&folder).unwrap();
        }
        fs::create_dir(&folder).unwrap();
        symlink(root().join("pcap"), folder.join("pcap")).unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_roce")).parent().unwrap().to_str().unwrap();
        // Debian's python3 has Debian's mpi4py.
        let path = format!("{programs}:/usr/bin:{}", std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        for variable in roce::VARIABLES_OF_THE_COMMAND {
            command.env_remove(variable.name);
        }
        // mpirun refuses to run as root without these.
        for variable in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(variable, "1");
        }
        command.current_dir(&folder).env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut shell = Self { child, input, output, errors: folder.join("errors") };
        let manifest = root().join("Cargo.toml");
        // The pages call cargo in the folder of the project.
        let cargo = format!(
            "cargo() {{ command cargo \"$1\" --manifest-path {} \"${{@:2}}\"; }}",
            manifest.display()
        );
        shell.send(&format!("exec 2> errors; set -o pipefail; {cargo}"));
        shell
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// Runs a command and compares its output. One that ends in `&` has to listen at a TCP port afterwards.
    fn run(&mut self, step: &Step) -> Result<(), String> {
        let before = listeners();
        // The commands come by the shell's input, which mpirun would read.
        self.send(&format!("{{ {}\n}} < /dev/null", step.command));
        self.send(&format!("echo \"{END} $?\""));
        let mut printed = Vec::new();
        let status = loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return Err("the shell has ended".to_owned());
            }
            match line.strip_prefix(END) {
                Some(status) => break status.trim().to_owned(),
                None => printed.push(line.trim_end().to_owned()),
            }
        };
        // `head` closes a pipe early; the status of a program that it ends so is 128 + SIGPIPE.
        if status != "0" && status != "141" {
            let errors = fs::read_to_string(&self.errors).unwrap();
            return Err(format!("exit status {status}\n{}\n{errors}", printed.join("\n")));
        }
        if step.command.ends_with('&') {
            return wait_for_listener(&before);
        }
        if step.output.is_empty() { Ok(()) } else { compare(&step.output, &printed) }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Ended already if a page ends with `exit`.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The local addresses of all TCP sockets that listen, as the kernel prints them.
fn listeners() -> BTreeSet<String> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap());
    let listening = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        (words.get(3) == Some(&"0A")).then(|| words[1].to_owned())
    };
    tables.iter().flat_map(|table| table.lines()).filter_map(listening).collect()
}

fn wait_for_listener(before: &BTreeSet<String>) -> Result<(), String> {
    let (start, limit) = (softroce::runtime::now(), Duration::from_secs(60));
    while listeners().is_subset(before) {
        if softroce::runtime::now() - start > limit {
            return Err(format!("no new TCP port listens after {limit:?}"));
        }
        thread::yield_now();
    }
    Ok(())
}

/// Compares printed lines with a page's, in which a line `…` stands for any lines.
fn compare(shown: &[String], printed: &[String]) -> Result<(), String> {
    let is_gap = |line: &String| line.trim() == "…";
    let mut at = 0;
    let mut gap = false;
    for line in shown {
        if is_gap(line) {
            gap = true;
            continue;
        }
        let found = printed[at..].iter().position(|printed| words(printed) == words(line));
        match found {
            Some(skipped) if gap || skipped == 0 => at += skipped + 1,
            _ => {
                return Err(format!(
                    "the page shows: {line}\nprinted:\n{}",
                    printed[at..].join("\n")
                ));
            }
        }
        gap = false;
    }
    if gap || at == printed.len() {
        Ok(())
    } else {
        Err(format!("lines that the page does not show:\n{}", printed[at..].join("\n")))
    }
}

/// The words of a line; figures and their units are all alike.
fn words(line: &str) -> Vec<&str> {
    let mut words: Vec<_> = line
        .split_whitespace()
        .map(|word| if word.contains(|c: char| c.is_ascii_digit()) { "#" } else { word })
        .collect();
    for at in 1..words.len() {
        let unit = words[at].trim_end_matches([',', ';', ')', ':']);
        if words[at - 1] == "#" && UNITS.contains(&unit) {
            words[at] = "unit";
        }
    }
    words
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
