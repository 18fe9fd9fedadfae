//! Sizes of functions and structs in a file.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::rust::{is_for_tests, parse};

/// A function or struct, with its lines or fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Measured {
    /// `engine::Engine` is `Engine`, its method `poll` is `Engine::poll`.
    pub(crate) name: String,
    pub(crate) size: usize,
}

/// Sizes in one file. Functions and types for tests are left out.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    /// Functions by their lines, from the signature to the closing brace.
    pub(crate) functions: Vec<Measured>,
    /// Structs by their named fields.
    pub(crate) structs: Vec<Measured>,
    /// The type of the `impl` or the trait in which the visitor is.
    owner: Option<String>,
}

impl Sizes {
    /// Measures a file.
    pub(crate) fn of(file: &str, source: &str) -> Self {
        let mut sizes = Self::default();
        sizes.visit_file(&parse(file, source));
        sizes
    }

    fn function(&mut self, signature: &syn::Signature, body: Span) {
        let size = body.end().line + 1 - signature.span().start().line;
        let name = match &self.owner {
            Some(owner) => format!("{owner}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        self.functions.push(Measured { name, size });
    }

    fn within(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Self)) {
        let outside = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = outside;
    }
}

impl<'ast> Visit<'ast> for Sizes {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let size = item.fields.len();
        self.structs.push(Measured { name: item.ident.to_string(), size });
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.within(owner, |this| visit::visit_item_impl(this, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let owner = Some(item.ident.to_string());
        self.within(owner, |this| visit::visit_item_trait(this, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.function(&item.sig, item.block.span());
            self.within(None, |this| visit::visit_item_fn(this, item));
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.function(&item.sig, item.block.span());
            self.within(None, |this| visit::visit_impl_item_fn(this, item));
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body.span());
            self.within(None, |this| visit::visit_trait_item_fn(this, item));
        }
    }
}
