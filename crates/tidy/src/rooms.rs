//! Which folder of a crate may import from which.
//!
//! The folders of a crate are layers, as the crates are ([`crate::arrows`]): each imports from
//! those below it only. [`ROOMS`] lists the folders of each crate from the top down, [`UPWARD`] the
//! few imports that run up. Files do not import each other in a circle, in any crate, except for
//! the few circles that [`CIRCLES`] lists: one thing in several files. Each exception has a reason.
//!
//! Imports are resolved: a name that a module re-exports counts as an import of the file that
//! defines it. Tests and links of the documentation may look anywhere. Calls of methods are no
//! imports: a type's methods may stand in files above the type.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::sources::{Source, is_for_tests};

/// A crate, and its folders (or files) from the top layer to the lowest.
pub type Layers = (&'static str, &'static [&'static str]);

/// The layers of the crates that have folders.
pub const ROOMS: &[Layers] = &[
    (
        "vfs",
        &[
            "std_like", "syscalls", "task", "namei", "file", "mount", "objects", "ipc", "locks",
            "security", "base",
        ],
    ),
    (
        "diskfs",
        &[
            "tools",
            "vfs_impl",
            "data",
            "file_io",
            "icache",
            "volume",
            "dir",
            "inode",
            "page_cache",
            "alloc",
            "buffer",
            "btree",
            "base",
            "format",
        ],
    ),
    (
        "sync",
        &[
            "scaling", "slab", "mem", "refcount", "model", "worker", "reclaim", "rcu", "shrink",
            "percpu", "seq", "lock", "epoch", "random", "hash", "thread", "caught", "fork",
            "machine", "cpu", "clock", "atomic",
        ],
    ),
    (
        "journal",
        &[
            "journal",
            "transaction",
            "log",
            "hooks",
            "lists",
            "change_list",
            "admission",
            "options",
            "disk",
            "read_mostly",
            "item",
            "error",
            "ranks",
            "lsn",
        ],
    ),
    (
        "vfscale",
        &[
            "apply", "merge", "ingest", "transfer", "options", "memory", "pool", "volume", "place",
            "view", "diff", "tar", "error",
        ],
    ),
    ("pool", &["calls", "branch", "state", "space", "disk", "base"]),
    (
        "fuse",
        &["mount", "server", "uring", "control", "attach", "session", "statistics", "wire", "base"],
    ),
    (
        "cli",
        &[
            "helper",
            "complete",
            "args",
            "list",
            "run",
            "crashlab",
            "mount",
            "freeze",
            "umount",
            "programs",
            "volume",
            "files",
            "native",
            "elsewhere",
            "served",
            "source",
            "standby",
            "checked",
            "device",
            "child",
            "mounts",
            "options",
            "output",
            "error",
        ],
    ),
    (
        "bench",
        &[
            "branches",
            "fill",
            "report",
            "run",
            "workloads",
            "targets",
            "measure",
            "published",
            "base",
        ],
    ),
];

/// Imports that run up: crate, importing file, imported file, reason.
pub const UPWARD: &[(&str, &str, &str, &str)] =
    &[("sync", "rcu/table/grow", "model", "models count the resizes of tables")];

/// Files of a crate that import each other: crate, files in alphabetical order, reason.
pub type Circle = (&'static str, &'static [&'static str], &'static str);

/// The circles that are one thing in several files.
pub const CIRCLES: &[Circle] = &[(
    "vfs",
    &[
        "objects/dcache/aliases",
        "objects/dcache/climb",
        "objects/dcache/dentry",
        "objects/dcache/lru",
        "objects/dcache/sharded_counts",
        "objects/driver/accounting",
        "objects/driver/dir_ops",
        "objects/driver/file_ops",
        "objects/driver/file_system",
        "objects/file_description",
        "objects/fsnotify",
        "objects/icache",
        "objects/inode",
        "objects/inode/inode_ref",
        "objects/inode_xattrs",
        "objects/super_block",
        "objects/super_block/inodes",
        "objects/super_block/remounts",
        "objects/super_ref",
        "objects/take_down",
        "objects/vfsmount",
    ],
    "a super block lists its inodes, dentries, mounts and open files, which lead back to it",
)];

/// The most entries of [`CIRCLES`].
pub const CIRCLES_MAX: usize = 5;

/// A module of a crate: its path from the root, empty for the root.
type Module = Vec<String>;

/// The files of one crate, and the imports between them.
#[derive(Debug, Default)]
pub struct Crate {
    modules: BTreeSet<Module>,
    imports: BTreeMap<Module, Vec<Import>>,
}

/// An import as it is written.
#[derive(Clone, Debug)]
struct Import {
    path: Module,
    /// The module within the file that imports it; empty for the file's own.
    inner: Module,
    /// The name that the importing module gives it.
    name: String,
    is_public: bool,
    /// Whether the importing module uses the name itself.
    is_used: bool,
}

/// An import of one file from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    /// The importing file, from `src`, without its ending.
    pub from: String,
    /// The file that defines what is imported.
    pub to: String,
}

impl Crate {
    /// Parses the files of a crate; paths count from its `src`. Files of tests are skipped.
    pub fn new(files: &[(String, String)]) -> Crate {
        let mut this = Crate::default();
        for (path, text) in files {
            let source = Source { path: &format!("src/{path}"), text };
            if source.is_test() {
                continue;
            }
            let Ok(file) = syn::parse_file(text) else { continue };
            let module = module_of(path);
            let mut finder = Finder::default();
            finder.visit_file(&file);
            for import in &mut finder.found {
                import.is_used |= finder.used.contains(&import.name);
            }
            this.imports.insert(module.clone(), finder.found);
            this.modules.insert(module);
        }
        this
    }

    /// Returns the absolute path of an import of the file of `module`, or `None` if it leads out of
    /// the crate.
    fn absolute(&self, module: &Module, import: &Import) -> Option<Module> {
        let path = import.path.as_slice();
        let (first, rest) = path.split_first()?;
        let module = &[module.as_slice(), &import.inner].concat();
        let joined = |base: &[String], rest: &[String]| [base, rest].concat();
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some(joined(module, rest)),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let base = module.get(..module.len().checked_sub(ups)?)?;
                Some(joined(base, &path[ups..]))
            }
            _ => {
                let child = joined(module, std::slice::from_ref(first));
                self.modules.contains(&child).then(|| joined(module, path))
            }
        }
    }

    /// Returns the module that defines the item at `path`, through re-exports.
    fn definer(&self, path: &[String], depth: usize) -> Module {
        let mut len = 0;
        while len < path.len() && self.modules.contains(&path[..=len]) {
            len += 1;
        }
        let module = path[..len].to_vec();
        if let (Some(name), true) = (path.get(len), depth < 8) {
            let imports = self.imports.get(&module).into_iter().flatten();
            let mut exports = imports.filter(|import| import.is_public && import.name == *name);
            if let Some(at) = exports.find_map(|import| self.absolute(&module, import))
                && at != path
            {
                return self.definer(&[&at, &path[len + 1..]].concat(), depth + 1);
            }
        }
        module
    }

    /// Returns the imports of files from other files. Re-exports that a module makes of its own
    /// children and does not use, and the imports of the root, do not count.
    pub fn arrows(&self) -> BTreeSet<Arrow> {
        let mut found = BTreeSet::new();
        for (module, imports) in &self.imports {
            for import in imports {
                let Some(path) = self.absolute(module, import) else { continue };
                let to = self.definer(&path, 0);
                let is_own = !import.is_used && to.starts_with(module);
                if to != *module && !to.is_empty() && !module.is_empty() && !is_own {
                    found.insert(Arrow { from: module.join("/"), to: to.join("/") });
                }
            }
        }
        found
    }
}

