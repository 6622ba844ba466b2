//! `rename`.
//!
//! # Locks
//!
//! A rename takes the bucket locks of the two names, and all buckets of a directory that it
//! replaces, in the order of addresses. Moving a file takes no other lock: the dentry's own
//! sequence count notifies walks. Moving a directory changes the paths of everything below it. The
//! thread that moves it is a writer of a part of `rename_lock` while it changes name or parent. The
//! part is the dentry, and an odd count marks it, so the move disturbs no other thread unless a
//! reader prevents all moves of directories. Moving a directory to another parent enters
//! `s_vfs_rename_mutex`, either concurrently with other such moves or exclusively.
//!
//! # No directory becomes its own ancestor
//!
//! A concurrent move *marks* the directory that gets another parent, or both directories in an
//! exchange. After that it climbs from each new parent to the root. If no directory on the climb is
//! marked, the new parent included, the move proceeds. Otherwise it clears its marks, waits until
//! all other moves end, searches the ancestors for the directory itself, and moves with all other
//! moves locked out. Before the patch, every move was such an exclusive one.
//!
//! Proof that no loop forms. Suppose there is a loop, and consider the moves that put directories
//! of the loop under their parents in it; at least one exists, because a new directory has no
//! children. Let X be one of them, which moved x. The climb of X began at the parent of x and
//! followed the loop until it read, for some directory z, another parent than the one in the loop;
//! because it did not reach x, which was marked. The parent that X read was an earlier one: had it
//! been later, z would have left the loop before x entered it. So the move Z, which put z under its
//! parent in the loop, is one of the moves considered, and had not ended when X read that parent. X
//! had checked z for a mark just before, and found none. The mark of Z was not yet cleared, or X
//! would have read the new parent; so Z set it after that check, and the fence of X, between its
//! marks and its climb, precedes the fence of Z. So the fence of each of these moves would precede
//! the fence of another of them; but one of their fences is the last, a contradiction. An exclusive
//! move ends before other moves begin, or begins after they end, so it has a position in that order
//! too.
//!
//! The proof does not need a consistent snapshot: names and parents may change during the climb. A
//! replaced directory is not marked: the rename checks that it is empty under its bucket locks.
//!
//! # Checks before the locks
//!
//! A call first looks both names up without a lock, reads the sequence counts of their dentries,
//! and checks all rules. If the rename fails, or has no effect because both are names of one file,
//! the call reads these counts, and the counts of the ancestors that it searched, once more. If
//! they are unchanged, both dentries had their names during the whole check. So at some moment this
//! result was correct, and the call takes no lock. In all other cases the call takes the locks, and
//! unchanged counts prove that both dentries still have their names, because names change only
//! under the locks of their buckets, in a write section of the count.
//!
//! # Concurrent lookups
//!
//! A rename announces a change of both buckets before it moves the first entry. A lookup that finds
//! no entry in an announced bucket searches again until the change ends, and a dentry that is being
//! moved or replaced has an odd sequence count during that time; lookups wait until it is even. So
//! a name that exists before and after the rename is found at every moment, and no reader sees the
//! new name first and the old one later.

mod check;
mod whiteout;

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::atomic::{Ordering, fence};
use vfscale_sync::brlock::{BrReadGuard, BrWriteGuard};
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::seqrwlock::SeqRwWriteGuard;
use vfscale_sync::table::{LockReq, LockSet};

