use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::BrLock;
use crate::cpu;

crate::lock_class! { Mounts = ("vfsmount_lock", 10); }

#[test]
fn readers_of_different_slots_do_not_meet() {
    let lock = BrLock::<Mounts>::new(4);
    let words = |lock: &BrLock<Mounts>| -> Vec<usize> {
        lock.slots.iter().map(|slot| std::ptr::from_ref(&**slot).addr()).collect()
    };
    let lines = words(&lock);
    assert!(lines.windows(2).all(|pair| pair[1] - pair[0] >= 128));
    let _there = cpu::pretend(6);
    let read = lock.read();
    assert_eq!(std::ptr::from_ref(read.slot).addr(), lines[2]);
}

#[test]
fn a_reader_in_any_slot_keeps_a_writer_out() {
    for slots in [0, 1, 3] {
        let lock = BrLock::<Mounts>::new(slots);
        assert_eq!(lock.slots(), slots.max(1));
        let inside = AtomicBool::new(true);
        let _there = cpu::pretend(2);
        let read = lock.read();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _write = lock.write();
                assert!(!inside.load(Ordering::Relaxed));
            });
            vfscale_harness::pause(std::time::Duration::from_millis(10));
            inside.store(false, Ordering::Relaxed);
            drop(read);
        });
    }
}

#[test]
fn a_guard_releases_the_slot_it_took() {
    let lock = BrLock::<Mounts>::new(4);
    let there = cpu::pretend(1);
    let read = lock.read();
    drop(there);
    let _elsewhere = cpu::pretend(3);
    drop(read);
    drop(lock.write());
}

#[test]
fn a_writer_keeps_readers_out() {
    let lock = BrLock::<Mounts>::new(3);
    let write = lock.write();
    for cpu in 0..3 {
        let _there = cpu::pretend(cpu);
        assert!(lock.try_read().is_none());
    }
    drop(write);
    assert!(lock.try_read().is_some());
}

#[test]
fn stress_readers_see_whole_changes() {
    let lock = BrLock::<Mounts>::new(3);
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for cpu in 0..3 {
            let (lock, pair, done) = (&lock, &pair, &done);
            scope.spawn(move || {
                let _there = cpu::pretend(cpu);
                while !done.load(Ordering::Relaxed) {
                    let _read = lock.read();
                    let first = pair[0].load(Ordering::Relaxed);
                    assert_eq!(first, pair[1].load(Ordering::Relaxed));
                }
            });
        }
        let change = || {
            let _write = lock.write();
            let value = pair[0].load(Ordering::Relaxed) + 1;
            pair[0].store(value, Ordering::Relaxed);
            std::thread::yield_now();
            pair[1].store(value, Ordering::Relaxed);
        };
        std::thread::scope(|writers| {
            for _ in 0..2 {
                writers.spawn(|| (0..500).for_each(|_| change()));
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(pair[0].load(Ordering::Relaxed), 1_000);
}
