//! The blocks that a transaction changes: its own copies, until it commits.
//!
//! # Invariants
//!
//! * A block is copied at its first change, not earlier: one that was only prepared is neither
//!   copied nor logged.
//! * No other thread sees the copies before [`Shadows::publish`], which can't fail. A drop before
//!   that changes nothing.
//! * A block that is destroyed in the transaction that created it leaves no trace.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_journal::{ChangeList, Reservation};

use crate::Uuid;
use crate::base::fault::Fault;
use crate::buffer::{Buffer, BufferCache, compare, pool};
use crate::format::{BLOCK_BYTES, Block, Expected, Identity};

/// An address that no block has.
const NOWHERE: u64 = u64::MAX;

/// A block that a transaction may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

/// A block that a transaction reads: its own copy, or the published block.
#[derive(Debug)]
pub enum BlockRef<'t> {
    /// The transaction's own copy.
    Own(&'t Block),
    /// The published one.
    Published(Arc<Block>),
}

impl Deref for BlockRef<'_> {
    type Target = Block;

    fn deref(&self) -> &Block {
        match self {
            Self::Own(block) => block,
            Self::Published(block) => block,
        }
    }
}

/// The use of a block by a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockUse {
    /// Prepared for a change, and not changed yet.
    Prepared,
    /// The transaction changes a copy of its own.
    Changed,
    /// The block is new.
    Created,
    /// The block was freed, and exists on the device or in the log.
    Destroyed,
    /// The block was created and never used, or destroyed again.
    Gone,
}

struct Shadow {
    address: u64,
    /// `None` for a new block.
    buffer: Option<Arc<Buffer>>,
    block: Arc<Block>,
    state: BlockUse,
}

/// All blocks that a transaction changes.
pub(in crate::volume) struct Shadows<'v> {
    cache: &'v BufferCache,
    volume: Uuid,
    /// Apart, for many transactions change no block, and are moved.
    lists: Option<Box<ShadowLists>>,
}

#[derive(Default)]
struct ShadowLists {
    list: SmallVec<[Shadow; 4]>,
    /// The addresses of these blocks; `NOWHERE` for those that were destroyed. Searched in
    /// sequence, because they are mostly few, and close together.
    addresses: SmallVec<[u64; 8]>,
}

impl<'v> Shadows<'v> {
    pub(in crate::volume) fn new(cache: &'v BufferCache, volume: Uuid) -> Self {
        Self { cache, volume, lists: None }
    }

    fn list(&self) -> &[Shadow] {
        self.lists.as_ref().map_or(&[], |lists| &lists.list)
    }

    /// Finds a block, and its index in the list.
    fn find(&self, address: u64) -> Option<(usize, &Shadow)> {
        let lists = self.lists.as_ref()?;
        let at = lists.addresses.iter().position(|other| *other == address)?;
        Some((at, &lists.list[at]))
    }

    /// Returns a block of the list.
    fn shadow(&mut self, slot: Slot) -> &mut Shadow {
        &mut self.lists.get_or_insert_default().list[slot.0]
    }

    pub(in crate::volume) fn read(
        &self,
        address: u64,
        expected: &Expected,
    ) -> Result<BlockRef<'_>, Fault> {
        let Some((_, shadow)) = self.find(address) else {
            return Ok(BlockRef::Published(self.cache.read(address, expected)?));
        };
        compare(address, &shadow.block, expected)?;
        Ok(BlockRef::Own(&shadow.block))
    }

    /// Prepares a block for any of the calls that take a slot.
    pub(in crate::volume) fn prepare(
        &mut self,
        address: u64,
        expected: &Expected,
    ) -> Result<Slot, Fault> {
        if let Some((at, shadow)) = self.find(address) {
            compare(address, &shadow.block, expected)?;
            return Ok(Slot(at));
        }
        let (buffer, block) = self.cache.get_with_block(address, expected)?;
        Ok(self.add(Shadow { address, buffer: Some(buffer), block, state: BlockUse::Prepared }))
    }

    /// Adds a new block.
    pub(in crate::volume) fn create(&mut self, address: u64, expected: &Expected) -> Slot {
        debug_assert!(self.find(address).is_none(), "block {address} is there already");
        let Expected { magic, owner, .. } = *expected;
        let mut block = Block::zeroed();
        block.seal(&Identity { magic, address, owner, volume: self.volume }, 0);
        self.add(Shadow { address, buffer: None, block: block.into(), state: BlockUse::Created })
    }

    fn add(&mut self, shadow: Shadow) -> Slot {
        let ShadowLists { list, addresses } = &mut **self.lists.get_or_insert_default();
        let at = list.len();
        addresses.push(shadow.address);
        list.push(shadow);
        Slot(at)
    }

    pub(in crate::volume) fn edit(&mut self, slot: Slot) -> &mut Block {
        let shadow = self.shadow(slot);
        debug_assert!(
            !matches!(shadow.state, BlockUse::Destroyed | BlockUse::Gone),
            "block {} was freed",
            shadow.address
        );
        if shadow.state == BlockUse::Prepared {
            shadow.state = BlockUse::Changed;
        }
        // Copies the block at the first change, when the cache shares it.
        pool::make_mut(&mut shadow.block)
    }

    /// Destroys a block. Returns its address, and whether it was created in this transaction.
    pub(in crate::volume) fn destroy(&mut self, slot: Slot) -> (u64, bool) {
        let ShadowLists { list, addresses } = &mut **self.lists.get_or_insert_default();
        let shadow = &mut list[slot.0];
        let is_new = shadow.state == BlockUse::Created;
        shadow.state = if is_new { BlockUse::Gone } else { BlockUse::Destroyed };
        addresses[slot.0] = NOWHERE;
        (shadow.address, is_new)
    }

    /// Returns the log space for all blocks, in bytes of reservation.
    pub(in crate::volume) fn log_bytes(&self) -> u64 {
        let of_shadow = |shadow: &Shadow| match shadow.state {
            BlockUse::Prepared | BlockUse::Gone => 0,
            BlockUse::Changed | BlockUse::Created => Reservation::item_bytes(BLOCK_BYTES as u64),
            BlockUse::Destroyed => Reservation::item_bytes(0),
        };
        self.list().iter().map(of_shadow).sum()
    }

    /// Adds all changed blocks to the transaction of the log, and publishes them to readers. May
    /// sleep until the write-back of a block that was freed ends.
    pub(in crate::volume) fn publish(&mut self, log: &mut ChangeList) {
        let Some(lists) = self.lists.take() else { return };
        let mut changed: SmallVec<[_; 4]> = SmallVec::new();
        for shadow in lists.list {
            if matches!(shadow.state, BlockUse::Prepared | BlockUse::Gone) {
                continue;
            }
            let Shadow { address, buffer, block, state } = shadow;
            let is_new = buffer.is_none();
            let buffer = buffer.unwrap_or_else(|| self.cache.fresh(address, block.clone()));
            log.add(buffer.clone());
            changed.push((buffer, block, is_new, state));
        }
        // Only after all of them are pinned: none is written back with half of the transaction.
        for (buffer, block, is_new, state) in changed {
            if state == BlockUse::Destroyed {
                self.cache.forget(&buffer);
                buffer.set_gone();
            } else if is_new {
                self.cache.publish(&buffer);
            } else {
                buffer.set_block(block);
            }
        }
    }
}

impl std::fmt::Debug for Shadows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadows").field("blocks", &self.list().len()).finish_non_exhaustive()
    }
}
