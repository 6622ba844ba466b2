//! The outcome of histories with moves and hard links, by objects and edges: a model of the table
//! of rules for merges in which no conflict is told.
//!
//! Names are edges from a directory to an object. What one side has changed is taken, edge by edge
//! and object by object, and a directory stays for what is in it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::model::{by_lines, three, timeless};
use crate::merge::tests::tree_common::{Known, Object, Tree};

/// An object of the base, or one that is new on the side with this number.
type Id = (usize, Object);
/// A directory, and a name in it.
type Key = (Id, OsString);

/// A tree as objects and edges.
#[derive(Default)]
struct Graph {
    edges: BTreeMap<Key, Id>,
    objects: BTreeMap<Id, Known>,
    /// The objects of the base of which this has a next version.
    versions: BTreeSet<Id>,
}

const ROOT: &str = "/";

/// Returns the graph of a side. An object is one of the base if that has it; a new one that has a
/// name of one that is gone, of the same type, is the next version of that. Of several the one with
/// the first name is.
fn graph(tree: &Tree, side: usize, base: Option<&Graph>) -> Graph {
    let mut graph = Graph::default();
    let there: BTreeSet<Object> = tree.values().map(|known| known.object).collect();
    let is_old = |object: &Object| base.is_none_or(|base| base.objects.contains_key(&(0, *object)));
    let old = there.iter().filter(|object| is_old(object));
    let mut ids: BTreeMap<Object, Id> = old.map(|object| (*object, (0, *object))).collect();
    let mut version = |object: Object, key: Option<&Key>, ids: &BTreeMap<Object, Id>| {
        let former = *base?.edges.get(key?)?;
        let is_kind = former.1.2 == object.2 && matches!(object.2, 0o040_000 | 0o100_000);
        let is_gone = is_kind && !there.contains(&former.1) && !ids.contains_key(&object);
        (is_gone && graph.versions.insert(former)).then_some(former)
    };
    let key_of = |path: &Path, ids: &BTreeMap<Object, Id>| -> Option<Key> {
        Some((ids[&tree[path.parent()?].object], path.file_name()?.to_owned()))
    };
    // Parents come before what is in them.
    let (mut dirs, files): (Vec<&PathBuf>, Vec<&PathBuf>) =
        tree.keys().partition(|path| tree[*path].is_dir());
    dirs.sort_by_key(|path| path.components().count());
    for path in dirs {
        let object = tree[path].object;
        let found = version(object, key_of(path, &ids).as_ref(), &ids);
        ids.entry(object).or_insert(found.unwrap_or((side, object)));
    }
    let mut files: Vec<_> =
        files.into_iter().map(|path| (key_of(path, &ids), tree[path].object)).collect();
    files.sort();
    for (key, object) in &files {
        if let Some(found) = version(*object, key.as_ref(), &ids) {
            ids.insert(*object, found);
        }
    }
    for (path, known) in tree {
        let id = *ids.entry(known.object).or_insert((side, known.object));
        graph.edges.extend(key_of(path, &ids).map(|key| (key, id)));
        graph.objects.insert(id, timeless(known.clone()));
    }
    graph
}

/// Takes objects of a side for those that the other one has under the same name, where `may` says
/// so: directories, and files with the same contents.
fn take(other: &Graph, side: Graph, may: impl Fn(&Graph, &Id, &Id) -> bool) -> Graph {
    let mut taken: BTreeMap<Id, Id> = BTreeMap::new();
    loop {
        let now = |id: &Id| *taken.get(id).unwrap_or(id);
        let found = side.edges.iter().find_map(|((dir, name), id)| {
            let twin = other.edges.get(&(now(dir), name.clone()))?;
            let (one, two) = (&other.objects[twin], &side.objects[id]);
            let is_twin = id.1.2 == twin.1.2
                && (one.is_dir() || one.content == two.content)
                && one.attributes.3 == two.attributes.3
                && may(&side, twin, id);
            let is_free = !taken.contains_key(id) && !taken.values().any(|it| it == twin);
            (is_twin && is_free).then_some((*id, *twin))
        });
        match found {
            Some((id, twin)) => _ = taken.insert(id, twin),
            None => break,
        }
    }
    let now = |id: Id| *taken.get(&id).unwrap_or(&id);
    let edges = side.edges.into_iter().map(|((dir, name), id)| ((now(dir), name), now(id)));
    let objects = side.objects.into_iter().map(|(id, known)| (now(id), known));
    Graph { edges: edges.collect(), objects: objects.collect(), versions: side.versions }
}

/// Takes new objects of a side for those of the base that it has removed, and that the other side
/// has given the same name. A file that was taken for the next version of one that both have
/// removed is rather that.
fn take_moved(other: &Graph, side: Graph) -> Graph {
    take(other, side, |side, twin, id| {
        let is_version = side.versions.contains(id) && !other.objects.contains_key(id);
        let is_new = id.0 != 0 || (is_version && !side.objects[id].is_dir());
        is_new && twin.0 == 0 && !side.objects.contains_key(twin)
    })
}

