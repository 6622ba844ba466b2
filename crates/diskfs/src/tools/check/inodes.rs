//! Inodes: their records, and the contents of each.

use super::finding::Problem;
use super::links::{DIRECTORY, Seen, UNREADABLE};
use super::report::Unfinished;
use super::state::Check;
use super::watch::Phase;
use crate::format::inode::{
    CHUNK_BLOCKS, CHUNK_INODES, FLAG_APPEND, FLAG_IMMUTABLE, FLAGS_KNOWN, INODES_PER_BLOCK,
    InodeRecord, ROOT_INO, block_of, chunk_of, ino_at, records,
};
use crate::format::superblock::Features;
use crate::inode::core::InodeCore;

impl Check<'_, '_> {
    /// Reads the records of all inodes.
    pub(crate) fn records(&mut self) {
        let starts: Vec<_> = self.links.chunks.keys().copied().collect();
        for (done, start) in (0..).zip(&starts) {
            self.tell.progress(Phase::Inodes, done, starts.len() as u64);
            for block in *start..*start + CHUNK_BLOCKS {
                self.block_of_records(*start, block);
            }
        }
        let root = self.links.seen(ROOT_INO).map_or(0, |root| root.kind);
        // If it can't be read, the reason was reported before.
        if root != DIRECTORY && root != UNREADABLE {
            self.tell.add(Problem::NoRoot);
            self.plan(|plan| plan.lacks_root = true);
            self.is_named = false;
        }
    }

    fn block_of_records(&mut self, chunk: u64, block: u64) {
        match self.media.inodes(block) {
            Ok((read, torn)) => {
                if let Some(damage) = torn {
                    // Nothing is lost unless a record is.
                    self.tell.add(damage);
                    self.plan(|plan| plan.records.insert(block));
                }
                for (slot, record) in records(&read).iter().enumerate() {
                    self.record(ino_at(block, slot), record);
                }
            }
            Err(damage) => {
                // Inodes that count as free are assumed free; others are lost.
                self.lost(damage);
                self.is_named = false;
                self.plan(|plan| plan.records.insert(block));
                let free = self.links.chunks.get(&chunk).map_or(0, |chunk| chunk.free);
                for slot in 0..INODES_PER_BLOCK {
                    let ino = ino_at(block, slot as usize);
                    if free >> (ino % CHUNK_INODES) & 1 == 0
                        && let Some(seen) = self.links.seen(ino)
                    {
                        seen.kind = UNREADABLE;
                    }
                }
            }
        }
    }

    fn record(&mut self, ino: u64, record: &InodeRecord) {
        let Some(chunk) = self.links.chunks.get(&chunk_of(block_of(ino))) else { return };
        let (counts_as_free, is_orphan) =
            (chunk.free >> (ino % CHUNK_INODES) & 1 == 1, chunk.is_orphan(ino));
        let is_free = record.is_free();
        if is_free != counts_as_free {
            self.tell.add(Problem::InUse { ino, is_free });
        }
        if is_free && is_orphan {
            self.tell.add(Problem::NotAnOrphan { ino });
        }
        if is_free != counts_as_free || is_free && is_orphan {
            self.plan(|plan| plan.mask(chunk_of(block_of(ino))));
        }
        if is_free {
            return;
        }
        self.figures.inodes += 1;
        let decoded = InodeCore::decode_possible(ino, record, |start, blocks| {
            self.media.has_ends(start, blocks)
        });
        let seen = match decoded {
            Ok((core, wrong)) => {
                if let Some(damage) = wrong {
                    self.lost(damage);
                    self.plan(|plan| plan.cut(ino));
                }
                self.flags(ino, core.flags);
                if core.is_directory() {
                    self.figures.directories += 1;
                }
                Seen { kind: (core.mode >> 12 & 0xF) as u8, nlink: core.nlink, names: 0 }
            }
            Err(damage) => {
                self.lost(damage);
                // A lost inode may have been a directory.
                self.is_named = false;
                self.plan(|plan| plan.records.insert(block_of(ino)));
                Seen { kind: UNREADABLE, ..Seen::default() }
            }
        };
        if let Some(known) = self.links.seen(ino) {
            *known = seen;
        }
    }

    /// Checks the flags of an inode against the features of the volume.
    fn flags(&mut self, ino: u64, flags: u16) {
        if flags & (FLAG_IMMUTABLE | FLAG_APPEND) != 0 && !self.features.has_immutable() {
            self.tell.add(Problem::Unguarded { ino });
            self.plan(|plan| plan.lacks_immutable = true);
        }
        // A feature that this program does not know may bring flags of its own.
        let unknown = flags & !FLAGS_KNOWN;
        if unknown != 0 && self.features.unknown() == Features::default() {
            self.tell.add(Problem::UnknownFlags { ino, flags: unknown });
            self.fix(ino, |fix| fix.flags = Some(flags & FLAGS_KNOWN));
        }
    }

    /// Checks the contents of all inodes.
    pub(crate) fn contents(&mut self) {
        let starts: Vec<_> = self.links.chunks.keys().copied().collect();
        for (done, start) in (0..).zip(&starts) {
            self.tell.progress(Phase::Contents, done, starts.len() as u64);
            for block in *start..*start + CHUNK_BLOCKS {
                // The damage of the block was reported before.
                let Ok((read, _)) = self.media.inodes(block) else { continue };
                for (slot, record) in records(&read).iter().enumerate() {
                    let ino = ino_at(block, slot);
                    if let Ok((core, _)) =
                        InodeCore::decode_possible(ino, record, |start, blocks| {
                            self.media.has_ends(start, blocks)
                        })
                    {
                        self.content(ino, &core);
                    }
                }
            }
        }
    }

    fn content(&mut self, ino: u64, core: &InodeCore) {
        if self.is_orphan(ino) {
            let Unfinished { removals, cuts, .. } = &mut self.unfinished;
            *(if core.nlink == 0 { removals } else { cuts }) += 1;
        }
        let before = self.own_count;
        self.data(ino, core);
        self.attributes(ino, core);
        let counted = self.own_count - before;
        // A rebuilt part will have other blocks.
        let is_broken = self.broken.last().is_some_and(|(broken, _)| *broken == ino);
        if counted != core.blocks && self.is_complete && !is_broken {
            self.tell.add(Problem::BlockCount { ino, found: core.blocks, counted });
            self.fix(ino, |fix| fix.blocks = Some(counted));
        }
    }
}
