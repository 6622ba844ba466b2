//! A directory of any mounted file system, by system calls.
//!
//! Every run makes one directory below the named one ([`Scratch`]), every case one below that. No
//! other file there is read or changed, and the run's directory is removed when the [`Scratch`] is
//! dropped.
//!
//! A thread gets a working directory of its own by `unshare(CLONE_FS)`, which needs no privileges.
//! Some containers forbid the call: then paths are looked up from a descriptor of the directory,
//! which costs each call a little more and is recorded in the results.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, CWD, FallocateFlags, Mode, OFlags, RawDir, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use vfscale::{Error, FileType, Result, Timestamp};

use super::calls::{Calls, Meta, Target};
use super::mount::Mounted;
use super::spec::MountSpec;
use super::spec::own_directory;
use crate::base::error::{self, Fault, Outcome};
use crate::base::sys;

/// The directory of a run, removed with its contents when dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    cases: AtomicU64,
    /// The mount that holds it, if the run has made one. Unmounted after the directory is removed.
    _mount: Option<Mounted>,
}

impl Scratch {
    /// Makes a directory in `parent`.
    ///
    /// # Errors
    /// Returns an error if `parent` is not a writable directory.
    pub fn new(parent: &Path) -> error::Result<Arc<Scratch>> {
        Scratch::make(parent, None)
    }

    /// Makes a directory in a new mount: see [`Mounted::new`].
    ///
    /// # Errors
    /// Returns the errors of [`Mounted::new`] and [`new`](Self::new).
    pub fn mounted(spec: &MountSpec) -> error::Result<Arc<Scratch>> {
        let mount = Mounted::new(spec)?;
        let parent = mount.dir().to_owned();
        Scratch::make(&parent, Some(mount))
    }

    fn make(parent: &Path, mount: Option<Mounted>) -> error::Result<Arc<Scratch>> {
        let failed = |e: io::Error| error::Error::Directory(parent.to_owned(), e);
        let absolute = parent.canonicalize().map_err(failed)?;
        if !absolute.is_dir() {
            return Err(failed(Errno::NOTDIR.into()));
        }
        let name = own_directory(|name| match std::fs::create_dir(absolute.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            made => made.map(|()| true),
        });
        let dir = absolute.join(name.map_err(failed)?);
        Ok(Arc::new(Scratch { dir, cases: AtomicU64::new(0), _mount: mount }))
    }

    /// Returns its path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a directory in it for one case.
    ///
    /// # Errors
    /// Any error of `mkdir(2)`.
    pub fn case(self: &Arc<Self>) -> error::Result<Directory> {
        let n = self.cases.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir.join(format!("case{n}"));
        std::fs::create_dir(&dir).map_err(|e| error::Error::Directory(dir.clone(), e))?;
        Ok(Directory { dir, scratch: Some(Arc::clone(self)) })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.dir) {
            eprintln!("vfscale bench: cannot remove {}: {e}", self.dir.display());
        }
    }
}

/// The directory of one case.
#[derive(Clone, Debug)]
pub struct Directory {
    dir: PathBuf,
    /// The run's directory, which lives as long as its cases; `None` in a worker process.
    scratch: Option<Arc<Scratch>>,
}

impl Directory {
    /// Wraps the directory of a case that belongs to the parent process.
    pub fn of_parent(dir: PathBuf) -> Directory {
        Directory { dir, scratch: None }
    }

    /// Returns its path.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Removes the case's directory, if it belongs to this process.
    pub fn remove(&self) {
        if self.scratch.is_some() {
            // If this fails, dropping the scratch directory tries again.
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// System calls, from a working directory of one thread.
#[derive(Debug)]
pub struct PathCalls {
    /// Start of relative paths, if the thread can't have a working directory of its own.
    base: Option<OwnedFd>,
}

impl PathCalls {
    #[inline]
    fn at(&self) -> BorrowedFd<'_> {
        self.base.as_ref().map_or(CWD, AsFd::as_fd)
    }
}

/// Returns whether threads can have working directories of their own here.
pub fn has_own_cwd() -> bool {
    std::thread::spawn(|| sys::unshare_cwd().is_ok()).join().unwrap_or(false)
}

impl Target for Directory {
    type Calls = PathCalls;

    fn enter(&self) -> Outcome<PathCalls> {
        let root = CString::new(self.dir.as_os_str().as_bytes()).unwrap_or_default();
        let mut calls = PathCalls { base: None };
        if sys::unshare_cwd().is_err() {
            calls.base = Some(open_place(CWD, &root)?);
        }
        calls.chdir(&root)?;
        Ok(calls)
    }
}

#[cold]
fn failed(call: &'static str, path: &CStr, errno: Errno) -> Error {
    Error::at(call, errno, Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())))
}

