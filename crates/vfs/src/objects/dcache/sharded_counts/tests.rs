#![allow(clippy::unwrap_used, reason = "a test")]

use vfscale_sync::{cpu, rcu};

use super::{AtomicPtr, CachePadded, HOT_MAX, Ordering, PATIENCE};
use crate::base::types::{Mode, OFlags};
use crate::file::open_file::File;
use crate::names_only_tests::names_only;
use crate::objects::dcache::dentry::Dentry;
use crate::task::task_struct::Task;
use vfscale_sync::scaling::Scaling;

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

/// Uses a dentry until it is hot, which it must be when each slot was granted once.
fn heat(dentry: &Dentry) {
    let granted = (0..HOT_MAX * PATIENCE).any(|_| {
        use_in_turn(dentry);
        dentry.is_hot()
    });
    assert!(granted);
}

/// One of too many is demoted, and can become hot again.
#[test]
fn so_many_dentries_are_hot_and_no_more() {
    let task = tree();
    let files: Vec<File> = (0..=HOT_MAX).map(|n| make(&task, &format!("/{n}"))).collect();
    let dentry = |n: usize| files[n].path().dentry();
    let is_hot = |n: usize| dentry(n).is_hot();
    (0..HOT_MAX).for_each(|n| use_in_turn(dentry(n)));
    assert!((0..HOT_MAX).all(|n| is_hot(n) && slots_of(dentry(n)) == 1));
    let cold = || Vec::from_iter((0..=HOT_MAX).filter(|n| !is_hot(*n)));
    assert_eq!(cold(), [HOT_MAX]);
    heat(dentry(HOT_MAX));
    let demoted = cold();
    assert_eq!((demoted.len(), slots_of(dentry(demoted[0]))), (1, 0));
    rcu::synchronize();
    heat(dentry(demoted[0]));
    assert!(cold().len() == 1 && cold() != demoted);
}

/// Where more dentries are busy than fit, most of the hot ones stay hot: few change, however often
/// the others ask.
#[test]
fn hot_dentries_do_not_take_turns() {
    const ROUNDS: usize = 20;
    const MORE: usize = 64;
    let task = tree();
    let files: Vec<File> = (0..HOT_MAX + MORE).map(|n| make(&task, &format!("/{n}"))).collect();
    let ring = files[0].path().dentry().sb().hot();
    let mut promoted = 0;
    for _ in 0..ROUNDS {
        for file in &files {
            let dentry = file.path().dentry();
            let was_hot = dentry.is_hot();
            use_in_turn(dentry);
            promoted += usize::from(!was_hot && dentry.is_hot());
        }
        // So a demoted one can be hot again.
        rcu::synchronize();
    }
    let requests = ring.requests.load(Ordering::Relaxed);
    assert!(requests > MORE * ROUNDS, "{requests} requests");
    let most = HOT_MAX + requests / PATIENCE + 1;
    assert!((HOT_MAX..=most).contains(&promoted), "{promoted}, with {requests} requests");
}

/// A slot that is free is found beside occupied ones, without a demotion.
#[test]
fn a_free_slot_is_taken_before_another_dentry_is_demoted() {
    let task = tree();
    let files: Vec<File> = (0..HOT_MAX + 8).map(|n| make(&task, &format!("/{n}"))).collect();
    let (hot, cold) = files.split_at(HOT_MAX);
    hot.iter().for_each(|file| use_in_turn(file.path().dentry()));
    (0..8).for_each(|n| task.remove_file(format!("/{}", n * 30)).unwrap());
    cold.iter().for_each(|file| heat(file.path().dentry()));
    let is_hot = |file: &&File| file.path().dentry().is_hot();
    let stay_hot = hot.iter().filter(is_hot).count();
    let requests = files[0].path().dentry().sb().hot().requests.load(Ordering::Relaxed);
    let granted = (requests - HOT_MAX) / PATIENCE + 1;
    assert!(stay_hot >= HOT_MAX - 8 - granted, "{stay_hot}, after {requests} requests");
    assert!(granted < 8, "the test proves nothing");
}

/// A removed name leaves its slot empty; otherwise the next one would demote a freed dentry.
#[test]
fn a_removed_dentry_is_hot_no_more() {
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
