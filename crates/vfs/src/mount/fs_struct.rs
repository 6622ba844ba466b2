//! Root and working directory of a task: the counterpart of `struct fs_struct` of Linux.

use crate::objects::vfsmount::{Path, PathRef};

/// Root and working directory.
#[derive(Clone)]
pub(crate) struct FsStruct {
    pub(crate) root: Path,
    pub(crate) cwd: Path,
}

/// Root and working directory, as seen in an RCU section.
#[derive(Clone, Copy)]
pub(crate) struct FsRef<'g> {
    pub(crate) root: PathRef<'g>,
    pub(crate) cwd: PathRef<'g>,
}
