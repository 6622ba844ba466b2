//! Walks over trees and removals of trees, concurrent with changes.

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use vfscale::posix::{At, OFlags, RenameFlags};
use vfscale::{Errno, Mode, Task, Vfs};

const MODE: Mode = Mode::from_bits_retain(0o755);

fn vfs() -> Vfs {
    vfscale::memory().size(64 << 20).build().unwrap()
}

/// Creates a tree of three levels at `top`, with `width` directories and files in each directory.
fn plant(task: &Task, top: &str, width: usize) {
    for n in 0..width {
        for m in 0..width {
            task.create_dir_all(format!("{top}/{n}/{m}")).unwrap();
            task.write(format!("{top}/{n}/{m}/file"), "").unwrap();
            task.symlink("/precious", format!("{top}/{n}/{m}/link")).unwrap();
        }
        task.write(format!("{top}/{n}/file"), "").unwrap();
    }
}

fn walk(task: &Task, top: &str) -> Vec<PathBuf> {
    task.walk_dir(top).map(|entry| entry.unwrap().path).collect()
}

#[test]
fn a_walk_skips_entries_removed_before_it_reaches_them() {
    let task = vfs().task();
    plant(&task, "/t", 3);
    let mut walking = task.walk_dir("/t");
    let top = walking.next().unwrap().unwrap();
    assert_eq!((top.path.as_path(), top.depth), (Path::new("/t"), 0));
    let first = walking.next().unwrap().unwrap();
    assert_eq!(first.depth, 1);
    for other in task.read_dir("/t").unwrap().map(Result::unwrap) {
        let path = other.path();
        if path != first.path {
            task.remove_dir_all(path).unwrap();
        }
    }
    // Removes also the directory that the walk is in, with its contents.
    task.remove_dir_all(&first.path).unwrap();
    assert_eq!(walking.map(Result::unwrap).count(), 0);
    let missing = task.walk_dir("/missing").next().unwrap().unwrap_err();
    assert_eq!((missing.errno(), missing.path()), (Errno::NOENT, Some(Path::new("/missing"))));
}

/// Race: A directory that becomes a link during a walk of its tree.
#[test]
fn a_walk_stays_in_the_directories_it_has_come_to() {
    let task = vfs().task();
    task.create_dir_all("/precious/d").unwrap();
    task.write("/precious/d/secret", "").unwrap();
    task.create_dir_all("/t/d").unwrap();
    task.write("/t/d/secret", "12345").unwrap();
    let mut walking = task.walk_dir("/t");
    let paths = [(); 2].map(|()| walking.next().unwrap().unwrap().path);
    assert_eq!(paths, ["/t", "/t/d"].map(PathBuf::from));
    // The directory that the walk is in is moved, and a link replaces it.
    task.rename("/t/d", "/elsewhere").unwrap();
    task.symlink("/precious/d", "/t/d").unwrap();
    let entry = walking.next().unwrap().unwrap();
    assert_eq!((entry.path.as_path(), entry.metadata.size), (Path::new("/t/d/secret"), 5));
    assert!(walking.next().is_none());
}

#[test]
fn a_walk_descends_deeper_than_the_longest_path() {
    let task = vfs().task();
    task.create_dir("/deep").unwrap();
    let mut dir = task.posix().open("/deep", vfscale::posix::OFlags::DIRECTORY, MODE).unwrap();
    let name = "n".repeat(200);
    for _ in 0..40 {
        task.posix().mkdirat(At::File(&dir), &name, MODE).unwrap();
        dir = task
            .posix()
            .openat(At::File(&dir), &name, vfscale::posix::OFlags::DIRECTORY, MODE)
            .unwrap();
    }
    drop(dir);
    assert_eq!(walk(&task, "/deep").len(), 41);
    task.remove_dir_all("/deep").unwrap();
    assert_eq!(walk(&task, "/"), [Path::new("/")]);
}

