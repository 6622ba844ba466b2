//! Changing an inode of which one has no reference, against its eviction.
//!
//! A call by a path finds an inode in an RCU section, in which its memory stays, and so may change
//! it without counting a reference to its dentry, which everybody would write who uses that file.
//! The inode may lose its last name and its last reference at any time then, and be evicted: what
//! is changed after that is changed in vain, for nobody finds it any more. What must not happen is
//! that the file system is charged for something after it was given back all that the inode had, or
//! that two threads free the same pages. (Where a driver keeps inodes itself, there is always a
//! reference.)
//!
//! * Attributes, times and the size have no memory of their own.
//! * **Extended attributes** are charged under the lock of their set, and eviction closes the set
//!   under that lock before it gives back what it was charged. What is left is the extra part
//!   itself, which the set is in, and which is made without a lock: eviction might find none, and
//!   the first attribute be set after that. So who has no reference looks, once there is an extra
//!   part, whether the inode [may be going](Inode::may_be_evicted), and takes a reference if so. A
//!   name says that it may be the last one *before* it gives up its reference
//!   (`Dentry::set_removed`), after which any other user may be the last one (and a directory is
//!   marked dead then), and eviction looks for the extra part [after](Inode::last_extra). So, of
//!   both, at least one sees what the other has done: either attributes are set by who has a
//!   reference, or eviction finds the extra part and closes it. An inode that is made without a
//!   name is not found by a path before it is given one. That is said on the line that the extra
//!   part is on, which who has the file open hardly reads.
//! * **Access control lists** are changed by who has a reference.
//! * **Data** are cut under the inode's lock. Eviction takes that lock too, if the inode has ever
//!   had data ([`Inode::lock_last_data`]); only who has a reference makes it have some.

use vfscale_sync::atomic::{Ordering, fence, fence_after_rmw};
use vfscale_sync::rcu::Guard;

use super::rwsem::Alone;
use super::{Inode, InodeExtra};

impl Inode {
    /// Says that it, which is no directory, is about to lose its last name. A read-modify-write
    /// follows.
    pub(super) fn note_last_name(&self) {
        self.access.nameless.store(true, Ordering::Relaxed);
    }

    /// Whether it may be evicted by somebody who has not seen the extra part that the caller, who
    /// has no reference, has just seen; see the [module](self).
    pub(crate) fn may_be_evicted(&self) -> bool {
        fence(Ordering::SeqCst);
        self.access.nameless.load(Ordering::Relaxed) || self.is_dead()
    }

    /// Its extra part, to who evicts it. If there is none, nobody without a reference will use one.
    #[inline]
    pub(crate) fn last_extra<'g>(&'g self, guard: &'g Guard) -> Option<&'g InodeExtra> {
        fence_after_rmw();
        self.extra(guard)
    }

    /// Its lock, if it has ever had data, for who evicts it. Blocks.
    #[inline]
    pub(crate) fn lock_last_data(&self) -> Option<Alone<'_>> {
        (self.is_file() && self.data.private.get().is_some()).then(|| self.lock())
    }
}
