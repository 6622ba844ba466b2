//! Tests with threads that really wait.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use vfscale_sync::random::Random;

use super::*;

const BYTES: usize = 16;

/// The holders of each byte: the number of readers, or -1 for a writer.
#[derive(Default)]
struct Inside([AtomicI64; BYTES]);

impl Inside {
    fn enter(&self, range: LockRange, kind: LockKind) {
        for cell in &self.0[range.start() as usize..=range.end() as usize] {
            let before = match kind {
                LockKind::Shared => cell.fetch_add(1, Ordering::Relaxed),
                LockKind::Exclusive => -cell.swap(-1, Ordering::Relaxed).abs(),
            };
            let free = if kind == LockKind::Shared { before >= 0 } else { before == 0 };
            assert!(free, "{kind:?} in {range:?} beside others: {before}");
        }
    }

    fn leave(&self, range: LockRange, kind: LockKind) {
        for cell in &self.0[range.start() as usize..=range.end() as usize] {
            let step = if kind == LockKind::Shared { -1 } else { 1 };
            cell.fetch_add(step, Ordering::Relaxed);
        }
    }
}

/// Runs `work` in `threads` threads, each with its number and a random number generator.
fn run(threads: u64, work: impl Fn(u64, &mut Random) + Sync) {
    thread::scope(|scope| {
        for i in 0..threads {
            let work = &work;
            scope.spawn(move || work(i, &mut Random::new(0x9e37_79b9 ^ (i + 1) << 20)));
        }
    });
}

fn random_lock(owner: Owner, random: &mut Random) -> RecordLock {
    let (a, b) = (random.below(BYTES as u64), random.below(BYTES as u64));
    let range = LockRange::new(a.min(b), a.max(b)).unwrap();
    let kind = if random.below(2) == 0 { LockKind::Shared } else { LockKind::Exclusive };
    RecordLock { owner, pid: 1, kind, range }
}

#[test]
fn ranges_exclude_each_other() {
    let (locks, graph) = (FileLocks::new(), Arc::new(LockGraph::new()));
    let inside = Inside::default();
    run(8, |i, random| {
        let owner = if i % 2 == 0 { Owner::Task(i) } else { Owner::File(i) };
        for _ in 0..400 {
            let request = random_lock(owner, random);
            locks.lock(&request, &graph, &WaitToken::new()).unwrap();
            inside.enter(request.range, request.kind);
            if random.below(4) == 0 {
                thread::yield_now();
            }
            inside.leave(request.range, request.kind);
            match (random.below(2), owner) {
                (0, _) => locks.unlock(owner, LockRange::WHOLE).unwrap(),
                (_, Owner::Task(task)) => locks.release_posix(task),
                (_, Owner::File(file)) => locks.release_file(file),
            }
        }
    });
    assert!(locks.is_empty() && graph.is_empty());
}

#[test]
fn flock_excludes_and_converts() {
    let locks = FileLocks::new();
    let inside = Inside::default();
    run(8, |file, random| {
        for _ in 0..400 {
            let kind = random_lock(Owner::File(file), random).kind;
            // Each has at most one lock and loses it by converting, so no thread waits for ever.
            locks.flock(file, kind, &WaitToken::new()).unwrap();
            inside.enter(LockRange::new(0, 0).unwrap(), kind);
            thread::yield_now();
            inside.leave(LockRange::new(0, 0).unwrap(), kind);
            match random.below(3) {
                0 => locks.unflock(file),
                1 => locks.release_file(file),
                _ => {}
            }
        }
        locks.release_file(file);
    });
    assert!(locks.is_empty());
}

/// Tasks take two locks in any order, in two files, and upgrade them: the only failure is a
/// deadlock, and every deadlock is found.
#[test]
fn deadlocks_never_last() {
    let files = [FileLocks::new(), FileLocks::new()];
    let graph = Arc::new(LockGraph::new());
    let (done, found) = (AtomicU64::new(0), AtomicU64::new(0));
    run(6, |task, random| {
        for _ in 0..300 {
            for _ in 0..3 {
                let file = &files[random.below(2) as usize];
                let request = random_lock(Owner::Task(task), random);
                match file.lock(&request, &graph, &WaitToken::new()) {
                    Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                    Err(errno) => {
                        assert_eq!(errno, Errno::DEADLK);
                        found.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                };
                thread::yield_now();
            }
            files.iter().for_each(|file| file.release_posix(task));
        }
    });
    assert!(files.iter().all(FileLocks::is_empty) && graph.is_empty());
    assert!(done.load(Ordering::Relaxed) > 0 && found.load(Ordering::Relaxed) > 0);
}

/// Repeated requests do not overtake a waiting one for ever.
#[test]
fn every_waiter_gets_its_turn() {
    let (locks, graph) = (FileLocks::new(), Arc::new(LockGraph::new()));
    let turns: [AtomicU64; 4] = Default::default();
    let start = Barrier::new(4);
    run(4, |task, _| {
        let request = RecordLock {
            owner: Owner::Task(task),
            pid: 1,
            kind: LockKind::Exclusive,
            range: LockRange::WHOLE,
        };
        start.wait();
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            locks.lock(&request, &graph, &WaitToken::new()).unwrap();
            turns[task as usize].fetch_add(1, Ordering::Relaxed);
            // Other threads queue while the lock is held.
            vfscale_harness::pause(Duration::from_micros(100));
            locks.release_posix(task);
        }
    });
    let turns = turns.map(AtomicU64::into_inner);
    let most = turns.iter().max().copied().unwrap_or(0);
    // Equal, except for the scheduling of threads that are not in the queue.
    assert!(turns.iter().all(|&own| own * 10 > most), "{turns:?}");
}
