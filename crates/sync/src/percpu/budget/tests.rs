use std::sync::atomic::AtomicU64 as StdU64;
use std::thread;

use super::*;
use crate::cpu;

const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn budget_gives_out_every_unit_and_no_more() {
    for (total, slots) in [(0, 1), (1, 4), (100, 1), (100, 7), (10_000, 16), (1 << 20, 80)] {
        let budget = Budget::new(total, slots);
        let (mut taken, mut cpu) = (0, 0);
        loop {
            cpu += 1;
            let _on = cpu::pretend(cpu % 90);
            let n = u64::from(cpu % 13);
            if !budget.take(n) {
                assert!(total - taken < n, "{} left of {total}, {n} refused", total - taken);
                break;
            }
            taken += n;
            assert_eq!((budget.used(), budget.available()), (taken, total - taken));
        }
        assert!(budget.take(total - taken), "the rest is in the slots");
        assert!(!budget.take(1) && budget.take(0));
        budget.give(total);
        assert_eq!((budget.used(), budget.available(), budget.total()), (0, total, total));
        assert!(budget.take(total));
    }
}

#[test]
fn budget_without_a_bound() {
    let budget = Budget::new(u64::MAX, 4);
    assert!(budget.take(u64::MAX / 2) && budget.take(1 << 40));
    budget.give(u64::MAX / 2);
    budget.give(1 << 40);
    assert_eq!(budget.used(), 0);
}

#[test]
fn budget_takes_what_other_cpus_gave() {
    let budget = Budget::new(1000, 2);
    {
        let _on = cpu::pretend(0);
        assert!(budget.take(1000));
        budget.give(100);
    }
    let _on = cpu::pretend(1);
    assert!(budget.take(100), "the allowance of CPU 0 was not gathered");
    assert!(!budget.take(1));
}

#[test]
fn budget_resizes_down_to_what_is_used() {
    let budget = Budget::new(1000, 4);
    assert!(budget.take(300));
    assert_eq!(budget.resize(299), Err(OverBudget { used: 300 }));
    assert_eq!(budget.total(), 1000);
    assert_eq!(budget.resize(300), Ok(()));
    assert!(!budget.take(1));
    assert_eq!(budget.resize(301), Ok(()));
    assert!(budget.take(1) && !budget.take(1));
    assert_eq!(budget.used(), 301);
}

/// Reserves a worst case and uses a little of it: with room for one on each CPU the pool is locked
/// once for each batch that is used.
#[test]
fn budget_keeps_amounts_larger_than_a_batch_with_the_cpu() {
    const TOTAL: u64 = 1 << 20;
    const WORST: u64 = 200_000;
    let budget = Budget::new(TOTAL, 2);
    const { assert!(WORST / 3 * 2 > TOTAL / 16, "more than a batch") };
    let round = |cpu, amount| {
        let _on = cpu::pretend(cpu);
        let before = budget.pool.lock().free;
        assert!(budget.take(amount));
        let was_asked = budget.pool.lock().free != before;
        budget.give(amount - 100);
        was_asked
    };
    // An amount hardly larger than what the slots hold already, and a larger one.
    for amount in [WORST / 3 * 2, WORST] {
        assert!(round(0, amount) && round(1, amount));
        let asked = (0..200).filter(|cpu| round(cpu % 2, amount)).count();
        assert!(asked <= 2, "the pool was asked {asked} times for {amount}");
    }
    assert_eq!(budget.used(), 404 * 100);
}

/// Units that slots hold for large amounts are still found by other CPUs, and slots hold none once
/// the pool was found empty.
#[test]
fn budget_keeps_nothing_large_when_the_pool_runs_dry() {
    const TOTAL: u64 = 1 << 20;
    const WORST: u64 = 200_000;
    let budget = Budget::new(TOTAL, 2);
    for cpu in [0, 1] {
        let _on = cpu::pretend(cpu);
        assert!(budget.take(WORST));
        budget.give(WORST);
        assert!(budget.allowances.this().load(Ordering::Relaxed) >= WORST);
    }
    let _on = cpu::pretend(0);
    assert!(budget.take(TOTAL - 1) && budget.take(1) && !budget.take(1));
    budget.give(TOTAL);
    assert!(budget.take(WORST - 1) && !budget.take(TOTAL));
    budget.give(WORST - 1);
    let kept: u64 = budget.allowances.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
    assert!(kept <= TOTAL / 4, "{kept} are in slots");
}

