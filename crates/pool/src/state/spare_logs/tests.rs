//! Spare logs: who gets them, what openings make of them, and that a full pool has none.

use std::ops::Range;
use std::sync::Arc;

use vfscale_block::{CowDevice, Device, MemoryDevice, Operation, OsError};
use vfscale_testkit::{Fault, FaultyDevice};

use crate::disk::delta_log;
use crate::disk::device::offset;
use crate::disk::format::{LOG_MAPS, LogMap, SPARES, SUPER, Superblock};
use crate::disk::record::LogArea;
use crate::state::commit::Shared;
use crate::{Branch, Error, Pool};

const UNIT: u64 = 4096;
const BLOCKS: u64 = 600;

type Faulty = Arc<FaultyDevice<MemoryDevice>>;

fn pool(places: u64) -> (Faulty, Pool) {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(places * UNIT).unwrap()));
    let pool = Pool::create(device.clone(), [5; 16]).unwrap();
    pool.create_branch("main", BLOCKS * UNIT).unwrap();
    (device, pool)
}

fn put(branch: &Branch, blocks: Range<u64>, byte: u8) {
    for block in blocks {
        branch.write_at(block * UNIT, &[byte; UNIT as usize]).unwrap();
    }
}

/// Opens a branch, and writes and flushes one block.
fn open(pool: &Pool, name: &str, block: u64, byte: u8) -> Arc<Branch> {
    let branch = pool.branch(name).unwrap();
    put(&branch, block..block + 1, byte);
    branch.flush().unwrap();
    branch
}

fn byte(pool: &Pool, name: &str, block: u64) -> u8 {
    let mut bytes = [0xff; UNIT as usize];
    pool.branch(name).unwrap().read_at(block * UNIT, &mut bytes).unwrap();
    bytes[0]
}

fn spares(pool: &Pool) -> Vec<LogArea> {
    pool.shared.state.lock().spares.clone()
}

fn generation(pool: &Pool) -> u64 {
    pool.shared.state.lock().generation
}

fn log_of(pool: &Pool, name: &str) -> Option<LogArea> {
    pool.shared.state.lock().table.named(name).unwrap().log
}

/// Returns what is there when the power fails now.
fn copy(device: &Faulty) -> Arc<dyn Device> {
    Arc::new(CowDevice::new(device.clone()))
}

fn assert_whole(pool: &Pool) {
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
}

/// Returns the newest superblock of a pool that was not recovered.
fn superblock(pool: &Pool) -> Superblock {
    let disk = &pool.shared.disk;
    let blocks = disk.layout().superblocks().map(|place| disk.read::<Superblock>(SUPER, place));
    let blocks = blocks.into_iter().flatten();
    blocks.max_by_key(|block| block.header.generation.get()).unwrap()
}

#[test]
fn a_first_flush_takes_a_spare_without_a_commit() {
    let (device, pool) = pool(3000);
    pool.fork("main", "a", false).unwrap();
    let (spare, free) = (spares(&pool), pool.usage().free);
    assert_eq!((spare.len(), superblock(&pool).incompat.get() & SPARES), (1, SPARES));
    let before = generation(&pool);
    let a = pool.branch("a").unwrap();
    put(&a, 7..9, 1);
    let (writes, flushes) = (device.calls(Operation::Write), device.calls(Operation::Flush));
    a.flush().unwrap();
    assert_eq!(device.calls(Operation::Flush), flushes + 1);
    assert!(device.calls(Operation::Write) <= writes + 1);
    assert_eq!((generation(&pool), log_of(&pool, "a")), (before, Some(spare[0])));
    assert_whole(&pool);
    put(&a, 8..10, 2);
    a.flush().unwrap();
    assert_eq!(generation(&pool), before);
    // A power cut: the record makes the spare the log of its branch, also for a repair.
    for repair in [false, true] {
        let image = copy(&device);
        let pool = match repair {
            false => Pool::open(image).unwrap(),
            true => {
                let (pool, repaired) = Pool::open_repaired(image, 0).unwrap();
                assert!(!repaired.is_any(), "{repaired:?}");
                pool
            }
        };
        assert_eq!([7, 8, 9, 10].map(|block| byte(&pool, "a", block)), [1, 2, 2, 0]);
        assert_eq!(log_of(&pool, "a"), None);
        assert_whole(&pool);
    }
    // The commit that gives the log back.
    a.close().unwrap();
    let again = spares(&pool);
    assert_eq!((again.len(), again[0].place), (1, spare[0].place));
    assert_ne!(again[0].sequence, spare[0].sequence);
    assert_eq!(superblock(&pool).spares[0].sequence.get(), again[0].sequence);
    // Three blocks, and the node of the map of two levels that leads to them, and the root.
    assert!(pool.usage().free >= free - 5 * UNIT);
    assert_whole(&pool);
}

