//! Counters with a part for each CPU.

use super::array::{CachePadded, PerCpu};
use crate::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use crate::cpu;
use crate::lock::wait::Backoff;

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
    pub fn new(slots: usize) -> Self {
        Self { parts: PerCpu::new(slots, |_| AtomicI64::new(0)) }
    }

    /// Adds `delta`, which may be negative, to the part of the current CPU. Wraps on overflow.
    #[inline]
    pub fn add(&self, delta: i64) {
        self.add_at(cpu::current(), delta);
    }

    /// Adds `delta` like [`add`](Self::add), to the part of a CPU.
    #[inline]
    pub fn add_at(&self, cpu: u32, delta: i64) {
        self.parts.of(cpu).fetch_add(delta, Ordering::Release);
    }

    /// Adds `delta` and then calls `keep`; subtracts it again, from the same part, if that returns
    /// false. So a concurrent sum that reads the part once never sees the subtraction without the
    /// addition.
    #[inline]
    pub fn add_if(&self, delta: i64, keep: impl FnOnce() -> bool) -> bool {
        self.add_if_at(cpu::current(), delta, keep)
    }

    /// Adds `delta` like [`add_if`](Self::add_if), to the part of a CPU.
    #[inline]
    pub fn add_if_at(&self, cpu: u32, delta: i64, keep: impl FnOnce() -> bool) -> bool {
        let part = self.parts.of(cpu);
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
    pub fn sum(&self) -> i64 {
        self.parts.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Ordering::Acquire)))
    }
}

/// The amount that each change adds to a part of a [`SnapshotCounter`], in addition to its own.
const CHANGE: u64 = 1 << 32;

/// Number of attempts of a reader before it asks writers to leave the parts alone.
const ATTEMPTS: u32 = 3;

/// A count that is cheap to change, and that can be read as of one moment. No writer ever waits for
/// a reader. Readers write nothing, unless the count changes while they read it.
///
/// # Why a value is of one moment
///
/// Each change makes a part larger, even one that counts down: it adds 2^32 and the amount. So
/// parts only grow, and two equal sums, one read after the other, prove that no part has changed
/// from the last reading of the first to the first reading of the second. The lower half of such a
/// sum is the value. Amounts stay below 2^31, and the sum may wrap: a reader that sleeps through
/// 2^32 changes is fooled, like a reader of a [`SeqCount`](crate::seq::seqcount::SeqCount).
///
/// # Why a reader arrives
///
/// Where several CPUs change the count all the time, no two sums are equal. A reader that has tried
/// a few times then announces itself, and writers that see the announcement add to one common part
/// instead of that of their CPU. The others stand still, except for writers that looked before the
/// announcement, each of which changes one part once. The reader loads the common part between
/// equal sums of the others, so that load is the moment of its value. Meanwhile writers share a
/// line, which costs them time and makes none of them wait for another thread.
///
/// A change is a release, and readings acquire: a reader that sees one change sees everything that
/// its thread did before it.
#[derive(Debug)]
pub struct SnapshotCounter {
    parts: PerCpu<AtomicU64>,
    /// Number of readers that ask writers to use the common part.
    readers: AtomicU32,
    common: CachePadded<AtomicU64>,
}

impl SnapshotCounter {
    /// Creates a count of 0 in `slots` parts.
    pub fn new(slots: usize) -> Self {
        Self {
            parts: PerCpu::new(slots, |_| AtomicU64::new(0)),
            readers: AtomicU32::new(0),
            common: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Returns the memory that `slots` parts take, in bytes.
    pub fn bytes(slots: usize) -> usize {
        slots * size_of::<CachePadded<AtomicU64>>() + size_of::<Self>()
    }

    /// Adds `amount`, which may be negative, to the part of the current CPU, or to the common part
    /// while a reader asks for that. Never waits.
    #[inline]
    pub fn add(&self, amount: i32) {
        let step = CHANGE.wrapping_add_signed(i64::from(amount));
        // Relaxed: if this thread misses an announcement, the reader sees a change and repeats.
        let asked = self.readers.load(Ordering::Relaxed) != 0;
        let part = if asked { &*self.common } else { self.parts.this() };
        part.fetch_add(step, Ordering::Release);
    }

    /// Returns the value and the result of `look`, both as of one moment during the call.
    ///
    /// `look` reads what may change together with the count, and is called several times. The
    /// reader repeats while the parts change or `look` returns different results, which ends when
    /// the writers that are in [`add`](Self::add) have left it. It yields, then sleeps up to a
    /// millisecond at a time, if one of them has lost its CPU there.
    pub fn read_with<T: PartialEq>(&self, look: impl Fn() -> T) -> (i32, T) {
        let found = (0..ATTEMPTS).find_map(|_| self.try_read_with(&look));
        found.unwrap_or_else(|| {
            let _asking = Asking::new(&self.readers);
            let mut wait = Backoff::new();
            loop {
                if let Some(found) = self.try_read_with(&look) {
                    return found;
                }
                wait.wait();
            }
        })
    }

    /// Reads like [`read_with`](Self::read_with), once: `None` if the count has changed during the
    /// call. Reads all parts twice; never waits.
    pub fn try_read_with<T: PartialEq>(&self, look: impl Fn() -> T) -> Option<(i32, T)> {
        let before = self.sum();
        let seen = look();
        let common = self.common.load(Ordering::Acquire);
        let is_settled = look() == seen;
        fence(Ordering::Acquire);
        let value = before.wrapping_add(common) as i32;
        (is_settled && self.sum() == before).then_some((value, seen))
    }

    /// Sums the parts of all CPUs.
    fn sum(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Ordering::Acquire)))
    }
}

/// The announcement of a reader, until it is dropped.
struct Asking<'a>(&'a AtomicU32);

impl<'a> Asking<'a> {
    fn new(readers: &'a AtomicU32) -> Self {
        readers.fetch_add(1, Ordering::Relaxed);
        Self(readers)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // Release: a writer that returned to its part too early would make the reader repeat.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
