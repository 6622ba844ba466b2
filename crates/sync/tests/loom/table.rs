//! Interleavings of small programs, for tables and budgets: all of them with loom, many random ones
//! with shuttle (which switches threads at every access, but models no weak memory). Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom table::
//! RUSTFLAGS="--cfg shuttle" cargo test -p vfscale-sync --release --test shuttle table::
//! ```
//!
//! In models a bucket has two slots and a node one, so few entries reach all code. The body of an
//! entry is a loom cell, which reports a lookup that isn't ordered after the insertion.

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use vfscale_sync::atomic::{AtomicBool, Ordering, thread};
#[cfg(shuttle)]
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::percpu::Budget;
use vfscale_sync::rcu::Guard;
use vfscale_sync::table::{Hashed, LockReq, RcuTable};
use vfscale_sync::{cpu, lock_class, rcu};

lock_class! { Buckets = ("buckets", 1); }

/// Explores all executions with at most `preemptions` switches away from a thread that could
/// continue.
#[cfg(loom)]
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Explores random executions, half of them with few preemptions.
#[cfg(all(shuttle, not(loom)))]
fn check(_preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    model::check(&[Schedules::Turns(5_000), Schedules::Delays(5_000)], model);
}

/// The part of an entry that a lookup reads.
#[cfg(loom)]
struct Body(loom::cell::UnsafeCell<u32>);

#[cfg(loom)]
impl Body {
    fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(0))
    }

    fn set(&self) {
        // SAFETY: loom checks it.
        self.0.with_mut(|body| unsafe { *body = 7 });
    }

    fn is_set(&self) -> bool {
        // SAFETY: loom checks it.
        self.0.with(|body| unsafe { *body == 7 })
    }
}

#[cfg(all(shuttle, not(loom)))]
struct Body(AtomicBool);

#[cfg(all(shuttle, not(loom)))]
impl Body {
    fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct Entry {
    name: u32,
    hash: u64,
    body: Body,
}

impl Hashed for Entry {
    fn table_hash(&self) -> u64 {
        self.hash
    }
}

/// A table, and entries that live as long as the model.
struct Shared {
    table: RcuTable<Entry, Buckets>,
    entries: Vec<Box<Entry>>,
}

// SAFETY: The bodies are written before the entry is published and only read afterwards; loom's
// cell reports it if not.
unsafe impl Send for Shared {}
// SAFETY: the bodies are written before the entry is published and only read afterwards.
unsafe impl Sync for Shared {}

const LOW: u64 = 0;
const HIGH: u64 = 1 << 62;

impl Shared {
    /// Creates entries of these hashes; the first `linked` of them are inserted.
    fn new(hashes: &[u64], linked: usize) -> Arc<Self> {
        let entry = |(name, hash): (usize, &u64)| {
            Box::new(Entry { name: name as u32, hash: hash | name as u64, body: Body::new() })
        };
        let entries = hashes.iter().enumerate().map(entry).collect();
        let shared = Self { table: RcuTable::new(), entries };
        (0..linked).for_each(|name| shared.insert(name));
        Arc::new(shared)
    }

    fn insert(&self, name: usize) {
        let guard = rcu::pin();
        let entry = &*self.entries[name];
        entry.body.set();
        let mut bucket = self.table.lock(entry.hash, &guard);
        // SAFETY: The entries outlive the table.
        unsafe { bucket.insert(NonNull::from(entry)) };
    }

    fn remove(&self, name: usize) -> bool {
        let guard = rcu::pin();
        let entry = &*self.entries[name];
        self.table.lock(entry.hash, &guard).remove(entry)
    }

    fn finds(&self, name: usize) -> bool {
        self.finds_any(self.entries[name].hash, &[name])
    }

    fn finds_any(&self, hash: u64, names: &[usize]) -> bool {
        let guard = rcu::pin();
        let found = self.table.find(hash, &guard, |entry| names.contains(&(entry.name as usize)));
        let whole = found.is_none_or(|entry| entry.body.is_set());
        assert!(whole, "an entry was found before it was written");
        found.is_some()
    }

