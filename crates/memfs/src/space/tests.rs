use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use vfscale_sync::{cpu, rcu};

use super::*;

const TOTAL: u64 = 1 << 20;

#[test]
fn charges_and_returns_are_exact() {
    let space = Space::new(TOTAL, 4);
    assert_eq!(space.take(TOTAL + 1), Err(NoSpace));
    assert_eq!(space.take(TOTAL), Ok(()));
    assert_eq!((space.used(), space.take(1)), (TOTAL, Err(NoSpace)));
    space.give(TOTAL);
    assert_eq!((space.used(), space.total()), (0, TOTAL));
}

/// The batches of other CPUs are added before a call is refused.
#[test]
fn a_batch_on_another_cpu_is_no_loss() {
    let space = Space::new(TOTAL, 4);
    assert_eq!(space.take(TOTAL), Ok(()));
    let guard = rcu::pin();
    {
        let _there = cpu::pretend(3);
        space.give_deferred(BATCH - 1);
    }
    assert_eq!(space.used(), TOTAL - (BATCH - 1));
    let _here = cpu::pretend(1);
    assert_eq!(space.take(BATCH - 1), Ok(()));
    assert_eq!(space.take(1), Err(NoSpace));
    drop(guard);
}

#[test]
fn bytes_beyond_the_limbo_wait_for_the_grace_period() {
    let space = Space::new(4 * LIMBO_MIN, 2);
    assert_eq!(space.take(4 * LIMBO_MIN), Ok(()));
    let guard = rcu::pin();
    space.give_deferred(LIMBO_MIN);
    assert_eq!((space.used(), space.limbo_used()), (3 * LIMBO_MIN, LIMBO_MIN));
    space.give_deferred(2 * LIMBO_MIN);
    assert_eq!(space.used(), LIMBO_MIN, "withheld bytes do not count as used");
    assert_eq!(space.take(LIMBO_MIN), Ok(()));
    assert_eq!(space.take(1), Err(NoSpace), "but they can't be taken");
    drop(guard);
    rcu::synchronize();
    assert_eq!((space.used(), space.limbo_used()), (2 * LIMBO_MIN, 0));
    assert_eq!(space.take(2 * LIMBO_MIN), Ok(()));
    assert!(!space.reclaim().has_freed, "there is nothing to wait for");
}

#[test]
fn reclaiming_waits_for_readers_but_not_for_ever() {
    let space = Space::new(4 * LIMBO_MIN, 2);
    assert_eq!(space.take(4 * LIMBO_MIN), Ok(()));
    let (pinned, release) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _reader = rcu::pin();
            pinned.wait();
            release.wait();
        });
        pinned.wait();
        space.give_deferred(LIMBO_MIN);
        space.give_deferred(3 * LIMBO_MIN);
        assert_eq!(space.take(2 * LIMBO_MIN), Err(NoSpace));
        let start = Instant::now();
        assert!(!space.reclaim().has_freed);
        assert!((RECLAIM_TIME..RECLAIM_TIME * 100).contains(&start.elapsed()));
        release.wait();
    });
    let start = Instant::now();
    while space.take(4 * LIMBO_MIN).is_err() {
        // The reader of another test may delay the grace period, or its thread end it before this
        // one waits.
        space.reclaim();
        assert!(start.elapsed() < RECLAIM_TIME * 100);
    }
}

/// Space that a thread has withheld is returned even if that thread sleeps and frees nothing more.
///
/// Race: A call that lacks space against space that becomes free.
#[test]
fn reclaiming_gets_what_another_thread_has_withheld() {
    let space = Space::new(4 * LIMBO_MIN, 2);
    assert_eq!(space.take(4 * LIMBO_MIN), Ok(()));
    let (freed, done) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // More than the limbo's limit.
            space.give_deferred(2 * LIMBO_MIN);
            freed.wait();
            done.wait();
        });
        freed.wait();
        // The reader of another test may delay the grace period.
        let start = Instant::now();
        while space.take(2 * LIMBO_MIN).is_err() && start.elapsed() < RECLAIM_TIME * 20 {
            space.reclaim();
        }
        let taken = space.used();
        done.wait();
        assert_eq!(taken, 4 * LIMBO_MIN, "no space was returned while its thread slept");
    });
}

/// Bytes that another thread has taken out of a batch are neither free nor withheld yet.
///
/// Race: A call that lacks space against a release of a batch.
#[test]
fn reclaiming_waits_for_a_release() {
    let space = Space::new(TOTAL, 2);
    assert_eq!(space.take(TOTAL), Ok(()));
    let (begun, looked) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _cpu = cpu::pretend(1);
            let local = space.locals.this();
            local.batch.fetch_add(TOTAL, Ordering::Relaxed);
            let bytes = begin_release(local).unwrap();
            begun.wait();
            looked.wait();
            vfscale_harness::pause(Duration::from_millis(20));
            end_release(local, bytes);
        });
        begun.wait();
        assert_eq!(space.take(TOTAL), Err(NoSpace));
        looked.wait();
        space.reclaim();
        assert_eq!(space.take(TOTAL), Ok(()), "the release was not waited for");
    });
}

/// A call that fails, and fails again, is not repeated for changes of its own.
#[test]
fn failures_change_nothing() {
    let space = Space::new(TOTAL, 4);
    assert_eq!(space.take(TOTAL), Ok(()));
    let before = space.reclaim().changes;
    assert_eq!(space.take(1), Err(NoSpace));
    assert_eq!(space.reclaim().changes, before);
}

/// A thread that did not run while it waited knows nothing of the readers.
#[test]
fn a_pause_counts_as_one_look() {
    let start = Instant::now();
    let mut patience = Patience::new(start);
    let hour = Duration::from_secs(3600);
    assert!(patience.look(start + hour), "a pause used up the time");
    let looks = (1..).take_while(|n| patience.look(start + hour + *n * LOOK_MAX / 2)).count();
    let expected = (RECLAIM_TIME - LOOK_MAX).as_millis() * 2 / LOOK_MAX.as_millis();
    assert_eq!(looks as u128 + 1, expected);
}

/// Many threads charge and free; in the end nothing is lost or returned twice.
#[test]
fn space_moves_between_cpus_without_loss() {
    let space = Space::new(TOTAL, 4);
    let overrun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (space, overrun) = (&space, &overrun);
            scope.spawn(move || {
                let _cpu = cpu::pretend(thread);
                for round in 0..2_000u64 {
                    let bytes = (round * 37 + u64::from(thread)) % (TOTAL / 3);
                    if space.take(bytes).is_ok() {
                        overrun.fetch_or(space.used() > TOTAL, Ordering::Relaxed);
                        space.give_deferred(bytes);
                    }
                }
                // Deferred work that is still in this thread's bag.
                rcu::synchronize();
            });
        }
    });
    rcu::synchronize();
    space.locals.iter().for_each(release);
    rcu::synchronize();
    assert!(!overrun.into_inner());
    assert_eq!((space.used(), space.limbo_used()), (0, 0));
}
