//! A difference between two branches.

use std::path::{Path, PathBuf};

use super::compare::Changes;

/// A difference between two branches, by its path from the root of the volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The path in the second branch; of what is removed, the one in the first.
    pub path: PathBuf,
    /// The kind.
    pub kind: DifferenceKind,
    /// Type and permission bits of what `path` is in that branch, as in `st_mode`.
    pub mode: u32,
    /// Its length in bytes; 0 of a directory.
    pub size: u64,
}

impl Difference {
    /// Returns the path, and that before a move.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let from = match &self.kind {
            DifferenceKind::Moved { from } => Some(&**from),
            _ => None,
        };
        [&*self.path].into_iter().chain(from)
    }
}

/// The kind of a [`Difference`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DifferenceKind {
    /// Only the second branch has it.
    Added,
    /// The second branch does not have it.
    Removed,
    /// The two branches have different files there, of which the other one has neither at another
    /// path: for example one that a program has written anew and renamed to this name.
    Replaced,
    /// The first branch has it at another path. What is below a directory that was moved is not
    /// told, unless it was moved by itself.
    Moved {
        /// The path in the first branch.
        from: PathBuf,
    },
    /// The two branches have different versions of it.
    Changed(Changes),
}

/// A difference, with the numbers of the inodes in both branches.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Told {
    pub(super) difference: Difference,
    pub(super) old: Option<u64>,
    pub(super) new: Option<u64>,
}
