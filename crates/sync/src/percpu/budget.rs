//! An exact bound with an allowance for each CPU.

use std::fmt;

use super::array::{CachePadded, PerCpu};
use crate::atomic::{AtomicU64, Ordering};
use crate::lock::Mutex;

crate::lock_class! {
    /// The shared pool of a [`Budget`]; a leaf.
    pub BudgetPool = ("budget_pool", 65000);
}

/// The allowance of a slot while a gatherer has closed it: whoever finds this value goes to the
/// pool and waits there for the gatherer.
const CLOSED: u64 = u64::MAX;

/// An exact bound on how many units (bytes, pages, inodes) are taken, without a shared line on
/// the common path.
///
/// Each slot keeps a small allowance; it is filled from the pool and drained to it in batches.
/// [`take`](Self::take) fails only when fewer than the wanted units are left anywhere.
///
/// Who takes more than a batch at a time and soon gives most of it back (a reservation for the
/// worst case) would go to the pool twice each time. So as long as there is as much for every slot,
/// a slot keeps the largest such amount beside its batches; when the pool runs dry it does so no
/// more.
///
/// # Why it is exact
///
/// When the pool has too little, the gatherer (who holds the lock of the pool) closes one slot
/// after the other by swapping `CLOSED` in, and moves what it finds to the pool. From the moment
/// the last slot is closed until the first is opened again, the pool is all there is: units in a
/// closed slot can neither be taken nor be given back, since both wait for the lock. The decision
/// is made at that moment.
///
/// # Blocking
///
/// `take` and `give` lock the pool (a leaf) when the slot has too little or too much. Nothing is
/// waited for but that lock.
#[derive(Debug)]
pub struct Budget {
    allowances: PerCpu<AtomicU64>,
    /// How much a refill leaves in a slot; a slot keeps at most twice as much, and `large` beside
    /// it.
    batch: AtomicU64,
    /// The largest amount above a batch that is taken at a time; 0 where there is none, or too
    /// little left for that. Written under the pool's lock.
    large: AtomicU64,
    /// Everybody reads the fields above, and refills write here.
    pool: CachePadded<Mutex<Pool, BudgetPool>>,
}

#[derive(Debug)]
struct Pool {
    /// Units that are neither taken nor in a slot.
    free: u64,
    total: u64,
}

/// What a [`Budget`] answers when it can't shrink below what is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// The units taken at the time of the call.
    pub used: u64,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} units are in use, more than the new total", self.used)
    }
}

impl std::error::Error for OverBudget {}

impl Budget {
    /// A budget of `total` units in `slots` slots. `u64::MAX` is as good as no bound.
    #[must_use]
    pub fn new(total: u64, slots: usize) -> Self {
        let allowances = PerCpu::new(slots, |_| AtomicU64::new(0));
        let batch = AtomicU64::new(Self::batch_of(total, allowances.len()));
        let pool = CachePadded::new(Mutex::new(Pool { free: total, total }));
        Self { allowances, batch, large: AtomicU64::new(0), pool }
    }

    /// All slots together keep at most a quarter of the total away from the pool, and another half
    /// where large amounts are taken.
    fn batch_of(total: u64, slots: usize) -> u64 {
        total / (slots as u64).saturating_mul(8)
    }

    /// Takes `n` units. False, and nothing is taken, only when fewer than `n` are left.
    #[inline]
    #[must_use]
    pub fn take(&self, n: u64) -> bool {
        let slot = self.allowances.this();
        let mut have = slot.load(Ordering::Relaxed);
        while have != CLOSED && have >= n {
            // Acquire: what is taken may have been given back by another thread, which is done
            // with whatever the units stand for.
            match slot.compare_exchange_weak(have, have - n, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => have = now,
            }
        }
        self.take_slow(slot, n)
    }

    #[cold]
    fn take_slow(&self, slot: &AtomicU64, n: u64) -> bool {
        let mut pool = self.pool.lock();
        if pool.free < n {
            self.large.store(0, Ordering::Relaxed);
            self.gather(&mut pool);
            if pool.free < n {
                return false;
            }
        }
        pool.free -= n;
        self.note_large(&pool, n);
        // A refill is at most a share of what is left, so that near the end the units stay in the
        // pool, where everybody finds them without gathering.
        let share = pool.free / (self.allowances.len() as u64).saturating_mul(4);
        let refill = self.batch.load(Ordering::Relaxed).min(share);
        if refill > 0 && slot.load(Ordering::Relaxed) < refill {
            // We hold the lock, so the slot is open and the sum can't run into CLOSED.
            pool.free -= refill;
            slot.fetch_add(refill, Ordering::Release);
        }
        true
    }

