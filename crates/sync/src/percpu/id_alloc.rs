//! Unique identifiers, in batches for each CPU.

use super::array::{CachePadded, PerCpu};
use crate::atomic::{AtomicU64, Ordering};

/// How many identifiers a slot of [`IdAlloc`] gets at once.
const IDS_PER_BATCH: u64 = 1024;

/// Hands out unique 64-bit identifiers (inode numbers), in batches of 1024 per slot.
///
/// The identifiers of one slot increase. An identifier is never handed out twice; up to a batch
/// for each slot (and, after a rare race, one more) is never handed out at all. The 64 bits last
/// for five centuries at a billion identifiers a second, and the end is not checked.
#[derive(Debug)]
pub struct IdAlloc {
    /// The next number of each slot; a multiple of the batch says that the batch is used up.
    next: PerCpu<AtomicU64>,
    /// The first number of the next batch.
    batches: CachePadded<AtomicU64>,
    first: u64,
}

impl IdAlloc {
    /// Identifiers from `first` on, in `slots` slots.
    #[must_use]
    pub fn new(first: u64, slots: usize) -> Self {
        Self {
            next: PerCpu::new(slots, |_| AtomicU64::new(0)),
            batches: CachePadded::new(AtomicU64::new(0)),
            first,
        }
    }

    /// The next identifier of the slot of the current CPU.
    #[inline]
    #[must_use]
    pub fn next(&self) -> u64 {
        let slot = self.next.this();
        let mut next = slot.load(Ordering::Relaxed);
        loop {
            let id = if next.is_multiple_of(IDS_PER_BATCH) { self.next_batch() } else { next };
            // Relaxed: an identifier carries nothing but itself. A failure after a refill loses
            // that batch to whoever filled the slot first, which keeps the slot increasing.
            match slot.compare_exchange(next, id + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return self.first.wrapping_add(id),
                Err(now) => next = now,
            }
        }
    }

    #[cold]
    fn next_batch(&self) -> u64 {
        self.batches.fetch_add(IDS_PER_BATCH, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
