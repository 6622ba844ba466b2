//! Blocks of inodes that are damaged, or have damaged records.

use std::collections::BTreeSet;

use super::super::overlay::Overlay;
use super::{INODE_BLOCKS, Repair, State, Written};
use crate::btree::Tree;
use crate::format::group::{CHUNK_ROOT_AT, InodeChunks, ROOT_CHUNK};
use crate::format::inode::{
    CHUNK_BLOCKS, CHUNK_INODES, INODES_PER_BLOCK, InodeRecord, chunk_of, clear_lost, ino_at,
    records_mut, verify_torn,
};
use crate::format::{Block, Damage};
use crate::inode::core::InodeCore;

/// The state of a block of inodes.
enum RecordState {
    /// A block that is left, because it can't be read today.
    Kept,
    /// The expected block, with right records and wrong ones.
    Found(Box<Block>),
    /// Another block is at this address: the expected one was overwritten, or never written back.
    Absent,
}

impl Repair<'_, '_, '_> {
    /// Repairs blocks of inodes. Wrong records become those of free inodes, right ones stay. The
    /// same is done with the readable sectors of a block that can't be read, if such blocks are
    /// given up. A block that is missing gets free inodes only, and a chunk of which no block is
    /// there is removed, if such blocks are given up, if the log that could have had them is lost,
    /// or if all their inodes count as free.
    pub(super) fn records(&self, state: &State) -> Written {
        let (mut overlay, mut has_written) = (self.overlay(), false);
        let damaged = &self.plan.records;
        let chunks: BTreeSet<_> = damaged.iter().map(|block| chunk_of(*block)).collect();
        for start in chunks {
            let blocks = damaged.range(start..start + CHUNK_BLOCKS);
            let states: Vec<_> = blocks.map(|at| (*at, self.state_of(*at, state))).collect();
            let is_absent = |(_, state): &_| matches!(state, RecordState::Absent);
            let is_gone = states.len() as u64 == CHUNK_BLOCKS && states.iter().all(is_absent);
            if is_gone && start != ROOT_CHUNK {
                has_written |= self.remove_chunk(start)?;
                continue;
            }
            for (address, state) in states {
                // A block that has data of a file as well is left until a later round, after the
                // data are copied.
                if !self.plan.is_shared(address) {
                    self.set_records(&mut overlay, address, state);
                }
            }
            if overlay.blocks.len() >= INODE_BLOCKS {
                has_written |= self.commit(std::mem::replace(&mut overlay, self.overlay()))?;
            }
        }
        Ok(self.commit(overlay)? || has_written)
    }

    fn state_of(&self, address: u64, state: &State) -> RecordState {
        let gives_up = self.check.gives_up_unreadable();
        match self.check.media.inodes(address) {
            Ok((block, _)) => RecordState::Found(block),
            Err(Damage::Unreadable { .. }) if gives_up => self.readable_part(address),
            Err(Damage::Unreadable { .. }) => RecordState::Kept,
            Err(_) if gives_up || state.without_log => RecordState::Absent,
            Err(_) if self.is_unused(address) => RecordState::Absent,
            Err(_) => RecordState::Kept,
        }
    }

    /// Returns whether all inodes of a block count as free in the tree of their group: there is
    /// nothing that the block could lose.
    fn is_unused(&self, address: u64) -> bool {
        let is_free = |free: u64| {
            (0..INODES_PER_BLOCK as usize)
                .all(|slot| free >> (ino_at(address, slot) % CHUNK_INODES) & 1 == 1)
        };
        let chunk = self.check.links.chunks.get(&chunk_of(address));
        chunk.is_some_and(|chunk| is_free(chunk.free))
    }

    /// Reads the sectors of a block that can be read, and clears the records in others.
    fn readable_part(&self, address: u64) -> RecordState {
        let (mut block, lost) = self.check.media.sectors(address);
        let has_header = lost.first().is_none_or(|first| first.start > 0);
        if has_header && verify_torn(&block, &self.check.media.of_inodes(address)).is_err() {
            return RecordState::Absent;
        }
        for bytes in &lost {
            clear_lost(&mut block, bytes, self.generation());
        }
        RecordState::Found(block)
    }

    /// Returns a generation that an earlier inode of the same number is very unlikely to have had.
    fn generation(&self) -> u32 {
        let place = self.check.media.newest().to_bits();
        (place ^ place >> 32) as u32
    }

    fn set_records(&self, overlay: &mut Overlay<'_, '_>, address: u64, state: RecordState) {
        let (mut block, is_absent) = match state {
            RecordState::Kept => return,
            RecordState::Found(block) => (block, false),
            RecordState::Absent => (Block::zeroed(), true),
        };
        for (slot, record) in records_mut(&mut block).iter_mut().enumerate() {
            if is_absent || self.is_lost(ino_at(address, slot), record) {
                *record = InodeRecord::free(self.generation());
            }
        }
        block.seal(&self.check.media.of_inodes(address), 0);
        overlay.blocks.insert(address, block);
    }

    /// Returns whether a record is wrong. One that is merely impossible, with a right checksum, is
    /// so only if what can't be read is given up.
    fn is_lost(&self, ino: u64, record: &InodeRecord) -> bool {
        let media = &self.check.media;
        let decoded = || {
            InodeCore::decode_possible(ino, record, |start, blocks| media.has_ends(start, blocks))
        };
        !record.is_free()
            && (record.verify().is_err() || self.check.gives_up_unreadable() && decoded().is_err())
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
