//! Work items: calls that queue against runs that end, and against a cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as StdOrdering};

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::worker::{Priority, WorkItem};

fn schedules(model: impl Fn() + Send + Sync + 'static) {
    model::check(&[Schedules::Turns(2000), Schedules::Delays(2000)], model);
}

/// Race: Calls that queue an item against the end of its runs.
#[test]
fn no_call_is_missed() {
    for max_active in [1, 2] {
        schedules(move || {
            let (left, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (of_work, sum) = (Arc::clone(&left), Arc::clone(&done));
            let item = Arc::new(WorkItem::new(Priority::Normal, max_active, move || {
                sum.fetch_add(of_work.swap(0, Ordering::SeqCst), Ordering::SeqCst);
            }));
            let caller = |_| {
                model::spawn((Arc::clone(&item), Arc::clone(&left)), move |(item, left)| {
                    for _ in 0..2 {
                        left.fetch_add(1, Ordering::SeqCst);
                        item.queue();
                    }
                })
            };
            let callers: Vec<_> = (0..2).map(caller).collect();
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            while done.load(Ordering::SeqCst) < 4 {
                thread::yield_now();
            }
            item.cancel();
        });
    }
}

/// Race: A cancellation against a run, another cancellation, and a call that queues the item.
#[test]
fn a_cancelled_work_item_does_not_run() {
    schedules(|| {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let of_work = Arc::clone(&is_cancelled);
        let item = Arc::new(WorkItem::new(Priority::High, 2, move || {
            assert!(!of_work.load(StdOrdering::SeqCst));
            thread::yield_now();
            assert!(!of_work.load(StdOrdering::SeqCst), "a run goes on");
        }));
        item.queue();
        let (queues, cancels) = (Arc::clone(&item), Arc::clone(&item));
        let queues = thread::spawn(move || (0..2).for_each(|_| queues.queue()));
        let cancels = thread::spawn(move || cancels.cancel());
        item.cancel();
        is_cancelled.store(true, StdOrdering::SeqCst);
        queues.join().unwrap();
        cancels.join().unwrap();
    });
}
