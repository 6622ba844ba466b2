//! The hot dentries of a superblock: those whose count is sharded over CPUs.
//!
//! # Purpose
//!
//! Each hot dentry costs memory for each CPU, so their number is limited. They are stored in a
//! ring: a dentry that becomes hot takes the next slot, and the dentry that occupied the slot since
//! the previous round is demoted. A dentry leaves its slot when its name is removed, which takes no
//! lock, and writes no cache line that belongs to another dentry.
//!
//! # Invariants
//!
//! * A dentry enters and leaves the ring under its `d_lock`. It is in the ring only while its count
//!   is sharded, or until the thread that begins to collect the count unlocks. So it occupies at
//!   most one slot, and the number of its slot belongs to it alone.
//! * A thread that replaces a dentry in its slot is in an RCU section. If that dentry already lost
//!   its slot, the collection of its count, which waits for a grace period, protects it until that
//!   section ends.

use std::ptr::{self, NonNull};

use vfscale_sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use vfscale_sync::percpu::CachePadded;

use crate::objects::dcache::dentry::Dentry;

/// Maximum number of hot dentries of a superblock; each costs a cache line pair for each CPU.
pub(crate) const HOT_MAX: usize = 256;

/// The ring of hot dentries.
pub(crate) struct ShardedRing {
    ring: Box<[CachePadded<AtomicPtr<Dentry>>]>,
    /// Number of dentries that have become hot so far.
    entered: CachePadded<AtomicUsize>,
}

impl ShardedRing {
    /// Creates an empty ring, for counts that are sharded into `slots` parts. With one part no
    /// count is sharded, and the ring has no slots.
    pub(crate) fn new(slots: usize) -> ShardedRing {
        let len = if slots > 1 { HOT_MAX } else { 0 };
        let empty = |_| CachePadded::new(AtomicPtr::new(ptr::null_mut()));
        ShardedRing {
            ring: (0..len).map(empty).collect(),
            entered: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// Returns whether there may be hot dentries.
    pub(crate) fn has_slots(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Enters a dentry. Returns its slot, and the dentry that must be demoted for it.
    pub(crate) fn enter(&self, dentry: &Dentry) -> (u32, Option<NonNull<Dentry>>) {
        let slot = self.entered.fetch_add(1, Ordering::Relaxed) % self.ring.len();
        let entering = ptr::from_ref(dentry).cast_mut();
        // Releases the dentry to the thread that will find it here, and acquires the previous one.
        let before = self.ring[slot].swap(entering, Ordering::AcqRel);
        (slot as u32, NonNull::new(before))
    }

    /// Removes a dentry from its slot, unless another one occupies it already.
    pub(crate) fn leave(&self, dentry: &Dentry, slot: u32) {
        let leaving = ptr::from_ref(dentry).cast_mut();
        let empty = ptr::null_mut();
        // Relaxed: if the exchange fails, another thread has found the dentry and demotes it; no
        // memory is read here.
        let _ = self.ring[slot as usize].compare_exchange(
            leaving,
            empty,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
