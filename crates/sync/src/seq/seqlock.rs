//! Sequence lock: a [`SeqCount`] with a mutex for its writers. Counterpart of `seqlock_t` in Linux.
//!
//! # Purpose
//!
//! The starting point of Long's seqrwlock patch (2013): readers retry, writers exclude one another.
//! A reader that must not retry has to enter as a writer; [`seqrwlock`](crate::seq::seqrwlock)
//! solves that.
//!
//! # Invariants
//!
//! The count is odd only while the mutex is held. Orderings are as in [`SeqCount`]; the mutex
//! orders writers.

use crate::atomic::const_unless_model;
use crate::lock::{LockClass, Mutex, MutexGuard};
use crate::seq::seqcount::{SeqCount, SeqWrite};

/// A sequence count and the lock of its writers. Eight bytes.
pub struct SeqLock<C: LockClass> {
    seq: SeqCount,
    writers: Mutex<(), C>,
}

impl<C: LockClass> SeqLock<C> {
    const_unless_model! {
        /// Creates a lock without a writer inside.
        pub fn new() -> Self {
            Self { seq: SeqCount::new(), writers: Mutex::new(()) }
        }
    }

    /// Starts reading, waiting while a writer is inside. See [`SeqCount::begin`].
    #[inline]
    pub fn begin(&self) -> u32 {
        self.seq.begin()
    }

    /// Returns whether the data read since `start` must be read again. See [`SeqCount::retry`].
    #[inline]
    pub fn retry(&self, start: u32) -> bool {
        self.seq.retry(start)
    }

    /// Enters as the writer. Blocks while another writer is inside.
    ///
    /// # Panics
    ///
    /// In debug builds, on a breach of lock order.
    #[inline]
    pub fn write(&self) -> SeqLockWriteGuard<'_, C> {
        let lock = self.writers.lock();
        SeqLockWriteGuard { _seq: self.seq.write(), _lock: lock }
    }
}

impl<C: LockClass> Default for SeqLock<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// The writer inside a [`SeqLock`]. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct SeqLockWriteGuard<'a, C: LockClass> {
    // Fields drop in this order: the count is even again before the next writer enters.
    _seq: SeqWrite<'a>,
    _lock: MutexGuard<'a, (), C>,
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
