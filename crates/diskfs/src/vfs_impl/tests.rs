mod crafted;
mod cut;
mod damaged_inodes;
mod discard;
mod handles;
mod left_out;
mod logs;
mod memory;
mod own_log;
mod space;
mod unnamed;
mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use vfscale_block::{Device, MemoryDevice, Operation, OsError};
use vfscale_sync::scaling::Scaling;
use vfscale_testkit::FaultyDevice;
use vfscale_vfs::driver::FileSystem;
use vfscale_vfs::{
    At, AtFlags, Errno, Mode, MountFlags, OpenOptions, RenameFlags, Stat, Task, Vfs, XattrFlags,
};

use super::DiskFs;
use crate::Settings;
use crate::base::fault::Fault;
use crate::base::on_error::OnError;
use crate::icache::inactivate::Orphans;
use crate::tools::mkfs::{self, MkfsOptions};

mod errors;
mod full_host;
mod kept_times;
mod replaced;
mod side_by_side;
mod small_files;
mod whiteout;

const MIB: u64 = 1 << 20;

/// A volume on a device in memory, with its mounted file system.
struct Mounted {
    device: Arc<MemoryDevice>,
    fs: Arc<DiskFs>,
    vfs: Vfs,
    task: Task,
}

fn opened(device: Arc<MemoryDevice>) -> Mounted {
    opened_with(device, Settings::default())
}

fn opened_with(device: Arc<MemoryDevice>, options: Settings) -> Mounted {
    let fs = DiskFs::open(device.clone(), options).unwrap();
    let vfs = Vfs::new(fs.clone()).unwrap();
    let task = vfs.task();
    Mounted { device, fs, vfs, task }
}

/// A new volume on a device that fails, holds and counts calls.
struct FaultyVolume {
    device: Arc<FaultyDevice<Arc<MemoryDevice>>>,
    fs: Arc<DiskFs>,
    _vfs: Vfs,
    task: Task,
}

impl FaultyVolume {
    /// Creates one that makes changes durable in `sync_interval`, or only by calls.
    fn new(sync_interval: Option<Duration>) -> Self {
        let Mounted { device, .. } = made(16 * MIB).again();
        let device = Arc::new(FaultyDevice::new(device));
        let options = Settings { sync_interval, ..Settings::default() };
        let fs = DiskFs::open(device.clone(), options).unwrap();
        let vfs = Vfs::new(fs.clone()).unwrap();
        let task = vfs.task();
        Self { device, fs, _vfs: vfs, task }
    }

    /// Returns the state that a crash would leave now.
    fn left(&self) -> Mounted {
        opened(copy_of(&**self.device.inner()))
    }
}

/// Returns a device with the bytes of another one.
fn copy_of(device: &dyn Device) -> Arc<MemoryDevice> {
    let copy = MemoryDevice::new(device.size()).unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    copy.write_at(0, &bytes).unwrap();
    Arc::new(copy)
}

fn made(bytes: u64) -> Mounted {
    let device = MemoryDevice::new(bytes).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    opened(Arc::new(device))
}

/// Asserts that the volume is clean after a replay of its log.
fn check_clean(device: Arc<MemoryDevice>) {
    let report =
        crate::tools::check::check(device, &crate::tools::check::Options::default(), &mut ())
            .unwrap();
    assert_eq!(report.findings, []);
}

impl Mounted {
    /// Unmounts, closes, opens and mounts.
    fn again(self) -> Self {
        let Self { device, fs, vfs, task } = self;
        drop((task, vfs));
        fs.close().unwrap();
        drop(fs);
        check_clean(device.clone());
        opened(device)
    }

    /// Opens the state that a crash would leave now.
    fn crashed(self) -> Self {
        self.crashed_with(Vec::new())
    }

    /// Opens the state that a crash would leave now, while these files are open.
    fn crashed_with(self, open: Vec<vfscale_vfs::File>) -> Self {
        let copy = self.copy();
        let Self { device: _, fs, vfs, task } = self;
        drop((open, task, vfs));
        fs.close().unwrap();
        check_clean(copy.clone());
        opened(copy)
    }

    /// Copies the device.
    fn copy(&self) -> Arc<MemoryDevice> {
        copy_of(&*self.device)
    }

    fn remount(&self, flags: MountFlags) -> Result<(), Errno> {
        self.task.posix().remount("/", flags).map_err(|error| error.errno())
    }

    fn stat(&self, path: &str) -> Stat {
        self.task.symlink_metadata(path).unwrap().into()
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = self.task.read_dir(path).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.filter(|name| name != "." && name != "..").collect();
        names.sort_unstable();
        names
    }