/// The commit of a sibling names the log of a branch that has taken a spare, and drops the spare.
#[test]
fn any_commit_names_a_log_that_was_a_spare() {
    let (device, pool) = pool(3000);
    pool.fork("main", "a", false).unwrap();
    let a = open(&pool, "a", 1, 1);
    let log = log_of(&pool, "a").unwrap();
    pool.create_branch("other", UNIT).unwrap();
    assert!(!superblock(&pool).spares.iter().any(|spare| spare.place.get() == log.place));
    put(&a, 2..3, 2);
    a.flush().unwrap();
    assert_eq!(log_of(&pool, "a"), Some(log));
    let image = Pool::open(copy(&device)).unwrap();
    assert_eq!([1, 2].map(|block| byte(&image, "a", block)), [1, 2]);
    // A fork of the branch gives the log to its next node, with another sequence.
    pool.fork("a", "child", false).unwrap();
    assert_ne!(log_of(&pool, "a").map(|log| log.sequence), Some(log.sequence));
    put(&a, 2..3, 3);
    a.flush().unwrap();
    let image = Pool::open(copy(&device)).unwrap();
    assert_eq!([byte(&image, "a", 2), byte(&image, "child", 2)], [3, 2]);
    assert_whole(&image);
    drop(a);
    type Change = fn(&Pool, &str) -> Result<(), Error>;
    let rollback: Change = |pool, name| pool.rollback(name).map(drop);
    for change in [Pool::delete, rollback] {
        let image = Pool::open(copy(&device)).unwrap();
        let a = open(&image, "a", 9, 9);
        drop(a);
        change(&image, "a").unwrap();
        while image.reap(100).unwrap().more {}
        assert_whole(&image);
    }
}

/// Closed branches leave four spares at most. Opened branches take all of them, and then make logs.
#[test]
fn closings_leave_some_spares() {
    let (device, pool) = pool(9000);
    let free = pool.usage().free;
    let names: Vec<String> = (0..6).map(|n| format!("b{n}")).collect();
    names.iter().for_each(|name| pool.create_branch(name, BLOCKS * UNIT).unwrap());
    assert_eq!(spares(&pool), []);
    for round in 1..3 {
        let open: Vec<_> = names.iter().map(|name| open(&pool, name, round, 1)).collect();
        assert_eq!((spares(&pool), pool.shared.spare_places()), (vec![], 0));
        open.iter().for_each(|branch| branch.close().unwrap());
        assert_eq!((spares(&pool).len(), pool.shared.spare_places()), (4, 4 * 64));
        assert_whole(&pool);
    }
    assert!(pool.usage().free >= free - 40 * UNIT);
    // An opening finds them all unused, and keeps them.
    let told = spares(&pool);
    drop(pool);
    let pool = Pool::open(device).unwrap();
    assert_eq!((spares(&pool), pool.shared.spare_places()), (told, 4 * 64));
}

