//! Schedules of mounted volumes, chosen at random: files that lose their last user, and volumes
//! that are remounted, closed and stopped, while other threads write to them: `RUSTFLAGS="--cfg
//! shuttle" cargo test --release -p vfscale-diskfs --test shuttle_stops`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, reason = "a test")]

mod volumes;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::thread;
use vfscale_block::{Device, FaultyDevice};
use vfscale_diskfs::tools::check;
use vfscale_diskfs::vfs_impl::{DiskFs, DiskOptions, OnError};
use vfscale_vfs::driver::FileSystem;
use vfscale_vfs::{At, AtFlags, Errno, Mode, MountFlags, Task, Vfs};

use volumes::{
    PAGE, SIZE, assert_no_writes, copy_of, device, failure, mounted, one_list, schedules,
};

/// How many pages there is memory for where a writer is to wait for memory.
const PAGES_FEW: u64 = 16;
/// How many pages are written in one call then, and how many calls there are.
const PIECE: usize = 3 * PAGE;
const PIECES: usize = 3;

/// Compares a file with pages of one byte each.
fn assert_holds(task: &Task, path: &str, byte: u8, len: usize) {
    let bytes = task.read_file(path).unwrap();
    assert_eq!(bytes.len(), len, "{path}");
    assert!(bytes.iter().all(|found| *found == byte), "{path}");
}

/// Mounts what a crash would leave, looks at it, and closes it.
fn assert_left(device: Arc<dyn Device>, look: impl FnOnce(&Task)) {
    let (fs, vfs) = mounted(device.clone(), one_list());
    look(&vfs.task());
    drop(vfs);
    fs.close().unwrap();
    assert_clean(device);
}

/// Nothing at all is wrong with the volume.
fn assert_clean(device: Arc<dyn Device>) {
    let report = check::check(device, &check::Options::default(), &mut ()).unwrap();
    assert_eq!(report.count, 0, "{:?}", report.findings.first());
}

/// Remounts to read-only, and says whether it could be done.
fn remount_read_only(task: &Task) -> bool {
    match task.remount("/", MountFlags::RDONLY) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.errno(), Errno::BUSY);
            false
        }
    }
}

/// A sync, and a remount to read-only, make all durable that was written before, though the
/// background writer and a writer that wants memory are writing some of it back; and a volume that
/// is read-only is not written.
#[test]
fn sync_against_writers_against_remount() {
    schedules(|| {
        let disk = device();
        let device = Arc::new(FaultyDevice::new(disk.clone()));
        // Two dirty pages wake the background writer, and eight make who writes wait.
        let few = DiskOptions { data_cache_bytes: PAGES_FEW * PAGE as u64, ..one_list() };
        let (fs, vfs) = mounted(device.clone(), few);
        let task = vfs.task();
        for path in ["/a", "/b"] {
            task.write_file(path, [b'a'; SIZE]).unwrap();
        }
        let written = Arc::new(AtomicUsize::new(0));
        let writer = {
            let (task, written) = (vfs.task(), written.clone());
            thread::spawn(move || {
                for (number, path) in ["/c", "/d"].into_iter().enumerate() {
                    let file = match task.options().write(true).create(true).open(path) {
                        Ok(file) => file,
                        Err(error) => return assert_eq!(error.errno(), Errno::ROFS),
                    };
                    for piece in 0..PIECES {
                        let at = (piece * PIECE) as u64;
                        assert_eq!(file.pwrite(&[b'c'; PIECE], at).unwrap(), PIECE);
                    }
                    drop(file);
                    written.store(number + 1, Ordering::Relaxed);
                }
            })
        };
        let look = |task: &Task, written: usize| {
            ["/a", "/b"].iter().for_each(|path| assert_holds(task, path, b'a', SIZE));
            for path in &["/c", "/d"][..written] {
                assert_holds(task, path, b'c', PIECES * PIECE);
            }
        };
        let syncer = {
            let (fs, disk, written) = (fs.clone(), disk.clone(), written.clone());
            thread::spawn(move || {
                let before = written.load(Ordering::Relaxed);
                fs.sync_fs().unwrap();
                (before, copy_of(&disk))
            })
        };
        for _ in 0..3 {
            let before = written.load(Ordering::Relaxed);
            if remount_read_only(&task) {
                assert_no_writes(&device, || {
                    let left = copy_of(&disk);
                    let (fs, vfs) = mounted(left, DiskOptions { read_only: true, ..one_list() });
                    assert_eq!(fs.opened().log.checkpoints, 0);
                    look(&vfs.task(), before);
                });
                task.remount("/", MountFlags::empty()).unwrap();
            }
            thread::yield_now();
        }
        let (before, left) = syncer.join().unwrap();
        assert_left(left, |task| look(task, before));
        writer.join().unwrap();
        drop((task, vfs));
        fs.close().unwrap();
        let written = written.load(Ordering::Relaxed);
        assert_left(device, |task| look(task, written));
    });
}

