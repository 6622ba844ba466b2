//! What can be had of a group, in memory.

use std::collections::BTreeMap;

use super::extents::FreeExtents;
use crate::Run;
use crate::format::inode::{CHUNK_BLOCKS, chunk_of};

/// What can be had of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    pub(super) free: FreeExtents,
    /// Blocks that the group's trees have: in them, set aside for them, or no longer set aside, as a
    /// transaction says that is not durable yet.
    pub(super) tree_total: u64,
    /// The most blocks that the trees can ever need.
    pub(super) tree_max: u64,
    /// By the first block of a chunk, which of its inodes can be had; none without any.
    pub(super) chunks: BTreeMap<u64, u64>,
    /// How many inodes can be had.
    pub(super) free_inodes: u64,
}

/// How many of `free` blocks can be had by files, when the trees have `tree_total` of the
/// `tree_max` that they may come to need.
pub(super) fn available(free: u64, tree_total: u64, tree_max: u64) -> u64 {
    free.saturating_sub(tree_max.saturating_sub(tree_total))
}

impl Index {
    /// How many blocks can be had by files.
    pub(super) fn available(&self) -> u64 {
        available(self.free.blocks(), self.tree_total, self.tree_max)
    }

    /// Takes `min` to `max` blocks, near a place if possible.
    pub(super) fn claim(&mut self, near: u64, min: u64, max: u64) -> Option<Run> {
        let max = max.min(self.available());
        if min == 0 || max < min {
            return None;
        }
        let run = self.free.find(near, min, max)?;
        self.free.remove(run.start, run.len()).then_some(run)
    }

    /// Takes blocks for a chunk of inodes.
    pub(super) fn claim_for_chunk(&mut self, near: u64) -> Option<Run> {
        if self.available() < CHUNK_BLOCKS {
            return None;
        }
        let run = self.free.find_aligned(near, CHUNK_BLOCKS as u32)?;
        self.free.remove(run.start, run.len()).then_some(run)
    }

    /// Takes up to `max` blocks for the trees. From the end of the longest run: taking that out of the
    /// tree of free space needs no further record, unless somebody else has claimed what is behind it.
    pub(super) fn claim_for_trees(&mut self, max: u64) -> Option<Run> {
        let (start, blocks) = self.free.longest()?;
        let taken = blocks.min(max);
        let run = Run::new(start + blocks - taken, u32::try_from(taken).ok()?);
        if run.is_empty() || !self.free.remove(run.start, taken) {
            return None;
        }
        self.tree_total += taken;
        Some(run)
    }

    /// Takes an inode, of the chunk that the block `near` is in or of one not far away: the chunk's first
    /// block, and which of its inodes.
    pub(super) fn claim_inode(&mut self, near: u64) -> Option<(u64, u32)> {
        let here = chunk_of(near);
        let behind = self.chunks.range(here..).next();
        let chunk = *behind.or_else(|| self.chunks.range(..here).next_back())?.0;
        let free = self.chunks.get_mut(&chunk)?;
        let bit = free.trailing_zeros();
        *free &= !(1 << bit);
        if *free == 0 {
            self.chunks.remove(&chunk);
        }
        self.free_inodes -= 1;
        Some((chunk, bit))
    }

    /// These inodes of a chunk can be had from now on.
    pub(super) fn add_inodes(&mut self, chunk: u64, free: u64) {
        if free != 0 {
            let mask = self.chunks.entry(chunk).or_default();
            self.free_inodes += u64::from((free & !*mask).count_ones());
            *mask |= free;
        }
    }

    /// Takes all inodes of a chunk that can be had, if these and those in `also` are all it has.
    pub(super) fn claim_chunk(&mut self, chunk: u64, also: u64) -> Option<u64> {
        let free = self.chunks.get(&chunk).copied().unwrap_or(0);
        if free | also != u64::MAX {
            return None;
        }
        self.chunks.remove(&chunk);
        self.free_inodes -= u64::from(free.count_ones());
        Some(free)
    }
}

#[cfg(test)]
mod tests;
