//! Opening and closing of volumes.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use vfscale::posix::{MountFlags, OFlags};
use vfscale::{Errno, Mode, Scaling, Task, Volume, VolumeBuilder, VolumeError};
use vfscale_block::{Device, MemoryDevice};
use vfscale_diskfs::mkfs::{self, MkfsOptions};
use vfscale_diskfs::{BLOCK_BYTES, LogPlace};
use vfscale_sync::cpu;

/// This holds also while another thread is in the middle of a walk, when references to the image
/// are dropped later.
#[test]
fn a_closed_volume_can_be_opened_immediately() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _walk = vfscale_sync::rcu::pin();
                vfscale_harness::pause(Duration::from_millis(2));
            }
        });
        let opened = (0..20).try_for_each(|_| {
            let volume = vfscale::volume(&path).open()?;
            volume.task().write("/file", "contents").unwrap();
            Ok::<(), VolumeError>(volume.close()?)
        });
        is_over.store(true, Ordering::Relaxed);
        opened.unwrap();
    });
}

/// The volume does not release a device of the caller's.
#[test]
fn the_devices_of_others_are_not_released() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    let device = std::sync::Arc::new(vfscale_block::FileDevice::open(&path).unwrap());
    for contents in ["one", "two"] {
        let volume = vfscale::volume_on(device.clone()).open().unwrap();
        volume.task().write("/file", contents).unwrap();
        volume.close().unwrap();
    }
    let locked = vfscale::volume(&path).open().unwrap_err();
    assert!(matches!(locked, vfscale::VolumeError::Device(vfscale_block::Error::Locked { .. })));
}

/// Opens a volume whose structures have a slot for each of two CPUs; creates a missing one.
fn for_two_cpus(path: &Path) -> Volume {
    let builder = vfscale::volume(path).create(64 << 20);
    builder.scaling(Scaling::with_slots(2)).open().unwrap()
}

/// Uses a new file of this size on two CPUs alternately until its count is sharded over them, and
/// removes it.
fn remove_shared_by_cpus(task: &Task, name: &str, size: usize) {
    task.write(name, vec![1; size]).unwrap();
    for n in 0..100 {
        let _there = cpu::pretend(n % 2);
        drop(task.posix().open(name, OFlags::RDONLY, Mode::empty()).unwrap());
    }
    task.remove_file(name).unwrap();
}

/// A sharded count is collected a grace period after the removal, which takes no further call of
/// the thread that has removed the name.
#[test]
fn a_large_removed_file_that_cpus_shared_is_freed_though_no_call_follows() {
    let dir = tempfile::tempdir().unwrap();
    let volume = for_two_cpus(&dir.path().join("disk.vfs"));
    let task = volume.task();
    remove_shared_by_cpus(&task, "/file", 1 << 20);
    let is_freed = || volume.driver().volume().orphans().is_empty();
    vfscale_harness::wait_until("the file is freed", is_freed);
}

#[test]
fn a_closed_volume_leaves_no_orphan_that_cpus_shared() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    for round in 0..20 {
        let volume = for_two_cpus(&path);
        assert_eq!(volume.driver().opened().orphans.removed, 0, "round {round}");
        remove_shared_by_cpus(&volume.task(), "/file", 4);
        volume.close().unwrap();
    }
}

/// Runs `work` while another thread is in the middle of a walk: no grace period ends during that
/// time.
fn during_a_walk<T>(work: impl FnOnce() -> T) -> T {
    let (is_over, is_pinned) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let _walk = vfscale_sync::rcu::pin();
            is_pinned.wait();
            vfscale_harness::wait_until("the test is over", || is_over.load(Ordering::Acquire));
        });
        is_pinned.wait();
        let done = panic::catch_unwind(AssertUnwindSafe(work));
        is_over.store(true, Ordering::Release);
        done.unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}

fn write_and_rename(task: &Task, name: &str) {
    for number in 0..50 {
        task.write(format!("/{name}.new"), format!("{number}")).unwrap();
        let (from, to) = (format!("/{name}.new"), format!("/{name}"));
        task.rename(from, to).unwrap();
    }
}

/// Dropping a volume writes nothing more and releases the image before it returns, even if a thread
/// is in the middle of a walk. Synced data is found again.
#[test]
fn a_dropped_volume_can_be_opened_immediately() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    for round in 0..10 {
        during_a_walk(|| {
            let volume = vfscale::volume(&path).open().unwrap();
            volume.task().write("/synced", format!("{round}")).unwrap();
            volume.sync().unwrap();
            thread::scope(|scope| {
                for name in ["one", "two"] {
                    let volume = &volume;
                    scope.spawn(move || write_and_rename(&volume.task(), name));
                }
            });
            volume.abandon();
            let volume = vfscale::volume(&path).open().unwrap();
            assert_eq!(volume.task().read_to_string("/synced").unwrap(), format!("{round}"));
        });
    }
}

