//! Lookups that a backed driver answers, and work that a walk defers.
//!
//! The children table of a directory holds all of its names only for a driver without directories.
//! A backed driver ([`DirOps`](crate::objects::driver::DirOps)) looks up the names that are not in
//! the table. It may wait for a disk, so a walk never calls it: the walk stops and returns the name
//! ([`Deferred::Lookup`]). The call then releases everything, calls the driver, and starts again
//! ([`run_lookups`]). The answer enters the table, as a negative dentry if the name does not exist,
//! and the next walk finds it under RCU. This is how Linux leaves rcu-walk (`lookup_slow`).
//!
//! One thread at a time has the driver look up a name, under the lock of the name
//! ([`crate::objects::in_lookup`]); when other threads acquire that lock, the answer is in the
//! table. A name is never in a table twice.
//!
//! If the driver finds a cached directory under another name, its dentry moves there with
//! everything below it, as in a rename.
//!
//! If names of a driver appear and disappear by themselves, each walk checks whether the answer is
//! still valid ([`Found::check`](crate::objects::driver::Found)). If not, the walk defers a lookup,
//! too, and the old dentry, with everything below it, leaves the dcache when the new answer is
//! entered. Open files of it remain usable, like open files that were unlinked.

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::table::LockReq;

use crate::base::error::Stop;
use crate::file::open_file::File;
use crate::namei::dir_ops::BackedName;
use crate::objects::dcache::children::InsertMoved;
use crate::objects::dcache::climb::{is_below, name_and_parent};
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::dcache::invalidate::detach;
use crate::objects::dcache::name::{KeptName, Name};
use crate::objects::driver::Found;
use crate::objects::super_block::SuperBlock;
use crate::objects::vfsmount::{Path, Writing};

/// A name that the driver must look up.
pub(crate) struct DriverLookup {
    dir: Path,
    name: KeptName,
}

/// Work for the driver that a walk defers until the call has released everything.
pub(crate) enum Deferred {
    /// The lookup of a name.
    Lookup(DriverLookup),
    /// A change that has passed all checks of the walk.
    Change(DriverChange),
}

/// A change for the driver to make, with write access to the mount.
pub(crate) enum DriverChange {
    /// The creation or removal of a name, or a new link to a file.
    Name(BackedName, Writing),
    /// A rename of the first name to the second.
    Names(BackedName, BackedName, Writing),
    /// A change of the inode at this path, or the creation of a file without a name in it.
    Place(Path, Writing),
    /// The truncation of a file that was just opened.
    Opened(File, Writing),
}

/// The reason why a call that walks stopped. Boxed, because it is rare and results should stay
/// small.
pub(crate) type WalkStop = Stop<Box<Deferred>>;

impl From<DriverChange> for WalkStop {
    #[cold]
    fn from(change: DriverChange) -> WalkStop {
        Stop::Deferred(Box::new(Deferred::Change(change)))
    }
}

/// Runs a call that walks and changes nothing. Whenever it reaches a name that only the driver has,
/// looks that name up and runs the call again. Between the runs this thread holds nothing, not even
/// an RCU section, because the driver may block. A `call` that fails leaves no side effect.
#[inline(always)]
pub(crate) fn run_lookups<T>(mut call: impl FnMut() -> Result<T, WalkStop>) -> Result<T, Errno> {
    match call() {
        // Not copied as a whole: see `Child` in `namei`.
        Ok(value) => Ok(value),
        Err(Stop::Errno(errno)) => Err(errno),
        Err(Stop::Deferred(deferred)) => {
            run_deferred(*deferred, call, |_| unreachable!("a call that changes nothing"))
        }
    }
}

