//! The on-disk B+tree, which every index uses.
//!
//! # Purpose
//!
//! One tree serves free space, inode chunks, directories, extents and attributes. A [`Kind`]
//! defines the keys and values; [`Nodes`] provides the blocks, so the tree depends on neither cache
//! nor journal. A [`Tree`] is just the address of a root, which never moves while the tree lives.
//!
//! # Invariants
//!
//! * All leaves are at level 0, and a block at level n points to blocks at level n - 1 only.
//! * Keys in a block ascend strictly. A block at a level above 0 has a bound for each of its
//!   children: all keys below that child are not less than its bound, and less than the next one.
//!   The first bound of a block is its own bound in its parent; that of the root is the least key
//!   of all ([`Kind::KEY_MIN`]). Therefore insertion and removal change bounds only if they split,
//!   merge or rebalance blocks.
//! * All blocks of a level are linked both ways, in order.
//! * A block has between a third of the records that fit and all of them. The first and the last of
//!   a level may have fewer: at least one in a leaf, two above. The root may have fewer: none if it
//!   is a leaf, two if not. So keys inserted in order, forward or backward, leave full blocks
//!   behind.
//!
//! A descent checks the invariants that it can see, for each block every time; the order in the
//! whole block is checked when it arrives from the device; the rest by [`Tree::check`]. Any
//! violation ends the call with a numbered [`Damage`](crate::format::Damage).
//!
//! # All or nothing
//!
//! A change first reads, allocates and makes writable all blocks that it needs ([`Nodes`]): at most
//! one block more than the tree has levels. Only then does it change anything, and nothing can fail
//! any more. A call that returns an error has changed nothing and allocated nothing.
//!
//! # Locks, references
//!
//! None. Reading calls hold the blocks by shared reference, changing ones by unique reference; the
//! owner of the tree (a group, an inode) holds its lock for the whole call. A [`Cursor`] borrows
//! the blocks and so excludes changes.
//!
//! The structure is that of Bayer and McCreight, "Organization and Maintenance of Large Ordered
//! Indices" (1972), with records in the leaves only, and with links between neighbours as in XFS.

mod bulk;
mod check;
pub(crate) mod counted;
mod cursor;
mod descend;
mod destroy;
mod insert;
#[cfg(test)]
pub(crate) mod memory;
mod node;
mod nodes;
mod remove;
mod salvage;

use std::fmt;
use std::marker::PhantomData;

use zerocopy::little_endian::U64;

pub(crate) use crate::format::btree::Branch;
pub use crate::format::btree::{Entry, Kind, LEVELS_MAX, OnDisk, Record};
pub use crate::format::damage::{TreeDamage, TreeFault};
pub use check::Summary;
pub use cursor::{Cursor, Range};
pub use nodes::{Error, Nodes};

use crate::format::Expected;
pub(crate) use salvage::{Around, Kept};

use crate::format::btree::AREA_BYTES;

/// A record, and its location in the tree.
#[derive(Debug)]
pub(crate) struct FoundRecord<K: Kind> {
    address: u64,
    index: usize,
    pub(crate) record: Record<K>,
}

/// A tree on disk: its root and its owner. `Copy`, `Send` and `Sync`.
pub struct Tree<K: Kind> {
    root: u64,
    owner: u64,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Clone for Tree<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kind> Copy for Tree<K> {}

impl<K: Kind> fmt::Debug for Tree<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tree = f.debug_struct("Tree");
        tree.field("kind", &K::MAGIC).field("root", &self.root).field("owner", &self.owner);
        tree.finish()
    }
}

impl<K: Kind> Tree<K> {
    /// Maximum number of records of a leaf.
    pub const LEAF_RECORDS_MAX: usize = capacity::<K, K::Value>();
    /// Maximum number of records of a block above the leaves.
    pub const BRANCH_RECORDS_MAX: usize = capacity::<K, U64>();

    const FITS: () = {
        assert!(Self::LEAF_RECORDS_MAX >= 4 && Self::BRANCH_RECORDS_MAX >= 4);
    };

    /// Returns the tree whose root is at the address `root`, in blocks, and whose blocks belong to
    /// `owner`. Reads nothing.
    #[must_use]
    pub fn at(root: u64, owner: u64) -> Self {
        let () = Self::FITS;
        Self { root, owner, kind: PhantomData }
    }

    /// Creates an empty tree of one block, near the address `hint` if possible.
    ///
    /// # Errors
    /// Returns the error of [`Nodes::allocate`].
    pub fn create<N: Nodes>(nodes: &mut N, owner: u64, hint: u64) -> Result<Self, Error<N::Error>> {
        let expected = Self::at(0, owner).expected();
        let (root, slot) = nodes.allocate(hint, &expected)?;
        node::write::<K::Key, K::Value>(nodes.edit(slot), 0, [0; 2], &[]);
        Ok(Self::at(root, owner))
    }

