//! The operations that a copy needs of either side.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use vfscale_vfs::{Result, Stat};

/// One of the two sides of a copy. Errors name the path that they concern.
pub(super) trait Side {
    type File;

    /// Returns the attributes of a file; of a symbolic link, its own.
    fn stat(&self, path: &Path) -> Result<Stat>;
    /// Returns the names in a directory, without `.` and `..`.
    fn names(&self, path: &Path) -> Result<Vec<OsString>>;
    fn read_link(&self, path: &Path) -> Result<PathBuf>;
    fn xattrs(&self, path: &Path) -> Result<Vec<(OsString, Vec<u8>)>>;

    /// Opens a regular file, but no symbolic link.
    fn open(&self, path: &Path) -> Result<Self::File>;
    /// Returns the next range of data at or after `from`; `None` if only a hole follows.
    fn data(&self, file: &Self::File, path: &Path, from: u64) -> Result<Option<(u64, u64)>>;
    fn read_at(&self, file: &Self::File, path: &Path, buf: &mut [u8], at: u64) -> Result<usize>;

    /// Makes a regular file that only its owner can read and write.
    fn create(&self, path: &Path) -> Result<Self::File>;
    fn write_all_at(&self, file: &Self::File, path: &Path, buf: &[u8], at: u64) -> Result<()>;
    fn set_len(&self, file: &Self::File, path: &Path, bytes: u64) -> Result<()>;

    /// Makes a directory that only its owner can enter.
    fn create_dir(&self, path: &Path) -> Result<()>;
    fn symlink(&self, target: &Path, path: &Path) -> Result<()>;
    fn hard_link(&self, original: &Path, path: &Path) -> Result<()>;
    fn mknod(&self, path: &Path, stat: &Stat) -> Result<()>;

    /// The setters concern a symbolic link itself.
    fn chown(&self, path: &Path, uid: u32, gid: u32) -> Result<()>;
    fn chmod(&self, path: &Path, mode: u32) -> Result<()>;
    fn set_xattr(&self, path: &Path, name: &OsStr, value: &[u8]) -> Result<()>;
    fn set_times(&self, path: &Path, stat: &Stat) -> Result<()>;
}
