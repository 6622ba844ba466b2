//! The form of tar archives: the header of POSIX (`ustar`), and extended headers (`pax`) for what
//! that has no room for.
//!
//! Times have nanoseconds, names any length. Extended attributes are `SCHILY.xattr.NAME`, inode
//! flags `SCHILY.fflags`, both as star(1) and libarchive have them; files with holes are in version
//! 1.0 of the form that GNU tar describes in its manual ("Storing Sparse Files"). Names of removed
//! files are those of the layers of the OCI image specification.
//!
//! # Invariants
//!
//! * The same entries always give the same bytes.
//! * A reader believes nothing: each number is bounded before memory is taken for it.

use std::ops::Range;

mod header;
mod pax;
pub(crate) mod reader;
pub(crate) mod writer;

/// The unit of an archive, in bytes.
pub(crate) const BLOCK: usize = 512;
/// The beginning of the name of a whiteout: a file of that directory is gone.
pub(crate) const WHITEOUT: &[u8] = b".wh.";
/// The name of the file that says that nothing below the directory is left.
pub(crate) const OPAQUE: &[u8] = b".wh..wh..opq";

/// The type of a file in an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    File,
    /// Another name of a file that came before.
    Link,
    Symlink,
    CharacterDevice,
    BlockDevice,
    Directory,
    Fifo,
}

impl Kind {
    /// Returns the kind of a file with this mode; `None` for a socket, which no archive has.
    pub(crate) fn of_mode(mode: u32) -> Option<Kind> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::File,
            0o120_000 => Self::Symlink,
            0o020_000 => Self::CharacterDevice,
            0o060_000 => Self::BlockDevice,
            0o040_000 => Self::Directory,
            0o010_000 => Self::Fifo,
            _ => return None,
        })
    }
}

/// A file in an archive, without its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The path, without a slash at either end; that of the root is empty. That of an entry that
    /// was read is as the archive has it.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Length of the contents in bytes, with holes.
    pub(crate) size: u64,
    /// The data of a file: ascending ranges that do not touch. The rest is zeros.
    pub(crate) data: Vec<Range<u64>>,
    /// The last change of the contents, in nanoseconds since 1970.
    pub(crate) mtime: i64,
    /// The target of a link of either kind.
    pub(crate) target: Vec<u8>,
    /// Numbers of a device.
    pub(crate) device: (u32, u32),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names of inode flags.
    pub(crate) flags: Vec<u8>,
}

impl Entry {
    /// Returns whether the contents are one range.
    fn is_whole(&self) -> bool {
        match &self.data[..] {
            [] => self.size == 0,
            [one] => *one == (0..self.size),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
