//! Tests of vfscale against tmpfs, and of the coverage of this comparison.
//!
//! `VFSCALE_CALLS` sets the number of calls (200,000 by default, fewer in a debug build, which
//! checks the order of every lock), `VFSCALE_SEED` the seed, which is otherwise random and printed.

use crate::common::{permitted, play, variable};
use vfscale_difftest::campaign::Plan;
use vfscale_difftest::campaign::pairing::{
    TmpfsAndMount, TmpfsAndMountedVolume, TmpfsAndVfscale, TmpfsAndVolume, TmpfsTwice,
};
use vfscale_testkit::generate::{Focus, Shape};

#[test]
fn vfscale_does_what_tmpfs_does() {
    if !permitted() {
        return;
    }
    let seed = variable("VFSCALE_SEED").unwrap_or_else(vfscale_sync::random::fresh_seed);
    let usual = if cfg!(debug_assertions) { 30_000 } else { 200_000 };
    let calls = variable("VFSCALE_CALLS").unwrap_or(usual);
    let summary = play(&TmpfsAndVfscale::default(), &Plan::new(seed, calls));
    assert!(summary.calls >= calls);
    assert!(summary.succeeded * 5 > summary.calls * 2, "most calls fail: they show little");
    assert!(summary.emptied * 2 > summary.sequences, "released space can seldom be determined");
}

/// Compares pipes and fifos: what each holds, in which buffers, and who holds its ends.
#[test]
fn pipes_do_what_those_of_linux_do() {
    play_on(Focus::Pipes);
}

#[test]
fn locks_do_what_those_of_linux_do() {
    play_on(Focus::Locks);
}

fn play_on(focus: Focus) {
    if !permitted() {
        return;
    }
    let seed = variable("VFSCALE_SEED").unwrap_or_else(vfscale_sync::random::fresh_seed);
    let calls = variable("VFSCALE_CALLS").unwrap_or(30_000);
    let shape = Shape { focus, ..Shape::default() };
    let summary = play(&TmpfsAndVfscale::default(), &Plan { shape, ..Plan::new(seed, calls) });
    assert!(summary.succeeded * 4 > summary.calls, "most calls fail: they show little");
}

/// Compares a volume, which is reopened after each sequence.
#[test]
fn a_volume_does_what_tmpfs_does() {
    if !permitted() {
        return;
    }
    let seed = variable("VFSCALE_SEED").unwrap_or_else(vfscale_sync::random::fresh_seed);
    let usual = if cfg!(debug_assertions) { 10_000 } else { 100_000 };
    let calls = variable("VFSCALE_CALLS").map_or(usual, |calls| calls / 2);
    let summary = play(&TmpfsAndVolume::default(), &Plan::new(seed, calls));
    assert!(summary.calls >= calls);
    assert!(summary.emptied * 3 > summary.sequences, "few volumes could be opened again");
}

/// Compares a branch of a pool, which shares blocks with three that it comes from.
#[test]
fn a_branch_does_what_tmpfs_does() {
    if !permitted() {
        return;
    }
    let seed = variable("VFSCALE_SEED").unwrap_or_else(vfscale_sync::random::fresh_seed);
    let calls = if cfg!(debug_assertions) { 3_000 } else { 30_000 };
    let summary = play(&TmpfsAndVolume::in_branch(Some(3)), &Plan::new(seed, calls));
    assert!(summary.emptied * 3 > summary.sequences, "few branches could be opened again");
    let summary = play(&TmpfsAndMountedVolume::in_branch(Some(3)), &Plan::new(7, calls / 3));
    assert!(summary.emptied * 2 > summary.sequences, "few mounts could be compared again");
}

/// Compares mounts, which are unmounted and remounted after each sequence.
#[test]
fn a_mount_does_what_tmpfs_does() {
    if !permitted() {
        return;
    }
    // `docs/SEMANTICS.md` lists the differences that other calls still find.
    let plan = Plan::new(7, 5_000);
    for summary in
        [play(&TmpfsAndMount::default(), &plan), play(&TmpfsAndMountedVolume::default(), &plan)]
    {
        assert!(summary.emptied * 2 > summary.sequences, "few mounts could be compared again");
    }
}

/// Compares tmpfs with itself: a difference would be a fault of the test.
#[test]
fn tmpfs_does_what_tmpfs_does() {
    if !permitted() {
        return;
    }
    let seed = variable("VFSCALE_SEED").unwrap_or_else(vfscale_sync::random::fresh_seed);
    play(&TmpfsTwice::default(), &Plan::new(seed, 20_000));
}

#[test]
fn a_seed_gives_the_same_calls_and_results() {
    if !permitted() {
        return;
    }
    let once = |seed| play(&TmpfsAndVfscale::default(), &Plan::new(seed, 4_000)).coverage;
    let first = once(17);
    assert_eq!(first, once(17));
    assert_ne!(first, once(18));
}

/// Results that random calls must reach; without them, agreement would mean little.
const REACHED: &[(&str, &str)] = &[
    ("openat", "ok EACCES EEXIST EISDIR ELOOP ENOENT ENOTDIR ENXIO ENAMETOOLONG EINVAL EBADF"),
    ("openat2", "ok EXDEV ELOOP EINVAL"),
    ("renameat2", "ok EBUSY EEXIST EINVAL ENOTDIR ENOTEMPTY EXDEV"),
    ("unlinkat", "ok EACCES EBUSY EISDIR ENOTDIR ENOTEMPTY"),
    ("linkat", "ok EEXIST EPERM EXDEV"),
    ("setxattr", "ok EACCES EPERM EINVAL ENODATA E2BIG ERANGE EOPNOTSUPP"),
    ("getxattr", "ok ENODATA"),
    ("fchmodat", "ok EPERM EROFS EOPNOTSUPP"),
    ("fchownat", "ok EPERM"),
    ("utimensat", "ok EPERM EACCES"),
    ("lseek", "ok ENXIO EINVAL"),
    ("fallocate", "ok EOPNOTSUPP EINVAL"),
    ("copy_file_range", "ok EINVAL EISDIR"),
    ("mount", "ok EPERM"),
    ("umount", "ok EINVAL EBUSY"),
    ("setlk", "ok EINVAL"),
    ("flock", "ok"),
    ("getdents", "ok ENOTDIR"),
    ("dupfd", "ok EBADF EINVAL"),
    ("getfd", "ok EBADF"),
    ("setfd", "ok EBADF"),
    ("open_by_handle", "ok"),
    ("chroot", "ok EPERM"),
];

#[test]
fn sequences_reach_deep_enough() {
    if !permitted() {
        return;
    }
    let summary = play(&TmpfsAndVfscale::default(), &Plan::new(1, 60_000));
    let wanted = REACHED
        .iter()
        .flat_map(|(call, classes)| classes.split(' ').map(move |class| (*call, class.to_owned())));
    let missing: Vec<_> = wanted.filter(|key| !summary.coverage.contains_key(key)).collect();
    assert!(missing.is_empty(), "not reached: {missing:?}");
}
