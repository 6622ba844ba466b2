mod headers;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use vfscale_block::{Device, MemoryDevice, Operation, OsError};
use vfscale_journal::{Durable, Hooks, Lsn, Reservation};
use vfscale_testkit::{FaultyDevice, Gate};

use super::hooks::VolumeHooks;
use super::tx::TxReservation;
use super::{Places, Volume, copies};
use crate::Settings;
use crate::base::fault::Fault;
use crate::format::{BLOCK_BYTES, Block, Identity, byte_of_block};
use crate::tools::mkfs::{self, MkfsOptions};
use crate::{Geometry, LogPlace, Superblock, Timestamp, Uuid};

const ID: Uuid = Uuid::from_bytes(*b"volume of opens.");
const BLOCKS: u64 = 4096;

fn device() -> MemoryDevice {
    MemoryDevice::new(BLOCKS * BLOCK_BYTES as u64).unwrap()
}

fn made(device: impl Device + 'static) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(device);
    mkfs::format(&device, &MkfsOptions { uuid: Some(ID), ..MkfsOptions::default() }).unwrap();
    device
}

fn read_only() -> Settings {
    Settings { read_only: true, ..Settings::default() }
}

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(device.clone(), Settings::default()).unwrap()
}

/// Logs an image of block 100 that begins with `first`.
fn log_block(volume: &Volume, first: u8) {
    let mut block = Block::zeroed();
    let magic = crate::format::Magic(*b"test");
    block.seal(&Identity { magic, address: 100, owner: 0, volume: ID }, 0);
    block.body_mut()[0] = first;
    let journal = volume.journal().unwrap();
    let mut log =
        journal.begin(Reservation::new(Reservation::item_bytes(BLOCK_BYTES as u64))).unwrap();
    let buffer = volume.cache().fresh(100, block.into());
    log.add(buffer.clone());
    volume.cache().publish(&buffer);
    volume.force(log.commit().unwrap().sequence).unwrap();
}

fn first_of_100(device: &Arc<dyn Device>) -> u8 {
    let mut block = Block::zeroed();
    device.read_at(byte_of_block(100), block.bytes_mut()).unwrap();
    block.body()[0]
}

#[test]
fn opening_replays_and_closing_leaves_nothing_to_replay() {
    let device = made(device());
    let volume = open(&device);
    assert!(volume.recovered().checkpoints == 0);
    assert_eq!(volume.superblock().mounted, Timestamp::NEVER);
    log_block(&volume, 5);
    assert!(volume.superblock().mounted > Timestamp::NEVER);
    drop(volume);
    assert_eq!(first_of_100(&device), 0, "nothing was written home");
    let volume = open(&device);
    assert_eq!(volume.recovered().items, 1);
    assert_eq!(first_of_100(&device), 5);
    log_block(&volume, 6);
    volume.close().unwrap();
    volume.close().unwrap();
    assert_eq!(first_of_100(&device), 6);
    let volume = open(&device);
    assert!(volume.recovered().was_clean);
    assert_eq!(volume.recovered().items, 0);
}

#[test]
fn reading_only_writes_nothing_and_replays_the_log_in_memory() {
    let faulty = Arc::new(FaultyDevice::new(device()));
    let device = made(faulty.clone());
    let volume = open(&device);
    log_block(&volume, 5);
    drop(volume);
    let writes = faulty.calls(Operation::Write);
    let volume = Volume::open(device.clone(), read_only()).unwrap();
    assert_eq!(volume.recovered().items, 1);
    assert_eq!((first_of_100(&volume.device), first_of_100(&device)), (5, 0));
    volume.close().unwrap();
    drop(volume);
    let without = Settings { no_recovery: true, ..Settings::default() };
    let volume = Volume::open(device.clone(), without).unwrap();
    assert!(volume.is_read_only() && volume.recovered().items == 0);
    assert_eq!(first_of_100(&volume.device), 0);
    assert_eq!(faulty.calls(Operation::Write), writes);
    open(&device).close().unwrap();
    let writes = faulty.calls(Operation::Write);
    let volume = Volume::open(device.clone(), read_only()).unwrap();
    assert!(volume.is_read_only() && volume.journal().is_none());
    assert!(matches!(volume.update_superblock(|_| {}), Err(Fault::ReadOnly)));
    volume.sync().unwrap();
    volume.close().unwrap();
    assert_eq!(faulty.calls(Operation::Write), writes);
}

