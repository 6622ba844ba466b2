//! Schedules of lookups that a driver answers, chosen at random: `RUSTFLAGS="--cfg shuttle" cargo
//! test --release -p vfscale-vfs --test shuttle lookup::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::numbers::Numbers;
use shuttle::thread;
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::{cpu, rcu};
use vfscale_vfs::inode::InodeInit;
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::{At, AtFlags, Errno, Mode, OFlags, Task, Vfs};

const SCHEDULES: usize = 5_000;

/// Runs a model under many schedules.
fn check(model: impl Fn(&Arc<Numbers>, &Arc<Task>) + Send + Sync + 'static) {
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], move || {
        let fs = Numbers::new(2, 2);
        let task = Arc::new(Vfs::new(fs.clone()).unwrap().task());
        model(&fs, &task);
        rcu::synchronize();
        fs.with_super(|sb| sb.shrink(usize::MAX));
        assert_eq!(fs.with_super(|sb| sb.inodes_in_use()), 2, "the root, and none");
    });
}

fn ino(task: &Task, path: &str) -> Result<u64, Errno> {
    task.stat(At::Cwd, path, AtFlags::empty()).map(|stat| stat.ino).map_err(|e| e.errno())
}

/// Names exist or do not exist, whichever thread looks them up first, and whatever the shrinker
/// drops concurrently.
#[test]
fn lookups_beside_the_shrinker() {
    check(|fs, task| {
        let threads = [0, 1].map(|_| {
            let task = task.clone();
            thread::spawn(move || {
                let _cpu = cpu::pretend(0);
                let first = ino(&task, "/d1/f1").unwrap();
                assert_eq!(ino(&task, "/d1/f2"), Err(Errno::NOENT));
                assert_eq!(ino(&task, "/d1/f1"), Ok(first), "the same file, even if made again");
            })
        });
        fs.with_super(|sb| sb.shrink(usize::MAX));
        fs.with_super(|sb| sb.shrink(usize::MAX));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// The driver has at most one lookup of a name at a time.
#[test]
fn two_threads_ask_for_one_name() {
    check(|fs, task| {
        let other = {
            let task = task.clone();
            thread::spawn(move || {
                let _cpu = cpu::pretend(0);
                ino(&task, "/d0/f0").unwrap()
            })
        };
        let mine = ino(task, "/d0/f0").unwrap();
        assert_eq!(other.join().unwrap(), mine);
        assert_eq!(fs.lookups.load(Ordering::Relaxed), 2);
    });
}

/// An inode without a name is evicted once, whichever thread uses it last, and whichever other
/// threads look up its number or shrink the cache concurrently: these threads get this inode or
/// another one.
#[test]
fn an_inode_without_a_name_goes_once() {
    check(|fs, _| {
        const INO: u64 = 1 << 50;
        let get = |sb: &SuperBlock| {
            sb.iget(INO, || InodeInit { mode: 0o100_644, nlink: 1, ..InodeInit::default() })
        };
        let first = fs.with_super(get);
        let threads = [false, true].map(|unlinks| {
            let root = fs.root();
            thread::spawn(move || {
                let _cpu = cpu::pretend(0);
                let inode = get(root.sb());
                assert_eq!(inode.ino(), INO);
                if unlinks {
                    inode.set_nlink(0);
                }
            })
        });
        drop(first);
        fs.with_super(|sb| sb.shrink(usize::MAX));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        fs.with_super(|sb| {
            let left = sb.inodes_in_use() - 2;
            assert_eq!(left, sb.unused_inodes());
            assert!(left <= 1, "{left}");
        });
    });
}

/// The shrinker drops no open file, and no thread opens a dropped one.
#[test]
fn opens_beside_the_shrinker() {
    check(|fs, task| {
        let other = {
            let task = task.clone();
            thread::spawn(move || {
                let _cpu = cpu::pretend(0);
                let file = task.open("/d0/f0", OFlags::RDONLY, Mode::empty()).unwrap();
                let ino = file.stat().unwrap().ino;
                assert_eq!(task.path_of(&file).unwrap().to_str(), Some("/d0/f0"));
                ino
            })
        };
        fs.with_super(|sb| sb.shrink(usize::MAX));
        let before = ino(task, "/d0/f0").unwrap();
        fs.with_super(|sb| sb.shrink(usize::MAX));
        assert_eq!(other.join().unwrap(), before);
    });
}

/// A handle is opened while its inode and its names are evicted: it leads to the same file, under
/// its name if that is cached.
#[test]
fn open_by_handle_against_eviction() {
    check(|fs, task| {
        let root = task.open("/", OFlags::RDONLY, Mode::empty()).unwrap();
        let handle = task.name_to_handle(At::Cwd, "/d1/f1", AtFlags::empty()).unwrap();
        let dir = task.name_to_handle(At::Cwd, "/d1", AtFlags::empty()).unwrap();
        let other = {
            let task = task.clone();
            thread::spawn(move || {
                let _cpu = cpu::pretend(0);
                let opened = [handle, dir].map(|handle| {
                    let file = task.open_by_handle(&root, &handle, OFlags::RDONLY).unwrap();
                    assert_eq!(file.stat().unwrap().ino, handle.ino);
                    task.path_of(&file).unwrap().to_str().unwrap().to_owned()
                });
                assert!(opened[0] == "/d1/f1" || opened[0].ends_with(" (deleted)"), "{opened:?}");
                assert_eq!(opened[1], "/d1");
            })
        };
        fs.with_super(|sb| sb.shrink(usize::MAX));
        assert_eq!(ino(task, "/d1/f1"), Ok(handle.ino));
        fs.with_super(|sb| sb.shrink(usize::MAX));
        other.join().unwrap();
    });
}

/// Unique materialise: a directory moves by itself, while threads walk over both names. It is found
/// under one of them, and in the end has one dentry, with the path that its users see.
#[test]
fn walks_beside_a_directory_that_moves_by_itself() {
    check(|fs, task| {
        let known = ino(task, "/here/f1").unwrap();
        let inside = task.open("/here", OFlags::RDONLY, Mode::empty()).unwrap();
        let walks = ["/there/f1", "/here/f1"].map(|path| {
            let task = task.clone();
            thread::spawn(move || {
                let _cpu = cpu::pretend(0);
                let seen = [ino(&task, path), ino(&task, path)];
                assert!(seen.iter().all(|ino| [Ok(known), Err(Errno::NOENT)].contains(ino)));
            })
        });
        fs.moved.store(true, Ordering::SeqCst);
        assert_eq!(ino(task, "/there/f1"), Ok(known));
        walks.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((ino(task, "/there/f1"), ino(task, "/here/f1")), (Ok(known), Err(Errno::NOENT)));
        let path = task.path_of(&inside).unwrap();
        // A first lookup of the old name fails, and open files of it show that it was removed.
        assert!(path.to_str() == Some("/there") || path.to_str() == Some("/here (deleted)"));
    });
}

/// Subtree shrink, concurrent with lookups, an open, and the shrinker of the whole cache.
#[test]
fn lookups_beside_the_shrinking_of_a_subtree() {
    check(|fs, task| {
        let known = ino(task, "/d1/f1").unwrap();
        let drops = {
            let task = task.clone();
            thread::spawn(move || {
                let _cpu = cpu::pretend(0);
                task.drop_cached(At::Cwd, "/").unwrap();
                task.drop_cached(At::Cwd, "/d1").unwrap();
            })
        };
        let opens = {
            let task = task.clone();
            thread::spawn(move || {
                let _cpu = cpu::pretend(0);
                let file = task.open("/d1/f1", OFlags::RDONLY, Mode::empty()).unwrap();
                assert_eq!(task.path_of(&file).unwrap().to_str(), Some("/d1/f1"));
            })
        };
        assert_eq!(ino(task, "/d1/f1"), Ok(known));
        assert_eq!(ino(task, "/d1/f2"), Err(Errno::NOENT));
        fs.with_super(|sb| sb.shrink(usize::MAX));
        drops.join().unwrap();
        opens.join().unwrap();
    });
}

/// A name gets another file while threads walk below it: they see one file or the other.
#[test]
fn walks_beside_a_name_that_changes_by_itself() {
    check(|fs, task| {
        fs.tide.store(1, Ordering::SeqCst);
        let before = ino(task, "/tide/f0").unwrap();
        let other = {
            let task = task.clone();
            thread::spawn(move || {
                let _cpu = cpu::pretend(0);
                let file = task.open("/tide/f0", OFlags::RDONLY, Mode::empty()).unwrap();
                (ino(&task, "/tide/f0").unwrap(), file.stat().unwrap().ino)
            })
        };
        fs.tide.store(3, Ordering::SeqCst);
        let after = ino(task, "/tide/f0").unwrap();
        assert_ne!(before, after);
        let (second, first) = other.join().unwrap();
        assert!(first == before || first == after, "{first}");
        assert!(second == after || second == first, "{first} {second}");
        fs.tide.store(4, Ordering::SeqCst);
        assert_eq!(ino(task, "/tide/f0"), Err(Errno::NOENT));
    });
}
