//! Paths of the working directory and of open files: `getcwd(2)`, and `readlink` of a descriptor.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Result, check_fork};
use crate::file::open_file::File;
use crate::mount::d_path::{Top, stable_path};
use crate::namei::walk::PATH_MAX;
use crate::task::task_struct::Task;

impl Task {
    /// Returns the path of the working directory.
    ///
    /// # Errors
    /// `ENOENT` if the directory was removed, `ENAMETOOLONG`. The path of a directory that cannot
    /// be reached from the root begins with `(unreachable)`.
    pub fn getcwd(&self) -> Result<PathBuf> {
        let getcwd = || {
            check_fork()?;
            let guard = rcu::pin();
            let fs = self.fs(&guard);
            if fs.cwd.dentry.is_unhashed() {
                return Err(Errno::NOENT);
            }
            let (bytes, top) = stable_path(self.ns(), fs.cwd, fs.root, &guard);
            let path = match top {
                Top::Root => bytes,
                Top::Unreachable | Top::Outside => [b"(unreachable)".as_slice(), &bytes].concat(),
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
            let deleted = file.path().dentry().is_unhashed();
            let place = file.path().borrow(&guard);
            let (mut bytes, _) = stable_path(self.ns(), place, self.root(&guard), &guard);
            if deleted {
                bytes.extend_from_slice(b" (deleted)");
            }
            if bytes.len() >= PATH_MAX { Err(Errno::NAMETOOLONG) } else { Ok(bytes) }
        };
        path_of().map(|bytes| PathBuf::from(OsString::from_vec(bytes))).named("readlink")
    }
}
