//! All inodes of a volume, and the names that refer to them, as far as a check has read them.

use std::collections::{BTreeMap, HashMap};

use super::finding::Problem;
use super::plan::Plan;
use super::watch::Findings;
use crate::dir::DirEntry;
use crate::format::inode::{CHUNK_INODES, ROOT_INO, block_of, chunk_of, ino_at};
use crate::inode::core::FileKind;
use crate::tools::value::Value;

/// The state of an inode in a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The type of its mode, as four bits; 0 for a free one.
    pub(crate) kind: u8,
    /// The stored link count.
    pub(crate) nlink: u32,
    /// Number of names found.
    pub(crate) names: u32,
}

/// The kind of an inode that is in use and can't be read.
pub(crate) const UNREADABLE: u8 = 0xFF;
/// The kind of a directory.
pub(crate) const DIRECTORY: u8 = 0o04;

/// A chunk of inodes.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// Mask of the inodes that count as free.
    pub(crate) free: u64,
    /// Mask of the inodes that are orphans.
    pub(crate) orphan: u64,
    inodes: Box<[Seen; CHUNK_INODES as usize]>,
}

impl Chunk {
    /// Creates a chunk whose inodes were not read yet.
    pub(crate) fn new(free: u64, orphan: u64) -> Self {
        Self { free, orphan, inodes: Box::new([Seen::default(); CHUNK_INODES as usize]) }
    }

    /// Returns the inodes of a chunk that begins at block `start`, with their numbers.
    pub(crate) fn inodes(&self, start: u64) -> impl Iterator<Item = (u64, Seen)> {
        (ino_at(start, 0)..).zip(self.inodes.iter().copied())
    }

    /// Returns the state of an inode of the chunk.
    pub(crate) fn inode(&mut self, ino: u64) -> Option<&mut Seen> {
        self.inodes.get_mut((ino % CHUNK_INODES) as usize)
    }

    /// Returns whether an inode of the chunk is an orphan.
    pub(crate) fn is_orphan(&self, ino: u64) -> bool {
        self.orphan >> (ino % CHUNK_INODES) & 1 == 1
    }
}

/// The state of a directory in a check.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DirState {
    /// The stored parent.
    pub(super) parent: u64,
    /// The directory of the first name found that refers to it; 0 for none.
    pub(super) named_in: u64,
    /// Whether another name was found: which of them is right is not known.
    pub(super) has_names: bool,
    /// Number of names in it that refer to directories.
    pub(super) directories: u32,
}

impl DirState {
    /// Returns the real parent of a directory; 0 if there is none.
    pub(super) fn place(&self, ino: u64) -> u64 {
        if ino == ROOT_INO { ROOT_INO } else { self.named_in }
    }

    /// Returns the stored and the real parent, if they are known to differ.
    pub(super) fn wrong_parent(&self, ino: u64) -> Option<(u64, u64)> {
        let (found, expected) = (self.parent, self.place(ino));
        let is_wrong = expected != 0 && expected != found && !self.has_names;
        is_wrong.then_some((found, expected))
    }
}

/// All inodes, and the names that refer to them.
#[derive(Default)]
pub(crate) struct Links {
    /// The chunks, by their first blocks.
    pub(crate) chunks: BTreeMap<u64, Chunk>,
    pub(super) directories: HashMap<u64, DirState>,
}

impl Links {
    /// Returns the state of an inode; `None` if no chunk contains its number.
    pub(crate) fn seen(&mut self, ino: u64) -> Option<&mut Seen> {
        self.chunks.get_mut(&chunk_of(block_of(ino)))?.inode(ino)
    }

    /// Returns the directory of the first name that refers to a directory; 0 if there is none.
    pub(crate) fn place(&self, ino: u64) -> u64 {
        self.directories.get(&ino).map_or(0, |directory| directory.place(ino))
    }

    /// Returns the link count of an inode with one name.
    pub(crate) fn named_once(&self, ino: u64) -> u32 {
        self.directories.get(&ino).map_or(1, |known| known.directories.saturating_add(2))
    }

    /// Records a name in a directory.
    pub(super) fn name(
        &mut self,
        tell: &mut Findings<'_>,
        plan: &mut Option<Plan>,
        (directory, entry): (u64, &DirEntry<'_>),
    ) {
        let (ino, found) = (entry.ino, entry.kind as u8);
        let shown = || Value::bytes(entry.name).to_string();
        let mut fix = |kind| {
            if let Some(plan) = plan {
                plan.name(directory, entry, kind);
            }
        };
        let Some(seen) = self.seen(ino).filter(|seen| seen.kind != 0) else {
            fix(None);
            return tell.add(Problem::Dangling { directory, name: shown(), ino });
        };
        seen.names = seen.names.saturating_add(1);
        let expected = seen.kind;
        if expected != UNREADABLE && expected != found {
            fix(FileKind::of_raw(expected));
            tell.add(Problem::NameType { directory, name: shown(), ino, found, expected });
        }
        if expected == DIRECTORY {
            let known = self.directories.entry(ino).or_default();
            let first = known.place(ino);
            if first == 0 {
                known.named_in = directory;
            } else {
                known.has_names = true;
                fix(None);
                let (name, second) = (shown(), directory);
                tell.add(Problem::TwoNames { ino, first, second, name });
            }
            let above = self.directories.entry(directory).or_default();
            above.directories = above.directories.saturating_add(1);
        }
    }
}
