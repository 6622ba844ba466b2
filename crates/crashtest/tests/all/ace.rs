//! Every small workload, cut at each write and flush from its last call on, and those in which
//! other file systems lost something: see [`vfscale_crashtest::ace`].
//!
//! `VFSCALE_ACE` sets the number of calls of a workload (1): 2 takes minutes, and 3, of calls that
//! change names and attributes, a night. `VFSCALE_ACE_EVERY=N` takes each Nth workload; of several
//! calls on a branch, where a state takes several times as long, each 4Nth.

use vfscale_crashtest::ace::{self, Table};
use vfscale_crashtest::number;
use vfscale_crashtest::subject::Subject;
use vfscale_crashtest::subject::volume::Volumes;
use vfscale_crashtest::sweep::Summary;

use crate::branch::{self, Branches};

const DEVICE: u64 = 32 << 20;

/// Returns volumes with the smallest log, which is read whole at each opening.
fn volumes() -> Volumes {
    Volumes { log_blocks: Some(256), ..Volumes::default() }
}

fn branches() -> Branches {
    Branches { volumes: volumes(), forks: 3, of_child: false }
}

/// Sweeps each workload, or each `every`th of those of several calls.
fn small(subject: &dyn Subject, device_bytes: u64, every: usize) {
    let length = number("VFSCALE_ACE", 1);
    let table = if length > 2 { Table::Metadata } else { Table::All };
    let every = if length > 1 { every } else { 1 } * number("VFSCALE_ACE_EVERY", 1);
    let workloads = ace::workloads(table, length).step_by(every);
    assert_clean(&ace::sweep(subject, device_bytes, workloads).unwrap());
}

fn assert_clean(summary: &Summary) {
    println!("{summary}");
    assert!(summary.violations.is_empty(), "{summary}");
    assert!(summary.states > 2 * summary.scripts, "{summary}");
}

#[test]
fn each_small_workload_on_a_volume() {
    small(&volumes(), DEVICE, 1);
}

#[test]
fn each_small_workload_on_a_branch() {
    small(&branches(), branch::DEVICE, 4);
}

#[test]
fn workloads_that_broke_other_file_systems() {
    for (subject, bytes) in [(&volumes() as &dyn Subject, DEVICE), (&branches(), branch::DEVICE)] {
        assert_clean(&ace::sweep(subject, bytes, ace::historic().into_iter()).unwrap());
    }
}
