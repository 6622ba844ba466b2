//! Who keeps a superblock: its mounts, and what is still to be collected of its dentries' counts.
//!
//! # Purpose
//!
//! A superblock ends with its last mount. But where the count of a dentry was spread over CPUs, it
//! is collected a grace period after that ends (see [`dentry`](crate::objects::dcache::dentry)),
//! and needs its superblock until then. Each removal of a hot name begins such a collection; if all
//! of them counted in one place, that would be a line that removals of different names share. So
//! collections are counted on the CPU where they begin and end, and become one exact number when
//! there is no [`SuperRef`] any more ([`PerCpuRef`]).
//!
//! # Invariants
//!
//! * All [`SuperRef`]s together have one use, and each [`Collecting`] has one. Who gives the last
//!   one back has the superblock taken down (`take_down`).
//! * A collection begins while there is a `SuperRef`: who promotes, demotes or removes a dentry
//!   uses a mount, or has found it in an RCU section, within which mounts stay; and a mount gives
//!   its root back before its `SuperRef`.

use std::ops::Deref;
use std::ptr::NonNull;

use vfscale_sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use vfscale_sync::percpu::Apart;
use vfscale_sync::percpu_ref::PerCpuRef;

use crate::base::lock_classes::SuperUses;
use crate::objects::super_block::SuperBlock;
use crate::objects::take_down;

/// The counts of who keeps a superblock.
pub(crate) struct Owners {
    /// The superblock as it came out of its box, which the last owner puts it back into: a pointer
    /// that is made of a shared reference may not free it.
    place: AtomicPtr<SuperBlock>,
    refs: Apart<AtomicUsize>,
    uses: PerCpuRef<SuperUses>,
}

impl Owners {
    /// One [`SuperRef`], and nothing to collect.
    pub(crate) fn new(slots: usize) -> Owners {
        let place = AtomicPtr::new(std::ptr::null_mut());
        Owners { place, refs: Apart(AtomicUsize::new(1)), uses: PerCpuRef::new(slots) }
    }

    fn place(&self) -> NonNull<SuperBlock> {
        // Relaxed: it was stored before anybody else came to the superblock.
        NonNull::new(self.place.load(Ordering::Relaxed)).expect("stored with the first reference")
    }
}

/// A counted reference to a superblock that its mounts have, or who visits all superblocks.
pub(crate) struct SuperRef(NonNull<SuperBlock>);

// SAFETY: `SuperBlock` is `Sync`, and the count is atomic.
unsafe impl Send for SuperRef {}
// SAFETY: as above.
unsafe impl Sync for SuperRef {}

impl SuperRef {
    /// The first reference to a new superblock.
    pub(crate) fn new(sb: Box<SuperBlock>) -> SuperRef {
        let sb = SuperRef(NonNull::from(Box::leak(sb)));
        sb.owners().place.store(sb.0.as_ptr(), Ordering::Relaxed);
        sb
    }
}

impl Deref for SuperRef {
    type Target = SuperBlock;
    #[inline]
    fn deref(&self) -> &SuperBlock {
        // SAFETY: the counted reference keeps the superblock.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for SuperRef {
    fn clone(&self) -> SuperRef {
        // Relaxed: our own reference keeps it above zero.
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

/// Keeps the superblock of a dentry whose count is being collected, whatever becomes of its mounts.
pub(crate) struct Collecting(NonNull<SuperBlock>);

// SAFETY: as for `SuperRef`.
unsafe impl Send for Collecting {}

impl Collecting {
    /// Keeps a superblock that has a [`SuperRef`].
    pub(crate) fn new(sb: &SuperBlock) -> Collecting {
        sb.owners().uses.get();
        Collecting(sb.owners().place())
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        // SAFETY: our use keeps the superblock; it came from a box, and the last use of all is
        // given back once.
        unsafe {
            if self.0.as_ref().owners().uses.put() {
                take_down::end(self.0);
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
