//! Pools with wrong bytes: an error, never a panic or a hang.

use std::sync::Arc;

use vfscale_block::{CowDevice, Device, MemoryDevice};
use vfscale_sync::random::{Random, seed};

use crate::disk::format::{
    self, BITMAP, DEAD, LEAD, LOG, NODE, PLACE_BYTES, SUPER, TABLE, TABLE_RECORDS,
};
use crate::{Conversion, Error, Pool};

const PLACES: u64 = 1500;
const BLOCKS: u64 = 1200;
const UNIT: u64 = PLACE_BYTES as u64;

/// Makes an image that has every structure.
pub(crate) fn image() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(PLACES * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [7; 16]).unwrap();
    pool.create_branch("main", BLOCKS * UNIT).unwrap();
    play(&pool);
    Arc::new(CowDevice::new(device))
}

/// The size of a volume that becomes a pool.
pub(crate) const FIRST: u64 = 1200;

/// Makes an image of a pool that was a volume.
pub(crate) fn former_volume() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new((FIRST + 700) * UNIT).unwrap());
    let (id, name, leads) = ([7; 16], "main", [&[0; 4096]; 3]);
    let conversion = Conversion { id, name, first: FIRST, group: 256, blocks: FIRST + 700, leads };
    Pool::convert(&device, &conversion).unwrap();
    let pool = Pool::open_behind(device.clone(), FIRST).unwrap();
    play(&pool);
    let other = pool.branch("later").unwrap();
    other.discard(600 * UNIT, 20 * UNIT).unwrap();
    other.close().unwrap();
    Arc::new(CowDevice::new(device))
}

/// Makes a tree of branches.
fn play(pool: &Pool) {
    let main = pool.branch("main").unwrap();
    for block in [0, 1, 504, 700, 1100] {
        main.write_at(block * UNIT, &[1; 4096]).unwrap();
    }
    pool.fork("main", "child", false).unwrap();
    pool.fork("main", "frozen", true).unwrap();
    pool.fork("main", "gone", false).unwrap();
    pool.delete("gone").unwrap();
    let child = pool.branch("child").unwrap();
    child.write_at(504 * UNIT, &[5; 4096]).unwrap();
    child.close().unwrap();
    main.write_at(UNIT, &[2; 8192]).unwrap();
    main.flush().unwrap();
    main.write_at(700 * UNIT, &[3; 4096]).unwrap();
    main.flush().unwrap();
    main.write_at(700 * UNIT, &[4; 4096]).unwrap();
    main.flush().unwrap();
    pool.fork("frozen", "later", false).unwrap();
    // As a power cut leaves it, with a log.
    std::mem::forget(main);
}

/// Returns the places of the blocks of the pool itself.
pub(crate) fn own_blocks(device: &dyn Device) -> Vec<(u64, [u8; 4])> {
    let kinds = [LEAD, SUPER, NODE, BITMAP, TABLE, LOG, DEAD];
    let mut found = Vec::new();
    for place in 0..device.size() / UNIT {
        let mut magic = [0; 4];
        device.read_at(place * UNIT, &mut magic).unwrap();
        if kinds.contains(&magic) {
            found.push((place, magic));
        }
    }
    for kind in kinds {
        assert!(found.iter().any(|(_, magic)| *magic == kind), "no {kind:?}");
    }
    found
}

/// Does all that can be done with a pool; returns the first error.
fn use_it(device: Arc<dyn Device>, first: u64) -> Result<(), Error> {
    let pool = Pool::open_behind(device, first)?;
    let report = pool.check()?;
    for info in pool.list() {
        let branch = pool.branch(&info.name)?;
        let mut buf = vec![0; 3 * 4096];
        for block in [0, 503, 699, BLOCKS - 3] {
            let _ = branch.read_at(block * UNIT, &mut buf);
            let _ = branch.write_at(block * UNIT, &buf);
        }
        let _ = branch.flush();
        let _ = branch.close();
        pool.fork(&info.name, &format!("{}2", info.name), false)?;
    }
    let _ = pool.rollback("main");
    for _ in 0..10 {
        pool.reap(100)?;
    }
    for info in pool.list() {
        pool.delete(&info.name)?;
    }
    for _ in 0..10 {
        pool.reap(1)?;
    }
    if report.problems.is_empty() { Ok(()) } else { Err(Error::Failed) }
}

#[test]
fn an_image_without_damage_works() {
    use_it(image(), 0).unwrap();
    use_it(former_volume(), FIRST).unwrap();
}

/// Random changes that every checksum covers.
#[test]
fn damage_with_right_checksums_is_survived() {
    damage(&image(), 0);
}

#[test]
fn damage_of_a_former_volume_is_survived() {
    damage(&former_volume(), FIRST);
}

fn damage(device: &Arc<dyn Device>, first: u64) {
    let mut random = Random::new(seed());
    let blocks = own_blocks(&**device);
    let mut errors = 0;
    for _ in 0..1500 {
        let copy = Arc::new(CowDevice::new(device.clone()));
        for _ in 0..1 + random.below(2) {
            let (place, magic) = random.one(&blocks);
            let mut bytes = [0; PLACE_BYTES];
            copy.read_at(place * UNIT, &mut bytes).unwrap();
            // Most fields are near the start of a block, or of a record.
            let record = 64 + 256 * random.below(TABLE_RECORDS as u64);
            let at = match magic {
                TABLE if random.below(4) > 0 => record.min(1088) + random.below(140),
                SUPER if random.below(4) > 0 => 8 + random.below(240),
                _ if random.below(4) > 0 => 8 + random.below(140),
                _ => random.below(4096),
            } as usize;
            bytes[at] = match random.below(3) {
                0 => bytes[at] ^ 1 << random.below(8),
                1 => 0xff,
                _ => random.below(256) as u8,
            };
            copy.write_at(place * UNIT, &*format::reseal(bytes)).unwrap();
        }
        errors += usize::from(use_it(copy, first).is_err());
    }
    assert!(errors > 300, "{errors} errors");
}

#[test]
fn a_pool_cut_short_is_an_error() {
    let device = image();
    for places in [0, 1, 127, 128, 200, PLACES - 1] {
        let short = MemoryDevice::new(places * UNIT).unwrap();
        let mut bytes = vec![0; (places * UNIT) as usize];
        device.read_at(0, &mut bytes).unwrap();
        short.write_at(0, &bytes).unwrap();
        assert!(Pool::open(Arc::new(short)).is_err(), "{places} places");
    }
}

#[test]
fn a_pool_is_not_made_over_something() {
    let device = Arc::new(MemoryDevice::new(PLACES * UNIT).unwrap());
    assert_eq!(Pool::open(device.clone()).unwrap_err(), Error::NoPool);
    device.write_at(0, &[1; 512]).unwrap();
    assert_eq!(Pool::create(device, [1; 16]).unwrap_err(), Error::NotEmpty);
}
