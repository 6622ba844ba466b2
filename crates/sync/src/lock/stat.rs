//! lockstat: how long threads wait for each lock, how often it is taken, and for how long it is
//! held.
//!
//! # Purpose
//!
//! Counterpart of `lock_stat` in Linux, with its columns (Kara's orphan list patches, 2014, show
//! the table of a lock before and after). It counts:
//!
//! * *Contention*, always: only threads that have to wait anyway count it.
//! * *Acquisitions*, hold times and bounces, only while recording is on ([`lockstat_record`]).
//!
//! # Why it costs nothing while it is off
//!
//! The fast path of a lock is an exchange of the word of a free lock for the word of a taken one.
//! The expected word is read from a variable instead of being a constant: 0, or while recording is
//! on a word that no lock ever has ([`RECORDING`]). Then every fast path fails, and the slow path
//! takes the lock and records it. It also sets a bit in the lock's word; so the fast path of the
//! release fails as well, and the hold time is measured. Hence lockstat adds no branch, neither
//! where a lock is taken nor where it is released.
//!
//! # The counters
//!
//! Each class has a slot for each CPU, so the counters never bounce themselves. They are plain
//! `std` atomics: they are no part of any protocol, and would only enlarge a model. Models record
//! nothing. The thread that took a lock stores the time; a lock beyond the [`HOLDS_MAX`] that a
//! thread holds is counted, but its hold time is not measured.
//!
//! # Bounces
//!
//! An acquisition bounces if the CPU that last took the lock was another one. A lock's word has no
//! room for that CPU, so each class has a table of the locks last taken, by address. If two locks
//! share an entry, the entry of the one taken less recently is lost, and its next acquisition does
//! not count as a bounce; so bounces are exact for classes with few locks, which are the classes
//! that bounce. A lock that reuses the memory of another lock of its class inherits that one's CPU,
//! until [`lockstat_reset`].

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::{cpu, hash};

mod owner;

pub use owner::{OwnerGuard, ThreadOwner};

/// All classes that have counted something, in the order in which they first did.
static COUNTED: Mutex<Vec<&'static LockStat>> = Mutex::new(Vec::new());

/// The expected word of a free lock: 0, or [`RECORDING`].
static FREE: CachePadded<AtomicU32> = CachePadded::new(AtomicU32::new(0));

/// A word that no lock has: locked, with more readers than allowed. Its lowest bit marks an
/// exclusive holder in the words of all locks.
const RECORDING: u32 = 1 << 31 | 1;

/// Maximum number of locks of one thread whose hold time is measured.
const HOLDS_MAX: usize = 32;

/// Number of entries in a class's table of the CPUs that took its locks last.
const LAST_ENTRIES: usize = 1024;

/// Returns the expected word of a free lock. A fast path that expects it fails while recording is
/// on; so does one that checks whether the lowest bit of `word | free_word()` is set.
#[inline(always)]
pub(crate) fn free_word() -> u32 {
    if cfg!(any(loom, shuttle)) { 0 } else { FREE.load(Ordering::Relaxed) }
}

/// Switches the recording of acquisitions, hold times and bounces on or off, for all locks of the
/// process. While it is on, taking a lock costs some 50 nanoseconds more, and so does releasing it.
/// Locks that are held at the moment of switching may be recorded or not.
pub fn lockstat_record(on: bool) {
    owner::choose(None);
    FREE.store(if on { RECORDING } else { 0 }, Ordering::Relaxed);
}

/// Switches recording on, but leaves out threads of other owners than `owner`: acquisitions, and
/// waits as well. Ends with `lockstat_record(false)`.
pub fn lockstat_record_for(owner: ThreadOwner) {
    owner::choose(Some(owner));
    FREE.store(RECORDING, Ordering::Relaxed);
}

/// Returns whether recording is on.
pub fn lockstat_recording() -> bool {
    free_word() != 0
}

/// Durations of one kind in nanoseconds, without their number.
struct Times {
    total: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
}

impl Times {
    const fn new() -> Self {
        Self { total: AtomicU64::new(0), min: AtomicU64::new(u64::MAX), max: AtomicU64::new(0) }
    }

    fn add(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.total.fetch_add(ns, Ordering::Relaxed);
        self.min.fetch_min(ns, Ordering::Relaxed);
        self.max.fetch_max(ns, Ordering::Relaxed);
    }

