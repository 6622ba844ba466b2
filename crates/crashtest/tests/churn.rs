//! Crashes while eight threads make orphans and use what others have freed.
//!
//! `VFSCALE_CRASH_STATES` says how many states are looked at in all the tests here (150), `VFSCALE_SEED`
//! what chance follows from. The program `kills` of this crate does the same for as long as one likes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use vfscale_crashtest::kills::{Kills, Plan, Tally};
use vfscale_crashtest::number;
use vfscale_sync::random::seed;

const PLAN: Plan = Plan { threads: 8, rounds: 8, kills: 15 };
/// Loads with every setting, and some on a volume that has been killed before.
const LOADS_MIN: usize = 10;

#[test]
fn orphans_and_busy_extents_of_eight_threads() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 150));
    let mut kills = Kills::new(PLAN, seed).unwrap();
    let mut all = Tally::default();
    for _ in 0..(states / PLAN.kills).max(LOADS_MIN) {
        all += kills.load().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    println!("{all}");
    assert!(all.removed > 0 && all.replayed > 0 && all.compared > 0, "seed {seed}: {all}");
}

#[test]
fn flushes_that_are_lost_are_found() {
    let mut kills = Kills::on_lying_device(PLAN, 1).unwrap();
    let result = (0..LOADS_MIN).try_for_each(|_| kills.load().map(drop));
    assert!(result.is_err());
    assert!(kills.broken().is_some(), "what was not recovered is kept: {result:?}");
}
