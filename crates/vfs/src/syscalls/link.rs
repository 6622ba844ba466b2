//! Reading symbolic links.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path as StdPath, PathBuf};

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Result};
use crate::mount::atime::touch_atime;
use crate::namei::lookup::run_lookups;
use crate::namei::walk::Lookup;
use crate::syscalls::posix::Calls;
use crate::task::task_struct::{At, bytes};

impl Calls<'_> {
    /// Returns the target of the symbolic link `path`; the empty path means the handle `at` itself.
    ///
    /// # Errors
    /// As `readlinkat(2)`: `EINVAL` if it is no link (`ENOENT` for a handle that is none).
    pub fn readlinkat(&self, at: At<'_>, path: impl AsRef<StdPath>) -> Result<PathBuf> {
        let path = path.as_ref();
        let empty = path.as_os_str().is_empty();
        let readlink = || {
            let base = self.task.base(at);
            run_lookups(|| {
                let guard = rcu::pin();
                self.task.walk(&base, bytes(path), Lookup::EMPTY, &guard, |walk| {
                    let pos = walk.lookup()?;
                    let inode = pos.inode();
                    if !inode.is_symlink() {
                        return Err(if empty { Errno::NOENT } else { Errno::INVAL }.into());
                    }
                    let target = inode.sb().fs().get_link(inode, &guard)?.to_vec();
                    walk.validate(pos)?;
                    touch_atime(pos.mount, inode);
                    Ok(target)
                })
            })
        };
        readlink().map(|target| PathBuf::from(OsString::from_vec(target))).on("readlinkat", path)
    }
}