/// Race: A directory that becomes a link during a walk of its tree.
///
/// A walk of a tree looks at a name and finds a directory; another thread replaces it by a link;
/// the walk opens the name. It used to follow the link, and so did a walk whose directory was
/// replaced while it was in it, because it opened whole paths. Now it opens every directory
/// relative to the one above, which it has open, and never through a link; if that fails it looks
/// again. Both tests failed before.
#[test]
fn a_walk_does_not_follow_a_link_that_takes_the_place_of_a_directory() {
    let vfs = vfs();
    let task = vfs.task();
    task.create_dir_all("/precious/deep").unwrap();
    task.create_dir_all("/t/d").unwrap();
    task.symlink("/precious", "/l").unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let swapper = vfs.task();
        let over = &over;
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                swapper
                    .posix()
                    .renameat2(At::Cwd, "/t/d", At::Cwd, "/l", RenameFlags::EXCHANGE)
                    .unwrap();
            }
        });
        let walked = (0..20_000).try_for_each(|_| {
            task.walk_dir("/t").try_for_each(|entry| {
                let entry = entry.map_err(|error| error.to_string())?;
                if entry.path.ends_with("deep") {
                    Err("it was followed".to_owned())
                } else {
                    Ok(())
                }
            })
        });
        over.store(true, Ordering::Relaxed);
        walked.unwrap();
    });
}

#[test]
fn walks_concurrent_with_creations_and_removals_find_no_error() {
    let vfs = vfs();
    vfs.task().create_dir("/t").unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (over, maker, remover) = (&over, vfs.task(), vfs.task());
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for n in 0..4 {
                    let _ = maker.create_dir_all(format!("/t/{n}/a/b"));
                    let _ = maker.write(format!("/t/{n}/a/f"), "");
                }
            }
        });
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for n in 0..4 {
                    ends_well(remover.remove_dir_all(format!("/t/{n}")), &["/t"]);
                }
            }
        });
        let task = vfs.task();
        let walked = (0..2000).try_for_each(|_| task.walk_dir("/t").try_for_each(|e| e.map(drop)));
        over.store(true, Ordering::Relaxed);
        walked.unwrap();
    });
}

/// Checks that a removal succeeded, found nothing to remove, or names a path that other threads
/// repeatedly created.
fn ends_well(removal: vfscale::Result<()>, below: &[&str]) {
    let Err(error) = removal else { return };
    let path = error.path().unwrap();
    assert!(below.iter().any(|top| path.starts_with(top)), "{error}");
    assert!(matches!(error.errno(), Errno::NOENT | Errno::NOTEMPTY), "{error}");
}

/// Has three threads remove one tree at a time.
fn three_remove(vfs: &Vfs, top: &str) {
    let barrier = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                barrier.wait();
                match vfs.task().remove_dir_all(top) {
                    // The other threads were done before it began.
                    Err(error) if error.errno() == Errno::NOENT => {
                        assert_eq!(error.path(), Some(Path::new(top)));
                    }
                    other => other.unwrap(),
                }
            });
        }
    });
    assert!(!vfs.task().exists(top).unwrap());
}

/// Race: Removing a tree while other threads change it.
///
/// Between reading a directory and removing its entries, names are removed, created, and replaced
/// by other types of files. A name that no longer exists counts as removed; one that has become a
/// directory is descended into, and one that was a directory is unlinked. A directory that is not
/// empty after all is read again, a limited number of times.
#[test]
fn removals_of_one_tree_beside_each_other_end_well() {
    let vfs = vfs();
    let task = vfs.task();
    task.write("/precious", "").unwrap();
    for _ in 0..60 {
        plant(&task, "/t", 4);
        three_remove(&vfs, "/t");
        assert!(task.exists("/precious").unwrap());
    }
}

/// Race: Removing a tree while other threads change it.
#[test]
fn a_removal_beside_creations_ends_well() {
    const WIDTH: usize = 6;
    let vfs = vfs();
    let task = vfs.task();
    for _ in 0..200 {
        plant(&task, "/t", WIDTH);
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            let (maker, barrier) = (vfs.task(), &barrier);
            scope.spawn(move || {
                barrier.wait();
                // Fewer in each directory than would prevent the removal from ending.
                for n in 0..WIDTH * 60 {
                    let _ = maker.create_dir(format!("/t/{}/new{n}", n % WIDTH));
                }
            });
            barrier.wait();
            task.remove_dir_all("/t").unwrap();
        });
        assert!(!task.exists("/t").unwrap());
    }
}

