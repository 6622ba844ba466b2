//! Flags of things that are on a list while they have changes.
//!
//! # Purpose
//!
//! Many threads note changes of a thing, each in memory of its own, and the first of them puts the
//! thing on a list. Another thread takes it off, and looks for the changes. Neither of them holds a
//! lock that the other needs: only the flag says whether the thing is on the list.
//!
//! # Invariants
//!
//! * A thread notes its change and then reads the flag; the other one clears the flag and then
//!   looks for changes. So one of the two sees what the other has done, and no change is missed:
//!   who has taken the thing off sees the change, or the thing is listed again.
//! * A CPU may perform a load before an earlier store to another address. So each side has a full
//!   fence between the two ([`ListedFlag::is_set_for_change`], [`ListedFlag::clear`]). Both are
//!   needed, and each has to be in between: models with one less, or with one before both accesses,
//!   lose changes (`crates/sync/tests/loom/listed.rs`). Under shuttle, whose threads share one
//!   memory, they lose none.

use super::{AtomicBool, Ordering, fence};

/// Whether a thing is on a list.
#[derive(Debug)]
pub struct ListedFlag(AtomicBool);

impl Default for ListedFlag {
    /// Creates the flag of a thing that is not on the list.
    fn default() -> ListedFlag {
        ListedFlag(AtomicBool::new(false))
    }
}

impl ListedFlag {
    /// Returns whether the thing is on the list, or whoever has taken it off will see the change
    /// that the caller has noted just before.
    #[inline]
    pub fn is_set_for_change(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Acquire)
    }

    /// Returns whether the thing is on the list, or was taken off and not [cleared](Self::clear)
    /// yet. The caller holds the list's lock, so no other thread sets the flag.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that the thing is on the list. The caller holds the list's lock.
    #[inline]
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Notes that the thing was taken off the list. The caller looks for changes afterwards: a
    /// change that it misses has the thing listed again.
    #[inline]
    pub fn clear(&self) {
        self.0.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}
