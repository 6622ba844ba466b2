//! The owners of single blocks: for a caller who knows which blocks of a volume have changed.

use std::cell::Ref;
use std::ops::Range;

use super::{Loss, Records, Rescue, damage_of, decoded};
use crate::btree::{Error, Kind, Nodes, Tree};
use crate::dir::DirTree;
use crate::format::group::{
    CHUNK_ROOT_AT, FREE_ROOT_AT, FreeSpace, GroupHeader, HEADER_AT, InodeChunks,
};
use crate::format::inode::{CHUNK_BLOCKS, INODES_PER_BLOCK, block_of, chunk_of, ino_at, records};
use crate::format::{BLOCK_BYTES, Identity};
use crate::inode::blob::{AttrTree, LinkTree};
use crate::inode::core::{InodeCore, TYPE_DIRECTORY, TYPE_MASK};
use crate::inode::extents::ExtentTree;
use crate::tools::check::{Media, NoChange};

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockUse {
    /// No inode has it: the log does, or a group, or it is free, or outside of the volume.
    Volume,
    /// Of a tree of the inode with this number.
    Tree(u64),
    /// Data of a file, or unknown.
    Other,
}

impl Rescue {
    /// Returns the blocks that the log has changed and the device has not, in order.
    pub fn replayed(&self) -> impl Iterator<Item = Range<u64>> {
        let unit = BLOCK_BYTES as u64;
        self.replayed.iter().map(move |bytes| bytes.start / unit..bytes.end.div_ceil(unit))
    }

