//! The changes of a transaction to blocks and inodes.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::format::BlockRange;
use crate::format::inode::{CHUNK_INODES, block_of, chunk_of};

/// The changes of a transaction to blocks and inodes of the groups, collected until it commits.
///
/// The transaction owns the claims in here: either [`Groups::finish`](super::Groups::finish) and
/// [`Finished::committed`](super::Finished::committed) make them permanent, or
/// [`Groups::abandon`](super::Groups::abandon) gives them back.
#[derive(Debug, Default)]
#[must_use = "lost claims are not free before the next mount"]
pub struct Changes {
    /// The changed inodes, in ascending order of their numbers.
    pub(super) inodes: Inodes,
    /// Inodes that were taken out of indexes: the chunk, and a mask.
    pub(super) claimed_inodes: SmallVec<[(u64, u64); 1]>,
    /// The changes of blocks. Apart, for most transactions change inodes only, and are moved.
    blocks: Option<Box<BlockChanges>>,
}

/// The changes of a transaction to blocks.
#[derive(Debug, Default)]
pub(super) struct BlockChanges {
    /// Newly allocated blocks.
    pub(super) claims: Vec<BlockRange>,
    /// Freed blocks of files.
    pub(super) frees: Vec<BlockRange>,
    /// Freed blocks of metadata, whose log items are cancelled in this transaction.
    pub(super) destroyed: Vec<BlockRange>,
    /// The first blocks of new chunks, and the mask of their unclaimed inodes.
    pub(super) new_chunks: BTreeMap<u64, u64>,
    /// Groups that are to account for all of their blocks.
    pub(super) extended: BTreeSet<u32>,
    pub(super) undo: Undo,
}

impl BlockChanges {
    fn is_empty(&self) -> bool {
        self.claims.is_empty()
            && self.frees.is_empty()
            && self.destroyed.is_empty()
            && self.new_chunks.is_empty()
            && self.extended.is_empty()
    }
}

/// Changes of inodes, sorted by number.
pub(super) type Inodes = SmallVec<[(u64, InodeChange); 2]>;

/// The changes made to indexes while a transaction was written into the trees.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// Blocks for the trees.
    pub(super) fetched: Vec<BlockRange>,
    /// Blocks that were put into a tree of free space, and are pending since then.
    pub(super) withheld: Vec<BlockRange>,
    /// Chunks that were found empty, and the mask of their inodes that were available.
    pub(super) chunks: Vec<(u64, u64)>,
}

/// The change of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InodeChange {
    /// Whether it was free before and is created.
    pub(super) is_new: bool,
    /// Whether it is freed.
    pub(super) is_freed: bool,
    /// Whether it becomes or ceases to be an orphan; `None` for no change.
    pub(super) orphan: Option<bool>,
}

impl Changes {
    /// Creates an empty set of changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the changes of blocks, if there may be some.
    pub(super) fn blocks(&self) -> Option<&BlockChanges> {
        self.blocks.as_deref()
    }

    /// Returns the changes of blocks, to add one.
    pub(super) fn blocks_mut(&mut self) -> &mut BlockChanges {
        self.blocks.get_or_insert_default()
    }

    /// Returns the changes of inodes, and a place for those of blocks.
    pub(super) fn split(&mut self) -> (&[(u64, InodeChange)], &mut Option<Box<BlockChanges>>) {
        (&self.inodes, &mut self.blocks)
    }

    /// Returns whether only existing inodes change.
    pub(super) fn is_of_inodes(&self) -> bool {
        self.blocks().is_none_or(BlockChanges::is_empty)
    }

