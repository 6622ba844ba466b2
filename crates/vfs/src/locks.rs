//! Advisory locks of one file, as in Linux: record locks (`fcntl(2)`), of a task or of an
//! open file, and whole-file locks (`flock(2)`).
//!
//! [`FileLocks`] are all locks of one inode. Record locks cover ranges of bytes; the locks of one
//! owner never conflict, replace one another where they overlap, and merge where they touch. Locks
//! of different owners, of either kind, conflict where they overlap and at least one is exclusive.
//! `flock` locks do not interact with record locks; an open file either holds one or does not.
//!
//! A request that cannot be granted fails (`EAGAIN`), or becomes a [`PendingLock`]. The thread that
//! changes the locks grants the pending requests that have become possible, in the order of their
//! arrival, and then wakes their waiters, which need not compete again. As in Linux, a new request
//! may overtake waiting ones if it conflicts with no held lock. A pending request borrows nothing,
//! so the caller can leave every RCU section and lock before it waits: [`PendingLock::wait`] parks
//! the thread, [`PendingLock::notify`] calls a function later. Both take a [`WaitToken`], which any
//! thread can use to interrupt them.
//!
//! # Deadlocks
//!
//! A [`LockGraph`], shared by all files whose locks may wait for each other, records which task
//! waits for which. A request that would close a cycle fails with `EDEADLK`. Open files are not in
//! the graph, nor are `flock` locks: as in Linux, any thread might release them. A task that waits
//! with several threads waits for everything that they wait for.
//!
//! # Invariants
//!
//! * The records of an owner are disjoint, and two that touch differ in kind; see `ranges`.
//! * A queued request conflicts with some held lock, and its task's edges in the graph name every
//!   task that holds such a lock. Both are restored before the lock of the state is released.
//! * Every request that was queued gets exactly one result, set under the lock of the state, and
//!   its waiter is notified after that lock is released.
//! * Memory is bounded: `RECORDS_MAX` records and `WAITERS_MAX` requests for each file, and the
//!   limits of the tree for all files ([`crate::base::limits`]); further requests get `ENOLCK`. The
//!   release of everything never fails.
//!
//! # Lock order and references
//!
//! `flc_lock` (the state of one file), then `blocked_lock_lock` (the graph), then `fl_wait` (the
//! result of one request). A token's lock is never held together with these. No other lock is taken
//! under any of them. A pending request keeps the state of its file's locks alive, and a token
//! refers to pending requests weakly.
//!
//! The order of the checks and the corner cases follow the Linux manual and the behaviour of its
//! kernel, with which `crates/difftest` compares them.

use rustix::io::Errno;

mod file_locks;
mod graph;
mod ranges;
mod sleeper;
mod state;
mod wait;
pub(crate) mod wait_queue;
mod waiter;

pub use file_locks::{Acquire, FileLocks};
pub use graph::LockGraph;
pub use wait::{PendingLock, WaitToken};

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod stress_tests;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests;
#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod waiting_tests;

/// The most records of all owners of one file.
pub(crate) const RECORDS_MAX: usize = 1 << 18;
/// The most requests that wait for locks of one file.
pub(crate) const WAITERS_MAX: usize = 1 << 16;

/// The mode of a lock.
///
/// ```
/// # use vfscale_vfs::LockKind;
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// task.open("/f")?.flock(Some(LockKind::Shared), None)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// A read lock: `F_RDLCK`, `LOCK_SH`.
    Shared,
    /// A write lock: `F_WRLCK`, `LOCK_EX`.
    Exclusive,
}

impl LockKind {
    /// Returns whether locks of two owners exclude each other.
    #[inline]
    pub fn conflicts(self, other: LockKind) -> bool {
        self == LockKind::Exclusive || other == LockKind::Exclusive
    }
}

/// A range of bytes, never empty. A range that ends at [`EOF`](Self::EOF) also covers all
/// growth of the file.
///
/// ```
/// # mod vfscale { pub mod posix { pub use vfscale_vfs::*; } }
/// use vfscale::posix::LockRange;
///
/// let header = LockRange::new(0, 99)?;
/// assert_ne!(header, LockRange::WHOLE);
/// # Ok::<(), vfscale_vfs::Errno>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockRange {
    start: u64,
    end: u64,
}

impl LockRange {
    /// The largest offset (`OFFSET_MAX`); as an end it means "and everything after".
    pub const EOF: u64 = i64::MAX as u64;

    /// The whole file.
    pub const WHOLE: LockRange = LockRange { start: 0, end: LockRange::EOF };

    /// Creates the range of the bytes from `start` to `end`, both included. An end behind
    /// [`EOF`](Self::EOF) counts as `EOF`.
    ///
    /// # Errors
    /// `EINVAL` if `end` is before `start`, or `start` behind `EOF`.
    pub fn new(start: u64, end: u64) -> Result<LockRange, Errno> {
        let end = end.min(LockRange::EOF);
        if start > end { Err(Errno::INVAL) } else { Ok(LockRange { start, end }) }
    }

    /// Converts the range of a `struct flock`. `start` counts from `base`, the offset of `l_whence`
    /// (0, the position, or the size of the file); a `len` of 0 reaches to the end, a negative one
    /// means the bytes before `start`.
    ///
    /// # Errors
    /// `EINVAL` for a range that begins before the file (or a negative `base`), `EOVERFLOW` for one
    /// that exceeds the largest offset.
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

    /// Returns the first byte.
    #[inline]
    pub fn start(self) -> u64 {
        self.start
    }

    /// Returns the last byte; [`EOF`](Self::EOF) for "and everything after".
    #[inline]
    pub fn end(self) -> u64 {
        self.end
    }

    /// Returns the length in the form of `l_len`: 0 for a range that reaches to the end.
    pub fn flock_len(self) -> u64 {
        if self.end == LockRange::EOF { 0 } else { self.end - self.start + 1 }
    }

    /// Returns whether the two ranges share a byte.
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

/// The owner of a record lock, by a number that is unique among owners of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A task, with all its threads: `F_SETLK`. Its locks are released when it closes any handle of
    /// the file.
    Task(u64),
    /// An open file: `F_OFD_SETLK`. Its locks are released with its last handle.
    File(u64),
}

/// A record lock, held or requested.
///
/// ```
/// # use vfscale_vfs::{LockKind, LockRange, Owner, RecordLock};
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let file = task.open("/f")?;
/// let (owner, range) = (Owner::Task(task.id()), LockRange::WHOLE);
/// let lock = RecordLock { owner, pid: 7, kind: LockKind::Shared, range };
/// file.try_lock_record(&lock)?;
/// file.unlock_record(owner, range)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLock {
    /// The owner.
    pub owner: Owner,
    /// The requesting process, reported to others; -1 if the owner is an open file.
    pub pid: i32,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// The bytes that it covers.
    pub range: LockRange,
}

/// The lock classes of this module.
pub(crate) mod classes {
    use vfscale_sync::lock_class;

    lock_class! {
        /// The locks of one file, and their waiters.
        pub FileLockState = ("flc_lock", 100);
        /// The graph of tasks that wait for tasks.
        pub LockWaits = ("blocked_lock_lock", 102);
        /// The result of one request that had to wait.
        pub LockResult = ("fl_wait", 104);
        /// The requests that a token can interrupt.
        pub TokenState = ("wait_token", 106)
    }
}
