//! Inodes on disk: their numbers, their blocks and records, and what can be wrong with them.
//!
//! # Numbers
//!
//! The number of an inode is where its record lies: the address of its block times
//! [`INODES_PER_BLOCK`], plus its place in the block. So a record is found without a tree. Inodes
//! are made in *chunks* of [`CHUNK_BLOCKS`] blocks that begin at a multiple of as many, and the
//! tree of a group's chunks is only asked which of them are free.
//!
//! # Torn blocks
//!
//! What is logged of an inode is its record, not the block. So if power fails while a block is
//! written home, the log has the records for which that was done, and not the other seven. These
//! have the same bytes in the old block and in the new one, and are whole whatever sectors have
//! reached the disk; only the checksum of the block is not right. Therefore each record has a
//! checksum of its own, and recovery, which puts records into blocks, takes a block whose identity
//! is right for what it is ([`verify_torn`]).
//!
//! Of a block that the device can't read any more, whole or in part, recovery takes the sectors
//! that it can read. Inodes are lost then whose records lie in the others and are not in the log:
//! they become free ([`clear_lost`]), and a check finds that they were in use.

use std::mem::offset_of;
use std::ops::Range;

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut,
    transmute_ref,
};

use super::Damage;
use super::header::{BODY_BYTES, Block, HEADER_BYTES, Identity, Magic};

/// What a block of inodes begins with. Its owner is the first block of its chunk.
pub const INODE_MAGIC: Magic = Magic(*b"vfsN");
/// The inodes of a block.
pub const INODES_PER_BLOCK: u64 = 8;
/// The blocks of a chunk.
pub const CHUNK_BLOCKS: u64 = 8;
/// The inodes of a chunk.
pub const CHUNK_INODES: u64 = INODES_PER_BLOCK * CHUNK_BLOCKS;
/// The number of the root directory: the first of the first chunk, which lies behind what is kept
/// of group 0.
pub const ROOT_INO: u64 = crate::format::geometry::GROUP_BLOCKS_KEPT * INODES_PER_BLOCK;

/// The bytes of a record.
pub const RECORD_BYTES: usize = 504;
/// The bytes of a record that both forks share.
pub const AREA_BYTES: usize = RECORD_BYTES - FIELDS_BYTES;
/// The bytes of the area that the root of an attribute tree takes.
pub const ATTR_ROOT_BYTES: usize = 12;
/// The bytes of the area that the root of a data tree takes.
pub const DATA_ROOT_BYTES: usize = 8;
/// The most bytes of the area for the data fork: attributes always find room for a root.
pub const DATA_BYTES_MAX: usize = AREA_BYTES - ATTR_ROOT_BYTES;
/// The most bytes of the area for attributes: the data fork can always have a few extents.
pub const ATTR_BYTES_MAX: usize = 256;
/// The most names that an inode has.
pub const LINKS_MAX: u32 = 0x7FFF_FFFF;
/// The longest target of a symbolic link, in bytes.
pub const LINK_TARGET_BYTES_MAX: u64 = 4095;
/// The most bytes of all attributes of an inode together, as they lie on disk.
pub const ATTR_BLOB_BYTES_MAX: u32 = 128 * 1024;

/// The bytes of a record in front of its area.
pub const FIELDS_BYTES: usize = 96;

/// The format of a fork: there is none.
pub(crate) const FORK_NONE: u8 = 0;
/// The format of a fork: the thing itself is in the area.
pub(crate) const FORK_INLINE: u8 = 1;
/// The format of a data fork: extents are in the area.
pub(crate) const DATA_EXTENTS: u8 = 2;
/// The format of a data fork: the root of a tree is in the area.
pub(crate) const DATA_TREE: u8 = 3;
/// The format of an attribute fork: the root of a tree is in the area.
pub(crate) const ATTR_TREE: u8 = 2;

/// The record of an inode, on disk.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawInode {
    pub(crate) mode: U16,
    pub(crate) flags: U16,
    pub(crate) nlink: U32,
    pub(crate) uid: U32,
    pub(crate) gid: U32,
    pub(crate) size: U64,
    pub(crate) blocks: U64,
    pub(crate) generation: U32,
    pub(crate) checksum: U32,
    pub(crate) rdev: U64,
    pub(crate) atime: I64,
    pub(crate) mtime: I64,
    pub(crate) ctime: I64,
    pub(crate) btime: I64,
    pub(crate) parent: U64,
    pub(crate) data_format: u8,
    pub(crate) attr_format: u8,
    pub(crate) data_bytes: U16,
    pub(crate) attr_bytes: U16,
    pub(crate) zero: U16,
    pub(crate) area: [u8; AREA_BYTES],
}

/// The body of a block of inodes, on disk.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawInodeBlock {
    records: [InodeRecord; INODES_PER_BLOCK as usize],
    zero: [u8; BODY_BYTES - INODES_PER_BLOCK as usize * RECORD_BYTES],
}

/// The root of an attribute tree in the area, on disk.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawAttrRoot {
    pub(crate) root: U64,
    pub(crate) bytes: U32,
}