#[test]
fn the_log_may_be_on_a_device_of_its_own() {
    let device: Arc<dyn Device> = Arc::new(device());
    let log: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20).unwrap());
    let own = MkfsOptions { log_device: Some(log.clone()), ..MkfsOptions::default() };
    mkfs::format(&device, &MkfsOptions { uuid: Some(ID), ..own }).unwrap();
    let missing = Volume::open(device.clone(), Settings::default());
    assert!(matches!(missing, Err(Fault::LogDevice(_))));
    let options = Settings { log_device: Some(log), ..Settings::default() };
    let volume = Volume::open(device.clone(), options.clone()).unwrap();
    log_block(&volume, 7);
    drop(volume);
    Volume::open(device.clone(), options.clone()).unwrap().close().unwrap();
    assert_eq!(first_of_100(&device), 7);
    let inside = made(MemoryDevice::new(BLOCKS * BLOCK_BYTES as u64).unwrap());
    assert!(matches!(Volume::open(inside, options), Err(Fault::LogDevice(_))));
}

#[test]
fn an_error_of_the_log_fails_everything_that_follows() {
    let faulty = Arc::new(FaultyDevice::new(device()));
    let device = made(faulty.clone());
    let volume = open(&device);
    assert!(volume.failure().is_none());
    let journal = volume.journal().unwrap();
    let bytes = Reservation::item_bytes(BLOCK_BYTES as u64);
    // The first transaction begins the epoch of the log.
    drop(journal.begin(Reservation::new(bytes)).unwrap());
    faulty.arm(vfscale_testkit::Fault::on(Operation::Flush));
    let mut log = journal.begin(Reservation::new(bytes)).unwrap();
    log.add(volume.cache().fresh(100, Block::zeroed().into()));
    let sequence = log.commit().unwrap().sequence;
    assert!(matches!(volume.force(sequence), Err(Fault::Journal(_))));
    assert!(volume.failure().is_some());
    faulty.disarm();
    assert!(journal.begin(Reservation::new(bytes)).is_err());
    assert!(volume.close().is_err());
}

#[test]
fn places_of_metadata() {
    let geometry = Geometry::for_blocks(BLOCKS).unwrap();
    let log = LogPlace::inside(geometry, Some(300));
    let superblock = Superblock::new(ID, geometry).with_log(log).unwrap();
    let LogPlace::Inside { start: log, blocks } = superblock.log() else { panic!() };
    let (places, group) = (Places::new(&superblock), superblock.geometry().group_blocks());
    let files = |at| places.is_for_files(at);
    let trees = |at| places.is_for_trees(at);
    let metadata = |at| places.is_for_metadata(at);
    for start in [0, group] {
        let found: Vec<_> =
            (start..start + 9).map(|at| (files(at), trees(at), metadata(at))).collect();
        let (none, header) = ((false, false, false), (false, false, true));
        let (root, any) = ((false, true, true), (true, true, true));
        assert_eq!(found, [none, header, root, root, none, none, none, none, any]);
    }
    for (at, is_possible) in [
        (log - 1, false),
        (log, false),
        (log + blocks - 1, false),
        (log + blocks, true),
        (BLOCKS - 1, true),
        (BLOCKS, false),
        (u64::MAX, false),
    ] {
        assert_eq!((files(at), trees(at), metadata(at)), (is_possible, is_possible, is_possible));
    }
}

