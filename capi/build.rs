//! Gives the library its name, and its symbols their versions.
//!
//! rustc hands the linker a script of its own, without versions, that says what is exported. lld takes a second
//! with nodes that name nothing: the symbols say themselves which is theirs. GNU ld takes one script, and in it
//! each node has its names; so a script stands before it which leaves rustc's out. A compiler that links
//! with lld does not find that.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

/// The versions of public symbols. A program that names one which is not here is not started, so
/// those that are to come are here too.
const PUBLIC: [&str; 17] = [
    "1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14",
    "1.15", "1.16", "1.17", "1.18", "1.19",
];

/// The functions for programs: a line has a name, the function of ours, and its version.
const FUNCTIONS: &str = include_str!("public.txt");

/// The functions of other drivers, and what stands for each: a line has a name, the function of ours,
/// and the private versions that have had it.
const PRIVATE: &str = include_str!("private.txt");

/// How GNU's linkers are called.
const GNU: [&str; 3] = ["ld", "ld.bfd", "ld.gold"];

/// What the library exports: a line for the macro of `src/exports.rs`, and the names of each version.
#[derive(Default)]
struct Exports {
    lines: String,
    nodes: BTreeMap<String, Vec<String>>,
}

impl Exports {
    fn read() -> Result<Self, std::fmt::Error> {
        let mut exports = Self::default();
        for version in PUBLIC {
            exports.nodes.insert(format!("IBVERBS_{version}"), Vec::new());
        }
        for (name, ours, versions) in rows(FUNCTIONS) {
            for version in versions {
                match version.strip_suffix('-') {
                    Some(version) => exports.add(name, "@", version, ours)?,
                    None => exports.add(name, "@@", version, ours)?,
                }
            }
        }
        for (name, ours, versions) in rows(PRIVATE) {
            for version in versions {
                // Providers have registered under a name with the version in it.
                let name = name.replace('%', version);
                exports.add(&name, "@", &format!("IBVERBS_PRIVATE_{version}"), ours)?;
            }
        }
        Ok(exports)
    }

    fn add(&mut self, name: &str, at: &str, version: &str, ours: &str) -> std::fmt::Result {
        self.nodes.entry(version.to_owned()).or_default().push(name.to_owned());
        writeln!(self.lines, "    \"{name}\" \"{at}\" \"{version}\" => {ours},")
    }

    /// For lld.
    fn empty_nodes(&self) -> String {
        self.nodes.keys().map(|version| format!("{version} {{ }};\n")).collect()
    }

    /// For GNU ld. What has no version is nobody else's.
    fn full_nodes(&self) -> String {
        let node = |(version, names): (&String, &Vec<String>)| match &names[..] {
            [] => format!("{version} {{ }};\n"),
            names => format!("{version} {{ global: {}; }};\n", names.join("; ")),
        };
        self.nodes.iter().map(node).chain(["SOFTROCE_NONE { local: *; };\n".to_owned()]).collect()
    }
}

/// The lines of a table: a name, what stands for it, and the rest.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str, std::str::SplitWhitespace<'_>)> {
    table.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?, words))
    })
}

/// Where the compiler that links finds a linker.
fn linker(name: &str) -> io::Result<String> {
    let compiler = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let told = Command::new(compiler).arg(format!("-print-prog-name={name}")).output()?;
    let path = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    Ok(if path.is_empty() { name.to_owned() } else { path })
}

/// Puts scripts into a directory that stand before GNU's linkers, and hand them `full` for every other
/// script of versions.
fn stand_before(directory: &Path, full: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for name in GNU {
        let script = format!(
            "#!/bin/sh\n\
             for argument do\n\
             \x20   shift\n\
             \x20   case $argument in\n\
             \x20   --version-script=*) ;;\n\
             \x20   *) set -- \"$@\" \"$argument\" ;;\n\
             \x20   esac\n\
             done\n\
             exec '{}' '--version-script={}' \"$@\"\n",
            linker(name)?,
            full.display()
        );
        let path = directory.join(name);
        fs::write(&path, script)?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for input in ["build.rs", "public.txt", "private.txt"] {
        println!("cargo:rerun-if-changed={input}");
    }
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let exports = Exports::read()?;
    fs::write(out.join("exports.rs"), format!("export! {{\n{}}}\n", exports.lines))?;
    let (empty, full) = (out.join("versions.map"), out.join("names.map"));
    fs::write(&empty, exports.empty_nodes())?;
    fs::write(&full, exports.full_nodes())?;
    let gnu = out.join("gnu");
    stand_before(&gnu, &full)?;

    let link = |argument: &str| println!("cargo:rustc-cdylib-link-arg={argument}");
    link(&format!("-B{}", gnu.display()));
    link(&format!("-Wl,--version-script={}", empty.display()));
    link("-Wl,-soname,libibverbs.so.1");
    // Its threads would be left without code.
    link("-Wl,-z,nodelete");
    link("-Wl,-z,now");
    Ok(())
}
