use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{ReaderParts, ShardedRwLock};
use crate::cpu;

crate::lock_class! {
    Inodes = ("i_rwsem", 10);
}

type Lock = ShardedRwLock<Inodes>;

fn spread(slots: usize) -> (Lock, ReaderParts) {
    let (lock, parts) = (Lock::new(), ReaderParts::new());
    lock.write(&parts).spread(slots);
    (lock, parts)
}

/// Returns the number of changes of CPU until the lock is hot, each after `same` uses by one CPU;
/// at most `most`.
fn changes_until_hot(slots: usize, same: u32, most: u32) -> Option<u32> {
    let lock = Lock::new();
    (1..=most).find(|change| {
        let _there = cpu::pretend(change % 2);
        let hot = lock.note_cpu(slots);
        (0..same).for_each(|_| assert!(!lock.note_cpu(slots)));
        hot
    })
}

#[test]
fn a_lock_and_the_pointer_to_its_parts_are_a_word_each() {
    assert_eq!((size_of::<Lock>(), size_of::<ReaderParts>()), (8, 8));
}

#[test]
fn a_lock_that_was_not_spread_has_no_parts() {
    let (lock, parts) = (Lock::new(), ReaderParts::new());
    assert!(parts.get().is_none() && lock.read_in_part(&parts).is_none());
    drop(lock.read(&parts));
    drop(lock.write(&parts));
    assert!(parts.get().is_none());
}

#[test]
fn readers_of_different_cpus_do_not_meet() {
    let (lock, parts) = spread(3);
    let word = lock.heat.load(Ordering::Relaxed);
    let of_cpu = |number| {
        let _there = cpu::pretend(number);
        let part = std::ptr::from_ref(parts.join().unwrap()).addr();
        drop(lock.read(&parts));
        part
    };
    let lines = [0, 1, 2].map(of_cpu);
    assert!(lines.windows(2).all(|pair| pair[1] - pair[0] >= 128));
    assert_eq!(of_cpu(5), lines[2]);
    assert_eq!(lock.heat.load(Ordering::Relaxed), word);
}

#[test]
fn a_writer_closes_the_parts_until_they_are_opened_again() {
    let (lock, parts) = spread(2);
    assert!(lock.read_in_part(&parts).is_some());
    let write = lock.write(&parts);
    assert!(lock.read_in_part(&parts).is_none());
    drop(write);
    // In the word, as before.
    assert!(parts.get().is_some() && lock.read_in_part(&parts).is_none());
    drop(lock.read(&parts));
    lock.write(&parts).spread(2);
    assert!(lock.read_in_part(&parts).is_some());
}

#[test]
fn a_reader_in_any_part_keeps_a_writer_out() {
    for there in 0..3 {
        let (lock, parts) = spread(3);
        let inside = AtomicBool::new(true);
        let _there = cpu::pretend(there);
        let read = lock.read(&parts);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _write = lock.write(&parts);
                assert!(!inside.load(Ordering::Relaxed));
            });
            vfscale_harness::pause(Duration::from_millis(10));
            inside.store(false, Ordering::Relaxed);
            drop(read);
        });
    }
}

#[test]
fn a_guard_leaves_the_part_that_it_came_to() {
    let (lock, parts) = spread(4);
    let there = cpu::pretend(1);
    let read = lock.read(&parts);
    drop(there);
    let _elsewhere = cpu::pretend(3);
    drop(read);
    drop(lock.write(&parts));
}

#[test]
fn a_writer_that_tries_neither_waits_nor_closes_the_parts() {
    let (lock, parts) = spread(2);
    assert!(lock.try_write(&parts).is_none(), "the parts are open");
    drop(lock.read_in_part(&parts).unwrap());
    drop(lock.write(&parts));
    let alone = lock.try_write(&parts).unwrap();
    assert!(lock.try_write(&parts).is_none());
    drop(alone);
    let _reader = lock.read(&parts);
    assert!(lock.try_write(&parts).is_none());
}

#[test]
fn a_sharded_rwlock_of_one_cpu_never_gets_hot() {
    assert_eq!(changes_until_hot(2, 0, 100), Some(12));
    assert_eq!(changes_until_hot(32, 0, 100), Some(32));
    assert_eq!(changes_until_hot(2, 2, 100), Some(23));
    assert_eq!(changes_until_hot(2, 10, 10_000), None);
}

#[test]
fn waiting_readers_heat_a_sharded_rwlock_from_any_cpu() {
    let (lock, parts) = (Lock::new(), ReaderParts::new());
    let held = lock.write(&parts);
    assert!(!held.waited());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| lock.write(&parts).waited());
        vfscale_harness::pause(Duration::from_millis(10));
        let noted = (0..12).map(|_| held.note_wait(2));
        assert_eq!(noted.collect::<Vec<_>>(), (1..=12).map(|n| n == 12).collect::<Vec<_>>());
        drop(held);
        assert!(waits.join().unwrap());
    });
}

#[test]
fn stress_readers_see_whole_changes() {
    let (lock, parts) = spread(3);
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    let done = AtomicBool::new(false);
    let (lock, parts, pair, done) = (&lock, &parts, &pair, &done);
    std::thread::scope(|scope| {
        for cpu in 0..3 {
            scope.spawn(move || {
                let _there = cpu::pretend(cpu);
                while !done.load(Ordering::Relaxed) {
                    let _read = lock.read(parts);
                    let first = pair[0].load(Ordering::Relaxed);
                    assert_eq!(first, pair[1].load(Ordering::Relaxed));
                }
            });
        }
        let change = |round: u32| {
            let write = lock.write(parts);
            let value = pair[0].load(Ordering::Relaxed) + 1;
            pair[0].store(value, Ordering::Relaxed);
            std::thread::yield_now();
            pair[1].store(value, Ordering::Relaxed);
            if round.is_multiple_of(2) {
                write.spread(3);
            }
        };
        std::thread::scope(|writers| {
            for _ in 0..2 {
                writers.spawn(|| (0..500).for_each(change));
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(pair[0].load(Ordering::Relaxed), 1_000);
}
