//! A range of blocks.

use std::ops::Range;

/// Consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The address of the first one.
    pub start: u64,
    /// How many there are.
    pub blocks: u32,
}

impl Run {
    /// One block.
    #[must_use]
    pub const fn one(address: u64) -> Self {
        Self { start: address, blocks: 1 }
    }

    /// The address behind the last block; the largest number for a run that no volume has.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.blocks as u64)
    }

    /// The run of `blocks` blocks from `start` on.
    #[must_use]
    pub const fn new(start: u64, blocks: u32) -> Self {
        Self { start, blocks }
    }

    /// All addresses.
    #[must_use]
    pub const fn range(self) -> Range<u64> {
        self.start..self.end()
    }

    /// How many blocks there are.
    #[must_use]
    pub const fn len(self) -> u64 {
        self.blocks as u64
    }

    /// Whether there is no block in it. A run that is handed out has one at least, and lies in one
    /// group.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.blocks == 0
    }
}
