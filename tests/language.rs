//! The language of comments and pages: plain sentences that start with their subject, in the terms of the field.
//! `docs/design/glossary.md` has the terms, CONTRIBUTING.md the rules.
//!
//! The test counts slips that a pattern finds. A few are correct English, so it limits their share.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

#[path = "support/sources.rs"]
mod sources;

use std::collections::BTreeMap;

use regex::Regex;
use sources::{markdown, read, sources};

/// Folders with Rust sources.
const SOURCES: [&str; 8] = ["src", "capi", "pcap", "tools", "tests", "benches", "examples", "fuzz"];

/// Largest number of slips in a thousand lines of prose, of everything.
const MAX_PER_THOUSAND: usize = 5;

/// The same of a folder. Small folders may have this many slips however few lines they have.
const MAX_PER_THOUSAND_OF_FOLDER: usize = 10;
const MAX_OF_SMALL_FOLDER: usize = 2;

/// A pattern, and what to write instead.
const PATTERNS: [(&str, &str); 6] = [
    (r"\b(he|him|his|himself|she|her)\b", "the name of the part instead of a person"),
    (
        r"\b(whoever|whomever|nobody|somebody|everybody|[Ww]ho|[Ww]hom|Nobody|Somebody|Whoever)\b",
        "the actor",
    ),
    (
        r"(?:^|[.:;] )(What|Where) [^.?:;]{3,60}? (is|are|was|were|has|goes|takes|comes|costs|waits|leaves)\b",
        "the noun first",
    ),
    (
        r"\b(leash\w*|talks?|strangers?|games?|manners|belongings|vigil|patience)\b",
        "the term of the field",
    ),
    (
        r"\b(held (against|to)|is the matter|(to|can) be had)\b",
        "checked against; the cause; available",
    ),
    (
        r"\b(sign of life|by turns|in turns|as ever|to and fro)\b",
        "progress; alternating; as usual; back and forth",
    ),
];

#[test]
fn prose_uses_plain_sentences_and_terms_of_the_field() {
    let patterns = PATTERNS.map(|(pattern, instead)| (Regex::new(pattern).unwrap(), instead));
    let mut folders = BTreeMap::<String, Share>::new();
    let mut all = Share::default();
    let files = SOURCES.iter().flat_map(|folder| sources(folder)).chain(markdown());
    // The patterns themselves.
    for file in files.filter(|file| file != "tests/language.rs") {
        for (number, line) in read(&file).lines().enumerate() {
            let Some(prose) = prose(&file, line) else { continue };
            let share = folders.entry(folder(&file)).or_default();
            share.lines += 1;
            all.lines += 1;
            for (pattern, instead) in &patterns {
                if pattern.is_match(prose) {
                    share.found.push(format!("{file}:{}: {prose} (write: {instead})", number + 1));
                    all.found.push(String::new());
                }
            }
        }
    }
    let wrong: Vec<_> = folders
        .iter()
        .filter(|(_, share)| share.found.len() > MAX_OF_SMALL_FOLDER)
        .filter(|(_, share)| share.found.len() * 1000 > share.lines * MAX_PER_THOUSAND_OF_FOLDER)
        .map(|(folder, share)| {
            format!(
                "{folder}: {} in {} lines\n  {}",
                share.found.len(),
                share.lines,
                share.found.join("\n  ")
            )
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "more than {MAX_PER_THOUSAND_OF_FOLDER} slips in a thousand lines:\n{}",
        wrong.join("\n")
    );
    let (found, lines) = (all.found.len(), all.lines);
    println!("{found} slips in {lines} lines of prose");
    assert!(lines > 10_000, "the prose of the project has {lines} lines");
    assert!(
        found * 1000 <= lines * MAX_PER_THOUSAND,
        "{found} slips in {lines} lines are more than {MAX_PER_THOUSAND} in a thousand"
    );
}

/// Lines of prose and the slips in them.
#[derive(Default)]
struct Share {
    lines: usize,
    found: Vec<String>,
}

/// The part of a line that people read as prose: a comment, or a line of a page outside its code blocks.
fn prose<'a>(file: &str, line: &'a str) -> Option<&'a str> {
    if file.ends_with(".md") {
        let is_code =
            line.starts_with("```") || line.starts_with("    ") || line.starts_with("|--");
        return (!is_code && !line.is_empty()).then_some(line);
    }
    let start =
        line.strip_prefix("//").or_else(|| line.split_once(" //").map(|(_, comment)| comment))?;
    let prose = start.trim_start_matches(['/', '!']).trim();
    (!prose.is_empty()).then_some(prose)
}

/// The first two folders of a path: what one maintainer looks after.
fn folder(file: &str) -> String {
    let mut parts: Vec<_> = file.split('/').collect();
    parts.pop();
    parts.truncate(2);
    if parts.is_empty() { "pages at the root".to_owned() } else { parts.join("/") }
}
