use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{COLLECTING, LOCKED, Lockref, PARKED, Put, SPREAD, SpreadPtr, count_of, unbiased};
use crate::{cpu, rcu};

/// A counted object, like a dentry.
struct Object {
    count: Lockref,
    spread: SpreadPtr,
}

impl Object {
    fn new(count: u32) -> Self {
        Self { count: Lockref::new(count), spread: SpreadPtr::new() }
    }

    fn get(&self) {
        self.count.get(&self.spread, &rcu::pin());
    }

    fn revive(&self) -> bool {
        self.count.get_not_dead(&self.spread, &rcu::pin())
    }

    fn get_not_zero(&self) -> bool {
        self.count.get_not_zero(&self.spread, &rcu::pin())
    }

    /// Puts; a last reference is dropped to 0. Returns `true` if it was the last.
    fn put(&self) -> bool {
        match self.count.put(&self.spread, &rcu::pin()) {
            Put::Last(mut guard) => {
                assert_eq!(guard.dec(), 0);
                true
            }
            Put::Done | Put::Contended => false,
        }
    }

    fn spread(&self, slots: usize) -> bool {
        Lockref::spread(&mut self.count.lock(), &self.spread, slots)
    }

    /// Finishes a collection that was begun before the last grace period.
    fn finish_collect(&self, guard: &rcu::Guard) -> Put<'_> {
        // SAFETY: the tests begin each collection before, and finish it once.
        unsafe { self.count.finish_collect(&self.spread, guard) }
    }

    /// Returns the number of all references, in the word and in parts, while none is taken or
    /// dropped.
    fn references(&self) -> i64 {
        let guard = rcu::pin();
        let word = self.count.word.load(Ordering::Acquire);
        if word & (SPREAD | COLLECTING) == 0 {
            return i64::from(count_of(word));
        }
        let parts = self.spread.block(&guard).unwrap_or(&[]);
        unbiased(word) + parts.iter().skip(1).map(|part| part.load(Ordering::Acquire)).sum::<i64>()
    }

    /// Collects, waiting for the grace period. Returns `true` if the spreading held the last
    /// reference.
    fn collect(&self) -> bool {
        let guard = rcu::pin();
        assert!(Lockref::begin_collect(&mut self.count.lock(), &self.spread, &guard));
        drop(guard);
        rcu::synchronize();
        match self.finish_collect(&rcu::pin()) {
            Put::Last(mut guard) => {
                assert_eq!(guard.dec(), 0);
                true
            }
            Put::Done => false,
            Put::Contended => panic!("a collection is no contention"),
        }
    }
}

#[test]
fn the_last_put_comes_with_the_lock() {
    let object = Object::new(2);
    object.get();
    assert_eq!(object.count.count(), 3);
    assert!(!object.put());
    assert!(!object.put());
    let guard = rcu::pin();
    let Put::Last(mut last) = object.count.put(&object.spread, &guard) else {
        panic!("one reference is the last one")
    };
    assert_eq!(last.count(), 1);
    assert!(object.count.try_lock().is_none());
    assert_eq!(last.dec(), 0);
    drop(last);
    assert!(!object.get_not_zero());
    assert!(object.revive());
    assert!(object.get_not_zero());
    assert_eq!(object.count.count(), 2);
}

#[test]
fn the_dead_stay_dead() {
    let object = Object::new(1);
    let guard = rcu::pin();
    let Put::Last(mut last) = object.count.put(&object.spread, &guard) else {
        panic!("one reference is the last one")
    };
    last.mark_dead();
    assert_eq!(last.dec(), 0);
    assert!(last.is_dead());
    drop(last);
    assert!(object.count.is_dead());
    assert!(!object.revive());
    assert!(!object.get_not_zero());
    assert_eq!(object.count.count(), 0);
}

