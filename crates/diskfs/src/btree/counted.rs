//! A wrapper around the blocks of a tree that counts allocations.

use super::{Error, Nodes};
use crate::format::{Block, Expected};

/// A wrapper that forwards all calls to `N`, and counts the growth of the tree.
pub(crate) struct Counted<'a, N> {
    nodes: &'a mut N,
    grown: i64,
}

impl<'a, N> Counted<'a, N> {
    pub(crate) fn new(nodes: &'a mut N) -> Self {
        Self { nodes, grown: 0 }
    }

    /// Returns the number of blocks allocated, minus that of blocks freed.
    pub(crate) fn grown(&self) -> i64 {
        self.grown
    }
}

impl<N: Nodes> Nodes for Counted<'_, N> {
    type Error = N::Error;
    type Ref<'r>
        = N::Ref<'r>
    where
        Self: 'r;
    type Slot = N::Slot;

    fn is_possible(&self, address: u64) -> bool {
        self.nodes.is_possible(address)
    }

    fn is_for_data(&self, start: u64, blocks: u64) -> bool {
        self.nodes.is_for_data(start, blocks)
    }

    fn read(&self, address: u64, expected: &Expected) -> Result<N::Ref<'_>, Error<N::Error>> {
        self.nodes.read(address, expected)
    }

    fn writable(&mut self, address: u64, expected: &Expected) -> Result<N::Slot, Error<N::Error>> {
        self.nodes.writable(address, expected)
    }

    fn freeable(&mut self, address: u64, expected: &Expected) -> Result<N::Slot, Error<N::Error>> {
        self.nodes.freeable(address, expected)
    }

    fn allocate(
        &mut self,
        hint: u64,
        expected: &Expected,
    ) -> Result<(u64, N::Slot), Error<N::Error>> {
        let new = self.nodes.allocate(hint, expected)?;
        self.grown += 1;
        Ok(new)
    }

    fn edit(&mut self, slot: N::Slot) -> &mut Block {
        self.nodes.edit(slot)
    }

    fn free(&mut self, slot: N::Slot) {
        self.grown -= 1;
        self.nodes.free(slot);
    }

    fn cancel(&mut self, slot: N::Slot) {
        self.grown -= 1;
        self.nodes.cancel(slot);
    }
}
