//! Removal of a dentry from the dcache with everything below it, even if it is in use.

use std::ops::ControlFlow;

use smallvec::{SmallVec, smallvec};
use vfscale_sync::rcu::Guard;

use crate::objects::dcache::children::LockedName;
use crate::objects::dcache::dentry::{self, Dentry};

/// Number of children of a directory that are looked at together.
const BATCH: usize = 64;

/// Unhashes a dentry and everything below it, even if it is in use (counterpart of `d_invalidate`
/// in Linux), except dentries that are being moved away. Returns false, and leaves the subtree, if
/// a mount is on it or below.
pub(crate) fn detach(root: &Dentry, guard: &Guard) -> bool {
    // From the top: children are unhashed before their parents, which are then tried again.
    let mut stack: SmallVec<[_; 4]> = smallvec![root.borrowed(guard)];
    while let Some(&dentry) = stack.last() {
        if dentry.is_mounted() {
            return false;
        }
        if detach_one(dentry, guard) {
            stack.pop();
            continue;
        }
        let depth = stack.len();
        dentry.children().scan(0, guard, |child| {
            if !child.is_moving() {
                stack.push(child.borrowed(guard));
            }
            if stack.len() < depth + BATCH {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
    }
    true
}

/// Returns whether all remaining children of a directory are about to leave it: the threads that
/// move them hold the directory until they have.
fn all_move(dentry: &Dentry, guard: &Guard) -> bool {
    let mut all = true;
    dentry.children().scan(0, guard, |child| {
        all = child.is_moving();
        if all { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    all
}

/// Unhashes a dentry; returns false if it has children that stay.
fn detach_one(dentry: &Dentry, guard: &Guard) -> bool {
    let parent = dentry.parent(guard);
    let Some(mut locks) = LockedName::lock(dentry, parent, guard) else {
        // The dentry is unhashed, unless it was just moved to another directory.
        return dentry.is_unhashed();
    };
    if !locks.is_leaf() && !all_move(dentry, guard) {
        return false;
    }
    locks.remove(dentry);
    let removed = dentry.set_removed(parent, || {}, guard);
    drop(locks);
    dentry::finish_removal(removed, guard);
    true
}