    fn scan(&self, guard: &Guard) -> Vec<u32> {
        let mut names = Vec::new();
        self.table.scan(0, guard, |entry| {
            names.push(entry.name);
            ControlFlow::Continue(())
        });
        names
    }
}

/// An entry is found whole or not at all: in a new table, in a slot, and in a new node.
///
/// Race: A table: lookup / insertion.
#[test]
fn find_against_insert() {
    for before in [0, 1, 2] {
        check(4, move || {
            let shared = Shared::new(&[LOW, LOW, LOW], before);
            let other = Arc::clone(&shared);
            let writer = thread::spawn(move || other.insert(2));
            let seen = shared.finds(2);
            let still = shared.finds(2);
            assert!(still || !seen, "it vanished");
            writer.join().unwrap();
            assert!(shared.finds(2));
        });
    }
}

/// Of two entries of one name, at least one is present at any time: a lookup finds one.
///
/// Race: A table: lookup / replacement.
#[test]
fn find_against_replacement() {
    check(4, || {
        // Slot 0 is empty and slot 1 has the old entry: the scan can pass between.
        let shared = Shared::new(&[LOW, LOW, LOW], 2);
        let hash = shared.entries[2].hash;
        assert!(shared.remove(0));
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let guard = rcu::pin();
            let mut bucket = other.table.lock(hash, &guard);
            let new = &*other.entries[2];
            new.body.set();
            // SAFETY: The entries outlive the table.
            unsafe { bucket.insert(NonNull::from(new)) };
            assert!(bucket.remove(&other.entries[1]));
        });
        let guard = rcu::pin();
        let found = shared.table.find(hash, &guard, |entry| entry.name != 0);
        assert!(found.is_some(), "the name was missed");
        writer.join().unwrap();
    });
}

/// An entry moves to another name, and for a moment is in neither bucket: a lookup that doesn't
/// find the old name finds the new one.
///
/// Race: A table: lookup / an announced move.
#[test]
fn find_against_announced_move() {
    check(3, || {
        let shared = Shared::new(&[LOW, HIGH], 1);
        shared.table.reserve(4, &rcu::pin());
        let other = Arc::clone(&shared);
        let mover = thread::spawn(move || {
            let guard = rcu::pin();
            let [old, new] = [&*other.entries[0], &*other.entries[1]];
            new.body.set();
            let reqs = [old, new].map(|entry| LockReq::One(&other.table, entry.hash));
            let mut set = RcuTable::lock_set(reqs, &guard);
            set.announce([0, 1]);
            assert!(set.remove(0, old));
            // SAFETY: The entries outlive the table.
            unsafe { set.insert(1, NonNull::from(new)) };
        });
        assert!(shared.finds(0) || shared.finds(1), "it is under neither name");
        mover.join().unwrap();
        assert!(!shared.finds(0) && shared.finds(1));
    });
}

/// While the table grows, no entry is missed, and no removed entry is found.
///
/// Race: A table: lookup / growth.
/// Seam: growth of a table / lookups, insertions; parties: two insertions, a lookup.
#[test]
fn find_against_growth() {
    check(3, || {
        let shared = Shared::new(&[LOW, HIGH], 2);
        let gone = Arc::new(AtomicBool::new(false));
        let (other, set) = (Arc::clone(&shared), Arc::clone(&gone));
        let writer = thread::spawn(move || {
            other.table.reserve(4, &rcu::pin());
            assert!(other.remove(1));
            set.store(true, Ordering::Release);
        });
        assert!(shared.finds(0), "the entry was missed");
        if gone.load(Ordering::Acquire) {
            assert!(!shared.finds(1), "a removed entry was found");
        }
        assert!(shared.finds(0), "the entry was missed");
        writer.join().unwrap();
        assert!(shared.finds(0) && !shared.finds(1));
    });
}

/// A removal by one thread while another moves the buckets is seen by a third, which follows the
/// old buckets.
///
/// Race: A table: removal / growth / lookup.
#[test]
fn removal_against_growth() {
    check(3, || {
        let shared = Shared::new(&[LOW, HIGH], 2);
        let grower = Arc::clone(&shared);
        let grower = thread::spawn(move || grower.table.reserve(4, &rcu::pin()));
        assert!(shared.remove(1));
        assert!(!shared.finds(1), "a removed entry was found");
        assert!(shared.finds(0));
        grower.join().unwrap();
        assert!(!shared.finds(1) && shared.finds(0));
    });
}

