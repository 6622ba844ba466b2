//! Crashes of volumes: every pair of calls, random scripts, and failing devices.
//!
//! `VFSCALE_CRASH_STATES` sets the total number of checked states (2,000), `VFSCALE_SEED` the seed
//! of random choices.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vfscale::Vfs;
use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_crashtest::faults::{Extent, Faults, WorstError};
use vfscale_crashtest::number;
use vfscale_crashtest::script::{self, Script};
use vfscale_crashtest::subject::volume::Volumes;
use vfscale_crashtest::subject::{Disk, Opened, Subject};
use vfscale_crashtest::sweep::{Summary, Sweep, SweepPlan};
use vfscale_diskfs::check;
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::calls::compound::Compound;
use vfscale_testkit::{CrashPlan, CrashState, Fault, FaultyDevice, RecordingDevice};

const DEVICE: u64 = 32 << 20;
/// Size of the smallest possible log.
const LOG_BLOCKS_SMALL: u64 = 256;
/// Size of a log with space for some delayed names.
const LOG_BLOCKS_OF_NAMES: u64 = 900;
/// Number of states of one script where there are many scripts.
const STATES_OF_SCRIPT: usize = 8;

fn states() -> usize {
    number("VFSCALE_CRASH_STATES", 2_000)
}

/// Runs enough of the scripts for a number of states: all scripts, with more states each, if they
/// are too few.
fn sweep(subject: &dyn Subject, mut scripts: Vec<Script>, states: usize, seed: u64) -> Summary {
    Random::new(seed).shuffle(&mut scripts);
    scripts.truncate((states / STATES_OF_SCRIPT).max(1));
    let states_of_script = (states / scripts.len()).max(1);
    let plan = SweepPlan { device_bytes: DEVICE, states_of_script, seed };
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
    let summary = sweep(&Volumes::default(), script::pairs(), states() * 2 / 4, seed);
    assert_clean(&summary);
    assert!(summary.states * 4 > states(), "{summary}");
}

#[test]
fn triples_of_calls() {
    let seed = seed();
    let mut random = Random::new(seed);
    let count = (states() / 4 / STATES_OF_SCRIPT).max(1);
    let scripts = (0..count).map(|_| script::random(&mut random, 3)).collect();
    assert_clean(&sweep(&Volumes::default(), scripts, states() / 4, seed));
}

/// Names that are noted in memory until the log is pushed, and written into their directories then:
/// every pair of calls, and long scripts in a log that has space for a few names.
#[test]
fn names_that_are_delayed() {
    let seed = seed();
    let subject =
        Volumes { dir_heat: Some(0), log_blocks: Some(LOG_BLOCKS_OF_NAMES), ..Volumes::default() };
    assert_clean(&sweep(&subject, script::pairs(), states() / 4, seed));
    let mut random = Random::new(seed);
    let count = (states() / 4 / 100).max(1);
    let scripts: Vec<Script> = (0..count).map(|_| script::random(&mut random, 60)).collect();
    let plan = SweepPlan { device_bytes: DEVICE, states_of_script: 100, seed };
    let mut sweep = Sweep::new(&subject, plan).unwrap();
    for script in &scripts {
        sweep.run(script);
    }
    assert_clean(&sweep.finish());
}

/// Scripts that fill a small log several times, with less memory than they need: the tail moves
/// because space is needed, items are concurrently written back in place, transactions wait for the
/// log, and pages are evicted.
#[test]
fn scripts_around_a_small_log() {
    let seed = seed();
    let mut random = Random::new(seed);
    let count = (states() / 500).max(1);
    let scripts: Vec<Script> = (0..count).map(|_| script::random(&mut random, 4_000)).collect();
    let plan = SweepPlan { device_bytes: DEVICE, states_of_script: 30, seed };
    let subject = Volumes {
        sync_interval: Some(Duration::from_millis(4)),
        log_blocks: Some(LOG_BLOCKS_SMALL),
        cache_bytes: Some(256 << 10),
        ..Volumes::default()
    };
    let mut sweep = Sweep::new(&subject, plan).unwrap();
    for script in &scripts {
        sweep.run(script);
    }
    assert_clean(&sweep.finish());
    let cycle = subject.cycle_max.load(Ordering::Relaxed);
    assert!(cycle > 1, "the log came to round {cycle} only");
}

