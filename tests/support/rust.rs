//! Rust sources as syntax trees, for tests that check rules of the project.

use proc_macro2::{TokenStream, TokenTree};

/// Parses a file; `file` names it in the panic for source that is not Rust.
pub(crate) fn parse(file: &str, source: &str) -> syn::File {
    syn::parse_file(source).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns whether one of the attributes is a `cfg` that names `test`: `#[cfg(test)]`, `#[cfg(all(test, unix))]`.
/// `#[cfg(not(test))]` is none.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg") && names_test(list.tokens.clone())
    })
}

fn names_test(condition: TokenStream) -> bool {
    let mut is_negated = false;
    condition.into_iter().any(|token| match token {
        TokenTree::Group(group) => !is_negated && names_test(group.stream()),
        TokenTree::Ident(word) => {
            is_negated = word == "not";
            word == "test"
        }
        _ => false,
    })
}
