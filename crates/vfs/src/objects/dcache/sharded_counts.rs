//! The hot dentries of a superblock: those whose count is spread over CPUs.
//!
//! # Purpose
//!
//! Each hot dentry costs memory for each CPU, so that there are only so many of them. They stand in
//! a ring: one that becomes hot takes the next place, and who stands there since the last time
//! round is demoted for it. A dentry leaves its place when its name is removed, which takes no
//! lock, and writes no line that belongs to another one.
//!
//! # Invariants
//!
//! * A dentry enters and leaves under its `d_lock`, and stands in the ring only while its count is
//!   spread, or until who has begun to collect that lets go of the lock. So it stands there once at
//!   most, and the number of its place is its own.
//! * Who takes a dentry's place is in an RCU section. If the dentry found itself gone from there,
//!   the collection of its count, which waits for a grace period, keeps it until that section ends.

use std::ptr::{self, NonNull};

use vfscale_sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use vfscale_sync::percpu::Apart;

use crate::objects::dcache::dentry::Dentry;

/// The most hot dentries a superblock has; each costs a cache line pair for each CPU.
pub(crate) const HOT_MAX: usize = 256;

/// The ring.
pub(crate) struct ShardedRing {
    places: Box<[Apart<AtomicPtr<Dentry>>]>,
    /// How many dentries have become hot so far.
    entered: Apart<AtomicUsize>,
}

impl ShardedRing {
    /// A ring with nobody in it, for counts that are spread over `slots` parts: with one, none is.
    pub(crate) fn new(slots: usize) -> ShardedRing {
        let places = if slots > 1 { HOT_MAX } else { 0 };
        let empty = |_| Apart(AtomicPtr::new(ptr::null_mut()));
        ShardedRing {
            places: (0..places).map(empty).collect(),
            entered: Apart(AtomicUsize::new(0)),
        }
    }

    /// Whether there may be hot dentries.
    pub(crate) fn has_places(&self) -> bool {
        !self.places.is_empty()
    }

    /// Enters a dentry. Returns its place, and who has to be demoted for it.
    pub(crate) fn enter(&self, dentry: &Dentry) -> (u32, Option<NonNull<Dentry>>) {
        let place = self.entered.fetch_add(1, Ordering::Relaxed) % self.places.len();
        let entering = ptr::from_ref(dentry).cast_mut();
        // Releases the dentry to who will find it there, and acquires the one that is there.
        let before = self.places[place].swap(entering, Ordering::AcqRel);
        (place as u32, NonNull::new(before))
    }

    /// Takes a dentry off its place, unless another has that by now.
    pub(crate) fn leave(&self, dentry: &Dentry, place: u32) {
        let leaving = ptr::from_ref(dentry).cast_mut();
        let nobody = ptr::null_mut();
        // Relaxed: the other has found it there, and has it to demote; nothing is looked at here.
        let _ = self.places[place as usize].compare_exchange(
            leaving,
            nobody,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
