//! Changes of directories that a backed driver stores.
//!
//! For a driver without directories, a call changes names under the locks of their buckets, in the
//! middle of its walk. A backed driver ([`DirOps`]) may wait for a disk, so a change takes two
//! steps:
//!
//! 1. The walk makes all checks, under RCU and without a lock. Then it stops and returns the change
//!    ([`DriverChange`](crate::namei::lookup::DriverChange)): references to the directory, the
//!    name, the dentry that it found under that name ([`BackedName`]), and write access to the
//!    mount.
//!    For a name that is to be made there may be none: a driver that finds existing names itself
//!    ([`DirOps::create_finds_names`]) is not asked for it before.
//! 2. The call, which now holds nothing else, locks the name ([`crate::objects::in_lookup`]), so no
//!    other thread looks it up or changes it until the change is complete. It checks that the name
//!    still has that dentry, or none; if not, the call starts again from the walk. Then it calls
//!    the driver, and enters the result into the dcache, under the locks of the buckets. If the
//!    driver can't make a name that was not looked up, it looks it up now. If the name exists, the
//!    call starts again: that precedes all other errors.
//!
//! # Invariants
//!
//! * A dentry in the table of such a directory agrees with the driver, unless its name is locked.
//!   So the result of step 1 holds in step 2, once the name is locked and still has that dentry:
//!   the reference to it prevents the shrinker from dropping it. Rights, modes and types may have
//!   changed between the steps, as between any check and the change that follows it.
//! * A walk between the steps finds the old dentry, the new one, or none. If none, its lookup waits
//!   for the name, and finds the new one.
//! * Nothing can be mounted on a dentry that is about to be removed (`cant_mount`): the mark is set
//!   under the lock of the name's bucket, as a mountpoint is claimed. A failed removal clears it.
//! * A dentry that the driver has moved out of a directory may still be in its table when the
//!   directory was removed. The driver's caller marks it first (`is_moving`), so it stays in that
//!   table until it moves.
//! * The driver decides in its transaction whether a directory is empty or was removed.
//!
//! # Locks
//!
//! Names are locked with nothing else held, two of them in the order of their keys. Moving a
//! directory to another parent first locks all such moves of the superblock, and checks for loops
//! again under that lock, when no directory can get another parent. Everything else is locked after
//! names; no bucket is locked across a call of the driver.

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};

use crate::file::synchronous::sync_names;
use crate::mount::namespace::Namespace;
use crate::objects::dcache::dentry::{self, Dentry, DentryRef};
use crate::objects::dcache::invalidate::detach;
use crate::objects::dcache::name::{KeptName, Name};
use crate::objects::driver::DirOps;
use crate::objects::fsnotify::{self, Place};
use crate::objects::in_lookup::KeyGuard;
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;
use crate::objects::vfsmount::Path;

/// A name in a directory of a backed driver, and the dentry, possibly negative, that a walk found
/// under it; none if the name is to be made, and the dcache does not have it. Holds references to
/// the directory and the dentry.
pub(crate) struct BackedName {
    found: Option<DentryRef>,
    name: KeptName,
    dir: Path,
}

impl BackedName {
    pub(crate) fn new(dir: Path, name: &Name<'_>, found: DentryRef) -> BackedName {
        BackedName { found: Some(found), name: KeptName::new(name), dir }
    }

    /// Returns a name that the dcache does not have.
    pub(crate) fn unknown(dir: Path, name: KeptName) -> BackedName {
        BackedName { found: None, name, dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the directory, and gives up the rest.
    pub(crate) fn into_dir(self) -> Path {
        self.dir
    }

    /// Returns the dentry that the walk found.
    pub(crate) fn found(&self) -> Option<&Dentry> {
        self.found.as_deref()
    }

    pub(crate) fn name(&self) -> Name<'_> {
        self.name.name()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.name().bytes()
    }

    pub(crate) fn dir_inode(&self) -> &Inode {
        self.dir.dentry().inode()
    }

    pub(crate) fn place(&self) -> Place<'_> {
        Place { dir: self.dir.dentry(), name: self.bytes() }
    }

    fn sb(&self) -> &SuperBlock {
        self.dir.dentry().sb()
    }

    pub(crate) fn dir_ops(&self) -> Result<&dyn DirOps, Errno> {
        self.sb().dir_ops().ok_or(Errno::ROFS)
    }