use crate::base::error::{Named, Outcome, Result};
use crate::base::lock_classes::{Children, DirectoryMove, RenameLock};
use crate::base::time;
use crate::base::types::RenameFlags;
use crate::file::synchronous::sync_names;
use crate::mount::namespace::Namespace;
use crate::mount::vfs_shared::VfsShared;
use crate::namei::dir_ops::{self, BackedName, CantMountGuard};
use crate::namei::lookup::{DriverChange, WalkStop, run_changes};
use crate::namei::walk::{Fail, Last, Lookup, Walk, WalkPos, check_length};
use crate::objects::dcache::children::InsertMoved;
use crate::objects::dcache::climb::{Climb, is_below};
use crate::objects::dcache::dentry::{self, Dentry, DentryRef, Removed};
use crate::objects::dcache::invalidate::detach;
use crate::objects::dcache::name::Name;
use crate::objects::driver;
use crate::objects::fsnotify::{self, Place};
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::vfsmount::WriteAccess;
use crate::security::cred::Credentials;
use crate::syscalls::create::{NewInodeAttrs, WHITEOUT};
use crate::syscalls::posix::Calls;
use crate::syscalls::unlink::mark_directory_dead;
use crate::task::task_struct::{At, DirFd, Task, bytes};

/// One of the two names.
#[derive(Clone, Copy)]
struct Side<'g> {
    dir: &'g Dentry,
    name: Name<'g>,
    slash: bool,
}

/// A rename whose paths have been walked.
struct RenameCall<'g> {
    ns: &'g VfsShared,
    tree: &'g Namespace,
    cred: &'g Credentials,
    guard: &'g Guard,
    flags: RenameFlags,
    old: Side<'g>,
    new: Side<'g>,
}

type Locks<'g, const N: usize> = LockSet<'g, Dentry, Children, N>;

impl Calls<'_> {
    /// Renames a file, and replaces the file of the new name. `flags`: `NOREPLACE`; `EXCHANGE`;
    /// `WHITEOUT`, alone or with `NOREPLACE`, leaves a character device 0:0 under the old name.
    ///
    /// # Errors
    /// As `renameat2(2)`; the error names both paths.
    pub fn renameat2(
        &self,
        old_at: At<'_>,
        old: impl AsRef<StdPath>,
        new_at: At<'_>,
        new: impl AsRef<StdPath>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (old, new) = (old.as_ref(), new.as_ref());
        let rename = || {
            let beside = RenameFlags::NOREPLACE | RenameFlags::WHITEOUT;
            let exchange = RenameFlags::EXCHANGE;
            if flags != exchange && !beside.contains(flags) {
                return Err(Errno::INVAL);
            }
            let bases = [old_at, new_at].map(|at| self.task.base(at));
            let call = || self.task.rename_from(&bases, [bytes(old), bytes(new)], flags);
            run_changes(call, |change| match change {
                DriverChange::Names(old, new, _write) => {
                    let done = self.task.rename_backed(&old, &new, flags)?;
                    if done.is_some() {
                        sync_names(old.dir_inode())?;
                        sync_names(new.dir_inode())?;
                    }
                    Ok(done)
                }
                _ => Ok(None),
            })
        };
        let renamed = self.task.with_space_at(new_at, bytes(new), Lookup::empty(), rename);
        renamed.between("renameat2", old, new)
    }
}

impl Task {
    fn rename_from(
        &self,
        [old_base, new_base]: &[DirFd; 2],
        [old, new]: [&[u8]; 2],
        flags: RenameFlags,
    ) -> std::result::Result<(), WalkStop> {
        let guard = rcu::pin();
        self.walk(old_base, old, Lookup::empty(), &guard, |walk| {
            let old_last = walk.walk_to_last()?;
            let (old_dir, old_name) = (walk.cur(), walk.name());
            self.walk(new_base, new, Lookup::empty(), &guard, |walk| {
                let new_last = walk.walk_to_last()?;
                let (write, old, new) =
                    sides(walk, (old_dir, old_name, old_last), new_last, flags)?;
                let cred = walk.cred();
                let (ns, tree) = (self.ns(), self.vfs().tree());
                let rename = RenameCall { ns, tree, cred, guard: &guard, flags, old, new };
                let result = if new.dir.is_partial() {
                    rename.defer_names(walk, old_dir, write)
                } else {
                    let result = rename.run();
                    drop(write);
                    result
                };
                match result {
                    // The walk over the old path is the outer one and must start again as well.
                    Err(Fail::Retry) => Ok(Err(Fail::Retry)),
                    other => Ok(other),
                }
            })?
        })
    }

