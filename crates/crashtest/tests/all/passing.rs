//! Reads that fail while a volume is opened, and do not fail afterwards.
//!
//! `VFSCALE_CRASH_STATES` sets the number of openings (2,000), `VFSCALE_SEED` the seed of random
//! choices.

use vfscale_crashtest::passing::{self, Passed};
use vfscale_crashtest::subject::volume::Volumes;
use vfscale_crashtest::sweep::SweepPlan;
use vfscale_crashtest::{number, script};
use vfscale_sync::random::{Random, seed};

const DEVICE: u64 = 32 << 20;
/// Size of the smallest possible log.
const LOG_BLOCKS_SMALL: u64 = 256;
/// Number of states of one script.
const STATES: usize = 10;
/// Number of errors that each state is opened with.
const FLAWS: usize = 50;

fn run(subject: &Volumes) {
    let (seed, wanted) = (seed(), number("VFSCALE_CRASH_STATES", 2_000) / 2);
    let mut random = Random::new(seed);
    let mut all = Passed::default();
    for number in 0.. {
        let script = script::random(&mut random, 60);
        let plan =
            SweepPlan { device_bytes: DEVICE, states_of_script: STATES, seed: seed ^ number };
        let passed = passing::run(subject, &script, plan, FLAWS).unwrap();
        all.openings += passed.openings;
        all.refused += passed.refused;
        all.violations.extend(passed.violations);
        if all.openings >= wanted {
            break;
        }
    }
    let Passed { openings, refused, violations } = &all;
    println!(
        "{openings} openings with a passing error, {refused} refused, {} violations",
        violations.len()
    );
    let texts: Vec<String> = violations.iter().take(20).map(|v| v.why.clone()).collect();
    assert!(violations.is_empty(), "{}", texts.join("\n"));
    assert!(*refused > 0 && refused < openings);
}

#[test]
fn data_unreadable_at_an_opening_survive_it() {
    run(&Volumes { log_blocks: Some(LOG_BLOCKS_SMALL), ..Volumes::default() });
}

#[test]
fn data_unreadable_on_two_devices_survive_an_opening() {
    let log_device = Some(LOG_BLOCKS_SMALL * 4096);
    run(&Volumes { log_device, log_blocks: Some(LOG_BLOCKS_SMALL), ..Volumes::default() });
}
