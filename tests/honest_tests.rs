//! Rules against tests that pass without testing, or hang instead of failing.
//!
//! - A test returns early only with a reason: `return prerequisite::missing("IPv6")`.
//! - A loop that polls for an action of another thread, process or the kernel has a limit at which the test fails.
//! - A step of CI runs each ignored test.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

#[path = "support/rust.rs"]
mod rust;
#[path = "support/sources.rs"]
mod sources;

use std::fmt;

use proc_macro2::{Span, TokenStream, TokenTree};
use rust::{is_for_tests, parse};
use sources::{read, sources};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Folders with tests.
const FOLDERS: [&str; 5] = ["src", "tests", "pcap", "capi", "tools"];

/// Functions with which a test may end early, because they report a reason.
const SAYS_WHY: [&str; 4] = [
    // In `support/prerequisite.rs`: fails in CI.
    "missing",
    // In `interop/pair.rs`: the run reports the reason.
    "not_tried",
    // In `verbs/process.rs`: another test starts it in a subprocess and checks its results.
    "started_by_another_test",
    // An error fails the test.
    "Err",
];

/// Functions that poll for an action of a device, process or thread.
const POLLS: [&str; 6] = ["poll_event", "poll_one", "sleep", "try_iter", "try_recv", "try_wait"];

/// Methods that poll in the condition of a loop.
const POLLED: [&str; 2] = ["is_none", "is_empty"];

/// Parts of names that denote a limit of time or attempts.
const LIMITS: [&str; 6] = ["attempt", "deadline", "elapsed", "limit", "patience", "timeout"];

#[test]
fn tests_return_early_only_with_a_reason() {
    assert_eq!(findings(Rule::EarlyReturn), "");
}

#[test]
fn polling_loops_have_a_limit() {
    assert_eq!(findings(Rule::UnboundedPolling), "");
}

/// Scripts with the steps of CI, and those that they call.
const STEPS: [&str; 3] = ["tools/ci.sh", "tools/soak.sh", "tests/interop/rxe.sh"];

#[test]
fn every_ignored_test_is_in_a_step_of_ci() {
    let scripts = STEPS.map(read).concat();
    // The script for kernel rxe builds the tests, and runs them in a guest.
    let runs_ignored = |line: &&str| {
        line.contains("cargo test") && (line.contains("-- --ignored") || line.contains("--no-run"))
    };
    let commands: Vec<_> = scripts.lines().filter(runs_ignored).collect();
    let is_run = |file: &str| {
        let [package, target] = target_of(file);
        let names = |line: &&str| {
            let words: Vec<_> = line.split(' ').collect();
            let follow = |pair: &[&str]| words.windows(pair.len()).any(|words| words == pair);
            let is_target = match target {
                "" => follow(&["--lib"]),
                test => follow(&["--test", test]),
            };
            (follow(&["--package", package]) || words.contains(&"--workspace")) && is_target
        };
        commands.iter().any(names)
    };
    let is_ignored = |line: &str| line.trim_start().starts_with("#[ignore");
    // This file has examples of such tests in strings.
    let files =
        FOLDERS.into_iter().flat_map(sources).filter(|file| !file.ends_with("honest_tests.rs"));
    let ignored: Vec<_> = files.filter(|file| read(file).lines().any(is_ignored)).collect();
    assert!(ignored.len() > 40, "{ignored:?}");
    let missing: Vec<_> = ignored.iter().filter(|file| !is_run(file)).collect();
    assert!(missing.is_empty(), "no step runs the ignored tests of {missing:?}");
}

/// Returns the package of a file, and the name of its test target; an empty name for the library.
fn target_of(file: &str) -> [&str; 2] {
    let (folder, rest) = file.split_once('/').unwrap();
    let package = match folder {
        "tools" => "softroce-tools",
        "pcap" => "softroce-pcap",
        "capi" => "softroce-capi",
        _ => "softroce",
    };
    let within = if folder == "tests" { Some(rest) } else { rest.strip_prefix("tests/") };
    let name = within.and_then(|path| path.split(['/', '.']).next());
    [package, name.unwrap_or_default()]
}

/// Returns all violations, one per line.
fn findings(rule: Rule) -> String {
    let files = FOLDERS.into_iter().flat_map(sources);
    let found = files.flat_map(|file| {
        let found = check(&file, &read(&file)).into_iter().filter(|found| found.rule == rule);
        found.map(|found| format!("\n{file}:{found}")).collect::<Vec<_>>()
    });
    found.collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    EarlyReturn,
    UnboundedPolling,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Finding {
    line: usize,
    rule: Rule,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.rule {
            Rule::EarlyReturn => "the test returns early and does not say why",
            Rule::UnboundedPolling => "the loop polls without a limit at which the test fails",
        };
        write!(f, "{}: {what}", self.line)
    }
}

