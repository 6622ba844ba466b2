//! Panics in deferred work, as destructors of drivers may cause. A process of its own, in which
//! only these tests defer work.

#![cfg(not(any(loom, shuttle, miri)))]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use vfscale_sync::slab::Slab;
use vfscale_sync::{rcu, reclaim};

/// Far more time than anything here takes.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs `f` on another thread, and returns whether it returns in good time.
fn returns(f: impl FnOnce() + Send + 'static) -> bool {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    is_done.recv_timeout(LIMIT).is_ok()
}

/// Repeats `step` until `ran` calls have run.
fn until(ran: &AtomicUsize, calls: usize, step: impl Fn()) {
    let all_ran = vfscale_harness::comes(LIMIT, || {
        step();
        ran.load(Ordering::Relaxed) >= calls
    });
    assert!(all_ran, "of {calls} calls ran {ran:?}");
}

/// Defers more than a bag of calls, of which an early one panics. Returns the number that have run.
fn defer_a_panic(guard: &rcu::Guard) -> Arc<AtomicUsize> {
    let ran = Arc::new(AtomicUsize::new(0));
    for n in 0..200 {
        let ran = Arc::clone(&ran);
        guard.defer(move || {
            ran.fetch_add(1, Ordering::Relaxed);
            assert!(n != 3, "a destructor");
        });
    }
    ran
}

/// Race: A thread that runs a deferred call which panics against the end of grace periods.
#[test]
fn a_panic_in_a_section_ends_neither_the_call_nor_grace_periods() {
    let guard = rcu::pin();
    let ran = defer_a_panic(&guard);
    drop(guard);
    // Its own sections run the bags.
    until(&ran, 128, || drop(rcu::pin()));
    // This thread is in no section now, nor in any other call.
    assert!(returns(rcu::synchronize), "no grace period ends");
    rcu::synchronize();
    assert_eq!(ran.load(Ordering::Relaxed), 200, "the calls behind the panic run");
}

struct Step(Arc<AtomicBool>);

impl reclaim::Work for Step {
    fn step(&mut self) -> bool {
        false
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        assert!(thread::panicking() || thread::current().name() != Some("vfscale-reclaim"));
    }
}

/// Race: Deferred calls and work that panic on the reclaim thread against later work.
#[test]
fn the_reclaim_thread_survives_panics() {
    // The thread attends to bags as soon as there is a slab.
    drop(Slab::<u64>::new(1));
    let guard = rcu::pin();
    let ran = defer_a_panic(&guard);
    guard.hand_over();
    drop(guard);
    assert!(reclaim::attend());
    // This thread, which has no section, runs none of them.
    until(&ran, 200, || vfscale_harness::pause(Duration::from_millis(1)));
    for _ in 0..2 {
        let is_dropped = Arc::new(AtomicBool::new(false));
        assert!(reclaim::submit(7, Box::new(Step(Arc::clone(&is_dropped)))).is_ok());
        assert!(returns(|| reclaim::wait_for(7)), "the work is never done");
        assert!(is_dropped.load(Ordering::Relaxed));
    }
    assert!(returns(reclaim::settle));
}

struct Object(usize, Arc<AtomicUsize>);

impl Drop for Object {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        assert!(self.0 != 3, "the destructor of an object");
    }
}

#[test]
fn a_panic_in_a_destructor_leaks_no_other_object_of_a_slab() {
    let (slab, dropped) = (Slab::new(2), Arc::new(AtomicUsize::new(0)));
    let objects: Vec<_> = (0..40).map(|n| slab.alloc(Object(n, Arc::clone(&dropped)))).collect();
    let guard = rcu::pin();
    for object in objects {
        // SAFETY: no thread can find it.
        unsafe { slab.free_rcu(object, &guard) };
    }
    drop(guard);
    slab.flush(&rcu::pin());
    assert!(returns(rcu::synchronize));
    slab.flush(&rcu::pin());
    assert_eq!((dropped.load(Ordering::Relaxed), slab.live()), (40, 0));
}
