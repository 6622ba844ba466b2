//! Blocks of inodes that were not completely written back before their log was discarded.

use super::super::overlay::Overlay;
use super::{INODE_BLOCKS, Repair, Written};
use crate::btree::Tree;
use crate::format::group::{CHUNK_ROOT_AT, InodeChunks, ROOT_CHUNK};
use crate::format::inode::{CHUNK_BLOCKS, INODE_MAGIC, InodeRecord, records_mut, verify_torn};
use crate::format::{Block, Identity};

/// The state of a block of inodes.
enum RecordState {
    /// The block is the expected one, or unreadable.
    Kept,
    /// The block is the expected one, torn.
    Torn(Box<Block>),
    /// Another block is at this address: the expected one was never written back.
    Absent,
}

impl Repair<'_, '_, '_> {
    /// Repairs blocks of inodes as far as possible without a log. In a torn block, torn records
    /// become those of free inodes. A block that was never written back gets free inodes only. A
    /// chunk of which no block was written back is removed.
    pub(super) fn records(&self) -> Written {
        let (mut overlay, mut has_written) = (self.overlay(), false);
        for start in self.check.links.chunks.keys() {
            let blocks = *start..*start + CHUNK_BLOCKS;
            let states: Vec<_> = blocks.clone().map(|at| (at, self.state_of(*start, at))).collect();
            let is_absent = states.iter().all(|(_, state)| matches!(state, RecordState::Absent));
            if is_absent && *start != ROOT_CHUNK {
                has_written |= self.remove_chunk(*start)?;
                continue;
            }
            for (address, state) in states {
                // A block that has data of a file as well is left until a later round, after the
                // data are copied.
                if !self.plan.is_shared(address) {
                    self.set_records(&mut overlay, *start, address, state);
                }
            }
            if overlay.blocks.len() >= INODE_BLOCKS {
                has_written |= self.commit(std::mem::replace(&mut overlay, self.overlay()))?;
            }
        }
        Ok(self.commit(overlay)? || has_written)
    }

    fn identity(&self, chunk: u64, address: u64) -> Identity {
        let volume = self.check.media.volume();
        Identity { magic: INODE_MAGIC, address, owner: chunk, volume }
    }

    fn state_of(&self, chunk: u64, address: u64) -> RecordState {
        let identity = self.identity(chunk, address);
        match self.check.media.raw(address) {
            Err(_) => RecordState::Kept,
            Ok(block) if block.verify(&identity).is_ok() => RecordState::Kept,
            Ok(block) => match verify_torn(&block, &identity) {
                Ok(()) => RecordState::Torn(block),
                Err(_) => RecordState::Absent,
            },
        }
    }

    fn set_records(
        &self,
        overlay: &mut Overlay<'_, '_>,
        chunk: u64,
        address: u64,
        state: RecordState,
    ) {
        let is_absent = matches!(state, RecordState::Absent);
        let is_lost =
            |record: &InodeRecord| is_absent || !record.is_free() && record.verify().is_err();
        let mut block = match state {
            RecordState::Kept => return,
            RecordState::Torn(block) => block,
            RecordState::Absent => Block::zeroed(),
        };
        // An earlier inode of this number is very unlikely to have had this generation.
        let place = self.check.media.newest().to_bits();
        let generation = (place ^ place >> 32) as u32;
        for record in records_mut(&mut block).iter_mut().filter(|record| is_lost(record)) {
            *record = InodeRecord::free(generation);
        }
        block.seal(&self.identity(chunk, address), 0);
        overlay.blocks.insert(address, block);
    }

    /// Removes a chunk from the tree of its group. Its blocks are free then, unless they have
    /// another owner.
    fn remove_chunk(&self, start: u64) -> Written {
        let geometry = self.check.media.geometry();
        let group = geometry.group_of(start);
        let Some((group, blocks)) = group.zip(group.and_then(|group| geometry.blocks_of(group)))
        else {
            return Ok(false);
        };
        let mut overlay = self.overlay();
        let tree = Tree::<InodeChunks>::at(blocks.start + CHUNK_ROOT_AT, group.into());
        match tree.remove(&mut overlay, start.into()) {
            Ok(Some(_)) => self.commit(overlay),
            _ => Ok(false),
        }
    }
}
