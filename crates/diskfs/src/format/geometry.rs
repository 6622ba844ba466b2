//! Geometry: the division of a volume into allocation groups.
//!
//! # Allocation groups
//!
//! Each group has its own locks, so threads that allocate in different groups share nothing. A
//! volume should have more groups than CPUs, and each should be large enough to hold the largest
//! files contiguously: about 32 per volume. All groups have the same size, a power of two of
//! blocks, but the last, which ends with the volume. The size is chosen when the volume is made:
//! growing adds groups.
//!
//! | volume | group |
//! | --- | --- |
//! | up to 128 MiB | 4 MiB |
//! | larger | the first power of two from 1/32 of the volume on |
//! | from 8 TiB on | 256 GiB |
//!
//! The first blocks of each group are reserved for its own metadata; the very first for the
//! superblock or a copy of it. A search therefore finds the copies even if the size of groups is
//! not known: at a power of two.

use std::ops::Range;

/// Minimum size of a volume, in blocks: 16 MiB.
pub const VOLUME_BLOCKS_MIN: u64 = 1 << 12;
/// Maximum size of a volume, in blocks: 16 TiB.
pub const VOLUME_BLOCKS_MAX: u64 = 1 << 32;
/// Minimum size of a group, as a power of two of blocks: 4 MiB.
pub const GROUP_LOG2_MIN: u8 = 10;
/// Maximum size of a group, as a power of two of blocks: 256 GiB.
pub const GROUP_LOG2_MAX: u8 = 26;
/// Minimum size of the last group, in blocks: 1 MiB. Fewer are left unused.
pub const LAST_GROUP_BLOCKS_MIN: u64 = 256;
/// Number of reserved blocks at the start of each group, which no file gets.
pub const GROUP_BLOCKS_KEPT: u64 = 8;
/// Number of groups that begin with the superblock or a copy of it: the first three.
pub const COPIES: u32 = 3;

/// The number of groups that a volume is divided into, approximately.
const GROUPS_WANTED: u64 = 32;

/// A size that a volume can't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Less than the smallest volume.
    #[error("{} KiB are too few: a volume has {} MiB at least", .blocks * 4, VOLUME_BLOCKS_MIN / 256)]
    TooSmall {
        /// The size, in blocks.
        blocks: u64,
    },
    /// Less than the volume has.
    #[error("{blocks} blocks of 4 KiB are fewer than the {now} it has: a volume does not shrink")]
    Shrinks {
        /// The requested size, in blocks.
        blocks: u64,
        /// The current size, in blocks.
        now: u64,
    },
    /// More than the largest volume.
    #[error("{blocks} blocks of 4 KiB are too many: a volume has {VOLUME_BLOCKS_MAX} at most")]
    TooLarge {
        /// The size, in blocks.
        blocks: u64,
    },
    /// Groups that are too small, too large, or fewer than four.
    #[error("groups of 2 to the power of {log2} blocks don't go with a volume of {blocks}")]
    Groups {
        /// The size of the volume, in blocks.
        blocks: u64,
        /// The size of a group, as a power of two of blocks.
        log2: u8,
    },
}

/// The division of a volume into groups; always a valid one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    blocks: u64,
    group_log2: u8,
}

impl Geometry {
    /// Returns the division of a volume on a device of `blocks` blocks. A remainder too small for a
    /// group is left out.
    ///
    /// # Errors
    /// Returns [`SizeError::TooSmall`] or [`SizeError::TooLarge`].
    pub fn for_blocks(blocks: u64) -> Result<Self, SizeError> {
        // 2 to the power of 64 does not fit 64 bits; such sizes are rejected below.
        let wanted = (blocks / GROUPS_WANTED).checked_next_power_of_two().unwrap_or(1 << 63);
        let log2 = (wanted.trailing_zeros() as u8).clamp(GROUP_LOG2_MIN, GROUP_LOG2_MAX);
        Self::new(blocks, log2)
    }

    /// Returns the division into groups of 2 to the power of `group_log2` blocks, at least four.
    ///
    /// # Errors
    /// Returns [`SizeError`] if a volume can't have that size or such groups.
    pub fn new(blocks: u64, group_log2: u8) -> Result<Self, SizeError> {
        if blocks < VOLUME_BLOCKS_MIN {
            return Err(SizeError::TooSmall { blocks });
        }
        if blocks > VOLUME_BLOCKS_MAX {
            return Err(SizeError::TooLarge { blocks });
        }
        let error = Err(SizeError::Groups { blocks, log2: group_log2 });
        if !(GROUP_LOG2_MIN..=GROUP_LOG2_MAX).contains(&group_log2) {
            return error;
        }
        let rest = blocks % (1 << group_log2);
        let blocks = if rest < LAST_GROUP_BLOCKS_MIN { blocks - rest } else { blocks };
        let geometry = Self { blocks, group_log2 };
        if geometry.groups() < 4 { error } else { Ok(geometry) }
    }

    /// Returns the size of the volume, in blocks.
    pub const fn blocks(self) -> u64 {
        self.blocks
    }

    /// Returns the size of the volume, in bytes.
    pub const fn bytes(self) -> u64 {
        crate::format::byte_of_block(self.blocks)
    }

    /// Returns the size of every group but the last, in blocks.
    pub const fn group_blocks(self) -> u64 {
        1 << self.group_log2
    }

    /// Returns the size of every group but the last, as a power of two of blocks.
    pub const fn group_log2(self) -> u8 {
        self.group_log2
    }

    /// Returns the number of groups: four to four million.
    pub const fn groups(self) -> u32 {
        // At most 32 bits of blocks, and at least 10 in a group.
        self.blocks.div_ceil(self.group_blocks()) as u32
    }

    /// Returns the group of a block; `None` outside of the volume.
    pub fn group_of(self, block: u64) -> Option<u32> {
        (block < self.blocks).then_some((block >> self.group_log2) as u32)
    }

    /// Returns the blocks of a group; `None` if there is no such group.
    pub fn blocks_of(self, group: u32) -> Option<Range<u64>> {
        let start = u64::from(group) << self.group_log2;
        (group < self.groups()).then(|| start..self.blocks.min(start + self.group_blocks()))
    }

    /// Returns the addresses of the superblock and its copies, in blocks, the superblock first.
    pub fn copies(self) -> impl Iterator<Item = u64> {
        (0..COPIES).map(move |copy| u64::from(copy) << self.group_log2)
    }

    /// Returns the division after growing to a device of `blocks` blocks, with groups of the same
    /// size.
    ///
    /// # Errors
    /// Returns [`SizeError::TooLarge`], or [`SizeError::Shrinks`] if that were less than now.
    pub fn grown(self, blocks: u64) -> Result<Self, SizeError> {
        if blocks < self.blocks {
            return Err(SizeError::Shrinks { blocks, now: self.blocks });
        }
        Self::new(blocks, self.group_log2)
    }
}

#[cfg(test)]
mod tests;