/// A writer is not refused while spares have places; nor are reservations, credits and forks.
#[test]
fn a_full_pool_gives_up_its_spares() {
    let (_, pool) = pool(3000);
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| pool.create_branch(name, BLOCKS * UNIT).unwrap());
    pool.create_branch("filler", 9000 * UNIT).unwrap();
    type Ask = fn(&Pool, &Branch) -> bool;
    let asks: [(&str, Ask); 4] = [
        ("write", |_, main| {
            (0..40).all(|block| main.write_at((6000 + block) * UNIT, &[1; 4096]).is_ok())
        }),
        ("reserve", |_, main| main.reserve(10, false).is_ok()),
        ("credit", |_, main| main.credit(10).is_ok()),
        ("urgent", |_, main| main.reserve(10, true).is_ok()),
    ];
    for (round, (what, ask)) in (0..).zip(asks) {
        let opened: Vec<_> = names.iter().map(|name| open(&pool, name, round, 1)).collect();
        opened.iter().for_each(|branch| branch.close().unwrap());
        let filler = pool.branch("filler").unwrap();
        assert!(spares(&pool).len() >= 3, "{what}");
        // All that is free but for a few places, with nothing that the branch has given up.
        let mut block = 0;
        while pool.shared.space.budget.available() > 6 {
            put(&filler, block..block + 1, 1);
            block += 1;
        }
        assert!(spares(&pool).len() >= 3, "{what}");
        let is_ok = ask(&pool, &filler);
        assert!(is_ok, "{what}: {:?}", pool.usage());
        assert_eq!((spares(&pool), pool.shared.spare_places()), (vec![], 0), "{what}");
        assert_whole(&pool);
        filler.close().unwrap();
        pool.delete("filler").unwrap();
        while pool.reap(1000).unwrap().more {}
        assert_whole(&pool);
        pool.create_branch("filler", 9000 * UNIT).unwrap();
    }
}

/// A pool without spares is one that programs open that do not know them.
#[test]
fn a_pool_without_spares_has_no_bit_of_them() {
    let (_, pool) = pool(3000);
    let bit = |pool: &Pool| superblock(pool).incompat.get() & SPARES;
    assert_eq!(bit(&pool), 0);
    open(&pool, "main", 1, 1).close().unwrap();
    assert_eq!(bit(&pool), SPARES);
    pool.shared.give_up_spares(&mut pool.shared.state.lock()).unwrap();
    assert_eq!(bit(&pool), 0);
    assert_whole(&pool);
}

/// The first batch of a spare has one record, those that follow may have more.
#[test]
fn a_large_first_batch_is_no_record() {
    let (device, pool) = pool(9000);
    pool.fork("main", "a", false).unwrap();
    let (before, large) = (generation(&pool), LOG_MAPS as u64 + 1);
    let a = pool.branch("a").unwrap();
    put(&a, 0..large, 1);
    a.flush().unwrap();
    assert_eq!(generation(&pool), before + 1);
    // The checkpoint has taken the spare, and given it a sequence of its own.
    let log = log_of(&pool, "a").unwrap();
    assert!(!log.is_new() && spares(&pool).is_empty());
    put(&a, 200..200 + large, 2);
    a.flush().unwrap();
    let image = Pool::open(copy(&device)).unwrap();
    assert_eq!([0, 168, 200, 368].map(|block| byte(&image, "a", block)), [1, 1, 2, 2]);
    a.close().unwrap();
    // One of more contents than have checksums is flushed before its record.
    let a = pool.branch("a").unwrap();
    pool.fork("a", "b", false).unwrap();
    let flushes = device.calls(Operation::Flush);
    put(&a, 0..LOG_MAPS as u64, 3);
    a.flush().unwrap();
    assert_eq!(device.calls(Operation::Flush), flushes + 2);
    let image = Pool::open(copy(&device)).unwrap();
    assert_eq!([0, 167, 168].map(|block| byte(&image, "a", block)), [3, 3, 1]);
}

/// Writes a first record of node `node` into a spare.
fn write_record(shared: &Shared, area: LogArea, node: u64) {
    let map = LogMap { block: 0.into(), place: 0.into(), checksum: 0.into(), kind: 1.into() };
    let (place, bytes) = delta_log::record(&shared.disk, area, node, 0, 0, 0, &[map]);
    shared.disk.write(&[(place, bytes)]).unwrap();
}

