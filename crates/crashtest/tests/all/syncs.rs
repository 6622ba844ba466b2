//! Power cuts while threads write, sync and remount a volume on a slow device.
//!
//! `VFSCALE_CRASH_STATES` sets the number of checked states (a sixteenth of 2,000), `VFSCALE_SEED`
//! the seed of random choices. The timing of threads is not determined by it.

use vfscale_crashtest::load::syncs::{SyncFault, SyncsPlan, SyncsTally, run};
use vfscale_crashtest::number;
use vfscale_sync::random::seed;

const PLAN: SyncsPlan = SyncsPlan { writers: 3, rounds: 24, remounts: true, cuts: 30 };
/// Enough loads for both settings: with and without remounts.
const LOADS_MIN: usize = 4;

#[test]
fn concurrent_syncs_keep_acknowledged_files() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 2_000) / 16);
    let mut all = SyncsTally::default();
    for load in 0..(states / PLAN.cuts).max(LOADS_MIN) {
        let plan = SyncsPlan { remounts: load % 2 == 0, ..PLAN };
        let tally = run(plan, SyncFault::Nothing, seed.wrapping_add(load as u64));
        all += tally.unwrap_or_else(|why| panic!("{why}"));
    }
    println!("{all}");
    assert!(all.syncs > 10 && all.remounts > 0 && all.promised > 30, "{all}");
}

/// A sync that does not wait for data under write-back, and ignored flushes, are detected.
#[test]
fn planted_faults_are_found() {
    for planted in [SyncFault::SyncOfTheLogOnly, SyncFault::NoFlush] {
        let plan = SyncsPlan { remounts: false, ..PLAN };
        let found = (1..=10).find_map(|seed| run(plan, planted, seed).err());
        println!("{planted:?}: {found:?}");
        assert!(found.is_some(), "{planted:?} was not detected");
    }
}
