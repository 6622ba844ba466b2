use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::LockKind::{Exclusive, Shared};
use super::*;

const A: Owner = Owner::Task(1);
const B: Owner = Owner::Task(2);
const C: Owner = Owner::Task(3);
const F: Owner = Owner::File(1);
const G: Owner = Owner::File(2);

fn range(start: u64, end: u64) -> LockRange {
    LockRange::new(start, end).unwrap()
}

fn lock(owner: Owner, kind: LockKind, start: u64, end: u64) -> RecordLock {
    let pid = match owner {
        Owner::Task(task) => 100 + task as i32,
        Owner::File(_) => 7,
    };
    RecordLock { owner, pid, kind, range: range(start, end) }
}

fn graph() -> Arc<LockGraph> {
    Arc::new(LockGraph::new())
}

fn pending(acquire: Result<Acquire, Errno>) -> PendingLock {
    match acquire.unwrap() {
        Acquire::Granted => panic!("granted at once"),
        Acquire::Waiting(pending) => pending,
    }
}

/// Returns the locks of `owner`, as (kind, start, end).
fn held(locks: &FileLocks, owner: Owner) -> Vec<(LockKind, u64, u64)> {
    let list = locks.list().into_iter().filter(|lock| lock.owner == owner);
    list.map(|lock| (lock.kind, lock.range.start(), lock.range.end())).collect()
}

#[test]
fn types_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<FileLocks>();
    crosses::<LockGraph>();
    crosses::<WaitToken>();
    crosses::<PendingLock>();
    assert_eq!(size_of::<FileLocks>(), 16);
}

#[test]
fn ranges_of_bytes() {
    assert_eq!(LockRange::new(5, 4), Err(Errno::INVAL));
    assert_eq!(LockRange::new(1 << 63, u64::MAX), Err(Errno::INVAL));
    assert_eq!(LockRange::new(0, u64::MAX), Ok(LockRange::WHOLE));
    assert_eq!(LockRange::WHOLE.flock_len(), 0);
    assert_eq!(range(3, 3).flock_len(), 1);
}

#[test]
fn a_refused_upgrade_keeps_the_lock() {
    let locks = FileLocks::new();
    locks.try_lock(&lock(A, Shared, 0, 9)).unwrap();
    locks.try_lock(&lock(B, Shared, 0, 9)).unwrap();
    assert_eq!(locks.try_lock(&lock(A, Exclusive, 0, 9)), Err(Errno::AGAIN));
    assert_eq!(held(&locks, A), [(Shared, 0, 9)]);
    let upgrade = pending(locks.request(&lock(A, Exclusive, 0, 9), &graph()));
    assert_eq!(held(&locks, A), [(Shared, 0, 9)]);
    locks.release_posix(2);
    assert_eq!(upgrade.outcome(), Some(Ok(())));
    assert_eq!(held(&locks, A), [(Exclusive, 0, 9)]);
}

#[test]
fn closing_releases_the_owner_s_locks_and_no_others() {
    let locks = FileLocks::new();
    for owner in [A, B, F, G] {
        locks.try_lock(&lock(owner, Shared, 0, 9)).unwrap();
        locks.try_lock(&lock(owner, Shared, 20, LockRange::EOF)).unwrap();
    }
    locks.try_flock(1, Shared).unwrap();
    locks.try_flock(2, Shared).unwrap();
    locks.release_posix(1);
    assert_eq!(held(&locks, A), []);
    locks.release_file(1);
    assert_eq!(held(&locks, F), []);
    assert_eq!((held(&locks, B).len(), held(&locks, G).len()), (2, 2));
    assert_eq!(locks.try_flock(3, Exclusive), Err(Errno::AGAIN));
    locks.release_file(2);
    assert_eq!(locks.try_flock(3, Exclusive), Ok(()));
    assert_eq!(held(&locks, B).len(), 2);
    locks.release_posix(2);
    locks.release_file(3);
    assert!(locks.is_empty());
}

#[test]
fn a_conversion_of_flock_comes_before_waiters() {
    let locks = FileLocks::new();
    locks.try_flock(1, Shared).unwrap();
    let two = pending(locks.request_flock(2, Exclusive));
    assert_eq!(locks.try_flock(1, Exclusive), Ok(()));
    assert_eq!(two.outcome(), None);
    // A downgrade grants the waiting requests for a shared lock, and no others.
    let three = pending(locks.request_flock(3, Shared));
    assert_eq!(locks.try_flock(1, Shared), Ok(()));
    assert_eq!((two.outcome(), three.outcome()), (None, Some(Ok(()))));
    locks.unflock(1);
    locks.unflock(3);
    assert_eq!(two.outcome(), Some(Ok(())));
}

