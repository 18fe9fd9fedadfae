//! The rules of the house that the compiler does not check: which module uses which, where `unsafe`
//! stands, where locks come from, and how long a file gets.
//!
//! The layers are read from the table in the documentation of `src/lib.rs`, so there is one table.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

#[path = "support/sources.rs"]
mod sources;

use std::collections::BTreeMap;

use sources::{read, sources};

/// Uses within a layer: what a datagram is, is below what its bytes are.
const ALSO_ALLOWED: [(&str, &str); 1] = [("wire", "net")];

/// Uses of a lower layer that are forbidden: the engine makes packets and does not carry them.
const FORBIDDEN: [(&str, &str); 1] = [("engine", "io")];

/// Where `unsafe` blocks stand: in the library, and at the border to C.
const UNSAFE_FILES: [&str; 15] = [
    "src/mem/guarded.rs",
    "src/mem/raw.rs",
    "src/mem/segment.rs",
    "src/mem/sys.rs",
    "src/io/sys/interface.rs",
    "src/io/sys/messages.rs",
    "src/io/sys/mod.rs",
    "src/io/sys/signals.rs",
    "src/hint.rs",
    "capi/paths/src/border.rs",
    "capi/src/border/exit.rs",
    "capi/src/border/fork.rs",
    "capi/src/border/handle.rs",
    "capi/src/border/plain.rs",
    "capi/src/border/pointer.rs",
];

/// Past this, a file has a seam to be split at.
const MAX_LINES: usize = 900;

