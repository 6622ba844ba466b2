//! Sequence read/write lock: a sequence lock with a second kind of reader, which blocks.
//!
//! # Purpose
//!
//! Waiman Long's seqrwlock patch (2013), for `rename_lock`. Four kinds of users:
//!
//! 1. A retrying reader ([`begin`](SeqRwLock::begin), [`retry`](SeqRwLock::retry)) writes nothing
//!    and retries if a writer was inside.
//! 2. A blocking reader ([`read`](SeqRwLock::read)) excludes writers, shares with readers of both
//!    kinds, and does not change the count. It is for long walks that can't be repeated for ever,
//!    such as building a path.
//! 3. A writer ([`write`](SeqRwLock::write)) excludes blocking readers and other writers.
//! 4. A writer of one part of the data ([`write_part`](SeqRwLock::write_part)) marks the part, and
//!    readers wait for the mark. As long as there is no blocking reader it writes nothing else, so
//!    writers of different parts do not meet. Data with such writers has no others, and its count
//!    does not show them: retrying readers check the marks as well.
//!
//! Before the patch a blocking reader had to enter as a writer, and so made all retrying readers
//! retry; and before and after it there were no writers of parts.
//! [`with_exclusive`](SeqRwLock::with_exclusive) has both settings.
//!
//! The patch warns that its writers can starve. Here they don't: a waiting writer stops new
//! blocking readers, as in [`RwLock`].
//!
//! # Invariants
//!
//! The count is odd only while the write side is held. Orderings are as in [`SeqCount`] for
//! retrying readers and as in [`RwLock`] for the others; writers follow one another under the lock.
//!
//! Data of a part that a blocking reader has read does not change until it leaves. It enters, and
//! checks the mark after that; the writer of the part sets the mark, and checks for readers inside
//! after that; both have a fence in between. So one of the two sees the other: the reader waits, or
//! the writer removes the mark and waits as the writer of everything.

use crate::atomic::{Ordering, const_unless_model, fence};
use crate::lock::{LockClass, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::seq::seqcount::{SeqCount, SeqWrite};

/// A sequence count, and a reader-writer lock for everything but retrying readers.
pub struct SeqRwLock<C: LockClass> {
    seq: SeqCount,
    lock: RwLock<(), C>,
    exclusive_readers: bool,
    exclusive_parts: bool,
}

impl<C: LockClass> SeqRwLock<C> {
    const_unless_model! {
        /// Creates a free lock whose blocking readers share it.
        pub fn new() -> Self {
            Self::with_exclusive(false, false)
        }
    }

    const_unless_model! {
        /// Creates a free lock. With exclusive `readers`, a blocking reader enters as a writer and
        /// changes the count, as it had to before the patch. With exclusive `parts`, the writer of
        /// a part is the writer of everything.
        pub fn with_exclusive(readers: bool, parts: bool) -> Self {
            Self {
                seq: SeqCount::new(),
                lock: RwLock::new(()),
                exclusive_readers: readers,
                exclusive_parts: parts,
            }
        }
    }

    /// Starts a retrying read, waiting while a writer is inside. See [`SeqCount::begin`].
    #[inline]
    pub fn begin(&self) -> u32 {
        self.seq.begin()
    }

    /// Starts a retrying read unless a writer is inside. Never blocks.
    #[inline]
    pub fn try_begin(&self) -> Option<u32> {
        self.seq.try_begin()
    }

    /// Returns whether the data read since `start` must be read again. See [`SeqCount::retry`].
    #[inline]
    pub fn retry(&self, start: u32) -> bool {
        self.seq.retry(start)
    }

    /// Enters as a blocking reader. Blocks while a writer is inside or waits; must not be nested.
    ///
    /// # Panics
    ///
    /// In debug builds, on a breach of lock order.
    #[inline]
    pub fn read(&self) -> SeqRwReadGuard<'_, C> {
        let side = if self.exclusive_readers {
            Side::Exclusive { _write: self.write() }
        } else {
            Side::Shared { _read: self.lock.read() }
        };
        fence(Ordering::SeqCst);
        SeqRwReadGuard { _side: side }
    }

    /// Enters as a blocking reader if that needs no waiting. Never blocks.
    #[inline]
    pub fn try_read(&self) -> Option<SeqRwReadGuard<'_, C>> {
        let side = if self.exclusive_readers {
            Side::Exclusive { _write: self.try_write()? }
        } else {
            Side::Shared { _read: self.lock.try_read()? }
        };
        fence(Ordering::SeqCst);
        Some(SeqRwReadGuard { _side: side })
    }

    /// Enters as the writer. Blocks while a blocking reader or a writer is inside; readers that
    /// arrive later wait.
    ///
    /// # Panics
    ///
    /// In debug builds, on a breach of lock order.
    #[inline]
    pub fn write(&self) -> SeqRwWriteGuard<'_, C> {
        let lock = self.lock.write();
        SeqRwWriteGuard { _seq: self.seq.write(), _lock: lock }
    }

    /// Enters as a writer of one part, which `mark` marks: until the mark is dropped, readers of
    /// the part wait. Blocks as [`write`](Self::write) does, with the part not marked, if a
    /// blocking reader is inside, or if writers of parts are exclusive. Returns the writer's guard
    /// too if it entered as the writer of everything.
    ///
    /// # Panics
    ///
    /// In debug builds, on a breach of lock order, if it blocks.
    #[inline]
    pub fn write_part<P>(&self, mark: impl Fn() -> P) -> (Option<SeqRwWriteGuard<'_, C>>, P) {
        if !self.exclusive_parts {
            let part = mark();
            fence(Ordering::SeqCst);
            if !self.lock.is_taken() {
                return (None, part);
            }
        }
        (Some(self.write()), mark())
    }

    /// Enters as the writer if no blocking reader or writer is inside. Never blocks.
    #[inline]
    pub fn try_write(&self) -> Option<SeqRwWriteGuard<'_, C>> {
        let lock = self.lock.try_write()?;
        Some(SeqRwWriteGuard { _seq: self.seq.write(), _lock: lock })
    }
}

impl<C: LockClass> Default for SeqRwLock<C> {
    fn default() -> Self {
        Self::new()
    }
}

enum Side<'a, C: LockClass> {
    Shared { _read: RwLockReadGuard<'a, (), C> },
    Exclusive { _write: SeqRwWriteGuard<'a, C> },
}

/// A blocking reader inside a [`SeqRwLock`]. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct SeqRwReadGuard<'a, C: LockClass> {
    _side: Side<'a, C>,
}

/// The writer inside a [`SeqRwLock`]. Not `Send`.
#[must_use = "the lock is released when the guard is dropped"]
pub struct SeqRwWriteGuard<'a, C: LockClass> {
    // Fields drop in this order: the count is even again before another thread enters.
    _seq: SeqWrite<'a>,
    _lock: RwLockWriteGuard<'a, (), C>,
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
