#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use vfscale_sync::rcu;

use crate::base::types::{Mode, MountFlags, OFlags, UmountFlags};
use crate::names_only_tests::{NamesOnly, names_only};
use crate::task::task_struct::{At, Task};
use crate::{Vfs, driver::FileSystem};
use vfscale_sync::scaling::Scaling;

/// Counts of inodes that the reclaim thread or any other thread evicts.
#[derive(Default)]
struct Evictions {
    by_thread: AtomicUsize,
    by_others: AtomicUsize,
    /// Set by work that is deferred at the first eviction.
    marker: Arc<AtomicBool>,
    /// Number of evictions before that work ran.
    before_marker: AtomicUsize,
}

impl Evictions {
    fn note(&self) {
        let is_thread = thread::current().name() == Some("vfscale-reclaim");
        let count = if is_thread { &self.by_thread } else { &self.by_others };
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            let marker = Arc::clone(&self.marker);
            let guard = rcu::pin();
            guard.defer(move || marker.store(true, Ordering::Relaxed));
            guard.hand_over();
        }
        if !self.marker.load(Ordering::Relaxed) {
            self.before_marker.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of evictions by the reclaim thread, and by others.
    fn seen(&self) -> (usize, usize) {
        (self.by_thread.load(Ordering::Relaxed), self.by_others.load(Ordering::Relaxed))
    }
}

fn watched() -> (Arc<NamesOnly>, Arc<Evictions>) {
    let (fs, evictions) = (Arc::new(NamesOnly::default()), Arc::new(Evictions::default()));
    let notes = Arc::clone(&evictions);
    assert!(fs.on_evict.set(Box::new(move || notes.note())).is_ok());
    (fs, evictions)
}

/// Makes a tree with some files and directories in it; returns how many inodes it has.
fn planted(files: usize) -> (Arc<NamesOnly>, Arc<Evictions>, Vfs, usize) {
    let (fs, evictions) = watched();
    let vfs = Vfs::new(Arc::clone(&fs) as Arc<dyn FileSystem>).unwrap();
    let inodes = 1 + plant(&vfs.task(), "", files);
    (fs, evictions, vfs, inodes)
}

fn create(task: &Task, path: &str) {
    task.posix().open(path, OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
}

/// Creates many files in one directory, deep directories with some, empty ones, and files of
/// several names. Returns the number of inodes below it.
fn plant(task: &Task, top: &str, files: usize) -> usize {
    (0..files).for_each(|n| create(task, &format!("{top}/f{n}")));
    let (mut deep, mut inodes) = (top.to_owned(), files);
    for n in 0..40 {
        deep = format!("{deep}/d");
        task.posix().mkdirat(At::Cwd, &deep, Mode::RWXU).unwrap();
        task.posix().mkdirat(At::Cwd, format!("{deep}/empty"), Mode::RWXU).unwrap();
        create(task, &format!("{deep}/file"));
        let other = format!("{deep}/other");
        task.hard_link(format!("{top}/f{n}"), other).unwrap();
        inodes += 3;
    }
    inodes
}

/// Sleeps until the driver has been dropped, without a call to the file system.
fn wait_for_end(fs: &Arc<NamesOnly>) {
    vfscale_harness::wait_until("the driver is dropped", || Arc::strong_count(fs) == 1);
}

/// Some sections of a thread run deferred work, which once contained the end of a whole tree.
///
/// Race: The end of a superblock against walks and other calls.
#[test]
fn a_tree_is_taken_down_by_no_call_of_others() {
    let (fs, evictions, vfs, inodes) = planted(20_000);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let task = names_only(Scaling::default()).task();
            create(&task, "/file");
            while !is_over.load(Ordering::Relaxed) {
                task.posix().open("/file", OFlags::RDONLY, Mode::empty()).unwrap();
            }
        });
        drop(vfs);
        wait_for_end(&fs);
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(evictions.seen(), (inodes, 0));
}

#[test]
fn a_dropped_tree_ends_though_nobody_calls() {
    let (fs, evictions, vfs, inodes) = planted(20_000);
    drop(vfs);
    wait_for_end(&fs);
    assert_eq!(evictions.seen(), (inodes, 0));
}

/// Work that is deferred during a take-down need not wait for the end of the take-down.
///
/// Race: The end of a superblock against walks and other calls.
#[test]
fn grace_periods_end_while_a_tree_is_taken_down() {
    let (fs, evictions, vfs, inodes) = planted(100_000);
    drop(vfs);
    wait_for_end(&fs);
    assert_eq!(evictions.seen(), (inodes, 0));
    let before = evictions.before_marker.load(Ordering::Relaxed);
    assert!(before < inodes / 2, "{before} of {inodes}");
}

/// Race: The end of a superblock against walks and other calls.
#[test]
fn a_tree_stays_while_sections_last_that_began_before() {
    let (fs, evictions, vfs, inodes) = planted(500);
    let guard = rcu::pin();
    drop(vfs);
    vfscale_harness::pause(Duration::from_millis(100));
    assert_eq!(evictions.seen(), (0, 0));
    drop(guard);
    wait_for_end(&fs);
    assert_eq!(evictions.seen(), (inodes, 0));
}

#[test]
fn an_unmount_waits_for_the_end_of_its_superblock() {
    let task = names_only(Scaling::default()).task();
    task.posix().mkdirat(At::Cwd, "/m", Mode::RWXU).unwrap();
    let (fs, evictions) = watched();
    task.posix().mount(Arc::clone(&fs) as Arc<dyn FileSystem>, "/m", MountFlags::empty()).unwrap();
    let inodes = 1 + plant(&task, "/m", 20_000);
    task.posix().umount("/m", UmountFlags::empty()).unwrap();
    assert_eq!((evictions.seen(), Arc::strong_count(&fs)), ((inodes, 0), 1));
}
