//! Cuts of a volume.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::tools::check::{self, LogState};

fn without_background() -> Settings {
    Settings { sync_interval: None, ..Settings::default() }
}

#[test]
fn a_cut_has_all_that_has_returned_and_nothing_is_written_home() {
    let device = Arc::new(MemoryDevice::new(32 * MIB).unwrap());
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    let volume = opened_with(device.clone(), without_background());
    let task = &volume.task;
    let large: Vec<u8> = (0..3 * MIB).map(|at| (at / 1000) as u8).collect();
    for (path, bytes) in [("/small", &large[..10]), ("/page", &large[..5000]), ("/large", &large)] {
        task.write(path, bytes).unwrap();
    }
    (0..50).for_each(|n| task.create_dir(format!("/dir{n}")).unwrap());
    task.remove_dir("/dir7").unwrap();
    let file = task.open_with("/sparse", &OpenOptions::new().write(true).create(true)).unwrap();
    file.pwrite(b"end", MIB).unwrap();
    file.set_len(2 * MIB).unwrap();
    volume.fs.inactivator.flush();
    let before = volume.fs.volume().journal().unwrap().stats();
    let copy = volume.fs.cut(|_| copy_of(&*device)).unwrap();
    let after = volume.fs.volume().journal().unwrap().stats();
    assert!(after.ail_items > before.ail_items, "items wait to be written home");
    assert_eq!(volume.fs.files.pages().unstable(), 0);
    let report = check::check(copy.clone(), &check::Options::default(), &mut ()).unwrap();
    assert!(report.findings.is_empty() && matches!(report.log, LogState::Replayed { .. }));
    let child = opened(copy);
    assert_eq!(child.task.read("/small").unwrap(), large[..10]);
    assert_eq!(child.task.read("/page").unwrap(), large[..5000]);
    assert!(child.task.read("/large").unwrap() == large);
    let sparse = child.task.read("/sparse").unwrap();
    assert_eq!((sparse.len() as u64, &sparse[MIB as usize..][..4]), (2 * MIB, &b"end\0"[..]));
    let dirs = (0..50).filter(|n| child.task.exists(format!("/dir{n}")).unwrap());
    assert_eq!(dirs.count(), 49);
    // A second cut without a change in between writes nothing.
    let flushes = volume.fs.volume().journal().unwrap().stats().log_flushes;
    volume.fs.cut(|_| ()).unwrap();
    assert_eq!(volume.fs.volume().journal().unwrap().stats().log_flushes, flushes);
    drop(file);
    drop(volume.again());
}

#[test]
fn a_freeze_has_all_in_place() {
    let volume = opened_with(
        {
            let device = Arc::new(MemoryDevice::new(32 * MIB).unwrap());
            mkfs::format(&device, &MkfsOptions::default()).unwrap();
            device
        },
        without_background(),
    );
    let large: Vec<u8> = (0..3 * MIB).map(|at| (at / 1000) as u8).collect();
    volume.task.write("/large", &large).unwrap();
    (0..50).for_each(|n| volume.task.create_dir(format!("/dir{n}")).unwrap());
    let copy = volume.fs.freeze(|| copy_of(&*volume.device)).unwrap();
    // Calls go on after the thaw.
    volume.task.write("/later", b"1").unwrap();
    let report = check::check(copy.clone(), &check::Options::default(), &mut ()).unwrap();
    assert!(report.findings.is_empty());
    // Without the log there is what lies in place.
    let cold = Settings { no_recovery: true, ..Settings::default() };
    let cold = opened_with(copy, cold);
    assert!(cold.task.read("/large").unwrap() == large);
    let dirs = (0..50).filter(|n| cold.task.exists(format!("/dir{n}")).unwrap());
    assert_eq!(dirs.count(), 50);
    assert!(!cold.task.exists("/later").unwrap());
    drop(volume.again());
}

