//! Reading what is published.

use std::convert::Infallible;
use std::sync::Arc;

use super::Volume;
use crate::btree::{Error, Expected, Nodes};
use crate::fault::Fault;
use crate::format::Block;

/// The blocks of a volume as the last commits have left them. `Copy`, `Send` and `Sync`; costs
/// nothing to make.
///
/// Whoever reads a tree holds what owns it, at least shared: then no commit changes it meanwhile.
/// Calls that change fail with [`Fault::ReadOnly`].
#[derive(Clone, Copy, Debug)]
pub struct Reader<'v> {
    volume: &'v Volume,
}

impl<'v> Reader<'v> {
    pub(super) fn new(volume: &'v Volume) -> Self {
        Self { volume }
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &'v Volume {
        self.volume
    }
}

impl Nodes for Reader<'_> {
    type Error = Fault;
    type Ref<'a>
        = Arc<Block>
    where
        Self: 'a;
    type Slot = Infallible;

    fn is_possible(&self, address: u64) -> bool {
        self.volume.places.is_for_trees(address)
    }

    fn read(&self, address: u64, expected: &Expected) -> Result<Arc<Block>, Error<Fault>> {
        Ok(self.volume.cache.read(address, expected)?)
    }

    fn writable(&mut self, _: u64, _: &Expected) -> Result<Infallible, Error<Fault>> {
        Err(Error::Nodes(Fault::ReadOnly))
    }

    fn freeable(&mut self, _: u64, _: &Expected) -> Result<Infallible, Error<Fault>> {
        Err(Error::Nodes(Fault::ReadOnly))
    }

    fn allocate(&mut self, _: u64, _: &Expected) -> Result<(u64, Infallible), Error<Fault>> {
        Err(Error::Nodes(Fault::ReadOnly))
    }

    fn edit(&mut self, slot: Infallible) -> &mut Block {
        match slot {}
    }

    fn free(&mut self, slot: Infallible) {
        match slot {}
    }

    fn cancel(&mut self, slot: Infallible) {
        match slot {}
    }
}