/// No log of a branch is left out, and none is given to a node that can't be written.
#[test]
fn a_spare_of_a_branch_that_cannot_have_it_is_damage() {
    let (device, pool) = pool(9000);
    pool.fork("main", "a", true).unwrap();
    pool.create_branch("b", UNIT).unwrap();
    let [main, b] = ["main", "b"].map(|name| open(&pool, name, 0, 1));
    main.close().unwrap();
    b.close().unwrap();
    let spares = spares(&pool);
    let id = |name: &str| pool.shared.state.lock().table.named(name).unwrap().id;
    let stale = LogArea { sequence: spares[0].sequence ^ 1, ..spares[0] };
    for (what, records, is_right) in [
        ("a stale record", vec![(stale, id("b"))], true),
        ("no such branch", vec![(spares[0], 999)], false),
        ("a branch that can only be read", vec![(spares[0], id("a"))], false),
        ("two logs", vec![(spares[0], id("b")), (spares[1], id("b"))], false),
    ] {
        let image = copy(&device);
        let shared = Shared::open(image.clone(), 0, 1).unwrap();
        records.iter().for_each(|(area, node)| write_record(&shared, *area, *node));
        let opened = Pool::open(image);
        match is_right {
            true => assert_whole(&opened.unwrap()),
            false => assert!(matches!(opened, Err(Error::Damage { .. })), "{what}: {opened:?}"),
        }
    }
}

/// A first record that can't be read does not count, and never will, unless a later batch shows
/// that it was flushed.
#[test]
fn a_first_record_that_cannot_be_read() {
    for later in [false, true] {
        let (device, pool) = pool(3000);
        pool.fork("main", "a", false).unwrap();
        let spare = spares(&pool)[0];
        let a = open(&pool, "a", 1, 1);
        if later {
            put(&a, 2..3, 2);
            a.flush().unwrap();
        }
        let image = Arc::new(FaultyDevice::new(CowDevice::new(device.clone())));
        let range = offset(spare.place)..offset(spare.place + 1);
        image.arm(Fault::on(Operation::Read).within(range).fail(OsError::IO));
        let error = Pool::open(image.clone()).unwrap_err();
        assert!(matches!(error, Error::Unreadable { .. }), "{error}");
        // A later record tells whose the log is.
        assert_eq!(Pool::open_to_read(image.clone(), 0).is_ok(), later);
        let (pool, repaired) = Pool::open_repaired(image.clone(), 0).unwrap();
        assert_eq!(repaired.losses.len(), 1, "{repaired:?}");
        assert_eq!((byte(&pool, "a", 1), log_of(&pool, "a")), (0, None));
        image.disarm();
        // As if power failed at once: the record is readable again.
        let pool = Pool::open(image).unwrap();
        assert_eq!((byte(&pool, "a", 1), log_of(&pool, "a")), (0, None));
        assert_ne!(spares(&pool)[0].sequence, spare.sequence);
        assert_whole(&pool);
    }
}

/// A first record that could not be written, or flushed: the next flush makes a checkpoint.
#[test]
fn a_first_record_that_fails() {
    for operation in [Operation::Write, Operation::Flush] {
        let (device, pool) = pool(3000);
        pool.fork("main", "a", false).unwrap();
        let (a, before) = (pool.branch("a").unwrap(), generation(&pool));
        put(&a, 1..2, 1);
        device.arm(Fault::on(operation).nth(1).fail(OsError::IO));
        a.flush().unwrap_err();
        device.disarm();
        assert!(Pool::open(copy(&device)).is_ok());
        assert_eq!(generation(&pool), before);
        a.flush().unwrap();
        assert_eq!(generation(&pool), before + 1);
        put(&a, 1..2, 2);
        a.flush().unwrap();
        let image = Pool::open(copy(&device)).unwrap();
        assert_eq!(byte(&image, "a", 1), 2);
        a.close().unwrap();
        assert_whole(&pool);
    }
}
