//! An exact bound with an allowance for each CPU.

use std::fmt;

use super::array::{CachePadded, PerCpu};
use crate::atomic::{AtomicU64, Ordering};
use crate::lock::Mutex;

crate::lock_class! {
    /// Protects the shared pool of a [`Budget`]; a leaf.
    pub BudgetPool = ("budget_pool", 65000);
}

/// The allowance of a slot while a gatherer has closed it: a thread that finds this value locks the
/// pool, and so waits for the gatherer.
const CLOSED: u64 = u64::MAX;

/// The part of the total above which the pool is no longer dry.
const DRY_SHARE: u64 = 64;

/// An exact bound on how many units (bytes, pages, inodes) are taken, without a shared line on
/// the common path.
///
/// Each slot holds a small allowance; it is filled from the pool and drained to it in batches.
/// [`take`](Self::take) fails only if fewer units than wanted are left in all slots and the pool.
///
/// A caller that takes more than a batch at a time and soon gives most of it back (a reservation
/// for the worst case) would lock the pool twice each time. So a slot holds the largest such amount
/// in addition to its batches, as long as the pool has as much for every slot. That ends when the
/// pool runs dry.
///
/// # Why it is exact
///
/// When the pool has too little, the gatherer (the thread that holds the lock of the pool) closes
/// one slot after the other by swapping `CLOSED` in, and moves their units to the pool. From the
/// moment the last slot is closed until the first is opened again, the pool holds all free units:
/// units of a closed slot can neither be taken nor be given back, since both wait for the lock. The
/// decision is made at that moment.
///
/// # When nothing is left
///
/// A full file system is asked again and again. If a `take` fails and the pool is nearly empty, the
/// pool is *dry*: the slots stay closed, and every `take` and `give` uses the pool alone, under its
/// lock. So a failure gathers nothing, whatever the number of slots, and is as exact as above. The
/// slots are opened again when a 64th of the total is free.
///
/// # Blocking
///
/// `take` and `give` lock the pool (a leaf) if the slot has too little or too much, or is closed.
/// They wait for nothing but that lock.
#[derive(Debug)]
pub struct Budget {
    allowances: PerCpu<AtomicU64>,
    /// Units that a refill leaves in a slot; a slot holds at most twice as many, plus `large`.
    batch: AtomicU64,
    /// The largest amount above a batch that callers take at a time; 0 if there is none, or too
    /// little is left for that. Written under the pool's lock.
    large: AtomicU64,
    /// On lines of its own: all callers read the fields above, and refills write here.
    pool: CachePadded<Mutex<UnitPool, BudgetPool>>,
}

#[derive(Debug)]
struct UnitPool {
    /// Units that are neither taken nor in a slot.
    free: u64,
    total: u64,
    /// Whether all slots are closed, and have no units, although no gatherer is at work.
    dry: bool,
    /// Number of times that the units of all slots were gathered.
    gathers: u64,
}

impl UnitPool {
    fn new(free: u64, total: u64) -> Self {
        Self { free, total, dry: false, gathers: 0 }
    }

    /// Returns whether too little is free for units to be worth having in slots.
    fn is_low(&self) -> bool {
        self.free < self.total / DRY_SHARE || self.free == 0
    }
}

