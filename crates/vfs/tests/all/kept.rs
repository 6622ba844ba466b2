//! Changes of directories that a backed driver stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::tables::Tables;
use vfscale_sync::random::Random;
use vfscale_vfs::{
    At, AtFlags, Errno, FileType, Mode, MountFlags, OFlags, RenameFlags, Result, SetTime, Stat,
    Task, Timestamp, Vfs, XattrFlags,
};

const NEW: OFlags = OFlags::CREATE.union(OFlags::RDWR);

fn mounted() -> (Arc<Tables>, Task) {
    let fs = Tables::new();
    let task = Vfs::new(fs.clone()).unwrap().task();
    task.umask(Mode::empty());
    (fs, task)
}

fn stat(task: &Task, path: &str) -> Result<Stat> {
    task.symlink_metadata(path).map(Stat::from)
}

fn errno<T>(result: Result<T>) -> Errno {
    match result {
        Ok(_) => panic!("the call should have failed"),
        Err(error) => error.errno(),
    }
}

fn names(task: &Task, path: &str) -> Vec<String> {
    let dir = task.posix().open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    let all = dir.read_dir().map(|entry| entry.unwrap().name.into_string().unwrap());
    all.filter(|name| name != "." && name != "..").collect()
}

/// Drops all unused dentries and inodes, so later results come from the driver.
fn forget(fs: &Tables) {
    vfscale_sync::rcu::synchronize();
    fs.with_super(|sb| {
        while sb.shrink(usize::MAX) > 0 {
            vfscale_sync::rcu::synchronize();
        }
    });
}

