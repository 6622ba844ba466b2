//! The mapping of a block of a file to the device.

use std::sync::Arc;

/// The mapping of a block of a file, and of those behind it to which it applies.
///
/// Where blocks are only reserved, for dirty pages, is a hole: the marks of the pages say so
/// ([`FilePages`](super::FilePages)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// No blocks.
    Hole {
        /// Number of blocks of the hole.
        blocks: u64,
    },
    /// Consecutive blocks of the device.
    Mapped {
        /// The first of them.
        start: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// Consecutive blocks of the device to which nothing was written yet: they read as zeros.
    Unwritten {
        /// The first of them.
        start: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// All bytes of a file that is stored in its inode. Zeros follow, up to its size. Only block 0
    /// is mapped so: those behind it are a hole.
    Inline(Arc<[u8]>),
}

impl Mapping {
    /// Returns the number of blocks of the file to which this applies: at least one.
    pub fn blocks(&self) -> u64 {
        match self {
            Self::Hole { blocks }
            | Self::Mapped { blocks, .. }
            | Self::Unwritten { blocks, .. } => (*blocks).max(1),
            Self::Inline(_) => 1,
        }
    }

    /// Returns whether the file has blocks here, written or not.
    pub fn has_blocks(&self) -> bool {
        matches!(self, Self::Mapped { .. } | Self::Unwritten { .. })
    }

    /// Returns whether the file has bytes here: all others read as zeros.
    pub fn has_bytes(&self) -> bool {
        matches!(self, Self::Mapped { .. } | Self::Inline(_))
    }
}
