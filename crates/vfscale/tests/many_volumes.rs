//! Many open volumes that nobody uses. A process of its own, because it counts threads and memory.

#![allow(clippy::unwrap_used)]

mod memory_common;

use std::fs;
use std::time::Duration;

use memory_common::resident;

const VOLUMES: usize = 100;
/// The bounds for all of them.
const THREADS_MAX: usize = 8;
const MEMORY_MAX: usize = 64 << 20;
/// The most hundredths of a second that they may take of a CPU in six seconds, which is more than
/// their interval: some passes that find nothing to write.
const USED_MAX: u64 = 15;

/// Returns the number of threads of this process.
fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Returns the time that all threads of this process were on a CPU, in hundredths of a second.
fn cpu_time() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_hundred_idle_volumes_have_few_threads_and_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let others = threads();
    let before = resident();
    let open = |number: usize| {
        let path = dir.path().join(format!("{number}.vfs"));
        let volume = vfscale::volume(path).create(64 << 20).open().unwrap();
        let task = volume.task();
        task.create_dir("/d").unwrap();
        task.write("/d/f", format!("volume {number}")).unwrap();
        task.write("/d/gone", [1; 10_000]).unwrap();
        task.remove_file("/d/gone").unwrap();
        volume
    };
    let volumes: Vec<_> = (0..VOLUMES).map(open).collect();
    for volume in &volumes {
        volume.sync().unwrap();
    }
    vfscale_harness::wait_until("the threads end", || threads() <= THREADS_MAX.max(others + 2));
    let after = resident();
    assert!(after.saturating_sub(before) <= MEMORY_MAX, "{before} {after}");
    let before = cpu_time();
    vfscale_harness::pause(Duration::from_secs(6));
    let used = cpu_time() - before;
    assert!(used <= USED_MAX, "{used}");
    for (number, volume) in volumes.into_iter().enumerate() {
        let text = volume.task().read_to_string("/d/f").unwrap();
        assert_eq!(text, format!("volume {number}"));
        volume.close().unwrap();
    }
}
