//! Two commits on different CPUs, to different items, share no lock; each setting that disables a
//! patch makes them share one again.

#![cfg(not(shuttle))]
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;

use common::{DEVICE_BYTES, LOG, Store, VOLUME};
use vfscale_block::{Device, MemoryDevice};
use vfscale_harness::alone;
use vfscale_journal::{Journal, Options};
use vfscale_sync::cpu;
use vfscale_sync::lock::{lockstat, lockstat_record, lockstat_reset};
use vfscale_sync::scaling::Scaling;

const COMMITS: u64 = 200;

/// Creates a store that pushes nothing by itself: the same blocks are logged again and again.
fn store(scaling: Scaling) -> Store {
    let device = MemoryDevice::with_block_size(DEVICE_BYTES, 4096).unwrap();
    Journal::format(&device, LOG, VOLUME).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    Store::open(device, Options { scaling, sync_interval: None, ..Options::default() }).unwrap()
}

/// Returns how often locks of each class moved from one CPU to the other while two CPUs commit
/// alternately, each to a block of its own.
fn bounces(scaling: Scaling) -> impl Fn(&str) -> u64 {
    let store = store(scaling);
    let commit = |n: u64| {
        let _there = cpu::pretend(u32::try_from(n % 2).unwrap());
        store.set(&[n % 2], 100).unwrap();
    };
    (0..4).for_each(commit);
    lockstat_reset();
    lockstat_record(true);
    (0..COMMITS).for_each(commit);
    lockstat_record(false);
    let rows = lockstat();
    move |class| rows.iter().find(|row| row.name == class).map_or(0, |row| row.acq_bounces)
}

const CLASSES: [&str; 9] = [
    "freeze_gate",
    "grant_queue",
    "budget_pool",
    "xc_ctx_lock",
    "xc_cil",
    "xc_cil_lock",
    "l_icloglock",
    "ail_lock",
    "log_shutdown",
];

#[test]
fn commits_on_two_cpus_meet_at_no_lock() {
    let _alone = alone();
    let bounces = bounces(Scaling::with_slots(2));
    for class in CLASSES {
        assert_eq!(bounces(class), 0, "{class}");
    }
}

/// A block stays on the list of the CPU that has logged it first: logging it again, on any CPU,
/// takes no list's lock.
#[test]
fn logging_again_takes_no_list() {
    let _alone = alone();
    for (scaling, lists) in [
        (Scaling::with_slots(2), 0),
        (Scaling::with_slots(2).and_before("cil-lists").unwrap(), COMMITS),
    ] {
        let store = store(scaling);
        let commit = |n: u64| {
            let _there = cpu::pretend(u32::try_from(n % 2).unwrap());
            store.set(&[1], 100).unwrap();
        };
        commit(0);
        lockstat_reset();
        lockstat_record(true);
        (0..COMMITS).for_each(commit);
        lockstat_record(false);
        let rows = lockstat();
        let row = rows.iter().find(|row| row.name == "xc_cil");
        assert_eq!(row.map_or(0, |row| row.acquisitions), lists);
        assert_eq!(store.journal.stats().commits, COMMITS + 1);
    }
}

#[test]
fn cil_lists_before_meet_at_the_list() {
    let _alone = alone();
    let bounces = bounces(Scaling::with_slots(2).and_before("cil-lists").unwrap());
    assert!(bounces("xc_cil") >= COMMITS - 2);
    assert_eq!(bounces("xc_ctx_lock"), 0);
}

#[test]
fn busy_extents_before_meet_at_the_lock_of_the_cil() {
    let _alone = alone();
    let bounces = bounces(Scaling::with_slots(2).and_before("busy-extents").unwrap());
    assert!(bounces("xc_cil_lock") >= COMMITS - 2);
    assert_eq!(bounces("xc_cil"), 0);
}

#[test]
fn one_slot_of_the_context_lock_is_a_semaphore_that_everybody_writes() {
    let _alone = alone();
    let bounces = bounces(Scaling::with_slots(2).and_before("cil-context").unwrap());
    assert!(bounces("xc_ctx_lock") >= COMMITS - 2);
    assert_eq!(bounces("xc_cil"), 0);
}
