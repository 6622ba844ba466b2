//! The state of the locks of one file: records, locks of the whole file, and the queues of requests
//! that wait for them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rustix::io::Errno;
use smallvec::SmallVec;
use vfscale_sync::atomic::{AtomicUsize, Ordering};
use vfscale_sync::lock::Mutex;
use vfscale_sync::percpu_arc::Kept;

use super::classes::FileLockState;
use super::ranges::Ranges;
use super::waiter::{Style, Waiter};
use super::{LockKind, LockRange, Owner, RECORDS_MAX, RecordLock, WAITERS_MAX};
use crate::base::limits::Quotas;

/// The part of [`FileLocks`](super::FileLocks) that waiting requests share with the file.
pub(super) struct Shared {
    pub(super) state: Mutex<State, FileLockState>,
    /// Number of tasks that hold record locks. Like `files`, it is written under the lock of the
    /// state and read without, so closing a file without locks takes no lock. A task or file sees
    /// its own locks.
    pub(super) tasks: AtomicUsize,
    /// Number of open files that hold record locks or `flock` locks, plus the number of waiting
    /// requests.
    pub(super) files: AtomicUsize,
}

/// Locks and waiting requests.
#[derive(Default)]
pub(super) struct State {
    /// In the order of their first locks, which is the order of `F_GETLK`.
    pub(super) owners: Vec<OwnerLocks>,
    /// Number of records of all owners.
    records: usize,
    flocks: Flocks,
    pub(super) record_queue: VecDeque<Arc<Waiter>>,
    pub(super) flock_queue: VecDeque<Arc<Waiter>>,
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

/// The record locks of one owner.
pub(super) struct OwnerLocks {
    pub(super) owner: Owner,
    pid: i32,
    ranges: Ranges,
}

impl Shared {
    pub(super) fn new(quotas: Option<Kept<Quotas>>) -> Arc<Shared> {
        let payment = Payment { quotas, paid: 0 };
        let state = State { payment, ..State::default() };
        Arc::new(Shared {
            state: Mutex::new(state),
            tasks: AtomicUsize::new(0),
            files: AtomicUsize::new(0),
        })
    }

    /// Changes the state, and then notifies the waiters of finished requests.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
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

    pub(super) fn check_room_for_waiter(&mut self) -> Result<(), Errno> {
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
    pub(super) fn blockers(&self, request: &RecordLock) -> impl Iterator<Item = Owner> {
        let in_the_way = |held: &&OwnerLocks| held.conflict(request).is_some();
        self.owners.iter().filter(in_the_way).map(|held| held.owner)
    }

    pub(super) fn first_conflict(&self, request: &RecordLock) -> Option<RecordLock> {
        self.owners.iter().find_map(|held| held.conflict(request))
    }

    /// Stores a lock that conflicts with none, and reconsiders waiting requests.
    pub(super) fn set(&mut self, request: &RecordLock) -> Result<(), Errno> {
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

    pub(super) fn unset(&mut self, owner: Owner, range: LockRange) -> Result<(), Errno> {
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

    pub(super) fn release(&mut self, owner: Owner) {
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

    /// Grants a request if no lock conflicts any more, or ends it if waiting on would be a
    /// deadlock.
    fn reconsider(&mut self, waiter: &Arc<Waiter>) -> Option<Result<(), Errno>> {
        if self.first_conflict(&waiter.lock).is_none() {
            Some(self.store(&waiter.lock, 1))
        } else {
            waiter.wait_for(self.blockers(&waiter.lock)).err().map(Err)
        }
    }

    pub(super) fn try_flock(&mut self, file: u64, kind: LockKind) -> Result<bool, Errno> {
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

    pub(super) fn unflock(&mut self, file: u64) {
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
                // Another thread may have locked through the same open file since the request was
                // queued.
                released |= self.flocks.remove(file);
                self.flocks.insert(file, waiter.lock.kind);
                self.flock_queue.remove(at);
                self.finish(waiter, Ok(()));
            }
        }
    }

    /// Ends the requests that `which` picks with `EBADF`.
    pub(super) fn abandon(&mut self, which: impl Fn(&Waiter) -> bool) {
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

    pub(super) fn list(&self) -> impl Iterator<Item = RecordLock> {
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
