//! Inode flags through a mount: `chattr(1)`, `lsattr(1)`, and what the flags forbid.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use rustix::fs::{FallocateFlags, IFlags};
use rustix::io::Errno;
use tempfile::TempDir;
use vfscale::Volume;
use vfscale::posix::InodeFlags;
use vfscale_fuse::{Builder, Sharing};

use crate::common::{
    self, BOTH, SHARED, TestMount, drop_caches, is_root, owner, skipped, truncate,
};
use crate::data::Map;

/// The kinds of mount on which the kernel announces each opening.
const ANNOUNCED: [(Sharing, bool); 3] =
    [(SHARED, false), (Sharing::Exclusive, false), (Sharing::Exclusive, true)];

/// Opens the volume of an image, and makes it if there is none.
fn open(image: &Path) -> Volume {
    let (uid, gid) = owner();
    vfscale::volume(image).create(64 << 20).owner(uid, gid).open().unwrap()
}

/// Makes a volume in an image of its own.
fn new_volume() -> (TempDir, Volume) {
    let dir = tempfile::tempdir().unwrap();
    let volume = open(&dir.path().join("image"));
    (dir, volume)
}

fn mount(
    volume: &Volume,
    sharing: Sharing,
    options: impl FnOnce(Builder) -> Builder,
) -> Option<TestMount> {
    TestMount::of(volume.vfs().clone(), sharing, options)
}

/// Runs a test on a volume in each kind of mount on which the kernel announces each opening. The
/// test is told which kind it is, and whether the kernel gathers writes.
fn where_announced(test: impl Fn(&Volume, &TestMount, Sharing, bool)) {
    if !is_root() {
        return;
    }
    for (sharing, writeback) in ANNOUNCED {
        let (_dir, volume) = new_volume();
        let options = |b: Builder| b.chattr(true).writeback(writeback);
        let Some(m) = mount(&volume, sharing, options) else { return };
        test(&volume, &m, sharing, writeback);
    }
}

/// Makes a file, and a directory with another file, and gives file and directory a flag.
fn make_flagged(m: &TestMount, flag: IFlags) -> [PathBuf; 2] {
    let [file, dir] = ["file", "dir"].map(|name| m.path(name));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("old"), "data").unwrap();
    fs::write(&file, "data").unwrap();
    for path in [&file, &dir] {
        set(path, flag).unwrap();
    }
    [file, dir]
}

/// Returns the letters that `lsattr` shows of a file; `None` if there is no such program.
fn lsattr(path: &Path) -> Option<String> {
    let Ok(output) = Command::new("lsattr").arg("-d").arg(path).output() else {
        skipped("no lsattr");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    let line = String::from_utf8(output.stdout).unwrap();
    Some(line.split(' ').next().unwrap().replace('-', ""))
}

/// Runs `chattr`. Returns its error message if it fails.
fn chattr(change: &str, path: &Path) -> Result<(), String> {
    let output = Command::new("chattr").arg(change).arg(path).output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8(output.stderr).unwrap())
}

/// Sets flags as `chattr` does, with the error.
fn set(path: &Path, flags: IFlags) -> Result<(), Errno> {
    rustix::fs::ioctl_setflags(File::open(path).unwrap(), flags)
}

fn get(path: &Path) -> IFlags {
    rustix::fs::ioctl_getflags(File::open(path).unwrap()).unwrap()
}

fn errno<T>(result: std::io::Result<T>) -> Option<Errno> {
    result.err().map(|error| Errno::from_io_error(&error).unwrap())
}

const PERM: Option<Errno> = Some(Errno::PERM);

fn opened(path: &Path, flags: i32, writes: bool) -> std::io::Result<File> {
    OpenOptions::new().read(!writes).write(writes).custom_flags(flags).open(path)
}

