//! Pools and branches that grow.

use std::sync::Arc;

use vfscale_block::{Device, MemoryDevice};
use vfscale_sync::random::seed;

use crate::disk::format::ZONE_PLACES;
use crate::tests::crash::{Model, Run, content, device, number, plan};
use crate::tests::discards::Fixed;
use crate::tests::harness::{UNIT, assert_whole, new_pool};
use crate::{Branch, Error, Pool};

fn write(branch: &Branch, block: u64, what: u64) {
    branch.write_at(block * UNIT, &content(what)).unwrap();
}

fn read(branch: &Branch, block: u64) -> u64 {
    let mut bytes = [1; UNIT as usize];
    branch.read_at(block * UNIT, &mut bytes).unwrap();
    number(&bytes)
}

/// Writes until the pool is full, and returns the number of blocks.
fn filled(branch: &Branch) -> u64 {
    let blocks = branch.size() / UNIT;
    let is_full = |block: &u64| branch.write_at(block * UNIT, &content(block + 1)).is_err();
    (0..blocks).find(is_full).unwrap_or(blocks)
}

#[test]
fn a_grown_pool_hands_out_all_that_it_got() {
    for (from, to) in [
        (200, 400),
        (ZONE_PLACES - 5, ZONE_PLACES + 1),
        (1000, 2 * ZONE_PLACES + 70),
        (ZONE_PLACES + 2, 3 * ZONE_PLACES),
        (300, 301),
    ] {
        let (device, pool) = new_pool(from, (1 << 20) * UNIT);
        let main = pool.branch("main").unwrap();
        let before = filled(&main);
        main.checkpoint().unwrap();
        assert_eq!(pool.grow(Some(to * UNIT)).unwrap(), to * UNIT);
        assert_eq!(device.size(), to * UNIT);
        assert_whole(&pool);
        let grown = filled(&main);
        let got = grown - before;
        assert!(got * 100 >= (to - from).saturating_sub(20) * 95, "{from} to {to}: {got}");
        assert_whole(&pool);
        main.close().unwrap();
        pool.close().unwrap();
        // The size is that of the last commit, and so are the bits of the former last zone.
        let pool = Pool::open(device).unwrap();
        assert_eq!(pool.usage().size, to * UNIT);
        assert_whole(&pool);
        let main = pool.branch("main").unwrap();
        assert!((0..grown).all(|block| read(&main, block) == block + 1));
        main.close().unwrap();
    }
}

#[test]
fn a_pool_takes_all_of_its_device_and_never_shrinks() {
    let (device, pool) = new_pool(200, 100 * UNIT);
    device.set_size(5000 * UNIT).unwrap();
    assert_eq!(pool.usage().size, 200 * UNIT);
    assert_eq!(pool.grow(None).unwrap(), 5000 * UNIT);
    assert_eq!(pool.grow(None).unwrap(), 5000 * UNIT);
    assert!(matches!(pool.grow(Some(4999 * UNIT)), Err(Error::Size(_))));
    assert!(matches!(pool.grow(Some(1 << 62)), Err(Error::Size(_))));
    assert_eq!(pool.usage().size, 5000 * UNIT);
    assert_whole(&pool);
}

#[test]
fn a_pool_behind_a_volume_grows() {
    let first = ZONE_PLACES + 100;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(first * UNIT).unwrap());
    for block in [0, 5, first - 1] {
        device.write_at(block * UNIT, &content(block + 1)).unwrap();
    }
    let leads = [&[0xa0; 4096], &[0xa1; 4096], &[0xa2; 4096]];
    let (id, name) = ([9; 16], "main");
    let conversion =
        crate::Conversion { id, name, first, group: 8192, blocks: first + 3000, leads };
    Pool::convert(&device, &conversion).unwrap();
    let pool = Pool::open_behind(device.clone(), first).unwrap();
    let main = pool.branch("main").unwrap();
    write(&main, 5, 77);
    main.discard(0, 3000 * UNIT).unwrap();
    write(&main, 5, 78);
    main.checkpoint().unwrap();
    pool.grow(Some((first + 2 * ZONE_PLACES) * UNIT)).unwrap();
    assert_whole(&pool);
    for block in 0..1000 {
        write(&main, block, block + 100);
    }
    main.close().unwrap();
    assert_whole(&pool);
    pool.close().unwrap();
    let pool = Pool::open_behind(device, first).unwrap();
    assert_whole(&pool);
    let main = pool.branch("main").unwrap();
    assert_eq!((read(&main, 999), read(&main, first - 1)), (1099, first));
    main.close().unwrap();
}