fn open_place(at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd> {
    fs::openat(at, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| failed("open", path, e))
}

#[inline]
#[allow(clippy::unnecessary_cast, clippy::useless_conversion, reason = "other machines differ")]
fn meta(stat: &fs::Stat) -> Meta {
    Meta {
        ino: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        nlink: u64::from(stat.st_nlink),
        mtime: stat.st_mtime as i64 * 1_000_000_000 + stat.st_mtime_nsec as i64,
        file_type: FileType::from_raw_mode(stat.st_mode),
    }
}

impl Calls for PathCalls {
    type File = OwnedFd;
    type Handle = sys::Handle;

    fn chdir(&mut self, path: &CStr) -> Result<()> {
        match &self.base {
            Some(base) => self.base = Some(open_place(base.as_fd(), path)?),
            None => rustix::process::chdir(path).map_err(|e| failed("chdir", path, e))?,
        }
        Ok(())
    }

    #[inline]
    fn open(&self, path: &CStr, flags: OFlags) -> Result<OwnedFd> {
        fs::openat(self.at(), path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
            .map_err(|e| failed("open", path, e))
    }

    fn mkdir(&self, path: &CStr) -> Result<()> {
        fs::mkdirat(self.at(), path, Mode::from_raw_mode(0o755))
            .map_err(|e| failed("mkdir", path, e))
    }

    #[inline]
    fn unlink(&self, path: &CStr) -> Result<()> {
        fs::unlinkat(self.at(), path, AtFlags::empty()).map_err(|e| failed("unlink", path, e))
    }

    fn rmdir(&self, path: &CStr) -> Result<()> {
        fs::unlinkat(self.at(), path, AtFlags::REMOVEDIR).map_err(|e| failed("rmdir", path, e))
    }

    #[inline]
    fn rename(&self, old: &CStr, new: &CStr) -> Result<()> {
        fs::renameat(self.at(), old, self.at(), new).map_err(|e| failed("rename", new, e))
    }

    #[inline]
    fn link(&self, old: &CStr, new: &CStr) -> Result<()> {
        fs::linkat(self.at(), old, self.at(), new, AtFlags::empty())
            .map_err(|e| failed("link", new, e))
    }

    #[inline]
    fn stat(&self, path: &CStr) -> Result<Meta> {
        fs::statat(self.at(), path, AtFlags::empty())
            .map(|stat| meta(&stat))
            .map_err(|e| failed("stat", path, e))
    }

    #[inline]
    fn lstat(&self, path: &CStr) -> Result<Meta> {
        fs::statat(self.at(), path, AtFlags::SYMLINK_NOFOLLOW)
            .map(|stat| meta(&stat))
            .map_err(|e| failed("lstat", path, e))
    }

    #[inline]
    fn fstat(&self, file: &OwnedFd) -> Result<Meta> {
        fs::fstat(file).map(|stat| meta(&stat)).map_err(|e| Error::new("fstat", e))
    }

    #[inline]
    fn pread(&self, file: &OwnedFd, buf: &mut [u8], offset: u64) -> Result<usize> {
        rustix::io::pread(file, buf, offset).map_err(|e| Error::new("pread", e))
    }

    #[inline]
    fn pwrite(&self, file: &OwnedFd, buf: &[u8], offset: u64) -> Result<usize> {
        rustix::io::pwrite(file, buf, offset).map_err(|e| Error::new("pwrite", e))
    }

    #[inline]
    fn read(&self, file: &OwnedFd, buf: &mut [u8]) -> Result<usize> {
        rustix::io::read(file, buf).map_err(|e| Error::new("read", e))
    }

    #[inline]
    fn write(&self, file: &OwnedFd, buf: &[u8]) -> Result<usize> {
        rustix::io::write(file, buf).map_err(|e| Error::new("write", e))
    }

    #[inline]
    fn truncate(&self, file: &OwnedFd, size: u64) -> Result<()> {
        fs::ftruncate(file, size).map_err(|e| Error::new("ftruncate", e))
    }

    #[inline]
    fn punch(&self, file: &OwnedFd, offset: u64, len: u64) -> Result<()> {
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fs::fallocate(file, mode, offset, len).map_err(|e| Error::new("fallocate", e))
    }

    #[inline]
    fn touch(&self, file: &OwnedFd, mtime: i64) -> Result<()> {
        let time = Timestamp(mtime);
        let omit = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT };
        let last_modification = Timespec { tv_sec: time.secs(), tv_nsec: i64::from(time.nanos()) };
        let times = Timestamps { last_access: omit, last_modification };
        fs::futimens(file, &times).map_err(|e| Error::new("futimens", e))
    }

    fn sync(&self, file: &OwnedFd) -> Result<()> {
        fs::fsync(file).map_err(|e| Error::new("fsync", e))
    }

    fn sync_fs(&self, file: &OwnedFd) -> Result<()> {
        fs::syncfs(file).map_err(|e| Error::new("syncfs", e))
    }

    fn list(&self, path: &CStr, mut each: impl FnMut(&CStr, FileType)) -> Result<()> {
        let dir = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut buf = [MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(&dir, &mut buf);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|e| failed("getdents64", path, e))?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                each(name, entry.file_type());
            }
        }
        Ok(())
    }

    /// Reads the link of the descriptor in `/proc`, which the kernel builds by `d_path`.
    fn path_of(&self, file: &OwnedFd, buf: &mut Vec<u8>) -> Result<()> {
        let mut text = [0_u8; 32];
        let link = descriptor_link(file.as_raw_fd(), &mut text);
        buf.clear();
        buf.reserve(4096);
        fs::readlinkat_raw(CWD, link, rustix::buffer::spare_capacity(buf))
            .map(drop)
            .map_err(|e| failed("readlink", link, e))
    }

    fn pipe(&self) -> Outcome<(OwnedFd, OwnedFd)> {
        Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::new("pipe2", e))?)
    }

    fn socket_pair(&self) -> Outcome<(OwnedFd, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        Ok(pair.map_err(|e| Error::new("socketpair", e))?)
    }

    fn handle(&self, path: &CStr) -> Outcome<sys::Handle> {
        match sys::Handle::of(self.at(), path) {
            Err(Errno::OPNOTSUPP) => Err(Fault::unsupported("the file system has no handles")),
            made => Ok(made.map_err(|e| failed("name_to_handle_at", path, e))?),
        }
    }

    #[inline]
    fn open_handle(&self, handle: &sys::Handle, flags: OFlags) -> Outcome<OwnedFd> {
        match handle.open(self.at(), flags | OFlags::CLOEXEC) {
            Err(Errno::PERM) => {
                Err(Fault::unsupported("opening by handle needs CAP_DAC_READ_SEARCH"))
            }
            opened => Ok(opened.map_err(|e| Error::new("open_by_handle_at", e))?),
        }
    }

    fn bind(&self, _: &CStr, _: &CStr) -> Outcome<()> {
        Err(of_the_machine())
    }

    fn umount(&self, _: &CStr) -> Outcome<()> {
        Err(of_the_machine())
    }

    fn remount(&self, _: bool) -> Outcome<()> {
        Err(of_the_machine())
    }

    fn drop_cached(&self, _: &CStr) -> Outcome<u64> {
        Err(of_the_machine())
    }
}

/// Returns the fault of calls that would change mounts or caches of the machine.
fn of_the_machine() -> Fault {
    Fault::unsupported("only in the library: it would change mounts or caches of the machine")
}

/// Formats `/proc/self/fd/N` without allocating memory.
fn descriptor_link(fd: i32, text: &mut [u8; 32]) -> &CStr {
    use std::io::Write;
    let mut rest = &mut text[..];
    // 14 bytes, at most 11 of a number, and the NUL fit into 32.
    let _ = write!(rest, "/proc/self/fd/{fd}\0");
    CStr::from_bytes_until_nul(text).unwrap_or(c"")
}
