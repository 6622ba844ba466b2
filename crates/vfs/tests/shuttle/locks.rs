//! Schedules of the waiting locks, chosen at random:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale-vfs --test shuttle locks::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::sync::Arc;

use rustix::io::Errno;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;
use vfscale_sync::model::{self, Schedules};
use vfscale_vfs::locks::{
    Acquire, FileLocks, LockGraph, LockKind, LockRange, Owner, RecordLock, WaitToken,
};

const SCHEDULES: usize = 20_000;

fn whole(task: u64, kind: LockKind) -> RecordLock {
    RecordLock { owner: Owner::Task(task), pid: 1, kind, range: LockRange::WHOLE }
}

/// Three writers, each of which locks once.
///
/// Race: Advisory locks: three writers.
#[test]
fn writers_exclude_each_other() {
    let run = || {
        let locks = Arc::new(FileLocks::new());
        let graph = Arc::new(LockGraph::new());
        let inside = Arc::new(AtomicUsize::new(0));
        let threads = [1, 2, 3].map(|task| {
            model::spawn(
                (locks.clone(), graph.clone(), inside.clone()),
                move |(locks, graph, inside)| {
                    let request = whole(task, LockKind::Exclusive);
                    locks.lock(&request, &graph, &WaitToken::new()).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    locks.release_posix(task);
                },
            )
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(locks.is_empty() && graph.is_empty());
    };
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], run);
}

/// A release, a cancellation and the wait they both end.
///
/// Race: Advisory locks: release / cancellation / wait.
#[test]
fn a_cancellation_races_with_a_grant() {
    let run = || {
        let locks = Arc::new(FileLocks::new());
        let graph = Arc::new(LockGraph::new());
        let token = WaitToken::new();
        locks.try_lock(&whole(1, LockKind::Shared)).unwrap();
        let waits = model::spawn(
            (locks.clone(), graph.clone(), token.clone()),
            move |(locks, graph, token)| locks.lock(&whole(2, LockKind::Exclusive), &graph, &token),
        );
        let cancels = thread::spawn(move || token.cancel());
        locks.release_posix(1);
        cancels.join().unwrap();
        match waits.join().unwrap() {
            Ok(()) => assert_eq!(locks.list(), [whole(2, LockKind::Exclusive)]),
            Err(errno) => {
                assert_eq!(errno, Errno::INTR);
                assert!(locks.is_empty());
            }
        }
        assert!(graph.is_empty());
    };
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], run);
}

/// A function is called once, whether the lock or the cancellation precedes its registration, or
/// neither does.
///
/// Race: Advisory locks: grant / cancellation / registration of a function.
#[test]
fn a_function_is_called_once() {
    let run = || {
        let locks = Arc::new(FileLocks::new());
        let token = WaitToken::new();
        let calls = Arc::new(AtomicUsize::new(0));
        locks.try_flock(1, LockKind::Exclusive).unwrap();
        let Ok(Acquire::Waiting(pending)) = locks.request_flock(2, LockKind::Shared) else {
            panic!("the lock is taken");
        };
        let releases = model::spawn(locks.clone(), move |locks| locks.release_file(1));
        let cancels = model::spawn(token.clone(), move |token| token.cancel());
        let called = calls.clone();
        pending.notify(&token, move |_| {
            called.fetch_add(1, Ordering::SeqCst);
        });
        releases.join().unwrap();
        cancels.join().unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    };
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], run);
}

/// Two tasks lock two files in opposite orders: one of them gets the error, and neither hangs.
///
/// Race: Advisory locks: two tasks in opposite orders.
#[test]
fn a_deadlock_is_told_to_one() {
    let run = || {
        let files = Arc::new([FileLocks::new(), FileLocks::new()]);
        let graph = Arc::new(LockGraph::new());
        let threads = [0, 1].map(|task: usize| {
            model::spawn((files.clone(), graph.clone()), move |(files, graph)| {
                let request = whole(task as u64, LockKind::Exclusive);
                files[task].lock(&request, &graph, &WaitToken::new()).unwrap();
                let second = files[1 - task].lock(&request, &graph, &WaitToken::new());
                files.iter().for_each(|file| file.release_posix(task as u64));
                second
            })
        });
        // The first lock may have to wait, but never forever.
        let results = threads.map(|thread| thread.join().unwrap());
        assert!(results.contains(&Ok(())), "{results:?}");
        assert!(files.iter().all(FileLocks::is_empty) && graph.is_empty());
    };
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], run);
}
