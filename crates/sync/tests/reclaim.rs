//! Long work and deferred work on the reclaim thread. A process of its own, in which no other
//! thread is in an RCU section.

#![cfg(not(any(loom, shuttle, miri)))]
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use vfscale_harness::alone;
use vfscale_sync::rcu;
use vfscale_sync::reclaim::{self, Work};
use vfscale_sync::slab::Slab;

fn threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("vfscale-reclaim")).count()
}

struct Steps {
    left: usize,
    on: Arc<Mutex<Vec<ThreadId>>>,
    deferred: Arc<AtomicUsize>,
}

impl Work for Steps {
    fn step(&mut self) -> bool {
        self.on.lock().unwrap().push(thread::current().id());
        let deferred = Arc::clone(&self.deferred);
        rcu::pin().defer(move || {
            deferred.fetch_add(1, Ordering::Relaxed);
        });
        self.left -= 1;
        self.left > 0
    }
}

/// Work that continues until it is stopped.
struct Endless(Arc<AtomicBool>);

impl Work for Endless {
    fn step(&mut self) -> bool {
        vfscale_harness::pause(Duration::from_millis(1));
        self.0.load(Ordering::Relaxed)
    }
}

fn steps(count: usize) -> (Box<Steps>, Arc<Mutex<Vec<ThreadId>>>, Arc<AtomicUsize>) {
    let (on, deferred) = (Arc::default(), Arc::default());
    let work = Steps { left: count, on: Arc::clone(&on), deferred: Arc::clone(&deferred) };
    (Box::new(work), on, deferred)
}

#[test]
fn work_is_done_by_another_thread_and_what_it_defers_too() {
    let _one = alone();
    let (work, on, deferred) = steps(100);
    assert!(reclaim::submit(1, work).is_ok());
    reclaim::wait_for(1);
    assert_eq!(deferred.load(Ordering::Relaxed), 100);
    let on = on.lock().unwrap();
    assert_eq!(on.len(), 100);
    assert!(on.iter().all(|id| *id != thread::current().id()));
}

/// A thread that is in a section when work is submitted may see the objects that the work takes
/// down.
///
/// Race: The end of a superblock against walks and other calls.
#[test]
fn work_waits_for_sections_that_began_before() {
    let _one = alone();
    let guard = rcu::pin();
    let (work, on, _) = steps(1);
    assert!(reclaim::submit(2, work).is_ok());
    vfscale_harness::pause(Duration::from_millis(100));
    assert_eq!(on.lock().unwrap().len(), 0);
    drop(guard);
    reclaim::wait_for(2);
    assert_eq!(on.lock().unwrap().len(), 1);
}

#[test]
fn reclaim_runs_awaited_work_first() {
    let _one = alone();
    let guard = rcu::pin();
    let (first, on_first, _) = steps(1);
    let goes_on = Arc::new(AtomicBool::new(true));
    let second = Box::new(Endless(Arc::clone(&goes_on)));
    let (third, on_third, _) = steps(1);
    assert!(reclaim::submit(3, first).is_ok());
    assert!(reclaim::submit(4, second).is_ok());
    assert!(reclaim::submit(5, third).is_ok());
    let waits = thread::spawn(|| reclaim::wait_for(5));
    // The first one has begun, and waits for this section.
    vfscale_harness::pause(Duration::from_millis(50));
    drop(guard);
    vfscale_harness::wait_until("the third", || on_third.lock().unwrap().len() == 1);
    waits.join().unwrap();
    assert_eq!(on_first.lock().unwrap().len(), 1);
    goes_on.store(false, Ordering::Relaxed);
    reclaim::wait_for(4);
}

struct Panics;

impl Work for Panics {
    fn step(&mut self) -> bool {
        panic!("as it is meant to");
    }
}

#[test]
fn work_that_panics_keeps_nobody_waiting() {
    let _one = alone();
    assert!(reclaim::submit(7, Box::new(Panics)).is_ok());
    reclaim::wait_for(7);
    let (work, on, _) = steps(1);
    assert!(reclaim::submit(8, work).is_ok());
    reclaim::wait_for(8);
    assert_eq!(on.lock().unwrap().len(), 1);
}

#[test]
fn the_reclaim_thread_runs_what_it_was_handed_and_ends() {
    let _one = alone();
    let ran = Arc::new(AtomicUsize::new(0));
    let guard = rcu::pin();
    for _ in 0..100_000 {
        let ran = Arc::clone(&ran);
        guard.defer(move || {
            ran.fetch_add(1, Ordering::Relaxed);
        });
    }
    guard.hand_over();
    reclaim::attend();
    // Longer than the idle thread lives: work delayed by a section counts as work.
    vfscale_harness::pause(Duration::from_millis(1500));
    assert_eq!((ran.load(Ordering::Relaxed), threads()), (0, 1));
    drop(guard);
    vfscale_harness::wait_until("all of it has run", || ran.load(Ordering::Relaxed) == 100_000);
    vfscale_harness::wait_until("the thread has ended", || threads() == 0);
    let (work, on, _) = steps(1);
    assert!(reclaim::submit(6, work).is_ok());
    reclaim::wait_for(6);
    assert_eq!(on.lock().unwrap().len(), 1);
}

/// A thread that defers much and then goes idle leaves less than two bags of 64 calls.
///
/// Race: Deferred work against a program that becomes idle.
///
/// Deferred work runs in calls. The last deferred work of a program used to wait until its next
/// call, unless it freed much data: after a reader was in a section while a million empty files
/// were removed, all of them stayed in the queue. Now each thread wakes the reclaim thread once per
/// 64 calls that it defers (`crates/sync/src/rcu.rs`, `on_bag`). While the reclaim thread is awake
/// that costs one load of a line that is rarely written. Fewer than 128 calls of each thread may
/// still wait in an idle program: those that the thread deferred since it last woke the reclaim
/// thread. Both tests failed before.
#[test]
fn full_bags_are_done_while_nobody_calls_and_then_the_thread_ends() {
    const CALLS: usize = 100_000;
    let _one = alone();
    vfscale_harness::wait_until("no thread", || threads() == 0);
    drop(Slab::<u64>::new(1));
    let ran = Arc::new(AtomicUsize::new(0));
    let guard = rcu::pin();
    for _ in 0..CALLS {
        let ran = Arc::clone(&ran);
        guard.defer(move || {
            ran.fetch_add(1, Ordering::Relaxed);
        });
    }
    drop(guard);
    vfscale_harness::wait_until("all bags have run", || ran.load(Ordering::Relaxed) > CALLS - 128);
    vfscale_harness::wait_until("the thread has ended", || threads() == 0);
    assert!(ran.load(Ordering::Relaxed) <= CALLS);
}
