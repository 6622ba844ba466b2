//! Recorded changes, made again, are what the mount has.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, Timespec, Timestamps, UTIME_OMIT,
    XattrFlags, copy_file_range, fallocate, linkat, mknodat, removexattr, renameat_with, setxattr,
    utimensat,
};
use vfscale_crashlab::{Event, Lab, Log, Promise, Sink};
use vfscale_fuse::recording::Change;

use crate::{in_fork, pool};

/// Calls `act` with the directory of a mount of a fork of `main`, and returns what it records, and
/// what the files are then. `None` where nothing can be mounted.
fn recorded(
    pool: &vfscale::Pool,
    act: impl FnOnce(&Path),
) -> Option<(Log, BTreeMap<PathBuf, Seen>)> {
    if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
        eprintln!("\n######## SKIPPED: what a mount records: it needs root and /dev/fuse\n");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let sink = Arc::new(Sink::new(reader.into(), |_| ()).unwrap());
    pool.fork("main", "recorded").unwrap();
    let volume = pool.open("recorded").unwrap();
    let builder = vfscale_fuse::Builder::new(volume.vfs()).record(sink.clone());
    let mounted = builder.mount(dir.path()).unwrap();
    writer.write_all(b"begin").unwrap();
    act(dir.path());
    drop(mounted);
    let seen = see(&volume.task());
    volume.close().unwrap();
    Some((sink.take().unwrap(), seen))
}

/// The looks of a file: mode, owner, group, links, device, time, contents, attributes.
type Seen = (u32, u32, u32, u32, u64, i64, Vec<u8>, Vec<(String, Vec<u8>)>);

/// Looks at all files of a tree. The times of directories are not compared.
fn see(task: &vfscale::Task) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    let mut open = vec![PathBuf::from("/")];
    while let Some(path) = open.pop() {
        let stat = task.symlink_metadata(&path).unwrap();
        let contents = match stat.file_type() {
            vfscale::FileType::RegularFile => task.read(&path).unwrap(),
            vfscale::FileType::Symlink => {
                task.read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            }
            _ => Vec::new(),
        };
        if stat.is_dir() {
            open.extend(
                task.read_dir(&path).unwrap().map(|entry| path.join(entry.unwrap().file_name())),
            );
        }
        let flags = vfscale::posix::AtFlags::SYMLINK_NOFOLLOW;
        let cwd = vfscale::posix::At::Cwd;
        let names = task.posix().listxattrat(cwd, &path, flags).unwrap_or_default();
        let value = |name: std::ffi::OsString| {
            let value = task.posix().getxattrat(cwd, &path, &name, flags).unwrap();
            (name.to_string_lossy().into_owned(), value)
        };
        let mtime = if stat.is_dir() { 0 } else { stat.mtime.0 };
        let xattrs = names.into_iter().map(value).collect();
        seen.insert(
            path,
            (stat.mode, stat.uid, stat.gid, stat.nlink, stat.rdev, mtime, contents, xattrs),
        );
    }
    seen
}

