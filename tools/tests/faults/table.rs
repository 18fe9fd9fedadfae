//! The page that says how programs end when a call fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::errors::Fault;
use super::program::{Outcome, Program};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/FAULTS.md");

const HEAD: &str = "| call | errors | once | from then on |\n|---|---|---|---|\n";

/// Calls that are made or not made, and more or less often, depending on the other threads.
const TIMED: &[&str] = &[
    "brk",
    "clock_gettime",
    "futex",
    "getsockopt SO_MEMINFO",
    "madvise",
    "mmap",
    "mprotect",
    "munmap",
    "poll",
    "ppoll",
    "read",
    "recv",
    "send",
    "write",
    "epoll_pwait",
    "getrandom",
    "close",
];

/// Outcomes, by call and error: of one fault, and of those that last. There are several where it depends on the other
/// threads.
type Rows = BTreeMap<(String, String), Ends>;

/// Outcomes of one fault, and of those that last.
type Ends = [BTreeSet<String>; 2];

/// The page.
pub(crate) struct Table {
    /// Before the first section with a table.
    intro: String,
    sections: Vec<(String, Rows)>,
    writes: bool,
}

impl Table {
    pub(crate) fn read() -> Self {
        let page = fs::read_to_string(PAGE).unwrap();
        let mut parts = page.split("\n## ");
        let intro = parts.next().unwrap().trim_end().to_owned();
        let section = |text: &str| {
            let (title, rows) = text.split_once("\n").unwrap();
            let rows = rows.split_once(HEAD).unwrap().1;
            (title.trim_matches('`').to_owned(), parse(rows))
        };
        let writes = std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write");
        Self { intro, sections: parts.map(section).collect(), writes }
    }

    /// Compares outcomes with the section of their program, and returns what differs; or adds them to it.
    pub(crate) fn compare(
        &mut self,
        program: &Program,
        outcomes: &[(Fault, Outcome)],
    ) -> Vec<String> {
        let found = rows(outcomes);
        let known = self.sections.iter_mut().find(|(title, _)| title == program.name);
        if self.writes {
            match known {
                Some((_, known)) => merge(known, found),
                None => self.sections.push((program.name.to_owned(), found)),
            }
            self.write();
            return Vec::new();
        }
        match known {
            Some((_, known)) => differences(program.name, known, &found),
            None => vec![format!("{PAGE} has no section {}", program.name)],
        }
    }

    fn write(&self) {
        let mut page = self.intro.clone();
        for (title, rows) in &self.sections {
            page += &format!("\n\n## {title}\n\n{HEAD}{}", text(rows));
            page.truncate(page.trim_end().len());
        }
        fs::write(PAGE, page + "\n").unwrap();
    }
}

/// The outcomes of faults, of the first and the last call of a name together.
fn rows(outcomes: &[(Fault, Outcome)]) -> Rows {
    let mut rows = Rows::new();
    for (fault, outcome) in outcomes {
        let text = match outcome {
            Outcome::Works => "works".to_owned(),
            Outcome::Says(said) => said_briefly(said, fault),
            // It is told otherwise.
            Outcome::Bad(_) | Outcome::NotReached => continue,
        };
        let key = (fault.site.name.clone(), fault.error.to_owned());
        rows.entry(key).or_default()[usize::from(fault.lasts)].insert(text);
    }
    rows
}

/// The first line of a message, without numbers that differ from run to run. `…` stands for the system's error.
fn said_briefly(said: &str, fault: &Fault) -> String {
    let line = said.lines().next().unwrap_or_default().replace(&fault.text(), "…");
    let mut parts = line.split("0x");
    let mut line = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        line.push('0');
        line += part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
    }
    let mut brief = String::new();
    for character in line.chars().take(160) {
        match character {
            '0'..='9' if brief.ends_with('N') => {}
            '0'..='9' => brief.push('N'),
            '|' => brief.push('/'),
            other => brief.push(other),
        }
    }
    match brief.is_empty() {
        true => "says so on standard output".to_owned(),
        false => format!("`{}`", brief.replace('`', "'")),
    }
}

/// Adds outcomes to those that are known. Calls that were not made this time stay.
fn merge(known: &mut Rows, found: Rows) {
    for (key, outcomes) in found {
        let row = known.entry(key).or_default();
        for (known, outcomes) in row.iter_mut().zip(outcomes) {
            known.extend(outcomes);
        }
    }
}

/// Outcomes that the table does not have for any row of the same system call, and calls of which nothing is made any
/// more. Which of a call's sites has a number depends on the addresses that other programs leave free.
fn differences(program: &str, known: &Rows, found: &Rows) -> Vec<String> {
    let name = |site: &str| site.split(' ').next().unwrap_or_default().to_owned();
    let mut outcomes: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
    for ((site, _), ends) in known {
        outcomes.entry(name(site)).or_default().extend(ends.iter().flatten());
    }
    let is_timed = |site: &str| TIMED.iter().any(|timed| site.starts_with(timed));
    let mut all = Vec::new();
    for ((site, error), ends) in found.iter().filter(|((site, _), _)| !is_timed(site)) {
        let known = outcomes.get(&name(site));
        let is_new =
            |text: &&String| *text != "works" && known.is_none_or(|known| !known.contains(text));
        let new: BTreeSet<_> = ends.iter().flatten().filter(is_new).collect();
        all.extend(new.iter().map(|text| format!("{program}: {site} {error}: {text} is new")));
    }
    let made: BTreeSet<_> = found.keys().map(|(site, _)| name(site)).collect();
    let gone = outcomes.keys().filter(|call| !made.contains(*call) && !is_timed(call));
    all.extend(gone.map(|call| format!("{program}: {call} is gone")));
    all
}

/// The rows of a table: errors that end alike are in one row.
fn text(rows: &Rows) -> String {
    let mut alike: Vec<(&str, Vec<&str>, &Ends)> = Vec::new();
    for ((call, error), outcomes) in rows {
        let same = alike.iter_mut().find(|(other, _, theirs)| other == call && *theirs == outcomes);
        match same {
            Some((_, errors, _)) => errors.push(error),
            None => alike.push((call, vec![error], outcomes)),
        }
    }
    let cell = |outcomes: &BTreeSet<String>| match outcomes.is_empty() {
        true => "–".to_owned(),
        false => outcomes.iter().map(String::as_str).collect::<Vec<_>>().join("; or "),
    };
    let row = |(call, errors, [once, lasting]): &(&str, Vec<&str>, &Ends)| {
        format!("| `{call}` | {} | {} | {} |\n", errors.join(", "), cell(once), cell(lasting))
    };
    alike.iter().map(row).collect()
}

fn parse(table: &str) -> Rows {
    let mut rows = Rows::new();
    let outcomes = |cell: &str| match cell {
        "–" => BTreeSet::new(),
        cell => cell.split("; or ").map(str::to_owned).collect(),
    };
    for row in table.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [call, errors, once, lasting] = cells[..] else { panic!("{row}") };
        for error in errors.split(", ") {
            let key = (call.trim_matches('`').to_owned(), error.to_owned());
            rows.insert(key, [outcomes(once), outcomes(lasting)]);
        }
    }
    rows
}
