//! The reading of published blocks.

use std::convert::Infallible;
use std::sync::Arc;

use super::block_map::Places;
use crate::base::fault::Fault;
use crate::btree::{Error, Nodes};
use crate::buffer::BufferCache;
use crate::format::{Block, Expected};

/// The blocks of a volume as the last commits have left them. `Copy`, `Send` and `Sync`; costs
/// nothing to create.
///
/// A thread that reads a tree holds the lock of the tree's owner, at least shared, so no commit
/// changes the tree during the read. Calls that change blocks fail with [`Fault::ReadOnly`].
#[derive(Clone, Copy, Debug)]
pub struct Reader<'v> {
    cache: &'v BufferCache,
    places: &'v Places,
}

impl<'v> Reader<'v> {
    pub(super) fn new(cache: &'v BufferCache, places: &'v Places) -> Self {
        Self { cache, places }
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
        self.places.is_for_trees(address)
    }

    fn is_for_data(&self, start: u64, blocks: u64) -> bool {
        self.places.is_run_for_files(start, blocks)
    }

    fn read(&self, address: u64, expected: &Expected) -> Result<Arc<Block>, Error<Fault>> {
        Ok(self.cache.read(address, expected)?)
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
