//! The changes from a map to another one, read from the device node by node.
//!
//! Nothing is retained, so the memory is that of a few nodes whatever the sizes. Both maps are
//! frozen: their nodes are on the device, and don't change.

use std::ops::Range;

use super::{read_node, row_entries, row_places, span};
use crate::Error;
use crate::disk::device::Disk;
use crate::disk::format::{Entry, FANOUT};

/// A map, or the part of it below an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub(crate) root: Entry,
    /// Its levels of nodes; 0 for a block.
    pub(crate) levels: u8,
}

impl Tree {
    /// Has nothing.
    pub(crate) const EMPTY: Self = Self { root: Entry::NONE, levels: 0 };

    fn is(&self, other: &Self) -> bool {
        self.root == other.root && (self.root.is_none() || self.levels == other.levels)
    }
}

/// Calls `each` with the blocks whose places in `new` are others than in `base`, in order: with the
/// place of the first one if they have places, which are in a row then. Blocks beyond the end of
/// `new` may be among those without.
///
/// # Errors
/// Errors of `each`, errors of reading, and [`Error::Damage`].
pub(crate) fn changes(
    disk: &Disk,
    base: Tree,
    new: Tree,
    each: &mut dyn FnMut(Range<u64>, Option<u64>) -> Result<(), Error>,
) -> Result<(), Error> {
    visit(disk, [base, new], base.levels.max(new.levels), 0, each)
}

fn visit(
    disk: &Disk,
    [base, new]: [Tree; 2],
    levels: u8,
    first: u64,
    each: &mut dyn FnMut(Range<u64>, Option<u64>) -> Result<(), Error>,
) -> Result<(), Error> {
    if base.is(&new) {
        return Ok(());
    }
    if new.root.is_none() {
        return each(first..first + span(levels), None);
    }
    if levels == 0 {
        return each(first..first + 1, Some(new.root.place()));
    }
    if new.root.is_row() && base.root.is_none() {
        // No nodes for what is all new.
        let places = row_places(&disk.layout(), new.root, levels - 1);
        return each(places.clone(), Some(places.start));
    }
    let [of_base, of_new] = [base, new].map(|tree| below(disk, tree, levels, first));
    let (of_base, of_new) = (of_base?, of_new?);
    for (index, pair) in of_base.into_iter().zip(of_new).enumerate() {
        let first = first + index as u64 * span(levels - 1);
        visit(disk, pair.into(), levels - 1, first, each)?;
    }
    Ok(())
}

/// Returns what is below the node of a tree at a position with so many levels.
fn below(disk: &Disk, tree: Tree, levels: u8, first: u64) -> Result<Vec<Tree>, Error> {
    let Tree { root, levels: own } = tree;
    let kid = |root| Tree { root, levels: levels - 1 };
    Ok(if root.is_none() {
        vec![Tree::EMPTY; FANOUT]
    } else if own < levels {
        // A smaller map is the first part of a larger one.
        let others = std::iter::repeat_n(Tree::EMPTY, FANOUT - 1);
        std::iter::once(tree).chain(others).collect()
    } else if root.is_row() {
        row_entries(&disk.layout(), root, levels - 1).map(kid).collect()
    } else {
        let node = read_node(disk, 0, root, levels - 1, first)?;
        node.entries.iter().map(|entry| kid(Entry(entry.get()))).collect()
    })
}

#[cfg(test)]
mod tests;
