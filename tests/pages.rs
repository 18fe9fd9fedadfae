//! Links of the project's pages resolve, including anchors, and files, modules and items named on the internal pages
//! exist.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

#[path = "support/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use sources::{markdown, read, root, sources};

/// Folders with Rust sources that pages name.
const SOURCES: [&str; 8] = ["src", "capi", "pcap", "tools", "tests", "benches", "examples", "fuzz"];

/// Pages with code spans that refer to source code.
const INTERNALS: [&str; 2] = ["ARCHITECTURE.md", "docs/design/"];

/// Largest size of a page in bytes.
const LIMITS: [(&str, u64); 2] = [("README.md", 6 << 10), ("ARCHITECTURE.md", 10 << 10)];

#[test]
fn links_of_pages_resolve() {
    let wrong: Vec<_> = markdown()
        .iter()
        .flat_map(|page| {
            links(&read(page))
                .into_iter()
                .filter(|target| !target.contains("://") && !resolves(page, target))
                .map(move |target| format!("{page}: {target}"))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "links to files or headings that do not exist:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let contents: BTreeSet<_> = links(&read("docs/SUMMARY.md"))
        .iter()
        .map(|target| normal(&root().join("docs").join(target)))
        .collect();
    let missing: Vec<_> = markdown()
        .into_iter()
        .filter(|page| page.starts_with("docs/") && page != "docs/SUMMARY.md")
        .filter(|page| !contents.contains(&root().join(page)))
        .collect();
    assert!(missing.is_empty(), "pages that docs/SUMMARY.md does not list: {missing:?}");
}

#[test]
fn internal_pages_name_code_that_exists() {
    let code = Code::read();
    let wrong: Vec<_> = markdown()
        .iter()
        .filter(|page| INTERNALS.iter().any(|start| page.starts_with(start)))
        .flat_map(|page| {
            code_spans(&read(page))
                .into_iter()
                .filter(|span| !code.has(span))
                .map(move |span| format!("{page}: {span}"))
        })
        .collect();
    assert!(wrong.is_empty(), "paths that do not exist:\n{}", wrong.join("\n"));
}

#[test]
fn figures_of_pages_are_those_of_the_benchmarks() {
    let results: BTreeMap<String, Figures> =
        serde_json::from_str(&read("docs/results.json")).unwrap();
    let (mut wrong, mut shown) = (Vec::new(), BTreeSet::new());
    for page in markdown() {
        let text = read(&page);
        let rendered = with_figures(&text, &results, &mut shown);
        if std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
            fs::write(root().join(&page), rendered).unwrap();
        } else if rendered != text {
            wrong.push(page);
        }
    }
    assert!(
        wrong.is_empty(),
        "figures differ from docs/results.json (SNAPSHOTS=write writes them): {wrong:?}"
    );
    let unused: Vec<_> = results.keys().filter(|name| !shown.contains(*name)).collect();
    assert!(unused.is_empty(), "tables of docs/results.json that no page shows: {unused:?}");
}

#[test]
fn readme_and_architecture_are_short() {
    for (page, limit) in LIMITS {
        let size = fs::metadata(root().join(page)).unwrap().len();
        assert!(size <= limit, "{page} has {size} bytes; the limit is {limit}");
    }
}

/// A table of `docs/results.json`, as `publish` of `tools/benchmark.py` writes it.
#[derive(serde::Deserialize)]
struct Figures {
    command: String,
    date: String,
    rounds: usize,
    machine: String,
    kernel: String,
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(serde::Deserialize)]
struct Column {
    title: String,
    digits: usize,
}

#[derive(serde::Deserialize)]
struct Row {
    name: String,
    values: Vec<f64>,
}

impl Figures {
    fn render(&self) -> String {
        let titles: String =
            self.columns.iter().map(|column| format!(" {} |", column.title)).collect();
        let rule = "--:|".repeat(self.columns.len());
        let mut text = format!("| |{titles}\n|---|{rule}\n");
        for Row { name, values } in &self.rows {
            let cells: String = values
                .iter()
                .zip(&self.columns)
                .map(|(value, column)| format!(" {value:.*} |", column.digits))
                .collect();
            text += &format!("| {name} |{cells}\n");
        }
        let Self { command, date, rounds, machine, kernel, .. } = self;
        text + &format!("\n`{command}`: medians of {rounds} rounds, {date}, {machine}, {kernel}.\n")
    }
}

/// A page with the tables between its marks `<!-- figures NAME -->` and `<!-- end of figures -->` as they are measured.
fn with_figures(
    page: &str,
    results: &BTreeMap<String, Figures>,
    shown: &mut BTreeSet<String>,
) -> String {
    const BEGIN: &str = "<!-- figures ";
    const END: &str = "<!-- end of figures -->";
    let mut parts = page.split(BEGIN);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) =
            part.split_once(" -->\n").unwrap_or_else(|| panic!("a mark is not closed on its line"));
        let (_, rest) = rest.split_once(END).unwrap_or_else(|| panic!("{name} has no `{END}`"));
        let figures =
            results.get(name).unwrap_or_else(|| panic!("docs/results.json has no table {name}"));
        shown.insert(name.to_owned());
        text += &format!("{BEGIN}{name} -->\n{}{END}{rest}", figures.render());
    }
    text
}

