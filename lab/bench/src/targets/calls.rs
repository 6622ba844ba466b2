//! The calls that workloads need.

use std::ffi::{CStr, CString};

use vfscale::posix::OFlags;
use vfscale::{FileType, Result};

use crate::base::error::Outcome;

/// The attributes of a file that workloads check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Number of links.
    pub nlink: u64,
    /// Time of the last change of the data, in nanoseconds since 1970.
    pub mtime: i64,
    /// File type.
    pub file_type: FileType,
}

/// The calls of one worker. Relative paths begin at its own working directory.
///
/// The thread that uses it creates it, and does not send it to another.
pub trait Calls: 'static {
    /// An open file; dropping it closes it.
    type File: 'static;
    /// The handle of a file, which names it without a path.
    type Handle: 'static;

    /// Calls `chdir(2)`, for this worker alone.
    ///
    /// # Errors
    /// Like all functions of this trait: any error of the call.
    fn chdir(&mut self, path: &CStr) -> Result<()>;
    /// Calls `open(2)`; new files get the mode 0644.
    fn open(&self, path: &CStr, flags: OFlags) -> Result<Self::File>;
    /// Calls `mkdir(2)` with the mode 0755.
    fn mkdir(&self, path: &CStr) -> Result<()>;
    /// Calls `unlink(2)`.
    fn unlink(&self, path: &CStr) -> Result<()>;
    /// Calls `rmdir(2)`.
    fn rmdir(&self, path: &CStr) -> Result<()>;
    /// Calls `rename(2)`.
    fn rename(&self, old: &CStr, new: &CStr) -> Result<()>;
    /// Calls `link(2)`.
    fn link(&self, old: &CStr, new: &CStr) -> Result<()>;
    /// Calls `stat(2)`.
    fn stat(&self, path: &CStr) -> Result<Meta>;
    /// Calls `lstat(2)`.
    fn lstat(&self, path: &CStr) -> Result<Meta>;
    /// Calls `fstat(2)`.
    fn fstat(&self, file: &Self::File) -> Result<Meta>;
    /// Calls `pread(2)`.
    fn pread(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// Calls `pwrite(2)`.
    fn pwrite(&self, file: &Self::File, buf: &[u8], offset: u64) -> Result<usize>;
    /// Calls `read(2)`, on an end of a pipe or of a pair of sockets.
    fn read(&self, file: &Self::File, buf: &mut [u8]) -> Result<usize>;
    /// Calls `write(2)`, on such an end.
    fn write(&self, file: &Self::File, buf: &[u8]) -> Result<usize>;
    /// Calls `ftruncate(2)`.
    fn truncate(&self, file: &Self::File, size: u64) -> Result<()>;
    /// Calls `fallocate(2)` with `FALLOC_FL_PUNCH_HOLE` and `FALLOC_FL_KEEP_SIZE`.
    fn punch(&self, file: &Self::File, offset: u64, len: u64) -> Result<()>;
    /// Calls `futimens(2)`: sets the time of the last change, in nanoseconds since 1970, and leaves
    /// the time of the last access.
    fn touch(&self, file: &Self::File, mtime: i64) -> Result<()>;
    /// Calls `fsync(2)`.
    fn sync(&self, file: &Self::File) -> Result<()>;
    /// Calls `syncfs(2)`.
    fn sync_fs(&self, file: &Self::File) -> Result<()>;
    /// Opens a directory, reads all of it (`getdents64(2)`) and closes it. Calls `each` with each
    /// name but `.` and `..`, and with its file type, if the file system reports it.
    fn list(&self, path: &CStr, each: impl FnMut(&CStr, FileType)) -> Result<()>;
    /// Stores the path of an open file into `buf`, built like `d_path` in Linux. The path may begin
    /// above the case's own directory.
    fn path_of(&self, file: &Self::File, buf: &mut Vec<u8>) -> Result<()>;
    /// Calls `pipe(2)`.
    ///
    /// # Errors
    /// Any error of the call; `FaultKind::Unsupported` if the target has no pipes.
    fn pipe(&self) -> Outcome<(Self::File, Self::File)>;
    /// Calls `socketpair(2)` for a stream of the local family.
    ///
    /// # Errors
    /// Any error of the call.
    fn socket_pair(&self) -> Outcome<(Self::File, Self::File)>;
    /// Calls `name_to_handle_at(2)`.
    ///
    /// # Errors
    /// Any error of the call; `FaultKind::Unsupported` if the file system has no handles.
    fn handle(&self, path: &CStr) -> Outcome<Self::Handle>;
    /// Calls `open_by_handle_at(2)`.
    ///
    /// # Errors
    /// Any error of the call; `FaultKind::Unsupported` if the process lacks the right.
    fn open_handle(&self, handle: &Self::Handle, flags: OFlags) -> Outcome<Self::File>;
    /// Makes the directory `source` visible at `target`, too (`mount(2)` with `MS_BIND`).
    ///
    /// # Errors
    /// Any error of the call; like the next three, `FaultKind::Unsupported` outside of the library:
    /// a run changes nothing of the machine but its own directory.
    fn bind(&self, source: &CStr, target: &CStr) -> Outcome<()>;
    /// Calls `umount(2)`. Waits for the end of walks that still see the mount.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    fn umount(&self, target: &CStr) -> Outcome<()>;
    /// Makes the whole file system read-only, or writable again (`mount(2)` with `MS_REMOUNT`).
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    fn remount(&self, read_only: bool) -> Outcome<()>;
    /// Drops the cached names below a directory. Returns their number, 0 if the file system keeps
    /// all names in memory anyway.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    fn drop_cached(&self, dir: &CStr) -> Outcome<u64>;
}

/// A file system for one case; see the [module](super).
pub trait Target: Clone + Send + Sync + 'static {
    /// The calls of a worker.
    type Calls: Calls;

    /// Returns calls for this thread, with the root of the case's tree as working directory.
    ///
    /// # Errors
    /// Any error of opening that root.
    fn enter(&self) -> Outcome<Self::Calls>;
}

/// Converts a name that a workload has made up, which contains no NUL.
pub(crate) fn name(text: impl Into<String>) -> CString {
    CString::new(text.into()).unwrap_or_default()
}
