//! Modules of a crate, paths in each file, and the files to which these paths lead.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::rust::{is_for_tests, parse};

/// Module path or item path from the root of the crate.
type Path = Vec<String>;

/// Depth at which the search for the target of a re-export stops.
const MAX_REEXPORTS: usize = 16;

/// A path that a file names, from the root of the crate on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Use {
    pub(crate) line: usize,
    pub(crate) path: Path,
}

/// A file imports an item that another file defines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Import {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The name of the item.
    pub(crate) item: String,
}

/// The modules and files of a crate, without those for tests.
#[derive(Debug, Default)]
pub(crate) struct Crate {
    files: BTreeMap<String, File>,
    /// The items and `use` declarations of each module, inline modules included.
    modules: BTreeMap<Path, Module>,
}

#[derive(Debug, Default)]
struct Module {
    file: String,
    defined: BTreeSet<String>,
    /// `use` declarations by the name that they bring into scope.
    aliases: BTreeMap<String, Path>,
    /// Modules with a `use …::*`.
    globs: Vec<Path>,
}

/// The paths that a file names.
#[derive(Debug, Default)]
struct File {
    /// Paths in `use` declarations.
    imported: Vec<PathUse>,
    /// Paths in `pub use` declarations.
    reexported: Vec<PathUse>,
    /// Paths in types, expressions, patterns and macro calls.
    named: Vec<PathUse>,
}

/// A path as written, and the module in which it stands.
#[derive(Clone, Debug)]
struct PathUse {
    line: usize,
    module: Path,
    path: Path,
}

impl Crate {
    /// Reads a crate from its files and their sources; `folder` holds the root file.
    pub(crate) fn read(folder: &str, sources: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut this = Self::default();
        let mut for_tests = Vec::new();
        for (file, source) in sources {
            let module = module_path(folder, &file);
            let mut reader = FileReader::new(&mut this.modules, &file, module);
            reader.visit_file(&parse(&file, &source));
            for_tests.append(&mut reader.for_tests);
            let read = reader.read;
            this.files.insert(file, read);
        }
        let is_for_tests = |module: &Path| for_tests.iter().any(|test| module.starts_with(test));
        this.files.retain(|file, _| !is_for_tests(&module_path(folder, file)));
        this.modules.retain(|module, _| !is_for_tests(module));
        this
    }

    /// Returns the crate's paths that a file names, as written: re-exports are not followed.
    pub(crate) fn uses(&self, file: &str) -> Vec<Use> {
        let path_uses = self.files.get(file).into_iter().flat_map(File::path_uses);
        let uses = path_uses.filter_map(|mention| {
            let path = self.absolute(&mention.module, &mention.path)?;
            Some(Use { line: mention.line, path })
        });
        uses.collect()
    }

    /// Returns the paths of other crates that a file names, with `use` declarations followed:
    /// `std::sync::Mutex`.
    pub(crate) fn foreign(&self, file: &str) -> Vec<Use> {
        let path_uses = self.files.get(file).into_iter().flat_map(File::path_uses);
        let foreign = path_uses.filter(|mention| {
            self.absolute(&mention.module, &mention.path).is_none() && mention.path.len() > 1
        });
        let uses = foreign.map(|mention| {
            let scope = self.modules.get(&mention.module);
            let first = mention.path.first().and_then(|first| scope?.aliases.get(first));
            let path = match first {
                Some(alias) if *alias != mention.path => [alias, &mention.path[1..]].concat(),
                _ => mention.path.clone(),
            };
            Use { line: mention.line, path }
        });
        uses.collect()
    }

