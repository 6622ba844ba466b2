//! The difference between the base of a merge and one side: names as edges between objects.
//!
//! A file that a side has made under the name of one that is gone from it is taken for the next
//! version of that: so programs replace files. Of two directories, or of two files with the same
//! contents, that both sides have made under one name, the second one is taken for the first one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use vfscale_diskfs::InodeCore;

use crate::diff::compare::changes;
use crate::diff::edges::Edges;
use crate::diff::object::is_same;
use crate::diff::side::Side;
use crate::diff::tree::Edge;
use crate::error::pool::PoolError;

/// An object: an inode of the base, or one that is new on a side; by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Id {
    Base(u64),
    Into(u64),
    From(u64),
}

/// A directory, and a name in it.
pub(super) type Key = (Id, Vec<u8>);

/// Names of directories, by the numbers of these.
type Names = BTreeMap<u64, BTreeMap<Vec<u8>, u64>>;

/// A side, compared with the base.
pub(super) struct Delta<'s> {
    pub(super) base: &'s Side,
    pub(super) side: &'s Side,
    new_id: fn(u64) -> Id,
    /// The names that only the base has.
    lost: Names,
    /// The names that only the side has.
    come: Names,
    /// Objects of both that differ.
    pub(super) changed: BTreeSet<Id>,
    /// Directories of both whose names have changed, by the time of that.
    pub(super) times: BTreeSet<Id>,
    /// The names that both have of objects that differ.
    met: BTreeMap<Id, BTreeSet<Key>>,
    /// The objects for which new inodes of the side are taken, and the other way round.
    alias: HashMap<u64, Id>,
    pub(super) aliased: BTreeMap<Id, u64>,
    /// The names that differ: the object in the base, and the one of the side.
    pub(super) edges: BTreeMap<Key, (Option<Id>, Option<Id>)>,
}

/// The names of one object that differ.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    pub(super) lost: BTreeSet<Key>,
    pub(super) come: BTreeSet<Key>,
}

impl<'s> Delta<'s> {
    /// Takes the changes of a side. `new_id` makes the id of an inode that only the side has.
    pub(super) fn new(
        base: &'s Side,
        side: &'s Side,
        new_id: fn(u64) -> Id,
        edges: Edges<'_>,
    ) -> Self {
        let (lost, come, changed, times, met, alias, aliased, names) = Default::default();
        let mut delta = Self {
            base,
            side,
            new_id,
            lost,
            come,
            changed,
            times,
            met,
            alias,
            aliased,
            edges: names,
        };
        delta.take_edges(edges);
        delta
    }

    /// Takes what a comparison has found.
    fn take_edges(&mut self, found: Edges<'_>) {
        for (names, found) in [(&mut self.lost, found.gone), (&mut self.come, found.come)] {
            for ((ino, ..), edges) in found {
                for Edge { dir, name } in edges {
                    names.entry(dir).or_default().insert(name.into(), ino);
                }
            }
        }
        for (ino, edges) in found.kept {
            let keys = edges.into_iter().map(|Edge { dir, name }| (Id::Base(dir), name.into()));
            self.met.entry(Id::Base(ino)).or_default().extend(keys);
        }
        self.changed = found.changed.into_keys().map(Id::Base).collect();
        self.times = found.times.into_iter().map(Id::Base).collect();
    }

    /// Returns whether the base and the side have the same object with a number.
    fn is_same(&self, ino: u64) -> Result<bool, PoolError> {
        let root = Path::new("/");
        let (one, other) = (self.base.find(ino, root)?, self.side.find(ino, root)?);
        Ok(matches!((one, other), (Some(one), Some(other)) if is_same(ino, &one, &other)))
    }

    /// Returns the number on the side of an object, if it is there.
    pub(super) fn version(&self, id: Id) -> Result<Option<u64>, PoolError> {
        if let Some(ino) = self.aliased.get(&id) {
            return Ok(Some(*ino));
        }
        match id {
            Id::Base(ino) => Ok(self.is_same(ino)?.then_some(ino)),
            Id::Into(ino) | Id::From(ino) => Ok((id == (self.new_id)(ino)).then_some(ino)),
        }
    }

    /// Returns the object that an inode of the side is.
    pub(super) fn id(&self, ino: u64) -> Result<Id, PoolError> {
        match self.alias.get(&ino) {
            Some(id) => Ok(*id),
            None if self.is_same(ino)? => Ok(Id::Base(ino)),
            None => Ok((self.new_id)(ino)),
        }
    }

