//! The rules of a merge: which names and which objects the result has.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::delta::{Delta, Id, Key, Moves};
use super::objects::{self, Change, Update};
use super::report::{Conflict, ConflictKind, Merged, Strategy};
use crate::error::pool::PoolError;

/// The longest name of a file, in bytes.
const NAME_MAX: usize = 255;

/// A conflict, with a name of the object in the result.
pub(super) struct Found {
    pub(super) kind: ConflictKind,
    pub(super) key: Key,
    /// Where FROM's is, if it is beside.
    pub(super) beside: Option<Key>,
}

/// The changes of INTO.
#[derive(Default)]
pub(super) struct Plan {
    /// Names that go, and names that come, with their objects.
    pub(super) removes: BTreeMap<Key, Id>,
    pub(super) adds: BTreeMap<Key, Id>,
    /// FROM's versions of objects, as files of their own.
    pub(super) copies: BTreeMap<Key, Id>,
    pub(super) updates: BTreeMap<Id, Update>,
    pub(super) conflicts: Vec<Found>,
}

impl Plan {
    pub(super) fn is_empty(&self) -> bool {
        let Self { removes, adds, copies, updates, .. } = self;
        removes.is_empty() && adds.is_empty() && copies.is_empty() && updates.is_empty()
    }
}

/// A merge that is decided on.
pub(super) struct Rules<'m> {
    pub(super) into: &'m Delta<'m>,
    pub(super) from: &'m Delta<'m>,
    strategy: Strategy,
    /// The names of the branches.
    labels: (&'m str, &'m str),
    into_moves: BTreeMap<Id, Moves>,
    from_moves: BTreeMap<Id, Moves>,
    /// The names in directories of INTO that were asked for.
    listed: HashMap<u64, BTreeMap<Vec<u8>, u64>>,
    /// Objects whose contents both have changed.
    contents: Vec<Id>,
    plan: Plan,
}

/// Returns the name of what stands beside `name`, of a branch; with a number from 2 on if that
/// has a file, too.
pub(super) fn beside(name: &[u8], branch: &str, number: u32) -> Vec<u8> {
    let end = if number < 2 { format!(".{branch}") } else { format!(".{branch}.{number}") };
    let mut stem = &name[..name.len().min(NAME_MAX - end.len())];
    if let Ok(text) = std::str::from_utf8(name) {
        stem = &name[..text.floor_char_boundary(stem.len())];
    }
    [stem, end.as_bytes()].concat()
}

/// Decides what a merge of FROM does to INTO, and tells it.
///
/// # Errors
/// [`PoolError::Damage`] and errors of reading.
pub(super) fn decide(
    into: &Delta<'_>,
    from: &Delta<'_>,
    strategy: Strategy,
    labels: (&str, &str),
) -> Result<(Plan, Merged), PoolError> {
    let (into_moves, from_moves) = (into.moves(), from.moves());
    let (listed, contents, plan) = Default::default();
    let mut rules =
        Rules { into, from, strategy, labels, into_moves, from_moves, listed, contents, plan };
    let touched: BTreeSet<Id> = rules.from_moves.keys().chain(&from.changed).copied().collect();
    let twins = from.aliased.keys().copied();
    for id in touched.into_iter().chain(twins).collect::<BTreeSet<_>>() {
        rules.object(id)?;
    }
    loop {
        let is_changed = rules.untie_loops()? | rules.restore_parents()? | rules.keep_parents()?;
        if !is_changed {
            break;
        }
    }
    rules.collide()?;
    rules.tell_contents()?;
    rules.times()?;
    let merged = rules.tell()?;
    Ok((rules.plan, merged))
}

