use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use vfscale_block::{Device, Error as DeviceError, OsError};

use crate::tests::harness::{UNIT, get, new_pool, put, reap};
use crate::{Branch, Error, Pool};

const MIB: u64 = 1 << 20;

fn limit_of(pool: &Pool, name: &str) -> Option<u64> {
    pool.info(name).unwrap().limit
}

/// Reserves and writes blocks one by one. Returns how many until a reservation was refused.
fn fill(branch: &Branch, blocks: std::ops::Range<u64>) -> u64 {
    let before = blocks.start;
    for block in blocks.clone() {
        if let Err(error) = branch.reserve(1, false) {
            let source = match error {
                DeviceError::Io { source, .. } => source,
                error => panic!("{error}"),
            };
            assert_eq!(source, OsError::LIMIT, "block {block}");
            return block - before;
        }
        branch.write_at(block * UNIT, &[1; UNIT as usize]).unwrap();
        branch.unreserve(1);
    }
    blocks.end - before
}

#[test]
fn a_branch_at_its_limit_is_refused_alone() {
    let (device, pool) = new_pool(40_000, 20_000 * UNIT);
    put(&pool, "main", 0..5000, 1);
    pool.fork("main", "trial", false).unwrap();
    pool.set_limit("trial", Some(16 * MIB)).unwrap();
    let trial = pool.branch("trial").unwrap();
    let first = fill(&trial, 0..5000);
    // 4096 places, of which nodes of the map take some.
    assert!((4000..4096).contains(&first), "{first}");
    assert_eq!(trial.room(), Some(0));
    // Urgent reservations go on, and so do writes.
    trial.reserve(3, true).unwrap();
    trial.write_at(6000 * UNIT, &[1; UNIT as usize]).unwrap();
    trial.unreserve(3);
    let main = pool.branch("main").unwrap();
    assert_eq!(fill(&main, 0..5000), 5000, "the other branch has no limit");
    // Blocks that are given up come back, whether they were committed or not.
    for (given_up, committed) in [(0..500, false), (500..1000, true)] {
        let len = given_up.end - given_up.start;
        if committed {
            trial.flush().unwrap();
            pool.checkpoint("trial", "", || ()).unwrap();
            pool.delete(&format!("trial@{}", 1)).unwrap();
            reap(&pool);
        }
        trial.discard(given_up.start * UNIT, len * UNIT).unwrap();
        let again = fill(&trial, given_up.start..20_000);
        assert!((480..520).contains(&again), "{again} after {given_up:?}");
        trial.discard((given_up.end) * UNIT, (again.saturating_sub(len)) * UNIT).unwrap();
    }
    pool.set_limit("trial", Some(17 * MIB)).unwrap();
    assert!(fill(&trial, 10_000..20_000) >= 200, "the limit was raised");
    pool.set_limit("trial", None).unwrap();
    assert_eq!(fill(&trial, 12_000..16_000), 4000);
    drop((main, trial));
    pool.close_branches().unwrap();
    reap(&pool);
    pool.close().unwrap();
    assert_eq!(limit_of(&Pool::open(device).unwrap(), "trial"), None);
}

#[test]
fn checkpoints_of_a_branch_count() {
    let (device, pool) = new_pool(40_000, 20_000 * UNIT);
    pool.set_limit("main", Some(16 * MIB)).unwrap();
    let main = pool.branch("main").unwrap();
    assert_eq!(fill(&main, 0..2000), 2000);
    pool.checkpoint("main", "", || ()).unwrap();
    assert_eq!(fill(&main, 0..1000), 1000);
    pool.checkpoint("main", "", || ()).unwrap();
    let rest = fill(&main, 0..2000);
    assert!((1000..1096).contains(&rest), "{rest}");
    main.close().unwrap();
    pool.close().unwrap();
    // The next opening counts the same.
    let pool = Pool::open(device).unwrap();
    let main = pool.branch("main").unwrap();
    assert_eq!(limit_of(&pool, "main"), Some(16 * MIB));
    let more = fill(&main, 3000..4000);
    assert!(more < 50, "{more}");
    // Without the first checkpoint, what the second one has replaced is free.
    pool.delete("main@1").unwrap();
    reap(&pool);
    let more = fill(&main, 3000..6000);
    assert!((950..1050).contains(&more), "{more}");
    main.close().unwrap();
    pool.close().unwrap();
}