/// Returns the module that the file at `path` holds.
fn module_of(path: &str) -> Module {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let is_root = path == "lib" || path == "main";
    if is_root { Vec::new() } else { path.split('/').map(String::from).collect() }
}

/// Collects the imports of a file, and the paths in its code.
#[derive(Default)]
struct Finder {
    found: Vec<Import>,
    /// The module within the file that is being visited.
    inner: Module,
    /// The first names of the paths in its code.
    used: BTreeSet<String>,
}

impl Finder {
    fn tree(&mut self, tree: &syn::UseTree, before: &[String], is_public: bool) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        let inner = self.inner.clone();
        let mut add = |path: Module, name: String| {
            self.found.push(Import {
                path,
                inner: inner.clone(),
                name,
                is_public,
                is_used: !is_public,
            });
        };
        match tree {
            syn::UseTree::Path(path) => self.tree(&path.tree, &with(&path.ident), is_public),
            syn::UseTree::Name(name) if name.ident == "self" => {
                add(before.to_vec(), before.last().cloned().unwrap_or_default());
            }
            syn::UseTree::Name(name) => add(with(&name.ident), name.ident.to_string()),
            syn::UseTree::Rename(name) => add(with(&name.ident), name.rename.to_string()),
            syn::UseTree::Glob(_) => add(before.to_vec(), "*".into()),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.tree(item, before, is_public));
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        let is_for_docs = attributes.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && matches!(&attribute.meta, syn::Meta::List(l) if l.tokens.to_string() == "doc")
        });
        if !is_for_docs && !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.inner.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.inner.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, &[], is_public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Module = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.used.insert(parts[0].clone());
        if parts.len() > 1 {
            let name = parts.last().cloned().unwrap_or_default();
            let inner = self.inner.clone();
            self.found.push(Import { path: parts, inner, name, is_public: false, is_used: true });
        }
        visit::visit_path(self, path);
    }
}

