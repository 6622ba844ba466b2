use super::*;
use crate::random::Random;
use crate::{Mutex, rcu};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

mod steps;

crate::lock_class! {
    /// Buckets of these tests.
    BucketClass = ("test_bucket", 100);
    /// Ordered after the buckets.
    LaterClass = ("test_later", 200);
}

type Table = RcuTable<Name, BucketClass>;

/// An entry: a number as name, its hash, and a stamp that tells entries of equal name apart.
#[derive(Debug)]
struct Name {
    name: u64,
    hash: u64,
    stamp: u64,
}

impl Hashed for Name {
    fn table_hash(&self) -> u64 {
        self.hash
    }
}

/// Returns a random hash for a name, without the low bits that the table uses itself.
fn hash_of(name: u64) -> u64 {
    Random::new(name).number() & HASH_MAX & !0xf
}

fn new_entry(name: u64, hash: u64, stamp: u64) -> NonNull<Name> {
    NonNull::from(Box::leak(Box::new(Name { name, hash, stamp })))
}

/// Inserts under a hash that is free, and returns the entry.
fn insert_hashed(table: &Table, name: u64, hash: u64) -> NonNull<Name> {
    let guard = rcu::pin();
    let mut bucket = table.lock(hash, &guard);
    let entry = new_entry(name, bucket.free_hash(hash), 0);
    // SAFETY: Freed by `remove` after a grace period.
    unsafe { bucket.insert(entry) };
    entry
}

fn insert(table: &Table, name: u64) -> NonNull<Name> {
    insert_hashed(table, name, hash_of(name))
}

fn find<'g>(table: &Table, name: u64, guard: &'g Guard) -> Option<&'g Name> {
    table.find(hash_of(name), guard, |entry| entry.name == name)
}

/// # Safety
///
/// The entry came from `new_entry`, was removed, and isn't freed twice.
unsafe fn free_later(entry: &Name, guard: &Guard) {
    let entry = std::ptr::from_ref(entry).cast_mut();
    // SAFETY: promised by the caller.
    unsafe { guard.defer_unchecked(move || drop(Box::from_raw(entry))) };
}

fn remove_hashed(table: &Table, name: u64, hash: u64) -> bool {
    let guard = rcu::pin();
    let mut bucket = table.lock(hash, &guard);
    let Some(entry) = bucket.find(hash, |entry| entry.name == name) else { return false };
    assert!(bucket.remove(entry));
    assert!(!bucket.remove(entry), "it was there twice");
    drop(bucket);
    // SAFETY: Just removed, by us alone, as the lock was held.
    unsafe { free_later(entry, &guard) };
    true
}

fn remove(table: &Table, name: u64) -> bool {
    remove_hashed(table, name, hash_of(name))
}

fn scan(table: &Table, from: u64) -> Vec<(u64, u64)> {
    let mut seen = Vec::new();
    table.scan(from, &rcu::pin(), |entry| {
        seen.push((entry.hash, entry.name));
        ControlFlow::Continue(())
    });
    seen
}

fn remove_all(table: &Table) {
    for (hash, name) in scan(table, 0) {
        assert!(remove_hashed(table, name, hash));
    }
    assert!(table.is_empty());
}

fn buckets(table: &Table) -> usize {
    let _guard = rcu::pin();
    table.word().len()
}

const MANY: u64 = if cfg!(miri) { 120 } else { 20_000 };

#[test]
fn a_word_and_lines() {
    assert_eq!(size_of::<Table>(), 8);
    assert_eq!(size_of::<Line<Name, BucketClass>>(), 64);
}

#[test]
fn an_empty_table_costs_nothing_and_can_be_locked() {
    let table = Table::new();
    assert!(find(&table, 1, &rcu::pin()).is_none());
    assert!(scan(&table, 0).is_empty() && table.is_empty());
    assert_eq!((table.len(), table.bytes()), (0, 0));
    let guard = rcu::pin();
    let bucket = table.lock(7, &guard);
    assert!(bucket.find(7, |_| true).is_none());
    assert_eq!(bucket.free_hash(0x37), 0x30);
    drop(bucket);
    let set = RcuTable::lock_set([LockReq::All(&table)], &guard);
    assert!(set.is_empty(0));
    drop(set);
    assert_eq!(table.bytes(), 64);
}

