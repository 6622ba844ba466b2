//! Changes that a repair is going to make, in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::media::{Media, NoChange};
use crate::btree::{Error, Expected, Nodes};
use crate::format::{Block, Identity};

/// Blocks of a volume as they are to be, above those that are on the device.
pub(crate) struct Draft<'m, 'd> {
    media: &'m Media<'d>,
    /// What is to be written, by address.
    pub(crate) blocks: BTreeMap<u64, Box<Block>>,
    /// Where new blocks come from; the last one is taken first.
    pub(crate) pool: Vec<u64>,
}

impl<'m, 'd> Draft<'m, 'd> {
    pub(crate) fn new(media: &'m Media<'d>) -> Self {
        Self { media, blocks: BTreeMap::new(), pool: Vec::new() }
    }

    /// A block of zeros, which says what it is.
    pub(crate) fn put(&mut self, address: u64, expected: &Expected) -> &mut Block {
        let (magic, owner, volume) = (expected.magic, expected.owner, self.media.volume());
        let mut block = Block::zeroed();
        block.seal(&Identity { magic, address, owner, volume }, 0);
        self.blocks.insert(address, block);
        self.edit(address)
    }
}

impl Nodes for Draft<'_, '_> {
    type Error = NoChange;
    type Ref<'a>
        = Cow<'a, Block>
    where
        Self: 'a;
    type Slot = u64;

    fn is_possible(&self, address: u64) -> bool {
        self.media.is_possible(address)
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
