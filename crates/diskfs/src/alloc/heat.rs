//! Heat of a group: whether several CPUs contend for its lock.
//!
//! A commit that finds the lock of its group taken heats the group by [`WAITED`]. One that finds it
//! free cools it by 1, or heats it by [`MOVED`] if the last commit was on another CPU: then its
//! lines come from there, even where another lock keeps the two from meeting at this one, like that
//! of a directory that both change. The group is hot from the twelfth of successive waits on, like
//! the word of a [`ShardedRwLock`](vfscale_sync::percpu::ShardedRwLock). Claims then turn to the
//! group of the claiming CPU. Only the commits that stay cool the group, so it remains hot for as
//! long as about one in 64 of them waits, and at most for 4,096 commits without a wait: a change of
//! group costs a file its place beside its directory, and must not happen back and forth.

use vfscale_sync::atomic::{AtomicU32, Ordering};

/// By how much a wait heats a group.
const WAITED: u32 = 64;
/// By how much a commit heats it that follows one of another CPU.
const MOVED: u32 = 8;
/// A group with this heat is hot.
const HOT: u32 = 12 * WAITED;
/// The maximum heat.
const MAX: u32 = HOT + 4096;

/// The heat of a group. A hint: written without synchronization.
#[derive(Debug, Default)]
pub(super) struct Heat(AtomicU32);

/// How a commit came to the lock of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Another thread held the lock.
    Waiting,
    /// The last commit was on another CPU.
    FromOther,
    /// The last commit was on this CPU.
    FromSame,
}

impl Heat {
    /// Notes a commit.
    pub(super) fn note(&self, came: Came) {
        let heat = self.0.load(Ordering::Relaxed);
        let noted = match came {
            Came::Waiting => (heat + WAITED).min(MAX),
            Came::FromOther => (heat + MOVED).min(MAX),
            Came::FromSame => heat.saturating_sub(1),
        };
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
