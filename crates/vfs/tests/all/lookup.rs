//! Directories of a backed driver: the lookups that reach it, the answers that the dcache holds,
//! and the dentries that it drops.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::numbers::Numbers;
use vfscale_vfs::{
    At, AtFlags, Errno, Mode, MountFlags, OFlags, OpenHow, ResolveFlags, Scaling, Task,
    UmountFlags, Vfs,
};

fn mounted(dirs: u64, files: u64) -> (Arc<Numbers>, Task) {
    let fs = Numbers::new(dirs, files);
    let task = Vfs::new(fs.clone()).unwrap().task();
    (fs, task)
}

fn exists(task: &Task, path: &str) -> bool {
    match task.metadata(path) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.errno(), Errno::NOENT, "{path}");
            false
        }
    }
}

fn lookups(fs: &Numbers) -> u64 {
    fs.lookups.load(Ordering::Relaxed)
}

fn open(task: &Task, path: &str) -> vfscale_vfs::File {
    task.posix().open(path, OFlags::RDONLY, Mode::empty()).unwrap()
}

#[test]
fn the_driver_is_asked_once_for_a_name() {
    let (fs, task) = mounted(10, 10);
    for _ in 0..3 {
        assert!(exists(&task, "/d3/f7"));
        assert_eq!(lookups(&fs), 2);
    }
    for _ in 0..3 {
        assert!(!exists(&task, "/d3/f10"), "cached as well");
        assert!(!exists(&task, "/d3/f10/below"));
        assert_eq!(lookups(&fs), 3);
    }
    let ino = task.metadata("/d3/f7").unwrap().ino;
    assert_eq!(open(&task, "/d3/../d3/f7").stat().unwrap().ino, ino);
    assert_eq!(lookups(&fs), 3);
}

#[test]
fn errors_are_not_remembered() {
    let (fs, task) = mounted(1, 1);
    for asked in 1..3 {
        let error = task.metadata("/broken").unwrap_err();
        assert_eq!((error.errno(), lookups(&fs)), (Errno::IO, asked));
    }
    let long = "x".repeat(256);
    let error = task.metadata(&long).unwrap_err();
    assert_eq!((error.errno(), lookups(&fs)), (Errno::NAMETOOLONG, 2));
}

#[test]
fn openat2_with_cached_finds_only_cached_names() {
    let (fs, task) = mounted(2, 2);
    let how = OpenHow { resolve: ResolveFlags::CACHED, ..OpenHow::new(OFlags::RDONLY) };
    let error = task.posix().openat2(At::Cwd, "/d1/f1", &how).unwrap_err();
    assert_eq!((error.errno(), lookups(&fs)), (Errno::AGAIN, 0));
    assert!(exists(&task, "/d1/f1"));
    task.posix().openat2(At::Cwd, "/d1/f1", &how).unwrap();
}

#[test]
fn calls_can_not_change_names_of_a_lookup_driver() {
    let (_fs, task) = mounted(2, 2);
    let rofs =
        |result: vfscale_vfs::Result<()>| assert_eq!(result.unwrap_err().errno(), Errno::ROFS);
    rofs(task.posix().mkdirat(At::Cwd, "/new", Mode::RWXU));
    rofs(task.remove_file("/d0/f0"));
    rofs(task.remove_dir("/d0"));
    rofs(task.rename("/d0", "/d9"));
    rofs(task.hard_link("/d0/f0", "/d0/f9"));
    rofs(task.posix().open("/d0/f9", OFlags::CREATE | OFlags::RDWR, Mode::RWXU).map(drop));
    rofs(task.posix().open("/d0/f0", OFlags::RDWR, Mode::empty()).map(drop));
    rofs(task.posix().remount("/", MountFlags::empty()));
    let exist = task.posix().mkdirat(At::Cwd, "/d1", Mode::RWXU).unwrap_err().errno();
    assert_eq!(exist, Errno::EXIST, "looked up before the check for a read-only file system");
}

