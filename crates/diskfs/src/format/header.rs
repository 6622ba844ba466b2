//! Self-describing blocks.
//!
//! A disk can return wrong bytes in several ways: bits flip; a write is lost, and the old block is
//! still there; a write goes astray and lands in another block; blocks of an old volume appear in a
//! new one. A checksum alone detects only the first. So a block of metadata also carries its kind,
//! its address, its owner, its volume, and the log position of its last change: a log that ends
//! before that position is an older state of the volume's log (as in XFS version 5). Recovery
//! checks the log position of the headers of groups before it replays a log. It does not check that
//! of other blocks, for their addresses may hold data of files, which can contain anything.
//!
//! The checksum is CRC-32C of the whole block, with its own four bytes as zeros.

use std::fmt;
use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::magic::Magic;
use super::uuid::Uuid;
use super::{BLOCK_BYTES, Damage};

/// The header of every block of metadata, on disk.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// The kind of block.
    pub magic: Magic,
    /// CRC-32C of the block, with this field as zero.
    pub checksum: U32,
    /// The address of the block, in blocks.
    pub address: U64,
    /// The owner: an inode, a group, or the number of a copy, by kind.
    pub owner: U64,
    /// The volume.
    pub volume: Uuid,
    /// The log position of its last change; 0 before the first.
    pub lsn: U64,
}

/// Size of a header, in bytes.
pub const HEADER_BYTES: usize = 48;
/// Granularity of the zeros at the end of a block, in bytes.
const LINE_BYTES: usize = 64;
/// Size of a block without its header, in bytes.
pub const BODY_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(offset_of!(Header, magic) == 0 && offset_of!(Header, checksum) == 4);
    assert!(offset_of!(Header, address) == 8 && offset_of!(Header, owner) == 16);
    assert!(offset_of!(Header, volume) == 24 && offset_of!(Header, lsn) == 40);
    // The least that an allocator returns.
    assert!(size_of::<Block>() == BLOCK_BYTES && align_of::<Block>() <= 8);
    assert!(size_of::<AlignedBlock>() == BLOCK_BYTES && align_of::<AlignedBlock>() == BLOCK_BYTES);
};

/// The identity that a block must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The kind.
    pub magic: Magic,
    /// The address, in blocks.
    pub address: u64,
    /// The owner.
    pub owner: u64,
    /// The volume.
    pub volume: Uuid,
}

/// A block of metadata in memory. Aligned no more than everything that an allocator returns, so a
/// counted block takes 16 bytes more than the block alone, and the memory of a dropped one fits the
/// next. Allocators look for aligned memory in larger pieces, and leave the dropped ones free: with
/// the alignment of a cache line, a third of the memory of a thousand open branches was that.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Block {
    header: Header,
    body: [u8; BODY_BYTES],
}

/// A block with the alignment of direct I/O, for writing.
#[repr(C, align(4096))]
pub(crate) struct AlignedBlock(pub(crate) Block);

impl Block {
    /// Returns a block of zeros.
    pub fn zeroed() -> Box<Self> {
        // On failure, allocates in the way that aborts the program, as every other lack of memory
        // does.
        Self::new_box_zeroed().unwrap_or_else(|_| Box::new(Self::new_zeroed()))
    }

    /// Returns the header, which is not to be trusted before [`verify`](Self::verify).
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the body: the contents after the header.
    pub fn body(&self) -> &[u8; BODY_BYTES] {
        &self.body
    }

    /// Returns the body, mutably. The caller [seals](Self::seal) the block after the change.
    pub fn body_mut(&mut self) -> &mut [u8; BODY_BYTES] {
        &mut self.body
    }

    /// Returns all bytes of the block, for writing it to the device.
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// Returns a number of bytes, a multiple of 64, behind which there are only zeros.
    pub fn bytes_used(&self) -> usize {
        let (lines, _) = self.bytes().as_chunks::<LINE_BYTES>();
        let is_empty = |line: &[u8; LINE_BYTES]| line.iter().fold(0, |all, byte| all | byte) == 0;
        BLOCK_BYTES - LINE_BYTES * lines.iter().rev().take_while(|line| is_empty(line)).count()
    }

    /// Returns all bytes of the block, mutably, for reading it from the device.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut_bytes()
    }

    /// Writes the header, checksum included: the last step before writing.
    pub fn seal(&mut self, identity: &Identity, lsn: u64) {
        let Identity { magic, address, owner, volume } = *identity;
        let (address, owner, lsn) = (address.into(), owner.into(), lsn.into());
        self.header = Header { magic, checksum: U32::ZERO, address, owner, volume, lsn };
        self.header.checksum = self.computed_checksum().into();
    }

    /// Writes the header like [`seal`](Self::seal), for a block that differs from `former` in known
    /// bytes, while others may have been read wrong in both: the checksum is right if that of
    /// `former` was right for what is on the device.
    pub fn seal_over(&mut self, former: &Self, identity: &Identity, lsn: u64) {
        self.seal(identity, lsn);
        // The checksum is linear: that of a difference is the difference of the checksums.
        let (now, before) = (self.header.checksum.get(), former.computed_checksum());
        self.header.checksum = (former.header.checksum.get() ^ before ^ now).into();
    }

    /// Checks the block against `identity` and its checksum: the first step after reading.
    ///
    /// # Errors
    /// Returns the first mismatch, in this order: magic, checksum, volume, address, owner.
    pub fn verify(&self, identity: &Identity) -> Result<(), Damage> {
        let (address, header) = (identity.address, &self.header);
        if header.magic != identity.magic {
            let (found, expected) = (header.magic, identity.magic);
            return Err(Damage::Magic { address, found, expected });
        }
        let (found, computed) = (header.checksum.get(), self.computed_checksum());
        if found != computed {
            return Err(Damage::Checksum { address, found, computed });
        }
        if header.volume != identity.volume {
            return Err(Damage::Volume { address, found: header.volume });
        }
        if header.address != address {
            return Err(Damage::Address { address, found: header.address.get() });
        }
        if header.owner != identity.owner {
            let (found, expected) = (header.owner.get(), identity.owner);
            return Err(Damage::Owner { address, found, expected });
        }
        Ok(())
    }

    fn computed_checksum(&self) -> u32 {
        const AT: usize = offset_of!(Header, checksum);
        let (before, rest) = self.as_bytes().split_at(AT);
        let (field, behind) = rest.split_at(size_of::<U32>());
        let zeros = [0; size_of::<U32>()];
        debug_assert_eq!(field.len(), zeros.len());
        crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(before), &zeros), behind)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("header", &self.header).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
