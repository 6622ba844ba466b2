//! Whether a mount has extended attributes.

use std::path::PathBuf;

use vfscale::posix::{At, AtFlags};
use vfscale::{Errno, Task};

/// Treatment of extended attributes, which include access control lists and file capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Xattrs {
    /// They work. Linux then asks for the capabilities of each file that is written or gets another
    /// owner, which is one in seven messages of unpacking an archive.
    #[default]
    Served,
    /// Calls on them fail with `EOPNOTSUPP`. Mounting fails if the tree has any, which takes a walk
    /// over all of it.
    Refused,
    /// Calls on them fail with `EOPNOTSUPP`, and those that the tree has stay stored, without an
    /// effect: capabilities grant nothing, and access control lists nothing beyond the mode.
    Ignored,
}

/// Returns the first file of the tree that has extended attributes.
///
/// # Errors
/// Returns any error of reading the tree, except of files that are removed meanwhile.
pub(crate) fn find(task: &Task) -> vfscale::Result<Option<PathBuf>> {
    let list =
        |path: &PathBuf| match task.posix().listxattrat(At::Cwd, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(names) => Ok(!names.is_empty()),
            Err(e) if matches!(e.errno(), Errno::NOENT | Errno::NOTDIR | Errno::OPNOTSUPP) => {
                Ok(false)
            }
            Err(e) => Err(e),
        };
    for entry in task.walk_dir("/") {
        let path = entry?.path;
        if list(&path)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
