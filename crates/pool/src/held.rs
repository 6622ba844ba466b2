//! Reservations of the user of an open branch.
//!
//! # Purpose
//!
//! The journal of a volume must never find the pool full. So the volume reserves places for all
//! that it may have to write, at calls that can be refused. Writes do not say what they belong to.
//! They take from the budget of the pool as long as that has places, and only then from what the
//! branch has reserved.
//!
//! # Invariants
//!
//! * *Promised* places are off the budget, but for the *spent* ones, which writes have used. Places
//!   that the branch gives up, or that it gives back, replace the spent ones first.
//! * A fork makes every block of the branch one that it shares, also those that were written with
//!   what was reserved. So it is refused unless no place is missing.
//!
//! # Locks
//!
//! `BranchHeld`, a leaf, only while places are spent or missing. Who gives back reduces the
//! promises first and looks for spent places then; who spends does it the other way round.

use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicU64, Ordering, fence};
use vfscale_sync::percpu::{Budget, PerCpuCounter};

vfscale_sync::lock_class! {
    /// The places that a branch has spent of those that are reserved.
    pub(crate) BranchHeld = ("branch_held", 64080);
}

/// The reserved places of a branch. See the [module](self).
#[derive(Debug)]
pub(crate) struct Held {
    promised: PerCpuCounter,
    /// Changed with the lock, read without it.
    spent: AtomicU64,
    lock: Mutex<(), BranchHeld>,
}

impl Held {
    pub(crate) fn new(slots: usize) -> Self {
        let promised = PerCpuCounter::new(slots);
        Self { promised, spent: AtomicU64::new(0), lock: Mutex::new(()) }
    }

    /// Promises places that the caller has taken from the budget.
    pub(crate) fn promise(&self, places: u64) {
        self.promised.add(places as i64);
    }

    /// Ends the promise of places. Returns how many the caller has to give back to the budget.
    pub(crate) fn release(&self, places: u64) -> u64 {
        self.promised.add(-(places as i64));
        fence(Ordering::SeqCst);
        self.refill(places)
    }

    fn promised(&self) -> u64 {
        u64::try_from(self.promised.sum()).unwrap_or(0)
    }

    /// Spends reserved places. Returns false, and spends nothing, if fewer are there.
    #[cold]
    pub(crate) fn spend(&self, count: u64) -> bool {
        let _alone = self.lock.lock();
        let spent = self.spent.load(Ordering::Relaxed);
        self.spent.store(spent.saturating_add(count), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_there = spent.saturating_add(count) <= self.promised();
        if !is_there {
            self.spent.store(spent, Ordering::SeqCst);
        }
        is_there
    }

    /// Replaces spent places by `count` ones that the caller has. Returns how many are left.
    pub(crate) fn refill(&self, count: u64) -> u64 {
        if count == 0 || self.spent.load(Ordering::SeqCst) == 0 {
            return count;
        }
        let _alone = self.lock.lock();
        let spent = self.spent.load(Ordering::Relaxed);
        let used = spent.min(count);
        self.spent.store(spent - used, Ordering::SeqCst);
        count - used
    }

    /// Takes places from the budget for those that were spent. Returns whether none is missing.
    pub(crate) fn is_filled(&self, budget: &Budget) -> bool {
        let _alone = self.lock.lock();
        let mut spent = self.spent.load(Ordering::Relaxed);
        let some = spent.min(budget.available());
        if some > 0 && budget.take(some) {
            spent -= some;
            self.spent.store(spent, Ordering::SeqCst);
        }
        spent == 0
    }

    /// Ends all promises. Returns how many places are back. No other call runs concurrently.
    pub(crate) fn end(&self) -> u64 {
        let promised = self.promised.sum();
        self.promised.add(-promised);
        let spent = self.spent.swap(0, Ordering::SeqCst);
        u64::try_from(promised).unwrap_or(0).saturating_sub(spent)
    }
}

#[cfg(test)]
mod tests;
