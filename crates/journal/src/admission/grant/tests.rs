#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicUsize, Ordering as Std};
use std::thread;
use std::time::{Duration, Instant};

use vfscale_sync::cpu;

use super::*;

/// Waits for a change by another thread.
fn until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(20), "the change never happened");
        thread::yield_now();
    }
}

fn take(grant: &Grant, bytes: u64) {
    grant.take(cpu::current(), bytes, ReserveKind::New, || {}).unwrap();
}

#[test]
fn a_waiter_gets_what_lies_in_the_batches_of_other_cpus() {
    let grant = Grant::new(8000, 8);
    // Each CPU has taken a little, and holds a batch.
    for cpu in 0..8 {
        let _here = cpu::pretend(cpu);
        take(&grant, 10);
    }
    let parts = 8000 - grant.budget.used();
    assert_eq!(parts, 7920);
    // All of it, from one CPU, without any bytes being returned.
    take(&grant, 7920);
    assert_eq!(grant.used(), 8000);
    grant.give(cpu::current(), 8000);
    assert_eq!(grant.used(), 0);
}

/// Race: Waiting for log space against space that is returned.
#[test]
fn a_waiter_is_served_by_what_is_given_back_on_any_cpu() {
    let grant = Grant::new(1000, 4);
    take(&grant, 1000);
    thread::scope(|scope| {
        let waits =
            scope.spawn(|| grant.take(cpu::current(), 900, ReserveKind::New, || {}).is_ok());
        until(|| grant.has_waiters());
        for cpu in 0..4 {
            let _here = cpu::pretend(cpu);
            assert!(!waits.is_finished());
            grant.give(cpu::current(), 240);
        }
        assert!(waits.join().unwrap());
    });
    assert_eq!((grant.used(), grant.waits()), (940, 1));
    grant.give(cpu::current(), 940);
    take(&grant, 1000);
    assert_eq!(grant.waits(), 1, "nothing to wait for");
}

#[test]
fn waiters_are_served_in_the_order_of_coming() {
    let grant = Grant::new(1000, 4);
    take(&grant, 1000);
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        // The first needs the most; the last could be served soon.
        for (name, bytes) in [(1, 800), (2, 500), (3, 1)] {
            let (grant, order) = (&grant, &order);
            scope.spawn(move || {
                grant.take(cpu::current(), bytes, ReserveKind::New, || {}).unwrap();
                order.lock().unwrap().push(name);
                grant.give(cpu::current(), bytes);
            });
            until(|| grant.waiting.load(Std::SeqCst) == name);
        }
        grant.give(cpu::current(), 700);
        vfscale_harness::stays("the waiter is not overtaken", Duration::from_millis(5), || {
            order.lock().unwrap().is_empty()
        });
        grant.give(cpu::current(), 300);
    });
    assert_eq!(order.lock().unwrap()[0], 1);
    assert_eq!(grant.used(), 0);
}

/// No reservation uses the fast path past a waiter, however small it is.
#[test]
fn a_reservation_overtakes_no_waiter() {
    let grant = Grant::new(1000, 1);
    take(&grant, 500);
    thread::scope(|scope| {
        scope.spawn(|| grant.take(cpu::current(), 900, ReserveKind::New, || {}).unwrap());
        until(|| grant.has_waiters());
        let late = scope.spawn(|| grant.take(cpu::current(), 1, ReserveKind::New, || {}).unwrap());
        until(|| grant.waiting.load(Std::SeqCst) == 2);
        assert!(!late.is_finished());
        grant.give(cpu::current(), 500);
    });
    assert_eq!(grant.used(), 901);
}

#[test]
fn a_rolling_transaction_goes_first() {
    let grant = Grant::new(1000, 2);
    take(&grant, 1000);
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (count, kind) in [(1, ReserveKind::New), (2, ReserveKind::Regrant)] {
            let (grant, order) = (&grant, &order);
            scope.spawn(move || {
                grant.take(cpu::current(), 600, kind, || {}).unwrap();
                order.lock().unwrap().push(kind);
                grant.give(cpu::current(), 600);
            });
            until(|| grant.waiting.load(Std::SeqCst) == count);
        }
        grant.give(cpu::current(), 1000);
    });
    assert_eq!(order.lock().unwrap()[0], ReserveKind::Regrant);
}

#[test]
fn shutting_down_wakes_everybody() {
    let grant = Grant::new(100, 2);
    take(&grant, 100);
    let pushes = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waits = [ReserveKind::New, ReserveKind::Regrant].map(|kind| {
            let (grant, pushes) = (&grant, &pushes);
            let push = move || {
                pushes.fetch_add(1, Std::Relaxed);
            };
            scope.spawn(move || grant.take(cpu::current(), 1, kind, push))
        });
        until(|| grant.waiting.load(Std::SeqCst) == 2 && pushes.load(Std::Relaxed) >= 2);
        grant.shut();
        for wait in waits {
            assert!(wait.join().unwrap().is_err());
        }
    });
    assert!(!grant.has_waiters());
    assert!(grant.take(cpu::current(), 1, ReserveKind::New, || {}).is_err());
}

/// Race: Waiting for log space against a push that can't free any.
#[test]
fn waiters_that_have_not_begun_are_refused_and_come_again() {
    let grant = &Grant::new(1000, 4);
    take(grant, 1000);
    assert!(grant.refuse(), "nobody waits");
    thread::scope(|scope| {
        let waits = [ReserveKind::New, ReserveKind::Regrant]
            .map(|kind| scope.spawn(move || grant.take(cpu::current(), 10, kind, || {})));
        until(|| grant.waits() == 2);
        assert!(!grant.refuse(), "one goes on waiting");
        let [new, regrant] = waits;
        assert!(matches!(new.join().unwrap(), Err(Unserved::Refused)));
        assert!(grant.has_waiters() && !regrant.is_finished());
        grant.give(cpu::current(), 1000);
        assert!(regrant.join().unwrap().is_ok());
    });
    take(grant, 990);
    assert_eq!((grant.used(), grant.has_waiters()), (1000, false));
}

/// Race: Waiting for log space against space that is returned.
#[test]
fn the_sum_is_exact_under_stress() {
    let grant = Grant::new(3000, 4);
    thread::scope(|scope| {
        for cpu in 0..4 {
            let grant = &grant;
            scope.spawn(move || {
                for round in 0..2000_u32 {
                    let _here = cpu::pretend((cpu + round / 100) % 4);
                    let bytes = u64::from(round % 1400) + 1;
                    take(grant, bytes);
                    grant.give(cpu::current(), bytes / 2);
                    grant.give(cpu::current(), bytes - bytes / 2);
                }
            });
        }
    });
    assert_eq!(grant.used(), 0);
    assert!(!grant.has_waiters());
}
