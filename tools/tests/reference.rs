//! The reference pages on commands and on rules are what `roce` prints. With `SNAPSHOTS=write`, these tests write them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use roce::lines;

/// Returns the subcommands that `roce --help` lists, but for `help` itself, each with the first line of its help.
fn subcommands() -> Vec<(String, String)> {
    let help = lines(&["--help"]);
    let from = help.iter().position(|line| line == "Commands:").unwrap();
    let listed = help[from + 1..].iter().take_while(|line| !line.is_empty());
    // Continuation lines are indented further.
    let names = listed.filter(|line| !line.starts_with("    ")).map(|line| line.split_whitespace());
    let names = names.map(|mut words| words.next().unwrap().to_owned());
    names
        .filter(|name| name != "help")
        .map(|name| {
            let summary = lines(&[&name, "-h"]).first().unwrap().clone();
            (name, summary)
        })
        .collect()
}

/// Compares a page below `docs/reference/` with its text, or writes it.
fn is_page(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(name);
    if std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
        return fs::write(path, text).unwrap();
    }
    let page = fs::read_to_string(&path).unwrap();
    let differs = page.lines().zip(text.lines()).find(|(page, text)| page != text);
    assert_eq!(differs, None, "docs/reference/{name} is old; write it with SNAPSHOTS=write");
    assert_eq!(
        page.len(),
        text.len(),
        "docs/reference/{name} is old; write it with SNAPSHOTS=write"
    );
}

#[test]
fn page_of_commands_has_the_help_of_each() {
    let commands = subcommands();
    let mut page = String::from(
        "# Commands\n\n\
         `roce COMMAND -h` prints the same on a terminal, and `--help` more. Packages have a manual page for each command. \
         [Environment](environment.md)\nlists the variables.\n\n\
         | command | purpose |\n|---|---|\n",
    );
    for (name, summary) in &commands {
        writeln!(page, "| [`roce {name}`](#roce-{name}) | {summary} |").unwrap();
    }
    for (name, _) in &commands {
        let help = lines(&[name, "-h"]).join("\n");
        write!(page, "\n## roce {name}\n\n```text\n{}\n```\n", help.trim_end()).unwrap();
    }
    is_page("commands.md", &page);
}

#[test]
fn page_of_rules_has_each_rule_with_its_clause_and_remedy() {
    let mut page = String::from(
        "# Rules of `roce check`\n\n\
         The name of a rule is what `roce check` prints; the identifier in parentheses is its statement in\n\
         [COMPLIANCE](../COMPLIANCE.md). `roce check --explain RULE` prints the same. [Reading captures](captures.md) shows\n\
         how to use the command.\n",
    );
    let all = lines(&["check", "--explain", "all"]);
    for rule in all.split(|line| line.is_empty()).filter(|rule| !rule.is_empty()) {
        let (name, id) = rule[0].split_once(' ').unwrap();
        let field = |label: &str| {
            let of_field = rule.iter().find_map(|line| line.trim_start().strip_prefix(label));
            of_field.unwrap_or_else(|| panic!("{name} has no line for {label}")).trim().to_owned()
        };
        write!(
            page,
            "\n## `{name}` {id}\n\n\
             - Rule: {}.\n- Clause: {}.\n- Typical cause: {}.\n- What to do: {}.\n",
            field("rule "),
            field("clause"),
            field("typical cause"),
            field("what to do"),
        )
        .unwrap();
    }
    is_page("checks.md", &page);
}
