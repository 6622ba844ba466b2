//! The space of a file system: charged memory, and freed memory that readers may still access.
//!
//! # Purpose
//!
//! All memory of a file system is charged against one [`Budget`], so running out of space is
//! `ENOSPC` and never the end of the process. The difficulty is memory that has been unlinked from
//! a tree: the user considers it free, but readers may access it until a grace period has passed.
//!
//! * Uncharging it only after the grace period would be exact. But a program that removes a file
//!   and writes another one would get `ENOSPC` on an empty file system.
//! * Uncharging it immediately is what users expect. But a single reader that sleeps in its
//!   critical section delays all later grace periods, and a loop of writes and truncations would
//!   fill the memory of the machine although the file system is never more than full.
//!
//! So the driver does both, with a bound: freed memory counts against a second budget, the *limbo*,
//! until its grace period is over. While the limbo has room, the memory is uncharged immediately.
//! When the limbo is full, the memory is *withheld*: it remains charged until its grace period is
//! over. Live memory therefore never exceeds the sizes of the file system and of its limbo
//! together, whatever readers do. In addition the process retains idle pages: what it used within
//! the last second, up to a maximum that its owner can set, and some megabytes in the long run (see
//! [`vfscale_sync::page::idle_max`]).
//!
//! Bytes are moved to the limbo in batches, one for each CPU. To a caller that needs space,
//! unfinished batches and withheld memory count as free: [`Space::take`] collects the batches
//! before it fails, and the VFS calls [`Space::reclaim`], which waits for withheld memory and for
//! batches that other threads are releasing, before it reports `ENOSPC` for data.
//!
//! Readers that make no progress are waited for only for a while. A machine or process that was
//! stopped meanwhile gave them no chance, so that time does not count.
//!
//! # Invariants
//!
//! * Bytes of live memory <= `budget.used() + limbo.used()`, except for the deferred work that
//!   threads have not handed over yet when another thread of their CPU ends a batch: less than 64
//!   objects and one batch for each thread.
//! * With nothing stored and no grace period in progress both are zero.
//!
//! # Shared cache lines
//!
//! Budgets and batches have a slot for each CPU. Deferred work holds the space with an [`Arc`] that
//! is separate for each CPU, so CPUs that free memory do not write the same reference count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicBool, AtomicU64, Ordering, thread};
use vfscale_sync::percpu::{Budget, PerCpu};
use vfscale_sync::rcu;
use vfscale_sync::slot::{Leaf, Retired};
use vfscale_vfs::driver::Reclaimed;

/// Minimum size of the limbo: enough for a burst of small files.
const LIMBO_MIN: u64 = 4 << 20;

/// The limbo's limit is the total size divided by this, in addition to the size.
const LIMBO_SHARE: u64 = 8;

/// Maximum time to wait for readers without progress. After that, the space that they hold counts
/// as used.
const RECLAIM_TIME: Duration = Duration::from_secs(2);

/// Maximum time that counts as waited between two looks. The rest of a longer time was a pause of
/// this thread, and probably of the readers.
const LOOK_MAX: Duration = Duration::from_millis(10);

/// Number of times that a waiting thread yields before it sleeps, and for how long it sleeps each
/// time.
const YIELDS: u32 = 64;
const RECLAIM_SLEEP: Duration = Duration::from_micros(100);

/// Size of a batch of freed bytes.
const BATCH: u64 = 64 << 10;

/// The error that there is not enough space left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSpace;

impl From<NoSpace> for Errno {
    fn from(_: NoSpace) -> Errno {
        Errno::NOSPC
    }
}

struct Budgets {
    taken: Budget,
    limbo: Budget,
    /// Bytes withheld so far, and bytes of them returned since. They change only while the limbo is
    /// full.
    withheld: AtomicU64,
    given_late: AtomicU64,
    /// Whether the superblock has ended: no caller waits for space any more.
    is_over: AtomicBool,
}

