//! What can be read of a damaged tree.
//!
//! A block of a tree says whose it is, where it lies and who its neighbours are, so leaves can be
//! found that no block leads to any more. Not every block that looks like one of the tree is one:
//! blocks that were given up stay on the device as they were. These are believed:
//!
//! * a block that the root leads to;
//! * a neighbour of such a leaf that says the same, has only keys on its side, and is nobody
//!   else's: what was given up has been unlinked before;
//! * if the root leads to no leaf, a row of leaves that nobody has, two at least, from one without
//!   a neighbour on its left to one without a neighbour on its right, each linked with the next one
//!   both ways and in order, if it goes together with what else is known of the tree. If there are
//!   several, the one that was written last: what was there before is older than all of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Error, Expected, Kind, Nodes, Record, Tree};

/// A block, as it says itself.
struct Piece<K: Kind> {
    level: u16,
    left: u64,
    right: u64,
    lsn: u64,
    /// Those of a leaf, in order.
    records: Vec<Record<K>>,
}

/// What is left of a tree.
pub(crate) struct Kept<K: Kind> {
    /// The records of all leaves that can be read, in order.
    pub(crate) records: Vec<Record<K>>,
    /// Blocks that are of this tree for sure, leaves and others.
    pub(crate) blocks: Vec<u64>,
}

type Leaves<K> = BTreeMap<u64, Piece<K>>;

/// What a caller knows of the blocks around a tree.
pub(crate) trait Around<K: Kind> {
    /// Whether nobody is known to have a block.
    fn is_unowned(&self, block: u64) -> bool;
    /// All blocks that say that they are of this tree, and that nobody is known to have.
    fn search(&self) -> Vec<u64>;
    /// Whether a tree with so many leaves, and these records in them, can have been this one.
    fn agrees(&self, records: &[Record<K>], leaves: usize) -> bool;
}

impl<K: Kind> Tree<K> {
    /// What can be read of the tree, whatever is wrong with it.
    ///
    /// # Errors
    /// [`Error::Nodes`] only.
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

    /// The block at `address`, if it is one of this tree and its records are in order.
    fn piece<N: Nodes>(
        &self,
        nodes: &N,
        address: u64,
    ) -> Result<Option<Piece<K>>, Error<N::Error>> {
        let expected = Expected { check: |_, _| Ok(()), ..self.expected() };
        let block = match nodes.read(address, &expected) {
            Err(Error::Damage(_)) => return Ok(None),
            read => read?,
        };
        let view = self.view(address, &block).ok().filter(|view| view.disorder().is_none());
        Ok(view.map(|view| {
            let (left, right, records) = (view.left(), view.right(), view.records().to_vec());
            Piece { level: view.level(), left, right, lsn: block.header().lsn.get(), records }
        }))
    }

    /// A leaf that nothing leads to.
    fn leaf<N: Nodes>(&self, nodes: &N, address: u64) -> Result<Option<Piece<K>>, Error<N::Error>> {
        if address == 0 || !nodes.is_possible(address) {
            return Ok(None);
        }
        let piece = self.piece(nodes, address)?;
        Ok(piece.filter(|piece| piece.level == 0 && !piece.records.is_empty()))
    }

    /// Adds the neighbours of leaves, theirs, and so on.
    fn neighbours<N: Nodes>(
        &self,
        nodes: &N,
        leaves: &mut Leaves<K>,
        around: &impl Around<K>,
    ) -> Result<(), Error<N::Error>> {
        let mut seen: BTreeSet<u64> = leaves.keys().copied().collect();
        let mut ends: Vec<u64> = seen.iter().copied().collect();
        while let Some(at) = ends.pop() {
            let Some(Piece { left, right, records, .. }) = leaves.get(&at) else { continue };
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

    /// The row of leaves that was written last, of those that are whole.
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
        // A root that has no records itself leads to two blocks at least.
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

/// The row of leaves that begins with `first`, if it has an end and is in order.
fn whole_row<K: Kind>(leaves: &Leaves<K>, first: u64) -> Option<Vec<u64>> {
    let (mut row, mut at) = (vec![first], leaves.get(&first)?);
    while at.right != 0 {
        let next = leaves.get(&at.right)?;
        let is_linked = Some(&next.left) == row.last();
        let is_behind = next.records.first()?.key > at.records.last()?.key;
        // Keys that ascend keep it from going around.
        if !is_linked || !is_behind {
            return None;
        }
        row.push(at.right);
        at = next;
    }
    Some(row)
}
