//! Slabs: threads on two CPUs that allocate, free, and find each other's objects.

use std::ptr::NonNull;
use std::sync::Arc;

use vfscale_sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::slab::Slab;
use vfscale_sync::{cpu, rcu};

/// An object with a number that no other one has, and the count of objects that live.
struct Object {
    number: AtomicU64,
    live: Arc<AtomicUsize>,
}

impl Drop for Object {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slab, and an object of it that threads find.
struct Shared {
    slab: Slab<Object>,
    current: AtomicPtr<Object>,
    live: Arc<AtomicUsize>,
}

impl Shared {
    fn alloc(&self, number: u64) -> NonNull<Object> {
        self.live.fetch_add(1, Ordering::Relaxed);
        let live = Arc::clone(&self.live);
        self.slab.alloc(Object { number: AtomicU64::new(number), live })
    }

    /// Replaces the object by one with this number, on some CPU.
    fn replace(&self, number: u64, frees_at_once: bool) {
        let guard = rcu::pin();
        let new = self.alloc(number);
        let old = self.current.swap(new.as_ptr(), Ordering::AcqRel);
        let old = NonNull::new(old).expect("there is always an object");
        // SAFETY: the object came from the slab, and no thread finds it any more. Those that have
        // found it are in sections; without a grace period that is the fault.
        unsafe { if frees_at_once { self.slab.free(old) } else { self.slab.free_rcu(old, &guard) } }
    }

    /// Reads the number of the object twice: it is the same, as long as the section lasts.
    fn read(&self) {
        let _guard = rcu::pin();
        // SAFETY: the object is freed after the section.
        let object = unsafe { &*self.current.load(Ordering::Acquire) };
        let number = object.number.load(Ordering::Relaxed);
        assert_eq!(object.number.load(Ordering::Relaxed), number, "another object is there");
    }
}

/// Runs two threads that replace the object, each on a CPU of its own, beside one that reads it.
/// Then nothing is left but the last one.
fn replacements_beside_a_reader(frees_at_once: bool) {
    model::check(&[Schedules::Turns(1_000), Schedules::Delays(2_000)], move || {
        let live = Arc::new(AtomicUsize::new(0));
        let shared = Shared { slab: Slab::new(2), current: AtomicPtr::default(), live };
        shared.current.store(shared.alloc(0).as_ptr(), Ordering::Release);
        let shared = Arc::new(shared);
        let replacers = [0, 1].map(|cpu| {
            model::spawn(Arc::clone(&shared), move |shared| {
                let _cpu = cpu::pretend(cpu);
                // More than a batch, and than a slot carves at a time.
                (1..6).for_each(|n| shared.replace(u64::from(cpu) * 10 + n, frees_at_once));
            })
        });
        (0..3).for_each(|_| shared.read());
        replacers.into_iter().for_each(|replacer| replacer.join().unwrap());
        assert_eq!(shared.slab.in_use(), 1);
        shared.slab.flush(&rcu::pin());
        (0..3).for_each(|_| rcu::synchronize());
        shared.slab.flush(&rcu::pin());
        assert_eq!(shared.live.load(Ordering::Relaxed), 1, "an object was not dropped, or twice");
        assert_eq!(shared.slab.live(), 1);
        let last = NonNull::new(shared.current.load(Ordering::Relaxed)).expect("the last one");
        // SAFETY: no other thread is left.
        unsafe { shared.slab.free(last) };
    });
}

/// Race: Slab: two threads that allocate and free on two CPUs / a reader / the thread that runs
/// deferred calls.
#[test]
fn an_object_is_reused_after_its_readers() {
    replacements_beside_a_reader(false);
}

/// The model can fail: objects are freed while they may be read.
///
/// Race: Slab with frees at once: two threads that allocate and free / a reader.
#[test]
#[should_panic(expected = "RefCell already")]
fn a_reuse_before_the_grace_period_is_found() {
    replacements_beside_a_reader(true);
}

/// Race: The last handle of a slab: a thread that drops it / one that frees on another CPU / the
/// thread that runs deferred calls.
#[test]
fn the_last_handle_waits_for_what_is_deferred() {
    model::check(&[Schedules::Turns(1_000), Schedules::Delays(2_000)], || {
        let live = Arc::new(AtomicUsize::new(0));
        let slab = Slab::new(2);
        let threads = [0, 1].map(|cpu| {
            model::spawn((slab.clone(), Arc::clone(&live)), move |(slab, live)| {
                let _cpu = cpu::pretend(cpu);
                for _ in 0..3 {
                    live.fetch_add(1, Ordering::Relaxed);
                    let live = Arc::clone(&live);
                    let object = slab.alloc(Object { number: AtomicU64::new(7), live });
                    // SAFETY: no thread finds the object.
                    unsafe { slab.free_rcu(object, &rcu::pin()) };
                }
            })
        });
        drop(slab);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        (0..3).for_each(|_| rcu::synchronize());
        assert_eq!(live.load(Ordering::Relaxed), 0);
    });
}
