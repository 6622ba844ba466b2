//! Changes of directories that a driver keeps itself.
//!
//! Where names live in the dcache, a call changes them under the locks of their buckets, in the
//! middle of its walk. A driver with directories of its own ([`DirOps`]) may have to wait for
//! a disk, so a change of these takes two steps:
//!
//! 1. The walk makes all the checks, under RCU and without a lock as everywhere. Then it stops and
//!    hands the change back ([`DriverChange`](crate::namei::lookup::DriverChange)): the directory,
//!    the name, and the dentry that it has found there, all of them held ([`BackedName`]), and the
//!    right to write to the mount.
//! 2. The call, which now holds nothing else, locks the name ([`crate::objects::in_lookup`]), so
//!    that nobody looks it up or changes it until this is over. It makes sure that the dentry still
//!    is the one of that name; if not, everything begins again. Then it has the driver make the
//!    change, and puts into the dcache what has become of it, under the locks of the buckets.
//!
//! # Invariants
//!
//! * A dentry in the table of such a directory says what the driver would say, unless its name is
//!   locked. So what step 1 has found holds in step 2, once the name is locked and the dentry is
//!   the same: it is held, so that the shrinker leaves it there. Rights, modes and types of what
//!   has these names may have changed between the steps, as between any check and the change that
//!   follows it.
//! * A walk that comes by in between finds the old dentry, the new one, or none; then it asks,
//!   which waits for the name, and finds the new one.
//! * Nothing gets mounted on what is about to be removed (`cant_mount`): the mark is set under the
//!   lock of the name's bucket, as a mountpoint is claimed. If the removal fails the mark goes.
//! * What the driver has moved out of a directory may still be in its table when the directory has
//!   been removed. It is marked before (`is_moving`), so that it stays there until it moves on.
//! * Whether a directory is empty, or has been removed, the driver decides, in its transaction.
//!
//! # Locks
//!
//! Names are locked with nothing else held, two of them in the order of their keys. Moving a
//! directory to another one locks all such moves of the superblock before that, and looks again for
//! loops with that held: no directory gets another parent then. Everything else is locked after
//! names, and buckets never across a call of the driver.

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};

use crate::mount::namespace::Namespace;
use crate::mount::vfsmount::Path;
use crate::namei::lookup;
use crate::objects::dcache::dentry::{self, Dentry, DentryRef};
use crate::objects::dcache::name::Name;
use crate::objects::driver::DirOps;
use crate::objects::in_lookup::KeyGuard;
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;

/// A name in a directory that a driver keeps, and the dentry that a walk has found there, which may
/// say that there is no such name. Both are held.
pub(crate) struct BackedName {
    found: DentryRef,
    name: Box<[u8]>,
    dir: Path,
}

impl BackedName {
    pub(crate) fn new(dir: Path, name: &[u8], found: DentryRef) -> BackedName {
        BackedName { found, name: name.into(), dir }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the walk has found.
    pub(crate) fn found(&self) -> &Dentry {
        &self.found
    }

    pub(crate) fn name(&self) -> Name<'_> {
        Name::new(&self.name)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.name
    }

    pub(crate) fn dir_inode(&self) -> &Inode {
        self.dir.dentry().inode()
    }

    fn sb(&self) -> &SuperBlock {
        self.dir.dentry().sb()
    }

    pub(crate) fn dir_ops(&self) -> Result<&dyn DirOps, Errno> {
        self.sb().fs().dir_ops().ok_or(Errno::ROFS)
    }

