//! Blocks that say what they are.
//!
//! Disks return the wrong bytes in more ways than one: some bits flip, a write is lost and the old
//! block is still there, a write goes astray and lands in another block, an old volume's blocks
//! come to light in a new one. A checksum alone finds the first only. So a block of metadata also
//! carries what it is, where it belongs, to whom, in which volume, and the log position of its last
//! change: a log that ends before that is an older state of the volume's log (as in XFS version 5).
//! The headers of groups are asked for theirs before a log is replayed; the places of other blocks
//! may hold data of files, which can be made to say anything.
//!
//! The checksum is CRC-32C of the whole block, with its own four bytes as zeros.

use std::fmt;
use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::uuid::Uuid;
use super::{BLOCK_BYTES, Damage};

/// Four letters that a kind of block begins with.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Magic(pub [u8; 4]);

impl fmt::Display for Magic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == [0; 4] {
            f.write_str("nothing")
        } else {
            write!(f, "{}", self.0.escape_ascii())
        }
    }
}

impl fmt::Debug for Magic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Magic({self})")
    }
}

/// What every block of metadata begins with, on disk.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// What kind of block it is.
    pub magic: Magic,
    /// CRC-32C of the block, with this field as zero.
    pub checksum: U32,
    /// Its own place in the volume, in blocks.
    pub address: U64,
    /// What it belongs to: an inode, a group, or which copy it is, by kind.
    pub owner: U64,
    /// The volume.
    pub volume: Uuid,
    /// The log position of its last change; 0 before the first.
    pub lsn: U64,
}

/// The bytes of a header.
pub const HEADER_BYTES: usize = 48;
/// The bytes of a block behind its header.
pub const BODY_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(offset_of!(Header, magic) == 0 && offset_of!(Header, checksum) == 4);
    assert!(offset_of!(Header, address) == 8 && offset_of!(Header, owner) == 16);
    assert!(offset_of!(Header, volume) == 24 && offset_of!(Header, lsn) == 40);
    assert!(size_of::<Block>() == BLOCK_BYTES && align_of::<Block>() == 64);
    assert!(size_of::<AlignedBlock>() == BLOCK_BYTES && align_of::<AlignedBlock>() == BLOCK_BYTES);
};

/// What a block must say that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The kind.
    pub magic: Magic,
    /// Its place in the volume, in blocks.
    pub address: u64,
    /// What it belongs to.
    pub owner: u64,
    /// The volume.
    pub volume: Uuid,
}

/// A block of metadata in memory. Begins with a line, so that a counted one takes no more than a
/// line beside it: at an address that direct I/O takes it would take two blocks.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Block {
    header: Header,
    body: [u8; BODY_BYTES],
}

/// A block at an address that direct I/O takes, for who writes it.
#[repr(C, align(4096))]
pub(crate) struct AlignedBlock(pub(crate) Block);

impl Block {
    /// A block of zeros.
    #[must_use]
    pub fn zeroed() -> Box<Self> {
        // Falls back to what stops the program as every other lack of memory does.
        Self::new_box_zeroed().unwrap_or_else(|_| Box::new(Self::new_zeroed()))
    }

    /// What it says it is, which is not to be believed before [`verify`](Self::verify).
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What it holds.
    #[must_use]
    pub fn body(&self) -> &[u8; BODY_BYTES] {
        &self.body
    }

    /// What it holds, to be changed; [`seal`](Self::seal) comes after that.
    pub fn body_mut(&mut self) -> &mut [u8; BODY_BYTES] {
        &mut self.body
    }

    /// All of it, as it is written to the device.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// All of it, to be read into.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut_bytes()
    }

    /// Puts the header on, checksum included. Comes last before writing.
    pub fn seal(&mut self, identity: &Identity, lsn: u64) {
        let Identity { magic, address, owner, volume } = *identity;
        let (address, owner, lsn) = (address.into(), owner.into(), lsn.into());
        self.header = Header { magic, checksum: U32::ZERO, address, owner, volume, lsn };
        self.header.checksum = self.computed_checksum().into();
    }

    /// Checks that the block is whole and is what it should be. Comes first after reading.
    ///
    /// # Errors
    /// The first of these that is wrong: magic, checksum, volume, address, owner.
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
