//! Helpers of tests of pools.

use std::path::{Path, PathBuf};

use vfscale::{Pool, Task};

/// Makes an image with a volume, calls `fill` with it, and closes it.
pub fn image(dir: &Path, fill: impl FnOnce(&Task)) -> PathBuf {
    let path = dir.join("disk.vfs");
    let volume = vfscale::volume(&path).create(64 << 20).open().unwrap();
    fill(&volume.task());
    volume.close().unwrap();
    path
}

/// Calls `act` with a task of a branch, and closes it.
pub fn within<T>(pool: &Pool, name: &str, act: impl FnOnce(&Task) -> T) -> T {
    let volume = pool.open(name).unwrap();
    let result = act(&volume.task());
    volume.close().unwrap();
    result
}

/// Returns the contents of a file in a branch; `None` if there is no such file.
pub fn read(pool: &Pool, name: &str, path: &str) -> Option<String> {
    within(pool, name, |task| task.read_to_string(path).ok())
}
