//! CPUs that come and go. Each structure has slots for three CPUs, is used by threads on CPUs far
//! beyond them, and what these threads have begun ends on yet other CPUs, when they are gone. No
//! count, object or place in a list is lost with a CPU.

#![cfg(not(any(loom, shuttle, miri)))]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use vfscale_sync::brlock::BrLock;
use vfscale_sync::lockref::{Lockref, Put, SpreadPtr};
use vfscale_sync::percpu::{Budget, IdAlloc, PerCpu, PerCpuCounter, SnapshotCounter};
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::percpu_list::{Linked, PerCpuLinks, PerCpuList};
use vfscale_sync::percpu_ref::PerCpuRef;
use vfscale_sync::sharded_rwlock::{ReaderParts, ShardedRwLock};
use vfscale_sync::shared::{Listable, SharedList};
use vfscale_sync::slab::Slab;
use vfscale_sync::{cpu, lock_class, rcu, reclaim};

lock_class! {
    Tested = ("tested", 10);
}

const SLOTS: usize = 3;
const CPUS: u32 = 41;

/// Runs `work` in a thread on each CPU, one after the other; each thread is gone when the next one
/// begins. Returns the results.
fn on_each<T: Send>(work: impl Fn(u32) -> T + Sync) -> Vec<T> {
    let on = |cpu| {
        thread::scope(|scope| {
            let there = || {
                let _there = cpu::pretend(cpu);
                work(cpu)
            };
            scope.spawn(there).join().unwrap()
        })
    };
    (0..CPUS).map(on).collect()
}

/// Runs `work` on a CPU of which nobody has heard before.
fn elsewhere<T>(work: impl FnOnce() -> T) -> T {
    let _there = cpu::pretend(1_000);
    work()
}

#[test]
fn slots_are_shared() {
    let slots = PerCpu::new(SLOTS, |_| AtomicUsize::new(0));
    on_each(|_| slots.this().fetch_add(1, Ordering::Relaxed));
    let counts: Vec<_> = slots.iter().map(|slot| slot.load(Ordering::Relaxed)).collect();
    assert_eq!(counts, [14, 14, 13]);
}

#[test]
fn counters_are_whole() {
    let (counter, snapshot) = (PerCpuCounter::new(SLOTS), SnapshotCounter::new(SLOTS));
    on_each(|_| {
        counter.add(2);
        snapshot.add(2);
    });
    elsewhere(|| {
        counter.add(-80);
        snapshot.add(-80);
        assert_eq!((counter.sum(), snapshot.read_with(|| ())), (2, (2, ())));
    });
}

#[test]
fn no_identifier_comes_twice() {
    let ids = IdAlloc::new(1, SLOTS);
    let all = on_each(|_| Vec::from_iter((0..2_000).map(|_| ids.next(cpu::current()))));
    let unique: BTreeSet<_> = all.iter().flatten().collect();
    assert_eq!(unique.len(), 2_000 * CPUS as usize);
}

/// The allowances of CPUs that are gone count as left, and can be taken.
#[test]
fn a_budget_can_be_used_up() {
    let budget = Budget::new(100_000, SLOTS);
    on_each(|_| assert!(budget.take(7)));
    elsewhere(|| {
        let rest = 100_000 - 7 * u64::from(CPUS);
        assert!(!budget.take(rest + 1) && budget.take(rest));
        assert!(!budget.take(1));
        budget.give(100_000);
        assert_eq!(budget.used_exactly(), 0);
    });
}

/// A reader enters on a CPU that is gone when it leaves. A writer waits for it.
#[test]
fn a_writer_finds_all_readers() {
    let lock = BrLock::<Tested>::new(SLOTS);
    let sharded = (ShardedRwLock::<Tested>::new(), ReaderParts::new());
    for cpu in [0, 1, 2, 3, 40, 1_001] {
        let write = || drop(lock.write());
        waits_for_reader(cpu, || lock.read(), &write);
        sharded.0.write(&sharded.1).spread(SLOTS);
        let write = || drop(sharded.0.write(&sharded.1));
        waits_for_reader(cpu, || sharded.0.read_in_part(&sharded.1).unwrap(), &write);
    }
}

fn waits_for_reader<G>(cpu: u32, read: impl FnOnce() -> G, write: &(impl Fn() + Sync)) {
    let there = cpu::pretend(cpu);
    let guard = read();
    drop(there);
    let is_in = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            write();
            is_in.store(true, Ordering::SeqCst);
        });
        vfscale_harness::pause(Duration::from_millis(30));
        assert!(!is_in.load(Ordering::SeqCst), "the reader on CPU {cpu} is not seen");
        elsewhere(|| drop(guard));
    });
}

