//! Reports of failed write-back.

use vfscale_vfs::{FallocateFlags, File, OFlags};

use super::*;
use crate::format::BLOCK_BYTES;
use crate::format::superblock::LogPlace;

/// A mounted volume whose device can be made to fail, and whose writer runs only on request.
struct Faulty {
    device: Arc<FaultyDevice<MemoryDevice>>,
    fs: Arc<DiskFs>,
    task: Task,
}

impl Faulty {
    fn new() -> Self {
        Self::with(OnError::default())
    }

    fn with(on_error: OnError) -> Self {
        let device = Arc::new(FaultyDevice::new(MemoryDevice::new(64 * MIB).unwrap()));
        mkfs::format(&device, &MkfsOptions::default()).unwrap();
        Self::open_with(device, on_error)
    }

    fn open_with(device: Arc<FaultyDevice<MemoryDevice>>, on_error: OnError) -> Self {
        let options = Settings { sync_interval: None, on_error, ..Settings::default() };
        let fs = DiskFs::open(device.clone(), options).unwrap();
        let task = Vfs::new(fs.clone()).unwrap().task();
        Self { device, fs, task }
    }

    fn open(&self, flags: OFlags) -> File {
        self.task.posix().open("/file", OFlags::CREATE | flags, Mode::from(0o600)).unwrap()
    }

    /// Makes the first change, which writes the superblock and begins the epoch of the log.
    fn begin(&self) {
        drop(self.fs.volume().begin(self.fs.needs.record).unwrap());
    }

    /// Makes all writes fail except those to the log.
    fn fail_data(&self) {
        let LogPlace::Inside { start, blocks } = self.fs.volume().superblock().log() else {
            panic!("the log is inside")
        };
        let block = BLOCK_BYTES as u64;
        for part in [0..start * block, (start + blocks) * block..self.device.size()] {
            let fault = vfscale_testkit::Fault::on(Operation::Write).within(part);
            self.device.arm(fault.fail(OsError::new(5)));
        }
    }

    /// Runs write-back as the background writer does, and makes it fail.
    fn fail_to_write_back(&self) {
        self.device.arm(vfscale_testkit::Fault::on(Operation::Write).fail(OsError::new(5)));
        self.fs.files.write_back_all().unwrap_err();
        self.device.disarm();
    }
}

/// Returns the error of each changing call, on a file that is open for writing and by name.
fn changes(volume: &Faulty, file: &File) -> Vec<Option<Errno>> {
    let mode = Mode::from(0o700);
    vec![
        errno(file.pwrite(b"x", 0)),
        errno(file.truncate(1)),
        errno(file.fallocate(FallocateFlags::empty(), 0, 10_000)),
        errno(volume.task.posix().mkdirat(At::Cwd, "/new", mode)),
        errno(volume.task.set_permissions("/file", mode)),
        errno(volume.task.remove_file("/file")),
        errno(volume.task.rename("/file", "/f")),
    ]
}

/// Returns the errors of all calls after the volume has stopped.
fn refusal(on_error: OnError) -> Vec<Option<Errno>> {
    let errno = match on_error {
        OnError::RemountRo => Errno::ROFS,
        OnError::Shutdown => Errno::IO,
    };
    vec![Some(errno); 7]
}

fn errno<T>(result: vfscale_vfs::Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno())
}

/// Race: An error of write-back against the calls that report it.
#[test]
fn each_open_file_is_told_once_of_what_was_lost() {
    let volume = Faulty::new();
    let [one, two, reader] =
        [OFlags::RDWR, OFlags::RDWR, OFlags::RDONLY].map(|how| volume.open(how));
    let handle_of_one = one.clone();
    one.pwrite(&[1; 8192], 0).unwrap();
    two.pwrite(&[2; 8192], 8192).unwrap();
    volume.fail_to_write_back();
    assert_eq!(errno(one.sync_all()), Some(Errno::IO));
    // This open file has reported the error. The others have not yet.
    assert_eq!(errno(handle_of_one.sync_all()), None);
    assert_eq!(errno(two.sync_data()), Some(Errno::IO));
    assert_eq!(errno(two.sync_all()), None);
    assert_eq!(errno(reader.sync_all()), Some(Errno::IO));
    // A file opened after a report has lost nothing.
    assert_eq!(errno(volume.open(OFlags::RDWR).sync_all()), None);
    // The next error is another one, also for a file that has not reported the last one.
    two.pwrite(&[3; 8192], 0).unwrap();
    volume.fail_to_write_back();
    for file in [&one, &two, &reader] {
        assert_eq!(errno(file.sync_all()), Some(Errno::IO));
        assert_eq!(errno(file.sync_all()), None);
    }
}

