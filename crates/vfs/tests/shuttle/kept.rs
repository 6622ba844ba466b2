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
use vfscale_vfs::{At, Errno, Mode, MountFlags, OFlags, Result, Task, UmountFlags, Vfs};

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
    let first = model::spawn(task.clone(), move |task| {
        let _cpu = cpu::pretend(0);
        one(&task)
    });
    let second = other(task);
    (first.join().unwrap(), second)
}

fn errno(result: Result<()>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

fn ino(task: &Task, path: &str) -> std::result::Result<u64, Errno> {
    task.metadata(path).map(|stat| stat.ino).map_err(|e| e.errno())
}

fn mkdir(task: &Task, path: &str) -> Option<Errno> {
    errno(task.posix().mkdirat(At::Cwd, path, Mode::RWXU))
}

fn touch(task: &Task, path: &str) -> Result<u64> {
    Ok(task.posix().open(path, NEW, Mode::RWXU)?.stat()?.ino)
}

fn unlink(task: &Task, path: &str) -> Option<Errno> {
    errno(task.remove_file(path))
}

fn rename(task: &Task, old: &str, new: &str) -> Option<Errno> {
    errno(task.rename(old, new))
}

/// A lookup concurrent with the creation of a name finds it or not; once found, the name remains.
///
/// Race: Lookup / lookup, create, of a name that a driver looks up.
///
/// Race: A lookup that a driver answers against a change of that name.
///
/// A change locks the name before it checks that the dentry is the one that its walk has found, has
/// the driver make the change, and then changes the table. A lookup locks the name, looks at the
/// table again, calls the driver, and enters the answer into the table. So an answer from before a
/// change never enters the table after it. Of two changes of one name the second finds another
/// dentry, and walks again. A name that is replaced may be missing from the table for a moment, but
/// a walk that misses it calls the driver, and for that it waits for the name's lock.
///
/// Seam: a walk that defers work / the driver's change; parties: a change, a lookup, the shrinker:
/// two at a time.
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
///
/// Race: A lookup that a driver answers against a change of that name.
/// Race: Create / create; create / unlink / rename.
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

/// A name that exists, and that the dcache does not have, is opened or made, made, and removed.
///
/// Race: Create of a name that is not cached / create / unlink.
///
/// Race: A creation without a lookup against changes of that name.
///
/// The creation locks the name, and checks that the table still has no dentry under it. Whoever
/// enters one has locked the name. So the driver is asked by one thread at a time, and what it made
/// is entered before another thread looks. If the name exists the driver says so, and the lookup
/// that follows locks the name again.
///
/// Seam: a walk that defers work / the driver's change; parties: two creations, a removal.
#[test]
fn creations_of_a_name_that_is_not_cached() {
    check(|fs, task| {
        let forget = || {
            rcu::synchronize();
            fs.with_super(|sb| while sb.shrink(usize::MAX) > 0 {});
        };
        touch(task, "/f").unwrap();
        forget();
        let remover = model::spawn(task.clone(), move |task| {
            let _cpu = cpu::pretend(1);
            unlink(&task, "/f")
        });
        let make = |task: &Task| -> Result<u64> {
            Ok(task.posix().open("/f", NEW | OFlags::EXCL, Mode::RWXU)?.stat()?.ino)
        };
        let (opened, made) = both(task, |task| touch(task, "/f").unwrap(), make);
        assert_eq!(remover.join().unwrap(), None);
        let known = ino(task, "/f");
        match &made {
            // Only after the removal, which is the only one.
            Ok(made) => assert_eq!(known, Ok(*made)),
            Err(error) => assert_eq!(error.errno(), Errno::EXIST),
        }
        assert!(known.is_err() || made.is_ok() || known == Ok(opened));
        forget();
        assert_eq!(ino(task, "/f"), known, "the dcache and the driver agree");
    });
}

/// A directory is removed while a file is created in it: one of the two calls fails.
///
/// Race: `rmdir` / create.
///
/// Race: Removing a directory of a backed driver against creating in it.
///
/// The two lock different names. The driver decides, in its transactions: it does not remove a
/// directory that is not empty, and creates nothing in one that was removed. Negative dentries of
/// the removed directory leave the table with it. A name that the driver has just moved out of the
/// directory may still be in that table: it is marked before the driver is called, and stays there
/// until it moves to its new bucket.
#[test]
fn rmdir_against_create() {
    check(|_, task| {
        assert_eq!(mkdir(task, "/d"), None);
        let (removed, made) = both(
            task,
            |task| errno(task.remove_dir("/d")),
            |task| touch(task, "/d/f").map_err(|error| error.errno()),
        );
        match made {
            Ok(_) => assert_eq!(removed, Some(Errno::NOTEMPTY)),
            Err(errno) => assert_eq!((errno, removed), (Errno::NOENT, None)),
        }
    });
}

/// A name that is replaced is never missing, and never has its old file again.
///
/// Race: A lookup that a driver answers against a change of that name.
/// Race: Rename, exchange / lookup.
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
///
/// Race: Rename / rename into each other (`is_subdir()` in Linux).
///
/// Race: Two directories of a backed driver that move into each other.
///
/// A thread that moves a directory to another parent locks all such moves of the superblock, and
/// with that lock checks again whether the move would make a loop: from then on no directory gets
/// another parent.
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
///
/// Race: Removing a directory of a backed driver against creating in it.
/// Race: Rename of a directory / create, `rmdir`.
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
///
/// Race: Removing a directory of a backed driver against creating in it.
/// Race: Rename of a directory / create, `rmdir`.
#[test]
fn rmdir_against_the_last_that_moves_out() {
    check(|fs, task| {
        for path in ["/d", "/d/e"] {
            assert_eq!(mkdir(task, path), None);
        }
        let inside = task.posix().open("/d/e", OFlags::RDONLY, Mode::empty()).unwrap();
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
                errno(task.remove_dir("/d"))
            },
        );
        assert_eq!((renamed, removed), (None, None));
        assert_eq!(task.posix().path_of(&inside).unwrap().to_str(), Some("/g"));
        let made = task.posix().openat(At::File(&inside), "f", NEW, Mode::RWXU).unwrap();
        assert_eq!(ino(task, "/g/f"), Ok(made.stat().unwrap().ino));
    });
}

