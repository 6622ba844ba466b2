//! Errors of calls on open files, with the path that the file has at that moment.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Error, IN_CHILD, Result};
use crate::mount::{d_path, pseudo_fs};
use crate::objects::vfsmount::Path;

/// Adds the call and the path of an open file to a result that has only an error number.
pub(crate) trait OnFile<T> {
    fn of(self, call: &'static str, path: &Path) -> Result<T>;
}

impl<T> OnFile<T> for std::result::Result<T, Errno> {
    #[inline]
    fn of(self, call: &'static str, path: &Path) -> Result<T> {
        self.map_err(|errno| failed(call, errno, path))
    }
}

/// Returns the error of a call on an open file with this path. The caller holds no lock.
#[cold]
fn failed(call: &'static str, errno: Errno, path: &Path) -> Error {
    // These say "not now", to callers that come again; and a child of a fork may enter no section.
    if matches!(errno, Errno::AGAIN | Errno::INTR | IN_CHILD) {
        return Error::new(call, errno);
    }
    let guard = rcu::pin();
    let bytes = if path.dentry().is_pseudo() {
        pseudo_fs::path(path.dentry(), &guard)
    } else {
        d_path::current_path(path.borrow(&guard), &guard)
    };
    drop(guard);
    Error::at(call, errno, &PathBuf::from(OsString::from_vec(bytes)))
}
