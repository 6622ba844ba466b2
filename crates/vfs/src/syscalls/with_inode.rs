//! Changes of the inode of a path.

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::namei::lookup::{DriverChange, run_changes};
use crate::namei::walk::{Fail, Lookup, Walk, WalkPos};
use crate::objects::fsnotify::{self, queue::FileChange};
use crate::objects::inode::Inode;
use crate::objects::vfsmount::WriteAccess;
use crate::task::task_struct::{At, Task, bytes};

/// The result of an attempt at a change. A change that was not made needs a reference to the inode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    No,
}

impl Task {
    /// Applies a change to the inode of `path`. `announce` makes the checks that precede the
    /// announcement of a write, and announces it. Then `body` makes the change in the RCU section
    /// of the walk, without a reference to the inode (see `inode/evict.rs`). If it returns
    /// [`Done::No`], `by_reference` makes the change with the announcement and a reference held,
    /// and nothing else. For a backed driver, which stores the change first and may block, only
    /// `by_reference` runs. The change is reported as a `report`.
    ///
    /// # Errors
    /// The errors of the walk and of all three functions.
    pub(crate) fn change_inode(
        &self,
        (at, path, lookup): (At<'_>, &StdPath, Lookup),
        report: &FileChange,
        announce: impl for<'g> Fn(&Walk<'g>, WalkPos<'g>) -> Result<WriteAccess<'g>, Fail>,
        body: impl Fn(&Walk<'_>, WalkPos<'_>) -> Result<Done, Fail>,
        by_reference: impl Fn(&Inode) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let base = self.base(at);
        let call = || {
            let guard = rcu::pin();
            self.walk(&base, bytes(path), lookup, &guard, |walk| {
                let pos = walk.lookup()?;
                let write = announce(walk, pos)?;
                if !pos.inode().is_backed() && body(walk, pos)? == Done::Yes {
                    fsnotify::changed(pos.dentry, report);
                    return Ok(());
                }
                let kept = walk.keep(pos)?;
                let write = write.keep(kept.mount_ref());
                Err(DriverChange::Place(kept, write).into())
            })
        };
        run_changes(call, |left| match left {
            DriverChange::Place(place, _write) => {
                by_reference(place.dentry().inode())?;
                fsnotify::changed(place.dentry(), report);
                Ok(Some(()))
            }
            _ => Ok(None),
        })
    }
}
