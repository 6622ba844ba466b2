//! Tests that workloads do what their names say, by the locks that their calls take.
//!
//! Lock statistics belong to the process, so these tests run one after the other, in a process of
//! their own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vfscale_bench::results::CaseResult;
use vfscale_bench::{Interrupt, Plan, TargetSpec, find, run};

/// Serialises the tests of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the results of a workload with two workers: with all patches, and without `before`.
fn measured(workload: &str, target: TargetSpec, before: &str) -> [CaseResult; 2] {
    let mut plan = Plan::new(vec![find(workload).unwrap()], vec![target]);
    plan.threads = vec![2];
    plan.before = vec![vec![before.to_owned()]];
    plan.rounds = 5;
    plan.slice = Duration::from_millis(20);
    plan.warm_up = Duration::from_millis(1);
    plan.share_min = 0.0;
    plan.lockstat = true;
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    report.results.try_into().unwrap()
}

fn image(dir: &Path) -> TargetSpec {
    TargetSpec::Volume(dir.join("image.vfs"))
}

/// Returns the acquisitions of a class of locks for each operation.
fn per_op(result: &CaseResult, class: &str) -> f64 {
    let locks = result.lockstat.as_ref().unwrap();
    let taken = locks.iter().filter(|lock| lock.class == class).map(|lock| lock.acquisitions);
    let operations = result.lockstat_round.unwrap().operations;
    assert!(operations > 0);
    taken.sum::<u64>() as f64 / operations as f64
}

/// Unlinking an open file makes it an orphan until its end, which may come a little later.
#[test]
fn every_unlinked_open_file_is_an_orphan() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let [after, before] = measured("orphan-unlink", image(dir.path()), "orphan");
    assert_eq!(per_op(&after, "s_orphan_lock"), 0.0);
    // Without the patches: a check and a change for each of the two.
    let whole = per_op(&before, "s_orphan_lock");
    assert!(whole >= 2.0, "{whole}");
    assert!(after.journal.unwrap().transactions_per_op >= 2.0);
}

/// A file of many extents is truncated in several transactions: it is an orphan from the first to
/// the last.
#[test]
fn every_file_that_is_cut_in_several_transactions_is_an_orphan() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let [after, before] = measured("orphan-cut", image(dir.path()), "orphan");
    assert_eq!(per_op(&after, "s_orphan_lock"), 0.0);
    let whole = per_op(&before, "s_orphan_lock");
    assert!(whole >= 4.0, "{whole}");
    let journal = after.journal.unwrap();
    assert!(journal.transactions_per_op >= 4.0, "{journal:?}");
}

/// Kara's own program asks whether a file is an orphan, and no more.
#[test]
fn truncating_by_a_byte_only_asks() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let [after, before] = measured("orphan-truncate", image(dir.path()), "orphan");
    assert_eq!(per_op(&after, "s_orphan_lock"), 0.0);
    assert!((0.9..1.1).contains(&per_op(&before, "s_orphan_lock")));
}

#[test]
fn walks_across_a_mount_take_its_lock_before_and_none_after() {
    let _alone = alone();
    let [after, before] = measured("mount-cross", TargetSpec::Memory, "brlock");
    assert!(per_op(&before, "vfsmount_lock") >= 0.9, "{before:?}");
    assert!(per_op(&after, "vfsmount_lock") < 0.1, "{after:?}");
}

#[test]
fn opening_by_handle_takes_the_lock_of_inodes_before_and_none_after() {
    let _alone = alone();
    let [after, before] = measured("open-handle", TargetSpec::Memory, "inode-hash");
    assert!(per_op(&before, "inode_lock") >= 0.9, "{before:?}");
    assert!(per_op(&after, "inode_lock") < 0.1, "{after:?}");
}

#[test]
fn eviction_changes_the_list_of_unused_names() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let [_, before] = measured("evict", image(dir.path()), "lru");
    // A name enters the list when its last user leaves, and is taken off when it is dropped.
    assert!(per_op(&before, "dcache_lru_lock") >= 0.9, "{before:?}");
}

#[test]
fn sockets_alone_hang_below_one_root_before_and_nowhere_after() {
    let _alone = alone();
    let [after, before] = measured("close-sockets", TargetSpec::Memory, "pseudo");
    assert!(per_op(&before, "dcache_lock") >= 0.9, "{before:?}");
    assert!(per_op(&after, "dcache_lock") < 0.1, "{after:?}");
}

/// Each of the six paths of a job takes `rename_lock` before.
#[test]
fn each_file_of_a_job_is_told_with_its_path() {
    let _alone = alone();
    let [after, before] = measured("path-jobs", TargetSpec::Memory, "seqrwlock");
    assert!(per_op(&before, "rename_lock") >= 5.9, "{before:?}");
    assert!(per_op(&after, "rename_lock") < 0.1, "{after:?}");
}
