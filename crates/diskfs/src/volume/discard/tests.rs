use std::sync::Arc;
use std::thread;

use vfscale_block::{CowDevice, DISCARDED, Device, MemoryDevice, Operation};
use vfscale_testkit::{Fault as DeviceFault, FaultyDevice, Gate, RecordingDevice};

use super::*;
use crate::Settings;
use crate::tools::mkfs::{self, MkfsOptions};
use crate::volume::tx::TxReservation;

const MIB: u64 = 1 << 20;
const LIVE: u8 = 0x11;

/// Creates a volume of `mib` MiB, with direct writes of what the tests put into blocks.
fn made(mib: u64) -> MemoryDevice {
    let device = MemoryDevice::with_block_size(mib * MIB, 4096).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    device
}

fn open(device: &Arc<dyn Device>, discard: Option<bool>) -> Volume {
    Volume::open(device.clone(), Settings { discard, ..Settings::default() }).unwrap()
}

fn need(volume: &Volume, space: u64) -> TxReservation {
    TxReservation { log_blocks: volume.groups().log_blocks(2, 0), space, from_pool: false }
}

/// Claims a run, and fills it with `LIVE`.
fn claim(volume: &Volume, blocks: u32) -> BlockRange {
    let mut tx = volume.begin(need(volume, blocks.into())).unwrap();
    let run = tx.claim(0, blocks, blocks).unwrap();
    let bytes = vec![LIVE; run.len() as usize * BLOCK_BYTES];
    volume.device().write_at(byte_of_block(run.start), &bytes).unwrap();
    let sequence = tx.commit().unwrap();
    volume.force(sequence).unwrap();
    run
}

fn free(volume: &Volume, run: BlockRange) -> u64 {
    let mut tx = volume.begin(need(volume, 0)).unwrap();
    tx.free(run);
    tx.commit().unwrap()
}

/// Returns the byte that fills a block; `None` if it has different ones.
fn filled(volume: &Volume, block: u64) -> Option<u8> {
    let mut bytes = [0; BLOCK_BYTES];
    volume.device().read_at(byte_of_block(block), &mut bytes).unwrap();
    bytes.iter().all(|byte| *byte == bytes[0]).then_some(bytes[0])
}

fn are(volume: &Volume, run: BlockRange, byte: u8) -> bool {
    run.range().all(|block| filled(volume, block) == Some(byte))
}

/// Fails if the claim of a trim includes blocks whose free is not durable, or blocks in use.
#[test]
fn a_trim_discards_what_is_durably_free() {
    let device: Arc<dyn Device> = Arc::new(CowDevice::new(Arc::new(made(64))));
    let volume = open(&device, None);
    let runs: Vec<_> = (0..8).map(|_| claim(&volume, 50)).collect();
    let sequence = free(&volume, runs[3]);
    let before = volume.space().figures();
    let trimmed = volume.trim(TrimRange::ALL).unwrap();
    assert_eq!(volume.space().figures(), before);
    // All that is available, but for what the trees may need.
    assert!(trimmed / BLOCK_BYTES as u64 >= before.available, "{trimmed} {before:?}");
    assert!(runs.iter().all(|run| are(&volume, *run, LIVE)), "a crash could bring them back");
    volume.force(sequence).unwrap();
    let start = byte_of_block(runs[3].start);
    let range = TrimRange { start, len: runs[3].len() * BLOCK_BYTES as u64, minlen: 0 };
    let unused = TrimRange { minlen: MIB, ..range };
    assert_eq!(volume.trim(unused).unwrap(), 0, "the run is shorter");
    assert_eq!(volume.trim(range).unwrap(), range.len);
    for run in &runs {
        let byte = if *run == runs[3] { DISCARDED } else { LIVE };
        assert!(are(&volume, *run, byte), "{run:?}");
    }
    volume.close().unwrap();
    open(&device, None).close().unwrap();
}

#[test]
fn freed_blocks_are_discarded_in_the_background() {
    let device: Arc<dyn Device> = Arc::new(RecordingDevice::new(made(64)));
    let volume = open(&device, None);
    let runs: Vec<_> = (0..4).map(|_| claim(&volume, 100)).collect();
    let gone = [runs[0], runs[2]];
    gone.iter().for_each(|run| volume.force(free(&volume, *run)).unwrap());
    assert!(!volume.begin_discards(), "it was freed just now");
    assert!(!volume.metadata.shared().freed.as_ref().unwrap().regions.lock().due.is_empty());
    assert!(volume.begin_discards());
    while volume.discard_next().unwrap() {}
    for run in &runs {
        let byte = if gone.contains(run) { DISCARDED } else { LIVE };
        assert!(are(&volume, *run, byte), "{run:?}");
    }
    assert!(!volume.begin_discards());
    assert!(!volume.discard_next().unwrap());
    // The end of the volume discards the rest.
    free(&volume, runs[1]);
    volume.close().unwrap();
    assert!(are(&volume, runs[1], DISCARDED) && are(&volume, runs[3], LIVE));
}

