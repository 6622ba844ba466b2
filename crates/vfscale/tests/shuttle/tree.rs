//! Random schedules of calls on one tree:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle tree::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A failing schedule is printed, too.

use std::path::Path;
use std::sync::Arc;

use crate::common::{
    MODE, assert_empty, check, check_delays, errno, free, ino, make, memory, rename,
};
use shuttle::thread;
use vfscale::posix::{At, FileList, MountFlags, OFlags, OpenFileInfo, RenameFlags, UmountFlags};
use vfscale::{Errno, Task};
use vfscale_sync::cpu;

/// While a file is renamed over another, the name refers to the old one, then to the new one, and
/// always to one of them.
///
/// Race: Rename, exchange / lookup.
///
/// Race: A name that is replaced must never be missing.
///
/// `rename` over an existing name removes one entry from a bucket and inserts another. A concurrent
/// lookup that scans the bucket could pass the slot of the new entry before that is inserted, and
/// reach the slot of the old one after that is removed. The rename therefore announces the change
/// in both buckets first: their version is odd during the change, and a lookup that found nothing
/// looks again. The two dentries have an odd sequence count, so no lookup returns either of them
/// during the change, and none sees the new file and later the old one.
#[test]
fn a_replaced_name_is_never_missing() {
    check(|| {
        let task = Arc::new(memory().task());
        let old = make(&task, "/name");
        let new = make(&task, "/new");
        let looks = {
            let task = task.clone();
            thread::spawn(move || [0; 3].map(|_| ino(&task, "/name").unwrap()))
        };
        assert_eq!(rename(&task, "/new", "/name", RenameFlags::empty()), None);
        let seen = looks.join().unwrap();
        assert!(seen.iter().all(|&ino| ino == old || ino == new), "{seen:?}");
        assert!(seen.is_sorted_by_key(|&ino| ino == new), "{seen:?}: {old} after {new}");
        assert_eq!(ino(&task, "/new"), Err(Errno::NOENT));
    });
}

/// After a remount to read-only has succeeded, no file is open for writing, whichever CPU it was
/// opened on and whichever task owns it.
///
/// Race: Open or close for writing, on any CPU and on private lists / remount to read-only.
///
/// Race: A remount to read-only against opening for writing.
///
/// An open is a change under way until the file is on the list of its CPU. The remount forbids
/// changes, sums the changes under way, and then walks the lists, so it finds either the open in
/// the sum or the file on a list. A file that moves to a private list is counted before it leaves
/// the superblock's, in a number that the remount reads after the walk. A change that is refused is
/// subtracted from the very counter that it was added to. A thread that moved to another CPU
/// between the two used to make the sum one less than the truth for a moment, so a remount could
/// overlook a writer. Files on private lists used to be in that sum as well, and made it wrong in
/// the same manner: adopted on one CPU after its part was read, closed on another before.
///
/// A file on a private list used to be subtracted from that number before it left its list, so a
/// remount could succeed while the file was still visible there. Now its end subtracts it after it
/// has left the list.
#[test]
fn remount_against_opens_for_writing() {
    check(remount_against_opens);
}

/// Variant with long delays between the steps of a close.
///
/// Race: A remount to read-only against opening for writing.
/// Race: Open or close for writing, on any CPU and on private lists / remount to read-only.
#[test]
fn remount_against_opens_for_writing_under_long_delays() {
    check_delays(remount_against_opens);
}

fn remount_against_opens() {
    let task = Arc::new(memory().task());
    make(&task, "/file");
    let terminal = FileList::new();
    let opens = [false, true].map(|private| {
        let (task, terminal) = (task.clone(), terminal.clone());
        thread::spawn(move || {
            let here = cpu::pretend(u32::from(private));
            let Ok(file) = task.posix().open("/file", OFlags::WRONLY, MODE) else { return };
            assert!(!private || terminal.adopt(&file));
            drop(here);
            drop(file);
        })
    });
    if errno(task.posix().remount("/", MountFlags::RDONLY)).is_none() {
        let for_writing = |file: &OpenFileInfo| file.flags.contains(OFlags::WRONLY);
        assert!(!task.posix().open_files("/").unwrap().iter().any(for_writing));
        assert!(!terminal.files().iter().any(for_writing));
    }
    opens.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(errno(task.posix().remount("/", MountFlags::RDONLY)), None);
    assert_eq!(task.posix().open_files("/").unwrap(), []);
}