    fn mkdir(&self, path: &str) {
        self.task.create_dir(path).unwrap();
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        self.task.write(path, bytes).unwrap();
    }

    fn read(&self, path: &str) -> Vec<u8> {
        self.task.read(path).unwrap()
    }

    fn rename(&self, old: &str, new: &str, flags: RenameFlags) -> Result<(), Errno> {
        let renamed = self.task.posix().renameat2(At::Cwd, old, At::Cwd, new, flags);
        renamed.map_err(|error| error.errno())
    }

    fn unlink(&self, path: &str, flags: AtFlags) -> Result<(), Errno> {
        self.task.posix().unlinkat(At::Cwd, path, flags).map_err(|error| error.errno())
    }

    /// Returns the number of inodes in use, and of orphans among them.
    fn inodes(&self) -> (u64, u64) {
        let totals = self.fs.volume().groups().totals();
        (totals.inodes - totals.free_inodes, totals.orphans)
    }

    fn free_blocks(&self) -> u64 {
        self.fs.settle().unwrap();
        self.fs.volume().space().figures().free
    }
}

#[test]
fn files_survive_closing_and_opening() {
    let mounted = made(64 * MIB);
    mounted.mkdir("/d");
    mounted.mkdir("/d/e");
    mounted.write("/d/small", b"in the inode");
    let large: Vec<u8> = (0..3 * MIB as u32).map(|at| (at / 7) as u8).collect();
    mounted.write("/d/large", &large);
    mounted.task.symlink("/d/small", "/short").unwrap();
    let target = "t".repeat(4000);
    mounted.task.symlink(&target, "/long").unwrap();
    mounted.task.hard_link("/d/small", "/hard").unwrap();
    let paths = ["/", "/d", "/d/e", "/d/small", "/d/large", "/short", "/long", "/hard"];
    let stats = paths.map(|path| mounted.stat(path));
    let mounted = mounted.again();
    assert_eq!(mounted.fs.opened().log.items, 0, "the log was closed");
    for (path, before) in paths.iter().zip(stats) {
        let after = mounted.stat(path);
        let shown = |stat: &Stat| {
            (stat.ino, stat.mode, stat.nlink, stat.size, stat.mtime, stat.ctime, stat.btime)
        };
        assert_eq!(shown(&after), shown(&before), "{path}");
    }
    assert_eq!(mounted.read("/short"), b"in the inode");
    assert_eq!(mounted.task.read_link("/long").unwrap().as_os_str(), target.as_str());
    assert!(mounted.read("/d/large") == large);
    assert_eq!(mounted.names("/"), ["d", "hard", "long", "short"]);
    assert_eq!(mounted.names("/d"), ["e", "large", "small"]);
}

#[test]
fn synced_files_survive_a_crash() {
    let mounted = made(64 * MIB);
    mounted.mkdir("/d");
    let bytes = vec![7; 100_000];
    let file =
        mounted.task.open_with("/d/file", &OpenOptions::new().write(true).create(true)).unwrap();
    file.write_all(&bytes).unwrap();
    file.sync_all().unwrap();
    mounted.write("/d/later", b"not synced");
    drop(file);
    let mounted = mounted.crashed();
    assert!(mounted.fs.opened().log.items > 0);
    assert!(mounted.read("/d/file") == bytes);
    let names = mounted.names("/d");
    assert!(names == ["file"] || names == ["file", "later"], "{names:?}");
}

#[test]
fn a_file_that_is_removed_while_it_is_open_goes_with_its_last_user() {
    let mounted = made(64 * MIB);
    let before = mounted.free_blocks();
    let file = mounted
        .task
        .open_with("/f", &OpenOptions::new().read(true).write(true).create(true))
        .unwrap();
    file.write_all(&vec![1; MIB as usize]).unwrap();
    file.sync_all().unwrap();
    assert!(mounted.free_blocks() <= before - 256);
    mounted.unlink("/f", AtFlags::empty()).unwrap();
    let mut byte = [0];
    assert_eq!(file.pread(&mut byte, 1000).unwrap(), 1);
    assert_eq!(byte, [1]);
    assert!(mounted.free_blocks() <= before - 256);
    drop(file);
    mounted.fs.settle().unwrap();
    assert_eq!(mounted.free_blocks(), before);
    // After a crash in between, the next opening removes the file.
    let file = mounted.task.open_with("/f", &OpenOptions::new().write(true).create(true)).unwrap();
    file.write_all(&vec![1; MIB as usize]).unwrap();
    file.sync_all().unwrap();
    mounted.unlink("/f", AtFlags::empty()).unwrap();
    mounted.fs.volume().sync().unwrap();
    drop(file);
    // The copy is made before the file is freed, or after: both are correct.
    let mounted = mounted.crashed();
    assert!(mounted.names("/").is_empty());
    assert_eq!(mounted.free_blocks(), before);
}