/// The last of volume, tasks and open files releases the image, whichever it is, and none before.
///
/// Race: The last users of a volume that was dropped.
#[test]
fn the_last_user_of_a_dropped_volume_lets_go_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    let is_free = || match vfscale::volume(&path).open() {
        Ok(volume) => volume.close().map(|()| true).unwrap(),
        Err(VolumeError::Device(vfscale_block::Error::Locked { .. })) => false,
        Err(error) => panic!("{error}"),
    };
    during_a_walk(|| {
        let volume = vfscale::volume(&path).open().unwrap();
        let task = volume.task();
        let tree = task.posix().unshare_mounts().unwrap();
        let mode = Mode::from(0o644);
        let file = task.posix().open("/file", OFlags::RDWR | OFlags::CREATE, mode).unwrap();
        drop(volume);
        assert!(!is_free());
        drop(task);
        assert!(!is_free());
        drop(tree);
        assert!(!is_free());
        assert_eq!(file.write(b"still there").unwrap(), 11);
        file.sync_all().unwrap();
        drop(file);
        assert!(is_free());
        let volume = vfscale::volume(&path).open().unwrap();
        assert_eq!(volume.task().read_to_string("/file").unwrap(), "still there");
    });
    assert!(is_free());
}

/// After a volume on a device of the caller's is dropped, nothing writes to the device.
///
/// Race: The last users of a volume that was dropped.
#[test]
fn a_dropped_volume_leaves_the_device_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    let image = std::fs::read(&path).unwrap();
    let device = Arc::new(MemoryDevice::new(image.len() as u64).unwrap());
    device.write_at(0, &image).unwrap();
    let interval = Some(Duration::from_millis(1));
    let contents = |device: &MemoryDevice| {
        let mut bytes = vec![0; image.len()];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    during_a_walk(|| {
        let volume = vfscale::volume_on(device.clone()).sync_interval(interval).open().unwrap();
        write_and_rename(&volume.task(), "file");
        drop(volume);
        let left = contents(&device);
        vfscale_harness::pause(Duration::from_millis(50));
        assert!(left == contents(&device), "written after it was dropped");
    });
}

/// The error names the number of users, and the volume can be used as before.
#[test]
fn a_volume_in_use_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    let volume = vfscale::volume(&path).create(64 << 20).open().unwrap();
    let task = volume.task();
    let fork = task.fork();
    let mode = Mode::from(0o644);
    let file = task.posix().open("/file", OFlags::RDWR | OFlags::CREATE, mode).unwrap();
    let in_use = volume.close().unwrap_err();
    let text = in_use.to_string();
    assert!(text.contains("2 tasks") && text.contains("1 open file"), "{text}");
    let users = |error: &VolumeError| match error {
        VolumeError::InUse { tasks, open_files, .. } => (*tasks, *open_files),
        error => panic!("{error}"),
    };
    assert_eq!(users(in_use.error()), (2, 1));
    let volume = in_use.into_volume().unwrap();
    volume.task().write("/more", "goes on").unwrap();
    drop((task, fork));
    let in_use = volume.close().unwrap_err();
    assert_eq!(users(in_use.error()), (0, 1));
    drop(file);
    in_use.into_volume().unwrap().close().unwrap();
    let volume = vfscale::volume(&path).open().unwrap();
    assert_eq!(volume.task().read_to_string("/more").unwrap(), "goes on");
    volume.close().unwrap();
}

/// An image that could not be opened or mounted is released.
#[test]
fn an_image_that_can_not_be_opened_is_released() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    let free = || drop(vfscale_block::FileDevice::open(&path).unwrap());
    during_a_walk(|| {
        let missing = vfscale::volume(&path).log_path(dir.path().join("none")).open();
        assert!(matches!(missing, Err(VolumeError::Missing(_))));
        free();
        let other = dir.path().join("other.vfs");
        vfscale::volume(&other).create(64 << 20).open().unwrap().close().unwrap();
        let inside = vfscale::volume(&path).log_path(&other).open();
        assert!(matches!(inside, Err(VolumeError::Open { .. })));
        free();
        drop(vfscale_block::FileDevice::open(&other).unwrap());
    });
}