impl Budgets {
    fn give_late(&self, bytes: u64) {
        self.taken.give(bytes);
        self.given_late.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A CPU's batch, on cache lines of its own.
#[repr(align(128))]
struct Local {
    budgets: Arc<Budgets>,
    /// Bytes in the batch that is being filled.
    batch: AtomicU64,
    /// Numbers of releases of this batch that have begun and ended. Bytes that have left the batch
    /// are neither free nor withheld before the end.
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Local {
    fn new(budgets: &Arc<Budgets>) -> Local {
        Local {
            budgets: Arc::clone(budgets),
            batch: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }
}

/// The time left to wait for progress.
struct Patience {
    left: Duration,
    last: Instant,
}

impl Patience {
    fn new(now: Instant) -> Patience {
        Patience { left: RECLAIM_TIME, last: now }
    }

    /// Counts the time since the last look, and returns whether there is more.
    fn look(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.last, now));
        self.left = self.left.saturating_sub(passed.min(LOOK_MAX));
        !self.left.is_zero()
    }
}

/// The space of one file system. See the [module](self).
pub(crate) struct Space {
    budgets: Arc<Budgets>,
    locals: PerCpu<Arc<Local>>,
}

impl Space {
    /// Creates a space of `total` bytes, with per-CPU structures of `slots` slots.
    pub(crate) fn new(total: u64, slots: usize) -> Space {
        let limbo = (total / LIMBO_SHARE).max(LIMBO_MIN);
        let budgets = Arc::new(Budgets {
            taken: Budget::new(total, slots),
            limbo: Budget::new(limbo, slots),
            withheld: AtomicU64::new(0),
            given_late: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let locals = PerCpu::new(slots, |_| Arc::new(Local::new(&budgets)));
        Space { budgets, locals }
    }

    /// Charges `bytes`, or nothing if there are fewer. If the caller holds a lock, it also holds an
    /// RCU guard.
    #[inline]
    pub(crate) fn take(&self, bytes: u64) -> Result<(), NoSpace> {
        if self.budgets.taken.take(bytes) { Ok(()) } else { self.take_slow(bytes) }
    }

    #[cold]
    fn take_slow(&self, bytes: u64) -> Result<(), NoSpace> {
        self.locals.iter().for_each(release);
        if self.budgets.taken.take(bytes) { Ok(()) } else { Err(NoSpace) }
    }

    /// Uncharges `bytes` for which no memory has to be freed.
    #[inline]
    pub(crate) fn give(&self, bytes: u64) {
        self.budgets.taken.give(bytes);
    }

    /// Returns `bytes` of memory whose freeing was deferred just before. The caller holds an RCU
    /// guard if it holds a lock.
    #[inline]
    pub(crate) fn give_deferred(&self, bytes: u64) {
        let local = self.locals.this();
        if local.batch.fetch_add(bytes, Ordering::Relaxed) + bytes >= BATCH {
            release(local);
        }
    }

    /// Frees the memory that `make` retires, but leaves it charged. Does nothing and returns false
    /// if too much freed memory already waits for a grace period.
    pub(crate) fn retire_keeping<'g, L, N>(
        &self,
        bytes: u64,
        make: impl FnOnce() -> Retired<'g, L, N>,
    ) -> bool
    where
        L: Leaf,
        N: Send + Sync + 'static,
    {
        if !self.budgets.limbo.take(bytes) {
            return false;
        }
        let local = Arc::clone(self.locals.this());
        make().then(move || local.budgets.limbo.give(bytes));
        true
    }

    /// Waits until the bytes withheld now have been uncharged, for at most [`RECLAIM_TIME`] in
    /// which none are. Sleeps, so that the readers get the CPU.
    ///
    /// The caller holds no lock and no RCU guard.
    pub(crate) fn reclaim(&self) -> Reclaimed {
        let budgets = &self.budgets;
        let given_late = || budgets.given_late.load(Ordering::Relaxed);
        let before = given_late();
        // Acquire: pairs with the end of `release`, after which its bytes are in the counters.
        let ended = || self.sum(|local| local.ended.load(Ordering::Acquire));
        wait_for(ended, self.sum(|local| local.begun.load(Ordering::Relaxed)));
        let target = budgets.withheld.load(Ordering::Relaxed);
        let now = wait_for(given_late, target);
        // All of them only grow.
        let changes =
            now.wrapping_add(budgets.withheld.load(Ordering::Relaxed)).wrapping_add(ended());
        Reclaimed { has_freed: now > before && before < target, changes }
    }

    fn sum(&self, count: impl Fn(&Local) -> u64) -> u64 {
        self.locals.iter().map(|local| count(local)).sum()
    }

    /// Declares that the superblock has ended and no caller waits for space any more.
    pub(crate) fn end(&self) {
        self.budgets.is_over.store(true, Ordering::Relaxed);
    }

    /// Returns the size in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.budgets.taken.total()
    }

    /// Returns the charged bytes; exact while no other thread changes the file system.
    pub(crate) fn used(&self) -> u64 {
        let budgets = &self.budgets;
        let batched = self.sum(|local| local.batch.load(Ordering::Relaxed));
        let given_late = budgets.given_late.load(Ordering::Relaxed);
        let withheld = budgets.withheld.load(Ordering::Relaxed).saturating_sub(given_late);
        budgets.taken.used().saturating_sub(batched + withheld)
    }

    /// Returns the number of uncharged bytes whose memory waits for a grace period.
    #[cfg(test)]
    pub(crate) fn limbo_used(&self) -> u64 {
        self.budgets.limbo.used()
    }

    /// Returns the maximum of bytes in the limbo.
    #[cfg(test)]
    pub(crate) fn limbo_total(&self) -> u64 {
        self.budgets.limbo.total()
    }
}

/// Waits until `count`, which only grows, has reached `target`, for at most [`RECLAIM_TIME`] in
/// which it does not grow. Returns the count.
fn wait_for(count: impl Fn() -> u64, target: u64) -> u64 {
    let mut now = count();
    let (mut patience, mut turns) = (Patience::new(Instant::now()), 0);
    while now < target && patience.look(Instant::now()) {
        rcu::pin().flush();
        turns += 1;
        if turns < YIELDS {
            thread::yield_now()
        } else {
            thread::sleep(RECLAIM_SLEEP)
        }
        let last = std::mem::replace(&mut now, count());
        if now > last {
            patience = Patience::new(Instant::now());
        }
    }
    now
}

/// Ends the batch of `local`: its bytes are uncharged, now or after a grace period.
#[cold]
fn release(local: &Arc<Local>) {
    if let Some(bytes) = begin_release(local) {
        end_release(local, bytes);
    }
}

/// Takes the bytes out of the batch of `local`; `None` if there are none. [`Space::reclaim`] waits
/// for the end.
fn begin_release(local: &Local) -> Option<u64> {
    // A thread that finds the batch empty, and therefore lacks space, knows of the release that has
    // emptied it: acquire here, and release below. It counts none of its own, so that a call which
    // fails on a full file system changes nothing.
    if local.batch.load(Ordering::Acquire) == 0 {
        return None;
    }
    local.begun.fetch_add(1, Ordering::Relaxed);
    let bytes = local.batch.swap(0, Ordering::AcqRel);
    if bytes == 0 {
        local.ended.fetch_add(1, Ordering::Release);
        return None;
    }
    Some(bytes)
}

fn end_release(local: &Arc<Local>, bytes: u64) {
    let later = Arc::clone(local);
    let guard = rcu::pin();
    if local.budgets.limbo.take(bytes) {
        local.budgets.taken.give(bytes);
        guard.defer(move || later.budgets.limbo.give(bytes));
    } else {
        local.budgets.withheld.fetch_add(bytes, Ordering::Relaxed);
        guard.defer(move || later.budgets.give_late(bytes));
        // Another thread may wait for it, and this one may sleep before its bag is full. At the end
        // no thread waits, and full bags are freed sooner than many small ones.
        if !local.budgets.is_over.load(Ordering::Relaxed) {
            guard.hand_over();
        }
    }
    local.ended.fetch_add(1, Ordering::Release);
}

#[cfg(test)]
mod tests;
