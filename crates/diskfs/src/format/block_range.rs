//! A range of blocks.

use std::ops::Range;

/// Consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRange {
    /// The address of the first block.
    pub start: u64,
    /// Number of blocks.
    pub blocks: u32,
}

impl BlockRange {
    /// Returns the run of one block.
    pub const fn one(address: u64) -> Self {
        Self { start: address, blocks: 1 }
    }

    /// Returns the address after the last block; `u64::MAX` for a run that no volume has.
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.blocks as u64)
    }

    /// Returns the run of `blocks` blocks from `start` on.
    pub const fn new(start: u64, blocks: u32) -> Self {
        Self { start, blocks }
    }

    /// Returns the range of addresses.
    pub const fn range(self) -> Range<u64> {
        self.start..self.end()
    }

    /// Returns the number of blocks.
    pub const fn len(self) -> u64 {
        self.blocks as u64
    }

    /// Returns whether the run is empty. An allocated run has at least one block, and lies in one
    /// group.
    pub const fn is_empty(self) -> bool {
        self.blocks == 0
    }
}
