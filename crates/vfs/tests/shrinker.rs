//! The limits of the shrinker, and the locks that it takes. A separate process, because the tests
//! measure the memory and the locks of the whole process.

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used)]

mod numbers;

use std::sync::{Mutex, PoisonError};

use numbers::Numbers;
use vfscale_sync::{cpu, reclaim};
use vfscale_vfs::{Scaling, Vfs, lockstat};

/// Held by the one test that runs: each measures the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Two CPUs alternately walk to a million files; resident memory stays within the limit plus 5 %.
#[test]
fn a_walk_of_a_million_files_stays_within_the_limit() {
    const DIRS: u64 = 1000;
    const FILES: u64 = 1000;
    // A fifth of the memory of a million files. In addition, about 1 MiB waits for grace periods.
    const LIMIT: usize = 64 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fs = Numbers::new(DIRS, FILES);
    let task = Vfs::with_scaling(fs.clone(), Scaling::with_slots(2)).unwrap().task();
    fs.with_super(|sb| sb.set_cache_limit(LIMIT));
    // One-time setup, which does not count as cache.
    task.metadata("/d0/f0").unwrap();
    let before = resident_bytes();
    let (mut most, mut most_resident) = (0, 0);
    for dir in 0..DIRS {
        let _cpu = cpu::pretend((dir % 2) as u32);
        for file in 0..FILES {
            task.metadata(format!("/d{dir}/f{file}")).unwrap();
        }
        most = most.max(fs.with_super(|sb| sb.cache_bytes()));
        most_resident = most_resident.max(resident_bytes() - before);
    }
    println!("limit {LIMIT}, most {most}, most resident {most_resident}");
    let bound = LIMIT + LIMIT / 20;
    assert!(most <= bound, "{most} bytes in use");
    assert!(most_resident <= bound, "{most_resident} bytes resident");
    assert!(most > LIMIT - LIMIT / 20, "the limit is used: {most}");
}

/// Returns the number of times that the locks of a class of lists were taken, and taken by another
/// CPU than before, while two CPUs alternately look up new names; and the number of times that any
/// lock was taken while they look up cached names.
fn locks_taken(class: &str, scaling: Scaling) -> (u64, u64, u64) {
    const NAMES: u64 = 100;
    let fs = Numbers::new(2, NAMES);
    let task = Vfs::with_scaling(fs.clone(), scaling).unwrap().task();
    let names = || {
        for name in 0..NAMES {
            for dir in 0..2 {
                let _cpu = cpu::pretend(dir);
                task.metadata(format!("/d{dir}/f{name}")).unwrap();
            }
        }
    };
    let recorded = |calls: &dyn Fn()| {
        // Waits for the thread that takes earlier trees down, because it takes locks.
        reclaim::settle();
        lockstat::reset();
        lockstat::record(true);
        calls();
        lockstat::record(false);
        lockstat::rows()
    };
    let misses = recorded(&names);
    let lists = misses.iter().find(|row| row.name == class).unwrap();
    let (taken, bounced) = (lists.acquisitions, lists.acq_bounces);
    let hits = recorded(&names).iter().map(|row| row.acquisitions).sum();
    (taken, bounced, hits)
}

fn has_one_list_before(class: &str, patch: &str) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (taken, bounced, hits) = locks_taken(class, Scaling::with_slots(2));
    assert!(taken >= 200, "{taken}");
    assert_eq!(bounced, 0, "a CPU has taken the lock of another's list, {taken} times in all");
    assert_eq!(hits, 0, "hits take no lock at all");
    let before = Scaling::with_slots(2).and_before(patch).unwrap();
    let (taken, bounced, hits) = locks_taken(class, before);
    assert!(taken >= 200 && bounced > taken * 9 / 10, "{bounced} of {taken}");
    assert_eq!(hits, 0);
}

#[test]
fn lru_before_has_one_list() {
    has_one_list_before("dcache_lru_lock", "lru");
}

#[test]
fn inode_list_before_has_one_list() {
    has_one_list_before("inode_sb_list_lock", "inode-list");
}
