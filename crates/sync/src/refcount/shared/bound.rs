//! How many values there may be on all lists that share a bound.

use crate::atomic::{AtomicBool, Ordering};
use crate::percpu::Budget;

/// The largest batch.
const BATCH_MAX: u64 = 32;

/// The share of the total that is left when the bound is not low any more.
const LOW_SHARE: u64 = 8;

/// A bound on the values of any number of [`SharedList`](super::SharedList)s. `Send` and `Sync`.
///
/// It is exact: never are there more values. A value may be refused while slots keep units for
/// values to come, which is at most two batches for each slot of each list; see
/// [`is_low`](Self::is_low).
#[derive(Debug)]
pub struct Bound {
    budget: Budget,
    /// Units that a slot takes at a time.
    pub(super) batch: u32,
    /// Set when there was less than two batches left. Read by all, and written near the bound only.
    low: AtomicBool,
}

impl Bound {
    /// A bound of `total` values, counted in `slots` slots.
    #[must_use]
    pub fn new(total: u64, slots: usize) -> Bound {
        let batch = total / (slots.max(1) as u64).saturating_mul(64);
        Bound {
            budget: Budget::new(total, slots),
            batch: batch.clamp(1, BATCH_MAX) as u32,
            low: AtomicBool::new(false),
        }
    }

    /// Takes a batch of units, or one if there are no more; returns how many. Says that the bound
    /// is low when it leaves less than another batch, so that whoever has to be sure of a unit
    /// knows in time.
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

    /// Whether the bound is near, so that lists that keep units for values to come should give them
    /// back ([`SharedList::trim`](super::SharedList::trim)) before a value is refused.
    #[inline]
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Whether there is a unit that no list has. Looks at all slots, and notes if the bound is far
    /// again.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let left = self.budget.available();
        if left > self.budget.total() / LOW_SHARE {
            self.low.store(false, Ordering::Relaxed);
        }
        left > 0
    }

    /// Units that are taken, with those that lists keep for values to come. Exact when nothing
    /// changes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.budget.used()
    }
}