    /// Renames in the directories of a driver, after all checks; see [`crate::namei::dir_ops`].
    /// Returns `None` if the walks must be repeated.
    fn rename_backed(
        &self,
        old: &BackedName,
        new: &BackedName,
        flags: RenameFlags,
    ) -> Outcome<Option<()>> {
        let tree = self.vfs().tree();
        let (old_dir, new_dir) = (old.dir().dentry(), new.dir().dentry());
        let (Some(source), Some(found)) = (old.found(), new.found()) else { return Ok(None) };
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let target = (!found.is_negative()).then_some(found);
        let swapped = target.filter(|_| exchange);
        let moves_dir = source.inode().is_dir() || swapped.is_some_and(|t| t.inode().is_dir());
        let sb = old_dir.sb();
        let directories = sb.dir_ops().ok_or(Errno::ROFS)?;
        let moves_away = moves_dir && !std::ptr::eq(old_dir, new_dir);
        let _moves = moves_away.then(|| sb.lock_moves());
        let _turns = sb.lock_names((old_dir, &old.name()), (new_dir, &new.name()));
        let mut doomed = None;
        if target.is_some() && !exchange {
            doomed = CantMountGuard::new(new, tree)?;
            if doomed.is_none() {
                return Ok(None);
            }
        }
        {
            let guard = rcu::pin();
            if !old.is_current(&guard) || !new.is_current(&guard) {
                return Ok(None);
            }
            let above = |d: &Dentry, dir: &Dentry| d.inode().is_dir() && is_below(dir, d, &guard);
            if moves_away && (above(source, new_dir) || target.is_some_and(|t| above(t, old_dir))) {
                // Another thread moved a directory after the walk. A repeated walk finds the error.
                return Ok(None);
            }
        }
        let moving = if exchange { None } else { Moving::new(source) };
        let birth = flags.contains(RenameFlags::WHITEOUT).then(|| {
            let guard = rcu::pin();
            NewInodeAttrs::new(old_dir.inode(), WHITEOUT.mode, self.cred(&guard), 0, &guard)
        });
        let whiteout = birth.as_ref().map(|birth| birth.inode(&WHITEOUT, old.bytes().len()));
        let renamed = directories.rename(&driver::Rename {
            old_dir: old_dir.inode(),
            old_name: old.bytes(),
            source: source.inode(),
            new_dir: new_dir.inode(),
            new_name: new.bytes(),
            target: target.map(Dentry::inode),
            exchange,
            whiteout,
        });
        if let Err(errno) = renamed {
            drop(moving);
            if old_dir.is_unhashed() {
                // Another thread removed the directory of the source, although the driver still had
                // the source in it.
                detach(source, &rcu::pin());
            }
            return Err(errno);
        }
        if doomed.is_some() {
            dir_ops::unhash_removed(found, tree);
        }
        let guard = rcu::pin();
        let side = |dir, name| Side { dir, name, slash: false };
        let (old, new) = (side(old_dir, old.name()), side(new_dir, new.name()));
        let (ns, cred) = (self.ns(), self.cred(&guard));
        let rename = RenameCall { ns, tree, cred, guard: &guard, flags, old, new };
        rename.move_backed(source, found);
        if source.sb().watches().is_watched() {
            rename.report(source, target);
        }
        drop(moving);
        Ok(Some(()))
    }
}

/// The mark of a dentry that is about to leave its directory for another, until this guard is
/// dropped.
///
/// With a backed driver, the dentry stays in the table of the old directory until it moves,
/// although that directory may be removed as soon as the driver has moved the file. With a driver
/// without directories, only directories are marked, for concurrent moves of directories: see the
/// [module](self).
struct Moving<'a>(&'a Dentry);

