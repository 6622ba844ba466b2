//! Changes of the children tables of directories: locks the buckets of names, and moves a dentry
//! from one table to another.

use std::ops::{Deref, DerefMut};

use vfscale_sync::lock::MutexGuard;
use vfscale_sync::rcu::Guard;
use vfscale_sync::table::{Bucket, LockReq, LockSet, RcuTable};

use crate::base::lock_classes::{Children, DcacheLock};
use crate::objects::dcache::dentry::Dentry;

/// Locked names: their buckets, which are released before the `dcache_lock`, if there is one.
pub(crate) struct LockedBuckets<'g, L> {
    buckets: L,
    _dcache: Option<MutexGuard<'g, (), DcacheLock>>,
}

/// The locked bucket of a name.
pub(crate) type NameGuard<'g> = LockedBuckets<'g, Bucket<'g, Dentry, Children>>;

/// The locked buckets of `N` requests.
pub(crate) type NamesGuard<'g, const N: usize> =
    LockedBuckets<'g, LockSet<'g, Dentry, Children, N>>;

impl<L> Deref for LockedBuckets<'_, L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.buckets
    }
}

impl<L> DerefMut for LockedBuckets<'_, L> {
    fn deref_mut(&mut self) -> &mut L {
        &mut self.buckets
    }
}

impl Dentry {
    /// Locks a name in this directory against changes, by its hash: its bucket, after the
    /// `dcache_lock` if the patch `dcache-hash` is disabled. Waits for the holders.
    #[inline]
    pub(crate) fn lock_name<'g>(&'g self, hash: u64, guard: &'g Guard) -> NameGuard<'g> {
        let dcache = self.sb().lock_dcache();
        LockedBuckets { buckets: self.children().lock(hash, guard), _dcache: dcache }
    }

    /// Locks names in directories of this file system, as [`lock_name`](Self::lock_name) does.
    #[inline]
    pub(crate) fn lock_names<'g, const N: usize>(
        &'g self,
        reqs: [LockReq<'g, Dentry, Children>; N],
        guard: &'g Guard,
    ) -> NamesGuard<'g, N> {
        let dcache = self.sb().lock_dcache();
        LockedBuckets { buckets: RcuTable::lock_set(reqs, guard), _dcache: dcache }
    }
}

/// A name that is about to be removed from its table. Its bucket is locked and, if it is a
/// directory, all of its own buckets.
pub(crate) enum LockedName<'g> {
    File(NameGuard<'g>),
    Directory(NamesGuard<'g, 2>),
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
            let locks = parent.lock_names([name, LockReq::All(dentry.children())], guard);
            locks.find(0, hash, is_it).is_some().then_some(LockedName::Directory(locks))
        } else {
            let bucket = parent.lock_name(hash, guard);
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