/// Two names that are exchanged exist at all times.
///
/// Race: Rename, exchange / lookup.
#[test]
fn exchanged_names_are_never_missing() {
    check(|| {
        let task = Arc::new(memory().task());
        let (a, b) = (make(&task, "/a"), make(&task, "/b"));
        let looks = ["/a", "/b"].map(|name| {
            let task = task.clone();
            thread::spawn(move || [0; 2].map(|_| ino(&task, name).unwrap()))
        });
        assert_eq!(rename(&task, "/a", "/b", RenameFlags::EXCHANGE), None);
        let [in_a, in_b] = looks.map(|thread| thread.join().unwrap());
        assert!(in_a.is_sorted_by_key(|&ino| ino == b) && in_b.is_sorted_by_key(|&ino| ino == a));
        assert_eq!((ino(&task, "/a"), ino(&task, "/b")), (Ok(b), Ok(a)));
    });
}

/// Three threads create, remove and rename one name. The remaining file, if any, and the used space
/// agree with their results.
///
/// Race: Create / create; create / unlink / rename.
#[test]
fn create_unlink_and_rename_of_one_name() {
    check(|| {
        let vfs = memory();
        let task = Arc::new(vfs.task());
        task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
        let before = free(&task);
        let run = |call: fn(&Task) -> Option<Errno>| {
            let task = task.clone();
            thread::spawn(move || call(&task))
        };
        let creates = run(|task| {
            errno(task.posix().open("/d/x", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, MODE))
        });
        let unlinks = run(|task| errno(task.remove_file("/d/x")));
        let renames = run(|task| rename(task, "/d/x", "/d/y", RenameFlags::empty()));
        assert_eq!(creates.join().unwrap(), None);
        let unlinked = unlinks.join().unwrap();
        let renamed = renames.join().unwrap();
        let there = (ino(&task, "/d/x").is_ok(), ino(&task, "/d/y").is_ok());
        match (unlinked, renamed) {
            (None, Some(Errno::NOENT)) => assert_eq!(there, (false, false)),
            (Some(Errno::NOENT), None) => assert_eq!(there, (false, true)),
            (Some(Errno::NOENT), Some(Errno::NOENT)) => assert_eq!(there, (true, false)),
            other => panic!("one file, and {other:?}"),
        }
        for name in ["/d/x", "/d/y"] {
            let _ = task.remove_file(name);
        }
        assert_empty(&task, before);
    });
}

/// Two threads open one name with `O_CREAT`: both get the same file, and with `O_EXCL` only one
/// succeeds.
///
/// Race: Create / create; create / unlink / rename.
#[test]
fn one_name_is_made_once() {
    check(|| {
        let task = Arc::new(memory().task());
        let run = |flags: OFlags| {
            let task = task.clone();
            thread::spawn(move || {
                let file = task.posix().open("/x", OFlags::CREATE | OFlags::RDWR | flags, MODE);
                file.and_then(|file| file.stat()).map(|stat| stat.ino).map_err(|e| e.errno())
            })
        };
        let plain = run(OFlags::empty());
        let exclusive = run(OFlags::EXCL);
        let (plain, exclusive) = (plain.join().unwrap(), exclusive.join().unwrap());
        let there = ino(&task, "/x").unwrap();
        assert_eq!(plain, Ok(there));
        assert!(exclusive == Ok(there) || exclusive == Err(Errno::EXIST), "{exclusive:?}");
    });
}

/// Two threads remove one name, or one of them renames it: only one succeeds. A search that found a
/// name must not conclude from the lack of later changes that the name still exists.
///
/// Race: A removal that fails against changes of the name.
#[test]
fn one_name_is_removed_once() {
    for renames in [false, true] {
        check(move || {
            let task = Arc::new(memory().task());
            let before = free(&task);
            make(&task, "/x");
            let other = {
                let task = task.clone();
                thread::spawn(move || {
                    if renames {
                        rename(&task, "/x", "/y", RenameFlags::empty())
                    } else {
                        errno(task.remove_file("/x"))
                    }
                })
            };
            let removed = errno(task.remove_file("/x"));
            match (removed, other.join().unwrap()) {
                (None, Some(Errno::NOENT)) => {}
                (Some(Errno::NOENT), None) if renames => {
                    task.remove_file("/y").unwrap();
                }
                (Some(Errno::NOENT), None) => {}
                other => panic!("{other:?}"),
            }
            assert_empty(&task, before);
        });
    }
}