impl<'a> Moving<'a> {
    /// Marks `dentry`. Returns `None` if another move has marked it.
    fn new(dentry: &'a Dentry) -> Option<Moving<'a>> {
        (!dentry.set_moving(true)).then(|| Moving(dentry))
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.set_moving(false);
    }
}

/// The right to move directories to other parents. It prevents two such moves from forming a loop.
enum MoveRight<'g> {
    /// Concurrent with other moves. The moved directories are marked, and no ancestor of their new
    /// parents was.
    Concurrent { _marks: [Option<Moving<'g>>; 2], _lock: BrReadGuard<'g, DirectoryMove> },
    /// Exclusive: no other thread moves a directory.
    Exclusive { _lock: BrWriteGuard<'g, DirectoryMove> },
}

/// Returns whether neither `dir` nor an ancestor of it is about to move.
fn stays(dir: &Dentry, guard: &Guard) -> bool {
    let mut at = dir;
    // Reads the mark before the parent: a thread that sees the end of a move sees the new parent.
    while !at.is_moving() {
        if at.is_root() {
            return true;
        }
        at = at.parent(guard);
    }
    false
}

/// Checks the ends of the two paths, and announces the change.
fn sides<'g>(
    walk: &Walk<'g>,
    (old_dir, old_name, old_last): (WalkPos<'g>, &Name<'g>, Last),
    new_last: Last,
    flags: RenameFlags,
) -> std::result::Result<(WriteAccess<'g>, Side<'g>, Side<'g>), Fail> {
    let new_dir = walk.cur();
    if !std::ptr::eq(old_dir.mount, new_dir.mount) {
        return Err(Errno::XDEV.into());
    }
    let Last::Name(old_slash) = old_last else {
        return Err(Errno::BUSY.into());
    };
    let Last::Name(new_slash) = new_last else {
        let taken = flags.contains(RenameFlags::NOREPLACE);
        return Err(if taken { Errno::EXIST } else { Errno::BUSY }.into());
    };
    let write = walk.want_write(new_dir)?;
    check_length(old_dir.inode(), old_name.len())?;
    let side = |dir: &'g Dentry, name, slash| Side { dir, name, slash };
    Ok((
        write,
        side(old_dir.dentry, *old_name, old_slash),
        side(new_dir.dentry, *walk.name(), new_slash),
    ))
}

impl<'g> Side<'g> {
    /// Finds the dentry of the name, without a lock, and its sequence count while it had the name.
    fn find(&self, guard: &'g Guard) -> Option<(&'g Dentry, u32)> {
        self.dir.find(&self.name, guard)
    }
}

/// The dentries of the two names, each with its sequence count while it had that name.
struct Names<'g> {
    source: (&'g Dentry, u32),
    target: Option<(&'g Dentry, u32)>,
}

impl<'g> Names<'g> {
    /// Returns whether one of the dentries lost its name since the lookup.
    fn have_moved(&self) -> bool {
        let moved = |(dentry, seq): (&Dentry, u32)| !dentry.has_same_name(seq);
        moved(self.source) || self.target.is_some_and(moved)
    }

    /// Returns whether both still have their names, and the new name is still free if it was.
    fn are_still(&self, new: &Side<'g>, guard: &'g Guard) -> bool {
        !self.have_moved() && (self.target.is_some() || new.find(guard).is_none())
    }
}

/// Returns whether both are names of one file, in which case a rename does nothing.
fn is_same_file(source: &Dentry, target: Option<&Dentry>) -> bool {
    target.is_some_and(|target| std::ptr::eq(target.inode(), source.inode()))
}

impl<'g> RenameCall<'g> {
    fn exchanges(&self) -> bool {
        self.flags.contains(RenameFlags::EXCHANGE)
    }

    fn same_dir(&self) -> bool {
        std::ptr::eq(self.old.dir, self.new.dir)
    }

    /// Renames, or returns [`Fail::Retry`] if the walks must be repeated.
    fn run(&self) -> std::result::Result<(), Fail> {
        match self.attempt()? {
            None => Ok(()),
            Some(target) => {
                self.tree.detach_elsewhere(target, self.guard)?;
                Err(Fail::Retry)
            }
        }
    }

    /// Returns whether one of the two is a mountpoint in this tree.
    fn is_busy(&self, source: &Dentry, target: Option<&Dentry>) -> bool {
        let local = |d: &Dentry| d.is_mounted() && self.tree.has_mountpoint(d, self.guard);
        local(source) || target.is_some_and(local)
    }

    /// Checks a rename in directories of a backed driver, and defers it to the driver.
    #[cold]
    fn defer_names(
        &self,
        walk: &Walk<'g>,
        old_dir: WalkPos<'g>,
        write: WriteAccess<'g>,
    ) -> std::result::Result<(), Fail> {
        let new_dir = walk.cur();
        let source = walk.find_backed(old_dir, &self.old.name)?;
        if source.is_negative() || new_dir.inode().is_dead() {
            return Err(Errno::NOENT.into());
        }
        check_length(new_dir.inode(), self.new.name.len())?;
        let found = walk.find_backed(new_dir, &self.new.name)?;
        let target = (!found.is_negative()).then_some(found);
        self.check(source, target, self.is_busy(source, target), &mut Climb::new())?;
        if is_same_file(source, target) {
            return Ok(());
        }
        let old = walk.keep_name(old_dir, &self.old.name, source)?;
        let new = walk.keep_name(new_dir, &self.new.name, found)?;
        let write = write.keep(new.dir().mount_ref());
        Err(DriverChange::Names(old, new, write).into())
    }

    /// Moves dentries after the driver renamed: `source` moves to the new name. `found`, the dentry
    /// of that name, moves to the old one in an exchange; otherwise it is negative or its file was
    /// removed, and it leaves the table. The names are locked.
    fn move_backed(&self, source: &'g Dentry, found: &'g Dentry) {
        let one = |side: &Side<'g>| LockReq::One(side.dir.children(), side.name.hash());
        let mut locks = self.new.dir.lock_names([one(&self.old), one(&self.new)], self.guard);
        let is_at = |locks: &Locks<'g, 2>, i: usize, dentry: &Dentry| {
            locks.find(i, dentry.hash(), |child| std::ptr::eq(child, dentry)).is_some()
        };
        let found_there = is_at(&locks, 1, found);
        let lost = self.new.dir.is_unhashed()
            || !is_at(&locks, 0, source)
            || (self.exchanges() && !found_there);
        if lost {
            // The dcache dropped one of the directories during the rename. The next walk looks the
            // names up again.
            drop(locks);
            for dentry in [source, found] {
                detach(dentry, self.guard);
            }
            return;
        }
        let mut removed = None;
        if self.exchanges() {
            self.exchange(&mut locks, source, found);
        } else {
            removed = self.replace(&mut locks, source, found_there.then_some(found), |_| {});
        }
        locks.settle();
        drop(locks);
        if let Some(removed) = removed {
            dentry::finish_removal(removed, self.guard);
        }
    }

    /// Looks both names up, decides whether the rename changes anything and which locks it needs,
    /// takes them, and checks that both names still have those dentries. Returns a dentry that the
    /// rename would replace but that is a mountpoint in another tree: the caller must detach that
    /// mount first.
    fn attempt(&self) -> std::result::Result<Option<&'g Dentry>, Fail> {
        let guard = self.guard;
        let (source, seq) = self.old.find(guard).ok_or(Errno::NOENT)?;
        // A lookup in a removed directory finds no name, so this precedes all other rules.
        if self.new.dir.inode().is_dead() {
            return Err(Errno::NOENT.into());
        }
        check_length(self.new.dir.inode(), self.new.name.len())?;
        let found = self.new.find(guard);
        let target = found.map(|(target, _)| target);
        let names = Names { source: (source, seq), target: found };
        let moves_dir = source.inode().is_dir()
            || (self.exchanges() && target.is_some_and(|t| t.inode().is_dir()));
        let moves_away = moves_dir && !self.same_dir();
        if !self.is_to_do(&names)? {
            return Ok(None);
        }
        let _turn = if moves_away { Some(self.turn(source, target)?) } else { None };
        let one = |side: &Side<'g>| LockReq::One(side.dir.children(), side.name.hash());
        let (old, new) = (one(&self.old), one(&self.new));
        match self.replaced(target) {
            Some(dir) => self.change([old, new, LockReq::All(dir.children())], &names),
            None => self.change([old, new], &names),
        }
    }

