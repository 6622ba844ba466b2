//! A bound on the values on all lists that share it.

use crate::atomic::{AtomicBool, Ordering};
use crate::percpu::Budget;

/// The largest batch.
const BATCH_MAX: u64 = 32;

/// The bound is no longer low when the total divided by this is free.
const LOW_SHARE: u64 = 8;

/// A bound on the values of any number of [`SharedList`](super::SharedList)s. `Send` and `Sync`.
///
/// It is exact: there are never more values. A value may be refused while slots hold units for
/// future values, at most two batches for each slot of each list; see [`is_low`](Self::is_low).
#[derive(Debug)]
pub struct Bound {
    budget: Budget,
    /// Number of units that a slot takes at a time.
    pub(super) batch: u32,
    /// Set when fewer than two batches were left. Read by all, and written only near the bound.
    low: AtomicBool,
}

impl Bound {
    /// Creates a bound of `total` values, counted in `slots` slots.
    pub fn new(total: u64, slots: usize) -> Bound {
        let batch = total / (slots.max(1) as u64).saturating_mul(64);
        Bound {
            budget: Budget::new(total, slots),
            batch: batch.clamp(1, BATCH_MAX) as u32,
            low: AtomicBool::new(false),
        }
    }

    /// Takes a batch of units, or one unit if no batch is left; returns the number taken. Sets the
    /// flag of [`is_low`](Self::is_low) if it leaves less than another batch: an early warning for
    /// a caller that must not fail for lack of a unit.
    pub(super) fn take_batch(&self) -> u32 {
        let batch = u64::from(self.batch);
        if self.budget.take(2 * batch) {
            self.budget.give(batch);
            return self.batch;
        }
        self.low.store(true, Ordering::Relaxed);
        u32::from(self.budget.take(1))
    }

    /// Gives units back.
    pub fn give(&self, units: u32) {
        self.budget.give(u64::from(units));
    }

    /// Returns whether the bound is near. Lists that hold units for future values should then give
    /// them back ([`SharedList::trim`](super::SharedList::trim)) before a value is refused.
    #[inline]
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Returns whether there is a unit that no list holds. Reads all slots, and clears the flag of
    /// [`is_low`](Self::is_low) if the bound is no longer near.
    pub fn has_room(&self) -> bool {
        let left = self.budget.available();
        if left > self.budget.total() / LOW_SHARE {
            self.low.store(false, Ordering::Relaxed);
        }
        left > 0
    }

    /// Returns the number of units taken, including the units that lists hold for future values.
    /// Exact if nothing changes concurrently.
    pub fn used(&self) -> u64 {
        self.budget.used()
    }
}
