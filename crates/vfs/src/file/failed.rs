//! Errors of calls on open files, with the path that the file has at that moment. A file that was
//! opened by a task with a root of its own is shown by its name alone: the path would tell where
//! that root is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path as FsPath, PathBuf};

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Error, IN_CHILD, Outcome, Result};
use crate::mount::{d_path, pseudo_fs};
use crate::objects::file_description::{FileMode, OpenFile};

/// Adds the call and the path of an open file to a result that has only an error number.
pub(crate) trait OnFile<T> {
    fn of(self, call: &'static str, file: &OpenFile) -> Result<T>;
}

impl<T> OnFile<T> for Outcome<T> {
    #[inline]
    fn of(self, call: &'static str, file: &OpenFile) -> Result<T> {
        self.map_err(|errno| failed(call, errno, file))
    }
}

/// Returns the error of a call on an open file. The caller holds no lock.
#[cold]
fn failed(call: &'static str, errno: Errno, file: &OpenFile) -> Error {
    let is_rooted = file.mode().contains(FileMode::ROOTED);
    // These say "not now", to callers that come again; and a child of a fork may enter no section.
    // The directory may be the root, which has no name below itself.
    if matches!(errno, Errno::AGAIN | Errno::INTR | IN_CHILD) || is_rooted && file.inode().is_dir()
    {
        return Error::new(call, errno);
    }
    let path = file.path();
    let guard = rcu::pin();
    let bytes = if path.dentry().is_pseudo() {
        pseudo_fs::path(path.dentry(), &guard)
    } else {
        d_path::current_path(path.borrow(&guard), &guard)
    };
    drop(guard);
    let path = PathBuf::from(OsString::from_vec(bytes));
    let shown = if is_rooted { path.file_name().map(FsPath::new) } else { None };
    Error::at(call, errno, shown.unwrap_or(&path))
}