#[test]
fn directories_are_read_from_the_driver() {
    let (fs, task) = mounted(3, 200);
    let dir = open(&task, "/d2");
    let before = lookups(&fs);
    let names: Vec<_> = dir.read_dir().map(|entry| entry.unwrap().name).collect();
    let expected = (0..200).map(|n| format!("f{n}"));
    let expected = [".", ".."].map(String::from).into_iter().chain(expected);
    assert!(names.iter().map(|name| name.to_str().unwrap()).eq(expected), "{names:?}");
    assert_eq!(lookups(&fs), before, "reading a directory makes no lookup");
    dir.seek(vfscale_vfs::Whence::Set(0)).unwrap();
    let two: Vec<_> = dir.read_dir().take(2).map(|entry| entry.unwrap().ino).collect();
    let ino = |path: &str| task.metadata(path).unwrap().ino;
    assert_eq!(two, [ino("/d2"), ino("/")]);
    let first = dir.read_dir().next().unwrap().unwrap();
    assert_eq!((first.name.to_str(), first.ino), (Some("f0"), ino("/d2/f0")));
}

/// Race: A name that changes by itself against the users of its subtree.
#[test]
fn a_name_that_changes_by_itself_is_asked_about_each_time() {
    let (fs, task) = mounted(1, 2);
    assert!(!exists(&task, "/tide") && !exists(&task, "/tide/f0"));
    assert_eq!(lookups(&fs), 1);
    fs.tide.store(1, Ordering::SeqCst);
    assert!(exists(&task, "/tide/f0"));
    let held = open(&task, "/tide/f1");
    let cwd = open(&task, "/tide");
    task.posix().fchdir(&cwd).unwrap();
    assert!(exists(&task, "f0"));
    let ino = held.stat().unwrap().ino;
    assert_eq!(task.posix().path_of(&held).unwrap().to_str(), Some("/tide/f1"));

    fs.tide.store(3, Ordering::SeqCst);
    let new = task.metadata("/tide/f1").unwrap().ino;
    assert_ne!(new, ino, "another directory of the same name");
    assert_eq!(held.stat().unwrap().ino, ino, "an open file remains");
    assert_eq!(task.posix().path_of(&held).unwrap().to_str(), Some("/tide/f1 (deleted)"));
    assert!(!exists(&task, "f0") && !exists(&task, "f5"), "a removed directory has no names");
    assert_eq!(task.posix().getcwd().unwrap_err().errno(), Errno::NOENT);

    fs.tide.store(4, Ordering::SeqCst);
    assert!(!exists(&task, "/tide"));
    task.posix().chdir("/").unwrap();
    drop((held, cwd));
    vfscale_sync::rcu::synchronize();
    let used = fs.with_super(|sb| sb.inodes_in_use() - sb.unused_inodes());
    assert!(used <= 4, "{used}");
}

#[test]
fn a_mount_keeps_a_name_that_has_gone() {
    let (fs, task) = mounted(2, 2);
    fs.tide.store(1, Ordering::SeqCst);
    task.posix().bind("/d1", "/tide", false).unwrap();
    fs.tide.store(2, Ordering::SeqCst);
    assert!(exists(&task, "/tide/f0"));
    task.posix().umount("/tide", vfscale_vfs::UmountFlags::empty()).unwrap();
    assert!(!exists(&task, "/tide"));

    fs.tide.store(3, Ordering::SeqCst);
    task.posix().bind("/d1/f1", "/tide/f0", false).unwrap();
    fs.tide.store(5, Ordering::SeqCst);
    assert!(exists(&task, "/tide/f0"), "a mount below must still be reached");
    task.posix().umount("/tide/f0", vfscale_vfs::UmountFlags::empty()).unwrap();
    fs.with_super(|sb| sb.shrink(usize::MAX));
    let ino = |path: &str| task.metadata(path).unwrap().ino;
    let before = ino("/tide");
    fs.tide.store(7, Ordering::SeqCst);
    assert_ne!(ino("/tide"), before, "it is looked up again");
}