/// While the table shrinks, where several buckets become one, no entry is missed, and no removed
/// entry is found.
///
/// Race: A table: changes / shrinking.
#[test]
fn changes_against_shrinking() {
    check(2, || {
        let shared = Shared::new(&[LOW, HIGH, HIGH], 2);
        shared.table.reserve(4, &rcu::pin());
        let shrinker = Arc::clone(&shared);
        let shrinker = thread::spawn(move || shrinker.table.shrink_to_fit(&rcu::pin()));
        shared.insert(2);
        assert!(shared.finds(2) && shared.finds(0));
        assert!(shared.remove(0));
        assert!(!shared.finds(0));
        shrinker.join().unwrap();
        assert!(!shared.finds(0) && shared.finds(1) && shared.finds(2));
        assert_eq!(shared.table.len(), 2);
    });
}

/// Two insertions, each of which overflows the bucket and tries to grow the table.
///
/// Race: A table: insertions that both make it grow.
#[test]
fn insert_against_insert() {
    check(3, || {
        let shared = Shared::new(&[LOW, LOW, HIGH, LOW], 2);
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || other.insert(2));
        shared.insert(3);
        writer.join().unwrap();
        assert!((0..4).all(|name| shared.finds(name)));
        assert_eq!(shared.scan(&rcu::pin()).len(), 4);
    });
}

/// Alternate insertions by two CPUs make the bucket hot: the second one moves it during lookups. In
/// models every insertion compares its CPU.
///
/// Race: A table: lookups / growth for several CPUs.
#[test]
fn find_against_heat() {
    check(2, || {
        let shared = Shared::new(&[LOW, HIGH, LOW], 1);
        {
            let _on = cpu::pretend(1);
            shared.insert(1);
        }
        let before = shared.table.bytes();
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let _on = cpu::pretend(0);
            other.insert(2);
        });
        assert!(shared.finds(0) && shared.finds(1), "an entry was missed");
        let seen = shared.finds(2);
        assert!(shared.finds(2) || !seen, "it vanished");
        writer.join().unwrap();
        assert!((0..3).all(|name| shared.finds(name)));
        assert!(shared.table.bytes() > before, "the table did not grow");
        assert_eq!(shared.scan(&rcu::pin()).len(), 3);
    });
}

/// The move of a hot bucket against an insertion by the other CPU, which finds its bucket moved or
/// moves it itself.
///
/// Race: A table: insertion / growth for several CPUs.
/// Seam: growth of a table / lookups, insertions; parties: two insertions, a lookup.
#[test]
fn insert_against_heat() {
    check(2, || {
        let shared = Shared::new(&[LOW, HIGH, LOW, HIGH], 1);
        {
            let _on = cpu::pretend(1);
            shared.insert(1);
        }
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            let _on = cpu::pretend(0);
            other.insert(2);
        });
        {
            let _on = cpu::pretend(1);
            shared.insert(3);
            assert!(shared.remove(1));
        }
        writer.join().unwrap();
        assert!([0, 2, 3].iter().all(|name| shared.finds(*name)) && !shared.finds(1));
        assert_eq!(shared.scan(&rcu::pin()).len(), 3);
    });
}

/// A scan sees entries that stay exactly once, while the table grows.
///
/// Race: A table: scan / growth.
#[test]
fn scan_against_growth() {
    check(3, || {
        let shared = Shared::new(&[LOW, HIGH], 2);
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || other.table.reserve(4, &rcu::pin()));
        assert_eq!(shared.scan(&rcu::pin()), [0, 1]);
        writer.join().unwrap();
        assert_eq!(shared.scan(&rcu::pin()), [0, 1]);
    });
}

/// Removing a directory against creating a name in it: never both.
///
/// Race: A table: all buckets locked / insertion.
#[test]
fn whole_table_against_insert() {
    check(3, || {
        let shared = Shared::new(&[HIGH], 0);
        shared.table.reserve(4, &rcu::pin());
        let dead = Arc::new(AtomicBool::new(false));
        let (other, set) = (Arc::clone(&shared), Arc::clone(&dead));
        let remover = thread::spawn(move || {
            let guard = rcu::pin();
            let buckets = RcuTable::lock_set([LockReq::All(&other.table)], &guard);
            if buckets.is_empty(0) {
                set.store(true, Ordering::Relaxed);
            }
        });
        {
            let guard = rcu::pin();
            let entry = &*shared.entries[0];
            let mut bucket = shared.table.lock(entry.hash, &guard);
            if !dead.load(Ordering::Relaxed) {
                // SAFETY: The entries outlive the table.
                unsafe { bucket.insert(NonNull::from(entry)) };
            }
        }
        remover.join().unwrap();
        assert_ne!(dead.load(Ordering::Relaxed), !shared.table.is_empty());
    });
}

