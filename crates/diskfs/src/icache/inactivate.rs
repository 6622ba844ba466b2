//! Frees inodes without names and users. Counterpart of inode inactivation in XFS.
//!
//! # Purpose
//!
//! An inode that has lost its last name is an *orphan*: on disk, too, from the transaction on that
//! removed the name. When its last user releases it, its data, its trees and its number are freed
//! in the background (a [`Queue`] for each CPU slot), because a large inode takes many
//! transactions. Small inodes are also freed by threads that remove many names, many in a
//! transaction. After a crash the next mount resumes with the orphans ([`Inactivator::recover`]),
//! and also with a truncation of a large file that takes several transactions.
//!
//! # Invariants
//!
//! * Each transaction leaves a valid inode with less content. The last one frees the number, and
//!   ends its being an orphan.
//! * A transaction frees few blocks: the log space it needs does not depend on the size of the
//!   inode.
//! * Small inodes, which have at most a few blocks in one or two extents, are freed together in one
//!   transaction, locked in ascending order of their numbers. If that fails nothing has changed,
//!   and each is tried alone: a corrupted inode does not prevent the freeing of the others. Their
//!   data in memory are discarded before, so what was not written back by then never is.
//! * A failure leaves an orphan. No thread waits for it: the next mount tries again.
//! * From the commit on that frees the number, the number can be used again, and with it the node,
//!   because a number has only one. Hence the inode's state in memory (times, data, errors) is
//!   discarded before that commit, and this module does not touch the node after it: a new inode
//!   without names looks like the old one.
//!
//! # Locks, references
//!
//! Nodes are locked within each transaction. The queue's own lock is a leaf. The queue owns a
//! reference to the node, which stays in memory.

mod queue;
mod work;

pub use queue::Queue;
pub use work::{CutFn, Inactivator, Orphans};

use crate::btree::counted::Counted;
use crate::btree::{Error, Nodes, Tree};
use crate::dir::DirTree;
use crate::inode::blob::{AttrTree, LinkTree};
use crate::inode::core::{AttrFork, DataFork, FileKind, InodeCore};

/// Frees up to `most` records of the trees of inode `ino`, and their blocks. Returns true if no
/// tree is left. Does not free the extents of a file: if these are in a tree, it returns false.
/// After an error the caller discards `core` and the nodes.
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
        let is_freed = match core.kind() {
            Some(FileKind::Directory) => {
                take::<DirTree, _>(&mut nodes, Tree::at(root, ino), &mut left)?
            }
            Some(FileKind::Link) => {
                take::<LinkTree, _>(&mut nodes, Tree::at(root, ino), &mut left)?
            }
            _ => false,
        };
        if is_freed {
            core.data = DataFork::Inline([].into());
            core.size = 0;
        }
    }
    core.blocks = core.blocks.saturating_add_signed(nodes.grown());
    let is_left = matches!(core.attr, AttrFork::Tree { .. })
        || matches!(core.data, DataFork::Tree { .. } | DataFork::Extents(_));
    Ok(!is_left)
}

/// Removes up to `left` records from a tree, and the root when it is empty. Returns true if the
/// tree is freed.
fn take<K: crate::btree::Kind, N: Nodes>(
    nodes: &mut N,
    tree: Tree<K>,
    left: &mut usize,
) -> Result<bool, Error<N::Error>> {
    let mut taken = 0;
    // Asking for one record more than there are frees the empty root.
    let is_freed = tree.destroy(nodes, *left, |_| taken += 1)?;
    *left = left.saturating_sub(taken + usize::from(is_freed));
    Ok(is_freed)
}

#[cfg(test)]
mod tests;
