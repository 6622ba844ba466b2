//! Schedules of changes that a driver makes which keeps directories, chosen at random:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale-vfs --test shuttle_kept`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well. The driver itself asserts that a name it is asked to change is what the VFS takes it for,
//! that there is one inode of a number, and that none is made before the last one has been evicted.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test")]

mod tables;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::thread;
use tables::Tables;
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::{cpu, rcu};
use vfscale_vfs::{
    At, AtFlags, Errno, Mode, MountFlags, OFlags, RenameFlags, Result, Task, UmountFlags, Vfs,
};

const TURNS: usize = 2_000;
const DELAYS: usize = 1_000;
const NEW: OFlags = OFlags::CREATE.union(OFlags::RDWR);

/// Runs a model under many schedules, on a driver that gives way before and after what it does.
fn check(model: impl Fn(&Arc<Tables>, &Arc<Task>) + Send + Sync + 'static) {
    model::check(&[Schedules::Turns(TURNS), Schedules::Delays(DELAYS)], move || {
        let fs = Tables::new();
        fs.pauses.store(1, Ordering::Relaxed);
        let task = Arc::new(Vfs::new(fs.clone()).unwrap().task());
        model(&fs, &task);
        fs.check();
        rcu::synchronize();
        fs.with_super(|sb| while sb.shrink(usize::MAX) > 0 {});
        assert_eq!(fs.with_super(|sb| sb.inodes_in_use()), 2, "the root, and none");
        fs.check();
    });
}

/// Runs two calls at the same time, and returns what they did.
fn both<A: Send + 'static, B>(
    task: &Arc<Task>,
    one: impl FnOnce(&Task) -> A + Send + 'static,
    other: impl FnOnce(&Task) -> B,
) -> (A, B) {
    let first = {
        let task = task.clone();
        thread::spawn(move || {
            let _cpu = cpu::pretend(0);
            one(&task)
        })
    };
    let second = other(task);
    (first.join().unwrap(), second)
}