    /// Compares an object with its next version.
    fn compare(&mut self, id: Id, old: u64, new: u64) -> Result<(), PoolError> {
        let path = Path::new("/");
        let (one, other) = (self.base.inode(old, path)?, self.side.inode(new, path)?);
        if changes((self.base, old, &one), (self.side, new, &other), path)?.any() {
            self.changed.insert(id);
        }
        Ok(())
    }

    /// Takes a new inode of the side for an object, if `is_version` says so of both.
    fn take(&mut self, ino: u64, id: Id) -> bool {
        let is_free = !self.alias.contains_key(&ino) && !self.aliased.contains_key(&id);
        if is_free {
            self.alias.insert(ino, id);
            self.aliased.insert(id, ino);
        }
        is_free
    }

    /// Takes what was replaced for a next version: directories from the root down, then files.
    /// Where several files have the names of one, or one has those of several, the first name
    /// decides.
    pub(super) fn take_versions(&mut self) -> Result<(), PoolError> {
        let mut dirs = Vec::new();
        for ino in self.come.keys() {
            if self.is_same(*ino)? {
                dirs.push(*ino);
            }
        }
        while let Some(dir) = dirs.pop() {
            for (key, (old, new)) in self.replaced(dir, InodeCore::is_directory)? {
                if self.take_version(key, old, new)? {
                    self.times.insert(Id::Base(old));
                    dirs.push(new);
                }
            }
        }
        let mut files = BTreeMap::new();
        for dir in self.come.keys() {
            files.extend(self.replaced(*dir, InodeCore::is_regular)?);
        }
        for (key, (old, new)) in files {
            self.take_version(key, old, new)?;
        }
        self.find_edges()
    }

    /// Returns those names in a directory that led to an inode which is gone, and lead to a new
    /// one, and both are of a kind.
    fn replaced(
        &self,
        dir: u64,
        is_kind: fn(&InodeCore) -> bool,
    ) -> Result<BTreeMap<Key, (u64, u64)>, PoolError> {
        let (mut found, root) = (BTreeMap::new(), Path::new("/"));
        let Id::Base(old_dir) = self.id(dir)? else { return Ok(found) };
        let (Some(lost), Some(come)) = (self.lost.get(&old_dir), self.come.get(&dir)) else {
            return Ok(found);
        };
        for (name, new) in come {
            let Some(old) = lost.get(name) else { continue };
            if !self.is_same(*old)?
                && !self.is_same(*new)?
                && is_kind(&self.base.inode(*old, root)?)
                && is_kind(&self.side.inode(*new, root)?)
            {
                found.insert((Id::Base(old_dir), name.clone()), (*old, *new));
            }
        }
        Ok(found)
    }

    /// Takes an inode for the next version of one of the base whose name it has. Returns whether
    /// neither of them was taken yet.
    fn take_version(&mut self, key: Key, old: u64, new: u64) -> Result<bool, PoolError> {
        let is_taken = self.take(new, Id::Base(old));
        if is_taken {
            self.compare(Id::Base(old), old, new)?;
            self.met.entry(Id::Base(old)).or_default().insert(key);
        }
        Ok(is_taken)
    }

    /// Takes new objects for those that the other side has made under the same name, or `beside`
    /// it, from the root down.
    pub(super) fn take_twins(
        &mut self,
        other: &Delta<'_>,
        beside: impl Fn(&[u8]) -> Vec<u8>,
    ) -> Result<(), PoolError> {
        let mut dirs: Vec<_> = self.come.keys().copied().collect();
        dirs.retain(|ino| self.alias.contains_key(ino) || self.is_same(*ino).unwrap_or(true));
        dirs.reverse();
        while let Some(dir) = dirs.pop() {
            let id = self.id(dir)?;
            for (name, new) in self.come.get(&dir).cloned().unwrap_or_default() {
                if self.is_same(new)? {
                    continue;
                }
                for name in [beside(&name), name.clone()].iter().rev() {
                    let twin = other.edges.get(&(id, name.clone())).and_then(|edge| edge.1);
                    let Some(twin @ Id::Into(ino)) = twin else { continue };
                    if let Some(is_dir) = self.is_twin(new, other.side, ino)?
                        && self.take(new, twin)
                    {
                        if is_dir {
                            self.times.insert(twin);
                            dirs.push(new);
                        }
                        break;
                    }
                }
            }
        }
        self.find_edges()
    }

