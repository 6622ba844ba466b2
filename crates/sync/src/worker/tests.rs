#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, OnceLock, mpsc};
use std::time::Duration;

use super::pool::normal_max;
use super::*;

/// So long that only a thread that waits for ever waits for that long.
const LONG: Duration = Duration::from_secs(20);

/// A gate at which runs wait until it is opened.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }

    /// Waits until `runs` runs have come.
    fn await_runs(&self, runs: usize) {
        let state = self.state.lock().unwrap();
        let (state, timeout) =
            self.changed.wait_timeout_while(state, LONG, |state| state.0 < runs).unwrap();
        assert!(!timeout.timed_out(), "{} of {runs} runs have begun", state.0);
    }

    fn came(&self) -> usize {
        self.state.lock().unwrap().0
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// An item whose runs wait at a gate.
fn gated(priority: Priority, max_active: usize, gate: &Arc<Gate>) -> WorkItem {
    let gate = Arc::clone(gate);
    WorkItem::new(priority, max_active, move || gate.pass())
}

/// Serialises the tests that fill the pool.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn a_run_follows_each_call() {
    // Each run takes all that was added before it began.
    let waiting = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::new(AtomicUsize::new(0));
    let (of_work, sum) = (Arc::clone(&waiting), Arc::clone(&found));
    let item = WorkItem::new(Priority::Normal, 3, move || {
        let all: Vec<usize> = std::mem::take(&mut of_work.lock().unwrap());
        sum.fetch_add(all.len(), Ordering::SeqCst);
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..2000 {
                    waiting.lock().unwrap().push(number);
                    item.queue();
                }
            });
        }
    });
    vfscale_harness::wait_until("all are found", || found.load(Ordering::SeqCst) >= 8000);
}

#[test]
fn no_more_runs_than_allowed_execute_at_a_time() {
    let _alone = alone();
    let gate = Arc::new(Gate::default());
    let item = gated(Priority::High, 2, &gate);
    (0..10).for_each(|_| item.queue());
    gate.await_runs(2);
    vfscale_harness::pause(Duration::from_millis(20));
    assert_eq!(gate.came(), 2);
    // One more, however many calls come after these two have begun.
    (0..10).for_each(|_| item.queue());
    gate.open();
    gate.await_runs(3);
    vfscale_harness::pause(Duration::from_millis(20));
    assert_eq!(gate.came(), 3);
}

#[test]
fn cancelling_waits_for_the_run_and_drops_the_function() {
    let _alone = alone();
    let (gate, ended) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
    let (of_work, of_end) = (Arc::clone(&gate), Arc::clone(&ended));
    let item = Arc::new(WorkItem::new(Priority::High, 1, move || {
        of_work.pass();
        vfscale_harness::pause(Duration::from_millis(20));
        of_end.store(true, Ordering::SeqCst);
    }));
    item.queue();
    gate.await_runs(1);
    item.queue();
    let of_thread = Arc::clone(&item);
    let cancelling = std::thread::spawn(move || of_thread.cancel());
    vfscale_harness::pause(Duration::from_millis(10));
    gate.open();
    cancelling.join().unwrap();
    assert!(ended.load(Ordering::SeqCst));
    assert_eq!(Arc::strong_count(&gate), 1);
    item.queue();
    item.queue_at(Instant::now());
    vfscale_harness::pause(Duration::from_millis(20));
    assert_eq!(gate.came(), 1);
}

#[test]
fn a_run_may_cancel_its_item() {
    let slot: Arc<OnceLock<WorkItem>> = Arc::default();
    let (sender, receiver) = mpsc::channel();
    let of_work = Arc::downgrade(&slot);
    let item = WorkItem::new(Priority::Normal, 1, move || {
        of_work.upgrade().unwrap().wait().cancel();
        sender.send(()).unwrap();
    });
    slot.set(item).unwrap();
    slot.wait().queue();
    receiver.recv_timeout(LONG).unwrap();
}

#[test]
fn a_panic_ends_a_run_and_nothing_else() {
    let (sender, receiver) = mpsc::channel();
    let is_first = AtomicBool::new(true);
    let item = WorkItem::new(Priority::Normal, 1, move || {
        assert!(!is_first.swap(false, Ordering::SeqCst), "as the test wants it");
        sender.send(()).unwrap();
    });
    item.queue();
    while receiver.recv_timeout(Duration::from_millis(5)).is_err() {
        item.queue();
    }
}

