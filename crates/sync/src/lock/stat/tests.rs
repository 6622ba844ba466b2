use std::sync::{Mutex as StdMutex, MutexGuard as StdMutexGuard, PoisonError};
use std::time::Duration;

use super::*;
use crate::refcount::lockref::{Lockref, Put, SpreadPtr};
use crate::{Mutex, RwLock, cpu, lockref, rcu};

crate::lock_class! {
    Waited = ("waited", 30);
    Taken = ("taken", 31);
    Shared = ("shared", 32);
    Tried = ("tried", 33);
    Quiet = ("quiet", 34);
    Nested = ("nested", 35);
    Switched = ("switched", 36);
    Printed = ("printed", 37);
    Forgotten = ("forgotten", 40);
    Owned = ("owned", 41);
    Stressed = ("stressed", 38);
    StressedToo = ("stressed too", 39);
}

/// A scope with recording on; one test at a time, for recording is on for the whole process.
struct Recording(#[expect(dead_code, reason = "held")] StdMutexGuard<'static, ()>);

static ONE: StdMutex<()> = StdMutex::new(());

fn alone() -> StdMutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn record() -> Recording {
    let recording = Recording(alone());
    lockstat_record(true);
    recording
}

impl Drop for Recording {
    fn drop(&mut self) {
        lockstat_record(false);
    }
}

fn row(name: &str) -> Option<LockStatRow> {
    lockstat().into_iter().find(|row| row.name == name)
}

#[test]
fn waiters_are_counted_always() {
    let _alone = alone();
    let lock = Mutex::<(), Waited>::new(());
    assert!(row("waited").is_none());
    let held = lock.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock()));
        vfscale_harness::pause(Duration::from_millis(30));
        drop(held);
    });
    let row = row("waited").unwrap();
    assert_eq!((row.rank, row.contentions, row.wait.count), (30, 1, 1));
    assert!(row.parked >= 1);
    assert!(row.wait.max >= Duration::from_millis(5) && row.wait.total >= row.wait.max);
    assert!(row.wait.min <= row.wait.max && row.wait.avg() <= row.wait.max);
    assert_eq!((row.acquisitions, row.hold.count), (0, 0), "recording is off");
}

#[test]
fn lockstat_counts_nothing_else_while_recording_is_off() {
    let _alone = alone();
    assert!(!lockstat_recording());
    let lock = Mutex::<(), Quiet>::new(());
    for _ in 0..10 {
        drop(lock.lock());
        drop(lock.try_lock());
    }
    assert!(row("quiet").is_none());
}

#[test]
fn acquisitions_bounces_and_hold_times_are_recorded() {
    let lock = Mutex::<u32, Taken>::new(0);
    let recording = record();
    for cpu in [0, 1, 1, 0] {
        let _there = cpu::pretend(cpu);
        let mut held = lock.lock();
        vfscale_harness::pause(Duration::from_millis(2));
        *held += 1;
    }
    let row = row("taken").unwrap();
    drop(recording);
    assert_eq!(*lock.lock(), 4);
    assert_eq!((row.acquisitions, row.acq_bounces, row.contentions), (4, 2, 0));
    assert_eq!(row.hold.count, 4);
    assert!(row.hold.min >= Duration::from_millis(2) && row.hold.avg() >= row.hold.min);
    assert!(row.hold.max <= row.hold.total && row.hold.min <= row.hold.max);
}

#[test]
fn a_reset_forgets_the_cpu_that_took_a_lock() {
    let lock = Mutex::<(), Forgotten>::new(());
    let _recording = record();
    let take = |cpu| {
        let _there = cpu::pretend(cpu);
        drop(lock.lock());
    };
    take(0);
    lockstat_reset();
    take(1);
    assert_eq!(row("forgotten").unwrap().acq_bounces, 0);
    take(0);
    assert_eq!(row("forgotten").unwrap().acq_bounces, 1);
}

#[test]
fn contentions_bounce_when_the_holder_is_elsewhere() {
    let lock = Mutex::<(), Switched>::new(());
    let _recording = record();
    for (holder, waiter, bounces) in [(0, 1, 1), (1, 1, 1)] {
        let _there = cpu::pretend(holder);
        let held = lock.lock();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let _there = cpu::pretend(waiter);
                drop(lock.lock());
            });
            while row("switched").is_none_or(|row| row.acquisitions == 0) || !has_sleeper(&lock) {
                std::thread::yield_now();
            }
            drop(held);
            waiting.join().unwrap();
        });
        assert_eq!(row("switched").unwrap().con_bounces, bounces);
    }
    assert_eq!(row("switched").unwrap().contentions, 2);
}

