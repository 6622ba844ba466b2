//! The check of a block that is read.

use super::{Block, Damage, Magic};

/// The properties that a block of a tree must have.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The magic.
    pub magic: Magic,
    /// The owner.
    pub owner: u64,
    /// The check of the contents of a block read from the device, after that of its header; the
    /// first argument is the block's address. It runs once for as long as the block is in memory.
    pub check: fn(u64, &Block) -> Result<(), Damage>,
}
