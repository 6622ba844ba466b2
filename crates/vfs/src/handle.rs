//! File handles: files by inode instead of by name, as `name_to_handle_at(2)`.

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::dentry::{Dentry, DentryRef};
use crate::driver::ParentName;
use crate::error::{Named, Result};
use crate::file::File;
use crate::inode::{Inode, InodeRef};
use crate::lookup::Missing;
use crate::mount::Path;
use crate::super_block::SuperBlock;
use crate::task::{At, Task, bytes, lookup_flags};
use crate::types::{AtFlags, Capabilities, OFlags};

/// More directories than this above one another are a driver's mistake, and a loop.
const DEPTH_MAX: usize = 1 << 20;

/// Names an inode of one mounted file system, whatever its names become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// The device number of the superblock.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// How often the number was used before.
    pub generation: u32,
}

impl Task {
    /// The handle of `path`. `flags`: `SYMLINK_FOLLOW`, `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `name_to_handle_at(2)`; `EOPNOTSUPP` for what has no place in the tree, such as a pipe.
    pub fn name_to_handle(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        flags: AtFlags,
    ) -> Result<FileHandle> {
        let path = path.as_ref();
        let handle = || {
            let lookup = lookup_flags(flags, false, AtFlags::SYMLINK_FOLLOW)?;
            let place = self.resolve(at, bytes(path), lookup)?;
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
    /// `EPERM` without `CAP_DAC_READ_SEARCH`; `ESTALE` if the file is gone or of another file
    /// system; otherwise as `open(2)`.
    pub fn open_by_handle(&self, mount: &File, handle: &FileHandle, flags: OFlags) -> Result<File> {
        let find = || {
            if mount.is_path() {
                return Err(Errno::BADF);
            }
            if !self.cred(&rcu::pin()).has(Capabilities::DAC_READ_SEARCH) {
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
        self.open_place(path, flags, true).named("open_by_handle_at")
    }
}

/// The dentry of a handle whose file the dcache has by name. Counts no reference to the inode, so that files
/// which everybody opens are dentries that everybody uses, and no more.
fn known(sb: &SuperBlock, handle: &FileHandle) -> Option<DentryRef> {
    let guard = rcu::pin();
    let inode = sb.peek_inode(handle.ino, &guard)?;
    if inode.generation() == handle.generation { Dentry::named(inode, &guard) } else { None }
}

/// A dentry for the file of a handle that has none with a name.
fn find_dentry(place: &Path, handle: &FileHandle) -> std::result::Result<DentryRef, Errno> {
    let sb = place.mount().sb();
    let inode = find_inode(sb, handle)?;
    if inode.is_dir() {
        connect(place, &inode)?;
    }
    Dentry::for_inode(inode, sb.root(), &rcu::pin()).ok_or(Errno::STALE)
}

/// The inode of a handle: one that is in use, or whose driver knows it by its number.
fn find_inode(sb: &SuperBlock, handle: &FileHandle) -> std::result::Result<InodeRef, Errno> {
    let cached = sb.find_inode(handle.ino, &rcu::pin());
    let inode = match (cached, sb.fs().directories()) {
        (Some(inode), _) => inode,
        (None, Some(directories)) => {
            directories.inode(sb, handle.ino, handle.generation)?.ok_or(Errno::STALE)?
        }
        (None, None) => return Err(Errno::STALE),
    };
    // A file without names is there for as long as somebody has it open.
    if inode.generation() == handle.generation { Ok(inode) } else { Err(Errno::STALE) }
}

/// Sees to it that a directory of `place`'s file system has its dentry in the tree: climbs up by what the
/// driver says until there is one, and looks the names up from there. The caller holds nothing.
fn connect(place: &Path, dir: &InodeRef) -> std::result::Result<(), Errno> {
    let sb = place.mount().sb();
    let Some(directories) = sb.fs().directories() else { return Ok(()) };
    let is_connected = |inode: &Inode| {
        std::ptr::eq(inode, sb.root().inode()) || Dentry::of_dir(inode, &rcu::pin()).is_some()
    };
    let mut above = vec![(dir.clone(), Box::default())];
    while let Some((top, _)) = above.last()
        && !is_connected(top)
    {
        let ParentName { parent, name } = directories.parent(top)?.ok_or(Errno::STALE)?;
        if above.len() > DEPTH_MAX {
            return Err(Errno::STALE);
        }
        above.push((parent, name));
    }
    // Each directory, and the name of the one below it.
    for (dir, name) in above.iter().skip(1).rev() {
        let dentry = {
            let guard = rcu::pin();
            Dentry::for_inode(dir.clone(), sb.root(), &guard).ok_or(Errno::STALE)?
        };
        Missing::new(Path::new(place.mount_ref(), dentry), name).look_up()?;
    }
    if is_connected(dir) { Ok(()) } else { Err(Errno::STALE) }
}
