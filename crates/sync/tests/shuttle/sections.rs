//! Sections of RCU: what a thread finds in one is there until the section ends.

use std::ptr::NonNull;
use std::sync::Arc;

use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::table::{Hashed, RcuTable};
use vfscale_sync::{lock_class, rcu};

lock_class! { Buckets = ("buckets", 1); }

struct Entry {
    hash: u64,
    body: AtomicU64,
}

impl Hashed for Entry {
    fn table_hash(&self) -> u64 {
        self.hash
    }
}

/// A table that owns its entries.
struct Owner(RcuTable<Entry, Buckets>);

/// The moment at which an entry is freed.
#[derive(Clone, Copy)]
enum Frees {
    AfterGracePeriod,
    AtOnce,
}

impl Owner {
    fn insert(&self, hash: u64) {
        let guard = rcu::pin();
        let entry = Box::leak(Box::new(Entry { hash, body: AtomicU64::new(7) }));
        // SAFETY: the entry is freed by `remove`, after a grace period unless the model has a
        // fault.
        unsafe { self.0.lock(hash, &guard).insert(NonNull::from(entry)) };
    }

    fn remove(&self, hash: u64, frees: Frees) {
        let guard = rcu::pin();
        let mut bucket = self.0.lock(hash, &guard);
        let Some(entry) = bucket.find(hash, |_| true) else { return };
        assert!(bucket.remove(entry));
        drop(bucket);
        let entry = std::ptr::from_ref(entry).cast_mut().expose_provenance();
        // SAFETY: it comes from a box, and no table has it.
        let free = move || unsafe {
            drop(Box::from_raw(std::ptr::with_exposed_provenance_mut::<Entry>(entry)));
        };
        match frees {
            Frees::AfterGracePeriod => guard.defer(free),
            Frees::AtOnce => free(),
        }
    }

    fn read(&self, hash: u64) {
        let guard = rcu::pin();
        if let Some(entry) = self.0.find(hash, &guard, |_| true) {
            assert_eq!(entry.body.load(Ordering::Relaxed), 7);
        }
    }
}

/// Runs two readers, one of them without sections if it is `blind`, beside a thread that removes
/// entries and inserts others.
fn reads_beside_removals(blind: bool, frees: Frees) {
    model::check(&[Schedules::Turns(2_000), Schedules::Delays(2_000)], move || {
        let owner = Arc::new(Owner(RcuTable::new()));
        owner.insert(1);
        let readers = [false, blind].map(|blind| {
            model::spawn(Arc::clone(&owner), move |owner| {
                let reads = || (0..2).for_each(|_| owner.read(1));
                if blind { model::without_sections(reads) } else { reads() }
            })
        });
        for _ in 0..2 {
            owner.remove(1, frees);
            owner.insert(1);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        owner.remove(1, frees);
    });
}

/// Race: Lookups in a hash table: two readers / a thread that removes and frees.
#[test]
fn an_entry_stays_for_those_that_have_found_it() {
    reads_beside_removals(false, Frees::AfterGracePeriod);
}

/// The model can fail: a reader lacks its guard.
///
/// Race: Lookups in a hash table without a guard: two readers / a thread that removes and frees.
#[test]
#[should_panic(expected = "RefCell already")]
fn a_missing_guard_is_found() {
    reads_beside_removals(true, Frees::AfterGracePeriod);
}

/// The model can fail: an entry is freed before the grace period.
///
/// Race: Lookups in a hash table whose entries are freed at once: two readers / a thread that
/// frees.
#[test]
#[should_panic(expected = "RefCell already")]
fn a_free_before_the_grace_period_is_found() {
    reads_beside_removals(false, Frees::AtOnce);
}
