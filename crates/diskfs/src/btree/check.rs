//! Check of a whole tree.

use std::collections::HashSet;

use super::capacity::{records_max, records_min};
use super::node::{Link, Place};
use super::{Error, Kind, Nodes, Record, Tree, TreeFault};
use crate::format::damage::TreeDamage;
use crate::format::{Damage, Expected};

/// The contents of a tree, as far as it could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of levels: 1 if the root is a leaf.
    pub levels: u16,
    /// Number of blocks, with the root.
    pub blocks: u64,
    /// Number of leaves.
    pub leaves: u64,
    /// Number of records in leaves.
    pub records: u64,
    /// Number of records that fit into these leaves.
    pub room: u64,
}

/// The last visited block of a level.
#[derive(Clone, Copy)]
enum Before {
    /// No block was visited yet.
    Start,
    /// A block, and its link to the right.
    Block { address: u64, right: u64 },
    /// A block that could not be read.
    Lost,
}

impl<K: Kind> Tree<K> {
    /// Reads the whole tree and calls `found` with each fault. Skips everything below a block that
    /// can't be read, and reads nothing twice. Calls `used` once with every address that the tree
    /// points to; the caller can compare these with free blocks and those of other owners.
    ///
    /// # Errors
    /// Returns [`Error::Nodes`] only.
    /// [`Error::Nodes`] only.
    pub fn check<N: Nodes>(
        &self,
        nodes: &N,
        found: impl FnMut(Damage),
        used: impl FnMut(u64),
    ) -> Result<Summary, Error<N::Error>> {
        self.check_records(nodes, found, used, |_| {})
    }

    /// Checks the tree as [`check`](Self::check) does, and passes the records of each leaf to
    /// `records`, from left to right: all that can be read, whatever their faults. So a caller that
    /// checks their meaning reads the tree once.
    ///
    /// # Errors
    /// Returns [`Error::Nodes`] only.
    pub fn check_records<N: Nodes>(
        &self,
        nodes: &N,
        mut found: impl FnMut(Damage),
        mut used: impl FnMut(u64),
        mut records: impl FnMut(&[Record<K>]),
    ) -> Result<Summary, Error<N::Error>> {
        // The walk checks the order of records itself, for it reports all faults, not only the
        // first.
        let expected = Expected { check: |_, _| Ok(()), ..self.expected() };
        let mut walk = Walk { tree: self, summary: Summary::default(), before: Vec::new() };
        let mut visited = HashSet::new();
        let mut ways = vec![(self.root, self.root_place())];
        while let Some((from, place)) = ways.pop() {
            let address = place.address;
            if address == 0 || !nodes.is_possible(address) {
                let fault = TreeFault::Pointer { child: address };
                found(TreeDamage { address: from, fault }.into());
                walk.lose(&place);
                continue;
            }
            if !visited.insert(address) {
                found(TreeDamage { address, fault: TreeFault::Shared }.into());
                walk.lose(&place);
                continue;
            }
            used(address);
            let checked = match nodes.read(address, &expected) {
                Ok(guard) => {
                    let children = walk.block(&place, &guard, &mut found);
                    if children.is_ok() {
                        records(self.view(address, &guard)?.records());
                    }
                    children
                }
                Err(Error::Damage(damage)) => Err(damage),
                Err(error) => return Err(error),
            };
            match checked {
                Ok(children) => ways.extend(children.into_iter().rev().map(|to| (address, to))),
                Err(damage) => {
                    found(damage);
                    walk.lose(&place);
                }
            }
        }
        walk.ends(&mut found);
        Ok(walk.summary)
    }
}

/// A walk through a tree, from left to right at each level.
struct Walk<'t, K: Kind> {
    tree: &'t Tree<K>,
    summary: Summary,
    /// The last visited block, by level.
    before: Vec<Before>,
}

impl<K: Kind> Walk<'_, K> {
    /// Checks one block. Returns the positions of its children, or an error if its contents are
    /// unusable.
    fn block(
        &mut self,
        place: &Place<K>,
        block: &crate::format::Block,
        found: &mut impl FnMut(Damage),
    ) -> Result<Vec<Place<K>>, Damage> {
        let view = self.tree.view(place.address, block)?;
        let level = view.level();
        if let Some(expected) = place.level
            && expected != level
        {
            return Err(view.fault(TreeFault::Level { found: level, expected }));
        }
        if place.level.is_none() {
            self.before = vec![Before::Start; usize::from(level) + 1];
            self.summary.levels = level + 1;
        }
        // Compares links with the block visited before, wherever that is in the tree.
        let unlinked = Place { left: Link::Unknown, right: Link::Unknown, ..*place };
        view.faults(&unlinked, |fault| found(view.fault(fault)));
        if let Some(record) = view.disorder() {
            found(view.fault(TreeFault::Order { record: record as u16 }));
        }
        let is_edge = view.left() == 0 || view.right() == 0;
        let least = records_min::<K>(level);
        if !is_edge && view.len() < least {
            let (least, len) = (least as u16, view.len() as u16);
            found(view.fault(TreeFault::Fill { found: len, least }));
        }
        self.link(place.address, level, [view.left(), view.right()], found);
        self.summary.blocks += 1;
        if level == 0 {
            self.summary.leaves += 1;
            self.summary.records += view.len() as u64;
            self.summary.room += records_max::<K>(0) as u64;
        }
        Ok((0..view.branches().len()).filter_map(|index| view.child(place, index)).collect())
    }

    /// Compares the links of a block with the block before it.
    fn link(
        &mut self,
        address: u64,
        level: u16,
        [left, right]: [u64; 2],
        found: &mut impl FnMut(Damage),
    ) {
        let Some(before) = self.before.get_mut(usize::from(level)) else { return };
        let mut report = |address, fault| found(TreeDamage { address, fault }.into());
        let expected = match *before {
            Before::Start => Some(0),
            Before::Lost => None,
            Before::Block { address: before, right } => {
                if right != address {
                    let (found, expected) = (right, Some(address));
                    report(before, TreeFault::Right { found, expected });
                }
                Some(before)
            }
        };
        if expected.is_some_and(|expected| expected != left) {
            report(address, TreeFault::Left { found: left, expected });
        }
        *before = Before::Block { address, right };
    }

    /// Marks the neighbours unknown after a block could not be read: its links and its children are
    /// lost.
    fn lose(&mut self, place: &Place<K>) {
        let levels = place.level.map_or(usize::MAX, |level| usize::from(level) + 1);
        self.before.iter_mut().take(levels).for_each(|before| *before = Before::Lost);
    }

    /// Checks that the last block of each level has no right neighbour.
    fn ends(&self, found: &mut impl FnMut(Damage)) {
        for before in &self.before {
            if let Before::Block { address, right } = *before
                && right != 0
            {
                let fault = TreeFault::Right { found: right, expected: Some(0) };
                found(TreeDamage { address, fault }.into());
            }
        }
    }
}
