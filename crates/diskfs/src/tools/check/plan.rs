//! The plan of a repair, made by a check.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::finding::Part;
use crate::btree::Record;
use crate::dir::DirEntry;
use crate::format::extent::Extent;
use crate::format::group::InodeChunks;
use crate::inode::attr::Attribute;
use crate::inode::core::FileKind;

/// Maximum number of changes of one kind that one round collects; the next round finds the rest.
const MOST: usize = 1 << 16;

/// The changes of a repair, from the findings of a check.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Inodes whose figures are wrong, by number.
    pub(crate) inodes: BTreeMap<u64, InodeFix>,
    /// Whether the volume lacks the feature of immutable and append-only inodes, and has one.
    pub(crate) lacks_immutable: bool,
    /// Whether there is no root directory.
    pub(crate) lacks_root: bool,
    /// Blocks of inodes that are damaged, or have damaged records.
    pub(crate) records: BTreeSet<u64>,
    /// Groups whose trees of chunks are damaged, and the chunks that were found without them.
    pub(crate) chunk_trees: Vec<(u32, Vec<Record<InodeChunks>>)>,
    /// Parts of inodes to rebuild.
    pub(crate) rebuilt: Vec<Rebuilt>,
    /// Chunks whose masks contradict the records of their inodes, by their first blocks.
    pub(crate) masks: BTreeSet<u64>,
    /// Files with impossible extents.
    pub(crate) cuts: BTreeSet<u64>,
    /// Blocks of files that have another owner too, by the inode that was found later.
    pub(crate) moves: BTreeMap<u64, Vec<Range<u64>>>,
    /// Blocks of trees that already had another owner.
    pub(crate) tree_blocks: Vec<Range<u64>>,
    /// Names to change.
    pub(crate) names: Vec<NameFix>,
    /// Directories that are their own ancestors.
    pub(crate) loops: Vec<u64>,
    /// Inodes that are in use and have no name.
    pub(crate) lost: Vec<u64>,
    /// Unowned blocks; recorded only if the repair needs any.
    pub(crate) pool: Vec<Range<u64>>,
}

/// The changes of an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InodeFix {
    pub(crate) nlink: Option<u32>,
    pub(crate) blocks: Option<u64>,
    pub(crate) parent: Option<u64>,
    pub(crate) flags: Option<u16>,
    /// The size of a link.
    pub(crate) size: Option<u64>,
}

/// A name to correct or remove.
#[derive(Clone, Debug)]
pub(crate) struct NameFix {
    pub(crate) directory: u64,
    pub(crate) position: u64,
    pub(crate) name: Box<[u8]>,
    /// The inode and its type, if only the type of the name is wrong; `None` to remove the name.
    pub(crate) to: Option<(u64, FileKind)>,
}

/// A part of an inode with its new contents.
#[derive(Clone, Debug)]
pub(crate) struct Rebuilt {
    pub(crate) ino: u64,
    pub(crate) content: Content,
    /// The readable blocks of its tree, which can be used again.
    pub(crate) blocks: Vec<u64>,
}

/// The contents that a repair writes.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Names, in the order of insertion.
    Names(Vec<SalvagedName>),
    /// Extents, in order.
    Extents(Vec<Extent>),
    /// Attributes, in order.
    Attributes(Vec<Attribute>),
    /// The target of a link, which is lost.
    Target,
}

impl Content {
    pub(crate) fn part(&self) -> Part {
        match self {
            Self::Names(_) => Part::Names,
            Self::Extents(_) => Part::Extents,
            Self::Attributes(_) => Part::Attributes,
            Self::Target => Part::Target,
        }
    }
}

/// A name that a repair preserves.
#[derive(Clone, Debug)]
pub(crate) struct SalvagedName {
    pub(crate) name: Box<[u8]>,
    pub(crate) ino: u64,
    pub(crate) kind: FileKind,
}

impl Plan {
    /// Plans to remove a name, or to set the type of its inode.
    pub(crate) fn name(&mut self, directory: u64, entry: &DirEntry<'_>, kind: Option<FileKind>) {
        if self.names.len() < MOST {
            let (position, name) = (entry.position, entry.name.into());
            let to = kind.map(|kind| (entry.ino, kind));
            self.names.push(NameFix { directory, position, name, to });
        }
    }

    /// Plans to correct the masks of a chunk.
    pub(crate) fn mask(&mut self, chunk: u64) {
        self.masks.insert(chunk);
    }

    /// Plans to cut impossible extents of a file.
    pub(crate) fn cut(&mut self, ino: u64) {
        self.cuts.insert(ino);
    }

    /// Returns the planned changes of an inode.
    pub(crate) fn inode(&mut self, ino: u64) -> &mut InodeFix {
        self.inodes.entry(ino).or_default()
    }

    /// Plans a name for a nameless inode.
    pub(crate) fn lost(&mut self, ino: u64) {
        if self.lost.len() < MOST {
            self.lost.push(ino);
        }
    }

    /// Returns whether the plan needs unowned blocks.
    pub(crate) fn needs_blocks(&self) -> bool {
        let is_nothing = self.moves.is_empty() && self.tree_blocks.is_empty();
        let is_whole = self.chunk_trees.is_empty() && self.rebuilt.is_empty();
        !(is_nothing && is_whole && self.lost.is_empty())
    }

    /// Returns whether a block has two owners.
    pub(crate) fn is_shared(&self, block: u64) -> bool {
        let of_files = self.moves.values().flatten();
        of_files.chain(&self.tree_blocks).any(|run| run.contains(&block))
    }

    /// Records unowned blocks.
    pub(crate) fn unowned(&mut self, blocks: Range<u64>) {
        if self.pool.len() < MOST {
            self.pool.push(blocks);
        }
    }
}
