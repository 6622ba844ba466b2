//! The locks of one file, and the requests that wait for them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use smallvec::SmallVec;
use vfscale_sync::atomic::{AtomicUsize, Ordering};
use vfscale_sync::lock::Mutex;
use vfscale_sync::percpu_arc::{Kept, PerCpuArc};

use super::classes::FileLockState;
use super::graph::LockGraph;
use super::ranges::Ranges;
use super::wait::{PendingLock, Style, WaitToken, Waiter};
use super::{LockKind, LockRange, Owner, RECORDS_MAX, RecordLock, WAITERS_MAX};
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

/// The part of [`FileLocks`] that waiting requests share with the file.
pub(super) struct Shared {
    state: Mutex<State, FileLockState>,
    /// Number of tasks that hold record locks. Like `files`, it is written under the lock of the
    /// state and read without, so closing a file without locks takes no lock. A task or file sees
    /// its own locks.
    tasks: AtomicUsize,
    /// Number of open files that hold record locks or `flock` locks, plus the number of waiting
    /// requests.
    files: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// In the order of their first locks, which is the order of `F_GETLK`.
    owners: Vec<OwnerLocks>,
    /// Number of records of all owners.
    records: usize,
    flocks: Flocks,
    record_queue: VecDeque<Arc<Waiter>>,
    flock_queue: VecDeque<Arc<Waiter>>,
    /// Requests that have their result, and whose waiters are still to be notified.
    finished: Vec<Arc<Waiter>>,
    payment: Payment,
}

/// The budget that locks and requests are charged to, if there is one, and the number charged.
#[derive(Default)]
struct Payment {
    quotas: Option<Kept<Quotas>>,
    paid: usize,
}

impl Payment {
    /// Ensures that at least `len` are charged.
    ///
    /// # Errors
    /// `ENOLCK` if the tree has too many.
    fn raise(&mut self, len: usize) -> Result<(), Errno> {
        let missing = len.saturating_sub(self.paid);
        if let Some(quotas) = &self.quotas
            && missing > 0
        {
            if !quotas.locks.take(missing as u64) {
                return Err(Errno::NOLCK);
            }
            self.paid += missing;
        }
        Ok(())
    }

    /// Uncharges all beyond `len`.
    fn lower(&mut self, len: usize) {
        let surplus = self.paid.saturating_sub(len);
        if let Some(quotas) = &self.quotas
            && surplus > 0
        {
            quotas.locks.give(surplus as u64);
            self.paid -= surplus;
        }
    }
}

impl Drop for Payment {
    fn drop(&mut self) {
        self.lower(0);
    }
}

struct OwnerLocks {
    owner: Owner,
    pid: i32,
    ranges: Ranges,
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
    /// handle at the same time must check afterwards that it is still open and, if not, release
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

    /// Locks the whole file for an open file (`LOCK_NB`). Releases its lock of the other kind
    /// first, which stays lost on failure.
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

impl Shared {
    fn new(quotas: Option<Kept<Quotas>>) -> Arc<Shared> {
        let payment = Payment { quotas, paid: 0 };
        let state = State { payment, ..State::default() };
        Arc::new(Shared {
            state: Mutex::new(state),
            tasks: AtomicUsize::new(0),
            files: AtomicUsize::new(0),
        })
    }

    /// Changes the state, and then notifies the waiters of finished requests.
    fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, finished) = {
            let mut state = self.state.lock();
            let result = change(&mut state);
            let len = state.len();
            state.payment.lower(len);
            let tasks =
                state.owners.iter().filter(|held| matches!(held.owner, Owner::Task(_))).count();
            let files = state.owners.len() - tasks + state.flocks.len();
            self.tasks.store(tasks, Ordering::Release);
            self.files.store(files + state.waiters(), Ordering::Release);
            (result, std::mem::take(&mut state.finished))
        };
        for waiter in finished {
            waiter.tell();
        }
        result
    }

    /// Ends a request with `errno`, unless it has its result.
    pub(super) fn withdraw(&self, waiter: &Arc<Waiter>, errno: Errno) {
        self.with(|state| {
            let queue = match waiter.style {
                Style::Record => &mut state.record_queue,
                Style::Flock => &mut state.flock_queue,
            };
            if let Some(at) = queue.iter().position(|other| Arc::ptr_eq(other, waiter)) {
                queue.remove(at);
                state.finish(waiter.clone(), Err(errno));
            }
        });
    }
}

