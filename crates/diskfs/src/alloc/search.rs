//! The bounds and the result of a search in an index.

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search<T> {
    /// Something was found, and taken.
    Taken(T),
    /// A zone, by its number, that is to be loaded before the search is repeated.
    Load(usize),
    /// There is nothing, as far as it was to look.
    Nothing,
}

/// The bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Zones that are loaded.
    Loaded,
    /// These, and others where there may be something better.
    Better,
    /// All zones, until there is something that will do.
    Anything,
}