/// Three threads drop their references concurrently: one of them is the last.
///
/// Race: The last users of a volume that was dropped.
///
/// A volume that was not closed is released by the last of three kinds of users: its owner
/// (`DiskFs::leave`), its tasks, its open files. The tasks and files use mounts; a mount counts as
/// used until its last use is dropped. The superblock's count of such mounts reaches zero once,
/// since a new mount is made only from one that is in use (`SuperBlock::leave_mount`). Owner and
/// superblock each set a bit in one word: the thread that sets the second bit ends the volume's
/// threads, waits for their writes, and releases the device. Nothing of this waits for a grace
/// period: walks only read, and whatever a walk's end frees finds threads that have ended. A task
/// that is made from a `WeakVfs` while `Volume::close` looks is counted before, or finds the tree
/// ended.
#[test]
fn users_of_a_dropped_volume_that_end_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    vfscale::volume(&path).create(64 << 20).open().unwrap().close().unwrap();
    during_a_walk(|| {
        for _ in 0..50 {
            let volume = vfscale::volume(&path).open().unwrap();
            let task = volume.task();
            let mode = Mode::from(0o644);
            let file = task.posix().open("/file", OFlags::RDWR | OFlags::CREATE, mode).unwrap();
            let start = Barrier::new(3);
            thread::scope(|scope| {
                scope.spawn(|| (start.wait(), drop(volume)));
                scope.spawn(|| (start.wait(), drop(task)));
                scope.spawn(|| (start.wait(), drop(file)));
            });
        }
    });
}

/// Leaves a volume as after a crash: the synced changes are in the log, but not written back.
fn crashed(builder: VolumeBuilder) {
    let volume = builder.sync_interval(None).open().unwrap();
    let task = volume.task();
    task.create_dir("/dir").unwrap();
    for number in 0..100 {
        task.write(format!("/dir/{number}"), vec![number; 9000]).unwrap();
    }
    volume.sync().unwrap();
    task.write("/lost", "not synced").unwrap();
    drop(task);
    volume.abandon();
}

/// An early `?` drops the volume: nothing that the program wrote is lost.
#[test]
fn a_dropped_volume_keeps_what_was_not_synced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    let stumble = || -> vfscale::Result<()> {
        let volume = vfscale::volume(&path).create(64 << 20).sync_interval(None).open()?;
        volume.task().write("/kept", "not synced")?;
        volume.task().read("/missing").map(drop)
    };
    assert_eq!(
        stumble().unwrap_err().to_string(),
        "openat /missing: No such file or directory (os error 2)"
    );
    let volume = vfscale::volume(&path).open().unwrap();
    assert_eq!(volume.task().read_to_string("/kept").unwrap(), "not synced");
    volume.close().unwrap();
}

#[test]
fn an_abandoned_volume_loses_what_was_not_synced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    let volume = vfscale::volume(&path).create(64 << 20).sync_interval(None).open().unwrap();
    volume.task().write("/synced", "").unwrap();
    volume.sync().unwrap();
    volume.task().write("/lost", "").unwrap();
    volume.abandon();
    let volume = vfscale::volume(&path).open().unwrap();
    assert!(volume.task().exists("/synced").unwrap());
    assert!(!volume.task().exists("/lost").unwrap());
    volume.close().unwrap();
}

/// `?` converts the errors of volumes; their text and their cause stay.
#[test]
fn errors_of_volumes_are_errors() {
    let open = || -> vfscale::Result<Volume> { Ok(vfscale::volume("/missing.vfs").open()?) };
    let error = open().unwrap_err();
    assert_eq!((error.errno(), error.kind()), (Errno::NOENT, std::io::ErrorKind::NotFound));
    assert!(error.to_string().contains("/missing.vfs: the image does not exist"), "{error}");
    let cause = error.cause().unwrap().downcast_ref::<VolumeError>();
    assert!(matches!(cause, Some(VolumeError::Missing(_))), "{cause:?}");
}

fn assert_recovered(volume: &Volume) {
    let task = volume.task();
    for number in 0..100 {
        let contents = task.read(format!("/dir/{number}")).unwrap();
        assert!(contents == vec![number; 9000], "{number}");
    }
    assert!(task.read("/lost").is_err());
    assert_eq!(task.write("/new", "").unwrap_err().errno(), Errno::ROFS);
    assert_eq!(task.posix().remount("/", MountFlags::empty()).unwrap_err().errno(), Errno::ROFS);
}

/// generic/388: a read-only open shows what a recovery would restore, and writes not a byte of the
/// image.
#[test]
fn a_crashed_volume_can_be_opened_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    crashed(vfscale::volume(&path).create(64 << 20));
    let image = std::fs::read(&path).unwrap();
    for _ in 0..2 {
        let volume = vfscale::volume(&path).read_only(true).open().unwrap();
        assert!(volume.driver().opened().log.items > 100);
        // Other openers may read it at the same time.
        let other = vfscale::volume(&path).read_only(true).open().unwrap();
        assert_recovered(&volume);
        assert_recovered(&other);
        volume.close().unwrap();
        drop(other);
        assert!(image == std::fs::read(&path).unwrap(), "written");
    }
    let volume = vfscale::volume(&path).open().unwrap();
    assert!(volume.driver().opened().log.items > 100);
    volume.close().unwrap();
}

