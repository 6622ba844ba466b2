//! Transactions.

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
}

/// What a transaction may need at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Blocks and inodes that it may log.
    pub log_blocks: u32,
    /// Blocks that it may take from free space.
    pub space: u64,
    /// Whether they may come from what is kept back for removing and writing back.
    pub from_pool: bool,
}