/// Makes every kind of change.
fn act(dir: &Path) {
    let at = |path: &str| dir.join(path);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/f"), b"first").unwrap();
    fs::write(at("old"), b"written anew, and longer").unwrap();
    let f = OpenOptions::new().read(true).write(true).open(at("d/f")).unwrap();
    f.write_at(b"far", 9000).unwrap();
    f.set_len(9001).unwrap();
    f.set_permissions(fs::Permissions::from_mode(0o4751)).unwrap();
    f.sync_all().unwrap();
    fallocate(&f, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096).unwrap();
    fallocate(&f, FallocateFlags::empty(), 0, 20_000).unwrap();
    let g = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(at("g"))
        .unwrap();
    copy_file_range(&f, Some(&mut 8998), &g, Some(&mut 5), 100).unwrap();
    g.sync_data().unwrap();
    fs::hard_link(at("g"), at("d/h")).unwrap();
    symlink("some target", at("link")).unwrap();
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    mknodat(CWD, at("null"), FileType::CharacterDevice, Mode::RUSR, rustix::fs::makedev(1, 3))
        .unwrap();
    std::os::unix::fs::chown(at("g"), Some(7), Some(8)).unwrap();
    setxattr(at("g"), "user.a", b"1", XattrFlags::empty()).unwrap();
    setxattr(at("g"), "user.b", b"2", XattrFlags::empty()).unwrap();
    removexattr(at("g"), "user.a").unwrap();
    fs::rename(at("d/f"), at("moved")).unwrap();
    fs::write(at("d/new"), b"new").unwrap();
    fs::rename(at("d/new"), at("replaced")).unwrap();
    fs::create_dir_all(at("x/y")).unwrap();
    fs::rename(at("x/y"), at("d/y")).unwrap();
    renameat_with(CWD, at("swap"), CWD, at("moved"), RenameFlags::EXCHANGE).unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::remove_dir(at("x")).unwrap();
    let unnamed = OpenOptions::new().write(true).custom_flags(0o20_200_000).open(dir);
    let mut unnamed = unnamed.unwrap();
    unnamed.write_all(b"had no name").unwrap();
    linkat(unnamed.as_fd(), "", CWD, at("named"), AtFlags::EMPTY_PATH).unwrap();
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times =
        Timestamps { last_access: omit, last_modification: Timespec { tv_sec: 5, tv_nsec: 6 } };
    utimensat(CWD, at("named"), &times, AtFlags::empty()).unwrap();
    File::open(dir).unwrap().sync_all().unwrap();
}

#[test]
fn what_was_recorded_makes_what_the_mount_has() {
    let pool = pool(|task| {
        for path in ["/old", "/swap", "/gone", "/replaced"] {
            task.write(path, path).unwrap();
        }
    });
    let Some((log, seen)) = recorded(&pool, act) else { return };
    assert_eq!(log.events().first(), Some(&Event::Said(b"begin".to_vec())));
    let lab = Lab::new(log, Promise::Posix);
    let made = in_fork(&pool, |task| lab.build(&lab.whole(), task).unwrap(), see);
    for (path, one) in &seen {
        assert_eq!(made.get(path), Some(one), "{}", path.display());
    }
    assert_eq!(made.len(), seen.len());
    // Any other state can be made, too.
    let states = lab.states();
    assert!(states.len() > 50, "{}", states.len());
    for state in states {
        in_fork(&pool, |task| lab.build(&state, task).unwrap(), |_| ());
    }
}

#[test]
fn each_sync_is_recorded_with_what_it_is_about() {
    let pool = pool(|_| ());
    let act = |dir: &Path| {
        let file = File::create(dir.join("f")).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        File::open(dir).unwrap().sync_all().unwrap();
        // `O_DSYNC`
        let mut synced = OpenOptions::new();
        let synced = synced.write(true).create(true).custom_flags(0o10_000).open(dir.join("g"));
        synced.unwrap().write_all(b"each write").unwrap();
    };
    let Some((log, _)) = recorded(&pool, act) else { return };
    let syncs: Vec<(PathBuf, bool)> = log
        .events()
        .iter()
        .filter_map(|event| match event {
            Event::Change(Change::Synced { path, data_only, .. }) => {
                Some((path.clone(), *data_only))
            }
            _ => None,
        })
        .collect();
    let expected = [("/f", true), ("/f", false), ("/", false), ("/g", true)];
    assert_eq!(syncs, expected.map(|(path, data_only)| (path.into(), data_only)));
}

#[test]
fn calls_that_fail_and_calls_that_read_are_not_recorded() {
    let pool = pool(|task| task.write("/f", "text").unwrap());
    let act = |dir: &Path| {
        fs::read(dir.join("f")).unwrap();
        fs::metadata(dir).unwrap().mode();
        fs::create_dir(dir.join("f")).unwrap_err();
        fs::remove_file(dir.join("none")).unwrap_err();
    };
    let Some((log, _)) = recorded(&pool, act) else { return };
    assert_eq!(log.events(), [Event::Said(b"begin".to_vec())]);
}
