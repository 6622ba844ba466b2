//! The side of a copy that is the host's file system.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    self as sys, AtFlags, CWD, Mode, OFlags, SeekFrom, StatxFlags, Timespec, Timestamps, XattrFlags,
};
use vfscale_vfs::{Errno, Error, FileType, Result, Stat, Timestamp};

use crate::transfer::side::Side;

/// The host's file system.
pub(super) struct Host;

/// Returns an error of the host's calls.
fn on_host(call: &'static str, path: &Path) -> impl Fn(Errno) -> Error {
    move |errno| Error::at(call, errno, path)
}

/// Returns the error number of an error of the standard library.
fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The most bytes of an attribute, or of the names of all, in Linux.
const XATTR_BYTES_MAX: usize = 64 * 1024;

impl Side for Host {
    type File = File;

    fn stat(&self, path: &Path) -> Result<Stat> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = sys::statx(CWD, path, flags, StatxFlags::BASIC_STATS)
            .map_err(on_host("statx", path))?;
        let time = |time: sys::StatxTimestamp| Timestamp::new(time.tv_sec, time.tv_nsec);
        Ok(Stat {
            dev: sys::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            nlink: stat.stx_nlink,
            mode: u32::from(stat.stx_mode),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            rdev: sys::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
            size: stat.stx_size,
            atime: time(stat.stx_atime),
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
            ..Stat::default()
        })
    }

    fn names(&self, path: &Path) -> Result<Vec<OsString>> {
        let fail = |error: std::io::Error| on_host("readdir", path)(errno(&error));
        let entries = std::fs::read_dir(path).map_err(fail)?;
        entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(fail)).collect()
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        std::fs::read_link(path).map_err(|error| on_host("readlink", path)(errno(&error)))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>> {
        let mut buf = vec![0; XATTR_BYTES_MAX];
        let len = match sys::llistxattr(path, &mut buf[..]) {
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            len => len.map_err(on_host("llistxattr", path))?,
        };
        let names = buf[..len].to_vec();
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        names
            .map(|name| {
                let name = OsString::from_vec(name.to_vec());
                let len = sys::lgetxattr(path, &*name, &mut buf[..])
                    .map_err(on_host("lgetxattr", path))?;
                Ok((name, buf[..len].to_vec()))
            })
            .collect()
    }

    fn open(&self, path: &Path) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = sys::open(path, flags, Mode::empty()).map_err(on_host("open", path))?;
        Ok(File::from(file))
    }

    fn data(&self, file: &File, path: &Path, from: u64) -> Result<Option<(u64, u64)>> {
        let fail = on_host("lseek", path);
        let start = match sys::seek(file, SeekFrom::Data(from)) {
            Err(Errno::NXIO) => return Ok(None),
            start => start.map_err(&fail)?,
        };
        Ok(Some((start, sys::seek(file, SeekFrom::Hole(start)).map_err(&fail)?)))
    }

    fn read_at(&self, file: &File, path: &Path, buf: &mut [u8], offset: u64) -> Result<usize> {
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *buf, offset));
        read.map_err(on_host("pread", path))
    }

    fn create(&self, path: &Path) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = sys::open(path, flags, Mode::from(0o600)).map_err(on_host("open", path))?;
        Ok(File::from(file))
    }

    fn write_all_at(&self, file: &File, path: &Path, buf: &[u8], offset: u64) -> Result<()> {
        let written = std::os::unix::fs::FileExt::write_all_at(file, buf, offset);
        written.map_err(|error| on_host("pwrite", path)(errno(&error)))
    }

    fn set_len(&self, file: &File, path: &Path, bytes: u64) -> Result<()> {
        sys::ftruncate(file, bytes).map_err(on_host("ftruncate", path))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        sys::mkdir(path, Mode::from(0o700)).map_err(on_host("mkdir", path))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        sys::symlink(target, path).map_err(on_host("symlink", path))
    }

    fn hard_link(&self, original: &Path, path: &Path) -> Result<()> {
        sys::link(original, path).map_err(on_host("link", path))
    }

    fn mknod(&self, path: &Path, stat: &Stat) -> Result<()> {
        let (kind, mode) = (FileType::from_raw_mode(stat.mode), Mode::from(0o600));
        sys::mknodat(CWD, path, kind, mode, stat.rdev).map_err(on_host("mknod", path))
    }

    fn chown(&self, path: &Path, uid: u32, gid: u32) -> Result<()> {
        let (uid, gid) = (sys::Uid::from_raw(uid), sys::Gid::from_raw(gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        sys::chownat(CWD, path, Some(uid), Some(gid), flags).map_err(on_host("chown", path))
    }

    fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        sys::chmod(path, Mode::from(mode)).map_err(on_host("chmod", path))
    }

    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8]) -> Result<()> {
        sys::lsetxattr(path, name, value, XattrFlags::empty()).map_err(on_host("lsetxattr", path))
    }

    fn set_times(&self, path: &Path, stat: &Stat) -> Result<()> {
        let time = |time: Timestamp| Timespec { tv_sec: time.secs(), tv_nsec: time.nanos().into() };
        let times =
            Timestamps { last_access: time(stat.atime), last_modification: time(stat.mtime) };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        sys::utimensat(CWD, path, &times, flags).map_err(on_host("utimensat", path))
    }
}