/// Checks a file.
fn check(file: &str, source: &str) -> Vec<Finding> {
    let parsed = parse(file, source);
    let mut checker = Checker { source, in_test_code: is_test_file(file), ..Checker::default() };
    checker.visit_file(&parsed);
    checker.found
}

/// Returns whether a file contains only test code.
fn is_test_file(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    format!("/{file}").contains("/tests/") || name == "tests.rs" || name.ends_with("_of_tests.rs")
}

/// Walks through a file.
#[derive(Default)]
struct Checker<'a> {
    source: &'a str,
    /// In a test, or in a module for tests.
    in_test_code: bool,
    /// In the body of a test, outside of its functions and closures.
    in_test: bool,
    found: Vec<Finding>,
}

impl Checker<'_> {
    fn add(&mut self, span: Span, rule: Rule) {
        self.found.push(Finding { line: span.start().line, rule });
    }

    /// Visits an item with its own returns.
    fn within(&mut self, in_test: bool, visit: impl FnOnce(&mut Self)) {
        let outside = std::mem::replace(&mut self.in_test, in_test);
        visit(self);
        self.in_test = outside;
    }

    /// Returns the words in a part of the file, without comments.
    fn words(&self, part: &impl Spanned) -> Vec<String> {
        let (start, end) = (part.span().start(), part.span().end());
        let lines = self.source.lines().enumerate().take(end.line).skip(start.line - 1);
        let text = lines.map(|(index, line)| {
            let chars = line.chars();
            let until = if index + 1 == end.line { end.column } else { usize::MAX };
            let from = if index + 1 == start.line { start.column } else { 0 };
            let line: String = chars.take(until).skip(from).collect();
            line.split("//").next().unwrap_or_default().to_owned()
        });
        let text = text.collect::<Vec<_>>().join("\n").to_lowercase();
        text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
    }

    /// Checks a loop with an optional condition.
    fn look_at_loop(&mut self, span: Span, condition: Option<&syn::Expr>, body: &syn::Block) {
        let asked = condition.map(|condition| self.words(condition)).unwrap_or_default();
        let done = self.words(body);
        let has =
            |words: &[String], of: &[&str]| words.iter().any(|word| of.contains(&word.as_str()));
        let polls = has(&asked, &POLLS)
            || has(&done, &POLLS)
            // Simulations assert their progress in each iteration.
            || has(&asked, &POLLED) && !done.iter().any(|word| word.starts_with("assert"));
        let names_limit = |word: &String| LIMITS.iter().any(|limit| word.contains(limit));
        if self.in_test_code && polls && !asked.iter().chain(&done).any(names_limit) {
            self.add(span, Rule::UnboundedPolling);
        }
    }

    /// Searches unparsed tokens for returns: tests in `proptest!`.
    fn scan(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.scan(group.stream()),
                TokenTree::Ident(ident) if ident == "return" => {
                    self.add(ident.span(), Rule::EarlyReturn);
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Checker<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let outside = self.in_test_code;
        self.in_test_code |= is_for_tests(&module.attrs);
        visit::visit_item_mod(self, module);
        self.in_test_code = outside;
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let is_test = function.attrs.iter().any(|attribute| attribute.path().is_ident("test"));
        let outside = self.in_test_code;
        self.in_test_code |= is_test;
        self.within(is_test, |checker| visit::visit_item_fn(checker, function));
        self.in_test_code = outside;
    }

    fn visit_expr_while(&mut self, expression: &'ast syn::ExprWhile) {
        // A loop that takes existing items ends by itself.
        if !matches!(*expression.cond, syn::Expr::Let(_)) {
            self.look_at_loop(expression.span(), Some(&expression.cond), &expression.body);
        }
        visit::visit_expr_while(self, expression);
    }

    fn visit_expr_loop(&mut self, expression: &'ast syn::ExprLoop) {
        self.look_at_loop(expression.span(), None, &expression.body);
        visit::visit_expr_loop(self, expression);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.within(false, |checker| visit::visit_impl_item_fn(checker, function));
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        self.within(false, |checker| visit::visit_expr_closure(checker, closure));
    }

    fn visit_expr_async(&mut self, block: &'ast syn::ExprAsync) {
        self.within(false, |checker| visit::visit_expr_async(checker, block));
    }

    fn visit_expr_return(&mut self, returned: &'ast syn::ExprReturn) {
        if self.in_test && !returned.expr.as_deref().is_some_and(says_why) {
            self.add(returned.span(), Rule::EarlyReturn);
        }
        visit::visit_expr_return(self, returned);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        if called.path.is_ident("proptest") {
            self.scan(called.tokens.clone());
        }
    }
}