    /// Completes an attempt: locks the two names, and all names in the directory that is replaced,
    /// if any, by a third request.
    fn change<const N: usize>(
        &self,
        reqs: [LockReq<'g, Dentry, Children>; N],
        names: &Names<'g>,
    ) -> std::result::Result<Option<&'g Dentry>, Fail> {
        let (source, target) = (names.source.0, names.target.map(|(target, _)| target));
        let mut whiteout;
        // A block, because a call of `drop` would copy the locks.
        let (removed, inserted) = {
            let mut locks = self.new.dir.lock_names(reqs, self.guard);
            self.locked(&locks, names)?;
            if N > 2 && !locks.is_empty(2) {
                return Err(Errno::NOTEMPTY.into());
            }
            if let Some(target) = target.filter(|target| !self.exchanges() && target.is_mounted()) {
                return Ok(Some(target));
            }
            whiteout = self.make_whiteout()?;
            let applied = self.apply(&mut locks, source, target, &mut whiteout);
            let applied = applied.inspect_err(|_| {
                whiteout.iter().for_each(|inode| self.unmake_whiteout(inode));
            })?;
            if source.sb().watches().is_watched() {
                self.report(source, target);
            }
            applied
        };
        drop(inserted);
        let now = time::now();
        source.inode().touch_ctime_at(now);
        if let Some(target) = target.filter(|_| self.exchanges()) {
            target.inode().touch_ctime_at(now);
        }
        self.old.dir.inode().touch_at(now);
        if !self.same_dir() {
            self.new.dir.inode().touch_at(now);
        }
        if let Some(removed) = removed {
            dentry::finish_removal(removed, self.guard);
        }
        Ok(None)
    }