    pub(crate) fn lock(&self) -> Option<KeyGuard<'_>> {
        self.sb().lock_name(self.dir.dentry(), &self.name())
    }

    /// Returns whether the table still has the dentry that the walk found, or still none.
    pub(crate) fn is_current(&self, guard: &Guard) -> bool {
        let (dir, name) = (self.dir.dentry(), self.name());
        dir.sb().assert_locked(dir, &name);
        let now = dir.find(&name, guard).map(|(child, _)| &raw const *child);
        !dir.is_unhashed() && now == self.found().map(|found| &raw const *found)
    }

    /// Returns whether the dcache has a file under the name.
    pub(crate) fn exists(&self, guard: &Guard) -> bool {
        let found = self.dir.dentry().find(&self.name(), guard);
        found.is_some_and(|(child, _)| !child.is_negative())
    }

    /// Prevents mounts on the dentry `found`, which is about to lose its name. Returns false if the
    /// name has another dentry.
    fn forbid_mounts(&self, found: &Dentry, guard: &Guard) -> bool {
        let dir = self.dir.dentry();
        let bucket = dir.lock_name(found.hash(), guard);
        let is_it = |child: &Dentry| std::ptr::eq(child, found);
        let is_there = bucket.find(found.hash(), is_it).is_some();
        if is_there {
            found.set_cant_mount(true);
        }
        is_there
    }

    /// Enters a dentry for the inode that the driver made, in place of the negative one if there is
    /// one, and returns a reference to it.
    pub(crate) fn enter(&self, inode: InodeRef) -> DentryRef {
        let (dir, name) = (self.dir.dentry(), self.name());
        dir.sb().assert_locked(dir, &name);
        let guard = rcu::pin();
        let mut bucket = dir.lock_name(name.hash(), &guard);
        let found = self.found.as_ref().filter(|found| bucket.remove(found));
        let gone = found.map(|found| found.borrow(&guard));
        let gone = gone.map(|old| old.set_removed(dir, || {}, &guard));
        let (made, reported) = if dir.is_unhashed() {
            // The dcache dropped the directory during the call of the driver; the file exists
            // anyway.
            (Dentry::new_unnamed(dir, inode, &guard), false)
        } else {
            Dentry::insert_made(&mut bucket, dir, &name, inode)
        };
        fsnotify::name_made(self.place(), made.inode(), &guard);
        drop(bucket);
        if let Some(gone) = gone {
            dentry::finish_removal(gone, &guard);
        }
        drop(guard);
        dir.sb().shrink_sometimes(reported);
        made
    }
}

/// Adds a name to a file; `None` if the walk must be repeated.
///
/// # Errors
/// The errors of the driver.
pub(crate) fn link(source: &Path, at: &BackedName) -> Result<Option<()>, Errno> {
    let directories = at.dir_ops()?;
    let turn = at.lock();
    if !at.is_current(&rcu::pin()) {
        return Ok(None);
    }
    let inode = source.dentry().inode();
    directories.link(inode, at.dir_inode(), at.bytes())?;
    drop(at.enter(inode.to_ref()));
    drop(turn);
    sync_names(at.dir_inode())?;
    Ok(Some(()))
}

/// Removes a name, of a directory if `is_rmdir`; `None` if the walk must be repeated.
///
/// # Errors
/// The errors of the driver; `EBUSY` if it is a mountpoint.
pub(crate) fn remove(
    at: &BackedName,
    is_rmdir: bool,
    tree: &Namespace,
) -> Result<Option<()>, Errno> {
    let directories = at.dir_ops()?;
    let turn = at.lock();
    let Some(victim) = at.found() else { return Ok(None) };
    let Some(doomed) = CantMountGuard::new(at, tree)? else { return Ok(None) };
    let (dir, inode) = (at.dir_inode(), victim.inode());
    if is_rmdir {
        directories.rmdir(dir, at.bytes(), inode)?;
    } else {
        directories.unlink(dir, at.bytes(), inode)?;
    }
    unhash_removed(victim, tree);
    fsnotify::name_removed(at.place(), inode, &rcu::pin());
    drop((doomed, turn));
    sync_names(at.dir_inode())?;
    Ok(Some(()))
}

/// A dentry that is about to lose its name, and on which nothing can be mounted while this guard
/// exists. When it is dropped, either the dentry has no name, or mounts are allowed again.
pub(crate) struct CantMountGuard<'a>(&'a Dentry);

impl<'a> CantMountGuard<'a> {
    /// Prevents mounts on the dentry. Returns `None` if the name has another dentry.
    ///
    /// # Errors
    /// `EBUSY` if it is a mountpoint in the caller's tree.
    pub(crate) fn new(
        at: &'a BackedName,
        tree: &Namespace,
    ) -> Result<Option<CantMountGuard<'a>>, Errno> {
        let guard = rcu::pin();
        let Some(found) = at.found() else { return Ok(None) };
        if !at.is_current(&guard) || !at.forbid_mounts(found, &guard) {
            return Ok(None);
        }
        let doomed = CantMountGuard(found);
        let busy = found.is_mounted() && tree.has_mountpoint(found, &guard);
        if busy { Err(Errno::BUSY) } else { Ok(Some(doomed)) }
    }
}

impl Drop for CantMountGuard<'_> {
    fn drop(&mut self) {
        self.0.set_cant_mount(false);
    }
}

/// Unhashes a dentry whose file the driver removed, and detaches mounts on it in other trees. No
/// new ones can be made ([`CantMountGuard`]).
pub(crate) fn unhash_removed(victim: &Dentry, tree: &Namespace) {
    let guard = rcu::pin();
    if victim.inode().is_dir() {
        victim.inode().mark_dead();
    }
    while !detach(victim, &guard) {
        // This tree has no mount on the victim, so detaching does not fail.
        if tree.detach_elsewhere(victim, &guard).is_err() {
            break;
        }
    }
}
