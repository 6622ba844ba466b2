//! A reference count in per-CPU parts that is checked for zero only after it is closed. Counterpart
//! of `percpu_ref` in Linux.
//!
//! # Purpose
//!
//! A mount is used by every walk and every open file, and while it is attached its count can't
//! reach zero, for the attachment counts too. So the count is a part for each CPU, and becomes one
//! exact number only once the attachment ends (Piggin, "Scaling the Linux VFS", 2009, "mnt count";
//! in Linux since as `percpu_ref`, by Kent Overstreet).
//!
//! # Invariants
//!
//! * A part holds a number, or a value that marks it as closed. Numbers change by one exchange,
//!   which fails if the part was closed in between. So a user that saw an open part has moved its
//!   unit before the part was closed, and any other user changes the central count.
//! * Parts are closed under the lock of the central count, all of them before it is released, and
//!   their numbers are added to it. From then on the central count is exact. A caller that only
//!   only reads the sum opens the parts again before the lock is released. Adding up open parts
//!   would be wrong: the sum could see a unit given back on one CPU, but miss that it was taken on
//!   another one just after that one was read.
//! * [`PerCpuRef::put`] returns `true` once at most, for the unit that made the closed count zero.
//!
//! No thread accesses the object after the exchange that gave its unit away: a put needs no RCU
//! section.

use crate::atomic::{AtomicI64, Ordering};
use crate::lock::{LockClass, Mutex};
use crate::percpu::PerCpu;

/// The value of a closed part. Users that move between CPUs make a part negative, but not this far.
const CLOSED: i64 = i64::MIN;

/// A count of users in per-CPU parts. `C` is the class of the lock of the closed count.
///
/// `Send` and `Sync`.
pub struct PerCpuRef<C: LockClass> {
    parts: PerCpu<AtomicI64>,
    central: Mutex<Central, C>,
}

struct Central {
    /// Number of units that are in no part.
    count: i64,
    is_closed: bool,
    /// Whether the last unit was given back.
    is_dead: bool,
}

impl<C: LockClass> PerCpuRef<C> {
    /// Creates a count of one, the caller's unit, in `slots` parts (at least one).
    pub fn new(slots: usize) -> Self {
        let central = Central { count: 1, is_closed: false, is_dead: false };
        Self { parts: PerCpu::new(slots, |_| AtomicI64::new(0)), central: Mutex::new(central) }
    }

    /// Counts one more user. The caller has a unit; otherwise it checks afterwards whether the
    /// object was being freed already, and then gives the unit back without using the object.
    ///
    /// Costs an atomic read-modify-write. Waits only if the count is closed, or
    /// [`users`](Self::users) reads it: then for its lock.
    #[inline]
    pub fn get(&self) {
        if !self.change(1, Ordering::Relaxed) {
            self.central.lock().count += 1;
        }
    }

    /// Counts one more user, unless the last unit of a closed count was given back: then returns
    /// `false`, and does nothing. For a caller that has no unit, and whose access to the object's
    /// memory is protected by other means. Costs and blocks as [`get`](Self::get) does.
    #[inline]
    #[must_use = "when `false` the object is being freed"]
    pub fn get_not_dead(&self) -> bool {
        self.change(1, Ordering::Relaxed) || self.get_central()
    }

    #[cold]
    fn get_central(&self) -> bool {
        let mut central = self.central.lock();
        if !central.is_dead {
            central.count += 1;
        }
        !central.is_dead
    }

    /// Gives a unit back. Returns `true` if it was the last one of a closed count. Blocks as
    /// [`get`](Self::get) does.
    #[inline]
    #[must_use = "the last one has to end the object"]
    pub fn put(&self) -> bool {
        !self.change(-1, Ordering::Release) && self.put_central()
    }

    /// Adds `delta` to the part of this CPU. Returns `false` if it is closed.
    #[inline]
    fn change(&self, delta: i64, order: Ordering) -> bool {
        let part = self.parts.this();
        let mut have = part.load(Ordering::Relaxed);
        while have != CLOSED {
            match part.compare_exchange_weak(have, have + delta, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => have = now,
            }
        }
        false
    }

    #[cold]
    fn put_central(&self) -> bool {
        let mut central = self.central.lock();
        central.count -= 1;
        if central.count != 0 || !central.is_closed || central.is_dead {
            return false;
        }
        central.is_dead = true;
        true
    }

    /// Makes the count exact, for good. Takes the lock and visits every part; a second call does
    /// nothing.
    pub fn close(&self) {
        let mut central = self.central.lock();
        if central.is_closed {
            return;
        }
        central.is_closed = true;
        self.gather(&mut central);
    }

    /// Closes all parts and moves their units to the central count.
    fn gather(&self, central: &mut Central) {
        for part in self.parts.iter() {
            central.count += part.swap(CLOSED, Ordering::AcqRel);
        }
    }

    /// Returns the value of each part, in the order of their numbers; 0 for a closed one. For tests
    /// and reports: parts may be negative, and only their sum means something.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = i64> {
        let open = |part: &AtomicI64| match part.load(Ordering::Acquire) {
            CLOSED => 0,
            count => count,
        };
        self.parts.iter().map(open)
    }

    /// Returns the number of users at one moment during the call. Takes the lock, and writes every
    /// part of a count that is not closed.
    pub fn users(&self) -> i64 {
        let mut central = self.central.lock();
        if !central.is_closed {
            self.gather(&mut central);
            for part in self.parts.iter() {
                // Relaxed: all earlier puts are ordered by the lock that we hold.
                part.store(0, Ordering::Relaxed);
            }
        }
        central.count
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
