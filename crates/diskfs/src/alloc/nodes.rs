//! The block operations that groups need beyond those of trees.

use std::sync::Arc;

use crate::btree::{Error, Nodes};
use crate::buffer::Buffer;
use crate::format::Expected;

/// Blocks at addresses that the caller has chosen: groups decide where blocks are, so they can't
/// allocate *any* block as trees do.
///
/// A [`Nodes`] for a whole volume is built on this trait: [`allocate`](Nodes::allocate) claims a
/// block and [creates](Self::create) it, [`free`](Nodes::free) [destroys](Self::destroy) the block
/// and notes in the transaction's [`Changes`](super::Changes) that its address becomes free.
///
/// # What the caller promises
///
/// * The caller owns the address: nothing else uses it, on disk or in this transaction.
/// * The block was not destroyed in the same transaction. It may have been destroyed in an earlier
///   one that is not durable yet. The log learns the order of the two transactions because both
///   change the header of the group.
pub trait GroupNodes: Nodes {
    /// Creates a block at `address`, prepared for [`edit`](Nodes::edit) and for
    /// [`uncreate`](Self::uncreate); it is sealed, and its body is zero.
    ///
    /// # Errors
    /// [`Error`].
    fn create(
        &mut self,
        address: u64,
        expected: &Expected,
    ) -> Result<Self::Slot, Error<Self::Error>>;

    /// Destroys a block that is no longer used: its log items are cancelled. The slot was prepared
    /// by [`freeable`](Nodes::freeable). The caller still owns the address.
    fn destroy(&mut self, slot: Self::Slot);

    /// Reverts the creation of a block that was never used.
    fn uncreate(&mut self, slot: Self::Slot);

    /// Returns the block at an address, which stays in memory as long as the result is held; `None`
    /// if blocks are always in memory. May sleep for I/O.
    ///
    /// # Errors
    /// [`Error`].
    fn hold(
        &self,
        address: u64,
        expected: &Expected,
    ) -> Result<Option<Arc<Buffer>>, Error<Self::Error>>;

    /// Returns the rest of the transaction's reservation of log space, in bytes of items: what it
    /// may set aside for delayed runs; 0 if it is to delay none.
    fn log_left(&self) -> u64 {
        u64::MAX
    }

    /// Returns whether the transaction must not fail because of a group that can't be read: such
    /// groups are [left out](super::left_out), and their freed blocks are forgotten.
    fn leaves_out(&self) -> bool {
        false
    }

    /// Returns whether an error is one of reading the blocks of a group.
    fn is_unreadable(_error: &Self::Error) -> bool {
        false
    }

    /// Returns the error for a group that has no blocks left for its own trees.
    fn no_space() -> Self::Error;
}