    /// Returns each item that a file imports from another file of the crate. A re-export of an item
    /// below the own module is no import, unless code of the file names the item too.
    pub(crate) fn imports(&self) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (file, read) in &self.files {
            let reexported = read.reexported.iter().filter(|mention| {
                let path = self.absolute(&mention.module, &mention.path).unwrap_or_default();
                !path.starts_with(&mention.module)
            });
            for mention in read.imported.iter().chain(reexported).chain(&read.named) {
                let Some(path) = self.absolute(&mention.module, &mention.path) else { continue };
                let targets = self.files_of(&path, 0);
                imports.extend(
                    targets.into_iter().filter(|(to, _)| to != file).map(|(to, item)| Import {
                        from: file.clone(),
                        to,
                        item,
                    }),
                );
            }
        }
        imports
    }

    /// Returns the circles of files that import each other, each in order of names.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let mut reached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for import in self.imports() {
            reached.entry(import.from).or_default().insert(import.to);
        }
        // Adds the files that are reached over one more file, until there are none.
        loop {
            let before = reached.clone();
            for files in reached.values_mut() {
                let further: Vec<_> =
                    files.iter().filter_map(|file| before.get(file)).flatten().cloned().collect();
                files.extend(further);
            }
            if reached == before {
                break;
            }
        }
        let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
        let mut circles = BTreeSet::new();
        for file in reached.keys().filter(|file| reaches(file, file)) {
            let circle = reached.keys().filter(|to| reaches(file, to) && reaches(to, file));
            circles.insert(circle.cloned().collect::<Vec<_>>());
        }
        circles.into_iter().collect()
    }

    /// Returns a path from the root of the crate; `None` for a path of another crate or a local
    /// name.
    fn absolute(&self, module: &Path, path: &Path) -> Option<Path> {
        let mut base = module.clone();
        let mut steps = path.as_slice();
        match steps.first()?.as_str() {
            "crate" => {
                base.clear();
                steps = &steps[1..];
            }
            "self" => steps = &steps[1..],
            "super" => {
                while let Some((_, rest)) = steps.split_first().filter(|(step, _)| *step == "super")
                {
                    base.pop()?;
                    steps = rest;
                }
            }
            first => {
                let scope = self.modules.get(module)?;
                let child = [module.as_slice(), &[first.to_owned()]].concat();
                let is_child = self.modules.contains_key(&child);
                // A module and a function may have one name; the module has names in it.
                let alias = scope.aliases.get(first).filter(|alias| *alias != path);
                if let Some(alias) = alias.filter(|_| !is_child || path.len() == 1) {
                    return Some([&self.absolute(module, alias)?, &steps[1..]].concat());
                }
                if !is_child && !scope.defined.contains(first) {
                    return None;
                }
            }
        }
        base.extend_from_slice(steps);
        Some(base)
    }

    /// Returns the files that define the item at a path from the root, and the item's name in each.
    /// A module by itself is no item. A glob is an item of each module that defines any.
    fn files_of(&self, path: &Path, depth: usize) -> Vec<(String, String)> {
        let known = (0..=path.len()).rev().find(|len| self.modules.contains_key(&path[..*len]));
        let Some((module, rest)) = known.map(|len| (path[..len].to_vec(), &path[len..])) else {
            return Vec::new();
        };
        let Some(scope) = self.modules.get(&module) else { return Vec::new() };
        let Some(name) = rest.first().filter(|_| depth < MAX_REEXPORTS) else { return Vec::new() };
        if name == "*" {
            let has_items = !scope.defined.is_empty();
            return has_items.then(|| (scope.file.clone(), name.clone())).into_iter().collect();
        }
        if scope.defined.contains(name) {
            return vec![(scope.file.clone(), name.clone())];
        }
        let aliased = scope.aliases.get(name).cloned();
        let globbed = scope.globs.iter().map(|glob| {
            let mut path = glob.clone();
            path.push(name.clone());
            path
        });
        let candidates: Vec<_> = aliased.into_iter().chain(globbed).collect();
        let mut found = candidates.into_iter().filter_map(|mut path| {
            path.extend_from_slice(&rest[1..]);
            let files = self.files_of(&self.absolute(&module, &path)?, depth + 1);
            (!files.is_empty()).then_some(files)
        });
        found.next().unwrap_or_default()
    }
}

impl File {
    fn path_uses(&self) -> impl Iterator<Item = &PathUse> {
        self.imported.iter().chain(&self.reexported).chain(&self.named)
    }
}

/// Reads one file into the modules of its crate.
struct FileReader<'a> {
    modules: &'a mut BTreeMap<Path, Module>,
    file: &'a str,
    /// The module in which the visitor is.
    module: Path,
    read: File,
    /// Modules for tests, which may have files of their own.
    for_tests: Vec<Path>,
}

impl<'a> FileReader<'a> {
    fn new(modules: &'a mut BTreeMap<Path, Module>, file: &'a str, module: Path) -> Self {
        let mut this = Self { modules, file, module, read: File::default(), for_tests: Vec::new() };
        this.scope();
        this
    }

