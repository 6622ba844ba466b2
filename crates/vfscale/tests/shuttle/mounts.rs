//! Random schedules of calls that change mount trees, and of concurrent calls:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle mounts::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A failing schedule is printed, too.

use std::sync::{Arc, Weak};

use crate::common::{
    self, MODE, assert_empty, check_delays, errno, free, ino, make, memory, rename,
};
use shuttle::thread;
use vfscale::posix::{At, AtFlags, MountFlags, OFlags, Propagation, RenameFlags, UmountFlags};
use vfscale::{Errno, MemFs, Scaling, Task};
use vfscale_sync::{cpu, rcu};

fn check(model: impl Fn() + Send + Sync + 'static) {
    common::check_times(1_500, model);
}

fn task(dirs: &[&str]) -> Arc<Task> {
    let task = memory().task();
    dirs.iter().for_each(|dir| task.posix().mkdirat(At::Cwd, dir, MODE).unwrap());
    Arc::new(task)
}

fn mount(task: &Task, path: &str) -> (Option<Errno>, Weak<MemFs>) {
    let fs = MemFs::builder().size(1 << 20).build();
    let weak = Arc::downgrade(&fs);
    (errno(task.posix().mount(fs, path, MountFlags::empty())), weak)
}

fn umount(task: &Task, path: &str) -> Option<Errno> {
    errno(task.posix().umount(path, UmountFlags::empty()))
}

fn spawn<T: Send + 'static>(
    task: &Arc<Task>,
    call: impl FnOnce(&Task) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let task = task.clone();
    thread::spawn(move || call(&task))
}

/// Returns the number of mounts at a path.
fn mounted(task: &Task, path: &str) -> usize {
    task.posix().mounts().iter().filter(|mount| mount.mount_point.to_str() == Some(path)).count()
}

fn assert_gone(fs: &Weak<MemFs>) {
    for _ in 0..4 {
        rcu::synchronize();
    }
    assert_eq!(fs.strong_count(), 0, "an ended mount is still referenced");
}

/// A mount on one of two peers is visible on both or on neither, at any moment.
///
/// Race: Mount on a peer / unmount on another.
///
/// Race: A mount that is propagated.
///
/// A mount on a shared mount appears on all peers and slaves of that in one write section of
/// `mount_seq`, under `namespace_sem`, after all steps that can fail; an unmount removes it from
/// all of them in one section too. So no thread sees a part of the change, and a walk that meets it
/// starts again. A mountpoint that one change both leaves and enters stays claimed throughout,
/// because the mounts that enter are counted first; otherwise its name could be removed in between,
/// and a walk would not look for the mount there.
///
/// Seam: peers of a mount / walks and tables of mounts; parties: a mount, an unmount on a peer, a
/// reader of the table.
#[test]
fn propagation_against_umount() {
    check(|| {
        let task = task(&["/a", "/a/x", "/b"]);
        task.posix().bind("/a", "/a", false).unwrap();
        task.posix().set_propagation("/a", Propagation::Shared, false).unwrap();
        task.posix().bind("/a", "/b", false).unwrap();
        let mounts = spawn(&task, |task| mount(task, "/a/x"));
        let umounts = spawn(&task, |task| umount(task, "/b/x"));
        for _ in 0..2 {
            let all = task.posix().mounts();
            let at = |path: &str| all.iter().any(|m| m.mount_point.to_str() == Some(path));
            assert_eq!(at("/a/x"), at("/b/x"));
        }
        let (made, fs) = mounts.join().unwrap();
        assert_eq!(made, None);
        match umounts.join().unwrap() {
            None => {}
            Some(Errno::INVAL) => assert_eq!(umount(&task, "/a/x"), None),
            Some(other) => panic!("{other:?}"),
        }
        assert_eq!((mounted(&task, "/a/x"), mounted(&task, "/b/x")), (0, 0));
        assert_gone(&fs);
    });
}

