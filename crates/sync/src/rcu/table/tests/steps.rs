//! Resizes of large tables, in steps of many calls.

use super::*;

/// Memory of zeros is an array of empty buckets.
#[test]
fn an_empty_bucket_is_all_zeros() {
    let line = line::Line::<Name, BucketClass>::new();
    let words = std::ptr::from_ref(&line).cast::<[u64; 8]>();
    // SAFETY: a bucket has 64 bytes and no padding, and no other thread has it.
    assert_eq!(unsafe { *words }, [0; 8]);
}

/// While a table grows to a hundred thousand entries, and shrinks again, no call moves more than a
/// few of its buckets, or half of those of a small one; and each resize ends before the buckets are
/// overfull.
#[test]
fn no_call_moves_the_whole_table() {
    const ENTRIES: u64 = if cfg!(miri) { 3_000 } else { 100_000 };
    const LARGE: usize = 1 << line::STEPS_FROM_BITS;
    let table = Table::new();
    let moved = |call: &dyn Fn()| {
        let before = buckets(&table);
        grow::MOVED.set(0);
        call();
        let (moved, most) =
            (grow::MOVED.get(), if before < LARGE { before } else { 2 * grow::STEP });
        assert!(moved <= most, "{moved} of {before} buckets in one call");
        moved
    };
    let mut all = 0;
    for name in 0..ENTRIES {
        all += moved(&|| _ = insert(&table, name));
        assert!(name < 256 || name < 12 * buckets(&table) as u64, "{name} in {table:?}");
    }
    assert!((0..ENTRIES).all(|name| find(&table, name, &rcu::pin()).is_some()));
    assert_eq!(table.len() as u64, ENTRIES);
    assert!(cfg!(miri) || buckets(&table) >= 4 * LARGE, "{table:?}");
    assert!(all < 2 * buckets(&table), "each bucket is moved once at each size");
    for name in 0..ENTRIES {
        moved(&|| assert!(remove(&table, name)));
    }
    assert_eq!(table.len(), 0);
    assert!(buckets(&table) < LARGE.max(64 * crate::cpu::possible() as usize), "{table:?}");
}

/// Threads that insert concurrently share the work of growing, and it ends: each group is moved
/// once, whoever has it in hand.
///
/// Race: A table: growth in steps by several threads.
#[test]
fn threads_grow_a_table_together() {
    const THREADS: u64 = 4;
    const EACH: u64 = if cfg!(miri) { 500 } else { 20_000 };
    let table = Table::new();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let table = &table;
            scope.spawn(move || {
                let names = thread * EACH..(thread + 1) * EACH;
                names.clone().for_each(|name| _ = insert(table, name));
                assert!(names.into_iter().all(|name| find(table, name, &rcu::pin()).is_some()));
            });
        }
    });
    assert_eq!(table.len() as u64, THREADS * EACH);
    assert!(buckets(&table) as u64 * 12 >= THREADS * EACH, "{table:?}");
    remove_all(&table);
}
