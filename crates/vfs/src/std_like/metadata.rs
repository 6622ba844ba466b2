//! Attributes with the names of [`std::fs::Metadata`].

use std::ops::Deref;
use std::time::SystemTime;

use crate::base::types::{FileType, Mode, Stat};

/// The attributes of a file, as [`std::fs::Metadata`]. Dereferences to [`Stat`], which has all that
/// `statx(2)` returns as fields: `metadata.ino`, `metadata.nlink`.
///
/// ```
/// # mod vfscale { pub use vfscale_vfs::*; pub mod posix { pub use vfscale_vfs::*; } }
/// use vfscale::{Metadata, posix::Stat};
///
/// let metadata = Metadata::from(Stat { mode: 0o100_644, size: 3, nlink: 1, ..Stat::default() });
/// assert!(metadata.is_file());
/// assert_eq!(metadata.len(), 3);
/// assert_eq!(metadata.permissions(), 0o644.into());
/// assert_eq!(metadata.nlink, 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(Stat);

impl Metadata {
    /// Returns the length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Returns the type of the file.
    pub fn file_type(&self) -> FileType {
        self.0.file_type()
    }

    /// Returns the permission bits (07777).
    pub fn permissions(&self) -> Mode {
        self.0.permissions()
    }

    /// Returns whether the file is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    /// Returns whether the file is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.is_file()
    }

    /// Returns whether the file is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.is_symlink()
    }

    /// Returns the time of the last access.
    pub fn accessed(&self) -> SystemTime {
        self.0.atime.into()
    }

    /// Returns the time of the last change of the data.
    pub fn modified(&self) -> SystemTime {
        self.0.mtime.into()
    }

    /// Returns the time of creation.
    pub fn created(&self) -> SystemTime {
        self.0.btime.into()
    }

    /// Returns the memory or disk that the file occupies, in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.0.blocks * 512
    }
}

impl From<Stat> for Metadata {
    fn from(stat: Stat) -> Metadata {
        Metadata(stat)
    }
}

impl From<Metadata> for Stat {
    fn from(metadata: Metadata) -> Stat {
        metadata.0
    }
}

impl Deref for Metadata {
    type Target = Stat;

    fn deref(&self) -> &Stat {
        &self.0
    }
}
