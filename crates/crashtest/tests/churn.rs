//! Crashes while eight threads make orphans and use what others have freed.
//!
//! `VFSCALE_CRASH_STATES` says how many states are looked at in all the tests here (150), `VFSCALE_SEED`
//! what chance follows from.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use vfscale::Scaling;
use vfscale_block::{Device, MemoryDevice, RecordingDevice};
use vfscale_crashtest::churn::{self, Promises};
use vfscale_crashtest::number;
use vfscale_crashtest::subject::Subject;
use vfscale_crashtest::sweep::sample;
use vfscale_crashtest::volume::Volumes;
use vfscale_sync::random::{Random, seed};

const DEVICE: u64 = 32 << 20;
const THREADS: u64 = 8;
const ROUNDS: u64 = 8;

/// Lets threads work, and looks at so many states that a crash might have left. Gives how many orphans were
/// found in them.
fn crash(scaling: Scaling, states: usize, seed: u64) -> u64 {
    let subject = Volumes::default();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_size(DEVICE, 512).unwrap());
    subject.format(&device).unwrap();
    let recording = Arc::new(RecordingDevice::new(device));
    let open = |device: Arc<dyn Device>| {
        let volume = vfscale::volume_on(device).scaling(scaling);
        volume.sync_interval(Some(Duration::from_millis(5))).open().unwrap()
    };
    let volume = open(recording.clone());
    let promises = Promises::new(recording.clone());
    churn::run(volume.vfs(), &promises, (THREADS, ROUNDS), seed).unwrap();
    volume.close().unwrap();
    let mut orphans = 0;
    for state in sample(&recording, states, &mut Random::new(seed)) {
        let device: Arc<dyn Device> = state.device();
        let volume = open(device.clone());
        let found = volume.driver().opened().orphans;
        assert_eq!(found.failed, 0, "seed {seed}, state {}: {found:?}", state.id());
        assert!(volume.driver().volume().orphans().is_empty());
        orphans += found.removed + found.cut;
        let judged = promises.judge(&volume.task(), state.marks());
        judged.unwrap_or_else(|why| panic!("seed {seed}, state {}: {why}", state.id()));
        volume.close().unwrap();
        let checked = subject.check(&device);
        checked.unwrap_or_else(|why| panic!("seed {seed}, state {}: {why}", state.id()));
    }
    orphans
}

#[test]
fn orphans_and_busy_extents_of_eight_threads() {
    let (seed, states) = (seed(), number("VFSCALE_CRASH_STATES", 150));
    let before = |name: &str| Scaling::with_slots(8).and_before(name).unwrap();
    let settings = [Scaling::with_slots(8), before("busy-extents"), before("orphan")];
    let mut orphans = 0;
    for (scaling, seed) in settings.into_iter().cycle().zip(seed..).take((states / 50).max(3)) {
        orphans += crash(scaling, 50, seed);
    }
    println!("{orphans} orphans were found");
    assert!(orphans > 0, "seed {seed}");
}