#[test]
fn chattr_sets_what_lsattr_shows() {
    if !is_root() {
        return;
    }
    for sharing in BOTH {
        let (_dir, volume) = new_volume();
        let Some(m) = mount(&volume, sharing, |b| b) else { return };
        fs::create_dir(m.path("dir")).unwrap();
        fs::write(m.path("file"), "data").unwrap();
        for (letter, flag) in [
            ("S", InodeFlags::SYNC),
            ("i", InodeFlags::IMMUTABLE),
            ("a", InodeFlags::APPEND),
            ("d", InodeFlags::NODUMP),
            ("A", InodeFlags::NOATIME),
            ("D", InodeFlags::DIRSYNC),
        ] {
            for name in ["file", "dir"] {
                // `chattr` refuses `D` on a file.
                if (letter, name) == ("D", "file") {
                    continue;
                }
                let path = m.path(name);
                let Some(before) = lsattr(&path) else { return };
                assert_eq!(before, "", "{sharing:?} {name}");
                chattr(&format!("+{letter}"), &path).unwrap();
                assert_eq!(lsattr(&path).unwrap(), letter, "{sharing:?} {name}");
                let task = volume.task();
                assert_eq!(task.metadata(format!("/{name}")).unwrap().flags, flag);
                chattr(&format!("-{letter}"), &path).unwrap();
                assert_eq!(lsattr(&path).unwrap(), "", "{sharing:?} {name}");
            }
        }
        let compressed = chattr("+c", &m.path("file")).unwrap_err();
        assert!(compressed.contains("not supported"), "{compressed}");
    }
}

/// Calls that the flag forbids, on a file and in a directory.
fn assert_immutable(m: &TestMount, keeps_times: bool) {
    let (file, dir) = (m.path("file"), m.path("dir"));
    assert_eq!(errno(opened(&file, 0, true)), PERM);
    assert_eq!(errno(opened(&file, libc::O_TRUNC, true)), PERM);
    assert_eq!(errno(opened(&file, libc::O_APPEND, true)), PERM);
    assert_eq!(errno(opened(&file, libc::O_TRUNC, false)), PERM);
    assert_eq!(errno(truncate(&file, 1)), PERM);
    assert_eq!(errno(fs::remove_file(&file)), PERM);
    assert_eq!(errno(fs::rename(&file, m.path("other"))), PERM);
    assert_eq!(errno(fs::hard_link(&file, m.path("other"))), PERM);
    assert_eq!(errno(fs::set_permissions(&file, fs::Permissions::from_mode(0o777))), PERM);
    let now = File::open(&file).unwrap().set_modified(SystemTime::UNIX_EPOCH);
    // A kernel that keeps the times sends those of writers in the same way.
    assert_eq!(errno(now), if keeps_times { None } else { PERM });
    let xattr = rustix::fs::setxattr(&file, "user.a", b"x", rustix::fs::XattrFlags::empty());
    assert_eq!(xattr, Err(Errno::PERM));
    assert_eq!(fs::read(&file).unwrap(), b"data");
    assert_eq!(errno(File::create(dir.join("new"))), PERM);
    assert_eq!(errno(fs::create_dir(dir.join("new"))), PERM);
    assert_eq!(errno(fs::remove_file(dir.join("old"))), PERM);
    assert_eq!(errno(fs::rename(&dir, m.path("other"))), PERM);
    // Flags of a directory are not those of its files.
    fs::write(dir.join("old"), "new").unwrap();
}

#[test]
fn immutable_files_do_not_change() {
    where_announced(|_, m, _, writeback| {
        let [file, dir] = make_flagged(m, IFlags::IMMUTABLE);
        assert_immutable(m, writeback);
        for path in [&file, &dir] {
            set(path, IFlags::empty()).unwrap();
        }
        fs::write(&file, "other").unwrap();
        fs::remove_file(&file).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    });
}

#[test]
fn append_only_files_only_grow() {
    where_announced(|volume, m, _, _| {
        let [file, dir] = make_flagged(m, IFlags::APPEND);
        assert_eq!(errno(opened(&file, 0, true)), PERM);
        let mut appender = opened(&file, libc::O_APPEND, true).unwrap();
        appender.write_all(b" and more").unwrap();
        drop(appender);
        assert_eq!(errno(opened(&file, libc::O_APPEND | libc::O_TRUNC, true)), PERM);
        assert_eq!(errno(truncate(&file, 1)), PERM);
        assert_eq!(errno(fs::remove_file(&file)), PERM);
        assert_eq!(fs::read(&file).unwrap(), b"data and more");
        fs::write(dir.join("new"), "data").unwrap();
        assert_eq!(errno(fs::remove_file(dir.join("new"))), PERM);
        assert_eq!(errno(fs::rename(dir.join("new"), dir.join("other"))), PERM);
        assert_eq!(volume.task().read("/file").unwrap(), b"data and more");
    });
}

