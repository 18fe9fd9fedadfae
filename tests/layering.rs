//! Rules of the project's structure that the compiler does not check: which module uses which, circles
//! of files, where `unsafe` stands, which locks the library takes, and sizes of files, functions and
//! types.
//!
//! - **Layers.** A module of the library uses only modules below it, and so does one of `pcap`. The
//!   layers are read from the table in the documentation of `lib.rs`, so there is one table.
//! - **No circles.** No file imports an item of another that imports, itself or over more files, an item
//!   of the first; a `mod.rs` that re-exports items of its children imports none.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

#[path = "support/modules.rs"]
mod modules;
#[path = "support/rust.rs"]
mod rust;
#[path = "support/sizes.rs"]
mod sizes;
#[path = "support/sources.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};

use modules::{Crate, Import, Use};
use sizes::{Measured, Sizes};
use sources::{read, sources};

/// The crates, by the folders of their sources.
const CRATES: [&str; 7] = [
    "src",
    "pcap/src",
    "capi/src",
    "capi/paths/src",
    "tools/src",
    "tools/cli/src",
    "tools/perf/src",
];

/// The crates with a table of layers in `lib.rs`.
const LAYERED: [&str; 3] = ["src", "pcap/src", "capi/src"];

/// Uses within a layer: a wire format contains addresses of datagrams.
const ALSO_ALLOWED: [(&str, &str); 1] = [("wire", "net")];

/// Uses of a lower layer that are forbidden: the engine makes packets and does not carry them.
const FORBIDDEN: [(&str, &str); 1] = [("engine", "port")];

/// Files with `unsafe` blocks: in the library, and at the border to C.
const UNSAFE_FILES: [&str; 20] = [
    "src/mem/raw.rs",
    "src/sys/actions.rs",
    "src/sys/copies.rs",
    "src/sys/fault.rs",
    "src/sys/ffi.rs",
    "src/sys/fork.rs",
    "src/sys/hint.rs",
    "src/sys/memory.rs",
    "src/sys/messages.rs",
    "src/sys/own_descriptor.rs",
    "src/sys/probe.rs",
    "capi/paths/src/border.rs",
    "capi/paths/src/channel.rs",
    "capi/paths/src/next.rs",
    "capi/paths/src/signals.rs",
    "capi/src/border/exit.rs",
    "capi/src/border/handle.rs",
    "capi/src/border/plain.rs",
    "capi/src/border/pointer.rs",
    "capi/src/border/user.rs",
];

/// Structs past [`MAX_FIELDS`] that remain: file and name. The list only shrinks.
const WIDE_STRUCTS: &[(&str, &str)] = &[
    ("src/engine/attr.rs", "QpAttr"),
    ("src/engine/flat.rs", "FlatAttr"),
    ("src/verbs/info.rs", "DeviceInfo"),
    ("src/verbs/info.rs", "Limits"),
    ("capi/src/abi/attr.rs", "QpAttr"),
    ("capi/src/abi/info.rs", "DeviceAttr"),
    ("capi/src/abi/info.rs", "DeviceAttrEx"),
    ("capi/src/abi/info.rs", "PortAttr"),
    ("capi/src/abi/objects.rs", "VerbsContext"),
    ("capi/src/abi/objects.rs", "CqRead"),
    ("capi/src/abi/objects.rs", "QpWr"),
];

/// A longer file has a seam to be split at.
const MAX_FILE_LINES: usize = 900;

/// A longer function is several steps, which have names.
const MAX_FUNCTION_LINES: usize = 80;

/// A struct with more fields holds several things, which have names.
const MAX_FIELDS: usize = 15;