/// A mount is detached lazily while two threads open a file in it. The threads that succeeded, and
/// no others, hold the mount.
///
/// Race: Unmount, lazy / open.
///
/// Race: A lazy unmount against an open.
///
/// A thread that counted a use of the mount before the parts were closed retains it; all others
/// walk on in the mount below. The last use frees the mount, and no later walk finds it. A forced
/// unmount is like a plain one, since no file system here waits for a server.
///
/// Seam: deferred drop of a mount / `take_down`; parties: two opens, a detaching thread.
#[test]
fn lazy_umount_against_open() {
    check(|| {
        let task = task(&["/m"]);
        let outside = make(&task, "/m/x");
        let (_, fs) = mount(&task, "/m");
        make(&task, "/m/x");
        let open = |task: &Task| task.posix().open("/m/x", OFlags::RDWR, MODE).unwrap();
        let opens = [(); 2].map(|()| spawn(&task, open));
        assert_eq!(errno(task.posix().umount("/m", UmountFlags::DETACH)), None);
        assert_eq!(ino(&task, "/m/x"), Ok(outside));
        let root = task.metadata("/").unwrap().dev;
        for file in opens.map(|thread| thread.join().unwrap()) {
            if file.stat().unwrap().dev != root {
                file.write_all(b"still there").unwrap();
                assert_eq!(fs.strong_count(), 1);
            }
        }
        assert_gone(&fs);
    });
}

/// A forced unmount equals a plain one if there is no server to wait for: it is busy if and only if
/// a thread has opened a file in the mount.
///
/// Race: A lazy unmount against an open.
/// Race: Unmount, forced / open.
#[test]
fn forced_umount_against_open() {
    check(|| {
        let task = task(&["/m"]);
        let outside = make(&task, "/m/x");
        let (_, fs) = mount(&task, "/m");
        make(&task, "/m/x");
        let opens = spawn(&task, |task| task.posix().open("/m/x", OFlags::RDONLY, MODE).unwrap());
        let ended = errno(task.posix().umount("/m", UmountFlags::FORCE));
        let file = opens.join().unwrap();
        let root = task.metadata("/").unwrap().dev;
        let is_inside = file.stat().unwrap().dev != root;
        assert_eq!(ended, is_inside.then_some(Errno::BUSY));
        drop(file);
        if is_inside {
            assert_eq!(errno(task.posix().umount("/m", UmountFlags::FORCE)), None);
        }
        assert_eq!(ino(&task, "/m/x"), Ok(outside));
        assert_gone(&fs);
    });
}

/// For every walk, a mount that is moved is at exactly one of the two paths, and a thread that has
/// found it at the new one never finds it at the old one again. A third thread concurrently changes
/// another part of the tree.
///
/// Race: Move of a mount / lookup.
///
/// Race: A mount that is moved against walks.
///
/// It leaves one mountpoint and enters the other in one write section of `mount_seq`; a walk that
/// has seen either begins again.
///
/// Seam: move of a mount / walks through both mountpoints; parties: a move, a walk, a mount
/// elsewhere.
#[test]
fn a_moved_mount_against_lookups() {
    check(|| {
        let task = task(&["/m", "/n", "/o"]);
        let (_, fs) = mount(&task, "/m");
        let inside = make(&task, "/m/x");
        let mounts = spawn(&task, |task| {
            let (made, fs) = mount(task, "/o");
            assert_eq!((made, umount(task, "/o")), (None, None));
            fs
        });
        let looks = spawn(&task, move |task| {
            [0; 2].map(|_| (ino(task, "/n/x").is_ok(), ino(task, "/m/x").is_ok()))
        });
        task.posix().move_mount("/m", "/n").unwrap();
        let [first, second] = looks.join().unwrap();
        assert!(!(first.0 && first.1) && !(second.0 && second.1), "{first:?} {second:?}");
        assert!(!first.0 || second == (true, false), "{first:?} {second:?}: moved back");
        assert_eq!((ino(&task, "/n/x"), ino(&task, "/m/x")), (Ok(inside), Err(Errno::NOENT)));
        assert_eq!(umount(&task, "/n"), None);
        let elsewhere = mounts.join().unwrap();
        assert_gone(&fs);
        assert_gone(&elsewhere);
    });
}

