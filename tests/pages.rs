//! Links of the project's pages resolve, including anchors, files, modules and items named on the internal pages
//! exist, and tables and plots are those of `docs/results.json`.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

#[path = "support/figures.rs"]
mod figures;
#[path = "support/plot.rs"]
mod plot;
#[path = "support/sources.rs"]
mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use figures::{Shown, with_figures};
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
    let results = figures::results();
    let (mut wrong, mut shown) = (Vec::new(), Shown::default());
    for page in markdown() {
        let text = read(&page);
        let rendered = with_figures(&text, &results, &mut shown);
        if !matches_or_is_written(&page, &text, &rendered) {
            wrong.push(page);
        }
    }
    assert!(
        wrong.is_empty(),
        "figures differ from docs/results.json (SNAPSHOTS=write writes them): {wrong:?}"
    );
    let unused: Vec<_> = results
        .iter()
        .filter(|(name, figures)| match figures.title() {
            Some(_) => !shown.pictures.contains(*name),
            None => !shown.tables.contains(*name),
        })
        .map(|(name, _)| name)
        .collect();
    assert!(unused.is_empty(), "figures of docs/results.json that no page shows: {unused:?}");
}

#[test]
fn pictures_are_those_of_the_benchmarks() {
    let (mut wrong, mut names) = (Vec::new(), BTreeSet::new());
    for (name, figures) in figures::results() {
        let file = format!("docs/{name}.svg");
        if let Some(drawn) = figures.draw() {
            let old = fs::read_to_string(root().join(&file)).unwrap_or_default();
            if !matches_or_is_written(&file, &old, &drawn) {
                wrong.push(file);
            }
        } else if let Some(crc32) = figures.recorded() {
            if crc32fast::hash(read(&file).as_bytes()) != crc32 {
                wrong.push(file);
            }
        } else {
            continue;
        }
        names.insert(name);
    }
    assert!(
        wrong.is_empty(),
        "pictures differ from docs/results.json (SNAPSHOTS=write draws plots): {wrong:?}"
    );
    let files: BTreeSet<_> = fs::read_dir(root().join("docs"))
        .unwrap()
        .filter_map(|file| {
            let name = file.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".svg").map(str::to_owned)
        })
        .collect();
    assert_eq!(files, names, "docs/*.svg, and the pictures of docs/results.json");
}

/// Compares a file with its text as it is made from the sources, or writes that.
fn matches_or_is_written(file: &str, text: &str, made: &str) -> bool {
    if text != made && std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
        fs::write(root().join(file), made).unwrap();
        return true;
    }
    text == made
}

#[test]
fn readme_and_architecture_are_short() {
    for (page, limit) in LIMITS {
        let size = fs::metadata(root().join(page)).unwrap().len();
        assert!(size <= limit, "{page} has {size} bytes; the limit is {limit}");
    }
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
