//! Reports of changes to those who watch for them. Counterpart of `fsnotify` in Linux, with events
//! like those of `inotify(7)`.
//!
//! An inode that is watched carries [marks](marks), each of which leads to the [queue](queue) of a
//! [`Watcher`](crate::Watcher). A call that has changed something reports it here. The report looks
//! for marks at the file itself, at its directory, and, if a watcher watches a whole tree, at every
//! directory above that.
//!
//! # Costs
//!
//! A superblock counts its marks, and the trees that are watched in it. While there is no mark, a
//! change reads that count, on a line that every call reads anyway, and writes nothing. With marks,
//! a change looks at its own directory, and climbs to the root only if a tree is watched.
//!
//! # Order
//!
//! A change of a name is reported before the lock of that name is released (the lock of its bucket,
//! or of the name itself for a backed driver), so events about one name are in the order of the
//! changes. Events about different names that change concurrently have no order. All other changes
//! are reported after their locks are released, by the thread that made them, before the call
//! returns.
//!
//! # Locks
//!
//! A report may hold the locks of names. It reads marks and names under RCU and takes no lock but
//! that of a queue, which ranks above all locks that callers hold. Like any reader of names, it
//! waits while the count of a dentry is odd; so no report is made within such a section, whose end
//! another report may wait for.

pub(crate) mod marks;
pub(crate) mod queue;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_sync::rcu::{self, Guard};

use crate::objects::dcache::climb::{Climb, name_and_parent};
use crate::objects::dcache::dentry::Dentry;
use crate::objects::fsnotify::marks::Mark;
use crate::objects::fsnotify::queue::{FileChange, WatchEvent};
use crate::objects::inode::Inode;

/// The number of attempts to read the path of a file at one moment. After them, a report has the
/// names as they were read, each of which was right at some moment.
const ATTEMPTS: u32 = 3;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct Place<'g> {
    pub(crate) dir: &'g Dentry,
    pub(crate) name: &'g [u8],
}

/// A mark that a change concerns, and the path of the file from there.
struct Concerned {
    mark: Arc<Mark>,
    path: PathBuf,
}

impl Concerned {
    fn tell(self, inode: &Inode, change: FileChange) {
        let Concerned { mark, path } = self;
        mark.queue.push(WatchEvent { watch: mark.id, path, file_type: inode.file_type(), change });
    }

    /// Reports that a file has left the path, to a place that is not watched, and that another has
    /// come from there.
    fn tell_swap(self, gone: &Inode, come: &Inode) {
        let out = Concerned { mark: self.mark.clone(), path: self.path.clone() };
        out.tell(gone, FileChange::MovedOut);
        self.tell(come, FileChange::MovedIn);
    }
}

/// Returns the marks of an inode.
fn marks<'g>(inode: &'g Inode, guard: &'g Guard) -> &'g [Arc<Mark>] {
    inode.extra(guard).map_or(&[], |extra| extra.marks.read(guard))
}

/// Adds a mark to an inode. The caller holds a reference to the inode until it removes the mark,
/// and no lock.
pub(crate) fn add_mark(inode: &Inode, mark: Arc<Mark>, guard: &Guard) {
    inode.sb().watches().count_in(&mark);
    inode.extra_or_init(guard).marks.change(|list| list.push(mark), guard);
}

/// Removes a mark that was added. The caller holds no lock.
pub(crate) fn remove_mark(inode: &Inode, mark: &Arc<Mark>, guard: &Guard) {
    if let Some(extra) = inode.extra(guard) {
        extra.marks.change(|list| list.retain(|other| !Arc::ptr_eq(other, mark)), guard);
    }
    inode.sb().watches().count_out(mark);
}

/// Reports a new name of `inode`, before another thread can change it.
#[inline]
pub(crate) fn name_made(at: Place<'_>, inode: &Inode, guard: &Guard) {
    if at.dir.sb().watches().is_watched() {
        tell_places(at, inode, &FileChange::Created, guard);
    }
}

/// Reports that `inode` has lost a name, before another thread can make it again.
#[inline]
pub(crate) fn name_removed(at: Place<'_>, inode: &Inode, guard: &Guard) {
    if at.dir.sb().watches().is_watched() {
        tell_removed(at, inode, guard);
    }
}

/// Reports a change of the file with the name `dentry`, other than of its names. The caller holds
/// no lock that ranks above those of inodes.
#[inline]
pub(crate) fn changed(dentry: &Dentry, change: &FileChange) {
    if dentry.sb().watches().is_watched() {
        tell_changed(dentry, change);
    }
}