/// Calls that change something sleep until the thaw, and others do not.
#[test]
fn calls_sleep_while_the_volume_is_cut() {
    let volume = made(32 * MIB);
    volume.task.write("/file", [1; 9000]).unwrap();
    let ended = AtomicUsize::new(0);
    let device = volume.device.clone();
    let calls: [fn(&Task); 5] = [
        |task| task.write("/other", [2; 100]).unwrap(),
        |task| {
            let file = task.open_with("/file", &OpenOptions::new().write(true)).unwrap();
            file.pwrite(&[3; 5000], 100).unwrap();
        },
        |task| task.create_dir("/dir").unwrap(),
        |task| {
            let file = task.open_with("/cut", &OpenOptions::new().write(true)).unwrap();
            file.set_len(10).unwrap();
        },
        |task| {
            let mode = Mode::from(0o600);
            task.posix().fchmodat(At::Cwd, "/mode", mode, AtFlags::empty()).unwrap();
        },
    ];
    volume.task.write("/cut", [4; 9000]).unwrap();
    volume.task.write("/mode", b"").unwrap();
    thread::scope(|scope| {
        let copy = volume.fs.cut(|cut| {
            for call in calls {
                let (task, ended) = (volume.vfs.task(), &ended);
                scope.spawn(move || {
                    call(&task);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            let reader = scope.spawn(|| volume.vfs.task().read("/file").unwrap());
            assert_eq!(reader.join().unwrap(), [1; 9000]);
            vfscale_harness::pause(Duration::from_millis(100));
            assert_eq!(ended.load(Ordering::SeqCst), 0);
            let copy = copy_of(&*device);
            cut.thaw();
            vfscale_harness::wait_until("all calls end", || {
                ended.load(Ordering::SeqCst) == calls.len()
            });
            copy
        });
        let child = opened(copy.unwrap());
        assert_eq!(child.task.read("/file").unwrap(), [1; 9000]);
        assert_eq!(child.task.read("/cut").unwrap(), [4; 9000]);
        assert!(!child.task.exists("/dir").unwrap());
    });
    assert!(volume.task.exists("/dir").unwrap());
}

#[test]
fn a_volume_that_is_only_read_is_cut_as_it_is() {
    let volume = made(32 * MIB);
    volume.task.write("/file", [1; 9000]).unwrap();
    let Mounted { device, .. } = volume.again();
    let read_only = Settings { read_only: true, ..Settings::default() };
    let volume = opened_with(device.clone(), read_only);
    assert_eq!(volume.fs.cut(|_| 7).unwrap(), 7);
    // So is a volume that was remounted to read-only.
    let volume = opened(copy_of(&*device));
    volume.task.posix().remount("/", MountFlags::RDONLY).unwrap();
    assert_eq!(volume.fs.cut(|_| 8).unwrap(), 8);
    volume.task.posix().remount("/", MountFlags::empty()).unwrap();
    volume.task.write("/more", b"x").unwrap();
    assert_eq!(volume.fs.cut(|_| 9).unwrap(), 9);
}

/// After an error there is no cut, and calls are not held up.
#[test]
fn a_cut_that_fails_opens_the_gates() {
    let device = Arc::new(FaultyDevice::new(MemoryDevice::new(32 * MIB).unwrap()));
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    let fs = DiskFs::open(device.clone(), without_background()).unwrap();
    let vfs = Vfs::new(fs.clone()).unwrap();
    let task = vfs.task();
    task.write("/file", [1; 9000]).unwrap();
    device.arm(vfscale_testkit::Fault::on(Operation::Write).fail(OsError::IO));
    let mut is_called = false;
    assert!(fs.cut(|_| is_called = true).is_err());
    assert!(!is_called);
    // The log has failed, or only the data; either way this returns.
    let _ = task.write("/other", [1; 9000]);
    let _ = task.create_dir("/dir");
    drop((task, vfs));
    fs.abandon();
}
