//! File handles: files by inode instead of by name, as `name_to_handle_at(2)`.

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::base::types::{AtFlags, Capabilities, OFlags};
use crate::file::open_file::File;
use crate::namei::lookup::look_up;
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::dcache::name::Name;
use crate::objects::driver::{DirOps, ParentName};
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;
use crate::objects::vfsmount::Path;
use crate::syscalls::posix::Calls;
use crate::task::task_struct::{At, bytes, lookup_flags};

/// The greatest depth of a directory. A longer chain of parents is a loop, and a bug of the driver.
const DEPTH_MAX: usize = 1 << 20;
/// The number of attempts to open the handle of a directory that moves, or leaves the dcache, each
/// time.
const TRIES_MAX: usize = 100;

/// The identity of an inode of one mounted file system, independent of its names.
///
/// ```
/// # use vfscale_vfs::{At, AtFlags, OFlags};
/// # fn example(task: &vfscale_vfs::Task) -> vfscale_vfs::Result<()> {
/// let handle = task.posix().name_to_handle_at(At::Cwd, "/f", AtFlags::empty())?;
/// let root = task.open("/")?;
/// let file = task.posix().open_by_handle_at(&root, &handle, OFlags::RDONLY)?;
/// # let _ = file;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// The device number of the superblock.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// The number of earlier inodes with this number.
    pub generation: u32,
}

impl Calls<'_> {
    /// Returns the handle of `path`. `flags`: `SYMLINK_FOLLOW`, `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `name_to_handle_at(2)`; `EOPNOTSUPP` for a file outside the tree, such as a pipe.
    pub fn name_to_handle_at(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        flags: AtFlags,
    ) -> Result<FileHandle> {
        let path = path.as_ref();
        let handle = || {
            let lookup = lookup_flags(flags, false, AtFlags::SYMLINK_FOLLOW)?;
            let place = self.task.resolve(at, bytes(path), lookup)?;
            let guard = rcu::pin();
            if place.dentry().is_pseudo() {
                return Err(Errno::OPNOTSUPP);
            }
            let inode = place.dentry().inode();
            inode.sb().hash_inode(inode, &guard);
            let (ino, generation) = (inode.ino(), inode.generation());
            Ok(FileHandle { dev: inode.sb().dev(), ino, generation })
        };
        handle().on("name_to_handle_at", path)
    }

    /// Opens the file that `handle` names, in the file system that `mount` is on.
    ///
    /// # Errors
    /// `EPERM` without `CAP_DAC_READ_SEARCH`; `ESTALE` if the file no longer exists or is of
    /// another file system; otherwise as `open(2)`.
    pub fn open_by_handle_at(
        &self,
        mount: &File,
        handle: &FileHandle,
        flags: OFlags,
    ) -> Result<File> {
        let find = || {
            check_fork()?;
            if mount.is_path() {
                return Err(Errno::BADF);
            }
            if !self.task.cred(&rcu::pin()).has(Capabilities::DAC_READ_SEARCH) {
                return Err(Errno::PERM);
            }
            let place = mount.path();
            if place.mount().sb().dev() != handle.dev {
                return Err(Errno::STALE);
            }
            let dentry = match known(place.mount().sb(), handle) {
                Some(dentry) => dentry,
                None => find_dentry(place, handle)?,
            };
            Ok(Path::new(place.mount_ref(), dentry))
        };
        let path = find().named("open_by_handle_at")?;
        self.task.open_place(path, flags, true).named("open_by_handle_at")
    }
}

/// Finds the dentry of a handle whose file has a cached name. Takes no reference to the inode, so
/// opens of a popular file contend only for its dentry.
fn known(sb: &SuperBlock, handle: &FileHandle) -> Option<DentryRef> {
    let guard = rcu::pin();
    let inode = sb.peek_inode(handle.ino, &guard)?;
    if inode.generation() == handle.generation { Dentry::named(inode, &guard) } else { None }
}

/// Finds or makes a dentry for the file of a handle, if none with a name is cached.
fn find_dentry(place: &Path, handle: &FileHandle) -> Outcome<DentryRef> {
    let sb = place.mount().sb();
    let inode = find_inode(sb, handle)?;
    if inode.is_dir()
        && let Some(directories) = sb.dir_ops()
    {
        return connect(place, directories, &inode);
    }
    Dentry::for_inode(inode, sb.root(), &rcu::pin()).ok_or(Errno::STALE)
}

/// Finds the inode of a handle: one in use, or one that the driver finds by its number.
fn find_inode(sb: &SuperBlock, handle: &FileHandle) -> Outcome<InodeRef> {
    let cached = sb.find_inode(handle.ino, &rcu::pin());
    let inode = match (cached, sb.dir_ops()) {
        (Some(inode), _) => inode,
        (None, Some(directories)) => {
            directories.inode(sb, handle.ino, handle.generation)?.ok_or(Errno::STALE)?
        }
        (None, None) => return Err(Errno::STALE),
    };
    // A file without names exists until its last open file is closed.
    if inode.generation() == handle.generation { Ok(inode) } else { Err(Errno::STALE) }
}

/// Returns the dentry of a directory of the file system of `place`, and connects it to the tree if
/// it is not cached there. The caller holds nothing.
fn connect(place: &Path, directories: &dyn DirOps, dir: &InodeRef) -> Outcome<DentryRef> {
    for _ in 0..TRIES_MAX {
        if let Some(dentry) = try_connect(place, directories, dir)? {
            return Ok(dentry);
        }
    }
    Err(Errno::STALE)
}

/// Climbs up by the parents that the driver reports to a directory with a dentry, and looks the
/// names up from there. Holds each dentry of that descent, so it cannot leave the dcache before the
/// next one is in it. Returns `None` if a dentry moved, or left the dcache before it could be held.
fn try_connect(
    place: &Path,
    directories: &dyn DirOps,
    dir: &InodeRef,
) -> Outcome<Option<DentryRef>> {
    let sb = place.mount().sb();
    let connected = |inode: &Inode| {
        let guard = rcu::pin();
        let is_root = std::ptr::eq(inode, sb.root().inode());
        if is_root { sb.root().try_ref(&guard) } else { Dentry::named(inode, &guard) }
    };
    let (mut below, mut top) = (Vec::new(), dir.clone());
    let mut dentry = loop {
        if let Some(dentry) = connected(&top) {
            break dentry;
        }
        if below.len() > DEPTH_MAX {
            return Err(Errno::STALE);
        }
        let ParentName { parent, name } = directories.parent(&top)?.ok_or(Errno::STALE)?;
        below.push((std::mem::replace(&mut top, parent), name));
    };
    for (inode, name) in below.iter().rev() {
        let name = Name::new(name);
        look_up(&dentry, &name)?;
        let Some(next) = connected(inode) else {
            // Waits for a thread that may be removing the dentry from the directory's table under
            // this lock.
            let guard = rcu::pin();
            drop(dentry.children().lock(name.hash(), &guard));
            return Ok(None);
        };
        dentry = next;
    }
    Ok(Some(dentry))
}
