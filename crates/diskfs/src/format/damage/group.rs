//! Faults of allocation groups.

/// A fault in a group. Numbers begin with 300.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("V{}: block {address}: {fault}", fault.number())]
pub struct GroupDamage {
    /// The header of the group, or the root of the faulty tree, in blocks.
    pub address: u64,
    /// The fault.
    pub fault: GroupFault,
}

/// Faults of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupFault {
    /// 300: Contradictory counters, or more blocks set aside than fit.
    #[error(
        "counters that no group has: {free} free blocks, {free_inodes} of {inodes} inodes free, \
         {orphans} orphans"
    )]
    Counts {
        /// Number of free blocks.
        free: u64,
        /// Number of inodes.
        inodes: u64,
        /// Number of free inodes.
        free_inodes: u64,
        /// Number of orphans.
        orphans: u64,
    },
    /// 301: A block that can't be set aside for the trees of this group, or is set aside twice.
    #[error("block {block} can't be set aside here")]
    SetAside {
        /// The block.
        block: u64,
    },
    /// 302: A free run that is empty, overlaps another, or has blocks that are never free in this
    /// group.
    #[error("{blocks} free blocks from {start} on, which can't be")]
    FreeRun {
        /// Its first block.
        start: u64,
        /// Its length, in blocks.
        blocks: u64,
    },
    /// 303: A chunk of inodes that overlaps another, lies where none can, or has orphans that are
    /// free.
    #[error("a chunk of inodes at block {start}, which can't be")]
    Chunk {
        /// Its first block.
        start: u64,
    },
    /// 304: Freed blocks are free already, or can't be free.
    #[error("{blocks} blocks from {start} on were in use, and the group says otherwise")]
    NotInUse {
        /// The first one.
        start: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// 305: Allocated blocks are not free.
    #[error("{blocks} blocks from {start} on were free, and the group says otherwise")]
    NotFree {
        /// The first one.
        start: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// 306: A free inode is in use, or an inode that is not in use is not free, or an inode is in
    /// no chunk.
    #[error("the group does not have inode {ino} as it is")]
    Inode {
        /// Its number.
        ino: u64,
    },
    /// 307: A counter does not match the trees.
    #[error("a counter of the group is not what its trees have")]
    Counter,
    /// 308: More blocks than the group has, or fewer than any group has.
    #[error("the group accounts for {blocks} blocks")]
    Size {
        /// Number of blocks that it accounts for.
        blocks: u64,
    },
}

impl GroupFault {
    /// Returns the number of the fault.
    pub fn number(&self) -> u32 {
        match self {
            Self::Counts { .. } => 300,
            Self::SetAside { .. } => 301,
            Self::FreeRun { .. } => 302,
            Self::Chunk { .. } => 303,
            Self::NotInUse { .. } => 304,
            Self::NotFree { .. } => 305,
            Self::Inode { .. } => 306,
            Self::Counter => 307,
            Self::Size { .. } => 308,
        }
    }
}
