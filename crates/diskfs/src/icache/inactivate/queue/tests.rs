use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::time::Duration;

use vfscale_sync::atomic::thread;

use super::*;

#[test]
fn everything_is_done_once_and_flush_waits_for_it() {
    for threads in [1, 4] {
        let done = Arc::new(Mutex::<_, InactiveQueueOfTest>::new(Vec::new()));
        let of_action = Arc::clone(&done);
        let queue =
            Queue::new(threads, 10, 7, move |numbers: Vec<u64>| of_action.lock().extend(numbers));
        for number in 0..1000 {
            queue.throttle();
            queue.add(number, false);
        }
        queue.flush();
        assert!(queue.is_empty());
        let mut done = std::mem::take(&mut *done.lock());
        done.sort_unstable();
        assert!(done.into_iter().eq(0..1000));
    }
}

#[test]
fn the_inactivation_queue_bounds_its_batches() {
    let (gate, gates) = mpsc::channel::<()>();
    let gates = Mutex::<_, InactiveQueueOfTest>::new(gates);
    let (done, batches) = mpsc::channel();
    let queue = Queue::new(1, 100, 8, move |numbers: Vec<u64>| {
        let _ = done.send(numbers);
        let _ = gates.lock().recv();
    });
    queue.add(0, false);
    let first = batches.recv().unwrap();
    (1..20).for_each(|number| queue.add(number, false));
    assert_eq!((first, queue.len()), (vec![0], 20));
    drop(gate);
    queue.flush();
    let rest: Vec<_> = batches.try_iter().collect();
    assert_eq!(rest, [(1..9).collect::<Vec<_>>(), (9..17).collect(), (17..20).collect()]);
}

#[test]
fn a_caller_of_the_inactivation_queue_does_a_quick_batch() {
    let (gate, gates) = mpsc::channel::<()>();
    let gates = Mutex::<_, InactiveQueueOfTest>::new(gates);
    let (done, batches) = mpsc::channel();
    let queue = Queue::new(1, 100, 8, move |numbers: Vec<u64>| {
        let is_first = numbers == [0];
        let _ = done.send((thread::current().id(), numbers));
        if is_first {
            let _ = gates.lock().recv();
        }
    });
    // From now on the queue's only thread is busy.
    queue.add(0, false);
    let worker = batches.recv().unwrap().0;
    let own = thread::current().id();
    (1..8).for_each(|number| queue.add(number, true));
    queue.throttle();
    assert!(batches.try_recv().is_err(), "less than a batch");
    (8..21).for_each(|number| queue.add(number, number != 11));
    for numbers in [(1..9).collect(), vec![9, 10]] {
        queue.throttle();
        assert_eq!(batches.try_recv(), Ok((own, numbers)));
    }
    queue.throttle();
    assert!(batches.try_recv().is_err(), "what comes first is not quick");
    assert_eq!(queue.len(), 11);
    drop(gate);
    queue.flush();
    let rest: Vec<_> = batches.try_iter().collect();
    assert_eq!(rest, [(worker, (11..19).collect()), (worker, vec![19, 20])]);
}

vfscale_sync::lock_class! {
    InactiveQueueOfTest = ("inactive_queue_of_test", 32000);
}

#[test]
fn flush_does_not_wait_for_what_comes_later() {
    let (gate, gates) = mpsc::channel::<()>();
    let gates = Mutex::<_, InactiveQueueOfTest>::new(gates);
    let is_first_done = Arc::new(AtomicBool::new(false));
    let first = Arc::clone(&is_first_done);
    let queue = Queue::new(1, 10, 1, move |numbers: Vec<u32>| {
        if numbers == [0] {
            first.store(true, Ordering::SeqCst);
        } else {
            // Blocks until the test ends.
            let _ = gates.lock().recv();
        }
    });
    queue.add(0, false);
    std::thread::scope(|scope| {
        let flushing = scope.spawn(|| queue.flush());
        queue.add(1, false);
        // If the second task was added before the flush read the tickets, the flush waits for it,
        // too.
        if !is_first_done.load(Ordering::SeqCst) {
            vfscale_harness::pause(Duration::from_millis(20));
        }
        drop(gate);
        flushing.join().unwrap();
        assert!(is_first_done.load(Ordering::SeqCst));
    });
}

#[test]
fn a_queue_that_is_full_makes_wait() {
    let barrier = Arc::new(Barrier::new(2));
    let of_action = Arc::clone(&barrier);
    let queue = Queue::new(1, 1, 1, move |_: Vec<()>| {
        of_action.wait();
    });
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                queue.throttle();
                passed.fetch_add(1, Ordering::SeqCst);
                queue.add((), false);
            }
        });
        vfscale_harness::pause(Duration::from_millis(30));
        // One task is being executed. One queued task is within the limit of one, and two exceed
        // it: the fourth call waits.
        assert!(passed.load(Ordering::SeqCst) <= 3);
        for _ in 0..4 {
            barrier.wait();
        }
    });
    assert_eq!(passed.load(Ordering::SeqCst), 4);
    queue.flush();
}

#[test]
fn a_queue_that_is_dropped_leaves_the_rest() {
    let done = Arc::new(AtomicU64::new(0));
    let of_action = Arc::clone(&done);
    let queue = Queue::new(1, 10, 1, move |things: Vec<Arc<()>>| {
        drop(things);
        of_action.fetch_add(1, Ordering::SeqCst);
        vfscale_harness::pause(Duration::from_millis(2));
    });
    let thing = Arc::new(());
    (0..1000).for_each(|_| queue.add(Arc::clone(&thing), false));
    drop(queue);
    assert!(done.load(Ordering::SeqCst) < 1000);
    assert_eq!(Arc::strong_count(&thing), 1);
}

#[test]
fn the_inactivation_queue_does_not_wait_for_a_panicked_batch() {
    let queue =
        Queue::new(1, 10, 1, |is_bad: Vec<bool>| assert!(!is_bad[0], "as the test wants it"));
    queue.add(true, false);
    queue.flush();
    queue.add(false, false);
    queue.flush();
}
