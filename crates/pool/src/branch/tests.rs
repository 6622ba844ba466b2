//! Several threads in a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use vfscale_block::{Device, MemoryDevice, Operation};
use vfscale_sync::random::{Random, seed};
use vfscale_testkit::{Fault, FaultyDevice, Gate};

use super::Inner;
use crate::tests::plants::Known;
use crate::{Branch, Error, Pool};

const UNIT: usize = 4096;
const BLOCKS: u64 = 600;

/// A block filled with a byte, and the number of the block.
fn content(tag: u8, block: u64) -> Vec<u8> {
    let mut bytes = vec![tag; UNIT];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// Makes the branches forget of which blocks a record has checksums.
pub(crate) fn forget_fragile(pool: &Pool, _: &mut Known) {
    pool.open.lock().values().for_each(|branch| branch.pending.lock().fragile.clear());
}

/// Makes the branches forget what they have replaced of their ancestors.
pub(crate) fn forget_deads(pool: &Pool, _: &mut Known) {
    pool.open.lock().values().for_each(|branch| branch.pending.lock().deads.clear());
}

/// Leaves to each branch as its own, after a fork, what was so when it was opened.
pub(crate) fn keep_own(pool: &Pool, known: &mut Known) {
    for branch in pool.open.lock().values() {
        let above = &branch.own_above;
        let first = known.entry(Arc::as_ptr(branch) as u64);
        let first = *first.or_insert(above.load(Ordering::Relaxed).into());
        above.store(first as u32, Ordering::Relaxed);
    }
}

/// Lets a reader wait between lookup and I/O while its place is given up, and a sibling fills the
/// pool. Returns the byte that it reads.
fn read_a_reused_place(read: fn(&Branch, &Inner, &mut [u8])) -> u8 {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(300 * UNIT as u64).unwrap()));
    let pool = Pool::create(device.clone(), [1; 16]).unwrap();
    pool.create_branch("reader", BLOCKS * UNIT as u64).unwrap();
    pool.create_branch("filler", BLOCKS * UNIT as u64).unwrap();
    let (reader, filler) = (pool.branch("reader").unwrap(), pool.branch("filler").unwrap());
    filler.write_at(BLOCKS / 2 * UNIT as u64, &content(9, 0)).unwrap();
    reader.write_at(0, &content(1, 0)).unwrap();
    // The first flush makes the log, the second a record: its block is fragile.
    reader.flush().unwrap();
    pool.fork("reader", "child", true).unwrap();
    reader.write_at(0, &content(2, 0)).unwrap();
    reader.flush().unwrap();
    let inner = pool.open.lock()["reader"].clone();
    let place = inner.map().find(0).unwrap().place();
    let gate = Gate::new();
    let range = place * UNIT as u64..(place + 1) * UNIT as u64;
    device.arm(Fault::on(Operation::Read).within(range).hold(&gate));
    let mut byte = 0;
    thread::scope(|scope| {
        let read = scope.spawn(|| {
            let mut bytes = vec![0; UNIT];
            read(&reader, &inner, &mut bytes);
            bytes[UNIT - 1]
        });
        gate.wait_for(1);
        reader.write_at(0, &content(3, 0)).unwrap();
        let writer = scope.spawn(|| {
            inner.close().unwrap();
            for block in 0..BLOCKS {
                if filler.write_at(block * UNIT as u64, &content(9, block)).is_err() {
                    break;
                }
            }
        });
        vfscale_harness::comes(Duration::from_millis(300), || writer.is_finished());
        gate.open();
        byte = read.join().unwrap();
        writer.join().unwrap();
    });
    byte
}

/// Race: A reader of a place against its reuse by another branch.
///
/// A commit waits for the readers that are inside before it makes places free.
#[test]
fn a_place_is_not_reused_under_a_reader() {
    let read = |reader: &Branch, _: &Inner, bytes: &mut [u8]| reader.read_at(0, bytes).unwrap();
    assert_eq!(read_a_reused_place(read), 2);
}

#[test]
fn a_reader_that_nobody_waits_for_is_found() {
    // Without being among the readers of the branch.
    let read = |_: &Branch, inner: &Inner, bytes: &mut [u8]| {
        let place = inner.map().find(0).unwrap().place();
        inner.shared.disk.device.read_at(place * UNIT as u64, bytes).unwrap();
    };
    assert_eq!(read_a_reused_place(read), 9);
}