/// The part of the helper process of these tests, which stores in a mapping of a file before its
/// end, and appends to the page that the mapping has changed, and after it.
#[test]
fn helper() {
    let Some((role, dir)) = common::role() else { return };
    assert_eq!(role, "forge");
    let path = Path::new(&dir).join("log");
    let log = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    let map = Map::new(&log, 4096);
    map.store(3, b'X');
    assert!(map.sync().is_err());
    opened(&path, libc::O_APPEND, true).unwrap().write_all(&[b'.'; 6000]).unwrap();
}

/// A descriptor can lose `O_APPEND`, and a mapping has none.
#[test]
fn append_only_files_keep_what_they_have() {
    if !is_root() {
        return;
    }
    let kinds = ANNOUNCED.into_iter().map(|(sharing, writeback)| (sharing, writeback, true));
    for (sharing, writeback, chattr) in kinds.chain([(Sharing::Exclusive, false, false)]) {
        let what = format!("{sharing:?} {writeback} {chattr}");
        let (_dir, volume) = new_volume();
        let options = |b: Builder| b.chattr(chattr).writeback(writeback);
        let Some(m) = mount(&volume, sharing, options) else { return };
        let path = m.path("log");
        fs::write(&path, "0123456789").unwrap();
        fs::write(m.path("other"), "other").unwrap();
        set(&path, IFlags::APPEND).unwrap();
        let kept = || volume.task().read("/log").unwrap();
        let log = OpenOptions::new().read(true).append(true).open(&path).unwrap();
        let other = File::open(m.path("other")).unwrap();
        let flags = rustix::fs::fcntl_getfl(&log).unwrap();
        rustix::fs::fcntl_setfl(&log, flags - rustix::fs::OFlags::APPEND).unwrap();
        let forged = log.write_all_at(b"FORGED", 0).and_then(|()| log.sync_all());
        assert_eq!(errno(forged), PERM, "{what}");
        let copied = rustix::fs::copy_file_range(&other, Some(&mut 0), &log, Some(&mut 2), 5);
        assert_eq!(copied.err(), PERM, "{what}");
        for mode in
            [FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE]
        {
            assert!(rustix::fs::fallocate(&log, mode, 0, 5).is_err(), "{what} {mode:?}");
        }
        assert_eq!(errno(log.set_len(3)), PERM, "{what}");
        assert_eq!(kept(), b"0123456789", "{what}");
        drop(log);
        drop_caches();
        common::run(common::helper("inode_flags", "forge", m.dir()));
        drop_caches();
        let now = kept();
        assert_eq!((&now[..10], now.len()), (&b"0123456789"[..], 6010), "{what}");
        assert!(now[10..].iter().all(|byte| *byte == b'.'), "{what}");
        assert_eq!(fs::read(&path).unwrap(), now, "{what}");
    }
}

/// As on other file systems, the flags decide when a file is opened; but append-only ones keep what
/// they have.
#[test]
fn files_that_were_open_before_stay_writable() {
    where_announced(|volume, m, sharing, _| {
        let path = m.path("file");
        let file = File::create(&path).unwrap();
        file.write_all_at(b"before", 0).unwrap();
        for flag in [IFlags::IMMUTABLE, IFlags::APPEND] {
            set(&path, flag).unwrap();
            let at = if flag == IFlags::APPEND { 6 } else { 0 };
            file.write_all_at(b"later!", at).unwrap();
            file.sync_all().unwrap();
            let text = volume.task().read("/file").unwrap();
            assert!(text.ends_with(b"later!"), "{sharing:?}");
        }
    });
}