/// Returns what a volume has in use when nothing is on its way: inodes and blocks.
fn in_use(fs: &DiskFs, task: &Task) -> (u64, u64) {
    while fs.reclaim() {}
    let figures = task.statfs(At::Cwd, "/").unwrap();
    (figures.files - figures.files_free, figures.blocks - figures.blocks_free)
}

/// One thread closes a file and another takes its name away while `beside` runs. Gives the volume,
/// and what was in use before there was the file.
fn last_users(
    device: Arc<dyn Device>,
    beside: impl FnOnce(&DiskFs, &Task),
) -> (Arc<DiskFs>, Vfs, (u64, u64)) {
    let (fs, vfs) = mounted(device, one_list());
    let task = vfs.task();
    task.write_file("/stays", [b's'; SIZE]).unwrap();
    let before = in_use(&fs, &task);
    let file = task.options().read(true).write(true).create(true).open("/goes").unwrap();
    // One page has a block, the other one waits for it.
    file.pwrite(&[b'a'; PAGE], 0).unwrap();
    file.sync_all().unwrap();
    file.pwrite(&[b'b'; PAGE], PAGE as u64).unwrap();
    let closer = thread::spawn(move || drop(file));
    let remover = {
        let task = vfs.task();
        thread::spawn(move || match task.unlink(At::Cwd, "/goes", AtFlags::empty()) {
            Ok(()) => true,
            Err(error) => {
                assert!([Errno::ROFS, Errno::IO].contains(&error.errno()), "{error}");
                false
            }
        })
    };
    beside(&fs, &task);
    closer.join().unwrap();
    if !remover.join().unwrap() && fs.stopped().is_none() {
        task.unlink(At::Cwd, "/goes", AtFlags::empty()).unwrap();
    }
    drop(task);
    (fs, vfs, before)
}

/// An inode that has lost its last user is freed, once, whatever goes on beside that; nothing of it
/// is left.
fn assert_freed(beside: impl Fn(&DiskFs, &Task) + Send + Sync + 'static) {
    schedules(move || {
        let device = device();
        let (fs, vfs, before) = last_users(device.clone(), &beside);
        vfscale_sync::rcu::synchronize();
        assert_eq!(in_use(&fs, &vfs.task()), before);
        drop(vfs);
        fs.close().unwrap();
        assert_clean(device);
    });
}

#[test]
fn last_users_against_sync() {
    assert_freed(|fs, _| fs.sync_fs().unwrap());
}

#[test]
fn last_users_against_freeze() {
    assert_freed(|fs, _| {
        let journal = fs.volume().journal().unwrap();
        journal.freeze().unwrap();
        thread::yield_now();
        journal.thaw();
    });
}

#[test]
fn last_users_against_remount() {
    assert_freed(|_, task| {
        for _ in 0..3 {
            if remount_read_only(task) {
                thread::yield_now();
                task.remount("/", MountFlags::empty()).unwrap();
            }
        }
    });
}