#[test]
fn unused_dentries_are_dropped_and_looked_up_again() {
    let (fs, task) = mounted(4, 50);
    let file = open(&task, "/d1/f1");
    for dir in 0..4 {
        for name in 0..60 {
            exists(&task, &format!("/d{dir}/f{name}"));
        }
    }
    let asked = lookups(&fs);
    assert_eq!(asked, 4 + 4 * 60);
    let dropped = fs.with_super(|sb| sb.shrink(usize::MAX));
    // All except the open file and its directory.
    assert_eq!(dropped as u64, asked - 2);
    fs.with_super(|sb| assert_eq!(sb.inodes_in_use(), 4, "root, directory, file, and none"));
    assert_eq!(task.posix().path_of(&file).unwrap().to_str(), Some("/d1/f1"));
    assert!(exists(&task, "/d1/f1"));
    assert_eq!(lookups(&fs), asked);
    assert!(exists(&task, "/d2/f2"));
    assert_eq!(lookups(&fs), asked + 2);
}

#[test]
fn a_dentry_walked_to_since_outlives_others() {
    let (fs, task) = mounted(1, 100);
    // Each CPU has its own list, and only the dentries of one list are ordered.
    let _here = vfscale_sync::cpu::pretend(0);
    let all = |task: &Task| (0..100).for_each(|n| assert!(exists(task, &format!("/d0/f{n}"))));
    all(&task);
    // The first pass of the shrinker only marks the dentries that a walk has used since their
    // creation.
    all(&task);
    let entry = fs.with_super(|sb| sb.cache_bytes()) / 102;
    assert_eq!(fs.with_super(|sb| sb.shrink(1)), 1, "the oldest, after a pass over all");
    for n in 50..100 {
        assert!(exists(&task, &format!("/d0/f{n}")));
    }
    let asked = lookups(&fs);
    let dropped = fs.with_super(|sb| sb.shrink(40 * entry));
    assert!((35..=45).contains(&dropped), "{dropped}");
    for n in 50..100 {
        assert!(exists(&task, &format!("/d0/f{n}")));
    }
    assert_eq!(lookups(&fs), asked, "all of these were still cached");
}

#[test]
fn names_that_are_not_there_have_a_bound_of_their_own() {
    let (fs, task) = mounted(1, 64);
    fs.with_super(|sb| sb.set_cache_limit(1 << 20));
    (0..64).for_each(|n| assert!(exists(&task, &format!("/d0/f{n}"))));
    for n in 0..20_000 {
        assert!(!exists(&task, &format!("/d0/none{n}")));
    }
    let bytes = fs.with_super(|sb| sb.cache_bytes());
    assert!(bytes < (1 << 20) / 4, "{bytes}");
    let asked = lookups(&fs);
    (0..64).for_each(|n| assert!(exists(&task, &format!("/d0/f{n}"))));
    assert_eq!(lookups(&fs), asked, "they have evicted no other dentry");
}

/// Unique materialise: if the driver finds a directory under another name, its one dentry moves
/// there, with everything below it, the mounts on it, and its users.
///
/// Race: A directory that has moved by itself against lookups of it.
#[test]
fn a_directory_that_has_moved_by_itself_has_one_dentry() {
    let (fs, task) = mounted(1, 3);
    let ino = |path: &str| task.metadata(path).unwrap().ino;
    let (dir, file, other) = (ino("/here"), ino("/here/f1"), ino("/d0/f0"));
    task.posix().bind("/d0/f0", "/here/f2", false).unwrap();
    let held = open(&task, "/here/f1");
    let path = || task.posix().path_of(&held).unwrap().to_str().unwrap().to_owned();
    let cwd = task.fork();
    cwd.posix().chdir("/here").unwrap();
    for (moved, now, before) in [(true, "/there", "/here"), (false, "/here", "/there")] {
        fs.moved.store(moved, Ordering::SeqCst);
        let asked = lookups(&fs);
        // No walk has used the old name since.
        assert_eq!((ino(now), lookups(&fs) - asked), (dir, 1));
        assert_eq!((ino(&format!("{now}/f1")), ino(&format!("{now}/f2"))), (file, other));
        assert_eq!(lookups(&fs) - asked, 1, "the names below are cached");
        assert_eq!(path(), format!("{now}/f1"));
        assert_eq!(cwd.posix().getcwd().unwrap().to_str(), Some(now));
        assert_eq!(task.posix().mounts()[1].mount_point.to_str(), Some(&*format!("{now}/f2")));
        assert!(!exists(&task, before));
    }
    task.posix().umount("/here/f2", UmountFlags::empty()).unwrap();
    drop((held, cwd));
    vfscale_sync::rcu::synchronize();
    fs.with_super(|sb| while sb.shrink(usize::MAX) > 0 {});
    vfscale_sync::rcu::synchronize();
    fs.with_super(|sb| assert_eq!(sb.inodes_in_use(), 2, "the root, and none"));
}

