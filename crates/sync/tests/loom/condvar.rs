//! Waiting for a condition, in every interleaving:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p vfscale-sync --test loom condvar::`.

use crate::common::spawn;
use loom::sync::Arc;
use vfscale_sync::{Condvar, Mutex, lock_class};

lock_class! {
    State = ("state", 1);
}

/// No wakeup is lost, though it costs nothing if no waiter was counted.
///
/// Race: Waiting for a condition.
///
/// A waiter counts itself before it releases the mutex, and sleeps only if it has not been woken
/// since; waking costs nothing when no waiter was counted.
#[test]
fn a_waiter_sees_the_change() {
    loom::model(|| {
        let shared = Arc::new((Mutex::<u32, State>::new(0), Condvar::new()));
        let waiter = spawn(shared.clone(), move |shared| {
            let (state, changed) = &*shared;
            assert_eq!(*changed.wait_while(state.lock(), |now| *now == 0), 1);
        });
        *shared.0.lock() = 1;
        shared.1.notify_all();
        waiter.join().unwrap();
    });
}
