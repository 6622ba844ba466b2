//! Calls of a pool: results and errors.

use std::sync::Arc;

use vfscale_block::{Device, Error as DeviceError, MemoryDevice, Operation};
use vfscale_testkit::FaultyDevice;

use crate::disk::format::DEPTH_MAX;
use crate::tests::harness::{UNIT, assert_whole, get, new_pool};
use crate::{Error, Kind, Pool};

fn put(pool: &Pool, name: &str, block: u64, byte: u8) {
    let branch = pool.branch(name).unwrap();
    branch.write_at(block * UNIT, &[byte; UNIT as usize]).unwrap();
    branch.close().unwrap();
}

#[test]
fn names_are_checked() {
    let (_, pool) = new_pool(1000, 100 * UNIT + 7);
    for name in ["", "a/b", "a\nb", &"n".repeat(129)] {
        assert_eq!(pool.create_branch(name, UNIT), Err(Error::Name(name.into())));
        assert_eq!(pool.fork("main", name, false), Err(Error::Name(name.into())));
        assert_eq!(pool.rename("main", name), Err(Error::Name(name.into())));
    }
    pool.create_branch(&"n".repeat(128), UNIT).unwrap();
    pool.create_branch("ein Ast", UNIT).unwrap();
    assert_eq!(pool.create_branch("main", UNIT), Err(Error::Exists("main".into())));
    assert_eq!(pool.rename("main", "ein Ast"), Err(Error::Exists("ein Ast".into())));
    let rolled = pool.rollback("none").map(drop);
    for result in [pool.fork("none", "b", false), pool.delete("none"), rolled] {
        assert_eq!(result, Err(Error::NoBranch("none".into())));
    }
    let names: Vec<String> = pool.list().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["ein Ast".into(), "main".into(), "n".repeat(128)]);
}

/// A branch stays the child of its parent whatever is forked, rolled back or deleted.
#[test]
fn branches_are_listed_by_number_with_their_parents() {
    let (_, pool) = new_pool(1000, 100 * UNIT + 7);
    let fork = |parent: &str, name: &str| {
        put(&pool, parent, 1, name.len() as u8);
        pool.fork(parent, name, false).unwrap();
    };
    fork("main", "t10");
    fork("main", "t2");
    fork("t2", "t2b");
    fork("t2", "t02");
    fork("t2b", "é1");
    let listed = || -> Vec<(String, Option<String>)> {
        pool.list().into_iter().map(|info| (info.name, info.parent)).collect()
    };
    let expected = |of: &[(&str, &str)]| -> Vec<(String, Option<String>)> {
        let parent = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        of.iter().map(|(name, of)| ((*name).to_owned(), parent(of))).collect()
    };
    let all = [
        ("main", ""),
        ("t02", "t2"),
        ("t2", "main"),
        ("t2b", "t2"),
        ("t10", "main"),
        ("é1", "t2b"),
    ];
    assert_eq!(listed(), expected(&all));
    pool.delete("t2b").unwrap();
    while pool.reap(1000).unwrap().more {}
    let without = [("main", ""), ("t02", "t2"), ("t2", "main"), ("t10", "main"), ("é1", "t2")];
    assert_eq!(listed(), expected(&without));
}

#[test]
fn ranges_are_checked() {
    let (_, pool) = new_pool(1000, 100 * UNIT + 7);
    let main = pool.branch("main").unwrap();
    assert_eq!((main.size(), main.block_size()), (100 * UNIT, 512));
    let outside = main.write_at(100 * UNIT, &[0; 512]).unwrap_err();
    assert!(matches!(outside, DeviceError::OutOfRange { .. }));
    assert!(main.read_at(u64::MAX, &mut [0]).is_err());
    assert!(matches!(main.write_at(1, &[0; 512]), Err(DeviceError::Misaligned { .. })));
    main.write_at(512, &[3; 512]).unwrap();
    let mut bytes = [1; 2048];
    main.read_at(0, &mut bytes).unwrap();
    assert!(bytes[..512] == [0; 512] && bytes[512..1024] == [3; 512] && bytes[1024..] == [0; 1024]);
    for size in [0, UNIT - 1, (1 << 44) + UNIT] {
        assert!(matches!(pool.create_branch("b", size), Err(Error::Size(_))));
    }
}

#[test]
fn a_read_only_branch_is_not_written() {
    let (_, pool) = new_pool(1000, 100 * UNIT + 7);
    put(&pool, "main", 1, 7);
    pool.fork("main", "kept", true).unwrap();
    put(&pool, "main", 1, 8);
    let (kept, again) = (pool.branch("kept").unwrap(), pool.branch("kept").unwrap());
    assert!(matches!(kept.write_at(0, &[1; 4096]), Err(DeviceError::ReadOnly { .. })));
    assert!(matches!(kept.discard(0, 4096), Err(DeviceError::ReadOnly { .. })));
    kept.flush().unwrap();
    kept.close().unwrap();
    assert_eq!(pool.delete("kept"), Err(Error::InUse("kept".into())));
    again.close().unwrap();
    assert_eq!((get(&pool, "kept", 1), get(&pool, "main", 1)), (7, 8));
    // Its children can be written, also when it is gone.
    pool.fork("kept", "child", false).unwrap();
    pool.delete("kept").unwrap();
    put(&pool, "child", 2, 9);
    while pool.reap(1).unwrap().more {}
    assert_eq!((get(&pool, "child", 1), get(&pool, "child", 2)), (7, 9));
    assert!(pool.check().unwrap().problems.is_empty());
}

