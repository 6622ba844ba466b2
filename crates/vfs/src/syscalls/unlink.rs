//! Removing names: `unlink` and `rmdir`.
//!
//! Removing a file takes the lock of its bucket. Removing a directory also locks every bucket of
//! the directory itself, in the order of addresses, as every user of several buckets does. Then no
//! thread can create a file in it between the check that it is empty and its removal.
//!
//! # Checks before the locks
//!
//! A call first looks the victim up without a lock, reads its sequence count, and checks all rules.
//! If a rule forbids the removal, the call reads the count once more. If the count is unchanged,
//! the dentry had its name during the whole check. So at some moment the call had to fail, and it
//! never takes a lock. If all rules allow the removal, the call takes the locks, and an unchanged
//! count proves that the checks still hold: a name is added or removed only under the lock of its
//! bucket, in a write section of the count. A dentry that was removed just before the count was
//! read is marked as removed. A directory that still holds a name is not dead, so the locked part
//! does not check that again.

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::table::LockReq;

use crate::base::error::{Named, Outcome, Result};
use crate::base::time;
use crate::base::types::{Access, AtFlags};
use crate::mount::namespace::Namespace;
use crate::namei::dir_ops;
use crate::namei::lookup::{DriverChange, run_changes};
use crate::namei::walk::{Fail, Last, Lookup, Walk, WalkPos, check_length};
use crate::objects::dcache::dentry::{self, Dentry};
use crate::objects::fsnotify::{self, Place};
use crate::objects::inode::Inode;
use crate::objects::permission::{check_sticky, permission};
use crate::objects::vfsmount::WriteAccess;
use crate::security::cred::Credentials;
use crate::syscalls::posix::Calls;
use crate::task::task_struct::{At, bytes};

/// Checks that `cred` may remove `victim` from `dir`, and that it is a directory exactly if the
/// call needs one.
#[inline]
pub(crate) fn may_delete(
    dir: &Inode,
    victim: &Dentry,
    want_dir: bool,
    cred: &Credentials,
    guard: &Guard,
) -> Outcome<()> {
    permission(dir, cred, Access::WRITE | Access::EXEC, guard)?;
    check_sticky(dir, victim.inode(), cred)?;
    if dir.keeps_names_of(victim.inode()) {
        return Err(Errno::PERM);
    }
    match (want_dir, victim.inode().is_dir()) {
        (true, false) => Err(Errno::NOTDIR),
        (false, true) => Err(Errno::ISDIR),
        _ if dir.is_dead() => Err(Errno::NOENT),
        _ => Ok(()),
    }
}

impl Calls<'_> {
    /// Removes a name, or with `REMOVEDIR` an empty directory. Open files remain usable.
    ///
    /// # Errors
    /// As `unlinkat(2)`.
    pub fn unlinkat(&self, at: At<'_>, path: impl AsRef<StdPath>, flags: AtFlags) -> Result<()> {
        let path = path.as_ref();
        let is_rmdir = flags.contains(AtFlags::REMOVEDIR);
        let remove = || {
            if !AtFlags::REMOVEDIR.contains(flags) {
                return Err(Errno::INVAL);
            }
            let base = self.task.base(at);
            let tree = self.task.vfs().tree();
            let call = || {
                let guard = rcu::pin();
                self.task.walk(&base, bytes(path), Lookup::empty(), &guard, |walk| {
                    if is_rmdir { rmdir(walk, tree) } else { unlink(walk, tree) }
                })
            };
            run_changes(call, |change| match change {
                DriverChange::Name(at, _write) => dir_ops::remove(&at, is_rmdir, tree),
                _ => Ok(None),
            })
        };
        remove().on(if is_rmdir { "rmdir" } else { "unlinkat" }, path)
    }
}

/// Defers the removal of a name to the backed driver.
#[cold]
fn defer_removal<'g>(
    walk: &Walk<'g>,
    dir: WalkPos<'g>,
    is_rmdir: bool,
    write: WriteAccess<'g>,
) -> std::result::Result<(), Fail> {
    let victim = walk.find_backed(dir, walk.name())?;
    if victim.is_negative() {
        return Err(Errno::NOENT.into());
    }
    may_delete(dir.inode(), victim, is_rmdir, walk.cred(), walk.guard())?;
    let at = walk.keep_name(dir, walk.name(), victim)?;
    let write = write.keep(at.dir().mount_ref());
    Err(DriverChange::Name(at, write).into())
}

/// Finds the dentry of the last name of a walk, if it may be removed, and its sequence count while
/// it had that name.
///
/// Takes no lock, so calls that fail write nothing: see the [module](self).
fn victim<'g>(
    walk: &Walk<'g>,
    tree: &Namespace,
    pos: WalkPos<'g>,
    want_dir: bool,
) -> std::result::Result<(&'g Dentry, u32), Fail> {
    let Some((victim, seq)) = pos.dentry.find(walk.name(), walk.guard()) else {
        walk.validate(pos)?;
        return Err(Errno::NOENT.into());
    };
    match may_delete(pos.inode(), victim, want_dir, walk.cred(), walk.guard()) {
        Err(errno) => Err(if_still(victim, seq, errno)),
        // The locked part finds a mount on it that is seen through another mount, or in another
        // tree.
        Ok(()) if walk.is_mountpoint(pos, victim) && tree.leads_to(pos.mount, walk.guard()) => {
            Err(if_still(victim, seq, Errno::BUSY))
        }
        Ok(()) => Ok((victim, seq)),
    }
}

