//! Random schedules of changes, concurrent with reads of their times:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle times::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A failing schedule is printed, too.

use std::sync::Arc;

use crate::common::{MODE, check, make, memory};
use shuttle::thread;
use vfscale::Task;
use vfscale::posix::{At, AtFlags, Stat};
use vfscale_sync::cpu;

fn look(task: &Task) -> Stat {
    task.metadata("/d").unwrap().into()
}

/// If a directory changes between two calls of `stat`, the second returns a later time, whatever
/// other threads change and read concurrently. The change may be the thread's own or one that it
/// learns of.
fn changes_show(others: [fn(&Task); 2]) {
    check(move || {
        let task = Arc::new(memory().task());
        task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
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

/// Race: A change against a read of its time.
///
/// A change time is stamped with the tick of the clock, and with the exact time once it was read. A
/// stamping thread may have read its clock long before another one stamped. And of two changes
/// after a read, the first clears the sign that the time was read; the second, which found the sign
/// cleared, wrote nothing and ended while the time was still the one that was read. So times are
/// only ever replaced by later ones, the clock is read after the change is visible, and a thread
/// that finds an exact stamp under way stamps exactly itself
/// (`crates/vfs/src/objects/inode/times.rs` has the argument).
///
/// Seam: growth of a table / the stamp of the directory's time; parties: two changes, a read of the
/// time.
#[test]
fn a_change_beside_another_and_a_look() {
    let change = |task: &Task| {
        make(task, "/d/x");
    };
    changes_show([change, look_twice]);
}

/// Race: A change against a read of its time.
///
/// Seam: growth of a table / the stamp of the directory's time; parties: two changes, a read of the
/// time.
///
/// Nothing makes sure that the table grows in this model.
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

/// Race: A change against a read of its time.
///
/// A directory's exact time is later than the last tick of the clock, with which another directory
/// is stamped afterwards: the later change had the earlier time. So a tick is used only when it is
/// later than all exact times (`crates/sync/src/clock.rs` has the argument).
///
/// Seam: the bound of exact times / the stamps of two directories; parties: a change after a read
/// of its time and a later change of another directory, two threads that do the same elsewhere.
#[test]
fn a_change_after_one_of_another_directory() {
    let changes_in_order = |task: &Task, dirs: [&str; 2]| {
        let change = |dir: &str| {
            task.posix().fchmodat(At::Cwd, dir, MODE, AtFlags::empty()).unwrap();
        };
        let time = |dir: &str| Stat::from(task.metadata(dir).unwrap()).ctime;
        for _ in 0..2 {
            change(dirs[0]);
            time(dirs[0]);
            dirs.iter().copied().for_each(change);
            let times = dirs.map(time);
            assert!(times[0] <= times[1], "{times:?}");
        }
    };
    check(move || {
        let task = Arc::new(memory().task());
        let dirs = [["/a", "/b"], ["/c", "/d"], ["/e", "/f"]];
        for dir in dirs.as_flattened() {
            task.posix().mkdirat(At::Cwd, *dir, MODE).unwrap();
        }
        let others = [1, 2].map(|number| {
            let task = task.clone();
            thread::spawn(move || {
                let _there = cpu::pretend(number);
                changes_in_order(&task, dirs[number as usize]);
            })
        });
        changes_in_order(&task, dirs[0]);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}
