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

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::lock::Mutex;

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

/// Gives back at most this number of regions. Returns whether more is left to give back.
pub(crate) type Shrinker = fn(Effort, usize) -> bool;

/// The shrinker of the page pool, once it has requested anything.
static SHRINKER: OnceLock<Shrinker> = OnceLock::new();
/// Serialises runs: a caller waits for the run that has begun before.
static RUN: Mutex<(), ShrinkerLock> = Mutex::new(());
/// Whether a request has been made since the last run.
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// Whether the reclaim thread is doing work that makes regions whole.
static IS_WHOLE_SOON: AtomicBool = AtomicBool::new(false);

/// Requests a run of `shrinker`, which all calls pass. Never blocks.
pub(crate) fn request(shrinker: Shrinker) {
    if !IS_REQUESTED.load(Ordering::Relaxed) {
        SHRINKER.get_or_init(|| shrinker);
        IS_REQUESTED.store(true, Ordering::Release);
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
    let has_more = shrinker(if holds_back { Effort::Whole } else { Effort::All }, regions);
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