    fn reset(&self) {
        self.total.store(0, Ordering::Relaxed);
        self.min.store(u64::MAX, Ordering::Relaxed);
        self.max.store(0, Ordering::Relaxed);
    }
}

/// The counters of one class on one CPU.
struct CpuCounters {
    contentions: AtomicU64,
    con_bounces: AtomicU64,
    parked: AtomicU64,
    wait: Times,
    acquisitions: AtomicU64,
    acq_bounces: AtomicU64,
    held: AtomicU64,
    hold: Times,
}

impl CpuCounters {
    const fn new() -> Self {
        Self {
            contentions: AtomicU64::new(0),
            con_bounces: AtomicU64::new(0),
            parked: AtomicU64::new(0),
            wait: Times::new(),
            acquisitions: AtomicU64::new(0),
            acq_bounces: AtomicU64::new(0),
            held: AtomicU64::new(0),
            hold: Times::new(),
        }
    }

    fn reset(&self) {
        let counts = [&self.contentions, &self.con_bounces, &self.parked];
        let others = [&self.acquisitions, &self.acq_bounces, &self.held];
        for count in counts.into_iter().chain(others) {
            count.store(0, Ordering::Relaxed);
        }
        self.wait.reset();
        self.hold.reset();
    }
}

/// The counters of one lock class.
pub struct LockStat {
    name: &'static str,
    rank: u16,
    /// A slot for each CPU, allocated at the first event.
    slots: OnceLock<Box<[CachePadded<CpuCounters>]>>,
    /// The CPUs that took locks last: 48 bits of the lock's address, 16 bits of the CPU's number.
    /// Allocated at the first recorded acquisition.
    last: OnceLock<Box<[AtomicU64]>>,
}

/// Durations of one kind, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockTimes {
    /// Number of durations.
    pub count: u64,
    /// The shortest; zero if there was none.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// Their sum.
    pub total: Duration,
}

impl LockTimes {
    /// Returns the mean; zero if there was none.
    pub fn avg(&self) -> Duration {
        let ns = self.total.as_nanos().checked_div(u128::from(self.count)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Returns the shortest, the longest, the sum and the mean, in microseconds.
    pub fn in_micros(&self) -> [f64; 4] {
        [self.min, self.max, self.total, self.avg()].map(|time| time.as_nanos() as f64 / 1000.0)
    }
}

/// The sums of one class's counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStatRow {
    /// The class's name.
    pub name: &'static str,
    /// Its rank, or [`NO_RANK`](Self::NO_RANK).
    pub rank: u16,
    /// Contentions for a lock last taken on another CPU. Counted while recording is on.
    pub con_bounces: u64,
    /// Acquisitions that found the lock taken. Counted always.
    pub contentions: u64,
    /// Number of times a waiter went to sleep. Counted always.
    pub parked: u64,
    /// Times from finding a lock taken to holding it. Measured always.
    pub wait: LockTimes,
    /// Acquisitions of a lock last taken on another CPU. Counted while recording is on.
    pub acq_bounces: u64,
    /// Number of times a lock was taken. Counted while recording is on.
    pub acquisitions: u64,
    /// Times from taking a lock to releasing it. Measured while recording is on.
    pub hold: LockTimes,
}

impl LockStatRow {
    /// The rank of locks without a rank: the ones inside lockrefs.
    pub const NO_RANK: u16 = u16::MAX;

    /// The names of the columns of Linux's `lock_stat`, after the class.
    pub const COLUMNS: [&'static str; 12] = [
        "con-bounces",
        "contentions",
        "waittime-min",
        "waittime-max",
        "waittime-total",
        "waittime-avg",
        "acq-bounces",
        "acquisitions",
        "holdtime-min",
        "holdtime-max",
        "holdtime-total",
        "holdtime-avg",
    ];

    /// Returns the cells of these columns; times in microseconds.
    pub fn cells(&self) -> [String; 12] {
        let [wait, hold] = [self.wait, self.hold].map(|times| times.in_micros());
        let time = |micros: f64| format!("{micros:.2}");
        let [wait_min, wait_max, wait_total, wait_avg] = wait.map(time);
        let [hold_min, hold_max, hold_total, hold_avg] = hold.map(time);
        [
            self.con_bounces.to_string(),
            self.contentions.to_string(),
            wait_min,
            wait_max,
            wait_total,
            wait_avg,
            self.acq_bounces.to_string(),
            self.acquisitions.to_string(),
            hold_min,
            hold_max,
            hold_total,
            hold_avg,
        ]
    }
}

impl LockStat {
    /// Creates the counters of a class, for [`lock_class!`](crate::lock_class).
    #[doc(hidden)]
    pub const fn new(name: &'static str, rank: u16) -> Self {
        Self { name, rank, slots: OnceLock::new(), last: OnceLock::new() }
    }