/// The end of a whole tree: a file system that was detached from the tree ends with its last user,
/// with a walk in it until then.
///
/// Race: End of a tree (genocide) / walk.
///
/// Race: The end of a tree against the last walk in it.
///
/// A detached part of the tree lives as long as it has a user. The last one frees all of it after a
/// grace period, so a walk that began before still reads dentries.
#[test]
fn the_end_of_a_tree_against_a_walk() {
    check(|| {
        let task = task(&["/m"]);
        let (_, fs) = mount(&task, "/m");
        task.posix().mkdirat(At::Cwd, "/m/d", MODE).unwrap();
        let inode = make(&task, "/m/d/x");
        task.hard_link("/m/d/x", "/m/y").unwrap();
        let other = task.fork();
        other.posix().chdir("/m").unwrap();
        let walks = thread::spawn(move || {
            assert_eq!(ino(&other, "d/x"), Ok(inode));
            assert_eq!(ino(&other, "d/../y"), Ok(inode));
            other.posix().chdir("/").unwrap();
            assert!(matches!(ino(&other, "m/y"), Err(Errno::NOENT) | Ok(_)));
        });
        assert_eq!(errno(task.posix().umount("/m", UmountFlags::DETACH)), None);
        walks.join().unwrap();
        assert_gone(&fs);
    });
}

/// Either the unmount or the change of directory happens first: no task ends up in an ended mount,
/// although a third thread uses it for a moment.
///
/// Race: Unmounting against walks.
/// Race: Unmount / `chdir`.
/// Seam: use of a mount / plain unmount; parties: an unmount, a `chdir` into it, an open.
#[test]
fn umount_against_chdir() {
    check_delays(|| {
        let task = task(&["/m"]);
        let (_, fs) = mount(&task, "/m");
        let other = Arc::new(task.fork());
        let changes = spawn(&other, |other| other.posix().chdir("/m").unwrap());
        let opens =
            spawn(&task, |task| drop(task.posix().open("/m", OFlags::RDONLY, MODE).unwrap()));
        let ended = umount(&task, "/m");
        changes.join().unwrap();
        opens.join().unwrap();
        assert_eq!(other.posix().getcwd().unwrap().to_str(), Some("/m"), "{ended:?}");
        let dev = |path: &str| other.metadata(path).unwrap().dev;
        assert_eq!(dev(".") == dev("/"), ended.is_none());
        drop(other);
        if ended.is_some() {
            assert_eq!((ended, umount(&task, "/m")), (Some(Errno::BUSY), None));
        }
        assert_gone(&fs);
    });
}

/// The working directory is the last user of a detached mount, and is left while a file is opened
/// in it. Either the open file holds the mount, or it is in the new working directory.
///
/// Race: Leaving the working directory of a detached mount / open in it.
#[test]
fn chdir_against_open() {
    check(|| {
        let task = task(&["/m"]);
        let (_, fs) = mount(&task, "/m");
        task.posix().chdir("/m").unwrap();
        assert_eq!(errno(task.posix().umount("/m", UmountFlags::DETACH)), None);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let opens = spawn(&task, move |task| task.posix().open("x", flags, MODE).unwrap());
        task.posix().chdir("/").unwrap();
        let file = opens.join().unwrap();
        if ino(&task, "/x").is_err() {
            assert_eq!(fs.strong_count(), 1, "a file is open on it");
        }
        file.write_all(b"still there").unwrap();
        drop(file);
        assert_gone(&fs);
    });
}

/// A removed directory is freed when the task leaves it, while a walk passes through it.
///
/// Race: Leaving a removed working directory / a walk through it.
#[test]
fn chdir_against_walk() {
    check(|| {
        let task = task(&[]);
        let before = free(&task);
        ["/d", "/d/e"].iter().for_each(|dir| task.posix().mkdirat(At::Cwd, dir, MODE).unwrap());
        task.posix().chdir("/d/e").unwrap();
        task.remove_dir("/d/e").unwrap();
        task.remove_dir("/d").unwrap();
        let walks = spawn(&task, |task| {
            let up = ino(task, "..");
            (up, task.posix().getcwd().map_err(|e| e.errno()))
        });
        task.posix().chdir("/").unwrap();
        let (up, cwd) = walks.join().unwrap();
        assert!(up.is_ok(), "{up:?}");
        assert!(cwd.as_ref().map_or_else(|e| *e == Errno::NOENT, |cwd| cwd.as_os_str() == "/"));
        assert_empty(&task, before);
    });
}