#[test]
fn a_lost_conversion_of_flock_lets_others_in() {
    let locks = FileLocks::new();
    locks.try_flock(1, Shared).unwrap();
    locks.try_flock(2, Shared).unwrap();
    let one = pending(locks.request_flock(1, Exclusive));
    assert_eq!(locks.try_flock(2, Exclusive), Ok(()));
    // Both have lost their shared locks, so no lock conflicts with the second request.
    assert_eq!(one.outcome(), None);
    let three = pending(locks.request_flock(3, Shared));
    locks.unflock(2);
    assert_eq!((one.outcome(), three.outcome()), (Some(Ok(())), None));
}

#[test]
fn requests_are_granted_in_order() {
    let (locks, graph) = (FileLocks::new(), graph());
    locks.try_lock(&lock(F, Exclusive, 0, 9)).unwrap();
    let first = pending(locks.request(&lock(A, Exclusive, 5, 14), &graph));
    let second = pending(locks.request(&lock(B, Shared, 0, 9), &graph));
    let third = pending(locks.request(&lock(C, Shared, 0, 4), &graph));
    assert_eq!(locks.try_lock(&lock(G, Exclusive, 10, 14)), Ok(()), "no lock is in the way");
    locks.unlock(F, LockRange::WHOLE).unwrap();
    assert_eq!(first.outcome(), None, "the one that overtook");
    assert_eq!((second.outcome(), third.outcome()), (Some(Ok(())), Some(Ok(()))));
    locks.unlock(G, LockRange::WHOLE).unwrap();
    assert_eq!(first.outcome(), None);
    locks.release_posix(2);
    assert_eq!(first.outcome(), Some(Ok(())));
    assert!(graph.is_empty());
}

