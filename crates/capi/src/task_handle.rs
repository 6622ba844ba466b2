//! The tasks of handles, and the open files of their descriptors.

use std::ffi::c_int;

use vfscale::posix::Fd;
use vfscale::{Errno, File, Task};

use crate::border::Failure;
use crate::handles::{Kind, Table, Used};
use crate::structs::vfscale_task;

static TASKS: Table<Task> = Table::new(Kind::Task, true);

/// Returns the task of a handle.
#[inline]
pub(crate) fn task(task: *mut vfscale_task) -> Result<Used<Task>, Failure> {
    TASKS.get(task as u64)
}

/// Returns a handle of a task.
pub(crate) fn insert(task: Task) -> Result<*mut vfscale_task, Failure> {
    Ok(TASKS.insert(task)? as *mut vfscale_task)
}

/// Frees the handle of a task.
pub(crate) fn remove(task: *mut vfscale_task) -> Result<(), Failure> {
    TASKS.remove(task as u64)
}

/// Returns the open file of a descriptor.
pub(crate) fn file(task: &Task, fd: c_int) -> Result<File, Failure> {
    Ok(task.posix().file(Fd(fd))?)
}

/// Returns the open file of a descriptor whose attributes a call reads or changes: not one of
/// `O_PATH`.
pub(crate) fn changeable(task: &Task, fd: c_int) -> Result<File, Failure> {
    let file = file(task, fd)?;
    if file.is_path() {
        return Err(Failure::new(Errno::BADF, "the descriptor was opened with O_PATH"));
    }
    Ok(file)
}