#[test]
fn a_limit_stays_with_the_name() {
    let (device, pool) = new_pool(20_000, 1000 * UNIT);
    put(&pool, "main", 0..10, 1);
    pool.set_limit("main", Some(20 * MIB)).unwrap();
    pool.fork("main", "trial", false).unwrap();
    assert_eq!((limit_of(&pool, "main"), limit_of(&pool, "trial")), (Some(20 * MIB), None));
    pool.set_limit("trial", Some(30 * MIB + 1)).unwrap();
    put(&pool, "main", 0..10, 2);
    let kept = pool.rollback("main").unwrap().unwrap();
    assert_eq!(limit_of(&pool, "main"), Some(20 * MIB));
    put(&pool, "trial", 0..10, 3);
    pool.adopt(&pool.adoption("main", "trial").unwrap()).unwrap();
    assert_eq!((limit_of(&pool, "main"), get(&pool, "main", 0)), (Some(20 * MIB), 3));
    pool.fork("main", "made", false).unwrap();
    put(&pool, "made", 0..10, 4);
    let decided = pool.snapshot("main", || ()).unwrap();
    pool.rebase("main", &decided, "made").unwrap();
    decided.close().unwrap();
    assert_eq!((limit_of(&pool, "main"), get(&pool, "main", 0)), (Some(20 * MIB), 4));
    pool.rename("main", "new").unwrap();
    pool.delete(&kept).unwrap();
    reap(&pool);
    pool.close().unwrap();
    let pool = Pool::open(device).unwrap();
    assert_eq!(limit_of(&pool, "new"), Some(20 * MIB));
    // A branch that can only be read has none.
    pool.fork("new", "frozen", true).unwrap();
    assert_eq!(limit_of(&pool, "frozen"), None);
    let refused = pool.set_limit("frozen", Some(20 * MIB));
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert!(matches!(pool.set_limit("new", Some(16 * MIB - 1)), Err(Error::Size(_))));
    assert_eq!(pool.set_limit("none", None), Err(Error::NoBranch("none".into())));
}

#[test]
fn blocks_of_a_deleted_parent_are_not_for_the_limit() {
    let (_, pool) = new_pool(40_000, 20_000 * UNIT);
    put(&pool, "main", 0..6000, 1);
    pool.fork("main", "trial", false).unwrap();
    pool.set_limit("trial", Some(16 * MIB)).unwrap();
    let trial = pool.branch("trial").unwrap();
    assert_eq!(fill(&trial, 0..2000), 2000);
    pool.delete("main").unwrap();
    reap(&pool);
    assert!(pool.info("trial").unwrap().own >= 6000 * UNIT, "all is its own");
    let more = fill(&trial, 10_000..20_000);
    assert!((2000..2096).contains(&more), "{more}");
    trial.close().unwrap();
    pool.close().unwrap();
}

/// There is room for one of the reservations that threads make at once, in each round.
#[test]
fn concurrent_reservations_stay_below_the_limit() {
    const BLOCKS: u64 = 7;
    const THREADS: usize = 2;
    let (_, pool) = new_pool(200_000, 20_000 * UNIT);
    pool.set_limit("main", Some(16 * MIB)).unwrap();
    let main = pool.branch("main").unwrap();
    main.reserve(4096 - 2 * BLOCKS + 1, false).unwrap();
    let (arrived, reserved, most) = [const { AtomicUsize::new(0) }; 3].into();
    let together = |round: usize| {
        arrived.fetch_add(1, Ordering::SeqCst);
        while arrived.load(Ordering::SeqCst) < round * THREADS {
            hint::spin_loop();
        }
    };
    let race = || {
        for round in 0..20_000 {
            together(2 * round + 1);
            let is_in = main.reserve(BLOCKS, false).is_ok();
            if is_in {
                most.fetch_max(reserved.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            }
            together(2 * round + 2);
            if is_in {
                reserved.store(0, Ordering::SeqCst);
                main.unreserve(BLOCKS);
            }
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| _ = scope.spawn(race)));
    assert_eq!(most.into_inner(), 1, "at once");
    main.reserve(BLOCKS, false).unwrap();
    assert_eq!(main.room(), Some((BLOCKS - 1) * UNIT));
    drop(main);
}
