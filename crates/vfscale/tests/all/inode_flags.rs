//! Inode flags (`chattr`) in the library, in memory and on volumes. Their rules are compared with
//! those of tmpfs in `crates/difftest/tests/all/inode_flags.rs`.

use std::path::Path;
use std::sync::Arc;

use vfscale::block::{Device, MemoryDevice};
use vfscale::posix::{At, AtFlags, InodeFlags, MountFlags, OFlags, SetTime};
use vfscale::{Credentials, Errno, File, FileType, Mode, Task, Timestamp, Vfs, Volume};
use vfscale_diskfs::check;
use vfscale_diskfs::mkfs::{self, MkfsOptions};

const FLAGS: [InodeFlags; 6] = [
    InodeFlags::SYNC,
    InodeFlags::IMMUTABLE,
    InodeFlags::APPEND,
    InodeFlags::NODUMP,
    InodeFlags::NOATIME,
    InodeFlags::DIRSYNC,
];

fn memory() -> Vfs {
    vfscale::memory().size(64 << 20).build().unwrap()
}

/// Opens a volume on `device`, and makes it first if `is_new`.
fn open(device: &Arc<dyn Device>, is_new: bool) -> Volume {
    if is_new {
        mkfs::format(&**device, &MkfsOptions::default()).unwrap();
    }
    vfscale::volume_on(Arc::clone(device)).sync_interval(None).open().unwrap()
}

fn device() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(64 << 20).unwrap())
}

fn of(task: &Task, path: impl AsRef<Path>) -> InodeFlags {
    let file = task.open(path).unwrap();
    task.posix().ioctl_getflags(&file).unwrap()
}

fn set(task: &Task, path: impl AsRef<Path>, flags: InodeFlags) -> Result<(), Errno> {
    let file = task.open(path).unwrap();
    task.posix().ioctl_setflags(&file, flags).map_err(|error| error.errno())
}

fn open_with(task: &Task, path: &str, flags: OFlags) -> Result<File, Errno> {
    task.posix().open(path, flags, Mode::from(0o644)).map_err(|error| error.errno())
}

#[test]
fn memory_stores_the_flags_of_tmpfs() {
    let task = memory().task();
    task.write("/f", "data").unwrap();
    for flag in FLAGS {
        let stored = !matches!(flag, InodeFlags::SYNC | InodeFlags::DIRSYNC);
        let expected = if stored { Ok(()) } else { Err(Errno::OPNOTSUPP) };
        assert_eq!(set(&task, "/f", flag), expected, "{flag:?}");
        assert_eq!(of(&task, "/f"), if stored { flag } else { InodeFlags::empty() });
        set(&task, "/f", InodeFlags::empty()).unwrap();
    }
}

