//! The bounds and the result of a search in an index.

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
