#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Barrier;

use vfscale_sync::random::{Random, seed};
use vfscale_sync::rcu;

use crate::base::types::{AtFlags, Mode, OFlags};
use crate::file::open_file::File;
use crate::names_only_tests::names_only;
use crate::objects::dcache::dentry::Dentry;
use crate::task::task_struct::{At, Task};
use vfscale_sync::scaling::Scaling;

const MODE: Mode = Mode::from_bits_retain(0o700);

fn tree() -> Task {
    names_only(Scaling::with_slots(4)).task()
}

fn make(task: &Task, path: &str) -> File {
    task.posix().open(path, OFlags::CREATE | OFlags::RDWR, MODE).unwrap()
}

fn link(task: &Task, old: &str, new: &str) {
    task.hard_link(old, new).unwrap();
}

fn unlink(task: &Task, path: &str) {
    task.remove_file(path).unwrap();
}

/// Returns the names of a file's dentries, sorted, and the number of dentries without a name.
fn names(file: &File) -> (Vec<String>, usize) {
    let guard = rcu::pin();
    let all: Vec<&Dentry> = file.inode().aliases(&guard).collect();
    let (gone, there): (Vec<_>, Vec<_>) = all.into_iter().partition(|d| d.is_unhashed());
    let name = |dentry: &Dentry| String::from_utf8(dentry.name(&guard).to_vec()).unwrap();
    let mut names: Vec<String> = there.into_iter().map(name).collect();
    names.sort();
    (names, gone.len())
}

/// Race: The first two names of a file against each other.
#[test]
fn each_name_has_a_dentry_on_the_list_until_it_is_freed() {
    let task = tree();
    let file = make(&task, "/a");
    assert_eq!(names(&file), (vec!["a".into()], 0));
    link(&task, "/a", "/b");
    link(&task, "/b", "/c");
    assert_eq!(names(&file), (vec!["a".into(), "b".into(), "c".into()], 0));
    // From the middle, from the front, and the open one, which remains while it is open.
    unlink(&task, "/b");
    assert_eq!(names(&file), (vec!["a".into(), "c".into()], 0));
    unlink(&task, "/a");
    assert_eq!(names(&file), (vec!["c".into()], 1));
    link(&task, "/c", "/d");
    unlink(&task, "/c");
    assert_eq!(names(&file), (vec!["d".into()], 1));
    unlink(&task, "/d");
    assert_eq!(names(&file), (vec![], 1));
}

#[test]
fn a_file_without_a_name_and_a_directory_have_one() {
    let task = tree();
    task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
    let dir = task.posix().open("/d", OFlags::RDONLY, MODE).unwrap();
    assert_eq!(names(&dir), (vec!["d".into()], 0));
    let nameless = task.posix().open("/d", OFlags::TMPFILE | OFlags::RDWR, MODE).unwrap();
    assert_eq!(names(&nameless), (vec![], 1));
    let (reader, _writer) = task.posix().pipe2(OFlags::empty()).unwrap();
    assert_eq!(names(&reader), (vec![], 0));
}

/// Users of a file count a reference to a dentry, which is sharded over CPUs when there are many.
/// The inode has one reference for each dentry, whether the file is opened by name, by handle, or
/// only examined. So no thread writes the inode's count while names are neither added nor removed.
#[test]
fn using_a_file_counts_no_reference_to_its_inode() {
    let task = tree();
    let file = make(&task, "/a");
    link(&task, "/a", "/b");
    let root = task.posix().open("/", OFlags::RDONLY, MODE).unwrap();
    let handle = task.posix().name_to_handle_at(At::Cwd, "/a", AtFlags::empty()).unwrap();
    assert_eq!(file.inode().references(), 2);
    let by_name = ["/a", "/b"].map(|path| task.posix().open(path, OFlags::RDWR, MODE).unwrap());
    let by_handle =
        [(); 5].map(|()| task.posix().open_by_handle_at(&root, &handle, OFlags::RDWR).unwrap());
    let copy = by_handle[0].clone();
    task.posix().fstatat(At::File(&copy), "", AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(file.inode().references(), 2);
    let path = task.posix().path_of(&by_handle[1]).unwrap();
    assert!(["/a", "/b"].map(|name| path.to_str() == Some(name)).contains(&true), "{path:?}");
    drop((by_name, by_handle, copy));
    unlink(&task, "/b");
    assert_eq!((file.inode().references(), names(&file)), (1, (vec!["a".into()], 0)));
}

/// Threads create and remove names of one file, and hold some of them open. In the end the file has
/// one dentry for each name, and a concurrent reader always saw the permanent ones.
///
/// Race: A file handle against the last unlink.
///
/// Race: The first two names of a file against each other.
///
/// The list of an inode's dentries has no lock while it has one dentry at most. A thread that adds
/// the second one takes the lock and exchanges the head for a marked one; if the only dentry has
/// left in the meantime, by an exchange of its own, the first exchange fails and the thread begins
/// again. A thread that removes a dentry and finds the mark takes the lock, and tries its own
/// exchange once more, because the others may have left before it had the lock.
#[test]
fn stress_names_that_come_and_go() {
    const THREADS: u64 = 4;
    let task = tree();
    let file = make(&task, "/stays");
    link(&task, "/stays", "/stays-too");
    let (seed, start) = (seed(), Barrier::new(THREADS as usize));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (task, file, start) = (&task, &file, &start);
            scope.spawn(move || {
                let mut random = Random::new(seed ^ thread << 32);
                start.wait();
                for _ in 0..3_000 {
                    let name = format!("/{thread}-{}", random.below(3));
                    let had = task.remove_file(&name).is_ok();
                    if !had {
                        link(task, "/stays", &name);
                        if random.below(2) == 0 {
                            let held = task.posix().open(&name, OFlags::RDONLY, MODE).unwrap();
                            unlink(task, &name);
                            drop(held);
                        }
                    }
                    let (there, _) = names(file);
                    let stay = there.iter().filter(|name| name.starts_with("stays")).count();
                    assert_eq!(stay, 2, "{there:?}");
                }
            });
        }
    });
    let (there, gone) = names(&file);
    assert_eq!((there.len(), gone), (file.stat().unwrap().nlink as usize, 0), "{there:?}");
}
