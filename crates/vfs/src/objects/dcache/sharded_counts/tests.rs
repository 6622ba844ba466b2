#![allow(clippy::unwrap_used, reason = "a test")]

use vfscale_sync::{cpu, rcu};

use super::{AtomicPtr, CachePadded, HOT_MAX, Ordering};
use crate::base::scaling::Scaling;
use crate::base::types::{Mode, OFlags};
use crate::file::open_file::File;
use crate::names_only_tests::names_only;
use crate::objects::dcache::dentry::Dentry;
use crate::task::task_struct::Task;

const MODE: Mode = Mode::from_bits_retain(0o700);
/// Number of alternating counts by two CPUs that certainly make a dentry hot.
const TURNS: u32 = 40;

fn tree() -> Task {
    names_only(Scaling::with_slots(2)).task()
}

fn make(task: &Task, path: &str) -> File {
    task.posix().open(path, OFlags::CREATE | OFlags::RDWR, MODE).unwrap()
}

fn use_in_turn(dentry: &Dentry) {
    for turn in 0..TURNS {
        let _there = cpu::pretend(turn % 2);
        let guard = rcu::pin();
        dentry.get(&guard);
        dentry.put(&guard);
    }
}

/// Returns the number of slots of the ring that hold the dentry.
fn slots_of(dentry: &Dentry) -> usize {
    let is_it = |place: &&CachePadded<AtomicPtr<Dentry>>| {
        std::ptr::eq(place.load(Ordering::Relaxed), dentry)
    };
    dentry.sb().hot().ring.iter().filter(is_it).count()
}

/// The oldest of too many is demoted, and can become hot again.
#[test]
fn so_many_dentries_are_hot_and_no_more() {
    let task = tree();
    let files: Vec<File> = (0..=HOT_MAX).map(|n| make(&task, &format!("/{n}"))).collect();
    let dentry = |n: usize| files[n].path().dentry();
    let is_hot = |n: usize| dentry(n).is_hot();
    (0..HOT_MAX).for_each(|n| use_in_turn(dentry(n)));
    assert!((0..HOT_MAX).all(|n| is_hot(n) && slots_of(dentry(n)) == 1));
    use_in_turn(dentry(HOT_MAX));
    assert!(!is_hot(0) && slots_of(dentry(0)) == 0 && (1..=HOT_MAX).all(is_hot));
    rcu::synchronize();
    use_in_turn(dentry(0));
    assert!(is_hot(0) && !is_hot(1) && (2..=HOT_MAX).all(is_hot));
}

/// A removed name leaves its slot empty; otherwise the next one would demote a freed dentry.
#[test]
fn what_is_removed_is_hot_no_more() {
    let task = tree();
    let [other, file] = ["/other", "/file"].map(|path| make(&task, path));
    let dentry = file.path().dentry();
    use_in_turn(other.path().dentry());
    use_in_turn(dentry);
    assert!(dentry.is_hot() && slots_of(dentry) == 1);
    task.remove_file("/file").unwrap();
    assert!(!dentry.is_hot() && slots_of(dentry) == 0);
    use_in_turn(dentry);
    assert!(!dentry.is_hot() && slots_of(dentry) == 0);
    assert!(other.path().dentry().is_hot() && slots_of(other.path().dentry()) == 1);
}

/// While a count is being collected, it can't be sharded, and its dentry does not enter the ring,
/// from which no thread would remove it.
#[test]
fn a_count_that_is_being_collected_is_not_hot() {
    let task = tree();
    let file = make(&task, "/file");
    let dentry = file.path().dentry();
    use_in_turn(dentry);
    let guard = rcu::pin();
    assert!(dentry.demote_unused(&guard));
    use_in_turn(dentry);
    assert_eq!((dentry.is_hot(), slots_of(dentry)), (false, 0));
    drop(guard);
    rcu::synchronize();
    use_in_turn(dentry);
    assert_eq!((dentry.is_hot(), slots_of(dentry)), (true, 1));
}