#[test]
fn a_crashed_volume_with_an_external_log_can_be_opened_read_only() {
    let dir = tempfile::tempdir().unwrap();
    let (path, log) = (dir.path().join("disk.vfs"), dir.path().join("log.vfs"));
    let (device, log_device) = (
        Arc::new(vfscale_block::FileDevice::create(&path, 64 << 20).unwrap()),
        Arc::new(vfscale_block::FileDevice::create(&log, 4 << 20).unwrap()),
    );
    let options = MkfsOptions { log_device: Some(log_device.clone()), ..MkfsOptions::default() };
    mkfs::format(&device, &options).unwrap();
    drop((device, options, log_device));
    crashed(vfscale::volume(&path).log_path(&log));
    let images = || (std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap());
    let before = images();
    let volume = vfscale::volume(&path).log_path(&log).read_only(true).open().unwrap();
    assert_recovered(&volume);
    volume.close().unwrap();
    assert!(before == images(), "written");
    // The log is lost: only metadata that was written back can be read.
    std::fs::remove_file(&log).unwrap();
    assert!(vfscale::volume(&path).read_only(true).open().is_err());
    for builder in [vfscale::volume(&path), vfscale::volume(&path).log_path(&log)] {
        let volume = builder.no_recovery(true).open().unwrap();
        assert!(volume.task().read("/dir/0").is_err());
        volume.close().unwrap();
    }
}

/// Metadata that was written back can be read even if no record of the log can.
#[test]
fn a_log_that_is_lost_need_not_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.vfs");
    let volume = vfscale::volume(&path).create(64 << 20).open().unwrap();
    volume.task().write("/file", vec![7; 100_000]).unwrap();
    let LogPlace::Inside { start, blocks } = volume.driver().volume().superblock().log() else {
        panic!("the log is inside");
    };
    volume.close().unwrap();
    let mut image = std::fs::read(&path).unwrap();
    let log = start as usize * BLOCK_BYTES..(start + blocks) as usize * BLOCK_BYTES;
    image[log].fill(0xA5);
    std::fs::write(&path, &image).unwrap();
    for read_only in [false, true] {
        let error = vfscale::volume(&path).read_only(read_only).open().unwrap_err();
        assert!(error.to_string().contains("norecovery"), "{error}");
    }
    let volume = vfscale::volume(&path).no_recovery(true).open().unwrap();
    assert!(volume.task().read("/file").unwrap() == vec![7; 100_000]);
    assert_eq!(volume.task().write("/new", "").unwrap_err().errno(), Errno::ROFS);
    volume.close().unwrap();
    assert!(image == std::fs::read(&path).unwrap(), "written");
}

/// A volume is made on any device that is empty, and on no other one.
#[test]
fn a_volume_is_made_on_a_device_that_is_new() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20).unwrap());
    let open =
        |device: &Arc<dyn Device>| vfscale::volume_on(device.clone()).create(16 << 20).open();
    let volume = open(&device).unwrap();
    assert!(volume.is_new());
    assert_eq!(volume.driver().volume().geometry().bytes(), 16 << 20);
    volume.task().write("/f", "kept").unwrap();
    volume.close().unwrap();
    let volume = open(&device).unwrap();
    assert!(!volume.is_new());
    assert_eq!(volume.task().read_to_string("/f").unwrap(), "kept");
    volume.close().unwrap();

    // The start is lost, and copies of the superblock are not.
    device.write_at(0, &[0; 1 << 20]).unwrap();
    assert!(!open(&device).is_ok_and(|volume| volume.is_new()));
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20).unwrap());
    device.write_at(4096, &[7; 4096]).unwrap();
    assert!(matches!(open(&device), Err(VolumeError::Open { .. })));
    let mut block = [0; 4096];
    device.read_at(4096, &mut block).unwrap();
    assert_eq!(block, [7; 4096], "it is somebody's");
    let empty: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20).unwrap());
    let read_only = vfscale::volume_on(empty).create(16 << 20).read_only(true).open();
    assert!(matches!(read_only, Err(VolumeError::Open { .. })));
}

/// Race: Openings that make an image, all at once. One has it, and the others find it in use.
#[test]
fn one_of_several_openings_makes_the_image() {
    for round in 0..100 {
        let dir = tempfile::tempdir().unwrap();
        let (path, barrier) = (dir.path().join("disk.vfs"), Barrier::new(4));
        let open = || {
            barrier.wait();
            vfscale::volume(&path).create(16 << 20).open()
        };
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut volumes = Vec::new();
        for result in opened {
            match result {
                Ok(volume) => volumes.push(volume),
                Err(VolumeError::Device(vfscale_block::Error::Locked { .. })) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        assert_eq!(volumes.len(), 1, "round {round}");
        volumes.pop().unwrap().close().unwrap();
    }
}
