//! Addresses in a group, and the maximum size of its trees.

use std::ops::Range;

use crate::LogPlace;
use crate::btree::{Kind, Tree};
use crate::format::BlockRange;
use crate::format::geometry::{GROUP_BLOCKS_KEPT, Geometry};
use crate::format::group::{CHUNK_ROOT_AT, FREE_ROOT_AT, FreeSpace, HEADER_AT, InodeChunks};
use crate::format::inode::CHUNK_BLOCKS;

/// The addresses of the structures of a group. A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    group: u32,
    blocks: Range<u64>,
    /// The blocks of the log that are in this group; an empty range if there are none.
    log: Range<u64>,
}

impl Layout {
    /// Creates the layout of group `group`; `None` if there is no such group.
    #[must_use]
    pub fn new(geometry: Geometry, log: LogPlace, group: u32) -> Option<Self> {
        let blocks = geometry.blocks_of(group)?;
        let log = log_in(&blocks, log);
        Some(Self { group, blocks, log })
    }

    /// Returns the layout of this group at full size.
    pub(super) fn full(&self, geometry: Geometry, log: LogPlace) -> Self {
        let blocks = self.blocks.start..self.blocks.start + geometry.group_blocks();
        let log = log_in(&blocks, log);
        Self { group: self.group, blocks, log }
    }

    /// Returns the layout limited to the first `blocks` blocks of the group.
    #[must_use]
    pub fn with_blocks(self, blocks: u64) -> Self {
        let end = self.blocks.end.min(self.blocks.start.saturating_add(blocks));
        Self { blocks: self.blocks.start..end, ..self }
    }

    /// Returns the number of the group.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Returns the block range of the group.
    #[must_use]
    pub fn blocks(&self) -> Range<u64> {
        self.blocks.clone()
    }

    /// Returns the address of the header.
    #[must_use]
    pub fn header(&self) -> u64 {
        self.blocks.start + HEADER_AT
    }

    /// Returns the tree of free space.
    #[must_use]
    pub fn free_tree(&self) -> Tree<FreeSpace> {
        Tree::at(self.blocks.start + FREE_ROOT_AT, self.group.into())
    }

    /// Returns the tree of chunks of inodes.
    #[must_use]
    pub fn chunk_tree(&self) -> Tree<InodeChunks> {
        Tree::at(self.blocks.start + CHUNK_ROOT_AT, self.group.into())
    }

    /// Lists the runs that can be used for anything: all blocks but the reserved ones and the log.
    pub fn usable(&self) -> impl Iterator<Item = BlockRange> + use<> {
        let start = self.blocks.start + GROUP_BLOCKS_KEPT;
        let before = start..self.log.start.max(start);
        let behind = self.log.end.max(start)..self.blocks.end;
        [before, behind].into_iter().filter(|run| !run.is_empty()).map(|run| {
            // A group has 2 to the power of 26 blocks at most.
            BlockRange::new(run.start, (run.end - run.start) as u32)
        })
    }

    /// Returns the number of blocks that can be used for anything.
    #[must_use]
    pub fn usable_blocks(&self) -> u64 {
        self.usable().map(BlockRange::len).sum()
    }

    /// Returns whether the run is not empty and all of its blocks can be used for anything.
    #[must_use]
    pub fn is_usable(&self, start: u64, blocks: u64) -> bool {
        let fits = |run: BlockRange| {
            start >= run.start && start < run.end() && blocks <= run.end() - start
        };
        blocks > 0 && self.usable().any(fits)
    }

    /// Returns whether a chunk of inodes can begin at this block.
    #[must_use]
    pub fn is_chunk(&self, start: u64) -> bool {
        start.is_multiple_of(CHUNK_BLOCKS) && self.is_usable(start, CHUNK_BLOCKS)
    }

    /// Returns whether a block can be one of the group's trees.
    #[must_use]
    pub fn is_node(&self, address: u64) -> bool {
        let roots = [self.free_tree().root(), self.chunk_tree().root()];
        roots.contains(&address) || self.is_usable(address, 1)
    }

    /// Returns the maximum number of blocks that both trees can ever have together, without their
    /// roots, for any order of claims and frees.
    ///
    /// Free runs don't touch each other, so there is at most one for every second block; chunks
    /// have eight blocks each. Each block of a tree, except two at the edges of each level, has at
    /// least a third of the records it has room for.
    #[must_use]
    pub fn tree_blocks_max(&self) -> u64 {
        let usable = self.usable_blocks();
        shape_max::<FreeSpace>(usable.div_ceil(2)).0
            + shape_max::<InodeChunks>(usable / CHUNK_BLOCKS).0
    }

    /// Returns the maximum number of levels that one of the trees can ever have.
    #[must_use]
    pub fn levels_max(&self) -> u64 {
        let usable = self.usable_blocks();
        let [free, chunks] = [
            shape_max::<FreeSpace>(usable.div_ceil(2)),
            shape_max::<InodeChunks>(usable / CHUNK_BLOCKS),
        ];
        free.1.max(chunks.1)
    }
}

/// Returns the part of the log that lies in these blocks.
fn log_in(blocks: &Range<u64>, log: LogPlace) -> Range<u64> {
    match log {
        LogPlace::Inside { start, blocks: count } if blocks.contains(&start) => {
            start..start.saturating_add(count).min(blocks.end)
        }
        LogPlace::Inside { .. } | LogPlace::Outside { .. } => blocks.start..blocks.start,
    }
}

/// Returns the maximum number of blocks, without the root, and of levels of a tree that never has
/// more than `records` records.
fn shape_max<K: Kind>(records: u64) -> (u64, u64) {
    let (mut here, mut blocks, mut levels) = (records, 0, 1);
    let mut room = Tree::<K>::LEAF_RECORDS_MAX as u64;
    // A root gets blocks below it only when it has no room for another record.
    while here > room {
        here = here / (room / 3) + 2;
        blocks += here;
        levels += 1;
        room = Tree::<K>::BRANCH_RECORDS_MAX as u64;
    }
    (blocks, levels)
}

#[cfg(test)]
mod tests;