impl State {
    fn waiters(&self) -> usize {
        self.record_queue.len() + self.flock_queue.len()
    }

    fn check_room_for_waiter(&mut self) -> Result<(), Errno> {
        if self.waiters() < WAITERS_MAX { self.pay_for(1) } else { Err(Errno::NOLCK) }
    }

    /// Returns the number of records, locks of the whole file, and requests.
    fn len(&self) -> usize {
        self.records + self.flocks.len() + self.waiters()
    }

    /// Ensures that `growth` more are charged.
    ///
    /// # Errors
    /// `ENOLCK` if the tree has too many.
    fn pay_for(&mut self, growth: usize) -> Result<(), Errno> {
        let len = self.len() + growth;
        self.payment.raise(len)
    }

    /// Returns the owners whose locks conflict with `request`.
    fn blockers(&self, request: &RecordLock) -> impl Iterator<Item = Owner> {
        let in_the_way = |held: &&OwnerLocks| held.conflict(request).is_some();
        self.owners.iter().filter(in_the_way).map(|held| held.owner)
    }

    fn first_conflict(&self, request: &RecordLock) -> Option<RecordLock> {
        self.owners.iter().find_map(|held| held.conflict(request))
    }

    /// Stores a lock that conflicts with none, and reconsiders waiting requests.
    fn set(&mut self, request: &RecordLock) -> Result<(), Errno> {
        self.store(request, 0)?;
        self.settle_records(request.range);
        Ok(())
    }

    /// Stores a lock without reconsidering requests, with `paid` records charged already: a waiting
    /// request is.
    fn store(&mut self, request: &RecordLock, paid: usize) -> Result<(), Errno> {
        let RecordLock { owner, pid, kind, range } = *request;
        let known = self.owners.iter().position(|held| held.owner == owner);
        let growth = known.map_or(1, |at| self.owners[at].ranges.growth_max(range, Some(kind)));
        if self.records + growth > RECORDS_MAX {
            return Err(Errno::NOLCK);
        }
        self.pay_for(growth.saturating_sub(paid))?;
        let at = known.unwrap_or_else(|| {
            self.owners.push(OwnerLocks { owner, pid, ranges: Ranges::default() });
            self.owners.len() - 1
        });
        self.change(at, range, Some(kind));
        Ok(())
    }

    fn unset(&mut self, owner: Owner, range: LockRange) -> Result<(), Errno> {
        let Some(at) = self.owners.iter().position(|held| held.owner == owner) else {
            return Ok(());
        };
        let growth = self.owners[at].ranges.growth_max(range, None);
        if self.records + growth > RECORDS_MAX {
            return Err(Errno::NOLCK);
        }
        self.pay_for(growth)?;
        self.change(at, range, None);
        self.settle_records(range);
        Ok(())
    }

    fn release(&mut self, owner: Owner) {
        if let Some(at) = self.owners.iter().position(|held| held.owner == owner) {
            self.change(at, LockRange::WHOLE, None);
            self.settle_records(LockRange::WHOLE);
        }
    }

    /// Changes the records of the owner at `at`, and updates the counts.
    fn change(&mut self, at: usize, range: LockRange, kind: Option<LockKind>) {
        let ranges = &mut self.owners[at].ranges;
        let before = ranges.len();
        ranges.set(range, kind);
        self.records = self.records - before + ranges.len();
        if ranges.is_empty() {
            self.owners.remove(at);
        }
    }

    /// Grants the requests that a change within `range` has made possible, in order, and updates
    /// the graph for the rest. A granted lock may replace an exclusive one of its owner and so
    /// allow more requests; each round ends a request, so the loop ends.
    fn settle_records(&mut self, range: LockRange) {
        let mut changed = SmallVec::<[LockRange; 4]>::from_elem(range, 1);
        while let Some(range) = changed.pop() {
            let mut at = 0;
            while let Some(waiter) = self.record_queue.get(at).cloned() {
                let outcome =
                    waiter.lock.range.overlaps(range).then(|| self.reconsider(&waiter)).flatten();
                match outcome {
                    None => at += 1,
                    Some(outcome) => {
                        self.record_queue.remove(at);
                        if outcome.is_ok() {
                            changed.push(waiter.lock.range);
                        }
                        self.finish(waiter, outcome);
                    }
                }
            }
        }
    }

