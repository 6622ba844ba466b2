//! The sums over all groups, as the superblock records them when the log is closed.
//!
//! They spare an opening from reading the header of each group. They hold as long as no header has
//! changed since: the first transaction after an opening writes the superblock before it changes
//! anything, and so do growth and repairs. A program that does not know them retains their bytes,
//! but gives the superblock another generation, and so makes them invalid.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::geometry::Geometry;
use crate::format::inode::INODES_PER_BLOCK;

/// The sums over all groups of a volume without orphans, all of whose blocks are accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSums {
    /// Blocks that files can still have: free ones that no tree of a group may need.
    pub available: u64,
    /// Inodes of all chunks.
    pub inodes: u64,
    /// Inodes that are free.
    pub free_inodes: u64,
    /// Upper bound on the blocks of the trees of a group.
    pub trees: u64,
}

/// The sums on disk.
#[derive(Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawSums {
    /// The generation of the superblock that they were written with.
    pub(super) generation: U64,
    pub(super) available: U64,
    pub(super) inodes: U64,
    pub(super) free_inodes: U64,
    pub(super) trees: U64,
}

impl RawSums {
    /// Encodes sums for a superblock of this generation; zeros if there are none.
    pub(super) fn of(sums: Option<GroupSums>, generation: u64) -> Self {
        let Some(GroupSums { available, inodes, free_inodes, trees }) = sums else {
            return Self::default();
        };
        Self {
            generation: generation.into(),
            available: available.into(),
            inodes: inodes.into(),
            free_inodes: free_inodes.into(),
            trees: trees.into(),
        }
    }

    /// Decodes the sums of a superblock with this generation, whose log was closed with the
    /// generation `closed`. Returns `None` if they are not of it, or impossible.
    pub(super) fn decode(
        &self,
        generation: u64,
        closed: u64,
        geometry: Geometry,
    ) -> Option<GroupSums> {
        let sums = GroupSums {
            available: self.available.get(),
            inodes: self.inodes.get(),
            free_inodes: self.free_inodes.get(),
            trees: self.trees.get(),
        };
        let is_current = generation != 0 && [self.generation.get(), closed] == [generation; 2];
        let is_possible = sums.available <= geometry.blocks()
            && sums.inodes <= geometry.blocks().saturating_mul(INODES_PER_BLOCK)
            && sums.free_inodes <= sums.inodes;
        (is_current && is_possible).then_some(sums)
    }
}
