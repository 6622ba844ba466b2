//! What a transaction does with blocks and inodes.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::format::Run;

/// What a transaction does with blocks and inodes of the groups, collected until it commits.
///
/// Claims in here belong to it: either [`Groups::finish`](super::Groups::finish) and
/// [`Finished::committed`](super::Finished::committed) make them last, or
/// [`Groups::abandon`](super::Groups::abandon) takes them back.
#[derive(Debug, Default)]
#[must_use = "claims that are lost are not free before the next mount"]
pub struct Changes {
    /// Blocks that are used from now on.
    pub(super) claims: Vec<Run>,
    /// Blocks of files that are free from now on.
    pub(super) frees: Vec<Run>,
    /// Blocks of metadata that are free from now on: what was logged of them is cancelled in this
    /// transaction.
    pub(super) destroyed: Vec<Run>,
    /// In ascending order of their numbers.
    pub(super) inodes: Inodes,
    /// The first blocks of chunks that are made, and which of their inodes nobody has yet.
    pub(super) new_chunks: BTreeMap<u64, u64>,
    /// Groups that account for all of their blocks from now on.
    pub(super) extended: BTreeSet<u32>,
    /// Inodes that were taken out of indexes: their chunks, and one bit each.
    pub(super) claimed_inodes: SmallVec<[(u64, u64); 1]>,
    pub(super) undo: Undo,
}

/// What becomes of inodes, by their numbers.
pub(super) type Inodes = SmallVec<[(u64, InodeChange); 2]>;

/// What was done to indexes while a transaction was written into the trees.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// Blocks for the trees.
    pub(super) fetched: Vec<Run>,
    /// Blocks that were put into a tree of free space, and are pending since.
    pub(super) withheld: Vec<Run>,
    /// Chunks that were found to be empty, and which of their inodes could be had.
    pub(super) chunks: Vec<(u64, u64)>,
}

/// What becomes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InodeChange {
    /// It was free before and is made.
    pub(super) is_new: bool,
    /// It is free after this.
    pub(super) is_freed: bool,
    /// Whether it is an orphan after this, if that is said.
    pub(super) orphan: Option<bool>,
}

impl Changes {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is to be done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
            && self.frees.is_empty()
            && self.destroyed.is_empty()
            && self.inodes.is_empty()
            && self.new_chunks.is_empty()
            && self.extended.is_empty()
    }

    /// Whether nothing is to be done, and nothing was taken that would have to be given back.
    pub(crate) fn is_untouched(&self) -> bool {
        let Undo { fetched, withheld, chunks } = &self.undo;
        let has_taken = !self.claimed_inodes.is_empty()
            || !fetched.is_empty()
            || !withheld.is_empty()
            || !chunks.is_empty();
        self.is_empty() && !has_taken
    }

    /// The claim becomes that of the transaction: its blocks are used from now on.
    pub fn use_claim(&mut self, run: Run) {
        if !run.is_empty() {
            self.claims.push(run);
        }
    }

    /// Takes a claim of exactly this run out again, which is then the caller's, to be given back.
    /// Says whether there was one.
    #[must_use]
    pub fn drop_claim(&mut self, run: Run) -> bool {
        // What was claimed last is dropped first.
        let at = self.claims.iter().rposition(|claim| *claim == run);
        at.map(|at| self.claims.swap_remove(at)).is_some()
    }

    /// Blocks that held data of files, which nothing leads to any more once this is committed.
    pub fn free(&mut self, run: Run) {
        if !run.is_empty() {
            self.frees.push(run);
        }
    }

    /// A block of metadata that was [destroyed](super::GroupNodes::destroy) in this transaction.
    pub fn free_destroyed(&mut self, address: u64) {
        self.destroyed.push(Run::new(address, 1));
    }

    /// What becomes of an inode.
    pub(super) fn inode(&mut self, ino: u64) -> &mut InodeChange {
        let at = self.inodes.binary_search_by_key(&ino, |(ino, _)| *ino).unwrap_or_else(|at| {
            self.inodes.insert(at, (ino, InodeChange::default()));
            at
        });
        &mut self.inodes[at].1
    }

    /// The inode is free from now on.
    pub fn free_inode(&mut self, ino: u64) {
        self.inode(ino).is_freed = true;
    }

    /// The inode is an orphan from now on, or is none any more. Saying what is so already does no
    /// harm.
    pub fn set_orphan(&mut self, ino: u64, is_orphan: bool) {
        self.inode(ino).orphan = Some(is_orphan);
    }

    /// The group accounts for all of its blocks from now on: those that the volume has grown by are
    /// free.
    pub fn extend(&mut self, group: u32) {
        self.extended.insert(group);
    }

    /// The addresses of the first blocks of the chunks of inodes that are made: the transaction
    /// logs their blocks as fresh ones.
    pub fn new_chunks(&self) -> impl Iterator<Item = u64> {
        self.new_chunks.keys().copied()
    }

    /// The addresses of the first blocks of the chunks that are given up, once
    /// [`Groups::finish`](super::Groups::finish) has found them: the transaction cancels what the
    /// log has of them and of their 64 inodes each.
    pub fn freed_chunks(&self) -> impl Iterator<Item = u64> {
        self.undo.chunks.iter().map(|(chunk, _)| *chunk)
    }
}