#[test]
fn a_branch_grows_by_levels_of_its_map() {
    // The pool stays as it is.
    let device = Arc::new(Fixed(MemoryDevice::new(2000 * UNIT).unwrap()));
    let pool = Pool::create(device.clone(), [7; 16]).unwrap();
    pool.create_branch("main", 300 * UNIT).unwrap();
    let main = pool.branch("main").unwrap();
    write(&main, 7, 1);
    pool.fork("main", "trial", false).unwrap();
    let mut size = 300;
    for (step, to) in [400, 600, 300_000, 200_000_000].into_iter().enumerate() {
        let what = step as u64 + 10;
        assert!(main.write_at(size * UNIT, &content(1)).is_err(), "behind the end");
        main.set_size(to * UNIT).unwrap();
        assert_eq!(main.size(), to * UNIT);
        write(&main, to - 1, what);
        assert_eq!((read(&main, 7), read(&main, to - 1), read(&main, to - 2)), (1, what, 0));
        main.flush().unwrap();
        // A fork has the new size, whether anything else was written or not.
        pool.fork("main", &format!("at {to}"), false).unwrap();
        assert_eq!(pool.info(&format!("at {to}")).unwrap().size, to * UNIT);
        assert_whole(&pool);
        size = to;
    }
    assert_eq!(pool.info("trial").unwrap().size, 300 * UNIT);
    main.close().unwrap();
    for name in ["trial", "at 400", "at 600", "at 300000"] {
        pool.delete(name).unwrap();
        while pool.reap(10).unwrap().more {}
        assert_whole(&pool);
    }
    pool.close().unwrap();
    let pool = Pool::open(device).unwrap();
    let main = pool.branch("main").unwrap();
    assert_eq!((read(&main, 7), read(&main, 599), read(&main, size - 1)), (1, 11, 13));
    assert!(main.set_size(UNIT).is_err() && main.set_size(u64::MAX).is_err());
    assert_eq!(pool.usage().size, 2000 * UNIT);
    main.close().unwrap();
}

#[test]
fn a_fork_of_a_branch_that_has_only_grown_has_the_new_size() {
    let (_, pool) = new_pool(2000, 300 * UNIT);
    let main = pool.branch("main").unwrap();
    pool.fork("main", "before", false).unwrap();
    main.set_size(400 * UNIT).unwrap();
    pool.fork("main", "after", false).unwrap();
    let size = |name| pool.info(name).unwrap().size / UNIT;
    assert_eq!((size("before"), size("after"), size("main")), (300, 400, 400));
    assert_whole(&pool);
    main.close().unwrap();
}

#[test]
fn what_is_reserved_is_there_after_a_growth() {
    let (device, pool) = new_pool(400, 300 * UNIT);
    let main = pool.branch("main").unwrap();
    main.reserve(40, false).unwrap();
    main.set_size(600 * UNIT).unwrap();
    pool.create_branch("other", 1 << 30).unwrap();
    let other = pool.branch("other").unwrap();
    filled(&other);
    for block in 0..40 {
        write(&main, block * 15, block + 1);
    }
    main.unreserve(40);
    main.close().unwrap();
    other.close().unwrap();
    assert_whole(&pool);
    drop((pool, device));
}

/// Each cut has all that was flushed, and the former size or the new one.
#[test]
fn a_power_cut_while_something_grows_loses_nothing() {
    let seed = seed();
    for round in 0..3 {
        let device = device(300);
        let pool = Pool::create(device.clone(), [7; 16]).unwrap();
        pool.create_branch("main", 400 * UNIT).unwrap();
        let mut run = Run::on(device.clone(), 0, pool, Model::default(), 8, seed + round);
        let mut grown = 0;
        for call in 0..10 {
            run.tree(4);
            let name = run.any();
            let branch = run.branch(&name);
            if call % 3 == 0 {
                run.pool.grow(Some(device.size() + 64 * UNIT)).unwrap();
            } else if !branch.is_read_only() && branch.set_size(branch.size() + 80 * UNIT).is_ok() {
                grown += 1;
            }
            run.reap(4);
        }
        assert!(grown > 0);
        run.check_live();
        let count = run.sweep(plan()).unwrap();
        assert!(count > 200, "{count} states");
    }
}
