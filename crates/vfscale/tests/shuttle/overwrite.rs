//! Random schedules of overwrites and of calls that exclude them:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale --test shuttle overwrite::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A failing schedule is printed, too.

use std::sync::Arc;

use crate::common::{MODE, check_times, errno};
use shuttle::thread;
use vfscale::posix::{MemfdFlags, OFlags, SealFlags, Whence};
use vfscale::{Credentials, Errno, File, Mode, Scaling, Task};
use vfscale_sync::{cpu, model};

const SCHEDULES: usize = 2_000;
const PAGE: usize = 4096;

fn check(model: impl Fn() + Send + Sync + 'static) {
    check_times(SCHEDULES, model);
}

fn task() -> Task {
    let without = model::is_without_patches();
    let scaling = if without { Scaling::kernel_2_6() } else { Scaling::with_slots(2) };
    vfscale::memory().size(4 << 20).scaling(scaling).build().unwrap().task()
}

/// Writes `pages` pages of zeros, and lets two CPUs share the file's lock until it is sharded.
fn share(file: &File, pages: usize) {
    file.pwrite(&vec![0; pages * PAGE], 0).unwrap();
    for turn in 0..16 {
        let _on = cpu::pretend(turn % 2);
        file.seek(Whence::Hole(0)).unwrap();
    }
}

fn shared(task: &Task, pages: usize) -> Arc<File> {
    let file = task.posix().open("/file", OFlags::CREATE | OFlags::RDWR, MODE).unwrap();
    share(&file, pages);
    Arc::new(file)
}

/// Starts a thread on another CPU.
fn spawn<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::spawn(move || {
        let _on = cpu::pretend(1);
        call()
    })
}

fn byte(file: &File, at: usize) -> u8 {
    let mut byte = [0xee];
    file.pread(&mut byte, at as u64).unwrap();
    byte[0]
}

/// Data that was cut off is not visible again when the file is extended.
///
/// Race: Overwrite / truncation.
#[test]
fn overwrite_against_truncate() {
    check(|| {
        let task = task();
        let file = shared(&task, 1);
        let writes = {
            let file = file.clone();
            spawn(move || file.pwrite(&[1; PAGE], 0).unwrap())
        };
        file.truncate(100).unwrap();
        writes.join().unwrap();
        let cut_last = file.stat().unwrap().size == 100;
        file.truncate(PAGE as u64).unwrap();
        assert_eq!(byte(&file, 100) == 0, cut_last);
    });
}

/// Set-id bits are cleared once another user has written to the file.
///
/// Race: Overwrite by another user / set-id bits.
#[test]
fn overwrite_against_chmod() {
    check(|| {
        let task = task();
        let file = shared(&task, 1);
        task.set_permissions("/file", Mode::from(0o666)).unwrap();
        share(&file, 1);
        let user = task.with_credentials(Credentials::user(1000, 1000));
        let writes = {
            let file = user.posix().open("/file", OFlags::RDWR, MODE).unwrap();
            spawn(move || file.pwrite(&[1; 8], 0).unwrap())
        };
        let set_id = Mode::from(0o4777);
        task.set_permissions("/file", set_id).unwrap();
        let is_written = byte(&file, 0) == 1;
        writes.join().unwrap();
        let mode = file.stat().unwrap().mode & 0o7777;
        assert!(is_written || mode == 0o777, "written later, and still of mode {mode:o}");
    });
}

/// After a file is sealed, no write succeeds.
///
/// Race: Overwrite / sealing.
#[test]
fn overwrite_against_a_seal() {
    check(|| {
        let task = task();
        let file = task.posix().memfd_create("memory", MemfdFlags::ALLOW_SEALING).unwrap();
        share(&file, 1);
        let file = Arc::new(file);
        let writes = {
            let file = file.clone();
            spawn(move || errno(file.pwrite(&[1; 8], 0)))
        };
        file.add_seals(SealFlags::WRITE).unwrap();
        let seen = byte(&file, 0);
        let refused = writes.join().unwrap();
        assert_eq!(byte(&file, 0), seen);
        assert_eq!(refused, (seen == 0).then_some(Errno::PERM));
    });
}

/// A long write precedes or follows an overwrite on all of its pages.
///
/// Race: Overwrite / a long write over the same pages.
#[test]
fn overwrite_against_a_long_write() {
    check(|| {
        let task = task();
        let file = shared(&task, 5);
        let writes = {
            let file = file.clone();
            spawn(move || file.pwrite(&[1; 2 * PAGE], 0).unwrap())
        };
        file.pwrite(&[9; 5 * PAGE], 0).unwrap();
        writes.join().unwrap();
        assert_eq!(byte(&file, 0), byte(&file, PAGE));
        assert_eq!(byte(&file, 2 * PAGE), 9);
    });
}