/// Looks up the name that stopped a call which changes nothing, as [`run_lookups`] does between two
/// runs. Then the call can run again. The caller holds nothing.
///
/// # Errors
/// The driver's errors; the error that stopped the call.
#[cold]
#[inline(never)]
pub(crate) fn run_lookup(stop: WalkStop) -> Result<(), Errno> {
    match stop {
        Stop::Errno(errno) => Err(errno),
        Stop::Deferred(deferred) => match *deferred {
            Deferred::Lookup(missing) => missing.look_up(),
            Deferred::Change(_) => unreachable!("a call that changes nothing"),
        },
    }
}

/// Runs a call as [`run_lookups`] does, which may also defer a change to a backed driver. Then
/// `change` makes it, with nothing held; `change` returns `None` if the result of the walk is
/// outdated and the call must run again.
#[inline(always)]
pub(crate) fn run_changes<T>(
    mut call: impl FnMut() -> Result<T, WalkStop>,
    change: impl FnMut(DriverChange) -> Result<Option<T>, Errno>,
) -> Result<T, Errno> {
    match call() {
        Ok(value) => Ok(value),
        Err(Stop::Errno(errno)) => Err(errno),
        Err(Stop::Deferred(deferred)) => run_deferred(*deferred, call, change),
    }
}

/// Runs deferred work and repeats the call; a separate function, so calls that find everything do
/// not pay for the loop.
#[cold]
#[inline(never)]
fn run_deferred<T>(
    mut deferred: Deferred,
    mut call: impl FnMut() -> Result<T, WalkStop>,
    mut change: impl FnMut(DriverChange) -> Result<Option<T>, Errno>,
) -> Result<T, Errno> {
    loop {
        match deferred {
            Deferred::Lookup(missing) => missing.look_up()?,
            Deferred::Change(found) => {
                if let Some(done) = change(found)? {
                    return Ok(done);
                }
            }
        }
        match call() {
            Ok(value) => return Ok(value),
            Err(Stop::Errno(errno)) => return Err(errno),
            Err(Stop::Deferred(next)) => deferred = *next,
        }
    }
}

impl DriverLookup {
    pub(crate) fn new(dir: Path, name: &Name<'_>) -> DriverLookup {
        DriverLookup { dir, name: KeptName::new(name) }
    }

    /// Calls [`look_up`] for the name.
    fn look_up(&self) -> Result<(), Errno> {
        look_up(self.dir.dentry(), &self.name.name())
    }

    /// Returns the name, which is to be made instead of looked up.
    pub(crate) fn into_unknown(self) -> BackedName {
        BackedName::unknown(self.dir, self.name)
    }
}

/// Has the driver look up `name`, and enters the answer into the table of `dir`. Blocks as the
/// driver does; the caller holds no lock and no RCU section.
///
/// # Errors
/// The driver's.
pub(crate) fn look_up(dir: &Dentry, name: &Name<'_>) -> Result<(), Errno> {
    let sb = dir.sb();
    let Some(directories) = sb.dir_ops() else { return Ok(()) };
    loop {
        let turn = sb.lock_name(dir, name);
        if is_answered(dir, name) {
            return Ok(());
        }
        let found = directories.lookup(dir.inode(), name.bytes())?;
        match enter(dir, name, found)? {
            Entered::Listed { reported } => {
                drop(turn);
                sb.shrink_sometimes(reported);
                return Ok(());
            }
            Entered::Busy(busy) => {
                // By the end of the wait, the driver's answer may be outdated.
                drop(turn);
                busy.wait(sb);
            }
        }
    }
}

/// The result of entering a driver's answer.
enum Entered {
    /// The answer is in the table. Tells whether the LRU list of the new dentry has reported that
    /// it has grown.
    Listed { reported: bool },
    /// Another thread is moving, looking up or removing the found directory under its name in the
    /// dcache.
    Busy(Busy),
}

/// A lock that another thread holds.
enum Busy {
    /// The lock of all moves of directories.
    Moves,
    /// The lock of a name in a directory.
    Name(DentryRef, Box<[u8]>),
}

impl Busy {
    /// Sleeps until the lock is free. The caller holds nothing.
    fn wait(&self, sb: &SuperBlock) {
        match self {
            Busy::Moves => drop(sb.lock_moves()),
            Busy::Name(dir, name) => drop(sb.lock_name(dir, &Name::new(name))),
        }
    }
}