/// A directory is removed while a file is created in it: one of the two fails.
///
/// Race: `rmdir` / create.
///
/// Race: Removing a directory against creating in it.
///
/// `rmdir` holds every bucket of the directory while it checks that the directory is empty and
/// marks it dead; a create checks that mark under its bucket lock. One of the two is first, and the
/// other fails.
///
/// A directory's link count loses the link of a subdirectory before the bucket is unlocked.
/// Otherwise a thread that finds the directory empty after the unlock would set the count to zero,
/// and the late decrement would take it below, which happened once.
#[test]
fn rmdir_against_create() {
    check(|| {
        let task = Arc::new(memory().task());
        let before = free(&task);
        task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
        let creates = {
            let task = task.clone();
            thread::spawn(move || {
                errno(task.posix().open("/d/x", OFlags::CREATE | OFlags::RDWR, MODE))
            })
        };
        let removed = errno(task.remove_dir("/d"));
        match (removed, creates.join().unwrap()) {
            (None, Some(Errno::NOENT)) => assert_eq!(ino(&task, "/d"), Err(Errno::NOENT)),
            (Some(Errno::NOTEMPTY), None) => {
                task.remove_file("/d/x").unwrap();
                task.remove_dir("/d").unwrap();
            }
            other => panic!("{other:?}"),
        }
        assert_empty(&task, before);
    });
}

/// The last directory in another one is removed, and then that one: its link count ends at zero.
///
/// Race: Removing a directory against creating in it.
#[test]
fn rmdir_against_rmdir_of_the_directory_above() {
    check(|| {
        let task = Arc::new(memory().task());
        task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
        task.posix().mkdirat(At::Cwd, "/d/x", MODE).unwrap();
        let above = task.posix().open("/d", OFlags::RDONLY | OFlags::DIRECTORY, MODE).unwrap();
        let inner = {
            let task = task.clone();
            thread::spawn(move || task.remove_dir("/d/x").unwrap())
        };
        let removed = errno(task.remove_dir("/d"));
        inner.join().unwrap();
        match removed {
            None => assert_eq!(above.stat().unwrap().nlink, 0),
            Some(Errno::NOTEMPTY) => assert_eq!(above.stat().unwrap().nlink, 2),
            other => panic!("{other:?}"),
        }
    });
}

/// An empty directory is renamed, and a file is created in it after that. A removal by the old name
/// finds it empty or not at all: at no moment does it have that name and an entry.
///
/// Race: A removal that fails against changes of the name.
///
/// `unlink`, `rmdir` and `rename` look names up and check all rules before they take a lock. A
/// dentry that was found may be replaced before it is checked. The check may then fail because of
/// two facts that never held at one moment: a file that may not be removed, in a directory that has
/// another file of that name by then. So the call reads the dentry's sequence count with the match
/// and checks it after the rules. If it has not changed, the name existed from the first read to
/// the last, so the call had to fail at the moment of the check; otherwise it begins again. A
/// search may also meet a dentry that was removed from its table just before the count was read,
/// and that does not change any more: it is marked as removed, and the mark is checked with the
/// count. A name that does not exist is looked up once more. For `ENOTEMPTY` it suffices that the
/// directory contained a name at some moment at which it had its own name. A directory that moves
/// into another is searched for among the ancestors of that, whose counts are checked again with
/// the others. With the locks held, unchanged counts say that both names are still those that were
/// checked. `crates/vfscale/tests/alone/no_locks.rs` counts the locks of such calls: none.
#[test]
fn rmdir_against_a_directory_that_fills_elsewhere() {
    check(|| {
        let task = Arc::new(memory().task());
        task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
        let fills = {
            let task = task.clone();
            thread::spawn(move || {
                let moved = rename(&task, "/d", "/e", RenameFlags::empty());
                let made = errno(task.posix().open("/e/x", OFlags::CREATE | OFlags::RDWR, MODE));
                assert_eq!(moved, made, "what could be moved could be filled");
                moved
            })
        };
        let removed = errno(task.remove_dir("/d"));
        match (removed, fills.join().unwrap()) {
            (None, Some(Errno::NOENT)) => assert_eq!(ino(&task, "/e"), Err(Errno::NOENT)),
            (Some(Errno::NOENT), None) => assert!(ino(&task, "/e/x").is_ok()),
            other => panic!("{other:?}"),
        }
    });
}