#[test]
fn a_grant_that_gives_something_up_lets_others_in() {
    let (locks, graph) = (FileLocks::new(), graph());
    locks.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    locks.try_lock(&lock(B, Exclusive, 20, 29)).unwrap();
    // C waits for A's exclusive lock; A itself waits for a shared lock on this range and more.
    let reader = pending(locks.request(&lock(C, Shared, 0, 9), &graph));
    let downgrade = pending(locks.request(&lock(A, Shared, 0, 29), &graph));
    locks.release_posix(2);
    assert_eq!((downgrade.outcome(), reader.outcome()), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(held(&locks, A), [(Shared, 0, 29)]);
}

#[test]
fn waiting_for_each_other_is_a_deadlock() {
    let (one, two, graph) = (FileLocks::new(), FileLocks::new(), graph());
    one.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    two.try_lock(&lock(B, Shared, 0, 9)).unwrap();
    let waits = pending(two.request(&lock(A, Exclusive, 0, 9), &graph));
    let refused = one.request(&lock(B, Shared, 5, 5), &graph);
    assert_eq!(refused.err(), Some(Errno::DEADLK));
    assert_eq!(one.try_lock(&lock(B, Shared, 5, 5)), Err(Errno::AGAIN), "trying never waits");
    two.release_posix(2);
    assert_eq!(waits.outcome(), Some(Ok(())));
    assert!(graph.is_empty());
}

#[test]
fn long_circles_are_found() {
    let graph = graph();
    let files = (0..40).map(|_| FileLocks::new()).collect::<Vec<_>>();
    let task = |i: usize| Owner::Task(i as u64);
    for (i, file) in files.iter().enumerate() {
        file.try_lock(&lock(task(i), Exclusive, 0, 9)).unwrap();
    }
    let waits = (1..40)
        .map(|i| pending(files[i].request(&lock(task(i - 1), Exclusive, 0, 9), &graph)))
        .collect::<Vec<_>>();
    let closes = files[0].request(&lock(task(39), Exclusive, 0, 9), &graph);
    assert_eq!(closes.err(), Some(Errno::DEADLK));
    let other = files[0].request(&lock(task(100), Exclusive, 0, 9), &graph);
    assert!(other.is_ok(), "one who holds nothing may wait");
    drop((waits, other));
    assert!(graph.is_empty());
}

#[test]
fn two_upgrades_are_a_deadlock() {
    let (locks, graph) = (FileLocks::new(), graph());
    locks.try_lock(&lock(A, Shared, 0, 9)).unwrap();
    locks.try_lock(&lock(B, Shared, 0, 9)).unwrap();
    let first = pending(locks.request(&lock(A, Exclusive, 0, 9), &graph));
    let second = locks.request(&lock(B, Exclusive, 0, 9), &graph);
    assert_eq!(second.err(), Some(Errno::DEADLK));
    locks.release_posix(2);
    assert_eq!(first.outcome(), Some(Ok(())));
}

#[test]
fn every_lock_in_the_way_counts_for_deadlocks() {
    let (one, two, graph) = (FileLocks::new(), FileLocks::new(), graph());
    one.try_lock(&lock(B, Shared, 0, 9)).unwrap();
    one.try_lock(&lock(C, Shared, 0, 9)).unwrap();
    two.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    let waits = pending(one.request(&lock(A, Exclusive, 0, 9), &graph));
    assert_eq!(two.request(&lock(C, Shared, 0, 0), &graph).err(), Some(Errno::DEADLK));
    // A later lock that overtakes counts, too.
    one.try_lock(&lock(Owner::Task(9), Shared, 0, 9)).unwrap();
    let refused = two.request(&lock(Owner::Task(9), Shared, 0, 0), &graph);
    assert_eq!(refused.err(), Some(Errno::DEADLK));
    // A released lock does not.
    one.release_posix(3);
    assert!(two.request(&lock(C, Shared, 0, 0), &graph).is_ok());
    drop(waits);
}

#[test]
fn open_files_are_not_in_the_graph() {
    let (one, two, graph) = (FileLocks::new(), FileLocks::new(), graph());
    one.try_lock(&lock(F, Exclusive, 0, 9)).unwrap();
    two.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    let a = pending(one.request(&lock(A, Shared, 0, 9), &graph));
    let f = pending(two.request(&lock(F, Shared, 0, 9), &graph));
    assert_eq!((a.outcome(), f.outcome()), (None, None));
    assert!(graph.is_empty());
}

#[test]
fn a_deadlock_can_arise_while_waiting() {
    let (one, two, graph) = (FileLocks::new(), FileLocks::new(), graph());
    one.try_lock(&lock(F, Exclusive, 0, 9)).unwrap();
    two.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    let b = pending(two.request(&lock(B, Shared, 0, 9), &graph));
    let a = pending(one.request(&lock(A, Shared, 0, 9), &graph));
    // Another thread of B, which waits for A, takes a lock that conflicts with a request of A.
    one.try_lock(&lock(B, Exclusive, 20, 29)).unwrap();
    let both = pending(one.request(&lock(C, Shared, 0, 29), &graph));
    assert_eq!(both.outcome(), None);
    one.unlock(F, range(0, 4)).unwrap();
    assert_eq!(a.outcome(), None);
    drop(both);
    one.unlock(F, LockRange::WHOLE).unwrap();
    assert_eq!((a.outcome(), b.outcome()), (Some(Ok(())), None));
    one.try_lock(&lock(F, Shared, 40, 49)).unwrap();
    let a = pending(one.request(&lock(A, Exclusive, 40, 49), &graph));
    one.try_lock(&lock(B, Shared, 40, 49)).unwrap();
    assert_eq!(a.outcome(), Some(Err(Errno::DEADLK)));
    two.release_posix(1);
    assert_eq!(b.outcome(), Some(Ok(())));
    assert!(graph.is_empty());
}

#[test]
fn cancelling_ends_the_wait() {
    let (locks, graph) = (Arc::new(FileLocks::new()), graph());
    locks.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    locks.try_flock(1, Exclusive).unwrap();
    let token = WaitToken::new();
    let waiters = [true, false].map(|record| {
        let (locks, graph, token) = (locks.clone(), graph.clone(), token.clone());
        thread::spawn(move || {
            if record {
                locks.lock(&lock(B, Exclusive, 0, 9), &graph, &token)
            } else {
                locks.flock(2, Shared, &token)
            }
        })
    });
    vfscale_harness::stays("all wait", Duration::from_millis(20), || {
        waiters.iter().all(|waiter| !waiter.is_finished())
    });
    token.cancel();
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), Err(Errno::INTR));
    }
    assert!(token.is_cancelled());
    assert!(graph.is_empty());
    // The token stays cancelled, which matters only to requests that have to wait.
    assert_eq!(locks.lock(&lock(B, Exclusive, 0, 9), &graph, &token), Err(Errno::INTR));
    assert_eq!(locks.lock(&lock(B, Exclusive, 10, 19), &graph, &token), Ok(()));
    locks.release_posix(1);
    assert_eq!(held(&locks, B), [(Exclusive, 10, 19)]);
}

#[test]
fn a_cancellation_that_comes_too_late_changes_nothing() {
    let (locks, graph, token) = (FileLocks::new(), graph(), WaitToken::new());
    locks.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    let waits = pending(locks.request(&lock(B, Exclusive, 0, 9), &graph));
    locks.release_posix(1);
    token.cancel();
    assert_eq!(waits.wait(&token), Ok(()));
    let waits = pending(locks.request(&lock(A, Exclusive, 0, 9), &graph));
    assert!(!waits.cancel());
    let waits = pending(locks.request(&lock(A, Exclusive, 0, 9), &graph));
    locks.release_posix(2);
    assert!(waits.cancel());
    assert_eq!(held(&locks, A), [(Exclusive, 0, 9)]);
}