/// Returns `errno` for a call that was refused because of `dentry`, if the dentry has had its name
/// since its sequence count was `seq`. Otherwise the call is retried, because there may have been
/// no moment at which it had to fail with `errno`.
pub(crate) fn if_still(dentry: &Dentry, seq: u32, errno: Errno) -> Fail {
    if dentry.has_same_name(seq) { errno.into() } else { Fail::Retry }
}

fn unlink(walk: &mut Walk<'_>, tree: &Namespace) -> std::result::Result<(), Fail> {
    let Last::Name(slash) = walk.walk_to_last()? else {
        return Err(Errno::ISDIR.into());
    };
    let name = walk.name();
    let guard = walk.guard();
    let pos = walk.cur();
    let dir = pos.dentry;
    let write = walk.want_write(pos)?;
    if slash {
        let found = walk.child(name)?.ok_or(Errno::NOENT)?;
        let is_dir = found.inode().is_dir();
        return Err(if is_dir { Errno::ISDIR } else { Errno::NOTDIR }.into());
    }
    check_length(pos.inode(), name.len())?;
    if dir.is_partial() {
        return defer_removal(walk, pos, false, write);
    }
    let (victim, seq) = victim(walk, tree, pos, false)?;
    let mut bucket = dir.lock_name(name.hash(), guard);
    if !victim.has_same_name(seq) {
        return Err(Fail::Retry);
    }
    if victim.is_mounted() {
        // The lock order allows none of these locks while a mount tree changes.
        drop((bucket, write));
        tree.detach_elsewhere(victim, guard)?;
        return Err(Fail::Retry);
    }
    bucket.remove(victim);
    let inode = victim.inode();
    let count_out = || {
        inode.unlink();
        inode.sb().accounting().unlinked(inode, name.len());
    };
    let removed = victim.set_removed(dir, count_out, guard);
    fsnotify::name_removed(Place { dir, name: name.bytes() }, inode, guard);
    drop(bucket);
    let now = time::now();
    inode.touch_ctime_at(now);
    dir.inode().touch_at(now);
    dentry::finish_removal(removed, guard);
    drop(write);
    Ok(())
}

fn rmdir(walk: &mut Walk<'_>, tree: &Namespace) -> std::result::Result<(), Fail> {
    match walk.walk_to_last()? {
        Last::Name(_) => {}
        Last::DotDot => return Err(Errno::NOTEMPTY.into()),
        Last::Dot => return Err(Errno::INVAL.into()),
        Last::Root => return Err(Errno::BUSY.into()),
    }
    let name = walk.name();
    let guard = walk.guard();
    let pos = walk.cur();
    let dir = pos.dentry;
    let write = walk.want_write(pos)?;
    check_length(pos.inode(), name.len())?;
    if dir.is_partial() {
        return defer_removal(walk, pos, true, write);
    }
    let (victim, seq) = victim(walk, tree, pos, true)?;
    if !victim.is_mounted() && !victim.children().is_empty() {
        return Err(if_still(victim, seq, Errno::NOTEMPTY));
    }
    let reqs = [LockReq::One(dir.children(), name.hash()), LockReq::All(victim.children())];
    let mut locks = dir.lock_names(reqs, guard);
    if !victim.has_same_name(seq) {
        return Err(Fail::Retry);
    }
    let is_empty = locks.is_empty(1);
    if victim.is_mounted() {
        drop((locks, write));
        if !is_empty && !tree.has_mountpoint(victim, guard) {
            return Err(Errno::NOTEMPTY.into());
        }
        tree.detach_elsewhere(victim, guard)?;
        return Err(Fail::Retry);
    }
    if !is_empty {
        return Err(Errno::NOTEMPTY.into());
    }
    locks.remove(0, victim);
    let inode = victim.inode();
    let count_out = || {
        mark_directory_dead(inode);
        inode.sb().accounting().unlinked(inode, name.len());
    };
    let removed = victim.set_removed(dir, count_out, guard);
    // This precedes the moment when another thread can find `dir` empty and remove it.
    dir.unlink_directory();
    fsnotify::name_removed(Place { dir, name: name.bytes() }, inode, guard);
    drop(locks);
    dir.inode().touch();
    dentry::finish_removal(removed, guard);
    drop(write);
    Ok(())
}

/// Marks an empty directory, locked as a whole, as dead: from then on, creating a file in it fails.
pub(crate) fn mark_directory_dead(inode: &Inode) {
    inode.mark_dead();
    inode.clear_nlink();
    inode.touch_ctime();
}
