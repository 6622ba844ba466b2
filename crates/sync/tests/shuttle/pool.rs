//! The pool of worker threads: work items and the pool are the crate's own files, the threads and
//! the clock are those of the model.

use std::sync::Arc;

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::spawn;
use vfscale_sync::model::{self, Schedules};

use crate::thread::{self, Instant, forget_early_wakeups};
use crate::worker::{Priority, WorkItem};

fn schedules(model: impl Fn() + Send + Sync + 'static) {
    model::check(&[Schedules::Turns(2_000), Schedules::Delays(2_000)], move || {
        model();
        assert!(thread::join_all() > 0, "the pool has threads, and they end with the last item");
    });
}

/// A count for which threads wait.
#[derive(Default)]
struct Count {
    count: Mutex<usize>,
    grew: Condvar,
}

impl Count {
    fn add(&self) {
        *self.count.lock().unwrap() += 1;
        self.grew.notify_all();
    }

    fn wait_for(&self, least: usize) {
        let mut count = self.count.lock().unwrap();
        while *count < least {
            count = self.grew.wait(count).unwrap();
        }
    }
}

/// Returns an item whose runs are counted.
fn counted(priority: Priority, runs: &Arc<Count>) -> WorkItem {
    let runs = Arc::clone(runs);
    WorkItem::new(priority, 2, move || runs.add())
}

/// Runs two threads that queue an item each, one of them twice, and wait for its runs. The pool
/// ends when they have dropped the items, and begins again if the other one makes its item then.
fn submitters() {
    let of_priority = |priority, times| {
        spawn(move || {
            let runs = Arc::default();
            let item = counted(priority, &runs);
            for runs_of_item in 1..=times {
                item.queue();
                runs.wait_for(runs_of_item);
            }
        })
    };
    let submitters = [of_priority(Priority::High, 2), of_priority(Priority::Normal, 1)];
    submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
}

/// Every item that is queued gets a thread, and no thread is left when there are no items.
///
/// Failed with `wakes_at` set after the timer thread has unlocked the pool, and with a worker that
/// ends after its time without a look whether it was summoned.
///
/// Race: Worker pool: two threads that queue items and drop them / the workers / the timer thread.
#[test]
fn every_queued_item_gets_a_thread() {
    schedules(submitters);
}

/// The model can fail: a thread that is about to sleep misses a wake-up.
///
/// Race: Worker pool whose wake-ups are lost: two threads that queue items / the workers / the
/// timer thread.
#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_wakeup_is_found() {
    schedules(|| {
        forget_early_wakeups();
        submitters();
    });
}

/// A timer queues its item once its time has come; one of an item that is cancelled leaves nothing.
///
/// Race: Worker pool: a timer that is due / a thread that queues the item / one that cancels
/// another item with a timer / the workers.
#[test]
fn a_timer_queues_its_item() {
    schedules(|| {
        let (runs, others) = (Arc::default(), Arc::default());
        let item = Arc::new(counted(Priority::Normal, &runs));
        let other = counted(Priority::High, &others);
        let after = |millis| Instant::now() + std::time::Duration::from_millis(millis);
        other.queue_at(after(30));
        let cancels = spawn(move || {
            other.queue();
            other.cancel();
        });
        let queues = {
            let item = Arc::clone(&item);
            spawn(move || item.queue_at(after(20)))
        };
        runs.wait_for(1);
        cancels.join().unwrap();
        queues.join().unwrap();
        assert_eq!(Arc::strong_count(&others), 1, "the item has dropped its function");
    });
}

/// A cancellation waits for the run, and none begins afterwards.
///
/// Race: Worker pool: a thread that queues an item / one that cancels it / its runs.
#[test]
fn a_cancelled_item_does_not_run() {
    schedules(|| {
        let runs = Arc::new(Count::default());
        let item = Arc::new(counted(Priority::Normal, &runs));
        let queues = {
            let item = Arc::clone(&item);
            spawn(move || (0..2).for_each(|_| item.queue()))
        };
        item.queue();
        item.cancel();
        let after = *runs.count.lock().unwrap();
        queues.join().unwrap();
        drop(item);
        thread::join_all();
        assert_eq!(*runs.count.lock().unwrap(), after);
        assert_eq!(Arc::strong_count(&runs), 1, "the item has dropped its function");
        // For `schedules`.
        drop(counted(Priority::High, &runs));
    });
}
