//! The advisory locks of an inode, and their release when a file is closed or a task ends.

use vfscale_sync::rcu::{self, Guard};

use crate::locks::FileLocks;
use crate::objects::inode::Inode;

/// Returns the locks of an inode, if it ever had any.
pub(crate) fn existing<'g>(inode: &'g Inode, guard: &'g Guard) -> Option<&'g FileLocks> {
    inode.extra(guard).map(|extra| &extra.locks)
}

/// Returns the locks of an inode, which are charged to its tree.
pub(crate) fn locks<'g>(inode: &'g Inode, guard: &'g Guard) -> &'g FileLocks {
    inode.extra_or_init(guard).locks.paid_by(inode.sb().quotas())
}

/// Releases the record locks of a task on a file.
pub(crate) fn release_inode(inode: &Inode, task: u64) {
    let guard = rcu::pin();
    if let Some(locks) = existing(inode, &guard) {
        locks.release_posix(task);
    }
}

/// Returns whether a task holds record locks on a file.
pub(crate) fn has_records(inode: &Inode, task: u64, guard: &Guard) -> bool {
    existing(inode, guard).is_some_and(|locks| locks.has_posix(task))
}
