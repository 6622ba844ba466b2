//! Pools in sparse images on a file system that is full.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use vfscale_block::{Device, Discards, Error as DeviceError, MemoryDevice};

use crate::disk::format::ZONE_PLACES;
use crate::tests::harness::UNIT;
use crate::{Branch, Error, Pool};

/// An image that takes storage from a file system with room for some blocks.
#[derive(Debug)]
struct Sparse {
    blocks: MemoryDevice,
    stored: Mutex<BTreeSet<u64>>,
    room: AtomicU64,
    /// Number of writes that found no room.
    refused: AtomicU64,
}

impl Sparse {
    fn new(places: u64, room: u64) -> Arc<Self> {
        Arc::new(Self {
            blocks: MemoryDevice::new(places * UNIT).unwrap(),
            stored: Mutex::default(),
            room: room.into(),
            refused: AtomicU64::new(0),
        })
    }

    fn store(&self, start: u64, end: u64) -> Result<(), DeviceError> {
        let mut stored = self.stored.lock().unwrap();
        for block in start / UNIT..end.div_ceil(UNIT) {
            if stored.contains(&block) {
                continue;
            }
            if stored.len() as u64 >= self.room.load(Ordering::Relaxed) {
                return Err(DeviceError::Full { device: "image".into() });
            }
            stored.insert(block);
        }
        Ok(())
    }
}

impl Device for Sparse {
    fn size(&self) -> u64 {
        self.blocks.size()
    }

    fn block_size(&self) -> u32 {
        self.blocks.block_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.blocks.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        let stored = self.store(offset, offset + buf.len() as u64);
        if stored.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        stored?;
        self.blocks.write_at(offset, buf)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discards(&self) -> Option<Discards> {
        Some(Discards { granularity: UNIT as u32, is_thin: true })
    }

    fn reserve_ranges(&self, ranges: &[Range<u64>]) -> Result<(), DeviceError> {
        ranges.iter().try_for_each(|range| self.store(range.start, range.end))
    }
}

const LOG: u64 = 64;

/// Writes a block; returns false if there is no room.
fn write(branch: &Branch, block: u64) -> bool {
    match branch.write_at(block * UNIT, &[block as u8; UNIT as usize]) {
        Ok(()) => true,
        Err(error) if error.is_no_space() => false,
        Err(error) => panic!("{error}"),
    }
}

/// Writes as the log of a volume does.
fn log(branch: &Branch) {
    for block in 0..LOG {
        assert!(write(branch, block), "block {block} of a log");
    }
    branch.flush().unwrap();
}

/// The branch that fills the image, its siblings, and the pool itself go on; and what they give up
/// is taken again.
#[test]
fn a_full_host_refuses_writers_and_nothing_else() {
    let image = Sparse::new(40_000, 6_000);
    let pool = Pool::create(image.clone(), [5; 16]).unwrap();
    let [main, calm] = ["main", "calm"].map(|name| {
        pool.create_branch(name, 40_000 * UNIT).unwrap();
        let branch = pool.branch(name).unwrap();
        branch.reserve_ranges(std::slice::from_ref(&(0..LOG * UNIT))).unwrap();
        log(&branch);
        branch
    });
    assert!(write(&calm, LOG));
    let full = (LOG..).find(|block| !write(&main, *block)).unwrap();
    assert!(full > 3_000, "{full}");
    let refused = main.write_at(full * UNIT, &[1; UNIT as usize]).unwrap_err();
    assert_eq!(refused.to_string(), "the file system of unnamed device is full");
    for _ in 0..5 {
        log(&calm);
        log(&main);
        assert!(!write(&calm, 30_000));
    }
    // Removing makes room, also for the sibling.
    main.discard(1_000 * UNIT, 1_000 * UNIT).unwrap();
    (0..2).for_each(|_| main.flush().unwrap());
    assert!((30_000..30_500).all(|block| write(&calm, block)));
    pool.fork("calm", "fork", false).unwrap();
    log(&calm);
    pool.delete("fork").unwrap();
    while pool.reap(10).unwrap().more {}
    assert_eq!(image.refused.load(Ordering::Relaxed), 0, "writes that the file system refused");
    image.room.store(40_000, Ordering::Relaxed);
    assert!((full..full + 5_000).all(|block| write(&main, block)));
    drop((main, calm));
    pool.close().unwrap();
    let pool = Pool::open(image).unwrap();
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
    let main = pool.branch("main").unwrap();
    let mut bytes = [0; UNIT as usize];
    main.read_at((full - 1) * UNIT, &mut bytes).unwrap();
    assert_eq!(bytes, [(full - 1) as u8; UNIT as usize]);
}

/// A fork finds storage that the file system has allocated, behind places that it has not.
#[test]
fn a_fork_takes_the_storage_that_is_left() {
    let image = Sparse::new(40_000, 6_000);
    let pool = Pool::create(image.clone(), [5; 16]).unwrap();
    pool.create_branch("main", 40_000 * UNIT).unwrap();
    let main = pool.branch("main").unwrap();
    main.reserve_ranges(std::slice::from_ref(&(0..LOG * UNIT))).unwrap();
    log(&main);
    let full = (LOG..).find(|block| !write(&main, *block)).unwrap();
    assert_eq!(pool.fork("main", "none", false).unwrap_err(), Error::Full);
    // As blocks that were freed before the pool was opened.
    image.stored.lock().unwrap().extend(12_000..12_320);
    pool.fork("main", "fork", false).unwrap();
    log(&main);
    assert!(!write(&main, full));
    assert_eq!(image.refused.load(Ordering::Relaxed), 0, "writes that the file system refused");
    drop(main);
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
}

/// A zone that was met while the file system had no room for its bitmaps is used once there is
/// room, whether or not other zones lack storage as well.
#[test]
fn a_zone_without_bitmaps_is_used_once_there_is_room() {
    const STEP: u64 = 64;
    for is_first_stored in [false, true] {
        let image = Sparse::new(3 * ZONE_PLACES, 6_000);
        let pool = Pool::create(image.clone(), [5; 16]).unwrap();
        pool.create_branch("main", 3 * ZONE_PLACES * UNIT).unwrap();
        let main = pool.branch("main").unwrap();
        if is_first_stored {
            let mut stored = image.stored.lock().unwrap();
            stored.extend(0..ZONE_PLACES);
            image.room.store(stored.len() as u64, Ordering::Relaxed);
        }
        let mut block = 0;
        let mut fill = |end: u64| {
            while block < end && main.write_at(block * UNIT, &[7; (STEP * UNIT) as usize]).is_ok() {
                block += STEP;
            }
            block
        };
        let full = fill(2 * ZONE_PLACES);
        assert!(full <= ZONE_PLACES, "{full}");
        assert_eq!(fill(2 * ZONE_PLACES), full);
        image.room.store(3 * ZONE_PLACES, Ordering::Relaxed);
        assert!(fill(2 * ZONE_PLACES) >= 2 * ZONE_PLACES, "stored: {is_first_stored}");
        main.flush().unwrap();
        assert_eq!(image.refused.load(Ordering::Relaxed), 0, "writes that were refused");
    }
}
