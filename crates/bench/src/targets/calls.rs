//! The calls that workloads need of a file system.

use std::ffi::{CStr, CString};

use vfscale::{FileType, OFlags, Result};

use crate::base::error::Outcome;

/// What a file's attributes tell a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// The number of names.
    pub nlink: u64,
    /// Last change of the data, in nanoseconds since 1970.
    pub mtime: i64,
    /// What it is.
    pub file_type: FileType,
}

/// The calls of one worker: relative paths begin at its own working directory.
///
/// Made in the thread that uses it; not sent anywhere.
pub trait Calls: 'static {
    /// An open file; dropping it closes it.
    type File: 'static;
    /// A mapped file; dropping it unmaps it.
    type Map: 'static;

    /// `chdir(2)`, for this worker alone.
    ///
    /// # Errors
    /// Those of the call, here and in all others.
    fn chdir(&mut self, path: &CStr) -> Result<()>;
    /// `open(2)`; new files get the mode 0644.
    fn open(&self, path: &CStr, flags: OFlags) -> Result<Self::File>;
    /// `mkdir(2)` with the mode 0755.
    fn mkdir(&self, path: &CStr) -> Result<()>;
    /// `unlink(2)`.
    fn unlink(&self, path: &CStr) -> Result<()>;
    /// `rmdir(2)`.
    fn rmdir(&self, path: &CStr) -> Result<()>;
    /// `rename(2)`.
    fn rename(&self, old: &CStr, new: &CStr) -> Result<()>;
    /// `link(2)`.
    fn link(&self, old: &CStr, new: &CStr) -> Result<()>;
    /// `stat(2)`.
    fn stat(&self, path: &CStr) -> Result<Meta>;
    /// `lstat(2)`.
    fn lstat(&self, path: &CStr) -> Result<Meta>;
    /// `fstat(2)`.
    fn fstat(&self, file: &Self::File) -> Result<Meta>;
    /// `pread(2)`.
    fn pread(&self, file: &Self::File, buf: &mut [u8], offset: u64) -> Result<usize>;
    /// `pwrite(2)`.
    fn pwrite(&self, file: &Self::File, buf: &[u8], offset: u64) -> Result<usize>;
    /// `ftruncate(2)`.
    fn truncate(&self, file: &Self::File, size: u64) -> Result<()>;
    /// `futimens(2)`: the time of the last change, in nanoseconds since 1970; that of the last access
    /// stays.
    fn touch(&self, file: &Self::File, mtime: i64) -> Result<()>;
    /// `fsync(2)`.
    fn sync(&self, file: &Self::File) -> Result<()>;
    /// `syncfs(2)`.
    fn sync_fs(&self, file: &Self::File) -> Result<()>;
    /// Opens a directory, reads all of it (`getdents64(2)`) and closes it. `each` gets the names but
    /// for `.` and `..`, and what they are, as far as the file system says.
    fn list(&self, path: &CStr, each: impl FnMut(&CStr, FileType)) -> Result<()>;
    /// The path of an open file, built as `d_path` does: its bytes are put into `buf`. The path of a
    /// target may begin above the case's own directory.
    fn path_of(&self, file: &Self::File, buf: &mut Vec<u8>) -> Result<()>;
    /// `pipe(2)`.
    ///
    /// # Errors
    /// Those of the call; a target without pipes says so.
    fn pipe(&self) -> Outcome<(Self::File, Self::File)>;
    /// `socketpair(2)` of the local family, for a stream.
    ///
    /// # Errors
    /// Those of the call.
    fn socket_pair(&self) -> Outcome<(Self::File, Self::File)>;
    /// `mmap(2)` of the first page of a file, for reading.
    ///
    /// # Errors
    /// Those of the call.
    fn map(&self, file: &Self::File) -> Outcome<Self::Map>;
    /// Reads the tables of what the worker has mapped, or its process; the bytes of `maps` are put into
    /// `buf`.
    ///
    /// # Errors
    /// Those of reading; a machine without such tables says so.
    fn read_maps(&self, buf: &mut Vec<u8>) -> Outcome<()>;
}

/// A file system for one case; see the [module](self).
pub trait Target: Clone + Send + Sync + 'static {
    /// What a worker gets.
    type Calls: Calls;

    /// Calls for the thread that asks, with the root of the case's tree as working directory.
    ///
    /// # Errors
    /// Those of opening that root.
    fn enter(&self) -> Outcome<Self::Calls>;
}

/// A name that workloads make up themselves, none of which has a NUL in it.
pub(crate) fn name(text: impl Into<String>) -> CString {
    CString::new(text.into()).unwrap_or_default()
}