    /// Returns whether blocks and inodes of one volume can be those of the other: both are copies
    /// of one volume.
    pub fn is_like(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.superblock.volume(), it.superblock.geometry().group_log2());
        of(self) == of(other)
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        self.superblock.geometry().blocks()
    }

    /// Returns the first block of the chunk that an inode is in.
    pub fn chunk_of(ino: u64) -> u64 {
        chunk_of(block_of(ino))
    }

    /// Returns the use of a block that has no inodes, and the end of the blocks behind it that
    /// have the same use. A tree is known by the header of the block, if it has a valid one. Blocks
    /// for I/O.
    ///
    /// # Errors
    /// The block is unreadable, or the free space of its group.
    pub fn use_of(&self, block: u64) -> Result<(BlockUse, u64), Loss> {
        let media = self.media();
        if !media.is_one(block) {
            return Ok((BlockUse::Volume, block + 1));
        }
        if let Some(end) = self.free_until(&media, block)? {
            return Ok((BlockUse::Volume, end));
        }
        let found = media.raw(block)?;
        let (header, volume) = (found.header(), media.volume());
        let (magic, owner) = (header.magic, header.owner.get());
        let is_valid = found.verify(&Identity { magic, address: block, owner, volume }).is_ok();
        let of_inodes = [DirTree::MAGIC, ExtentTree::MAGIC, AttrTree::MAGIC, LinkTree::MAGIC];
        let found = match magic {
            magic if is_valid && of_inodes.contains(&magic) => BlockUse::Tree(owner),
            FreeSpace::MAGIC | InodeChunks::MAGIC if is_valid => BlockUse::Volume,
            _ => BlockUse::Other,
        };
        Ok((found, block + 1))
    }

    /// Returns the end of the free blocks from `block` on, if it is free.
    fn free_until(&self, media: &Media<'_>, block: u64) -> Result<Option<u64>, Loss> {
        let Some((group, first)) = self.first_of_group(block) else { return Ok(None) };
        let tree = Tree::<FreeSpace>::at(first + FREE_ROOT_AT, group.into());
        let run = of_tree(tree.at_or_before(media, block.into()))?;
        let end = run.map_or(0, |run| run.key.get().saturating_add(run.value.get()));
        if end > block {
            return Ok(Some(end));
        }
        let (at, expected) = (first + HEADER_AT, GroupHeader::expected(group));
        let Some(found) = of_tree(media.read(at, &expected).map(Some))? else { return Ok(None) };
        let header = GroupHeader::decode(at, &found, |block| media.is_one(block))?;
        Ok(header.set_aside.contains(&block).then_some(block + 1))
    }

    /// Returns the chunks of inodes that have any of these blocks, in order. Blocks for I/O.
    ///
    /// # Errors
    /// The tree of a group's chunks is unreadable.
    pub fn chunks_in(&self, blocks: Range<u64>) -> Result<Vec<Range<u64>>, Loss> {
        let (mut found, mut at) = (Vec::new(), chunk_of(blocks.start));
        while at < blocks.end
            && let Some((group, first)) = self.first_of_group(at)
        {
            match self.first_chunk(group, first, at)? {
                Some(start) if start < blocks.end => {
                    at = start + CHUNK_BLOCKS;
                    found.push(start..at);
                }
                Some(_) => break,
                None => at = first + self.superblock.geometry().group_blocks(),
            }
        }
        Ok(found)
    }

    /// Returns the end of the chunk of inodes that has a block, if one does. Blocks for I/O.
    ///
    /// # Errors
    /// The tree of the group's chunks is unreadable.
    pub fn end_of_chunk(&self, block: u64) -> Result<Option<u64>, Loss> {
        let start = chunk_of(block);
        Ok(self.has_chunk(start)?.then_some(start + CHUNK_BLOCKS))
    }

    /// Returns the chunk of inodes next to another one of its group: the one behind, or the one
    /// before. Blocks for I/O.
    ///
    /// # Errors
    /// The tree of the group's chunks is unreadable.
    pub fn next_chunk(&self, start: u64, is_behind: bool) -> Result<Option<u64>, Loss> {
        let Some((group, first)) = self.first_of_group(start) else { return Ok(None) };
        if is_behind {
            return self.first_chunk(group, first, start + 1);
        }
        let before = chunks(group, first).at_or_before(&self.media(), (start - 1).into());
        Ok(of_tree(before)?.map(|record| record.key.get()))
    }

    /// Returns the inode with this number, with names or without, if there is one and a group
    /// knows it: what a block says that was one of inodes formerly does not count. Blocks for I/O.
    ///
    /// # Errors
    /// The record, or the tree of the group's chunks, is unreadable.
    pub fn existing(&self, ino: u64) -> Result<Option<InodeCore>, Loss> {
        match self.has_chunk(chunk_of(block_of(ino)))? {
            true => self.inode(ino)?.map(whole).transpose(),
            false => Ok(None),
        }
    }

    /// Returns the numbers of the inodes in a block that differ in the other volume. Blocks for
    /// I/O.
    ///
    /// # Errors
    /// The block, or the tree of the group's chunks, is unreadable in one of them.
    pub fn differing_inodes(&self, other: &Self, block: u64) -> Result<Vec<u64>, Loss> {
        let (one, other) = (self.records_in(block)?, other.records_in(block)?);
        let differs = |slot: &usize| {
            let record = |of: &Option<Ref<'_, Records>>| {
                of.as_ref().map(|of| &of[*slot]).filter(|record| !record.is_free()).cloned()
            };
            record(&one) != record(&other)
        };
        let slots = (0..INODES_PER_BLOCK as usize).filter(differs);
        Ok(slots.map(|slot| ino_at(block, slot)).collect())
    }

    /// Returns the directories in a chunk of inodes. Blocks for I/O.
    ///
    /// # Errors
    /// A record is unreadable.
    pub fn directories_in(&self, chunk: u64) -> Result<Vec<(u64, InodeCore)>, Loss> {
        let (media, mut found) = (self.media(), Vec::new());
        for block in chunk..chunk + CHUNK_BLOCKS {
            for (slot, record) in records(&media.inodes(block)?.0).iter().enumerate() {
                let ino = ino_at(block, slot);
                if u32::from(record.raw().mode.get()) & TYPE_MASK == TYPE_DIRECTORY
                    && let Some(core) = decoded(&media, ino, record)?.map(whole).transpose()?
                {
                    found.push((ino, core));
                }
            }
        }
        Ok(found)
    }

    /// Returns the records in a block, if it is one of inodes.
    fn records_in(&self, block: u64) -> Result<Option<Ref<'_, Records>>, Loss> {
        if !self.has_chunk(chunk_of(block))? {
            return Ok(None);
        }
        Ok(Some(self.records(&self.media(), block)?))
    }

    fn has_chunk(&self, start: u64) -> Result<bool, Loss> {
        if let Some((chunk, is_there)) = self.last_chunk.get()
            && chunk == start
        {
            return Ok(is_there);
        }
        let Some((group, first)) = self.first_of_group(start) else { return Ok(false) };
        let found = of_tree(chunks(group, first).get(&self.media(), start.into()))?;
        self.last_chunk.set(Some((start, found.is_some())));
        Ok(found.is_some())
    }

    /// Returns the first chunk of a group that does not begin before `at`.
    fn first_chunk(&self, group: u32, first: u64, at: u64) -> Result<Option<u64>, Loss> {
        let record = of_tree(chunks(group, first).at_or_after(&self.media(), at.into()))?;
        Ok(record.map(|record| record.key.get()))
    }

    /// Returns the group of a block, and the first block of that.
    fn first_of_group(&self, block: u64) -> Option<(u32, u64)> {
        let geometry = self.superblock.geometry();
        let group = geometry.group_of(block)?;
        Some((group, geometry.blocks_of(group)?.start))
    }
}

/// Returns the tree of the chunks of a group.
fn chunks(group: u32, first: u64) -> Tree<InodeChunks> {
    Tree::at(first + CHUNK_ROOT_AT, group.into())
}

/// Refuses an inode of which a part is missing.
fn whole((core, loss): (InodeCore, Option<Loss>)) -> Result<InodeCore, Loss> {
    loss.map_or(Ok(core), Err)
}

/// Converts the error of a call on a tree.
fn of_tree<T>(found: Result<Option<T>, Error<NoChange>>) -> Result<Option<T>, Loss> {
    found.or_else(|error| damage_of(error).map_or(Ok(None), Err))
}
