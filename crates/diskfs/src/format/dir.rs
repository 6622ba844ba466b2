//! On-disk directories: entries in an inode and in a tree.

use std::mem::offset_of;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::btree::Kind;
use super::magic::Magic;

/// Magic of blocks of directories. Their owner is the inode.
pub const DIR_MAGIC: Magic = Magic(*b"vfsD");
/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Least position of an entry.
pub const POSITION_MIN: u64 = 16;
/// Greatest position of an entry.
pub const POSITION_MAX: u64 = i64::MAX as u64;
/// Maximum number of names with the same hash in a directory.
pub const COLLISIONS_MAX: u64 = 16;
/// Size of an entry in an inode, without its name, in bytes.
pub const ENTRY_BYTES: usize = 18;
/// Bytes of a name in the first record of an entry.
pub const HEAD_NAME_BYTES: usize = 21;
/// Bytes of a name in each other record of an entry.
pub const PART_NAME_BYTES: usize = 31;

/// An entry in an inode, on disk; its name follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawEntry {
    pub(crate) position: U64,
    pub(crate) ino: U64,
    pub(crate) kind: u8,
    pub(crate) name_bytes: u8,
}

/// A key of a tree of entries, on disk.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct DirKey {
    /// The position of the entry in the directory.
    pub position: U64,
    /// The record of the entry, from 0 on.
    pub part: u8,
}

impl DirKey {
    pub(crate) fn new(position: u64, part: u8) -> Self {
        Self { position: position.into(), part }
    }
}

/// A value of a tree of entries, on disk: a `RawHead` in the first record of an entry, a further
/// part of the name in the others.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct DirPart(pub [u8; PART_NAME_BYTES]);

/// The first record of an entry, on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHead {
    pub(crate) ino: U64,
    pub(crate) kind: u8,
    pub(crate) name_bytes: u8,
    pub(crate) name: [u8; HEAD_NAME_BYTES],
}

/// The tree of entries of a directory that does not fit into its inode.
#[derive(Clone, Copy, Debug)]
pub enum DirTree {}

impl Kind for DirTree {
    type Key = DirKey;
    type Value = DirPart;
    const MAGIC: Magic = DIR_MAGIC;
    const KEY_MIN: DirKey = DirKey { position: U64::ZERO, part: 0 };
}

const _: () = {
    assert!(size_of::<RawEntry>() == ENTRY_BYTES && offset_of!(RawEntry, kind) == 16);
    assert!(size_of::<RawHead>() == PART_NAME_BYTES && size_of::<DirPart>() == PART_NAME_BYTES);
    assert!(size_of::<DirKey>() == 9 && offset_of!(RawHead, name) == 10);
};

/// The fields as `docs/FORMAT.md` lists them: of an entry in an inode, and of the first record of
/// one in a tree.
#[cfg(test)]
pub(crate) const FIELDS: [&[(usize, usize, &str)]; 2] = [
    &[
        (offset_of!(RawEntry, position), 8, "position"),
        (offset_of!(RawEntry, ino), 8, "inode"),
        (offset_of!(RawEntry, kind), 1, "type"),
        (offset_of!(RawEntry, name_bytes), 1, "name bytes"),
    ],
    &[
        (offset_of!(RawHead, ino), 8, "inode"),
        (offset_of!(RawHead, kind), 1, "type"),
        (offset_of!(RawHead, name_bytes), 1, "name bytes"),
        (offset_of!(RawHead, name), HEAD_NAME_BYTES, "name"),
    ],
];

#[cfg(test)]
mod tests;
