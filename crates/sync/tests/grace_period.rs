//! The duration of a grace period after much deferred work. A process of its own, in which no other
//! thread is in an RCU section.

#![cfg(not(any(loom, shuttle, miri)))]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfscale_sync::rcu;

fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Former versions slept once for each 512 items of deferred work.
#[test]
fn a_grace_period_behind_much_deferred_work_sleeps_nowhere() {
    let guard = rcu::pin();
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..200_000 {
        let ran = Arc::clone(&ran);
        guard.defer(move || {
            ran.fetch_add(1, Ordering::Relaxed);
        });
    }
    drop(guard);
    let before = sleeps();
    rcu::synchronize();
    let slept = sleeps() - before;
    assert_eq!(ran.load(Ordering::Relaxed), 200_000);
    assert!(slept < 100, "{slept} sleeps");
}
