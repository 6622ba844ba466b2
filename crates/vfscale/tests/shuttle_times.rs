//! Schedules of changes beside looks at their times, chosen at random:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle_times`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as well.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "shuttle_common/mod.rs"]
mod common;

use std::sync::Arc;

use common::{MODE, check, make, memory};
use shuttle::thread;
use vfscale::{At, AtFlags, Stat, Task};
use vfscale_sync::cpu;

fn look(task: &Task) -> Stat {
    task.stat(At::Cwd, "/d", AtFlags::empty()).unwrap()
}

/// Whoever changes a directory, or is told that it was changed, between two looks is shown two times,
/// the second one later, whatever others do who change and look.
fn changes_show(others: [fn(&Task); 2]) {
    check(move || {
        let task = Arc::new(memory().task());
        task.mkdir(At::Cwd, "/d", MODE).unwrap();
        let others = others.into_iter().enumerate().map(|(number, other)| {
            let task = task.clone();
            thread::spawn(move || {
                let _there = cpu::pretend(1 + number as u32);
                other(&task);
            })
        });
        let others: Vec<_> = others.collect();
        let mut before = look(&task);
        for name in ["/d/a", "/d/b"] {
            make(&task, name);
            let after = look(&task);
            assert!(after.mtime > before.mtime, "{before:?} {after:?}");
            assert!(after.ctime > before.ctime, "{before:?} {after:?}");
            before = after;
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        let last = look(&task);
        assert!(last.mtime >= before.mtime && last.ctime >= before.ctime, "{before:?} {last:?}");
    });
}

fn look_twice(task: &Task) {
    let (first, second) = (look(task), look(task));
    assert!(second.mtime >= first.mtime && second.ctime >= first.ctime, "{first:?} {second:?}");
}

#[test]
fn a_change_beside_another_and_a_look() {
    let change = |task: &Task| {
        make(task, "/d/x");
    };
    changes_show([change, look_twice]);
}

#[test]
fn a_change_beside_two_others() {
    let change = |task: &Task| {
        make(task, "/d/x");
    };
    let other = |task: &Task| {
        make(task, "/d/y");
        look_twice(task);
    };
    changes_show([change, other]);
}
