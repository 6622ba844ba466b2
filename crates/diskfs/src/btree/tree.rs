//! A tree: its root, its owner, and the capacity of its blocks.

use std::fmt;
use std::marker::PhantomData;

use zerocopy::little_endian::U64;

use super::capacity::capacity;
use super::node::{self, View};
use super::{Kind, Record};
use crate::format::{Block, Damage, Expected};

/// A tree on disk: its root and its owner. `Copy`, `Send` and `Sync`.
pub struct Tree<K: Kind> {
    pub(super) root: u64,
    pub(super) owner: u64,
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
    pub fn at(root: u64, owner: u64) -> Self {
        let () = Self::FITS;
        Self { root, owner, kind: PhantomData }
    }

    /// Makes `block` the root of a tree of these few records, which are in order and fit into a
    /// leaf. For new volumes, whose trees have fixed addresses.
    pub fn write_root(block: &mut Block, records: &[Record<K>]) {
        debug_assert!(records.len() <= Self::LEAF_RECORDS_MAX);
        node::write::<K::Key, K::Value>(block, 0, [0; 2], records);
    }

    /// Returns the address of the root, in blocks. Never changes.
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Returns the owner of the blocks.
    pub fn owner(&self) -> u64 {
        self.owner
    }

    /// Returns the expected properties of its blocks.
    pub fn expected(&self) -> Expected {
        Expected { magic: K::MAGIC, owner: self.owner, check: node::check_order::<K> }
    }

    /// Returns a view of the block that was read at `address`.
    pub(crate) fn view<'b>(&self, address: u64, block: &'b Block) -> Result<View<'b, K>, Damage> {
        View::new(address, self.owner, block)
    }
}
