//! Freeing what nobody uses any more.
//!
//! # Purpose
//!
//! An inode whose last name is gone is an *orphan*: on disk too, from the transaction on that
//! removed the name. When its last user is gone its data, its trees and its number are freed, in
//! the background (a [`Queue`] for each CPU slot), since that takes as many transactions as it is
//! large; those without blocks also by who takes many names away. A crash in between leaves the
//! orphan as it is, and the next mount goes on with it ([`Inactivator::recover`]); so does a cut of
//! a large file that takes several transactions.
//!
//! # Invariants
//!
//! * Each transaction leaves an inode that is right, with less in it. The last one frees the
//!   number, and takes the orphan off the list.
//! * A transaction frees few blocks: how much of the log it needs does not depend on the size of
//!   the inode.
//! * Inodes that have nothing but their records, as most have of which many go at once, are freed
//!   together in one transaction, locked in ascending order of their numbers. If that fails nothing
//!   has happened, and each is tried alone: one that something is wrong with keeps none of the
//!   others.
//! * Whatever fails leaves an orphan. Nothing waits for it: the next mount tries again.
//! * The number can be had from the commit on that frees it, and with it the node, of which there
//!   is one for a number. So what is in memory of the inode (times, data, errors) goes before that
//!   commit, and after it nobody here looks at the node again: a new inode without names looks like
//!   the old one.
//!
//! # Locks, references
//!
//! Nodes are locked within each transaction. The queue's own lock is a leaf. The queue holds the
//! node, so that it stays in memory.

mod queue;
mod work;

pub use queue::Queue;
pub use work::{CutFn, Inactivator, Orphans};

use crate::btree::counted::Counted;
use crate::btree::{Error, Nodes, Tree};
use crate::dir::DirTree;
use crate::inode::blob::{AttrTree, LinkTree};
use crate::inode::core::{AttrFork, DataFork, FileKind, InodeCore};

/// Frees up to `most` records of the trees of inode `ino`, and their blocks; true if nothing is
/// left. The extents of a file are not its business: of a file whose data are in a tree something
/// is left. On an error `core` and the nodes are to be given up.
///
/// # Errors
/// [`Error`].
pub fn strip<N: Nodes>(
    nodes: &mut N,
    ino: u64,
    core: &mut InodeCore,
    most: usize,
) -> Result<bool, Error<N::Error>> {
    let mut nodes = Counted::new(nodes);
    let mut left = most;
    if let AttrFork::Tree { root, .. } = core.attr
        && take::<AttrTree, _>(&mut nodes, Tree::at(root, ino), &mut left)?
    {
        core.attr = AttrFork::None;
    }
    if let DataFork::Tree { root } = core.data {
        let is_gone = match core.kind() {
            Some(FileKind::Directory) => {
                take::<DirTree, _>(&mut nodes, Tree::at(root, ino), &mut left)?
            }
            Some(FileKind::Link) => {
                take::<LinkTree, _>(&mut nodes, Tree::at(root, ino), &mut left)?
            }
            _ => false,
        };
        if is_gone {
            core.data = DataFork::Inline([].into());
            core.size = 0;
        }
    }
    core.blocks = core.blocks.saturating_add_signed(nodes.grown());
    let is_left = matches!(core.attr, AttrFork::Tree { .. })
        || matches!(core.data, DataFork::Tree { .. } | DataFork::Extents(_));
    Ok(!is_left)
}

/// Takes up to `left` records out of a tree, and the root when it is empty; true if there is no
/// tree any more.
fn take<K: crate::btree::Kind, N: Nodes>(
    nodes: &mut N,
    tree: Tree<K>,
    left: &mut usize,
) -> Result<bool, Error<N::Error>> {
    let mut taken = 0;
    // One more than there are records finds the root empty.
    let is_gone = tree.destroy(nodes, *left, |_| taken += 1)?;
    *left = left.saturating_sub(taken + usize::from(is_gone));
    Ok(is_gone)
}

#[cfg(test)]
mod tests;
