//! Lookups that a backed driver answers, and work that a walk defers.
//!
//! The children table of a directory holds all of its names only for a driver without directories.
//! A backed driver ([`DirOps`](crate::objects::driver::DirOps)) is asked for names that are not in
//! the table. It may have to wait for a disk, so a walk never asks it: the walk stops and returns
//! the name ([`Deferred::Lookup`]). The call then releases everything, asks, and starts again
//! ([`run_lookups`]). The answer enters the table, as a negative dentry if there is no such name,
//! and the next walk finds it under RCU. Linux does the same when it leaves rcu-walk
//! (`lookup_slow`).
//!
//! One thread at a time asks for a name, under the lock of the name
//! ([`crate::objects::in_lookup`]); when others get that lock, the answer is in the table. A name
//! is never in a table twice.
//!
//! If the driver finds a cached directory under another name, its dentry moves there with
//! everything below it, as in a rename.
//!
//! If names of a driver appear and disappear by themselves, each walk asks whether the answer still
//! holds ([`Found::check`](crate::objects::driver::Found)). If not, the walk defers a lookup, too,
//! and the old dentry, with everything below it, leaves the dcache when the new answer is entered.
//! Open files of it remain, as those of a removed file.

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::table::{LockReq, RcuTable};

use crate::base::error::Stop;
use crate::file::open_file::File;
use crate::mount::d_path::{is_below, name_and_parent};
use crate::namei::dir_ops::BackedName;
use crate::objects::dcache::children::InsertMoved;
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::dcache::invalidate::detach;
use crate::objects::dcache::name::Name;
use crate::objects::driver::Found;
use crate::objects::super_block::SuperBlock;
use crate::objects::vfsmount::{Path, Writing};

/// A name that a driver is to be asked for.
pub(crate) struct DriverLookup {
    dir: Path,
    name: Box<[u8]>,
}

/// Work that a walk leaves for later: what the driver is to do when the call has let go of
/// everything.
pub(crate) enum Deferred {
    /// Say what has this name.
    Lookup(DriverLookup),
    /// Make a change of which all has been checked.
    Change(DriverChange),
}

/// A change that a driver is to make, with the right to write to the mount.
pub(crate) enum DriverChange {
    /// Change this name.
    Name(BackedName, Writing),
    /// Rename the first to the second.
    Names(BackedName, BackedName, Writing),
    /// Change the inode of this place, or make a file without a name there.
    Place(Path, Writing),
    /// Cut the file that has been opened.
    Opened(File, Writing),
}

/// Why a call that walks has stopped. In a box, so that results stay small; it is seldom made.
pub(crate) type WalkStop = Stop<Box<Deferred>>;

impl From<DriverChange> for WalkStop {
    #[cold]
    fn from(change: DriverChange) -> WalkStop {
        Stop::First(Box::new(Deferred::Change(change)))
    }
}

/// Runs a call that walks and changes nothing, and as often as it comes to a name that only the
/// driver knows of, asks the driver for that name and runs the call again. Between the runs nothing
/// is held, not even an RCU section, so that the driver may take its time; `call` leaves nothing
/// behind when it fails.
#[inline(always)]
pub(crate) fn run_lookups<T>(mut call: impl FnMut() -> Result<T, WalkStop>) -> Result<T, Errno> {
    match call() {
        // Not as a whole: see `Child` in `namei`.
        Ok(value) => Ok(value),
        Err(Stop::Errno(errno)) => Err(errno),
        Err(Stop::First(deferred)) => {
            run_deferred(*deferred, call, |_| unreachable!("a call that changes nothing"))
        }
    }
}

/// Asks the driver for the name that has stopped a call which changes nothing, so that it can run
/// again: what [`run_lookups`] does between two runs. The caller holds nothing.
///
/// # Errors
/// The driver's; the error that has stopped the call.
#[cold]
#[inline(never)]
pub(crate) fn run_lookup(stop: WalkStop) -> Result<(), Errno> {
    match stop {
        Stop::Errno(errno) => Err(errno),
        Stop::First(deferred) => match *deferred {
            Deferred::Lookup(missing) => missing.look_up(),
            Deferred::Change(_) => unreachable!("a call that changes nothing"),
        },
    }
}

/// Runs a call as [`run_lookups`] does, which may also defer a change to a backed driver. Then
/// `change` makes it, with nothing held; `None` if the result of the walk is outdated, and the call
/// has to run again.
#[inline(always)]
pub(crate) fn run_changes<T>(
    mut call: impl FnMut() -> Result<T, WalkStop>,
    change: impl FnMut(DriverChange) -> Result<Option<T>, Errno>,
) -> Result<T, Errno> {
    match call() {
        Ok(value) => Ok(value),
        Err(Stop::Errno(errno)) => Err(errno),
        Err(Stop::First(deferred)) => run_deferred(*deferred, call, change),
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
            Err(Stop::First(next)) => deferred = *next,
        }
    }
}

impl DriverLookup {
    pub(crate) fn new(dir: Path, name: &[u8]) -> DriverLookup {
        DriverLookup { dir, name: name.into() }
    }

