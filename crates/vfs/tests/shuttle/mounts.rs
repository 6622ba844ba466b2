//! Schedules of walks over a mount that is unmounted, chosen at random: `RUSTFLAGS="--cfg shuttle"
//! cargo test --release -p vfscale-vfs --test shuttle mounts::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::Arc;

use crate::numbers::Numbers;
use vfscale_sync::model::{self, Schedules};
use vfscale_sync::{cpu, rcu};
use vfscale_vfs::{Errno, MountFlags, UmountFlags, Vfs};

const SCHEDULES: usize = 2_000;

/// Set in a process that runs a model with a fault.
const PLANTED: &str = "VFSCALE_PLANTED";

/// Runs two walks over a mount, one of them without sections if it is `blind`, beside a thread that
/// unmounts it.
fn walks_beside_an_unmount(blind: bool) {
    model::check(&[Schedules::Turns(SCHEDULES), Schedules::Delays(SCHEDULES)], move || {
        let task = Arc::new(Vfs::new(Numbers::new(2, 2)).unwrap().task());
        let fs = Numbers::new(2, 2);
        let weak = Arc::downgrade(&fs);
        task.posix().mount(fs, "/d1", MountFlags::empty()).unwrap();
        let known = task.metadata("/d1/d0/f1").unwrap().ino;
        let walks = [false, blind].map(|blind| {
            model::spawn(task.clone(), move |task| {
                let _cpu = cpu::pretend(0);
                let walk = || {
                    let found = task.metadata("/d1/d0/f1").map(|stat| stat.ino);
                    let found = found.map_err(|e| e.errno());
                    assert!([Ok(known), Err(Errno::NOENT)].contains(&found), "{found:?}");
                };
                if blind { model::without_sections(walk) } else { walk() }
            })
        });
        task.posix().umount("/d1", UmountFlags::DETACH).unwrap();
        walks.into_iter().for_each(|walk| walk.join().unwrap());
        (0..4).for_each(|_| rcu::synchronize());
        assert_eq!(weak.strong_count(), 0, "an ended mount is still referenced");
    });
}

/// A walk crosses a mount that is unmounted, or finds what is below it.
///
/// Race: Two walks over a mount / a thread that unmounts it, and frees it after a grace period.
#[test]
fn a_mount_stays_for_walks_that_have_found_it() {
    walks_beside_an_unmount(false);
}

/// The model can fail: a walk enters no section. It follows pointers of the freed mount, which may
/// end the process, so the model has one of its own.
///
/// Race: A walk without a section over a mount / a walk / a thread that unmounts it.
#[test]
fn a_walk_without_a_section_over_a_mount_is_found() {
    if std::env::var_os(PLANTED).is_some() {
        return walks_beside_an_unmount(true);
    }
    let Output { status, stdout, stderr } = Command::new(std::env::current_exe().unwrap())
        .args(["mounts::a_walk_without_a_section_over_a_mount_is_found", "--exact", "--nocapture"])
        .env(PLANTED, "1")
        .output()
        .unwrap();
    let said = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    let is_found = status.signal() == Some(libc::SIGSEGV) || said.contains("RefCell already");
    assert!(is_found && !status.success(), "{status}: {said}");
}
