//! Sets the name of the library, and declares the versions of its symbols to the linker.
//!
//! `src/exports.rs` gives each symbol its version (`.symver`); a version script must declare the versions.
//! rustc passes a script of its own to the linker, with one node that has no name, and no stable option
//! turns that off. lld and gold combine it with the script that is written here. GNU ld (bfd) refuses any
//! other script or `VERSION` command beside a node without a name. So a shell script runs in place of
//! `ld` and `ld.bfd` (the option `-B` of the compiler), gives that node a name, and runs the linker.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

/// The versions of public symbols. A program that needs a version which is not declared does not start, so
/// versions of later releases are here too.
const PUBLIC: [&str; 17] = [
    "1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14",
    "1.15", "1.16", "1.17", "1.18", "1.19",
];

/// Functions for programs: each line has a name, the Rust function, and the version.
const FUNCTIONS: &str = include_str!("public.txt");

/// Functions for drivers: each line has a name, the Rust function, and the private versions that have the
/// name.
const PRIVATE: &str = include_str!("private.txt");

/// The names under which compilers run GNU ld.
const GNU_LD: [&str; 2] = ["ld", "ld.bfd"];

/// Environment variable with the linker to use instead of rustc's, as in `-fuse-ld`.
const LINKER: &str = "SOFTROCE_LINKER";

/// Replaces the script of rustc for GNU ld: symbols without a version are not exported.
const UNVERSIONED: &str = "SOFTROCE_NONE { local: *; };\n";

/// The exports of the library.
#[derive(Default)]
struct Exports {
    /// Lines for the macro of `src/exports.rs`.
    lines: String,
    versions: BTreeSet<String>,
}

impl Exports {
    fn read() -> Result<Self, std::fmt::Error> {
        let mut exports = Self::default();
        for version in PUBLIC {
            exports.versions.insert(format!("IBVERBS_{version}"));
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
                // The function by which providers register has the version in its name.
                let name = name.replace('%', version);
                exports.add(&name, "@", &format!("IBVERBS_PRIVATE_{version}"), ours)?;
            }
        }
        Ok(exports)
    }

    fn add(&mut self, name: &str, at: &str, version: &str, ours: &str) -> std::fmt::Result {
        self.versions.insert(version.to_owned());
        writeln!(self.lines, "    \"{name}\" \"{at}\" \"{version}\" => {ours},")
    }

    /// Returns a version script that declares the versions.
    fn version_script(&self) -> String {
        self.versions.iter().map(|version| format!("{version} {{ }};\n")).collect()
    }
}

/// Returns the lines of a table: a name, the Rust function, and the other words.
fn rows(table: &str) -> impl Iterator<Item = (&str, &str, std::str::SplitWhitespace<'_>)> {
    table.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?, words))
    })
}

/// Returns the path of a linker, as the compiler that links finds it.
fn linker(name: &str) -> io::Result<String> {
    let compiler = env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let found = Command::new(compiler).arg(format!("-print-prog-name={name}")).output()?;
    let path = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    Ok(if path.is_empty() { name.to_owned() } else { path })
}

/// Writes a shell script for each name of GNU ld. It runs the linker with `unversioned` in place of
/// each version script that is not `versions`.
fn wrap_gnu_ld(directory: &Path, versions: &Path, unversioned: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for name in GNU_LD {
        let script = format!(
            "#!/bin/sh\n\
             for argument do\n\
             \x20   shift\n\
             \x20   case $argument in\n\
             \x20   '--version-script={}') ;;\n\
             \x20   --version-script=*) argument='--version-script={}' ;;\n\
             \x20   esac\n\
             \x20   set -- \"$@\" \"$argument\"\n\
             done\n\
             exec '{}' \"$@\"\n",
            versions.display(),
            unversioned.display(),
            linker(name)?,
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
    println!("cargo:rerun-if-env-changed={LINKER}");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let exports = Exports::read()?;
    fs::write(out.join("exports.rs"), format!("export! {{\n{}}}\n", exports.lines))?;
    let (versions, unversioned) = (out.join("versions.map"), out.join("unversioned.map"));
    fs::write(&versions, exports.version_script())?;
    fs::write(&unversioned, UNVERSIONED)?;
    let gnu = out.join("gnu");
    wrap_gnu_ld(&gnu, &versions, &unversioned)?;

    let link = |argument: &str| println!("cargo:rustc-cdylib-link-arg={argument}");
    link(&format!("-B{}", gnu.display()));
    link(&format!("-Wl,--version-script={}", versions.display()));
    link("-Wl,-soname,libibverbs.so.1");
    // The library stays loaded while its threads run.
    link("-Wl,-z,nodelete");
    link("-Wl,-z,now");
    if let Ok(linker) = env::var(LINKER) {
        link(&format!("-fuse-ld={linker}"));
    }
    Ok(())
}