/// Empty files are freed in batches, one transaction each; other files are freed in transactions of
/// their own. Here both kinds are mixed.
#[test]
fn files_of_all_kinds_that_go_at_once_leave_nothing() {
    for crashes in [false, true] {
        let mounted = made(64 * MIB);
        mounted.mkdir("/d");
        let before = mounted.inodes();
        let paths: Vec<_> = (0..200).map(|number| format!("/d/{number}")).collect();
        let files = paths.iter().enumerate().map(|(number, path)| {
            mounted.write(path, &vec![1; [0, 0, 0, 100, 20_000, 0, 0, 0, 0, 0][number % 10]]);
            if number % 20 == 5 {
                let (name, none) = ("user.large", XattrFlags::empty());
                let value = [3; 5000];
                let set = mounted.task.posix().setxattrat(
                    At::Cwd,
                    path,
                    name,
                    &value,
                    none,
                    AtFlags::empty(),
                );
                set.unwrap();
            }
            mounted.task.open_with(path, &OpenOptions::new().read(true)).unwrap()
        });
        let files: Vec<_> = files.collect();
        paths.iter().for_each(|path| mounted.unlink(path, AtFlags::empty()).unwrap());
        mounted.fs.volume().sync().unwrap();
        assert_eq!(mounted.inodes(), (before.0 + 200, before.1 + 200));
        let mounted = if crashes {
            let mounted = mounted.crashed_with(files);
            assert_eq!(mounted.fs.opened().orphans.removed, 200);
            mounted
        } else {
            drop(files);
            mounted.fs.settle().unwrap();
            mounted
        };
        assert_eq!(mounted.inodes(), before);
        assert!(mounted.fs.volume().orphans().is_empty());
        drop(mounted.again());
    }
}

