use std::sync::atomic::{AtomicU64, Ordering};

use super::SeqLock;

crate::lock_class! { Pair = ("pair", 10); }

#[test]
fn writers_exclude_one_another_and_readers_retry() {
    const WRITES: u64 = 30_000;
    let lock = SeqLock::<Pair>::new();
    let pair = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..WRITES {
                    let _write = lock.write();
                    for value in &pair {
                        let old = value.load(Ordering::Relaxed);
                        value.store(old + 1, Ordering::Relaxed);
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut last = 0;
            while last < 2 * WRITES {
                let start = lock.begin();
                let values = pair.each_ref().map(|value| value.load(Ordering::Relaxed));
                if !lock.retry(start) {
                    assert_eq!(values[0], values[1]);
                    last = values[0];
                }
            }
        });
    });
    assert_eq!(pair[1].load(Ordering::Relaxed), 2 * WRITES);
}
