//! The interface through which a tree gets its blocks.

use std::fmt;
use std::ops::Deref;

use crate::base::fault::Fault;
use crate::format::{Block, Damage, Expected};

/// Error of a call on a tree, which has left the tree unchanged.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error<E> {
    /// Damage on disk.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// A failure to get blocks: an error of the device, no space, a journal that was shut down.
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

/// The blocks of a volume, as trees see them: for reading, and for changing within a transaction.
///
/// # What an implementation promises
///
/// * A block from the device is [verified](Block::verify) and then given to [`Expected::check`]
///   before it is returned for the first time.
/// * A block that [`allocate`](Self::allocate) returns has its header (it was
///   [sealed](Block::seal)): code that reads it from memory finds its identity. The code that
///   writes it to the device seals it again.
/// * Preparation ([`writable`](Self::writable), [`freeable`](Self::freeable)) has no visible
///   effect; it may be repeated for the same block. It lasts until the transaction ends.
/// * [`edit`](Self::edit), [`free`](Self::free) and [`cancel`](Self::cancel) can't fail for a slot
///   that was prepared for them.
///
/// A tree that allocation itself needs, such as that of free space, has an implementation that
/// allocates from blocks set aside.
pub trait Nodes {
    /// The error of a failure to get blocks.
    type Error: fmt::Display;
    /// A block that is being read. The block does not change while a reference to it exists.
    type Ref<'a>: Deref<Target = Block>
    where
        Self: 'a;
    /// A block that may be changed in this transaction.
    type Slot: Copy;

    /// Returns whether a block at this address can be in a tree at all: it is in the volume, and
    /// not reserved.
    fn is_possible(&self, address: u64) -> bool;

    /// Returns whether the run is not empty and files can have all its blocks.
    fn is_for_data(&self, start: u64, blocks: u64) -> bool;

    /// Reads the block at an address that [is possible](Self::is_possible). May sleep for I/O.
    ///
    /// # Errors
    /// Returns [`Error`] if the block is damaged or can't be read.
    fn read(&self, address: u64, expected: &Expected) -> Result<Self::Ref<'_>, Error<Self::Error>>;

    /// Prepares the block for [`edit`](Self::edit). May sleep for I/O.
    ///
    /// # Errors
    /// Returns [`Error`] if the block is damaged or can't be read, or the transaction can't take
    /// it.
    fn writable(
        &mut self,
        address: u64,
        expected: &Expected,
    ) -> Result<Self::Slot, Error<Self::Error>>;

    /// Prepares the block for [`edit`](Self::edit) and [`free`](Self::free). May sleep for I/O.
    ///
    /// # Errors
    /// Returns [`Error`] if the block is damaged or can't be read, or the transaction can't take
    /// it.
    fn freeable(
        &mut self,
        address: u64,
        expected: &Expected,
    ) -> Result<Self::Slot, Error<Self::Error>>;

    /// Allocates a block, as near to the address `hint` as possible, prepared for
    /// [`edit`](Self::edit) and [`cancel`](Self::cancel); its body is zero.
    ///
    /// # Errors
    /// Returns [`Error`], for example if there is no space.
    fn allocate(
        &mut self,
        hint: u64,
        expected: &Expected,
    ) -> Result<(u64, Self::Slot), Error<Self::Error>>;

    /// Returns the block, mutably.
    fn edit(&mut self, slot: Self::Slot) -> &mut Block;

    /// Frees the block, which is not used again after this.
    fn free(&mut self, slot: Self::Slot);

    /// Cancels the allocation of a block that was never part of the tree.
    fn cancel(&mut self, slot: Self::Slot);
}
