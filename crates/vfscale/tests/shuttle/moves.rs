//! Random schedules of moves of directories to other directories, concurrent with each other and
//! with readers of ancestors:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle moves::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A failing schedule is printed, too.

use std::path::Path;
use std::sync::Arc;

use crate::common::{MODE, check, errno, ino, memory, rename, spawn};
use shuttle::thread;
use vfscale::posix::{At, MountFlags, RenameFlags};
use vfscale::{Errno, MemFs, Task};

fn task(dirs: &[&str]) -> Arc<Task> {
    let task = memory().task();
    dirs.iter().for_each(|dir| task.posix().mkdirat(At::Cwd, dir, MODE).unwrap());
    Arc::new(task)
}

fn moves(
    task: &Arc<Task>,
    from: &'static str,
    to: &'static str,
) -> thread::JoinHandle<Option<Errno>> {
    spawn(task, move |task| rename(task, from, to, RenameFlags::empty()))
}

/// Returns the number of entries that can be reached from the root, including it.
fn reached(task: &Task) -> usize {
    task.walk_dir("/").count()
}

/// Three moves would together form a loop, any two of them would not: one or two succeed.
///
/// Race: Two directories that move into each other.
/// Seam: moves of directories that make a loop together; parties: three moves.
#[test]
fn three_directories_that_would_make_a_loop() {
    check(|| {
        let task = task(&["/a", "/a/p", "/b", "/c"]);
        let others = [moves(&task, "/a", "/b/a"), moves(&task, "/b", "/c/b")];
        let this = rename(&task, "/c", "/a/p/c", RenameFlags::empty());
        let others = others.map(|thread| thread.join().unwrap());
        let all = [this, others[0], others[1]];
        let made = all.iter().filter(|result| result.is_none()).count();
        assert!(made == 1 || made == 2, "{all:?}");
        assert_eq!(reached(&task), 5);
    });
}

/// A directory below another is exchanged with one into which that other is moved.
///
/// Race: Two directories that move into each other.
#[test]
fn an_exchange_against_a_move_that_would_make_a_loop() {
    check(|| {
        let task = task(&["/a", "/a/x", "/b"]);
        let moves = moves(&task, "/a", "/b/a");
        let exchanged = rename(&task, "/a/x", "/b", RenameFlags::EXCHANGE);
        let both = [exchanged, moves.join().unwrap()];
        assert!(both.contains(&None), "{both:?}");
        assert_eq!(reached(&task), 4);
    });
}

/// Two exchanges, each of which puts a directory below one of the other's.
///
/// Race: Two directories that move into each other.
#[test]
fn exchanges_that_would_make_a_loop() {
    check(|| {
        let task = task(&["/a", "/a/x", "/b", "/b/y"]);
        let other = spawn(&task, |task| rename(task, "/a", "/b/y", RenameFlags::EXCHANGE));
        let this = rename(&task, "/b", "/a/x", RenameFlags::EXCHANGE);
        let both = [this, other.join().unwrap()];
        assert!(both.contains(&None), "{both:?}");
        assert_eq!(reached(&task), 5);
    });
}

/// A directory is moved into one that is removed: one of the two calls fails.
///
/// Race: A directory that moves to one that is removed.
///
/// With the locks of the names held, a move checks whether its new directory is dead; a directory
/// that has a name in it is not.
#[test]
fn a_move_against_the_end_of_where_it_goes() {
    check(|| {
        let task = task(&["/a", "/a/x", "/b", "/b/c"]);
        let ends = spawn(&task, |task| ["/b/c", "/b"].map(|dir| errno(task.remove_dir(dir))));
        let moved = rename(&task, "/a", "/b/c/a", RenameFlags::empty());
        match (moved, ends.join().unwrap()) {
            (None, [Some(Errno::NOTEMPTY), Some(Errno::NOTEMPTY)]) => assert_eq!(reached(&task), 5),
            (Some(Errno::NOENT), [None, None]) => assert_eq!(reached(&task), 3),
            other => panic!("{other:?}"),
        }
    });
}

/// Possible paths of `c`, in this order, while one thread renames `b` and then `a`, and one moves
/// the directory they are moved to.
const PLACES: [&str; 4] = ["/a/b/c", "/a/x/c", "/z/a/x/c", "/y/z/a/x/c"];

/// Calls `tell` twice for the path of `c`, while directories above it move concurrently.
fn told_while_directories_move(
    prepare: impl Fn(&Task) + Send + Sync + 'static,
    tell: impl Fn(&Task) -> String + Send + Sync + 'static,
) {
    check(move || {
        let task = task(&["/a", "/a/b", "/a/b/c", "/y", "/z"]);
        prepare(&task);
        let below = spawn(&task, |task| {
            assert_eq!(rename(task, "/a/b", "/a/x", RenameFlags::empty()), None);
            rename(task, "/a", "/z/a", RenameFlags::empty())
        });
        let above = moves(&task, "/z", "/y/z");
        let told = [tell(&task), tell(&task)];
        let (below, above) = (below.join().unwrap(), above.join().unwrap());
        assert!(matches!((below, above), (None | Some(Errno::NOENT), None)), "{below:?} {above:?}");
        let place = told.each_ref().map(|path| PLACES.iter().position(|place| path == place));
        assert!(place.iter().all(Option::is_some), "{told:?}");
        assert!(place.is_sorted(), "{told:?}: an older path after a newer one");
    });
}

