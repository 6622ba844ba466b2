//! Checking a whole tree.

use std::collections::HashSet;

use super::node::{Link, Place};
use super::{Error, Expected, Kind, Nodes, Record, Tree, TreeFault, records_max, records_min};
use crate::format::Damage;
use crate::format::btree::TreeDamage;

/// What a tree has, as far as it could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many levels: 1 if the root is a leaf.
    pub levels: u16,
    /// Blocks, the root among them.
    pub blocks: u64,
    /// Blocks that are leaves.
    pub leaves: u64,
    /// Records in leaves.
    pub records: u64,
    /// Records that these leaves have room for.
    pub room: u64,
}

/// The block of a level that was visited last.
#[derive(Clone, Copy)]
enum Before {
    /// None yet.
    Start,
    /// This one, which has that on its right.
    Block { address: u64, right: u64 },
    /// One that could not be read.
    Lost,
}

impl<K: Kind> Tree<K> {
    /// Reads the whole tree and calls `found` with each thing that is wrong. What is below a block
    /// that can't be read is left out; nothing is read twice. Every address that the tree leads to
    /// is told to `used`, once, so that the caller can compare with what is free, or used by
    /// others.
    ///
    /// # Errors
    /// [`Error::Nodes`] only.
    pub fn check<N: Nodes>(
        &self,
        nodes: &N,
        found: impl FnMut(Damage),
        used: impl FnMut(u64),
    ) -> Result<Summary, Error<N::Error>> {
        self.check_records(nodes, found, used, |_| {})
    }

    /// The same, which gives the records of each leaf to `records`, from left to right: those that
    /// can be read, whatever is wrong with them. So a caller that checks what they mean reads the
    /// tree once.
    ///
    /// # Errors
    /// [`Error::Nodes`] only.
    pub fn check_records<N: Nodes>(
        &self,
        nodes: &N,
        mut found: impl FnMut(Damage),
        mut used: impl FnMut(u64),
        mut records: impl FnMut(&[Record<K>]),
    ) -> Result<Summary, Error<N::Error>> {
        // The order of records is looked at here, where all that is wrong is told and not the first
        // only.
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
    /// By level.
    before: Vec<Before>,
}

impl<K: Kind> Walk<'_, K> {
    /// Looks at one block. Returns where those below it are; an error if what is in it means
    /// nothing.
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
        // Links are compared with the block that was visited before, wherever that is in the tree.
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

    /// Compares the links of a block with the one before it.
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

    /// A block could not be read: what it is linked with, and what is below it, is not known.
    fn lose(&mut self, place: &Place<K>) {
        let levels = place.level.map_or(usize::MAX, |level| usize::from(level) + 1);
        self.before.iter_mut().take(levels).for_each(|before| *before = Before::Lost);
    }

    /// The last block of each level has nothing on its right.
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