    /// Returns the directory that is replaced, if any.
    fn replaced(&self, target: Option<&'g Dentry>) -> Option<&'g Dentry> {
        target.filter(|t| !self.exchanges() && t.inode().is_dir())
    }

    /// Checks before any lock whether the rename is allowed, and returns whether it changes
    /// anything. See the [module](self).
    fn is_to_do(&self, names: &Names<'g>) -> std::result::Result<bool, Fail> {
        let (source, target) = (names.source.0, names.target.map(|(target, _)| target));
        let mut ancestors = Climb::new();
        // Before any lock; a mount that is added later moves along with the name.
        let busy = self.is_busy(source, target);
        let mut checked = self.check(source, target, busy, &mut ancestors);
        let same = is_same_file(source, target);
        let full = |dir: &Dentry| !same && !dir.children().is_empty();
        if checked.is_ok() && self.replaced(target).is_some_and(full) {
            checked = Err(Errno::NOTEMPTY);
        }
        if checked.is_ok() && !same {
            return Ok(true);
        }
        if ancestors.has_changed() || !names.are_still(&self.new, self.guard) {
            return Err(Fail::Retry);
        }
        Ok(checked.map(|()| false)?)
    }

    /// Acquires the right to move whichever of the two is a directory to the other parent. May
    /// wait.
    fn turn(
        &self,
        source: &'g Dentry,
        target: Option<&'g Dentry>,
    ) -> std::result::Result<MoveRight<'g>, Fail> {
        let moves = self.ns.directory_move();
        // In the kernel every move is exclusive.
        if self.ns.scaling().dir_moves() {
            let lock = moves.read();
            if let Some(marks) = self.mark(source, target) {
                return Ok(MoveRight::Concurrent { _marks: marks, _lock: lock });
            }
        }
        let lock = moves.write();
        if self.check_loops(source, target, &mut Climb::new()).is_err() {
            // Another thread just moved a directory; a repeated walk finds the error.
            return Err(Fail::Retry);
        }
        Ok(MoveRight::Exclusive { _lock: lock })
    }

