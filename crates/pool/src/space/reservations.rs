//! Reservations of the user of an open branch.
//!
//! # Purpose
//!
//! The journal of a volume must never find the pool full. So the volume reserves places for all
//! that it may have to write, at calls that can be refused. Writes do not say what they belong to.
//! They take from the budget of the pool as long as that has places, and only then from what the
//! branch has reserved.
//!
//! Blocks that are written again and again, such as those of a log, are reserved by their numbers:
//! they are *fixed*. A fixed block takes a place when it becomes the branch's own, and none later.
//!
//! # Invariants
//!
//! * *Promised* places are off the budget, but for the *spent* ones, which writes have used. Places
//!   that the branch gives up, or that it gives back, replace the spent ones first.
//! * As many places are off the budget for fixed blocks as there are fixed blocks that are not the
//!   branch's own.
//! * A fork makes every block of the branch one that it shares, also those that were written with
//!   what was reserved. So it is refused unless no place is missing, and there are places for all
//!   fixed blocks again. The gate of the branch is shut then.
//!
//! # Locks
//!
//! `BranchHeld`, a leaf, only while places are spent or missing, for fixed blocks, and to renew.
//! A thread that gives back reduces the promises first and looks for spent places then; one that
//! spends does it the other way round.

use std::ops::Range;

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
    /// The number of fixed blocks: changed once, with the lock; read without it.
    fixed: AtomicU64,
    lock: Mutex<Fixed, BranchHeld>,
}

/// Blocks that are reserved by their numbers.
#[derive(Debug, Default)]
struct Fixed {
    rows: Vec<Range<u64>>,
    /// Places for those that are not the branch's own.
    left: u64,
}

impl Held {
    pub(crate) fn new(slots: usize) -> Self {
        let (spent, fixed) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { promised: PerCpuCounter::new(slots), spent, fixed, lock: Mutex::default() }
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

    /// Ends the promise of places, but for up to `most` blocks of `cost` places each that are
    /// there. Returns the number of these blocks, and how many places the caller has to give back
    /// to the budget.
    pub(crate) fn renew(&self, places: u64, cost: u64, most: u64) -> (u64, u64) {
        let _alone = self.lock.lock();
        let spent = self.spent.load(Ordering::Relaxed);
        let used = spent.min(places);
        let there = places - used;
        let blocks = most.min(there / cost.max(1));
        self.promised.add((blocks * cost) as i64 - places as i64);
        self.spent.store(spent - used, Ordering::SeqCst);
        (blocks, there - blocks * cost)
    }

    /// Returns how many places are promised.
    pub(crate) fn promised(&self) -> u64 {
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

    /// Returns the number of fixed blocks.
    pub(crate) fn fixed(&self) -> u64 {
        self.fixed.load(Ordering::Acquire)
    }

    /// Makes blocks fixed, with `left` places, which the caller has taken from the budget, for
    /// those that are not the branch's own. No block is written during the call.
    pub(crate) fn fix(&self, rows: Vec<Range<u64>>, left: u64) {
        let blocks = rows.iter().map(|row| row.end - row.start).sum();
        *self.lock.lock() = Fixed { rows, left };
        self.fixed.store(blocks, Ordering::Release);
    }

    /// Takes a place for each of these blocks that is fixed; none of them is the branch's own.
    /// Returns the number of places.
    pub(crate) fn take_fixed(&self, blocks: impl Iterator<Item = u64>) -> u64 {
        if self.fixed() == 0 {
            return 0;
        }
        let mut fixed = self.lock.lock();
        let rows = &fixed.rows;
        let count = blocks.filter(|block| rows.iter().any(|row| row.contains(block))).count();
        let taken = (count as u64).min(fixed.left);
        fixed.left -= taken;
        taken
    }

    /// Returns whether one of these blocks is fixed.
    pub(crate) fn has_fixed(&self, blocks: &[u64]) -> bool {
        self.fixed() > 0 && {
            let fixed = self.lock.lock();
            blocks.iter().any(|block| fixed.rows.iter().any(|row| row.contains(block)))
        }
    }

    /// Adds places for fixed blocks: those that were not used after all, or for blocks that were
    /// the branch's own, and are not any more.
    pub(crate) fn give_fixed(&self, count: u64) {
        if count > 0 {
            self.lock.lock().left += count;
        }
    }

    /// Returns how many of the fixed blocks are the branch's own.
    pub(crate) fn own_fixed(&self) -> u64 {
        self.fixed().saturating_sub(self.lock.lock().left)
    }

    /// Returns how many places are for fixed blocks that are not the branch's own. No other call
    /// runs concurrently.
    pub(crate) fn left(&self) -> u64 {
        self.lock.try_lock().map_or(0, |fixed| fixed.left)
    }

    /// Ends all promises. Returns how many places are back. No other call runs concurrently, so it
    /// waits for no lock.
    pub(crate) fn end(&self) -> u64 {
        let promised = self.promised.sum();
        self.promised.add(-promised);
        let spent = self.spent.swap(0, Ordering::SeqCst);
        self.fixed.store(0, Ordering::Release);
        let fixed = self.lock.try_lock().map_or(0, |mut fixed| std::mem::take(&mut *fixed).left);
        u64::try_from(promised).unwrap_or(0).saturating_sub(spent) + fixed
    }
}

#[cfg(test)]
mod tests;