    fn slot(&'static self, cpu: u32) -> &'static CpuCounters {
        let slots = self.slots.get_or_init(|| {
            COUNTED.lock().unwrap_or_else(PoisonError::into_inner).push(self);
            (0..cpu::possible()).map(|_| CachePadded::new(CpuCounters::new())).collect()
        });
        &slots[cpu as usize % slots.len()]
    }

    /// Returns the entry of the lock at `address`, and its value if that lock was taken on `cpu`.
    fn last_taken(&self, address: usize, cpu: u32) -> (&AtomicU64, u64) {
        let last = self.last.get_or_init(|| (0..LAST_ENTRIES).map(|_| AtomicU64::new(0)).collect());
        let address = address as u64;
        let hash = hash::fibonacci(address) >> 32;
        (&last[hash as usize % LAST_ENTRIES], address << 16 | u64::from(cpu) & 0xffff)
    }

    /// Returns whether the lock at `address` is known to have been taken last on another CPU than
    /// `cpu`.
    fn bounces(&self, address: usize, cpu: u32) -> bool {
        let (entry, mine) = self.last_taken(address, cpu);
        let before = entry.load(Ordering::Relaxed);
        before >> 16 == mine >> 16 && before != mine
    }

    /// Records that this thread has just taken the lock at `address`, past the fast path. Returns
    /// whether its release is to be reported by [`released`].
    pub(crate) fn acquired(&'static self, address: usize) -> bool {
        if free_word() == 0 || owner::is_left_out() {
            return false;
        }
        let cpu = cpu::current();
        let slot = self.slot(cpu);
        slot.acquisitions.fetch_add(1, Ordering::Relaxed);
        if self.bounces(address, cpu) {
            slot.acq_bounces.fetch_add(1, Ordering::Relaxed);
        }
        let (entry, mine) = self.last_taken(address, cpu);
        entry.store(mine, Ordering::Relaxed);
        HOLDS.with(|holds| holds.push(Hold { address, since: Instant::now(), stat: self }))
    }

    fn row(&self) -> LockStatRow {
        let slots = self.slots.get().map_or(&[][..], |slots| slots);
        let sum = |field: fn(&CpuCounters) -> &AtomicU64| -> u64 {
            slots.iter().map(|slot| field(slot).load(Ordering::Relaxed)).sum()
        };
        let times = |count: u64, field: fn(&CpuCounters) -> &Times| {
            let all = || slots.iter().map(|slot| field(slot));
            let total = all().map(|times| times.total.load(Ordering::Relaxed)).sum();
            let min = all().map(|times| times.min.load(Ordering::Relaxed)).min();
            let max = all().map(|times| times.max.load(Ordering::Relaxed)).max();
            let nanos = Duration::from_nanos;
            let min = min.filter(|min| *min != u64::MAX).unwrap_or(0);
            LockTimes { count, min: nanos(min), max: nanos(max.unwrap_or(0)), total: nanos(total) }
        };
        let contentions = sum(|slot| &slot.contentions);
        LockStatRow {
            name: self.name,
            rank: self.rank,
            con_bounces: sum(|slot| &slot.con_bounces),
            contentions,
            parked: sum(|slot| &slot.parked),
            wait: times(contentions, |slot| &slot.wait),
            acq_bounces: sum(|slot| &slot.acq_bounces),
            acquisitions: sum(|slot| &slot.acquisitions),
            hold: times(sum(|slot| &slot.held), |slot| &slot.hold),
        }
    }
}

/// A recorded lock that this thread holds.
#[derive(Clone, Copy)]
struct Hold {
    address: usize,
    since: Instant,
    stat: &'static LockStat,
}

/// The recorded locks that a thread holds. Has no destructor, so it can be used while the thread
/// ends.
struct Holds([Cell<Option<Hold>>; HOLDS_MAX]);

impl Holds {
    fn push(&self, hold: Hold) -> bool {
        // A leaked guard leaves an entry of its lock behind: that one is reused.
        let same =
            |cell: &&Cell<Option<Hold>>| cell.get().is_some_and(|h| h.address == hold.address);
        let entry = self.0.iter().find(same).or_else(|| self.0.iter().find(|h| h.get().is_none()));
        if let Some(entry) = entry {
            entry.set(Some(hold));
        }
        entry.is_some()
    }

