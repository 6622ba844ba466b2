//! Every interleaving of small programs on sequence counts and the locks built on them. Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom seq::
//! ```

use crate::common::{Cell, check, spawn};
use loom::sync::Arc;
use vfscale_sync::atomic::{AtomicU32, Ordering};
use vfscale_sync::lock_class;
use vfscale_sync::seqcount::SeqCount;
use vfscale_sync::seqlock::SeqLock;
use vfscale_sync::seqrwlock::SeqRwLock;

lock_class! { Tested = ("tested", 1); }

/// Two words that a writer keeps equal.
struct Pair([AtomicU32; 2]);

impl Pair {
    fn new() -> Self {
        Self([AtomicU32::new(0), AtomicU32::new(0)])
    }

    fn read(&self) -> (u32, u32) {
        (self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed))
    }

    fn write(&self) {
        for word in &self.0 {
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

/// Race: Sequence count: readers / a writer.
#[test]
fn seqcount_readers_never_accept_torn_data() {
    check(4, || {
        let shared = Arc::new((SeqCount::new(), Pair::new()));
        let writer = spawn(shared.clone(), move |shared| {
            for _ in 0..2 {
                let _inside = shared.0.write();
                shared.1.write();
            }
        });
        // Without waiting: every start is explored, also an odd one.
        let start = shared.0.raw();
        let (first, second) = shared.1.read();
        if !shared.0.retry(start) {
            assert_eq!(first, second);
            assert_eq!(first, start / 2, "the count identifies the write that is seen");
        }
        writer.join().unwrap();
        let start = shared.0.begin();
        assert_eq!(shared.1.read(), (2, 2));
        assert!(!shared.0.retry(start));
    });
}

/// Race: Sequence count: a reader that begins / a writer.
#[test]
fn seqcount_begin_waits() {
    check(3, || {
        let shared = Arc::new((SeqCount::new(), Pair::new()));
        let writer = spawn(shared.clone(), move |shared| {
            let _inside = shared.0.write();
            shared.1.write();
        });
        let start = shared.0.begin();
        assert_eq!(start % 2, 0);
        let (first, second) = shared.1.read();
        assert!(shared.0.retry(start) || first == second);
        writer.join().unwrap();
    });
}

/// Race: Sequence lock: writers.
#[test]
fn seqlock_writers_exclude_one_another() {
    check(3, || {
        let shared = Arc::new((SeqLock::<Tested>::new(), Pair::new()));
        let writers = [(); 2].map(|()| {
            spawn(shared.clone(), move |shared| {
                let _inside = shared.0.write();
                shared.1.write();
            })
        });
        let start = shared.0.begin();
        let (first, second) = shared.1.read();
        assert!(shared.0.retry(start) || first == second);
        writers.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.1.read(), (2, 2));
    });
}

fn seqrwlock_three_kinds(exclusive: bool) {
    check(3, move || {
        let lock = SeqRwLock::<Tested>::with_exclusive(exclusive, false);
        let shared = Arc::new((lock, Pair::new(), Cell::new()));
        let writer = spawn(shared.clone(), move |shared| {
            let _inside = shared.0.write();
            shared.1.write();
            shared.2.add();
        });
        let blocking = spawn(shared.clone(), move |shared| {
            let _inside = shared.0.read();
            let (first, second) = shared.1.read();
            assert_eq!(first, second);
            assert_eq!(shared.2.get(), first);
        });
        let start = shared.0.begin();
        let (first, second) = shared.1.read();
        assert!(shared.0.retry(start) || first == second);
        writer.join().unwrap();
        blocking.join().unwrap();
    });
}

/// Race: Seqrwlock: readers that retry / readers that share / writers.
#[test]
fn seqrwlock_with_shared_readers() {
    seqrwlock_three_kinds(false);
}

/// Race: Seqrwlock: readers that retry / readers that write / writers.
#[test]
fn seqrwlock_with_exclusive_readers() {
    seqrwlock_three_kinds(true);
}

/// Data of a part that a blocking reader has read does not change until it leaves.
fn seqrwlock_writers_of_parts(readers: bool, parts: bool) {
    check(3, move || {
        let lock = SeqRwLock::<Tested>::with_exclusive(readers, parts);
        let shared = Arc::new((lock, [(); 2].map(|()| (SeqCount::new(), Pair::new()))));
        let write = |part: usize| {
            spawn(shared.clone(), move |shared| {
                let (lock, parts) = &*shared;
                let (count, pair) = &parts[part];
                let _inside = lock.write_part(|| count.write());
                pair.write();
            })
        };
        let writers = [write(0), write(1)];
        {
            let (lock, parts) = &*shared;
            let _inside = lock.read();
            let _ = parts[0].0.begin();
            let (first, second) = parts[0].1.read();
            assert_eq!(first, second);
            let _ = parts[1].0.begin();
            assert_eq!(parts[0].1.read(), (first, second), "while another part is read");
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

/// Race: Seqrwlock: writers of parts / readers that share.
#[test]
fn seqrwlock_parts_with_shared_readers() {
    seqrwlock_writers_of_parts(false, false);
}

/// Race: Seqrwlock: writers of parts / readers that write.
#[test]
fn seqrwlock_parts_with_exclusive_readers() {
    seqrwlock_writers_of_parts(true, false);
}

/// Race: Seqrwlock: writers of parts that write everything / readers that write.
#[test]
fn seqrwlock_exclusive_parts_with_exclusive_readers() {
    seqrwlock_writers_of_parts(true, true);
}