#[test]
fn bouncing_is_reported_and_staying_is_not() {
    let object = Object::new(1);
    let guard = rcu::pin();
    let turn = |cpu| {
        let _there = cpu::pretend(cpu);
        object.count.get(&object.spread, &guard);
        matches!(object.count.put(&object.spread, &guard), Put::Contended)
    };
    assert!(!(0..1_000).any(|_| turn(5)), "one CPU alone is no contention");
    let first = (0..1_000).position(|round| turn(round % 2)).unwrap();
    assert!((8..40).contains(&first), "reported after {first} rounds");
    // Reporting cools the word down: the next report takes as long.
    assert!((8..40).contains(&(0..1_000).position(|round| turn(round % 2)).unwrap()));
    // Ten operations at a time are no bouncing.
    assert!(!(0..1_000).any(|round| (0..5).any(|_| turn(round % 2))));
    assert_eq!(object.count.count(), 1);
}

#[test]
fn a_spread_count_is_collected_exactly() {
    let object = Object::new(3);
    assert!(object.spread(4));
    assert!(!object.spread(4), "it is spread already");
    assert!(object.count.is_spread());
    for cpu in 0..6 {
        let _there = cpu::pretend(cpu);
        object.get();
    }
    {
        // More puts on one CPU than gets: its part becomes negative.
        let _there = cpu::pretend(2);
        for _ in 0..5 {
            assert!(!object.put());
        }
    }
    assert_eq!(object.references(), 4);
    assert!(!object.collect());
    assert!(!object.count.is_spread());
    assert_eq!(object.count.count(), 4);
    assert!(!object.put() && !object.put() && !object.put() && object.put());
}

#[test]
fn references_may_be_put_on_the_other_side() {
    let object = Object::new(1);
    assert!(object.spread(2));
    for _ in 0..100 {
        object.get();
    }
    let guard = rcu::pin();
    assert!(Lockref::begin_collect(&mut object.count.lock(), &object.spread, &guard));
    assert!(!Lockref::begin_collect(&mut object.count.lock(), &object.spread, &guard));
    drop(guard);
    // Collecting: the word alone is far below the bias, and no put is the last.
    for _ in 0..101 {
        assert!(!object.put());
    }
    assert!(!object.spread(2), "not before the sum");
    assert_eq!(object.references(), 0);
    assert!(object.get_not_zero(), "the spreading is a reference");
    assert!(!object.put());
    rcu::synchronize();
    let guard = rcu::pin();
    let Put::Last(mut last) = object.finish_collect(&guard) else {
        panic!("only the spreading's reference is left")
    };
    assert_eq!((last.count(), last.is_biased()), (1, false));
    last.mark_dead();
    assert_eq!(last.dec(), 0);
}

#[test]
fn collecting_finds_the_last_reference_gone() {
    let object = Object::new(1);
    assert!(object.spread(3));
    assert!(!object.put(), "while spread nothing is the last");
    assert!(object.collect());
    assert_eq!(object.count.count(), 0);
    // The count can be spread again, with new parts.
    assert!(object.revive() && object.spread(3) && !object.collect());
    assert_eq!(object.count.count(), 1);
}

#[test]
fn spreading_and_collecting_under_one_guard() {
    let object = Object::new(1);
    let rcu = rcu::pin();
    let mut guard = object.count.lock();
    assert!(Lockref::spread(&mut guard, &object.spread, 2));
    assert!(Lockref::begin_collect(&mut guard, &object.spread, &rcu));
    drop(guard);
    assert!(!object.count.is_spread());
    drop(rcu);
    rcu::synchronize();
    assert!(matches!(object.finish_collect(&rcu::pin()), Put::Done));
    assert_eq!(object.count.count(), 1);
}

#[test]
fn a_collection_takes_effect_before_the_guard_is_dropped() {
    let object = Object::new(1);
    assert!(object.spread(2));
    let rcu = rcu::pin();
    let mut guard = object.count.lock();
    assert!(Lockref::begin_collect(&mut guard, &object.spread, &rcu));
    // Work deferred from here on must find no new thread on the parts.
    assert!(!object.count.is_spread());
    assert_eq!(guard.count(), object.count.count());
    drop(guard);
    drop(rcu);
    rcu::synchronize();
    assert!(matches!(object.finish_collect(&rcu::pin()), Put::Done));
}