#[test]
fn a_removal_concurrent_with_endless_creations_names_a_path() {
    let vfs = vfs();
    let task = vfs.task();
    task.create_dir_all("/t/d").unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (maker, over) = (vfs.task(), &over);
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let _ = maker.create_dir_all("/t/d/e");
            }
        });
        let removed = (0..500).try_for_each(|_| match task.remove_dir_all("/t") {
            Err(error) if error.errno() == Errno::NOENT => Ok(()),
            Err(error)
                if error.errno() == Errno::NOTEMPTY
                    && error.path().is_some_and(|path| path.starts_with("/t")) =>
            {
                Ok(())
            }
            other => other,
        });
        over.store(true, Ordering::Relaxed);
        removed.unwrap();
    });
}

#[test]
fn a_removal_names_the_whole_path_that_it_can_not_remove() {
    let task = vfs().task();
    plant(&task, "/t", 2);
    let fs = vfscale::MemFs::builder().size(1 << 20).build();
    task.posix().mount(fs, "/t/1/0", vfscale::posix::MountFlags::empty()).unwrap();
    let error = task.remove_dir_all("/t").unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::BUSY, Some(Path::new("/t/1/0"))));
    task.posix().umount("/t/1/0", vfscale::posix::UmountFlags::empty()).unwrap();
    task.remove_dir_all("/t").unwrap();
    let error = task.remove_dir_all("/t").unwrap_err();
    assert_eq!((error.errno(), error.path()), (Errno::NOENT, Some(Path::new("/t"))));
    // A non-directory, and a link to a directory.
    task.create_dir("/d").unwrap();
    task.symlink("/d", "/link").unwrap();
    task.remove_dir_all("/link").unwrap();
    assert!(task.metadata("/d").is_ok());
}

/// Race: Removing a tree while other threads change it.
#[test]
fn a_removal_meets_names_that_change_what_they_stand_for() {
    let vfs = vfs();
    let task = vfs.task();
    task.create_dir_all("/precious/d").unwrap();
    for _ in 0..1000 {
        task.create_dir_all("/t/d/e").unwrap();
        task.symlink("/precious", "/t/l").unwrap();
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            let (swapper, barrier) = (vfs.task(), &barrier);
            scope.spawn(move || {
                barrier.wait();
                // Fewer than would prevent the removal from ending.
                for _ in 0..60 {
                    let how = RenameFlags::EXCHANGE;
                    let _ = swapper.posix().renameat2(At::Cwd, "/t/d", At::Cwd, "/t/l", how);
                }
            });
            barrier.wait();
            task.remove_dir_all("/t").unwrap();
        });
        assert!(task.exists("/precious/d").unwrap());
    }
}

/// Makes directories `d` in each other below the working directory, and a file in the last one.
fn dig(task: &Task, levels: usize) {
    for _ in 0..levels {
        task.create_dir("d").unwrap();
        task.set_current_dir("d").unwrap();
    }
    task.write("leaf", "bottom").unwrap();
    task.set_current_dir("/").unwrap();
}

#[test]
fn a_walk_goes_deeper_than_a_path() {
    const LEVELS: usize = 20_000;
    let vfs = vfscale::memory().size(256 << 20).build().unwrap();
    let task = vfs.task();
    dig(&task, LEVELS);
    task.write("/last", "").unwrap();
    let (mut entries, mut most, mut has_leaf) = (0, 0, false);
    for entry in task.walk_dir("/") {
        let entry = entry.unwrap();
        entries += 1;
        if entries % 1000 == 0 {
            most = most.max(vfs.counts().open_files);
        }
        if entry.file_name() == "leaf" {
            let (at, name) = entry.at();
            let file = task.posix().openat(at, name, OFlags::RDONLY, 0).unwrap();
            assert_eq!((file.metadata().unwrap().len(), entry.depth), (6, LEVELS + 1));
            assert_eq!(entry.path.as_os_str().len(), 2 * LEVELS + "/leaf".len());
            has_leaf = true;
        }
    }
    assert!(has_leaf);
    assert_eq!(entries, LEVELS + 3);
    assert!(most < 100, "{most} open files");
    // The walk goes back up all the levels.
    assert_eq!(task.walk_dir("/").max_depth(1).count(), 3);
    let mut walk = task.walk_dir("/").filter_entry(|entry| entry.file_name() != "last");
    assert_eq!(walk.by_ref().count(), LEVELS + 2);
}