/// Long scripts, and changes that become durable by the background write-back: of every kind, and
/// of all calls of the differential test.
#[test]
fn long_scripts() {
    let seed = seed();
    let mut random = Random::new(seed);
    let count = (states() / 4 / 100).max(1);
    let mut scripts: Vec<Script> = (0..count).map(|_| script::random(&mut random, 60)).collect();
    scripts.extend((0..count).map(|_| script::any(&mut random, 60)));
    let plan = SweepPlan { device_bytes: DEVICE, states_of_script: 100, seed };
    let sync_interval = Some(Duration::from_millis(20));
    let subject = Volumes { sync_interval, ..Volumes::default() };
    let mut sweep = Sweep::new(&subject, plan).unwrap();
    for script in &scripts {
        sweep.run(script);
    }
    assert_clean(&sweep.finish());
}

/// An interrupted removal is no corruption: a check accepts it, because the next mount completes
/// it. The log is small and constantly pushed, so the transactions of a removal are in several
/// checkpoints.
#[test]
fn removals_that_are_cut_off() {
    let sync_interval = Some(Duration::from_millis(1));
    let subject = Volumes { sync_interval, log_blocks: Some(256), ..Volumes::default() };
    assert_clean(&sweep(&subject, script::removals(), states().min(4_000) / 4, seed()));
}

/// A sector of an inode block may become unreadable while it is written back in place. If it has
/// inodes that are not in the log, the volume does not open. A repair loses only those, and leaves
/// no findings.
#[test]
fn inodes_that_cannot_be_read() {
    let base: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_size(DEVICE, 512).unwrap());
    let subject = Volumes::default();
    subject.format(slice::from_ref(&base)).unwrap();
    let run = |device: Disk, directory: &str| {
        let opened = subject.open(&[device]).unwrap();
        let task = opened.vfs().task();
        Compound::mkdir(directory).run(&task).unwrap();
        for n in 0..20 {
            Compound::create(format!("{directory}/{n}")).run(&task).unwrap();
            Compound::chmod("/", 0o700 + n).run(&task).unwrap();
        }
        Compound::sync().run(&task).unwrap();
        drop(task);
        opened.close().unwrap();
    };
    run(base.clone(), "/first");
    let recording = Arc::new(RecordingDevice::new(base));
    run(recording.clone(), "/second");
    // The first chunk of inodes.
    let plan = CrashPlan::default().lost_in(std::iter::once(8 * 4096..16 * 4096));
    let (mut states, mut refused) = (0, 0);
    for state in recording.crash_states(plan).filter(CrashState::has_lost) {
        states += 1;
        match subject.open(&[state.device()]) {
            Ok(opened) => opened.close().unwrap(),
            Err(_) => refused += 1,
        }
        let plain = check::Options { repair: true, ..check::Options::default() };
        let options = check::Options { give_up_unreadable: true, ..plain };
        let report = check::check(state.device(), &options, &mut ()).unwrap();
        assert_eq!(report.left, 0, "{state}: {:#?}", report.findings);
        let opened = subject.open(&[state.device()]).unwrap_or_else(|why| panic!("{state}: {why}"));
        let task = opened.vfs().task();
        // Its inode is in the log.
        assert!(task.read_dir("/").unwrap().count() <= 3, "{state}");
        drop(task);
        opened.close().unwrap();
    }
    assert!(states > 8 && refused > 0 && refused < states, "{refused} of {states}");
}

/// Volumes on devices, one of which (given by number) reports flushes that it did not make.
struct OnLyingDevices(Volumes, usize);

struct Lying {
    opened: Box<dyn Opened>,
}

impl Opened for Lying {
    fn vfs(&self) -> &Vfs {
        self.opened.vfs()
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        self.opened.close()
    }
}

impl Subject for OnLyingDevices {
    fn others(&self) -> Vec<u64> {
        self.0.others()
    }

    fn format(&self, disks: &[Disk]) -> Result<(), String> {
        self.0.format(disks)
    }

    fn open(&self, disks: &[Disk]) -> Result<Box<dyn Opened>, String> {
        let lying = FaultyDevice::new(disks[self.1].clone());
        lying.arm(Fault::on(Operation::Flush).lie());
        let mut disks = disks.to_vec();
        disks[self.1] = Arc::new(lying);
        Ok(Box::new(Lying { opened: self.0.open(&disks)? }))
    }

