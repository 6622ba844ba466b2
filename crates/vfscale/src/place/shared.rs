//! The state of an open pool that its handles and the volumes in its branches share.
//!
//! # Locks
//!
//! `volumes`, `reaper` and the item of [`Discarder`] are leaves, held for a moment. `freezing` is
//! held during a freeze, and taken first.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use vfscale_block::{CowDevice, Device, Guarded};
use vfscale_diskfs::{CacheBudget, DiskFs};
use vfscale_pool::{Adoption, Branch, Error, Kind, Repaired};
use vfscale_sync::worker::{Priority, WorkItem};

use super::convert;
use crate::diff;
use crate::diff::side::Side;
use crate::error::pool::PoolError;
use crate::place::current::{Current, Switchable};
use crate::place::devices::Opened;

/// The branch that is the volume itself.
pub const MAIN: &str = "main";

/// Size of the budget for the caches of all branches, unless the user has another one.
const BUDGET_BYTES: u64 = 256 << 20;

/// Places that one step of freeing deleted branches frees: calls that open and fork branches wait
/// for a step.
const REAP_PLACES: u64 = 4096;

/// The time from a commit that makes places free to their discard: what is used again at once is
/// not discarded.
const DISCARD_DELAY: Duration = Duration::from_millis(300);

/// How often an adoption is decided on anew because the parent was used meanwhile.
const ADOPTIONS_MAX: usize = 8;

/// How a pool is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    Repair,
}

impl Access {
    pub(crate) fn new(read_only: bool) -> Self {
        if read_only { Self::Read } else { Self::Write }
    }
}

/// An open pool.
pub(crate) struct PoolShared {
    name: String,
    pool: Arc<vfscale_pool::Pool>,
    read_only: bool,
    repaired: Repaired,
    /// The memory for the caches of the branches.
    budget: Arc<CacheBudget>,
    /// The device below, which is released when the last user of the pool is gone.
    device: Opened,
    /// The volumes that are open in branches.
    volumes: Mutex<HashMap<String, Noted>>,
    /// Frees the space of deleted branches.
    reaper: Mutex<Option<WorkItem>>,
    /// Gives the storage of free places back to the file system of the image.
    discarder: Arc<Discarder>,
    /// Whether the work in the background is to end.
    is_ended: Arc<AtomicBool>,
    /// Held during a freeze.
    freezing: Mutex<()>,
}

/// Discards in the background what commits of a pool make free. Commits have it, too, and must not
/// hold the pool.
#[derive(Default)]
struct Discarder {
    item: Mutex<Option<WorkItem>>,
    /// Whether a run is to come that begins after now.
    is_due: AtomicBool,
}

impl Discarder {
    /// Has a run follow soon. Does not wait.
    fn due(&self) {
        if !self.is_due.swap(true, Ordering::AcqRel)
            && let Some(item) = &*lock(&self.item)
        {
            item.queue_at(Instant::now() + DISCARD_DELAY);
        }
    }

    fn run(&self, name: &str, pool: &vfscale_pool::Pool) {
        self.is_due.store(false, Ordering::Release);
        discard_freed(name, pool);
    }
}

/// A volume that is open in a branch.
struct Noted {
    fs: Weak<DiskFs>,
    current: Arc<Current>,
}

/// An open branch, with its pool.
#[derive(Debug)]
pub(crate) struct OpenBranch {
    /// `None` once it is released: whoever has this may be dropped only after a grace period.
    pool: Mutex<Option<Arc<PoolShared>>>,
    branch: Arc<Branch>,
    name: String,
    /// Whether the volume in it is noted.
    is_noted: AtomicBool,
}

