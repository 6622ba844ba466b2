//! Changes that a repair is going to make, in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::media::{Media, NoChange};
use crate::btree::{Error, Nodes};
use crate::format::inode::{block_of, records, records_mut, slot_of};
use crate::format::{Block, Expected, Identity};
use crate::inode::core::InodeCore;

/// Changed blocks of a volume, layered over the blocks on the device.
pub(crate) struct Overlay<'m, 'd> {
    media: &'m Media<'d>,
    /// Blocks to write, by address.
    pub(crate) blocks: BTreeMap<u64, Box<Block>>,
    /// Addresses for new blocks; the last one is used first.
    pub(crate) pool: Vec<u64>,
}

impl<'m, 'd> Overlay<'m, 'd> {
    pub(crate) fn new(media: &'m Media<'d>) -> Self {
        Self { media, blocks: BTreeMap::new(), pool: Vec::new() }
    }

    /// Returns a block of inodes, if it can be read.
    fn inodes(&self, address: u64) -> Option<Cow<'_, Block>> {
        if let Some(block) = self.blocks.get(&address) {
            return Some(Cow::Borrowed(block));
        }
        self.media.inodes(address).ok().map(|(block, _)| Cow::Owned(*block))
    }

    /// Returns an inode without its impossible extents; `None` if it can't be read.
    pub(crate) fn core(&self, ino: u64) -> Option<InodeCore> {
        let block = self.inodes(block_of(ino))?;
        let record = &records(&block)[slot_of(ino)];
        let decoded = InodeCore::decode_possible(ino, record, |start, blocks| {
            self.media.has_ends(start, blocks)
        });
        decoded.ok().map(|(core, _)| core)
    }

    /// Writes the record of an inode, new or old. Does nothing if its block can't be read.
    pub(crate) fn set_core(&mut self, ino: u64, core: &InodeCore) {
        let at = block_of(ino);
        if !self.blocks.contains_key(&at) {
            let Some(block) = self.inodes(at).map(Cow::into_owned) else { return };
            self.blocks.insert(at, Box::new(block));
        }
        if let Some(block) = self.blocks.get_mut(&at) {
            records_mut(block)[slot_of(ino)] = core.encode();
        }
    }

    /// Puts a block of zeros with a valid header at `address`, and returns it.
    pub(crate) fn put(&mut self, address: u64, expected: &Expected) -> &mut Block {
        let (magic, owner, volume) = (expected.magic, expected.owner, self.media.volume());
        let mut block = Block::zeroed();
        block.seal(&Identity { magic, address, owner, volume }, 0);
        self.blocks.insert(address, block);
        self.edit(address)
    }
}

impl Nodes for Overlay<'_, '_> {
    type Error = NoChange;
    type Ref<'a>
        = Cow<'a, Block>
    where
        Self: 'a;
    type Slot = u64;

    fn is_possible(&self, address: u64) -> bool {
        self.media.is_possible(address)
    }

    fn is_for_data(&self, start: u64, blocks: u64) -> bool {
        self.media.is_for_data(start, blocks)
    }

    fn read(&self, address: u64, expected: &Expected) -> Result<Cow<'_, Block>, Error<NoChange>> {
        match self.blocks.get(&address) {
            Some(block) => Ok(Cow::Borrowed(block)),
            None => Ok(Cow::Owned(*self.media.read(address, expected)?)),
        }
    }

    fn writable(&mut self, address: u64, expected: &Expected) -> Result<u64, Error<NoChange>> {
        if !self.blocks.contains_key(&address) {
            let block = self.media.read(address, expected)?;
            self.blocks.insert(address, block);
        }
        Ok(address)
    }

    fn freeable(&mut self, address: u64, expected: &Expected) -> Result<u64, Error<NoChange>> {
        self.writable(address, expected)
    }

    fn allocate(&mut self, _: u64, expected: &Expected) -> Result<(u64, u64), Error<NoChange>> {
        let address = self.pool.pop().ok_or(Error::Nodes(NoChange))?;
        self.put(address, expected);
        Ok((address, address))
    }

    fn edit(&mut self, slot: u64) -> &mut Block {
        self.blocks.entry(slot).or_insert_with(Block::zeroed)
    }

    fn free(&mut self, slot: u64) {
        self.blocks.remove(&slot);
    }

    fn cancel(&mut self, slot: u64) {
        self.blocks.remove(&slot);
        self.pool.push(slot);
    }
}
