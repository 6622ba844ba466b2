use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{Mutex, RwLock};

crate::lock_class! {
    Low = ("low", 10);
    High = ("high", 20);
}

#[test]
fn locks_are_one_word() {
    assert_eq!(size_of::<Mutex<(), Low>>(), 4);
    assert_eq!(size_of::<RwLock<(), Low>>(), 4);
    assert_eq!(size_of::<Mutex<u32, Low>>(), 8);
}

#[test]
fn mutex_excludes() {
    let lock = Mutex::<u64, Low>::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..20_000 {
                    let mut value = lock.lock();
                    let seen = *value;
                    if round % 4_000 == 0 {
                        // Long enough for the others to fall asleep.
                        vfscale_harness::pause(Duration::from_millis(1));
                    }
                    *value = seen + 1;
                }
            });
        }
    });
    assert_eq!(lock.into_inner(), 80_000);
}

#[test]
fn try_lock_refuses_a_held_lock() {
    let lock = Mutex::<u8, Low>::new(1);
    let held = lock.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_lock().is_none()));
    });
    drop(held);
    assert!(lock.try_lock().is_some());
}

#[test]
fn a_panic_releases_the_lock() {
    let lock = Mutex::<u8, Low>::new(1);
    std::thread::scope(|scope| {
        let died = scope.spawn(|| {
            let _held = lock.lock();
            panic!("on purpose");
        });
        assert!(died.join().is_err());
    });
    assert!(lock.try_lock().is_some());
}

#[test]
fn rwlock_readers_share_and_writers_exclude() {
    let lock = RwLock::<(u64, u64), Low>::new((0, 0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..10_000 {
                    if round % 4 == 0 {
                        let mut pair = lock.write();
                        pair.0 += 1;
                        if round % 2_000 == 0 {
                            vfscale_harness::pause(Duration::from_millis(1));
                        }
                        pair.1 += 1;
                    } else {
                        let pair = lock.read();
                        assert_eq!(pair.0, pair.1);
                        if round % 2_001 == 0 {
                            vfscale_harness::pause(Duration::from_millis(1));
                        }
                    }
                }
            });
        }
    });
    assert_eq!(*lock.read(), (7_500, 7_500));
}

#[test]
fn rwlock_try_variants() {
    let lock = RwLock::<u8, Low>::new(1);
    let read = lock.read();
    assert!(lock.try_read().is_some());
    assert!(lock.try_write().is_none());
    drop(read);
    let write = lock.write();
    assert!(lock.try_read().is_none());
    assert!(lock.try_write().is_none());
    drop(write);
    assert!(lock.try_write().is_some());
}

#[test]
fn a_waiting_writer_stops_new_readers() {
    let lock = RwLock::<(), Low>::new(());
    let first = lock.read();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(lock.write()));
        // The writer is waiting as soon as new readers are refused.
        let deadline = Instant::now() + Duration::from_secs(20);
        while lock.try_read().is_some() {
            assert!(Instant::now() < deadline, "the writer never stopped readers");
            std::thread::yield_now();
        }
        drop(first);
    });
    assert!(lock.try_read().is_some());
}

#[test]
fn writers_do_not_starve() {
    let lock = RwLock::<(), Low>::new(());
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _inside = lock.read();
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..200 {
            drop(lock.write());
        }
        while reads.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn ascending_ranks_are_fine() {
    let (low, high) = (Mutex::<(), Low>::new(()), Mutex::<(), High>::new(()));
    for _ in 0..2 {
        let first = low.lock();
        let second = high.lock();
        // Out of order release is allowed.
        drop(first);
        drop(second);
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "taking low (rank 10) while holding high (rank 20)")]
fn descending_ranks_panic() {
    let (low, high) = (RwLock::<(), Low>::new(()), Mutex::<(), High>::new(()));
    let _high = high.lock();
    let _low = low.read();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "taking low (rank 10) while holding low (rank 10)")]
fn equal_ranks_panic() {
    let (a, b) = (Mutex::<(), Low>::new(()), Mutex::<(), Low>::new(()));
    let _a = a.lock();
    let _b = b.lock();
}

#[test]
fn a_held_lock_is_known_to_its_thread() {
    let (low, high) = (Mutex::<(), Low>::new(()), RwLock::<(), High>::new(()));
    let (_low, _high) = (low.lock(), high.read());
    super::assert_held::<Low>();
    super::assert_held::<High>();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "low is not held")]
fn a_released_lock_is_not_held() {
    let (low, high) = (Mutex::<(), Low>::new(()), Mutex::<(), High>::new(()));
    let _high = high.lock();
    drop(low.try_lock());
    super::assert_held::<Low>();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "low is not held")]
fn a_lock_of_another_thread_is_not_held() {
    let low = Mutex::<(), Low>::new(());
    let held = low.lock();
    let asked = std::thread::scope(|scope| scope.spawn(super::assert_held::<Low>).join());
    drop(held);
    std::panic::resume_unwind(asked.unwrap_err());
}

#[test]
fn nested_equal_ranks_are_fine() {
    let (a, b) = (Mutex::<(), Low>::new(()), RwLock::<(), Low>::new(()));
    let _a = a.lock();
    let _b = b.write_nested();
}

crate::lock_class! {
    Waited = ("waited", 7);
}

#[test]
fn a_condition_is_waited_for() {
    let (state, changed) = (Mutex::<u32, Waited>::new(0), crate::Condvar::new());
    std::thread::scope(|scope| {
        let waits = [1, 2, 3].map(|goal| {
            let (state, changed) = (&state, &changed);
            scope.spawn(move || *changed.wait_while(state.lock(), |now| *now < goal))
        });
        for _ in 0..3 {
            *state.lock() += 1;
            changed.notify_all();
        }
        for (goal, wait) in (1..).zip(waits) {
            assert!(wait.join().unwrap() >= goal);
        }
    });
}

#[test]
fn a_wait_ends_when_its_time_is_up() {
    let (state, changed) = (Mutex::<u32, Waited>::new(0), crate::Condvar::new());
    let (guard, timed_out) = changed.wait_for(state.lock(), std::time::Duration::from_millis(2));
    assert!(timed_out && *guard == 0);
}