    /// Returns the module in which the visitor is.
    fn scope(&mut self) -> &mut Module {
        let scope = self.modules.entry(self.module.clone()).or_default();
        scope.file = self.file.to_owned();
        scope
    }

    fn path_use(&self, span: Span, path: Path) -> PathUse {
        PathUse { line: span.start().line, module: self.module.clone(), path }
    }

    fn name(&mut self, path: Path, span: Span) {
        let mention = self.path_use(span, path);
        self.read.named.push(mention);
    }

    /// Adds the paths of a `use` tree that continues `before`.
    fn tree(&mut self, tree: &syn::UseTree, before: &Path, is_public: bool) {
        let with = |name: &Ident| {
            let mut path = before.clone();
            // `flow::{self}` is `flow`.
            if name != "self" || before.is_empty() {
                path.push(name.to_string());
            }
            path
        };
        let (name, alias, span) = match tree {
            syn::UseTree::Path(path) => {
                self.tree(&path.tree, &with(&path.ident), is_public);
                return;
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.tree(tree, before, is_public));
                return;
            }
            syn::UseTree::Glob(glob) => {
                self.scope().globs.push(before.clone());
                let mut path = before.clone();
                path.push("*".to_owned());
                let span = glob.star_token.spans[0];
                self.add_import(path, span, is_public);
                return;
            }
            syn::UseTree::Name(name) => (with(&name.ident), None, name.ident.span()),
            syn::UseTree::Rename(name) => {
                (with(&name.ident), Some(name.rename.to_string()), name.ident.span())
            }
        };
        if let Some(alias) = alias.or(name.last().cloned()) {
            self.scope().aliases.insert(alias, name.clone());
        }
        self.add_import(name, span, is_public);
    }

    fn add_import(&mut self, path: Path, span: Span, is_public: bool) {
        let mention = self.path_use(span, path);
        match is_public {
            true => self.read.reexported.push(mention),
            false => self.read.imported.push(mention),
        }
    }

    /// Adds the paths among tokens of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Path = Vec::new();
        let mut span = Span::call_site();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.end_path(&mut path, span);
                        span = word.span();
                    }
                    path.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => colons += 1,
                other => {
                    self.end_path(&mut path, span);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.end_path(&mut path, span);
    }

    fn end_path(&mut self, path: &mut Path, span: Span) {
        if !path.is_empty() {
            self.name(std::mem::take(path), span);
        }
    }
}

impl<'ast> Visit<'ast> for FileReader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (attributes, name) = attributes_and_name(item);
        if is_for_tests(attributes) {
            if let (syn::Item::Mod(_), Some(name)) = (item, name) {
                let mut module = self.module.clone();
                module.push(name.to_string());
                self.for_tests.push(module);
            }
            return;
        }
        if let Some(name) = name.filter(|_| !matches!(item, syn::Item::Mod(_))) {
            self.scope().defined.insert(name.to_string());
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.content.is_some() {
            self.module.push(module.ident.to_string());
            self.scope();
            visit::visit_item_mod(self, module);
            self.module.pop();
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Fn(function) => function.attrs.as_slice(),
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, &Vec::new(), is_public);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(in crate::port)` names no item.
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {
        // Names in attributes are those of macros.
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = &path.segments;
        if let Some(first) = segments.first().filter(|_| path.leading_colon.is_none()) {
            let names = segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.name(names, first.ident.span());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.tokens(called.tokens.clone());
    }
}

/// Returns the attributes and the name of an item that has both.
fn attributes_and_name(item: &syn::Item) -> (&[syn::Attribute], Option<&Ident>) {
    match item {
        syn::Item::Const(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Enum(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
        syn::Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
        syn::Item::Mod(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Static(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Struct(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Trait(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Type(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Union(item) => (&item.attrs, Some(&item.ident)),
        syn::Item::Impl(item) => (&item.attrs, None),
        syn::Item::Use(item) => (&item.attrs, None),
        _ => (&[], None),
    }
}

/// `src/engine/attr.rs` is `engine::attr`, `src/engine/mod.rs` is `engine`, `src/lib.rs` the root.
fn module_path(folder: &str, file: &str) -> Path {
    let path = file.strip_prefix(folder).unwrap_or(file).trim_end_matches(".rs");
    let names = path.split('/').filter(|name| !["", "mod", "lib", "main"].contains(name));
    names.map(str::to_owned).collect()
}
