//! Random schedules of mounted volumes: files that lose their last user, and volumes that are
//! remounted, closed and stopped, while other threads write to them:
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p vfscale-diskfs --test shuttle stops::`.
//!
//! Each test prints its seed; `VFSCALE_SEED` repeats a run. A schedule that fails is printed as
//! well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::thread;
use vfscale_block::Device;
use vfscale_diskfs::{DiskFs, OnError, Settings, check};
use vfscale_sync::model;
use vfscale_testkit::FaultyDevice;
use vfscale_vfs::driver::FileSystem;
use vfscale_vfs::{At, Errno, MountFlags, OpenOptions, Task, Vfs};

use crate::volumes::{
    Disk, PAGE, SIZE, assert_no_writes, copy_of, device, failure, mounted, one_list, schedules,
};

/// The number of pages that fit into memory if a writer should wait for memory.
const PAGES_FEW: u64 = 16;
/// The bytes of each write then, and the number of writes.
const PIECE: usize = 3 * PAGE;
const PIECES: usize = 3;

/// Asserts that every byte of a file is `byte`.
fn assert_holds(task: &Task, path: &str, byte: u8, len: usize) {
    let bytes = task.read(path).unwrap();
    assert_eq!(bytes.len(), len, "{path}");
    assert!(bytes.iter().all(|found| *found == byte), "{path}");
}

/// Mounts a copy that a crash left, calls `look`, and closes the volume.
fn assert_left(device: Arc<dyn Device>, look: impl FnOnce(&Task)) {
    let (fs, vfs) = mounted(device.clone(), one_list());
    look(&vfs.task());
    drop(vfs);
    fs.close().unwrap();
    assert_clean(device);
}

/// Asserts that a check of the volume finds nothing.
fn assert_clean(device: Arc<dyn Device>) {
    let report = check::check(device, &check::Options::default(), &mut ()).unwrap();
    assert_eq!(report.count, 0, "{:?}", report.findings.first());
}

/// Remounts to read-only, and returns whether that succeeded.
fn remount_read_only(task: &Task) -> bool {
    match task.posix().remount("/", MountFlags::RDONLY) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.errno(), Errno::BUSY);
            false
        }
    }
}

/// A sync and a remount to read-only make all earlier writes durable, while the background writer
/// and a writer that waits for memory write some of them back; and a read-only volume is not
/// written.
///
/// Race: Sync / background writer / writer that waits for memory / remount of a volume.
#[test]
fn sync_against_writers_against_remount() {
    schedules(|| {
        let disk = device();
        let device = Arc::new(FaultyDevice::new(disk.clone()));
        // Two dirty pages wake the background writer, and eight make writers wait.
        let few = Settings { data_cache_bytes: PAGES_FEW * PAGE as u64, ..one_list() };
        let (fs, vfs) = mounted(device.clone(), few);
        let task = vfs.task();
        for path in ["/a", "/b"] {
            task.write(path, [b'a'; SIZE]).unwrap();
        }
        let written = Arc::new(AtomicUsize::new(0));
        let writer = model::spawn((vfs.task(), written.clone()), move |(task, written)| {
            for (number, path) in ["/c", "/d"].into_iter().enumerate() {
                let file = match task.open_with(path, &OpenOptions::new().write(true).create(true))
                {
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
        });
        let look = |task: &Task, written: usize| {
            ["/a", "/b"].iter().for_each(|path| assert_holds(task, path, b'a', SIZE));
            for path in &["/c", "/d"][..written] {
                assert_holds(task, path, b'c', PIECES * PIECE);
            }
        };
        let syncer = model::spawn(
            (fs.clone(), disk.clone(), written.clone()),
            move |(fs, disk, written)| {
                let before = written.load(Ordering::Relaxed);
                fs.sync_fs().unwrap();
                (before, copy_of(&disk))
            },
        );
        for _ in 0..3 {
            let before = written.load(Ordering::Relaxed);
            if remount_read_only(&task) {
                assert_no_writes(&device, || {
                    let left = copy_of(&disk);
                    let (fs, vfs) = mounted(left, Settings { read_only: true, ..one_list() });
                    assert_eq!(fs.opened().log.checkpoints, 0);
                    look(&vfs.task(), before);
                });
                task.posix().remount("/", MountFlags::empty()).unwrap();
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

/// Returns the numbers of inodes and blocks in use once no freeing is pending.
fn in_use(fs: &DiskFs, task: &Task) -> (u64, u64) {
    while fs.reclaim().has_freed {}
    let figures = task.posix().statfs(At::Cwd, "/").unwrap();
    (figures.files - figures.files_free, figures.blocks - figures.blocks_free)
}

/// The file that loses its name and its last user.
const GOES: &str = "/goes";
/// The number of repetitions in a model: enough for one of them to hit the critical moment.
const TIMES: usize = 4;

/// A volume whose file [`GOES`] loses its last user, and the threads that take part in it.
struct LastUsers {
    fs: Arc<DiskFs>,
    vfs: Vfs,
    /// The inodes and blocks in use before the file existed.
    before: (u64, u64),
    threads: [thread::JoinHandle<()>; 2],
    /// The thread that removes the file, and returns whether that succeeded.
    remover: thread::JoinHandle<bool>,
}

impl LastUsers {
    /// Starts one thread that closes the file, one that removes its name, and one that waits for
    /// its space as a call without space does: it writes back, waits for the inactivation and
    /// forces the log.
    fn start(device: Arc<dyn Device>) -> Self {
        let (fs, vfs) = mounted(device, one_list());
        let task = vfs.task();
        task.write("/stays", [b's'; SIZE]).unwrap();
        let before = in_use(&fs, &task);
        let file =
            task.open_with(GOES, &OpenOptions::new().read(true).write(true).create(true)).unwrap();
        // One page has a block. The others wait for theirs, with holes between them, so write-back
        // takes each in a separate transaction.
        file.pwrite(&[b'a'; PAGE], 0).unwrap();
        file.sync_all().unwrap();
        for page in [1, 3, 5, 7] {
            file.pwrite(&[b'b'; PAGE], page * PAGE as u64).unwrap();
        }
        let closer = thread::spawn(move || drop(file));
        let remover = thread::spawn(move || match task.remove_file(GOES) {
            Ok(()) => true,
            Err(error) => {
                assert!([Errno::ROFS, Errno::IO].contains(&error.errno()), "{error}");
                false
            }
        });
        let reclaimer = model::spawn(fs.clone(), move |fs| {
            for _ in 0..TIMES {
                fs.reclaim();
            }
        });
        Self { fs, vfs, before, threads: [closer, reclaimer], remover }
    }

    /// Waits for the threads. Then the file has neither a name nor a user, unless the volume has
    /// stopped.
    fn join(self) -> (Arc<DiskFs>, Vfs, (u64, u64)) {
        let Self { fs, vfs, before, threads, remover } = self;
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        if !remover.join().unwrap() && fs.stopped().is_none() {
            vfs.task().remove_file(GOES).unwrap();
        }
        (fs, vfs, before)
    }
}

/// Asserts that nothing of the file is left: neither space, nor an orphan, nor data that a later
/// file with the same number would show.
fn assert_nothing_left(fs: &DiskFs, task: &Task, before: (u64, u64)) {
    assert_eq!(in_use(fs, task), before);
    assert_eq!(fs.volume().orphans().len(), 0);
    let next =
        task.open_with("/next", &OpenOptions::new().read(true).write(true).create(true)).unwrap();
    let stat = next.stat().unwrap();
    assert_eq!((stat.size, stat.blocks), (0, 0));
    next.pwrite(b"n", SIZE as u64 - 1).unwrap();
    let mut bytes = [1; SIZE];
    assert_eq!(next.pread(&mut bytes, 0).unwrap(), SIZE);
    assert!(bytes[..SIZE - 1].iter().all(|byte| *byte == 0));
}

/// Asserts that an inode that loses its last user is freed, once, while other threads run `beside`,
/// and that nothing of it is left.
fn assert_freed(beside: impl Fn(&Disk, &DiskFs, &Task) + Send + Sync + 'static) {
    schedules(move || {
        let device = device();
        let users = LastUsers::start(device.clone());
        beside(&device, &users.fs, &users.vfs.task());
        let (fs, vfs, before) = users.join();
        vfscale_sync::rcu::synchronize();
        assert_nothing_left(&fs, &vfs.task(), before);
        drop(vfs);
        fs.close().unwrap();
        assert_clean(device);
    });
}

/// Race: Last close / unlink / sync, freeze, remount, stop of a volume.
///
/// Seam: last user of an inode / write-back; parties: a close, an unlink, a thread that waits for
/// space, a sync.
///
/// Fails if the thread that frees the inode does not wait for write-back (`RegularFile::discard`),
/// or leaves the orphan on its list.
#[test]
fn last_users_against_sync() {
    assert_freed(|_, fs, _| (0..TIMES).for_each(|_| fs.sync_fs().unwrap()));
}

/// A frozen volume has an empty log, whatever work of the threads is unfinished.
///
/// Race: Last close / unlink / sync, freeze, remount, stop of a volume.
///
/// Seam: last user of an inode / freeze; parties: a close, an unlink, a thread that waits for
/// space, a freeze and thaw.
///
/// Fails if the freeze does not wait for transactions, or if one that ends does not wake it.
#[test]
fn last_users_against_freeze() {
    assert_freed(|disk, fs, _| {
        let journal = fs.volume().journal().unwrap();
        for _ in 0..TIMES {
            journal.freeze().unwrap();
            (0..10).for_each(|_| thread::yield_now());
            let options = Settings { read_only: true, ..one_list() };
            assert_eq!(mounted(copy_of(disk), options).0.opened().log.checkpoints, 0);
            journal.thaw();
            thread::yield_now();
        }
    });
}

/// Race: Last close / unlink / sync, freeze, remount, stop of a volume.
///
/// Seam: last user of an inode / remount; parties: a close, an unlink, a thread that waits for
/// space, a remount to read-only and back.
///
/// Fails if an inode that can't be freed on a sealed volume is not set aside (`set_aside`), or if
/// the remount back does not resume (`unseal`).
#[test]
fn last_users_against_remount() {
    assert_freed(|_, _, task| {
        for _ in 0..2 * TIMES {
            if remount_read_only(task) {
                thread::yield_now();
                task.posix().remount("/", MountFlags::empty()).unwrap();
            }
            thread::yield_now();
        }
    });
}

/// The volume stops: every thread ends, and the next mount completes the unfinished work.
///
/// Race: Last close / unlink / sync, freeze, remount, stop of a volume.
///
/// Seam: last user of an inode / stop; parties: a close, an unlink, a thread that waits for space,
/// a sync, a stop of the volume.
///
/// Fails if the next mount does not free orphans (`recover_one`), or if the freeing thread retries
/// for ever.
#[test]
fn last_users_against_stop() {
    schedules(|| {
        let device = device();
        let users = LastUsers::start(device.clone());
        let syncer = model::spawn(users.fs.clone(), move |fs| {
            let _ = fs.sync_fs();
        });
        users.fs.volume().shut_down(failure());
        syncer.join().unwrap();
        let (fs, vfs, before) = users.join();
        vfs.task().create_dir("/d").unwrap_err();
        drop(vfs);
        fs.close().unwrap_err();
        let (fs, vfs) = mounted(device.clone(), one_list());
        let task = vfs.task();
        if task.metadata(GOES).is_ok() {
            task.remove_file(GOES).unwrap();
        }
        assert_nothing_left(&fs, &task, before);
        drop((task, vfs));
        fs.close().unwrap();
        assert_clean(device);
    });
}

/// Starts a thread that writes files and syncs each, until it is refused, and returns the durable
/// ones.
fn synced(vfs: &Vfs, refusals: &'static [Errno]) -> thread::JoinHandle<Vec<&'static str>> {
    model::spawn(vfs.task(), move |task| {
        let mut durable = Vec::new();
        for path in ["/a", "/b"] {
            let made = task.open_with(path, &OpenOptions::new().write(true).create(true));
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

/// A volume stops while one thread writes and another remounts it to read-only and back: no synced
/// data are lost, no later change succeeds, and no remount makes the volume writable again.
///
/// Race: Stop of a volume / write, fsync / remount, close.
#[test]
fn stop_against_writers_against_remount() {
    for on_error in [OnError::RemountRo, OnError::Shutdown] {
        schedules(move || {
            let device = device();
            let (fs, vfs) = mounted(device.clone(), Settings { on_error, ..one_list() });
            let task = vfs.task();
            let writer = synced(&vfs, &[Errno::ROFS, Errno::IO]);
            let stopper = model::spawn(fs.clone(), move |fs| fs.volume().shut_down(failure()));
            for flags in [MountFlags::RDONLY, MountFlags::empty()] {
                if let Err(error) = task.posix().remount("/", flags) {
                    let expected = [Errno::BUSY, Errno::IO, Errno::ROFS];
                    assert!(expected.contains(&error.errno()), "{error}");
                }
            }
            stopper.join().unwrap();
            let durable = writer.join().unwrap();
            assert!(fs.stopped().is_some());
            let refusal = if on_error == OnError::RemountRo { Errno::ROFS } else { Errno::IO };
            let is_read_only =
                task.posix().statfs(At::Cwd, "/").unwrap().flags.contains(MountFlags::RDONLY);
            for _ in 0..2 {
                let made = task.create_dir("/d").unwrap_err();
                assert!([refusal, Errno::ROFS].contains(&made.errno()), "{made}");
                assert!(is_read_only || made.errno() == refusal, "{made}");
                let remounted = task.posix().remount("/", MountFlags::empty());
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

/// A volume stops while one thread writes and another closes it: every thread ends, and no synced
/// data are lost.
///
/// Race: Stop of a volume / write, fsync / remount, close.
#[test]
fn stop_against_writers_against_close() {
    schedules(|| {
        let device = device();
        let (fs, vfs) = mounted(device.clone(), one_list());
        let writer = synced(&vfs, &[Errno::ROFS, Errno::IO]);
        let stopper = model::spawn(fs.clone(), move |fs| fs.volume().shut_down(failure()));
        let _ = fs.close();
        stopper.join().unwrap();
        let durable = writer.join().unwrap();
        drop(vfs);
        assert_left(device, |task| {
            durable.iter().for_each(|path| assert_holds(task, path, b'a', SIZE));
        });
    });
}