impl Rules<'_> {
    fn moves(&self, id: Id) -> (Moves, Moves) {
        let of = |moves: &BTreeMap<Id, Moves>| moves.get(&id).cloned().unwrap_or_default();
        (of(&self.into_moves), of(&self.from_moves))
    }

    /// Returns the object that has a name in INTO, of a name that a side has changed.
    fn known(&self, key: &Key) -> Option<Id> {
        match self.into.edges.get(key) {
            Some((_, after)) => *after,
            None => self.from.edges.get(key).and_then(|(before, _)| *before),
        }
    }

    /// Returns the object that has a name in INTO.
    fn present(&mut self, key: &Key) -> Result<Option<Id>, PoolError> {
        if self.into.edges.contains_key(key) || self.from.edges.contains_key(key) {
            return Ok(self.known(key));
        }
        let Some(dir) = self.into.version(key.0)? else { return Ok(None) };
        let ino = self.list(dir)?.get(&key.1).copied();
        ino.map(|ino| self.into.id(ino)).transpose()
    }

    fn is_dir(&self, id: Id) -> Result<bool, PoolError> {
        let path = Path::new("/");
        match (self.into.version(id)?, self.from.version(id)?) {
            (Some(ino), _) => Ok(self.into.side.inode(ino, path)?.is_directory()),
            (None, Some(ino)) => Ok(self.from.side.inode(ino, path)?.is_directory()),
            (None, None) => Ok(false),
        }
    }

    fn conflict(&mut self, kind: ConflictKind, key: Key, beside: Option<Key>) {
        self.plan.conflicts.push(Found { kind, key, beside });
    }

    /// Decides on an object that FROM has touched.
    fn object(&mut self, id: Id) -> Result<(), PoolError> {
        match (self.into.version(id)?, self.from.version(id)?) {
            (None, None) => Ok(()),
            (Some(_), None) => {
                self.removed(id);
                Ok(())
            }
            (None, Some(_)) => {
                self.added(id);
                Ok(())
            }
            (Some(ino), Some(other)) => {
                self.renamed(id, ino)?;
                if self.from.changed.contains(&id) || !matches!(id, Id::Base(_)) {
                    self.changed(id, (ino, other))?;
                }
                Ok(())
            }
        }
    }

    /// FROM has removed what INTO has.
    fn removed(&mut self, id: Id) {
        let (ours, theirs) = self.moves(id);
        let is_changed = self.into.changed.contains(&id) || !ours.come.is_empty();
        if is_changed {
            let key = self.name(id, &ours, &theirs);
            self.conflict(ConflictKind::Removed, key, None);
            if self.strategy != Strategy::Theirs {
                return;
            }
        }
        for key in theirs.lost.into_iter().chain(ours.come) {
            if self.known(&key) == Some(id) {
                self.plan.removes.insert(key, id);
            }
        }
    }

    /// Returns a name of an object that INTO has.
    fn name(&self, id: Id, ours: &Moves, theirs: &Moves) -> Key {
        let met = self.into.met(id).chain(self.from.met(id));
        let met = met.filter(|key| !ours.lost.contains(*key));
        let all = ours.come.iter().chain(met).chain(&theirs.lost).chain(&theirs.come);
        let mut all: Vec<_> = all.filter(|key| self.is_kept(key, id)).collect();
        all.sort();
        let any = theirs.come.iter().chain(&theirs.lost).chain(&ours.lost).next();
        all.into_iter().next().or(any).cloned().unwrap_or_else(|| (id, Vec::new()))
    }

    /// Returns whether an object has a name in the result, of a name that it has on some side.
    fn is_kept(&self, key: &Key, id: Id) -> bool {
        if self.plan.adds.get(key) == Some(&id) {
            return true;
        }
        let is_touched = self.into.edges.contains_key(key) || self.from.edges.contains_key(key);
        !self.plan.removes.contains_key(key) && (!is_touched || self.known(key) == Some(id))
    }

    /// FROM has what INTO has not: an object that is new, or that INTO has removed.
    fn added(&mut self, id: Id) {
        let (ours, theirs) = self.moves(id);
        let names: BTreeSet<Key> =
            theirs.come.iter().chain(ours.lost.difference(&theirs.lost)).cloned().collect();
        if matches!(id, Id::Base(_)) {
            if !self.from.changed.contains(&id) && theirs.come.is_empty() {
                return;
            }
            let key = names.first().cloned().unwrap_or_else(|| (id, Vec::new()));
            self.conflict(ConflictKind::Removed, key, None);
            if self.strategy == Strategy::Ours {
                return;
            }
        }
        self.plan.adds.extend(names.into_iter().map(|key| (key, id)));
    }

    /// Both have an object: decides on its names.
    fn renamed(&mut self, id: Id, ino: u64) -> Result<(), PoolError> {
        let (ours, theirs) = self.moves(id);
        let mut come: BTreeSet<Key> = theirs.come.difference(&ours.come).cloned().collect();
        let mut lost: BTreeSet<Key> = theirs.lost.clone();
        lost.retain(|key| self.known(key) == Some(id));
        let is_twice = !ours.lost.is_disjoint(&theirs.lost)
            && !ours.come.is_empty()
            && !theirs.come.is_empty()
            && ours.come != theirs.come;
        if is_twice {
            if self.strategy == Strategy::Theirs {
                lost.extend(ours.come.difference(&theirs.come).cloned());
            } else {
                come.clear();
            }
            let kept = if self.strategy == Strategy::Theirs { &theirs } else { &ours };
            let key = kept.come.first().cloned().unwrap_or_else(|| (id, Vec::new()));
            self.conflict(ConflictKind::Renamed, key, None);
        }
        let links = self.into.side.inode(ino, Path::new("/"))?.nlink as usize;
        if come.is_empty() && !self.is_dir(id)? && lost.len() >= links && links > 0 {
            // Each side has kept a name that the other one has removed.
            if let Some(key) = lost.first().cloned() {
                self.conflict(ConflictKind::Removed, key, None);
            }
            lost.clear();
        }
        self.plan.removes.extend(lost.into_iter().map(|key| (key, id)));
        self.plan.adds.extend(come.into_iter().map(|key| (key, id)));
        Ok(())
    }

    /// Both have an object that FROM has changed: decides on what is in it.
    fn changed(&mut self, id: Id, (ino, other): (u64, u64)) -> Result<(), PoolError> {
        let base = match id {
            Id::Base(ino) => Some(ino),
            Id::Into(_) | Id::From(_) => None,
        };
        let (into, from) = (self.into, self.from);
        let base = base.map(|ino| (into.base, ino));
        let change: Change =
            objects::merge(base, (into.side, ino), (from.side, other), self.strategy)?;
        let (ours, theirs) = self.moves(id);
        let key = self.name(id, &ours, &theirs);
        for kind in change.conflicts {
            if kind == ConflictKind::Content {
                self.contents.push(id);
            } else {
                self.conflict(kind, key.clone(), None);
            }
        }
        if !change.update.is_empty() {
            self.plan.updates.insert(id, change.update);
        }
        Ok(())
    }

    /// Tells of contents that both have changed, once it is known which names are free.
    fn tell_contents(&mut self) -> Result<(), PoolError> {
        for id in std::mem::take(&mut self.contents) {
            let (ours, theirs) = self.moves(id);
            let (key, mut at) = (self.name(id, &ours, &theirs), None);
            if matches!(self.strategy, Strategy::Both | Strategy::Fail) {
                at = self.copy_beside(&key, id)?;
            }
            self.conflict(ConflictKind::Content, key, at);
        }
        Ok(())
    }

    /// Puts FROM's version of an object beside it, unless that is there already.
    fn copy_beside(&mut self, key: &Key, id: Id) -> Result<Option<Key>, PoolError> {
        let Some(version) = self.from.version(id)? else { return Ok(None) };
        for number in 1.. {
            let at = (key.0, beside(&key.1, self.labels.0, number));
            match self.result(&at)? {
                None => {
                    self.plan.copies.insert(at.clone(), id);
                    return Ok(Some(at));
                }
                Some(there) => {
                    let into = self.into;
                    let Some(ino) = into.version(there)? else { continue };
                    if objects::is_copy((into.side, ino), (self.from.side, version))? {
                        return Ok(Some(at));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns the object that has a name in the result.
    fn result(&mut self, key: &Key) -> Result<Option<Id>, PoolError> {
        if let Some(id) = self.plan.adds.get(key).or(self.plan.copies.get(key)) {
            return Ok(Some(*id));
        }
        Ok(self.present(key)?.filter(|_| !self.plan.removes.contains_key(key)))
    }

    /// Returns the directory in which a directory is in the result; `None` for the root.
    fn parent(&self, id: Id, added: &BTreeMap<Id, Key>) -> Result<Option<Id>, PoolError> {
        if let Some((dir, _)) = added.get(&id) {
            return Ok(Some(*dir));
        }
        let Some(ino) = self.into.version(id)? else { return Ok(None) };
        let parent = self.into.side.inode(ino, Path::new("/"))?.parent;
        if parent == ino { Ok(None) } else { self.into.id(parent).map(Some) }
    }

    /// Returns the directories that come to a name, with that.
    fn added_dirs(&self) -> Result<BTreeMap<Id, Key>, PoolError> {
        let mut added = BTreeMap::new();
        for (key, id) in &self.plan.adds {
            if self.is_dir(*id)? {
                added.insert(*id, key.clone());
            }
        }
        Ok(added)
    }

    /// Leaves directories where INTO has them whose moves would tie a loop. Returns whether there
    /// were some.
    fn untie_loops(&mut self) -> Result<bool, PoolError> {
        let added = self.added_dirs()?;
        let mut looped = BTreeSet::new();
        for moved in added.keys() {
            let (mut line, mut at) = (vec![*moved], *moved);
            while let Some(parent) = self.parent(at, &added)? {
                if parent == *moved {
                    looped.extend(line);
                    break;
                }
                if line.contains(&parent) {
                    break;
                }
                line.push(parent);
                at = parent;
            }
        }
        let mut is_changed = false;
        for id in looped {
            let Some(key) =
                added.get(&id).filter(|_| self.into.version(id).is_ok_and(|it| it.is_some()))
            else {
                continue;
            };
            self.plan.adds.remove(key);
            let kept: Vec<_> =
                self.plan.removes.iter().filter(|it| *it.1 == id).map(|it| it.0.clone()).collect();
            for key in kept {
                self.plan.removes.remove(&key);
                self.conflict(ConflictKind::Loop, key, None);
            }
            is_changed = true;
        }
        Ok(is_changed)
    }

    /// Has directories that INTO has removed come back, if something of FROM is to be in them.
    fn restore_parents(&mut self) -> Result<bool, PoolError> {
        let mut missing = BTreeSet::new();
        let made: BTreeSet<Id> = self.plan.adds.values().copied().collect();
        for (dir, _) in self.plan.adds.keys() {
            if !made.contains(dir) && self.into.version(*dir)?.is_none() {
                missing.insert(*dir);
            }
        }
        let is_changed = !missing.is_empty();
        for id in missing {
            let (ours, theirs) = self.moves(id);
            let names = theirs.come.iter().chain(ours.lost.difference(&theirs.lost)).next();
            self.plan.adds.extend(names.cloned().map(|key| (key, id)));
        }
        Ok(is_changed)
    }

    /// Keeps directories that FROM has removed, if something is to stay in them.
    fn keep_parents(&mut self) -> Result<bool, PoolError> {
        let mut full = BTreeSet::new();
        let keys = self.into.edges.keys().chain(self.from.edges.keys());
        for key in keys {
            if self.known(key).is_some() && !self.plan.removes.contains_key(key) {
                full.insert(key.0);
            }
        }
        full.extend(self.plan.adds.keys().map(|key| key.0));
        let added: BTreeSet<Id> = self.plan.adds.values().copied().collect();
        let mut kept = BTreeSet::new();
        for (key, id) in &self.plan.removes {
            if full.contains(id) && !added.contains(id) && self.is_dir(*id)? {
                kept.insert(key.clone());
            }
        }
        self.plan.removes.retain(|key, _| !kept.contains(key));
        Ok(!kept.is_empty())
    }

    /// Decides on names that both sides have given, to different objects.
    fn collide(&mut self) -> Result<(), PoolError> {
        for (key, id) in self.plan.adds.clone() {
            let there = self.present(&key)?.filter(|_| !self.plan.removes.contains_key(&key));
            let Some(there) = there.filter(|there| *there != id) else { continue };
            let is_dir = (self.is_dir(there)?, self.is_dir(id)?);
            match self.strategy {
                Strategy::Ours if !is_dir.1 && self.into.version(id)?.is_none() => {
                    self.plan.adds.remove(&key);
                    self.conflict(ConflictKind::Name, key, None);
                }
                Strategy::Theirs => {
                    self.plan.removes.insert(key.clone(), there);
                    if is_dir.0 {
                        let at = self.free(&key, self.labels.1, there)?;
                        self.plan.adds.insert(at, there);
                    }
                    self.conflict(ConflictKind::Name, key, None);
                }
                _ => {
                    self.plan.adds.remove(&key);
                    let at = self.free(&key, self.labels.0, id)?;
                    if self.present(&at)? != Some(id) {
                        self.plan.adds.insert(at.clone(), id);
                    }
                    self.conflict(ConflictKind::Name, key, Some(at));
                }
            }
        }
        Ok(())
    }

    /// Decides on the times of directories.
    fn times(&mut self) -> Result<(), PoolError> {
        let (into, from, path) = (self.into, self.from, Path::new("/"));
        for id in &from.times {
            let (Some(ino), Some(other)) = (into.version(*id)?, from.version(*id)?) else {
                continue;
            };
            let base = match id {
                Id::Base(ino) => Some(into.base.inode(*ino, path)?),
                Id::Into(_) | Id::From(_) => None,
            };
            let (one, two) = (into.side.inode(ino, path)?, from.side.inode(other, path)?);
            if let Some(time) = objects::mtime(base.as_ref(), &one, &two) {
                self.plan.updates.entry(*id).or_default().mtime = Some(time);
            }
        }
        Ok(())
    }

    /// Tells what the merge does.
    fn tell(&mut self) -> Result<Merged, PoolError> {
        let mut merged = Merged { added: self.plan.copies.len() as u64, ..Merged::default() };
        let added: BTreeSet<Id> = self.plan.adds.values().copied().collect();
        for id in &added {
            merged.added += u64::from(self.into.version(*id)?.is_none());
        }
        for id in self.plan.adds.values() {
            merged.moved += u64::from(self.into.version(*id)?.is_some());
        }
        let gone = self.plan.removes.values().filter(|id| !added.contains(id));
        merged.removed = gone.count() as u64;
        for update in self.plan.updates.values() {
            merged.texts += u64::from(matches!(update.content, objects::Content::Text(_)));
            let is_more = Update { mtime: None, ..update.clone() } != Update::default();
            merged.changed += u64::from(is_more);
        }
        let dirs = self.added_dirs()?;
        for Found { kind, key, beside } in std::mem::take(&mut self.plan.conflicts) {
            let path = self.path(&key, &dirs)?;
            let beside = beside.map(|key| self.path(&key, &dirs)).transpose()?;
            merged.conflicts.push(Conflict { path, kind, beside });
        }
        merged.conflicts.sort();
        merged.conflicts.dedup();
        Ok(merged)
    }

    /// Returns the path of a name in the result.
    fn path(&mut self, key: &Key, dirs: &BTreeMap<Id, Key>) -> Result<PathBuf, PoolError> {
        let (mut names, mut dir) = (vec![key.1.clone()], key.0);
        loop {
            let name = if let Some((_, name)) = dirs.get(&dir) {
                name.clone()
            } else if let Some(ino) = self.into.version(dir)? {
                let core = self.into.side.inode(ino, Path::new("/"))?;
                let names = self.list(core.parent)?;
                let found = names.iter().find(|(_, there)| **there == ino);
                found.map(|(name, _)| name.clone()).unwrap_or_default()
            } else {
                // Of what the result does not have: where FROM has it.
                let theirs = self.from_moves.get(&dir).and_then(|moves| moves.come.first());
                let ours = self.into_moves.get(&dir).and_then(|moves| moves.lost.first());
                let Some((parent, name)) = theirs.or(ours).cloned() else { break };
                names.push(name);
                dir = parent;
                continue;
            };
            let Some(parent) = self.parent(dir, dirs)? else { break };
            names.push(name);
            dir = parent;
        }
        let names = names.iter().rev().map(|name| OsStr::from_bytes(name));
        Ok(Path::new("/").join(names.collect::<PathBuf>()))
    }

    /// Returns the names in a directory of INTO.
    fn list(&mut self, dir: u64) -> Result<&BTreeMap<Vec<u8>, u64>, PoolError> {
        match self.listed.entry(dir) {
            Entry::Occupied(names) => Ok(names.into_mut()),
            Entry::Vacant(free) => {
                let (side, path) = (self.into.side, Path::new("/"));
                let names = side.names(dir, &side.inode(dir, path)?, path)?;
                let names = names.into_iter().map(|it| (it.name.to_vec(), it.ino)).collect();
                Ok(free.insert(names))
            }
        }
    }

    /// Returns a name beside another one that nothing has in the result but `id`.
    fn free(&mut self, key: &Key, label: &str, id: Id) -> Result<Key, PoolError> {
        let mut number = 1;
        loop {
            let at = (key.0, beside(&key.1, label, number));
            if self.result(&at)?.is_none_or(|there| there == id) {
                return Ok(at);
            }
            number += 1;
        }
    }
}
