//! The descent from the root to a leaf.

use smallvec::SmallVec;

use super::node::{Link, Place};
use super::{Error, Kind, Nodes, Record, TreeFault};
use crate::btree::Tree;
use crate::format::Damage;
use crate::format::damage::TreeDamage;

/// The target of a descent.
pub(crate) enum Target<K: Kind> {
    Key(K::Key),
    /// The end, after the last record.
    End,
}

/// A block on the path.
#[derive(Debug)]
pub(crate) struct Step<K: Kind> {
    pub(crate) place: Place<K>,
    pub(crate) level: u16,
    pub(crate) len: usize,
    /// The record whose child is next, or in the leaf the first that is not before the target.
    pub(crate) index: usize,
    pub(crate) right: u64,
}

/// The path to a leaf, which is the last of its blocks. Few trees are higher than this.
pub(crate) type TreePath<K> = SmallVec<[Step<K>; 4]>;

/// The leaf at the end of the path.
pub(crate) struct Leaf<K: Kind, R> {
    pub(crate) address: u64,
    pub(crate) guard: R,
    /// The first record that is not before the target; after the last one if all are.
    pub(crate) index: usize,
    /// Whether that record has the key of the target.
    pub(crate) is_found: bool,
    /// The lower bound of all keys to the right of the leaf, if known.
    pub(crate) high: Option<K::Key>,
}

impl<K: Kind, R: std::ops::Deref<Target = crate::format::Block>> Leaf<K, R> {
    /// Returns the record at the index.
    pub(crate) fn record(&self, tree: &Tree<K>) -> Result<Option<Record<K>>, Damage> {
        let view = tree.view(self.address, &self.guard)?;
        Ok(view.records().get(self.index).copied())
    }
}

impl<K: Kind> Tree<K> {
    /// Returns the position of the root.
    pub(crate) fn root_place(&self) -> Place<K> {
        Place {
            address: self.root,
            level: None,
            low: K::KEY_MIN,
            high: None,
            left: Link::Nothing,
            right: Link::Nothing,
        }
    }

    /// Rejects an address in block `from` that no block of a tree can have.
    pub(crate) fn check_address<N: Nodes>(
        nodes: &N,
        from: u64,
        address: u64,
    ) -> Result<(), Error<N::Error>> {
        if address != 0 && nodes.is_possible(address) {
            return Ok(());
        }
        let fault = TreeFault::Pointer { child: address };
        Err(Damage::from(TreeDamage { address: from, fault }).into())
    }

    /// Reads a block that block `from` points to.
    pub(crate) fn read<'n, N: Nodes>(
        &self,
        nodes: &'n N,
        from: u64,
        address: u64,
    ) -> Result<N::Ref<'n>, Error<N::Error>> {
        Self::check_address(nodes, from, address)?;
        nodes.read(address, &self.expected())
    }

    /// Descends to the leaf where the target is or would be, and puts all blocks on the path into
    /// `path`. Each is one level lower than the one before, so the descent terminates.
    pub(crate) fn descend<'n, N: Nodes>(
        &self,
        nodes: &'n N,
        target: Target<K>,
        mut path: Option<&mut TreePath<K>>,
    ) -> Result<Leaf<K, N::Ref<'n>>, Error<N::Error>> {
        let mut place = self.root_place();
        let mut from = self.root;
        loop {
            let address = place.address;
            let guard = self.read(nodes, from, address)?;
            let view = self.view(address, &guard)?;
            view.check(&place)?;
            let (level, len, right) = (view.level(), view.len(), view.right());
            let (index, is_found, child) = if level == 0 {
                let records = view.records();
                let index = match &target {
                    Target::Key(key) => records.partition_point(|record| record.key < *key),
                    Target::End => len,
                };
                let is_found = match &target {
                    Target::Key(key) => records.get(index).is_some_and(|found| found.key == *key),
                    Target::End => false,
                };
                (index, is_found, None)
            } else {
                let index = match &target {
                    // The first bound is not greater than any key below this block.
                    Target::Key(key) => view.branches().partition_point(|to| to.key <= *key),
                    Target::End => len,
                };
                let index = index.saturating_sub(1);
                (index, false, view.child(&place, index))
            };
            if let Some(path) = path.as_deref_mut() {
                path.push(Step { place, level, len, index, right });
            }
            let Some(child) = child else {
                return Ok(Leaf { address, guard, index, is_found, high: place.high });
            };
            (from, place) = (address, child);
        }
    }
}
