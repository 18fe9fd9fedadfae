//! Consistency of `docs/COMPLIANCE.md` and the tests: every statement of the protocol has a test that names it in its
//! documentation, and a mutation that this test notices, or a reason for its absence; or rows of `docs/INTEROP.md`.
//! `tools/mutations.py` applies the mutations.
//!
//! With `SNAPSHOTS=write`, this test writes the last columns of the page.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

#[path = "support/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;
use sources::{read, root, sources};

const PAGE: &str = "docs/COMPLIANCE.md";

/// Pages with states and transitions, and the folders of the tests that they name.
const DESIGN: [(&str, &[&str]); 2] = [
    ("docs/design/core.md", &["tests/packets", "tests"]),
    ("docs/design/connection-manager.md", &["tests/cm"]),
];

/// Table of mutations.
const MUTATIONS: &str = "tests/mutations.toml";

/// Header of the tables with a column for mutations.
const MUTATIONS_HEADER: &str = "| | | shown by | mutations |";

/// Number of statements in each section of the protocol.
const SECTIONS: [(&str, usize); 10] = [
    ("PKT", 24),
    ("CRC", 13),
    ("REQ", 43),
    ("RSP", 47),
    ("UC", 7),
    ("UD", 12),
    ("MR", 11),
    ("QPS", 16),
    ("CM", 19),
    ("CC", 10),
];

/// Prefix of the third column without a test.
const MISSING: &str = "not implemented: ";

/// Prefix of the third column of a statement that programs against kernel rxe show: `tools/ci.sh rxe` runs them. Names of
/// rows of [`INTEROP`] follow.
const RUN: &str = "against kernel rxe: ";

/// Page with a table of runs for each kernel, which has a column for each IP version.
const INTEROP: &str = "docs/INTEROP.md";

/// Maximum number of listed test names.
const NAMED: usize = 4;