/// If a name gets another file, the dcache drops the whole subtree below it, thousands of names,
/// except the dentries in use.
#[test]
fn a_subtree_that_has_gone_by_itself_leaves_the_dcache() {
    const FILES: u64 = 5000;
    let (fs, task) = mounted(1, FILES);
    fs.tide.store(1, Ordering::SeqCst);
    for file in 0..FILES {
        assert!(exists(&task, &format!("/tide/f{file}")));
    }
    let held = open(&task, "/tide/f7");
    let before = task.vfs().counts().dentries;
    fs.tide.store(2, Ordering::SeqCst);
    assert!(!exists(&task, "/tide"));
    // The dentry in use, its directory, and the negative dentry.
    assert_eq!(before as u64 - task.vfs().counts().dentries as u64, FILES - 2);
    assert_eq!(task.posix().path_of(&held).unwrap().to_str(), Some("/tide/f7 (deleted)"));
    drop(held);
    vfscale_sync::rcu::synchronize();
    assert_eq!(before as u64 - task.vfs().counts().dentries as u64, FILES);
}

/// Releases the threads that the driver blocks, when dropped.
struct Released<'a>(&'a Numbers);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.stops.store(false, Ordering::SeqCst);
    }
}

/// Lookups, of cached names and of others, proceed while the shrinker runs, here for as long as the
/// driver takes to evict an inode.
#[test]
fn no_lookup_waits_for_the_shrinker() {
    let (fs, task) = mounted(2, 400);
    // On one CPU, because each has its own list, of which the oldest dentries are dropped first: a
    // lookup of the inode that is being evicted would wait for it.
    let _here = vfscale_sync::cpu::pretend(0);
    let look = |files: std::ops::Range<u64>| {
        files.for_each(|file| assert!(exists(&task, &format!("/d0/f{file}"))));
    };
    look(0..200);
    fs.stops.store(true, Ordering::SeqCst);
    let (shrunk, is_shrunk) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _here = vfscale_sync::cpu::pretend(0);
            shrunk.send(fs.with_super(|sb| sb.shrink(usize::MAX))).unwrap();
        });
        // Released on a panic, too, so a failure below does not hang the test.
        let _released = Released(&fs);
        while fs.evicted() == 0 {
            std::thread::yield_now();
        }
        let asked = lookups(&fs);
        look(100..200);
        assert_eq!(lookups(&fs), asked, "they are still cached");
        look(200..400);
        assert!(!exists(&task, "/d0/none") && exists(&task, "/d1/f0"));
        let file = open(&task, "/d0/f300");
        assert_eq!(task.posix().path_of(&file).unwrap().to_str(), Some("/d0/f300"));
        assert!(is_shrunk.try_recv().is_err(), "the shrinker still runs");
    });
    assert!(is_shrunk.recv().unwrap() > 0);
}

