//! Faults of the extents of files.

/// A fault in the extents of a file. Numbers begin with 700.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: inode {ino}: extent of block {file_block}: {fault}", fault.number())]
pub struct ExtentDamage {
    /// The file.
    pub ino: u64,
    /// The block of the file that the extent begins with; 0 if no extent can be identified.
    pub file_block: u64,
    /// The fault.
    pub fault: ExtentFault,
}

/// Faults of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentFault {
    /// 700: It does not begin after the first block of its predecessor in the list.
    #[error("is behind that of block {before}")]
    Order {
        /// The first block of the predecessor, in blocks of the file.
        before: u64,
    },
    /// 701: It overlaps its predecessor, or blocks that were about to be mapped.
    #[error("lies over another, which ends with block {end}")]
    Overlap {
        /// The first block of the file after the other extent.
        end: u64,
    },
    /// 702: It lies outside of the volume, or where no file can be.
    #[error("{blocks} blocks from {start} on, where no data can be")]
    Outside {
        /// The first block on the device.
        start: u64,
        /// Its length, in blocks.
        blocks: u32,
    },
    /// 703: It has no blocks.
    #[error("has no blocks")]
    Empty,
    /// 704: It extends past the last block that a file can have.
    #[error("{blocks} blocks, which is more than a file can have")]
    TooFar {
        /// Its length, in blocks.
        blocks: u32,
    },
    /// 705: A list that is malformed or too long.
    #[error("a list of {bytes} bytes")]
    List {
        /// Its length in bytes.
        bytes: usize,
    },
}

impl ExtentFault {
    /// Returns the number of the fault.
    pub fn number(&self) -> u32 {
        match self {
            Self::Order { .. } => 700,
            Self::Overlap { .. } => 701,
            Self::Outside { .. } => 702,
            Self::Empty => 703,
            Self::TooFar { .. } => 704,
            Self::List { .. } => 705,
        }
    }
}
