//! The check of a block that is read.

use super::{Block, Damage, Magic};

/// What a block of a tree must be.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The kind.
    pub magic: Magic,
    /// What it belongs to.
    pub owner: u64,
    /// What is to be checked of a block that comes from the device, beside its header; gets its
    /// address too. What is found here once need not be looked at again for as long as the block is
    /// in memory.
    pub check: fn(u64, &Block) -> Result<(), Damage>,
}
