//! Directories that several CPUs change when there is no memory to shard them.

use vfscale::{Scaling, Task};
use vfscale_harness::alone;
use vfscale_sync::spread::{self, Reservation};
use vfscale_sync::{cpu, rcu};

const CPUS: usize = 8;

/// Creates directories in `dir`, alternately on all CPUs.
fn make(task: &Task, dir: &str, names: std::ops::Range<u32>) {
    for n in names {
        let _on = cpu::pretend(n / 8 % CPUS as u32);
        task.create_dir(format!("{dir}/{n}")).unwrap();
    }
}

fn remove(task: &Task, dir: &str, names: std::ops::Range<u32>) {
    for n in names {
        let _on = cpu::pretend(n % CPUS as u32);
        task.remove_dir(format!("{dir}/{n}")).unwrap();
    }
}

fn links(task: &Task, dir: &str) -> u32 {
    task.metadata(dir).unwrap().nlink
}

/// Creates and removes a name in each of `dirs` directories, alternately on two CPUs.
fn contend(task: &Task, dirs: usize) {
    for dir in 0..dirs {
        for turn in 0..400 {
            let _on = cpu::pretend(turn / 8 % 2);
            task.create_dir(format!("/{dir}/name")).unwrap();
            task.remove_dir(format!("/{dir}/name")).unwrap();
        }
    }
}

/// Seam: a directory's links counted on each CPU / in its inode; parties: two `mkdir`, one `stat`.
#[test]
fn link_counts_are_right_and_memory_is_bounded_where_there_is_no_room() {
    let _alone = alone();
    let scaling = Scaling::with_slots(CPUS);
    let vfs = vfscale::memory().size(256 << 20).scaling(scaling).build().unwrap();
    let task = vfs.task();
    task.create_dir("/d").unwrap();
    let before = spread::taken();
    let rest = Reservation::take(spread::BYTES_MAX - before).unwrap();
    // More entries than an unsharded table has room for.
    make(&task, "/d", 0..2_000);
    assert_eq!(links(&task, "/d"), 2_002);
    contend_elsewhere(&task);
    assert_eq!(spread::taken(), spread::BYTES_MAX);
    drop(rest);
    // Half of them were counted in the inode, and are now subtracted from a separate count.
    make(&task, "/d", 2_000..4_000);
    assert_eq!(links(&task, "/d"), 4_002);
    assert!(spread::taken() > before, "there is room again");
    remove(&task, "/d", 0..4_000);
    assert_eq!(links(&task, "/d"), 2);
    task.remove_dir("/d").unwrap();
    drop(task);
    vfs.end().map_err(drop).unwrap();
    (0..50).for_each(|_| rcu::synchronize());
    assert_eq!(spread::taken(), 0, "directories give it back");
}

fn contend_elsewhere(task: &Task) {
    (0..20).for_each(|dir| task.create_dir(format!("/{dir}")).unwrap());
    contend(task, 20);
}
