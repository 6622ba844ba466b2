//! The inodes that differ, for a user who goes on with the other side.

use std::collections::HashSet;

use vfscale_diskfs::{InodeCore, ROOT_INO};

use super::candidates::{Unclear, candidates};
use super::object::is_same;
use super::side::Side;

/// The inodes of a volume that are others after its contents were replaced, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Differing {
    /// Whether it is not known which inodes differ.
    is_unknown: bool,
    others: HashSet<u64>,
    changed: HashSet<u64>,
}

impl Differing {
    /// Compares the inodes of two sides. Blocks for the I/O; where the blocks do not tell what
    /// differs, everything does.
    pub(crate) fn of(before: &Side, after: &Side) -> Self {
        Self::told(before, after).unwrap_or_else(|Unclear| Self::all())
    }

    /// Returns that everything differs.
    pub(crate) fn all() -> Self {
        Self { is_unknown: true, ..Self::default() }
    }

    fn told(before: &Side, after: &Side) -> Result<Self, Unclear> {
        let mut differing = Self::default();
        for ino in candidates(before, after)? {
            let (one, other) = (before.volume().existing(ino)?, after.volume().existing(ino)?);
            let goes_on = match (&one, &other) {
                (None, None) => continue,
                (Some(one), Some(other)) => goes_on(ino, one, other),
                _ => false,
            };
            let into = if goes_on { &mut differing.changed } else { &mut differing.others };
            into.insert(ino);
        }
        Ok(differing)
    }

    /// Returns whether an open file of the inode can't go on: the inode does not exist any more, or
    /// is another one; or it is no directory, and anything differs but the time of its last access.
    /// The root goes on always.
    #[must_use]
    pub fn is_other(&self, ino: u64) -> bool {
        ino != ROOT_INO && (self.is_unknown || self.others.contains(&ino))
    }

    /// Returns whether the inode is the same one, but its attributes differ, or names in it.
    #[must_use]
    pub fn has_changed(&self, ino: u64) -> bool {
        self.changed.contains(&ino) || self.is_unknown && ino == ROOT_INO
    }
}

fn goes_on(ino: u64, one: &InodeCore, other: &InodeCore) -> bool {
    let is_equal = || InodeCore { atime: other.atime, ..one.clone() } == *other;
    is_same(ino, one, other) && (one.is_directory() || is_equal())
}