    fn check(&self, disks: &[Disk]) -> Result<(), String> {
        self.0.check(disks)
    }
}

/// The sweep detects the effect of a device that ignores flushes.
#[test]
fn lost_flushes_are_found() {
    let summary = sweep(&OnLyingDevices(Volumes::default(), 0), script::pairs(), 400, 1);
    assert!(!summary.violations.is_empty(), "{summary}");
}

/// Returns volumes with a log so small that it wraps, on a separate device.
fn apart() -> Volumes {
    let log_device = Some(LOG_BLOCKS_SMALL * 4096);
    Volumes { log_device, log_blocks: Some(LOG_BLOCKS_SMALL), ..Volumes::default() }
}

/// With the log on a separate device, any part of the unflushed writes of either device may be
/// present.
#[test]
fn logs_on_devices_of_their_own() {
    let (seed, states) = (seed(), states() / 8);
    assert_clean(&sweep(&apart(), script::pairs(), states / 2, seed));
    let mut random = Random::new(seed);
    let count = (states / 4 / 60).max(1);
    let long: Vec<Script> = (0..count).map(|_| script::random(&mut random, 400)).collect();
    let subject = Volumes {
        sync_interval: Some(Duration::from_millis(4)),
        cache_bytes: Some(256 << 10),
        ..apart()
    };
    assert_clean(&sweep(&subject, long, states / 2, seed));
}

/// Ignored flushes are detected on either device.
#[test]
fn lost_flushes_of_one_of_two_devices_are_found() {
    for disk in 0..2 {
        let mut random = Random::new(1);
        let scripts = (0..20).map(|_| script::random(&mut random, 20)).collect();
        let summary = sweep(&OnLyingDevices(apart(), disk), scripts, 160, 1);
        let first = summary.violations.first();
        assert!(first.is_some(), "device {disk}: {summary}");
        println!(
            "device {disk}: {} of {}: {}",
            summary.violations.len(),
            summary.states,
            first.unwrap()
        );
    }
}

/// The worst possible error of the device, followed by a power cut.
#[test]
fn power_cuts_after_failures() {
    const STATES: usize = 4;
    let seed = seed();
    let mut random = Random::new(seed);
    let subject = Volumes::default();
    let faults = Faults::new(&subject, DEVICE).unwrap();
    let script = script::random(&mut random, 12);
    let calls = |operation| faults.calls(&script, operation).unwrap();
    let (flushes, writes) = (calls(Operation::Flush), calls(Operation::Write));
    let mut all = Vec::new();
    for extent in [Extent::One, Extent::Rest] {
        all.extend((1..=flushes).map(|n| WorstError::Flush(n, extent)));
        all.extend((1..=writes).map(|n| WorstError::Write(n, extent)));
    }
    for range in faults.may_be_garbage() {
        all.extend((1..=writes / 2).map(|n| WorstError::Garbage(n, range.clone())));
    }
    random.shuffle(&mut all);
    let (mut looked, mut violations) = (0, Vec::new());
    for worst in all {
        match faults.run_and_cut(&script, &worst, STATES, &mut random) {
            Ok(states) => looked += states,
            Err(violation) => violations.push(violation.to_string()),
        }
        if looked + violations.len() > states() / 16 {
            break;
        }
    }
    println!("{looked} states after failures");
    let (count, texts) = (violations.len(), violations.join("\n\n"));
    assert!(violations.is_empty() && looked > 10, "{count} violations:\n{texts}");
}

/// Fails the n-th call of the device, alone and with all later ones, for as many n as wanted.
#[test]
fn failing_devices() {
    let seed = seed();
    let mut random = Random::new(seed);
    let wanted = (states() / 20).max(10);
    let subject = Volumes::default();
    let faults = Faults::new(&subject, DEVICE).unwrap();
    let script = script::random(&mut random, 12);
    let mut violations = Vec::new();
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        let calls = faults.calls(&script, operation).unwrap();
        let mut turns: Vec<u64> = (1..=calls).collect();
        random.shuffle(&mut turns);
        turns.truncate(wanted);
        println!("{operation}: {} of {calls} calls fail in turn", turns.len());
        for n in turns {
            for extent in [Extent::One, Extent::Rest] {
                violations.extend(faults.run(&script, (operation, n, extent)).err());
            }
        }
    }
    let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(texts.is_empty(), "{} violations:\n{}", texts.len(), texts.join("\n\n"));
}
