#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use vfscale_sync::{cpu, rcu};

use crate::base::types::{Mode, OFlags, RenameFlags};
use crate::file::open_file::File;
use crate::names_only_tests::names_only;
use crate::task::task_struct::{At, Task};
use vfscale_sync::scaling::Scaling;

const MODE: Mode = Mode::from_bits_retain(0o700);
const CPUS: u32 = 8;

/// Makes a directory in which several CPUs have created names until its count is sharded, with one
/// directory in it.
fn spread() -> (Task, File) {
    let task = names_only(Scaling::with_slots(CPUS as usize)).task();
    task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
    task.posix().mkdirat(At::Cwd, "/d/stays", MODE).unwrap();
    let dir = task.posix().open("/d", OFlags::DIRECTORY, MODE).unwrap();
    let mut turn = 0;
    while !dir.path().dentry().children().is_spread() {
        let _on = cpu::pretend(turn / 8 % 2);
        task.symlink("nowhere", "/d/name").unwrap();
        task.remove_file("/d/name").unwrap();
        turn += 1;
    }
    assert!(dir.inode().sharded_dirs().is_none(), "nothing was counted yet");
    mkdir(&task, 0, "/d/first");
    rmdir(&task, 1, "/d/first");
    assert!(dir.inode().sharded_dirs().is_some());
    (task, dir)
}

fn mkdir(task: &Task, cpu: u32, path: &str) {
    let _on = cpu::pretend(cpu);
    task.posix().mkdirat(At::Cwd, path, MODE).unwrap();
}

fn rmdir(task: &Task, cpu: u32, path: &str) {
    let _on = cpu::pretend(cpu);
    task.remove_dir(path).unwrap();
}

fn links(dir: &File) -> u32 {
    dir.stat().unwrap().nlink
}

#[test]
fn links_counted_on_one_cpu_are_taken_back_on_another() {
    let (task, dir) = spread();
    assert_eq!(links(&dir), 3);
    for cpu in 0..CPUS {
        mkdir(&task, cpu, &format!("/d/{cpu}"));
        assert_eq!(links(&dir), 4 + cpu);
    }
    for cpu in 0..CPUS {
        rmdir(&task, 0, &format!("/d/{cpu}"));
        assert_eq!(links(&dir), 2 + CPUS - cpu);
    }
    rmdir(&task, 3, "/d/stays");
    assert_eq!((links(&dir), dir.inode().is_unlinked()), (2, false));
    rmdir(&task, 5, "/d");
    assert_eq!((links(&dir), dir.inode().is_unlinked()), (0, true));
}

/// Moves directories between a parent with a sharded count and one with its count in the inode.
#[test]
fn directories_that_move_are_counted_where_they_are() {
    let (task, dir) = spread();
    let to = |cpu, from: &str, to: &str, flags| {
        let _on = cpu::pretend(cpu);
        task.posix().renameat2(At::Cwd, from, At::Cwd, to, flags).unwrap();
    };
    let root = task.posix().open("/", OFlags::DIRECTORY, MODE).unwrap();
    assert_eq!((links(&root), links(&dir)), (3, 3));
    to(2, "/d/stays", "/away", RenameFlags::empty());
    assert_eq!((links(&root), links(&dir)), (4, 2));
    to(3, "/away", "/d/back", RenameFlags::empty());
    mkdir(&task, 4, "/d/other");
    assert_eq!((links(&root), links(&dir)), (3, 4));
    to(5, "/d/back", "/d/other", RenameFlags::empty());
    assert_eq!((links(&root), links(&dir)), (3, 3));
    task.symlink("nowhere", "/link").unwrap();
    to(6, "/d/other", "/link", RenameFlags::EXCHANGE);
    assert_eq!((links(&root), links(&dir)), (4, 2));
}

/// While directories are created on one CPU and removed on another, no reader sees fewer links than
/// always exist, nor more than ever exist.
///
/// Race: `stat` of a directory / `mkdir`, `rmdir` in it on several CPUs.
/// Seam: a directory's links counted on each CPU / in its inode; parties: two `mkdir`, one `stat`.
#[test]
fn links_are_those_of_one_moment() {
    let (task, dir) = spread();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20_000 {
                mkdir(&task, 0, "/d/new");
                rmdir(&task, CPUS - 1, "/d/new");
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let links = links(&dir);
            assert!((3..=4).contains(&links), "{links} links");
        }
    });
    assert_eq!(links(&dir), 3);
}

/// A reader of the links takes no bucket, although directories are counted all the time on several
/// CPUs: here this thread has locked one, so debug builds refuse another and others would hang.
#[test]
fn links_are_read_without_a_lock() {
    let (_task, dir) = spread();
    let counted = dir.inode().sharded_dirs().unwrap();
    let done = AtomicBool::new(false);
    let guard = rcu::pin();
    let _bucket = dir.path().dentry().children().lock(0, &guard);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (cpu, amount) in [(0, 1), (CPUS - 1, -1)] {
                    let _on = cpu::pretend(cpu);
                    counted.add(amount);
                }
            }
        });
        for _ in 0..20_000 {
            let links = dir.inode().nlink();
            assert!((3..=4).contains(&links), "{links} links");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// With one slot, or one lock for all names, there is one count.
#[test]
fn before_the_patch_the_inode_has_the_count() {
    for scaling in [Scaling::with_slots(1), Scaling::before("dcache-hash").unwrap()] {
        let task = names_only(scaling).task();
        let root = task.posix().open("/", OFlags::DIRECTORY, MODE).unwrap();
        let mut made = 0;
        while !root.path().dentry().children().is_spread() {
            mkdir(&task, 0, &format!("/{made}"));
            made += 1;
        }
        mkdir(&task, 1, "/last");
        assert!(root.inode().sharded_dirs().is_none());
        assert_eq!(links(&root), made + 3);
    }
}
