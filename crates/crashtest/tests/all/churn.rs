//! Crashes while eight threads make orphans, reuse freed space, and make all kinds of calls.
//!
//! `VFSCALE_CRASH_STATES` sets the number of checked states of all tests here (150), `VFSCALE_SEED`
//! the seed of random choices. The program `kills` of this crate does the same for any length of
//! time.

use vfscale_crashtest::load::kills::{Kills, KillsFault, KillsPlan, KillsTally};
use vfscale_crashtest::load::tangle::{CallFault, Class};
use vfscale_crashtest::number;
use vfscale_sync::random::seed;

const PLAN: KillsPlan = KillsPlan { threads: 4, rounds: 8, own: 2, crowd: 2, calls: 60, kills: 15 };
/// Enough loads for every setting, and some on a volume that has had power cuts before.
const LOADS_MIN: usize = 10;

#[test]
fn kills_of_eight_threads() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 150));
    let mut kills = Kills::new(PLAN, seed).unwrap();
    let mut all = KillsTally::default();
    for _ in 0..(states / PLAN.kills).max(LOADS_MIN) {
        all += kills.load().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    println!("{all}");
    assert!(all.removed > 0 && all.replayed > 0 && all.compared > 0, "seed {seed}: {all}");
    assert!(all.calls > 0 && all.grown > 0, "seed {seed}: {all}");
}

#[test]
fn flushes_that_are_lost_are_found() {
    let mut kills = Kills::with_fault(PLAN, 1, KillsFault::LostFlushes).unwrap();
    let result = (0..LOADS_MIN).try_for_each(|_| kills.load().map(drop));
    assert!(result.is_err());
    assert!(kills.broken().is_some(), "the broken state is available: {result:?}");
}

/// Maximum number of loads until an injected fault must be detected.
const LOADS_MAX: usize = 60;

/// Injects calls without effect, one kind of call after the other.
#[test]
fn planted_faults_are_found() {
    use Class::*;
    let forgotten = [
        Rename,
        RenameOver,
        RenameDir,
        Exchange,
        Link,
        Symlink,
        SetXattr,
        RemoveXattr,
        Mkdir,
        Rmdir,
        Allocate,
        Punch,
        Fsync,
        FsyncDir,
    ];
    for fault in forgotten.map(|class| KillsFault::Calls(CallFault::Forgets(class))) {
        let plan = KillsPlan { threads: 1, rounds: 2, own: 4, crowd: 0, ..PLAN };
        let mut kills = Kills::with_fault(plan, 1, fault).unwrap();
        let found = (0..LOADS_MAX).find_map(|load| kills.load().err().map(|why| (load, why)));
        let (load, why) = found.unwrap_or_else(|| panic!("{fault:?} was not found"));
        println!("{fault:?}: in load {load}: {why}");
        assert!(kills.broken().is_some(), "{fault:?} was found before a crash: {why}");
    }
}
