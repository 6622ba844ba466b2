//! The inodes of a superblock: lists of all of them, and which ones stay though nobody uses them.
//!
//! # The lists
//!
//! Where the driver keeps directories, every inode is on a list of its superblock from its
//! beginning to its end: a list and a lock for each CPU (seed 004, "inode lock"), of which it
//! leaves the one that it came to, on whatever CPU it ends. Who looks for inodes without knowing
//! their numbers walks them all: the shrinker, an unmount, and who asks how many are unused.
//!
//! Where names live in the dcache an inode is there exactly if somebody uses it, and nobody has
//! ever to look for one: there are no lists, and making a file costs nothing for them. So it is
//! with pipes. Before the patch ([`Scaling::before_inode_list`]) all inodes are on the one list of
//! their superblock, as the kernel's were.
//!
//! # Unused inodes
//!
//! Where the driver keeps directories, an inode that nobody uses any more and that has a name
//! stays: to make it again may take a disk. The cache has a counted reference to each inode that
//! came from [`SuperBlock::iget`], so that an unused one is one with a count of one, and using it
//! again is no more than counting. Nothing is written to a list meanwhile: the list of all inodes
//! is that of the unused ones too, in the order of age, and whether one is in use is looked at by
//! the shrinker when it comes by ("lazy LRU"). It marks what it passes, and evicts what nobody has
//! asked for since, as with dentries ([`crate::objects::dcache::lru`]), and under the same limit.
//!
//! The cache gives its reference up, by the exchange of a count of one for none, which fails if
//! somebody has just taken another: the shrinker does; whoever lets the last other one of a file
//! without a name go, so that its space comes back at once; and the end of the superblock. Whoever
//! has exchanged evicts, alone.
//!
//! # Locks
//!
//! `inode_sb_list_lock`, one slot at a time, for the time of entering, leaving, or looking at a
//! batch. The shrinker finds under it what could go and evicts it later: the RCU section that began
//! before keeps the memory, and the exchange fails if somebody else has been faster.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use smallvec::SmallVec;
use vfscale_sync::percpu_list::PerCpuList;
use vfscale_sync::rcu::Guard;

use crate::base::lock_classes::InodeSbList;
use crate::base::scaling::Scaling;
use crate::objects::dcache::lru::{self, Droppable};
use crate::objects::inode::Inode;
use crate::objects::super_block::SuperBlock;

/// How many inodes that nobody has given back are named when a superblock ends.
const NAMED_MAX: usize = 8;

/// How many inodes are looked at for each that is to be evicted, and at least. Most are in use, by
/// dentries; since those that were looked at go to the front, all are looked at in time.
const LOOKS_PER_EVICTION: usize = 2;
const LOOKS_MIN: usize = 32;

/// All inodes of a superblock.
pub(crate) struct InodeList(PerCpuList<Inode, InodeSbList>);

impl InodeList {
    /// The lists of a superblock, if it has any.
    pub(crate) fn new(scaling: &Scaling, keeps_directories: bool) -> Option<InodeList> {
        let slots = if scaling.inode_list() { scaling.slots() } else { 1 };
        let has_any = keeps_directories || !scaling.inode_list();
        has_any.then(|| InodeList(PerCpuList::new(slots)))
    }

    /// Enters an inode that has just been made.
    ///
    /// # Safety
    /// It is on no list, and [removed](Self::remove) before its memory is given back.
    pub(crate) unsafe fn insert(&self, inode: NonNull<Inode>) {
        // SAFETY: said by the caller.
        unsafe { self.0.insert(inode) };
    }

    /// Takes an inode off that is about to be freed.
    pub(crate) fn remove(&self, inode: &Inode) {
        self.0.remove(inode);
    }

    /// Evicts up to `want` inodes that nobody uses, the CPU's own first; returns how many.
    pub(crate) fn shrink(&self, want: usize) -> usize {
        lru::drop_from(&self.0, want, want.saturating_mul(LOOKS_PER_EVICTION).max(LOOKS_MIN))
    }

    /// How many nobody uses. Exact while none comes or goes.
    fn unused(&self) -> usize {
        let mut unused = 0;
        self.0.each(|inode| {
            unused += usize::from(inode.is_unused());
            ControlFlow::Continue(())
        });
        unused
    }

    /// The numbers of some of them.
    fn some(&self) -> SmallVec<[u64; NAMED_MAX]> {
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
    /// Inodes that nobody uses, and that are kept for whoever asks for them again. Exact while none
    /// comes or goes. Takes the locks of all slots of their list, one after the other.
    pub fn unused_inodes(&self) -> usize {
        // Where names live in the dcache, what nobody uses is gone.
        if self.lru().is_some() { self.inode_list().map_or(0, InodeList::unused) } else { 0 }
    }

    /// The superblock ends, and nobody uses its inodes any more: evicts up to `want` of those that
    /// are cached. False if there are none.
    pub(crate) fn evict_inodes(&self, want: usize) -> bool {
        let evict = |list: &InodeList| lru::drop_from(&list.0, want, usize::MAX);
        self.inode_list().map_or(0, evict) > 0
    }

    /// The superblock has ended, and ends the process if an inode would outlive the memory that it
    /// is in.
    pub(crate) fn check_no_inodes(&self) {
        if self.inodes_in_use() != 0 {
            let some = self.inode_list().map(InodeList::some).unwrap_or_default();
            let name = self.fs().name();
            eprintln!("vfscale: {name} keeps inodes of a superblock that has ended: {some:?}");
            std::process::abort();
        }
    }
}
