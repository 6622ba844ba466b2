//! One bad block of the pool itself: it costs what it holds, and a repair ends well.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfscale_block::{CowDevice, Device, MemoryDevice, Operation, OsError};
use vfscale_testkit::{Fault, FaultyDevice};

use crate::disk::format::{BITMAP, LOG, NODE, PLACE_BYTES, ZONE_PLACES};
use crate::state::map::{Map, levels};
use crate::tests::hostile::{FIRST, former_volume, image, own_blocks};
use crate::{Error, Pool};

const UNIT: u64 = PLACE_BYTES as u64;
/// Blocks that are read together.
const ROW: usize = 60;

/// The first bytes of the blocks of each branch; `None` for a block that can't be read.
type Contents = BTreeMap<String, Vec<Option<u8>>>;

fn contents(pool: &Pool) -> Contents {
    pool.list().into_iter().map(|info| (info.name.clone(), blocks(pool, &info.name))).collect()
}

/// Reads the blocks of a branch; none if it can't be opened.
fn blocks(pool: &Pool, name: &str) -> Vec<Option<u8>> {
    let Ok(branch) = pool.branch(name) else { return Vec::new() };
    let mut found = Vec::new();
    for start in (0..branch.size() / UNIT).step_by(ROW) {
        let mut row = vec![0; ROW * PLACE_BYTES];
        if branch.read_at(start * UNIT, &mut row).is_ok() {
            found.extend(row.chunks(PLACE_BYTES).map(|block| Some(block[0])));
            continue;
        }
        for (block, bytes) in (start..).zip(row.chunks_mut(PLACE_BYTES)) {
            found.push(branch.read_at(block * UNIT, bytes).ok().map(|()| bytes[0]));
        }
    }
    found
}

/// Compares what can be read with what was there before. All branches but one have it; only a block
/// of a map may be of several ones, but then what is below it is an error.
fn compare(pool: &Pool, before: &Contents, magic: [u8; 4]) -> Result<(), String> {
    let now = contents(pool);
    if !now.keys().eq(before.keys()) {
        return Err(format!("branches {:?}", now.keys()));
    }
    let differ: Vec<&String> =
        now.iter().filter(|(name, now)| before[*name] != **now).map(|(name, _)| name).collect();
    let is_wrong = |name: &&&String| {
        let pairs = now[**name].iter().zip(&before[**name]);
        pairs.filter(|(now, before)| now != before).any(|(now, _)| now.is_some())
    };
    match (differ.len(), differ.iter().find(is_wrong)) {
        // The last record of a log is as if it had not been written.
        (0, _) | (_, None) if magic == NODE => Ok(()),
        (0, _) | (1, None) => Ok(()),
        (1, _) if magic == LOG => Ok(()),
        found => Err(format!("{found:?}, {differ:?}")),
    }
}

/// Opens the pool for reading, for writing, and for a repair. Returns whether it can be written.
fn open_all_ways(
    device: &dyn Fn() -> Arc<dyn Device>,
    first: u64,
    before: &Contents,
    magic: [u8; 4],
) -> Result<bool, String> {
    let tell = |error: Error| error.to_string();
    let pool = Pool::open_to_read(device(), first).map_err(tell)?;
    compare(&pool, before, magic).map_err(|why| format!("to read: {why}"))?;
    let opened = Pool::open_behind(device(), first);
    let is_writable = opened.is_ok();
    if let Ok(pool) = opened {
        compare(&pool, before, magic)?;
        for info in pool.list().into_iter().filter(|info| !info.read_only && magic != NODE) {
            let Ok(branch) = pool.branch(&info.name) else { continue };
            branch.write_at(0, &[7; PLACE_BYTES]).map_err(|error| error.to_string())?;
            branch.close().map_err(tell)?;
        }
    } else if magic != LOG {
        return Err(format!("not opened: {:?}", opened.err()));
    }
    let device = device();
    let (pool, _) = Pool::open_repaired(device.clone(), first).map_err(tell)?;
    compare(&pool, before, magic).map_err(|why| format!("repaired: {why}"))?;
    drop(pool);
    let (pool, again) = Pool::open_repaired(device, first).map_err(tell)?;
    if again.is_any() {
        return Err(format!("a second repair found {again:?}"));
    }
    match &pool.check().map_err(tell)?.problems[..] {
        [_, ..] if magic != NODE => Err("the check finds something after a repair".into()),
        _ => Ok(is_writable),
    }
}

