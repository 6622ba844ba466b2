//! Advisory locks of one file, as Linux has them: record locks (`fcntl(2)`), of a task or of an
//! open file, and whole-file locks (`flock(2)`).
//!
//! [`FileLocks`] are all locks of one inode. Record locks cover ranges of bytes; those of one owner
//! never conflict, replace one another where they overlap, and merge where they touch. Locks of
//! different owners conflict where they overlap and either is exclusive; it does not matter which
//! of the two kinds of owner they have. `flock` locks are a world of their own, in which an open
//! file either locks the file or does not.
//!
//! A request that can't be granted fails (`EAGAIN`), or becomes a [`PendingLock`]. Whoever changes
//! the locks grants the pending requests that have become possible, in the order they came, and
//! then wakes those who wait for them; nobody has to compete again. As in Linux a new request may
//! overtake the ones that wait, if it conflicts with no lock held. A pending request belongs to no
//! borrow, so the caller can leave every RCU section and lock before it waits:
//! [`PendingLock::wait`] parks the thread, [`PendingLock::notify`] calls a function later instead.
//! Both take a [`WaitToken`], by which anybody can interrupt them.
//!
//! # Deadlocks
//!
//! A [`LockGraph`], shared by all files whose locks may wait for each other, knows which task waits
//! for which. A request that would close a circle fails with `EDEADLK`. Open files are not in the
//! graph, nor are `flock` locks: as in Linux, nobody can say which thread would release them. A
//! task that waits with several threads waits for all that they wait for.
//!
//! # Invariants
//!
//! * The records of an owner are disjoint, and two that touch differ in kind; see `ranges`.
//! * A queued request conflicts with some lock held, and its task's edges in the graph name every
//!   task that holds one such. Both are restored before the lock of the state is released.
//! * Every request that was queued gets exactly one result, set under the lock of the state, and
//!   whoever waits is told after that lock is released.
//! * Memory is bounded: `RECORDS_MAX` records and `WAITERS_MAX` requests for each file, and as many
//!   of all as the limits of the tree say ([`crate::base::limits`]); more get `ENOLCK`. Releasing
//!   everything never fails.
//!
//! # Lock order and references
//!
//! `flc_lock` (the state of one file), then `blocked_lock_lock` (the graph), then `fl_wait` (the
//! result of one request). A token's lock is never held together with these. No other lock is taken
//! under any of them. A pending request keeps the state of its file's locks alive, and a token
//! refers to pending requests weakly.
//!
//! The order of the checks and the corner cases are those of the Linux manual and of the behaviour
//! of its kernel, with which `tests/linux_locks.rs` compares them.

use rustix::io::Errno;

mod file_locks;
mod graph;
mod ranges;
mod wait;
pub(crate) mod wait_queue;

pub use file_locks::{Acquire, FileLocks};
pub use graph::LockGraph;
pub use wait::{PendingLock, WaitToken};

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod model_tests;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod stress_tests;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;

/// The most records of all owners of one file.
pub(crate) const RECORDS_MAX: usize = 1 << 18;
/// The most requests that wait for locks of one file.
pub(crate) const WAITERS_MAX: usize = 1 << 16;

/// Whether others may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// A read lock: `F_RDLCK`, `LOCK_SH`.
    Shared,
    /// A write lock: `F_WRLCK`, `LOCK_EX`.
    Exclusive,
}

impl LockKind {
    /// Whether locks of two owners exclude each other.
    #[inline]
    pub fn conflicts(self, other: LockKind) -> bool {
        self == LockKind::Exclusive || other == LockKind::Exclusive
    }
}

/// A range of bytes, never empty. A range that ends at [`EOF`](Self::EOF) covers whatever the file
/// may grow to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockRange {
    start: u64,
    end: u64,
}

impl LockRange {
    /// The last offset there is (`OFFSET_MAX`); as an end it means "and everything after".
    pub const EOF: u64 = i64::MAX as u64;

    /// The whole file.
    pub const WHOLE: LockRange = LockRange { start: 0, end: LockRange::EOF };

    /// The bytes from `start` to `end`, both included. An end behind [`EOF`](Self::EOF) means that.
    ///
    /// # Errors
    /// `EINVAL` when `end` is before `start`, or `start` behind `EOF`.
    pub fn new(start: u64, end: u64) -> Result<LockRange, Errno> {
        let end = end.min(LockRange::EOF);
        if start > end { Err(Errno::INVAL) } else { Ok(LockRange { start, end }) }
    }

    /// The range of a `struct flock`: `start` counts from `base`, which `l_whence` stands for (0,
    /// the position, or the size of the file); a `len` of 0 reaches to the end, and a negative one
    /// means the bytes before `start`.
    ///
    /// # Errors
    /// `EINVAL` for a range that begins before the file (or a negative `base`), `EOVERFLOW` for one
    /// that leaves the offsets there are.
    pub fn from_flock(base: i64, start: i64, len: i64) -> Result<LockRange, Errno> {
        if base < 0 {
            return Err(Errno::INVAL);
        }
        let start = base.checked_add(start).ok_or(Errno::OVERFLOW)?;
        let start = u64::try_from(start).map_err(|_| Errno::INVAL)?;
        let reach = len.unsigned_abs();
        match len {
            0 => LockRange::new(start, LockRange::EOF),
            // Both are at most EOF, so the sum fits.
            1.. if start + (reach - 1) > LockRange::EOF => Err(Errno::OVERFLOW),
            1.. => LockRange::new(start, start + (reach - 1)),
            _ if start < reach => Err(Errno::INVAL),
            _ => LockRange::new(start - reach, start - 1),
        }
    }

    /// The first byte.
    #[inline]
    pub fn start(self) -> u64 {
        self.start
    }

    /// The last byte; [`EOF`](Self::EOF) for "and everything after".
    #[inline]
    pub fn end(self) -> u64 {
        self.end
    }

    /// The length as in `l_len`: 0 for a range that reaches to the end.
    pub fn flock_len(self) -> u64 {
        if self.end == LockRange::EOF { 0 } else { self.end - self.start + 1 }
    }

    /// Whether the two have a byte in common.
    #[inline]
    pub fn overlaps(self, other: LockRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

impl std::fmt::Debug for LockRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.end {
            LockRange::EOF => write!(f, "{}..=EOF", self.start),
            end => write!(f, "{}..={end}", self.start),
        }
    }
}

/// Who holds a record lock, by a number that is unique among its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A task, with all its threads: `F_SETLK`. Its locks go when it closes any handle of the file.
    Task(u64),
    /// An open file: `F_OFD_SETLK`. Its locks go with its last handle.
    File(u64),
}

/// A record lock, held or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLock {
    /// Who holds it.
    pub owner: Owner,
    /// The process that asked for it, to be told to others; told as -1 when the owner is an open
    /// file.
    pub pid: i32,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// What it covers.
    pub range: LockRange,
}

/// The lock classes of this module.
pub(crate) mod classes {
    use vfscale_sync::lock_class;

    lock_class! {
        /// The locks of one file, and who waits for them.
        pub FileLockState = ("flc_lock", 100);
        /// Which task waits for which.
        pub LockWaits = ("blocked_lock_lock", 102);
        /// The result of one request that had to wait.
        pub LockResult = ("fl_wait", 104);
        /// The requests that a token can interrupt.
        pub TokenState = ("wait_token", 106)
    }
}
