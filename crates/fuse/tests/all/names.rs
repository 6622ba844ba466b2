//! Names and attributes through a mount, by ordinary system calls.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::common::{self, BOTH, TestMount};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use vfscale::FileChange;

#[test]
fn nodes_of_every_type() {
    for m in TestMount::both() {
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(CWD, m.path("fifo"), FileType::Fifo, mode, 0).unwrap();
        let socket = std::os::unix::net::UnixListener::bind(m.path("socket")).unwrap();
        assert!(fs::metadata(m.path("fifo")).unwrap().file_type().is_fifo());
        assert!(fs::metadata(m.path("socket")).unwrap().file_type().is_socket());
        let connected = std::os::unix::net::UnixStream::connect(m.path("socket"));
        assert!(connected.is_ok(), "{connected:?}");
        drop(socket);
        if rustix::process::geteuid().is_root() {
            let dev = rustix::fs::makedev(259, 300);
            rustix::fs::mknodat(CWD, m.path("block"), FileType::BlockDevice, mode, dev).unwrap();
            let meta = fs::metadata(m.path("block")).unwrap();
            assert!(meta.file_type().is_block_device());
            assert_eq!((meta.rdev(), meta.mode() & 0o7777), (dev, 0o640));
        }
    }
}

#[test]
fn extended_attributes() {
    for m in TestMount::both() {
        let path = m.path("f");
        fs::write(&path, "").unwrap();
        rustix::fs::setxattr(&path, "user.one", b"1", XattrFlags::CREATE).unwrap();
        let again = rustix::fs::setxattr(&path, "user.one", b"2", XattrFlags::CREATE);
        assert_eq!(again, Err(Errno::EXIST));
        let absent = rustix::fs::setxattr(&path, "user.two", b"2", XattrFlags::REPLACE);
        assert_eq!(absent, Err(Errno::NODATA));
        let big = vec![7; 60_000];
        rustix::fs::setxattr(&path, "user.big", &big, XattrFlags::empty()).unwrap();
        let mut buf = vec![0; 65_536];
        let n = rustix::fs::getxattr(&path, "user.big", &mut buf[..]).unwrap();
        assert_eq!(buf[..n], big);
        assert_eq!(rustix::fs::getxattr(&path, "user.big", &mut [0; 10][..]), Err(Errno::RANGE));
        assert_eq!(rustix::fs::getxattr_query(&path, "user.one"), Ok(1));
        let n = rustix::fs::listxattr(&path, &mut buf[..]).unwrap();
        let mut names: Vec<_> =
            buf[..n].split(|&b| b == 0).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        assert_eq!(names, [&b"user.big"[..], b"user.one"]);
        rustix::fs::removexattr(&path, "user.one").unwrap();
        assert_eq!(rustix::fs::removexattr(&path, "user.one"), Err(Errno::NODATA));
    }
}

#[test]
fn large_directories_are_read_whole() {
    for m in TestMount::both() {
        let names: std::collections::BTreeSet<String> =
            (0..3000).map(|i| format!("a name of some length, number {i}")).collect();
        names.iter().for_each(|name| drop(fs::File::create(m.path(name)).unwrap()));
        for pass in 0..3 {
            let mut seen = std::collections::BTreeSet::new();
            for entry in fs::read_dir(m.dir()).unwrap() {
                let entry = entry.unwrap();
                assert!(entry.file_type().unwrap().is_file());
                let meta = entry.metadata().unwrap();
                assert_eq!(std::os::unix::fs::DirEntryExt::ino(&entry), meta.ino());
                assert!(seen.insert(entry.file_name().into_string().unwrap()), "twice");
            }
            assert_eq!(seen, names, "pass {pass}");
            common::drop_caches();
        }
        // Removing the entries just read, while reading on, must neither skip nor repeat entries.
        let mut removed = 0;
        for entry in fs::read_dir(m.dir()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
            removed += 1;
        }
        assert_eq!(removed, names.len());
    }
}

#[test]
fn the_state_of_the_file_system_is_told() {
    for sharing in BOTH {
        let vfs = common::memory(64 << 20);
        let Some(m) = TestMount::of(vfs, sharing, |b| b) else { return };
        let before = rustix::fs::statvfs(m.dir()).unwrap();
        assert_eq!(before.f_blocks * before.f_frsize, 64 << 20);
        assert_eq!(before.f_namemax, 255);
        fs::write(m.path("f"), vec![1; 16 << 20]).unwrap();
        let after = rustix::fs::statvfs(m.dir()).unwrap();
        let used = (before.f_bfree - after.f_bfree) * after.f_frsize;
        assert!((16 << 20..17 << 20).contains(&used), "{used}");
        let full = fs::write(m.path("g"), vec![1; 64 << 20]).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        fs::remove_file(m.path("f")).unwrap();
        fs::remove_file(m.path("g")).unwrap();
        let again = fs::write(m.path("h"), vec![1; 48 << 20]);
        assert!(
            again.is_ok(),
            "{sharing:?} {again:?} {}",
            rustix::fs::statvfs(m.dir()).unwrap().f_bfree
        );
    }
}

