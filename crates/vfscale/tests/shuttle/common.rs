//! Helpers of the models of the VFS.

use std::sync::Arc;

use shuttle::thread;
use vfscale::posix::{At, OFlags, RenameFlags};
use vfscale::{Errno, Mode, Scaling, Task, Vfs};
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::{cpu, rcu};

const SCHEDULES: usize = 5_000;
pub const MODE: Mode = Mode::from_bits_retain(0o755);

/// Runs a model under many schedules, with all patches and with none.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    check_times(SCHEDULES, model);
}

/// Runs a model like [`check`], with another number of schedules.
pub fn check_times(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    model::check_patches(&[Schedules::Turns(schedules), Schedules::Delays(schedules)], model);
}

/// Runs a model like [`check`], under schedules with long delays.
pub fn check_delays(model: impl Fn() + Send + Sync + 'static) {
    model::check_patches(&[Schedules::Delays(2 * SCHEDULES)], model);
}

pub fn memory() -> Vfs {
    let without = model::is_without_patches();
    let scaling = if without { Scaling::kernel_2_6() } else { Scaling::default() };
    vfscale::memory().size(4 << 20).scaling(scaling).build().unwrap()
}

pub fn ino(task: &Task, path: &str) -> Result<u64, Errno> {
    task.metadata(path).map(|stat| stat.ino).map_err(|e| e.errno())
}

pub fn make(task: &Task, path: &str) -> u64 {
    task.posix().open(path, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, MODE).unwrap();
    ino(task, path).unwrap()
}

pub fn errno<T>(result: vfscale::Result<T>) -> Option<Errno> {
    result.err().map(|e| e.errno())
}

pub fn rename(task: &Task, from: &str, to: &str, flags: RenameFlags) -> Option<Errno> {
    errno(task.posix().renameat2(At::Cwd, from, At::Cwd, to, flags))
}

/// Checks that all inodes and blocks taken since `before` are free again.
pub fn assert_empty(task: &Task, before: (u64, u64)) {
    rcu::synchronize();
    assert_eq!(free(task), before);
}

pub fn free(task: &Task) -> (u64, u64) {
    let stat = task.posix().statfs(At::Cwd, "/").unwrap();
    (stat.files_free, stat.blocks_free)
}

/// Starts a thread of a task on another CPU.
pub fn spawn<T: Send + 'static>(
    task: &Arc<Task>,
    call: impl FnOnce(&Task) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let task = task.clone();
    thread::spawn(move || {
        let _there = cpu::pretend(1);
        call(&task)
    })
}
