//! What groups need of blocks beyond what trees need.

use crate::btree::{Error, Nodes};
use crate::format::Expected;

/// Blocks at places that the caller has chosen: groups decide where blocks are, so they can't ask
/// for *any* block as trees do.
///
/// An implementation of [`Nodes`] for a whole volume is made of this:
/// [`allocate`](Nodes::allocate) claims a block and [creates](Self::create) it,
/// [`free`](Nodes::free) [destroys](Self::destroy) the block and notes in the transaction's
/// [`Changes`](super::Changes) that its place becomes free.
///
/// # What the caller promises
///
/// * The place belongs to the caller: nothing else uses it, on disk or in this transaction.
/// * It was not destroyed in the same transaction. It may have been destroyed in an earlier one
///   that is not durable yet. What shows the log the order of the two is that both change the
///   header of the group.
pub trait GroupNodes: Nodes {
    /// A new block at `address`, prepared for [`edit`](Nodes::edit) and for
    /// [`uncreate`](Self::uncreate); sealed, and its body is zero.
    ///
    /// # Errors
    /// [`Error`].
    fn create(
        &mut self,
        address: u64,
        expected: &Expected,
    ) -> Result<Self::Slot, Error<Self::Error>>;

    /// The block is not used any more: what the log has of it is cancelled. The slot was prepared
    /// by [`freeable`](Nodes::freeable). Its place stays with the caller.
    fn destroy(&mut self, slot: Self::Slot);

    /// Takes a creation back whose block was never used.
    fn uncreate(&mut self, slot: Self::Slot);

    /// The error for a group that has no blocks left for its own trees.
    fn no_space() -> Self::Error;
}