#[test]
fn runs_that_files_can_have_lie_in_one_group_and_not_over_the_log() {
    let geometry = Geometry::for_blocks(BLOCKS).unwrap();
    let group = geometry.group_blocks();
    let (log, blocks) = (group + 100, 300);
    let superblock = Superblock::new(ID, geometry);
    let superblock = superblock.with_log(LogPlace::Inside { start: log, blocks }).unwrap();
    let places = Places::new(&superblock);
    let is_run = |start, blocks| places.is_run_for_files(start, blocks);
    // The answer for a run equals the answers for its blocks, within one group.
    for start in group - 20..group + 120 {
        for blocks in [1, 2, 10, 11, 12, 13, 28, 29, 90, 93, 399, 400, 401, 500] {
            let mut all = start..start + blocks;
            let is_one_group = start / group == (start + blocks - 1) / group;
            let expected = is_one_group && all.all(|block| places.is_for_files(block));
            assert_eq!(is_run(start, blocks), expected, "{start} {blocks}");
        }
    }
    let (first, whole) = (3 * group + 8, group - 8);
    assert!(is_run(first, whole) && !is_run(first - 1, whole) && !is_run(first, whole + 1));
    assert!(!is_run(group + 90, 320), "the log lies between both ends");
    for (start, blocks) in [(8, 0), (0, 1), (u64::MAX, 1), (u64::MAX, 2), (8, u64::MAX)] {
        assert!(!is_run(start, blocks), "{start} {blocks}");
    }
}

fn hooks(faulty: &Arc<FaultyDevice<MemoryDevice>>) -> VolumeHooks {
    VolumeHooks::new(faulty.clone(), true)
}

#[test]
fn data_is_flushed_when_some_was_written() {
    let faulty = Arc::new(FaultyDevice::new(device()));
    let hooks = hooks(&faulty);
    let flushes = || faulty.calls(Operation::Flush);
    hooks.before_commit_record(1).unwrap();
    assert_eq!(flushes(), 0);
    hooks.mark_data_written();
    hooks.mark_data_written();
    hooks.before_commit_record(2).unwrap();
    hooks.before_commit_record(3).unwrap();
    assert_eq!(flushes(), 1);
    hooks.mark_data_written();
    hooks.flush_data(hooks.data_written()).unwrap();
    assert_eq!(flushes(), 2);
}

/// The flush of a checkpoint covers the data that was written before it began, if the log is on the
/// same device, and only if it succeeds.
#[test]
fn a_flush_of_the_log_covers_data() {
    for (log_is_here, expected) in [(true, [0, 1, 2]), (false, [1, 1, 2])] {
        let faulty = Arc::new(FaultyDevice::new(device()));
        let hooks = VolumeHooks::new(faulty.clone(), log_is_here);
        let flushes = |count: u64| {
            hooks.flush_data(count).unwrap();
            faulty.calls(Operation::Flush)
        };
        let before = hooks.mark_data_written();
        hooks.flush_begins();
        let after = hooks.mark_data_written();
        let lsn = Lsn::new(1, 1);
        hooks.on_durable(Durable { sequence: 1, lsn, commit_lsn: lsn });
        let seen = [flushes(before), flushes(after)];
        let last = hooks.mark_data_written();
        hooks.flush_begins();
        assert_eq!([seen[0], seen[1], flushes(last)], expected, "the last flush has failed");
    }
}