/// Sets that request the same buckets in different orders don't deadlock, even if a table grows.
///
/// Race: A table: sets of locks in different orders.
#[test]
fn sets_against_each_other() {
    check(3, || {
        let pair = Arc::new((Shared::new(&[LOW], 0), Shared::new(&[LOW], 0)));
        let other = Arc::clone(&pair);
        let thread = thread::spawn(move || {
            let guard = rcu::pin();
            let (a, b) = (&other.0.table, &other.1.table);
            drop(RcuTable::lock_set([LockReq::One(b, LOW), LockReq::One(a, LOW)], &guard));
            a.reserve(4, &guard);
        });
        let guard = rcu::pin();
        let (a, b) = (&pair.0.table, &pair.1.table);
        let set = RcuTable::lock_set([LockReq::All(a), LockReq::One(b, LOW)], &guard);
        assert!(set.is_empty(0));
        drop(set);
        thread.join().unwrap();
    });
}

/// An entry inserted under a set is not lost if the table is resized before all locks are taken.
///
/// Race: A table: a set of locks / growth.
#[test]
fn sets_against_growth() {
    check(2, || {
        let shared = Shared::new(&[HIGH, HIGH], 1);
        let other = Arc::clone(&shared);
        let grower = thread::spawn(move || other.table.reserve(4, &rcu::pin()));
        for all in [false, true] {
            let guard = rcu::pin();
            let entry = &*shared.entries[1];
            let one = LockReq::One(&shared.table, entry.hash);
            let req = if all { LockReq::All(&shared.table) } else { one };
            let mut set = RcuTable::lock_set([req], &guard);
            if all {
                assert!(set.remove(0, entry), "the inserted entry is missing");
                assert!(!set.is_empty(0));
            } else {
                entry.body.set();
                // SAFETY: The entries outlive the table.
                unsafe { set.insert(0, NonNull::from(entry)) };
            }
        }
        assert!(!shared.finds(1) && shared.finds(0));
        grower.join().unwrap();
        assert!(!shared.finds(1) && shared.finds(0));
        assert_eq!(shared.table.len(), 1);
    });
}

/// Creates a budget of which `left` units are left: one in each of two slots, the rest in the pool.
fn spread_budget(left: u64) -> Arc<Budget> {
    let budget = Budget::new(16, 2);
    for cpu in [0, 1] {
        let _on = cpu::pretend(cpu);
        assert!(budget.take(1));
    }
    assert!(budget.take(14 - left));
    assert_eq!(budget.available(), left);
    Arc::new(budget)
}

/// Both takers get their units, although one has to gather while the other uses its slot.
///
/// Race: A budget: taking / gathering.
#[test]
fn budget_gathers_exactly() {
    check(4, || {
        let budget = spread_budget(5);
        let other = Arc::clone(&budget);
        let gatherer = thread::spawn(move || assert!(other.take(4), "4 of 5 were refused"));
        {
            let _on = cpu::pretend(1);
            assert!(budget.take(1), "1 of 5 was refused");
        }
        gatherer.join().unwrap();
        assert_eq!((budget.available(), budget.used()), (0, 16));
        assert!(!budget.take(1));
    });
}

/// A unit that is given to a slot that the gatherer has visited, and one taken from a slot that it
/// has not, must not make it miss both.
///
/// Race: A budget: gathering / units that move between slots.
#[test]
fn budget_sees_units_that_move() {
    check(4, || {
        let budget = spread_budget(3);
        let other = Arc::clone(&budget);
        let gatherer =
            thread::spawn(move || assert!(other.take(3), "3 of at least 3 were refused"));
        {
            let _on = cpu::pretend(0);
            budget.give(1);
        }
        {
            let _on = cpu::pretend(1);
            assert!(budget.take(1), "the one that was given was refused");
        }
        gatherer.join().unwrap();
        assert_eq!(budget.available(), 0);
    });
}

/// One of two threads gets the last units, never both or neither.
///
/// Race: A budget: two threads that take the last units.
#[test]
fn budget_decides_between_two() {
    check(4, || {
        let budget = spread_budget(3);
        let other = Arc::clone(&budget);
        let rival = thread::spawn(move || {
            let _on = cpu::pretend(1);
            other.take(2)
        });
        let ours = budget.take(2);
        let theirs = rival.join().unwrap();
        assert!(ours != theirs, "{ours} and {theirs}");
        assert_eq!(budget.available(), 1);
    });
}
