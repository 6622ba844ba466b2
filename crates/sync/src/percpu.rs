//! Per-CPU slots, and the counters, budgets and identifiers built on them.
//!
//! # Purpose
//!
//! A shared counter is a cache line that every CPU wants to own. Everything in this module splits
//! such a line into one per CPU, so that the common operation touches only memory that no other
//! CPU writes (the per-CPU counters and inode number batches of the "VFS scalability" talk, and
//! the reservation counters of the per-CPU CIL series). Whoever needs the whole truth (a sum, the
//! last unit of a budget) walks all slots and pays for it.
//!
//! # Invariants
//!
//! * The slot of a thread is a hint: the scheduler may move the thread between reading the CPU
//!   number and using the slot. Slots are therefore atomic (or locked), and merely uncontended.
//! * One slot turns every structure here into its shared ancestor, which is the "before" setting
//!   of the scaling experiments.
//! * [`Budget`]: the pool plus all allowances plus all units taken equal the total at every moment
//!   at which its lock is free. No unit is ever in two places.
//!
//! # Locks
//!
//! Only [`Budget`] has a lock, of class `BudgetPool`. It is a leaf: nothing else is locked while it
//! is held, so any lock may be held by the caller.

use crate::atomic::{AtomicI64, AtomicU64, Ordering, fence};
use crate::lock::Mutex;
use std::fmt;
use std::ops::Deref;

crate::lock_class! {
    /// The shared pool of a [`Budget`]; a leaf.
    pub BudgetPool = ("budget_pool", 65000);
}

/// Puts a value on cache lines of its own: whatever lies beside it, what is written here is on no line with
/// it (seed 003, patch 1). 128 bytes, because x86 fetches lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Apart<T>(pub T);

const _: () = assert!(align_of::<Apart<u8>>() == 128 && size_of::<Apart<u8>>() == 128);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// One `T` for each slot, where a slot stands for the CPUs whose number is equal to it modulo the
/// number of slots.
///
/// `PerCpu<T>` is `Send` and `Sync` exactly as a boxed slice of `T` is.
pub struct PerCpu<T> {
    slots: Box<[Apart<T>]>,
}

impl<T> PerCpu<T> {
    /// Makes `slots` slots (at least one), each from `make`, which gets the number of its slot.
    pub fn new(slots: usize, mut make: impl FnMut(usize) -> T) -> Self {
        let slots = (0..slots.max(1)).map(|slot| Apart(make(slot))).collect();
        Self { slots }
    }

    /// The number of the slot of the CPU that runs this thread. It may be out of date at once.
    #[inline]
    #[must_use]
    pub fn this_slot(&self) -> usize {
        let (cpu, slots) = (crate::cpu::current() as usize, self.slots.len());
        // A division costs more than the rest of the function, and is seldom needed.
        if cpu < slots { cpu } else { cpu % slots }
    }

    /// The slot of the CPU that runs this thread.
    ///
    /// The thread may be moved to another CPU at any time, so the slot can be used by several
    /// threads at once; it is merely improbable.
    #[inline]
    #[must_use]
    pub fn this(&self) -> &T {
        &self.slots[self.this_slot()].0
    }

    /// The slot with number `slot`, or `None` when there is no such slot.
    #[inline]
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&T> {
        self.slots.get(slot).map(|padded| &padded.0)
    }

    /// All slots, in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        self.slots.iter().map(|padded| &padded.0)
    }

    /// The number of slots, at least one.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always at least one slot")]
    pub fn len(&self) -> usize {
        self.slots.len()
    }
}

impl<T: fmt::Debug> fmt::Debug for PerCpu<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A signed counter that is cheap to change and dear to read.
///
/// An update releases and a sum acquires, so whoever sees the effect of an [`add`](Self::add) in
/// a [`sum`](Self::sum) also sees everything that its thread did before.
#[derive(Debug)]
pub struct PerCpuCounter {
    parts: PerCpu<AtomicI64>,
}

