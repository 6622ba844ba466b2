//! The times of an inode that change.

use crate::inode::core::InodeCore;

/// Access and change times, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Last access.
    pub atime: i64,
    /// Last change of the data.
    pub mtime: i64,
    /// Last change of the inode.
    pub ctime: i64,
}

impl Times {
    /// Returns the times of an inode.
    #[must_use]
    pub fn of(core: &InodeCore) -> Self {
        Self { atime: core.atime, mtime: core.mtime, ctime: core.ctime }
    }

    /// Returns these times where they differ from `before`, and `taken` elsewhere.
    pub(super) fn since(self, before: Self, taken: Self) -> Self {
        let since = |new, before, taken| if new == before { taken } else { new };
        Self {
            atime: since(self.atime, before.atime, taken.atime),
            mtime: since(self.mtime, before.mtime, taken.mtime),
            ctime: since(self.ctime, before.ctime, taken.ctime),
        }
    }
}
