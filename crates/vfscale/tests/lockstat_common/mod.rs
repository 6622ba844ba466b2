//! Counting what happens to locks while calls run in turn on two CPUs.

#![allow(dead_code, reason = "not every test uses all of it")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use vfscale_sync::lock::{LockStatRow, lockstat, lockstat_record, lockstat_reset};
use vfscale_sync::{cpu, reclaim};

pub const CALLS: u64 = 100;

/// lockstat belongs to the process, and records whatever runs in it: one test at a time, also of those that
/// ask it nothing.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What happens to all locks while `calls` runs.
pub fn all_recorded(calls: impl FnOnce()) -> Vec<LockStatRow> {
    // What earlier tests have left to be freed takes locks of its own.
    reclaim::settle();
    lockstat_reset();
    lockstat_record(true);
    calls();
    lockstat_record(false);
    lockstat()
}

/// What happened to the locks of a class.
pub fn of_class(rows: &[LockStatRow], class: &str) -> LockStatRow {
    rows.iter().find(|row| row.name == class).cloned().unwrap_or_else(|| LockStatRow {
        name: "",
        rank: 0,
        con_bounces: 0,
        contentions: 0,
        parked: 0,
        wait: Default::default(),
        acq_bounces: 0,
        acquisitions: 0,
        hold: Default::default(),
    })
}

/// What happens to the locks of a class while `calls` runs.
pub fn recorded(class: &str, calls: impl FnOnce()) -> LockStatRow {
    of_class(&all_recorded(calls), class)
}

/// Runs `call` on two CPUs in turn.
pub fn in_turn(mut call: impl FnMut(u32)) {
    for n in 0..CALLS {
        let cpu = (n % 2) as u32;
        let _there = cpu::pretend(cpu);
        call(cpu);
    }
}