fn sweep(device: &Arc<dyn Device>, first: u64) {
    let before = contents(&Pool::open_to_read(device.clone(), first).unwrap());
    let (mut count, mut refused) = (0, 0);
    for (place, magic) in own_blocks(&**device) {
        let mut right = [0; PLACE_BYTES];
        device.read_at(place * UNIT, &mut right).unwrap();
        let wrong = |at: usize| {
            let mut bytes = right;
            bytes[at] ^= 0x11;
            bytes
        };
        for bytes in [wrong(2), wrong(36), wrong(200), [0; PLACE_BYTES]] {
            let copy = || -> Arc<dyn Device> {
                let copy = CowDevice::new(device.clone());
                copy.write_at(place * UNIT, &bytes).unwrap();
                Arc::new(copy)
            };
            let kind = String::from_utf8_lossy(&magic);
            let is_writable = open_all_ways(&copy, first, &before, magic)
                .unwrap_or_else(|why| panic!("block {place} {kind}, {:?}: {why}", &bytes[..40]));
            count += 1;
            refused += u32::from(!is_writable);
        }
    }
    assert!(count > 100 && refused < count / 8, "{count} images, {refused} only to be read");
}

#[test]
fn one_bad_block_costs_what_it_holds() {
    sweep(&image(), 0);
}

#[test]
fn one_bad_block_of_a_former_volume_costs_what_it_holds() {
    sweep(&former_volume(), FIRST);
}

/// A block can't be read, and stays so: the rest can, and a repair ends.
#[test]
fn one_unreadable_block_costs_what_it_holds() {
    let device = image();
    let before = contents(&Pool::open_to_read(device.clone(), 0).unwrap());
    let mut refused = Vec::new();
    for (place, magic) in own_blocks(&*device) {
        let copy = || {
            let copy = Arc::new(FaultyDevice::new(CowDevice::new(device.clone())));
            let range = place * UNIT..(place + 1) * UNIT;
            copy.arm(Fault::on(Operation::Read).within(range).fail(OsError::IO));
            copy
        };
        match Pool::open_to_read(copy(), 0) {
            Ok(pool) => {
                compare(&pool, &before, magic).unwrap_or_else(|why| panic!("{place}: {why}"))
            }
            Err(Error::Unreadable { what, .. }) => refused.push((magic, what)),
            Err(error) => panic!("{place}: {error}"),
        }
        let (pool, _) = Pool::open_repaired(copy(), 0).unwrap();
        compare(&pool, &before, magic).unwrap_or_else(|why| panic!("{place}, repaired: {why}"));
    }
    // Nothing tells whose log a spare is if its first record can't be read.
    assert!(refused.iter().all(|(magic, what)| *magic == LOG && what.contains("spare")));
}

/// The bitmap of a zone can't be read: the opening makes it of the maps, and a branch that was not
/// closed is whole. Nothing is written over the block.
#[test]
fn a_bitmap_that_cannot_be_read_is_made_anew() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(600 * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [7; 16]).unwrap();
    pool.create_branch("main", 100 * UNIT).unwrap();
    let main = pool.branch("main").unwrap();
    main.write_at(0, &[5; 20 * PLACE_BYTES]).unwrap();
    pool.fork("main", "other", false).unwrap();
    main.write_at(0, &[6; PLACE_BYTES]).unwrap();
    main.flush().unwrap();
    std::mem::forget((main, pool));
    for place in [1, 2] {
        let mut bytes = [0; PLACE_BYTES];
        device.read_at(place * UNIT, &mut bytes).unwrap();
        assert_eq!(bytes[..4], BITMAP);
        let image = Arc::new(FaultyDevice::new(CowDevice::new(device.clone())));
        let range = place * UNIT..(place + 1) * UNIT;
        image.arm(Fault::on(Operation::Read).within(range).fail(OsError::IO));
        let pool = Pool::open(image.clone()).unwrap();
        let (main, other) = (blocks(&pool, "main"), blocks(&pool, "other"));
        assert_eq!((main[0], main[1], other[0], other[1]), (Some(6), Some(5), Some(5), Some(5)));
        assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
        pool.close().unwrap();
    }
}