#[test]
fn a_volume_stores_all_flags_for_later_mounts() {
    let device = device();
    let volume = open(&device, true);
    let task = volume.task();
    for (number, flag) in FLAGS.into_iter().enumerate() {
        task.write(format!("/f{number}"), "data").unwrap();
        task.create_dir(format!("/d{number}")).unwrap();
        set(&task, format!("/f{number}"), flag).unwrap();
        set(&task, format!("/d{number}"), flag).unwrap();
    }
    task.write("/all", "data").unwrap();
    set(&task, "/all", InodeFlags::all()).unwrap();
    drop(task);
    volume.close().unwrap();
    let volume = open(&device, false);
    let task = volume.task();
    for (number, flag) in FLAGS.into_iter().enumerate() {
        for kind in ["f", "d"] {
            let path = format!("/{kind}{number}");
            assert_eq!(of(&task, &path), flag, "{path}");
            assert_eq!(task.metadata(&path).unwrap().flags, flag, "{path}");
        }
    }
    assert_eq!(of(&task, "/all"), InodeFlags::all());
    assert_eq!(task.write("/all", "other").unwrap_err().errno(), Errno::PERM);
    assert_eq!(task.remove_file("/f1").unwrap_err().errno(), Errno::PERM);
    drop(task);
    volume.close().unwrap();
    let report = check::check(device, &check::Options::default(), &mut ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// The changes are transactions like others: synced ones survive a crash as a whole.
#[test]
fn synced_flags_survive_a_crash() {
    let device = device();
    let volume = open(&device, true);
    let task = volume.task();
    task.write("/f", "data").unwrap();
    set(&task, "/f", InodeFlags::IMMUTABLE | InodeFlags::NODUMP).unwrap();
    volume.sync().unwrap();
    set(&task, "/f", InodeFlags::empty()).unwrap();
    drop(task);
    volume.abandon();
    let volume = open(&device, false);
    let found = of(&volume.task(), "/f");
    assert_eq!(found, InodeFlags::IMMUTABLE | InodeFlags::NODUMP);
    // The file system knows that it has such files.
    assert!(volume.task().open("/").unwrap().may_have_immutable());
}

#[test]
fn only_volumes_with_such_files_are_marked() {
    let device = device();
    let volume = open(&device, true);
    let task = volume.task();
    task.write("/f", "data").unwrap();
    let ro_compat = || volume.driver().volume().superblock().features.ro_compat;
    set(&task, "/f", InodeFlags::NODUMP | InodeFlags::SYNC).unwrap();
    assert_eq!((ro_compat(), task.open("/").unwrap().may_have_immutable()), (0, false));
    set(&task, "/f", InodeFlags::APPEND).unwrap();
    assert_eq!((ro_compat(), task.open("/").unwrap().may_have_immutable()), (1, true));
    set(&task, "/f", InodeFlags::empty()).unwrap();
    assert_eq!(ro_compat(), 1);
}

#[test]
fn calls_name_what_has_no_flags() {
    let volume = open(&device(), true);
    for task in [memory().task(), volume.task()] {
        task.posix().mknodat(At::Cwd, "/fifo", FileType::Fifo, Mode::from(0o644), 0).unwrap();
        let fifo = open_with(&task, "/fifo", OFlags::RDWR).unwrap();
        let (pipe, _) = task.posix().pipe2(OFlags::empty()).unwrap();
        for file in [&fifo, &pipe] {
            let get = task.posix().ioctl_getflags(file).unwrap_err();
            let set = task.posix().ioctl_setflags(file, InodeFlags::empty()).unwrap_err();
            assert_eq!((get.errno(), set.errno()), (Errno::NOTTY, Errno::NOTTY));
            assert_eq!((get.call(), set.call()), ("ioctl", "ioctl"));
        }
        let path = open_with(&task, "/", OFlags::PATH).unwrap();
        assert_eq!(task.posix().ioctl_getflags(&path).unwrap_err().errno(), Errno::BADF);
        let set = task.posix().ioctl_setflags(&path, InodeFlags::empty()).unwrap_err();
        assert_eq!(set.errno(), Errno::BADF);
        task.write("/f", "data").unwrap();
        task.posix().remount("/", MountFlags::RDONLY).unwrap();
        let file = task.open("/f").unwrap();
        let read_only = task.posix().ioctl_setflags(&file, InodeFlags::NODUMP).unwrap_err();
        assert_eq!(read_only.errno(), Errno::ROFS);
    }
}

/// Opening decides: a file that was opened before stays writable, except for changes of its size.
#[test]
fn open_files_stay_writable() {
    let volume = open(&device(), true);
    for task in [memory().task(), volume.task()] {
        task.write("/f", "data").unwrap();
        let writer = open_with(&task, "/f", OFlags::RDWR).unwrap();
        for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND] {
            set(&task, "/f", flag).unwrap();
            assert_eq!(writer.pwrite(b"more", 0).unwrap(), 4);
            assert_eq!(open_with(&task, "/f", OFlags::RDWR).unwrap_err(), Errno::PERM);
        }
        assert_eq!(writer.truncate(0).unwrap_err().errno(), Errno::PERM);
        let appender = open_with(&task, "/f", OFlags::WRONLY | OFlags::APPEND).unwrap();
        assert_eq!(appender.pwrite(b"end", 0).unwrap(), 3);
        assert_eq!(task.read("/f").unwrap(), b"moreend");
        let reopened = task.posix().reopen_permitted(&writer, OFlags::RDWR).unwrap();
        assert_eq!(reopened.pwrite(b"M", 0).unwrap(), 1);
        let user = task.with_credentials(Credentials::user(0, 0));
        let refused = user.posix().reopen_permitted(&writer, OFlags::RDWR).unwrap_err();
        assert_eq!(refused.errno(), Errno::PERM);
    }
}

#[test]
fn new_files_inherit_flags_of_their_directory() {
    let volume = open(&device(), true);
    let task = volume.task();
    task.create_dir("/d").unwrap();
    let kept = InodeFlags::NODUMP | InodeFlags::NOATIME;
    let all = kept | InodeFlags::SYNC | InodeFlags::DIRSYNC | InodeFlags::APPEND;
    set(&task, "/d", all).unwrap();
    task.write("/d/f", "data").unwrap();
    task.create_dir("/d/sub").unwrap();
    let posix = task.posix();
    posix.mknodat(At::Cwd, "/d/fifo", FileType::Fifo, Mode::from(0o644), 0).unwrap();
    assert_eq!(of(&task, "/d/f"), kept | InodeFlags::SYNC);
    assert_eq!(of(&task, "/d/sub"), kept | InodeFlags::SYNC | InodeFlags::DIRSYNC);
    assert_eq!(task.metadata("/d/fifo").unwrap().flags, kept);
}

/// Without a sync, a crash loses what calls did before; not with these flags.
#[test]
fn synchronous_files_are_durable_when_calls_return() {
    for flag in [InodeFlags::empty(), InodeFlags::SYNC, InodeFlags::DIRSYNC] {
        let device = device();
        let volume = open(&device, true);
        let task = volume.task();
        task.create_dir("/d").unwrap();
        volume.sync().unwrap();
        set(&task, "/d", flag).unwrap();
        task.write("/d/f", "contents").unwrap();
        task.create_dir("/d/sub").unwrap();
        task.rename("/d/sub", "/d/other").unwrap();
        if flag == InodeFlags::SYNC {
            task.posix().truncate("/d/f", 3).unwrap();
            let times = [SetTime::At(Timestamp::new(7, 0)), SetTime::Omit];
            task.posix().utimensat(At::Cwd, "/d/f", times, AtFlags::empty()).unwrap();
        }
        drop(task);
        volume.abandon();
        let volume = open(&device, false);
        let task = volume.task();
        let found: Vec<_> = ["/d/f", "/d/sub", "/d/other"]
            .into_iter()
            .filter(|path| task.symlink_metadata(path).is_ok())
            .collect();
        if flag.is_empty() {
            assert!(found.is_empty(), "{found:?}: the test shows nothing");
            continue;
        }
        assert_eq!(found, ["/d/f", "/d/other"], "{flag:?}");
        if flag == InodeFlags::SYNC {
            assert_eq!(task.metadata("/d/f").unwrap().atime, Timestamp::new(7, 0));
            assert_eq!(task.read("/d/f").unwrap(), b"con");
        }
    }
}

#[test]
fn setting_flags_is_a_change_of_the_inode() {
    let volume = open(&device(), true);
    for task in [memory().task(), volume.task()] {
        task.write("/f", "data").unwrap();
        let before = task.metadata("/f").unwrap();
        set(&task, "/f", InodeFlags::NODUMP).unwrap();
        let after = task.metadata("/f").unwrap();
        assert!(after.ctime > before.ctime);
        assert_eq!(after.mtime, before.mtime);
    }
}
