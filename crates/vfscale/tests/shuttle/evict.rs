//! Changes by path, which take no reference, against the eviction of the inode they change:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle evict::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A failing schedule is printed, too.

use std::sync::Arc;

use crate::common::{MODE, assert_empty, check, errno, free, make, memory, rename};
use shuttle::thread;
use vfscale::posix::{At, AtFlags, OFlags, RenameFlags, XattrFlags};
use vfscale::{Errno, Task};

/// More than a block, so its charge shows in `statfs`.
const VALUE: [u8; 5000] = [7; 5000];

fn set(task: &Task, name: &str) -> Option<Errno> {
    let (how, flags) = (XattrFlags::empty(), AtFlags::empty());
    errno(task.posix().setxattrat(At::Cwd, "/x", name, &VALUE, how, flags))
}

/// Removes `/x`, created by `prepare`, while `calls` change it by its path; its space must be
/// returned exactly once.
fn against_unlink(prepare: fn(&Task), calls: &'static [fn(&Task) -> Option<Errno>]) {
    check(move || {
        let task = Arc::new(memory().task());
        let before = free(&task);
        prepare(&task);
        let changes = calls.iter().map(|call| {
            let task = task.clone();
            thread::spawn(move || call(&task))
        });
        let changes: Vec<_> = changes.collect();
        task.remove_file("/x").unwrap();
        for change in changes {
            let errno = change.join().unwrap();
            assert!(matches!(errno, None | Some(Errno::NOENT | Errno::NODATA)), "{errno:?}");
        }
        assert_empty(&task, before);
    });
}

/// The first attribute allocates memory of its own, which a concurrent eviction may have just found
/// missing.
///
/// Race: A change by path against the eviction of its inode.
/// Race: Setxattr, removexattr, truncate by path / unlink, eviction.
#[test]
fn the_first_attribute() {
    against_unlink(
        |task| {
            make(task, "/x");
        },
        &[|task| set(task, "user.a")],
    );
}

/// Race: A change by path against the eviction of its inode.
/// Race: Setxattr, removexattr, truncate by path / unlink, eviction.
#[test]
fn the_first_attributes_of_two_threads() {
    let calls: &[fn(&Task) -> Option<Errno>] =
        &[|task| set(task, "user.a"), |task| set(task, "user.b")];
    against_unlink(
        |task| {
            make(task, "/x");
        },
        calls,
    );
}

/// Race: A change by path against the eviction of its inode.
/// Race: Setxattr, removexattr, truncate by path / unlink, eviction.
#[test]
fn an_attribute_more_and_one_less() {
    let prepare = |task: &Task| {
        make(task, "/x");
        assert_eq!(set(task, "user.a"), None);
    };
    let calls: &[fn(&Task) -> Option<Errno>] = &[
        |task| set(task, "user.b"),
        |task| errno(task.posix().removexattrat(At::Cwd, "/x", "user.a", AtFlags::empty())),
    ];
    against_unlink(prepare, calls);
}

/// Pages are freed once, whichever thread cuts them off.
///
/// Race: A change by path against the eviction of its inode.
/// Race: Setxattr, removexattr, truncate by path / unlink, eviction.
#[test]
fn a_cut() {
    let prepare = |task: &Task| {
        let file = task.posix().open("/x", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
        file.write_all(&[1; 3 * 4096]).unwrap();
    };
    against_unlink(prepare, &[|task| errno(task.posix().truncate("/x", 5000))]);
}

/// Three threads: one sets the first attribute by path, one removes the name, and one that has the
/// file open closes it, and so evicts it. `remove` is called to remove the file `/x`.
fn against_close(remove: fn(&Task)) {
    check(move || {
        let task = Arc::new(memory().task());
        make(&task, "/y");
        let before = free(&task);
        let opened = task.posix().open("/x", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
        let (changer, closer) = (task.clone(), thread::spawn(move || drop(opened)));
        let change = thread::spawn(move || set(&changer, "user.a"));
        remove(&task);
        closer.join().unwrap();
        let errno = change.join().unwrap();
        assert!(matches!(errno, None | Some(Errno::NOENT | Errno::NODATA)), "{errno:?}");
        task.remove_file("/x").ok();
        task.remove_file("/y").ok();
        make(&task, "/y");
        assert_empty(&task, before);
    });
}

/// Race: A change by path against the eviction of its inode.
///
/// `chmod`, `setxattr`, `removexattr` and `truncate` of a path change an inode in the RCU section
/// of their walk, without a reference. The inode may lose its last name and be evicted during the
/// call, and then the change has no effect. But the file system must not be charged for attributes
/// of an inode that has already returned its charges, and pages must be freed once. (A call that
/// would have to wait for the inode's lock takes a reference, which delays eviction.) Eviction
/// closes the set of attributes under its lock, and takes the inode's lock while it frees data. The
/// first attribute creates the set. Therefore a name announces that it may be the last one before
/// it drops its reference, and a thread that sets the first attribute checks for that announcement
/// after the set exists (`crates/vfs/src/objects/inode/evict.rs`). The announcement used to follow
/// the drop, when another user could already have closed the file and evicted it: of three threads
/// that met, one was charged for memory that no thread returned.
///
/// Seam: `set_removed` / `nameless` (`crates/vfs/src/objects/inode/evict.rs`); parties: a removal,
/// the last close, a `setxattr`.
#[test]
fn the_first_attribute_while_the_last_user_closes() {
    against_close(|task| task.remove_file("/x").unwrap());
}

/// Race: A change by path against the eviction of its inode.
/// Seam: `set_removed` / `nameless` (`crates/vfs/src/objects/inode/evict.rs`); parties: a removal,
/// the last close, a `setxattr`.
#[test]
fn the_first_attribute_while_another_file_takes_the_name() {
    against_close(|task| {
        assert_eq!(rename(task, "/y", "/x", RenameFlags::empty()), None);
    });
}

/// The user of the directory is a task whose working directory it is; the directory is removed.
///
/// Race: A change by path against the eviction of its inode.
#[test]
fn the_first_attribute_of_a_directory_while_the_last_user_leaves() {
    check(|| {
        let task = Arc::new(memory().task());
        let before = free(&task);
        task.posix().mkdirat(At::Cwd, "/x", MODE).unwrap();
        let opened = task.posix().open("/x", OFlags::RDONLY | OFlags::DIRECTORY, MODE).unwrap();
        let (changer, closer) = (task.clone(), thread::spawn(move || drop(opened)));
        let change = thread::spawn(move || set(&changer, "user.a"));
        task.remove_dir("/x").unwrap();
        closer.join().unwrap();
        let errno = change.join().unwrap();
        assert!(matches!(errno, None | Some(Errno::NOENT | Errno::NODATA)), "{errno:?}");
        assert_empty(&task, before);
    });
}
