use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::base::types::{Mode, MountFlags, OFlags};
use crate::file::fd_table::Fd;
use crate::mount::namespace::Vfs;
use crate::names_only_tests::{NamesOnly, names_only};
use crate::task::task_struct::At;
use vfscale_sync::scaling::Scaling;

const MODE: Mode = Mode::from_bits_retain(0o755);

/// `sync` reaches every file system once, however often it is mounted; `syncfs` reaches the file
/// system of its file.
#[test]
fn syncs_reach_the_file_systems_they_are_for() {
    let (root, other) = (Arc::new(NamesOnly::default()), Arc::new(NamesOnly::default()));
    let syncs = || [&root, &other].map(|fs| fs.syncs.load(Ordering::Relaxed));
    let task = Vfs::new(Arc::clone(&root) as _).unwrap().task();
    let mode = Mode::from(0o755);
    for dir in ["/a", "/b"] {
        task.posix().mkdirat(At::Cwd, dir, mode).unwrap();
    }
    task.posix().mount(Arc::clone(&other) as _, "/a", MountFlags::empty()).unwrap();
    task.posix().bind("/a", "/b", false).unwrap();
    task.posix().sync();
    assert_eq!(syncs(), [1, 1]);

    let open = |path, flags| task.posix().open(path, flags, Mode::empty()).unwrap();
    let fd = task.descriptors().install(open("/b", OFlags::RDONLY), 0, false).unwrap();
    task.posix().syncfs(fd).unwrap();
    assert_eq!(syncs(), [1, 2]);
    open("/", OFlags::RDONLY).sync_fs().unwrap();
    assert_eq!(syncs(), [2, 2]);
    let place = open("/", OFlags::PATH);
    assert_eq!(place.sync_fs().unwrap_err().errno(), Errno::BADF);
    task.posix().close(fd).unwrap();
    assert_eq!(task.posix().syncfs(fd).unwrap_err().errno(), Errno::BADF);

    // Changes are durable when a file system becomes read-only, and no change follows.
    task.posix().remount("/a", MountFlags::RDONLY).unwrap();
    assert_eq!(syncs(), [2, 3]);
    task.posix().sync();
    assert_eq!(syncs(), [3, 3]);
}

/// Each thread holds at most one descriptor: despite concurrent calls, a number never exceeds the
/// count of descriptors that can be open, on both sides of the first 64, and no two threads share
/// one.
#[test]
fn threads_get_the_lowest_free_descriptors() {
    const THREADS: usize = 4;
    for before in [0, 61, 64] {
        let task = names_only(Scaling::default()).task();
        let open =
            |name: &str| task.posix().open(name, OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
        let common = open("/common");
        for _ in 0..before {
            task.posix().install(common.clone()).unwrap();
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (task, file) = (&task, open(&format!("/{thread}")));
                scope.spawn(move || {
                    for _ in 0..5_000 {
                        let fd = task.posix().install(file.clone()).unwrap();
                        assert!((fd.0 as usize) < before + THREADS, "{fd:?} of {before}");
                        assert_eq!(task.posix().file(fd).unwrap().id(), file.id());
                        task.posix().close(fd).unwrap();
                    }
                });
            }
        });
        assert_eq!(task.posix().descriptor_list().len(), before);
    }
}

/// `dup2` races with `dup` and `close` of a few shared numbers: each file is closed once for each
/// time it was installed at a number, and no number stays claimed.
#[test]
fn dup2_against_dup_and_close() {
    for before in [0, 62] {
        let task = names_only(Scaling::default()).task();
        let file = task.posix().open("/file", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
        for _ in 0..before {
            task.posix().install(file.clone()).unwrap();
        }
        // Far above the numbers that the threads use.
        let source = task
            .posix()
            .dup_from(task.posix().install(file.clone()).unwrap(), Fd(500), true)
            .unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let task = &task;
                scope.spawn(move || {
                    for round in 0..5_000 {
                        let number = Fd(before + (round + thread) % 4);
                        match thread {
                            0 => drop(task.posix().dup2(source, number).unwrap()),
                            1 => assert!(task.posix().dup(source).unwrap().0 < before + 500),
                            _ => drop(task.posix().close(number)),
                        }
                        if thread == 1 && round % 8 == 0 {
                            (before..before + 400).for_each(|n| drop(task.posix().close(Fd(n))));
                        }
                    }
                });
            }
        });
        (before..500).for_each(|n| drop(task.posix().close(Fd(n))));
        assert_eq!(task.posix().descriptor_list().len(), before as usize + 1);
        // Every number is free again, and the file is open no more often than it should be.
        for expected in before..before + 10 {
            assert_eq!(task.posix().dup(source).unwrap(), Fd(expected));
        }
        task.posix().close_all();
        assert_eq!(task.posix().open_files("/").unwrap().len(), 1);
        drop(file);
        assert_eq!(task.posix().open_files("/").unwrap(), []);
    }
}
