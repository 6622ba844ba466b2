//! The caching and eviction of unused inodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::numbers::Numbers;
use vfscale_vfs::inode::{InodeInit, InodeRef};
use vfscale_vfs::{Mode, OFlags, Task, Vfs};

/// The number of an inode without a name.
const NAMELESS: u64 = 1 << 50;

fn tree(fs: &Arc<Numbers>) -> Task {
    Vfs::new(fs.clone()).unwrap().task()
}

fn stat(task: &Task, path: &str) -> u64 {
    task.metadata(path).unwrap().ino
}

/// Returns the numbers of cached inodes and of unused ones.
fn cached(fs: &Numbers) -> (usize, usize) {
    // Without the inode of negative dentries.
    fs.with_super(|sb| (sb.inodes_in_use() - 1, sb.unused_inodes()))
}

fn inode(fs: &Numbers, ino: u64, made: &AtomicU64) -> InodeRef {
    let make = || {
        made.fetch_add(1, Ordering::Relaxed);
        InodeInit { mode: 0o100_644, nlink: 1, ..InodeInit::default() }
    };
    fs.with_super(|sb| sb.iget(ino, make))
}

/// The inode was used twice, so the shrinker must pass twice to evict it.
#[test]
fn an_inode_stays_when_its_dentry_goes() {
    let fs = Numbers::new(1, 2);
    let task = tree(&fs);
    let file = stat(&task, "/d0/f0");
    drop(inode(&fs, file, &AtomicU64::new(0)));
    assert_eq!(cached(&fs), (3, 0));
    assert_eq!(fs.with_super(|sb| sb.shrink(1)), 1, "one dentry");
    assert_eq!((cached(&fs), fs.evicted()), ((3, 1), 0));
    let counts = task.vfs().counts();
    assert_eq!((counts.inodes, counts.unused_inodes), (4, 1));
    assert_eq!(stat(&task, "/d0/f0"), file);
    assert_eq!((cached(&fs), fs.evicted()), ((3, 0), 0));
}

/// The shrinker evicts unused inodes before it drops dentries, except inodes that were used since
/// its last pass.
#[test]
fn the_shrinker_takes_unused_inodes_first() {
    let fs = Numbers::new(1, 8);
    let task = tree(&fs);
    let paths = [0, 1, 2, 3].map(|file| format!("/d0/f{file}"));
    for path in &paths {
        stat(&task, path);
    }
    assert_eq!(fs.with_super(|sb| sb.shrink(usize::MAX)), 5, "all but the root");
    assert_eq!((cached(&fs), fs.evicted()), ((1, 0), 5));
    let made = AtomicU64::new(0);
    drop(inode(&fs, NAMELESS, &made));
    let kept = stat(&task, "/d0/f0");
    assert_eq!((cached(&fs), made.load(Ordering::Relaxed)), ((4, 1), 1));
    // Another use protects the inode for one pass; the next pass evicts it, and drops no dentry.
    drop(inode(&fs, NAMELESS, &made));
    assert_eq!(made.load(Ordering::Relaxed), 1, "it was still cached");
    assert_eq!(fs.with_super(|sb| sb.shrink(1)), 0);
    assert_eq!((cached(&fs), fs.evicted()), ((3, 0), 6));
    assert_eq!(stat(&task, "/d0/f0"), kept);
    drop(inode(&fs, NAMELESS, &made));
    assert_eq!(made.load(Ordering::Relaxed), 2);
}

#[test]
fn a_file_without_a_name_goes_with_its_last_user() {
    let fs = Numbers::new(1, 1);
    let task = tree(&fs);
    let made = AtomicU64::new(0);
    let (first, second) = (inode(&fs, NAMELESS, &made), inode(&fs, NAMELESS, &made));
    first.set_nlink(0);
    drop(first);
    assert_eq!((cached(&fs), fs.evicted()), ((2, 0), 0), "one reference remains");
    drop(second);
    assert_eq!((cached(&fs), fs.evicted()), ((1, 0), 1));
    // The number then belongs to another file.
    assert_eq!(inode(&fs, NAMELESS, &made).nlink(), 1);
    assert_eq!(made.load(Ordering::Relaxed), 2);
    drop(task);
}

#[test]
fn cached_inodes_go_with_their_file_system() {
    let fs = Numbers::new(2, 3);
    let task = tree(&fs);
    stat(&task, "/d0/f0");
    let file = task.posix().open("/d1/f2", OFlags::RDONLY, Mode::empty()).unwrap();
    drop(inode(&fs, NAMELESS, &AtomicU64::new(0)));
    assert_eq!((cached(&fs), fs.evicted()), ((6, 1), 0));
    drop((file, task));
    vfscale_sync::reclaim::settle();
    assert_eq!(Arc::strong_count(&fs), 1);
    assert_eq!(fs.evicted(), 6);
}

#[test]
fn a_driver_may_want_none_to_be_kept() {
    let fs = Numbers::that_forgets(1, 2);
    let task = tree(&fs);
    stat(&task, "/d0/f0");
    assert_eq!(fs.with_super(|sb| sb.shrink(1)), 1);
    assert_eq!((cached(&fs), fs.evicted()), ((2, 0), 1));
}
