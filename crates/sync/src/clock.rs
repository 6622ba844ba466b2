//! A wall clock in two resolutions whose readings are in one order.
//!
//! # Purpose
//!
//! The last tick of the system's clock is cheap to read, and the same for all CPUs until the next
//! tick, so times that are stamped with it are rarely written. A stamp that must differ from one
//! that was seen needs an exact reading. Alone, the two contradict each other: an exact reading is
//! later than the tick that another CPU reads after it, so the later of two changes gets the
//! earlier time. Linux has a floor for ticks against that (`ktime_get_coarse_real_ts64_mg`, since
//! 6.13), which every exact reading writes; here an exact reading writes once in a window.
//!
//! # Guarantees
//!
//! * If one reading ended before another began, the other is not earlier, whichever CPUs and
//!   resolutions they have, unless the system's clock was set back in between.
//! * Readings of ticks write nothing.
//! * Exact readings write one word, at most once in `window` nanoseconds for all CPUs together.
//! * Before a tick is later than all exact readings, readings of ticks are exact ones as well: for
//!   up to a window and a tick.
//!
//! * Among the times of other clocks of the machine they are in one order only where
//!   [`in_system_order`] is used.
//!
//! # How it works
//!
//! `bound` is a time that no exact reading has exceeded. An exact reading above it raises it first,
//! by a window more than needed, so that the next ones find it high enough. A tick that reaches the
//! bound is therefore later than all exact readings which ended before, and can be used. An earlier
//! one can't, and the clock is read exactly; a reading of a tick returns at most the bound, and so
//! never has to raise it.
//!
//! A reader loads the bound before it reads the clock. So the bound was derived from an earlier
//! reading, and exceeds the later one by at most a window. If it exceeds it by more, the clock was
//! set back, and the reader lowers the bound: otherwise all readings would be exact until the clock
//! has caught up.
//!
//! # Memory ordering
//!
//! All accesses are relaxed. "Ended before" means that the later reader has learnt of the earlier
//! reading, so the earlier one's accesses of the bound happen before its own, and it can't load an
//! older value.
//!
//! # Locks
//!
//! None.

use std::cell::Cell;

use crossbeam_utils::CachePadded;

use crate::atomic::{AtomicI64, Ordering, const_unless_model};

/// A clock with ticks and exact readings; see the [module](self).
///
/// `Send` and `Sync`; nothing here waits. The caller reads the system's clocks; all times are in
/// nanoseconds since the same moment.
#[derive(Debug)]
pub struct MultigrainClock {
    bound: CachePadded<AtomicI64>,
    window: i64,
}

impl MultigrainClock {
    const_unless_model! {
        /// Creates a clock whose exact readings write once in `window` nanoseconds.
        pub fn new(window: i64) -> Self {
            Self { bound: CachePadded::new(AtomicI64::new(i64::MIN)), window }
        }
    }

    /// Returns `tick`, the time of the last tick, which the caller has just read, or a later time
    /// if an exact reading may have exceeded it. `exact` reads the exact time.
    #[inline]
    pub fn coarse(&self, tick: i64, exact: impl FnOnce() -> i64) -> i64 {
        let bound = self.bound.load(Ordering::Relaxed);
        if tick >= bound {
            return tick;
        }
        if is_in_system_order() {
            // The bound may be earlier than times of the system.
            return self.exact(exact);
        }
        self.within(bound, exact()).min(bound)
    }

    /// Returns the time that `exact` reads.
    pub fn exact(&self, exact: impl FnOnce() -> i64) -> i64 {
        if is_in_system_order() {
            ORDER.set(Order::Ahead);
        }
        let bound = self.bound.load(Ordering::Relaxed);
        let now = exact();
        if now <= bound {
            return self.within(bound, now);
        }
        self.bound.fetch_max(now.saturating_add(self.window), Ordering::Relaxed);
        now
    }

    /// Forgets all exact readings so far, so that ticks may be earlier than these. For a program
    /// that stops the clock, and wants to see what calls do when nobody has read it exactly.
    pub fn forget(&self) {
        self.bound.store(i64::MIN, Ordering::Relaxed);
    }

    /// Returns `now`, which was read after `bound`, and lowers the bound if the clock was set back.
    #[cold]
    fn within(&self, bound: i64, now: i64) -> i64 {
        let lower = now.saturating_add(self.window);
        if lower < bound {
            // If another thread has changed it since, that thread has read the clock as well.
            let _ = self.bound.compare_exchange(bound, lower, Ordering::Relaxed, Ordering::Relaxed);
        }
        now
    }
}

/// State of a thread in [`in_system_order`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Own,
    System,
    /// The thread has read the clock exactly.
    Ahead,
}

thread_local! {
    static ORDER: Cell<Order> = const { Cell::new(Order::Own) };
}

/// Calls `f`, which stamps changes that users of other file systems of the machine compare with
/// their own. Returns what it returns, and whether it has read a clock exactly.
///
/// Linux stamps with the last tick, or with the latest exact time that it has stored anywhere if
/// that is later. So a stamp here is in order with Linux's if it is exact, not earlier than all of
/// those, and if Linux stores an exact time before anybody learns of it. The caller has it do so if
/// this returns true. In `f`, [`is_in_system_order`] is true for this thread.
pub fn in_system_order<T>(f: impl FnOnce() -> T) -> (T, bool) {
    ORDER.set(Order::System);
    let result = f();
    (result, ORDER.replace(Order::Own) == Order::Ahead)
}

/// Returns whether a stamp has to be exact if it is stored at all.
#[inline]
pub fn is_in_system_order() -> bool {
    ORDER.get() != Order::Own
}

/// The window of the process's clock: a quarter of the usual tick. Stamps are exact ones for so
/// long after each exact one, and until the next tick.
#[cfg(not(loom))]
const WINDOW_NANOS: i64 = 1_000_000;

/// Returns the clock of this process, whose times are in nanoseconds since 1970.
#[cfg(not(any(loom, shuttle)))]
#[inline]
pub fn of_process() -> &'static MultigrainClock {
    static CLOCK: MultigrainClock = MultigrainClock::new(WINDOW_NANOS);
    &CLOCK
}

/// Returns the clock of the current run of a model.
#[cfg(all(shuttle, not(loom)))]
pub fn of_process() -> &'static MultigrainClock {
    shuttle::lazy_static! {
        static ref CLOCK: MultigrainClock = MultigrainClock::new(WINDOW_NANOS);
    }
    &CLOCK
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
