#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Returns `N` keys of one shard.
fn of_one_shard<const N: usize>() -> [Key; N] {
    let shard = Key::of_number(0).shard();
    let mut keys = (0..).map(Key::of_number).filter(|key| key.shard() == shard);
    [(); N].map(|()| keys.next().unwrap())
}

fn is_free(locks: &KeyLocks) -> bool {
    locks
        .shards
        .iter()
        .all(|shard| shard.held.lock().is_empty() && shard.word.load(Ordering::Relaxed) == FREE)
}

/// Threads lock keys of one shard in turn, so that the list is opened and closed all the time.
#[test]
fn one_thread_at_a_time_has_a_key() {
    let (locks, keys) = (KeyLocks::new(), of_one_shard::<3>());
    let taken = [const { AtomicBool::new(false) }; 3];
    let times = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for t in 0..4usize {
            let (locks, taken, times) = (&locks, &taken, &times);
            scope.spawn(move || {
                for i in 0..5000 {
                    let key = (t + i) % 3;
                    let guard = if (t + i) % 5 == 0 {
                        locks.try_lock(keys[key])
                    } else {
                        Some(locks.lock(keys[key]))
                    };
                    times.fetch_add(1, Ordering::Relaxed);
                    let Some(_guard) = guard else { continue };
                    assert!(!taken[key].swap(true, Ordering::Relaxed), "two threads hold one key");
                    std::thread::yield_now();
                    taken[key].store(false, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(times.into_inner(), 20_000);
    assert!(is_free(&locks));
}

#[test]
fn other_keys_of_the_shard_are_free() {
    let (locks, [a, b, c]) = (KeyLocks::new(), of_one_shard());
    let first = locks.lock(a);
    assert!(locks.try_lock(a).is_none());
    let second = locks.lock(b);
    let third = locks.try_lock(c).unwrap();
    // The first was locked by the word, and is on the list now.
    assert!(locks.try_lock(a).is_none() && locks.try_lock(b).is_none());
    drop(first);
    // No key enters the word while another is on the list.
    let first = locks.lock(a);
    assert!([a, b, c].iter().all(|key| locks.try_lock(*key).is_none()));
    drop((second, first));
    assert!(locks.try_lock(c).is_none() && locks.try_lock(a).is_some());
    drop(third);
    assert!(is_free(&locks));
}

#[test]
fn no_name_has_the_key_of_moves() {
    let locks = KeyLocks::new();
    let names = (1..10_000_u64).map(|i| Key::of_name((i << 6) as usize, i << 7));
    let mut names: Vec<_> = names.chain((0..10_000).map(Key::of_number)).collect();
    assert!(names.iter().all(|key| *key != Key::MOVES && key.0 != FREE && key.0 != LISTED));
    assert!(![FREE, LISTED].contains(&Key::MOVES.0));
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "unlike values have unlike keys");
    let shards: std::collections::HashSet<_> = names.iter().map(|key| key.shard()).collect();
    assert_eq!(shards.len(), SHARDS);
    drop((locks.lock(Key::MOVES), locks.lock(names[0])));
}