/// A branch writes, reads and flushes while a commit and a flush of its sibling are under way.
#[test]
fn siblings_do_not_wait_for_each_other() {
    let device = Arc::new(MemoryDevice::new(40_000 * UNIT as u64).unwrap());
    let pool = Pool::create(device, [1; 16]).unwrap();
    for name in ["a", "b"] {
        pool.create_branch(name, BLOCKS * UNIT as u64).unwrap();
    }
    let (a, b) = (pool.branch("a").unwrap(), pool.branch("b").unwrap());
    for branch in [&a, &b] {
        branch.write_at(0, &content(1, 0)).unwrap();
        branch.flush().unwrap();
    }
    let held = pool.open.lock()["a"].clone();
    let flush = held.flush.lock();
    let state = pool.shared.state.lock();
    let zone = held.map().find(0).unwrap().place() / crate::disk::format::ZONE_PLACES;
    thread::scope(|scope| {
        let sibling = scope.spawn(|| {
            for block in 0..50 {
                b.write_at(block * UNIT as u64, &content(2, block)).unwrap();
                b.flush().unwrap();
                let mut bytes = vec![0; UNIT];
                b.read_at(block * UNIT as u64, &mut bytes).unwrap();
                assert_eq!(bytes, content(2, block));
            }
        });
        vfscale_harness::wait_until("the sibling ends", || sibling.is_finished());
    });
    drop((state, flush));
    let other =
        pool.open.lock()["b"].map().find(0).unwrap().place() / crate::disk::format::ZONE_PLACES;
    assert_ne!(zone, other);
}

/// Writes and reads the blocks of a thread until `stop`.
fn work(pool: &Pool, name: &str, thread: u64, seed: u64, stop: &AtomicBool) {
    let branch = loop {
        match pool.branch(name) {
            Ok(branch) => break branch,
            Err(Error::InUse(_)) => thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    let mut random = Random::new(seed);
    let mut model = [None; 100];
    let mut at = 0_usize;
    while !stop.load(Ordering::Relaxed) || at < 200 {
        at += 1;
        let index = random.below(100) as usize;
        let block = thread * 100 + index as u64;
        let offset = block * UNIT as u64;
        match random.below(8) {
            0 => branch.flush().unwrap(),
            1 => {
                branch.discard(offset, UNIT as u64).unwrap();
                model[index] = None;
            }
            2..5 => {
                let tag = 1 + random.below(250) as u8;
                if branch.write_at(offset, &content(tag, block)).is_ok() {
                    model[index] = Some(tag);
                } else {
                    // Full; a write may have been made in part.
                    branch.discard(offset, UNIT as u64).unwrap();
                    model[index] = None;
                }
            }
            _ => {
                let mut bytes = vec![0; UNIT];
                branch.read_at(offset, &mut bytes).unwrap();
                if let Some(tag) = model[index] {
                    assert!(bytes == content(tag, block), "{name} block {block}: {}", bytes[9]);
                }
            }
        }
    }
    branch.close().unwrap();
}

/// Race: Writers, flushes and forks of siblings in a pool with few places.
///
/// Each thread sees its own writes, and after all of them every place has one use.
#[test]
fn siblings_in_a_small_pool() {
    let seed = seed();
    for round in 0..6 {
        let device = Arc::new(MemoryDevice::new((700 + 200 * round) * UNIT as u64).unwrap());
        let pool = Pool::create(device, [1; 16]).unwrap();
        for name in ["a", "b", "c"] {
            pool.create_branch(name, BLOCKS * UNIT as u64).unwrap();
        }
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (pool, stop) = (&pool, &stop);
            for (thread, name) in ["a", "b", "c"].into_iter().enumerate() {
                scope.spawn(move || work(pool, name, thread as u64, seed + thread as u64, stop));
            }
            let mut random = Random::new(seed + round);
            for n in 0..40 {
                let (parent, name) = (random.one(&["a", "b", "c"]), format!("n{n}"));
                match pool.fork(parent, &name, false) {
                    Ok(()) => pool.delete(&name).unwrap(),
                    Err(Error::Full) => {}
                    Err(error) => panic!("{error}"),
                }
                pool.reap(20).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        while pool.reap(100).unwrap().more {}
        assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
    }
}

/// Race: Writers of one branch, of parts of one block.
///
/// The lock of a leaf is exclusive while a block gets a place, and shared by writers in place.
#[test]
fn parts_of_one_block() {
    let device = Arc::new(MemoryDevice::new(2000 * UNIT as u64).unwrap());
    let pool = Pool::create(device, [1; 16]).unwrap();
    pool.create_branch("a", BLOCKS * UNIT as u64).unwrap();
    let branch = pool.branch("a").unwrap();
    thread::scope(|scope| {
        for part in 0..4_u64 {
            let (branch, pool) = (&branch, &pool);
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let (block, tag) = (round % 5, (1 + round % 250) as u8);
                    let offset = block * UNIT as u64 + part * 1024;
                    branch.write_at(offset, &[tag; 1024]).unwrap();
                    let mut bytes = [0; 1024];
                    branch.read_at(offset, &mut bytes).unwrap();
                    assert_eq!(bytes, [tag; 1024]);
                    match part {
                        0 if round % 3 == 0 => branch.flush().unwrap(),
                        1 if round % 20 == 0 => {
                            pool.fork("a", &format!("n{round}"), true).unwrap();
                        }
                        _ => {}
                    }
                }
            });
        }
    });
    branch.close().unwrap();
    assert_eq!(pool.check().unwrap().problems, Vec::<String>::new());
}
