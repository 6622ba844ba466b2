use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Rcu, RcuOption, pin, synchronize};

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
    for round in 1..=50 {
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
fn what_is_handed_over_is_done_by_others() {
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
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let guard = pin();
                    let (value, inverse) = *rcu.read(&guard);
                    assert_eq!(value, !inverse);
                }
            });
        }
        for value in 1..20_000 {
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