#[test]
fn a_sync_that_fails_itself_tells_the_others_too() {
    let volume = Faulty::new();
    let [one, two] = [(); 2].map(|()| volume.open(OFlags::RDWR));
    one.pwrite(&[1; 8192], 0).unwrap();
    volume.fail_data();
    assert_eq!(errno(one.sync_all()), Some(Errno::IO));
    volume.device.disarm();
    assert_eq!(errno(one.sync_all()), None);
    assert_eq!(errno(two.sync_all()), Some(Errno::IO));
    assert_eq!(errno(two.sync_all()), None);
}

#[test]
fn a_synchronous_write_tells_of_what_was_lost_before() {
    let volume = Faulty::new();
    let (plain, synchronous) =
        (volume.open(OFlags::RDWR), volume.open(OFlags::RDWR | OFlags::DSYNC));
    plain.pwrite(&[1; 8192], 0).unwrap();
    volume.fail_to_write_back();
    assert_eq!(errno(synchronous.pwrite(b"x", 0)), Some(Errno::IO));
    assert_eq!(errno(synchronous.pwrite(b"x", 0)), None);
    assert_eq!(errno(plain.sync_all()), Some(Errno::IO));
}

#[test]
fn an_error_that_nobody_was_told_of_waits_for_who_opens_the_file() {
    let volume = Faulty::new();
    let file = volume.open(OFlags::RDWR);
    file.pwrite(&[1; 8192], 0).unwrap();
    drop(file);
    volume.fail_to_write_back();
    let first = volume.open(OFlags::RDONLY);
    assert_eq!(errno(first.sync_all()), Some(Errno::IO));
    assert_eq!(errno(first.sync_all()), None);
    assert_eq!(errno(volume.open(OFlags::RDONLY).sync_all()), None);
}

#[test]
fn syncfs_tells_each_open_file_once_of_any_file() {
    let volume = Faulty::new();
    let root = || volume.task.posix().open("/", OFlags::RDONLY, Mode::empty()).unwrap();
    let (one, two) = (root(), root());
    let file = volume.open(OFlags::RDWR);
    file.pwrite(&[1; 8192], 0).unwrap();
    volume.fail_to_write_back();
    assert_eq!(errno(file.sync_all()), Some(Errno::IO));
    // `fsync` has reported the error of the file, and no other.
    for place in [&one, &two, &file] {
        assert_eq!(errno(place.sync_fs()), Some(Errno::IO));
        assert_eq!(errno(place.sync_fs()), None);
    }
    assert_eq!(errno(root().sync_fs()), None);
}

