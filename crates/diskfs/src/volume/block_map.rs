//! The map of a volume: the blocks for metadata, and the blocks available to files.

use std::ops::Range;

use vfscale_sync::atomic::{AtomicU64, Ordering};

use crate::format::geometry::GROUP_BLOCKS_KEPT;
use crate::format::superblock::{LogPlace, Superblock};

/// The locations of metadata in a volume.
#[derive(Debug)]
pub(crate) struct Places {
    /// The number of blocks of the volume. Only grows.
    blocks: AtomicU64,
    group_blocks: u64,
    /// The blocks of the log; empty if the log is on another device.
    log: Range<u64>,
}

/// The blocks at the start of a group that are roots of trees.
const GROUP_ROOTS: Range<u64> = 2..4;
/// The block of a group with its header.
const GROUP_HEADER: u64 = 1;

impl Places {
    pub(crate) fn new(superblock: &Superblock) -> Self {
        let log = match superblock.log() {
            LogPlace::Inside { start, blocks } => start..start + blocks,
            LogPlace::Outside { .. } => 0..0,
        };
        let geometry = superblock.geometry();
        let (blocks, group_blocks) = (AtomicU64::new(geometry.blocks()), geometry.group_blocks());
        Self { blocks, group_blocks, log }
    }

    /// Records that the volume has grown to `blocks` blocks.
    pub(super) fn grow(&self, blocks: u64) {
        self.blocks.fetch_max(blocks, Ordering::AcqRel);
    }

    /// Iterates over the addresses of the group headers.
    pub(crate) fn headers(&self) -> impl Iterator<Item = u64> {
        let blocks = self.blocks.load(Ordering::Acquire);
        (0..blocks.div_ceil(self.group_blocks))
            .map(|group| group * self.group_blocks + GROUP_HEADER)
    }

    /// Returns the index within its group of a block that is in the volume and not in the log.
    fn in_group(&self, address: u64) -> Option<u64> {
        let blocks = self.blocks.load(Ordering::Acquire);
        let is_there = address < blocks && !self.log.contains(&address);
        is_there.then_some(address & (self.group_blocks - 1))
    }

    /// Returns whether the whole log lies between the blocks of a run.
    fn has_log_in(&self, run: &Range<u64>) -> bool {
        !self.log.is_empty() && run.start <= self.log.start && self.log.end <= run.end
    }

    /// Returns whether a run is not empty and all its blocks are available to files: it lies in one
    /// group, behind the group's own blocks, and does not overlap the log. Group sizes are powers
    /// of two, so checking both ends suffices.
    pub(crate) fn is_run_for_files(&self, start: u64, blocks: u64) -> bool {
        let Some(last) = start.checked_add(blocks).and_then(|end| end.checked_sub(1)) else {
            return false;
        };
        // The log lies in one group: a run that has neither end in the log may contain all of it.
        blocks > 0
            && (start ^ last) < self.group_blocks
            && self.is_for_files(start)
            && self.is_for_files(last)
            && !self.has_log_in(&(start..last + 1))
    }

    /// Returns whether this block is available to files.
    pub(crate) fn is_for_files(&self, address: u64) -> bool {
        self.in_group(address).is_some_and(|at| at >= GROUP_BLOCKS_KEPT)
    }

    /// Returns whether a block of a tree can be at this address.
    pub(crate) fn is_for_trees(&self, address: u64) -> bool {
        self.in_group(address)
            .is_some_and(|at| at >= GROUP_BLOCKS_KEPT || GROUP_ROOTS.contains(&at))
    }

    /// Returns whether a block that is logged as a whole can be at this address.
    pub(crate) fn is_for_metadata(&self, address: u64) -> bool {
        self.is_for_trees(address) || self.in_group(address) == Some(GROUP_HEADER)
    }
}
