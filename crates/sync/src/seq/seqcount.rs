//! Sequence count: readers that write nothing and retry if a writer was inside. Counterpart of
//! `seqcount_t` in Linux.
//!
//! # Purpose
//!
//! For a few related words that are read far more often than written. The reader notes the count,
//! reads, and checks that the count is unchanged; the writer makes it odd while it writes.
//! (Lameter, "Effective synchronization on Linux/NUMA systems", 2005.)
//!
//! # Invariants
//!
//! * The caller serialises writers; the count does not.
//! * The data are atomics, read and written with relaxed ordering, or words that never move: a
//!   reader may see a torn mixture, and acts on it only after [`SeqCount::retry`] returned `false`.
//! * The count wraps after 2^31 writes. A reader that sleeps through exactly a multiple of that is
//!   fooled; at one write per nanosecond that takes two seconds inside one read section.
//!
//! # Why the orderings suffice
//!
//! After Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012.
//!
//! * Reader sees new data, so it must see the count changed: the writer's odd store precedes its
//!   release fence, and the data stores follow it. The reader's data loads precede its acquire
//!   fence, and the second count load follows it. If a data load reads from a writer's store, the
//!   two fences synchronise, and the second load sees the odd count or a later one.
//! * Reader sees the new count, so it must see the new data: the even store is a release, the
//!   first count load an acquire.
//! * Two writers follow one another under the caller's lock, so the relaxed load in
//!   [`SeqCount::write`] reads the last count.

use std::marker::PhantomData;

use crate::atomic::{AtomicU32, Ordering, const_unless_model, fence};
use crate::lock::wait::Backoff;

/// A count that is odd while a writer is inside. Four bytes; `Send` and `Sync`.
#[derive(Debug)]
pub struct SeqCount {
    count: AtomicU32,
}

impl SeqCount {
    const_unless_model! {
        /// Creates a count without a writer inside.
        pub fn new() -> Self {
            Self { count: AtomicU32::new(0) }
        }
    }

    /// Starts reading. While a writer is inside: spins, then yields, then sleeps up to a
    /// millisecond at a time. Writes nothing.
    #[inline]
    pub fn begin(&self) -> u32 {
        self.try_begin().unwrap_or_else(|| self.begin_slow())
    }

    #[cold]
    fn begin_slow(&self) -> u32 {
        let mut backoff = Backoff::new();
        loop {
            backoff.wait();
            if let Some(start) = self.try_begin() {
                return start;
            }
        }
    }

    /// Starts reading unless a writer is inside. Never blocks, writes nothing.
    #[inline]
    pub fn try_begin(&self) -> Option<u32> {
        let start = self.raw();
        (start & 1 == 0).then_some(start)
    }

    /// Returns the current count, odd while a writer is inside. A reader that starts from an odd
    /// count always has to retry.
    #[inline]
    pub fn raw(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns whether the data read since `start` may be torn, and must be read again. An odd
    /// `start` is always torn.
    #[inline]
    pub fn retry(&self, start: u32) -> bool {
        fence(Ordering::Acquire);
        start & 1 != 0 || self.count.load(Ordering::Relaxed) != start
    }

    /// Enters as the writer, until the result is dropped. The caller excludes other writers.
    ///
    /// # Panics
    ///
    /// In debug builds, if a writer is inside.
    #[inline]
    pub fn write(&self) -> SeqWrite<'_> {
        let before = self.count.load(Ordering::Relaxed);
        debug_assert!(before & 1 == 0, "two writers on one sequence count");
        self.count.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        SeqWrite { seq: self, after: before.wrapping_add(2), not_send: PhantomData }
    }
}

impl Default for SeqCount {
    fn default() -> Self {
        Self::new()
    }
}

/// The writer inside a [`SeqCount`]. Not `Send`.
#[must_use = "readers wait until this is dropped"]
pub struct SeqWrite<'a> {
    seq: &'a SeqCount,
    after: u32,
    not_send: PhantomData<*const ()>,
}

impl Drop for SeqWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        self.seq.count.store(self.after, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