#[test]
fn a_spread_object_can_be_marked_dead() {
    let object = Object::new(1);
    assert!(object.spread(2));
    object.count.lock().mark_dead();
    assert!(!object.revive());
    object.get();
    assert!(!object.put() && !object.put());
    assert!(object.collect());
    assert!(object.count.is_dead());
}

#[test]
fn an_object_may_be_freed_while_spread() {
    let object = Object::new(1);
    assert!(object.spread(8));
    drop(object);
}

#[test]
fn the_lock_excludes_and_wakes_sleepers() {
    let object = Object::new(1);
    let value = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..5_000_u64 {
                    let mut guard = object.count.lock();
                    let seen = value.load(Ordering::Relaxed);
                    if round % 1_000 == 0 {
                        vfscale_harness::pause(Duration::from_millis(1));
                    }
                    value.store(seen + 1, Ordering::Relaxed);
                    guard.inc();
                    drop(guard);
                    assert!(!object.put());
                }
            });
        }
    });
    assert_eq!(value.load(Ordering::Relaxed), 20_000);
    assert_eq!(object.count.count(), 1);
}

/// Threads on pretended CPUs get and put while the count spreads and is collected by deferred work
/// under them. The object must neither die early nor leak.
#[test]
fn stress_gets_and_puts_across_spreading() {
    let object = Arc::new(Object::new(1));
    let stop = AtomicBool::new(false);
    let held = AtomicI64::new(0);
    let collected = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for cpu in 0..3 {
            let (object, stop, held) = (&object, &stop, &held);
            scope.spawn(move || {
                let mut mine = 0_i64;
                let mut round = cpu;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let _there = cpu::pretend(round % 5);
                    if mine < 1 || round % 3 == 0 && mine < 50 {
                        assert!(object.get_not_zero(), "the first reference still exists");
                        mine += 1;
                    } else {
                        assert!(!object.put(), "the first reference still exists");
                        mine -= 1;
                    }
                }
                held.fetch_add(mine, Ordering::Relaxed);
            });
        }
        // On a loaded machine grace periods take long: continue until some collections happened.
        let start = Instant::now();
        let few = || collected.load(Ordering::Relaxed) <= 10;
        let enough = Duration::from_millis(700);
        while start.elapsed() < enough || (few() && start.elapsed() < Duration::from_secs(60)) {
            let guard = rcu::pin();
            let mut locked = object.count.lock();
            if !Lockref::spread(&mut locked, &object.spread, 4)
                && Lockref::begin_collect(&mut locked, &object.spread, &guard)
            {
                let (object, collected) = (Arc::clone(&object), Arc::clone(&collected));
                guard.defer(move || {
                    let done = object.finish_collect(&rcu::pin());
                    assert!(matches!(done, Put::Done));
                    collected.fetch_add(1, Ordering::Relaxed);
                });
            }
            drop(locked);
            guard.flush();
            drop(guard);
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    rcu::synchronize();
    let expected = held.load(Ordering::Relaxed) + 1;
    assert_eq!(object.references(), expected);
    assert!(collected.load(Ordering::Relaxed) > 10, "hardly ever collected");
}

/// A get while the lock is held does not retry its exchange: after the spin the thread sleeps, and
/// the holder's release wakes it.
#[test]
fn gets_and_puts_behind_a_holder_sleep() {
    for locked_only in [false, true] {
        for puts in [false, true] {
            let count = Lockref::with_locked_changes(3, locked_only);
            let spread = SpreadPtr::new();
            let held = count.lock();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| {
                    let guard = rcu::pin();
                    if puts {
                        assert!(matches!(count.put(&spread, &guard), Put::Done));
                    } else {
                        count.get(&spread, &guard);
                    }
                });
                while count.word.load(Ordering::Relaxed) & PARKED == 0 {
                    assert!(!waiting.is_finished(), "it did not wait");
                    std::thread::yield_now();
                }
                assert_eq!(held.count(), 3);
                drop(held);
                waiting.join().unwrap();
            });
            assert_eq!(count.count(), if puts { 2 } else { 4 });
            assert_eq!(count.word.load(Ordering::Relaxed) & (LOCKED | PARKED), 0);
        }
    }
}

