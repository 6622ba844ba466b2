//! Random schedules of readers of a directory, concurrent with renames within it, out of it and
//! into it:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle readdir::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A failing schedule is printed, too.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{MODE, check_times, make, memory, rename};
use shuttle::thread;
use vfscale::Task;
use vfscale::posix::{At, OFlags, RenameFlags};
use vfscale_sync::cpu;

/// Fewer schedules than elsewhere, since each has many steps.
const SCHEDULES: usize = 1_000;

/// The arguments of a rename.
type Rename = (&'static str, &'static str, RenameFlags);

/// Returns the names in `/d`, read `step` at a time.
fn names(task: &Task, step: usize) -> Vec<String> {
    let dir = task.posix().open("/d", OFlags::RDONLY | OFlags::DIRECTORY, MODE).unwrap();
    let (mut names, mut pos) = (Vec::new(), 2);
    loop {
        let mut read = 0;
        dir.read_dir_at(pos, |entry| {
            names.push(entry.name.to_str().unwrap().to_owned());
            assert!(entry.next > pos, "back from {pos} to {}", entry.next);
            (pos, read) = (entry.next, read + 1);
            if read < step { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
        if read < step {
            return names;
        }
    }
}

/// Reads a directory with `k1`, `k2`, `a` and `b` while two threads rename: the names in `stays`
/// are read exactly once, and no others but those in `comes`.
fn read_during(
    renames: [&'static [Rename]; 2],
    stays: &'static [&'static str],
    comes: &'static [&'static str],
) {
    for step in [1, 64] {
        check_times(SCHEDULES, move || {
            let task = Arc::new(memory().task());
            ["/d", "/e"].iter().for_each(|dir| task.posix().mkdirat(At::Cwd, dir, MODE).unwrap());
            for file in ["/d/k1", "/d/k2", "/d/a", "/d/b", "/e/c", "/e/t"] {
                make(&task, file);
            }
            let renamers = renames.into_iter().enumerate().map(|(number, renames)| {
                let task = task.clone();
                thread::spawn(move || {
                    let _there = cpu::pretend(1 + number as u32);
                    for &(from, to, flags) in renames {
                        assert_eq!(rename(&task, from, to, flags), None, "{from} {to}");
                    }
                })
            });
            let renamers: Vec<_> = renamers.collect();
            let names = names(&task, step);
            for name in stays.iter().chain(&["k1", "k2"]) {
                let times = names.iter().filter(|found| found == name).count();
                assert_eq!(times, 1, "{name} among {names:?}");
            }
            for name in &names {
                let name = &name.as_str();
                let is_ours = stays.contains(name) || comes.contains(name);
                assert!(is_ours || ["k1", "k2"].contains(name), "{name} among {names:?}");
            }
            renamers.into_iter().for_each(|renamer| renamer.join().unwrap());
        });
    }
}

const PLAIN: RenameFlags = RenameFlags::empty();

/// Race: Reading a directory while it changes.
///
/// A position is the hash of a name, unique in its directory, and tables of every size order their
/// buckets by hash. A name that exists throughout is returned exactly once, whatever is created,
/// removed, renamed or resized.
///
/// The scan used to take entries with their hashes from a bucket, and the reader then read hash and
/// name of each entry again. A rename in between gave the entry another hash, from which the reader
/// continued (names between the two were skipped, or returned twice), and another name, which the
/// directory may never have had. And a file that was just replaced was missing, as lookups would
/// have missed it. Now a bucket is read as a whole, with name and inode of each entry, and read
/// again if an entry was inserted or a change announced in it during the read; after three attempts
/// it is read under its lock (`RcuTable::scan_settled`).
///
/// Seam: scan of a table / names read from it; parties: a reader of the directory, two renames.
#[test]
fn renames_within_and_out() {
    read_during([&[("/d/a", "/d/z", PLAIN)], &[("/d/b", "/e/q", PLAIN)]], &[], &["a", "z", "b"]);
}

/// Race: Reading a directory while it changes.
#[test]
fn renames_out_and_in_again() {
    read_during(
        [&[("/d/a", "/e/q", PLAIN), ("/e/q", "/d/z", PLAIN)], &[("/e/c", "/d/c", PLAIN)]],
        &["b"],
        &["a", "z", "c"],
    );
}

/// Race: Reading a directory while it changes.
/// Seam: scan of a table / names read from it; parties: a reader of the directory, two renames.
#[test]
fn exchanges_with_another_directory() {
    read_during(
        [&[("/d/a", "/e/c", RenameFlags::EXCHANGE)], &[("/d/b", "/e/t", RenameFlags::EXCHANGE)]],
        &["a", "b"],
        &[],
    );
}

/// Race: Reading a directory while it changes.
#[test]
fn exchanges_within() {
    read_during(
        [&[("/d/a", "/d/b", RenameFlags::EXCHANGE)], &[("/d/k1", "/d/a", RenameFlags::EXCHANGE)]],
        &["a", "b"],
        &[],
    );
}

/// The usual method of replacing a whole file.
///
/// Race: Reading a directory while it changes.
#[test]
fn files_that_take_a_name() {
    read_during(
        [&[("/e/t", "/d/a", PLAIN)], &[("/d/b", "/d/k2", PLAIN), ("/e/c", "/d/k2", PLAIN)]],
        &["a"],
        &["b"],
    );
}
