//! The locks of one file, and the requests that wait for them.

use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use vfscale_sync::atomic::Ordering;
use vfscale_sync::percpu_arc::PerCpuArc;

use super::graph::LockGraph;
use super::state::{OwnerLocks, Shared};
use super::wait::{PendingLock, WaitToken};
use super::waiter::{Style, Waiter};
use super::{LockKind, LockRange, Owner, RecordLock};
use crate::base::limits::Quotas;

/// The advisory locks of one file; see the module page.
///
/// Two words until the first lock. `Send + Sync`. Only [`lock`](Self::lock) and
/// [`flock`](Self::flock) block; the other calls take `flc_lock` briefly. The call that grants a
/// lock calls the function that was passed to [`PendingLock::notify`], before it returns.
#[derive(Default)]
pub struct FileLocks {
    shared: OnceLock<Arc<Shared>>,
}

/// The result of a request that may wait.
#[must_use]
pub enum Acquire {
    /// The lock is held.
    Granted,
    /// Locks of others conflict with it.
    Waiting(PendingLock),
}

impl Acquire {
    fn wait(self, token: &WaitToken) -> Result<(), Errno> {
        match self {
            Acquire::Granted => Ok(()),
            Acquire::Waiting(pending) => pending.wait(token),
        }
    }
}

impl FileLocks {
    /// Creates a value without locks.
    pub const fn new() -> FileLocks {
        FileLocks { shared: OnceLock::new() }
    }

    /// Charges locks and requests to the quotas of a tree from now on, unless a lock was requested
    /// before; returns `self`.
    pub(crate) fn paid_by(&self, quotas: &PerCpuArc<Quotas>) -> &FileLocks {
        self.shared.get_or_init(|| Shared::new(Some(quotas.keep())));
        self
    }

    /// Returns the first record lock that conflicts with `request` (`F_GETLK`), of the owner that
    /// has held locks of this file for longest. The lock of an open file has pid -1.
    pub fn test(&self, request: &RecordLock) -> Option<RecordLock> {
        self.shared.get()?.state.lock().first_conflict(request)
    }

    /// Takes a record lock (`F_SETLK`), which replaces locks of the same owner in its range.
    ///
    /// # Errors
    /// `EAGAIN` if locks of others conflict; then nothing has changed. `ENOLCK` if there are too
    /// many records.
    pub fn try_lock(&self, request: &RecordLock) -> Result<(), Errno> {
        self.shared().with(|state| {
            if state.first_conflict(request).is_some() {
                Err(Errno::AGAIN)
            } else {
                state.set(request)
            }
        })
    }

    /// Requests a record lock without blocking; the request stays pending while locks of others
    /// conflict. Until it is granted, the owner's locks stay as they are.
    ///
    /// # Errors
    /// `EDEADLK` if waiting would be a deadlock, `ENOLCK` if there are too many records or
    /// requests.
    pub fn request(&self, request: &RecordLock, graph: &Arc<LockGraph>) -> Result<Acquire, Errno> {
        let shared = self.shared();
        shared.with(|state| {
            if state.first_conflict(request).is_none() {
                return state.set(request).map(|()| Acquire::Granted);
            }
            state.check_room_for_waiter()?;
            let waiter = Waiter::new(*request, Style::Record, Some(graph.clone()));
            waiter.wait_for(state.blockers(request))?;
            state.record_queue.push_back(waiter.clone());
            Ok(Acquire::Waiting(PendingLock::new(shared.clone(), waiter)))
        })
    }

    /// Takes a record lock (`F_SETLKW`): [`request`](Self::request), then [`PendingLock::wait`].
    /// Blocks; the caller holds no lock and no RCU guard, but a reference to the file.
    ///
    /// # Errors
    /// The errors of both.
    pub fn lock(
        &self,
        request: &RecordLock,
        graph: &Arc<LockGraph>,
        token: &WaitToken,
    ) -> Result<(), Errno> {
        self.request(request, graph)?.wait(token)
    }

    /// Releases the locks of `owner` within `range` (`F_UNLCK`), if any.
    ///
    /// # Errors
    /// `ENOLCK` if a record would have to be split and there are too many.
    pub fn unlock(&self, owner: Owner, range: LockRange) -> Result<(), Errno> {
        match self.shared.get() {
            Some(shared) => shared.with(|state| state.unset(owner, range)),
            None => Ok(()),
        }
    }

