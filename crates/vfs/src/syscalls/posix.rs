//! Linux's calls on a task: the view that has them.

use crate::task::task_struct::Task;

/// Linux's calls, made by one task; from [`Task::posix`]. `Send`, `Sync` and `Copy`.
///
/// The names, flags and errors are those of the Linux manual. A call that takes a directory takes
/// it first and the path in it second: `(at, path, …)`. So the target of a new symbolic link comes
/// last. No call enters the kernel, except to read the clock.
///
/// ```
/// # use vfscale_vfs::{At, AtFlags, RenameFlags, Result, Task};
/// fn rotate(task: &Task) -> Result<()> {
///     let sys = task.posix();
///     sys.mkdirat(At::Cwd, "/log", 0o755)?;
///     sys.renameat2(At::Cwd, "/log/new", At::Cwd, "/log/old", RenameFlags::EXCHANGE)?;
///     sys.unlinkat(At::Cwd, "/log/new", AtFlags::empty())
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Calls<'t> {
    pub(crate) task: &'t Task,
}

impl Task {
    /// Returns the view of this task that has Linux's calls.
    #[inline]
    pub fn posix(&self) -> Calls<'_> {
        Calls { task: self }
    }
}