/// A walk that finds another directory above does not go on there.
#[test]
fn a_walk_does_not_go_on_in_another_directory() {
    let task = vfscale::memory().size(64 << 20).build().unwrap().task();
    dig(&task, 200);
    task.create_dir("/aside").unwrap();
    task.write("/aside/secret", "").unwrap();
    // Far above the walk, which finds another parent there; and near it, which it holds open.
    for (level, is_far) in [(50, true), (190, false)] {
        let moved = format!("/{}", vec!["d"; level].join("/"));
        let mut names = Vec::new();
        let mut error = None;
        for entry in task.walk_dir("/d") {
            match entry {
                Ok(entry) => {
                    if entry.file_name() == "leaf" {
                        task.rename(&moved, "/aside/d").unwrap();
                    }
                    names.push(entry.file_name().to_owned());
                }
                Err(found) => error = Some(found.errno()),
            }
        }
        assert_eq!(error, is_far.then_some(Errno::STALE));
        assert!(!names.iter().any(|name| name == "secret"));
        task.rename("/aside/d", &moved).unwrap();
    }
}

/// Calls `act`, and returns the most files that were open meanwhile.
fn most_open<T: Send>(vfs: &Vfs, act: impl FnOnce() -> T + Send) -> (T, usize) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(vfs.counts().open_files);
                thread::yield_now();
            }
            most
        });
        let done = act();
        over.store(true, Ordering::Relaxed);
        (done, watcher.join().unwrap())
    })
}

#[test]
fn a_tree_of_100_000_levels_is_copied_and_removed() {
    const LEVELS: usize = 100_000;
    let vfs = vfscale::memory().size(4 << 30).build().unwrap();
    let task = vfs.task();
    task.create_dir("/t").unwrap();
    task.write("/t/top", "").unwrap();
    task.set_current_dir("/t").unwrap();
    for _ in 0..LEVELS {
        task.create_dir("d").unwrap();
        task.set_current_dir("d").unwrap();
    }
    task.write("leaf", "bottom").unwrap();
    task.hard_link("leaf", "second").unwrap();
    task.hard_link("/t/top", "third").unwrap();
    task.symlink("leaf", "link").unwrap();
    task.set_permissions("leaf", 0o400).unwrap();
    task.set_permissions(".", 0o500).unwrap();
    task.set_current_dir("/").unwrap();

    let (files, most) = most_open(&vfs, || task.copy_dir_all("/t", "/copy").unwrap());
    assert_eq!(files, LEVELS as u64 + 6);
    assert!(most < 200, "{most} open files");
    task.set_current_dir("/copy").unwrap();
    for _ in 0..LEVELS {
        task.set_current_dir("d").unwrap();
    }
    assert_eq!(task.read_to_string("link").unwrap(), "bottom");
    let found = task.metadata("leaf").unwrap();
    assert_eq!((found.nlink, found.permissions()), (2, 0o400.into()));
    assert_eq!(task.metadata("third").unwrap().ino, task.metadata("/copy/top").unwrap().ino);
    assert_eq!(task.metadata(".").unwrap().permissions(), 0o500.into());
    task.set_current_dir("/").unwrap();

    let ((), most) = most_open(&vfs, || task.remove_dir_all("/copy").unwrap());
    assert!(most < 200, "{most} open files");
    assert!(!task.exists("/copy").unwrap());
    task.remove_dir_all("/t").unwrap();
}

/// Race: Removing a tree while other threads change it.
///
/// A removal that has gone far down goes up by the name `..` of a directory that another one may
/// have removed, as those above it. That name stays, and so do the numbers of directories that are
/// open further down.
#[test]
fn removals_of_one_deep_tree_beside_each_other_end_well() {
    let vfs = vfs();
    let task = vfs.task();
    for _ in 0..60 {
        dig(&task, 300);
        three_remove(&vfs, "/d");
    }
}