#[test]
fn modules_use_only_modules_below_them() {
    let layers = layers(&read("src/lib.rs"));
    let mut wrong = Vec::new();
    for file in sources("src") {
        let module = module_path(&file);
        let Some(user) = module.first() else {
            continue; // lib.rs
        };
        for found in uses(&module, &read(&file)) {
            if let Err(reason) = judge(&layers, user, &found.module) {
                wrong.push(format!("{file}:{}: {reason}", found.line));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_stands_in_its_files_only() {
    let files = ["src", "pcap/src", "tools/src", "capi/src", "capi/paths/src"]
        .into_iter()
        .flat_map(sources);
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
fn locks_are_those_that_tests_count() {
    let files = sources("src").into_iter();
    let others = files.filter(|file| file != "src/lock.rs" && !file.ends_with("_of_tests.rs"));
    let wrong: Vec<_> = others
        .flat_map(|file| {
            let source = read(&file);
            // Locks of tests are no locks of the library.
            let library = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let lines = lines_with_locks(library);
            lines.into_iter().map(move |line| format!("{file}:{line}: a lock not of crate::lock"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_file_passes_900_lines() {
    let wrong: Vec<_> = ["src", "capi/src", "capi/paths/src"]
        .into_iter()
        .flat_map(sources)
        .map(|file| (read(&file).lines().count(), file))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .collect();
    assert!(wrong.is_empty(), "too long: {wrong:?}");
}

/// Whether `user` may use `used`; the error says why not.
fn judge(layers: &BTreeMap<String, u8>, user: &str, used: &str) -> Result<(), String> {
    let layer = |module: &str| {
        layers.get(module).copied().ok_or(format!("`{module}` is in no layer of src/lib.rs"))
    };
    let (mine, its) = (layer(user)?, layer(used)?);
    let listed = |list: &[(&str, &str)]| list.contains(&(user, used));
    if user == used || listed(&ALSO_ALLOWED) || (its < mine && !listed(&FORBIDDEN)) {
        return Ok(());
    }
    Err(format!("`{user}` (layer {mine}) must not use `{used}` (layer {its})"))
}

/// The layer of each module, from lines of the form `//! | 1 | [`wire`], [`mem`] | what |`.
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

/// A top-level module that a source file names.
#[derive(PartialEq, Eq, Debug)]
struct Use {
    line: usize,
    module: String,
}

/// The top-level modules named in paths from `crate::` or, in as many steps as it takes, `super::`.
/// `module` is the path of the file's own module.
fn uses(module: &[String], source: &str) -> Vec<Use> {
    let tokens = tokens(source);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut found = Vec::new();
    // For each open brace, whether it opened an inline module.
    let mut braces = Vec::new();
    for at in 0..tokens.len() {
        let starts_path = at == 0 || text(at - 1) != "::";
        match text(at) {
            "{" => braces.push(at >= 2 && text(at - 2) == "mod"),
            "}" => drop(braces.pop()),
            "crate" if text(at + 1) == "::" => found.extend(roots(&tokens, at + 2)),
            "super" if starts_path => {
                let depth = module.len() + braces.iter().filter(|inline| **inline).count();
                let steps = (at..).step_by(2).take_while(|at| text(*at) == "super").count();
                if steps == depth {
                    found.extend(roots(&tokens, at + 2 * steps));
                }
            }
            _ => {}
        }
    }
    found
}

/// The names at `at`, which follow `crate::`: one, or those of a group.
fn roots(tokens: &[Token], at: usize) -> Vec<Use> {
    let is_name = |token: &&Token| token.text != "self";
    if tokens.get(at).is_none_or(|token| token.text != "{") {
        return tokens.get(at).filter(is_name).map(Token::as_use).into_iter().collect();
    }
    let mut depth = 0;
    let mut found = Vec::new();
    for pair in tokens[at..].windows(2) {
        match pair[0].text.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        let starts_item = depth == 1 && ["{", ","].contains(&pair[0].text.as_str());
        if starts_item && pair[1].text != "}" {
            found.extend(Some(&pair[1]).filter(is_name).map(Token::as_use));
        }
    }
    found
}

/// The lines with `unsafe`, other than as part of `pub unsafe fn`: such a function says that duties
/// are the caller's.
fn unsafe_lines(source: &str) -> Vec<usize> {
    let tokens = tokens(source);
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let declares = |at: usize| at > 0 && text(at - 1) == "pub" && text(at + 1) == "fn";
    (0..tokens.len())
        .filter(|at| text(*at) == "unsafe" && !declares(*at))
        .map(|at| tokens[at].line)
        .collect()
}

/// The lines that name a lock of the standard library.
fn lines_with_locks(source: &str) -> Vec<usize> {
    let tokens = tokens(source);
    let follows = |at: usize| tokens[at..].iter().map(|token| token.text.as_str());
    (0..tokens.len())
        .filter(|at| follows(*at).take(4).eq(["std", "::", "sync", "::"]))
        .flat_map(|at| roots(&tokens, at + 4))
        .filter(|found| ["Mutex", "RwLock"].contains(&found.module.as_str()))
        .map(|found| found.line)
        .collect()
}

/// A word, `::` or another sign, and the line it is on.
struct Token {
    line: usize,
    text: String,
}

impl Token {
    fn as_use(&self) -> Use {
        Use { line: self.line, module: self.text.clone() }
    }
}

/// The tokens of Rust source without comments, strings, characters and spaces.
fn tokens(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let word_len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment_len(rest)
        } else if let Some(len) = literal_len(rest) {
            len
        } else if first == '\'' {
            1 // of a lifetime
        } else {
            let len = match first {
                _ if word_len > 0 => word_len,
                ':' if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            if !first.is_whitespace() {
                tokens.push(Token { line, text: rest[..len].to_owned() });
            }
            len
        };
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

/// The length of the block comment at the start, with those inside it.
fn block_comment_len(source: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < source.len() {
        let rest = &source[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// The length of the string or character literal at the start, if there is one.
fn literal_len(source: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|prefix| {
        let quote = source.strip_prefix(prefix).map(|rest| rest.trim_start_matches('#'));
        let raw = prefix.ends_with('r');
        quote.is_some_and(|q| q.starts_with('"'))
            && (raw || source[prefix.len()..].starts_with('"'))
    });
    if let Some(prefix) = prefix {
        let hashes = source[prefix.len()..].chars().take_while(|c| *c == '#').count();
        let start = prefix.len() + hashes + 1;
        let end = if prefix.ends_with('r') {
            source[start..].find(&format!("\"{}", "#".repeat(hashes)))?
        } else {
            unescaped(&source[start..], '"')?
        };
        return Some(start + end + 1 + hashes);
    }
    let start = if source.starts_with("b'") { 2 } else { 1 };
    let inside = source.strip_prefix("b'").or_else(|| source.strip_prefix('\''))?;
    let mut chars = inside.chars();
    let is_char = chars.next()? == '\\' || chars.next()? == '\'';
    is_char.then(|| unescaped(inside, '\'').map(|end| start + end + 1)).flatten()
}

/// Where the first `quote` without a backslash before it is.
fn unescaped(source: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    source.char_indices().find_map(|(at, c)| {
        let found = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        found.then_some(at)
    })
}

/// `src/engine/attr.rs` is `engine::attr`, `src/engine/mod.rs` is `engine`, `src/lib.rs` the root.
fn module_path(file: &str) -> Vec<String> {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    let names = path.split('/').filter(|name| !["mod", "lib"].contains(name));
    names.map(str::to_owned).collect()
}

mod the_checker {
    use super::*;

    fn modules_in(file: &str, source: &str) -> Vec<String> {
        uses(&module_path(file), source).into_iter().map(|found| found.module).collect()
    }

    #[test]
    fn knows_the_layers_of_the_crate() {
        let layers = layers(&read("src/lib.rs"));
        let modules: Vec<_> = layers.keys().map(String::as_str).collect();
        let all = "counter engine hint ids io lock mem net psn runtime time transport verbs wire";
        assert_eq!(modules, all.split(' ').collect::<Vec<_>>());
        assert_eq!((layers["time"], layers["verbs"]), (0, 5));
    }

    #[test]
    fn allows_what_is_below_and_what_is_listed() {
        let layers = layers(&read("src/lib.rs"));
        for (user, used, allowed) in [
            ("transport", "wire", true),
            ("verbs", "ids", true),
            ("runtime", "io", true),
            ("runtime", "engine", true),
            ("mem", "mem", true),
            ("wire", "net", true),
            ("net", "wire", false),
            ("wire", "mem", false),
            ("io", "transport", false),
            ("engine", "io", false),
            ("io", "engine", false),
            ("psn", "verbs", false),
            ("mem", "elsewhere", false),
        ] {
            assert_eq!(judge(&layers, user, used).is_ok(), allowed, "{user} uses {used}");
        }
        assert_eq!(
            judge(&layers, "io", "engine").unwrap_err(),
            "`io` (layer 2) must not use `engine` (layer 3)"
        );
    }

    #[test]
    fn sees_imports_groups_and_paths_in_code() {
        let source = "
            use crate::ids::{Qpn, Rkey};
            use crate::{self as home, mem::{Memory, Span}, wire, net::Path as _,};
            pub(crate) fn f(at: crate::time::Instant) -> u8 { $crate::psn::f() }";
        assert_eq!(
            modules_in("src/io/udp.rs", source),
            ["ids", "mem", "wire", "net", "time", "psn"]
        );
        let lines: Vec<_> = uses(&module_path("src/io/udp.rs"), source);
        assert_eq!(lines.last(), Some(&Use { line: 4, module: "psn".into() }));
    }

    #[test]
    fn follows_super_to_the_root() {
        let source = "
            use super::work::Sge;
            use super::super::engine::Engine;
            mod tests {
                use super::super::work;
                fn f() { if true { super::super::super::verbs::f() } }
            }
            use super::super::{io, net::Path};";
        let found = modules_in("src/transport/segment.rs", source);
        assert_eq!(found, ["engine", "verbs", "io", "net"]);
        assert_eq!(modules_in("src/net.rs", "use super::io::Port;"), ["io"]);
    }

    #[test]
    fn overlooks_comments_and_literals() {
        let source = r##"
            //! [`Engine`](crate::engine::Engine)
            /* use crate::engine; /* unsafe */ use crate::engine; */
            const A: &str = "use crate::engine::\"x; unsafe";
            const B: &str = r#"crate::engine" unsafe"#;
            const C: (char, u8, char) = ('"', b'\'', '\\');
            fn f<'a>(_: &'a str) -> &'a str { "unsafe" }
            use crate::psn;"##;
        assert_eq!(modules_in("src/io/mod.rs", source), ["psn"]);
        assert_eq!(unsafe_lines(source), []);
    }

    #[test]
    fn sees_locks_however_they_are_named() {
        let source = "use std::sync::{Arc, Mutex, atomic::{AtomicU8, Ordering}};\n\
                      use std::sync::MutexGuard;\nuse std::sync::RwLock;\n\
                      fn f(held: std::sync::Mutex<u8>) -> Arc<u8> { \"std::sync::Mutex\" }";
        assert_eq!(lines_with_locks(source), [1, 3, 4]);
    }

    #[test]
    fn sees_unsafe_but_for_public_functions_of_that_kind() {
        let source = "pub unsafe fn f() {}\n#[expect(unsafe_code)]\nfn g() { unsafe { f() } }\n\
                      unsafe impl Send for T {}";
        assert_eq!(unsafe_lines(source), [3, 4]);
    }
}
