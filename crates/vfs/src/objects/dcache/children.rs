//! Changes of the children tables of directories: locks the buckets of a dentry in its parent's
//! table, and moves a dentry from one table to another.

use vfscale_sync::rcu::Guard;
use vfscale_sync::table::{Bucket, LockReq, LockSet, RcuTable};

use crate::base::lock_classes::Children;
use crate::objects::dcache::dentry::Dentry;

/// A name that is about to be removed from its table. Its bucket is locked and, if it is a
/// directory, all of its own buckets.
pub(crate) enum LockedName<'g> {
    File(Bucket<'g, Dentry, Children>),
    Directory(LockSet<'g, Dentry, Children, 2>),
}

impl<'g> LockedName<'g> {
    /// Locks the name; `None` if the dentry is no longer in the table of `parent`.
    pub(crate) fn lock(
        dentry: &'g Dentry,
        parent: &'g Dentry,
        guard: &'g Guard,
    ) -> Option<LockedName<'g>> {
        let hash = dentry.hash();
        let is_it = |child: &Dentry| std::ptr::eq(child, dentry);
        if dentry.inode().is_dir() {
            let name = LockReq::One(parent.children(), hash);
            let locks = RcuTable::lock_set([name, LockReq::All(dentry.children())], guard);
            locks.find(0, hash, is_it).is_some().then_some(LockedName::Directory(locks))
        } else {
            let bucket = parent.children().lock(hash, guard);
            bucket.find(hash, is_it).is_some().then_some(LockedName::File(bucket))
        }
    }

    /// Returns whether it has no children.
    pub(crate) fn is_leaf(&self) -> bool {
        match self {
            LockedName::File(_) => true,
            LockedName::Directory(locks) => locks.is_empty(1),
        }
    }

    /// Removes it from the table.
    pub(crate) fn remove(&mut self, dentry: &Dentry) {
        match self {
            LockedName::File(bucket) => bucket.remove(dentry),
            LockedName::Directory(locks) => locks.remove(0, dentry),
        };
    }
}

/// Insertion of a dentry that its name's reference protects.
pub(crate) trait InsertMoved {
    /// Inserts the dentry into the bucket of request `i`, after its removal from that of another
    /// request. It may also be a new one, which was in no table.
    fn insert_moved(&mut self, i: usize, dentry: &Dentry);
}

impl<const N: usize> InsertMoved for LockSet<'_, Dentry, Children, N> {
    fn insert_moved(&mut self, i: usize, dentry: &Dentry) {
        // SAFETY: the name's reference, which moves with the dentry, prevents its end until it is
        // removed from the table, and its memory is freed a grace period after that. It was just
        // removed from the table it was in, or is new and was in none.
        unsafe { self.insert(i, std::ptr::NonNull::from(dentry)) };
    }
}