fn errno(result: Result<()>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

fn ino(task: &Task, path: &str) -> std::result::Result<u64, Errno> {
    task.stat(At::Cwd, path, AtFlags::empty()).map(|stat| stat.ino).map_err(|e| e.errno())
}

fn mkdir(task: &Task, path: &str) -> Option<Errno> {
    errno(task.mkdir(At::Cwd, path, Mode::RWXU))
}

fn touch(task: &Task, path: &str) -> Result<u64> {
    Ok(task.open(path, NEW, Mode::RWXU)?.stat()?.ino)
}

fn unlink(task: &Task, path: &str) -> Option<Errno> {
    errno(task.unlink(At::Cwd, path, AtFlags::empty()))
}

fn rename(task: &Task, old: &str, new: &str) -> Option<Errno> {
    errno(task.rename(At::Cwd, old, At::Cwd, new, RenameFlags::empty()))
}

/// A name that is looked up while it is made is not there, or is, and then stays.
#[test]
fn lookup_against_create() {
    check(|_, task| {
        let (made, seen) = both(
            task,
            |task| mkdir(task, "/a"),
            |task| [ino(task, "/a"), ino(task, "/a"), ino(task, "/a/b")],
        );
        assert_eq!(made, None);
        let known = ino(task, "/a").unwrap();
        assert!(seen[0] == Err(Errno::NOENT) || seen[0] == Ok(known));
        assert!(seen[0].is_err() || seen[1] == Ok(known));
        assert_eq!(seen[2], Err(Errno::NOENT));
    });
}

/// Of two that make a name one does, and both open the same file.
#[test]
fn create_against_create() {
    check(|_, task| {
        let (one, other) = both(task, |task| mkdir(task, "/a"), |task| mkdir(task, "/a"));
        assert!([one, other].contains(&None) && [one, other].contains(&Some(Errno::EXIST)));
        let open = |task: &Task| touch(task, "/f").unwrap();
        let (one, other) = both(task, open, open);
        assert_eq!(one, other);
    });
}

/// A directory that is removed while something is made in it: one of the two fails.
#[test]
fn rmdir_against_create() {
    check(|_, task| {
        assert_eq!(mkdir(task, "/d"), None);
        let (removed, made) = both(
            task,
            |task| errno(task.rmdir(At::Cwd, "/d")),
            |task| touch(task, "/d/f").map_err(|error| error.errno()),
        );
        match made {
            Ok(_) => assert_eq!(removed, Some(Errno::NOTEMPTY)),
            Err(errno) => assert_eq!((errno, removed), (Errno::NOENT, None)),
        }
    });
}

/// A name that is replaced is never missing, and never goes back.
#[test]
fn lookup_against_a_rename_that_replaces() {
    check(|_, task| {
        let old = touch(task, "/b").unwrap();
        let new = touch(task, "/a").unwrap();
        let (renamed, seen) = both(
            task,
            |task| rename(task, "/a", "/b"),
            |task| [ino(task, "/b").unwrap(), ino(task, "/b").unwrap()],
        );
        assert_eq!(renamed, None);
        assert!([[old, old], [old, new], [new, new]].contains(&seen), "{seen:?}");
        assert_eq!((ino(task, "/a"), ino(task, "/b")), (Err(Errno::NOENT), Ok(new)));
    });
}

/// Two directories that are moved into each other make no loop.
#[test]
fn moves_of_directories_make_no_loop() {
    check(|fs, task| {
        assert_eq!((mkdir(task, "/a"), mkdir(task, "/b")), (None, None));
        let (one, other) =
            both(task, |task| rename(task, "/a", "/b/a"), |task| rename(task, "/b", "/a/b"));
        fs.check();
        // The second one finds no such name, or a move into itself.
        let lost = [Some(Errno::NOENT), Some(Errno::INVAL)];
        assert!(one.is_none() && lost.contains(&other) || other.is_none() && lost.contains(&one));
        assert!(ino(task, "/a/b").is_ok() || ino(task, "/b/a").is_ok());
    });
}

/// A directory that is replaced by a rename while something is made in it.
#[test]
fn a_replaced_directory_against_create() {
    check(|_, task| {
        assert_eq!((mkdir(task, "/a"), mkdir(task, "/b")), (None, None));
        let (renamed, made) = both(
            task,
            |task| rename(task, "/a", "/b"),
            |task| touch(task, "/b/f").map_err(|error| error.errno()),
        );
        assert!(renamed.is_none() || renamed == Some(Errno::NOTEMPTY));
        // The new file is in one directory or the other, or that one was just removed.
        assert!(made.is_ok() || made == Err(Errno::NOENT) && renamed.is_none());
        assert_eq!(ino(task, "/b/f").is_ok(), made.is_ok());
    });
}

/// A directory that is removed as soon as the driver has moved the last file out of it: the file
/// keeps its place in the tree, and whoever has it open.
#[test]
fn rmdir_against_the_last_that_moves_out() {
    check(|fs, task| {
        for path in ["/d", "/d/e"] {
            assert_eq!(mkdir(task, path), None);
        }
        let inside = task.open("/d/e", OFlags::RDONLY, Mode::empty()).unwrap();
        // The driver takes its time when it has moved the file, and somebody waits for just that.
        fs.pauses.store(30, Ordering::Relaxed);
        let (renamed, removed) = both(
            task,
            |task| rename(task, "/d/e", "/g"),
            |task| {
                while !fs.is_stored("g") {
                    thread::yield_now();
                }
                (0..3).for_each(|_| thread::yield_now());
                fs.pauses.store(0, Ordering::Relaxed);
                errno(task.rmdir(At::Cwd, "/d"))
            },
        );
        assert_eq!((renamed, removed), (None, None));
        assert_eq!(task.path_of(&inside).unwrap().to_str(), Some("/g"));
        let made = task.openat(At::File(&inside), "f", NEW, Mode::RWXU).unwrap();
        assert_eq!(ino(task, "/g/f"), Ok(made.stat().unwrap().ino));
    });
}

/// A file loses a name and gets one: it has one in the end, or could get none.
#[test]
fn link_against_unlink() {
    check(|_, task| {
        touch(task, "/f").unwrap();
        let (linked, gone) = both(
            task,
            |task| errno(task.link(At::Cwd, "/f", At::Cwd, "/g", AtFlags::empty())),
            |task| unlink(task, "/f"),
        );
        assert_eq!(gone, None);
        assert!(linked.is_none() || linked == Some(Errno::NOENT));
        assert_eq!(ino(task, "/g").is_ok(), linked.is_none());
    });
}

/// Names are removed and made again beside the shrinker, which drops dentries and inodes.
#[test]
fn changes_beside_the_shrinker() {
    check(|fs, task| {
        let first = touch(task, "/f").unwrap();
        let shrinking = fs.clone();
        let (_, second) = both(
            task,
            move |_| {
                for _ in 0..3 {
                    shrinking.with_super(|sb| sb.shrink(usize::MAX));
                }
            },
            |task| {
                assert_eq!(ino(task, "/f"), Ok(first));
                assert_eq!(rename(task, "/f", "/g"), None);
                assert_eq!(unlink(task, "/g"), None);
                touch(task, "/f").unwrap()
            },
        );
        assert_ne!(first, second);
        assert_eq!((ino(task, "/f"), ino(task, "/g")), (Ok(second), Err(Errno::NOENT)));
    });
}

/// An inode that goes while it is asked for again: it is made anew when the last has been evicted.
/// (The driver asserts that.)
#[test]
fn evicting_against_asking() {
    check(|fs, task| {
        let known = touch(task, "/f").unwrap();
        let mode = Mode::RUSR;
        task.chmod(At::Cwd, "/f", mode, AtFlags::empty()).unwrap();
        let shrinking = fs.clone();
        let (_, seen) = both(
            task,
            move |_| {
                shrinking.with_super(|sb| sb.shrink(usize::MAX));
                shrinking.with_super(|sb| sb.shrink(usize::MAX));
            },
            |task| {
                let first = task.stat(At::Cwd, "/f", AtFlags::empty()).unwrap();
                let second = task.stat(At::Cwd, "/f", AtFlags::empty()).unwrap();
                [(first.ino, first.mode & 0o777), (second.ino, second.mode & 0o777)]
            },
        );
        assert_eq!(seen, [(known, mode.bits()), (known, mode.bits())]);
    });
}

/// A directory that is removed while something is mounted on it: one of the two fails.
#[test]
fn rmdir_against_mount() {
    check(|_, task| {
        assert_eq!(mkdir(task, "/d"), None);
        let (removed, mounted) = both(
            task,
            |task| errno(task.rmdir(At::Cwd, "/d")),
            |task| errno(task.mount(Tables::new(), "/d", MountFlags::empty())),
        );
        if mounted.is_none() {
            assert_eq!(removed, Some(Errno::BUSY));
            task.umount("/d", UmountFlags::empty()).unwrap();
        } else {
            assert!([Some(Errno::NOENT), Some(Errno::BUSY)].contains(&mounted), "{mounted:?}");
            assert_eq!(removed, None);
        }
    });
}