impl OpenBranch {
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        self.branch.clone()
    }

    pub(crate) fn branch(&self) -> &Arc<Branch> {
        &self.branch
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device below, if the pool has opened it.
    pub(crate) fn own(&self) -> Option<Arc<dyn Guarded>> {
        self.pool()?.device.own().cloned()
    }

    /// Notes that the branch is open as a volume.
    pub(crate) fn note(&self, fs: &Arc<DiskFs>, current: &Arc<Current>) {
        let Some(pool) = self.pool() else { return };
        if !self.branch.is_read_only() {
            let noted = Noted { fs: Arc::downgrade(fs), current: current.clone() };
            lock(&pool.volumes).insert(self.name.clone(), noted);
            self.is_noted.store(true, Ordering::Release);
        }
    }

    /// Returns the pool, if the branch is not released.
    pub(crate) fn pool(&self) -> Option<Arc<PoolShared>> {
        lock(&self.pool).clone()
    }

    fn forget(&self, pool: &PoolShared) {
        if self.is_noted.swap(false, Ordering::AcqRel) {
            lock(&pool.volumes).remove(&self.name);
        }
    }

    /// Makes everything durable, and closes the branch. The volume is closed.
    ///
    /// # Errors
    /// [`PoolError::Branches`].
    pub(crate) fn close(&self) -> Result<(), PoolError> {
        let Some(pool) = self.pool() else { return Ok(()) };
        self.forget(&pool);
        pool.call(self.branch.close())?;
        pool.discard_freed();
        Ok(())
    }

    /// Makes the space free that the branch has given up.
    ///
    /// # Errors
    /// [`PoolError::Branches`].
    pub(crate) fn checkpoint(&self) -> Result<(), PoolError> {
        self.pool().map_or(Ok(()), |pool| pool.call(self.branch.checkpoint()))
    }

    /// Ends the use of the branch and of its pool, without I/O.
    pub(crate) fn release(&self) {
        let Some(pool) = lock(&self.pool).take() else { return };
        self.forget(&pool);
        self.branch.release();
    }
}

impl PoolShared {
    /// Opens the pool on a device.
    ///
    /// # Errors
    /// [`PoolError`]; the device is released then.
    pub(crate) fn open(
        name: &str,
        device: Opened,
        access: Access,
        budget: Option<Arc<CacheBudget>>,
    ) -> Result<Arc<Self>, PoolError> {
        Self::open_held(name, device.clone(), access, budget).inspect_err(|_| device.release())
    }