/// A file and a non-empty directory are exchanged. Calls on either name that must fail do so for a
/// reason that applies to one of the two, and never with `ENOENT`.
///
/// Race: A removal that fails against changes of the name.
#[test]
fn calls_that_fail_against_an_exchange() {
    check(|| {
        let task = Arc::new(memory().task());
        make(&task, "/file");
        make(&task, "/other");
        task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
        make(&task, "/d/x");
        let fails = {
            let task = task.clone();
            thread::spawn(move || {
                let taken = rename(&task, "/other", "/file", RenameFlags::NOREPLACE);
                (errno(task.remove_dir("/file")), taken)
            })
        };
        assert_eq!(rename(&task, "/file", "/d", RenameFlags::EXCHANGE), None);
        let (removed, taken) = fails.join().unwrap();
        assert!(matches!(removed, Some(Errno::NOTDIR | Errno::NOTEMPTY)), "{removed:?}");
        assert_eq!(taken, Some(Errno::EXIST));
    });
}

/// A mount is ended while a walk passes through it. The walk ends in the mount or below it, and the
/// unmount is busy if and only if the walk ended in it.
///
/// Race: Unmounting against walks.
/// Race: Unmount, plain / lookup, open.
#[test]
fn umount_against_lookup() {
    check(|| {
        let task = Arc::new(memory().task());
        task.posix().mkdirat(At::Cwd, "/m", MODE).unwrap();
        let outside = make(&task, "/m/x");
        let fs = vfscale::MemFs::builder().size(1 << 20).build();
        task.posix().mount(fs, "/m", vfscale::posix::MountFlags::empty()).unwrap();
        let dev = |file: &vfscale::File| file.stat().unwrap().dev;
        let below = dev(&task.posix().open("/", OFlags::RDONLY, MODE).unwrap());
        make(&task, "/m/x");
        let walks = {
            let task = task.clone();
            thread::spawn(move || task.posix().open("/m/x", OFlags::RDONLY, MODE).unwrap())
        };
        let ended = errno(task.posix().umount("/m", UmountFlags::empty()));
        let file = walks.join().unwrap();
        match ended {
            None => {
                assert_eq!(ino(&task, "/m/x"), Ok(outside));
                assert_eq!(dev(&file), below, "a file of an ended mount");
            }
            Some(Errno::BUSY) => {
                assert_ne!(dev(&file), below, "busy without a user");
                drop(file);
                task.posix().umount("/m", UmountFlags::empty()).unwrap();
            }
            Some(other) => panic!("{other:?}"),
        }
    });
}

