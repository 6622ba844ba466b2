//! A reference count whose zero nobody asks for until it is closed.
//!
//! # Purpose
//!
//! A mount is used by every walk and every open file, and while it is attached its count can't
//! reach zero, for the attachment counts too. So the count is a part for each CPU, and only once
//! the attachment ends does it become one exact number (seed 004, "mnt count"; in the kernel since
//! as `percpu_ref`, by Kent Overstreet).
//!
//! # Invariants
//!
//! * A part holds a number, or says that it is closed. Numbers change by one exchange, which fails
//!   if the part is closed meanwhile: so a user who saw an open part has moved its unit before the
//!   part was closed, and one who did not goes to the central count.
//! * Parts are closed under the lock of the central count, all of them before it is released, and
//!   what they held is added to it. From then on the central count is exact. Whoever only wants to
//!   know it opens the parts again before the lock is released; to add them up as they are would
//!   see a unit given back on one CPU that was taken on another just after that one was read.
//! * [`PerCpuRef::put`] returns `true` once at most, for the unit that made the closed count zero.
//!
//! Nobody looks at the object after the exchange that gave its unit away: a put needs no RCU
//! section.

use crate::atomic::{AtomicI64, Ordering};
use crate::lock::{LockClass, Mutex};
use crate::percpu::PerCpu;

/// What a closed part holds. Users that move between CPUs take a part below zero, but not so far.
const CLOSED: i64 = i64::MIN;

/// A count of users in per-CPU parts. `C` is the class of the lock of the closed count.
///
/// `Send` and `Sync`.
pub struct PerCpuRef<C: LockClass> {
    parts: PerCpu<AtomicI64>,
    central: Mutex<Central, C>,
}

struct Central {
    /// Units that are in no part.
    count: i64,
    is_closed: bool,
    /// The last unit was given back.
    is_dead: bool,
}

impl<C: LockClass> PerCpuRef<C> {
    /// A count of one, the caller's unit, in `slots` parts (at least one).
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let central = Central { count: 1, is_closed: false, is_dead: false };
        Self { parts: PerCpu::new(slots, |_| AtomicI64::new(0)), central: Mutex::new(central) }
    }

    /// Counts one more user. The caller has a unit, or finds out afterwards that the object was
    /// going already, and then gives the unit back without any use of the object.
    ///
    /// An atomic read-modify-write in any case. Waits for nothing, unless the count is closed, or
    /// [`users`](Self::users) reads it: then for its lock.
    #[inline]
    pub fn get(&self) {
        if !self.change(1, Ordering::Relaxed) {
            self.central.lock().count += 1;
        }
    }

    /// Counts one more user, unless the last unit of a closed count was given back: then `false`,
    /// and nothing done. For a caller who has no unit, and whom something else keeps from seeing
    /// the object's memory go. Costs and blocks as [`get`](Self::get) does.
    #[inline]
    #[must_use = "when `false` the object is going"]
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

    /// Gives a unit back. `true` if it was the last one of a closed count. Blocks as
    /// [`get`](Self::get) does.
    #[inline]
    #[must_use = "the last one has to end the object"]
    pub fn put(&self) -> bool {
        !self.change(-1, Ordering::Release) && self.put_central()
    }

    /// Changes the part of this CPU. `false` if it is closed.
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

    /// Makes the count exact, for good. Takes the lock and visits every part; the second time it
    /// does nothing.
    pub fn close(&self) {
        let mut central = self.central.lock();
        if central.is_closed {
            return;
        }
        central.is_closed = true;
        self.gather(&mut central);
    }

    /// Closes all parts and moves what they held to the central count.
    fn gather(&self, central: &mut Central) {
        for part in self.parts.iter() {
            central.count += part.swap(CLOSED, Ordering::AcqRel);
        }
    }

    /// What each part has, in the order of their numbers; 0 for a closed one. For tests and
    /// reports: parts may be negative, and only their sum means something.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = i64> {
        let open = |part: &AtomicI64| match part.load(Ordering::Acquire) {
            CLOSED => 0,
            count => count,
        };
        self.parts.iter().map(open)
    }

    /// The number of users at one moment during the call. Takes the lock, and writes every part of
    /// a count that is not closed.
    #[must_use]
    pub fn users(&self) -> i64 {
        let mut central = self.central.lock();
        if !central.is_closed {
            self.gather(&mut central);
            for part in self.parts.iter() {
                // What was put so far is ordered by the lock that we hold.
                part.store(0, Ordering::Relaxed);
            }
        }
        central.count
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