/// Returns whether a thread sleeps, or is about to.
fn has_sleeper(lock: &Mutex<(), Switched>) -> bool {
    // SAFETY: the lock is one word, which threads change atomically.
    let word = unsafe { AtomicU32::from_ptr(std::ptr::from_ref(lock).cast_mut().cast()) };
    word.load(Ordering::Relaxed) & 2 != 0
}

#[test]
fn readers_and_writers_are_recorded() {
    let lock = RwLock::<u32, Shared>::new(0);
    let recording = record();
    let (first, second) = (lock.read(), lock.try_read().unwrap());
    assert!(lock.try_write().is_none());
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(*lock.read(), 0));
    });
    drop(first);
    drop(second);
    *lock.write() += 1;
    *lock.try_write().unwrap() += 1;
    // Read before the end of the recording: another test may record on.
    let row = row("shared").unwrap();
    drop(recording);
    // The lock works as before.
    *lock.try_write().unwrap() += 1;
    assert_eq!(*lock.read(), 3);
    // The second guard of one thread takes the first one's entry: its hold time is that of both.
    assert_eq!((row.acquisitions, row.hold.count), (5, 4));
}

#[test]
fn locks_tried_are_recorded() {
    let lock = Mutex::<(), Tried>::new(());
    let _recording = record();
    let held = lock.try_lock().unwrap();
    assert!(lock.try_lock().is_none());
    drop(held);
    drop(lock.try_lock().unwrap());
    let row = row("tried").unwrap();
    assert_eq!((row.acquisitions, row.contentions, row.hold.count), (2, 0, 2));
}

#[test]
fn lockstat_counts_more_held_locks_than_it_times() {
    let locks: Vec<Mutex<(), Nested>> = (0..HOLDS_MAX + 8).map(|_| Mutex::new(())).collect();
    let recording = record();
    let held: Vec<_> = locks.iter().map(Mutex::lock_nested).collect();
    drop(recording);
    drop(held);
    let row = row("nested").unwrap();
    assert_eq!((row.acquisitions, row.hold.count), (HOLDS_MAX as u64 + 8, HOLDS_MAX as u64));
    assert!(locks.iter().all(|lock| lock.try_lock().is_some()));
}

/// Acquisitions of locks in lockrefs by this thread can't be distinguished from acquisitions by
/// concurrent tests; so this test only checks that some are counted.
#[test]
fn a_lockref_is_locked_only_at_the_edges_unless_told_otherwise() {
    let spread = SpreadPtr::new();
    let guard = rcu::pin();
    let recording = record();
    let taken = |lockref: &Lockref| {
        let key = std::ptr::from_ref(lockref).addr();
        let (entry, mine) = lockref::STAT.last_taken(key, cpu::current());
        entry.load(Ordering::Relaxed) >> 16 == mine >> 16
    };
    let free = Lockref::new(2);
    free.get(&spread, &guard);
    assert!(matches!(free.put(&spread, &guard), Put::Done));
    assert!(!taken(&free), "the count is above the edge");
    let locked = Lockref::with_locked_changes(2, true);
    locked.get(&spread, &guard);
    assert!(taken(&locked));
    assert!(matches!(locked.put(&spread, &guard), Put::Done));
    assert_eq!((free.count(), locked.count()), (2, 2));
    drop(recording);
}

#[test]
fn the_table_has_the_columns_of_the_kernel() {
    let lock = Mutex::<(), Printed>::new(());
    let recording = record();
    lockstat_reset();
    drop(lock.lock());
    let table = LockStatTable::now();
    drop(recording);
    let text = table.to_string();
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let expected = "class name con-bounces contentions waittime-min waittime-max waittime-total \
                    waittime-avg acq-bounces acquisitions holdtime-min holdtime-max holdtime-total \
                    holdtime-avg";
    assert_eq!(head.join(" "), expected);
    let line = lines.find(|line| line.trim_start().starts_with("printed ")).unwrap();
    let cells: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(cells[1..9], ["0", "0", "0.00", "0.00", "0.00", "0.00", "0", "1"]);
    assert_eq!(cells.len(), 13);
    assert!(cells[9].parse::<f64>().is_ok_and(|us| us < 1e6) && cells[9] == cells[12]);
    assert!(text.lines().all(|line| line.chars().count() == text.lines().next().unwrap().len()));
}