/// Returns whether another thread already entered an answer.
fn is_answered(dir: &Dentry, name: &Name<'_>) -> bool {
    let guard = rcu::pin();
    dir.find(name, &guard).is_some_and(|(child, _)| child.is_current(dir.inode(), name))
}

/// Enters the driver's answer into the table of `dir`, where it replaces an earlier answer.
///
/// # Errors
/// `ELOOP` if the driver found a directory that the dcache has above `dir`.
fn enter(dir: &Dentry, name: &Name<'_>, found: Found) -> Result<Entered, Errno> {
    dir.sb().assert_locked(dir, name);
    let guard = rcu::pin();
    if let Some((old, _)) = dir.find(name, &guard)
        && !detach(old, &guard)
    {
        // A caller that wants to unmount it must still reach it. The dentry is dropped when unused.
        old.set_checked(false);
        return Ok(Entered::Listed { reported: false });
    }
    if let Some(inode) = found.inode.as_ref().filter(|inode| inode.is_dir())
        && let Some(alias) = Dentry::of_dir(inode, &guard)
    {
        return adopt(alias, dir, name, found.check, &guard);
    }
    let mut bucket = dir.lock_name(name.hash(), &guard);
    if dir.is_unhashed() {
        // The directory is unhashed, so its table must stay empty. Walks find no name in it.
        return Ok(Entered::Listed { reported: false });
    }
    Ok(Entered::Listed { reported: Dentry::insert_cached(&mut bucket, dir, name, found) })
}

/// Moves the dentry of a directory to the name under which the driver found it (the kernel's
/// `d_materialise_unique`). A directory has one dentry, so everything below it, mounts on it, and
/// all references to it move along. The new name is in no table.
///
/// # Errors
/// `ELOOP` if the new name is below the directory.
fn adopt(
    alias: &Dentry,
    dir: &Dentry,
    name: &Name<'_>,
    check: bool,
    guard: &Guard,
) -> Result<Entered, Errno> {
    let sb = dir.sb();
    sb.assert_locked(dir, name);
    // Other threads lock the moves before any name, and two names in the order of their keys. This
    // thread already holds a name, so it only tries both locks and does not wait for them.
    let Some(_moves) = sb.try_lock_moves() else { return Ok(Entered::Busy(Busy::Moves)) };
    if is_below(dir, alias, guard) {
        return Err(Errno::LOOP);
    }
    let (old_name, parent, _) = name_and_parent(alias, guard);
    let Some(_turn) = sb.try_lock_name(parent, &Name::new(old_name)) else {
        let busy = parent.try_ref(guard).map(|parent| Busy::Name(parent, old_name.into()));
        return Ok(Entered::Busy(busy.unwrap_or(Busy::Moves)));
    };
    let hash = alias.hash();
    let reqs = [(parent, hash), (dir, name.hash())];
    let reqs = reqs.map(|(dir, hash)| LockReq::One(dir.children(), hash));
    let mut locks = dir.lock_names(reqs, guard);
    let is_there = locks.find(0, hash, |child| std::ptr::eq(child, alias)).is_some();
    if !is_there || dir.is_unhashed() {
        // The dcache lost one of the two before the locks were taken. A walk that still needs the
        // name looks it up again.
        return Ok(Entered::Listed { reported: false });
    }
    let write = || alias.seq().write();
    let (_names, section) =
        sb.rename_lock().map_or_else(|| (None, write()), |names| names.write_part(write));
    locks.announce([0, 1]);
    locks.remove(0, alias);
    let hash = locks.free_hash(1, name.hash());
    alias.set_moved(&section, dir, Some(name.bytes()), hash, guard);
    alias.set_checked(check);
    locks.insert_moved(1, alias);
    locks.settle();
    Ok(Entered::Listed { reported: false })
}
