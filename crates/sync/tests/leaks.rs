//! Tables and slabs leave no memory behind. Their buckets, nodes and slots are the only memory of
//! this program that is aligned to 64 bytes or more, apart from the memory that RCU retains for its
//! threads, so counting that is enough. Chunks of slabs are mapped from the system and are counted
//! by `Slab::bytes`.

#![cfg(not(any(loom, shuttle)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use vfscale_sync::lock::lockstat_record;
use vfscale_sync::slab::Slab;
use vfscale_sync::table::{Hashed, RcuTable};
use vfscale_sync::{cpu, hash, lock_class, rcu};

lock_class! { Buckets = ("buckets", 1); }

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

fn counted(layout: Layout) -> usize {
    if layout.align() >= 64 { layout.size() } else { 0 }
}

// SAFETY: it passes everything on to the system's allocator. (The other methods of the trait call
// these two.)
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(counted(layout), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(counted(layout), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// After this time without deferred calls the reclaim thread has ended.
const RECLAIM_ENDS: Duration = Duration::from_millis(1500);

struct Entry(u64);

impl Hashed for Entry {
    fn table_hash(&self) -> u64 {
        self.0
    }
}

fn live_after_a_while() -> usize {
    (0..8).for_each(|_| rcu::synchronize());
    LIVE.load(Ordering::Relaxed)
}

/// Checks that `expected` bytes are left, once the reclaim thread has ended, whose own memory
/// counts as well. It ends a second after the last deferred call, and waiting for a grace period is
/// one.
fn assert_left(expected: usize, what: &str) {
    let mut left = live_after_a_while();
    for _ in 0..10 {
        if left == expected {
            return;
        }
        vfscale_harness::pause(RECLAIM_ENDS);
        left = live_after_a_while();
    }
    assert_eq!(left, expected, "{what}");
}

/// Fills the table until it has chains and grows, and empties a part until it shrinks.
fn use_table(table: &RcuTable<Entry, Buckets>, entries: &[Entry]) {
    for entry in entries {
        let guard = rcu::pin();
        // SAFETY: The entries outlive the table.
        unsafe { table.lock(entry.0, &guard).insert(NonNull::from(entry)) };
    }
    for entry in entries.iter().skip(entries.len() / 100) {
        let guard = rcu::pin();
        assert!(table.lock(entry.0, &guard).remove(entry));
    }
}

/// Makes a thread wait for a bucket.
fn contend(table: &RcuTable<Entry, Buckets>) {
    let guard = rcu::pin();
    let bucket = table.lock(1, &guard);
    thread::scope(|scope| {
        scope.spawn(|| drop(table.lock(1, &rcu::pin())));
        vfscale_harness::pause(Duration::from_millis(20));
        drop(bucket);
    });
}

/// Allocates and frees 2,000 objects on several CPUs.
fn use_slab(slab: &Slab<Box<u64>>) {
    for i in 0..2000u64 {
        let _on = cpu::pretend(i as u32 % 5);
        let object = slab.alloc(Box::new(i));
        // SAFETY: no other thread has seen it.
        unsafe { slab.free_rcu(object, &rcu::pin()) };
    }
}

/// Makes RCU's records of more threads than this program has at a time; later threads reuse them.
fn make_records() {
    let all = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                drop(rcu::pin());
                all.wait();
            });
        }
    });
}

/// Allocates what stays after a first contention: the counters of each lock class, and the table of
/// threads that wait. Then waits for the end of the reclaim thread.
fn contend_first(entries: &[Entry]) {
    make_records();
    lockstat_record(true);
    let table = RcuTable::new();
    use_table(&table, entries);
    contend(&table);
    use_slab(&Slab::new(4));
    live_after_a_while();
    lockstat_record(false);
    drop(table);
    live_after_a_while();
    vfscale_harness::pause(RECLAIM_ENDS);
}

#[test]
fn everything_is_freed() {
    // Random hashes of 63 bits, and some that share a bucket at any size.
    let scattered = (0..20_000u64).map(|i| hash::fibonacci(i) >> 1);
    let entries: Vec<Entry> = scattered.chain(0..500).map(Entry).collect();
    contend_first(&entries);
    let before = live_after_a_while();
    for round in 0..3 {
        let table = RcuTable::new();
        use_table(&table, &entries);
        contend(&table);
        let bytes = table.bytes();
        assert!(bytes > 0);
        assert_left(before + bytes, &format!("round {round}: retired buckets or nodes are left"));
        drop(table);
        assert_left(before, &format!("round {round}: a table left something"));
    }
    for _ in 0..3 {
        let slab = Slab::<Box<u64>>::new(4);
        use_slab(&slab);
        assert!(live_after_a_while() > before);
        drop(slab);
        assert_left(before, "a slab left something");
    }
}