/// A count that changes under the lock only has the same meaning; fast paths refuse it.
#[test]
fn a_count_with_locked_changes_is_a_count() {
    let (count, spread) = (Lockref::with_locked_changes(1, true), SpreadPtr::new());
    let guard = rcu::pin();
    // A put never reports contention, however often the word bounces, since the count can't be
    // spread.
    for round in 0..1_000 {
        let _there = cpu::pretend(round % 2);
        assert!(count.get_not_zero(&spread, &guard) && !count.put_simple());
        assert!(matches!(count.put(&spread, &guard), Put::Done));
    }
    assert!(!count.is_spread() && !count.mark_dead_if_last());
    let Put::Last(mut last) = count.put(&spread, &guard) else { panic!("it was the last") };
    last.mark_dead();
    last.dec();
    drop(last);
    assert!(!count.get_not_zero(&spread, &guard) && !count.get_not_dead(&spread, &guard));
    assert_eq!((count.count(), count.is_dead()), (0, true));
}

#[test]
fn stress_locked_changes_find_the_last_once() {
    const ROUNDS: u32 = 20_000;
    let (count, spread) = (Lockref::with_locked_changes(1, true), SpreadPtr::new());
    let lasts = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let guard = rcu::pin();
                for _ in 0..ROUNDS {
                    count.get(&spread, &guard);
                    assert!(matches!(count.put(&spread, &guard), Put::Done));
                }
            });
        }
    });
    std::thread::scope(|scope| {
        let guard = rcu::pin();
        count.get(&spread, &guard);
        for _ in 0..2 {
            scope.spawn(|| {
                let guard = rcu::pin();
                if let Put::Last(mut last) = count.put(&spread, &guard) {
                    last.mark_dead();
                    lasts.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!((lasts.into_inner(), count.count()), (1, 1));
}

/// Only leaks bring a count to its limit. There it stays, so no object in use is freed; the process
/// goes on.
#[test]
fn a_count_at_its_limit_stays_there() {
    const LIMIT: u32 = 3 << 30;
    for locked_only in [false, true] {
        let count = Lockref::with_locked_changes(LIMIT - 2, locked_only);
        let object = Object { count, spread: SpreadPtr::new() };
        object.get();
        object.put();
        assert_eq!(object.count.count(), LIMIT - 2, "it is exact below the limit");
        (0..4).for_each(|_| object.get());
        (0..100).for_each(|_| assert!(!object.put()));
        assert!(!object.count.put_simple() && !object.count.mark_dead_if_last());
        assert_eq!(object.count.count(), LIMIT);
        assert!(object.get_not_zero() && object.revive());
        let mut lock = object.count.lock();
        assert!(!Lockref::spread(&mut lock, &object.spread, 2));
        lock.inc();
        assert_eq!(lock.dec(), LIMIT);
    }
}

/// A count that is saturated while it is collected stays so, whatever its parts are.
#[test]
fn a_collection_keeps_a_saturated_count() {
    const SPREAD_MAX: u32 = (1 << 30) - 1;
    let object = Object::new(SPREAD_MAX);
    let guard = rcu::pin();
    assert!(Lockref::spread(&mut object.count.lock(), &object.spread, 2));
    object.put();
    object.put();
    assert!(Lockref::begin_collect(&mut object.count.lock(), &object.spread, &guard));
    object.get();
    object.get();
    assert_eq!(object.count.count(), 3 << 30);
    // SAFETY: no other thread uses it.
    let put = unsafe { object.count.finish_collect(&object.spread, &guard) };
    assert!(matches!(put, Put::Done));
    assert_eq!(object.count.count(), 3 << 30);
    assert!(!object.put());
    assert_eq!(object.count.count(), 3 << 30);
}