/// A deleted branch whose map can't be read keeps its places, and the others' become free.
#[test]
fn one_bad_map_does_not_stop_the_reaper() {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(600 * UNIT).unwrap());
    let image = Arc::new(FaultyDevice::new(CowDevice::new(memory)));
    let pool = Pool::create(image.clone(), [7; 16]).unwrap();
    for name in ["a", "b", "c"] {
        pool.create_branch(name, 100 * UNIT).unwrap();
        let branch = pool.branch(name).unwrap();
        branch.write_at(0, &[5; 20 * PLACE_BYTES]).unwrap();
        branch.close().unwrap();
    }
    let root = pool.shared.state.lock().table.find("a").unwrap().root.place();
    for name in ["a", "b", "c"] {
        pool.delete(name).unwrap();
    }
    let range = root * UNIT..(root + 1) * UNIT;
    image.arm(Fault::on(Operation::Read).within(range).fail(OsError::IO));
    let free = pool.usage().free;
    let mut told = 0;
    loop {
        match pool.reap(100) {
            Ok(reaped) if reaped.more => {}
            Ok(_) => break,
            Err(error) => {
                told += 1;
                assert!(told == 1 && pool.shared.alive().is_ok(), "{error}");
            }
        }
    }
    assert_eq!(told, 1);
    assert!(pool.usage().free >= free + 40 * UNIT, "{} of {free}", pool.usage().free);
}

/// A bitmap can't be read that a running pool needs: the places of its zone stay in use, and the
/// rest of the pool goes on.
#[test]
fn a_bad_bitmap_costs_its_zone() {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(2 * ZONE_PLACES * UNIT).unwrap());
    let image = Arc::new(FaultyDevice::new(CowDevice::new(memory)));
    let pool = Pool::create(image.clone(), [7; 16]).unwrap();
    let written = ["a", "b"].map(|name| {
        pool.create_branch(name, 100 * UNIT).unwrap();
        let branch = pool.branch(name).unwrap();
        branch.write_at(0, &[5; 20 * PLACE_BYTES]).unwrap();
        branch
    });
    for branch in written {
        branch.close().unwrap();
    }
    let [a, b] = ["a", "b"].map(|name| {
        let record = pool.shared.state.lock().table.find(name).unwrap().clone();
        let disk = &pool.shared.disk;
        let map = Map::open(disk, 0, record.root, levels(record.blocks)).unwrap();
        disk.layout().locate(map.find(3).unwrap().place()).0
    });
    assert_ne!(a, b, "two branches write in two zones");
    pool.close().unwrap();
    let pool = Pool::open(image.clone()).unwrap();
    let bitmap = [false, true].map(|copy| pool.shared.disk.layout().bitmap(b, copy));
    for place in bitmap {
        let range = place * UNIT..(place + 1) * UNIT;
        image.arm(Fault::on(Operation::Read).within(range).fail(OsError::IO));
    }
    pool.delete("b").unwrap();
    while pool.reap(100).unwrap().more {}
    let a = pool.branch("a").unwrap();
    a.write_at(0, &[6; 30 * PLACE_BYTES]).unwrap();
    a.close().unwrap();
    pool.close().unwrap();
    let (pool, _) = Pool::open_repaired(image, 0).unwrap();
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
    assert_eq!(blocks(&pool, "a")[29], Some(6));
}
