use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn one_thread_at_a_time_has_a_key() {
    let locks = KeyLocks::new();
    let taken = [const { AtomicBool::new(false) }; 2];
    let times = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for t in 0..4usize {
            let (locks, taken, times) = (&locks, &taken, &times);
            scope.spawn(move || {
                for i in 0..5000 {
                    let key = (t + i) % 2;
                    let _guard = locks.lock((64 * key, 0));
                    assert!(!taken[key].swap(true, Ordering::Relaxed), "two threads hold one key");
                    times.fetch_add(1, Ordering::Relaxed);
                    taken[key].store(false, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(times.into_inner(), 20_000);
    assert!(locks.shards.iter().all(|shard| shard.lock().is_empty()));
}

#[test]
fn other_keys_of_the_shard_are_free() {
    let locks = KeyLocks::new();
    let first = locks.lock((0, 1));
    assert!(std::ptr::eq(locks.shard((0, 1)), locks.shard((0, 2))));
    drop(locks.lock((0, 2)));
    drop(first);
}
