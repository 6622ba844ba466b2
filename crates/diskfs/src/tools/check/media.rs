//! Blocks of a volume for a check: each is read from the device and verified every time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::Range;

use vfscale_block::Device;
use vfscale_journal::{Known, Lsn};
use zerocopy::{FromZeros, IntoBytes};

use crate::btree::{Error, Nodes};
use crate::format::geometry::Geometry;
use crate::format::inode::{INODE_MAGIC, chunk_of, verify_torn};
use crate::format::{BLOCK_BYTES, Block, Damage, Expected, Header, Identity, Magic, byte_of_block};
use crate::volume::Places;
use crate::volume::copies::read_block;
use crate::{Superblock, Uuid};

/// Number of blocks that a search reads in one I/O.
const SEARCHED_BLOCKS: usize = 256;

/// The device of a volume, and the bounds of its blocks. Only reads. Retains no block, only the
/// latest LSN and the blocks with late LSNs.
pub(crate) struct Media<'d> {
    device: &'d dyn Device,
    geometry: Geometry,
    volume: Uuid,
    places: Places,
    newest: Cell<Lsn>,
    late: RefCell<BTreeSet<u64>>,
}

impl<'d> Media<'d> {
    /// Creates a reader of the volume of `superblock` on `device`.
    pub(crate) fn new(device: &'d dyn Device, superblock: &Superblock) -> Self {
        let (geometry, volume) = (superblock.geometry(), superblock.volume());
        let (places, newest, late) = (Places::new(superblock), Cell::default(), RefCell::default());
        Self { device, geometry, volume, places, newest, late }
    }

    /// Returns the latest LSN of all valid blocks read so far, except [late](Known::CYCLE_LATE)
    /// ones.
    pub(crate) fn newest(&self) -> Lsn {
        self.newest.get()
    }

    /// Returns the blocks with late LSNs.
    pub(crate) fn late(&self) -> BTreeSet<u64> {
        self.late.borrow().clone()
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn volume(&self) -> Uuid {
        self.volume
    }

    /// Returns whether blocks may belong to an inode, a tree or free space: they are in one group
    /// of the volume, after the group's fixed blocks, and not in the log.
    pub(crate) fn is_common(&self, run: &Range<u64>) -> bool {
        let blocks = run.end.checked_sub(run.start);
        blocks.is_some_and(|blocks| self.places.is_run_for_files(run.start, blocks))
    }

    /// Returns whether one block may belong to an inode, a tree or free space.
    pub(crate) fn is_one(&self, block: u64) -> bool {
        self.places.is_for_files(block)
    }

    /// Returns whether both ends of a run may belong to an inode, a tree or free space. Blocks
    /// between them are reported separately, as blocks with an impossible owner.
    pub(crate) fn has_ends(&self, start: u64, blocks: u64) -> bool {
        let last = start.checked_add(blocks).and_then(|end| end.checked_sub(1));
        self.is_one(start) && last.is_some_and(|last| self.is_one(last))
    }

    /// Reads a block without checks.
    pub(crate) fn raw(&self, address: u64) -> Result<Box<Block>, Damage> {
        read_block(self.device, address).map_err(|error| Damage::Unreadable { address, error })
    }

    /// Calls `each` with the headers of the blocks of a run that have their own address and the id
    /// of this volume, valid or not. Unreadable blocks are skipped.
    pub(crate) fn each_block(&self, run: Range<u64>, mut each: impl FnMut(u64, &Header)) {
        let mut blocks = vec![Block::new_zeroed(); SEARCHED_BLOCKS];
        let mut at = run.start;
        while at < run.end {
            let part = &mut blocks[..SEARCHED_BLOCKS.min((run.end - at) as usize)];
            let is_read = self.device.read_at(byte_of_block(at), part.as_mut_bytes()).is_ok();
            for (address, block) in (at..).zip(part.iter()).filter(|_| is_read) {
                let header = block.header();
                if header.address == address && header.volume == self.volume {
                    each(address, header);
                }
            }
            at += part.len() as u64;
        }
    }

    /// Reads a block and checks that it is the expected one.
    pub(crate) fn block(
        &self,
        magic: Magic,
        address: u64,
        owner: u64,
    ) -> Result<Box<Block>, Damage> {
        let block = self.raw(address)?;
        block.verify(&Identity { magic, address, owner, volume: self.volume })?;
        self.note(address, &block);
        Ok(block)
    }

    /// Reads a block of inodes. A wrong checksum of the block is returned beside it, because each
    /// record has its own.
    ///
    /// # Errors
    /// The device can't read the block, or it is another one.
    pub(crate) fn inodes(&self, address: u64) -> Result<(Box<Block>, Option<Damage>), Damage> {
        let block = self.raw(address)?;
        let identity = self.of_inodes(address);
        verify_torn(&block, &identity)?;
        let torn = block.verify(&identity).err();
        if torn.is_none() {
            self.note(address, &block);
        }
        Ok((block, torn))
    }

    /// Reads a block by sectors. Returns also the bytes that can't be read, which are zero.
    pub(crate) fn sectors(&self, address: u64) -> (Box<Block>, Vec<Range<usize>>) {
        let (mut block, mut lost) = (Block::zeroed(), Vec::new());
        let length = (self.device.block_size() as usize).min(BLOCK_BYTES);
        for (at, sector) in (0..).step_by(length).zip(block.bytes_mut().chunks_mut(length)) {
            if self.device.read_at(byte_of_block(address) + at as u64, sector).is_err() {
                sector.fill(0);
                lost.push(at..at + length);
            }
        }
        (block, lost)
    }

    /// Returns the identity of a block of inodes.
    pub(crate) fn of_inodes(&self, address: u64) -> Identity {
        let (magic, owner, volume) = (INODE_MAGIC, chunk_of(address), self.volume);
        Identity { magic, address, owner, volume }
    }

    /// Notes the LSN of a valid block.
    fn note(&self, address: u64, block: &Block) {
        let lsn = Lsn::from_bits(block.header().lsn.get());
        if lsn.cycle() >= Known::CYCLE_LATE {
            self.late.borrow_mut().insert(address);
        } else {
            self.newest.set(lsn.max(self.newest.get()));
        }
    }
}

/// Only for reading: the calls for changes fail.
impl Nodes for Media<'_> {
    type Error = NoChange;
    type Ref<'a>
        = Box<Block>
    where
        Self: 'a;
    type Slot = Infallible;

    fn is_possible(&self, address: u64) -> bool {
        self.places.is_for_trees(address)
    }

    fn is_for_data(&self, start: u64, blocks: u64) -> bool {
        self.places.is_run_for_files(start, blocks)
    }

    fn read(&self, address: u64, expected: &Expected) -> Result<Box<Block>, Error<NoChange>> {
        let block = self.block(expected.magic, address, expected.owner)?;
        (expected.check)(address, &block)?;
        Ok(block)
    }

    fn writable(&mut self, _: u64, _: &Expected) -> Result<Infallible, Error<NoChange>> {
        Err(Error::Nodes(NoChange))
    }

    fn freeable(&mut self, _: u64, _: &Expected) -> Result<Infallible, Error<NoChange>> {
        Err(Error::Nodes(NoChange))
    }

    fn allocate(&mut self, _: u64, _: &Expected) -> Result<(u64, Infallible), Error<NoChange>> {
        Err(Error::Nodes(NoChange))
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

/// Error of a change where only reading is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a check changes nothing")]
pub(crate) struct NoChange;
