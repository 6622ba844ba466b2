//! Power cuts while threads change delayed names side by side.
//!
//! `VFSCALE_CRASH_STATES` sets the number of checked states (an eighth of 2,000), `VFSCALE_SEED`
//! the seed of random choices. The timing of threads is not determined by it.

use vfscale_crashtest::load::names::{NamesPlan, NamesTally, run};
use vfscale_crashtest::number;
use vfscale_sync::random::seed;

const PLAN: NamesPlan = NamesPlan {
    threads: 3,
    calls: 240,
    log_blocks: 1000,
    has_log_device: false,
    promises_more: false,
    cuts: 25,
};
/// Enough loads for all settings.
const LOADS_MIN: usize = 4;

/// Race: Changes of names side by side against a push and a power cut.
///
/// The context ends while other threads note and commit changes, in a directory that is being
/// folded. Each of their names is in the checkpoint of its commit, in the order of its thread. With
/// a log on a device of its own, both devices are cut at one moment.
#[test]
fn names_of_each_thread_are_those_after_a_prefix_of_its_calls() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 2_000) / 8);
    let mut all = NamesTally::default();
    for load in 0..(states / PLAN.cuts).max(LOADS_MIN) {
        let log_blocks = if load % 4 < 2 { 1000 } else { 256 };
        let plan = NamesPlan { has_log_device: load % 2 == 1, log_blocks, ..PLAN };
        let tally = run(plan, seed.wrapping_add(load as u64));
        all += tally.unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{all}");
    assert!(all.syncs > 20 && all.names > 1_000, "{all}");
}

/// A promise that no sync has made is found out.
#[test]
fn names_that_no_sync_has_made_durable_are_missed() {
    let plan = NamesPlan { promises_more: true, ..PLAN };
    let found = (1..=10).find_map(|seed| run(plan, seed).err());
    println!("{found:?}");
    assert!(found.is_some());
}