/// Returns whether an expression calls one of [`SAYS_WHY`].
fn says_why(expression: &syn::Expr) -> bool {
    let syn::Expr::Call(call) = expression else { return false };
    let syn::Expr::Path(function) = &*call.func else { return false };
    function.path.segments.last().is_some_and(|last| SAYS_WHY.iter().any(|name| last.ident == name))
}

mod the_checker {
    use super::*;

    fn lines(rule: Rule, source: &str) -> Vec<usize> {
        let found = check("a sample", source).into_iter().filter(|found| found.rule == rule);
        found.map(|found| found.line).collect()
    }

    #[test]
    fn checker_finds_early_returns() {
        let source = "
            #[test]
            fn a() {
                let Some(_) = f() else { return };
                if !available() { return; }
                match f() { Some(1) => {}, _ => return }
                for _ in 0..1 { if g() { return } }
            }
            #[test]
            #[ignore = \"needs a peer\"]
            fn b() -> io::Result<()> {
                if g() { return Ok(()) }
                return said_nothing(\"IPv6\");
            }
            mod tests {
                #[test]
                fn c() {
                    fn helper() { return }
                    unsafe { return }
                }
            }
            proptest! {
                #[test]
                fn d(x in 0..1) {
                    if x == 0 { return Ok(()); }
                }
            }";
        assert_eq!(lines(Rule::EarlyReturn, source), [4, 5, 6, 7, 12, 13, 19, 25]);
    }

    #[test]
    fn checker_finds_polling_loops_without_a_limit() {
        let source = "
            #[test]
            fn a() {
                while cq.poll_one().is_none() {}
                while queue.is_empty() { device.turn() }
                while dropped() == 0 { assert_eq!(cq.poll_one(), None); } // no limit
                loop { if let Some(event) = ctx.poll_event() { break event } }
                let closure = || while child.try_wait().unwrap().is_none() { spin_loop() };
            }
            #[cfg(all(test, unix))]
            mod tests {
                fn helper() {
                    while x.is_none() {}
                }
            }";
        assert_eq!(lines(Rule::UnboundedPolling, source), [4, 5, 6, 7, 8, 13]);
        let helper = "fn f() { while x.is_none() {} }";
        let found = |file| check(file, helper).len();
        let files =
            ["tests/verbs/node.rs", "pcap/tests/a.rs", "capi/src/tests.rs", "src/a_of_tests.rs"];
        assert_eq!(files.map(found), [1; 4]);
        assert_eq!(["src/port/mod.rs", "tools/src/lib.rs"].map(found), [0; 2]);
    }

    #[test]
    fn checker_allows_loops_with_a_limit_and_simulations() {
        let source = "
            #[test]
            fn a() {
                while cq.poll_one().is_none() { assert!(begun.elapsed() < PATIENCE) }
                while ctx.wait_event(PATIENCE) != Event::PortActive {}
                loop { if now() > deadline { panic!() } yield_now(); }
                while sends.is_empty() { assert!(world.advance(), \"it stands still\"); }
                while let Some(completion) = cq.poll_one() { check(completion) }
                while x < 3 { x += 1; }
                loop { match next() { Some(_) => {}, None => break } }
                for _ in 0..100 { cq.poll_one(); }
            }
            fn not_of_a_test() { while cq.poll_one().is_none() {} }";
        assert_eq!(lines(Rule::UnboundedPolling, source), [0; 0]);
    }

    #[test]
    fn checker_allows_returns_with_a_reason_and_in_other_functions() {
        let source = "
            #[test]
            fn a() -> io::Result<()> {
                let Some(_) = f() else { return prerequisite::missing(\"IPv6\") };
                if g() { return not_tried(format_args!(\"{}\", 1)) }
                let Some(_) = role() else { return started_by_another_test() };
                if g() { return Err(error) }
                let closure = |x| { if x { return; } };
                fn helper() { return }
                async { return };
                // return
                println!(\"return\");
            }
            fn helper(x: bool) { if x { return } }
            impl A { fn helper(x: bool) { if x { return } } }";
        assert_eq!(lines(Rule::EarlyReturn, source), [0; 0]);
    }
}