    /// Makes `block` the root of a tree of these few records, which are in order and fit into a
    /// leaf. For new volumes, whose trees have fixed addresses.
    pub fn write_root(block: &mut crate::format::Block, records: &[Record<K>]) {
        debug_assert!(records.len() <= Self::LEAF_RECORDS_MAX);
        node::write::<K::Key, K::Value>(block, 0, [0; 2], records);
    }

    /// Returns the address of the root, in blocks. Never changes.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Returns the owner of the blocks.
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Returns the value of `key`. Reads one block per level.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn get<N: Nodes>(
        &self,
        nodes: &N,
        key: K::Key,
    ) -> Result<Option<K::Value>, Error<N::Error>> {
        let leaf = self.descend(nodes, descend::Target::Key(key), None)?;
        Ok(if leaf.is_found { leaf.record(self)?.map(|record| record.value) } else { None })
    }

    /// Returns the record of a key and its location; `None` if there is no such key.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub(crate) fn find<N: Nodes>(
        &self,
        nodes: &N,
        key: K::Key,
    ) -> Result<Option<FoundRecord<K>>, Error<N::Error>> {
        let leaf = self.descend(nodes, descend::Target::Key(key), None)?;
        let record = leaf.record(self)?.filter(|_| leaf.is_found);
        let (address, index) = (leaf.address, leaf.index);
        Ok(record.map(|record| FoundRecord { address, index, record }))
    }

    /// Returns the record with the least key that is not less than `key`.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn at_or_after<N: Nodes>(
        &self,
        nodes: &N,
        key: K::Key,
    ) -> Result<Option<Record<K>>, Error<N::Error>> {
        self.seek(nodes, key)?.forward()
    }

    /// Returns the record with the greatest key that is not greater than `key`.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn at_or_before<N: Nodes>(
        &self,
        nodes: &N,
        key: K::Key,
    ) -> Result<Option<Record<K>>, Error<N::Error>> {
        let mut cursor = self.seek(nodes, key)?;
        if cursor.is_found() { cursor.forward() } else { cursor.backward() }
    }

    /// Returns the record with the least key.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn first<N: Nodes>(&self, nodes: &N) -> Result<Option<Record<K>>, Error<N::Error>> {
        self.seek(nodes, K::KEY_MIN)?.forward()
    }

    /// Returns the record with the greatest key.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn last<N: Nodes>(&self, nodes: &N) -> Result<Option<Record<K>>, Error<N::Error>> {
        self.seek_end(nodes)?.backward()
    }

    /// Counts the records. Reads all leaves.
    ///
    /// # Errors
    /// Returns [`Error`] if a block is damaged or can't be read.
    pub fn count<N: Nodes>(&self, nodes: &N) -> Result<u64, Error<N::Error>> {
        let mut cursor = self.seek(nodes, K::KEY_MIN)?;
        let mut records = cursor.leaf_records()?;
        while cursor.step_right()? {
            records += cursor.leaf_records()?;
        }
        Ok(records)
    }

    /// Returns the number of levels: 1 if the root is a leaf.
    ///
    /// # Errors
    /// Returns [`Error`] if the root is damaged or can't be read.
    pub fn height<N: Nodes>(&self, nodes: &N) -> Result<u16, Error<N::Error>> {
        let guard = self.read(nodes, self.root, self.root)?;
        Ok(self.view(self.root, &guard)?.level() + 1)
    }

    /// Returns the expected properties of its blocks.
    #[must_use]
    pub fn expected(&self) -> Expected {
        Expected { magic: K::MAGIC, owner: self.owner, check: node::check_order::<K> }
    }
}

/// Returns the maximum number of records with values of type `V` in a block.
const fn capacity<K: Kind, V>() -> usize {
    let fit = AREA_BYTES / size_of::<Entry<K::Key, V>>();
    if fit < K::RECORDS_MAX { fit } else { K::RECORDS_MAX }
}

/// Returns the maximum number of records of a block at `level`.
pub(crate) const fn records_max<K: Kind>(level: u16) -> usize {
    if level == 0 { Tree::<K>::LEAF_RECORDS_MAX } else { Tree::<K>::BRANCH_RECORDS_MAX }
}

/// Returns the minimum number of records of the first and the last block of a level below the root.
pub(crate) const fn records_least(level: u16) -> usize {
    if level == 0 { 1 } else { 2 }
}

/// Returns the minimum number of records of every other block of the level.
pub(crate) const fn records_min<K: Kind>(level: u16) -> usize {
    let (third, least) = (records_max::<K>(level) / 3, records_least(level));
    if third > least { third } else { least }
}

#[cfg(test)]
mod tests;