/// Race: A volume that stops against a remount.
///
/// A call that meets corruption, or finds the log shut down, makes the superblock read-only,
/// without the lock of remounts and regardless of writers. A remount that fails restores its flags,
/// and with them this one. So every call that finds the volume stopped sets it again, and a call
/// that arrives in between fails in the driver, which checks the log's flag itself. A remount to
/// read-write calls the driver, which refuses.
#[test]
fn changes_fail_at_once_when_the_log_has_failed() {
    for on_error in [OnError::RemountRo, OnError::Shutdown] {
        let volume = Faulty::with(on_error);
        let file = volume.open(OFlags::RDWR);
        file.pwrite(&[1; 8192], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(volume.fs.options(), format!("errors={on_error}"));
        volume.task.posix().mkdirat(At::Cwd, "/dir", Mode::from(0o700)).unwrap();
        volume.device.arm(vfscale_testkit::Fault::on(Operation::Write).fail(OsError::new(5)));
        assert_eq!(errno(file.sync_fs()), Some(Errno::IO));
        volume.device.disarm();
        assert_eq!(changes(&volume, &file), refusal(on_error), "{on_error}");
        // The refused changes have left nothing to write back, and no reader sees them.
        assert_eq!(file.stat().unwrap().size, 8192);
        let mut bytes = [0; 8192];
        file.pread(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [1; 8192]);
        assert_eq!(volume.task.read("/file").unwrap(), [1; 8192]);
        let state = if on_error == OnError::RemountRo { "emergency_ro" } else { "shutdown" };
        assert_eq!(volume.fs.options(), format!("errors={on_error},{state},stopped_by=V1001"));
        let flags = volume.task.posix().statfs(At::Cwd, "/").unwrap().flags;
        assert_eq!(flags.contains(MountFlags::RDONLY), on_error == OnError::RemountRo);
        // A remount does not help, either.
        let remounted = volume.task.posix().remount("/", MountFlags::empty());
        assert_eq!(remounted.is_err(), on_error == OnError::RemountRo);
        assert_eq!(changes(&volume, &file), refusal(on_error), "{on_error}");
    }
}

#[test]
fn a_volume_that_meets_damage_is_changed_no_more() {
    for on_error in [OnError::RemountRo, OnError::Shutdown] {
        let volume = Faulty::with(on_error);
        drop(volume.open(OFlags::RDWR));
        // The files of the directory are in a separate chunk of inodes.
        volume.task.posix().mkdirat(At::Cwd, "/dir", Mode::from(0o700)).unwrap();
        let mut ino = 0;
        for n in 0..100 {
            volume.task.write(format!("/dir/{n}"), b"x").unwrap();
            ino = volume.task.symlink_metadata(format!("/dir/{n}")).unwrap().ino;
        }
        let Faulty { device, fs, task } = volume;
        drop(task);
        fs.close().unwrap();
        drop(fs);
        let address = crate::format::inode::block_of(ino);
        let mut block = crate::volume::copies::read_block(&*device, address).unwrap();
        let slot = crate::format::inode::slot_of(ino);
        let record = &mut crate::format::inode::records_mut(&mut block)[slot];
        // A type that no inode has, with a right checksum.
        record.0[1] = 0xF0;
        record.seal();
        device.write_at(crate::format::byte_of_block(address), block.bytes()).unwrap();
        let volume = Faulty::open_with(device, on_error);
        let file = volume.open(OFlags::RDWR);
        file.pwrite(b"y", 0).unwrap();
        assert_eq!(errno(volume.task.symlink_metadata("/dir/99")), Some(Errno::UCLEAN));
        assert_eq!(changes(&volume, &file), refusal(on_error), "{on_error}");
        // Readable data is still readable.
        assert_eq!(volume.task.read("/dir/0").unwrap(), b"x");
        assert!(matches!(volume.fs.stopped(), Some(Fault::Journal(_))));
    }
}

/// Returns the fault that stopped a mount, as the superblock records it.
fn stopped(device: &FaultyDevice<MemoryDevice>) -> Option<(u32, String)> {
    let found = crate::volume::copies::read(device).unwrap();
    assert!(found.is_whole());
    found.superblock.stopped.map(|stopped| (stopped.by(), stopped.why().to_owned()))
}

/// Checks a volume, and repairs it if requested. Returns the number of remaining findings, and the
/// fault that had stopped the volume.
fn check(device: &Arc<FaultyDevice<MemoryDevice>>, repair: bool) -> (u64, Option<u32>) {
    let options =
        crate::tools::check::Options { repair, ..crate::tools::check::Options::default() };
    let report = crate::tools::check::check(device.clone(), &options, &mut ()).unwrap();
    (report.left, report.stopped.map(|stopped| stopped.by()))
}

/// The superblock records it immediately, and until the volume is repaired.
#[test]
fn a_volume_remembers_the_error_that_stopped_it() {
    for on_error in [OnError::RemountRo, OnError::Shutdown] {
        let volume = Faulty::with(on_error);
        volume.task.posix().mkdirat(At::Cwd, "/dir", Mode::from(0o700)).unwrap();
        let names = (0..300).map(|at| format!("/dir/{at}: so that a tree is needed"));
        names.for_each(|name| volume.task.write(name, b"x").unwrap());
        let ino = volume.task.symlink_metadata("/dir").unwrap().ino;
        let Faulty { device, fs, task } = volume;
        drop(task);
        fs.close().unwrap();
        drop(fs);
        // This finds a leaf of the directory.
        let is_leaf = |address: &u64| {
            let block = crate::volume::copies::read_block(&*device, *address).unwrap();
            let header = block.header();
            header.magic == crate::format::dir::DIR_MAGIC
                && header.owner == ino
                && block.body()[0] == 0
        };
        let leaf = (0..device.size() / BLOCK_BYTES as u64).find(is_leaf).unwrap();
        let at = crate::format::byte_of_block(leaf);
        let mut block = vec![0; 4096];
        device.read_at(at, &mut block).unwrap();
        block[2000] ^= 1;
        device.write_at(at, &block).unwrap();
        assert_eq!(stopped(&device), None);
        let volume = Faulty::open_with(device, on_error);
        assert_eq!(
            errno(
                volume
                    .task
                    .read_dir("/dir")
                    .and_then(Iterator::collect::<vfscale_vfs::Result<Vec<_>>>)
            ),
            Some(Errno::UCLEAN)
        );
        let (by, why) = stopped(&volume.device).unwrap();
        assert!(by == 2 && why.starts_with(&format!("V002: block {leaf}")), "{by}: {why}");
        let state = if on_error == OnError::RemountRo { "emergency_ro" } else { "shutdown" };
        let options = format!("errors={on_error},{state},stopped_by=V002");
        assert_eq!(volume.fs.options(), options);
        let Faulty { device, fs, task } = volume;
        drop(task);
        fs.close().unwrap_err();
        drop(fs);
        // The next mount shows the fault, and another one does not replace it.
        let volume = Faulty::open_with(device, on_error);
        let options = format!("errors={on_error},stopped_before_by=V002");
        assert_eq!(volume.fs.options(), options);
        volume.fs.volume().shut_down(Fault::NoSpace);
        let Faulty { device, fs, task } = volume;
        drop(task);
        fs.abandon();
        drop(fs);
        assert_eq!(stopped(&device), Some((by, why)));
        let (left, before) = check(&device, false);
        assert_eq!((left > 1, before), (true, Some(2)));
        assert_eq!(check(&device, true), (0, Some(2)));
        assert_eq!(check(&device, true), (0, None));
        assert_eq!(stopped(&device), None);
        let volume = Faulty::open_with(device, on_error);
        assert_eq!(volume.fs.options(), format!("errors={on_error}"));
        volume.task.read_dir("/dir").unwrap().for_each(|entry| drop(entry.unwrap()));
    }
}

/// A log fails, and a call notices that, or only closing or abandoning the volume does.
#[test]
fn a_log_that_has_failed_is_remembered() {
    type End = fn(&DiskFs);
    let ends: [End; 3] =
        [|fs| drop(fs.stopped()), |fs| drop(fs.close().unwrap_err()), DiskFs::abandon];
    for end in ends {
        let volume = Faulty::new();
        volume.begin();
        let LogPlace::Inside { start, blocks } = volume.fs.volume().superblock().log() else {
            panic!("the log is inside")
        };
        let log = crate::format::byte_of_block(start)..crate::format::byte_of_block(start + blocks);
        let fault = vfscale_testkit::Fault::on(Operation::Write).within(log);
        volume.device.arm(fault.fail(OsError::IO));
        volume.task.posix().mkdirat(At::Cwd, "/dir", Mode::from(0o700)).unwrap();
        volume.fs.volume().sync().unwrap_err();
        assert_eq!(stopped(&volume.device), None);
        end(&volume.fs);
        let (by, why) = stopped(&volume.device).unwrap();
        assert!(by == 1001 && why.starts_with("log: "), "{by}: {why}");
        volume.device.disarm();
        // Nothing is damaged: a check without findings, with repair, clears the record.
        let Faulty { device, fs, task } = volume;
        drop(task);
        fs.abandon();
        drop(fs);
        assert_eq!(check(&device, false), (0, Some(1001)));
        assert_eq!(check(&device, true), (0, Some(1001)));
        assert_eq!(stopped(&device), None);
    }
}

/// Neither a closed volume nor an abandoned one has stopped; and a device that fails all writes
/// changes no error.
#[test]
fn a_volume_that_has_not_stopped_remembers_no_error() {
    for close in [true, false] {
        let Faulty { device, fs, task } = Faulty::new();
        task.write("/file", b"x").unwrap();
        drop(task);
        if close {
            fs.close().unwrap()
        } else {
            fs.abandon()
        }
        assert_eq!(stopped(&device), None);
    }
    let volume = Faulty::new();
    volume.begin();
    let Faulty { device, fs, task } = volume;
    device.arm(vfscale_testkit::Fault::on(Operation::Write).fail(OsError::IO));
    task.write("/file", b"x").unwrap();
    assert_eq!(
        errno(task.posix().open("/", OFlags::RDONLY, Mode::empty()).unwrap().sync_fs()),
        Some(Errno::IO)
    );
    assert!(fs.stopped().is_some());
    drop(task);
    fs.close().unwrap_err();
    drop(fs);
    device.disarm();
    assert_eq!(stopped(&device), None);
}
