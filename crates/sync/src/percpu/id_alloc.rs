//! Unique identifiers, in batches for each CPU.

use super::array::{CachePadded, PerCpu};
use crate::atomic::{AtomicU64, Ordering};

/// Number of identifiers that a slot of [`IdAlloc`] gets at a time.
const IDS_PER_BATCH: u64 = 1024;

/// An allocator of unique 64-bit identifiers (inode numbers), in batches of 1024 per slot.
///
/// The identifiers of one slot increase. An identifier is never allocated twice; up to a batch for
/// each slot (and, after a rare race, one more) is never allocated at all. The 64 bits last for
/// five centuries at a billion identifiers a second, and the end is not checked.
#[derive(Debug)]
pub struct IdAlloc {
    /// The next number of each slot; a multiple of the batch size means that the batch is used up.
    next: PerCpu<AtomicU64>,
    /// The first number of the next batch.
    batches: CachePadded<AtomicU64>,
    first: u64,
}

impl IdAlloc {
    /// Creates an allocator of identifiers from `first` on, in `slots` slots.
    pub fn new(first: u64, slots: usize) -> Self {
        Self {
            next: PerCpu::new(slots, |_| AtomicU64::new(0)),
            batches: CachePadded::new(AtomicU64::new(0)),
            first,
        }
    }

    /// Returns the next identifier of the slot of a CPU; [its number](crate::cpu::current) is a
    /// hint.
    #[inline]
    pub fn next(&self, cpu: u32) -> u64 {
        let slot = self.next.of(cpu);
        let mut next = slot.load(Ordering::Relaxed);
        loop {
            let id = if next.is_multiple_of(IDS_PER_BATCH) { self.next_batch() } else { next };
            // Relaxed: an identifier publishes no other data. If the exchange fails after a
            // refill, another thread has filled the slot first, and this batch is lost; so the
            // numbers of the slot still increase.
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