/// The targets of all links and images of a page.
fn links(text: &str) -> Vec<String> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.into_string())
            }
            _ => None,
        })
        .collect()
}

/// The inline code of a page.
fn code_spans(text: &str) -> BTreeSet<String> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
        .filter_map(|event| match event {
            Event::Code(code) => Some(code.into_string()),
            _ => None,
        })
        .collect()
}

/// Whether a link of a page leads to a file, and to a heading of it if it names one.
fn resolves(page: &str, target: &str) -> bool {
    let (path, anchor) =
        target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let folder = root().join(page).parent().unwrap().to_owned();
    let file = if path.is_empty() { root().join(page) } else { normal(&folder.join(path)) };
    file.exists()
        && anchor.is_none_or(|anchor| anchors(&fs::read_to_string(file).unwrap()).contains(anchor))
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut normal, component| {
        if component == Component::ParentDir {
            normal.pop();
        } else {
            normal.push(component);
        }
        normal
    })
}

/// The anchors of the headings of a page, as repository browsers form them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut anchors, mut heading) = (BTreeSet::new(), None::<String>);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading {
                level: HeadingLevel::H1 | HeadingLevel::H2 | HeadingLevel::H3,
                ..
            }) => {
                heading = Some(String::new());
            }
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = heading.take().unwrap_or_default().to_lowercase().replace(' ', "-");
                anchors.insert(
                    anchor.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect(),
                );
            }
            _ => {}
        }
    }
    anchors
}

/// What the sources define.
struct Code {
    /// Paths of all Rust files without `.rs` and `/mod`, such as `src/transport/rc/recovery`.
    modules: Vec<String>,
    /// Every identifier that a source contains.
    words: BTreeSet<String>,
}

impl Code {
    fn read() -> Self {
        let (mut modules, mut words) = (Vec::new(), BTreeSet::new());
        for file in SOURCES.iter().flat_map(|folder| sources(folder)) {
            let text = read(&file);
            words.extend(text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
            let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
            modules.push(module.to_owned());
        }
        Self { modules, words }
    }

    /// Whether a code span that looks like a path names something that exists; all else is not looked at.
    fn has(&self, span: &str) -> bool {
        let is_path = |c: char| c.is_alphanumeric() || "_/.:*-".contains(c);
        if !span.chars().all(is_path) || span.starts_with(['-', '/', '.']) {
            true
        } else if SOURCES.iter().any(|folder| span.starts_with(&format!("{folder}/"))) {
            span.contains('*') || span.contains("NAME") || root().join(span).exists()
        } else if let Some((module, item)) = span.rsplit_once("::") {
            let folder = module.trim_start_matches("softroce_pcap::").replace("::", "/");
            let ends_with =
                |path: &String, end: &str| path == end || path.ends_with(&format!("/{end}"));
            let is_module = |path: &str| {
                self.modules
                    .iter()
                    .any(|module| ends_with(module, path) || module.contains(&format!("/{path}/")))
            };
            let owner = folder.rsplit('/').next().unwrap_or_default();
            let is_type = owner.starts_with(char::is_uppercase) && self.words.contains(owner);
            is_module(&format!("{folder}/{item}"))
                || self.words.contains(item) && (is_type || is_module(&folder))
        } else {
            true
        }
    }
}