/// Counts that are not atomic: what protects each is a lock.
#[derive(Default)]
struct Guarded([std::cell::UnsafeCell<u32>; 3]);

// SAFETY: each count is used by the holder of its lock only.
unsafe impl Sync for Guarded {}

impl Guarded {
    /// # Safety
    /// The caller holds the lock of count `i`.
    unsafe fn add(&self, i: usize) {
        // SAFETY: the caller promises that it holds the lock.
        unsafe { *self.0[i].get() += 1 };
    }
}

/// Locks are taken and released on either path while recording is switched on and off concurrently.
#[test]
fn switching_breaks_no_lock() {
    const SWITCHES: u32 = 100;
    let _alone = alone();
    let (mutex, rwlock) = (Mutex::<(), Stressed>::new(()), RwLock::<(), StressedToo>::new(()));
    let lockref = Lockref::new(1);
    let counts = Guarded::default();
    // Rounds of all threads, and the number of them that wrote under the second lock.
    let (rounds, writes) = (AtomicU32::new(0), AtomicU32::new(0));
    let stop = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while stop.load(Ordering::Acquire) == 0 {
                    let round = rounds.fetch_add(1, Ordering::Relaxed);
                    let held = mutex.lock();
                    // SAFETY: the mutex is held.
                    unsafe { counts.add(0) };
                    drop(held);
                    if round.is_multiple_of(4) {
                        let _held = rwlock.write();
                        // SAFETY: the lock is held by a writer.
                        unsafe { counts.add(1) };
                        writes.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let _reader = rwlock.read();
                    }
                    let _held = lockref.lock();
                    // SAFETY: the lock is held.
                    unsafe { counts.add(2) };
                }
            });
        }
        for switch in 0..SWITCHES {
            lockstat_record(switch % 2 == 0);
            let seen = rounds.load(Ordering::Relaxed);
            vfscale_harness::pause(Duration::from_micros(200));
            // On a busy machine no thread may have waited yet.
            while rounds.load(Ordering::Relaxed) < seen + 8 {
                std::thread::yield_now();
            }
        }
        stop.store(1, Ordering::Release);
    });
    lockstat_record(false);
    let counts = counts.0.map(std::cell::UnsafeCell::into_inner);
    let (rounds, writes) = (rounds.into_inner(), writes.into_inner());
    assert_eq!(counts, [rounds, writes, rounds]);
    assert_eq!(lockref.count(), 1);
    assert!(row("stressed").unwrap().acquisitions > 0);
    // No bits remain in their words that would make them slow.
    drop(rwlock.write());
    for word in [std::ptr::from_ref(&mutex).cast::<u32>(), std::ptr::from_ref(&rwlock).cast()] {
        // SAFETY: the lock is one word, and no thread is left that changes it.
        assert_eq!(unsafe { word.read() }, 0);
    }
}

/// Threads of two volumes and one of none take a lock. A recording of one volume leaves out the
/// threads of the other, with what they wait.
#[test]
fn the_threads_of_other_owners_are_left_out() {
    let _alone = alone();
    let lock: &'static Mutex<(), Owned> = Box::leak(Box::new(Mutex::new(())));
    let [mine, other] = [ThreadOwner::new(), ThreadOwner::new()];
    let taken = |record: fn(ThreadOwner)| {
        lockstat_reset();
        record(mine);
        drop(lock.lock());
        for (owner, times) in [(mine, 2), (other, 4)] {
            let take = move || (0..times).for_each(|_| drop(lock.lock()));
            owner.spawn(take).join().unwrap();
        }
        let held = lock.lock();
        let waiting = other.spawn(|| drop(lock.lock()));
        vfscale_harness::pause(Duration::from_millis(30));
        drop(held);
        waiting.join().unwrap();
        lockstat_record(false);
        let row = row("owned").unwrap();
        (row.acquisitions, row.contentions, row.hold.count)
    };
    assert_eq!(taken(lockstat_record_for), (4, 0, 4));
    assert_eq!(taken(|_| lockstat_record(true)), (9, 1, 9));
    // As before, when nothing is recorded.
    assert_eq!(ThreadOwner::current(), ThreadOwner::NONE);
    {
        let _entered = mine.enter();
        assert_eq!(ThreadOwner::current(), mine);
    }
    assert_eq!(ThreadOwner::current(), ThreadOwner::NONE);
}