/// Race: A path that is built while names on it change.
#[test]
fn a_path_beside_moves() {
    let prepare = |task: &Task| task.posix().chdir("/a/b/c").unwrap();
    told_while_directories_move(prepare, |task| {
        task.posix().getcwd().unwrap().display().to_string()
    });
}

/// The path of a mountpoint is determined while all directories are held in place.
///
/// Race: A path that is built while names on it change.
#[test]
fn a_mountpoint_beside_moves() {
    let prepare = |task: &Task| {
        let fs = MemFs::builder().size(1 << 20).build();
        task.posix().mount(fs, "/a/b/c", MountFlags::empty()).unwrap();
    };
    told_while_directories_move(prepare, |task| {
        let mounts = task.posix().mounts();
        let point = mounts.iter().map(|mount| &mount.mount_point);
        point.filter(|point| *point != Path::new("/")).map(|p| p.display().to_string()).collect()
    });
}

/// Returns a task in `/jail`, which shows `/data/sub` as `/jail/mnt`, with its working directory
/// there.
fn jailed(task: &Task, cwd: &str) -> Task {
    ["/jail", "/jail/mnt"].iter().for_each(|dir| task.posix().mkdirat(At::Cwd, dir, MODE).unwrap());
    task.posix().bind("/data/sub", "/jail/mnt", false).unwrap();
    let jailed = task.fork();
    jailed.posix().chroot("/jail").unwrap();
    jailed.posix().chdir(cwd).unwrap();
    jailed
}

/// A walk of `..` from a directory that another thread moves out of what the mount shows, and back:
/// it ends inside, or fails with `ENOENT`.
///
/// Race: A walk up against a move out of a bind mount.
///
/// A bind mount shows a part of a file system. A directory in it may be moved elsewhere while it is
/// a working directory, and its `..` would lead out of the mount (CVE-2015-2925). So a walk of `..`
/// in such a mount climbs to the mount's root, and checks the sequence counts of all names on the
/// path once more: each step up was right at some moment, which is not enough when a directory
/// loses its child and is then moved in.
#[test]
fn parents_beside_moves_out_of_a_mount() {
    check(|| {
        let task = task(&["/data", "/data/sub", "/data/sub/a", "/data/sub/a/b", "/data/out"]);
        let jailed = jailed(&task, "/mnt/a/b");
        let inside = ["/data/sub/a", "/data/sub"].map(|path| ino(&task, path).ok());
        let mover = spawn(&task, |task| {
            for (from, to) in [("/data/sub/a", "/data/out/a"), ("/data/out/a", "/data/sub/a")] {
                assert_eq!(rename(task, from, to, RenameFlags::empty()), None);
            }
        });
        let (deep, shallow) = (ino(&jailed, "../.."), ino(&jailed, ".."));
        assert!(deep == Err(Errno::NOENT) || deep.ok() == inside[1], "{deep:?}");
        assert!(shallow == Err(Errno::NOENT) || shallow.ok() == inside[0], "{shallow:?}");
        mover.join().unwrap();
    });
}

/// The directory was moved out of the mount. While a walk climbs, the directory leaves its parent,
/// which is moved back without it. At no moment does the mount show an ancestor of the directory,
/// although each single step is valid at some moment. If the walk is at the changed directory, or
/// is about to arrive at it, the directory's own sequence count shows the change; otherwise the
/// counts of all names on the path do.
///
/// Race: A walk up against a move out of a bind mount.
///
/// Seam: `..` / the root of a bind mount / moves of directories; parties: a walk, moves of the
/// child and the parent, a rename above.
///
/// Fails without the last check of all counts (`has_changed`).
#[test]
fn parents_that_come_back_without_the_child() {
    for cwd in ["/mnt/x/a", "/mnt/x/a/b", "/mnt/x/a/b/c"] {
        check(move || {
            let task = task(&["/data", "/data/sub", "/data/sub/x", "/data/sub/x/a", "/data/out"]);
            for dir in ["b", "b/c"] {
                task.posix().mkdirat(At::Cwd, format!("/data/sub/x/a/{dir}"), MODE).unwrap();
            }
            let jailed = jailed(&task, cwd);
            assert_eq!(rename(&task, "/data/sub/x", "/data/out/x", RenameFlags::empty()), None);
            let mover = spawn(&task, |task| {
                // The other thread may have renamed `out`.
                for (from, to) in [("/data/out/x/a", "/data/out/a"), ("/data/out/x", "/data/sub/x")]
                {
                    let moved = rename(task, from, to, RenameFlags::empty());
                    assert!(matches!(moved, None | Some(Errno::NOENT)), "{moved:?}");
                }
            });
            let renamer = moves(&task, "/data/out", "/data/elsewhere");
            let found = ino(&jailed, "..");
            assert_eq!(found, Err(Errno::NOENT));
            mover.join().unwrap();
            renamer.join().unwrap();
        });
    }
}
