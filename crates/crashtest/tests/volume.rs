//! Crashes of volumes: every pair of calls, and random scripts.
//!
//! `VFSCALE_CRASH_STATES` says how many states are looked at in all (2,000), `VFSCALE_SEED` what chance
//! follows from.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use vfscale_crashtest::scripts::{self, Random, Script};
use vfscale_crashtest::subject::Subject;
use vfscale_crashtest::sweep::{Plan, Summary, Sweep};
use vfscale_crashtest::volume::Volumes;
use vfscale_crashtest::{number, seed};

const DEVICE: u64 = 32 << 20;
/// The states of one script where there are many scripts.
const STATES_OF_SCRIPT: usize = 8;

fn states() -> usize {
    number("VFSCALE_CRASH_STATES", 2_000)
}

/// Runs as many of the scripts as it takes for so many states: all of them, with more states each, if they
/// are not enough.
fn sweep(subject: &dyn Subject, mut scripts: Vec<Script>, states: usize, seed: u64) -> Summary {
    Random::new(seed).shuffle(&mut scripts);
    scripts.truncate((states / STATES_OF_SCRIPT).max(1));
    let states_of_script = (states / scripts.len()).max(1);
    let plan = Plan { device_bytes: DEVICE, states_of_script, seed };
    let mut sweep = Sweep::new(subject, plan).unwrap();
    for script in &scripts {
        sweep.run(script);
    }
    sweep.finish()
}

fn assert_clean(summary: &Summary) {
    println!("{summary}");
    assert!(summary.violations.is_empty(), "{summary}");
}

#[test]
fn pairs_of_calls() {
    let seed = seed();
    let summary = sweep(&Volumes::default(), scripts::pairs(), states() * 2 / 4, seed);
    assert_clean(&summary);
    assert!(summary.states * 4 > states(), "{summary}");
}

#[test]
fn triples_of_calls() {
    let seed = seed();
    let mut random = Random::new(seed);
    let count = (states() / 4 / STATES_OF_SCRIPT).max(1);
    let scripts = (0..count).map(|_| scripts::random(&mut random, 3)).collect();
    assert_clean(&sweep(&Volumes::default(), scripts, states() / 4, seed));
}

/// Long scripts, with a log that they fill several times, and changes that become durable by themselves.
#[test]
fn long_scripts() {
    let seed = seed();
    let mut random = Random::new(seed);
    let count = (states() / 4 / 100).max(1);
    let scripts: Vec<Script> = (0..count).map(|_| scripts::random(&mut random, 60)).collect();
    let plan = Plan { device_bytes: DEVICE, states_of_script: 100, seed };
    let sync_interval = Some(Duration::from_millis(20));
    let subject = Volumes { sync_interval, ..Volumes::default() };
    let mut sweep = Sweep::new(&subject, plan).unwrap();
    for script in &scripts {
        sweep.run(script);
    }
    assert_clean(&sweep.finish());
}
