//! A queue of threads that wait for a condition on data that a [`Mutex`](crate::Mutex) guards.
//!
//! # Invariants
//!
//! * A waiter counts itself and notes the number of wakeups so far while it still holds the mutex,
//!   and sleeps only if that number is unchanged under the queue's lock. So no wakeup between these
//!   two moments is lost.
//! * A thread changes the condition under the mutex and wakes afterwards (inside or outside of it).
//!   If no waiter was counted then, later waiters see the changed condition; so a wakeup without
//!   waiters costs one load.
//! * Wakeups may be spurious: waiters check the condition again.

use std::time::{Duration, Instant};

use crate::atomic::{AtomicU32, Ordering, const_unless_model};
use crate::lock::park;
use crate::lock::{LockClass, MutexGuard};

/// A queue of threads that wait for a condition. Eight bytes; `Send` and `Sync`.
#[derive(Debug)]
pub struct Condvar {
    wakeups: AtomicU32,
    waiters: AtomicU32,
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    const_unless_model! {
        /// Creates a queue without waiters.
        pub fn new() -> Self {
            Self { wakeups: AtomicU32::new(0), waiters: AtomicU32::new(0) }
        }
    }

    /// Releases the mutex, sleeps until a thread wakes this queue, and takes the mutex again. May
    /// return spuriously.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread holds another lock of the same or a higher rank.
    pub fn wait<'a, T: ?Sized, C: LockClass>(
        &self,
        guard: MutexGuard<'a, T, C>,
    ) -> MutexGuard<'a, T, C> {
        self.sleep(guard, None).0
    }

    /// Waits while `condition` holds. It is called with the mutex held.
    pub fn wait_while<'a, T: ?Sized, C: LockClass>(
        &self,
        mut guard: MutexGuard<'a, T, C>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T, C> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Waits like [`wait`](Self::wait), but at most for `timeout`. The second value is whether the
    /// time was up.
    ///
    /// In a model time does not pass: there the call lets other threads run, and the time is up.
    pub fn wait_for<'a, T: ?Sized, C: LockClass>(
        &self,
        guard: MutexGuard<'a, T, C>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T, C>, bool) {
        if cfg!(any(loom, shuttle)) {
            let mutex = guard.mutex();
            drop(guard);
            crate::atomic::yield_now();
            return (mutex.lock(), true);
        }
        self.sleep(guard, Instant::now().checked_add(timeout))
    }

    fn sleep<'a, T: ?Sized, C: LockClass>(
        &self,
        guard: MutexGuard<'a, T, C>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, T, C>, bool) {
        let mutex = guard.mutex();
        // Both under the mutex, which orders them against threads that change the condition.
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let wakeups = self.wakeups.load(Ordering::Relaxed);
        drop(guard);
        let same = || self.wakeups.load(Ordering::Relaxed) == wakeups;
        park::park_until(self.key(), 0, same, deadline);
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        let timed_out = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        (mutex.lock(), timed_out)
    }

    /// Wakes all waiters. The caller holds the mutex, or has held it since it changed the
    /// condition.
    pub fn notify_all(&self) {
        if self.waiters.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.wakeups.fetch_add(1, Ordering::Relaxed);
        park::unpark_while(self.key(), |_| true, |_| park::COMPETE);
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