#[test]
fn compliance_page_lists_a_test_or_a_reason_for_every_statement() {
    let page = read(PAGE);
    let shown = shown();
    let listed: Vec<_> = page.lines().filter_map(Row::parse).map(|row| row.id).collect();
    assert_eq!(listed, statements(), "the page lists each statement once, in order");
    let unknown: Vec<_> = shown.keys().filter(|id| !listed.contains(id)).collect();
    assert!(unknown.is_empty(), "tests name statements that there are not: {unknown:?}");

    let mut wrong = Vec::new();
    let (mutations, mut has_mutations) = (mutations(), false);
    let rewritten: Vec<_> = page
        .lines()
        .map(|line| {
            let Some(row) = Row::parse(line) else {
                has_mutations = line == MUTATIONS_HEADER || has_mutations && line.starts_with('|');
                return line.to_owned();
            };
            let tests = shown.get(&row.id);
            let row = row.with_tests(tests, &mut wrong);
            if has_mutations { row.with_mutations(&mutations, &mut wrong) } else { row }.line()
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let rewritten = rewritten.join("\n") + "\n";
    if std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
        fs::write(root().join(PAGE), &rewritten).unwrap();
    }
    let page = read(PAGE);
    let differs = page.lines().zip(rewritten.lines()).find(|(is, should)| is != should);
    assert_eq!(differs, None, "{PAGE} is old; write it with SNAPSHOTS=write");
    assert_eq!(page, rewritten);
}

/// Pages with state machines name a test for each transition.
#[test]
fn design_pages_name_existing_tests() {
    for (page, folders) in DESIGN {
        let text = read(page);
        let file_of = |name: &str| {
            let mut files = folders.iter().map(|folder| format!("{folder}/{name}.rs"));
            files.find(|file| root().join(file).exists())
        };
        let named = text.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::"));
        let named: Vec<_> = named.filter_map(|(file, name)| Some((file_of(file)?, name))).collect();
        assert!(named.len() > 20, "{page} names {} tests", named.len());
        let is_test = |(file, name): &&(String, &str)| {
            let source = read(file);
            let before = source.split_once(&format!("\nfn {name}(")).map(|(before, _)| before);
            before.is_some_and(|before| before.ends_with("#[test]"))
        };
        let unknown: Vec<_> = named.iter().filter(|test| !is_test(test)).collect();
        assert!(unknown.is_empty(), "{page} names tests that do not exist: {unknown:?}");
    }
}

/// Each mutation replaces a text that there is, and a test of its statements or of a transition notices it.
#[test]
fn mutations_name_existing_texts_and_tests() {
    let (shown, design) = (shown(), DESIGN.map(|(page, _)| read(page)).concat());
    let mut wrong = Vec::new();
    for Mutation { statements, file, old, new, test } in mutations().mutation {
        let whole = old.replace(['«', '»'], "");
        let (found, marks) = (read(&file).matches(&whole).count(), old.matches(['«', '»']).count());
        if found != 1 || !matches!(marks, 0 | 2) || old == new {
            wrong.push(format!("{file} has this text {found} times, expected 1:\n{whole}"));
        }
        let names_it = |id: &String| shown.get(id).is_some_and(|tests| tests.contains(&test));
        // The pages name tests without the program they are in.
        let in_program = test.split_once("::").map_or("", |(_, name)| name);
        let is_transition = statements.is_empty() && design.contains(&format!("`{in_program}`"));
        if !is_transition && (statements.is_empty() || !statements.iter().all(names_it)) {
            wrong.push(format!("{test} does not show {statements:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn parser_finds_documentation_of_tests_only() {
    let source = "
        /// PKT-01, REQ-02: as it should be.
        #[test]
        fn first() {}

        /// RSP-03
        fn helper() {}

        /// UC-04 and
        /// UD-05
        #[should_panic]
        #[test]
        fn second(argument: u8) {}

        // CRC-06
        #[test]
        fn third() {}
    ";
    let found: Vec<_> = tests_of(source);
    let expected = [("first", vec!["PKT-01", "REQ-02"]), ("second", vec!["UC-04", "UD-05"])];
    assert_eq!(found, expected.map(|(name, ids)| (name.to_owned(), own(&ids))));
}

/// The table of mutations; its first lines document the fields.
#[derive(Deserialize)]
struct Mutations {
    /// Reasons for which a statement has none.
    without: BTreeMap<String, String>,
    mutation: Vec<Mutation>,
}

#[derive(Deserialize)]
struct Mutation {
    statements: Vec<String>,
    file: String,
    old: String,
    new: String,
    test: String,
}

fn mutations() -> Mutations {
    toml::from_str(&read(MUTATIONS)).unwrap()
}

/// A row of a table: `| PKT-01 | statement | tests |`, and the number of mutations in most tables.
struct Row {
    id: String,
    statement: String,
    shown_by: String,
    mutations: Option<String>,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let (id, statement, shown_by) = match *cells.as_slice() {
            [id, statement] => (id, statement, "-"),
            [id, statement, shown_by] | [id, statement, shown_by, _] => (id, statement, shown_by),
            _ => return None,
        };
        (identifiers(id) == [id]).then(|| Self {
            id: id.to_owned(),
            statement: statement.to_owned(),
            shown_by: shown_by.to_owned(),
            mutations: None,
        })
    }

    fn line(&self) -> String {
        let Self { id, statement, shown_by, mutations } = self;
        let last =
            mutations.as_ref().map(|mutations| format!(" {mutations} |")).unwrap_or_default();
        format!("| {id} | {statement} | {shown_by} |{last}")
    }

    /// Returns the row with its mutations, or the reason for which there are none.
    fn with_mutations(self, mutations: &Mutations, wrong: &mut Vec<String>) -> Self {
        let id = &self.id;
        let count = mutations.mutation.iter().filter(|mutation| mutation.statements.contains(id));
        let text = match (count.count(), mutations.without.get(id)) {
            (0, Some(reason)) => format!("none: {reason}"),
            (0, None) if self.shown_by.starts_with(MISSING) => "–".to_owned(),
            (count @ 1.., None) => count.to_string(),
            (count, reason) => {
                wrong.push(format!("{id} has {count} mutations, and this reason: {reason:?}"));
                String::new()
            }
        };
        Self { mutations: Some(text), ..self }
    }

    /// Returns the row with its tests.
    fn with_tests(self, tests: Option<&Vec<String>>, wrong: &mut Vec<String>) -> Self {
        let Self { id, statement, shown_by, .. } = &self;
        if let Some(rows) = shown_by.strip_prefix(RUN) {
            let without = rows.split('`').skip(1).step_by(2).find(|row| !has_run(row));
            if tests.is_some() || !rows.contains('`') || without.is_some() {
                wrong.push(format!("{id} has tests {tests:?}, or no good run of {without:?}"));
            }
            return self;
        }
        let shown_by = match (tests, shown_by.strip_prefix(MISSING)) {
            (Some(tests), None) => names(tests),
            (None, Some(reason)) if !reason.is_empty() => shown_by.clone(),
            (None, _) => {
                wrong.push(format!("{id} is shown by no test: {statement}"));
                String::new()
            }
            (Some(tests), Some(_)) => {
                wrong.push(format!("{id} is said not to be implemented, and shown by {tests:?}"));
                String::new()
            }
        };
        Self { shown_by, ..self }
    }
}

/// Returns whether a row is in the table of each kernel, and its programs have succeeded over both IP versions.
fn has_run(row: &str) -> bool {
    let page = read(INTEROP);
    let kernels = page.lines().filter(|line| line.starts_with("## Linux ")).count();
    let good = format!("| {row} | ok | ok |");
    kernels > 0 && page.lines().filter(|line| *line == good).count() == kernels
}

/// Returns the first tests by name, and the number of the others.
fn names(tests: &[String]) -> String {
    let (named, rest) = tests.split_at(tests.len().min(NAMED));
    let mut text = named.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if !rest.is_empty() {
        text += &format!(" and {} more", rest.len());
    }
    text
}

/// Returns every statement's identifier, in the order of the page.
fn statements() -> Vec<String> {
    let of = |(section, count): (&str, usize)| {
        (1..=count).map(move |number| format!("{section}-{number:02}")).collect::<Vec<_>>()
    };
    SECTIONS.into_iter().flat_map(of).collect()
}

/// Returns the tests of each statement.
fn shown() -> BTreeMap<String, Vec<String>> {
    let mut shown: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let files = ["src", "tests", "tools/tests"].into_iter().flat_map(sources);
    // Excludes the examples below.
    for file in files.filter(|file| file != "tests/compliance.rs") {
        for (test, ids) in tests_of(&read(&file)) {
            for id in ids.into_iter().collect::<BTreeSet<_>>() {
                shown.entry(id).or_default().push(format!("{}::{test}", module(&file)));
            }
        }
    }
    shown
}

/// Returns the module of a file: `tests/packets/rc_reads.rs` is `packets::rc_reads`, `src/wire/bth.rs` is `wire::bth`.
fn module(file: &str) -> String {
    let path = file.strip_suffix(".rs").unwrap();
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let inside = ["src/", "tests/", "tools/tests/"].iter().find_map(|top| path.strip_prefix(top));
    inside.unwrap().replace('/', "::")
}

/// Returns the tests of a file with statements in their documentation.
fn tests_of(source: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let (mut ids, mut is_test) = (Vec::new(), false);
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            ids.extend(identifiers(text));
        } else if line == "#[test]" {
            is_test = true;
        } else if !line.starts_with("#[") {
            let name = line.strip_prefix("fn ").and_then(|rest| rest.split('(').next());
            if let Some(name) = name.filter(|_| is_test && !ids.is_empty()) {
                found.push((name.to_owned(), ids.clone()));
            }
            (ids, is_test) = (Vec::new(), false);
        }
    }
    found
}

/// Returns all identifiers in `text`, such as `RSP-02`.
fn identifiers(text: &str) -> Vec<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let known = |word: &&str| {
        word.split_once('-').is_some_and(|(section, number)| {
            SECTIONS.iter().any(|(name, _)| *name == section)
                && number.len() == 2
                && number.bytes().all(|digit| digit.is_ascii_digit())
        })
    };
    text.split(word).filter(known).map(str::to_owned).collect()
}

fn own(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