    /// Releases all record locks of a task that closes a handle of this file. Takes no lock if no
    /// task holds any.
    ///
    /// A waiting request of the task is not withdrawn. A caller whose other threads may close the
    /// handle concurrently must check afterwards that the handle is still open and, if not, release
    /// again.
    pub fn release_posix(&self, task: u64) {
        if let Some(shared) = self.shared.get()
            && shared.tasks.load(Ordering::Acquire) != 0
        {
            shared.with(|state| state.release(Owner::Task(task)));
        }
    }

    /// Returns whether a task has record locks. Takes no lock if no task has any.
    pub fn has_posix(&self, task: u64) -> bool {
        self.shared.get().is_some_and(|shared| {
            let is_it = |locks: &OwnerLocks| locks.owner == Owner::Task(task);
            shared.tasks.load(Ordering::Acquire) != 0
                && shared.state.lock().owners.iter().any(is_it)
        })
    }

    /// Releases all locks of an open file, record and `flock`, and ends its requests with `EBADF`,
    /// because its last handle is closed. Takes no lock if no open file holds or waits for any.
    pub fn release_file(&self, file: u64) {
        if let Some(shared) = self.shared.get()
            && shared.files.load(Ordering::Acquire) != 0
        {
            shared.with(|state| {
                state.abandon(|waiter| waiter.lock.owner == Owner::File(file));
                state.release(Owner::File(file));
                state.unflock(file);
            });
        }
    }

    /// Locks the whole file for an open file (`LOCK_NB`). First releases its lock of the other
    /// kind, which stays lost on failure.
    ///
    /// # Errors
    /// `EAGAIN` if locks of others conflict, `ENOLCK` if the tree has too many.
    pub fn try_flock(&self, file: u64, kind: LockKind) -> Result<(), Errno> {
        self.shared().with(
            |state| {
                if state.try_flock(file, kind)? { Ok(()) } else { Err(Errno::AGAIN) }
            },
        )
    }

    /// Requests a lock of the whole file without blocking; the request stays pending while locks of
    /// others conflict. Releases a lock of the other kind immediately.
    ///
    /// # Errors
    /// `ENOLCK` if too many requests wait, or the tree has too many locks.
    pub fn request_flock(&self, file: u64, kind: LockKind) -> Result<Acquire, Errno> {
        let shared = self.shared();
        shared.with(|state| {
            if state.try_flock(file, kind)? {
                return Ok(Acquire::Granted);
            }
            state.check_room_for_waiter()?;
            let lock =
                RecordLock { owner: Owner::File(file), pid: -1, kind, range: LockRange::WHOLE };
            let waiter = Waiter::new(lock, Style::Flock, None);
            state.flock_queue.push_back(waiter.clone());
            Ok(Acquire::Waiting(PendingLock::new(shared.clone(), waiter)))
        })
    }

    /// Locks the whole file for an open file: [`request_flock`](Self::request_flock), then
    /// [`PendingLock::wait`]. Blocks; the caller holds no lock and no RCU guard, but a reference to
    /// the file.
    ///
    /// # Errors
    /// The errors of both.
    pub fn flock(&self, file: u64, kind: LockKind, token: &WaitToken) -> Result<(), Errno> {
        self.request_flock(file, kind)?.wait(token)
    }

    /// Releases the `flock` lock of an open file (`LOCK_UN`), if it has one.
    pub fn unflock(&self, file: u64) {
        if let Some(shared) = self.shared.get() {
            shared.with(|state| state.unflock(file));
        }
    }

    /// Returns all record locks, by owner in the order of their first locks, then by range.
    pub fn list(&self) -> Vec<RecordLock> {
        let Some(shared) = self.shared.get() else { return Vec::new() };
        shared.state.lock().owners.iter().flat_map(OwnerLocks::list).collect()
    }

    /// Returns whether no lock is held and no request waits.
    pub fn is_empty(&self) -> bool {
        self.shared.get().is_none_or(|shared| {
            shared.tasks.load(Ordering::Acquire) == 0 && shared.files.load(Ordering::Acquire) == 0
        })
    }

    fn shared(&self) -> &Arc<Shared> {
        self.shared.get_or_init(|| Shared::new(None))
    }
}

impl Drop for FileLocks {
    /// Ends all requests, which can outlive the file, because nothing would ever grant them.
    fn drop(&mut self) {
        if let Some(shared) = self.shared.get() {
            shared.with(|state| state.abandon(|_| true));
        }
    }
}
