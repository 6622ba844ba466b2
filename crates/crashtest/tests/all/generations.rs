//! Generations of one volume: each is cut off at any moment of its opening, its use or its closing,
//! and the next one opens what is left.
//!
//! `VFSCALE_CRASH_STATES` sets ten times the number of generations (2,000), `VFSCALE_SEED` the seed
//! of random choices.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale_block::MemoryDevice;
use vfscale_crashtest::number;
use vfscale_crashtest::subject::volume::Volumes;
use vfscale_crashtest::subject::{Disk, Subject};
use vfscale_crashtest::sweep::{disks, dynamic, recording, sample};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::CrashState;
use vfscale_testkit::calls::compound::Compound;

const DEVICE: u64 = 16 << 20;
/// Size of the smallest possible log.
const LOG_BLOCKS_SMALL: u64 = 256;
/// Number of generations of one volume.
const GENERATIONS: usize = 20;
/// A file that each use writes anew.
const COUNTER: &str = "/counter";

fn memory(bytes: u64) -> Disk {
    Arc::new(MemoryDevice::with_block_size(bytes, 512).unwrap())
}

/// Returns devices with the contents of a state, without its layers.
fn flat(state: &CrashState) -> Vec<Disk> {
    let copy = |disk: &Disk| {
        let mut bytes = vec![0; disk.size() as usize];
        disk.read_at(0, &mut bytes).unwrap();
        let copy = memory(disk.size());
        copy.write_at(0, &bytes).unwrap();
        copy
    };
    disks(state).iter().map(copy).collect()
}

/// The promises of all generations so far.
#[derive(Default)]
struct Promised {
    files: BTreeMap<String, Vec<u8>>,
    /// The value of [`COUNTER`] that was synced last, and the one that was written last.
    counter: (u64, u64),
}

/// Opens what the generation before has left, looks for everything promised, uses it or not, and
/// closes it. Returns a state that a crash may have left.
fn live(
    subject: &Volumes,
    left: &[Disk],
    promised: &mut Promised,
    random: &mut Random,
) -> Vec<Disk> {
    subject.check(left).unwrap();
    let recorded = recording(left);
    let opened = subject.open(&dynamic(&recorded)).unwrap();
    let task = opened.vfs().task();
    for (path, bytes) in &promised.files {
        assert_eq!(task.read(path).unwrap(), *bytes, "{path}");
    }
    let found =
        task.read(COUNTER).map_or(0, |bytes| bytes.try_into().map_or(0, u64::from_le_bytes));
    assert!((promised.counter.0..=promised.counter.1).contains(&found), "{found}");
    let mut made = Vec::new();
    // One generation of four is not used.
    for _ in 0..random.below(4) {
        let value = promised.counter.1 + 1;
        promised.counter.1 = value;
        let (path, bytes) =
            (format!("/file {value}"), vec![value as u8; random.below(9000) as usize]);
        task.write(&path, &bytes).unwrap();
        task.write(COUNTER, value.to_le_bytes()).unwrap();
        Compound::sync().run(&task).unwrap();
        recorded[0].mark(path.as_str());
        made.push((path, bytes, value));
    }
    drop(task);
    opened.close().unwrap();
    let state = sample(&recorded[0], (1, &[]), random).next();
    let Some(state) = state else { return left.to_vec() };
    for (path, bytes, value) in made.into_iter().take(state.marks()) {
        promised.files.insert(path, bytes);
        promised.counter.0 = value;
    }
    flat(&state)
}

fn generations(subject: &Volumes) {
    let (mut random, wanted) = (Random::new(seed()), number("VFSCALE_CRASH_STATES", 2_000) / 20);
    for _ in 0..wanted.div_ceil(GENERATIONS) {
        let sizes = [DEVICE].into_iter().chain(subject.others());
        let mut left: Vec<Disk> = sizes.map(memory).collect();
        subject.format(&left).unwrap();
        let mut promised = Promised::default();
        for _ in 0..GENERATIONS {
            left = live(subject, &left, &mut promised, &mut random);
        }
        assert!(promised.files.len() > 2);
    }
}

#[test]
fn synced_data_of_every_generation_survive() {
    generations(&Volumes { log_blocks: Some(LOG_BLOCKS_SMALL), ..Volumes::default() });
}

#[test]
fn synced_data_of_every_generation_survive_on_two_devices() {
    let log_device = Some(LOG_BLOCKS_SMALL * 4096);
    generations(&Volumes { log_device, log_blocks: Some(LOG_BLOCKS_SMALL), ..Volumes::default() });
}
