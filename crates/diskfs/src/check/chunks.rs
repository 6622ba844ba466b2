//! Finding inodes where the tree that leads to them is damaged.
//!
//! A block of inodes says what it is, where it lies and of which volume it is, so that it can be found
//! without being led to. Blocks of chunks that were given up look the same, but lie in free space, or have
//! been written since; so a group is searched only if its free space could be read. What a file has in its
//! data can't be taken for inodes: who writes files does not know the number of the volume.

use std::ops::Range;

use super::Check;
use crate::btree::{Entry, Record, Tree};
use crate::format::Damage;
use crate::format::group::{FREE_ROOT_AT, FreeSpace, InodeChunks, RawChunk};
use crate::format::inode::{CHUNK_BLOCKS, CHUNK_INODES, INODE_MAGIC, ino_at, records};

impl Check<'_, '_> {
    /// The chunks of a group, from what lies in its blocks. None if not all of them could be found.
    pub(crate) fn search_chunks(
        &self,
        group: u32,
        blocks: &Range<u64>,
    ) -> Option<Vec<Record<InodeChunks>>> {
        let mut free = Vec::new();
        let root = blocks.start + FREE_ROOT_AT;
        let walked = self.tree(&Tree::<FreeSpace>::at(root, group.into()), |records| {
            let run = |run: &Record<FreeSpace>| {
                run.key.get()..run.key.get().saturating_add(run.value.get())
            };
            free.extend(records.iter().map(run));
        });
        if !walked.damages.is_empty() {
            return None;
        }
        let first = blocks.start.next_multiple_of(CHUNK_BLOCKS);
        let mut chunks = Vec::new();
        for start in (first..blocks.end).step_by(CHUNK_BLOCKS as usize) {
            // The last run that does not begin behind it, if they are in order.
            let before = free.partition_point(|run: &Range<u64>| run.start <= start);
            let is_free = before > 0 && free[before - 1].contains(&start);
            if !is_free && self.media.is_common(&(start..start + CHUNK_BLOCKS)) {
                chunks.extend(self.chunk_at(start).ok()?);
            }
        }
        Some(chunks)
    }

    /// The chunk that begins at a block, if there is one.
    ///
    /// # Errors
    /// The device can't read a block.
    fn chunk_at(&self, start: u64) -> Result<Option<Record<InodeChunks>>, Damage> {
        let (mut free, mut orphan, mut is_there) = (0, 0, false);
        for address in start..start + CHUNK_BLOCKS {
            let block = match self.media.block(INODE_MAGIC, address, start) {
                Ok(block) => block,
                Err(damage @ Damage::Unreadable { .. }) => return Err(damage),
                // Another one may be whole. What was in this one counts as used.
                Err(_) => continue,
            };
            is_there = true;
            for (slot, record) in records(&block).iter().enumerate() {
                let bit = 1_u64 << (ino_at(address, slot) % CHUNK_INODES);
                if record.is_free() {
                    free |= bit;
                } else if record.raw().nlink.get() == 0 {
                    // Without a name it was on its way out.
                    orphan |= bit;
                }
            }
        }
        let value = RawChunk { free: free.into(), orphan: orphan.into() };
        Ok(is_there.then_some(Entry { key: start.into(), value }))
    }
}