/// A bind concurrent with a remount to read-only: after the remount has succeeded, writes fail
/// through either.
///
/// Race: A remount that is busy against a writer.
/// Race: Bind / remount; remount / remount.
///
/// Race: A remount to read-only against a bind.
///
/// A bind makes another mount of the superblock, which is on the superblock's list before any
/// thread can reach it. A remount checks all mounts on that list for changes under way, and walks
/// the superblock's open files, through whatever mount they were opened.
#[test]
fn remount_against_bind() {
    check(|| {
        let task = task(&["/m", "/n"]);
        assert_eq!(mount(&task, "/m").0, None);
        make(&task, "/m/f");
        let binds = spawn(&task, |task| {
            task.posix().bind("/m", "/n", false).unwrap();
            task.posix().open("/n/f", OFlags::WRONLY, MODE).map_err(|e| e.errno())
        });
        let remounted = errno(task.posix().remount("/m", MountFlags::RDONLY));
        match (remounted, binds.join().unwrap().map(drop)) {
            (None, opened) => {
                assert!(matches!(opened, Ok(()) | Err(Errno::ROFS)));
                // A file that was open for writing was closed before.
                let late = task.posix().open("/n/f", OFlags::WRONLY, MODE);
                assert_eq!(errno(late), Some(Errno::ROFS));
            }
            (Some(Errno::BUSY), Ok(())) => {}
            other => panic!("{other:?}"),
        }
    });
}

/// A remount to read-only, the close of a file that is open for writing, and a writer, all
/// concurrent. If the writer is refused, a remount has succeeded, and nothing changes after it.
fn remount_against_a_holder_and_a_writer(remount: fn(&Task) -> Option<Errno>) {
    check(move || {
        let task = task(&["/m"]);
        assert_eq!(mount(&task, "/m").0, None);
        ["/m/f", "/m/g"].iter().for_each(|path| _ = make(&task, path));
        let held = task.posix().open("/m/f", OFlags::WRONLY, MODE).unwrap();
        let writes = spawn(&task, |task| {
            let opened = task.posix().open("/m/g", OFlags::WRONLY, MODE).map(drop);
            [errno(opened), errno(task.posix().mkdirat(At::Cwd, "/m/d", MODE))]
        });
        let closes = spawn(&task, move |_| drop(held));
        let remounted = remount(&task);
        let is_made = || task.metadata("/m/d").is_ok();
        let was_made = is_made();
        let written = writes.join().unwrap();
        closes.join().unwrap();
        if remounted.is_none() {
            assert_eq!(is_made(), was_made, "a change of a file system that is read-only");
        }
        match remounted {
            None => assert_eq!(
                errno(task.posix().open("/m/g", OFlags::WRONLY, MODE)),
                Some(Errno::ROFS),
                "{written:?}"
            ),
            Some(Errno::BUSY) => assert_eq!(written, [None; 2]),
            other => panic!("{other:?}"),
        }
        let is_known = |errno: &Option<Errno>| matches!(errno, None | Some(Errno::ROFS));
        assert!(written.iter().all(is_known), "{written:?}");
    });
}

/// Race: Remount to read-only / close of a file that was open for writing / change by another
/// thread.
///
/// Race: A remount that is busy against a writer.
///
/// A remount used to forbid changes before it knew whether it would succeed, and to allow them
/// again when it found a file open for writing. A concurrent writer got `EROFS` because of a
/// remount that then failed with `EBUSY`. Now, as in Linux (`MNT_WRITE_HOLD`), a remount holds
/// writers while it looks: a writer that arrives is counted, waits for the decision of the remount,
/// and then continues or is refused accordingly (`crates/vfs/src/objects/vfsmount.rs`). The race
/// needs three parties: a thread that makes the mount busy, one that remounts, and one that writes.
/// A model of two showed it only where the remount saw the writer's own count just before that was
/// subtracted, once in many thousand schedules. While the driver then writes everything, changes
/// are refused, also if it fails, as in Linux.
///
/// A change of names is not counted as long as no remount has announced itself: without the grace
/// period after the announcement, the model finds a directory that is made in a file system that is
/// read-only.
///
/// Seam: remount / writers / open files that make it busy; parties: a remount, a close, a write.
#[test]
fn remount_of_a_file_system_against_a_holder_and_a_writer() {
    remount_against_a_holder_and_a_writer(|task| {
        errno(task.posix().remount("/m", MountFlags::RDONLY))
    });
}

