//! Where a tree's blocks come from.

use std::ops::Deref;

use crate::base::fault::Fault;
use crate::format::{Block, Damage, Expected};

/// Why a call on a tree failed. The tree is as it was.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error<E> {
    /// Something on disk is wrong.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The blocks can't be had: an error of the device, no space, a journal that was shut down.
    #[error("{0}")]
    Nodes(E),
}

impl From<Error<Self>> for Fault {
    fn from(error: Error<Self>) -> Self {
        match error {
            Error::Damage(damage) => Self::Damage(damage),
            Error::Nodes(fault) => fault,
        }
    }
}

impl From<Fault> for Error<Fault> {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Damage(damage) => Self::Damage(damage),
            fault => Self::Nodes(fault),
        }
    }
}

/// The blocks of a volume, as a tree sees them: for reading, and for changing within a transaction.
///
/// # What an implementation promises
///
/// * A block from the device is [verified](Block::verify) and then given to [`Expected::check`]
///   before it is returned for the first time.
/// * A block that [`allocate`](Self::allocate) returns has its header (it was
///   [sealed](Block::seal)), so that what reads it from memory finds who it is. Whoever writes it
///   to the device seals it again.
/// * Preparing ([`writable`](Self::writable), [`freeable`](Self::freeable)) changes nothing that
///   can be seen; it may be done more than once for the same block. What was prepared stays so
///   until the transaction ends.
/// * [`edit`](Self::edit), [`free`](Self::free) and [`cancel`](Self::cancel) can't fail for a slot
///   that was prepared for them.
///
/// A tree that allocation itself needs, such as that of free space, has an implementation that
/// allocates from blocks set aside.
pub trait Nodes {
    /// Why blocks can't be had.
    type Error;
    /// A block that is being read. While there is one the block does not change.
    type Ref<'a>: Deref<Target = Block>
    where
        Self: 'a;
    /// A block that may be changed in this transaction.
    type Slot: Copy;

    /// Whether a block at this address can be in a tree at all: it is in the volume, and not in
    /// what is kept for other things.
    fn is_possible(&self, address: u64) -> bool;

    /// Whether files can have all blocks of a run, and there is one.
    fn is_for_data(&self, start: u64, blocks: u64) -> bool;

    /// The block at an address that [is possible](Self::is_possible). May sleep for I/O.
    ///
    /// # Errors
    /// [`Error`].
    fn read(&self, address: u64, expected: &Expected) -> Result<Self::Ref<'_>, Error<Self::Error>>;

    /// Prepares the block for [`edit`](Self::edit). May sleep for I/O.
    ///
    /// # Errors
    /// [`Error`].
    fn writable(
        &mut self,
        address: u64,
        expected: &Expected,
    ) -> Result<Self::Slot, Error<Self::Error>>;

    /// Prepares the block for [`edit`](Self::edit) and [`free`](Self::free). May sleep for I/O.
    ///
    /// # Errors
    /// [`Error`].
    fn freeable(
        &mut self,
        address: u64,
        expected: &Expected,
    ) -> Result<Self::Slot, Error<Self::Error>>;

    /// A new block, as near to the address `hint` as possible, prepared for [`edit`](Self::edit)
    /// and [`cancel`](Self::cancel); its body is zero.
    ///
    /// # Errors
    /// [`Error`], no space among others.
    fn allocate(
        &mut self,
        hint: u64,
        expected: &Expected,
    ) -> Result<(u64, Self::Slot), Error<Self::Error>>;

    /// The block, to be changed.
    fn edit(&mut self, slot: Self::Slot) -> &mut Block;

    /// Frees the block. It is not used again after this.
    fn free(&mut self, slot: Self::Slot);

    /// Takes an allocation back whose block was never part of the tree.
    fn cancel(&mut self, slot: Self::Slot);
}