#[test]
fn renames_of_every_kind() {
    let mounted = made(64 * MIB);
    for dir in ["/a", "/b", "/a/sub", "/b/empty", "/b/full"] {
        mounted.mkdir(dir);
    }
    mounted.write("/a/file", b"file");
    mounted.write("/b/full/inner", b"inner");
    let plain = RenameFlags::empty();
    assert_eq!(mounted.rename("/a/sub", "/b/full", plain), Err(Errno::NOTEMPTY));
    mounted.rename("/a/sub", "/b/empty", plain).unwrap();
    assert_eq!((mounted.stat("/a").nlink, mounted.stat("/b").nlink), (2, 4));
    assert_eq!(
        mounted.rename("/a/file", "/b/full/inner", RenameFlags::NOREPLACE),
        Err(Errno::EXIST)
    );
    mounted.rename("/a/file", "/b/full/inner", plain).unwrap();
    mounted.write("/a/other", b"other");
    mounted.rename("/a/other", "/b/full", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((mounted.stat("/a").nlink, mounted.stat("/b").nlink), (3, 3));
    let mounted = mounted.again();
    assert_eq!(mounted.names("/a"), ["other"]);
    assert_eq!(mounted.read("/a/other/inner"), b"file");
    assert_eq!(mounted.read("/b/full"), b"other");
    assert_eq!(mounted.names("/b"), ["empty", "full"]);
    assert_eq!(mounted.unlink("/a/other", AtFlags::REMOVEDIR), Err(Errno::NOTEMPTY));
    mounted.unlink("/b/empty", AtFlags::REMOVEDIR).unwrap();
    assert_eq!(mounted.stat("/b").nlink, 2);
}

#[test]
fn a_directory_with_many_names_lists_each_once() {
    let mounted = made(256 * MIB);
    let before = mounted.free_blocks();
    mounted.mkdir("/d");
    for at in 0..3000 {
        mounted.write(&format!("/d/name {at} {}", "x".repeat(at % 200)), b"");
    }
    let mounted = mounted.again();
    assert_eq!(mounted.names("/d").len(), 3000);
    for at in 0..3000 {
        let path = format!("/d/name {at} {}", "x".repeat(at % 200));
        mounted.unlink(&path, AtFlags::empty()).unwrap();
    }
    assert!(mounted.names("/d").is_empty());
    mounted.unlink("/d", AtFlags::REMOVEDIR).unwrap();
    // A group retains an empty chunk of inodes for later files.
    let free = mounted.free_blocks();
    assert!(free <= before && free + 16 >= before, "{free} {before}");
}

#[test]
fn attributes_survive() {
    let mounted = made(64 * MIB);
    mounted.write("/f", b"");
    let large = vec![3; 50_000];
    for (name, value) in [("user.small", &b"value"[..]), ("user.large", &large)] {
        let at = At::Cwd;
        mounted
            .task
            .posix()
            .setxattrat(at, "/f", name, value, XattrFlags::empty(), AtFlags::empty())
            .unwrap();
    }
    mounted.task.set_permissions("/f", Mode::from(0o4711)).unwrap();
    let mounted = mounted.again();
    let get =
        |name| mounted.task.posix().getxattrat(At::Cwd, "/f", name, AtFlags::empty()).unwrap();
    assert_eq!((get("user.small"), get("user.large")), (b"value".to_vec(), large));
    assert_eq!(mounted.stat("/f").mode & 0o7777, 0o4711);
}

#[test]
fn a_full_volume_says_so_and_can_be_emptied() {
    let mounted = made(16 * MIB);
    let before = mounted.free_blocks();
    let file = mounted.task.open_with("/f", &OpenOptions::new().write(true).create(true)).unwrap();
    let piece = vec![1; 64 * 1024];
    let error = loop {
        if let Err(error) = file.write_all(&piece) {
            break error;
        }
    };
    assert_eq!(error.errno(), Errno::NOSPC);
    let size = file.stat().unwrap().size;
    file.sync_all().unwrap();
    assert!(size > 6 * MIB, "{size}");
    drop(file);
    let mounted = mounted.again();
    assert_eq!(mounted.stat("/f").size, size);
    assert!(mounted.read("/f").iter().all(|byte| *byte == 1));
    mounted.unlink("/f", AtFlags::empty()).unwrap();
    assert_eq!(mounted.free_blocks(), before);
}

/// Opens a volume read-only.
fn opened_to_read(device: Arc<MemoryDevice>) -> Result<Arc<DiskFs>, Fault> {
    DiskFs::open(device, Settings { read_only: true, ..Settings::default() })
}

#[test]
fn a_volume_that_is_open_for_reading_only_can_be_read() {
    let mounted = made(16 * MIB);
    mounted.write("/f", b"bytes");
    let Mounted { device, fs, vfs, task } = mounted;
    drop((task, vfs));
    fs.close().unwrap();
    drop(fs);
    let task = Vfs::new(opened_to_read(device).unwrap()).unwrap().task();
    assert_eq!(task.read("/f").unwrap(), b"bytes");
    let error = task.write("/g", b"").unwrap_err();
    assert_eq!(error.errno(), Errno::ROFS);
}

#[test]
fn a_volume_that_was_remounted_read_only_is_as_one_that_was_closed() {
    let mounted = made(16 * MIB);
    mounted.mkdir("/d");
    mounted.write("/d/f", b"bytes");
    mounted.fs.volume().sync().unwrap();
    assert!(opened_to_read(mounted.copy()).unwrap().opened().log.items > 0);
    mounted.write("/d/g", b"not synced");
    mounted.remount(MountFlags::RDONLY).unwrap();
    let copy = opened_to_read(mounted.copy()).unwrap();
    assert_eq!(copy.opened().log.items, 0);
    let copy = Vfs::new(copy).unwrap().task();
    assert_eq!(copy.read("/d/f").unwrap(), b"bytes");
    assert_eq!(copy.read("/d/g").unwrap(), b"not synced");
    // The volume is readable, and nothing is written: neither times, nor by a sync.
    let before = mounted.fs.volume().journal().unwrap().stats();
    assert_eq!(mounted.read("/d/f"), b"bytes");
    mounted.task.open_with("/d/f", &OpenOptions::new().read(true)).unwrap().sync_all().unwrap();
    mounted.fs.sync_fs().unwrap();
    assert_eq!(mounted.fs.grow_fs(32 * MIB), Err(Errno::ROFS));
    assert_eq!(mounted.unlink("/d/f", AtFlags::empty()), Err(Errno::ROFS));
    let need = mounted.fs.needs.record;
    assert!(matches!(mounted.fs.volume().begin(need), Err(Fault::ReadOnly)));
    assert_eq!(mounted.fs.volume().journal().unwrap().stats(), before);
    mounted.remount(MountFlags::empty()).unwrap();
    mounted.unlink("/d/f", AtFlags::empty()).unwrap();
    mounted.remount(MountFlags::RDONLY).unwrap();
    assert_eq!(mounted.again().names("/d"), ["g"]);
}

#[test]
fn a_volume_does_not_grow_through_a_mount_that_is_read_only() {
    let mounted = made(16 * MIB);
    let grow =
        || mounted.task.posix().grow_fs(At::Cwd, "/", 16 * MIB).map_err(|error| error.errno());
    mounted.task.posix().remount_bind("/", MountFlags::RDONLY).unwrap();
    assert_eq!(grow(), Err(Errno::ROFS));
    mounted.task.posix().remount_bind("/", MountFlags::empty()).unwrap();
    assert_eq!(grow(), Ok(16 * MIB));
}

/// A removed directory is freed with the last task in it. If the volume is read-only at that time,
/// the directory is freed later: when the volume is writable again, or when it is closed.
///
/// Race: A remount to read-only against transactions.
#[test]
fn a_directory_released_on_a_read_only_volume_is_freed_later() {
    for closes in [false, true] {
        let mounted = made(16 * MIB);
        mounted.mkdir("/first");
        let before = mounted.inodes().0;
        mounted.mkdir("/d");
        mounted.task.posix().chdir("/d").unwrap();
        mounted.unlink("/d", AtFlags::REMOVEDIR).unwrap();
        mounted.remount(MountFlags::RDONLY).unwrap();
        mounted.task.posix().chdir("/").unwrap();
        vfscale_sync::rcu::synchronize();
        mounted.fs.inactivator.flush();
        assert_eq!(mounted.inodes().0, before + 1);
        if closes {
            let mounted = mounted.again();
            assert_eq!(mounted.fs.opened().orphans, Orphans::default());
            assert_eq!(mounted.inodes().0, before);
            continue;
        }
        mounted.remount(MountFlags::empty()).unwrap();
        mounted.fs.settle().unwrap();
        assert_eq!(mounted.inodes().0, before);
    }
}

/// Transactions are counted per CPU or in a single counter; a remount misses none. Threads change
/// the tree concurrently with the remounts.
///
/// Race: A remount to read-only against transactions.
#[test]
fn a_remount_to_read_only_waits_for_every_transaction() {
    for scaling in [Scaling::with_slots(8), Scaling::before("active-trans").unwrap()] {
        let made = made(16 * MIB);
        let device = made.device.clone();
        drop(made.again());
        let mut options = Settings { sync_interval: None, ..Settings::default() };
        options.journal.scaling = scaling;
        let mounted = opened_with(device, options);
        let (task, mounted) = (&mounted.task, &mounted);
        let is_over = &std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    let path = format!("/{thread}");
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let made = task.create_dir(&path);
                        let gone = task.remove_dir(&path);
                        let refused = [made, gone].into_iter().filter_map(Result::err);
                        let expected = [Errno::ROFS, Errno::EXIST, Errno::NOENT];
                        for error in refused {
                            assert!(expected.contains(&error.errno()), "{error}");
                        }
                    }
                });
            }
            let mut remounts = 0;
            while remounts < 5 {
                match mounted.remount(MountFlags::RDONLY) {
                    Ok(()) => remounts += 1,
                    Err(errno) => {
                        assert_eq!(errno, Errno::BUSY);
                        continue;
                    }
                }
                opened_to_read(mounted.copy()).unwrap();
                mounted.remount(MountFlags::empty()).unwrap();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

#[test]
fn a_remount_that_fails_changes_nothing() {
    let device = MemoryDevice::new(16 * MIB).unwrap();
    mkfs::format(&device, &MkfsOptions::default()).unwrap();
    let device = Arc::new(FaultyDevice::new(Arc::new(device)));
    let options = Settings { on_error: OnError::Shutdown, ..Settings::default() };
    let fs = DiskFs::open(device.clone(), options).unwrap();
    let task = Vfs::new(fs).unwrap().task();
    task.write("/f", b"bytes").unwrap();
    device.arm(vfscale_testkit::Fault::on(Operation::Flush).from(0).fail(OsError::IO));
    let remounted = task.posix().remount("/", MountFlags::RDONLY);
    assert_eq!(remounted.unwrap_err().errno(), Errno::IO);
    // Nothing can become durable any more: the error says that, and not that the volume is
    // read-only.
    let made = task.create_dir("/d");
    assert_eq!(made.unwrap_err().errno(), Errno::IO);
}
