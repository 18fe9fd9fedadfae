//! `roce man`, `roce completions`, `roce --help` and the page on the environment, as a user reads them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use roce::{error, lines, scratch};
use softroce::runtime::VARIABLES;

/// Returns the subcommands that `roce --help` lists.
fn subcommands() -> Vec<String> {
    let help = lines(&["--help"]);
    let from = help.iter().position(|line| line == "Commands:").unwrap();
    let listed = help[from + 1..].iter().take_while(|line| !line.is_empty());
    let name = |line: &String| line.split_whitespace().next().unwrap().to_owned();
    // Continuation lines are indented further.
    listed.filter(|line| !line.starts_with("    ")).map(name).collect()
}

/// Returns whether a tool of the system is installed.
fn have(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Runs a tool on a text; returns standard output and standard error.
fn pipe(tool: &mut Command, text: &str) -> (String, String) {
    let tool = tool.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tool.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer =
        std::thread::Builder::new().spawn(move || stdin.write_all(text.as_bytes())).unwrap();
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn pages_are_complete_and_without_warnings() {
    let dir = scratch("man");
    // An earlier run may have left it.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    assert!(lines(&["man", dir.to_str().unwrap()]).is_empty());
    let names = subcommands();
    assert!(names.iter().any(|name| name == "doctor"), "{names:?}");
    let main = fs::read_to_string(dir.join("roce.1")).unwrap();
    assert_eq!(main.lines().collect::<Vec<_>>(), lines(&["man"]));
    for name in names.iter().filter(|name| *name != "help") {
        assert!(main.contains(&format!("roce\\-{name}(1)")), "{name} is not in roce.1");
        let page = fs::read_to_string(dir.join(format!("roce-{name}.1"))).unwrap();
        assert!(page.contains(".SH ENVIRONMENT") && page.contains(".SH OPTIONS"), "{page}");
        if have("groff") {
            let (text, warnings) =
                pipe(Command::new("groff").args(["-Kutf8", "-man", "-Tutf8", "-ww"]), &page);
            assert!(text.contains(&name.to_uppercase()), "{text}");
            assert_eq!(warnings, "", "roce-{name}.1");
        }
    }
    let text = error(&["man", "/nowhere"]);
    assert!(text.starts_with("roce: /nowhere/roce.1: No such file"), "{text}");
}

#[test]
fn shells_take_the_completions() {
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = lines(&["completions", shell]).join("\n");
        for name in subcommands() {
            assert!(script.contains(&name), "{name} is missing for {shell}");
        }
        if have(shell) {
            let said = pipe(Command::new(shell).arg(check), &script);
            assert_eq!(said, (String::new(), String::new()), "{shell}");
        }
    }
}

#[test]
fn bash_completes_a_subcommand_and_its_options() {
    let mut script = lines(&["completions", "bash"]).join("\n");
    script.push_str(
        "\nCOMP_WORDS=(roce doc); COMP_CWORD=1; _roce roce doc roce; echo \"${COMPREPLY[@]}\"\n\
         COMP_WORDS=(roce doctor --li); COMP_CWORD=2; _roce roce --li doctor; echo \"${COMPREPLY[@]}\"\n",
    );
    if have("bash") {
        let (out, err) = pipe(&mut Command::new("bash"), &script);
        assert_eq!((out.as_str(), err.as_str()), ("doctor\n--listen\n", ""));
    }
}

#[test]
fn page_on_the_environment_has_every_variable() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/environment.md");
    let page = fs::read_to_string(page).unwrap();
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `SOFTROCE_")).collect();
    let expected: Vec<_> = VARIABLES
        .iter()
        .map(|variable| {
            format!("| `{}` | {} | {} |", variable.name, variable.value, variable.meaning)
        })
        .collect();
    assert_eq!(rows, expected);
}