/// The last close, the removal of the name, and an open by it: the last of them frees the file,
/// once.
///
/// Race: Last close / unlink.
///
/// Race: The last close against unlink.
///
/// The name owns one reference. A removal takes a reference to the parent if the dentry has other
/// users, before it drops the name's own reference, under the dentry's lock (or by the one exchange
/// that marks an unused dentry dead). So the last user, whichever thread it is, frees the dentry
/// once, and its path can be built until then.
///
/// Seam: the name's reference / the last close; parties: a close, an unlink, an open.
#[test]
fn last_close_against_unlink() {
    check(|| {
        let task = Arc::new(memory().task());
        let before = free(&task);
        let file = task.posix().open("/x", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
        file.write_all(&[1; 5000]).unwrap();
        let closes = thread::spawn(move || {
            assert!(file.stat().unwrap().nlink <= 1);
            drop(file);
        });
        let other = task.clone();
        let opens = thread::spawn(move || {
            let opened =
                other.posix().open("/x", OFlags::RDONLY, MODE).and_then(|file| file.stat());
            opened.map(|stat| stat.size).map_err(|error| error.errno())
        });
        task.remove_file("/x").unwrap();
        closes.join().unwrap();
        let opened = opens.join().unwrap();
        assert!(opened == Ok(5000) || opened == Err(Errno::NOENT), "{opened:?}");
        assert_empty(&task, before);
    });
}

/// A path is one of those at some moment, while two directories on it are moved.
///
/// Race: A path that is built while names on it change.
/// Race: `d_path`, `getcwd` / rename of directories above.
#[test]
fn paths_against_moves_of_directories() {
    check(|| {
        let task = Arc::new(memory().task());
        for dir in ["/a", "/a/b", "/a/b/c", "/z"] {
            task.posix().mkdirat(At::Cwd, dir, MODE).unwrap();
        }
        make(&task, "/a/b/c/f");
        task.posix().chdir("/a/b/c").unwrap();
        let file = task.posix().open("f", OFlags::RDONLY, MODE).unwrap();
        let moves = {
            let task = task.clone();
            thread::spawn(move || {
                assert_eq!(rename(&task, "/a/b", "/z/y", RenameFlags::empty()), None);
                assert_eq!(rename(&task, "/z", "/a/x", RenameFlags::empty()), None);
            })
        };
        let places = ["/a/b/c", "/z/y/c", "/a/x/y/c"];
        let told = [
            task.posix().getcwd().unwrap(),
            task.posix().path_of(&file).unwrap(),
            task.posix().getcwd().unwrap(),
        ];
        moves.join().unwrap();
        let told = [told[0].as_path(), told[1].parent().unwrap(), told[2].as_path()];
        let place = told.map(|path| places.iter().position(|place| path == Path::new(place)));
        assert!(place.iter().all(Option::is_some), "{told:?}");
        assert!(place.is_sorted(), "{told:?}: an older path after a newer one");
    });
}

/// No path mixes names of two moments. The lower directory is renamed first, so its first name
/// never occurs below the second name of the upper one.
///
/// Race: A path that is built while names on it change.
/// Race: `d_path`, `getcwd` / rename of directories above.
#[test]
fn a_path_is_of_one_moment() {
    check(|| {
        let task = Arc::new(memory().task());
        for dir in ["/a", "/a/b", "/a/b/c"] {
            task.posix().mkdirat(At::Cwd, dir, MODE).unwrap();
        }
        task.posix().chdir("/a/b/c").unwrap();
        let renames = {
            let task = task.clone();
            thread::spawn(move || {
                assert_eq!(rename(&task, "/a/b", "/a/y", RenameFlags::empty()), None);
                assert_eq!(rename(&task, "/a", "/x", RenameFlags::empty()), None);
            })
        };
        let places = ["/a/b/c", "/a/y/c", "/x/y/c"];
        for _ in 0..2 {
            let told = task.posix().getcwd().unwrap();
            assert!(places.iter().any(|place| told == Path::new(place)), "{told:?}");
        }
        renames.join().unwrap();
    });
}

/// A file leaves a whiteout under its old name. No reader finds that name free, so nobody makes a
/// file there, and the whiteout is found once the file is found under its new name.
///
/// Race: A rename that leaves a whiteout against lookups of the old name.
/// Seam: the move of a name and the insertion of the whiteout; parties: the rename, a lookup of
/// both names, a creator of the old name, a removal of the new one.
#[test]
fn a_whiteout_takes_the_place_at_once() {
    check(|| {
        let task = Arc::new(memory().task());
        let file = make(&task, "/a");
        let readers = {
            let task = task.clone();
            thread::spawn(move || {
                let new = ino(&task, "/b");
                let old = ino(&task, "/a").unwrap();
                assert!(new != Ok(file) || old != file, "the file has both names");
            })
        };
        let creators = {
            let task = task.clone();
            thread::spawn(move || {
                assert_eq!(errno(task.create_dir("/a")), Some(Errno::EXIST));
                let _ = task.remove_file("/b");
            })
        };
        assert_eq!(rename(&task, "/a", "/b", RenameFlags::WHITEOUT), None);
        readers.join().unwrap();
        creators.join().unwrap();
        assert_ne!(ino(&task, "/a").unwrap(), file);
        assert_eq!(task.metadata("/a").unwrap().rdev, 0);
        let _ = task.remove_file("/b");
        task.remove_file("/a").unwrap();
        assert_eq!(task.read_dir("/").unwrap().count(), 0);
    });
}