impl PerCpuCounter {
    /// A counter of value 0 in `slots` parts.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { parts: PerCpu::new(slots, |_| AtomicI64::new(0)) }
    }

    /// Adds `delta`, which may be negative, to the part of the current CPU. Wraps on overflow.
    #[inline]
    pub fn add(&self, delta: i64) {
        self.parts.this().fetch_add(delta, Ordering::Release);
    }

    /// Adds `delta` and then asks `keep`; takes it back, from the part that it went to, if the answer is
    /// no. So somebody who sums up meanwhile never sees it taken back without seeing it added first, if the
    /// part is read once.
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

    /// What each part has, in the order of their numbers. For tests and reports: parts may be negative,
    /// and only their sum means something.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = i64> {
        self.parts.iter().map(|part| part.load(Ordering::Acquire))
    }

    /// The sum of all parts. Exact when no update is under way; otherwise it contains some of the
    /// updates that run meanwhile and lacks others, and can even be negative although no single
    /// moment had a negative sum.
    #[must_use]
    pub fn sum(&self) -> i64 {
        self.parts.iter().fold(0, |sum, part| sum.wrapping_add(part.load(Ordering::Acquire)))
    }
}

/// What a change adds to a part of a [`SnapshotCounter`], beside its amount.
const CHANGE: u64 = 1 << 32;

/// A count that is cheap to change, and that can be read as it was at one moment. Readers write nothing.
///
/// # Why a value is of one moment
///
/// Each change makes a part larger, also one that counts down: it adds 2^32 and the amount. So parts only
/// grow, and two equal sums, one read after the other, say that no part has changed from the last reading
/// of the first to the first one of the second. The lower half of such a sum is the value. Amounts stay
/// below 2^31, and the sum may wrap: a reader that sleeps through 2^32 changes is fooled, as one of a
/// [`SeqCount`](crate::seqcount::SeqCount) is.
///
/// A change is a release, and readings acquire: who sees one change sees all that came before it.
#[derive(Debug)]
pub struct SnapshotCounter {
    parts: PerCpu<AtomicU64>,
}

impl SnapshotCounter {
    /// A count of 0 in `slots` parts.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        Self { parts: PerCpu::new(slots, |_| AtomicU64::new(0)) }
    }

    /// The memory that `slots` parts take, in bytes.
    #[must_use]
    pub fn bytes(slots: usize) -> usize {
        slots * size_of::<Apart<AtomicU64>>()
    }

    /// Adds `amount`, which may be negative, to the part of the current CPU.
    #[inline]
    pub fn add(&self, amount: i32) {
        let step = CHANGE.wrapping_add_signed(i64::from(amount));
        self.parts.this().fetch_add(step, Ordering::Release);
    }

    /// The value at the moment at which `look` was called, with what that has seen. `None` if the count has
    /// changed meanwhile. Reads all parts twice; never blocks.
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
    /// How much a refill leaves in a slot; a slot keeps at most twice as much, and `large` beside it.
    batch: AtomicU64,
    /// The largest amount above a batch that is taken at a time; 0 where there is none, or too little left
    /// for that. Written under the pool's lock.
    large: AtomicU64,
    /// Everybody reads the fields above, and refills write here.
    pool: Apart<Mutex<Pool, BudgetPool>>,
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
        let pool = Apart(Mutex::new(Pool { free: total, total }));
        Self { allowances, batch, large: AtomicU64::new(0), pool }
    }

    /// All slots together keep at most a quarter of the total away from the pool, and another half where
    /// large amounts are taken.
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

    /// The units that are taken, at one moment during the call: all slots are closed for it, so that
    /// takers and givers wait for this call meanwhile.
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
    batches: Apart<AtomicU64>,
    first: u64,
}

impl IdAlloc {
    /// Identifiers from `first` on, in `slots` slots.
    #[must_use]
    pub fn new(first: u64, slots: usize) -> Self {
        Self {
            next: PerCpu::new(slots, |_| AtomicU64::new(0)),
            batches: Apart(AtomicU64::new(0)),
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
        self.batches.0.fetch_add(IDS_PER_BATCH, Ordering::Relaxed)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
