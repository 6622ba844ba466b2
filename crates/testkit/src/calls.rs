//! The interface to a task of either side.

pub mod compound;
pub mod op;
pub mod outcome;
pub mod pattern;
mod show;
mod table;
pub mod users;

use crate::calls::op::{CWD, Op, PathArg};
use crate::calls::outcome::Outcome;

/// A task of either side. Code written against it (the snapshot of a tree, the probes) makes equal
/// calls on both sides.
pub trait Calls {
    /// Makes a call and returns its outcome. Never blocks for long: files are opened with
    /// `O_NONBLOCK`, and locks are not waited for.
    fn call(&mut self, op: &Op) -> Outcome;
}

/// Opens a file without side effects on it (`O_PATH | O_NOFOLLOW`), or returns `None`.
pub(crate) fn open_path(task: &mut dyn Calls, path: &[u8]) -> Option<i32> {
    let flags = (libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u32;
    let op = Op::Open { at: CWD, path: PathArg(path.to_vec()), flags, mode: 0 };
    task.call(&op).number().map(|fd| fd as i32)
}

/// Returns the attributes of the file of `fd`.
pub(crate) fn fstat(task: &mut dyn Calls, fd: i32) -> Outcome {
    let flags = libc::AT_EMPTY_PATH as u32;
    task.call(&Op::Stat { at: fd, path: PathArg::default(), flags })
}
