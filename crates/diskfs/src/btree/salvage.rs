//! Reading a damaged tree as far as possible.
//!
//! A block of a tree contains its owner, its address and its neighbours, so leaves can be found to
//! which no block points any more. Not every block that looks like one of the tree is one: freed
//! blocks stay on the device unchanged. Salvage trusts these:
//!
//! * a block that can be reached from the root;
//! * a neighbour of a trusted leaf whose link points back to that leaf, whose keys all lie on its
//!   side, and that has no other known owner: a leaf is unlinked before it is freed;
//! * if no leaf can be reached from the root: a row of at least two leaves without a known owner,
//!   from one without a left neighbour to one without a right neighbour, each linked with the next
//!   both ways and in order, if it agrees with what else is known of the tree. If there are several
//!   such rows, the one that was written last: the others are older than all of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Error, Kind, Nodes, Record, Tree};
use crate::format::Expected;

/// The contents of a block, as the block describes itself.
struct LeafCopy<K: Kind> {
    level: u16,
    left: u64,
    right: u64,
    lsn: u64,
    /// The records of a leaf, in order.
    records: Vec<Record<K>>,
}

/// The readable remains of a tree.
pub(crate) struct Kept<K: Kind> {
    /// The records of all leaves that can be read, in order.
    pub(crate) records: Vec<Record<K>>,
    /// Blocks that certainly belong to this tree, leaves and others.
    pub(crate) blocks: Vec<u64>,
}

type Leaves<K> = BTreeMap<u64, LeafCopy<K>>;

/// The caller's knowledge about the blocks around a tree.
pub(crate) trait Around<K: Kind> {
    /// Returns whether a block has no known owner.
    fn is_unowned(&self, block: u64) -> bool;
    /// Returns all blocks that claim to be of this tree, and that have no known owner.
    fn search(&self) -> Vec<u64>;
    /// Returns whether a tree with `leaves` leaves and these records in them can be this one.
    fn agrees(&self, records: &[Record<K>], leaves: usize) -> bool;
}

impl<K: Kind> Tree<K> {
    /// Reads as much of the tree as possible, whatever its damage.
    ///
    /// # Errors
    /// Returns [`Error::Nodes`] only.
    pub(crate) fn salvage<N: Nodes>(
        &self,
        nodes: &N,
        around: &impl Around<K>,
    ) -> Result<Kept<K>, Error<N::Error>> {
        let mut visited = Vec::new();
        self.check(nodes, |_| {}, |address| visited.push(address))?;
        let (mut leaves, mut blocks) = (Leaves::new(), Vec::new());
        for address in visited {
            match self.piece(nodes, address)? {
                Some(leaf) if leaf.level == 0 => drop(leaves.insert(address, leaf)),
                Some(_) => blocks.push(address),
                None => {}
            }
        }
        if leaves.is_empty() {
            leaves = self.row(nodes, around)?;
        } else {
            self.neighbours(nodes, &mut leaves, around)?;
        }
        blocks.extend(leaves.keys());
        let mut records: Vec<_> = leaves.into_values().flat_map(|leaf| leaf.records).collect();
        records.sort_by_key(|record| record.key);
        records.dedup_by_key(|record| record.key);
        Ok(Kept { records, blocks })
    }

    /// Reads the block at `address`, if it is one of this tree and its records are in order.
    fn piece<N: Nodes>(
        &self,
        nodes: &N,
        address: u64,
    ) -> Result<Option<LeafCopy<K>>, Error<N::Error>> {
        let expected = Expected { check: |_, _| Ok(()), ..self.expected() };
        let block = match nodes.read(address, &expected) {
            Err(Error::Damage(_)) => return Ok(None),
            read => read?,
        };
        let view = self.view(address, &block).ok().filter(|view| view.disorder().is_none());
        Ok(view.map(|view| {
            let (left, right, records) = (view.left(), view.right(), view.records().to_vec());
            LeafCopy { level: view.level(), left, right, lsn: block.header().lsn.get(), records }
        }))
    }

    /// Reads a leaf that no block points to.
    fn leaf<N: Nodes>(
        &self,
        nodes: &N,
        address: u64,
    ) -> Result<Option<LeafCopy<K>>, Error<N::Error>> {
        if address == 0 || !nodes.is_possible(address) {
            return Ok(None);
        }
        let piece = self.piece(nodes, address)?;
        Ok(piece.filter(|piece| piece.level == 0 && !piece.records.is_empty()))
    }

    /// Adds the neighbours of leaves, their neighbours, and so on.
    fn neighbours<N: Nodes>(
        &self,
        nodes: &N,
        leaves: &mut Leaves<K>,
        around: &impl Around<K>,
    ) -> Result<(), Error<N::Error>> {
        let mut seen: BTreeSet<u64> = leaves.keys().copied().collect();
        let mut ends: Vec<u64> = seen.iter().copied().collect();
        while let Some(at) = ends.pop() {
            let Some(LeafCopy { left, right, records, .. }) = leaves.get(&at) else { continue };
            let least = records.first().map(|record| record.key);
            let most = records.last().map(|record| record.key);
            for (next, is_right) in [(*left, false), (*right, true)] {
                if seen.contains(&next) || !around.is_unowned(next) {
                    continue;
                }
                let Some(leaf) = self.leaf(nodes, next)? else { continue };
                let is_mutual = at == if is_right { leaf.left } else { leaf.right };
                let is_beside = match is_right {
                    true => leaf.records.first().map(|record| record.key) > most,
                    false => leaf.records.last().map(|record| record.key) < least,
                };
                if is_mutual && is_beside {
                    seen.insert(next);
                    ends.push(next);
                    leaves.insert(next, leaf);
                }
            }
        }
        Ok(())
    }

    /// Returns the complete row of leaves that was written last.
    fn row<N: Nodes>(
        &self,
        nodes: &N,
        around: &impl Around<K>,
    ) -> Result<Leaves<K>, Error<N::Error>> {
        let mut leaves = Leaves::new();
        for address in around.search() {
            leaves.extend(self.leaf(nodes, address)?.map(|leaf| (address, leaf)));
        }
        let firsts = leaves.iter().filter(|(_, leaf)| leaf.left == 0).map(|(address, _)| *address);
        let agrees = |row: &Vec<u64>| {
            let of = |address| leaves.get(address).map(|leaf| leaf.records.iter().copied());
            let records: Vec<_> = row.iter().filter_map(of).flatten().collect();
            around.agrees(&records, row.len())
        };
        // A root without records of its own has at least two children.
        let whole = firsts.filter_map(|first| whole_row(&leaves, first));
        let whole = whole.filter(|row| row.len() > 1 && agrees(row));
        let written = |row: &Vec<u64>| {
            row.iter().filter_map(|address| leaves.get(address)).map(|leaf| leaf.lsn).max()
        };
        let row = whole.max_by_key(written).unwrap_or_default();
        let taken = row.into_iter().filter_map(|at| leaves.remove(&at).map(|leaf| (at, leaf)));
        Ok(taken.collect())
    }
}

/// Returns the row of leaves that begins with `first`, if it has an end and is in order.
fn whole_row<K: Kind>(leaves: &Leaves<K>, first: u64) -> Option<Vec<u64>> {
    let (mut row, mut at) = (vec![first], leaves.get(&first)?);
    while at.right != 0 {
        let next = leaves.get(&at.right)?;
        let is_linked = Some(&next.left) == row.last();
        let is_behind = next.records.first()?.key > at.records.last()?.key;
        // Ascending keys prevent a cycle.
        if !is_linked || !is_behind {
            return None;
        }
        row.push(at.right);
        at = next;
    }
    Some(row)
}
