//! Faults of the blocks of B+trees.

/// A fault in a block of a tree. Numbers begin with 200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: block {address}: {fault}", fault.number())]
pub struct TreeDamage {
    /// Address at which the block was read, in blocks.
    pub address: u64,
    /// The fault.
    pub fault: TreeFault,
}

/// Faults of a block of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeFault {
    /// 200: The level is not the one that follows from the parent or sibling block.
    #[error("at level {found} of a tree instead of {expected}")]
    Level {
        /// The level in the block.
        found: u16,
        /// The level that the block should have.
        expected: u16,
    },
    /// 201: More records than fit, or none where at least one is required.
    #[error("{found} records, of {least} to {most} that it may have")]
    Count {
        /// Number of records according to the block.
        found: u16,
        /// The minimum.
        least: u16,
        /// The maximum.
        most: u16,
    },
    /// 202: A record's key is not greater than that of the record before it.
    #[error("record {record} is not in order")]
    Order {
        /// The later record, from 0 on.
        record: u16,
    },
    /// 203: A key lies outside of the range that the parent or sibling block allows.
    #[error("record {record} belongs elsewhere in the tree")]
    Range {
        /// The record, from 0 on.
        record: u16,
    },
    /// 204: The link to the left does not point to the left sibling.
    #[error("its left neighbour is block {found} instead of {expected:?}")]
    Left {
        /// The link.
        found: u64,
        /// The correct target; 0 for none. `None`: any block but 0.
        expected: Option<u64>,
    },
    /// 205: The link to the right does not point to the right sibling.
    #[error("its right neighbour is block {found} instead of {expected:?}")]
    Right {
        /// The link.
        found: u64,
        /// The correct target; 0 for none. `None`: any block but 0.
        expected: Option<u64>,
    },
    /// 206: A child pointer to a block that no tree can have.
    #[error("leads to block {child}, which can't be in a tree")]
    Pointer {
        /// The address of the child.
        child: u64,
    },
    /// 207: A tree with more levels than any tree has.
    #[error("at level {level}, the highest is {highest}")]
    Height {
        /// The level.
        level: u16,
        /// The highest level of any tree.
        highest: u16,
    },
    /// 208: Fewer records than a block other than the root must have.
    #[error("{found} records, where blocks inside of a tree have {least}")]
    Fill {
        /// Number of records found.
        found: u16,
        /// The minimum.
        least: u16,
    },
    /// 209: The tree refers to the block a second time.
    #[error("is more than once in its tree")]
    Shared,
}

impl TreeFault {
    /// Returns the number of the fault.
    pub fn number(&self) -> u32 {
        match self {
            Self::Level { .. } => 200,
            Self::Count { .. } => 201,
            Self::Order { .. } => 202,
            Self::Range { .. } => 203,
            Self::Left { .. } => 204,
            Self::Right { .. } => 205,
            Self::Pointer { .. } => 206,
            Self::Height { .. } => 207,
            Self::Fill { .. } => 208,
            Self::Shared => 209,
        }
    }
}
