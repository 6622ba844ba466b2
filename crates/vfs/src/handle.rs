//! File handles: files by inode instead of by name, as `name_to_handle_at(2)`.

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::dentry::Dentry;
use crate::error::{Named, Result};
use crate::file::File;
use crate::mount::Path;
use crate::task::{At, Task, bytes, lookup_flags};
use crate::types::{AtFlags, Capabilities, OFlags};

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
            let guard = rcu::pin();
            if !self.cred(&guard).has(Capabilities::DAC_READ_SEARCH) {
                return Err(Errno::PERM);
            }
            let place = mount.path();
            let sb = place.mount().sb();
            if sb.dev() != handle.dev {
                return Err(Errno::STALE);
            }
            let inode = sb.find_inode(handle.ino, &guard).ok_or(Errno::STALE)?;
            // A file without names is there for as long as somebody has it open.
            if inode.generation() != handle.generation {
                return Err(Errno::STALE);
            }
            let dentry = Dentry::for_inode(inode, sb.root(), &guard).ok_or(Errno::STALE)?;
            Ok(Path::new(place.mount_ref(), dentry))
        };
        let path = find().named("open_by_handle_at")?;
        self.open_place(path, flags, true).named("open_by_handle_at")
    }
}