    fn take(&self, address: usize) -> Option<Hold> {
        self.0.iter().find(|cell| cell.get().is_some_and(|h| h.address == address))?.take()
    }
}

thread_local! {
    static HOLDS: Holds = const { Holds([const { Cell::new(None) }; HOLDS_MAX]) };
}

/// Records that this thread releases the lock at `address`, whose word has the flag of a recorded
/// lock.
pub(crate) fn released(address: usize) {
    let Some(hold) = HOLDS.with(|holds| holds.take(address)) else { return };
    let slot = hold.stat.slot(cpu::current());
    slot.held.fetch_add(1, Ordering::Relaxed);
    slot.hold.add(hold.since.elapsed());
}

/// Returns one row for each class that has counted something. Exact if no thread is taking, holding
/// or waiting for a lock.
pub fn lockstat() -> Vec<LockStatRow> {
    let classes = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    classes.iter().map(|stat| stat.row()).collect()
}

/// Sets all counters and the CPUs that took locks last to zero. Holds and waits that end during the
/// call may be counted or not.
pub fn lockstat_reset() {
    for stat in COUNTED.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        for entry in stat.last.get().map_or(&[][..], |last| last) {
            entry.store(0, Ordering::Relaxed);
        }
        for slot in stat.slots.get().map_or(&[][..], |slots| slots) {
            slot.reset();
        }
    }
}

/// All rows as a table with the columns of Linux's `lock_stat`, times in microseconds: sorted by
/// the number of contentions, then of acquisitions, descending.
#[derive(Clone, Debug)]
pub struct LockStatTable(Vec<LockStatRow>);

impl LockStatTable {
    /// Returns the current counters, without classes that have counted nothing since the last
    /// reset.
    pub fn now() -> Self {
        let mut rows = lockstat();
        rows.retain(|row| row.contentions + row.acquisitions > 0);
        rows.sort_by_key(|row| std::cmp::Reverse((row.contentions, row.acquisitions)));
        Self(rows)
    }

    /// Returns the rows, in the order in which they are printed.
    pub fn rows(&self) -> &[LockStatRow] {
        &self.0
    }
}

/// Widths of the columns after the class.
const WIDTHS: [usize; 12] = [11, 11, 12, 12, 15, 12, 12, 13, 12, 12, 15, 12];

impl fmt::Display for LockStatTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width =
            self.0.iter().map(|row| row.name.len()).max().unwrap_or(0).max("class name".len());
        write!(f, "{:>width$}", "class name")?;
        for (name, width) in LockStatRow::COLUMNS.into_iter().zip(WIDTHS) {
            write!(f, " {name:>width$}")?;
        }
        writeln!(f)?;
        for row in &self.0 {
            write!(f, "{:>width$}", row.name)?;
            for (cell, width) in row.cells().into_iter().zip(WIDTHS) {
                write!(f, " {cell:>width$}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// One wait of one thread; counted when it is dropped, as soon as the lock is held.
pub(crate) struct Waiting {
    stat: &'static LockStat,
    since: Option<Instant>,
    bounces: bool,
    parked: u64,
}

impl Waiting {
    /// Starts the clock of a wait for the lock at `address`. Models have no clock and count
    /// nothing.
    pub(crate) fn start(stat: &'static LockStat, address: usize) -> Self {
        let since = (!cfg!(any(loom, shuttle, miri))).then(Instant::now);
        let bounces = free_word() != 0 && stat.bounces(address, cpu::current());
        Self { stat, since, bounces, parked: 0 }
    }

    /// Notes that the thread is about to sleep.
    pub(crate) fn park(&mut self) {
        self.parked += 1;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(since) = self.since else { return };
        if owner::is_left_out() {
            return;
        }
        let slot = self.stat.slot(cpu::current());
        slot.contentions.fetch_add(1, Ordering::Relaxed);
        slot.con_bounces.fetch_add(u64::from(self.bounces), Ordering::Relaxed);
        slot.parked.fetch_add(self.parked, Ordering::Relaxed);
        slot.wait.add(since.elapsed());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
