//! The calls on files that tools need: of an image that this process has open, or in a mount.
//!
//! Paths are absolute, and the root is that of the branch: no `..` and no symbolic link leads out
//! of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vfscale::{Errno, Error, Result};

pub(crate) mod mounted;
pub(crate) mod opened;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

impl Kind {
    /// Returns the type of a file that is at most one of these.
    pub(crate) fn of(is_file: bool, is_directory: bool, is_symlink: bool) -> Self {
        match (is_file, is_directory, is_symlink) {
            (true, ..) => Self::File,
            (_, true, _) => Self::Directory,
            (.., true) => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Length in bytes.
    pub(crate) size: u64,
    /// Seconds since 1970.
    pub(crate) mtime: i64,
}

/// The way in which a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// The file must not exist.
    Create,
    /// Its contents are replaced. It keeps its inode, mode and links.
    Overwrite,
    /// The bytes come behind what it has.
    Append,
}

/// The tree of a branch. Errors are those of Linux.
pub(crate) trait Tree {
    /// Returns the attributes of a file, or of what a symbolic link leads to.
    fn stat(&self, path: &Path, follow: bool) -> Result<Stat>;
    /// Returns the names in a directory, in any order.
    fn names(&self, dir: &Path) -> Result<Vec<OsString>>;
    /// Returns where a symbolic link leads.
    fn target(&self, path: &Path) -> Result<PathBuf>;
    /// Reads at most `len` bytes of a regular file; returns its size too.
    fn read(&self, path: &Path, offset: u64, len: usize) -> Result<(Vec<u8>, u64)>;
    /// Writes a regular file, and makes it if it is missing. Returns its size.
    fn write(&self, path: &Path, bytes: &[u8], writing: Writing) -> Result<u64>;
    /// Makes a directory.
    fn mkdir(&self, path: &Path) -> Result<()>;
    /// Removes a file or an empty directory, or a directory with all that is in it.
    fn remove(&self, path: &Path, recursive: bool) -> Result<()>;
    /// Moves a file, which may take the place of another one.
    fn rename(&self, from: &Path, to: &Path, replace: bool) -> Result<()>;

    /// Makes a directory, and the directories that are missing above it.
    fn mkdir_all(&self, path: &Path) -> Result<()> {
        match self.stat(path, true) {
            Ok(found) if found.kind == Kind::Directory => return Ok(()),
            Ok(_) => return Err(Error::at("mkdir", Errno::NOTDIR, path)),
            Err(error) if error.errno() != Errno::NOENT => return Err(error),
            Err(_) => {}
        }
        if let Some(above) = path.parent() {
            self.mkdir_all(above)?;
        }
        match self.mkdir(path) {
            // Another process was faster.
            Err(error) if error.errno() == Errno::EXIST => Ok(()),
            made => made,
        }
    }

    /// Refuses what is no regular file.
    fn check_regular(&self, call: &'static str, path: &Path) -> Result<()> {
        match self.stat(path, true)?.kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(Error::at(call, Errno::ISDIR, path)),
            _ => Err(Error::at(call, Errno::INVAL, path)),
        }
    }
}