    /// Opens the pool on a device, which is not released if that fails.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn open_held(
        name: &str,
        device: Opened,
        access: Access,
        budget: Option<Arc<CacheBudget>>,
    ) -> Result<Arc<Self>, PoolError> {
        let read_only = access == Access::Read;
        let on: Arc<dyn Device> = match read_only {
            // Recovery has to write.
            true => Arc::new(CowDevice::new(device.device())),
            false => device.device(),
        };
        let failed = |error| PoolError::Branches { name: name.into(), error };
        let opened = convert::find(name, &*on).and_then(|first| {
            let pool = match access {
                Access::Repair => {
                    return vfscale_pool::Pool::open_repaired(on, first).map_err(failed);
                }
                Access::Read => vfscale_pool::Pool::open_to_read(on, first),
                Access::Write => vfscale_pool::Pool::open_behind(on, first),
            };
            pool.map(|pool| (pool, Repaired::default())).map_err(failed)
        });
        let (pool, repaired) = opened?;
        let pool = Arc::new(pool);
        let (name, volumes, reaper) = (name.to_owned(), Mutex::default(), Mutex::default());
        let budget = budget.unwrap_or_else(|| CacheBudget::new(BUDGET_BYTES));
        let discarder = Arc::<Discarder>::default();
        let shared = Arc::new(Self {
            name,
            pool,
            read_only,
            repaired,
            budget,
            device,
            volumes,
            reaper,
            discarder,
            is_ended: Arc::default(),
            freezing: Mutex::default(),
        });
        if !read_only {
            shared.begin();
        }
        Ok(shared)
    }

    /// Begins the work in the background. It holds the pool, and never `self`: the last user, who
    /// releases the device, is none of its threads.
    fn begin(&self) {
        let (name, pool, discarder) =
            (self.name.clone(), self.pool.clone(), self.discarder.clone());
        let item = WorkItem::new(Priority::Normal, 1, move || discarder.run(&name, &pool));
        *lock(&self.discarder.item) = Some(item);
        let discarder = self.discarder.clone();
        self.pool.on_freed(move || discarder.due());
        let (pool, is_ended) = (self.pool.clone(), self.is_ended.clone());
        let item = WorkItem::new(Priority::Normal, 1, move || reap_in_background(&pool, &is_ended));
        item.queue();
        *lock(&self.reaper) = Some(item);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the memory for the caches of the branches.
    pub(crate) fn budget(&self) -> &Arc<CacheBudget> {
        &self.budget
    }

    pub(crate) fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the open volumes that can be written, each with the name of its branch.
    pub(super) fn volumes(&self) -> Vec<(String, Arc<DiskFs>)> {
        let volumes = lock(&self.volumes);
        let open = |(name, noted): (&String, &Noted)| Some((name.clone(), noted.fs.upgrade()?));
        volumes.iter().filter_map(open).collect()
    }

    /// Keeps other freezes out.
    pub(super) fn freezing(&self) -> MutexGuard<'_, ()> {
        lock(&self.freezing)
    }

    pub(crate) fn repaired(&self) -> &Repaired {
        &self.repaired
    }

    pub(crate) fn pool(&self) -> &vfscale_pool::Pool {
        &self.pool
    }

    /// Returns the pool for a call that changes it.
    ///
    /// # Errors
    /// [`PoolError::Branches`] if it was opened to be read: the change would be in memory only.
    pub(crate) fn to_change(&self) -> Result<&vfscale_pool::Pool, PoolError> {
        let why = "the image was opened to be read; open it for writing to change its branches";
        match self.read_only {
            true => self.call(Err(Error::Refused { name: self.name.clone(), why })),
            false => Ok(&self.pool),
        }
    }

    /// Converts the error of a call on the pool.
    ///
    /// # Errors
    /// [`PoolError::Branches`].
    pub(crate) fn call<T>(&self, result: Result<T, Error>) -> Result<T, PoolError> {
        result.map_err(|error| PoolError::Branches { name: self.name.clone(), error })
    }

    /// Opens a branch.
    ///
    /// # Errors
    /// [`PoolError::Branches`].
    pub(crate) fn open_branch(self: &Arc<Self>, name: &str) -> Result<OpenBranch, PoolError> {
        let branch = self.call(self.pool.branch(name))?;
        Ok(self.opened_branch(branch, name))
    }

    /// Takes over the device of a branch.
    pub(crate) fn opened_branch(self: &Arc<Self>, branch: Arc<Branch>, name: &str) -> OpenBranch {
        let (pool, name) = (Mutex::new(Some(self.clone())), name.to_owned());
        OpenBranch { pool, branch, name, is_noted: AtomicBool::new(false) }
    }

    /// Returns the user of a branch who can go on with other contents of it.
    pub(crate) fn switchable(&self, name: &str) -> Option<Arc<dyn Switchable>> {
        let current = lock(&self.volumes).get(name).map(|noted| noted.current.clone());
        current.and_then(|current| current.switch())
    }

    /// Rolls a branch back: to its last fork, or to `to`. Returns the name of the branch that has
    /// what it had.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn roll_back(
        &self,
        name: &str,
        to: Option<&str>,
    ) -> Result<Option<String>, PoolError> {
        let pool = self.to_change()?;
        let Some(user) = self.switchable(name) else {
            return self.call(match to {
                Some(to) => pool.rollback_to(name, to),
                None => pool.rollback(name),
            });
        };
        let mut kept = None;
        user.switch(&mut |held| {
            let (name, switched) = self.call(pool.roll_back_held(held, to))?;
            kept = name;
            Ok(switched)
        })?;
        Ok(kept)
    }

    /// Returns whether a branch can only be read; false if there is none.
    pub(crate) fn is_read_only(&self, name: &str) -> bool {
        self.read_only || self.pool.is_read_only(name) == Some(true)
    }

    /// Forks a branch. If it is open, the fork has all that calls have returned for, unless
    /// `as_synced` is set.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn fork(
        &self,
        parent: &str,
        name: &str,
        kind: Kind,
        as_synced: bool,
    ) -> Result<(), PoolError> {
        let pool = self.to_change()?;
        self.of_one_moment(parent, as_synced, |it| pool.fork_with(parent, name, kind, it))
    }

    /// Makes a checkpoint of a branch. If it is open, the checkpoint has all that calls have
    /// returned for. Returns the name.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn checkpoint(&self, branch: &str, text: &str) -> Result<String, PoolError> {
        let pool = self.to_change()?;
        self.of_one_moment(branch, false, |it| pool.checkpoint(branch, text, it))
    }

    /// Has `call` capture a branch. If it is open as a volume, calls that change it wait until
    /// `call` says that it has, unless `as_synced` is set.
    fn of_one_moment<T>(
        &self,
        name: &str,
        as_synced: bool,
        call: impl FnOnce(&mut dyn FnMut()) -> Result<T, Error>,
    ) -> Result<T, PoolError> {
        let mut call = Some(call);
        let mut capture = |captured: &mut dyn FnMut()| {
            call.take().map_or(Err(Error::Closed), |call| call(captured))
        };
        loop {
            let Some(volume) = self.volume(name).filter(|_| !as_synced) else {
                return self.call(capture(&mut || ()));
            };
            match volume.cut(|cut| capture(&mut || cut.thaw())) {
                Ok(captured) => return self.call(captured),
                // A switch has ended it meanwhile.
                Err(_) if self.volume(name).is_some_and(|now| !Arc::ptr_eq(&now, &volume)) => {}
                Err(fault) => {
                    let (name, errno) = (format!("{}:{name}", self.name), fault.errno());
                    return Err(PoolError::Sync { name, errno });
                }
            }
        }
    }

    /// Returns the volume that is open in a branch, if it can be written.
    fn volume(&self, name: &str) -> Option<Arc<DiskFs>> {
        lock(&self.volumes).get(name).and_then(|noted| noted.fs.upgrade())
    }

    /// Opens a branch for a comparison, in a state that does not change and has no name. The branch
    /// may be open, and can be opened meanwhile.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn snapshot(self: &Arc<Self>, name: &str) -> Result<Snapshot, PoolError> {
        self.look(name)?.open(name)
    }

    /// Calls `compare` with two branches, or with the second one and what it had in common with the
    /// first one. If they share all blocks, not even their logs are read.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn compared<T: Default>(
        self: &Arc<Self>,
        (a, b): (&str, &str),
        with_base: bool,
        compare: impl FnOnce(&Side, &Side) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let one = self.look(a)?;
        if a == b {
            return Ok(T::default());
        }
        let other = self.look(b)?;
        let one = if with_base { self.look_at_common(a, b)? } else { one };
        let differing = one.branch.differing(&other.branch);
        if matches!(differing, Ok(Some(blocks)) if blocks.is_empty()) {
            return Ok(T::default());
        }
        let (one, other) = (one.open(a)?, other.open(b)?);
        compare(one.side(), other.side())
    }

    /// Freezes what a branch has now, without a name for it.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn look(self: &Arc<Self>, name: &str) -> Result<Looked, PoolError> {
        let is_frozen = self.is_read_only(name);
        let branch = self.of_one_moment(name, is_frozen, |it| self.pool.snapshot(name, it))?;
        Ok(self.looked(branch))
    }

    /// Freezes what a branch has now that the caller has open, and to which nobody writes.
    ///
    /// # Errors
    /// [`PoolError::Branches`].
    pub(crate) fn look_held(self: &Arc<Self>, name: &str) -> Result<Looked, PoolError> {
        Ok(self.looked(self.call(self.pool.snapshot(name, || ()))?))
    }

    /// Takes over a state that does not change.
    pub(crate) fn looked(self: &Arc<Self>, branch: Arc<Branch>) -> Looked {
        Looked { pool: self.clone(), branch }
    }

    /// Opens the last state that two branches had in common.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn common(self: &Arc<Self>, a: &str, b: &str) -> Result<Snapshot, PoolError> {
        self.look_at_common(a, b)?.open(a)
    }

    fn look_at_common(self: &Arc<Self>, a: &str, b: &str) -> Result<Looked, PoolError> {
        Ok(self.looked(self.call(self.pool.common(a, b))?))
    }

    /// Gives a branch the contents of its child, if it has not changed.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn adopt(&self, parent: &str, child: &str) -> Result<(), PoolError> {
        self.adopt_with(parent, child, None, || ())
    }

    /// Adopts a child that has all that a branch has in the state `merged`, and notes that.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn adopt_merged(
        &self,
        parent: &str,
        child: &str,
        (merged, name): (&Snapshot, &str),
    ) -> Result<(), PoolError> {
        self.adopt_with(parent, child, Some((merged.side.branch(), name)), || ())
    }

    /// Gives a branch, which was looked at in the state `decided`, the contents of another one.
    /// Returns the branch that has what it had.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) fn rebase(
        &self,
        name: &str,
        decided: &Snapshot,
        made: &str,
    ) -> Result<Option<String>, PoolError> {
        let pool = self.to_change()?;
        self.call(pool.rebase(name, decided.side.branch(), made))
    }

    /// Adopts as [`adopt`](Self::adopt) does, and calls `decided` between decision and act.
    fn adopt_with(
        &self,
        parent: &str,
        child: &str,
        merged: Option<(&Branch, &str)>,
        mut decided: impl FnMut(),
    ) -> Result<(), PoolError> {
        if let Some(user) = self.switchable(parent) {
            return self.adopt_held(&*user, child, merged);
        }
        let (pool, mut tries) = (self.to_change()?, 0);
        loop {
            let adoption = self.call(pool.adoption(parent, child))?;
            self.check_adoption(&adoption, parent)?;
            decided();
            let adopted = match merged {
                Some(merged) => pool.adopt_merged(&adoption, merged),
                None => pool.adopt(&adoption),
            };
            match adopted {
                // The branch was used meanwhile.
                Err(Error::Changed(_)) if tries < ADOPTIONS_MAX => tries += 1,
                adopted => return self.call(adopted),
            }
        }
    }

    /// Has the user of the parent go on with what that adopts. Decides while nobody can change
    /// the parent.
    fn adopt_held(
        &self,
        user: &dyn Switchable,
        child: &str,
        merged: Option<(&Branch, &str)>,
    ) -> Result<(), PoolError> {
        let pool = self.to_change()?;
        user.switch(&mut |held| {
            let adoption = self.call(pool.adoption_held(held, child))?;
            self.check_adoption(&adoption, adoption.parent())?;
            self.call(pool.adopt_held(held, &adoption, merged))
        })
    }

    /// Compares the parent with what it had in common with its child.
    ///
    /// # Errors
    /// [`PoolError::HasChanged`], and errors of reading.
    fn check_adoption(&self, adoption: &Adoption, parent: &str) -> Result<(), PoolError> {
        if adoption.is_unchanged() {
            return Ok(());
        }
        let label = format!("{}:{parent}", self.name);
        let base = Side::open(label.clone(), adoption.base().clone())?;
        let now = Side::open(label.clone(), adoption.now().clone())?;
        match diff::diff(&base, &now)?.into_iter().next() {
            Some(first) => Err(PoolError::HasChanged { name: label, path: first.path }),
            None => Ok(()),
        }
    }

    /// Frees the space of deleted branches.
    ///
    /// # Errors
    /// [`PoolError::Branches`].
    pub(crate) fn reap(&self) -> Result<(), PoolError> {
        let mut told = Ok(());
        loop {
            match self.pool.reap(REAP_PLACES) {
                Ok(reaped) if reaped.more => {}
                Ok(_) => return told,
                Err(error) => {
                    let is_end = ends_reaping(&error);
                    told = told.and(self.call(Err(error)));
                    if is_end {
                        return told;
                    }
                }
            }
        }
    }

    /// Frees the space of deleted branches in the background.
    pub(crate) fn reap_soon(&self) {
        if let Some(item) = &*lock(&self.reaper) {
            item.queue();
        }
    }

    fn discard_freed(&self) {
        discard_freed(&self.name, &self.pool);
    }

    /// Makes everything durable, and gives back what deleted branches had.
    ///
    /// # Errors
    /// [`PoolError::Branches`].
    pub(crate) fn close(&self) -> Result<(), PoolError> {
        self.stop();
        if !self.read_only {
            // A branch that can't be reaped is one that nobody wants.
            _ = self.reap();
        }
        self.call(self.pool.close_branches())?;
        self.discard_freed();
        Ok(())
    }

    /// Ends the work in the background, and waits for it.
    fn stop(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        let items = [lock(&self.reaper).take(), lock(&self.discarder.item).take()];
        drop(items);
    }
}

