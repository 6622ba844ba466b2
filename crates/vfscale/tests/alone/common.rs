//! Counts events at locks while calls run alternately on two CPUs.

use vfscale_sync::lock::{LockStatRow, lockstat, lockstat_record, lockstat_reset};
use vfscale_sync::{cpu, reclaim};

pub const CALLS: u64 = 100;

/// Returns the statistics of all locks while `calls` runs.
pub fn all_recorded(calls: impl FnOnce()) -> Vec<LockStatRow> {
    // Deferred frees of earlier tests take locks of their own.
    reclaim::settle();
    lockstat_reset();
    lockstat_record(true);
    calls();
    lockstat_record(false);
    lockstat()
}

/// Returns the statistics of the locks of a class.
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

/// Returns the statistics of the locks of a class while `calls` runs.
pub fn recorded(class: &str, calls: impl FnOnce()) -> LockStatRow {
    of_class(&all_recorded(calls), class)
}

/// Runs `call` alternately on two CPUs.
pub fn in_turn(mut call: impl FnMut(u32)) {
    for n in 0..CALLS {
        let cpu = (n % 2) as u32;
        let _there = cpu::pretend(cpu);
        call(cpu);
    }
}
