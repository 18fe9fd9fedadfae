//! Source files of the project, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the Rust files below a folder, with paths from the root, in order.
pub(crate) fn sources(folder: &str) -> Vec<String> {
    let mut folders = vec![PathBuf::from(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    assert!(!files.is_empty(), "no Rust files in {folder}");
    files.sort();
    files
}

/// Reads a file, with its path from the root.
pub(crate) fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// Returns the root of the project.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the Markdown pages, with paths from the root.
#[allow(dead_code, reason = "for tests of pages")]
pub(crate) fn markdown() -> Vec<String> {
    fn walk(folder: &Path, into: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                into.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut pages = Vec::new();
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            pages.push(name);
        }
    }
    for folder in ["docs", "tools/rxe-vm", "pcap/captures"] {
        walk(&root().join(folder), &mut pages);
    }
    pages.sort();
    pages
}
