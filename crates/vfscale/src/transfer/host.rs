//! The side of a copy that is the host's file system.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{
    self as sys, AtFlags, CWD, Dir, Mode, OFlags, SeekFrom, StatxFlags, Timespec, Timestamps,
    XattrFlags,
};
use vfscale_vfs::{Errno, Error, FileType, Result, Stat, Timestamp};

use crate::transfer::side::Side;

/// The host's file system.
pub(crate) struct Host;

/// An open file of the host.
pub(crate) enum Node {
    /// A regular file or a directory.
    Open(File),
    /// Any file, opened with `O_PATH`.
    Place(OwnedFd),
}

impl Node {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Node::Open(file) => file.as_fd(),
            Node::Place(place) => place.as_fd(),
        }
    }
}

/// Adds the call to an error number.
fn of(call: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::new(call, errno)
}

/// Returns the error of a call of the standard library.
fn of_std(call: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::new(call, Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Returns the directory from which a name starts.
fn fd(at: Option<&Node>) -> BorrowedFd<'_> {
    at.map_or(CWD, Node::fd)
}

/// Returns the path of a file that is open with `O_PATH`, for calls that take no such descriptor.
fn path(place: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", place.as_raw_fd())
}

/// Has a call fill a buffer that is large enough. Most need little, and Linux makes room for all of
/// the buffer, with zeros.
fn filled(
    mut call: impl FnMut(&mut Vec<u8>) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    let mut buf = Vec::with_capacity(XATTR_BYTES);
    match call(&mut buf) {
        Err(Errno::RANGE) => {
            buf = Vec::with_capacity(XATTR_BYTES_MAX);
            call(&mut buf)?;
        }
        done => _ = done?,
    }
    Ok(buf)
}

fn open(at: Option<&Node>, name: &OsStr, flags: OFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    sys::openat(fd(at), name, flags, Mode::from(0o600)).map_err(of("openat"))
}

/// Returns the attributes as a tree has them.
fn stat(at: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Result<Stat> {
    let stat = sys::statx(at, name, flags, StatxFlags::BASIC_STATS).map_err(of("statx"))?;
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

/// The most bytes of an attribute, or of the names of all, in Linux.
const XATTR_BYTES_MAX: usize = 64 * 1024;
/// The bytes that most of them have at most.
const XATTR_BYTES: usize = 256;

impl Side for Host {
    type Node = Node;

    fn stat(&self, at: Option<&Node>, name: &OsStr) -> Result<Stat> {
        stat(fd(at), name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn open_dir(&self, at: Option<&Node>, name: &OsStr) -> Result<Node> {
        let dir = open(at, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Node::Open(dir.into()))
    }

    fn open_file(&self, at: Option<&Node>, name: &OsStr) -> Result<Node> {
        let file = open(at, name, OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(Node::Open(file.into()))
    }

    fn open_node(&self, at: Option<&Node>, name: &OsStr) -> Result<Node> {
        open(at, name, OFlags::PATH).map(Node::Place)
    }

    fn stat_of(&self, node: &Node) -> Result<Stat> {
        stat(node.fd(), OsStr::new(""), AtFlags::EMPTY_PATH)
    }

    fn names(&self, dir: &Node) -> Result<Vec<OsString>> {
        let copy = rustix::io::fcntl_dupfd_cloexec(dir.fd(), 0).map_err(of("dup"))?;
        let mut names = Vec::new();
        for entry in Dir::new(copy).map_err(of("getdents64"))? {
            let name = entry.map_err(of("getdents64"))?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    fn read_link(&self, link: &Node) -> Result<PathBuf> {
        let target = sys::readlinkat(link.fd(), "", Vec::new()).map_err(of("readlinkat"))?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    fn xattrs(&self, node: &Node) -> Result<Vec<(OsString, Vec<u8>)>> {
        let listed = filled(|buf| match node {
            Node::Open(file) => sys::flistxattr(file, spare_capacity(buf)),
            Node::Place(place) => sys::listxattr(path(place), spare_capacity(buf)),
        });
        let names = match listed {
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            listed => listed.map_err(of("listxattr"))?,
        };
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        names
            .map(|name| {
                let got = filled(|buf| match node {
                    Node::Open(file) => sys::fgetxattr(file, name, spare_capacity(buf)),
                    Node::Place(place) => sys::getxattr(path(place), name, spare_capacity(buf)),
                });
                Ok((OsString::from_vec(name.to_vec()), got.map_err(of("getxattr"))?))
            })
            .collect()
    }

    fn data(&self, file: &Node, from: u64) -> Result<Option<(u64, u64)>> {
        let start = match sys::seek(file.fd(), SeekFrom::Data(from)) {
            Err(Errno::NXIO) => return Ok(None),
            start => start.map_err(of("lseek"))?,
        };
        let end = sys::seek(file.fd(), SeekFrom::Hole(start)).map_err(of("lseek"))?;
        Ok(Some((start, end)))
    }

    fn read_at(&self, file: &Node, buf: &mut [u8], offset: u64) -> Result<usize> {
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(file.fd(), &mut *buf, offset));
        read.map_err(of("pread"))
    }

    fn write_all_at(&self, file: &Node, buf: &[u8], offset: u64) -> Result<()> {
        let Node::Open(file) = file else { return Err(Error::new("pwrite", Errno::BADF)) };
        std::os::unix::fs::FileExt::write_all_at(file, buf, offset).map_err(of_std("pwrite"))
    }

    fn set_len(&self, file: &Node, bytes: u64) -> Result<()> {
        sys::ftruncate(file.fd(), bytes).map_err(of("ftruncate"))
    }

    fn create(&self, at: Option<&Node>, name: &OsStr) -> Result<Node> {
        let file = open(at, name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        Ok(Node::Open(file.into()))
    }

    fn create_dir(&self, at: Option<&Node>, name: &OsStr) -> Result<()> {
        sys::mkdirat(fd(at), name, Mode::from(0o700)).map_err(of("mkdirat"))
    }

    fn symlink(&self, target: &Path, at: Option<&Node>, name: &OsStr) -> Result<()> {
        sys::symlinkat(target, fd(at), name).map_err(of("symlinkat"))
    }

    fn hard_link(
        &self,
        (original_at, original): (Option<&Node>, &OsStr),
        at: Option<&Node>,
        name: &OsStr,
    ) -> Result<()> {
        let linked = sys::linkat(fd(original_at), original, fd(at), name, AtFlags::empty());
        linked.map_err(of("linkat"))
    }

    fn rename(&self, at: Option<&Node>, name: &OsStr, to: &OsStr) -> Result<()> {
        sys::renameat(fd(at), name, fd(at), to).map_err(of("renameat"))
    }

    fn unlink(&self, at: Option<&Node>, name: &OsStr) -> Result<()> {
        sys::unlinkat(fd(at), name, AtFlags::empty()).map_err(of("unlinkat"))
    }

    fn mknod(&self, at: Option<&Node>, name: &OsStr, stat: &Stat) -> Result<()> {
        let (kind, mode) = (FileType::from_raw_mode(stat.mode), Mode::from(0o600));
        sys::mknodat(fd(at), name, kind, mode, stat.rdev).map_err(of("mknodat"))
    }

    fn chown(&self, node: &Node, uid: u32, gid: u32) -> Result<()> {
        let (uid, gid) = (sys::Uid::from_raw(uid), sys::Gid::from_raw(gid));
        let owned = sys::chownat(node.fd(), "", Some(uid), Some(gid), AtFlags::EMPTY_PATH);
        owned.map_err(of("fchownat"))
    }

    fn chmod(&self, node: &Node, mode: u32) -> Result<()> {
        let set = match node {
            Node::Open(file) => sys::fchmod(file, Mode::from(mode)),
            Node::Place(place) => sys::chmod(path(place), Mode::from(mode)),
        };
        set.map_err(of("chmod"))
    }

    fn set_xattr(&self, node: &Node, name: &OsStr, value: &[u8]) -> Result<()> {
        let set = match node {
            Node::Open(file) => sys::fsetxattr(file, name, value, XattrFlags::empty()),
            Node::Place(place) => sys::setxattr(path(place), name, value, XattrFlags::empty()),
        };
        set.map_err(of("setxattr"))
    }

    fn set_times(&self, node: &Node, stat: &Stat) -> Result<()> {
        let time = |time: Timestamp| Timespec { tv_sec: time.secs(), tv_nsec: time.nanos().into() };
        let times =
            Timestamps { last_access: time(stat.atime), last_modification: time(stat.mtime) };
        let set = match node {
            Node::Open(file) => sys::futimens(file, &times),
            Node::Place(place) => sys::utimensat(place, "", &times, AtFlags::EMPTY_PATH),
        };
        set.map_err(of("utimensat"))
    }
}
