//! Tests of reservations: a full pool fails no write of a reserved block.

use std::slice;

use vfscale_block::Device;
use vfscale_sync::random::{Random, seed};

use crate::tests::full::pool;
use crate::tests::harness::UNIT;
use crate::{Branch, Error};

fn is_written(branch: &Branch, block: u64) -> bool {
    branch.write_at(block * UNIT, &[7; UNIT as usize]).is_ok()
}

/// Reserves until nothing is left.
fn fill(branch: &Branch) {
    while branch.reserve(1, false).is_ok() {}
}

#[test]
fn reservations_are_honoured_whatever_happens() {
    let mut random = Random::new(seed());
    for round in 0..30 {
        let pool = pool(300 + 40 * round);
        let main = pool.branch("main").unwrap();
        for block in 0..20 {
            assert!(is_written(&main, 3 * block));
        }
        // A log in one row, and single blocks.
        main.reserve_ranges(slice::from_ref(&(1000 * UNIT..1016 * UNIT))).unwrap();
        main.reserve(8, false).unwrap();
        pool.fork("main", "other", false).unwrap();
        let other = pool.branch("other").unwrap();
        fill(&other);
        assert!(main.reserve(8, false).is_err());
        let mut left = 8;
        while left > 0 {
            match random.below(6) {
                0 => main.flush().unwrap(),
                1 => match pool.fork("main", &format!("n{}", random.below(1000)), true) {
                    Ok(()) | Err(Error::Full | Error::Exists(_)) => {}
                    Err(error) => panic!("{error}"),
                },
                2 => _ = pool.reap(1).unwrap(),
                3 => {
                    main.unreserve(1);
                    left -= 1;
                }
                4 => {
                    let block = random.below(900);
                    assert!(is_written(&main, block), "block {block} in round {round}");
                    main.unreserve(1);
                    left -= 1;
                }
                _ => {
                    let block = 1000 + random.below(16);
                    assert!(is_written(&main, block), "log block {block} in round {round}");
                }
            }
        }
        main.close().unwrap();
        other.close().unwrap();
        assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn what_was_reserved_comes_back() {
    let pool = pool(1000);
    let before = pool.usage().free;
    let main = pool.branch("main").unwrap();
    main.reserve(9, false).unwrap();
    main.reserve_ranges(slice::from_ref(&(0..60 * UNIT))).unwrap();
    assert!(pool.usage().free < before - 69 * UNIT);
    main.unreserve(9);
    main.close().unwrap();
    assert_eq!(pool.usage().free, before);
}

#[test]
fn an_urgent_reservation_gets_more() {
    let pool = pool(16384);
    let main = pool.branch("main").unwrap();
    fill(&main);
    assert!(main.reserve(1, false).is_err());
    main.reserve(10, true).unwrap();
    main.unreserve(10);
    // Places that come back fill the urgent part first.
    assert!(main.reserve(1, false).is_err());
    main.reserve(10, true).unwrap();
}