    /// Marks whichever of the two is a directory and moves. Returns `None` if another thread is
    /// about to move it or an ancestor of its new parent.
    fn mark(
        &self,
        source: &'g Dentry,
        target: Option<&'g Dentry>,
    ) -> Option<[Option<Moving<'g>>; 2]> {
        let swapped = target.filter(|_| self.exchanges());
        let moves = [(Some(source), self.new.dir), (swapped, self.old.dir)];
        let moves = moves.map(|(dentry, to)| (dentry.filter(|d| d.inode().is_dir()), to));
        let mut marks = [None, None];
        for (mark, (dentry, _)) in marks.iter_mut().zip(moves) {
            if let Some(dentry) = dentry {
                *mark = Some(Moving::new(dentry)?);
            }
        }
        fence(Ordering::SeqCst);
        let free = moves.iter().all(|(dentry, to)| dentry.is_none() || stays(to, self.guard));
        free.then_some(marks)
    }

    /// Checks, with the locks held, that the names are still those found and checked before.
    fn locked<const N: usize>(
        &self,
        locks: &Locks<'g, N>,
        names: &Names<'g>,
    ) -> std::result::Result<(), Fail> {
        let is_named = |child: &Dentry| child.is_named(&self.new.name, self.guard);
        let came = || locks.find(1, self.new.name.hash(), is_named).is_some();
        if names.have_moved() || (names.target.is_none() && came()) {
            return Err(Fail::Retry);
        }
        // A directory that holds a name is not dead, but an empty one may have been removed.
        if names.target.is_none() && self.new.dir.inode().is_dead() {
            return Err(Errno::NOENT.into());
        }
        Ok(())
    }

    /// Makes the change, after all checks, and takes the `whiteout`. After it releases the locks,
    /// the caller [finishes](dentry::finish_removal) the returned removal, and drops the returned
    /// dentry of the whiteout.
    fn apply<const N: usize>(
        &self,
        locks: &mut Locks<'g, N>,
        source: &'g Dentry,
        target: Option<&'g Dentry>,
        whiteout: &mut Option<InodeRef>,
    ) -> std::result::Result<(Option<Removed<'g>>, Option<DentryRef>), Fail> {
        // An exchange of names needs no additional space.
        let (old_len, new_len) = (self.old.name.len(), self.new.name.len());
        let resizes = old_len != new_len && !self.exchanges();
        let fs = source.sb().accounting();
        if resizes {
            fs.renamed(source.inode(), old_len, new_len)?;
        }
        if let Err(errno) = self.move_links(source, target) {
            if resizes {
                // Uncharges the new name by charging the old one.
                let _ = fs.renamed(source.inode(), new_len, old_len);
            }
            return Err(errno.into());
        }
        let count_out = |inode: &Inode| {
            if inode.is_dir() {
                mark_directory_dead(inode);
            } else {
                inode.unlink();
                inode.touch_ctime();
            }
            fs.unlinked(inode, new_len);
        };
        let mut removed = None;
        match target {
            Some(target) if self.exchanges() => self.exchange(locks, source, target),
            other => removed = self.replace(locks, source, other, count_out),
        }
        let inserted = whiteout.take().map(|inode| self.insert_whiteout(locks, inode));
        locks.settle();
        Ok((removed, inserted))
    }

