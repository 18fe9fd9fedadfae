//! Tests that could pass without having tested anything, or hang instead of failing.
//!
//! - A test returns early only by a call that says why: `return prerequisite::missing("IPv6")`.
//! - A loop of test code that polls for what another thread, process or the kernel does names the limit at which it
//!   fails.

#![expect(clippy::unwrap_used, reason = "a test that cannot read the sources has failed")]

#[path = "support/sources.rs"]
mod sources;

use std::fmt;

use proc_macro2::{Span, TokenStream, TokenTree};
use sources::{read, sources};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Folders with tests.
const FOLDERS: [&str; 5] = ["src", "tests", "pcap", "capi", "tools"];

/// Functions that a test may end with early, because they say why.
const SAYS_WHY: [&str; 4] = [
    // Of `support/prerequisite.rs`: fails in CI.
    "missing",
    // Of `interop/pair.rs`: the run shows the line.
    "not_tried",
    // Of `verbs/process.rs`: it is the process of another test, which looks at its results.
    "played_by_another_test",
    // An error fails the test.
    "Err",
];

#[test]
fn tests_say_why_they_return_early() {
    assert_eq!(findings(Rule::EarlyReturn), "");
}

/// Everything that breaks a rule, a line each.
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
        };
        write!(f, "{}: {what}", self.line)
    }
}

/// Checks a file.
fn check(file: &str, source: &str) -> Vec<Finding> {
    let parsed = syn::parse_file(source).unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut checker = Checker::default();
    checker.visit_file(&parsed);
    checker.found
}

/// Walks through a file.
#[derive(Default)]
struct Checker {
    /// Inside the body of a test, and in no function or closure of it.
    in_test: bool,
    found: Vec<Finding>,
}

impl Checker {
    fn add(&mut self, span: Span, rule: Rule) {
        self.found.push(Finding { line: span.start().line, rule });
    }

    /// Visits something that returns by itself.
    fn within(&mut self, in_test: bool, visit: impl FnOnce(&mut Self)) {
        let outside = std::mem::replace(&mut self.in_test, in_test);
        visit(self);
        self.in_test = outside;
    }

    /// Looks for returns among tokens that are not parsed: tests in `proptest!`.
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

impl<'ast> Visit<'ast> for Checker {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        let is_test = function.attrs.iter().any(|attribute| attribute.path().is_ident("test"));
        self.within(is_test, |checker| visit::visit_item_fn(checker, function));
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

/// Whether an expression calls one of [`SAYS_WHY`].
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
    fn sees_tests_that_return_early() {
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
    fn allows_returns_that_say_why_and_those_of_other_functions() {
        let source = "
            #[test]
            fn a() -> io::Result<()> {
                let Some(_) = f() else { return prerequisite::missing(\"IPv6\") };
                if g() { return not_tried(format_args!(\"{}\", 1)) }
                let Some(_) = role() else { return played_by_another_test() };
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
