//! Epochs: the engine of RCU, which knows when all sections have ended that a moment saw.
//!
//! # Purpose
//!
//! A thread that enters a section notes the number of the latest grace period on a line of its
//! own, and clears the note when it leaves. Deferred calls gather in a bag of the thread; a full
//! bag is tagged with the number of the next grace period, and waits in the thread's queue until
//! that is over. A grace period is over when no thread is in a section that began before it. (After
//! Fraser, "Practical lock-freedom", 2004, and Desnoyers et al., "User-level implementations of
//! read-copy update", 2012.) [`rcu`](crate::rcu) is the interface for the rest of the crate.
//!
//! # What it costs
//!
//! Entering a section is a load of a number that is written once in a grace period, and a store.
//! No fence: who begins a grace period has the system run one on every CPU that runs a thread of
//! the process (`membarrier`, as Desnoyers et al. do). Where the system can't, or the processor's
//! memory model does not suffice ([`fences`]), sections have a fence.
//!
//! One thread of the process at a time drives grace periods, and only a thread whose bags wait, in
//! one of 64 outermost sections. It reads one line of each thread, once in a grace period. If a
//! thread is in a section that began before, the next look reads the line of that one and goes on
//! from there. A grace period begins only some time after the latest one did ([`driver`]). So the
//! cost of a section does not grow with the number of threads.
//!
//! # Invariants
//!
//! * A bag runs after every section has ended that could find what it frees. Let a bag be tagged
//!   `n`. The number `n` was stored after its tag was read, and the fence of the grace period
//!   follows. If the fence precedes a section's note on its CPU, the section's reads see that the
//!   bag's objects are unlinked. Otherwise the driver of the grace period sees the note. If that is
//!   below `n`, it waits. If it is `n`, the thread had read `n` before the section's reads; the tag
//!   was read before `n` was stored, and the objects unlinked before that, so the reads see it (the
//!   litmus test RWC: the processor's model or, elsewhere, the section's fence forbids anything
//!   else).
//! * Everything in a section happens before the deferred calls that waited for it: leaving is a
//!   release, the driver acquires it and releases the end of the grace period, which the thread
//!   that runs a bag has acquired.
//! * Only its owner uses the bag, the nesting and the counters of a thread's record. Its queue has
//!   a lock, which is held for a push or a pop, never while calls run. Records are never freed; a
//!   thread takes that of a thread that has ended, with its queue.
//!
//! # Blocking
//!
//! Entering, leaving and deferring never wait, except for another thread's push or pop. In a fork
//! child nothing runs and no grace period begins.

mod bag;
mod driver;
mod fences;
mod protocol;
mod record;
mod thread;

use std::marker::PhantomData;

use crate::fork;
use bag::Deferred;
use record::{EPOCH, Record, Records};

pub(crate) use bag::BAG_LEN;
pub(crate) use thread::is_pinned;

/// A thread in a section. Not `Send`.
#[must_use = "the section ends when the guard is dropped"]
pub(crate) struct Guard {
    record: &'static Record,
    not_send: PhantomData<*mut ()>,
}

/// Enters a section. Sections nest; inner ones cost an addition.
#[inline]
pub(crate) fn pin() -> Guard {
    Guard { record: thread::enter(), not_send: PhantomData }
}

/// Returns the tag of bags that are sealed now: those sealed before have at most this one.
pub(crate) fn tag() -> u64 {
    EPOCH.tag()
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        thread::leave(self.record);
    }
}

impl Guard {
    /// Runs `f` when all sections of this moment have ended, on some thread, in a section.
    ///
    /// # Safety
    /// `f` may be called on any thread, and all that it borrows lives until then.
    #[inline]
    pub(crate) unsafe fn defer_unchecked<F: FnOnce()>(&self, f: F) {
        thread::defer(self.record, Deferred::new(f));
    }

    /// Seals the bag of this thread, drives the grace period, and runs bags that are due, of all
    /// threads, some hundred calls at most. Does not wait.
    pub(crate) fn flush(&self) {
        thread::seal(self.record);
        if fork::is_child() {
            return;
        }
        driver::drive(true);
        // The thread's own bags first.
        let records = std::iter::once(self.record).chain(Records::known());
        records.fold(thread::BAGS_MAX, |left, record| record.run_due(u64::MAX, left));
    }

    /// Seals the bag of this thread, so that others may run it. Runs nothing.
    pub(crate) fn hand_over(&self) {
        thread::seal(self.record);
    }

    /// Runs the bags of all threads that were sealed before the tag was read, if they are due.
    pub(crate) fn run_until(&self, tag: u64) {
        Records::known().for_each(|record| _ = record.run_due(tag, usize::MAX));
    }

    /// Leaves the section and enters another one, if this is the only guard of the thread.
    pub(crate) fn repin(&mut self) {
        thread::enter_again(self.record);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
