//! Counters with a part for each CPU.

use super::array::{CachePadded, PerCpu};
use crate::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// A signed counter that is cheap to change and expensive to read. Counterpart of `percpu_counter`
/// in Linux.
///
/// An update releases and a sum acquires: a thread that sees the effect of an [`add`](Self::add) in
/// a [`sum`](Self::sum) also sees everything that the adding thread did before.
#[derive(Debug)]
pub struct PerCpuCounter {
    parts: PerCpu<AtomicI64>,
}

impl PerCpuCounter {
    /// Creates a counter of value 0 in `slots` parts.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { parts: PerCpu::new(slots, |_| AtomicI64::new(0)) }
    }

    /// Adds `delta`, which may be negative, to the part of the current CPU. Wraps on overflow.
    #[inline]
    pub fn add(&self, delta: i64) {
        self.parts.this().fetch_add(delta, Ordering::Release);
    }

    /// Adds `delta` and then calls `keep`; subtracts it again, from the same part, if that returns
    /// false. So a concurrent sum that reads the part once never sees the subtraction without the
    /// addition.
    #[inline]
    pub fn add_if(&self, delta: i64, keep: impl FnOnce() -> bool) -> bool {
        let part = self.parts.this();
        part.fetch_add(delta, Ordering::Release);
        let kept = keep();
        if !kept {
            part.fetch_sub(delta, Ordering::Release);
        }
        kept
    }

    /// Returns the value of each part, in the order of their numbers. For tests and reports: parts
    /// may be negative, and only their sum means something.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = i64> {
        self.parts.iter().map(|part| part.load(Ordering::Acquire))
    }

    /// Returns the sum of all parts. Exact if no update runs concurrently. Otherwise it contains
    /// some of the concurrent updates and lacks others, and can even be negative although the value
    /// never was.
    #[must_use]
    pub fn sum(&self) -> i64 {
        self.parts.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Ordering::Acquire)))
    }
}

/// The amount that each change adds to a part of a [`SnapshotCounter`], in addition to its own.
const CHANGE: u64 = 1 << 32;

/// A count that is cheap to change, and that can be read as of one moment. Readers write nothing.
///
/// # Why a value is of one moment
///
/// Each change makes a part larger, even one that counts down: it adds 2^32 and the amount. So
/// parts only grow, and two equal sums, one read after the other, prove that no part has changed
/// from the last reading of the first to the first reading of the second. The lower half of such a
/// sum is the value. Amounts stay below 2^31, and the sum may wrap: a reader that sleeps through
/// 2^32 changes is fooled, like a reader of a [`SeqCount`](crate::seq::seqcount::SeqCount).
///
/// A change is a release, and readings acquire: a reader that sees one change sees everything that
/// its thread did before it.
#[derive(Debug)]
pub struct SnapshotCounter {
    parts: PerCpu<AtomicU64>,
}

impl SnapshotCounter {
    /// Creates a count of 0 in `slots` parts.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { parts: PerCpu::new(slots, |_| AtomicU64::new(0)) }
    }

    /// Returns the memory that `slots` parts take, in bytes.
    #[must_use]
    pub fn bytes(slots: usize) -> usize {
        slots * size_of::<CachePadded<AtomicU64>>()
    }

    /// Adds `amount`, which may be negative, to the part of the current CPU.
    #[inline]
    pub fn add(&self, amount: i32) {
        let step = CHANGE.wrapping_add_signed(i64::from(amount));
        self.parts.this().fetch_add(step, Ordering::Release);
    }

    /// Returns the value at the moment at which `look` was called, with the result of `look`.
    /// `None` if the count has changed during the call. Reads all parts twice; never blocks.
    #[must_use]
    pub fn read_with<T>(&self, look: impl FnOnce() -> T) -> Option<(i32, T)> {
        let before = self.sum();
        let seen = look();
        fence(Ordering::Acquire);
        (self.sum() == before).then_some((before as i32, seen))
    }

    fn sum(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Ordering::Acquire)))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