#[test]
fn a_flush_that_fails_fails_everybody_who_waits_for_it() {
    let faulty = Arc::new(FaultyDevice::new(device()));
    let hooks = hooks(&faulty);
    hooks.mark_data_written();
    let flush = vfscale_testkit::Fault::on(Operation::Flush);
    faulty.arm(flush.clone().delay(Duration::from_millis(10)));
    faulty.arm(flush.fail(OsError::IO));
    let failed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let result = hooks.flush_data(hooks.data_written());
                failed.fetch_add(usize::from(result.is_err()), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(failed.load(Ordering::Relaxed), 3);
    faulty.disarm();
    hooks.flush_data(hooks.data_written()).unwrap();
    hooks.flush_data(hooks.data_written()).unwrap();
    assert_eq!(faulty.calls(Operation::Flush), 4);
}

/// A thread that has written data after a flush began flushes at once. The first flush ends later,
/// and covers only what was written before it.
#[test]
fn a_flush_does_not_wait_for_another() {
    let faulty = Arc::new(FaultyDevice::new(device()));
    let hooks = hooks(&faulty);
    let gate = Gate::new();
    faulty.arm(vfscale_testkit::Fault::on(Operation::Flush).nth(1).hold(&gate));
    let flushes = |count: u64| {
        hooks.flush_data(count).unwrap();
        faulty.calls(Operation::Flush)
    };
    let first = hooks.mark_data_written();
    thread::scope(|scope| {
        let held = scope.spawn(|| hooks.flush_data(first));
        gate.wait_for(1);
        let second = hooks.mark_data_written();
        assert_eq!(flushes(second), 2);
        let third = hooks.mark_data_written();
        gate.open();
        held.join().unwrap().unwrap();
        assert_eq!([flushes(second), flushes(third)], [2, 3]);
    });
}

/// Creates a clean volume of a gigabyte, with a log of 16 MiB.
fn large() -> Arc<FaultyDevice<MemoryDevice>> {
    let device = MemoryDevice::with_block_size(1 << 30, 4096).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    Arc::new(FaultyDevice::new(device))
}

/// Returns the number of reads, writes and flushes.
fn calls(device: &FaultyDevice<MemoryDevice>) -> [u64; 3] {
    [Operation::Read, Operation::Write, Operation::Flush].map(|operation| device.calls(operation))
}

/// Fails if an opening reads the log, or if anything is written before the first change.
#[test]
fn a_closed_volume_is_opened_without_a_write() {
    let device = large();
    let held: Arc<dyn Device> = device.clone();
    for _ in 0..3 {
        let before = calls(&device);
        let volume = Volume::open(held.clone(), Settings::default()).unwrap();
        let after = calls(&device);
        let reads = after[0] - before[0];
        let groups = u64::from(volume.geometry().groups());
        // A new volume has no sums: a header is checked against the log, and loaded.
        assert!(reads <= 3 + 2 + 2 * groups, "{reads} reads for {groups} groups");
        assert_eq!(after[1..], before[1..], "writes and flushes");
        assert!(volume.recovered().was_clean && !volume.journal().unwrap().has_epoch());
        volume.sync().unwrap();
        volume.seal().unwrap();
        volume.unseal();
        let generation = volume.superblock().generation();
        volume.close().unwrap();
        volume.close().unwrap();
        assert_eq!(calls(&device)[1..], before[1..]);
        assert_eq!(copies::read(&*held).unwrap().superblock.generation(), generation);
    }
}

/// The first transaction of several threads begins the epoch once, before anything else is logged.
///
/// Race: The first transactions of a volume, which begin the epoch of its log.
#[test]
fn the_first_change_opens_the_log() {
    let device = large();
    let held: Arc<dyn Device> = device.clone();
    for round in 0..2 {
        let volume = Volume::open(held.clone(), Settings::default()).unwrap();
        let (epoch, before) = (volume.recovered().epoch, volume.superblock());
        assert!(before.log_seen.is_closed && before.log_seen.epoch + 1 == epoch, "{round}");
        let [_, _, flushes] = calls(&device);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let log_blocks = volume.groups().log_blocks(2, 0);
                    let need = TxReservation { log_blocks, space: 1, from_pool: false };
                    drop(volume.begin(need).unwrap());
                });
            }
        });
        assert!(volume.journal().unwrap().has_epoch());
        let after = copies::read(&*held).unwrap().superblock;
        assert_eq!((after.log_seen.epoch, after.log_seen.is_closed), (epoch, false));
        assert!(after.mounted > before.mounted && after.generation() == before.generation() + 1);
        // Two of the log, and two of the superblock.
        assert_eq!(calls(&device)[2] - flushes, 4);
        volume.close().unwrap();
    }
}

#[test]
fn a_volume_whose_log_can_not_be_opened_accepts_no_change() {
    let device = large();
    let held: Arc<dyn Device> = device.clone();
    let volume = Volume::open(held.clone(), Settings::default()).unwrap();
    let need = TxReservation { log_blocks: 40, space: 1, from_pool: false };
    device.arm(vfscale_testkit::Fault::on(Operation::Write));
    volume.begin(need).unwrap_err();
    device.disarm();
    volume.begin(need).unwrap_err();
    assert!(volume.is_shut_down());
    volume.close().unwrap_err();
    drop(volume);
    let volume = Volume::open(held, Settings::default()).unwrap();
    drop(volume.begin(need).unwrap());
    volume.close().unwrap();
}
