//! Heat of a group: whether several CPUs contend for its lock.
//!
//! A commit that finds the lock of its group taken heats the group by [`GAIN`], and one that finds
//! it free cools it by 1. The group is hot from the twelfth of successive waits on, like the word
//! of a [`ShardedRwLock`](vfscale_sync::percpu::ShardedRwLock). Claims then turn to the group of
//! the claiming CPU. Only the commits that stay cool the group, so it remains hot for as long as
//! about one in 64 of them waits, and at most for 4,096 commits without a wait: a change of group
//! costs a file its place beside its directory, and must not happen back and forth.

use vfscale_sync::atomic::{AtomicU32, Ordering};

/// By how much a wait heats a group.
const GAIN: u32 = 64;
/// A group with this heat is hot.
const HOT: u32 = 12 * GAIN;
/// The maximum heat.
const MAX: u32 = HOT + 4096;

/// The heat of a group. A hint: written without synchronization.
#[derive(Debug, Default)]
pub(super) struct Heat(AtomicU32);

impl Heat {
    /// Notes a commit, which found the lock `taken` or free.
    pub(super) fn note(&self, taken: bool) {
        let heat = self.0.load(Ordering::Relaxed);
        let noted = if taken { (heat + GAIN).min(MAX) } else { heat.saturating_sub(1) };
        // A cold group that nobody waits for is not written.
        if noted != heat {
            self.0.store(noted, Ordering::Relaxed);
        }
    }

    /// Returns whether several CPUs contend for the group.
    pub(super) fn is_hot(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= HOT
    }
}

#[cfg(test)]
mod tests;