#[test]
fn the_last_user_is_told() {
    let count = PerCpuRef::<Tested>::new(SLOTS);
    on_each(|_| count.get());
    elsewhere(|| {
        assert!((1..CPUS).all(|_| !count.put()));
        count.close();
        assert_eq!(count.users(), 2);
        assert!(!count.put() && count.put());
    });
}

#[test]
fn an_object_is_freed_after_its_last_reference() {
    let object = Arc::new(());
    let alive = Arc::downgrade(&object);
    let shared = PerCpuArc::new(SLOTS, object);
    let kept = on_each(|_| shared.keep());
    assert_eq!(shared.kept(), [14, 14, 13]);
    drop(shared);
    elsewhere(|| {
        assert!(alive.upgrade().is_some());
        drop(kept);
        assert!(alive.upgrade().is_none());
    });
}

#[test]
fn a_spread_count_is_collected() {
    let (count, spread) = (Lockref::new(1), SpreadPtr::new());
    assert!(Lockref::spread(&mut count.lock(), &spread, SLOTS));
    on_each(|_| count.get(&spread, &rcu::pin()));
    elsewhere(|| {
        let put = || matches!(count.put(&spread, &rcu::pin()), Put::Done);
        assert!((0..CPUS - 1).all(|_| put()));
        let guard = rcu::pin();
        assert!(Lockref::begin_collect(&mut count.lock(), &spread, &guard));
        drop(guard);
        rcu::synchronize();
        // SAFETY: the collection was begun before the grace period, and this finishes it once.
        let finished = unsafe { count.finish_collect(&spread, &rcu::pin()) };
        assert!(matches!(finished, Put::Done));
        assert_eq!(count.count(), 2);
    });
}

struct Entry {
    links: PerCpuLinks<Entry>,
}

impl Linked for Entry {
    fn links(&self) -> &PerCpuLinks<Entry> {
        &self.links
    }
}

#[test]
fn a_list_loses_no_entry() {
    let list = PerCpuList::<Entry, Tested>::new(SLOTS);
    let entries = Vec::from_iter((0..CPUS).map(|_| Entry { links: PerCpuLinks::new() }));
    // SAFETY: all entries are removed before they are dropped.
    on_each(|cpu| unsafe { list.insert(NonNull::from(&entries[cpu as usize])) });
    elsewhere(|| {
        let mut seen = 0;
        list.each(|_| {
            seen += 1;
            ControlFlow::Continue(())
        });
        assert_eq!(seen, CPUS);
        assert!(entries.iter().all(|entry| list.remove(entry)));
        assert!(list.is_empty());
    });
}

struct File(Arc<AtomicUsize>);

impl Listable for File {
    fn ended(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_list_of_shared_values_loses_none() {
    let list = Arc::new(SharedList::<File, Tested>::new(SLOTS));
    let ended = Arc::new(AtomicUsize::new(0));
    // SAFETY: the list outlives all values.
    let make = |_| unsafe { list.insert(File(Arc::clone(&ended))) }.ok().unwrap();
    let files = on_each(make);
    assert_eq!(list.len(), CPUS as usize);
    elsewhere(|| drop(files));
    assert!(list.is_empty());
    assert_eq!(ended.load(Ordering::Relaxed), CPUS as usize);
}

#[test]
fn a_slab_gets_all_memory_back() {
    struct Object(#[expect(dead_code, reason = "dropped")] Arc<()>);
    struct Address(NonNull<Object>);
    // SAFETY: the object is `Send`, and used by one thread at a time.
    unsafe impl Send for Address {}
    let (slab, owned) = (Slab::<Object>::new(SLOTS), Arc::new(()));
    let make = |_| Vec::from_iter((0..100).map(|_| Address(slab.alloc(Object(owned.clone())))));
    let objects = on_each(make);
    assert_eq!(slab.live(), 100 * CPUS as usize);
    elsewhere(|| {
        let guard = rcu::pin();
        for object in objects.into_iter().flatten() {
            // SAFETY: this slab has made it, and no other thread knows it.
            unsafe { slab.free_rcu(object.0, &guard) };
        }
        slab.flush(&guard);
    });
    assert_eq!(slab.in_use(), 0);
    reclaim::settle();
    // Some wait for the next allocation of a slot whose CPUs are gone; a trim finds them.
    slab.trim();
    assert_eq!((slab.live(), Arc::strong_count(&owned)), (0, 1));
}