/// Race: A remount that is busy against a writer.
/// Race: Remount to read-only / close of a file that was open for writing / change by another
/// thread.
/// Seam: remount / writers / open files that make it busy; parties: a remount, a close, a write.
#[test]
fn remount_of_a_mount_against_a_holder_and_a_writer() {
    remount_against_a_holder_and_a_writer(|task| {
        errno(task.posix().remount_bind("/m", MountFlags::RDONLY))
    });
}

/// Two concurrent remounts of one mount: in the end both file system and mount have the flags of
/// one of them.
///
/// Race: Bind / remount; remount / remount.
///
/// Race: Two remounts of one mount.
///
/// Two remounts that look for writers concurrently would each undo the flags of the other: one that
/// finds the mount busy restores the flags that it found. In the meantime the other used to find
/// the mount read-only already, and reported success, although the mount did not stay read-only.
/// Remounts of a superblock and of its mounts now exclude each other (`s_umount`).
///
/// A remount changes the flags of the superblock and then those of the mount. Two remounts used to
/// take that lock twice, so the superblock could end with the flags of one and the mount with the
/// flags of the other. Linux holds `s_umount` over both, and now it is one step here too. A reader
/// of the flags can still see the state in between, as in Linux: the file system is read-only and
/// the mount not yet, which makes the mount read-only.
#[test]
fn remount_against_remount() {
    check(|| {
        let task = task(&["/m"]);
        assert_eq!(mount(&task, "/m").0, None);
        let other = spawn(&task, |task| task.posix().remount("/m", MountFlags::RDONLY).unwrap());
        task.posix().remount("/m", MountFlags::NOEXEC).unwrap();
        other.join().unwrap();
        let mounts = task.posix().mounts();
        let mount = mounts.last().unwrap();
        let readonly = mount.flags.contains(MountFlags::RDONLY);
        assert_eq!(readonly, mount.super_flags.contains(MountFlags::RDONLY));
        assert_ne!(readonly, mount.flags.contains(MountFlags::NOEXEC));
    });
}

/// Of two directories that are moved into each other, one is moved.
///
/// Race: Rename / rename into each other (`is_subdir()` in Linux).
///
/// Race: Two directories that move into each other.
///
/// Moves of directories between directories run concurrently. Each marks the directory that moves,
/// and then climbs from the new parent to the root. If it meets a mark, its own or another's, it
/// waits until no other move is under way and searches for the directory among the ancestors again.
/// So of several moves that would make a loop together, one sees the mark of another, or its
/// result: the mark is read before the parent, so a move that finds no mark any more finds the new
/// parent. With the parent read first, three moves make a loop: one reads the old parent of a
/// directory, the move of that ends, and the mark is removed when it is read. The argument is in
/// `crates/vfs/src/syscalls/rename.rs`.
#[test]
fn directories_that_cross() {
    check(|| {
        let task = task(&["/a", "/b", "/a/c"]);
        let other = spawn(&task, |task| rename(task, "/a", "/b/a", RenameFlags::empty()));
        let this = rename(&task, "/b", "/a/c/b", RenameFlags::empty());
        let both = (this, other.join().unwrap());
        let there = |path: &str| ino(&task, path).is_ok();
        match both {
            (None, Some(Errno::INVAL | Errno::NOENT)) => assert!(there("/a/c/b")),
            (Some(Errno::INVAL | Errno::NOENT), None) => assert!(there("/b/a/c")),
            other => panic!("{other:?}"),
        }
        assert_eq!(task.walk_dir("/").count(), 4, "with the root");
    });
}

/// The path of a file that is being renamed is one of the two.
///
/// Race: `d_path` / rename, removal of the file.
///
/// Race: A path that is built while names on it change.
///
/// The names of a path are read one after the other, from the last to the first. A directory below
/// may be renamed after it was read, and one above before: the result would be a path that never
/// existed. So at the end all sequence counts of the dentries that were read are checked once more.
/// If they have not changed, all names existed together between the two reads. After some attempts
/// the reader takes `rename_lock`, which stops moves of directories. A directory that moves makes
/// its own count odd and checks for such readers after that, and they read counts after they have
/// entered: so one of the two waits. Renaming a file takes no `rename_lock`; its name and parent
/// are read together under its own sequence count.
#[test]
fn the_path_of_a_file_that_is_renamed() {
    check(|| {
        let task = task(&["/a", "/b"]);
        make(&task, "/a/f");
        let file = task.posix().open("/a/f", OFlags::RDONLY, MODE).unwrap();
        let moves = spawn(&task, |task| rename(task, "/a/f", "/b/g", RenameFlags::empty()));
        let told = [(); 2].map(|()| task.posix().path_of(&file).unwrap());
        assert_eq!(moves.join().unwrap(), None);
        let place = told.map(|path| ["/a/f", "/b/g"].map(|p| path.to_str() == Some(p)));
        assert!(place.iter().all(|is| is[0] != is[1]), "neither");
        assert!(place.is_sorted_by_key(|is| is[1]), "an older path after a newer one");
    });
}

