//! Imports go only downwards: in no source folder do two modules need each other, whatever lies between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};

/// A module by its names from the crate's root on.
type Module = Vec<String>;

/// A module's file, as far as it concerns other modules.
#[derive(Default)]
struct Source {
    /// Names in scope, and the paths that they stand for.
    names: BTreeMap<String, Vec<String>>,
    /// The paths in the file, as written.
    paths: Vec<Vec<String>>,
    /// Modules that only tests have.
    of_tests: BTreeSet<String>,
}

fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let meta = attribute.meta.require_list().ok();
        meta.is_some_and(|m| m.path.is_ident("cfg") && m.tokens.to_string() == "test")
    })
}

impl Source {
    fn import(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |name: &syn::Ident| {
            let mut path = before.to_vec();
            path.push(name.to_string());
            path
        };
        let (name, path) = match tree {
            syn::UseTree::Path(path) => return self.import(&path.tree, &with(&path.ident)),
            syn::UseTree::Group(group) => {
                return group
                    .items
                    .iter()
                    .for_each(|tree| self.import(tree, before));
            }
            syn::UseTree::Glob(_) => return self.paths.push(before.to_vec()),
            // `use super::{self, …}` names what is before it.
            syn::UseTree::Name(name) if name.ident == "self" => match before.last() {
                Some(last) => (last.clone(), before.to_vec()),
                None => return,
            },
            syn::UseTree::Name(name) => (name.ident.to_string(), with(&name.ident)),
            syn::UseTree::Rename(rename) => (rename.rename.to_string(), with(&rename.ident)),
        };
        self.paths.push(path.clone());
        self.names.insert(name, path);
    }
}

