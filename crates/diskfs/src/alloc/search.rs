//! The bounds and the result of a search in an index.

use crate::format::BlockRange;

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search<T> {
    /// Blocks or an inode, which were found and taken.
    Taken(T),
    /// The number of a zone to be loaded before the search is repeated.
    Load(usize),
    /// Nothing found within the reach.
    Nothing,
}

/// Free runs that were found and taken for a discard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeRuns {
    /// The runs, in ascending order.
    pub runs: Vec<BlockRange>,
    /// The block from which the search is to continue.
    pub next: u64,
}

impl FreeRuns {
    /// Returns the number of blocks of the runs.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| run.len()).sum()
    }
}

/// The bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Loaded zones only.
    Loaded,
    /// Loaded zones, and others that may have something better.
    Better,
    /// All zones, until something is found.
    Anything,
}
