//! Schedules of lookups that a driver answers, chosen at random: `RUSTFLAGS="--cfg shuttle" cargo
//! test --release -p vfscale-vfs --test shuttle lookup::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::numbers::Numbers;
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::{cpu, rcu};
use vfscale_vfs::inode::InodeInit;
use vfscale_vfs::super_block::SuperBlock;
use vfscale_vfs::{At, AtFlags, Errno, Mode, OFlags, Task, Vfs};

const SCHEDULES: usize = 5_000;

/// Runs a model under many schedules.
fn check(model: impl Fn(&Arc<Numbers>, &Arc<Task>) + Send + Sync + 'static) {
    check_under(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], model);
}

/// Runs a model under these schedules.
fn check_under(
    schedules: &[Schedules],
    model: impl Fn(&Arc<Numbers>, &Arc<Task>) + Send + Sync + 'static,
) {
    model::check(schedules, move || {
        let fs = Numbers::new(2, 2);
        let task = Arc::new(Vfs::new(fs.clone()).unwrap().task());
        model(&fs, &task);
        rcu::synchronize();
        fs.with_super(|sb| sb.shrink(usize::MAX));
        assert_eq!(fs.with_super(|sb| sb.inodes_in_use()), 2, "the root, and none");
    });
}

fn ino(task: &Task, path: &str) -> Result<u64, Errno> {
    task.metadata(path).map(|stat| stat.ino).map_err(|e| e.errno())
}

