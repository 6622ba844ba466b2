//! References that hold a superblock: of its mounts, and of counts of its dentries that are still
//! being collected.
//!
//! # Purpose
//!
//! A superblock ends with its last mount. But the sharded count of a dentry is collected a grace
//! period after sharding ends (see [`dentry`](crate::objects::dcache::dentry)), and the collection
//! needs the superblock until then. Each removal of a hot name starts such a collection. If all of
//! them used one counter, removals of different names would share its cache line. So collections
//! are counted on the CPU where they begin and end, and become one exact number when no
//! [`SuperRef`] is left ([`PerCpuRef`]).
//!
//! # Invariants
//!
//! * All [`SuperRef`]s together hold one use, and each [`Collecting`] holds one. The thread that
//!   drops the last use has the superblock taken down (`take_down`).
//! * A collection begins while there is a `SuperRef`: a thread that promotes, demotes or removes a
//!   dentry uses a mount, or has found the dentry in an RCU section, during which mounts are not
//!   freed; and a mount drops its root before its `SuperRef`.

use std::ops::Deref;
use std::ptr::NonNull;

use vfscale_sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::percpu_ref::PerCpuRef;

use crate::base::lock_classes::SuperUses;
use crate::objects::super_block::SuperBlock;
use crate::objects::take_down;

/// Reference counts of a superblock.
pub(crate) struct Owners {
    /// The superblock as `Box::into_raw` would return it, for the last owner to free: a pointer
    /// derived from a shared reference may not free it.
    boxed: AtomicPtr<SuperBlock>,
    refs: CachePadded<AtomicUsize>,
    uses: PerCpuRef<SuperUses>,
}

impl Owners {
    /// Creates counts with one [`SuperRef`], and no collection.
    pub(crate) fn new(slots: usize) -> Owners {
        let boxed = AtomicPtr::new(std::ptr::null_mut());
        Owners { boxed, refs: CachePadded::new(AtomicUsize::new(1)), uses: PerCpuRef::new(slots) }
    }

    /// Returns the pointer that frees the superblock.
    fn boxed(&self) -> NonNull<SuperBlock> {
        // Relaxed: it was stored before any other thread had the superblock.
        NonNull::new(self.boxed.load(Ordering::Relaxed)).expect("stored with the first reference")
    }
}

/// A counted reference to a superblock, held by its mounts and by visitors of all superblocks.
/// Counterpart of `s_active` in Linux.
pub(crate) struct SuperRef(NonNull<SuperBlock>);

// SAFETY: `SuperBlock` is `Sync`, and the count is atomic.
unsafe impl Send for SuperRef {}
// SAFETY: `SuperBlock` is `Sync`, and the count is atomic.
unsafe impl Sync for SuperRef {}

impl SuperRef {
    /// Creates the first reference to a new superblock.
    pub(crate) fn new(sb: Box<SuperBlock>) -> SuperRef {
        let sb = SuperRef(NonNull::from(Box::leak(sb)));
        sb.owners().boxed.store(sb.0.as_ptr(), Ordering::Relaxed);
        sb
    }
}

impl Deref for SuperRef {
    type Target = SuperBlock;
    #[inline]
    fn deref(&self) -> &SuperBlock {
        // SAFETY: the counted reference prevents the superblock from being freed.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for SuperRef {
    fn clone(&self) -> SuperRef {
        // Relaxed: our own reference prevents the count from reaching zero.
        self.owners().refs.fetch_add(1, Ordering::Relaxed);
        SuperRef(self.0)
    }
}

impl Drop for SuperRef {
    fn drop(&mut self) {
        let owners = self.owners();
        if owners.refs.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            owners.uses.close();
            drop(Collecting(self.0));
        }
    }
}

/// A use of the superblock of a dentry whose count is being collected, independent of its mounts.
pub(crate) struct Collecting(NonNull<SuperBlock>);

// SAFETY: `SuperBlock` is `Sync`, and the uses are counted atomically.
unsafe impl Send for Collecting {}

impl Collecting {
    /// Takes a use of a superblock that has a [`SuperRef`].
    pub(crate) fn new(sb: &SuperBlock) -> Collecting {
        sb.owners().uses.get();
        Collecting(sb.owners().boxed())
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        // SAFETY: our use holds the superblock; it came from a box, and the last use of all is
        // dropped once.
        unsafe {
            if self.0.as_ref().owners().uses.put() {
                take_down::end(self.0);
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