    /// Slots keep amounts such as `n`, if all of them can.
    fn note_large(&self, pool: &Pool, n: u64) {
        let slots = self.allowances.len() as u64;
        let is_larger =
            n > self.large.load(Ordering::Relaxed).max(self.batch.load(Ordering::Relaxed));
        if is_larger && n <= pool.free / slots && n <= pool.total / slots.saturating_mul(2) {
            self.large.store(n, Ordering::Relaxed);
        }
    }

    /// What a slot that has too much keeps.
    #[inline]
    fn kept(&self) -> u64 {
        self.batch.load(Ordering::Relaxed).saturating_add(self.large.load(Ordering::Relaxed))
    }

    /// Moves all allowances to the pool. See the type for why the pool is exact afterwards.
    fn gather(&self, pool: &mut Pool) {
        for slot in self.allowances.iter() {
            pool.free += slot.swap(CLOSED, Ordering::AcqRel);
        }
        for slot in self.allowances.iter() {
            slot.store(0, Ordering::Release);
        }
    }

    /// Gives back `n` units that were taken. To give more than was taken is a mistake of the
    /// caller; it can make the budget larger than its total for a while, and nothing worse.
    #[inline]
    pub fn give(&self, n: u64) {
        let slot = self.allowances.this();
        let most = self.kept().saturating_add(self.batch.load(Ordering::Relaxed));
        let mut have = slot.load(Ordering::Relaxed);
        while have != CLOSED && have.saturating_add(n) <= most {
            // Release: see `take`.
            match slot.compare_exchange_weak(have, have + n, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => have = now,
            }
        }
        self.give_slow(slot, n);
    }

    #[cold]
    fn give_slow(&self, slot: &AtomicU64, n: u64) {
        let mut pool = self.pool.lock();
        let keep = self.kept();
        let mut surplus = n;
        let have = slot.load(Ordering::Relaxed);
        // We hold the lock, so the slot is open, and only its owner's fast path competes.
        if have > keep
            && slot.compare_exchange(have, keep, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            surplus = surplus.saturating_add(have - keep);
        } else if have < keep {
            // The sum can't run into CLOSED: it is at most what all slots may keep.
            let more = surplus.min(keep - have);
            slot.fetch_add(more, Ordering::Release);
            surplus -= more;
        }
        pool.free = pool.free.saturating_add(surplus).min(pool.total);
    }

    /// The units that are taken. Exact when nobody takes or gives meanwhile.
    #[must_use]
    pub fn used(&self) -> u64 {
        let (total, free) = self.totals();
        total.saturating_sub(free)
    }

    /// The units that are taken, at one moment during the call: all slots are closed for it, so
    /// that takers and givers wait for this call meanwhile.
    #[must_use]
    pub fn used_exactly(&self) -> u64 {
        let mut pool = self.pool.lock();
        self.gather(&mut pool);
        pool.total.saturating_sub(pool.free)
    }

    /// The units that are left. Exact when nobody takes or gives meanwhile.
    #[must_use]
    pub fn available(&self) -> u64 {
        let (total, free) = self.totals();
        free.min(total)
    }

    /// The bound.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.pool.lock().total
    }

    /// The total and what is free of it, without closing the slots.
    fn totals(&self) -> (u64, u64) {
        let pool = self.pool.lock();
        let sum = |free: u64, slot: &AtomicU64| free.saturating_add(slot.load(Ordering::Acquire));
        (pool.total, self.allowances.iter().fold(pool.free, sum))
    }

    /// Changes the bound.
    ///
    /// # Errors
    ///
    /// [`OverBudget`] when more than the new total is taken; the bound then stays as it was.
    pub fn resize(&self, total: u64) -> Result<(), OverBudget> {
        let mut pool = self.pool.lock();
        self.gather(&mut pool);
        let used = pool.total.saturating_sub(pool.free);
        if used > total {
            return Err(OverBudget { used });
        }
        *pool = Pool { free: total - used, total };
        self.large.store(0, Ordering::Relaxed);
        self.batch.store(Self::batch_of(total, self.allowances.len()), Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
