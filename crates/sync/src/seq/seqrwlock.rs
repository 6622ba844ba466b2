//! Sequence read/write lock: a sequence lock with a second kind of reader, which blocks.
//!
//! # Purpose
//!
//! Seed 000, patch 2 (Waiman Long), for `rename_lock`. Four users:
//!
//! 1. A retrying reader ([`begin`](SeqRwLock::begin), [`retry`](SeqRwLock::retry)) writes nothing
//!    and tries again if a writer was there.
//! 2. A blocking reader ([`read`](SeqRwLock::read)) keeps writers out, shares with readers of both
//!    kinds, and leaves the count alone. It is for long walks that can't be repeated for ever,
//!    such as building a path.
//! 3. A writer ([`write`](SeqRwLock::write)) keeps blocking readers and other writers out.
//! 4. A writer of one part of the data ([`write_part`](SeqRwLock::write_part)) marks the part, in a
//!    way that readers wait for. As long as there is no blocking reader it writes nothing else, so
//!    that writers of different parts do not meet. Where there are such writers there are no
//!    others, and the count says nothing: readers that retry go by the marks as well.
//!
//! Before the patch a blocking reader had to take the writer's side, and so made all readers of
//! the first kind retry. [`with_exclusive_readers`](SeqRwLock::with_exclusive_readers) is that
//! setting.
//!
//! The patch warns that its writers can starve. Here they don't: a waiting writer stops new
//! blocking readers, as in [`RwLock`].
//!
//! # Invariants
//!
//! The count is odd only while the write side is held. Orderings are those of [`SeqCount`] for
//! retrying readers and of [`RwLock`] for the others; writers follow one another under the lock.
//!
//! What a blocking reader has read of a part stays as it is until he leaves. He enters, and looks
//! at the mark after that; the writer of the part marks it, and looks whether a reader is inside
//! after that; a fence stands between on both sides. So one of the two sees the other: the reader
//! waits, or the writer takes the mark back and waits as the writer of everything.

use crate::atomic::{Ordering, const_unless_loom, fence};
use crate::lock::{LockClass, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::seq::seqcount::{SeqCount, SeqWrite};

/// A sequence count and the reader-writer lock of everybody who does not retry.
pub struct SeqRwLock<C: LockClass> {
    seq: SeqCount,
    lock: RwLock<(), C>,
    exclusive_readers: bool,
}

impl<C: LockClass> SeqRwLock<C> {
    const_unless_loom! {
        /// Nobody inside; blocking readers share.
        #[must_use]
        pub fn new() -> Self {
            Self::with_exclusive_readers(false)
        }
    }

    const_unless_loom! {
        /// Nobody inside. With `true`, a blocking reader takes the writer's side and moves the
        /// count, as it had to before the patch.
        #[must_use]
        pub fn with_exclusive_readers(exclusive: bool) -> Self {
            Self { seq: SeqCount::new(), lock: RwLock::new(()), exclusive_readers: exclusive }
        }
    }

    /// Starts a retrying read, waiting while a writer is inside. See [`SeqCount::begin`].
    #[inline]
    #[must_use]
    pub fn begin(&self) -> u32 {
        self.seq.begin()
    }

    /// Starts a retrying read unless a writer is inside. Never blocks.
    #[inline]
    #[must_use]
    pub fn try_begin(&self) -> Option<u32> {
        self.seq.try_begin()
    }

    /// Whether what was read since `start` has to be read again. See [`SeqCount::retry`].
    #[inline]
    #[must_use]
    pub fn retry(&self, start: u32) -> bool {
        self.seq.retry(start)
    }

    /// Enters as a blocking reader. Blocks while a writer is inside or waits; not to be nested.
    ///
    /// # Panics
    ///
    /// In debug builds, on a breach of lock order.
    #[inline]
    pub fn read(&self) -> SeqRwReadGuard<'_, C> {
        if self.exclusive_readers {
            return SeqRwReadGuard { _side: Side::Exclusive { _write: self.write() } };
        }
        let read = self.lock.read();
        fence(Ordering::SeqCst);
        SeqRwReadGuard { _side: Side::Shared { _read: read } }
    }

    /// Enters as a blocking reader if that needs no waiting. Never blocks.
    #[inline]
    pub fn try_read(&self) -> Option<SeqRwReadGuard<'_, C>> {
        let side = if self.exclusive_readers {
            Side::Exclusive { _write: self.try_write()? }
        } else {
            let read = self.lock.try_read()?;
            fence(Ordering::SeqCst);
            Side::Shared { _read: read }
        };
        Some(SeqRwReadGuard { _side: side })
    }

    /// Enters as the writer. Blocks while a blocking reader or a writer is inside; readers that
    /// came later wait.
    ///
    /// # Panics
    ///
    /// In debug builds, on a breach of lock order.
    #[inline]
    pub fn write(&self) -> SeqRwWriteGuard<'_, C> {
        let lock = self.lock.write();
        SeqRwWriteGuard { _seq: self.seq.write(), _lock: lock }
    }

    /// Enters as a writer of one part, which `mark` marks: until what that returns is dropped, who
    /// reads the part waits. Blocks as [`write`](Self::write) does, with the part not marked, while
    /// a blocking reader is inside, or if those are exclusive. Returns the writer's side too if it
    /// was taken.
    ///
    /// # Panics
    ///
    /// In debug builds, on a breach of lock order, if it blocks.
    #[inline]
    pub fn write_part<P>(&self, mark: impl Fn() -> P) -> (Option<SeqRwWriteGuard<'_, C>>, P) {
        if !self.exclusive_readers {
            let part = mark();
            fence(Ordering::SeqCst);
            if !self.lock.is_taken() {
                return (None, part);
            }
        }
        (Some(self.write()), mark())
    }

    /// Enters as the writer if nobody who blocks is inside. Never blocks.
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
    // Fields drop in this order: the count is even again before anybody else gets in.
    _seq: SeqWrite<'a>,
    _lock: RwLockWriteGuard<'a, (), C>,
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
