//! EROFS metadata for files whose contents are on another device.
//!
//! # Purpose
//!
//! EROFS is a file system of Linux that is only read. Its metadata may stand in one file, and refer
//! to the contents of files on another device. So a tree that lies in an image of another format
//! can be read by the kernel, in place: a [`Writer`] writes its names, inodes and attributes, with
//! the addresses of all blocks in the image. A [`Reader`] reads that, and checks it.
//!
//! ```
//! use vfscale_erofs::{Attributes, Content, Reader, Run, Writer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let file = tempfile::tempfile()?;
//! let attributes = |mode| Attributes { mode, links: 1, ..Attributes::default() };
//! let mut writer = Writer::new(&file, 1000, [7; 16])?;
//! let mut root = writer.begin(&attributes(0o040_755), None, vec![(*b"file").into()])?;
//! let runs = [Run { at: 0, blocks: 2, place: 17 }];
//! let content = Content::Data { size: 5000, bytes: &[], runs: &runs };
//! let nid = writer.inode(&attributes(0o100_644), &content)?;
//! root.set(b"file", nid, 0o100_644)?;
//! writer.end(&root)?;
//! writer.finish(&root)?;
//!
//! let reader = Reader::open(&file)?;
//! assert_eq!(reader.check()?.inodes, 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Format
//!
//! Linux's `Documentation/filesystems/erofs.rst` describes it. Of that, this crate writes: blocks
//! of 4096 bytes; inodes of 64 bytes; small contents and the last bytes of directories behind their
//! inode; the contents of other files by a table of eight bytes for each chunk, holes included. A
//! file has the largest chunks that fit: all of a file that lies in a row is one. But a file with a
//! hole or a break at any block has chunks of a block, and its table 2 MiB for each GiB.
//!
//! # Invariants
//!
//! * The same calls write the same bytes. Each byte is written once, in order, except for the names
//!   of directories, which come behind what they name, and for the superblock, which comes last: a
//!   file that was not finished is none.
//! * Every address lies on the device or in the file: each is checked.
//! * For any bytes, each call of a [`Reader`] ends.
//!
//! # Locks
//!
//! None.

mod error;
mod format;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub use error::Error;
pub use reader::{Found, Inode, Part, Reader, Totals};
pub use writer::Writer;

/// The most bytes of the table of one file: of 1 TiB in blocks.
pub const INDEX_BYTES_MAX: u64 = 1 << 31;

/// The name and the value of an extended attribute.
pub type Attribute = (Box<[u8]>, Box<[u8]>);

/// The attributes of an inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Type and permissions.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of names.
    pub links: u32,
    /// The time of the last change of the contents, in nanoseconds since 1970.
    pub mtime: i64,
    /// Extended attributes: `user.*`, `trusted.*`, `security.*`, and access control lists.
    pub xattrs: Vec<Attribute>,
}

/// The contents of an inode that is no directory.
#[derive(Clone, Copy, Debug)]
pub enum Content<'c> {
    /// Of a regular file.
    Data {
        /// Its size in bytes.
        size: u64,
        /// Its first bytes, zeros follow: of a file without runs.
        bytes: &'c [u8],
        /// Where its blocks are on the device, in ascending order. The rest are holes.
        runs: &'c [Run],
    },
    /// The target of a symbolic link.
    Target(&'c [u8]),
    /// Of a device.
    Device {
        /// The major part of its number.
        major: u32,
        /// The minor part.
        minor: u32,
    },
    /// Of a fifo or a socket.
    None,
}

/// Blocks of a file that are in a row on the device. All are counted in 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first block of the file.
    pub at: u64,
    /// Their number.
    pub blocks: u64,
    /// The first block on the device.
    pub place: u64,
}

/// A directory that is written.
#[derive(Debug)]
pub struct Directory {
    nid: u64,
    first: u64,
    tail_at: Option<u64>,
    entries: Vec<Entry>,
}

/// A name with its number and the number of its type.
#[derive(Debug)]
struct Entry {
    name: Box<[u8]>,
    nid: u64,
    kind: u8,
}

impl Directory {
    /// Returns its number.
    #[must_use]
    pub fn nid(&self) -> u64 {
        self.nid
    }

    /// Sets the number and the type of what has a name.
    ///
    /// # Errors
    /// [`Error::Name`] if there is no such name, [`Error::Mode`] if the mode has no type.
    pub fn set(&mut self, name: &[u8], nid: u64, mode: u16) -> Result<(), Error> {
        let found = self.entries.binary_search_by(|entry| (*entry.name).cmp(name));
        let kind = format::type_of(mode).ok_or(Error::Mode(mode))?;
        let entry = found.ok().and_then(|at| self.entries.get_mut(at)).ok_or(Error::Name)?;
        (entry.nid, entry.kind) = (nid, kind);
        Ok(())
    }
}
