//! Whether a mount has extended attributes.

use std::path::PathBuf;

use vfscale::posix::AtFlags;
use vfscale::{Errno, Error, Task, WalkEntry};

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
    let has_any = |entry: &WalkEntry| {
        let (at, name) = entry.at();
        match task.posix().listxattrat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(names) => Ok(!names.is_empty()),
            Err(e) if matches!(e.errno(), Errno::NOENT | Errno::OPNOTSUPP) => Ok(false),
            Err(e) => Err(Error::at(e.call(), e.errno(), &entry.path)),
        }
    };
    for entry in task.walk_dir("/") {
        let entry = entry?;
        if has_any(&entry)? {
            return Ok(Some(entry.path));
        }
    }
    Ok(None)
}
