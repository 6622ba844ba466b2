//! On-disk inodes: their numbers, blocks and records.
//!
//! # Numbers
//!
//! The number of an inode is the location of its record: the address of its block times
//! [`INODES_PER_BLOCK`], plus its slot in the block. So a record is found without a tree. Inodes
//! are created in *chunks* of [`CHUNK_BLOCKS`] blocks, aligned to their size. The tree of a group's
//! chunks only tells which of them are free.
//!
//! # Torn blocks
//!
//! The log contains records of inodes, not their blocks. If power fails during the in-place write
//! of a block, the log has the changed records, and not the other seven. Those have the same bytes
//! in the old block and in the new one, and are whole whichever sectors reached the disk; only the
//! checksum of the block is wrong. Therefore each record has a checksum of its own, and recovery,
//! which writes records into blocks, accepts a block whose identity is right ([`verify_torn`]).
//!
//! If the device can't read a block any more, wholly or partly, recovery takes the sectors that it
//! can read. If records in the other sectors are not in the log, recovery fails: the device may be
//! able to read them another day. Only a repair that may give them up does so: these inodes become
//! free ([`clear_lost`]), and a check finds that they were in use.

use std::mem::offset_of;
use std::ops::Range;

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_mut,
    transmute_ref,
};

use super::Damage;
use super::damage::InodeFault;
use super::header::{BODY_BYTES, Block, HEADER_BYTES, Identity};
use super::magic::Magic;

/// Magic of a block of inodes. Its owner is the first block of its chunk.
pub const INODE_MAGIC: Magic = Magic(*b"vfsN");
/// Number of inodes in a block.
pub const INODES_PER_BLOCK: u64 = 8;
/// Number of blocks in a chunk.
pub const CHUNK_BLOCKS: u64 = 8;
/// Number of inodes in a chunk.
pub const CHUNK_INODES: u64 = INODES_PER_BLOCK * CHUNK_BLOCKS;
/// The number of the root directory: the first inode of the first chunk, which follows the reserved
/// blocks of group 0.
pub const ROOT_INO: u64 = crate::format::geometry::GROUP_BLOCKS_KEPT * INODES_PER_BLOCK;

/// Size of a record, in bytes.
pub const RECORD_BYTES: usize = 504;
/// Size of the area of a record that both forks share, in bytes.
pub const AREA_BYTES: usize = RECORD_BYTES - FIELDS_BYTES;
/// Size of the root of an attribute tree in the area, in bytes.
pub const ATTR_ROOT_BYTES: usize = 12;
/// Size of the root of a data tree in the area, in bytes.
pub const DATA_ROOT_BYTES: usize = 8;
/// Maximum size of the data fork, in bytes: a root of attributes always fits.
pub const DATA_BYTES_MAX: usize = AREA_BYTES - ATTR_ROOT_BYTES;
/// Maximum size of the attribute fork, in bytes: a few extents of data always fit.
pub const ATTR_BYTES_MAX: usize = 256;
/// Maximum number of links to an inode.
pub const LINKS_MAX: u32 = 0x7FFF_FFFF;
/// Longest target of a symbolic link, in bytes.
pub const LINK_TARGET_BYTES_MAX: u64 = 4095;
/// Maximum size of all attributes of an inode together, in bytes on disk.
pub const ATTR_BLOB_BYTES_MAX: u32 = 128 * 1024;

/// Size of the fields of a record before its area, in bytes.
pub const FIELDS_BYTES: usize = 96;

/// The flag of an inode whose changes are durable when their calls return.
pub const FLAG_SYNC: u16 = 1;
/// The flag of an immutable inode.
pub const FLAG_IMMUTABLE: u16 = 1 << 1;
/// The flag of an inode that is only appended to.
pub const FLAG_APPEND: u16 = 1 << 2;
/// The flag of an inode that `dump(8)` leaves out.
pub const FLAG_NODUMP: u16 = 1 << 3;
/// The flag of an inode whose access time reads do not update.
pub const FLAG_NOATIME: u16 = 1 << 4;
/// The flag of a directory whose names are durable when the calls that change them return.
pub const FLAG_DIRSYNC: u16 = 1 << 5;
/// The flags that have a meaning.
pub const FLAGS_KNOWN: u16 = (1 << FLAG_NAMES.len()) - 1;
/// The names of the flags, from bit 0 on.
pub const FLAG_NAMES: [&str; 6] = ["sync", "immutable", "append", "nodump", "noatime", "dirsync"];

/// The format of an absent fork.
pub(crate) const FORK_NONE: u8 = 0;
/// The format of a fork whose contents are in the area.
pub(crate) const FORK_INLINE: u8 = 1;
/// The format of a data fork whose extents are in the area.
pub(crate) const DATA_EXTENTS: u8 = 2;
/// The format of a data fork with the root of a tree in the area.
pub(crate) const DATA_TREE: u8 = 3;
/// The format of an attribute fork with the root of a tree in the area.
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

