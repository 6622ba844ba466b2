use std::sync::atomic::AtomicBool;
use std::thread;

use super::*;
use crate::cpu;

const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn counter_sums_what_all_cpus_added() {
    let counter = PerCpuCounter::new(8);
    thread::scope(|scope| {
        for cpu in 0..8u32 {
            let counter = &counter;
            scope.spawn(move || {
                let _on = cpu::pretend(cpu);
                (0..ROUNDS).for_each(|_| counter.add(3));
                (0..ROUNDS).for_each(|_| counter.add(-1));
            });
        }
    });
    assert_eq!(counter.sum(), 8 * 2 * ROUNDS as i64);
}

#[test]
fn a_count_is_below_zero_in_parts_and_exact_as_a_whole() {
    let count = SnapshotCounter::new(3);
    let on = |cpu, amount| {
        let _on = cpu::pretend(cpu);
        count.add(amount);
    };
    assert_eq!(count.try_read_with(|| 'x'), Some((0, 'x')));
    for (cpu, amount, value) in
        [(0, 1, 1), (1, -1, 0), (2, -1, -1), (2, 5, 4), (0, i32::MIN + 1, -0x7fff_fffb)]
    {
        on(cpu, amount);
        assert_eq!(count.try_read_with(|| ()), Some((value, ())));
        assert_eq!(count.read_with(|| 'x'), (value, 'x'));
    }
    assert_eq!(count.try_read_with(|| on(1, 1)), None, "it has changed");
    assert_eq!(
        count.try_read_with(|| (on(1, 1), on(2, -1))),
        None,
        "it has changed, and is what it was"
    );
    let looks = AtomicU64::new(0);
    let look = || looks.fetch_add(1, Ordering::Relaxed);
    assert_eq!(count.try_read_with(look), None, "what belongs to it has changed");
    assert_eq!(count.try_read_with(|| ()), Some((-0x7fff_fff9, ())));
}

/// While a reader asks, all CPUs add to one part, and the others stand still.
#[test]
fn a_reader_that_asks_finds_the_parts_unchanged() {
    let count = SnapshotCounter::new(3);
    let on = |cpu, amount| {
        let _on = cpu::pretend(cpu);
        count.add(amount);
    };
    on(0, 4);
    let value = {
        let _asking = Asking::new(&count.readers);
        (0..3).for_each(|cpu| on(cpu, -2));
        assert_eq!(count.sum(), CHANGE + 4, "a writer has ignored the reader");
        count.try_read_with(|| ())
    };
    assert_eq!(value, Some((-2, ())));
    on(2, 1);
    assert_eq!(count.sum(), 2 * CHANGE + 5, "nobody asks any more");
    assert_eq!(count.read_with(|| ()), (-1, ()));
}

/// Readers arrive beside writers that never pause, with a value that the count had.
#[test]
fn readers_arrive_beside_a_storm_of_changes() {
    let (count, done) = (SnapshotCounter::new(8), AtomicBool::new(false));
    thread::scope(|scope| {
        for pair in [0, 4] {
            let (count, done) = (&count, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for (cpu, amount) in [(pair, 1), (pair + 1, -1), (pair + 2, 2), (pair + 3, -2)]
                    {
                        let _on = cpu::pretend(cpu);
                        count.add(amount);
                    }
                }
            });
        }
        for _ in 0..ROUNDS {
            let (value, ()) = count.read_with(|| ());
            assert!((0..=4).contains(&value), "{value} at no moment");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(count.read_with(|| ()), (0, ()));
    assert_eq!(count.readers.load(Ordering::Relaxed), 0);
}

#[test]
fn a_sum_shows_what_went_before_the_update() {
    let (counter, flag) = (PerCpuCounter::new(4), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            flag.store(true, Ordering::Relaxed);
            counter.add(1);
        });
        while counter.sum() == 0 {
            thread::yield_now();
        }
        assert!(flag.load(Ordering::Relaxed));
    });
}