    /// Takes new objects for those of the base that are gone here, and that the `other` side has
    /// under the same name, or under one that is `beside` it: so an earlier merge has brought them
    /// back.
    pub(super) fn take_restored(
        &mut self,
        other: &Delta<'_>,
        beside: impl Fn(&[u8]) -> Vec<Vec<u8>>,
    ) -> Result<(), PoolError> {
        let mut theirs: BTreeMap<Key, Id> = BTreeMap::new();
        let lost = self.edges.iter().filter(|(key, _)| !other.edges.contains_key(*key));
        let lost = lost.filter_map(|(key, (before, _))| Some((key, (*before)?)));
        let come = other.edges.iter().filter_map(|(key, (_, after))| Some((key, (*after)?)));
        for (key, id) in lost.chain(come) {
            let is_base = matches!(id, Id::Base(_));
            if is_base && self.version(id)?.is_none() && other.version(id)?.is_some() {
                for name in beside(&key.1) {
                    theirs.entry((key.0, name)).or_insert(id);
                }
                theirs.insert(key.clone(), id);
            }
        }
        let mut dirs: Vec<u64> = self.come.keys().copied().collect();
        while let (Some(dir), false) = (dirs.pop(), theirs.is_empty()) {
            let id = self.id(dir)?;
            for (name, new) in self.come.get(&dir).cloned().unwrap_or_default() {
                let Some(old) = theirs.get(&(id, name)).copied() else { continue };
                let (true, Some(ino)) = (!self.is_same(new)?, other.version(old)?) else {
                    continue;
                };
                let Some(is_dir) = self.is_twin(new, other.side, ino)? else { continue };
                // A file that the other side has there is nearer than one that it has removed.
                let former = self.alias.get(&new).copied().filter(|_| !is_dir);
                if let Some(former) = former
                    && other.version(former)?.is_none()
                {
                    self.alias.remove(&new);
                    self.aliased.remove(&former);
                    self.changed.remove(&former);
                }
                if self.take(new, old) {
                    if let Id::Base(ino) = old {
                        self.compare(old, ino, new)?;
                    }
                    if is_dir {
                        self.times.insert(old);
                        dirs.push(new);
                    }
                }
            }
        }
        self.find_edges()
    }

    /// Returns whether two objects are directories, if they are such or have the same contents.
    fn is_twin(&self, ino: u64, side: &Side, twin: u64) -> Result<Option<bool>, PoolError> {
        let root = Path::new("/");
        let (one, other) = (self.side.inode(ino, root)?, side.inode(twin, root)?);
        let is_kind = one.file_type() == other.file_type() && one.rdev == other.rdev;
        let is_same =
            is_kind && !changes((self.side, ino, &one), (side, twin, &other), root)?.content;
        Ok(is_same.then(|| one.is_directory()))
    }

    /// Finds the names that differ.
    fn find_edges(&mut self) -> Result<(), PoolError> {
        let mut edges: BTreeMap<Key, (Option<Id>, Option<Id>)> = BTreeMap::new();
        for (dir, names) in &self.lost {
            for (name, ino) in names {
                edges.entry((Id::Base(*dir), name.clone())).or_default().0 = Some(Id::Base(*ino));
            }
        }
        for (dir, names) in &self.come {
            let dir = self.id(*dir)?;
            for (name, ino) in names {
                edges.entry((dir, name.clone())).or_default().1 = Some(self.id(*ino)?);
            }
        }
        edges.retain(|_, (before, after)| before != after);
        self.edges = edges;
        Ok(())
    }

    /// Returns the names that differ, by object.
    pub(super) fn moves(&self) -> BTreeMap<Id, Moves> {
        let mut moves: BTreeMap<Id, Moves> = BTreeMap::new();
        for (key, (before, after)) in &self.edges {
            if let Some(id) = before {
                moves.entry(*id).or_default().lost.insert(key.clone());
            }
            if let Some(id) = after {
                moves.entry(*id).or_default().come.insert(key.clone());
            }
        }
        moves
    }

    /// Returns names that the base and the side have of an object that differs: all, if both sides
    /// have touched it.
    pub(super) fn met(&self, id: Id) -> impl Iterator<Item = &Key> {
        self.met.get(&id).into_iter().flatten()
    }
}
