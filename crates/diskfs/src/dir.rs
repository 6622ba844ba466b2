//! Directories: names and their inodes.
//!
//! # Purpose
//!
//! A directory begins as a list of entries in its inode. When that is full, the entries move into a
//! B+tree ([`DirTree`]); each takes as many records of a fixed size as its name needs. [`Nodes`]
//! provides the blocks of the tree.
//!
//! # Positions
//!
//! The position of an entry is the [hash](NameHash) of its name, or, since names may have the same
//! hash, up to fifteen after that. Directories are read in the order of positions, and the position
//! of an entry never changes. So a caller that reads a directory in several calls gets every entry
//! exactly once that exists throughout, whatever other entries are added or removed. The hash is
//! keyed by the volume, so names that collide can't be found without knowing its id. A seventeenth
//! name of one hash is rejected.
//!
//! # Invariants
//!
//! * Entries are in ascending order of positions, in the inode as in the tree; the records of an
//!   entry are consecutive.
//! * [`InodeCore::size`] of a directory is the sum of the sizes that its entries have in an inode,
//!   wherever they are stored; [`InodeCore::blocks`] is the number of blocks of the tree.
//! * A tree stays a tree when it gets small: an empty directory may have one block.
//! * A lookup in a tree reads one block per level; one more if a long name extends over two leaves.
//!
//! # All or nothing
//!
//! A change of one record is all or nothing ([`btree`](crate::btree)); a name of more than 21 bytes
//! has several records. After an error the caller discards the core and the nodes together, as a
//! dropped transaction does.
//!
//! # Locks, references
//!
//! None here. A caller that changes a directory holds its inode's lock until the commit has
//! returned. A caller that reads one with a tree holds it shared; entries in the inode are read
//! from the core, which never changes.

mod check;
mod entry;
mod inline;
mod tree;

use std::ops::{ControlFlow, Deref};

pub use entry::{DirEntry, Found, is_name};

use crate::Uuid;
#[cfg(doc)]
use crate::btree::Error;
use crate::btree::counted::Counted;
use crate::btree::{Nodes, Tree};
pub use crate::format::damage::DirFault;
pub use crate::format::dir::DirTree;
use crate::format::dir::{COLLISIONS_MAX, DirKey, POSITION_MIN};
use crate::format::inode::block_of;
use crate::format::{Block, Expected};
use crate::inode::core::{DataFork, FileKind, InodeCore};
use entry::{possible, taken_bit};
use tree::Outcome;

/// Maximum number of records of an entry in a tree.
pub const RECORDS_OF_ENTRY: usize = 9;

/// The hash function of names in the directories of a volume: SipHash-2-4 (Aumasson and Bernstein
/// 2012), with the id of the volume as its key. `Copy`.
#[derive(Clone, Copy, Debug)]
pub struct NameHash {
    key: [u8; 16],
    #[cfg(test)]
    planted: Option<fn(&[u8]) -> u64>,
}

impl NameHash {
    /// Returns the hash of the names of `volume`.
    #[must_use]
    pub fn of(volume: Uuid) -> Self {
        Self {
            key: volume.to_bytes(),
            #[cfg(test)]
            planted: None,
        }
    }

    /// Creates a hash that a test chooses.
    #[cfg(test)]
    pub(crate) fn planted(hash: fn(&[u8]) -> u64) -> Self {
        Self { key: [0; 16], planted: Some(hash) }
    }

    /// Returns the first position that `name` can have: a multiple of 16.
    #[must_use]
    pub fn position(&self, name: &[u8]) -> u64 {
        #[cfg(test)]
        if let Some(planted) = self.planted {
            return planted(name);
        }
        let hash = siphasher::sip::SipHasher24::new_with_key(&self.key).hash(name);
        ((hash >> 1) & !(COLLISIONS_MAX - 1)).max(POSITION_MIN)
    }
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Insertion {
    /// Inserted at this position.
    At(u64),
    /// The name exists already; nothing has changed.
    Exists,
    /// There are sixteen names with its hash: nothing has changed.
    Full,
    /// No file can have this name: nothing has changed.
    BadName,
}

/// The directory with the number `ino`. `Copy`.
#[derive(Clone, Copy, Debug)]
pub struct Directory {
    ino: u64,
    hash: NameHash,
}

impl Directory {
    /// Creates a handle of directory `ino` of a volume whose names `hash` places.
    #[must_use]
    pub fn new(ino: u64, hash: NameHash) -> Self {
        Self { ino, hash }
    }