#[test]
fn entries_come_and_go_at_every_size() {
    let table = Table::new();
    for name in 0..MANY {
        assert!(find(&table, name, &rcu::pin()).is_none());
        let entry = insert(&table, name);
        assert_eq!(find(&table, name, &rcu::pin()).map(NonNull::from), Some(entry));
        if name.is_power_of_two() || name == MANY - 1 {
            assert_eq!(table.len() as u64, name + 1);
            assert!((0..=name).all(|name| find(&table, name, &rcu::pin()).is_some()));
        }
    }
    assert!(buckets(&table) as u64 >= MANY / 8, "it did not grow: {table:?}");
    assert!(buckets(&table) as u64 <= MANY, "it grew too much: {table:?}");
    for name in 0..MANY {
        assert!(remove(&table, name) && !remove(&table, name));
        assert!(find(&table, name, &rcu::pin()).is_none());
    }
    assert!(table.is_empty());
    assert!(
        buckets(&table) <= 16.max(32 * crate::cpu::possible() as usize).next_power_of_two(),
        "it did not shrink: {table:?}"
    );
}

#[test]
fn scans_ascend_start_anywhere_and_stop() {
    let table = Table::new();
    let mut hashes: Vec<u64> = (0..MANY.min(3000)).map(hash_of).collect();
    (0..MANY.min(3000)).for_each(|name| _ = insert(&table, name));
    hashes.sort_unstable();
    let seen: Vec<u64> = scan(&table, 0).into_iter().map(|(hash, _)| hash).collect();
    assert_eq!(seen, hashes);
    for at in [0, 1, hashes.len() / 2, hashes.len() - 1] {
        assert_eq!(scan(&table, hashes[at]).len(), hashes.len() - at, "`from` is included");
        assert_eq!(scan(&table, hashes[at] + 1).len(), hashes.len() - at - 1);
    }
    assert!(scan(&table, u64::MAX).is_empty());
    let mut left = 5;
    table.scan(0, &rcu::pin(), |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(left, 0);
    remove_all(&table);
}

/// A visitor may free the entries that it has visited: the scan accesses none of them again.
#[test]
fn scans_of_buckets_show_each_entry_once_and_end_between_buckets() {
    for count in [0, 1, 7, 500, 20_000] {
        let table = Table::new();
        for name in 0..count {
            insert(&table, name);
        }
        let (mut seen, mut next, mut calls) = (Vec::new(), Some(0), 0);
        while let Some(from) = next {
            let before = seen.len();
            next = table.scan_buckets(from, 100, &rcu::pin(), |entry| {
                seen.push((entry.hash, entry.name));
            });
            let shown = &seen[before..];
            let end = next.unwrap_or(HASH_MAX);
            assert!(
                shown.iter().all(|(hash, _)| (from..=end).contains(hash) && Some(*hash) != next)
            );
            assert!(shown.len() < 200 && (shown.len() >= 100 || next.is_none()));
            calls += 1;
        }
        assert!(calls <= count / 100 + 1);
        seen.sort_unstable();
        assert_eq!(seen, scan(&table, 0));
        remove_all(&table);
    }
}

/// A scan continues correctly if its own visitor makes the table grow and shrink.
#[test]
fn scans_survive_resizes() {
    let table = Table::new();
    let count = MANY.min(300);
    (0..count).for_each(|name| _ = insert(&table, name));
    let mut seen = Vec::new();
    let mut extra = count;
    let guard = rcu::pin();
    table.scan(0, &guard, |entry| {
        if entry.name < count {
            seen.push(entry.name);
            if seen.len() % 100 == 50 {
                table.reserve(buckets(&table) * 8, &guard);
            } else if seen.len() % 100 == 0 {
                table.shrink_to_fit(&guard);
            }
            insert(&table, extra);
            extra += 1;
        }
        ControlFlow::Continue(())
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
    drop(guard);
    remove_all(&table);
}

#[test]
fn equal_hashes_get_different_low_bits() {
    let table = Table::new();
    let hash = 0x2bcd_ef01_2345_6780;
    let count = 40;
    (0..count).for_each(|name| _ = insert_hashed(&table, name, hash | (name % 3)));
    let hashes: Vec<u64> = scan(&table, 0).into_iter().map(|(hash, _)| hash).collect();
    let expected: Vec<u64> = (0..count).map(|i| hash + i).collect();
    assert_eq!(hashes, expected, "the smallest free values");
    let guard = rcu::pin();
    for name in 0..count {
        let found = table.find(hash, &guard, |entry| entry.name == name);
        assert_eq!(found.map(|entry| entry.name), Some(name), "sought under the common hash");
    }
    assert!(remove_hashed(&table, 5, hash));
    assert_eq!(table.lock(hash, &guard).free_hash(hash | 9), hash + 5);
    drop(guard);
    assert!(buckets(&table) <= 256, "growth does not help against equal hashes: {table:?}");
    assert!(table.bytes() > buckets(&table) * 64, "the nodes count");
    remove_all(&table);
    assert_eq!(table.bytes(), buckets(&table) * 64, "empty nodes are freed");
}

#[test]
fn free_hash_wraps_within_the_bits_that_choose_nothing() {
    let table = Table::new();
    let hash = 0x1234_5678_9abf_fff0;
    let hashes: Vec<u64> = (0..18)
        .map(|name| {
            // SAFETY: The entry is freed only after the table is emptied.
            unsafe { insert_hashed(&table, name, hash).as_ref() }.hash
        })
        .collect();
    assert_eq!(hashes[15], hash | 0xf);
    assert_eq!(hashes[16..], [hash & !0xf_ffff, (hash & !0xf_ffff) + 1]);
    assert!(table.find(hash, &rcu::pin(), |entry| entry.name == 17).is_some());
    remove_all(&table);
}

#[test]
fn extreme_hashes() {
    let table = Table::new();
    let hashes = [0, 1 << 20, HASH_MAX, HASH_MAX & !0xf_ffff, 1 << 62, (1 << 62) - 1];
    for (name, hash) in hashes.into_iter().enumerate() {
        insert_hashed(&table, name as u64, hash);
    }
    table.reserve(1000, &rcu::pin());
    for (name, hash) in hashes.into_iter().enumerate() {
        assert!(table.find(hash, &rcu::pin(), |entry| entry.name == name as u64).is_some());
    }
    assert_eq!(table.len(), hashes.len());
    remove_all(&table);
}

/// Hashes have 63 bits: a bucket for larger ones would be wasted.
#[test]
fn entries_are_spread_over_all_buckets() {
    let table = Table::new();
    table.reserve(128, &rcu::pin());
    (0..1000).for_each(|name| _ = insert(&table, name));
    let guard = rcu::pin();
    let word = table.word();
    let vacant = (0..word.len()).filter(|i| word.line(*i, &guard).unwrap().is_vacant()).count();
    // With two entries per bucket on average, one bucket of seven is empty by chance.
    assert!(vacant < word.len() / 4, "{vacant} of {table:?}");
    remove_all(&table);
}

#[test]
fn reserve_and_shrink_to_fit() {
    let table = Table::new();
    table.reserve(1000, &rcu::pin());
    assert_eq!(buckets(&table), 512);
    table.reserve(10, &rcu::pin());
    assert_eq!(buckets(&table), 512, "it never shrinks");
    (0..20).for_each(|name| _ = insert(&table, name));
    table.shrink_to_fit(&rcu::pin());
    assert_eq!(buckets(&table), 16);
    assert!((0..20).all(|name| find(&table, name, &rcu::pin()).is_some()));
    remove_all(&table);
    table.shrink_to_fit(&rcu::pin());
    assert_eq!(buckets(&table), 1);
}

/// Inserts and removes a name `times` times, on the CPUs that `cpu_of` returns. Returns the number
/// of buckets.
fn change_on(table: &Table, times: u32, cpu_of: impl Fn(u32) -> u32) -> usize {
    for turn in 0..times {
        let _on = crate::cpu::pretend(cpu_of(turn));
        insert(table, 1);
        assert!(remove(table, 1));
    }
    buckets(table)
}

#[test]
fn several_cpus_make_a_table_grow_and_one_does_not() {
    let table = Table::new();
    assert_eq!(change_on(&table, 1000, |_| 1), 1);
    // A thread that is moved occasionally.
    assert_eq!(change_on(&table, 1000, |turn| turn / 100), 1);
    assert_eq!(change_on(&table, 24, |turn| turn / 8), 4, "three CPUs in turn");
    let most = crate::cpu::possible() as usize * 32;
    let grown = change_on(&table, 10_000, |turn| turn / 8 % 2);
    assert_eq!(grown, most.next_power_of_two());
    table.shrink_to_fit(&rcu::pin());
    assert_eq!(buckets(&table), 1);
}

#[test]
fn a_prepared_table_has_its_bucket_already() {
    let table = Table::new();
    assert_eq!((buckets(&table), table.bytes()), (0, 0));
    table.prepare(0);
    table.prepare(4);
    assert_eq!((buckets(&table), table.bytes(), table.len()), (1, 64, 0));
    insert(&table, 1);
    assert_eq!(buckets(&table), 1);
    assert!(remove(&table, 1));
}

#[test]
fn a_table_prepared_for_several_cpus_keeps_its_buckets() {
    let table = Table::new();
    table.prepare(4);
    assert_eq!((buckets(&table), table.bytes(), table.len()), (16, 1024, 0));
    for key in 0..30 {
        insert(&table, key);
    }
    for key in 0..30 {
        assert!(remove(&table, key));
    }
    assert_eq!(buckets(&table), 16);
    table.shrink_to_fit(&rcu::pin());
    assert_eq!(buckets(&table), 1);
}

#[test]
fn a_set_shares_the_lock_of_a_common_bucket() {
    let (one, two) = (Table::new(), Table::new());
    let guard = rcu::pin();
    let mut set = RcuTable::lock_set(
        [
            LockReq::One(&one, hash_of(1)),
            LockReq::One(&one, hash_of(2)),
            LockReq::One(&two, hash_of(1)),
            LockReq::All(&one),
        ],
        &guard,
    );
    let a = new_entry(1, set.free_hash(0, hash_of(1)), 0);
    let b = new_entry(2, set.free_hash(1, hash_of(2)), 0);
    let c = new_entry(1, set.free_hash(2, hash_of(1)), 7);
    // SAFETY: Freed after their removal and a grace period.
    unsafe {
        set.insert(0, a);
        set.insert(3, b);
        set.insert(2, c);
    }
    assert!(set.find(3, hash_of(1), |entry| entry.name == 1).is_some());
    assert!(set.find(1, hash_of(2), |entry| entry.name == 2).is_some());
    assert_eq!(set.find(2, hash_of(1), |entry| entry.name == 1).map(|e| e.stamp), Some(7));
    assert!(!set.is_empty(0) && !set.is_empty(3) && !set.is_empty(2));
    // SAFETY: the entries are in the table.
    let (a, b) = unsafe { (a.as_ref(), b.as_ref()) };
    assert!(!set.remove(2, a), "it is in the other table");
    assert!(set.remove(3, a) && set.remove(1, b) && !set.remove(1, b));
    assert!(set.is_empty(3));
    drop(set);
    assert_eq!((one.len(), two.len()), (0, 1));
    // SAFETY: Removed above.
    unsafe {
        free_later(a, &guard);
        free_later(b, &guard);
    }
    drop(guard);
    remove_all(&two);
}

#[test]
fn a_whole_set_covers_every_bucket_and_grows_afterwards() {
    let table = Table::new();
    table.reserve(64, &rcu::pin());
    let guard = rcu::pin();
    let mut set = RcuTable::lock_set([LockReq::All(&table)], &guard);
    for name in 0..1000 {
        let entry = new_entry(name, set.free_hash(0, hash_of(name)), 0);
        // SAFETY: Freed after its removal and a grace period.
        unsafe { set.insert(0, entry) };
    }
    assert_eq!(buckets(&table), 32, "it can't grow while it is locked");
    assert!((0..1000).all(|name| set.find(0, hash_of(name), |e| e.name == name).is_some()));
    drop(set);
    assert!(buckets(&table) > 32, "it grows when it is released");
    drop(guard);
    remove_all(&table);
}

/// A set whose bucket was held by another thread suggests more buckets.
#[test]
fn a_set_that_had_to_wait_makes_the_table_grow() {
    let table = Table::new();
    insert(&table, 1);
    assert_eq!(buckets(&table), 1);
    // On a loaded machine the other thread may arrive too late to find the bucket locked.
    for _ in 0..200 {
        let waiting = AtomicBool::new(false);
        thread::scope(|scope| {
            let guard = rcu::pin();
            let bucket = table.lock(hash_of(1), &guard);
            scope.spawn(|| {
                let guard = rcu::pin();
                waiting.store(true, Ordering::Release);
                drop(Table::lock_set([LockReq::One(&table, hash_of(1))], &guard));
            });
            while !waiting.load(Ordering::Acquire) {
                thread::yield_now();
            }
            vfscale_harness::pause(std::time::Duration::from_millis(20));
            drop(bucket);
        });
        if buckets(&table) > 1 {
            break;
        }
    }
    assert!(buckets(&table) > 1);
    assert!(remove(&table, 1));
}

/// A bucket may be released while a lock of a higher rank is held; the resize that follows must
/// then not wait for buckets, which the order of locks forbids.
#[test]
fn growth_on_release_respects_the_lock_order() {
    let table = Table::new();
    let later = Mutex::<(), LaterClass>::new(());
    let guard = rcu::pin();
    for name in 0..200 {
        let mut bucket = table.lock(hash_of(name), &guard);
        let entry = new_entry(name, bucket.free_hash(hash_of(name)), 0);
        // SAFETY: Freed after its removal and a grace period.
        unsafe { bucket.insert(entry) };
        let held = later.lock();
        drop(bucket);
        drop(held);
    }
    assert!(buckets(&table) >= 32);
    drop(guard);
    remove_all(&table);
}

/// A resize that meets a held bucket leaves it behind; the table works half-moved, and is finished
/// later.
#[test]
fn a_resize_that_is_stuck_is_finished_by_others() {
    let table = Table::new();
    let guard = rcu::pin();
    table.reserve(8, &guard);
    assert_eq!(buckets(&table), 4);
    // Hold the last bucket, as another thread would: a set may hold it while we insert.
    let held = RcuTable::lock_set([LockReq::One(&table, HASH_MAX)], &guard);
    thread::scope(|scope| {
        scope.spawn(|| {
            let below = (0..).filter(|name| hash_of(*name) < HASH_MAX / 4);
            below.take(40).for_each(|name| _ = insert(&table, name));
            assert_eq!(buckets(&table), 4, "the held bucket can't have been moved");
        });
    });
    assert_eq!(table.len(), 40);
    assert!(
        (0..)
            .filter(|n| hash_of(*n) < HASH_MAX / 4)
            .take(40)
            .all(|n| find(&table, n, &guard).is_some())
    );
    let bytes = table.bytes();
    drop(held);
    drop(guard);
    (1000..1100).for_each(|name| _ = insert(&table, name));
    assert!(buckets(&table) > 4, "the resize was not finished");
    assert!(bytes > 0);
    remove_all(&table);
}

/// A table may be dropped while a resize is unfinished.
#[test]
fn a_half_moved_table_is_dropped_whole() {
    let table = Table::new();
    let guard = rcu::pin();
    table.reserve(8, &guard);
    let held = RcuTable::lock_set([LockReq::One(&table, HASH_MAX)], &guard);
    let names: Vec<u64> = (0..).filter(|name| hash_of(*name) < HASH_MAX / 4).take(40).collect();
    thread::scope(|scope| {
        scope.spawn(|| names.iter().for_each(|name| _ = insert(&table, *name)));
    });
    drop(held);
    assert_eq!(buckets(&table), 4);
    let entries: Vec<&Name> = names.iter().filter_map(|name| find(&table, *name, &guard)).collect();
    assert_eq!(entries.len(), 40);
    drop(table);
    // SAFETY: the table is dropped, and no other thread has the entries.
    entries.into_iter().for_each(|entry| unsafe { free_later(entry, &guard) });
}

const ROUNDS: u64 = if cfg!(miri) { 30 } else { 30_000 };

/// Calls `f` in the other threads of a stress test until the first ones are done.
fn until(stop: &AtomicBool, mut f: impl FnMut(u64)) {
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        f(round);
        round += 1;
        if cfg!(miri) {
            thread::yield_now();
        }
    }
}

/// Names that stay are found by every lookup and by every scan exactly once, while others are
/// inserted and removed, and the table grows and shrinks.
///
/// Seam: growth of a table / lookups, insertions; parties: two insertions, a lookup.
///
/// Only here all three parties meet; the models of tables have two of them each.
#[test]
fn stress_lookups_and_scans_never_miss() {
    let table = Table::new();
    let stop = AtomicBool::new(false);
    let stable = MANY.min(200);
    (0..stable).for_each(|name| _ = insert(&table, name));
    thread::scope(|scope| {
        let (table, stop) = (&table, &stop);
        let writers: Vec<_> = (1..=3u64)
            .map(|thread| {
                scope.spawn(move || {
                    let own = |i: u64| thread * 1_000_000 + i % 400;
                    for i in 0..ROUNDS {
                        insert(table, own(i));
                        assert!(find(table, own(i), &rcu::pin()).is_some(), "just inserted");
                        if i >= 300 {
                            assert!(remove(table, own(i - 300)));
                            assert!(find(table, own(i - 300), &rcu::pin()).is_none());
                        }
                    }
                    for i in ROUNDS.saturating_sub(300)..ROUNDS {
                        assert!(remove(table, own(i)));
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            until(stop, |round| {
                let guard = rcu::pin();
                let name = round % stable;
                assert!(find(table, name, &guard).is_some(), "{name} was missed");
                assert!(find(table, stable + name, &guard).is_none());
            });
        });
        scope.spawn(move || {
            until(stop, |round| {
                let mut seen = vec![0u8; stable as usize];
                let mut last = 0;
                table.scan(0, &rcu::pin(), |entry| {
                    assert!(entry.hash >= last, "out of order");
                    last = entry.hash;
                    if let Some(times) = seen.get_mut(entry.name as usize) {
                        *times += 1;
                    }
                    ControlFlow::Continue(())
                });
                assert!(seen.iter().all(|times| *times == 1), "{round}: {seen:?}");
                assert!(table.len() >= stable as usize);
            });
        });
        scope.spawn(move || {
            until(stop, |round| {
                let guard = rcu::pin();
                if round % 2 == 0 {
                    table.reserve(4096, &guard);
                } else {
                    table.shrink_to_fit(&guard);
                }
                thread::yield_now();
            });
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(table.len() as u64, stable);
    remove_all(&table);
}

/// A name that is replaced (inserted again before the old entry is removed, as by a rename over it)
/// is found at every moment, and never an older entry after a newer one.
#[test]
fn stress_a_replaced_name_is_never_missed() {
    let table = Table::new();
    let (stop, published) = (AtomicBool::new(false), AtomicU64::new(0));
    // Neighbours fill some slots, so the replacement uses different slots of the bucket.
    (1..5).for_each(|name| _ = insert(&table, name));
    insert(&table, 0);
    thread::scope(|scope| {
        let (table, stop, published) = (&table, &stop, &published);
        let writer = scope.spawn(move || {
            for stamp in 1..=4 * ROUNDS {
                let guard = rcu::pin();
                let hash = hash_of(0);
                let mut bucket = table.lock(hash, &guard);
                let old = bucket.find(hash, |entry| entry.name == 0).unwrap();
                let entry = new_entry(0, bucket.free_hash(hash), stamp);
                // SAFETY: Freed after its removal and a grace period.
                unsafe { bucket.insert(entry) };
                assert!(bucket.remove(old));
                drop(bucket);
                published.store(stamp, Ordering::Release);
                // SAFETY: Removed above.
                unsafe { free_later(old, &guard) };
                if stamp % 64 == 0 {
                    table.reserve(if stamp % 128 == 0 { 64 } else { 512 }, &guard);
                    table.shrink_to_fit(&guard);
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(move || {
                until(stop, |_| {
                    let least = published.load(Ordering::Acquire);
                    let guard = rcu::pin();
                    let found = find(table, 0, &guard).expect("the name was missed");
                    assert!(found.stamp >= least, "{} after {least}", found.stamp);
                });
            });
        }
        let result = writer.join();
        stop.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    remove_all(&table);
}

/// Entries move between two tables under sets of locks, as renames do, while the tables are
/// resized: every entry is always in one of them, and a table locked as a whole does not change.
#[test]
fn stress_moves_between_tables() {
    let tables = [Table::new(), Table::new()];
    let stop = AtomicBool::new(false);
    let names = 60;
    (0..names).for_each(|name| _ = insert(&tables[0], name));
    thread::scope(|scope| {
        let (tables, stop) = (&tables, &stop);
        let movers: Vec<_> = (0..3u64)
            .map(|thread| {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        // Each thread has its names.
                        let name = (round * 7 % (names / 3)) * 3 + thread;
                        let guard = rcu::pin();
                        let hash = hash_of(name);
                        let reqs = [LockReq::One(&tables[0], hash), LockReq::One(&tables[1], hash)];
                        let mut set = RcuTable::lock_set(reqs, &guard);
                        let is = |entry: &Name| entry.name == name;
                        let (from, old) = match set.find(0, hash, is) {
                            Some(old) => (0, old),
                            None => (1, set.find(1, hash, is).expect("it is in one of them")),
                        };
                        assert!(set.find(1 - from, hash, is).is_none(), "it is in both");
                        let entry = new_entry(name, set.free_hash(1 - from, hash), round);
                        // SAFETY: Freed after its removal and a grace period.
                        unsafe { set.insert(1 - from, entry) };
                        assert!(set.remove(from, old));
                        drop(set);
                        // SAFETY: Removed above.
                        unsafe { free_later(old, &guard) };
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            until(stop, |_| {
                let guard = rcu::pin();
                let reqs = [LockReq::All(&tables[0]), LockReq::All(&tables[1])];
                let set = RcuTable::lock_set(reqs, &guard);
                let both = (0..names).filter(|name| {
                    let is = |entry: &Name| entry.name == *name;
                    let places = [0, 1].map(|i| set.find(i, hash_of(*name), is).is_some());
                    assert!(places[0] != places[1], "{name} is in {places:?}");
                    places[0]
                });
                assert_eq!(set.is_empty(0), both.count() == 0);
                drop(set);
                thread::yield_now();
            });
        });
        scope.spawn(move || {
            until(stop, |round| {
                let guard = rcu::pin();
                tables[(round % 2) as usize].reserve(if round % 3 == 0 { 300 } else { 40 }, &guard);
                tables[(round / 2 % 2) as usize].shrink_to_fit(&guard);
                thread::yield_now();
            });
        });
        let results: Vec<_> = movers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
    assert_eq!(tables[0].len() + tables[1].len(), names as usize);
    tables.iter().for_each(remove_all);
}