/// A full budget is asked ten thousand times, and gathers the units of the slots once.
#[test]
fn failures_gather_no_slots() {
    const TOTAL: u64 = 1 << 20;
    let budget = Budget::new(TOTAL, 512);
    let gathers = || budget.pool.lock().gathers;
    for cpu in 0..512 {
        let _on = cpu::pretend(cpu);
        assert!(budget.take(TOTAL / 512));
    }
    let before = gathers();
    for n in 0..10_000 {
        let _on = cpu::pretend(n % 512);
        assert!(!budget.take(1));
    }
    assert!(gathers() - before <= 1, "{} of 10,000 failures gathered", gathers() - before);
    // Units that come back one at a time are found, by any CPU, and without a search.
    for n in 0..10_000 {
        let _on = cpu::pretend(n % 512);
        budget.give(2);
        let _there = cpu::pretend((n + 1) % 512);
        assert!(budget.take(2) && !budget.take(1));
    }
    assert!(gathers() - before <= 1);
    assert_eq!((budget.used(), budget.available(), budget.used_exactly()), (TOTAL, 0, TOTAL));
    // A request for more than there can be fails without a search, even when much is free.
    budget.give(TOTAL / 2);
    let before = gathers();
    assert!((0..100).all(|_| !budget.take(TOTAL + 1)));
    assert_eq!(gathers(), before);
}

/// When enough is free again, the slots are used again; a new bound opens them, too.
#[test]
fn slots_are_open_again_when_enough_is_free() {
    const TOTAL: u64 = 1 << 20;
    let full = || {
        let budget = Budget::new(TOTAL, 4);
        assert!(budget.take(TOTAL) && !budget.take(1) && budget.pool.lock().dry);
        budget
    };
    let is_open = |budget: &Budget| {
        let open = budget.allowances.iter().all(|slot| slot.load(Ordering::Relaxed) != CLOSED);
        assert_eq!(open, !budget.pool.lock().dry);
        open
    };
    let budget = full();
    budget.give(TOTAL / 64 - 1);
    assert!(!is_open(&budget));
    budget.give(1);
    assert!(is_open(&budget));
    assert_eq!(budget.used(), TOTAL - TOTAL / 64);
    assert!(budget.take(1));
    assert!(budget.allowances.this().load(Ordering::Relaxed) > 0, "the slot was not filled");
    let budget = full();
    assert_eq!(budget.resize(TOTAL - 1), Err(OverBudget { used: TOTAL }));
    assert!(!budget.take(1));
    assert_eq!(budget.resize(TOTAL + 10), Ok(()));
    assert!(is_open(&budget) && budget.take(10) && !budget.take(1));
}

/// Threads on many CPUs never hold more than the total, and if each thread holds at most its share,
/// no `take` may fail. An approximate bound gets this wrong.
#[test]
fn budget_is_exact_under_stress() {
    const THREADS: u64 = 4;
    const SHARE: u64 = 25;
    let budget = Budget::new(THREADS * SHARE, 8);
    let held = StdU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (budget, held) = (&budget, &held);
            scope.spawn(move || {
                let mut mine = 0;
                for round in 0..ROUNDS {
                    let _on = cpu::pretend(((thread + round) % 11) as u32);
                    let n = (round * 7 + thread) % (SHARE + 1 - mine);
                    assert!(budget.take(n), "refused within the share");
                    mine += n;
                    let now = held.fetch_add(n, Ordering::SeqCst) + n;
                    assert!(now <= THREADS * SHARE, "{now} held");
                    if round % 3 != 0 {
                        let n = (round * 5) % (mine + 1);
                        held.fetch_sub(n, Ordering::SeqCst);
                        budget.give(n);
                        mine -= n;
                    }
                }
                held.fetch_sub(mine, Ordering::SeqCst);
                budget.give(mine);
            });
        }
    });
    assert_eq!((budget.used(), budget.available()), (0, THREADS * SHARE));
}
