//! Superblocks that can't be read, or are wrong.

use std::sync::Arc;

use vfscale_block::{CowDevice, Device, MemoryDevice, Operation, OsError};
use vfscale_testkit::{Fault, FaultyDevice};

use zerocopy::FromBytes;

use super::*;
use crate::Pool;

const UNIT: u64 = PLACE_BYTES as u64;

/// Returns a device with a closed pool whose last commit has made the branch `precious`, and the
/// places of its superblock and of that before, each with its copy.
fn device() -> (Arc<dyn Device>, [[u64; 2]; 2]) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(300 * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [7; 16]).unwrap();
    pool.create_branch("main", 9 * UNIT).unwrap();
    pool.create_branch("precious", 9 * UNIT).unwrap();
    let state = pool.shared.state.lock();
    let [even, odd] = pool.shared.disk.layout().superblocks().map(|place| [place, place + 4]);
    let places = if state.generation.is_multiple_of(2) { [even, odd] } else { [odd, even] };
    drop(state);
    pool.close().unwrap();
    (device, places)
}

fn image(device: &Arc<dyn Device>) -> Arc<FaultyDevice<CowDevice>> {
    Arc::new(FaultyDevice::new(CowDevice::new(device.clone())))
}

fn unreadable(place: u64) -> Fault {
    let range = place * UNIT..place * UNIT + 512;
    Fault::on(Operation::Read).within(range).fail(OsError::IO)
}

fn names(pool: &Pool) -> Vec<String> {
    pool.list().into_iter().map(|info| info.name).collect()
}

#[test]
fn one_bad_superblock_undoes_no_commit() {
    let (device, places) = device();
    for place in places.into_iter().flatten() {
        for fault in [unreadable(place), Fault::on(Operation::Read).flip(place * UNIT + 200, 1)] {
            let image = image(&device);
            image.arm(fault.clone());
            let pool = Pool::open(image.clone()).unwrap();
            assert_eq!(names(&pool), ["main", "precious"], "{fault:?}");
            drop(pool);
            // The commit that the opening makes leaves a pool that needs none.
            image.disarm();
            let writes = image.calls(Operation::Write);
            assert_eq!(names(&Pool::open(image.clone()).unwrap()), ["main", "precious"]);
            assert_eq!(image.calls(Operation::Write), writes);
        }
    }
}

/// Both blocks of the newest superblock are bad, one of them because it can't be read: it may be
/// that of a commit that was durable.
#[test]
fn a_superblock_that_cannot_be_read_fails_the_opening() {
    let (device, [newest, _]) = device();
    let [first, second] = newest;
    let wrong = |place| Fault::on(Operation::Read).flip(place * UNIT + 200, 1);
    for faults in [
        [unreadable(first), unreadable(second)],
        [unreadable(first), wrong(second)],
        [wrong(first), unreadable(second)],
    ] {
        let image = image(&device);
        faults.into_iter().for_each(|fault| image.arm(fault));
        for error in [
            Pool::open(image.clone()).unwrap_err(),
            Pool::open_to_read(image.clone(), 0).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Unreadable { .. }), "{error}");
            assert!(error.to_string().contains("fsck --repair"), "{error}");
        }
        assert_eq!(image.calls(Operation::Write), 0);
        let (pool, repaired) = Pool::open_repaired(image.clone(), 0).unwrap();
        assert_eq!(names(&pool), ["main"]);
        assert!(repaired.losses[0].contains("a superblock"), "{repaired:?}");
        drop(pool);
        image.disarm();
        let (pool, again) = Pool::open_repaired(image, 0).unwrap();
        assert!(!again.is_any(), "{again:?}");
        assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Power was cut while the superblock of a commit was written: the commit before counts.
#[test]
fn a_superblock_that_was_not_written_whole_does_not_count() {
    let (device, [newest, _]) = device();
    let image = image(&device);
    for place in newest {
        image.write_at(place * UNIT + 1024, &[9; 512]).unwrap();
    }
    assert_eq!(names(&Pool::open(image).unwrap()), ["main"]);
}

/// A pool of a program that writes each superblock once: the first opening adds the copies.
#[test]
fn a_pool_without_copies_gets_them() {
    let (device, places) = device();
    for [place, copy] in places {
        let mut bytes = [0; PLACE_BYTES];
        device.read_at(place * UNIT, &mut bytes).unwrap();
        let mut block = Superblock::read_from_bytes(&bytes).unwrap();
        block.incompat = (block.incompat.get() & !TWICE).into();
        device.write_at(place * UNIT, &*format::seal(&block)).unwrap();
        device.write_at(copy * UNIT, &[0; PLACE_BYTES]).unwrap();
    }
    let [[newest, _], _] = places;
    let bad = image(&device);
    bad.arm(unreadable(newest));
    assert!(matches!(Pool::open(bad).unwrap_err(), Error::Unreadable { .. }));
    for _ in 0..2 {
        let pool = Pool::open(device.clone()).unwrap();
        assert_eq!(names(&pool), ["main", "precious"]);
        pool.close().unwrap();
        let disk = open_disk(device.clone(), 0, Purpose::Use).unwrap().disk;
        assert!(self::newest(&disk, Purpose::Use).unwrap().is_twice);
    }
}

/// The first block, or its copy, is bad: the other one is enough, and the next opening that can
/// read it writes it again.
#[test]
fn the_first_block_is_there_twice() {
    let (device, _) = device();
    let lead = |device: &dyn Device, place: u64| {
        let mut bytes = [0; PLACE_BYTES];
        device.read_at(place * UNIT, &mut bytes).unwrap();
        bytes
    };
    let right = lead(&device, 0);
    for place in [0, 24] {
        let image = image(&device);
        image.arm(unreadable(place));
        assert_eq!(names(&Pool::open(image.clone()).unwrap()), ["main", "precious"]);
        assert_eq!(lead(image.inner(), place), right);
        image.disarm();
        for damage in [[0; PLACE_BYTES], [6; PLACE_BYTES]] {
            image.write_at(place * UNIT, &damage).unwrap();
            assert_eq!(names(&Pool::open(image.clone()).unwrap()), ["main", "precious"]);
            assert_eq!(lead(&image, place), right, "{place}");
        }
        image.write_at(place * UNIT, &[6; 512]).unwrap();
        let (_, repaired) = Pool::open_repaired(image.clone(), 0).unwrap();
        assert_eq!(repaired.copies, 1);
        let (_, again) = Pool::open_repaired(image.clone(), 0).unwrap();
        assert!(!again.is_any(), "{again:?}");
    }
    // A pool of an older program has no copy.
    device.write_at(24 * UNIT, &[0; PLACE_BYTES]).unwrap();
    Pool::open(device.clone()).unwrap().close().unwrap();
    assert_eq!(lead(&device, 24), right);
}
