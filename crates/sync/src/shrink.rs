//! The return of free memory to the system.
//!
//! # Purpose
//!
//! Giving memory back is a system call for each run of free pages, and each of these interrupts
//! every CPU that runs a thread of the process. A thread that frees pages in an RCU section (all
//! deferred work runs in one, inside any call) would be slow and delay grace periods. So it only
//! requests that memory is given back ([`request`]). The reclaim thread does that outside of
//! sections, a few milliseconds later, and so does [`rcu::synchronize`](crate::rcu::synchronize).
//! (Counterpart of a shrinker in Linux.)
//!
//! # In time
//!
//! A shrinker also retains memory only for as long as it is used. The reclaim thread ends a
//! *window* every second ([`Windows`]), and the shrinker then says whether memory has lain idle.
//! If the system is short of memory ([`pressure`]), all that is retained goes back. The thread does
//! not end as long as there is memory that decays.
//!
//! # Fewer calls
//!
//! While a superblock is taken down, its pages become free in no particular order. Free memory
//! between used pages is not returned before the end ([`Effort::Whole`]): at the end most regions
//! are wholly free, and one call returns each of them instead of hundreds.
//!
//! # Locks
//!
//! `ShrinkerLock` is held while memory is returned. It is taken with no other lock held, and
//! `PageDepot` under it.

mod pressure;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::lock::Mutex;
use pressure::Pressure;

crate::lock_class! {
    /// The current run of the shrinker.
    pub ShrinkerLock = ("shrinker", 65035);
}

/// The memory that a shrinker gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Regions that are wholly free.
    Whole,
    /// Free pages anywhere.
    All,
}

/// An allocator that retains free memory.
pub(crate) trait Shrinker: Sync {
    /// Gives back memory of at most `regions` regions. Returns whether more is left to give back.
    fn give_back(&self, effort: Effort, regions: usize) -> bool;

    /// Ends the window in which the use of memory was measured. If the system is short of memory,
    /// all that is retained is to be given back. Returns whether there is memory to give back.
    fn end_window(&self, is_short: bool) -> bool;

    /// Returns whether the retained memory becomes less in the windows to come, if nobody uses it.
    fn decays(&self) -> bool;
}

/// The length of a window.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// The page pool, once it has retained much.
static SHRINKER: OnceLock<&'static dyn Shrinker> = OnceLock::new();
/// Serialises runs: a caller waits for the run that has begun before.
static RUN: Mutex<(), ShrinkerLock> = Mutex::new(());
/// Whether a request has been made since the last run.
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// Whether the reclaim thread is doing work that makes regions whole.
static IS_WHOLE_SOON: AtomicBool = AtomicBool::new(false);

/// Registers the shrinker, which all calls pass. Never blocks.
pub(crate) fn register(shrinker: &'static dyn Shrinker) {
    SHRINKER.get_or_init(|| shrinker);
}

/// Requests a run of the shrinker. Never blocks.
pub(crate) fn request() {
    if !IS_REQUESTED.load(Ordering::Relaxed) {
        IS_REQUESTED.store(true, Ordering::Release);
    }
}

/// Returns whether the retained memory becomes less in the windows to come, if nobody uses it.
pub(crate) fn decays() -> bool {
    SHRINKER.get().is_some_and(|shrinker| shrinker.decays())
}

/// The windows in which the use of memory is measured: the reclaim thread's.
pub(crate) struct Windows {
    begin: Instant,
    pressure: Pressure,
}

impl Windows {
    /// Begins the first window.
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now(), pressure: Pressure::new() }
    }

    /// Ends the window if it has lasted long enough, and then requests a run if there is memory to
    /// give back.
    pub(crate) fn look(&mut self) {
        if self.begin.elapsed() < WINDOW {
            return;
        }
        self.begin = Instant::now();
        let Some(shrinker) = SHRINKER.get() else { return };
        let is_short = shrinker.decays() && self.pressure.is_short();
        if shrinker.end_window(is_short) {
            request();
        }
    }
}

/// Runs the shrinker if that was requested, for at most this number of regions, after any run that
/// has begun before. Returns whether more is left to give back. The caller is in no RCU section and
/// holds no lock.
pub(crate) fn run(effort: Effort, regions: usize) -> bool {
    let _run = RUN.lock();
    // Cleared first: a thread that frees memory from now on makes a new request.
    if !IS_REQUESTED.swap(false, Ordering::Acquire) {
        return false;
    }
    let Some(shrinker) = SHRINKER.get() else { return false };
    let holds_back = effort == Effort::Whole || IS_WHOLE_SOON.load(Ordering::Relaxed);
    let has_more =
        shrinker.give_back(if holds_back { Effort::Whole } else { Effort::All }, regions);
    if has_more || holds_back {
        // Memory that was held back is examined again.
        IS_REQUESTED.store(true, Ordering::Release);
    }
    has_more
}

/// Notes whether the reclaim thread is doing work that makes regions whole.
pub(crate) fn expect_whole(is_expected: bool) {
    IS_WHOLE_SOON.store(is_expected, Ordering::Relaxed);
}