    /// Looks up `name`, and returns its inode.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or can't be read.
    pub fn lookup<N: Nodes>(
        &self,
        nodes: &N,
        core: &InodeCore,
        name: &[u8],
    ) -> Outcome<Option<Found>, N> {
        match &core.data {
            DataFork::Tree { root } => {
                let at = (self.ino, self.hash.position(name));
                let (found, _) = tree::find(at, nodes, &self.tree(*root), name)?;
                Ok(found)
            }
            data => {
                let bytes = inline::bytes(data);
                let mut found = None;
                for entry in inline::entries(self.ino, bytes) {
                    let (_, entry) = entry?;
                    if entry.name == name {
                        found = Some(possible(self.ino, nodes, entry.found())?);
                        break;
                    }
                }
                Ok(found)
            }
        }
    }

    /// Inserts `name` with an inode. If the entry does not fit into the directory's inode, moves
    /// the entries into a tree.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or a block can't be had.
    pub fn insert<N: Nodes>(
        &self,
        nodes: &mut N,
        core: &mut InodeCore,
        name: &[u8],
        (ino, kind): (u64, FileKind),
    ) -> Outcome<Insertion, N> {
        if !is_name(name) {
            return Ok(Insertion::BadName);
        }
        let (found, taken) = self.find(nodes, core, name)?;
        if found.is_some() {
            return Ok(Insertion::Exists);
        }
        let Some(free) = (0..COLLISIONS_MAX).find(|index| taken & 1 << index == 0) else {
            return Ok(Insertion::Full);
        };
        let entry = DirEntry { position: self.hash.position(name) + free, ino, kind, name };
        self.insert_at(nodes, core, &entry)?;
        Ok(Insertion::At(entry.position))
    }

    /// Inserts an entry at its position, which is free.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or a block can't be had.
    pub(crate) fn insert_at<N: Nodes>(
        &self,
        nodes: &mut N,
        core: &mut InodeCore,
        entry: &DirEntry<'_>,
    ) -> Outcome<(), N> {
        let inserted = match &core.data {
            DataFork::Tree { .. } => None,
            data => inline::inserted(self.ino, inline::bytes(data), entry, core.data_room())?,
        };
        match inserted {
            Some(bytes) => core.data = DataFork::Inline(bytes),
            None => {
                let mut counted = Counted::new(nodes);
                let tree = self.grown_out(&mut counted, core)?;
                tree::insert(self.ino, &mut counted, &tree, entry)?;
                count(core, counted.grown());
            }
        }
        core.size = core.size.saturating_add(entry_bytes(entry.name));
        Ok(())
    }

    /// Removes `name`, and returns its former inode; `None`, and no change, if there is no such
    /// name.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or a block can't be had.
    pub fn remove<N: Nodes>(
        &self,
        nodes: &mut N,
        core: &mut InodeCore,
        name: &[u8],
    ) -> Outcome<Option<Found>, N> {
        let Some(found) = self.lookup(nodes, core, name)? else { return Ok(None) };
        self.remove_at(nodes, core, found.position, name)?;
        Ok(Some(found))
    }

    /// Removes `name` at `position`, whatever its inode is.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or a block can't be had.
    pub(crate) fn remove_at<N: Nodes>(
        &self,
        nodes: &mut N,
        core: &mut InodeCore,
        position: u64,
        name: &[u8],
    ) -> Outcome<(), N> {
        match &core.data {
            DataFork::Tree { root } => {
                let mut counted = Counted::new(nodes);
                tree::remove(self.ino, &mut counted, &self.tree(*root), position, name)?;
                count(core, counted.grown());
            }
            data => {
                let bytes = inline::removed(self.ino, inline::bytes(data), position)?;
                core.data = DataFork::Inline(bytes);
            }
        }
        core.size = core.size.saturating_sub(entry_bytes(name));
        Ok(())
    }

    /// Replaces the inode of `name`, and returns the former one; `None`, and no change, if there is
    /// no such name. The entry retains its position.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or a block can't be had.
    pub fn replace<N: Nodes>(
        &self,
        nodes: &mut N,
        core: &mut InodeCore,
        name: &[u8],
        (ino, kind): (u64, FileKind),
    ) -> Outcome<Option<Found>, N> {
        let Some(found) = self.lookup(nodes, core, name)? else { return Ok(None) };
        let entry = DirEntry { position: found.position, ino, kind, name };
        self.replace_at(nodes, core, &entry)?;
        Ok(Some(found))
    }

    /// Replaces the entry that has the position and the name of `entry`.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or a block can't be had.
    pub(crate) fn replace_at<N: Nodes>(
        &self,
        nodes: &mut N,
        core: &mut InodeCore,
        entry: &DirEntry<'_>,
    ) -> Outcome<(), N> {
        match &core.data {
            DataFork::Tree { root } => tree::update(self.ino, nodes, &self.tree(*root), entry)?,
            data => {
                let bytes = inline::replaced(self.ino, inline::bytes(data), entry)?;
                core.data = DataFork::Inline(bytes);
            }
        }
        Ok(())
    }