/// The volume stops: everybody goes on, and the next mount finishes what was begun.
#[test]
fn last_users_against_stop() {
    schedules(|| {
        let device = device();
        let (fs, vfs, _) = last_users(device.clone(), |fs, _| fs.volume().shut_down(failure()));
        drop(vfs);
        fs.close().unwrap_err();
        assert_left(device, |_| ());
    });
}

/// A thread that writes files and syncs each, until it is refused; gives those that are durable.
fn synced(vfs: &Vfs, refusals: &'static [Errno]) -> thread::JoinHandle<Vec<&'static str>> {
    let task = vfs.task();
    thread::spawn(move || {
        let mut durable = Vec::new();
        for path in ["/a", "/b"] {
            let made = task.options().write(true).create(true).open(path);
            let synced = made.and_then(|file| {
                file.pwrite(&[b'a'; SIZE], 0)?;
                file.sync_all()
            });
            match synced {
                Ok(()) => durable.push(path),
                Err(error) => assert!(refusals.contains(&error.errno()), "{error}"),
            }
        }
        durable
    })
}

/// A volume stops beside writers, and beside somebody who remounts it there and back: nothing that
/// was synced is lost, nothing is changed any more afterwards, and no remount makes it so.
#[test]
fn stop_against_writers_against_remount() {
    for on_error in [OnError::RemountRo, OnError::Shutdown] {
        schedules(move || {
            let device = device();
            let (fs, vfs) = mounted(device.clone(), DiskOptions { on_error, ..one_list() });
            let task = vfs.task();
            let writer = synced(&vfs, &[Errno::ROFS, Errno::IO]);
            let stopper = {
                let fs = fs.clone();
                thread::spawn(move || fs.volume().shut_down(failure()))
            };
            for flags in [MountFlags::RDONLY, MountFlags::empty()] {
                if let Err(error) = task.remount("/", flags) {
                    let expected = [Errno::BUSY, Errno::IO, Errno::ROFS];
                    assert!(expected.contains(&error.errno()), "{error}");
                }
            }
            stopper.join().unwrap();
            let durable = writer.join().unwrap();
            assert!(fs.stopped().is_some());
            let refusal = if on_error == OnError::RemountRo { Errno::ROFS } else { Errno::IO };
            let is_read_only =
                task.statfs(At::Cwd, "/").unwrap().flags.contains(MountFlags::RDONLY);
            for _ in 0..2 {
                let made = task.mkdir(At::Cwd, "/d", Mode::from_bits_retain(0o755)).unwrap_err();
                assert!([refusal, Errno::ROFS].contains(&made.errno()), "{made}");
                assert!(is_read_only || made.errno() == refusal, "{made}");
                let remounted = task.remount("/", MountFlags::empty());
                assert!(remounted.is_err() || !is_read_only || on_error == OnError::Shutdown);
            }
            drop((task, vfs));
            let _ = fs.close();
            assert_left(device, |task| {
                durable.iter().for_each(|path| assert_holds(task, path, b'a', SIZE));
            });
        });
    }
}

/// A volume stops beside a writer and beside whoever closes it: everybody comes to an end, and
/// nothing that was synced is lost.
#[test]
fn stop_against_writers_against_close() {
    schedules(|| {
        let device = device();
        let (fs, vfs) = mounted(device.clone(), one_list());
        let writer = synced(&vfs, &[Errno::ROFS, Errno::IO]);
        let stopper = {
            let fs = fs.clone();
            thread::spawn(move || fs.volume().shut_down(failure()))
        };
        let _ = fs.close();
        stopper.join().unwrap();
        let durable = writer.join().unwrap();
        drop(vfs);
        assert_left(device, |task| {
            durable.iter().for_each(|path| assert_holds(task, path, b'a', SIZE));
        });
    });
}
