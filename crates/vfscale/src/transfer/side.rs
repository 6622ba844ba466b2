//! The operations that a copy needs of either side.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use vfscale_vfs::{Result, Stat};

/// One of the two sides of a copy. Every file is reached by a name in an open directory, and `None`
/// stands for the place from which paths start; no symbolic link at the end of a name is followed.
/// Errors have the call, and the caller adds the path.
pub(crate) trait Side {
    /// An open file.
    type Node;

    /// Returns the attributes of a file.
    fn stat(&self, at: Option<&Self::Node>, name: &OsStr) -> Result<Stat>;
    /// Opens a directory.
    fn open_dir(&self, at: Option<&Self::Node>, name: &OsStr) -> Result<Self::Node>;
    /// Opens a regular file to read it.
    fn open_file(&self, at: Option<&Self::Node>, name: &OsStr) -> Result<Self::Node>;
    /// Opens a file of any type for its attributes only.
    fn open_node(&self, at: Option<&Self::Node>, name: &OsStr) -> Result<Self::Node>;

    /// Returns the attributes of an open file.
    fn stat_of(&self, node: &Self::Node) -> Result<Stat>;
    /// Returns the names in a directory, without `.` and `..`.
    fn names(&self, dir: &Self::Node) -> Result<Vec<OsString>>;
    fn read_link(&self, link: &Self::Node) -> Result<PathBuf>;
    fn xattrs(&self, node: &Self::Node) -> Result<Vec<(OsString, Vec<u8>)>>;

    /// Returns the next range of data at or after `from`; `None` if only a hole follows.
    fn data(&self, file: &Self::Node, from: u64) -> Result<Option<(u64, u64)>>;
    fn read_at(&self, file: &Self::Node, buf: &mut [u8], at: u64) -> Result<usize>;
    fn write_all_at(&self, file: &Self::Node, buf: &[u8], at: u64) -> Result<()>;
    fn set_len(&self, file: &Self::Node, bytes: u64) -> Result<()>;

    /// Makes a regular file that only its owner can read and write, and opens it.
    fn create(&self, at: Option<&Self::Node>, name: &OsStr) -> Result<Self::Node>;
    /// Makes a directory that only its owner can enter.
    fn create_dir(&self, at: Option<&Self::Node>, name: &OsStr) -> Result<()>;
    fn symlink(&self, target: &Path, at: Option<&Self::Node>, name: &OsStr) -> Result<()>;
    fn hard_link(
        &self,
        original: (Option<&Self::Node>, &OsStr),
        at: Option<&Self::Node>,
        name: &OsStr,
    ) -> Result<()>;
    /// Gives a file that is no directory another name in its directory, in place of what has it.
    fn rename(&self, at: Option<&Self::Node>, name: &OsStr, to: &OsStr) -> Result<()>;
    /// Removes the name of a file that is no directory.
    fn unlink(&self, at: Option<&Self::Node>, name: &OsStr) -> Result<()>;
    /// Makes a fifo or a device that only its owner can read and write.
    fn mknod(&self, at: Option<&Self::Node>, name: &OsStr, stat: &Stat) -> Result<()>;

    fn chown(&self, node: &Self::Node, uid: u32, gid: u32) -> Result<()>;
    /// Sets the permission bits; not of a symbolic link.
    fn chmod(&self, node: &Self::Node, mode: u32) -> Result<()>;
    fn set_xattr(&self, node: &Self::Node, name: &OsStr, value: &[u8]) -> Result<()>;
    fn set_times(&self, node: &Self::Node, stat: &Stat) -> Result<()>;
}