#[test]
fn a_rollback_goes_to_the_last_fork() {
    let (_, pool) = new_pool(1000, 100 * UNIT + 7);
    let never = pool.rollback("main").unwrap_err();
    assert!(matches!(never, Error::Refused { .. }));
    put(&pool, "main", 1, 1);
    pool.fork("main", "other", false).unwrap();
    put(&pool, "main", 1, 2);
    assert_eq!(pool.rollback("main").unwrap().as_deref(), Some("main@1"));
    assert_eq!((get(&pool, "main", 1), get(&pool, "main@1", 1)), (1, 2));
    // Nothing was written since.
    assert_eq!(pool.rollback("main").unwrap(), None);
    put(&pool, "main", 1, 3);
    pool.delete("other").unwrap();
    pool.delete("main@1").unwrap();
    while pool.reap(100).unwrap().more {}
    // No other branch has kept that state.
    let gone = pool.rollback("main").unwrap_err();
    assert!(matches!(gone, Error::Refused { .. }));
    assert_eq!(get(&pool, "main", 1), 3);
}

/// An identity stays with its branch, also over forks and openings. No other branch gets it, nor
/// one that takes the name after a rollback, a deletion, or a power cut.
#[test]
fn no_two_branches_have_one_identity() {
    let device = Arc::new(MemoryDevice::new(1000 * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [5; 16]).unwrap();
    let id = |pool: &Pool, name: &str| pool.branch(name).unwrap().identity().unwrap();
    let mut ids = Vec::new();
    for name in ["main", "second"] {
        pool.create_branch(name, 100 * UNIT).unwrap();
        ids.push(id(&pool, name));
    }
    for n in 0..4 {
        put(&pool, "main", n, 1);
        for name in [format!("a{n}"), format!("b{n}")] {
            pool.fork("main", &name, n == 3).unwrap();
            ids.push(id(&pool, &name));
        }
        assert_eq!(id(&pool, "main"), ids[0]);
    }
    pool.rollback("main").unwrap();
    ids.push(id(&pool, "main"));
    pool.delete("a1").unwrap();
    pool.fork("main", "a1", false).unwrap();
    ids.push(id(&pool, "a1"));
    pool.rename("a1", "renamed").unwrap();
    assert_eq!(ids.last(), Some(&id(&pool, "renamed")));
    drop(pool);
    let pool = Pool::open(device).unwrap();
    assert_eq!(id(&pool, "second"), ids[1]);
    pool.fork("main", "after", false).unwrap();
    ids.push(id(&pool, "after"));
    let wrapped = vfscale_block::CowDevice::new(pool.branch("after").unwrap());
    assert_eq!(wrapped.identity(), ids.last().copied());
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
    // A branch without an origin is no copy, and retains what it has.
    put(&pool, "second", 1, 1);
    let mut state = pool.shared.state.lock();
    let oldest = state.table.named("second").unwrap().id;
    state.table.update(oldest, |record| record.origin = 0);
    drop(state);
    assert_eq!(pool.branch("second").unwrap().identity(), None);
    put(&pool, "second", 2, 2);
    pool.fork("second", "youngest", false).unwrap();
    assert_eq!(pool.branch("second").unwrap().identity(), None);
    assert!(!ids.contains(&id(&pool, "youngest")));
}

/// The caller learns when the child has its contents, before the fork's I/O, and not if it fails.
#[test]
fn a_fork_tells_when_it_has_captured_the_parent() {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(1000 * UNIT).unwrap()));
    let pool = Pool::create(device.clone(), [5; 16]).unwrap();
    pool.create_branch("main", 100 * UNIT).unwrap();
    put(&pool, "main", 3, 3);
    let main = pool.branch("main").unwrap();
    for (name, fill) in [("dirty", Some(4)), ("clean", None), ("again", Some(5))] {
        if let Some(fill) = fill {
            main.write_at(3 * UNIT, &[fill; UNIT as usize]).unwrap();
        }
        let (before, mut at) = (device.calls(Operation::Flush), None);
        let captured = || at = Some(device.calls(Operation::Flush));
        pool.fork_with("main", name, Kind::Writable, captured).unwrap();
        main.write_at(3 * UNIT, &[9; UNIT as usize]).unwrap();
        assert_eq!(at, Some(before), "{name}");
        assert!(device.calls(Operation::Flush) > before);
    }
    assert_eq!(["dirty", "clean", "again"].map(|name| get(&pool, name, 3)), [4, 9, 5]);
    main.close().unwrap();
    let mut is_told = false;
    let exists = pool.fork_with("main", "clean", Kind::Writable, || is_told = true);
    assert_eq!((exists, is_told), (Err(Error::Exists("clean".into())), false));
    pool.fork_with("main", "closed", Kind::Writable, || is_told = true).unwrap();
    assert!(is_told && get(&pool, "closed", 3) == 9);
    assert!(pool.check().unwrap().problems.is_empty());
}