/// The error of a [`Budget`] that can't shrink below the units taken.
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
    /// Creates a budget of `total` units in `slots` slots. `u64::MAX` is practically unbounded.
    pub fn new(total: u64, slots: usize) -> Self {
        let allowances = PerCpu::new(slots, |_| AtomicU64::new(0));
        let batch = AtomicU64::new(Self::batch_of(total, allowances.len()));
        let pool = CachePadded::new(Mutex::new(UnitPool::new(total, total)));
        Self { allowances, batch, large: AtomicU64::new(0), pool }
    }

    /// Returns the size of a batch. All slots together hold at most a quarter of the total, and
    /// another half where large amounts are taken.
    fn batch_of(total: u64, slots: usize) -> u64 {
        total / (slots as u64).saturating_mul(8)
    }

    /// Takes `n` units. Returns false, and takes nothing, only if fewer than `n` are left.
    #[inline]
    pub fn take(&self, n: u64) -> bool {
        n == 0 || self.take_from(self.allowances.this(), n)
    }

    /// Takes `n` units like [`take`](Self::take), of the slot of a CPU.
    #[inline]
    pub fn take_at(&self, cpu: u32, n: u64) -> bool {
        n == 0 || self.take_from(self.allowances.of(cpu), n)
    }

    #[inline]
    fn take_from(&self, slot: &AtomicU64, n: u64) -> bool {
        let mut have = slot.load(Ordering::Relaxed);
        while have != CLOSED && have >= n {
            // Acquire: another thread may have given these units back, and no longer uses the
            // objects that they represent.
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
        if pool.dry {
            let has_enough = pool.free >= n;
            pool.free -= if has_enough { n } else { 0 };
            return has_enough;
        }
        if n > pool.total {
            return false;
        }
        if pool.free < n {
            self.large.store(0, Ordering::Relaxed);
            self.close(&mut pool);
            let has_enough = pool.free >= n;
            if !has_enough && pool.is_low() {
                pool.dry = true;
                return false;
            }
            self.open();
            if !has_enough {
                return false;
            }
        }
        pool.free -= n;
        self.note_large(&pool, n);
        // A refill is at most a share of the free units: near the end the units stay in the pool,
        // where every caller finds them without gathering.
        let share = pool.free / (self.allowances.len() as u64).saturating_mul(4);
        let refill = self.batch.load(Ordering::Relaxed).min(share);
        if refill > 0 && slot.load(Ordering::Relaxed) < refill {
            // We hold the lock, so the slot is open and the sum can't run into CLOSED.
            pool.free -= refill;
            slot.fetch_add(refill, Ordering::Release);
        }
        true
    }

    /// Lets slots hold amounts such as `n`, if all of them can.
    fn note_large(&self, pool: &UnitPool, n: u64) {
        let slots = self.allowances.len() as u64;
        let is_larger =
            n > self.large.load(Ordering::Relaxed).max(self.batch.load(Ordering::Relaxed));
        if is_larger && n <= pool.free / slots && n <= pool.total / slots.saturating_mul(2) {
            self.large.store(n, Ordering::Relaxed);
        }
    }

    /// Returns the units that a slot with too many retains.
    #[inline]
    fn kept(&self) -> u64 {
        self.batch.load(Ordering::Relaxed).saturating_add(self.large.load(Ordering::Relaxed))
    }

    /// Closes all slots and moves their allowances to the pool. The type's page explains why the
    /// pool is exact afterwards.
    fn close(&self, pool: &mut UnitPool) {
        pool.gathers += 1;
        for slot in self.allowances.iter() {
            pool.free += units(slot.swap(CLOSED, Ordering::AcqRel));
        }
    }

    /// Opens all slots, which have no units then.
    fn open(&self) {
        for slot in self.allowances.iter() {
            slot.store(0, Ordering::Release);
        }
    }

    /// Moves all allowances to the pool, unless it has them already.
    fn gather(&self, pool: &mut UnitPool) {
        if !pool.dry {
            self.close(pool);
            self.open();
        }
    }

    /// Gives back `n` units that were taken. Giving more than was taken is a mistake of the caller;
    /// it can make the budget larger than its total for a while, and has no other effect.
    #[inline]
    pub fn give(&self, n: u64) {
        if n != 0 {
            self.give_to(self.allowances.this(), n);
        }
    }

    /// Gives back `n` units like [`give`](Self::give), to the slot of a CPU.
    #[inline]
    pub fn give_at(&self, cpu: u32, n: u64) {
        if n != 0 {
            self.give_to(self.allowances.of(cpu), n);
        }
    }

    #[inline]
    fn give_to(&self, slot: &AtomicU64, n: u64) {
        let most = self.kept().saturating_add(self.batch.load(Ordering::Relaxed));
        let mut have = slot.load(Ordering::Relaxed);
        while have != CLOSED && have.saturating_add(n) <= most {
            // Release: pairs with the acquire of the thread that takes these units (`take`).
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
        if pool.dry {
            pool.free = pool.free.saturating_add(n).min(pool.total);
            if !pool.is_low() {
                pool.dry = false;
                self.open();
            }
            return;
        }
        let keep = self.kept();
        let mut surplus = n;
        let have = slot.load(Ordering::Relaxed);
        // We hold the lock, so the slot is open, and only the fast paths compete.
        if have > keep
            && slot.compare_exchange(have, keep, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            surplus = surplus.saturating_add(have - keep);
        } else if have < keep {
            // The sum can't run into CLOSED: it is at most what all slots may hold.
            let more = surplus.min(keep - have);
            slot.fetch_add(more, Ordering::Release);
            surplus -= more;
        }
        pool.free = pool.free.saturating_add(surplus).min(pool.total);
    }

    /// Returns the number of units taken. Exact if no caller takes or gives concurrently.
    pub fn used(&self) -> u64 {
        let (total, free) = self.totals();
        total.saturating_sub(free)
    }

    /// Returns the number of units taken, at one moment during the call. All slots are closed for
    /// it, if they are open, so callers that take or give wait until it returns.
    pub fn used_exactly(&self) -> u64 {
        let mut pool = self.pool.lock();
        self.gather(&mut pool);
        pool.total.saturating_sub(pool.free)
    }

    /// Returns the number of units left. Exact if no caller takes or gives concurrently.
    pub fn available(&self) -> u64 {
        let (total, free) = self.totals();
        free.min(total)
    }

    /// Returns the bound.
    pub fn total(&self) -> u64 {
        self.pool.lock().total
    }

    /// Returns the total and the free units, without closing the slots.
    fn totals(&self) -> (u64, u64) {
        let pool = self.pool.lock();
        let sum =
            |free: u64, slot: &AtomicU64| free.saturating_add(units(slot.load(Ordering::Acquire)));
        (pool.total, self.allowances.iter().fold(pool.free, sum))
    }

    /// Changes the bound.
    ///
    /// # Errors
    ///
    /// Returns [`OverBudget`] if more than the new total is taken; the bound is then unchanged.
    pub fn resize(&self, total: u64) -> Result<(), OverBudget> {
        let mut pool = self.pool.lock();
        self.gather(&mut pool);
        let used = pool.total.saturating_sub(pool.free);
        if used > total {
            return Err(OverBudget { used });
        }
        let was_dry = pool.dry;
        (pool.free, pool.total, pool.dry) = (total - used, total, false);
        if was_dry {
            self.open();
        }
        self.large.store(0, Ordering::Relaxed);
        self.batch.store(Self::batch_of(total, self.allowances.len()), Ordering::Relaxed);
        Ok(())
    }
}

/// Returns the units of a slot with this value.
fn units(allowance: u64) -> u64 {
    if allowance == CLOSED { 0 } else { allowance }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