/// The record of an inode as bytes: what is logged, and what lies in an inode block.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct InodeRecord(pub [u8; RECORD_BYTES]);

impl InodeRecord {
    /// That of an inode that does not exist, whose number was last used with this generation.
    #[must_use]
    pub fn free(generation: u32) -> Self {
        let raw = RawInode { generation: generation.into(), ..RawInode::new_zeroed() };
        Self::from_raw(raw)
    }

    /// One of which zeros at the end may have been left out, as in the log. `None` if it is too
    /// short or too long.
    #[must_use]
    pub fn from_log(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < FIELDS_BYTES {
            return None;
        }
        let mut record = [0; RECORD_BYTES];
        record.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(record))
    }

    /// Whether there is no inode in it.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.raw().mode == 0
    }

    /// What tells it from those who had its number before.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.raw().generation.get()
    }

    pub(crate) fn raw(&self) -> &RawInode {
        transmute_ref!(&self.0)
    }

    /// The record with its checksum.
    pub(crate) fn from_raw(raw: RawInode) -> Self {
        let mut record = Self(zerocopy::transmute!(raw));
        record.seal();
        record
    }

    /// Makes the checksum right, whatever the bytes are.
    pub fn seal(&mut self) {
        let checksum = self.computed_checksum();
        let raw: &mut RawInode = transmute_mut!(&mut self.0);
        raw.checksum = checksum.into();
    }

    /// Whether there is an inode in it, and its checksum is right.
    pub(crate) fn verify(&self) -> Result<(), InodeFault> {
        let (found, computed) = (self.raw().checksum.get(), self.computed_checksum());
        if self.is_free() {
            Err(InodeFault::Free)
        } else if found == computed {
            Ok(())
        } else {
            Err(InodeFault::Checksum { found, computed })
        }
    }

    fn computed_checksum(&self) -> u32 {
        const AT: usize = offset_of!(RawInode, checksum);
        let (before, rest) = self.0.split_at(AT);
        let (field, behind) = rest.split_at(size_of::<U32>());
        let zeros = [0; size_of::<U32>()];
        debug_assert_eq!(field.len(), zeros.len());
        crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(before), &zeros), behind)
    }
}

/// Checks a block of inodes as [`Block::verify`] does, but lets a wrong checksum pass if everything
/// else in the header is right. For recovery, before it puts a record in and seals the block.
///
/// # Errors
/// As [`Block::verify`].
pub fn verify_torn(block: &Block, identity: &Identity) -> Result<(), Damage> {
    let header = block.header();
    let is_it = header.magic == identity.magic
        && header.address == identity.address
        && header.owner == identity.owner
        && header.volume == identity.volume;
    if is_it { Ok(()) } else { block.verify(identity) }
}

/// The records of a block of inodes.
#[must_use]
pub fn records(block: &Block) -> &[InodeRecord; INODES_PER_BLOCK as usize] {
    let body: &RawInodeBlock = transmute_ref!(block.body());
    &body.records
}

/// The records of a block of inodes, to be changed.
pub fn records_mut(block: &mut Block) -> &mut [InodeRecord; INODES_PER_BLOCK as usize] {
    let body: &mut RawInodeBlock = transmute_mut!(block.body_mut());
    &mut body.records
}

/// Puts free inodes of this generation in the place of those whose records have bytes in `lost` of
/// a block. Returns their slots.
pub fn clear_lost(block: &mut Block, lost: &Range<usize>, generation: u32) -> Vec<usize> {
    let begin = |slot: usize| HEADER_BYTES + slot * RECORD_BYTES;
    let is_lost = |slot: &usize| begin(*slot) < lost.end && lost.start < begin(slot + 1);
    let slots: Vec<_> = (0..INODES_PER_BLOCK as usize).filter(is_lost).collect();
    for slot in &slots {
        records_mut(block)[*slot] = InodeRecord::free(generation);
    }
    slots
}

/// The address of the block that an inode's record lies in.
#[must_use]
pub const fn block_of(ino: u64) -> u64 {
    ino / INODES_PER_BLOCK
}

/// The place of an inode's record in its block.
#[must_use]
pub const fn slot_of(ino: u64) -> usize {
    (ino % INODES_PER_BLOCK) as usize
}

/// The first block of the chunk that a block of inodes is in: its owner.
#[must_use]
pub const fn chunk_of(block: u64) -> u64 {
    block - block % CHUNK_BLOCKS
}

/// The number of the inode at a place of a block.
#[must_use]
pub const fn ino_at(block: u64, slot: usize) -> u64 {
    block * INODES_PER_BLOCK + slot as u64
}

/// Something in the record of an inode that must not be so. Numbers begin with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: inode {ino}: {fault}", fault.number())]
pub struct InodeDamage {
    /// The inode.
    pub ino: u64,
    /// What is wrong.
    pub fault: InodeFault,
}

