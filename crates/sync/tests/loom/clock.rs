//! Every interleaving of readings of one clock. Run with
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test -p vfscale-sync --release --test loom clock::
//! ```

use crate::common::{check, spawn};
use loom::sync::Arc;
use vfscale_sync::atomic::{AtomicI64, Ordering};
use vfscale_sync::clock::MultigrainClock;

const WINDOW: i64 = 2;
const TICK: i64 = 4;

/// The system's clock: each exact reading advances it.
struct Shared {
    clock: MultigrainClock,
    system: AtomicI64,
    last: AtomicI64,
}

impl Shared {
    fn now(&self) -> i64 {
        self.system.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn exact(&self) -> i64 {
        self.clock.exact(|| self.now())
    }

    fn coarse(&self) -> i64 {
        let now = self.system.load(Ordering::SeqCst);
        self.clock.coarse(now - now % TICK, || self.now())
    }
}

/// Race: A change against a read of its time.
///
/// One thread reads the clock exactly, another learns of it and reads the tick; a third raises the
/// bound in between, as the readers of other times do.
#[test]
fn a_reading_after_another_is_not_earlier() {
    check(3, || {
        let shared = Arc::new(Shared {
            clock: MultigrainClock::new(WINDOW),
            system: AtomicI64::new(TICK + 1),
            last: AtomicI64::new(0),
        });
        let other = |read: fn(&Shared) -> i64| {
            spawn(shared.clone(), move |shared| {
                let first = read(&shared);
                shared.last.fetch_max(first, Ordering::AcqRel);
                let second = read(&shared);
                assert!(first <= second, "{first} {second}");
            })
        };
        let others = [
            other(Shared::exact),
            other(|it| {
                it.exact();
                it.coarse()
            }),
        ];
        let before = shared.last.load(Ordering::Acquire);
        let now = shared.coarse();
        assert!(before <= now, "{before} {now}");
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