/// A file that is being removed has its path until then, and is reported as deleted from then on.
///
/// Race: A path that is built while names on it change.
/// Race: `d_path` / rename, removal of the file.
#[test]
fn the_path_of_a_file_that_is_removed() {
    check(|| {
        let task = task(&["/d"]);
        make(&task, "/d/f");
        let file = task.posix().open("/d/f", OFlags::RDONLY, MODE).unwrap();
        task.posix().chdir("/d").unwrap();
        let removes = spawn(&task, |task| {
            task.remove_file("/d/f").unwrap();
            task.remove_dir("/d").unwrap();
        });
        let told = [(); 2].map(|()| task.posix().path_of(&file).unwrap());
        let cwd = task.posix().getcwd().map_err(|error| error.errno());
        removes.join().unwrap();
        let gone = told.map(|path| ["/d/f", "/d/f (deleted)"].map(|p| path.to_str() == Some(p)));
        assert!(gone.iter().all(|is| is[0] != is[1]), "neither");
        assert!(gone.is_sorted_by_key(|is| is[1]), "an older path after a newer one");
        assert!(cwd.map_or_else(|e| e == Errno::NOENT, |cwd| cwd.to_str() == Some("/d")));
        assert_eq!(errno(task.posix().getcwd()), Some(Errno::NOENT));
    });
}

/// A file and a working directory are removed, and then the directory above gets another name: a
/// path has that name only together with the removal.
///
/// Race: A path that is built while names on it change.
/// Race: `d_path`, `getcwd` / removal, and a rename of the directory above.
///
/// Whether the name was removed is read between the reads of the names and the check of their
/// counts, or twice if no directory moves, so that both are of one moment.
#[test]
fn the_path_of_a_file_that_is_removed_below_a_directory_that_moves() {
    check(|| {
        let task = task(&["/a", "/a/d"]);
        make(&task, "/a/f");
        let file = task.posix().open("/a/f", OFlags::RDONLY, MODE).unwrap();
        task.posix().chdir("/a/d").unwrap();
        let changes = spawn(&task, |task| {
            task.remove_file("/a/f").unwrap();
            task.remove_dir("/a/d").unwrap();
            assert_eq!(rename(task, "/a", "/b", RenameFlags::empty()), None);
        });
        let told = [(); 2].map(|()| task.posix().path_of(&file).unwrap());
        let cwd = task.posix().getcwd().map_err(|error| error.errno());
        changes.join().unwrap();
        let known = ["/a/f", "/a/f (deleted)", "/b/f (deleted)"];
        let told = told.map(|path| known.iter().position(|known| path.to_str() == Some(known)));
        assert!(told.iter().all(Option::is_some), "a path that never was");
        assert!(told.is_sorted(), "an older path after a newer one");
        assert!(cwd.map_or_else(|e| e == Errno::NOENT, |cwd| cwd.to_str() == Some("/a/d")));
    });
}