/// Race: Many items whose device does not answer against the items of another volume.
#[test]
fn runs_that_wait_for_ever_delay_others_by_milliseconds() {
    let _alone = alone();
    let (gate, others) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let stuck: Vec<_> = (0..3 * normal_max()).map(|_| gated(Priority::Normal, 1, &gate)).collect();
    stuck.iter().for_each(WorkItem::queue);
    gate.await_runs(normal_max());
    others.open();
    // The log is not delayed at all.
    let log = gated(Priority::High, 1, &others);
    log.queue();
    others.await_runs(1);
    let later = gated(Priority::Normal, 1, &others);
    later.queue();
    others.await_runs(2);
    // Runs of the log that end give no thread to those that wait.
    let start = Instant::now();
    while gate.came() < stuck.len() {
        assert!(start.elapsed() < LONG, "{} runs", gate.came());
        log.queue();
        vfscale_harness::pause(Duration::from_millis(2));
    }
    // So runs may wait for one another, however many they are.
    gate.await_runs(stuck.len());
    gate.open();
}

#[test]
fn items_that_wait_for_one_another_all_run() {
    let _alone = alone();
    let count = 2 * normal_max() + 1;
    let barrier = Arc::new(Barrier::new(count + 1));
    let item = |_| {
        let barrier = Arc::clone(&barrier);
        WorkItem::new(Priority::Normal, 1, move || {
            barrier.wait();
        })
    };
    let items: Vec<_> = (0..count).map(item).collect();
    items.iter().for_each(WorkItem::queue);
    barrier.wait();
}

#[test]
fn timers_are_in_order_and_the_last_call_counts() {
    let (sender, receiver) = mpsc::channel();
    let item = |name: &'static str| {
        let sender = sender.clone();
        WorkItem::new(Priority::Normal, 1, move || sender.send((name, Instant::now())).unwrap())
    };
    let [early, late, never] = [item("early"), item("late"), item("never")];
    let start = Instant::now();
    let after = |millis| start + Duration::from_millis(millis);
    // Far from each other, as threads of a busy machine may wait for a CPU.
    never.queue_at(after(1000));
    never.queue_at(start + 2 * LONG);
    late.queue_at(after(2000));
    early.queue_at(start + 2 * LONG);
    early.queue_at(after(30));
    let (first, at) = receiver.recv_timeout(LONG).unwrap();
    assert!(first == "early" && at >= after(30), "{first}");
    let (second, at) = receiver.recv_timeout(LONG).unwrap();
    assert!(second == "late" && at >= after(2000), "{second}");
    never.cancel();
    assert!(receiver.recv_timeout(Duration::from_millis(20)).is_err());
}

#[test]
fn items_whose_times_overlap_are_queued_together() {
    let (sender, receiver) = mpsc::channel();
    let item = |name: &'static str| {
        let sender = sender.clone();
        WorkItem::new(Priority::Normal, 1, move || sender.send(name).unwrap())
    };
    let [exact, early, late] = [item("exact"), item("early"), item("late")];
    let start = Instant::now();
    let after = |millis| start + Duration::from_millis(millis);
    late.queue_between(after(2000), start + LONG);
    early.queue_between(after(10), start + LONG);
    exact.queue_at(after(50));
    let mut both = [(); 2].map(|()| receiver.recv_timeout(LONG / 2).unwrap());
    both.sort_unstable();
    assert_eq!(both, ["early", "exact"]);
    let is_late = Instant::now() > after(1900);
    assert!(is_late || receiver.try_recv().is_err());
}

/// Lets this thread run only on the CPU on which it is.
fn pin_to_one_cpu() {
    // SAFETY: `set` is a valid set of CPUs of that size, for which zeros are valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(usize::try_from(libc::sched_getcpu()).unwrap(), &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Threads inherit the CPUs of the thread that starts them.
#[test]
fn a_pinned_thread_that_queues_an_item_does_not_pin_the_workers() {
    let _alone = alone();
    let cpus = || std::thread::available_parallelism().unwrap().get();
    let all = cpus();
    if all == 1 {
        return;
    }
    let (gate, seen) = (Arc::new(Gate::default()), Arc::new(Mutex::new(Vec::new())));
    let (of_work, of_seen) = (Arc::clone(&gate), Arc::clone(&seen));
    // More runs than there are idle threads.
    let runs = normal_max() + 1;
    let item = WorkItem::new(Priority::High, runs, move || {
        of_seen.lock().unwrap().push(cpus());
        of_work.pass();
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_one_cpu();
            (0..runs).for_each(|_| item.queue());
        });
    });
    gate.await_runs(runs);
    gate.open();
    assert_eq!(*seen.lock().unwrap(), vec![all; runs]);
}

#[test]
fn runs_have_the_owner_of_the_thread_that_made_the_item() {
    let owner = ThreadOwner::new();
    let (sender, receiver) = mpsc::channel();
    let entered = owner.enter();
    let item = WorkItem::new(Priority::Normal, 1, move || {
        sender.send(ThreadOwner::current()).unwrap();
    });
    drop(entered);
    item.queue();
    assert_eq!(receiver.recv_timeout(LONG).unwrap(), owner);
}