#[test]
fn dropping_a_request_withdraws_it() {
    let (locks, graph) = (FileLocks::new(), graph());
    locks.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    drop(locks.request(&lock(B, Exclusive, 0, 9), &graph));
    drop(locks.request_flock(1, Exclusive));
    drop(pending(locks.request(&lock(B, Shared, 0, 9), &graph)));
    assert!(graph.is_empty());
    locks.release_posix(1);
    assert_eq!(locks.list(), []);
}

#[test]
fn functions_are_told_instead_of_threads() {
    let (locks, graph, token) = (FileLocks::new(), graph(), WaitToken::new());
    let (tell, told) = mpsc::channel();
    let teller = |name: &'static str| {
        let tell = tell.clone();
        move |outcome| tell.send((name, outcome)).unwrap()
    };
    locks.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    pending(locks.request(&lock(B, Shared, 0, 4), &graph)).notify(&token, teller("granted"));
    pending(locks.request(&lock(C, Shared, 5, 9), &graph)).notify(&token, teller("cancelled"));
    assert!(told.try_recv().is_err());
    locks.unlock(A, range(0, 4)).unwrap();
    assert_eq!(told.try_recv(), Ok(("granted", Ok(()))));
    token.cancel();
    assert_eq!(told.try_recv(), Ok(("cancelled", Err(Errno::INTR))));
    pending(locks.request(&lock(C, Shared, 5, 9), &graph)).notify(&token, teller("too late"));
    assert_eq!(told.try_recv(), Ok(("too late", Err(Errno::INTR))));
    let waits = pending(locks.request(&lock(C, Shared, 5, 9), &graph));
    locks.release_posix(1);
    waits.notify(&token, teller("granted before"));
    assert_eq!(told.try_recv(), Ok(("granted before", Ok(()))));
    let waits = pending(locks.request(&lock(A, Exclusive, 5, 9), &graph));
    waits.notify(&WaitToken::new(), teller("file is gone"));
    drop(locks);
    assert_eq!(told.try_recv(), Ok(("file is gone", Err(Errno::BADF))));
    assert!(told.try_recv().is_err());
}

#[test]
fn a_closed_file_waits_for_nothing() {
    let (locks, graph) = (FileLocks::new(), graph());
    locks.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    locks.try_flock(2, Exclusive).unwrap();
    let record = pending(locks.request(&lock(F, Shared, 0, 9), &graph));
    let flock = pending(locks.request_flock(1, Shared));
    locks.release_file(1);
    assert_eq!(record.outcome(), Some(Err(Errno::BADF)));
    assert_eq!(flock.outcome(), Some(Err(Errno::BADF)));
    locks.release_posix(1);
    locks.release_file(2);
    assert!(locks.is_empty());
}

#[test]
fn records_are_bounded() {
    let locks = FileLocks::new();
    for i in 0..RECORDS_MAX as u64 {
        locks.try_lock(&lock(A, Shared, i * 2, i * 2)).unwrap();
    }
    let end = 2 * RECORDS_MAX as u64;
    assert_eq!(locks.try_lock(&lock(A, Shared, end, end)), Err(Errno::NOLCK));
    assert_eq!(locks.try_lock(&lock(B, Shared, end, end)), Err(Errno::NOLCK));
    assert_eq!(held(&locks, B), []);
    locks.unlock(A, range(0, 0)).unwrap();
    assert_eq!(locks.try_lock(&lock(B, Shared, end, end + 9)), Ok(()));
    assert_eq!(locks.unlock(B, range(end + 1, end + 1)), Err(Errno::NOLCK));
    assert_eq!(locks.unlock(B, range(end, end)), Ok(()));
    locks.release_posix(1);
    locks.release_posix(2);
    assert!(locks.is_empty());
}

#[test]
fn requests_are_bounded() {
    let (locks, graph) = (FileLocks::new(), graph());
    locks.try_lock(&lock(A, Exclusive, 0, 9)).unwrap();
    let granted = Arc::new(AtomicUsize::new(0));
    for i in 0..WAITERS_MAX as u64 {
        let granted = granted.clone();
        let waits = pending(locks.request(&lock(Owner::File(i), Shared, 0, 9), &graph));
        waits.notify(&WaitToken::new(), move |_| {
            granted.fetch_add(1, Ordering::Relaxed);
        });
    }
    assert_eq!(locks.request(&lock(B, Shared, 0, 9), &graph).err(), Some(Errno::NOLCK));
    assert_eq!(locks.request_flock(1, Shared).map(drop), Ok(()), "free, so it need not wait");
    drop(locks);
    assert_eq!(granted.load(Ordering::Relaxed), WAITERS_MAX);
}
