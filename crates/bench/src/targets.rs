//! What workloads run on: the few calls they need, on the library in the process or on a directory.
//!
//! A [`Target`] is a file system as one case of a run has it to itself: a new memory file system, or a new
//! directory below the one that was named. Each worker [enters](Target::enter) it and gets [`Calls`] of
//! its own, with a working directory of its own, as a process has. Workloads are generic over both,
//! so that no call is made through a pointer.
//!
//! Paths are C strings, for that is what system calls take; to the library they are bytes of known
//! length. Neither target copies them.

use std::ffi::{CStr, CString};
use std::path::PathBuf;

use vfscale::{FileType, OFlags, Patch, Result};

use crate::fault::{Error, Outcome};

pub mod library;
pub mod memory;
pub mod path;
pub mod volume;

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

/// Names a directory of a run's own, the first of a row that is free; `make` says whether it made it.
///
/// # Errors
/// Those of `make`; the last name if none was free.
fn own_directory<E>(
    mut make: impl FnMut(&str) -> std::result::Result<bool, E>,
) -> std::result::Result<String, E> {
    let pid = std::process::id();
    let mut n = 0_u32;
    loop {
        let name = format!("vfscale-bench-{pid}-{n}");
        if make(&name)? {
            return Ok(name);
        }
        n += 1;
    }
}

/// A target as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// The library in this process.
    Memory,
    /// A volume, by the library in this process: an image that is there, or one that is made for the run.
    Volume(PathBuf),
    /// A directory of a mounted file system.
    Path(PathBuf),
}

impl TargetSpec {
    /// Whether it is the library in this process, which can take patches back and pretend CPUs.
    #[must_use]
    pub fn is_library(&self) -> bool {
        !matches!(self, TargetSpec::Path(_))
    }

    /// Whether a patch makes a difference to it.
    #[must_use]
    pub fn has_patch(&self, patch: &Patch) -> bool {
        match self {
            TargetSpec::Memory => !patch.is_of_volumes(),
            TargetSpec::Volume(_) => true,
            TargetSpec::Path(_) => false,
        }
    }

    /// Reads `memory`, `volume:FILE` or `path:DIR`.
    ///
    /// # Errors
    /// Says what targets there are.
    pub fn parse(text: &str) -> std::result::Result<TargetSpec, Error> {
        match text.split_once(':') {
            None if text == "memory" => Ok(TargetSpec::Memory),
            Some(("path", dir)) if !dir.is_empty() => Ok(TargetSpec::Path(dir.into())),
            Some(("volume", file)) if !file.is_empty() => Ok(TargetSpec::Volume(file.into())),
            _ => Err(Error::UnknownTarget(text.to_owned())),
        }
    }
}

impl std::fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TargetSpec::Memory => f.write_str("memory"),
            TargetSpec::Volume(file) => write!(f, "volume:{}", file.display()),
            TargetSpec::Path(dir) => write!(f, "path:{}", dir.display()),
        }
    }
}

/// A name that workloads make up themselves, none of which has a NUL in it.
pub(crate) fn name(text: impl Into<String>) -> CString {
    CString::new(text.into()).unwrap_or_default()
}