/// The record of an inode as bytes: the unit of the log, and of a block of inodes.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct InodeRecord(pub [u8; RECORD_BYTES]);

impl InodeRecord {
    /// Returns the record of a free inode whose number was last used with this generation.
    pub fn free(generation: u32) -> Self {
        let raw = RawInode { generation: generation.into(), ..RawInode::new_zeroed() };
        Self::from_raw(raw)
    }

    /// Returns the record with these bytes, of which zeros at the end may be left out, as in the
    /// log. `None` if they are too few or too many.
    pub fn from_log(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < FIELDS_BYTES {
            return None;
        }
        let mut record = [0; RECORD_BYTES];
        record.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(record))
    }

    /// Returns whether the inode is free.
    pub fn is_free(&self) -> bool {
        self.raw().mode == 0
    }

    /// Returns the generation, which tells the inode from earlier ones of the same number.
    pub fn generation(&self) -> u32 {
        self.raw().generation.get()
    }

    pub(crate) fn raw(&self) -> &RawInode {
        transmute_ref!(&self.0)
    }

    /// Returns the record, with its checksum computed.
    pub(crate) fn from_raw(raw: RawInode) -> Self {
        let mut record = Self(zerocopy::transmute!(raw));
        record.seal();
        record
    }

    /// Computes the checksum and stores it, whatever the other bytes are.
    pub fn seal(&mut self) {
        let checksum = self.computed_checksum();
        let raw: &mut RawInode = transmute_mut!(&mut self.0);
        raw.checksum = checksum.into();
    }

    /// Checks that the inode is in use, and its checksum is right.
    pub(crate) fn verify(&self) -> Result<(), InodeFault> {
        let (found, computed) = (self.raw().checksum.get(), self.computed_checksum());
        if self.is_free() && self.is_whole() {
            Err(InodeFault::Free)
        } else if found == computed {
            Ok(())
        } else {
            Err(InodeFault::Checksum { found, computed })
        }
    }

    /// Returns whether the checksum is right, or the inode was never used.
    pub(crate) fn is_whole(&self) -> bool {
        self.raw().checksum.get() == self.computed_checksum() || self.0 == [0; RECORD_BYTES]
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

/// Checks a block of inodes as [`Block::verify`] does, but accepts a wrong checksum if everything
/// else in the header is right. For recovery, before it puts a record in and seals the block.
///
/// # Errors
/// Returns any error of [`Block::verify`] but that of the checksum.
pub fn verify_torn(block: &Block, identity: &Identity) -> Result<(), Damage> {
    let header = block.header();
    let is_it = header.magic == identity.magic
        && header.address == identity.address
        && header.owner == identity.owner
        && header.volume == identity.volume;
    if is_it { Ok(()) } else { block.verify(identity) }
}

/// Returns the records of a block of inodes.
pub fn records(block: &Block) -> &[InodeRecord; INODES_PER_BLOCK as usize] {
    let body: &RawInodeBlock = transmute_ref!(block.body());
    &body.records
}

/// Returns the records of a block of inodes, mutably.
pub fn records_mut(block: &mut Block) -> &mut [InodeRecord; INODES_PER_BLOCK as usize] {
    let body: &mut RawInodeBlock = transmute_mut!(block.body_mut());
    &mut body.records
}

/// Returns the bytes of a block that the record in a slot has.
pub const fn bytes_of(slot: usize) -> Range<usize> {
    let begin = HEADER_BYTES + slot * RECORD_BYTES;
    begin..begin + RECORD_BYTES
}

/// Replaces each record of a block that has bytes in `lost` by that of a free inode of this
/// generation. Returns the slots of the replaced records.
pub fn clear_lost(block: &mut Block, lost: &Range<usize>, generation: u32) -> Vec<usize> {
    let is_lost = |slot: &usize| {
        let bytes = bytes_of(*slot);
        bytes.start < lost.end && lost.start < bytes.end
    };
    let slots: Vec<_> = (0..INODES_PER_BLOCK as usize).filter(is_lost).collect();
    for slot in &slots {
        records_mut(block)[*slot] = InodeRecord::free(generation);
    }
    slots
}

/// Returns the address of the block with the record of an inode.
pub const fn block_of(ino: u64) -> u64 {
    ino / INODES_PER_BLOCK
}

/// Returns the slot of an inode's record in its block.
pub const fn slot_of(ino: u64) -> usize {
    (ino % INODES_PER_BLOCK) as usize
}

/// Returns the first block of the chunk of a block of inodes: its owner.
pub const fn chunk_of(block: u64) -> u64 {
    block - block % CHUNK_BLOCKS
}

/// Returns the number of the inode in a slot of a block.
pub const fn ino_at(block: u64, slot: usize) -> u64 {
    block * INODES_PER_BLOCK + slot as u64
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
