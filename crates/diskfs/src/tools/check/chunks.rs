//! Finding inodes where the tree that leads to them is damaged.
//!
//! A block of inodes says what it is, where it lies and of which volume it is, so that it can be
//! found without being led to. But blocks may say so that are none. A chunk that was given up stays
//! on the device as it was until somebody writes there; by then its blocks may be free, or belong
//! to a file that has not written them yet. And a file may hold any bytes, also those of a chunk
//! that somebody has made up: the number of the volume is no secret. So what is found is a
//! candidate, and believed after the rest of the volume was asked:
//!
//! * None of its blocks is free, or has a part of a group; so a group is searched only if its free
//!   space could be read.
//! * If a part of the tree that can be read has it, it is one.
//! * If a name leads to an inode in it, it is one. Only directories are asked that are in chunks
//!   which are believed: those that trees lead to, the root's, and those that names lead to from
//!   there. Nobody can make a name that leads to an inode which was none then, and of a chunk that
//!   is given up no inode has a name.
//! * If nothing leads to it, and a file in a chunk that is believed has one of its blocks, it is
//!   that file's data.
//! * Otherwise it is one: its inodes may have lost their names with a directory.

use std::ops::Range;

use super::contents::extent_of;
use super::state::{Candidate, Check};
use crate::btree::{Entry, Record, Tree};
use crate::dir::{DirEntry, Directory, NameHash};
use crate::format::Damage;
use crate::format::extent::Extent;
use crate::format::group::{FREE_ROOT_AT, FreeSpace, InodeChunks, ROOT_CHUNK, RawChunk};
use crate::format::inode::{
    CHUNK_BLOCKS, CHUNK_INODES, INODE_MAGIC, InodeRecord, block_of, chunk_of, ino_at, records,
    slot_of,
};
use crate::inode::core::{DataFork, FileKind, InodeCore};
use crate::inode::extents::ExtentTree;

/// Candidates of all groups in the order of their blocks, and the chunks that are still to be
/// asked.
struct Inquiry {
    candidates: Vec<Candidate>,
    to_ask: Vec<u64>,
}

impl Inquiry {
    /// Notes that a name leads to an inode of this kind, which confirms a candidate that has it.
    fn name(&mut self, check: &Check<'_, '_>, ino: u64, kind: FileKind) {
        let start = chunk_of(block_of(ino));
        let at = self.candidates.binary_search_by_key(&start, |found| found.record.key.get());
        let Some(found) = at.ok().map(|at| &mut self.candidates[at]) else { return };
        let is_it = |core: InodeCore| core.kind() == Some(kind);
        if !found.is_led_to && check.inode_at(ino).is_some_and(is_it) {
            found.is_led_to = true;
            self.to_ask.push(start);
        }
    }

    /// Notes the blocks of a file.
    fn data(&mut self, extent: &Extent) {
        let run = extent.start..extent.place_end();
        let first = self.candidates.partition_point(|found| found.blocks().end <= run.start);
        let reached = self.candidates[first..].iter_mut();
        reached.take_while(|found| found.blocks().start < run.end).for_each(|found| {
            found.is_data = true;
        });
    }
}

impl Check<'_, '_> {
    /// Searches the blocks of a group for chunks; its tree has the `listed` ones. `None` if not all
    /// of them could be found.
    pub(crate) fn search_chunks(
        &self,
        group: u32,
        blocks: &Range<u64>,
        listed: &[Record<InodeChunks>],
    ) -> Option<Vec<Candidate>> {
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
            let end = start + CHUNK_BLOCKS;
            // The last run that does not begin behind it, if they are in order.
            let before = free.partition_point(|run: &Range<u64>| run.start < end);
            let is_free = before > 0 && free[before - 1].end > start;
            if is_free || !self.media.is_common(&(start..end)) || !self.is_unowned(&(start..end)) {
                continue;
            }
            if let Some(record) = self.chunk_at(start).ok()? {
                let is_led_to = start == ROOT_CHUNK || listed.iter().any(|at| at.key == record.key);
                chunks.push(Candidate { group, record, is_led_to, is_data: false });
            }
        }
        Some(chunks)
    }

    /// Decides which candidates are chunks: those of all groups, in the order of their blocks. All
    /// chunks are known that trees lead to. Reads all names and extents that can be believed.
    pub(crate) fn believable(
        &self,
        candidates: Vec<Candidate>,
    ) -> impl Iterator<Item = (u32, Record<InodeChunks>)> {
        let led_to = candidates.iter().filter(|found| found.is_led_to);
        let to_ask = led_to.map(|found| found.record.key.get());
        let to_ask = to_ask.chain(self.links.chunks.keys().copied()).collect();
        let mut inquiry = Inquiry { candidates, to_ask };
        while let Some(start) = inquiry.to_ask.pop() {
            for address in start..start + CHUNK_BLOCKS {
                let Ok(block) = self.media.block(INODE_MAGIC, address, start) else { continue };
                for (slot, record) in records(&block).iter().enumerate() {
                    let ino = ino_at(address, slot);
                    if let Some(core) = self.decoded(ino, record) {
                        self.ask(&mut inquiry, ino, &core);
                    }
                }
            }
        }
        let is_chunk = |found: &Candidate| found.is_led_to || !found.is_data;
        let found = inquiry.candidates.into_iter().filter(is_chunk);
        found.map(|found| (found.group, found.record))
    }

    /// Returns the inode with a number, if it is in use and readable.
    fn inode_at(&self, ino: u64) -> Option<InodeCore> {
        let at = block_of(ino);
        let block = self.media.block(INODE_MAGIC, at, chunk_of(at)).ok()?;
        self.decoded(ino, &records(&block)[slot_of(ino)])
    }

    fn decoded(&self, ino: u64, record: &InodeRecord) -> Option<InodeCore> {
        if record.is_free() {
            return None;
        }
        let has_ends = |start, blocks| self.media.has_ends(start, blocks);
        InodeCore::decode_possible(ino, record, has_ends).ok().map(|(core, _)| core)
    }

    /// Takes note of where an inode leads that is believed: as far as it can be read.
    fn ask(&self, inquiry: &mut Inquiry, ino: u64, core: &InodeCore) {
        if core.is_directory() {
            let directory = Directory::new(ino, NameHash::of(self.media.volume()));
            let mut name = |entry: DirEntry<'_>| inquiry.name(self, entry.ino, entry.kind);
            // Its damages are reported later.
            let _ = directory.check(&self.media, core, &mut |_| {}, &mut |_| {}, &mut name);
        } else if core.is_regular() {
            match &core.data {
                DataFork::Extents(list) => list.iter().for_each(|extent| inquiry.data(extent)),
                DataFork::Tree { root } => {
                    let _ = self.tree(&Tree::<ExtentTree>::at(*root, ino), |records| {
                        records.iter().for_each(|record| inquiry.data(&extent_of(record)));
                    });
                }
                DataFork::None | DataFork::Inline(_) => {}
            }
        }
    }

    /// Returns the chunk that begins at a block, if there is one.
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
