//! Schedules of changes of a backed driver's directories, chosen at random: `RUSTFLAGS="--cfg
//! shuttle" cargo test --release -p vfscale-vfs --test shuttle kept::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well. The driver itself asserts that a name to change still has the inode that the VFS expects,
//! that a number has one inode, and that none is made before the previous one has been evicted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::tables::Tables;
use shuttle::thread;
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::{cpu, rcu};
use vfscale_vfs::{
    At, AtFlags, Errno, Mode, MountFlags, OFlags, RenameFlags, Result, Task, UmountFlags, Vfs,
};

const TURNS: usize = 2_000;
const DELAYS: usize = 1_000;
const NEW: OFlags = OFlags::CREATE.union(OFlags::RDWR);

/// Runs a model under many schedules, on a driver that yields before and after each operation.
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

/// Runs two calls concurrently, and returns their results.
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

/// A lookup concurrent with the creation of a name finds it or not; once found, the name remains.
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

/// Of two threads that create a name, one creates it, and both open the same file.
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

/// A directory is removed while a file is created in it: one of the two calls fails.
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

/// A name that is replaced is never missing, and never has its old file again.
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

/// Two directories that are moved into each other form no loop.
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

/// A rename replaces a directory while a file is created in it.
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
        // The new file is in one of the two directories, or the creation found a removed one.
        assert!(made.is_ok() || made == Err(Errno::NOENT) && renamed.is_none());
        assert_eq!(ino(task, "/b/f").is_ok(), made.is_ok());
    });
}

/// A directory is removed as soon as the driver has moved the last entry out of it: the entry,
/// which is open, retains its position in the tree.
#[test]
fn rmdir_against_the_last_that_moves_out() {
    check(|fs, task| {
        for path in ["/d", "/d/e"] {
            assert_eq!(mkdir(task, path), None);
        }
        let inside = task.open("/d/e", OFlags::RDONLY, Mode::empty()).unwrap();
        // The driver pauses after it has moved the entry; the other thread waits for that moment.
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

/// A file loses a name and gets another: in the end it has that one, or the link failed.
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

/// Names are removed and made again concurrently with the shrinker, which drops dentries and
/// inodes.
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

/// An inode is evicted while it is looked up again: it is made again after the previous one has
/// been evicted. (The driver asserts that.)
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

/// A directory is removed while a file system is mounted on it: one of the two calls fails.
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
