use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::SeqRwLock;

crate::lock_class! { Rename = ("rename_lock", 10); }

#[test]
fn a_blocking_reader_leaves_the_count_alone() {
    let lock = SeqRwLock::<Rename>::new();
    let start = lock.begin();
    let read = lock.read();
    assert!(lock.try_read().is_some(), "blocking readers share");
    assert!(lock.try_write().is_none(), "and exclude writers");
    assert_eq!(lock.try_begin(), Some(start));
    drop(read);
    assert!(!lock.retry(start));
}

#[test]
fn an_exclusive_reader_is_a_writer() {
    let lock = SeqRwLock::<Rename>::with_exclusive(true, false);
    let start = lock.begin();
    let read = lock.read();
    assert!(lock.try_read().is_none());
    assert!(lock.try_begin().is_none());
    drop(read);
    assert!(lock.retry(start));
    assert!(lock.try_read().is_some());
}

/// A writer of a part meets no other writer, whatever readers do; an exclusive one is the writer of
/// everything.
#[test]
fn an_exclusive_part_is_everything() {
    for (readers, parts) in [(false, false), (true, false), (false, true), (true, true)] {
        let lock = SeqRwLock::<Rename>::with_exclusive(readers, parts);
        let start = lock.begin();
        let (whole, ()) = lock.write_part(|| ());
        assert_eq!(whole.is_some(), parts, "exclusive readers: {readers}");
        assert_eq!(lock.try_read().is_none(), parts);
        assert_eq!(lock.retry(start), parts || readers, "a reader was inside");
    }
}

#[test]
fn a_writer_keeps_everybody_out() {
    let lock = SeqRwLock::<Rename>::new();
    let start = lock.begin();
    let write = lock.write();
    assert!(lock.try_read().is_none());
    assert!(lock.try_write().is_none());
    assert!(lock.try_begin().is_none());
    assert!(lock.retry(start));
    drop(write);
    assert!(lock.try_write().is_some());
}

#[test]
fn seqrwlock_orders_its_three_kinds_of_users() {
    for exclusive in [false, true] {
        let lock = SeqRwLock::<Rename>::with_exclusive(exclusive, false);
        let pair = [AtomicU64::new(0), AtomicU64::new(0)];
        let done = AtomicBool::new(false);
        let load = || pair.each_ref().map(|value| value.load(Ordering::Relaxed));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let start = lock.begin();
                    let values = load();
                    if !lock.retry(start) {
                        assert_eq!(values[0], values[1]);
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let _inside = lock.read();
                        let values = load();
                        assert_eq!(values[0], values[1]);
                    }
                });
            }
            // Ends only if writers don't starve.
            for value in 1..=2_000 {
                let _write = lock.write();
                pair[0].store(value, Ordering::Relaxed);
                std::thread::yield_now();
                pair[1].store(value, Ordering::Relaxed);
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