#[test]
fn thin_devices_are_discarded_by_default() {
    for (discard, is_thin, expected) in [
        (None, true, true),
        (None, false, false),
        (Some(true), false, true),
        (Some(false), true, false),
    ] {
        let device: Arc<dyn Device> = match is_thin {
            true => Arc::new(made(64)),
            false => Arc::new(CowDevice::new(Arc::new(made(64)))),
        };
        let volume = open(&device, discard);
        // Long enough for any device.
        let run = claim(&volume, 200);
        volume.force(free(&volume, run)).unwrap();
        volume.close().unwrap();
        assert_eq!(!are(&volume, run, LIVE), expected, "{discard:?} {is_thin}");
    }
}

/// A claim during a discard finds other blocks, and a thread that lacks space waits.
///
/// Race: A discard of free blocks against claims of them.
#[test]
fn blocks_under_discard_are_not_allocated() {
    let device = Arc::new(FaultyDevice::new(made(64)));
    let gate = Gate::new();
    let held: Arc<dyn Device> = device.clone();
    let volume = open(&held, Some(false));
    let available = volume.groups().totals().available;
    device.arm(DeviceFault::on(Operation::Discard).hold(&gate));
    let (figures, claims) = thread::scope(|scope| {
        let trim = scope.spawn(|| volume.trim(TrimRange::ALL));
        gate.wait_for(1);
        let figures = volume.space().figures();
        let next = || volume.groups().claim(&volume.reader(), 0, 1, u32::MAX).unwrap();
        let claims: Vec<_> = std::iter::from_fn(next).collect();
        claims.iter().for_each(|run| volume.groups().unclaim(*run));
        gate.open();
        volume.await_discard();
        trim.join().unwrap().unwrap();
        (figures, claims)
    });
    let claimed: u64 = claims.iter().map(|run| run.len()).sum();
    assert!(figures.coming > 0, "{figures:?}");
    assert_eq!((claimed, figures.free), (available - figures.coming, claimed));
    assert!(!volume.space().is_coming());
    assert_eq!(volume.groups().totals().available, available);
    assert_eq!(volume.space().figures().free, available);
}

#[test]
fn a_failed_discard_loses_no_space() {
    let device = Arc::new(FaultyDevice::new(made(64)));
    let held: Arc<dyn Device> = device.clone();
    let volume = open(&held, None);
    let run = claim(&volume, 100);
    let available = volume.groups().totals().available;
    device.arm(DeviceFault::on(Operation::Discard));
    let error = volume.trim(TrimRange::ALL).unwrap_err();
    assert!(matches!(error, Fault::Device(vfscale_block::Error::Io { .. })), "{error}");
    volume.force(free(&volume, run)).unwrap();
    assert!(!volume.begin_discards() && volume.begin_discards());
    volume.discard_next().unwrap_err();
    let calls = device.calls(Operation::Discard);
    assert!(!volume.begin_discards() && !volume.discard_next().unwrap(), "it has failed once");
    assert_eq!(device.calls(Operation::Discard), calls);
    assert_eq!(volume.groups().totals().available, available + 100);
    assert_eq!(volume.space().figures().free, available + 100);
    volume.close().unwrap();
}

#[test]
fn a_volume_that_is_read_only_is_not_discarded() {
    let device: Arc<dyn Device> = Arc::new(made(64));
    let volume = open(&device, None);
    let run = claim(&volume, 100);
    volume.force(free(&volume, run)).unwrap();
    assert!(!volume.begin_discards());
    volume.seal().unwrap();
    assert!(matches!(volume.trim(TrimRange::ALL), Err(Fault::ReadOnly)));
    assert!(!volume.discard_next().unwrap());
    assert!(are(&volume, run, LIVE));
    volume.unseal();
    assert!(volume.discard_next().unwrap());
    assert!(are(&volume, run, 0));
    volume.close().unwrap();
}

/// A volume with little free space is discarded in small parts, and none is left out.
#[test]
fn a_full_volume_is_trimmed() {
    let device: Arc<dyn Device> = Arc::new(CowDevice::new(Arc::new(made(64))));
    let volume = open(&device, None);
    let mut runs = Vec::new();
    while volume.space().figures().available > 500 {
        runs.push(claim(&volume, 100));
    }
    let gone: Vec<_> = runs.iter().step_by(50).copied().collect();
    gone.iter().for_each(|run| volume.force(free(&volume, *run)).unwrap());
    volume.trim(TrimRange::ALL).unwrap();
    for run in &runs {
        let byte = if gone.contains(run) { DISCARDED } else { LIVE };
        assert!(are(&volume, *run, byte), "{run:?}");
    }
    volume.close().unwrap();
}

#[test]
fn regions_are_taken_side_by_side() {
    let freed = FreedRegions::default();
    let note = |start, blocks| freed.note(std::iter::once(BlockRange::new(start, blocks)));
    note(10, 1);
    note(63, 2);
    note(64 * 62, 64 * 4);
    note(64 * 200, 0);
    assert!(!freed.begin_pass());
    note(64 * 10, 1);
    assert!(freed.begin_pass());
    let taken: Vec<_> = std::iter::from_fn(|| freed.take()).collect();
    assert_eq!(taken, [0..64 * 2, 64 * 62..64 * 64, 64 * 64..64 * 66]);
    assert!(!freed.begin_pass() && freed.begin_pass());
    assert_eq!(freed.take(), Some(64 * 10..64 * 11));
    note(0, 64 * 64);
    assert!(!freed.begin_pass());
    assert_eq!(freed.take(), Some(0..64 * 64), "a whole entry");
    assert_eq!(freed.take(), None);
}
