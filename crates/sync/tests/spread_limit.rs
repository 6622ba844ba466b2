//! The bound on memory that tables take because several CPUs use them. One test at a time: the
//! bound belongs to the process.

#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used)]

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vfscale_sync::hash::fibonacci;
use vfscale_sync::spread::{self, Reservation};
use vfscale_sync::table::{Hashed, RcuTable};
use vfscale_sync::{cpu, rcu};

vfscale_sync::lock_class! {
    /// Buckets of these tests.
    BucketClass = ("test_bucket", 100);
}

type Table = RcuTable<Entry, BucketClass>;

struct Entry(u64);

impl Hashed for Entry {
    fn table_hash(&self) -> u64 {
        self.0
    }
}

/// Waits for exclusive use of the bound, until the memory that other tests have deferred is freed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    settle();
    assert_eq!(spread::taken(), 0);
    alone
}

/// Waits for deferred frees.
fn settle() {
    for _ in 0..4 {
        rcu::synchronize();
    }
}

/// Inserts and removes a name on two CPUs alternately until the table does not grow any more.
fn use_on_two_cpus(table: &Table) {
    let entry = Entry(0);
    for turn in 0..400 {
        let _on = cpu::pretend(turn / 8 % 2);
        let guard = rcu::pin();
        let mut bucket = table.lock(0, &guard);
        // SAFETY: the entry lives until it is removed, a line below, and no other thread uses the
        // table.
        unsafe { bucket.insert(NonNull::from(&entry)) };
        assert!(bucket.remove(&entry));
    }
}

/// Returns the bytes of a table that has grown as far as several CPUs make it.
fn spread_bytes() -> usize {
    64 * (cpu::possible() as usize * 32).next_power_of_two()
}

#[test]
fn a_table_gives_back_what_it_takes() {
    let _alone = alone();
    let table = Table::new();
    use_on_two_cpus(&table);
    assert_eq!(table.bytes(), spread_bytes());
    settle();
    assert_eq!(spread::taken(), spread_bytes(), "smaller ones were given back");
    drop(table);
    assert_eq!(spread::taken(), 0);
}

#[test]
fn a_table_that_shrinks_to_its_entries_takes_nothing() {
    let _alone = alone();
    let table = Table::new();
    use_on_two_cpus(&table);
    table.shrink_to_fit(&rcu::pin());
    settle();
    assert_eq!((spread::taken(), table.bytes()), (0, 64));
}

#[test]
fn tables_grow_when_there_is_room_again() {
    let _alone = alone();
    let table = Table::new();
    let all = Reservation::take(spread::BYTES_MAX).unwrap();
    assert!(Reservation::take(1).is_none());
    use_on_two_cpus(&table);
    assert_eq!(table.bytes(), 64, "it has its first bucket");
    drop(all);
    use_on_two_cpus(&table);
    assert_eq!(table.bytes(), spread_bytes());
}

/// Seam: growth of a table for several CPUs / its bound; parties: two CPUs, and all other tables.
///
/// One after the other, without threads.
#[test]
fn many_tables_stay_within_the_bound_and_work() {
    let _alone = alone();
    let fit = spread::BYTES_MAX / spread_bytes();
    let tables: Vec<Table> = (0..fit + fit / 2).map(|_| Table::new()).collect();
    for table in &tables {
        use_on_two_cpus(table);
        assert!(spread::taken() <= spread::BYTES_MAX);
    }
    settle();
    let first = 64 * tables.len();
    let all: usize = tables.iter().map(RcuTable::bytes).sum();
    assert!(all <= spread::BYTES_MAX + first, "{all} bytes");
    assert!(spread::taken() > spread::BYTES_MAX / 2, "most of it is used");
    drop(tables);
    settle();
    assert_eq!(spread::taken(), 0);
}

/// A table that was large shrinks to the size for several CPUs, with a reservation; if there is no
/// room for one it shrinks further.
#[test]
fn a_table_that_was_large_shrinks_further_where_there_is_no_room() {
    let _alone = alone();
    for has_room in [true, false] {
        let all = (!has_room).then(|| Reservation::take(spread::BYTES_MAX).unwrap());
        let table = Table::new();
        let many = spread_bytes() / 64 * 64;
        let hash = |n: usize| fibonacci(n as u64) >> 1 & !0xf;
        let entries: Vec<Entry> = (0..many).map(|n| Entry(hash(n))).collect();
        let guard = rcu::pin();
        for entry in &entries {
            let mut bucket = table.lock(entry.0, &guard);
            // SAFETY: all are removed below, and dropped after that; no other thread uses the
            // table.
            unsafe { bucket.insert(NonNull::from(entry)) };
        }
        assert!(table.bytes() > spread_bytes());
        for entry in &entries {
            assert!(table.lock(entry.0, &guard).remove(entry));
        }
        drop(guard);
        settle();
        let taken = if has_room { spread_bytes() } else { spread::BYTES_MAX };
        assert_eq!(spread::taken(), taken);
        assert!((table.bytes() >= spread_bytes()) == has_room, "{} bytes", table.bytes());
        drop((table, all));
    }
}
