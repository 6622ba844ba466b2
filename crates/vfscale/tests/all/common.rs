//! Helpers of tests of single calls.

use vfscale::posix::OFlags;
use vfscale::{Errno, File, Mode, Task};

pub const MODE: Mode = Mode::from_bits_retain(0o755);

/// Returns a task of a tree in memory.
pub fn task() -> Task {
    vfscale::memory().size(1 << 30).build().unwrap().task()
}

/// Returns the error of a call that fails.
pub fn errno<T: std::fmt::Debug>(result: vfscale::Result<T>) -> Errno {
    result.unwrap_err().errno()
}

/// Makes a file, and opens it for reading and writing.
pub fn make(task: &Task, path: &str) -> File {
    task.posix().open(path, OFlags::CREATE | OFlags::RDWR, MODE).unwrap()
}