impl<'a> Visit<'a> for Source {
    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        match is_of_tests(&module.attrs) {
            true => drop(self.of_tests.insert(module.ident.to_string())),
            false => visit::visit_item_mod(self, module),
        }
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        if !is_of_tests(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_item_impl(&mut self, block: &'a syn::ItemImpl) {
        if !is_of_tests(&block.attrs) {
            visit::visit_item_impl(self, block);
        }
    }

    fn visit_item_use(&mut self, import: &'a syn::ItemUse) {
        if !is_of_tests(&import.attrs) {
            self.import(&import.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names = path.segments.iter().map(|s| s.ident.to_string());
        self.paths.push(names.collect());
        visit::visit_path(self, path);
    }
}

/// The modules of a crate.
fn read(folder: &Path, module: &Module, sources: &mut BTreeMap<Module, Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut own = module.clone();
        if !["lib", "main", "mod"].contains(&name.as_str()) {
            own.push(name);
        }
        if path.is_dir() {
            read(&path, &own, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = syn::parse_file(&fs::read_to_string(&path).unwrap());
            let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut source = Source::default();
            source.visit_file(&file);
            // A library and a program in one folder count as one here.
            let known = sources.entry(own).or_default();
            known.names.extend(source.names);
            known.paths.extend(source.paths);
            known.of_tests.extend(source.of_tests);
        }
    }
}

/// The module that a path in `module` leads to.
fn resolve(
    sources: &BTreeMap<Module, Source>,
    module: &Module,
    path: &[String],
    depth: u32,
) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let mut at = module.clone();
    let mut rest = rest;
    match first.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => drop(at.pop()),
        _ => rest = path,
    }
    let is_relative = rest.len() == path.len();
    for (index, name) in rest.iter().enumerate() {
        if name == "super" {
            at.pop();
            continue;
        }
        let mut inner = at.clone();
        inner.push(name.clone());
        if sources.contains_key(&inner) {
            at = inner;
            continue;
        }
        let alias = sources.get(&at)?.names.get(name);
        return match alias {
            // Names of other crates resolve to themselves.
            Some(alias) if depth < 8 && alias != rest => {
                let whole: Vec<_> = alias.iter().chain(&rest[index + 1..]).cloned().collect();
                resolve(sources, &at, &whole, depth + 1)
            }
            _ if is_relative && index == 0 => None,
            _ => Some(at),
        };
    }
    Some(at)
}

/// For the modules of a folder, with everything in them: which others they need.
type Needs = BTreeMap<Module, BTreeMap<String, BTreeMap<String, String>>>;

fn needs(root: &Path) -> Needs {
    let mut sources = BTreeMap::new();
    read(root, &Module::new(), &mut sources);
    let of_tests: BTreeSet<Module> = sources
        .iter()
        .flat_map(|(module, source)| {
            let with = |name: &String| {
                let mut inner = module.clone();
                inner.push(name.clone());
                inner
            };
            source.of_tests.iter().map(with).collect::<Vec<_>>()
        })
        .collect();
    sources.retain(|module, _| !of_tests.iter().any(|tests| module.starts_with(tests)));
    let mut needs = Needs::new();
    for (module, source) in &sources {
        for path in &source.paths {
            let Some(needed) = resolve(&sources, module, path, 0) else {
                continue;
            };
            let both = module.iter().zip(&needed);
            let shared = both.take_while(|(own, other)| own == other).count();
            // A parent and its children count as one.
            if let (Some(own), Some(other)) = (module.get(shared), needed.get(shared)) {
                let folder = needs.entry(module[..shared].to_vec()).or_default();
                let how = format!("{} names {}", module.join("::"), path.join("::"));
                let of_own = folder.entry(own.clone()).or_default();
                of_own.entry(other.clone()).or_insert(how);
            }
        }
    }
    needs
}

/// The cycles in a folder: modules of which each needs the next one.
fn circle(folder: &BTreeMap<String, BTreeMap<String, String>>) -> Option<Vec<String>> {
    fn walk<'a>(
        folder: &'a BTreeMap<String, BTreeMap<String, String>>,
        module: &'a str,
        above: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<String>> {
        if let Some(start) = above.iter().position(|name| *name == module) {
            let around = above[start..]
                .iter()
                .zip(above[start + 1..].iter().chain([&module]));
            return Some(
                around
                    .map(|(own, other)| folder[*own][*other].clone())
                    .collect(),
            );
        }
        if !done.insert(module) {
            return None;
        }
        above.push(module);
        let needed = folder.get(module).into_iter().flat_map(BTreeMap::keys);
        for needed in needed {
            let found = walk(folder, needed, above, done);
            if found.is_some() {
                return found;
            }
        }
        above.pop();
        None
    }
    let mut done = BTreeSet::new();
    folder
        .keys()
        .find_map(|module| walk(folder, module, &mut Vec::new(), &mut done))
}

#[test]
fn no_module_needs_what_needs_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut circles = Vec::new();
    for sources in [
        "src",
        "cli/src",
        "verify/src",
        "integrations/burn/src",
        "integrations/mpi/src",
    ] {
        let needs = needs(&root.join(sources));
        assert!(!needs.is_empty(), "{sources}");
        for (folder, modules) in &needs {
            if let Some(circle) = circle(modules) {
                let folder = folder.join("/");
                circles.push(format!("{sources}/{folder}:\n  {}", circle.join("\n  ")));
            }
        }
    }
    assert!(circles.is_empty(), "circles:\n{}", circles.join("\n"));
}

/// The library's files say from which module a name is, and do not go through what `lib.rs` exports.
#[test]
fn modules_import_from_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = BTreeMap::new();
    read(&root, &Module::new(), &mut sources);
    let of_root = |module: &Module| module.is_empty() || module.contains(&"tests".to_owned());
    for (module, source) in sources.iter().filter(|(module, _)| !of_root(module)) {
        for path in &source.paths {
            if let [root, name, ..] = &path[..]
                && root == "crate"
            {
                let is_module = sources.contains_key(std::slice::from_ref(name));
                assert!(is_module, "{} names crate::{name}", module.join("::"));
            }
        }
    }
}
