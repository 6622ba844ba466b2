//! Groups: their headers, the structure of their trees, and their chunks of inodes.

use std::ops::Range;

use super::finding::Owner;
use super::links::Chunk;
use super::state::{Candidate, Check, GroupState};
use super::watch::Phase;
use crate::btree::{Record, Tree};
use crate::format::Damage;
use crate::format::damage::GroupFault;
use crate::format::geometry::{GROUP_BLOCKS_KEPT, LAST_GROUP_BLOCKS_MIN};
use crate::format::group::{
    CHUNK_ROOT_AT, FREE_ROOT_AT, FreeSpace, GroupHeader, HEADER_AT, InodeChunks, MAGIC, fault,
};
use crate::format::inode::CHUNK_BLOCKS;

impl Check<'_, '_> {
    /// Reads the headers and the trees of all groups.
    pub(crate) fn groups(&mut self) {
        let groups = self.media.geometry().groups();
        for group in 0..groups {
            self.tell.progress(Phase::Groups, group.into(), groups.into());
            let blocks = self.media.geometry().blocks_of(group).unwrap_or_default();
            let kept = blocks.start..blocks.start + GROUP_BLOCKS_KEPT;
            self.used.insert(kept, |_| {});
            let found = self.group(group, &blocks);
            self.groups.push(found);
        }
        self.searched_chunks();
    }

    /// Records the chunks that were found without trees.
    fn searched_chunks(&mut self) {
        let candidates = std::mem::take(&mut self.candidates);
        if candidates.is_empty() {
            return;
        }
        let (unknown, chunks): (Vec<_>, Vec<_>) =
            self.believable(candidates).partition(Candidate::is_unknown);
        for Candidate { group, .. } in unknown {
            // The damage of the tree was reported.
            self.plan(|plan| plan.chunk_trees.retain(|(of, _)| *of != group));
            (self.is_complete, self.has_all_chunks, self.is_named) = (false, false, false);
        }
        for Candidate { group, record, .. } in chunks {
            let mut counted = std::mem::take(&mut self.groups[group as usize].counted);
            self.chunk(&record, &mut counted);
            self.groups[group as usize].counted = counted;
            self.plan(|plan| {
                let tree = plan.chunk_trees.iter_mut().find(|(of, _)| *of == group);
                tree.into_iter().for_each(|(_, records)| records.push(record));
            });
        }
    }

    fn group(&mut self, group: u32, blocks: &Range<u64>) -> GroupState {
        let before = self.tell.count;
        let mut found = GroupState { header: self.header(group, blocks), ..GroupState::default() };
        let root = blocks.start + FREE_ROOT_AT;
        let walked = self.tree(&Tree::<FreeSpace>::at(root, group.into()), |_| {});
        found.is_space_known = found.header.is_some() && walked.damages.is_empty();
        // A damaged tree of free space hides no blocks in use except its own.
        walked.damages.into_iter().for_each(|damage| self.tell.add(damage));
        found.free_tree = self.own_below(root, walked.blocks, group);
        self.chunks(group, blocks, &mut found);
        // Blocks that a growing volume has not added to the group yet have no owner.
        let all = blocks.end - blocks.start;
        found.counted.blocks = found.header.as_ref().map_or(all, |header| header.blocks);
        found.counted.tree_blocks = found.free_tree.len() as u64 + found.chunk_tree_blocks;
        found.is_readable = self.tell.count == before;
        found
    }

    fn header(&mut self, group: u32, blocks: &Range<u64>) -> Option<GroupHeader> {
        let at = blocks.start + HEADER_AT;
        let read = self.media.block(MAGIC, at, group.into()).and_then(|block| {
            let is_usable = |block: u64| blocks.contains(&block) && self.media.is_one(block);
            let header = GroupHeader::decode(at, &block, is_usable)?;
            let all = blocks.end - blocks.start;
            if !(LAST_GROUP_BLOCKS_MIN..=all).contains(&header.blocks) {
                return Err(fault(at, GroupFault::Size { blocks: header.blocks }));
            }
            Ok(header)
        });
        let header = read.map_err(|damage| self.tell.add(damage)).ok()?;
        for block in &header.set_aside {
            self.own(*block..*block + 1, Owner::Group(group));
        }
        Some(header)
    }

    /// Records a group as the owner of the blocks of one of its trees. Returns all of them except
    /// the root, which is one of the fixed blocks of the group.
    fn own_below(&mut self, root: u64, mut blocks: Vec<u64>, group: u32) -> Vec<u64> {
        blocks.retain(|block| *block != root);
        self.own_blocks(blocks.clone(), Owner::Group(group));
        blocks
    }

    /// Reports a lost chunk: its inodes are unknown, and so are the names in its directories.
    fn lost_chunk(&mut self, damage: Damage) {
        self.lost(damage);
        (self.has_all_chunks, self.is_named) = (false, false);
    }

    /// Records the chunks of a group.
    fn chunks(&mut self, group: u32, blocks: &Range<u64>, found: &mut GroupState) {
        let root = blocks.start + CHUNK_ROOT_AT;
        let mut chunks: Vec<Record<InodeChunks>> = Vec::new();
        let mut walked = self.tree(&Tree::<InodeChunks>::at(root, group.into()), |records| {
            chunks.extend_from_slice(records);
        });
        chunks.retain(|chunk| {
            let start = chunk.key.get();
            let is_possible = self.can_have_chunk(group, start);
            if !is_possible {
                walked.damages.push(fault(root, GroupFault::Chunk { start }));
            }
            is_possible
        });
        if !walked.damages.is_empty() && self.plan.is_some() {
            // The check of a repair continues with the tree that the repair will write.
            if let Some(searched) = self.search_chunks(group, blocks, &chunks) {
                walked.damages.drain(..).for_each(|damage| self.tell.add(damage));
                walked.blocks.clear();
                chunks.clear();
                // The check can decide which of them are chunks only when all groups are known.
                self.candidates.extend(searched);
                self.plan(|plan| plan.chunk_trees.push((group, Vec::new())));
            }
        }
        walked.damages.into_iter().for_each(|damage| self.lost_chunk(damage));
        found.chunk_tree_blocks = self.own_below(root, walked.blocks, group).len() as u64;
        for chunk in chunks {
            self.chunk(&chunk, &mut found.counted);
        }
    }

    /// Returns whether a chunk of inodes can begin at a block.
    fn can_have_chunk(&self, group: u32, start: u64) -> bool {
        self.media.geometry().group_of(start) == Some(group)
            && start.is_multiple_of(CHUNK_BLOCKS)
            && self.media.is_common(&(start..start.saturating_add(CHUNK_BLOCKS)))
    }

    /// Records a chunk of inodes.
    fn chunk(&mut self, record: &Record<InodeChunks>, counted: &mut GroupHeader) {
        let start = record.key.get();
        self.own(start..start + CHUNK_BLOCKS, Owner::Chunk(start));
        let (free, orphan) = (record.value.free.get(), record.value.orphan.get());
        counted.inodes += u64::from(u64::BITS);
        counted.free_inodes += u64::from(free.count_ones());
        counted.orphans += u64::from(orphan.count_ones());
        self.links.chunks.insert(start, Chunk::new(free, orphan));
    }
}
