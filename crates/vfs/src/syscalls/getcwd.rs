//! Paths of the working directory and of open files: `getcwd(2)`, and `readlink` of a descriptor.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Result, check_fork};
use crate::file::open_file::File;
use crate::mount::d_path::{Top, stable_path};
use crate::namei::walk::Lookup;
use crate::namei::walk::PATH_MAX;
use crate::syscalls::posix::Calls;
use crate::task::task_struct::{At, bytes};
use std::path::Path as StdPath;

impl Calls<'_> {
    /// Makes `path` the working directory.
    ///
    /// # Errors
    /// The errors of a walk; `ENOTDIR`, `EACCES` if it may not be searched.
    pub fn chdir(&self, path: impl AsRef<StdPath>) -> Result<()> {
        let path = path.as_ref();
        self.task.change_dir(At::Cwd, bytes(path), Lookup::empty()).on("chdir", path)
    }

    /// Makes an open directory the working directory.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`.
    pub fn fchdir(&self, dir: &File) -> Result<()> {
        self.task.change_dir(At::File(dir), b"", Lookup::EMPTY).named("fchdir")
    }

    /// Makes `path` the root of the task. The working directory stays, and may be outside of it;
    /// [`Vfs::task_in`](crate::Vfs::task_in) makes a task that is inside.
    ///
    /// # Errors
    /// The errors of a walk; `ENOTDIR`, `EACCES`; `EPERM` without `CAP_SYS_CHROOT`.
    pub fn chroot(&self, path: impl AsRef<StdPath>) -> Result<()> {
        let path = path.as_ref();
        self.task.change_root(bytes(path)).on("chroot", path)
    }

    /// Returns the path of the working directory.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed, `ENAMETOOLONG`. The path of a directory that cannot
    /// be reached from the root begins with `(unreachable)`.
    pub fn getcwd(&self) -> Result<PathBuf> {
        let getcwd = || {
            check_fork()?;
            let guard = rcu::pin();
            let fs = self.task.fs(&guard);
            let told = stable_path(self.task.ns(), fs.cwd, fs.root, &guard);
            if told.is_deleted {
                return Err(Errno::NOENT);
            }
            let path = match told.top {
                Top::Root => told.path,
                Top::Unreachable | Top::Outside => {
                    [b"(unreachable)".as_slice(), &told.path].concat()
                }
            };
            if path.len() >= PATH_MAX { Err(Errno::NAMETOOLONG) } else { Ok(path) }
        };
        getcwd().map(|bytes| PathBuf::from(OsString::from_vec(bytes))).named("getcwd")
    }

    /// Returns the current path of an open file, as seen from the task's root, followed by
    /// ` (deleted)` if the name was removed. A pipe is called `pipe:[N]` after its inode number, a
    /// socket `socket:[N]`, a file of memory `/memfd:name (deleted)`.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    pub fn path_of(&self, file: &File) -> Result<PathBuf> {
        let path_of = || {
            check_fork()?;
            let guard = rcu::pin();
            if file.path().dentry().is_pseudo() {
                return Ok(crate::mount::pseudo_fs::path(file.path().dentry(), &guard));
            }
            let place = file.path().borrow(&guard);
            let told = stable_path(self.task.ns(), place, self.task.root(&guard), &guard);
            let mut bytes = told.path;
            if told.is_deleted {
                bytes.extend_from_slice(b" (deleted)");
            }
            if bytes.len() >= PATH_MAX { Err(Errno::NAMETOOLONG) } else { Ok(bytes) }
        };
        path_of().map(|bytes| PathBuf::from(OsString::from_vec(bytes))).named("readlink")
    }
}