/// Forks without writes in between share one frozen node, so the history does not become deeper.
#[test]
fn unchanged_parents_are_not_frozen_again() {
    let (_, pool) = new_pool(1000, 100 * UNIT + 7);
    put(&pool, "main", 1, 1);
    for n in 0..20 {
        pool.fork("main", &format!("b{n}"), false).unwrap();
    }
    assert!(pool.list().iter().all(|info| info.depth == 2));
    put(&pool, "main", 1, 2);
    pool.fork("main", "next", false).unwrap();
    assert_eq!(pool.list().last().map(|info| info.depth), Some(3));
}

#[test]
fn a_history_has_an_end() {
    let (_, pool) = new_pool(1000, 100 * UNIT + 7);
    put(&pool, "main", 1, 1);
    let mut state = pool.shared.state.lock();
    let id = state.table.named("main").unwrap().id;
    state.table.update(id, |record| record.depth = DEPTH_MAX - 2);
    drop(state);
    pool.fork("main", "a", false).unwrap();
    put(&pool, "main", 1, 2);
    assert_eq!(get(&pool, "a", 1), 1);
    let deep = pool.fork("main", "b", false).unwrap_err();
    assert!(matches!(deep, Error::Refused { .. }));
    assert_eq!(get(&pool, "main", 1), 2);
    assert!(pool.check().unwrap().problems.is_empty());
}

/// A chain of forks, each changed, and then freed from both ends.
#[test]
fn a_long_history_is_freed() {
    let device = Arc::new(MemoryDevice::new(6000 * UNIT).unwrap());
    let pool = Pool::create(device, [5; 16]).unwrap();
    pool.create_branch("b0", 100 * UNIT).unwrap();
    let before = pool.usage().free;
    for n in 0..130_u64 {
        put(&pool, &format!("b{n}"), n % 90, n as u8);
        pool.fork(&format!("b{n}"), &format!("b{}", n + 1), false).unwrap();
    }
    assert_eq!(get(&pool, "b130", 129 % 90), 129);
    assert_eq!(get(&pool, "b130", 89), 89);
    for n in (0..65).chain((66..131).rev()) {
        pool.delete(&format!("b{n}")).unwrap();
        pool.reap(3).unwrap();
    }
    while pool.reap(3).unwrap().more {}
    assert!(pool.check().unwrap().problems.is_empty());
    for block in 0..66 {
        assert_eq!(get(&pool, "b65", block), block as u8);
    }
    // Its contents, a leaf and the root, its log, and the table that has grown.
    let (free, own) = (pool.usage().free, pool.list()[0].own);
    assert!(free + own + 64 * UNIT + 20 * UNIT >= before, "{free}, {own} of {before}");
}

/// A branch has a log from its first flush on, until it is closed or recovered after a crash.
#[test]
fn a_closed_branch_has_no_log() {
    let device = Arc::new(MemoryDevice::new(1000 * UNIT).unwrap());
    let pool = Pool::create(device.clone(), [5; 16]).unwrap();
    let logs = |pool: &Pool| {
        let state = pool.shared.state.lock();
        state.table.records().filter(|record| record.log.is_some()).count()
    };
    for name in ["main", "other"] {
        pool.create_branch(name, 100 * UNIT).unwrap();
        put(&pool, name, 1, 1);
    }
    assert_eq!(logs(&pool), 0);
    let free = pool.usage().free;
    // Each block is a new one, and gets its place; a map of a hundred blocks has one node.
    let write = |pool: &Pool, name: &str, blocks: std::ops::Range<u64>| {
        let branch = pool.branch(name).unwrap();
        for block in blocks {
            branch.write_at(block * UNIT, &[9; UNIT as usize]).unwrap();
            branch.flush().unwrap();
        }
        branch
    };
    // The first flush makes the log with a record, the second another record.
    let mut written = 0;
    for blocks in [10..11, 20..22] {
        written += blocks.end - blocks.start;
        let main = write(&pool, "main", blocks);
        assert_eq!(logs(&pool), 1);
        main.close().unwrap();
        assert_eq!((logs(&pool), pool.usage().free), (0, free - written * UNIT));
    }
    drop((write(&pool, "main", 30..31), write(&pool, "other", 40..42)));
    assert_eq!(logs(&pool), 2);
    drop(pool);
    let pool = Pool::open(device).unwrap();
    assert_eq!((logs(&pool), pool.usage().free), (0, free - (written + 3) * UNIT));
    assert_whole(&pool);
    for (name, block) in [("main", 21), ("main", 30), ("other", 40), ("other", 41)] {
        assert_eq!(get(&pool, name, block), 9, "{name} {block}");
    }
}
