//! The differences between two branches: names as edges between inodes, and inodes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use vfscale_diskfs::InodeCore;

use super::candidates::Unclear;
use super::compare::{Changes, changes};
use super::object::Object;
use super::side::Side;
use super::tree::{Edge, Tree};
use crate::error::pool::PoolError;

/// The differences between the sides `a` and `b`.
pub(crate) struct Edges<'s> {
    pub(super) a: Tree<'s>,
    pub(super) b: Tree<'s>,
    /// The names that only `a` has, and those that only `b` has, by inode.
    pub(crate) gone: BTreeMap<Object, Vec<Edge>>,
    pub(crate) come: BTreeMap<Object, Vec<Edge>>,
    /// The inodes of both that differ.
    pub(crate) changed: BTreeMap<u64, Changes>,
    /// The names that both have of these, as far as they are known.
    pub(crate) kept: HashMap<u64, Vec<Edge>>,
    /// The directories that need not be searched for more.
    pub(super) searched: BTreeSet<u64>,
    /// The directories of both that have different times of the last change.
    pub(crate) times: BTreeSet<u64>,
}

impl<'s> Edges<'s> {
    /// Compares two sides: by their blocks, or by a walk if these do not tell all. Blocks for the
    /// I/O.
    ///
    /// # Errors
    /// [`PoolError::Damage`] and errors of reading.
    pub(crate) fn of(a: &'s Side, b: &'s Side) -> Result<Self, PoolError> {
        Self::by_blocks(a, b).or_else(|_| Self::walk(a, b))
    }

    pub(super) fn new(a: &'s Side, b: &'s Side) -> Self {
        let (a, b) = (Tree::new(a), Tree::new(b));
        let (gone, come, changed, kept, searched, times) = Default::default();
        Self { a, b, gone, come, changed, kept, searched, times }
    }

    /// Returns the numbers of all inodes that differ, or whose names do.
    pub(crate) fn touched(&self) -> BTreeSet<u64> {
        let names = self.gone.keys().chain(self.come.keys());
        names.map(|(ino, ..)| ino).chain(self.changed.keys()).copied().collect()
    }

    /// Finds all names of these inodes. Blocks for the I/O.
    ///
    /// # Errors
    /// [`PoolError::Damage`] and errors of reading.
    pub(crate) fn named(mut self, inodes: &BTreeSet<u64>) -> Result<Self, PoolError> {
        match self.find_names(|ino| inodes.contains(&ino)) {
            Ok(()) => Ok(self),
            Err(Unclear) => Self::walk(self.a.side, self.b.side),
        }
    }

    /// Compares an inode that both have.
    pub(super) fn compare(
        &mut self,
        ino: u64,
        (one, other): (&InodeCore, &InodeCore),
        path: &Path,
    ) -> Result<(), PoolError> {
        let changes = changes((self.a.side, ino, one), (self.b.side, ino, other), path)?;
        if changes.any() {
            self.changed.insert(ino, changes);
        }
        if one.is_directory() && one.mtime != other.mtime {
            self.times.insert(ino);
        }
        Ok(())
    }
}