#[cold]
fn tell_changed(dentry: &Dentry, change: &FileChange) {
    let guard = rcu::pin();
    let inode = dentry.inode();
    tell_self(inode, change, &guard);
    // A file without a name is in no directory.
    if dentry.is_root() || dentry.is_unhashed() {
        return;
    }
    let (name, dir, _) = name_and_parent(dentry, &guard);
    tell_places(Place { dir, name }, inode, change, &guard);
}

#[cold]
fn tell_removed(at: Place<'_>, inode: &Inode, guard: &Guard) {
    tell_places(at, inode, &FileChange::Removed, guard);
    tell_self(inode, &FileChange::Removed, guard);
}

/// Reports a change to the marks of the file itself.
#[cold]
fn tell_self(inode: &Inode, change: &FileChange, guard: &Guard) {
    for mark in marks(inode, guard) {
        let it = Concerned { mark: mark.clone(), path: PathBuf::new() };
        it.tell(inode, change.clone());
    }
}

/// Reports a change to the marks of the directory and of the trees that the name is in.
#[cold]
fn tell_places(at: Place<'_>, inode: &Inode, change: &FileChange, guard: &Guard) {
    concerned(at, guard).into_iter().for_each(|it| it.tell(inode, change.clone()));
}

/// Reports a rename of `inode`, which may have replaced a file, before another thread can change
/// one of the two names. Called only if the superblock is watched.
#[cold]
pub(crate) fn renamed(
    [from, to]: [Place<'_>; 2],
    inode: &Inode,
    replaced: Option<&Inode>,
    guard: &Guard,
) {
    let mut left = concerned(from, guard);
    for new in concerned(to, guard) {
        match take_same(&mut left, &new.mark) {
            Some(from) => new.tell(inode, FileChange::Renamed { from }),
            None => new.tell(inode, FileChange::MovedIn),
        }
    }
    left.into_iter().for_each(|old| old.tell(inode, FileChange::MovedOut));
    tell_self(inode, &FileChange::MovedOut, guard);
    if let Some(replaced) = replaced {
        tell_self(replaced, &FileChange::Removed, guard);
    }
}

/// Reports that `first` has moved from the first place to the second, and `second` back. The caller
/// does as for [`renamed`].
#[cold]
pub(crate) fn exchanged([from, to]: [Place<'_>; 2], [first, second]: [&Inode; 2], guard: &Guard) {
    let mut left = concerned(from, guard);
    for new in concerned(to, guard) {
        match take_same(&mut left, &new.mark) {
            Some(with) => new.tell(first, FileChange::Exchanged { with }),
            None => new.tell_swap(second, first),
        }
    }
    left.into_iter().for_each(|old| old.tell_swap(first, second));
    tell_self(first, &FileChange::MovedOut, guard);
    tell_self(second, &FileChange::MovedOut, guard);
}

/// Removes the entry of a mark, and returns its path.
fn take_same(concerned: &mut SmallVec<[Concerned; 2]>, mark: &Arc<Mark>) -> Option<PathBuf> {
    let i = concerned.iter().position(|it| Arc::ptr_eq(&it.mark, mark))?;
    Some(concerned.swap_remove(i).path)
}

/// Returns the marks of the directory, and of the trees that it is in.
#[cold]
fn concerned(at: Place<'_>, guard: &Guard) -> SmallVec<[Concerned; 2]> {
    let mut climb = Climb::new();
    let mut top = at.dir;
    if at.dir.sb().watches().has_trees() {
        for _ in 0..ATTEMPTS {
            climb = Climb::new();
            top = climb.climb(at.dir, |_| false, guard);
            if !climb.has_changed() {
                break;
            }
        }
    }
    let mut found = SmallVec::new();
    let dirs = climb.0.iter().map(|step| step.dentry).chain([top]);
    for (depth, dir) in dirs.enumerate() {
        for mark in marks(dir.inode(), guard) {
            if depth == 0 || mark.is_tree {
                let names = climb.0[..depth].iter().rev().map(|step| step.name).chain([at.name]);
                found.push(Concerned { mark: mark.clone(), path: path_of(names) });
            }
        }
    }
    found
}

fn path_of<'a>(names: impl Iterator<Item = &'a [u8]>) -> PathBuf {
    let mut path = Vec::new();
    for name in names {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    PathBuf::from(OsString::from_vec(path))
}