/// A file loses one name and gets another while it is opened by its handle. It has a name
/// throughout, and the path is one of its names or the one just removed.
///
/// Race: A file handle against the last unlink.
/// Race: Open by handle / unlink, link, eviction.
#[test]
fn names_that_come_and_go_against_open_by_handle() {
    check(|| {
        let task = task(&[]);
        let root = task.posix().open("/", OFlags::RDONLY, MODE).unwrap();
        let before = free(&task);
        let inode = make(&task, "/a");
        let handle = task.posix().name_to_handle_at(At::Cwd, "/a", AtFlags::empty()).unwrap();
        let opens = spawn(&task, move |task| {
            let file = task.posix().open_by_handle_at(&root, &handle, OFlags::RDONLY).unwrap();
            assert_eq!(file.stat().unwrap().ino, inode);
            task.posix().path_of(&file).unwrap()
        });
        let links = spawn(&task, |task| {
            task.hard_link("/a", "/c").unwrap();
            task.remove_file("/c").unwrap();
        });
        task.hard_link("/a", "/b").unwrap();
        links.join().unwrap();
        task.remove_file("/a").unwrap();
        let path = opens.join().unwrap();
        let known = ["/a", "/b", "/c", "/a (deleted)", "/c (deleted)"];
        assert!(known.iter().any(|known| path.to_str() == Some(known)), "{path:?}");
        task.remove_file("/b").unwrap();
        assert_empty(&task, before);
    });
}

/// A file whose reference count is sharded over CPUs loses its name while it is opened and closed.
/// The last reference frees it, once.
///
/// Race: Open of a dentry whose count is sharded / unlink.
///
/// Race: A hot count against the removal of the name.
///
/// A count whose line bounces between CPUs is sharded, and collected again when the name is
/// removed. Both happen under the dentry's lock, as do entering and leaving the ring of hot
/// dentries. The parts are summed a grace period after the flag was cleared, when no thread can
/// change them any more; a bias in the word holds the dentry until then, and a use that is counted
/// on the CPU holds the superblock (`crates/vfs/src/objects/super_ref.rs`). A thread that takes the
/// slot of a dentry demotes that dentry, and may find that it is being removed. The dentry is not
/// freed until that thread's RCU section ends, because its own collection begins after it has
/// looked for itself in the ring (`crates/vfs/src/objects/dcache/sharded_counts.rs`).
///
/// Seam: sharded count / its collection / the end of the superblock; parties: a holder of an open
/// file, a removal of a file whose count is to be collected, a walk, an unmount.
#[test]
fn a_hot_file_against_its_removal() {
    check(|| {
        let vfs = vfscale::memory().size(4 << 20).scaling(Scaling::with_slots(2)).build().unwrap();
        let task = Arc::new(vfs.task());
        let before = free(&task);
        make(&task, "/f");
        for n in 0..40 {
            let _there = cpu::pretend(n % 2);
            drop(task.posix().open("/f", OFlags::RDONLY, MODE).unwrap());
        }
        let opens = [0, 1].map(|n| {
            spawn(&task, move |task| {
                let _there = cpu::pretend(n);
                let opened = task.posix().open("/f", OFlags::RDONLY, MODE);
                opened.map(|file| file.stat().unwrap().size).map_err(|error| error.errno())
            })
        });
        task.remove_file("/f").unwrap();
        for opened in opens {
            let opened = opened.join().unwrap();
            assert!(opened == Ok(0) || opened == Err(Errno::NOENT), "{opened:?}");
        }
        (0..4).for_each(|_| rcu::synchronize());
        assert_empty(&task, before);
    });
}

/// A handle is opened while the last name is removed: it opens the file or is stale, and everything
/// is freed.
///
/// Race: Open by handle / unlink, link, eviction.
///
/// Race: A file handle against the last unlink.
///
/// Opening by handle counts a reference only while the inode has one; an inode that lost its last
/// reference is stale, although a thread may still find it in the hash. If a dentry of the inode
/// has a name, the open takes that first. The dentry is on the list of its inode until it is about
/// to be freed, and a dead one is skipped.
#[test]
fn open_by_handle_against_unlink() {
    check(|| {
        let task = task(&[]);
        let root = task.posix().open("/", OFlags::RDONLY, MODE).unwrap();
        let before = free(&task);
        let inode = make(&task, "/f");
        let handle = task.posix().name_to_handle_at(At::Cwd, "/f", AtFlags::empty()).unwrap();
        let opens = spawn(&task, move |task| {
            let file = task.posix().open_by_handle_at(&root, &handle, OFlags::RDONLY);
            file.and_then(|file| file.stat()).map(|stat| stat.ino).map_err(|e| e.errno())
        });
        task.remove_file("/f").unwrap();
        let opened = opens.join().unwrap();
        assert!(opened == Ok(inode) || opened == Err(Errno::STALE), "{opened:?}");
        assert_empty(&task, before);
    });
}

