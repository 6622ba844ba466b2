//! lockstat: who waits for which lock.
//!
//! Counted only by threads that already have to wait, in a slot of their CPU, so that the counters
//! cost an uncontended lock nothing and never bounce themselves. The counters are plain `std`
//! atomics: they are no part of any protocol, and would only enlarge a model.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::cpu;

/// All classes that were ever contended, in the order of their first contention.
static CONTENDED: Mutex<Vec<&'static LockStat>> = Mutex::new(Vec::new());

#[derive(Default)]
struct Slot {
    contended: AtomicU64,
    parked: AtomicU64,
    wait_ns_total: AtomicU64,
    wait_ns_max: AtomicU64,
}

/// The contention counters of one lock class.
pub struct LockStat {
    name: &'static str,
    rank: u16,
    /// A slot for each CPU, made at the first contention.
    slots: OnceLock<Box<[CachePadded<Slot>]>>,
}

/// The sums of one class's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStatRow {
    /// The class's name.
    pub name: &'static str,
    /// Its rank, or [`NO_RANK`](Self::NO_RANK).
    pub rank: u16,
    /// Acquisitions that found the lock taken.
    pub contended: u64,
    /// Times a waiter went to sleep.
    pub parked: u64,
    /// Time from finding the lock taken to holding it, summed.
    pub wait_total: Duration,
    /// The longest such time.
    pub wait_max: Duration,
}

impl LockStatRow {
    /// The rank of locks that have none: those inside lockrefs.
    pub const NO_RANK: u16 = u16::MAX;
}

impl LockStat {
    /// For [`lock_class!`](crate::lock_class).
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str, rank: u16) -> Self {
        Self { name, rank, slots: OnceLock::new() }
    }

    fn slot(&'static self) -> &'static Slot {
        let slots = self.slots.get_or_init(|| {
            CONTENDED.lock().unwrap_or_else(PoisonError::into_inner).push(self);
            (0..cpu::possible()).map(|_| CachePadded::default()).collect()
        });
        &slots[cpu::current() as usize % slots.len()]
    }

    fn row(&self) -> LockStatRow {
        let slots = self.slots.get().map_or(&[][..], |slots| slots);
        let sum = |field: fn(&Slot) -> &AtomicU64| -> u64 {
            slots.iter().map(|slot| field(slot).load(Ordering::Relaxed)).sum()
        };
        let max = slots.iter().map(|slot| slot.wait_ns_max.load(Ordering::Relaxed)).max();
        LockStatRow {
            name: self.name,
            rank: self.rank,
            contended: sum(|slot| &slot.contended),
            parked: sum(|slot| &slot.parked),
            wait_total: Duration::from_nanos(sum(|slot| &slot.wait_ns_total)),
            wait_max: Duration::from_nanos(max.unwrap_or(0)),
        }
    }

    fn reset(&self) {
        for slot in self.slots.get().map_or(&[][..], |slots| slots) {
            slot.contended.store(0, Ordering::Relaxed);
            slot.parked.store(0, Ordering::Relaxed);
            slot.wait_ns_total.store(0, Ordering::Relaxed);
            slot.wait_ns_max.store(0, Ordering::Relaxed);
        }
    }
}

/// One row for each class that was ever contended. Exact when no thread is waiting.
#[must_use]
pub fn lockstat() -> Vec<LockStatRow> {
    let classes = CONTENDED.lock().unwrap_or_else(PoisonError::into_inner);
    classes.iter().map(|stat| stat.row()).collect()
}

/// Sets all counters to zero. Waits that end meanwhile may be counted or not.
pub fn lockstat_reset() {
    for stat in CONTENDED.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        stat.reset();
    }
}

/// One wait of one thread; counted when it is dropped, which is when the lock is held.
pub(crate) struct Waiting {
    stat: &'static LockStat,
    since: Option<Instant>,
    parked: u64,
}

impl Waiting {
    /// Starts the clock. Models have no clock and count nothing.
    pub(crate) fn start(stat: &'static LockStat) -> Self {
        let since = (!cfg!(any(loom, shuttle, miri))).then(Instant::now);
        Self { stat, since, parked: 0 }
    }

    /// The thread is about to sleep.
    pub(crate) fn park(&mut self) {
        self.parked += 1;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(since) = self.since else { return };
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let slot = self.stat.slot();
        slot.contended.fetch_add(1, Ordering::Relaxed);
        slot.parked.fetch_add(self.parked, Ordering::Relaxed);
        slot.wait_ns_total.fetch_add(ns, Ordering::Relaxed);
        slot.wait_ns_max.fetch_max(ns, Ordering::Relaxed);
    }
}
