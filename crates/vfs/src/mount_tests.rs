#![allow(clippy::unwrap_used, reason = "a test")]

use vfscale_sync::cpu;

use crate::file::File;
use crate::names_only_tests::names_only;
use crate::scaling::Scaling;
use crate::types::{Mode, OFlags};

const MODE: Mode = Mode::from_bits_retain(0o755);
const CPUS: usize = 4;

/// The counts of users and writers of the mount of files that are open on `CPUS` CPUs, one on each.
fn counts(scaling: Scaling) -> (Vec<i64>, Vec<i64>) {
    let task = names_only(scaling).task();
    let root = task.vfs().ns().root_path();
    let mount = root.mount();
    let before: Vec<i64> = mount.users.parts().collect();
    let files: Vec<File> = (0..CPUS)
        .map(|cpu| {
            let _there = cpu::pretend(cpu as u32);
            task.open(format!("/{cpu}"), OFlags::CREATE | OFlags::WRONLY, MODE).unwrap()
        })
        .collect();
    let users: Vec<i64> = mount.users.parts().collect();
    assert_eq!((users.len(), files.len()), (before.len(), CPUS));
    let added: Vec<i64> = users.iter().zip(before).map(|(now, before)| now - before).collect();
    (added, mount.writers.parts().collect())
}

#[test]
fn mount_count_before_has_one_counter() {
    let (users, writers) = counts(Scaling::with_slots(CPUS));
    assert_eq!((users.as_slice(), writers.as_slice()), (&[1; CPUS][..], &[1; CPUS][..]));
    let before = Scaling::with_slots(CPUS).and_before("mount-count").unwrap();
    let (users, writers) = counts(before);
    assert_eq!((users.as_slice(), writers.as_slice()), (&[CPUS as i64][..], &[CPUS as i64][..]));
}