    pub(crate) fn lock(&self) -> Option<KeyGuard<'_>> {
        self.sb().lock_name(self.dir.dentry(), &self.name())
    }

    /// Whether the table still has what the walk has found. The caller has locked the name.
    pub(crate) fn is_current(&self, guard: &Guard) -> bool {
        let dir = self.dir.dentry();
        let is_it = |(child, _): (&Dentry, u32)| std::ptr::eq(child, self.found());
        !dir.is_unhashed() && dir.find(&self.name(), guard).is_some_and(is_it)
    }

    /// Keeps mounts off what is about to lose its name. `false` if the name is not its any more.
    fn forbid_mounts(&self, guard: &Guard) -> bool {
        let dir = self.dir.dentry();
        let _dcache = dir.sb().lock_dcache();
        let bucket = dir.children().lock(self.found.hash(), guard);
        let is_it = |child: &Dentry| std::ptr::eq(child, self.found());
        let is_there = bucket.find(self.found.hash(), is_it).is_some();
        if is_there {
            self.found.set_cant_mount(true);
        }
        is_there
    }

    /// Puts a dentry for what the driver has made into the place of the one that said that there is
    /// nothing. Returns a reference to it. The caller has locked the name.
    pub(crate) fn enter(&self, inode: InodeRef) -> DentryRef {
        let guard = rcu::pin();
        let dir = self.dir.dentry();
        let dcache = dir.sb().lock_dcache();
        let name = self.name();
        let mut bucket = dir.children().lock(name.hash(), &guard);
        let gone = bucket.remove(self.found()).then(|| self.found.borrow(&guard));
        let gone = gone.map(|old| old.set_removed(dir, || {}, &guard));
        let (made, listed) = if dir.is_unhashed() {
            // The dcache has lost the directory meanwhile; the file is there all the same.
            (Dentry::new_unnamed(dir, inode, &guard), 1)
        } else {
            Dentry::insert_made(&mut bucket, dir, &name, inode)
        };
        drop((bucket, dcache));
        if let Some(gone) = gone {
            dentry::finish_removal(gone, &guard);
        }
        drop(guard);
        dir.sb().shrink_sometimes(listed);
        made
    }
}

/// Gives a file another name; `None` if the walk has to look again.
///
/// # Errors
/// The driver's.
pub(crate) fn link(source: &Path, at: &BackedName) -> Result<Option<()>, Errno> {
    let directories = at.dir_ops()?;
    let _turn = at.lock();
    if !at.is_current(&rcu::pin()) {
        return Ok(None);
    }
    let inode = source.dentry().inode();
    directories.link(inode, at.dir_inode(), at.bytes())?;
    drop(at.enter(inode.to_ref()));
    Ok(Some(()))
}

/// Removes a name, of a directory if `is_rmdir`; `None` if the walk has to look again.
///
/// # Errors
/// The driver's; `EBUSY` if something is mounted there.
pub(crate) fn remove(
    at: &BackedName,
    is_rmdir: bool,
    tree: &Namespace,
) -> Result<Option<()>, Errno> {
    let directories = at.dir_ops()?;
    let _turn = at.lock();
    let victim = at.found();
    let Some(_doomed) = CantMountGuard::new(at, tree)? else { return Ok(None) };
    let (dir, inode) = (at.dir_inode(), victim.inode());
    if is_rmdir {
        directories.rmdir(dir, at.bytes(), inode)?;
    } else {
        directories.unlink(dir, at.bytes(), inode)?;
    }
    unhash_removed(victim, tree);
    Ok(Some(()))
}

/// What is about to lose its name, so that nothing gets mounted there. Until this is dropped: then
/// either it has no name, or may be mounted on again.
pub(crate) struct CantMountGuard<'a>(&'a Dentry);

impl<'a> CantMountGuard<'a> {
    /// `None` if the name has another dentry by now. The caller has locked the name.
    ///
    /// # Errors
    /// `EBUSY` if something is mounted there, in the caller's tree.
    pub(crate) fn new(
        at: &'a BackedName,
        tree: &Namespace,
    ) -> Result<Option<CantMountGuard<'a>>, Errno> {
        let guard = rcu::pin();
        if !at.is_current(&guard) || !at.forbid_mounts(&guard) {
            return Ok(None);
        }
        let doomed = CantMountGuard(at.found());
        let busy = at.found().is_mounted() && tree.has_mountpoint(at.found(), &guard);
        if busy { Err(Errno::BUSY) } else { Ok(Some(doomed)) }
    }
}

impl Drop for CantMountGuard<'_> {
    fn drop(&mut self) {
        self.0.set_cant_mount(false);
    }
}

/// Takes what the driver has removed out of the dcache, with what is mounted there in other trees.
/// The caller has locked the name, and keeps mounts off.
pub(crate) fn unhash_removed(victim: &Dentry, tree: &Namespace) {
    let guard = rcu::pin();
    if victim.inode().is_dir() {
        victim.inode().mark_dead();
    }
    while !lookup::detach(victim, &guard) {
        // In this tree nothing is: then this ends mounts, and does not fail.
        if tree.detach_elsewhere(victim, &guard).is_err() {
            break;
        }
    }
}
