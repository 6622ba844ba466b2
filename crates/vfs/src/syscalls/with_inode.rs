//! Changing the inode that a path leads to.

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::mount::vfsmount::WriteAccess;
use crate::namei::lookup::{DriverChange, run_changes};
use crate::namei::walk::{Fail, Lookup, Walk, WalkPos};
use crate::objects::inode::Inode;
use crate::task::task_struct::{At, Task, bytes};

/// Whether a change has been made. That it has not means that it takes a reference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    Yes,
    No,
}

impl Task {
    /// Changes the inode of `path`. `announce` checks what comes before the announcement of a
    /// change, and makes that; then `body` makes the change in the RCU section of the walk, without
    /// a reference to the inode (see `inode/going.rs`). If `body` has not, `by_reference` does,
    /// with the announcement and a reference and nothing else held: always if a driver is to store
    /// it before, which may block.
    ///
    /// # Errors
    /// Those of the walk and of all three.
    pub(crate) fn change_inode(
        &self,
        at: At<'_>,
        path: &StdPath,
        lookup: Lookup,
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
                    return Ok(());
                }
                let kept = walk.keep(pos)?;
                let write = write.keep(kept.mount_ref());
                Err(DriverChange::Place(kept, write).into())
            })
        };
        run_changes(call, |left| match left {
            DriverChange::Place(place, _write) => by_reference(place.dentry().inode()).map(Some),
            _ => Ok(None),
        })
    }
}
