//! The owner of a thread: whose work it does, so that lockstat can record one volume alone.
//!
//! # Purpose
//!
//! The counters of lockstat belong to classes, and a class has the locks of all volumes of the
//! process. Threads go on with the work of a volume after the calls that gave it: they free removed
//! files, write back and push the log. While the locks of one volume are recorded, such threads of
//! others would add theirs. So a thread that does the work of a volume in the background has the
//! volume as its [`ThreadOwner`] for that time ([`worker`](crate::worker)), and
//! [`lockstat_record_for`](crate::lock::lockstat_record_for) leaves out the threads of other
//! owners. Threads without an owner, which make calls, are recorded always: whoever records a
//! volume calls no other meanwhile.
//!
//! # Invariants
//!
//! * A thread asks for its owner only on the slow path of a lock, where lockstat records.
//! * Models record nothing, and have no owners.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::atomic::thread::{self, JoinHandle};

/// The number of the owner that is recorded alone, or [`ALL`].
static RECORDED: AtomicU32 = AtomicU32::new(ALL);
/// The value of `RECORDED` if every thread is recorded.
const ALL: u32 = u32::MAX;

thread_local! {
    /// Number of this thread's owner; 0 without one.
    static OWNER: Cell<u32> = const { Cell::new(0) };
}

/// The volume whose work a thread does, or none.
///
/// ```
/// use vfscale_sync::lock::ThreadOwner;
///
/// let volume = ThreadOwner::new();
/// let thread = volume.spawn(move || assert_eq!(ThreadOwner::current(), volume));
/// thread.join().unwrap();
/// assert_eq!(ThreadOwner::current(), ThreadOwner::NONE);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadOwner(u32);

impl ThreadOwner {
    /// The owner of threads that belong to no volume.
    pub const NONE: Self = Self(0);

    /// Creates an owner. After 4 billion of them there is only [`NONE`](Self::NONE).
    #[expect(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let next = |last: u32| last.checked_add(1).filter(|next| *next != ALL);
        let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        Self(last.map_or(0, |last| last + 1))
    }

    /// Returns the owner of this thread.
    pub fn current() -> Self {
        Self(OWNER.with(Cell::get))
    }

    /// Makes it the owner of this thread, until the guard is dropped.
    #[must_use = "dropping it restores the former owner at once"]
    pub fn enter(self) -> OwnerGuard {
        OwnerGuard { former: OWNER.with(|owner| owner.replace(self.0)) }
    }

    /// Starts a thread that it owns.
    pub fn spawn<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        thread::spawn(move || {
            let _owned = (!cfg!(any(loom, shuttle))).then(|| self.enter());
            work()
        })
    }
}

/// Restores the former owner of the thread when it is dropped.
#[derive(Debug)]
pub struct OwnerGuard {
    former: u32,
}

impl Drop for OwnerGuard {
    fn drop(&mut self) {
        OWNER.with(|owner| owner.set(self.former));
    }
}

/// Chooses the owner that is recorded alone; `None`: every thread is recorded.
pub(super) fn choose(owner: Option<ThreadOwner>) {
    RECORDED.store(owner.map_or(ALL, |owner| owner.0), Ordering::Relaxed);
}

/// Returns whether this thread has an owner that is not recorded.
pub(super) fn is_left_out() -> bool {
    let recorded = RECORDED.load(Ordering::Relaxed);
    let mine = || OWNER.with(Cell::get);
    recorded != ALL && mine() != 0 && mine() != recorded
}
