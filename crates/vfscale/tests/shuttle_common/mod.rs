//! What models of the VFS are run with.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use vfscale::{At, AtFlags, Errno, Mode, OFlags, RenameFlags, Scaling, Task, Vfs};
use vfscale_sync::{cpu, rcu};

const SCHEDULES: usize = 5_000;
pub const MODE: Mode = Mode::from_bits_retain(0o755);

/// Whether file systems are made without any of the patches.
static BEFORE: AtomicBool = AtomicBool::new(false);

/// Runs a model under many schedules, with all patches and without any. All of its threads are on one
/// CPU, as far as they know, so that a schedule is all that a run depends on.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    check_times(SCHEDULES, model);
}

/// As [`check`], under another number of schedules.
pub fn check_times(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    check_with(|seed| RandomScheduler::new_from_seed(seed, schedules), model);
}

/// As [`check`], under schedules with few switches of threads, at moments chosen at random: for what takes
/// one long delay at the right moment, which schedules that switch all the time hardly ever have.
pub fn check_delays(model: impl Fn() + Send + Sync + 'static) {
    check_with(|seed| PctScheduler::new_from_seed(seed, 3, 2 * SCHEDULES), model);
}

fn check_with<S: Scheduler + 'static>(
    scheduler: impl Fn(u64) -> S,
    model: impl Fn() + Send + Sync + 'static,
) {
    let seed = std::env::var("VFSCALE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) * 7919);
    println!("VFSCALE_SEED={seed}");
    // Deferred work of one model must not run in another: they share the collector.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    let model = Arc::new(model);
    for before in [false, true] {
        println!("without patches: {before}");
        BEFORE.store(before, Ordering::Relaxed);
        let (model, config) = (model.clone(), config.clone());
        shuttle::Runner::new(scheduler(seed), config).run(move || {
            let _cpu = cpu::pretend(0);
            model();
            // What was deferred belongs to this run, and must be done in it.
            rcu::synchronize();
        });
    }
}

pub fn memory() -> Vfs {
    let before = BEFORE.load(Ordering::Relaxed);
    let scaling = if before { Scaling::kernel_2_6() } else { Scaling::default() };
    vfscale::memory().size(4 << 20).scaling(scaling).build().unwrap()
}

pub fn ino(task: &Task, path: &str) -> Result<u64, Errno> {
    task.stat(At::Cwd, path, AtFlags::empty()).map(|stat| stat.ino).map_err(|e| e.errno())
}

pub fn make(task: &Task, path: &str) -> u64 {
    task.open(path, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, MODE).unwrap();
    ino(task, path).unwrap()
}

pub fn errno<T>(result: vfscale::Result<T>) -> Option<Errno> {
    result.err().map(|e| e.errno())
}

pub fn rename(task: &Task, from: &str, to: &str, flags: RenameFlags) -> Option<Errno> {
    errno(task.rename(At::Cwd, from, At::Cwd, to, flags))
}

/// Every inode and block that was taken since is given back.
pub fn assert_empty(task: &Task, before: (u64, u64)) {
    rcu::synchronize();
    assert_eq!(free(task), before);
}

pub fn free(task: &Task) -> (u64, u64) {
    let stat = task.statfs(At::Cwd, "/").unwrap();
    (stat.files_free, stat.blocks_free)
}