/// Returns what runs up in a crate whose layers are `order`, and the folders that it does not list.
pub fn complaints(name: &str, order: &[&str], arrows: &BTreeSet<Arrow>) -> Vec<String> {
    let room = |path: &str| path.split('/').next().unwrap_or_default().to_string();
    let layer = |path: &str| order.iter().position(|layer| *layer == room(path));
    let mut found = BTreeSet::new();
    for Arrow { from, to } in arrows {
        let (Some(above), Some(below)) = (layer(from), layer(to)) else {
            for path in [from, to].into_iter().filter(|path| layer(path).is_none()) {
                found.insert(format!("{name}: {}: not among its layers (ROOMS)", room(path)));
            }
            continue;
        };
        let is_known = UPWARD.iter().any(|(c, f, t, _)| *c == name && f == from && t == to);
        if above > below && !is_known {
            found.insert(format!("{name}: {from} imports {to}, which is above it"));
        }
    }
    found.into_iter().collect()
}

/// Returns the circles of files that import each other, each sorted.
pub fn circles(arrows: &BTreeSet<Arrow>) -> BTreeSet<Vec<&str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Arrow { from, to } in arrows {
        next.entry(from).or_default().push(to);
    }
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut stack = next.get(from).cloned().unwrap_or_default();
        while let Some(file) = stack.pop() {
            if seen.insert(file) {
                stack.extend(next.get(file).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reach(from))).collect();
    let is_linked = |a: &str, b: &str| reached.get(a).is_some_and(|seen| seen.contains(b));
    let circle = |file: &&&str| -> Vec<&str> {
        let with = |other: &&&str| is_linked(file, other) && is_linked(other, file);
        next.keys().filter(with).copied().collect()
    };
    next.keys().map(|file| circle(&file)).filter(|circle| !circle.is_empty()).collect()
}

/// Returns the circles of a crate that `known` does not list, with their imports, and the listed
/// ones that do not exist any more.
pub fn circle_complaints(name: &str, known: &[Circle], arrows: &BTreeSet<Arrow>) -> Vec<String> {
    let found = circles(arrows);
    let of_crate: BTreeSet<Vec<&str>> = known
        .iter()
        .filter(|(krate, ..)| *krate == name)
        .map(|(_, files, _)| files.to_vec())
        .collect();
    let new = found.difference(&of_crate).map(|files| {
        let is_in = |path: &String| files.contains(&path.as_str());
        let inner = arrows.iter().filter(|arrow| is_in(&arrow.from) && is_in(&arrow.to));
        let inner: Vec<_> =
            inner.map(|Arrow { from, to }| format!("\n    {from} -> {to}")).collect();
        format!("{name}: not among CIRCLES: {files:?}{}", inner.concat())
    });
    let stale = of_crate.difference(&found);
    new.chain(stale.map(|files| format!("{name}: no longer a circle: {files:?}"))).collect()
}

/// Returns the entries of [`UPWARD`] that the crate does not need any more.
pub fn stale(name: &str, arrows: &BTreeSet<Arrow>) -> Vec<String> {
    let of_crate = UPWARD.iter().filter(|(krate, ..)| *krate == name);
    let gone = of_crate.filter(|(_, from, to, _)| {
        !arrows.contains(&Arrow { from: (*from).into(), to: (*to).into() })
    });
    gone.map(|(_, from, to, _)| format!("{name}: {from} does not import {to} any more")).collect()
}

#[cfg(test)]
mod tests;
