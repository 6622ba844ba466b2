//! Schedules of a directory whose table grows while threads create names in it and look them up,
//! chosen at random: `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle
//! growth::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{MODE, check_times, ino, make};
use shuttle::thread;
use vfscale::posix::{At, OFlags, Stat};
use vfscale::{Scaling, Task, Vfs};
use vfscale_sync::{cpu, model};

const SCHEDULES: usize = 2_000;
/// Number of names in the directory at first: as many as its only bucket has slots for.
const NAMES: usize = 6;
/// Number of names that are made at last, so that a resize ends.
const MORE: usize = 12;

fn look(task: &Task) -> Stat {
    task.metadata("/d").unwrap().into()
}

fn is_dot(name: &OsStr) -> bool {
    name == "." || name == ".."
}

/// Makes a tree whose directories have one bucket at first.
fn tree() -> Vfs {
    let without = model::is_without_patches();
    let scaling = if without { Scaling::kernel_2_6() } else { Scaling::with_slots(1) };
    vfscale::memory().size(4 << 20).scaling(scaling).build().unwrap()
}

/// Makes a directory with a full bucket, and returns its files with their inode numbers.
fn full_bucket(task: &Task) -> Vec<(String, u64)> {
    task.posix().mkdirat(At::Cwd, "/d", MODE).unwrap();
    (0..NAMES)
        .map(|number| format!("/d/{number}"))
        .map(|name| (name.clone(), make(task, &name)))
        .collect()
}

/// Creates files in the directory, on another CPU. Each is found when the call has returned, and
/// the directory's times are later than those that this thread saw before the call.
fn create(task: &Task, cpu: u32, names: [&str; 2]) -> Vec<(String, u64)> {
    let _cpu = cpu::pretend(cpu);
    let create = |name: &str| {
        let before = look(task);
        let number = make(task, name);
        let after = look(task);
        assert!(after.mtime > before.mtime && after.ctime > before.ctime, "{before:?} {after:?}");
        assert_eq!(ino(task, name), Ok(number), "{name}");
        (name.to_owned(), number)
    };
    names.into_iter().map(create).collect()
}

/// Calls `stat` on each name and then on the directory. No name is missing, and no time decreases.
fn look_at_all(task: &Task, made: &[(String, u64)], before: &Stat) -> Stat {
    for (name, number) in made {
        assert_eq!(ino(task, name), Ok(*number), "{name}");
    }
    let now = look(task);
    assert!(now.mtime >= before.mtime && now.ctime >= before.ctime, "{before:?} {now:?}");
    now
}

/// The table of a directory grows under two threads that create names in it and one that calls
/// `stat` on names that exist and on the directory: each name is found from the end of its creation
/// on, and a change shows in the directory's times, which never decrease.
///
/// Race: Growth of a directory's table / two creators / stat.
#[test]
fn growth_against_two_creators_and_stat() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    static GROWN: AtomicUsize = AtomicUsize::new(0);
    check_times(SCHEDULES, || {
        let task = Arc::new(tree().task());
        let mut made = full_bucket(&task);
        let resizes = model::resizes();
        let creators = [(0, ["/d/a", "/d/b"]), (1, ["/d/x", "/d/y"])].map(|(cpu, names)| {
            let task = task.clone();
            thread::spawn(move || create(&task, cpu, names))
        });
        let mut before = look(&task);
        for _ in 0..3 {
            before = look_at_all(&task, &made, &before);
        }
        for creator in creators {
            made.extend(creator.join().unwrap());
        }
        // A table is moved in steps, by the calls that change it.
        made.extend((0..MORE).map(|number| format!("/d/more-{number}")).map(|name| {
            let ino = make(&task, &name);
            (name, ino)
        }));
        look_at_all(&task, &made, &before);
        let dir = task.posix().open("/d", OFlags::RDONLY, MODE).unwrap();
        let entries = dir.read_dir().map(Result::unwrap).filter(|entry| !is_dot(&entry.name));
        let mut listed: Vec<u64> = entries.map(|entry| entry.ino).collect();
        let mut numbers: Vec<u64> = made.iter().map(|(_, number)| *number).collect();
        listed.sort_unstable();
        numbers.sort_unstable();
        assert_eq!(listed, numbers);
        RUNS.fetch_add(1, Ordering::Relaxed);
        GROWN.fetch_add(usize::from(model::resizes() > resizes), Ordering::Relaxed);
    });
    let (runs, grown) = (RUNS.load(Ordering::Relaxed), GROWN.load(Ordering::Relaxed));
    // A resize gives up if it finds the first bucket locked.
    assert!(2 * grown > runs, "the table has grown in {grown} of {runs} runs");
}
