//! Full pools, and credits.

use std::sync::Arc;

use vfscale_block::{Device, Error as DeviceError, MemoryDevice, OsError};
use vfscale_sync::random::{Random, seed};

use crate::tests::harness::{UNIT, assert_whole, new_pool};
use crate::{Branch, Error, Pool};

/// Returns a pool of this many places, with a branch.
pub(crate) fn pool(places: u64) -> Pool {
    new_pool(places, 4 * places * UNIT).1
}

/// Writes one block; returns false if the pool is full.
fn write(branch: &Branch, block: u64) -> bool {
    match branch.write_at(block * UNIT, &[7; UNIT as usize]) {
        Ok(()) => true,
        Err(DeviceError::Io { source: OsError::NO_SPACE, .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

fn fill(branch: &Branch, from: u64) -> u64 {
    let mut block = from;
    while write(branch, block) {
        block += 1;
    }
    block - from
}

#[test]
fn a_full_pool_refuses_writers_and_nothing_else() {
    for places in [128, 200, 300, 1000, 4000] {
        let pool = pool(places);
        let main = pool.branch("main").unwrap();
        let count = fill(&main, 0);
        assert!(count > places / 3, "{count} of {places}");
        assert!(!write(&main, 2 * places));
        // Own places can still be overwritten.
        main.flush().unwrap();
        main.flush().unwrap();
        main.close().unwrap();
        assert_whole(&pool);
        let main = pool.branch("main").unwrap();
        for block in 0..count {
            assert!(write(&main, block), "block {block} of {count}, {places} places");
        }
        main.close().unwrap();
        pool.delete("main").unwrap();
        while pool.reap(10).unwrap().more {}
        assert_whole(&pool);
        pool.create_branch("next", places * UNIT).unwrap();
        let next = pool.branch("next").unwrap();
        assert!(fill(&next, 0) * 10 >= count * 9, "{places} places");
    }
}

/// The space of a pool that was full when it was opened comes back.
#[test]
fn a_full_pool_is_opened_again() {
    let device = Arc::new(MemoryDevice::new(1000 * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [5; 16]).unwrap();
    pool.create_branch("main", 4000 * UNIT).unwrap();
    let empty = pool.usage().free;
    let main = pool.branch("main").unwrap();
    fill(&main, 0);
    main.flush().unwrap();
    // Not closed: the log is replayed.
    drop((main, pool));
    let pool = Pool::open(device).unwrap();
    assert!(pool.usage().free < empty / 20);
    assert_whole(&pool);
    pool.delete("main").unwrap();
    while pool.reap(100).unwrap().more {}
    let free = pool.usage().free;
    assert!(free >= empty - 4 * UNIT, "{free} of {empty}");
}

/// Random calls in a full pool: never a failed pool, and each credit is honoured.
#[test]
fn credits_are_honoured() {
    let mut random = Random::new(seed());
    for round in 0..30 {
        let pool = pool(200 + 40 * round);
        let main = pool.branch("main").unwrap();
        for block in 0..20 {
            assert!(write(&main, 3 * block));
        }
        pool.fork("main", "other", false).unwrap();
        let other = pool.branch("other").unwrap();
        let mut credit = main.credit(8).unwrap();
        let mut next = 0;
        while fill(&other, next) > 0 {
            next += 10;
        }
        assert_eq!(main.credit(8).unwrap_err(), Error::Full);
        while credit.blocks() > 0 {
            match random.below(6) {
                0 => main.flush().unwrap(),
                1 => other.flush().unwrap(),
                2 => {
                    let name = format!("n{}", random.below(1000));
                    match pool.fork("main", &name, false) {
                        Ok(()) => pool.delete(&name).unwrap(),
                        Err(Error::Full | Error::Exists(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                3 => _ = fill(&other, random.below(3000) % 800),
                4 => _ = pool.reap(1).unwrap(),
                _ => {
                    // Blocks that the sibling shares, and new ones, far apart.
                    let most = random.one(&[60, 800]);
                    let block = random.below(most);
                    let bytes = [9; UNIT as usize];
                    main.write_with(&mut credit, block * UNIT, &bytes).unwrap();
                }
            }
        }
        main.close().unwrap();
        other.close().unwrap();
        assert_whole(&pool);
    }
}

#[test]
fn a_credit_is_given_back() {
    let pool = pool(400);
    let before = pool.usage().free;
    let main = pool.branch("main").unwrap();
    let mut credit = main.credit(20).unwrap();
    let part = credit.split(5);
    assert_eq!((credit.blocks(), part.blocks()), (15, 5));
    assert!(pool.usage().free < before - 20 * UNIT);
    let refused = main.write_with(&mut credit, 0, &[1; 16 * 4096]).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }));
    drop((credit, part));
    assert_eq!(pool.usage().free, before);
}

/// Deleted branches hold nothing up, though nobody else frees their space.
#[test]
fn deleting_makes_room_for_all_who_need_it() {
    let pool = pool(600);
    let main = pool.branch("main").unwrap();
    for round in 0..3000_u64 {
        main.write_at(round % 50 * UNIT, &[round as u8; UNIT as usize]).unwrap();
        pool.fork("main", &format!("n{round}"), false).unwrap();
        if let Some(old) = round.checked_sub(3) {
            pool.delete(&format!("n{old}")).unwrap();
        }
    }
    assert_whole(&pool);
    main.close().unwrap();
    for round in 2997..3000 {
        pool.delete(&format!("n{round}")).unwrap();
    }
    // By a write, a reservation, and a flush that needs a log.
    for round in 0..10_u64 {
        pool.create_branch("large", 600 * UNIT).unwrap();
        let large = pool.branch("large").unwrap();
        if round % 2 == 0 {
            assert!(fill(&large, 0) > 300, "round {round}");
        } else {
            large.reserve(100, false).unwrap();
            large.write_at(0, &[1; 100 * UNIT as usize]).unwrap();
        }
        large.flush().unwrap();
        large.close().unwrap();
        pool.delete("large").unwrap();
    }
    assert_whole(&pool);
}