#[test]
fn a_removed_file_is_gone_after_its_last_use() {
    let (fs, task) = mounted();
    task.posix().mkdirat(At::Cwd, "/d", Mode::RWXU).unwrap();
    let file = task.posix().open("/d/f", NEW, Mode::RWXU).unwrap();
    file.write(b"still here").unwrap();
    let dir = task.posix().open("/d", OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(errno(task.remove_dir("/d")), Errno::NOTEMPTY);
    assert_eq!(errno(task.remove_file("/d")), Errno::ISDIR);
    assert_eq!(errno(task.remove_dir("/d/f")), Errno::NOTDIR);
    task.remove_file("/d/f").unwrap();
    assert_eq!(errno(stat(&task, "/d/f")), Errno::NOENT);
    assert_eq!(errno(task.remove_file("/d/f")), Errno::NOENT);
    assert_eq!(file.stat().unwrap().nlink, 0);
    task.remove_dir("/d").unwrap();
    assert_eq!(dir.stat().unwrap().nlink, 0);
    assert_eq!(errno(task.posix().openat(At::File(&dir), "g", NEW, Mode::RWXU)), Errno::NOENT);
    assert_eq!(errno(task.posix().mkdirat(At::File(&dir), "g", Mode::RWXU)), Errno::NOENT);
    assert_eq!(stat(&task, "/").unwrap().nlink, 2);
    let mut text = [0; 10];
    assert_eq!(file.pread(&mut text, 0).unwrap(), 10);
    assert_eq!(fs.stored(), 3);
    drop((file, dir));
    forget(&fs);
    assert_eq!(fs.stored(), 1);
    fs.check();
}

#[test]
fn a_rename_moves_what_is_known_along() {
    let (fs, task) = mounted();
    for dir in ["/a", "/a/b", "/c", "/c/empty"] {
        task.posix().mkdirat(At::Cwd, dir, Mode::RWXU).unwrap();
    }
    drop(task.posix().open("/a/b/f", NEW, Mode::RWXU).unwrap());
    drop(task.posix().open("/c/g", NEW, Mode::RWXU).unwrap());
    let inside = task.posix().open("/a/b", OFlags::RDONLY, Mode::empty()).unwrap();
    let rename =
        |old: &str, new: &str, flags| task.posix().renameat2(At::Cwd, old, At::Cwd, new, flags);
    let plain = RenameFlags::empty();
    let before = fs.lookups.load(Ordering::Relaxed);
    rename("/a/b", "/c/d", plain).unwrap();
    assert_eq!(task.posix().path_of(&inside).unwrap().to_str(), Some("/c/d"));
    assert!(stat(&task, "/c/d/f").is_ok());
    assert_eq!(fs.lookups.load(Ordering::Relaxed), before + 1, "only the new name was looked up");
    assert_eq!(errno(stat(&task, "/a/b")), Errno::NOENT);
    assert_eq!((stat(&task, "/a").unwrap().nlink, stat(&task, "/c").unwrap().nlink), (2, 4));
    assert_eq!(errno(rename("/c", "/c/d/x", plain)), Errno::INVAL);
    assert_eq!(errno(rename("/a", "/c", plain)), Errno::NOTEMPTY);
    assert_eq!(errno(rename("/a", "/c/g", plain)), Errno::NOTDIR);
    assert_eq!(errno(rename("/c/g", "/a", plain)), Errno::ISDIR);
    assert_eq!(errno(rename("/c/g", "/c/d", RenameFlags::NOREPLACE)), Errno::EXIST);
    assert_eq!(errno(rename("/c/g", "/c/no", RenameFlags::EXCHANGE)), Errno::NOENT);
    rename("/a", "/c/empty", plain).unwrap();
    assert_eq!(errno(stat(&task, "/a")), Errno::NOENT);
    rename("/c/g", "/c/d/f", plain).unwrap();
    rename("/c/d", "/c/d", plain).unwrap();
    drop(task.posix().open("/x", NEW, Mode::RWXU).unwrap());
    let (x, d) = (stat(&task, "/x").unwrap().ino, stat(&task, "/c/d").unwrap().ino);
    rename("/x", "/c/d", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(stat(&task, "/x").unwrap().ino, d);
    assert_eq!(stat(&task, "/c/d").unwrap().ino, x);
    assert_eq!(task.posix().path_of(&inside).unwrap().to_str(), Some("/x"));
    assert!(stat(&task, "/x/f").is_ok());
    drop(inside);
    fs.check();
    forget(&fs);
    assert_eq!(stat(&task, "/c/d").unwrap().ino, x);
    assert_eq!(names(&task, "/"), ["c", "x"]);
    assert_eq!(stat(&task, "/").unwrap().nlink, 4);
}

/// The old path leads over the new name, or the new path over the old name: the driver looks both
/// up.
#[test]
fn a_rename_asks_for_both_paths() {
    let (fs, task) = mounted();
    for dir in ["/a", "/b"] {
        task.posix().mkdirat(At::Cwd, dir, Mode::RWXU).unwrap();
    }
    drop(task.posix().open("/a/f", NEW, Mode::RWXU).unwrap());
    forget(&fs);
    task.rename("/a/f", "/b/f").unwrap();
    assert!(stat(&task, "/b/f").is_ok());
}

#[test]
fn attributes_are_stored_before_they_show() {
    let (fs, task) = mounted();
    let file = task.posix().open("/f", NEW, Mode::from(0o600)).unwrap();
    let none = AtFlags::empty();
    task.posix().fchmodat(At::Cwd, "/f", Mode::from(0o4755), none).unwrap();
    task.posix().fchownat(At::Cwd, "/f", Some(7), Some(8), none).unwrap();
    task.posix().fchmodat(At::Cwd, "/f", Mode::from(0o4755), none).unwrap();
    let times = [SetTime::At(Timestamp(5)), SetTime::At(Timestamp(6))];
    task.posix().utimensat(At::Cwd, "/f", times, none).unwrap();
    task.posix().setxattrat(At::Cwd, "/f", "user.a", b"1", XattrFlags::empty(), none).unwrap();
    task.posix().setxattrat(At::Cwd, "/f", "user.b", b"2", XattrFlags::CREATE, none).unwrap();
    task.posix().removexattrat(At::Cwd, "/f", "user.b", none).unwrap();
    drop(file);
    forget(&fs);
    let seen = stat(&task, "/f").unwrap();
    assert_eq!((seen.mode, seen.uid, seen.gid), (0o104_755, 7, 8));
    assert_eq!((seen.atime, seen.mtime), (Timestamp(5), Timestamp(6)));
    assert_eq!(task.posix().getxattrat(At::Cwd, "/f", "user.a", none).unwrap(), b"1");
    assert_eq!(task.posix().listxattrat(At::Cwd, "/f", none).unwrap(), ["user.a"]);

    let io = || fs.fail.store(Errno::IO.raw_os_error(), Ordering::Relaxed);
    for _ in 0..2 {
        io();
        assert_eq!(errno(task.posix().fchmodat(At::Cwd, "/f", Mode::empty(), none)), Errno::IO);
        io();
        let set = task.posix().setxattrat(At::Cwd, "/f", "user.a", b"3", XattrFlags::empty(), none);
        assert_eq!(errno(set), Errno::IO);
        let now = stat(&task, "/f").unwrap();
        assert_eq!((now.mode, now.ctime), (seen.mode, seen.ctime));
        assert_eq!(task.posix().getxattrat(At::Cwd, "/f", "user.a", none).unwrap(), b"1");
        forget(&fs);
    }
    let how = XattrFlags::REPLACE;
    let set = task.posix().setxattrat(At::Cwd, "/f", "user.c", b"3", how, none);
    assert_eq!(errno(set), Errno::NODATA);
}

#[test]
fn a_failed_change_changes_nothing() {
    let (fs, task) = mounted();
    task.posix().mkdirat(At::Cwd, "/d", Mode::RWXU).unwrap();
    drop(task.posix().open("/d/f", NEW, Mode::RWXU).unwrap());
    let io = || fs.fail.store(Errno::IO.raw_os_error(), Ordering::Relaxed);
    let none = AtFlags::empty();
    for _ in 0..2 {
        io();
        assert_eq!(errno(task.posix().unlinkat(At::Cwd, "/d/f", none)), Errno::IO);
        io();
        assert_eq!(errno(task.posix().open("/d/g", NEW, Mode::RWXU)), Errno::IO);
        io();
        let renamed = task.rename("/d/f", "/g");
        assert_eq!(errno(renamed), Errno::IO);
        io();
        assert_eq!(errno(task.remove_dir("/d")), Errno::IO);
        assert!(stat(&task, "/d/f").is_ok());
        assert_eq!(errno(stat(&task, "/d/g")), Errno::NOENT);
        assert_eq!(errno(stat(&task, "/g")), Errno::NOENT);
        forget(&fs);
    }
    fs.check();
}

#[test]
fn names_are_made_without_a_lookup_before() {
    let (fs, task) = mounted();
    let asked = || fs.lookups.load(Ordering::Relaxed);
    task.posix().mkdirat(At::Cwd, "/d", Mode::from(0o755)).unwrap();
    drop(task.posix().open("/d/f", NEW | OFlags::EXCL, Mode::from(0o644)).unwrap());
    task.symlink("f", "/d/l").unwrap();
    task.posix().mknodat(At::Cwd, "/d/p", FileType::Fifo, Mode::from(0o600), 0).unwrap();
    assert_eq!(asked(), 0);
    // All of them are cached now, and so is what is missing.
    for name in ["/d/f", "/d/l", "/d/p"] {
        stat(&task, name).unwrap();
    }
    assert_eq!(asked(), 0);
    assert_eq!(errno(stat(&task, "/d/g")), Errno::NOENT);
    drop(task.posix().open("/d/g", NEW, Mode::from(0o644)).unwrap());
    assert_eq!(asked(), 1);
    // Where something forbids the creation, it is looked up whether the name exists.
    let user = task.with_credentials(vfscale_vfs::Credentials::user(7, 7));
    assert_eq!(errno(user.posix().open("/d/h", NEW, Mode::RWXU)), Errno::ACCESS);
    assert_eq!(asked(), 2);
    assert_eq!(
        errno(task.posix().mknodat(At::Cwd, "/d/i/", FileType::Fifo, 0o600, 0)),
        Errno::NOENT
    );
    assert_eq!(asked(), 3);
    fs.check();
}

#[test]
fn existing_names_that_are_not_cached_precede_all_errors() {
    let (fs, task) = mounted();
    task.posix().mkdirat(At::Cwd, "/d", Mode::from(0o755)).unwrap();
    drop(task.posix().open("/d/f", NEW, Mode::from(0o666)).unwrap());
    task.symlink("f", "/d/l").unwrap();
    let user = task.with_credentials(vfscale_vfs::Credentials::user(7, 7));
    let calls = task.posix();
    for error in [0, Errno::NOSPC.raw_os_error(), Errno::IO.raw_os_error()] {
        // The driver fails the next change with this error, whether the name exists or not.
        let fresh = || {
            forget(&fs);
            fs.fail.store(error, Ordering::Relaxed);
        };
        fresh();
        assert_eq!(calls.open("/d/f", NEW, Mode::RWXU).unwrap().stat().unwrap().mode, 0o100_666);
        fresh();
        assert_eq!(calls.open("/d/l", NEW, Mode::RWXU).unwrap().stat().unwrap().mode, 0o100_666);
        fresh();
        assert_eq!(errno(calls.open("/d/f", NEW | OFlags::EXCL, Mode::RWXU)), Errno::EXIST);
        fresh();
        assert_eq!(errno(calls.open("/d/l", NEW | OFlags::EXCL, Mode::RWXU)), Errno::EXIST);
        fresh();
        assert_eq!(errno(calls.mkdirat(At::Cwd, "/d", Mode::RWXU)), Errno::EXIST);
        fresh();
        assert_eq!(errno(task.symlink("x", "/d/l")), Errno::EXIST);
        fresh();
        assert_eq!(errno(task.hard_link("/d/f", "/d/l")), Errno::EXIST);
        // This takes no right to write to the directory.
        fresh();
        drop(user.posix().open("/d/f", NEW, Mode::RWXU).unwrap());
        fs.fail.store(0, Ordering::Relaxed);
    }
    fs.check();
}

#[test]
fn writing_takes_set_ids_away_and_is_told() {
    let (fs, task) = mounted();
    let file = task.posix().open("/f", NEW, Mode::from(0o6777)).unwrap();
    let caps = [1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let none = AtFlags::empty();
    task.posix()
        .setxattrat(At::Cwd, "/f", "security.capability", &caps, XattrFlags::empty(), none)
        .unwrap();
    let user = task.with_credentials(vfscale_vfs::Credentials::user(7, 7));
    let other = user.posix().open("/f", OFlags::WRONLY, Mode::empty()).unwrap();
    // A change after a `stat` is visible, although the clock may not have ticked.
    file.stat().unwrap();
    assert_eq!(other.write(b"x").unwrap(), 1);
    forget(&fs);
    drop((file, other));
    forget(&fs);
    assert_eq!(stat(&task, "/f").unwrap().mode, 0o100_777);
    assert!(task.posix().listxattrat(At::Cwd, "/f", none).unwrap().is_empty());
    assert!(fs.dirtied.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_remount_decides_whether_names_change() {
    let (fs, task) = mounted();
    task.posix().mkdirat(At::Cwd, "/d", Mode::RWXU).unwrap();
    let file = task.posix().open("/d/f", NEW, Mode::RWXU).unwrap();
    assert_eq!(errno(task.posix().remount("/", MountFlags::RDONLY)), Errno::BUSY);
    drop(file);
    task.posix().remount("/", MountFlags::RDONLY).unwrap();
    assert_eq!(fs.syncs.load(Ordering::Relaxed), 1);
    let rofs = |result: Result<()>| assert_eq!(errno(result), Errno::ROFS);
    rofs(task.posix().mkdirat(At::Cwd, "/e", Mode::RWXU));
    rofs(task.remove_file("/d/f"));
    rofs(task.rename("/d", "/e"));
    rofs(task.set_permissions("/d", Mode::RWXU));
    rofs(task.posix().open("/d/f", OFlags::RDWR, Mode::empty()).map(drop));
    rofs(task.posix().truncate("/d/f", 0));
    task.posix().remount("/", MountFlags::empty()).unwrap();
    task.remove_file("/d/f").unwrap();
}

#[test]
fn mountpoints_keep_their_names() {
    let (fs, task) = mounted();
    task.posix().mkdirat(At::Cwd, "/d", Mode::RWXU).unwrap();
    task.posix().mkdirat(At::Cwd, "/e", Mode::RWXU).unwrap();
    let other = Tables::new();
    task.posix().mount(other.clone(), "/d", MountFlags::empty()).unwrap();
    task.posix().mkdirat(At::Cwd, "/d/below", Mode::RWXU).unwrap();
    assert_eq!(errno(task.remove_dir("/d")), Errno::BUSY);
    let rename = |old: &str, new: &str| task.rename(old, new);
    assert_eq!(errno(rename("/e", "/d")), Errno::BUSY);
    assert_eq!(errno(rename("/d", "/f")), Errno::BUSY);
    assert_eq!(errno(rename("/d/below", "/f")), Errno::XDEV);
    task.posix().umount("/d", vfscale_vfs::UmountFlags::empty()).unwrap();
    rename("/e", "/d").unwrap();
    task.remove_dir("/d").unwrap();
    assert_eq!((fs.stored(), other.stored()), (1, 2));
}

/// Makes a random call on a few names, and returns whether it succeeded. Many calls fail, because
/// other threads use these names too.
fn disturb(fs: &Tables, task: &Task, random: &mut Random) -> bool {
    let path = |random: &mut Random| -> String {
        let names = ["/a", "/b", "/c"];
        (0..=random.below(2)).map(|_| random.one(&names)).collect()
    };
    let (one, other) = (path(random), path(random));
    let none = AtFlags::empty();
    let result = match random.below(10) {
        0 | 1 => task.posix().mkdirat(At::Cwd, one, Mode::RWXU),
        2 => task.remove_dir(one),
        3 => task.posix().unlinkat(At::Cwd, one, none),
        4 => task.posix().linkat(At::Cwd, one, At::Cwd, other, none),
        5 | 6 => {
            let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
            task.posix().renameat2(At::Cwd, one, At::Cwd, other, random.one(&flags))
        }
        7 => task.posix().fchmodat(At::Cwd, one, Mode::RWXU, none),
        8 => task.posix().open(one, NEW, Mode::RWXU).and_then(|file| file.write(b"data").map(drop)),
        _ => {
            fs.with_super(|sb| sb.shrink(1 << random.below(20)));
            return false;
        }
    };
    result.is_ok()
}

/// Race: A lookup that a driver answers against a change of that name.
#[test]
fn stress_of_everything_leaves_what_fits_together() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 3_000;
    let seed = vfscale_sync::random::seed();
    let (fs, task) = mounted();
    fs.pauses.store(1, Ordering::Relaxed);
    let succeeded = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let threads = Vec::from_iter((0..THREADS).map(|thread| {
            let (fs, task, succeeded) = (&fs, &task, &succeeded);
            scope.spawn(move || {
                let mut random = Random::new(seed ^ thread << 32);
                let did = (0..CALLS).filter(|_| disturb(fs, task, &mut random)).count();
                succeeded.fetch_add(did as u64, Ordering::Relaxed);
            })
        }));
        // The end of the scope alone does not wait until the threads have passed on their deferred
        // work.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let succeeded = succeeded.into_inner();
    println!("{succeeded} calls succeeded");
    assert!(succeeded > THREADS * CALLS / 20);
    fs.check();
    forget(&fs);
    fs.check();
    assert_eq!(
        fs.with_super(|sb| sb.inodes_in_use()),
        2,
        "the root, and the inode of negative dentries"
    );
}