    /// Reports the rename to watchers, before another thread can change one of the two names.
    #[cold]
    #[inline(never)]
    fn report(&self, source: &Dentry, target: Option<&Dentry>) {
        let place = |side: &Side<'g>| Place { dir: side.dir, name: side.name.bytes() };
        let places = [place(&self.old), place(&self.new)];
        let target = target.map(Dentry::inode);
        match target {
            Some(other) if self.exchanges() => {
                fsnotify::exchanged(places, [source.inode(), other], self.guard);
            }
            _ => fsnotify::renamed(places, source.inode(), target, self.guard),
        }
    }

    /// Adjusts the link counts of the two directories, which the `..` of directories count in.
    fn move_links(&self, source: &Dentry, target: Option<&Dentry>) -> Outcome<()> {
        let (old_dir, new_dir) = (self.old.dir, self.new.dir);
        let source_dir = source.inode().is_dir();
        let target_dir = target.is_some_and(|t| t.inode().is_dir());
        if self.exchanges() {
            if !self.same_dir() && source_dir != target_dir {
                let (gains, loses) =
                    if source_dir { (new_dir, old_dir) } else { (old_dir, new_dir) };
                gains.link_directory()?;
                loses.unlink_directory();
            }
        } else if source_dir {
            if target_dir {
                old_dir.unlink_directory();
            } else if !self.same_dir() {
                new_dir.link_directory()?;
                old_dir.unlink_directory();
            }
        }
        Ok(())
    }

    /// Enters the write sections of the dentries that move. For directories, first waits until no
    /// reader prevents moves of directories.
    fn enter<S>(
        &self,
        moves_dir: bool,
        sections: impl Fn() -> S,
    ) -> (Option<SeqRwWriteGuard<'g, RenameLock>>, S) {
        if moves_dir { self.ns.rename_lock().write_part(sections) } else { (None, sections()) }
    }

    /// Moves `source` to the new name and replaces `target`, whose name `count_out` subtracts from
    /// its inode's count.
    fn replace<const N: usize>(
        &self,
        locks: &mut Locks<'g, N>,
        source: &'g Dentry,
        target: Option<&'g Dentry>,
        count_out: impl FnOnce(&Inode),
    ) -> Option<Removed<'g>> {
        let (_names, section) = self.enter(source.inode().is_dir(), || source.seq().write());
        locks.announce([0, 1]);
        let removed = target.map(|target| {
            locks.remove(1, target);
            target.set_removed(self.new.dir, || count_out(target.inode()), self.guard)
        });
        locks.remove(0, source);
        let hash = locks.free_hash(1, self.new.name.hash());
        let name = (self.old.name != self.new.name).then_some(self.new.name.bytes());
        source.set_moved(&section, self.new.dir, name, hash, self.guard);
        locks.insert_moved(1, source);
        removed
    }

    /// Exchanges the names and parents of the two dentries.
    fn exchange<const N: usize>(
        &self,
        locks: &mut Locks<'g, N>,
        source: &'g Dentry,
        target: &'g Dentry,
    ) {
        let (old, new) = (&self.old, &self.new);
        let moves_dir = source.inode().is_dir() || target.inode().is_dir();
        let sections = || (source.seq().write(), target.seq().write());
        let (_names, (source_section, target_section)) = self.enter(moves_dir, sections);
        locks.announce([0, 1]);
        let (source_hash, target_hash) = (target.hash(), source.hash());
        locks.remove(0, source);
        locks.remove(1, target);
        let name = |to: &Side<'g>| (old.name != new.name).then_some(to.name.bytes());
        let (source_name, target_name) = (name(new), name(old));
        source.set_moved(&source_section, new.dir, source_name, source_hash, self.guard);
        target.set_moved(&target_section, old.dir, target_name, target_hash, self.guard);
        locks.insert_moved(1, source);
        locks.insert_moved(0, target);
    }
}
