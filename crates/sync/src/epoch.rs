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
//! Entering a section is two loads and a store: of a number that is written once in a grace period,
//! and of the thread's own notes. If the number is new, the thread *reports a quiescent state*,
//! with a fence: once in a grace period. So threads that enter sections all the time end grace
//! periods in the time that each takes to enter one, and the system has no part in it.
//!
//! A thread that enters none can't report. After some time the driver of the grace period marks it
//! as *idle*, and has the system run a fence on every CPU that runs a thread of the process
//! (`membarrier`, as Desnoyers et al. do). After that the thread sees the mark, or the driver sees
//! the note of its section. An idle thread holds no grace period up, and reports when it enters its
//! next section. (RCU in Linux treats idle CPUs that way, as in an extended quiescent state.) In a
//! virtual machine the fence takes 20 us and interrupts the other CPUs; threads that work all the
//! time, and those that sleep for long, need none. Where the system can't run it ([`fences`]),
//! sections have a fence of their own. A process that forbids itself the system's fence must have
//! it fail with an error, since a filter that ends the process for it ends it at some later grace
//! period.
//!
//! One thread of the process at a time drives grace periods, and only a thread whose bags wait, in
//! one of 64 outermost sections, or one of 8 if its bags hold many bytes. It reads one line of each
//! thread, once in a grace period. If a thread has not reported, the next look reads the line of
//! that one and goes on from there. A grace period begins only some time after the latest one did,
//! the longer the more threads there are ([`driver`]). So the cost of a section does not grow with
//! the number of threads.
//!
//! # Invariants
//!
//! * A bag runs after every section has ended that could find what it frees. Let a bag be tagged
//!   `n`. The number `n` was stored after its tag was read, and a fence of the driver follows. A
//!   thread that has reported `n` has left the sections that it entered before, and has read `n`
//!   before it reads anything in a later one. The tag was read before `n` was stored, and the
//!   objects unlinked before that, so the reads see it (the litmus test RWC: the thread has
//!   executed the fence of the report since it first read `n`, which forbids anything else). If the
//!   driver sees that a thread is idle, the thread reports after that. The fence of its report
//!   follows that of the driver, so its reads see that the objects are unlinked.
//! * A thread that did neither was marked, and the fence of the system follows. If that precedes a
//!   section's note on the thread's CPU, the section sees the mark and reports. Otherwise the
//!   driver sees the note. If the note is below `n`, the driver waits.
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
#[cfg(all(shuttle, not(loom)))]
pub(crate) mod model;
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

    /// Notes that deferred calls of this thread will free `bytes` of memory: the more, the sooner
    /// it looks after them.
    #[inline]
    pub(crate) fn note_bytes(&self, bytes: usize) {
        thread::note_bytes(self.record, bytes);
    }

    /// Seals the bag of this thread, drives the grace period, and runs bags that are due, of all
    /// threads, some hundred calls at most. Does not wait.
    pub(crate) fn flush(&self) {
        thread::seal(self.record);
        if fork::is_child() {
            return;
        }
        driver::drive(true, None);
        // The thread's own bags first.
        let own = std::iter::once(self.record);
        let mut records = own.chain(Records::waiting(self.record));
        // As long as more calls may be run.
        records.try_fold(thread::BAGS_MAX, |left, record| {
            Some(record.run_due(u64::MAX, left)).filter(|left| *left > 0)
        });
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