/// Names exist or do not exist, whichever thread looks them up first, and whatever the shrinker
/// drops concurrently.
///
/// Race: Shrinker (LRU) / lookup, open, change.
///
/// Race: The shrinker against walks, opens and new children.
///
/// The shrinker drops a dentry only by the exchange that marks it dead, which fails if the dentry
/// has any reference but that of its name. It holds the lock of the name's bucket, and all buckets
/// of a directory, which are empty. A reference that is taken first makes the exchange fail. A
/// later attempt to take one fails, and the walk starts again. An RCU walk that is at the dentry
/// sees its sequence count change and starts again too; it uses nothing that it found in the
/// meantime.
///
/// Race: A walk in a directory that the shrinker drops.
///
/// The shrinker marks a dentry as dead before it removes it from its table. A walk that had just
/// reached such a directory, and did not find the next name in it, used to report that the name
/// does not exist, as it should in a directory that was removed. Now it begins again if the dentry
/// has been dropped.
#[test]
fn lookups_beside_the_shrinker() {
    check(|fs, task| {
        let threads = [0, 1].map(|_| {
            model::spawn(task.clone(), move |task| {
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
///
/// Race: Lookup / lookup, create, of a name that a driver looks up.
///
/// Race: A driver's answer against another thread's lookup.
///
/// Two threads that walk to one unknown name must not enter two dentries for it into the table. A
/// thread that calls the driver has locked the name, and looks into the table again once it has the
/// lock: the second thread finds the entry of the first. The answer is entered under the lock of
/// the bucket, and not into a directory that has left the tree in the meantime.
#[test]
fn two_threads_ask_for_one_name() {
    check(|fs, task| {
        let other = model::spawn(task.clone(), move |task| {
            let _cpu = cpu::pretend(0);
            ino(&task, "/d0/f0").unwrap()
        });
        let mine = ino(task, "/d0/f0").unwrap();
        assert_eq!(other.join().unwrap(), mine);
        assert_eq!(fs.lookups.load(Ordering::Relaxed), 2);
    });
}

/// An inode without a name is evicted once, whichever thread uses it last, and whichever other
/// threads look up its number or shrink the cache concurrently: these threads get this inode or
/// another one.
///
/// Race: Inode cache: lookup / eviction / last name.
///
/// Race: An unused inode against a lookup of it.
///
/// The cache's reference is dropped by an exchange of a count of one for zero. A thread that looks
/// the inode's number up at that moment either has counted, and the exchange fails; or it finds a
/// count of zero, and creates another inode. The shrinker and the last user of a nameless file may
/// both try: one of the exchanges succeeds. An inode is on its list before it can be found, so it
/// can't leave first.
#[test]
fn an_inode_without_a_name_goes_once() {
    check(|fs, _| {
        const INO: u64 = 1 << 50;
        let get = |sb: &SuperBlock| {
            sb.iget(INO, || InodeInit { mode: 0o100_644, nlink: 1, ..InodeInit::default() })
        };
        let first = fs.with_super(get);
        let threads = [false, true].map(|unlinks| {
            model::spawn(fs.root(), move |root| {
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
///
/// Race: The shrinker against walks, opens and new children.
/// Race: Shrinker (LRU) / lookup, open, change.
#[test]
fn opens_beside_the_shrinker() {
    check(|fs, task| {
        let other = model::spawn(task.clone(), move |task| {
            let _cpu = cpu::pretend(0);
            let file = task.posix().open("/d0/f0", OFlags::RDONLY, Mode::empty()).unwrap();
            let ino = file.stat().unwrap().ino;
            assert_eq!(task.posix().path_of(&file).unwrap().to_str(), Some("/d0/f0"));
            ino
        });
        fs.with_super(|sb| sb.shrink(usize::MAX));
        let before = ino(task, "/d0/f0").unwrap();
        fs.with_super(|sb| sb.shrink(usize::MAX));
        assert_eq!(other.join().unwrap(), before);
    });
}

/// A handle is opened while its inode and its names are evicted: it leads to the same file, under
/// its name if that is cached.
///
/// Race: A file handle against the last unlink.
/// Race: Open by handle / unlink, link, eviction.
///
/// Race: A directory's handle against the shrinker.
///
/// A directory that is found by number is connected to the tree from its nearest ancestor that has
/// a dentry, name by name. Each dentry on the path is held; one that left memory in between used to
/// make the handle stale, although the directory existed. Now, if one is dropped before it is held,
/// the path is walked again, after the thread that removes it from its directory's table has
/// finished. Failed before, under schedules with few and long delays.
#[test]
fn open_by_handle_against_eviction() {
    check(|fs, task| {
        let root = task.posix().open("/", OFlags::RDONLY, Mode::empty()).unwrap();
        let handle = task.posix().name_to_handle_at(At::Cwd, "/d1/f1", AtFlags::empty()).unwrap();
        let dir = task.posix().name_to_handle_at(At::Cwd, "/d1", AtFlags::empty()).unwrap();
        let other = model::spawn(task.clone(), move |task| {
            let _cpu = cpu::pretend(0);
            let opened = [handle, dir].map(|handle| {
                let file = task.posix().open_by_handle_at(&root, &handle, OFlags::RDONLY).unwrap();
                assert_eq!(file.stat().unwrap().ino, handle.ino);
                task.posix().path_of(&file).unwrap().to_str().unwrap().to_owned()
            });
            assert!(opened[0] == "/d1/f1" || opened[0].ends_with(" (deleted)"), "{opened:?}");
            assert_eq!(opened[1], "/d1");
        });
        fs.with_super(|sb| sb.shrink(usize::MAX));
        assert_eq!(ino(task, "/d1/f1"), Ok(handle.ino));
        fs.with_super(|sb| sb.shrink(usize::MAX));
        other.join().unwrap();
    });
}

/// Unique materialise: a directory moves by itself, while threads walk over both names. It is found
/// under one of them, and in the end has one dentry, with the path that its users see.
///
/// Race: Directory found under another name (`d_materialise_unique()`) / walk by either name.
///
/// Race: A directory that has moved by itself against lookups of it.
///
/// A driver may find a directory under one name where the dcache has another. Its dentry moves to
/// the new name under the locks of both buckets, as a part of `rename_lock`. All moves of
/// directories of the superblock are locked, so that no two of them make a loop. The old name is
/// locked as well as the new one; otherwise a thread that is about to report the old name as
/// removed would remove the dentry that has just moved to the new name, which a first version did.
/// The new name is locked already, and other threads wait for names while they hold the lock of
/// moves, so both locks are only tried. If another thread holds them, the new name is unlocked, the
/// thread waits for that lock, and calls the driver again.
#[test]
fn walks_beside_a_directory_that_moves_by_itself() {
    check(|fs, task| {
        let known = ino(task, "/here/f1").unwrap();
        let inside = task.posix().open("/here", OFlags::RDONLY, Mode::empty()).unwrap();
        let walks = ["/there/f1", "/here/f1"].map(|path| {
            model::spawn(task.clone(), move |task| {
                let _cpu = cpu::pretend(0);
                let seen = [ino(&task, path), ino(&task, path)];
                assert!(seen.iter().all(|ino| [Ok(known), Err(Errno::NOENT)].contains(ino)));
            })
        });
        fs.moved.store(true, Ordering::SeqCst);
        assert_eq!(ino(task, "/there/f1"), Ok(known));
        walks.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((ino(task, "/there/f1"), ino(task, "/here/f1")), (Ok(known), Err(Errno::NOENT)));
        let path = task.posix().path_of(&inside).unwrap();
        // A first lookup of the old name fails, and open files of it show that it was removed.
        assert!(path.to_str() == Some("/there") || path.to_str() == Some("/here (deleted)"));
    });
}

/// Subtree shrink, concurrent with lookups, an open, and the shrinker of the whole cache.
///
/// Race: Subtree shrink / lookup, open, shrinker.
///
/// Race: The shrinking of a subtree against walks.
///
/// It holds the directories on its path and drops dentries below under the rules of the shrinker,
/// each in an RCU section of its own. A dentry that a walk has passed since it was marked is
/// retained.
#[test]
fn lookups_beside_the_shrinking_of_a_subtree() {
    check(|fs, task| {
        let known = ino(task, "/d1/f1").unwrap();
        let drops = model::spawn(task.clone(), move |task| {
            let _cpu = cpu::pretend(0);
            task.posix().drop_cached(At::Cwd, "/").unwrap();
            task.posix().drop_cached(At::Cwd, "/d1").unwrap();
        });
        let opens = model::spawn(task.clone(), move |task| {
            let _cpu = cpu::pretend(0);
            let file = task.posix().open("/d1/f1", OFlags::RDONLY, Mode::empty()).unwrap();
            assert_eq!(task.posix().path_of(&file).unwrap().to_str(), Some("/d1/f1"));
        });
        assert_eq!(ino(task, "/d1/f1"), Ok(known));
        assert_eq!(ino(task, "/d1/f2"), Err(Errno::NOENT));
        fs.with_super(|sb| sb.shrink(usize::MAX));
        drops.join().unwrap();
        opens.join().unwrap();
    });
}

/// A name gets another file while threads walk below it: they see one file or the other.
///
/// Race: Invalidation / walk.
///
/// Race: A name that changes by itself against the users of its subtree.
///
/// Where names of a driver are created and removed without a call of the VFS, the old dentry and
/// its whole subtree leave the table when the driver reports another inode. The subtree leaves
/// first, each dentry under the locks of its name and of its own children. So no child is ever left
/// in the table of a directory that is freed; a file that is open holds its dentry and its parents.
#[test]
fn walks_beside_a_name_that_changes_by_itself() {
    check(|fs, task| {
        fs.tide.store(1, Ordering::SeqCst);
        let before = ino(task, "/tide/f0").unwrap();
        let other = model::spawn(task.clone(), move |task| {
            let _cpu = cpu::pretend(0);
            let file = task.posix().open("/tide/f0", OFlags::RDONLY, Mode::empty()).unwrap();
            (ino(&task, "/tide/f0").unwrap(), file.stat().unwrap().ino)
        });
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

/// The model can fail: a walk enters no section.
///
/// Race: A walk without a section against the shrinker.
#[test]
#[should_panic(expected = "RefCell already")]
fn a_walk_without_a_section_is_found() {
    check_under(&[Schedules::Delays(100 * SCHEDULES)], |fs, task| {
        ino(task, "/d1/f1").unwrap();
        let threads = [false, true].map(|blind| {
            model::spawn(task.clone(), move |task| {
                let _cpu = cpu::pretend(0);
                let walk = || _ = ino(&task, "/d1/f1");
                if blind { model::without_sections(walk) } else { walk() }
            })
        });
        fs.with_super(|sb| sb.shrink(usize::MAX));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