    /// Asks, and puts the answer into the directory's table. Blocks as the driver does; the caller
    /// holds no lock and no RCU section.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn look_up(&self) -> Result<(), Errno> {
        let dir = self.dir.dentry();
        let sb = dir.sb();
        let Some(directories) = sb.fs().dir_ops() else { return Ok(()) };
        let name = Name::new(&self.name);
        loop {
            let turn = sb.lock_name(dir, &name);
            if is_answered(dir, &name) {
                return Ok(());
            }
            let found = directories.lookup(dir.inode(), &self.name)?;
            match enter(dir, &name, found)? {
                Entered::Listed(listed) => {
                    drop(turn);
                    sb.shrink_sometimes(listed);
                    return Ok(());
                }
                Entered::Busy(busy) => {
                    // The driver's answer may be outdated when that is over.
                    drop(turn);
                    busy.wait(sb);
                }
            }
        }
    }
}

/// The result of entering a driver's answer.
enum Entered {
    /// The answer is in the table. Holds the length of the LRU list of the new dentry.
    Listed(usize),
    /// The directory that was found is just being moved, looked up or removed where the dcache has
    /// it.
    Busy(Busy),
}

/// A lock that another thread holds.
enum Busy {
    /// Moves of directories.
    Moves,
    /// A name in a directory.
    Name(DentryRef, Box<[u8]>),
}

impl Busy {
    /// Sleeps until nobody has it. The caller holds nothing.
    fn wait(&self, sb: &SuperBlock) {
        match self {
            Busy::Moves => drop(sb.lock_moves()),
            Busy::Name(dir, name) => drop(sb.lock_name(dir, &Name::new(name))),
        }
    }
}

/// Returns whether another thread has entered an answer in the meantime.
fn is_answered(dir: &Dentry, name: &Name<'_>) -> bool {
    let guard = rcu::pin();
    dir.find(name, &guard).is_some_and(|(child, _)| child.is_current(dir.inode(), name))
}

/// Puts what the driver has said into the table of `dir`, in place of what it said before. The
/// caller has locked the name.
///
/// # Errors
/// `ELOOP` where the driver has found a directory that the dcache has above `dir`.
fn enter(dir: &Dentry, name: &Name<'_>, found: Found) -> Result<Entered, Errno> {
    let guard = rcu::pin();
    if let Some((old, _)) = dir.find(name, &guard)
        && !detach(old, &guard)
    {
        // A caller that wants to unmount it has to reach it. The dentry is dropped when unused.
        old.set_checked(false);
        return Ok(Entered::Listed(0));
    }
    if let Some(inode) = found.inode.as_ref().filter(|inode| inode.is_dir())
        && let Some(alias) = Dentry::of_dir(inode, &guard)
    {
        return adopt(alias, dir, name, found.check, &guard);
    }
    let _dcache = dir.sb().lock_dcache();
    let mut bucket = dir.children().lock(name.hash(), &guard);
    if dir.is_unhashed() {
        // Gone, so that nothing may come into its table any more. Walks find nothing there.
        return Ok(Entered::Listed(0));
    }
    Ok(Entered::Listed(Dentry::insert_cached(&mut bucket, dir, name, found)))
}

/// Moves the dentry of a directory to where the driver has found it (the kernel's
/// `d_materialise_unique`), with all that is below, what is mounted there, and whoever uses it: for
/// a directory has one dentry. The caller has locked the new name, which is in no table.
///
/// # Errors
/// `ELOOP` if the new name is below it.
fn adopt(
    alias: &Dentry,
    dir: &Dentry,
    name: &Name<'_>,
    check: bool,
    guard: &Guard,
) -> Result<Entered, Errno> {
    let sb = dir.sb();
    // Both are locked before a name is otherwise. With one locked they are tried, and not waited
    // for.
    let Some(_moves) = sb.try_lock_moves() else { return Ok(Entered::Busy(Busy::Moves)) };
    if is_below(dir, alias, guard) {
        return Err(Errno::LOOP);
    }
    let (old_name, parent, _) = name_and_parent(alias, guard);
    let Some(_turn) = sb.try_lock_name(parent, &Name::new(old_name)) else {
        let busy = parent.try_ref(guard).map(|parent| Busy::Name(parent, old_name.into()));
        return Ok(Entered::Busy(busy.unwrap_or(Busy::Moves)));
    };
    let _dcache = sb.lock_dcache();
    let hash = alias.hash();
    let reqs = [(parent, hash), (dir, name.hash())];
    let reqs = reqs.map(|(dir, hash)| LockReq::One(dir.children(), hash));
    let mut locks = RcuTable::lock_set(reqs, guard);
    let is_there = locks.find(0, hash, |child| std::ptr::eq(child, alias)).is_some();
    if !is_there || dir.is_unhashed() {
        // The dcache has lost one of the two meanwhile. It is asked for again, if it is still
        // wanted.
        return Ok(Entered::Listed(0));
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
    Ok(Entered::Listed(0))
}