#[test]
fn files_without_a_name_get_one() {
    for m in TestMount::both() {
        let open = |flags| {
            rustix::fs::open(
                m.dir(),
                OFlags::TMPFILE | OFlags::RDWR | flags,
                Mode::from_raw_mode(0o600),
            )
        };
        let file = open(OFlags::empty()).unwrap();
        rustix::io::write(&file, b"nameless").unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
        assert_eq!(fs::read_dir(m.dir()).unwrap().count(), 0);
        let fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::linkat(CWD, &fd, CWD, m.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(fs::read_to_string(m.path("named")).unwrap(), "nameless");
        assert_eq!(fs::metadata(m.path("named")).unwrap().nlink(), 1);
        let never = open(OFlags::EXCL).unwrap();
        let fd = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&never));
        let refused = rustix::fs::linkat(CWD, &fd, CWD, m.path("never"), AtFlags::SYMLINK_FOLLOW);
        assert_eq!(refused, Err(Errno::NOENT));
    }
}

/// A watcher of the library sees changes that programs make through the mount.
#[test]
fn changes_through_a_mount_are_watched() {
    for m in TestMount::both() {
        let watcher = vfscale::Watcher::new();
        watcher.watch_tree(&m.vfs.task(), "/").unwrap();
        fs::create_dir(m.path("d")).unwrap();
        fs::write(m.path("d/f"), "text").unwrap();
        fs::rename(m.path("d/f"), m.path("f")).unwrap();
        let mut changes = Vec::new();
        while let Some(event) = watcher.try_next() {
            changes.push((event.path.to_str().unwrap().to_owned(), event.change));
        }
        let all = [("d", FileChange::Created), ("d/f", FileChange::Created)];
        let all = all.into_iter().chain([
            ("d/f", FileChange::Modified),
            ("f", FileChange::Renamed { from: "d/f".into() }),
        ]);
        let wanted: Vec<_> = all.map(|(path, change)| (path.to_owned(), change)).collect();
        changes.retain(|change| wanted.contains(change));
        assert_eq!(changes, wanted);
    }
}

#[test]
fn a_rename_may_leave_a_whiteout() {
    for sharing in BOTH {
        let Some(m) = TestMount::new(sharing) else { return };
        fs::create_dir(m.path("d")).unwrap();
        fs::create_dir(m.path("dir")).unwrap();
        fs::write(m.path("a"), "moves").unwrap();
        fs::write(m.path("taken"), "old").unwrap();
        let rename = |old: &str, new: &str, flags| {
            rustix::fs::renameat_with(CWD, m.path(old), CWD, m.path(new), flags)
        };
        let whiteout = RenameFlags::WHITEOUT;
        rename("a", "taken", whiteout).unwrap();
        rename("dir", "d/dir", whiteout | RenameFlags::NOREPLACE).unwrap();
        assert_eq!(fs::read(m.path("taken")).unwrap(), b"moves");
        for name in ["a", "dir"] {
            let meta = fs::symlink_metadata(m.path(name)).unwrap();
            assert!(meta.file_type().is_char_device(), "{sharing:?} {name}");
            assert_eq!((meta.rdev(), meta.mode() & 0o7777, meta.nlink()), (0, 0, 1));
            assert_eq!((meta.uid(), meta.gid()), common::owner());
        }
        let taken = rename("taken", "a", whiteout | RenameFlags::NOREPLACE);
        assert_eq!(taken, Err(Errno::EXIST));
        assert_eq!(rename("taken", "a", whiteout | RenameFlags::EXCHANGE), Err(Errno::INVAL));
        // Replaces the whiteout, and leaves another one.
        rename("taken", "a", whiteout).unwrap();
        assert_eq!(fs::read(m.path("a")).unwrap(), b"moves");
        assert!(fs::symlink_metadata(m.path("taken")).unwrap().file_type().is_char_device());
        let mut names: Vec<_> =
            fs::read_dir(m.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "d", "dir", "taken"]);
    }
}
