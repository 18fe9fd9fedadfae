//! Gives the library its name, and its symbols their versions.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

/// The versions of public symbols. A program that names one which is not here is not started, so
/// those that are to come are here too.
const PUBLIC: [&str; 17] = [
    "1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14",
    "1.15", "1.16", "1.17", "1.18", "1.19",
];

/// The functions of other drivers, and what stands for each: a line has a name, the function of ours,
/// and the private versions that have had it.
const PRIVATE: &str = include_str!("private.txt");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=private.txt");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut versions = BTreeSet::new();
    let mut exports = String::from("export! {\n");
    for line in PRIVATE.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(ours)) = (words.next(), words.next()) else { continue };
        for version in words {
            versions.insert(version);
            // Providers have registered under a name with the version in it.
            let name = name.replace('%', version);
            writeln!(exports, "\"{name}\" \"@\" \"IBVERBS_PRIVATE_{version}\" => {ours},")?;
        }
    }
    exports.push_str("}\n");
    fs::write(out.join("private.rs"), exports)?;

    // Nodes without names: the names say themselves which is theirs. With names in it, the linker
    // would take this for another opinion on what the compiler has said is to be exported.
    let public = PUBLIC.iter().map(|version| format!("IBVERBS_{version}"));
    let private = versions.iter().map(|version| format!("IBVERBS_PRIVATE_{version}"));
    let nodes = public.chain(private).chain(["SOFTROCE_PRIVATE".to_owned()]);
    let script: String = nodes.map(|node| format!("{node} {{ }};\n")).collect();
    let map = out.join("versions.map");
    fs::write(&map, script)?;
    let link = |argument: &str| println!("cargo:rustc-cdylib-link-arg={argument}");
    link(&format!("-Wl,--version-script={}", map.display()));
    link("-Wl,-soname,libibverbs.so.1");
    // Its threads would be left without code.
    link("-Wl,-z,nodelete");
    link("-Wl,-z,now");
    Ok(())
}
