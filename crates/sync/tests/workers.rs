//! The number of worker threads. A process of its own, because it counts them.

#![cfg(not(any(loom, shuttle, miri)))]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use vfscale_sync::worker::{Priority, WorkItem};

/// Returns the number of threads with this name.
fn threads(named: &str) -> usize {
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim_end() == named).count()
}

/// A thousand items that all have run have one thread, once they have been idle for a while, and
/// no thread once they are cancelled.
#[test]
fn idle_items_have_one_thread_and_cancelled_ones_none() {
    let runs = Arc::new(AtomicUsize::new(0));
    let item = |_| {
        let runs = Arc::clone(&runs);
        WorkItem::new(Priority::Normal, 1, move || {
            runs.fetch_add(1, Ordering::SeqCst);
        })
    };
    let items: Vec<_> = (0..1000).map(item).collect();
    items.iter().for_each(WorkItem::queue);
    vfscale_harness::wait_until("all run", || runs.load(Ordering::SeqCst) == 1000);
    vfscale_harness::wait_until("the workers end", || threads("vfscale-worker") == 0);
    assert_eq!(threads("vfscale-timer"), 1);
    items[0].queue_at(Instant::now());
    vfscale_harness::wait_until("it runs again", || runs.load(Ordering::SeqCst) == 1001);
    drop(items);
    vfscale_harness::wait_until("all threads end", || {
        threads("vfscale-worker") + threads("vfscale-timer") == 0
    });
}