/// Merges what is in one object. `None` if that is a conflict.
fn object(base: Option<&Known>, ours: &Known, theirs: &Known) -> Option<Known> {
    let content = three(base.map(|it| &it.content), &ours.content, &theirs.content);
    let mut is_merged = false;
    let content = match content {
        Ok(content) => content,
        Err(_) => {
            is_merged = true;
            by_lines(&base?.content, &ours.content, &theirs.content)?
        }
    };
    let mtime = three(base.map(|it| &it.mtime), &ours.mtime, &theirs.mtime);
    let mtime = mtime.ok().filter(|_| !is_merged).unwrap_or(ours.mtime.max(theirs.mtime));
    let one = |of: fn(&Known) -> u32| three(base.map(of).as_ref(), &of(ours), &of(theirs)).ok();
    let attributes = (
        one(|it| it.attributes.0)?,
        one(|it| it.attributes.1)?,
        one(|it| it.attributes.2)?,
        ours.attributes.3,
    );
    let get = |known: &Known, name: &OsString| {
        known.xattrs.iter().find(|it| it.0 == *name).map(|it| it.1.clone())
    };
    let names: BTreeSet<_> = ours.xattrs.iter().chain(&theirs.xattrs).map(|it| &it.0).collect();
    let mut xattrs = Vec::new();
    for name in names {
        let before = base.and_then(|base| get(base, name));
        let value = three(Some(&before), &get(ours, name), &get(theirs, name)).ok()?;
        xattrs.extend(value.map(|value| (name.clone(), value)));
    }
    Some(Known { content, attributes, mtime, xattrs, ..ours.clone() })
}

/// Returns the tree that a merge gives, or what of it is a conflict.
pub(super) fn union(base: &Tree, ours: &Tree, theirs: &Tree) -> Result<Tree, String> {
    let root = base[Path::new(ROOT)].object;
    let base = graph(base, 0, None);
    let theirs = graph(theirs, 2, Some(&base));
    let ours = take_moved(&theirs, graph(ours, 1, Some(&base)));
    let theirs = take_moved(&ours, theirs);
    // Both have made them.
    let theirs = take(&ours, theirs, |_, twin, id| twin.0 == 1 && id.0 == 2);
    let all = [&base, &ours, &theirs];
    let names: BTreeSet<(&Key, &Id)> = all.iter().flat_map(|it| &it.edges).collect();
    let mut edges: BTreeMap<Key, Id> = BTreeMap::new();
    for (key, id) in names {
        let [before, one, other] = all.map(|it| it.edges.get(key) == Some(id));
        let is_there = if before { one && other } else { one || other };
        if is_there && edges.insert(key.clone(), *id).is_some() {
            return Err(format!("two objects have the name {:?}", key.1));
        }
    }
    // The root has no name, and is always there.
    let root = (0, root);
    // Directories stay for what is in them.
    loop {
        let named: BTreeSet<Id> = edges.values().copied().collect();
        let lost: BTreeSet<Id> = edges
            .keys()
            .map(|key| key.0)
            .filter(|dir| !named.contains(dir) && *dir != root)
            .collect();
        if lost.is_empty() {
            return tree(&edges, root, all);
        }
        for dir in lost {
            let place = [&ours, &theirs, &base].into_iter().find_map(|it| {
                it.edges.iter().find(|(_, id)| **id == dir).map(|(key, _)| key.clone())
            });
            let place = place.ok_or("a directory was nowhere")?;
            if edges.insert(place, dir).is_some() {
                return Err("the place of a directory that stays is taken".into());
            }
        }
    }
}

/// Returns the tree that edges make.
fn tree(
    edges: &BTreeMap<Key, Id>,
    root: Id,
    [base, ours, theirs]: [&Graph; 3],
) -> Result<Tree, String> {
    let known = |id: &Id| -> Result<Known, String> {
        let [before, one, other] = [base, ours, theirs].map(|it| it.objects.get(id));
        match (one, other) {
            (Some(one), Some(other)) => {
                object(before, one, other).ok_or_else(|| format!("{id:?}: both have changed it"))
            }
            (one, other) => one.or(other).or(before).cloned().ok_or_else(|| "nothing".to_owned()),
        }
    };
    let (mut found, mut firsts) = (Tree::new(), BTreeMap::<Id, PathBuf>::new());
    let mut next = vec![(PathBuf::from(ROOT), root)];
    let mut ids = BTreeMap::new();
    while let Some((path, id)) = next.pop() {
        let known = known(&id)?;
        if path.components().count() > 60 {
            return Err("directories are in a loop".into());
        }
        for ((_, name), below) in edges.iter().filter(|(key, _)| key.0 == id && known.is_dir()) {
            next.push((path.join(name), *below));
        }
        let first = firsts.entry(id).or_insert_with(|| path.clone());
        *first = path.clone().min(first.clone());
        ids.insert(path.clone(), id);
        found.insert(path, known);
    }
    for (path, known) in &mut found {
        known.first.clone_from(&firsts[&ids[path]]);
        known.object = Object::default();
    }
    let all: BTreeSet<&Id> = edges.values().collect();
    let is_lost = all.iter().any(|id| !firsts.contains_key(id));
    if is_lost { Err("directories are in a loop".into()) } else { Ok(found) }
}
