//! The inode cache of a superblock: lists of all its inodes, and the inodes that stay cached while
//! unused.
//!
//! # The lists
//!
//! With a backed driver, every inode is on a list of its superblock from its creation to its end.
//! There is a list and a lock for each CPU (Piggin 2009, "inode lock"). An inode leaves the list
//! that it was put on, whichever CPU frees it. Threads that look for inodes without knowing their
//! numbers walk all lists: the shrinker, an unmount, and a call that counts unused ones.
//!
//! With a driver without `DirOps` an inode exists exactly as long as it is in use, and no thread
//! ever searches for one. There are no lists, and creating a file costs nothing for them. Pipes
//! have no such lists either. With the patch disabled (`inode-list`) all inodes
//! are on the one list of their superblock, as in older kernels.
//!
//! # Unused inodes
//!
//! With a backed driver, an unused inode that has a name stays cached: reading it again may need a
//! disk. The cache holds a counted reference to each inode that came from [`SuperBlock::iget`]. So
//! an unused inode has a count of one, and using it again only counts. No list is written for that:
//! the list of all inodes also contains the unused ones, in the order of age, and the shrinker
//! checks whether an inode is in use when it passes ("lazy LRU"). It marks the inodes that it
//! passes and evicts those that were not used since, as it does with dentries
//! ([`crate::objects::dcache::lru`]), and under the same limit.
//!
//! The cache's reference is dropped by an exchange of a count of one for zero, which fails if
//! another thread has just taken a reference. The exchange is done by the shrinker; by a thread
//! that drops the last other reference to a file without a name, to free its space immediately; and
//! by the end of the superblock. Only the thread whose exchange succeeds evicts.
//!
//! # Locks
//!
//! `inode_sb_list_lock` of one slot at a time, held to insert, to remove, or to look at a batch.
//! The shrinker finds candidates under it and evicts them later: the RCU section that began before
//! protects the memory, and the exchange fails if another thread was faster.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use smallvec::SmallVec;
use vfscale_sync::percpu_list::PerCpuList;
use vfscale_sync::rcu::Guard;

use crate::base::lock_classes::InodeSbList;
use crate::objects::inode::Inode;
use crate::objects::shrinker::{Droppable, drop_from};
use crate::objects::super_block::SuperBlock;
use vfscale_sync::scaling::Scaling;

/// Number of leaked inodes that are named when a superblock ends.
const NAMED_MAX: usize = 8;

/// Number of inodes looked at for each that is to be evicted, and the minimum. Most inodes are in
/// use by dentries; those looked at move to the front, so all are looked at in time.
const LOOKS_PER_EVICTION: usize = 2;
const LOOKS_MIN: usize = 32;

/// All inodes of a superblock.
pub(crate) struct InodeList(PerCpuList<Inode, InodeSbList>);

impl InodeList {
    /// Creates the lists of a superblock, if it needs any.
    pub(crate) fn new(scaling: &Scaling, is_backed: bool) -> Option<InodeList> {
        let slots = if scaling.inode_list() { scaling.slots() } else { 1 };
        let has_any = is_backed || !scaling.inode_list();
        has_any.then(|| InodeList(PerCpuList::new(slots)))
    }

    /// Inserts an inode that has just been created.
    ///
    /// # Safety
    /// It is on no list, and is [removed](Self::remove) before its memory is freed.
    pub(crate) unsafe fn insert(&self, inode: NonNull<Inode>) {
        // SAFETY: the caller guarantees it.
        unsafe { self.0.insert(inode) };
    }

    /// Removes an inode that is about to be freed.
    pub(crate) fn remove(&self, inode: &Inode) {
        self.0.remove(inode);
    }

    /// Evicts up to `want` unused inodes, from this CPU's list first; returns their number.
    pub(crate) fn shrink(&self, want: usize) -> usize {
        drop_from(&self.0, want, want.saturating_mul(LOOKS_PER_EVICTION).max(LOOKS_MIN))
    }

    /// Returns about the number of inodes, without a lock: the lists of the CPUs may have up to 31
    /// each that do not count yet, or still count.
    pub(crate) fn approximate_len(&self) -> usize {
        self.0.approximate_len()
    }

    /// Returns the number of unused inodes. Exact while none is added or removed.
    fn unused(&self) -> usize {
        let mut unused = 0;
        self.0.each(|inode| {
            unused += usize::from(inode.is_unused());
            ControlFlow::Continue(())
        });
        unused
    }

    /// Returns the numbers of some inodes.
    fn some_inos(&self) -> SmallVec<[u64; NAMED_MAX]> {
        let mut some = SmallVec::new();
        self.0.each(|inode| {
            some.push(inode.ino());
            if some.len() < NAMED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        some
    }
}

impl Droppable for Inode {
    fn may_be_dropped(&self) -> bool {
        self.is_unused() && self.cool()
    }

    fn during<'g>(&self, guard: &'g Guard) -> &'g Inode {
        self.borrowed(guard)
    }

    fn drop_unused(&self, guard: &Guard) -> bool {
        let takes = self.take_unused();
        if takes {
            self.sb().evict(self, guard);
        }
        takes
    }
}

impl SuperBlock {
    /// Returns the number of cached inodes that are not in use. Exact while none is added or
    /// removed. Takes the locks of all slots of their list, one after the other.
    pub fn unused_inodes(&self) -> usize {
        // A driver without `DirOps` has no unused inodes.
        if self.lru().is_some() { self.inode_list().map_or(0, InodeList::unused) } else { 0 }
    }

    /// Evicts up to `want` cached inodes of a superblock that ends, when none is in use any more.
    /// Returns false if there are none.
    pub(crate) fn evict_inodes(&self, want: usize) -> bool {
        let evict = |list: &InodeList| drop_from(&list.0, want, usize::MAX);
        self.inode_list().map_or(0, evict) > 0
    }

    /// Checks that a superblock that has ended has no inode left, and aborts the process if one
    /// would outlive its memory.
    pub(crate) fn check_no_inodes(&self) {
        if self.inodes_in_use() != 0 {
            let some = self.inode_list().map(InodeList::some_inos).unwrap_or_default();
            let name = self.fs().name();
            eprintln!("vfscale: {name} holds inodes of a superblock that has ended: {some:?}");
            std::process::abort();
        }
    }
}
