//! Power cuts while threads write, sync and remount a volume on a slow device.
//!
//! `VFSCALE_CRASH_STATES` says how many states are looked at (a sixteenth of 2,000), `VFSCALE_SEED` what
//! chance follows from; when threads run does not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use vfscale_crashtest::beside::{Plan, Planted, Tally, run};
use vfscale_crashtest::number;
use vfscale_sync::random::seed;

const PLAN: Plan = Plan { writers: 3, rounds: 24, remounts: true, cuts: 30 };
/// With and without remounts.
const LOADS_MIN: usize = 4;

#[test]
fn what_is_acknowledged_beside_others_is_there() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 2_000) / 16);
    let mut all = Tally::default();
    for load in 0..(states / PLAN.cuts).max(LOADS_MIN) {
        let plan = Plan { remounts: load % 2 == 0, ..PLAN };
        let tally = run(plan, Planted::Nothing, seed.wrapping_add(load as u64));
        all += tally.unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{all}");
    assert!(all.syncs > 10 && all.remounts > 0 && all.promised > 30, "{all}");
}

/// A sync that leaves data to whoever is writing them, and flushes that are swallowed, are found.
#[test]
fn planted_faults_are_found() {
    for planted in [Planted::SyncOfTheLogOnly, Planted::NoFlush] {
        let plan = Plan { remounts: false, ..PLAN };
        let found = (1..=10).find_map(|seed| run(plan, planted, seed).err());
        println!("{planted:?}: {found:?}");
        assert!(found.is_some(), "{planted:?} was not found");
    }
}