/// What is wrong with an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InodeFault {
    /// 400: Something leads to it, and it is free.
    #[error("does not exist")]
    Free,
    /// 401: Its mode has no type of file.
    #[error("mode {mode:o}")]
    Type {
        /// The mode.
        mode: u16,
    },
    /// 402: More names than an inode has.
    #[error("{links} links")]
    Links {
        /// How many.
        links: u32,
    },
    /// 403: A size that no file of the type has, or that does not go with what is in the area.
    #[error("size {size}")]
    Size {
        /// The size, in bytes.
        size: u64,
    },
    /// 404: A data fork of a format that the type does not have.
    #[error("data in format {format}")]
    DataFormat {
        /// The format.
        format: u8,
    },
    /// 405: A data fork of a length that does not go with its format.
    #[error("{bytes} bytes of data in the inode")]
    DataBytes {
        /// The length, in bytes.
        bytes: u16,
    },
    /// 406: An attribute fork of a format that there is not.
    #[error("attributes in format {format}")]
    AttrFormat {
        /// The format.
        format: u8,
    },
    /// 407: An attribute fork of a length that does not go with its format.
    #[error("{bytes} bytes of attributes in the inode")]
    AttrBytes {
        /// The length, in bytes.
        bytes: u16,
    },
    /// 408: The forks overlap.
    #[error("{data} bytes of data and {attr} bytes of attributes in the same place")]
    Overlap {
        /// The length of the data fork, in bytes.
        data: u16,
        /// The length of the attribute fork, in bytes.
        attr: u16,
    },
    /// 409: The root of a tree, at an address that no tree has.
    #[error("a tree at block {root}")]
    Root {
        /// The address, in blocks.
        root: u64,
    },
    /// 410: A directory's parent is a number that no inode has.
    #[error("its parent is inode {parent}")]
    Parent {
        /// The number.
        parent: u64,
    },
    /// 411: Something leads to it, and it is a number that no inode has.
    #[error("is outside of the volume")]
    Number,
    /// 412: The checksum is not that of the record.
    #[error("checksum {found:08x}, its record has {computed:08x}")]
    Checksum {
        /// The checksum in the record.
        found: u32,
        /// The checksum of the record.
        computed: u32,
    },
}

impl InodeFault {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        match self {
            Self::Free => 400,
            Self::Type { .. } => 401,
            Self::Links { .. } => 402,
            Self::Size { .. } => 403,
            Self::DataFormat { .. } => 404,
            Self::DataBytes { .. } => 405,
            Self::AttrFormat { .. } => 406,
            Self::AttrBytes { .. } => 407,
            Self::Overlap { .. } => 408,
            Self::Root { .. } => 409,
            Self::Parent { .. } => 410,
            Self::Number => 411,
            Self::Checksum { .. } => 412,
        }
    }
}

/// The fields as `docs/FORMAT.md` lists them: offset in the record, bytes, name.
#[cfg(test)]
pub(crate) const FIELDS: &[(usize, usize, &str)] = &[
    (offset_of!(RawInode, mode), 2, "mode"),
    (offset_of!(RawInode, flags), 2, "flags"),
    (offset_of!(RawInode, nlink), 4, "links"),
    (offset_of!(RawInode, uid), 4, "uid"),
    (offset_of!(RawInode, gid), 4, "gid"),
    (offset_of!(RawInode, size), 8, "size"),
    (offset_of!(RawInode, blocks), 8, "blocks"),
    (offset_of!(RawInode, generation), 4, "generation"),
    (offset_of!(RawInode, checksum), 4, "checksum"),
    (offset_of!(RawInode, rdev), 8, "device"),
    (offset_of!(RawInode, atime), 8, "atime"),
    (offset_of!(RawInode, mtime), 8, "mtime"),
    (offset_of!(RawInode, ctime), 8, "ctime"),
    (offset_of!(RawInode, btime), 8, "btime"),
    (offset_of!(RawInode, parent), 8, "parent"),
    (offset_of!(RawInode, data_format), 1, "data format"),
    (offset_of!(RawInode, attr_format), 1, "attr format"),
    (offset_of!(RawInode, data_bytes), 2, "data bytes"),
    (offset_of!(RawInode, attr_bytes), 2, "attr bytes"),
    (offset_of!(RawInode, zero), 2, ""),
    (offset_of!(RawInode, area), AREA_BYTES, "area"),
];

const _: () = {
    assert!(size_of::<RawInode>() == RECORD_BYTES && size_of::<InodeRecord>() == RECORD_BYTES);
    assert!(size_of::<RawInodeBlock>() == BODY_BYTES);
    assert!(size_of::<RawAttrRoot>() == ATTR_ROOT_BYTES && AREA_BYTES == 408);
    assert!(offset_of!(RawInode, size) == 16 && offset_of!(RawInode, generation) == 32);
    assert!(offset_of!(RawInode, rdev) == 40 && offset_of!(RawInode, parent) == 80);
    assert!(offset_of!(RawInode, data_format) == 88 && offset_of!(RawInode, area) == 96);
    assert!(offset_of!(RawInodeBlock, records) == 0 && CHUNK_INODES == 64 && ROOT_INO == 64);
};

#[cfg(test)]
mod tests;
