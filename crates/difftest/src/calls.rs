//! One task, whose calls can be made.

use crate::op::{CWD, Op, PathArg};
use crate::outcome::Outcome;

/// One task of either side. What is written once against it (the snapshot of a tree, the probes)
/// asks both sides in the same way.
pub trait Calls {
    /// Makes a call and says what it gave. Never blocks for long: everything is opened with
    /// `O_NONBLOCK`, and no lock is waited for.
    fn call(&mut self, op: &Op) -> Outcome;
}

/// Opens without side effects on the file (`O_PATH | O_NOFOLLOW`); `None` if that fails.
pub(crate) fn open_path(task: &mut dyn Calls, path: &[u8]) -> Option<i32> {
    let flags = (libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u32;
    let op = Op::Open { at: CWD, path: PathArg(path.to_vec()), flags, mode: 0 };
    task.call(&op).number().map(|fd| fd as i32)
}

/// The attributes of what `fd` stands for.
pub(crate) fn fstat(task: &mut dyn Calls, fd: i32) -> Outcome {
    let flags = libc::AT_EMPTY_PATH as u32;
    task.call(&Op::Stat { at: fd, path: PathArg::default(), flags })
}
