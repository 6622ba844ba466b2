//! Changes of an inode by a caller that holds no reference, against eviction of that inode.
//!
//! A call by path finds an inode in an RCU section, during which its memory is not freed. The call
//! may therefore change the inode without counting a reference to its dentry, a count that all
//! users of that file would write. The inode may lose its last name and its last reference at any
//! time during the call, and be evicted. A change after that has no effect, because no later call
//! finds the inode. Two races must be excluded: the file system must not be charged after all
//! charges of the inode were returned, and two threads must not free the same pages. (With a backed
//! driver there is always a reference.)
//!
//! * Attributes, times and the size are stored in the inode itself.
//! * **Extended attributes** are charged under the lock of their set, and eviction closes the set
//!   under that lock before it returns the charge. The remaining problem is the extra part itself,
//!   which contains the set and is allocated without a lock: eviction might find none, and the
//!   first attribute be set after that. So a caller without a reference checks, once there is an
//!   extra part, whether the inode [may be evicted](Inode::may_be_evicted), and takes a reference
//!   if so. A name announces that it may be the last one *before* it drops its reference
//!   (`Dentry::set_removed`); after that any other user may be the last one (and a directory is
//!   marked dead then). Eviction looks for the extra part [after](Inode::last_extra) that. So at
//!   least one of the two sees the store of the other: either attributes are set by a caller with a
//!   reference, or eviction finds the extra part and closes it. An inode that is created without a
//!   name is not found by a path before it gets one. The announcement is stored on the cache line
//!   of the extra part, which users of an open file hardly read.
//! * **Access control lists** are changed only by a caller that holds a reference.
//! * **Data** are truncated under the inode's lock. Eviction takes that lock too, if the inode has
//!   ever had data ([`Inode::lock_last_data`]); only a caller with a reference adds the first data.

use vfscale_sync::atomic::{Ordering, fence, fence_after_rmw};
use vfscale_sync::rcu::Guard;

use super::rwsem::ExclusiveGuard;
use super::{Inode, InodeExtra};

impl Inode {
    /// Announces that the inode, which is not a directory, is about to lose its last name. A
    /// read-modify-write follows.
    pub(super) fn note_last_name(&self) {
        self.access.nameless.store(true, Ordering::Relaxed);
    }

    /// Returns whether another thread may evict the inode without having seen the extra part that
    /// the caller, which holds no reference, has just seen; see the [module](self).
    pub(crate) fn may_be_evicted(&self) -> bool {
        fence(Ordering::SeqCst);
        self.access.nameless.load(Ordering::Relaxed) || self.is_dead()
    }

    /// Returns the extra part, for eviction. If there is none, no caller without a reference will
    /// use one.
    #[inline]
    pub(crate) fn last_extra<'g>(&'g self, guard: &'g Guard) -> Option<&'g InodeExtra> {
        fence_after_rmw();
        self.extra(guard)
    }

    /// Locks the inode for eviction, if it has ever had data. Blocks, even in the RCU section that
    /// deferred work runs in: nothing holds a reference, so a thread that holds the lock took it in
    /// an RCU section ([`Inode::try_lock`]), and waits for nothing under it.
    #[inline]
    pub(crate) fn lock_last_data(&self) -> Option<ExclusiveGuard<'_>> {
        let lock = || self.usage.lock.write_in_section(&self.sharers);
        (self.is_file() && self.data.private.is_some()).then(lock)
    }
}