    /// Grants a request if nothing conflicts any more, or ends it if it cannot wait on.
    fn reconsider(&mut self, waiter: &Arc<Waiter>) -> Option<Result<(), Errno>> {
        if self.first_conflict(&waiter.lock).is_none() {
            Some(self.store(&waiter.lock, 1))
        } else {
            waiter.wait_for(self.blockers(&waiter.lock)).err().map(Err)
        }
    }

    fn try_flock(&mut self, file: u64, kind: LockKind) -> Result<bool, Errno> {
        match self.flocks.get(file) {
            Some(held) if held == kind => return Ok(true),
            None => self.pay_for(1)?,
            Some(_) => {
                self.flocks.remove(file);
                // A conversion precedes waiting requests if it is possible now.
                if self.flocks.conflict(file, kind) {
                    self.settle_flocks();
                }
            }
        }
        let free = !self.flocks.conflict(file, kind);
        if free {
            self.flocks.insert(file, kind);
            self.settle_flocks();
        }
        Ok(free)
    }

    fn unflock(&mut self, file: u64) {
        if self.flocks.remove(file) {
            self.settle_flocks();
        }
    }

    /// Grants requests that have become possible, in order, until none is.
    fn settle_flocks(&mut self) {
        let mut released = true;
        while released {
            released = false;
            let mut at = 0;
            while let Some(waiter) = self.flock_queue.get(at).cloned() {
                let Owner::File(file) = waiter.lock.owner else { break };
                if self.flocks.conflict(file, waiter.lock.kind) {
                    at += 1;
                    continue;
                }
                // Another thread may have locked through the same open file in the meantime.
                released |= self.flocks.remove(file);
                self.flocks.insert(file, waiter.lock.kind);
                self.flock_queue.remove(at);
                self.finish(waiter, Ok(()));
            }
        }
    }

    /// Ends the requests that `which` picks with `EBADF`.
    fn abandon(&mut self, which: impl Fn(&Waiter) -> bool) {
        for queue in [&mut self.record_queue, &mut self.flock_queue] {
            queue.retain(|waiter| {
                let stays = !which(waiter);
                if !stays {
                    waiter.finish(Err(Errno::BADF));
                    self.finished.push(waiter.clone());
                }
                stays
            });
        }
    }

    fn finish(&mut self, waiter: Arc<Waiter>, outcome: Result<(), Errno>) {
        waiter.finish(outcome);
        self.finished.push(waiter);
    }
}

impl OwnerLocks {
    /// Returns the first lock of this owner that conflicts with `request`.
    fn conflict(&self, request: &RecordLock) -> Option<RecordLock> {
        if self.owner == request.owner {
            return None;
        }
        let (range, kind) = self.ranges.first_conflict(request.range, request.kind)?;
        Some(self.tell(range, kind))
    }

    fn list(&self) -> impl Iterator<Item = RecordLock> {
        self.ranges.iter().map(|(range, kind)| self.tell(range, kind))
    }

    /// Returns a lock as it is reported to others.
    fn tell(&self, range: LockRange, kind: LockKind) -> RecordLock {
        let pid = match self.owner {
            Owner::Task(_) => self.pid,
            Owner::File(_) => -1,
        };
        RecordLock { owner: self.owner, pid, kind, range }
    }
}

/// The `flock` locks: one exclusive, or any number shared.
#[derive(Default)]
struct Flocks {
    shared: BTreeSet<u64>,
    exclusive: Option<u64>,
}

impl Flocks {
    fn len(&self) -> usize {
        self.shared.len() + usize::from(self.exclusive.is_some())
    }

    fn get(&self, file: u64) -> Option<LockKind> {
        if self.exclusive == Some(file) {
            Some(LockKind::Exclusive)
        } else {
            self.shared.contains(&file).then_some(LockKind::Shared)
        }
    }

    /// Returns whether locks of others conflict with a lock of `file` of kind `kind`.
    fn conflict(&self, file: u64, kind: LockKind) -> bool {
        let others = self.len() - usize::from(self.get(file).is_some());
        others > 0 && (kind == LockKind::Exclusive || self.exclusive.is_some())
    }

    fn insert(&mut self, file: u64, kind: LockKind) {
        match kind {
            LockKind::Shared => {
                self.shared.insert(file);
            }
            LockKind::Exclusive => self.exclusive = Some(file),
        }
    }

    fn remove(&mut self, file: u64) -> bool {
        if self.exclusive == Some(file) {
            self.exclusive = None;
            return true;
        }
        self.shared.remove(&file)
    }
}
