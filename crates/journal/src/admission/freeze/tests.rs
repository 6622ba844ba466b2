#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, Ordering as Std};
use std::thread;
use std::time::Duration;

use vfscale_sync::cpu;

use super::*;

fn shared() -> SharedFields {
    SharedFields::new(true, 1, 1000, 10)
}

/// Race: A freeze against transactions that move between CPUs.
#[test]
fn a_freeze_waits_for_a_transaction_that_moved_between_cpus() {
    for slots in [1, 4] {
        let (shared, gate) = (shared(), Gate::new(slots));
        let entered = {
            let _here = cpu::pretend(3);
            gate.enter(cpu::current(), &shared)
        };
        assert_eq!(entered, Ok(()));
        let is_frozen = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                gate.freeze(&shared, false);
                is_frozen.store(true, Std::SeqCst);
            });
            while !shared.read.is_frozen.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            vfscale_harness::stays("the freeze waits", Duration::from_millis(2), || {
                !is_frozen.load(Std::SeqCst)
            });
            let _here = cpu::pretend(1);
            gate.leave(cpu::current(), &shared);
        });
        assert!(is_frozen.load(Std::SeqCst));
        assert_eq!(gate.active(&shared), 0);
    }
}

#[test]
fn new_ones_wait_for_the_thaw() {
    let (shared, gate) = (shared(), Gate::new(2));
    gate.freeze(&shared, false);
    gate.freeze(&shared, false);
    let is_in = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(gate.enter(cpu::current(), &shared), Ok(()));
            is_in.store(true, Std::SeqCst);
        });
        gate.thaw(&shared);
        vfscale_harness::stays("the other freeze holds it", Duration::from_millis(2), || {
            !is_in.load(Std::SeqCst)
        });
        gate.thaw(&shared);
    });
    assert!(is_in.load(Std::SeqCst));
    assert_eq!(gate.active(&shared), 1);
}

#[test]
fn a_final_freeze_and_a_shutdown_refuse() {
    let (shared, gate) = (shared(), Gate::new(2));
    gate.freeze(&shared, false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| gate.enter(cpu::current(), &shared));
        vfscale_harness::pause(Duration::from_millis(1));
        shared.read.is_shut.store(true, Ordering::SeqCst);
        gate.wake();
        assert_eq!(waits.join().unwrap(), Err(Refused::Shut));
    });
    gate.freeze(&shared, true);
    assert_eq!(gate.enter(cpu::current(), &shared), Err(Refused::Closed));
    assert_eq!(gate.active(&shared), 0);
}

/// Race: A freeze against transactions that move between CPUs.
#[test]
fn stress_freezes_find_nobody_inside() {
    for slots in [1, 3] {
        let (shared, gate) = (shared(), Gate::new(slots));
        let inside = std::sync::atomic::AtomicI64::new(0);
        thread::scope(|scope| {
            for cpu in 0..3 {
                let (shared, gate, inside) = (&shared, &gate, &inside);
                scope.spawn(move || {
                    for round in 0..3000 {
                        let here = cpu::pretend(cpu);
                        gate.enter(cpu::current(), shared).unwrap();
                        drop(here);
                        inside.fetch_add(1, Std::SeqCst);
                        inside.fetch_sub(1, Std::SeqCst);
                        let _there = cpu::pretend(cpu + round);
                        gate.leave(cpu::current(), shared);
                    }
                });
            }
            for _ in 0..200 {
                gate.freeze(&shared, false);
                assert_eq!(inside.load(Std::SeqCst), 0);
                gate.thaw(&shared);
            }
        });
        assert_eq!(gate.active(&shared), 0);
    }
}