#[test]
fn modules_use_only_modules_below_them() {
    let mut wrong = Vec::new();
    for folder in LAYERED {
        let layers = layers(&read(&format!("{folder}/lib.rs")));
        let layered = read_crate(folder);
        for file in sources(folder) {
            let Some(user) = top_module(folder, &file) else { continue };
            for Use { line, path } in layered.uses(&file) {
                let Some(used) = path.first() else { continue }; // the root itself
                if let Err(reason) = judge(&layers, user, used) {
                    wrong.push(format!("{file}:{line}: {reason}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn files_import_each_other_in_no_circle() {
    let crates: Vec<_> = CRATES.into_iter().map(read_crate).collect();
    let circles: Vec<_> = crates.iter().flat_map(Crate::circles).collect();
    let imports: BTreeSet<_> = crates.iter().flat_map(Crate::imports).collect();
    let wrong: String = circles.iter().map(|circle| describe(circle, &imports)).collect();
    assert!(wrong.is_empty(), "circles of files:{wrong}");
}

#[test]
fn unsafe_occurs_only_in_listed_files() {
    let files = CRATES.into_iter().flat_map(sources);
    let elsewhere = files.filter(|file| !UNSAFE_FILES.contains(&file.as_str()));
    let wrong: Vec<_> = elsewhere
        .flat_map(|file| {
            let lines = unsafe_lines(&read(&file));
            lines.into_iter().map(move |line| format!("{file}:{line}: unsafe"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn library_uses_counted_locks_only() {
    let library = read_crate("src");
    let files = sources("src").into_iter();
    let others = files.filter(|file| file != "src/sync/lock.rs" && !file.ends_with("_of_tests.rs"));
    let wrong: Vec<_> = others
        .flat_map(|file| {
            let lines = lines_with_locks(&library, &file);
            lines.into_iter().map(move |line| format!("{file}:{line}: a lock not of crate::sync"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn files_stay_within_900_lines() {
    let wrong: Vec<_> = CRATES
        .into_iter()
        .flat_map(sources)
        .map(|file| (read(&file).lines().count(), file))
        .filter(|(lines, _)| *lines > MAX_FILE_LINES)
        .collect();
    assert!(wrong.is_empty(), "too long: {wrong:?}");
}

#[test]
fn functions_stay_within_80_lines() {
    check_sizes("lines", MAX_FUNCTION_LINES, &[], |sizes| sizes.functions);
}

#[test]
fn structs_stay_within_15_fields() {
    check_sizes("fields", MAX_FIELDS, WIDE_STRUCTS, |sizes| sizes.structs);
}

/// Compares functions or structs with a limit, and those past it with the exceptions from it.
fn check_sizes(
    unit: &str,
    limit: usize,
    exceptions: &[(&str, &str)],
    part: impl Fn(Sizes) -> Vec<Measured>,
) {
    let mut large = Vec::new();
    for file in CRATES.into_iter().flat_map(sources) {
        let past = part(Sizes::of(&file, &read(&file))).into_iter();
        let past = past.filter(|measured| measured.size > limit);
        large.extend(past.map(|measured| (file.clone(), measured)));
    }
    let is_excepted = |file: &str, name: &str| exceptions.contains(&(file, name));
    let wrong = large.iter().filter(|(file, large)| !is_excepted(file, &large.name));
    let wrong: String = wrong
        .map(|(file, Measured { name, size })| format!("\n{file}: {name} has {size} {unit}"))
        .collect();
    assert!(wrong.is_empty(), "more than {limit} {unit}:{wrong}");
    let is_large =
        |file: &str, name: &str| large.iter().any(|(at, of)| at == file && of.name == name);
    let idle: Vec<_> = exceptions.iter().filter(|(file, name)| !is_large(file, name)).collect();
    assert!(idle.is_empty(), "these keep to {limit} {unit} and need no exception: {idle:?}");
}

/// Reads a crate by the folder of its sources.
fn read_crate(folder: &str) -> Crate {
    let files = sources(folder).into_iter().map(|file| (file.clone(), read(&file)));
    Crate::read(folder, files)
}

/// The imports that tie a circle.
fn describe(circle: &[String], imports: &BTreeSet<Import>) -> String {
    let is_inside = |import: &&Import| circle.contains(&import.from) && circle.contains(&import.to);
    let ties = imports.iter().filter(is_inside);
    let ties = ties.map(|Import { from, to, item }| format!("\n  {from} imports {item} of {to}"));
    format!("\n{circle:?}{}", ties.collect::<String>())
}

/// Returns the top-level module to which a file belongs; `None` for the root.
fn top_module<'a>(folder: &str, file: &'a str) -> Option<&'a str> {
    let name = file.strip_prefix(folder)?.strip_prefix('/')?.split('/').next()?;
    Some(name.trim_end_matches(".rs")).filter(|name| *name != "lib")
}

/// Returns an error that says why `user` may not use `used`.
fn judge(layers: &BTreeMap<String, u8>, user: &str, used: &str) -> Result<(), String> {
    let layer = |module: &str| {
        layers.get(module).copied().ok_or(format!("`{module}` is in no layer of lib.rs"))
    };
    let (mine, its) = (layer(user)?, layer(used)?);
    let listed = |list: &[(&str, &str)]| list.contains(&(user, used));
    if user == used || listed(&ALSO_ALLOWED) || (its < mine && !listed(&FORBIDDEN)) {
        return Ok(());
    }
    Err(format!("`{user}` (layer {mine}) must not use `{used}` (layer {its})"))
}

/// The layer of each module, from lines of the form `//! | 1 | [`wire`], [`mem`] | purpose |`.
fn layers(lib: &str) -> BTreeMap<String, u8> {
    let mut layers = BTreeMap::new();
    for line in lib.lines().filter_map(|line| line.strip_prefix("//! |")) {
        let mut columns = line.split('|').map(str::trim);
        if let (Some(layer), Some(modules)) = (columns.next(), columns.next())
            && let Ok(layer) = layer.parse()
        {
            let names = modules.split('`').skip(1).step_by(2);
            layers.extend(names.map(|name| (name.to_owned(), layer)));
        }
    }
    layers
}

/// The lines with `unsafe`, except those of a `pub unsafe fn`.
fn unsafe_lines(source: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    collect_unsafe(source.parse().unwrap(), &mut lines);
    lines
}

fn collect_unsafe(tokens: TokenStream, lines: &mut Vec<usize>) {
    let tokens: Vec<_> = tokens.into_iter().collect();
    let is_word = |at: Option<usize>, word: &str| {
        let token = at.and_then(|at| tokens.get(at));
        matches!(token, Some(TokenTree::Ident(ident)) if ident == word)
    };
    for (at, token) in tokens.iter().enumerate() {
        let declares = is_word(at.checked_sub(1), "pub") && is_word(Some(at + 1), "fn");
        match token {
            TokenTree::Group(group) => collect_unsafe(group.stream(), lines),
            _ if is_word(Some(at), "unsafe") && !declares => lines.push(token.span().start().line),
            _ => {}
        }
    }
}

/// The lines that name a lock of the standard library.
fn lines_with_locks(library: &Crate, file: &str) -> Vec<usize> {
    let is_lock = |path: &[String]| {
        let path: Vec<_> = path.iter().map(String::as_str).take(3).collect();
        matches!(*path, ["std", "sync", "Mutex" | "RwLock"])
    };
    let locks = library.foreign(file).into_iter().filter(|found| is_lock(&found.path));
    locks.map(|found| found.line).collect::<BTreeSet<_>>().into_iter().collect()
}

mod the_checker {
    use super::*;

    /// A crate in `src` of these files.
    fn of(files: &[(&str, &str)]) -> Crate {
        let files = files.iter().map(|(file, source)| ((*file).to_owned(), (*source).to_owned()));
        Crate::read("src", files)
    }

    /// The top-level modules that a file names, in order of lines.
    fn modules_in(file: &str, source: &str) -> Vec<String> {
        let mut uses = of(&[(file, source)]).uses(file);
        uses.sort_by_key(|found| found.line);
        uses.into_iter().filter_map(|found| found.path.into_iter().next()).collect()
    }

    #[test]
    fn checker_reads_the_layers_of_the_crate() {
        let layers = layers(&read("src/lib.rs"));
        let modules: Vec<_> = layers.keys().map(String::as_str).collect();
        let all =
            "cm counter engine ids mem net port psn runtime sync sys time transport verbs wire";
        assert_eq!(modules, all.split(' ').collect::<Vec<_>>());
        assert_eq!((layers["time"], layers["verbs"]), (0, 6));
    }

    #[test]
    fn checker_allows_lower_layers_and_listed_uses() {
        let layers = layers(&read("src/lib.rs"));
        for (user, used, allowed) in [
            ("transport", "wire", true),
            ("verbs", "ids", true),
            ("runtime", "port", true),
            ("runtime", "engine", true),
            ("mem", "mem", true),
            ("wire", "net", true),
            ("net", "wire", false),
            ("wire", "mem", false),
            ("port", "transport", false),
            ("engine", "port", false),
            ("port", "engine", false),
            ("runtime", "cm", true),
            ("engine", "cm", false),
            ("psn", "verbs", false),
            ("mem", "elsewhere", false),
        ] {
            assert_eq!(judge(&layers, user, used).is_ok(), allowed, "{user} uses {used}");
        }
        assert_eq!(
            judge(&layers, "port", "engine").unwrap_err(),
            "`port` (layer 2) must not use `engine` (layer 3)"
        );
    }

    #[test]
    fn checker_sees_imports_groups_and_paths() {
        let source = "
            use crate::ids::{Qpn, Rkey};
            use crate::{self as home, mem::{Memory, Span}, wire, net::Path as _,};
            pub(crate) fn f(at: crate::time::Instant) -> u8 { m!(crate::psn::f()) }
            macro_rules! g { () => { $crate::hint::h() } }";
        let found: BTreeSet<_> = modules_in("src/port/udp.rs", source).into_iter().collect();
        let expected = ["hint", "ids", "mem", "net", "psn", "time", "wire"];
        assert!(found.iter().eq(expected), "{found:?}");
        let uses = of(&[("src/port/udp.rs", source)]).uses("src/port/udp.rs");
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (line, names) in [
            (2, &["ids", "Rkey"][..]),
            (3, &["mem", "Span"]),
            (4, &["psn", "f"]),
            (5, &["hint", "h"]),
        ] {
            assert!(uses.contains(&Use { line, path: path(names) }), "{names:?} in {uses:?}");
        }
    }

    #[test]
    fn checker_follows_super_to_the_root() {
        let source = "
            use super::super::engine::Engine;
            mod nested {
                fn f() { if true { super::super::super::verbs::f() } }
            }
            use super::super::{port, net::Path};";
        let found = modules_in("src/transport/segment.rs", source);
        assert_eq!(found, ["engine", "verbs", "port", "net"]);
        assert_eq!(modules_in("src/net.rs", "use super::port::Port;"), ["port"]);
    }

    #[test]
    fn checker_ignores_comments_literals_and_tests() {
        let source = r##"
            //! [`Engine`](crate::engine::Engine)
            /* use crate::engine; /* unsafe */ use crate::engine; */
            const A: &str = "use crate::engine::\"x; unsafe";
            const B: &str = r#"crate::engine" unsafe"#;
            const C: (char, u8, char) = ('"', b'\'', '\\');
            fn f<'a>(_: &'a str) -> &'a str { "unsafe" }
            use crate::psn;
            #[cfg(all(test, unix))]
            mod tests { use crate::engine; }
            #[cfg(not(test))]
            use crate::ids;"##;
        assert_eq!(modules_in("src/port/mod.rs", source), ["psn", "ids"]);
        assert_eq!(unsafe_lines(source), []);
    }

    #[test]
    fn checker_finds_a_circle_of_files() {
        let one = "use super::two::B; pub struct A;";
        let two = "pub struct B; fn f() { m!(super::three::c()) }";
        let three = "mod nested { use crate::one::A; } pub fn c() {}";
        let root = ("src/lib.rs", "mod one; mod two; mod three;");
        let all = of(&[root, ("src/one.rs", one), ("src/two.rs", two), ("src/three.rs", three)]);
        assert_eq!(all.circles(), [["src/one.rs", "src/three.rs", "src/two.rs"]]);
        let without = "#[cfg(test)] mod tests { use crate::one::A; } pub fn c() {}";
        let all = of(&[root, ("src/one.rs", one), ("src/two.rs", two), ("src/three.rs", without)]);
        assert_eq!(all.circles(), [[""; 0]; 0]);
    }

    #[test]
    fn checker_finds_a_circle_of_parent_and_child() {
        let circles = |parent: &str, child: &str| {
            let root = ("src/lib.rs", "mod m;");
            of(&[root, ("src/m/mod.rs", parent), ("src/m/child.rs", child)]).circles().len()
        };
        let child = "use super::Own; pub struct X;";
        // The parent's code uses the child by an import, by a path, and by a re-export.
        assert_eq!(circles("mod child; use child::X; struct Own(X);", child), 1);
        assert_eq!(circles("mod child; struct Own(child::X);", child), 1);
        assert_eq!(circles("mod child; pub use child::X; struct Own(X);", child), 1);
        // It only re-exports, or the child uses what another child defines.
        assert_eq!(circles("mod child; pub use child::X; struct Own;", child), 0);
        assert_eq!(circles("mod child; pub use child::X;", "pub struct X;"), 0);
        assert_eq!(circles("mod child; struct Own(child::X);", "pub struct X;"), 0);
    }

    #[test]
    fn checker_follows_reexports_to_the_definition() {
        let all = of(&[
            ("src/lib.rs", "mod m; mod user; pub use m::*;"),
            ("src/m/mod.rs", "mod a; mod b; pub use a::A; pub(crate) use b::*;"),
            ("src/m/a.rs", "pub enum A { One }"),
            ("src/m/b.rs", "use super::A::One; pub fn f() {}"),
            ("src/user.rs", "use crate::m::{self, A}; fn g() { m::f() }"),
        ]);
        let imports = all.imports().into_iter().map(|import| (import.from, import.to));
        let imports: Vec<_> = imports.collect();
        let expected = [
            ("src/m/b.rs", "src/m/a.rs"),
            ("src/m/mod.rs", "src/m/b.rs"),
            ("src/user.rs", "src/m/a.rs"),
            ("src/user.rs", "src/m/b.rs"),
        ];
        for (from, to) in expected {
            let is_there = imports.contains(&(from.to_owned(), to.to_owned()));
            assert_eq!(is_there, from != "src/m/mod.rs", "{from} imports {to}: {imports:?}");
        }
    }

    #[test]
    fn checker_sees_locks_under_any_name() {
        let source = "use std::sync::{Arc, Mutex, atomic::{AtomicU8, Ordering}};\n\
                      use std::sync::{self, MutexGuard};\nuse std::sync::RwLock;\n\
                      fn f(held: std::sync::Mutex<u8>) -> Arc<u8> { \"std::sync::Mutex\" }\n\
                      fn g(held: sync::Mutex<u8>) {}\n\
                      #[cfg(test)]\nmod tests { use std::sync::Mutex; }";
        let file = "src/port/mod.rs";
        assert_eq!(lines_with_locks(&of(&[(file, source)]), file), [1, 3, 4, 5]);
    }

    #[test]
    fn checker_sees_unsafe_except_public_unsafe_functions() {
        let source = "pub unsafe fn f() {}\n#[expect(unsafe_code)]\nfn g() { unsafe { f() } }\n\
                      unsafe impl Send for T {}";
        assert_eq!(unsafe_lines(source), [3, 4]);
    }

    #[test]
    fn checker_measures_functions_and_structs() {
        let source = "struct A { a: u8, b: u8 }\nimpl A {\n    fn f(\n        &self,\n    ) {\n    }\n}\n\
                      fn g() {}\n#[cfg(test)]\nmod tests { fn h() {} struct B(u8); }";
        let Sizes { functions, structs, .. } = Sizes::of("a sample", source);
        let measured = |name: &str, size| Measured { name: name.to_owned(), size };
        assert_eq!(functions, [measured("A::f", 4), measured("g", 1)]);
        assert_eq!(structs, [measured("A", 2)]);
    }
}
