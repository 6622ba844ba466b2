use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use super::bag::Deferred;
use super::record::{Record, VISITS};
use super::{BAG_LEN, pin};

/// Calls of any size and alignment run once, with what they own.
#[test]
fn deferred_calls_of_any_size_run() {
    #[repr(align(64))]
    struct Wide(u8);
    let sum = Arc::new(AtomicUsize::new(0));
    let add = |n: usize| _ = sum.fetch_add(n, Ordering::Relaxed);
    let (array, wide) = ([1_usize; 9], Wide(7));
    Deferred::new(|| add(1)).run();
    Deferred::new(move || add(array.iter().sum::<usize>() * 10)).run();
    Deferred::new(move || {
        let wide = &wide;
        assert_eq!(std::ptr::from_ref(wide).addr() % 64, 0);
        add(usize::from(wide.0) * 100);
    })
    .run();
    let owned = Arc::clone(&sum);
    Deferred::new(move || _ = owned.fetch_add(1_000, Ordering::Relaxed)).run();
    assert_eq!(sum.load(Ordering::Relaxed), 1_791);
    assert_eq!(Arc::strong_count(&sum), 1, "what a call owns is dropped");
}

/// A section delays what is deferred while it lasts, of any thread, and only that.
#[test]
fn a_section_delays_what_others_defer() {
    let ran = Arc::new(AtomicUsize::new(0));
    let section = pin();
    let defers = |ran: &Arc<AtomicUsize>| {
        let ran = Arc::clone(ran);
        thread::spawn(move || {
            for _ in 0..BAG_LEN {
                let ran = Arc::clone(&ran);
                // SAFETY: the call owns what it uses, and any thread may make it.
                unsafe { pin().defer_unchecked(move || _ = ran.fetch_add(1, Ordering::Relaxed)) };
            }
            for _ in 0..if cfg!(miri) { 20 } else { 1_000 } {
                pin().flush();
            }
        })
    };
    defers(&ran).join().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    drop(section);
    // Other tests may be in sections.
    while ran.load(Ordering::Relaxed) < BAG_LEN {
        pin().flush();
    }
}

/// A thread that frees all the time, and never waits, has its own bags run by its sections.
#[test]
fn a_busy_thread_runs_its_own_bags() {
    let (ran, most) = (Arc::new(AtomicUsize::new(0)), 1_000_000);
    let mut deferred = 0;
    while ran.load(Ordering::Relaxed) == 0 && deferred < most {
        let ran = Arc::clone(&ran);
        // SAFETY: the call owns what it uses, and any thread may make it.
        unsafe { pin().defer_unchecked(move || _ = ran.fetch_add(1, Ordering::Relaxed)) };
        deferred += 1;
    }
    assert!(deferred < most);
}

/// The record of a thread that has ended serves another one, and its bags are run.
#[test]
fn a_thread_that_ends_leaves_its_bag() {
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let ran = Arc::clone(&ran);
        // SAFETY: the call owns what it uses, and any thread may make it.
        let defers = move || unsafe {
            pin().defer_unchecked(move || _ = ran.fetch_add(1, Ordering::Relaxed))
        };
        thread::spawn(defers).join().unwrap();
    }
    while ran.load(Ordering::Relaxed) < 8 {
        pin().flush();
    }
}

/// The values of a thread that are dropped as it ends may enter sections, and defer.
#[test]
fn sections_of_a_thread_that_ends() {
    struct AtEnd(Arc<AtomicUsize>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let ran = Arc::clone(&self.0);
            let (outer, inner) = (pin(), pin());
            drop(outer);
            // SAFETY: the call owns what it uses, and any thread may make it.
            unsafe { inner.defer_unchecked(move || _ = ran.fetch_add(1, Ordering::Relaxed)) };
        }
    }
    thread_local!(static AT_END: std::cell::RefCell<Option<AtEnd>> = const { std::cell::RefCell::new(None) });
    let ran = Arc::new(AtomicUsize::new(0));
    for begins_first in [false, true] {
        let ran = Arc::clone(&ran);
        let ends = move || {
            if begins_first {
                drop(pin());
            }
            AT_END.set(Some(AtEnd(ran)));
            drop(pin());
        };
        thread::spawn(ends).join().unwrap();
    }
    while ran.load(Ordering::Relaxed) < 2 {
        pin().flush();
    }
}

/// A look for bags that are due passes by the threads whose queues are empty. One that drives the
/// grace period visits each thread once.
#[test]
fn a_look_visits_no_thread_without_bags() {
    const THREADS: usize = 200;
    let (all, ends) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                drop(pin());
                all.wait();
                ends.wait();
            });
        }
        all.wait();
        let look = || {
            let before = VISITS.get();
            pin().flush();
            VISITS.get() - before
        };
        // Other tests of the process may have bags at any moment.
        let passes_by = vfscale_harness::comes(Duration::from_secs(20), || look() < THREADS / 2);
        ends.wait();
        assert!(passes_by);
    });
}

/// A thread that begins takes a record without a look at those of the others.
#[test]
fn a_thread_that_begins_visits_no_record() {
    const THREADS: usize = 200;
    let before = VISITS.get();
    let records = [(); THREADS].map(|()| Record::take());
    assert_eq!(VISITS.get(), before);
    records.into_iter().for_each(Record::give_back);
}
