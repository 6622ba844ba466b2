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
    assert_eq!(count.read_with(|| 'x'), Some((0, 'x')));
    for (cpu, amount, value) in
        [(0, 1, 1), (1, -1, 0), (2, -1, -1), (2, 5, 4), (0, i32::MIN + 1, -0x7fff_fffb)]
    {
        on(cpu, amount);
        assert_eq!(count.read_with(|| ()), Some((value, ())));
    }
    assert_eq!(count.read_with(|| on(1, 1)), None, "it has changed");
    assert_eq!(
        count.read_with(|| (on(1, 1), on(2, -1))),
        None,
        "it has changed, and is what it was"
    );
    assert_eq!(count.read_with(|| ()), Some((-0x7fff_fffa, ())));
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