/// A file loses a name and gets another: in the end it has that one, or the link failed.
///
/// Race: Link / unlink.
///
/// Race: A file of a backed driver that loses its last name against a link.
///
/// The two calls lock different names, so both run concurrently. The driver counts the links, and
/// does not add a name to an inode that has none left.
#[test]
fn link_against_unlink() {
    check(|_, task| {
        touch(task, "/f").unwrap();
        let (linked, gone) =
            both(task, |task| errno(task.hard_link("/f", "/g")), |task| unlink(task, "/f"));
        assert_eq!(gone, None);
        assert!(linked.is_none() || linked == Some(Errno::NOENT));
        assert_eq!(ino(task, "/g").is_ok(), linked.is_none());
    });
}

/// Names are removed and made again concurrently with the shrinker, which drops dentries and
/// inodes.
///
/// Race: Shrinker (LRU) / lookup, open, change.
///
/// Race: The shrinker against a change.
///
/// A change holds the dentry that its walk has found, also a negative one, so the dentry stays in
/// the table until the change has been made.
///
/// Seam: a walk that defers work / the driver's change; parties: a change, a lookup, the shrinker:
/// two at a time.
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
///
/// Race: Inode cache: lookup / eviction / last name.
///
/// Race: The eviction of an inode against another of that number.
///
/// An inode that has lost its last user stays in the hash until the driver has evicted it. A thread
/// that wants an inode of its number finds it there, without users, and sleeps. It entered the list
/// of waiters under the lock of the hash's bucket, which the evicting thread takes to remove the
/// inode before it reads that list. One thread at a time creates an inode of a number, so it reads
/// the stored inode when no other inode of that number can change it. It used to read before that,
/// and an inode that was created, changed and evicted in between left it stale.
#[test]
fn evicting_against_asking() {
    check(|fs, task| {
        let known = touch(task, "/f").unwrap();
        let mode = Mode::RUSR;
        task.set_permissions("/f", mode).unwrap();
        let shrinking = fs.clone();
        let (_, seen) = both(
            task,
            move |_| {
                shrinking.with_super(|sb| sb.shrink(usize::MAX));
                shrinking.with_super(|sb| sb.shrink(usize::MAX));
            },
            |task| {
                let first = task.metadata("/f").unwrap();
                let second = task.metadata("/f").unwrap();
                [(first.ino, first.mode & 0o777), (second.ino, second.mode & 0o777)]
            },
        );
        assert_eq!(seen, [(known, mode.bits()), (known, mode.bits())]);
    });
}

/// A directory is removed while a file system is mounted on it: one of the two calls fails.
///
/// Race: `rmdir` / mount, in the same tree and in another.
///
/// Race: A mount against the removal of its mountpoint by a driver.
///
/// The driver removes a name while no lock of the dcache is held. Before that, the dentry is marked
/// under the lock of its bucket, where a mountpoint is claimed as well: either the removal finds
/// the mount and fails, or the mount finds the mark and fails with `EBUSY`. Mounts in other trees
/// end once the name is removed.
#[test]
fn rmdir_against_mount() {
    check(|_, task| {
        assert_eq!(mkdir(task, "/d"), None);
        let (removed, mounted) = both(
            task,
            |task| errno(task.remove_dir("/d")),
            |task| errno(task.posix().mount(Tables::new(), "/d", MountFlags::empty())),
        );
        if mounted.is_none() {
            assert_eq!(removed, Some(Errno::BUSY));
            task.posix().umount("/d", UmountFlags::empty()).unwrap();
        } else {
            assert!([Some(Errno::NOENT), Some(Errno::BUSY)].contains(&mounted), "{mounted:?}");
            assert_eq!(removed, None);
        }
    });
}
