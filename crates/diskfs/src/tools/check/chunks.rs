//! Search for chunks of inodes where the tree that lists them is damaged.
//!
//! A block of inodes contains its type, its address and the id of its volume, so it can be found
//! without a tree. But not every block with such a header is a block of inodes. A freed chunk stays
//! on the device unchanged until its blocks are written again; before that they may be free, or
//! belong to a file that has not written them yet. And a file may contain any bytes, including
//! those of a forged chunk: the id of the volume is no secret. So a chunk that is found is only a
//! candidate, and the rest of the volume decides whether it is one:
//!
//! * None of its blocks is free or holds metadata of a group. Hence a group is searched only if its
//!   free space could be read.
//! * If the readable part of the tree lists it, it is a chunk.
//! * If a name refers to an inode in it, it is a chunk. Only names in confirmed chunks count:
//!   chunks that trees list, the chunk of the root, and chunks that names in confirmed chunks refer
//!   to. A user can't create a name for an inode that does not exist at that time, and no inode of
//!   a freed chunk has a name.
//! * If nothing refers to it, and a file in a confirmed chunk has one of its blocks, it is data of
//!   that file.
//! * Otherwise it is a chunk: its inodes may have lost their names with a directory. But if the
//!   device can't read one of its blocks, nobody knows, and the tree is left as it is.

use std::ops::Range;

use super::contents::extent_of;
use super::state::{Candidate, Check};
use crate::btree::{Entry, Record, Tree};
use crate::dir::{DirEntry, Directory, NameHash};
use crate::format::Damage;
use crate::format::extent::Extent;
use crate::format::group::{FREE_ROOT_AT, FreeSpace, InodeChunks, ROOT_CHUNK, RawChunk};
use crate::format::inode::{
    CHUNK_BLOCKS, CHUNK_INODES, InodeRecord, block_of, chunk_of, ino_at, records, slot_of,
};
use crate::inode::core::{DataFork, FileKind, InodeCore};
use crate::inode::extents::ExtentTree;

/// Candidates of all groups in the order of their blocks, and the confirmed chunks that are still
/// to be examined.
struct Inquiry {
    candidates: Vec<Candidate>,
    to_ask: Vec<u64>,
}

impl Inquiry {
    /// Records that a name refers to an inode of this kind. Confirms the candidate that contains
    /// the inode.
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

    /// Records the blocks of a file: marks the candidates that overlap them.
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
    /// Searches the blocks of a group for chunks; its tree lists the `listed` ones. Returns `None`
    /// if some may have been missed, because the tree of free space could not be read.
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
            // The last run that begins before the end of the chunk, if the runs are in order.
            let before = free.partition_point(|run: &Range<u64>| run.start < end);
            let is_free = before > 0 && free[before - 1].end > start;
            if is_free || !self.media.is_common(&(start..end)) || !self.is_unowned(&(start..end)) {
                continue;
            }
            if let Some((record, is_unread)) = self.chunk_at(start) {
                let is_led_to = start == ROOT_CHUNK || listed.iter().any(|at| at.key == record.key);
                chunks.push(Candidate { group, record, is_led_to, is_data: false, is_unread });
            }
        }
        Some(chunks)
    }

    /// Returns the candidates that are chunks, or may be. `candidates` are those of all groups, in
    /// the order of their blocks; all chunks that trees list are known. Reads all names and extents
    /// in confirmed chunks.
    pub(crate) fn believable(&self, candidates: Vec<Candidate>) -> impl Iterator<Item = Candidate> {
        let led_to = candidates.iter().filter(|found| found.is_led_to);
        let to_ask = led_to.map(|found| found.record.key.get());
        let to_ask = to_ask.chain(self.links.chunks.keys().copied()).collect();
        let mut inquiry = Inquiry { candidates, to_ask };
        while let Some(start) = inquiry.to_ask.pop() {
            for address in start..start + CHUNK_BLOCKS {
                let Ok((block, _)) = self.media.inodes(address) else { continue };
                for (slot, record) in records(&block).iter().enumerate() {
                    let ino = ino_at(address, slot);
                    if let Some(core) = self.decoded(ino, record) {
                        self.ask(&mut inquiry, ino, &core);
                    }
                }
            }
        }
        let is_chunk = |found: &Candidate| found.is_led_to || !found.is_data;
        inquiry.candidates.into_iter().filter(is_chunk)
    }

    /// Returns the inode with a number, if it is in use and readable.
    fn inode_at(&self, ino: u64) -> Option<InodeCore> {
        let (block, _) = self.media.inodes(block_of(ino)).ok()?;
        self.decoded(ino, &records(&block)[slot_of(ino)])
    }

    fn decoded(&self, ino: u64, record: &InodeRecord) -> Option<InodeCore> {
        if record.is_free() {
            return None;
        }
        let has_ends = |start, blocks| self.media.has_ends(start, blocks);
        InodeCore::decode_possible(ino, record, has_ends).ok().map(|(core, _)| core)
    }

    /// Records the names or extents of an inode in a confirmed chunk, as far as they can be read.
    fn ask(&self, inquiry: &mut Inquiry, ino: u64, core: &InodeCore) {
        if core.is_directory() {
            let directory = Directory::new(ino, NameHash::of(self.media.volume()));
            let mut name = |entry: DirEntry<'_>| inquiry.name(self, entry.ino, entry.kind);
            // The damage of the directory is reported later.
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

    /// Returns the chunk that begins at a block, and whether the device can't read a block of it,
    /// unless such blocks are given up; `None` if no chunk begins there.
    fn chunk_at(&self, start: u64) -> Option<(Record<InodeChunks>, bool)> {
        let (mut free, mut orphan, mut is_there, mut is_unread) = (0, 0, false, false);
        for address in start..start + CHUNK_BLOCKS {
            let block = match self.media.inodes(address) {
                Ok((block, _)) => block,
                // Another block may be undamaged. The inodes of this one count as used.
                Err(damage) => {
                    let is_kept = !self.gives_up_unreadable();
                    is_unread |= is_kept && matches!(damage, Damage::Unreadable { .. });
                    continue;
                }
            };
            is_there = true;
            for (slot, record) in records(&block).iter().enumerate() {
                let bit = 1_u64 << (ino_at(address, slot) % CHUNK_INODES);
                if record.is_free() {
                    free |= bit;
                } else if record.raw().nlink.get() == 0 {
                    // An inode without a name was being removed.
                    orphan |= bit;
                }
            }
        }
        let value = RawChunk { free: free.into(), orphan: orphan.into() };
        (is_there || is_unread).then_some((Entry { key: start.into(), value }, is_unread))
    }
}
