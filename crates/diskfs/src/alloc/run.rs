//! What groups need to know of runs.

use std::ops::Range;

use crate::Run;

impl Run {
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

    /// Whether there is no block in it. A run that is handed out has one at least, and lies in one group.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.blocks == 0
    }
}