    /// Passes `emit` the entries after position `behind`, 0 for all, in order, until it breaks.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or can't be read.
    pub fn read<N: Nodes>(
        &self,
        nodes: &N,
        core: &InodeCore,
        behind: u64,
        mut emit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Outcome<(), N> {
        match &core.data {
            DataFork::Tree { root } => {
                tree::read(self.ino, nodes, &self.tree(*root), behind, |entry| {
                    possible(self.ino, nodes, entry.found()).map(|_| emit(entry))
                })
            }
            data => {
                for entry in inline::entries(self.ino, inline::bytes(data)) {
                    let (_, entry) = entry?;
                    possible(self.ino, nodes, entry.found())?;
                    if entry.position > behind && emit(entry).is_break() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// Returns whether the directory has no entry.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or can't be read.
    pub fn is_empty<N: Nodes>(&self, nodes: &N, core: &InodeCore) -> Outcome<bool, N> {
        match &core.data {
            DataFork::Tree { root } => Ok(self.tree(*root).first(nodes)?.is_none()),
            data => Ok(inline::bytes(data).is_empty()),
        }
    }

    /// Returns the levels of its tree, 0 for none.
    ///
    /// # Errors
    /// Returns [`Error`] if the root of the tree is damaged or can't be read.
    pub(crate) fn levels<N: Nodes>(&self, nodes: &N, core: &InodeCore) -> Outcome<u16, N> {
        match &core.data {
            DataFork::Tree { root } => self.tree(*root).height(nodes),
            _ => Ok(0),
        }
    }

    /// Passes `hold` each block of its tree that changes of names with the first position `base`
    /// may need, as [`Tree::around`] does. Returns the positions whose records all lie in the same
    /// leaves: the first one, and the one behind the last. `None` if there is no tree.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or can't be read.
    pub(crate) fn around<N: Nodes, B: Deref<Target = Block>>(
        &self,
        nodes: &N,
        core: &InodeCore,
        base: u64,
        hold: impl Fn(u64, &Expected) -> Outcome<B, N>,
    ) -> Outcome<Option<(u64, u64)>, N> {
        let DataFork::Tree { root } = core.data else { return Ok(None) };
        let keys = (DirKey::new(base, 0), DirKey::new(base + COLLISIONS_MAX - 1, u8::MAX));
        let (low, high) = self.tree(root).around(nodes, keys, hold)?;
        // An entry whose first records lie in the leaf before is not whole here.
        let first = low.position.get() + u64::from(low.part > 0);
        Ok(Some((first, high.map_or(u64::MAX, |high| high.position.get()))))
    }

    /// Finds `name`, and returns the taken ones of its sixteen positions, as bits.
    ///
    /// # Errors
    /// Returns [`Error`] if the directory is damaged or can't be read.
    pub(crate) fn find<N: Nodes>(
        &self,
        nodes: &N,
        core: &InodeCore,
        name: &[u8],
    ) -> Outcome<(Option<Found>, u16), N> {
        self.find_at(nodes, core, (self.hash.position(name), name))
    }

    /// Finds a name, like [`find`](Self::find), whose first position is `base`.
    ///
    /// # Errors
    /// Errors of [`find`](Self::find).
    pub(crate) fn find_at<N: Nodes>(
        &self,
        nodes: &N,
        core: &InodeCore,
        (base, name): (u64, &[u8]),
    ) -> Outcome<(Option<Found>, u16), N> {
        match &core.data {
            DataFork::Tree { root } => tree::find((self.ino, base), nodes, &self.tree(*root), name),
            data => {
                let (mut found, mut taken) = (None, 0);
                for entry in inline::entries(self.ino, inline::bytes(data)) {
                    let (_, entry) = entry?;
                    taken |= taken_bit(base, entry.position);
                    found = found.or((entry.name == name).then(|| entry.found()));
                }
                Ok((found, taken))
            }
        }
    }

    /// Returns its tree, which is made from the entries in the inode if there is none yet.
    fn grown_out<N: Nodes>(
        &self,
        nodes: &mut N,
        core: &mut InodeCore,
    ) -> Outcome<Tree<DirTree>, N> {
        if let DataFork::Tree { root } = core.data {
            return Ok(self.tree(root));
        }
        let mut records = Vec::new();
        for entry in inline::entries(self.ino, inline::bytes(&core.data)) {
            let (_, entry) = entry?;
            records.extend(tree::records(&entry));
        }
        let tree = Tree::build(nodes, self.ino, block_of(self.ino), &records, 100)?;
        core.data = DataFork::Tree { root: tree.root() };
        Ok(tree)
    }

    fn tree(&self, root: u64) -> Tree<DirTree> {
        Tree::at(root, self.ino)
    }
}

/// Returns the bytes of an entry in an inode.
fn entry_bytes(name: &[u8]) -> u64 {
    (crate::format::dir::ENTRY_BYTES + name.len()) as u64
}

fn count(core: &mut InodeCore, grown: i64) {
    core.blocks = core.blocks.saturating_add_signed(grown);
}

#[cfg(test)]
mod tests;