/// In exclusive use, the kernel opens files without a message, unless there were such files before.
#[test]
fn without_a_message_for_opening_writes_are_refused() {
    if !is_root() {
        return;
    }
    let (dir, volume) = new_volume();
    let Some(m) = mount(&volume, Sharing::Exclusive, |b| b) else { return };
    let path = m.path("file");
    fs::write(&path, "data").unwrap();
    fs::write(m.path("log"), "data").unwrap();
    set(&path, IFlags::IMMUTABLE).unwrap();
    set(&m.path("log"), IFlags::APPEND).unwrap();
    let file = opened(&path, 0, true).unwrap();
    assert_eq!(errno(file.write_all_at(b"x", 0)), PERM);
    assert_eq!(errno(file.set_len(1)), PERM);
    assert_eq!(errno(opened(&path, libc::O_TRUNC, true)), PERM);
    assert_eq!(errno(opened(&path, libc::O_TRUNC, false)), PERM);
    let log = opened(&m.path("log"), 0, true).unwrap();
    assert_eq!(errno(log.write_all_at(b"x", 0)), PERM);
    assert_eq!(errno(log.set_len(1)), PERM);
    opened(&m.path("log"), libc::O_APPEND, true).unwrap().write_all(b" more").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"data");
    drop((file, log, m));
    volume.close().unwrap();
    let volume = open(&dir.path().join("image"));
    let m = mount(&volume, Sharing::Exclusive, |b| b).unwrap();
    assert_eq!(get(&m.path("file")), IFlags::IMMUTABLE);
    assert_eq!(errno(opened(&m.path("file"), 0, true)), PERM);
    assert_eq!(errno(opened(&m.path("log"), 0, true)), PERM);
    assert_eq!(fs::read(m.path("log")).unwrap(), b"data more");
    // New files are opened with the rights of their creator.
    let created = OpenOptions::new().write(true).create_new(true).mode(0o444).open(m.path("new"));
    created.unwrap().write_all(b"data").unwrap();
    set(&m.path("file"), IFlags::empty()).unwrap();
    fs::write(m.path("file"), "other").unwrap();
}

/// There a refusal would come after the kernel has reported success.
#[test]
fn gathered_writes_need_a_message_for_opening() {
    if !is_root() {
        return;
    }
    let (_dir, volume) = new_volume();
    let Some(m) = mount(&volume, Sharing::Exclusive, |b| b.writeback(true)) else { return };
    let path = m.path("file");
    fs::write(&path, "data").unwrap();
    for flag in [IFlags::IMMUTABLE, IFlags::APPEND] {
        assert_eq!(set(&path, flag), Err(Errno::OPNOTSUPP));
    }
    set(&path, IFlags::NODUMP).unwrap();
    assert_eq!(get(&path), IFlags::NODUMP);
    fs::write(&path, "other").unwrap();
}

#[test]
fn the_structure_has_the_same_flags() {
    const GET: libc::c_ulong = 0x801c_581f;
    const SET: libc::c_ulong = 0x401c_5820;
    for sharing in BOTH {
        let (_dir, volume) = new_volume();
        let Some(m) = mount(&volume, sharing, |b| b) else { return };
        for name in ["file", "dir"] {
            let path = m.path(name);
            if name == "dir" {
                fs::create_dir(&path).unwrap();
                set(&path, IFlags::DIRSYNC).unwrap();
            } else {
                fs::write(&path, "data").unwrap();
            }
            let kept = get(&path);
            // `FS_XFLAG_NODUMP | FS_XFLAG_NOATIME`.
            common::flags_ioctl(&path, SET, &mut [0xc0, 0, 0, 0, 0, 0, 0]).unwrap();
            assert_eq!(get(&path), kept | IFlags::NODUMP | IFlags::NOATIME, "{sharing:?}");
            let mut words = [9; 7];
            common::flags_ioctl(&path, GET, &mut words).unwrap();
            assert_eq!(words[..5], [0xc0, 0, 0, 0, 0], "{sharing:?}");
            let project = common::flags_ioctl(&path, SET, &mut [0xc0, 0, 0, 5, 0, 0, 0]);
            assert_eq!(errno(project), Some(Errno::OPNOTSUPP), "{sharing:?}");
        }
    }
}

#[test]
fn other_commands_are_unknown() {
    for sharing in BOTH {
        let Some(m) = TestMount::new(sharing) else { return };
        fs::write(m.path("file"), "data").unwrap();
        // `FS_IOC_GETVERSION`, and a number that is not used.
        for command in [0x8008_7601, 0x801c_5899] {
            let unknown = common::flags_ioctl(&m.path("file"), command, &mut [0; 7]);
            assert_eq!(errno(unknown), Some(Errno::NOTTY), "{sharing:?} {command:#x}");
        }
    }
}