/// A dentry that all CPUs used has a sharded count: the shrinker first collects the count, and
/// drops the dentry after that.
#[test]
fn the_shrinker_demotes_what_everybody_has_used() {
    let fs = Numbers::new(1, 1);
    let task = Vfs::with_scaling(fs.clone(), Scaling::with_slots(2)).unwrap().task();
    let opens_on = |cpus: u32| {
        for n in 0..100 {
            let _there = vfscale_sync::cpu::pretend(n % cpus);
            drop(open(&task, "/d0/f0"));
        }
    };
    let shrink = || fs.with_super(|sb| sb.shrink(usize::MAX));
    opens_on(1);
    assert_eq!(shrink(), 2);
    opens_on(2);
    assert_eq!(shrink(), 0, "it may be in use, and so is its directory");
    vfscale_sync::rcu::synchronize();
    assert_eq!(shrink(), 2);
}

/// Subtree shrink: the dcache drops everything below a directory, however recently walks used it,
/// except dentries in use and their ancestors.
#[test]
fn the_cache_of_a_subtree_is_dropped() {
    let (fs, task) = mounted(3, 500);
    for (dir, file) in (0..3).flat_map(|dir| (0..500).map(move |file| (dir, file))) {
        assert!(exists(&task, &format!("/d{dir}/f{file}")));
    }
    assert!(!exists(&task, "/d1/none"));
    let asked = lookups(&fs);
    let held = open(&task, "/d1/f5");
    assert_eq!(
        task.posix().drop_cached(At::Cwd, "/d1").unwrap(),
        500,
        "all but one, and what is not there"
    );
    assert!(exists(&task, "/d0/f0") && exists(&task, "/d1/f5") && exists(&task, "/d2/f499"));
    assert_eq!(lookups(&fs), asked);
    assert!(exists(&task, "/d1/f6"));
    assert_eq!(lookups(&fs), asked + 1);
    // From the root: also the other two directories.
    assert_eq!(task.posix().drop_cached(At::Cwd, "/").unwrap(), 1 + 2 * 501);
    drop(held);
    assert_eq!(task.posix().drop_cached(At::Cwd, "/").unwrap(), 2);
    let nobody = task.with_credentials(vfscale_vfs::Credentials::user(7, 7));
    assert_eq!(nobody.posix().drop_cached(At::Cwd, "/").unwrap_err().errno(), Errno::PERM);
}

#[test]
fn handles_outlive_the_cache() {
    let (fs, task) = mounted(4, 4);
    let root = open(&task, "/");
    let handle =
        |path: &str| task.posix().name_to_handle_at(At::Cwd, path, AtFlags::empty()).unwrap();
    let (file, dir) = (handle("/d1/f1"), handle("/d2"));
    fs.with_super(|sb| assert_eq!(sb.shrink(usize::MAX), 3));
    let reopened = task.posix().open_by_handle_at(&root, &file, OFlags::RDONLY).unwrap();
    assert_eq!(reopened.stat().unwrap().ino, file.ino);
    // No name of the file is cached. Once a name is cached, the handle leads to that name.
    let path = format!("/#{} (deleted)", file.ino);
    assert_eq!(task.posix().path_of(&reopened).unwrap().to_str(), Some(&*path));
    assert!(exists(&task, "/d1/f1"));
    let again = task.posix().open_by_handle_at(&root, &file, OFlags::RDONLY).unwrap();
    assert_eq!(task.posix().path_of(&again).unwrap().to_str(), Some("/d1/f1"));
    let reopened = task.posix().open_by_handle_at(&root, &dir, OFlags::RDONLY).unwrap();
    assert_eq!(reopened.stat().unwrap().ino, dir.ino);
    assert_eq!(
        task.posix().path_of(&reopened).unwrap().to_str(),
        Some("/d2"),
        "it is connected again"
    );
    let below = task.posix().fstatat(At::File(&reopened), "f3", AtFlags::empty()).unwrap().ino;
    assert_eq!(task.metadata("/d2/f3").unwrap().ino, below);
    let gone = vfscale_vfs::FileHandle { ino: 99, ..dir };
    let error = task.posix().open_by_handle_at(&root, &gone, OFlags::RDONLY).unwrap_err();
    assert_eq!(error.errno(), Errno::STALE);
}