/// Three threads request the handle of a file that never had one, one of them by a name that is
/// then removed. Each opens the file by the handle it got.
///
/// Race: Handle / handle, by another name that is removed / open by handle.
///
/// Race: A file's first handle against another thread's.
///
/// An inode enters the inode hash when the first handle of it is made. Of two threads that made one
/// concurrently, one claimed the right to enter the inode; the other saw the claim and returned the
/// handle, and an open by that handle failed with `ESTALE` until the first had entered the inode.
/// Now the inode is entered under the lock of the hash's bucket and marked after that, so a thread
/// that sees the mark finds the inode. The thread that drops the last reference sees the mark as
/// well: the thread that set it held a reference, which was dropped before.
///
/// Seam: the inode hash / a handle that was returned; parties: two threads that make the handle,
/// one by a name that is removed.
///
/// Fails if the inode is marked before it is entered.
#[test]
fn handles_of_one_file_against_one_another() {
    check(|| {
        let task = task(&[]);
        let root = Arc::new(task.posix().open("/", OFlags::RDONLY, MODE).unwrap());
        let before = free(&task);
        let inode = make(&task, "/a");
        task.hard_link("/a", "/b").unwrap();
        let asks = |name: &'static str| {
            let root = root.clone();
            move |task: &Task| {
                let handle =
                    task.posix().name_to_handle_at(At::Cwd, name, AtFlags::empty()).unwrap();
                let file = task.posix().open_by_handle_at(&root, &handle, OFlags::RDONLY);
                let found = file.and_then(|file| file.stat()).map(|stat| stat.ino);
                assert_eq!(found.map_err(|error| error.errno()), Ok(inode));
            }
        };
        let another = spawn(&task, asks("/a"));
        let (of_b, unlinks) = (asks("/b"), |task: &Task| task.remove_file("/b"));
        let by_b = spawn(&task, move |task| {
            of_b(task);
            unlinks(task).unwrap();
        });
        asks("/a")(&task);
        another.join().unwrap();
        by_b.join().unwrap();
        task.remove_file("/a").unwrap();
        assert_empty(&task, before);
    });
}

/// A tree is copied while a file system is mounted in it: the copy contains the mount as well,
/// whichever is first.
///
/// Race: Copy of the mount tree / mount, unmount.
///
/// Race: A copy of the tree against mounts, and its end against unmounts.
///
/// A tree is copied under `namespace_sem`. So a concurrent mount on a shared mount is either made
/// before the copy and copied, or is propagated to the copy as to any peer. When the last task of a
/// tree ends, its mounts leave their peer groups under that lock too.
#[test]
fn a_copy_of_the_tree_against_a_mount() {
    check(|| {
        let task = task(&["/a"]);
        task.posix().set_propagation("/", Propagation::Shared, false).unwrap();
        let copies = spawn(&task, |task| task.posix().unshare_mounts().unwrap());
        let (made, fs) = mount(&task, "/a");
        assert_eq!(made, None);
        let copy = copies.join().unwrap();
        assert_eq!((mounted(&copy, "/a"), mounted(&task, "/a")), (1, 1));
        // The copy ends while that mount is unmounted.
        let ends = thread::spawn(move || drop(copy));
        assert_eq!(umount(&task, "/a"), None);
        ends.join().unwrap();
        assert_gone(&fs);
    });
}

/// A directory is removed in one tree and mounted on in another.
///
/// Race: `rmdir` / mount, in the same tree and in another.
///
/// Race: Removing a name that is a mountpoint in another tree.
///
/// The removal finds the mark of a mountpoint under its bucket lock, where it may take no lock of
/// the trees. It releases everything, ends the mounts on the name in other trees, and starts again.
/// Claiming a mountpoint takes the bucket lock as well. So either the removal sees the mark, or the
/// claim sees that the name is removed.
#[test]
fn rmdir_against_a_mount_in_another_tree() {
    check(|| {
        let task = task(&["/d"]);
        let other = Arc::new(task.posix().unshare_mounts().unwrap());
        let mounts = spawn(&other, |other| mount(other, "/d"));
        assert_eq!(errno(task.remove_dir("/d")), None);
        let (made, fs) = mounts.join().unwrap();
        assert!(matches!(made, None | Some(Errno::NOENT)), "{made:?}");
        assert_eq!(other.posix().mounts().len(), 1);
        assert_gone(&fs);
    });
}
