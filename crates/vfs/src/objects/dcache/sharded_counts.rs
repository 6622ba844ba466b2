//! The hot dentries of a superblock: those whose count is sharded over CPUs.
//!
//! # Purpose
//!
//! Each hot dentry costs memory for each CPU, so their number is limited. They are stored in a
//! ring: a dentry that becomes hot takes a free slot near the next position. If there is none, the
//! hot dentries stay hot, and of [`PATIENCE`] requests one is granted: it takes the slot at its
//! position, and the dentry there is demoted. Otherwise a few more busy dentries than fit would
//! demote each other all the time, and each change costs that memory and a grace period. A dentry
//! leaves its slot when its name is removed, which takes no lock, and writes no cache line that
//! belongs to another dentry.
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

/// Number of requests of which one is granted if no slot is free. A dentry makes one after a dozen
/// of its counts that bounced. Prime, so the granted ones come to every slot in turn.
const PATIENCE: usize = 61;
const _: () = assert!(!HOT_MAX.is_multiple_of(PATIENCE));

/// Number of slots that a request looks at for a free one.
const LOOKS: usize = 4;

/// The ring of hot dentries.
pub(crate) struct ShardedRing {
    ring: Box<[CachePadded<AtomicPtr<Dentry>>]>,
    /// Number of requests so far.
    requests: CachePadded<AtomicUsize>,
}

impl ShardedRing {
    /// Creates an empty ring, for counts that are sharded into `slots` parts. With one part no
    /// count is sharded, and the ring has no slots.
    pub(crate) fn new(slots: usize) -> ShardedRing {
        let len = if slots > 1 { HOT_MAX } else { 0 };
        let empty = |_| CachePadded::new(AtomicPtr::new(ptr::null_mut()));
        ShardedRing {
            ring: (0..len).map(empty).collect(),
            requests: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// Returns whether there may be hot dentries.
    pub(crate) fn has_slots(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Returns the slot that another dentry may [enter](Self::enter), or `None` if the hot dentries
    /// shall stay hot. The ring [has slots](Self::has_slots).
    pub(crate) fn request(&self) -> Option<u32> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let slot = |look: usize| number.wrapping_add(look) % self.ring.len();
        // Relaxed: a hint, and nothing is read through the pointer.
        let is_free = |slot: &usize| self.ring[*slot].load(Ordering::Relaxed).is_null();
        let granted = || number.is_multiple_of(PATIENCE).then(|| slot(0));
        (0..LOOKS).map(slot).find(is_free).or_else(granted).map(|slot| slot as u32)
    }

    /// Enters a dentry into a slot. Returns the dentry that must be demoted for it.
    pub(crate) fn enter(&self, dentry: &Dentry, slot: u32) -> Option<NonNull<Dentry>> {
        let entering = ptr::from_ref(dentry).cast_mut();
        // Releases the dentry to the thread that will find it here, and acquires the previous one.
        NonNull::new(self.ring[slot as usize].swap(entering, Ordering::AcqRel))
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