    /// Returns whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.is_of_inodes()
    }

    /// Returns whether there are no changes, and nothing was taken that would have to be given
    /// back.
    pub(crate) fn is_untouched(&self) -> bool {
        let has_taken = |blocks: &BlockChanges| {
            let Undo { fetched, withheld, chunks } = &blocks.undo;
            !fetched.is_empty() || !withheld.is_empty() || !chunks.is_empty()
        };
        self.is_empty() && self.claimed_inodes.is_empty() && !self.blocks().is_some_and(has_taken)
    }

    /// Transfers a claim to the transaction, which allocates its blocks.
    pub fn use_claim(&mut self, run: BlockRange) {
        if !run.is_empty() {
            self.blocks_mut().claims.push(run);
        }
    }

    /// Removes a claim of exactly this run, which the caller owns again and is to give back.
    /// Returns whether there was one.
    #[must_use]
    pub fn drop_claim(&mut self, run: BlockRange) -> bool {
        // The last claim is dropped first.
        let claims = &mut self.blocks_mut().claims;
        let at = claims.iter().rposition(|claim| *claim == run);
        at.map(|at| claims.swap_remove(at)).is_some()
    }

    /// Leaves an inode out that was just claimed: it stays claimed, and no transaction gets it
    /// before the next opening. Does nothing for an inode of a new chunk.
    pub(crate) fn withhold_inode(&mut self, ino: u64) {
        let (chunk, bit) = (chunk_of(block_of(ino)), 1 << (ino % CHUNK_INODES));
        if let Some(at) = self.claimed_inodes.iter().rposition(|claim| *claim == (chunk, bit)) {
            self.claimed_inodes.swap_remove(at);
            self.inodes.retain(|(changed, _)| *changed != ino);
        }
    }

    /// Frees data blocks of a file, which nothing refers to once this is committed.
    pub fn free(&mut self, run: BlockRange) {
        if !run.is_empty() {
            self.blocks_mut().frees.push(run);
        }
    }

    /// Frees a block of metadata that was [destroyed](super::GroupNodes::destroy) in this
    /// transaction.
    pub fn free_destroyed(&mut self, address: u64) {
        self.blocks_mut().destroyed.push(BlockRange::new(address, 1));
    }

    /// Returns the entry of an inode.
    pub(super) fn inode(&mut self, ino: u64) -> &mut InodeChange {
        let at = self.inodes.binary_search_by_key(&ino, |(ino, _)| *ino).unwrap_or_else(|at| {
            self.inodes.insert(at, (ino, InodeChange::default()));
            at
        });
        &mut self.inodes[at].1
    }

    /// Frees an inode.
    pub fn free_inode(&mut self, ino: u64) {
        self.inode(ino).is_freed = true;
    }

    /// Makes the inode an orphan, or ends its being one. Does no harm if that is its state already.
    pub fn set_orphan(&mut self, ino: u64, is_orphan: bool) {
        self.inode(ino).orphan = Some(is_orphan);
    }

    /// Makes the group account for all of its blocks: those that the volume has grown by become
    /// free.
    pub fn extend(&mut self, group: u32) {
        self.blocks_mut().extended.insert(group);
    }

    /// Returns the addresses of the first blocks of new chunks of inodes: the transaction logs
    /// their blocks as fresh ones.
    pub fn new_chunks(&self) -> impl Iterator<Item = u64> {
        self.blocks().into_iter().flat_map(|blocks| blocks.new_chunks.keys().copied())
    }

    /// Returns the addresses of the first blocks of freed chunks, once
    /// [`Groups::finish`](super::Groups::finish) has found them: the transaction cancels the log
    /// items of their blocks and of their 64 inodes each.
    pub fn freed_chunks(&self) -> impl Iterator<Item = u64> {
        let blocks = self.blocks().into_iter();
        blocks.flat_map(|blocks| blocks.undo.chunks.iter().map(|(chunk, _)| *chunk))
    }

    /// Returns the claims.
    #[cfg(test)]
    pub(super) fn claims(&self) -> impl Iterator<Item = BlockRange> {
        self.blocks().into_iter().flat_map(|blocks| blocks.claims.iter().copied())
    }

    /// Returns what is freed.
    #[cfg(test)]
    pub(super) fn freed(&self) -> impl Iterator<Item = BlockRange> {
        let of = |blocks: &'_ BlockChanges| [blocks.frees.clone(), blocks.destroyed.clone()];
        self.blocks().into_iter().flat_map(of).flatten()
    }
}

/// Sorts and merges runs, and finds the group of each. Returns as an error a run that overlaps
/// another, is empty, or does not lie in exactly one group.
pub(super) fn in_order(
    mut runs: Vec<BlockRange>,
    mut group_of: impl FnMut(BlockRange) -> Option<u32>,
) -> Result<Vec<(u32, BlockRange)>, BlockRange> {
    runs.sort_unstable_by_key(|run| run.start);
    let mut ordered: Vec<(u32, BlockRange)> = Vec::with_capacity(runs.len());
    for run in runs {
        let group = group_of(run).ok_or(run)?;
        match ordered.last_mut() {
            Some((_, last)) if last.end() > run.start => return Err(run),
            Some((same, last)) if *same == group && last.end() == run.start => {
                last.blocks = last.blocks.checked_add(run.blocks).ok_or(run)?;
            }
            _ => ordered.push((group, run)),
        }
    }
    Ok(ordered)
}
