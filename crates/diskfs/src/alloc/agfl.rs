//! The free list of a group's own trees. Counterpart of the AGFL of XFS.

use super::GroupNodes;
use super::layout::Layout;
use crate::btree::{Error, Nodes};
use crate::format::{Block, Expected};

/// The free list of a group while a transaction changes its trees.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeList {
    /// Blocks that can be used.
    pub(super) list: Vec<u64>,
    /// Blocks of the trees that became free in this transaction. They can be used by the next one.
    pub(super) fresh: Vec<u64>,
    /// Number of blocks of the trees, without their roots.
    pub(super) tree_blocks: u64,
}

impl FreeList {
    /// Returns the number of blocks in the free list.
    pub(super) fn len(&self) -> u64 {
        (self.list.len() + self.fresh.len()) as u64
    }
}

/// The [`Nodes`] of a group's trees, which allocate from the free list and free into it.
pub(super) struct TreeNodes<'a, N> {
    pub(super) nodes: &'a mut N,
    pub(super) layout: &'a Layout,
    pub(super) free_list: &'a mut FreeList,
}

impl<N: GroupNodes> TreeNodes<'_, N> {
    fn address(&mut self, slot: N::Slot) -> u64 {
        self.nodes.edit(slot).header().address.get()
    }
}

impl<N: GroupNodes> Nodes for TreeNodes<'_, N> {
    type Error = N::Error;
    type Ref<'b>
        = N::Ref<'b>
    where
        Self: 'b;
    type Slot = N::Slot;

    fn is_possible(&self, address: u64) -> bool {
        self.layout.is_node(address)
    }

    fn is_for_data(&self, start: u64, blocks: u64) -> bool {
        self.layout.is_usable(start, blocks)
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
        _hint: u64,
        expected: &Expected,
    ) -> Result<(u64, N::Slot), Error<N::Error>> {
        let Some(&address) = self.free_list.list.last() else {
            return Err(Error::Nodes(N::no_space()));
        };
        let slot = self.nodes.create(address, expected)?;
        self.free_list.list.pop();
        self.free_list.tree_blocks += 1;
        Ok((address, slot))
    }

    fn edit(&mut self, slot: N::Slot) -> &mut Block {
        self.nodes.edit(slot)
    }

    fn free(&mut self, slot: N::Slot) {
        let address = self.address(slot);
        self.nodes.destroy(slot);
        self.free_list.fresh.push(address);
        // The header's counter may be too low; a check finds that.
        self.free_list.tree_blocks = self.free_list.tree_blocks.saturating_sub(1);
    }

    fn cancel(&mut self, slot: N::Slot) {
        let address = self.address(slot);
        self.nodes.uncreate(slot);
        self.free_list.list.push(address);
        self.free_list.tree_blocks -= 1;
    }
}
