use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use super::{Guard, Rcu, RcuOption, pin, synchronize};
use crate::epoch::BAG_LEN;

/// A value that counts its drops.
struct Counted(Arc<AtomicUsize>, u32);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn synchronize_runs_what_was_deferred() {
    let ran = Arc::new(AtomicUsize::new(0));
    for round in 1..=if cfg!(miri) { 5 } else { 50 } {
        for _ in 0..round {
            let ran = Arc::clone(&ran);
            pin().defer(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        synchronize();
        assert_eq!(ran.swap(0, Ordering::Relaxed), round);
    }
}

/// Deferred work of an idle thread is run by other threads only if it was handed over.
#[test]
fn deferred_work_handed_over_is_run_by_other_threads() {
    let ran = Arc::new(AtomicUsize::new(0));
    let (tell, told) = std::sync::mpsc::channel::<bool>();
    let (done, is_done) = std::sync::mpsc::channel();
    let idle = {
        let ran = Arc::clone(&ran);
        std::thread::spawn(move || {
            pin().defer(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            let _ = done.send(());
            while told.recv() == Ok(true) {
                pin().hand_over();
                let _ = done.send(());
            }
        })
    };
    is_done.recv().unwrap();
    synchronize();
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    tell.send(true).unwrap();
    is_done.recv().unwrap();
    synchronize();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    drop(tell);
    idle.join().unwrap();
}

#[test]
fn a_guard_holds_the_old_value() {
    let drops = Arc::new(AtomicUsize::new(0));
    let rcu = Rcu::new(Counted(Arc::clone(&drops), 1));
    {
        let guard = pin();
        let old = rcu.read(&guard);
        rcu.replace(Counted(Arc::clone(&drops), 2), &guard);
        guard.flush();
        assert_eq!((old.1, rcu.read(&guard).1), (1, 2));
        assert_eq!(drops.load(Ordering::Relaxed), 0);
    }
    synchronize();
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(rcu);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

#[test]
fn options_are_installed_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let option = RcuOption::none();
    assert!(option.is_none());
    let guard = pin();
    assert!(option.read(&guard).is_none());
    assert_eq!(option.init(Counted(Arc::clone(&drops), 1), &guard).1, 1);
    assert_eq!(option.init(Counted(Arc::clone(&drops), 2), &guard).1, 1);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    option.replace(None, &guard);
    assert!(option.is_none());
    drop(guard);
    synchronize();
    assert_eq!(drops.load(Ordering::Relaxed), 2);
    drop(RcuOption::some(Counted(Arc::clone(&drops), 3)));
    assert_eq!(drops.load(Ordering::Relaxed), 3);
}

#[test]
fn readers_never_see_a_freed_value() {
    let rcu = Rcu::new((0_u64, !0_u64));
    let times = if cfg!(miri) { 100 } else { 20_000 };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..times {
                    let guard = pin();
                    let (value, inverse) = *rcu.read(&guard);
                    assert_eq!(value, !inverse);
                }
            });
        }
        for value in 1..times {
            rcu.replace((value, !value), &pin());
        }
    });
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "rcu::pin while holding")]
fn an_outermost_pin_under_a_lock_is_refused() {
    crate::lock_class! { Under = ("under", 1); }
    let lock = crate::Mutex::<(), Under>::new(());
    let _held = lock.lock();
    let _guard = pin();
}

/// Race: A long write against the end of grace periods.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "waiting for sleeps in an RCU section")]
fn a_wait_in_a_section_for_a_lock_whose_holders_sleep_is_refused() {
    crate::lock_class! { Sleeps = ("sleeps", 1) sleeping; }
    let lock = crate::Mutex::<(), Sleeps>::new(());
    let _guard = pin();
    drop(lock.try_lock().expect("a try does not wait"));
    drop(lock.lock());
}

#[test]
fn deferred_work_under_a_lock_whose_holders_sleep_takes_any_other() {
    crate::lock_class! {
        Below = ("below", 1);
        Sleeps = ("sleeps", 2) sleeping;
    }
    let below = std::sync::Arc::new(crate::Mutex::<u32, Below>::new(0));
    let lock = crate::Mutex::<(), Sleeps>::new(());
    let held = lock.lock();
    let guard = pin();
    let own = below.clone();
    guard.defer(move || *own.lock() += 1);
    drop(guard);
    while below.try_lock().is_none_or(|runs| *runs == 0) {
        pin().flush();
    }
    drop(held);
}

thread_local! {
    static KEPT: Cell<Option<Guard>> = const { Cell::new(None) };
}

/// Work that runs while a thread enters a section keeps a guard: the thread stays in the section
/// that began before the work, for as long as that guard lives.
///
/// Race: A thread that runs deferred work against the end of grace periods.
#[test]
fn a_guard_that_work_keeps_is_one_of_the_section_before() {
    let (kept, begun, over) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
    let (kept, begun) = (Arc::new(kept), Arc::new(begun));
    std::thread::scope(|scope| {
        let (own_kept, own_begun, over) = (kept.clone(), begun.clone(), &over);
        scope.spawn(move || {
            let guard = pin();
            guard.defer(move || {
                KEPT.set(Some(pin()));
                own_kept.wait();
                own_begun.wait();
            });
            // The bag is full, and nobody else runs it.
            (1..BAG_LEN).for_each(|_| guard.defer(|| ()));
            drop(guard);
            let has_guard = || {
                let guard = KEPT.take();
                let has = guard.is_some();
                KEPT.set(guard);
                has
            };
            while !has_guard() {
                drop(pin());
            }
            over.wait();
            drop(KEPT.take());
        });
        kept.wait();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        pin().defer(move || done.store(true, Ordering::Relaxed));
        let run_for = |millis| {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(millis)
                && !is_done.load(Ordering::Relaxed)
            {
                super::run_due();
                std::thread::yield_now();
            }
        };
        run_for(20);
        begun.wait();
        run_for(100);
        let was_done = is_done.load(Ordering::Relaxed);
        over.wait();
        assert!(!was_done, "a grace period has ended in spite of a guard");
        run_for(60_000);
        assert!(is_done.load(Ordering::Relaxed));
    });
}