impl Drop for PoolShared {
    fn drop(&mut self) {
        self.stop();
        self.device.release();
    }
}

impl fmt::Debug for PoolShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolShared").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns whether an error is one of the pool, not of a deleted branch.
fn ends_reaping(error: &Error) -> bool {
    matches!(error, Error::Failed | Error::Full)
}

/// Discards what has become free. An error is reported and has no further effect.
fn discard_freed(name: &str, pool: &vfscale_pool::Pool) {
    if let Err(error) = pool.discard_freed() {
        tracing::warn!("{name}: free space is not given back: {error}");
    }
}

/// Frees the space of deleted branches, until `is_ended`.
fn reap_in_background(pool: &vfscale_pool::Pool, is_ended: &AtomicBool) {
    while !is_ended.load(Ordering::Relaxed) {
        match pool.reap(REAP_PLACES) {
            Ok(reaped) if reaped.more => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!("space of deleted branches is not freed: {error}");
                // The next step passes over a node that can't be read.
                if ends_reaping(&error) {
                    return;
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A branch that is compared.
pub(crate) struct Snapshot {
    side: Side,
    _branch: Looked,
}

impl Snapshot {
    pub(crate) fn side(&self) -> &Side {
        &self.side
    }
}

/// A frozen state that is looked at, and its device. It holds its pool open.
#[derive(Debug)]
pub(crate) struct Looked {
    pool: Arc<PoolShared>,
    branch: Arc<Branch>,
}

impl Looked {
    /// Opens the volume in it.
    pub(crate) fn open(self, name: &str) -> Result<Snapshot, PoolError> {
        self.open_by(name, Side::open)
    }

    /// Opens the volume in it, to walk over its whole tree.
    pub(crate) fn open_to_walk(self, name: &str) -> Result<Snapshot, PoolError> {
        self.open_by(name, Side::open_to_walk)
    }

    fn open_by(
        self,
        name: &str,
        open: fn(String, Arc<Branch>) -> Result<Side, PoolError>,
    ) -> Result<Snapshot, PoolError> {
        let side = open(format!("{}:{name}", self.pool.name), self.branch.clone())?;
        Ok(Snapshot { side, _branch: self })
    }
}

impl Deref for Looked {
    type Target = Branch;

    fn deref(&self) -> &Branch {
        &self.branch
    }
}

impl Drop for Looked {
    fn drop(&mut self) {
        // Nothing is written, so nothing fails.
        let _ = self.branch.close();
        self.pool.reap_soon();
    }
}

/// The device of a branch that holds its pool open.
#[derive(Debug)]
pub(crate) struct BranchDevice(OpenBranch);

impl BranchDevice {
    pub(crate) fn new(open: OpenBranch) -> Self {
        Self(open)
    }
}

impl Deref for BranchDevice {
    type Target = Branch;

    fn deref(&self) -> &Branch {
        &self.0.branch
    }
}

#[cfg(test)]
mod tests;
