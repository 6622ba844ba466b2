//! Delayed changes of groups: which inodes are free and which are orphans, and which runs of blocks
//! are free, in memory first. As the delayed items and references of btrfs.
//!
//! # Purpose
//!
//! Creating a file, removing it and freeing it change the same record of the same tree of a group,
//! and counters in its header: each time two blocks are copied and logged, for a few bits. So a
//! transaction that changes nothing else of a group notes the new bits in memory, and sets log
//! space aside for the two blocks. A transaction at the end of the context
//! ([`Hooks::run_delayed`](vfscale_journal::Hooks::run_delayed)), or an earlier one that changes
//! the trees of the group anyway, writes the bits of all of them.
//!
//! Small files come and go with a run of blocks each, and likewise change one tree and the header.
//! A few runs of files are noted in the same way ([`DelayedRuns`]). Runs that touch enter the tree
//! as one, and what comes and goes within a context does not enter it.
//!
//! # Invariants
//!
//! * The bits are protected by the lock of the group, like the trees. The state of a group on disk,
//!   wherever it is read while the volume is open, is that of the trees with these bits. A bit is
//!   changed only if the former state permits that, as in a tree; so whoever finds that a chunk is
//!   damaged is the call that changes it.
//! * A context ends only while no group has delayed changes, so a checkpoint contains the bits of
//!   all inodes in it. For that a group is on the list, and counted, before the first transaction
//!   that delays a change of it is on the CIL, and until a transaction of the same context has
//!   logged the change. A push counts while no commit is in progress.
//! * Transactions of one group are ordered ([`ChangeList::follow`]) although they need not log a
//!   common item: each follows the last one, under the lock of the group. A recovery depends on it
//!   for a chunk and the inodes in it.
//! * The header and the path to the record of each chunk stay in memory from then on, so an
//!   unreadable block fails the call that delays a change, and not the push.
//! * Log space is set aside for the header of the group, and a leaf for each chunk. Writing a
//!   record in place takes no other block. Hence a chunk that becomes empty, and may have to be
//!   removed from its tree, is not delayed.
//! * A run is delayed by a transaction that has found in the tree that it is free, or in use, so
//!   damage is met by the call. Until it is in the tree it stays as it was in the index: a claim
//!   is pending, and a free is none of the free blocks. A freed run counts as expected
//!   ([`Space::expect`](super::space::Space::expect)) from the commit on.
//! * The blocks of the tree of free space that a run may take stay in memory as well, and log space
//!   is set aside for as many as it may create, and for all that exist, each once.
//!
//! # When changes are delayed
//!
//! When the [list](DelayedList) of groups is open, and the log space that is set aside is less than
//! a share of the log.
//!
//! [`ChangeList::follow`]: vfscale_journal::ChangeList::follow

mod runs;

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_journal::{DelayedList, Reservation};
use vfscale_sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) use runs::{DelayedRuns, RunsToWrite};

use crate::base::ranks::DelayedGroupsLock;
use crate::buffer::Buffer;
use crate::format::{BLOCK_BYTES, BlockRange};

/// The share of the log that may be set aside for delayed changes.
const LOG_SHARE: u64 = 8;

/// Most runs of a transaction in a group that are delayed: what a
/// [reservation](super::Groups::log_blocks) has for the group as a whole is more than so many need
/// here beyond their own.
pub(super) const RUNS_MAX: usize = 4;

/// Masks of the inodes of a chunk: the free ones, and the orphans.
pub(super) type Masks = (u64, u64);

/// The part of a group that its lock protects, besides its trees.
#[derive(Debug, Default)]
pub(super) struct GroupState {
    pub(super) delayed: DelayedChunks,
    /// Whether the group has an index, which it retains.
    pub(super) has_index: bool,
    /// The order id of the last transaction that has changed the group.
    pub(super) order: u64,
    /// The CPU of the last commit.
    pub(super) cpu: u32,
}

/// The delayed changes of a group.
#[derive(Debug, Default)]
pub(super) struct DelayedChunks {
    /// The chunks that differ from their records, by their first blocks.
    pub(super) masks: BTreeMap<u64, Masks>,
    pub(super) runs: DelayedRuns,
    /// Number of blocks that were freed, and are expected to be available again.
    pub(super) expected: u64,
    /// The ranges of blocks whose records, and those beside them, are in leaves that are held.
    pub(super) covered: Vec<Covered>,
    /// Number of existing tree blocks for which space is set aside.
    pub(super) existing: u64,
    /// Number of blocks that can be logged in the space that is set aside.
    pub(super) blocks: u64,
    /// That space, in bytes of log.
    pub(super) log_bytes: u64,
    /// Whether the group is on the list.
    pub(super) is_listed: bool,
    /// The blocks that writing the records takes, which stay in memory until then: whoever delays
    /// a change has read them, and the push reads none.
    pub(super) held: Vec<Arc<Buffer>>,
}

impl DelayedChunks {
    /// Returns whether nothing differs from the trees.
    pub(super) fn is_empty(&self) -> bool {
        self.masks.is_empty() && self.runs.is_empty()
    }

    /// Notes that all changes are in the trees.
    pub(super) fn clear(&mut self) {
        self.masks.clear();
        self.runs = DelayedRuns::default();
        self.covered.clear();
        self.held.clear();
        (self.expected, self.existing) = (0, 0);
    }

    /// Notes the runs and the blocks of the changes of a transaction.
    pub(super) fn note(&mut self, update: &mut DelayedUpdate) {
        self.held.append(&mut update.held);
        self.expected += update.expected();
        if let Some(mut runs) = update.runs.take() {
            self.covered.append(&mut runs.covered);
            self.existing += runs.existing;
            runs.claims.into_iter().for_each(|run| self.runs.claim(run));
            runs.frees.into_iter().for_each(|run| self.runs.free(run));
        }
    }
}

/// A range of blocks: the first one, and the one behind, if there is one.
pub(super) type Covered = (u64, Option<u64>);

/// The runs of one transaction in one group, not noted yet.
#[derive(Debug, Default)]
pub(super) struct RunsUpdate {
    pub(super) claims: Vec<BlockRange>,
    pub(super) frees: Vec<BlockRange>,
    /// The ranges that are held for them besides those of earlier transactions.
    pub(super) covered: Vec<Covered>,
    pub(super) existing: u64,
}

/// The delayed changes of one transaction in one group, not noted yet.
#[derive(Debug, Default)]
pub(super) struct DelayedUpdate {
    /// The changed chunks, as they are after the transaction.
    pub(super) masks: SmallVec<[(u64, Masks); 1]>,
    /// Freed inodes: the chunk, and a mask.
    pub(super) freed: SmallVec<[(u64, u64); 1]>,
    /// Apart, for most change inodes only.
    pub(super) runs: Option<Box<RunsUpdate>>,
    /// By how much the numbers of free inodes and of orphans change.
    pub(super) free_inodes: i64,
    pub(super) orphans: i64,
    /// Number of blocks for which log space is to be set aside.
    pub(super) blocks: u64,
    /// The blocks that writing the records takes, but for those that are held already.
    pub(super) held: Vec<Arc<Buffer>>,
}

impl DelayedUpdate {
    /// Returns the number of freed blocks.
    pub(super) fn expected(&self) -> u64 {
        self.runs.iter().flat_map(|runs| &runs.frees).map(|run| run.len()).sum()
    }

    pub(super) fn add(&mut self, chunk: u64, masks: Masks) {
        match self.masks.iter_mut().find(|(other, _)| *other == chunk) {
            Some((_, now)) => *now = masks,
            None => self.masks.push((chunk, masks)),
        }
    }

    pub(super) fn get(&self, chunk: u64) -> Option<Masks> {
        self.masks.iter().find(|(other, _)| *other == chunk).map(|(_, masks)| *masks)
    }
}

/// The groups of a volume with delayed changes.
#[derive(Debug, Default)]
pub(crate) struct DelayedGroups {
    pub(crate) list: DelayedList<u32, DelayedGroupsLock>,
    /// The log space that is set aside in all groups, and its limit, in bytes.
    log_bytes: AtomicU64,
    log_bytes_max: AtomicU64,
    /// Whether runs are delayed.
    has_runs: AtomicBool,
}

impl DelayedGroups {
    /// Permits transactions to delay changes of inodes, on a volume with a log of `log_bytes`
    /// bytes: each push of that log closes the [list](Self::list), has
    /// [`Groups::write_delayed`](super::Groups::write_delayed) called for all groups on it, and
    /// opens it again. Without `has_runs` only inodes are delayed, as it was before there was a
    /// list of busy extents for each CPU.
    pub(crate) fn open(&self, log_bytes: u64, has_runs: bool) {
        self.has_runs.store(has_runs, Ordering::Relaxed);
        self.log_bytes_max.store(log_bytes / LOG_SHARE, Ordering::Relaxed);
        self.list.open();
    }

    /// Returns whether a transaction that holds the lock of a group may delay its changes.
    pub(super) fn is_open(&self) -> bool {
        let has_log =
            || self.log_bytes.load(Ordering::Relaxed) < self.log_bytes_max.load(Ordering::Relaxed);
        self.list.is_open() && has_log()
    }

    /// Returns whether runs are delayed.
    pub(super) fn has_runs(&self) -> bool {
        self.has_runs.load(Ordering::Relaxed)
    }

    /// Counts log space that is set aside. Most changes need none, and write nothing here.
    pub(super) fn set_aside(&self, log_bytes: u64) {
        if log_bytes > 0 {
            self.log_bytes.fetch_add(log_bytes, Ordering::Relaxed);
        }
    }

    /// Returns the log space that is set aside, in bytes.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Acquire)
    }

    /// Counts log space that is used.
    pub(super) fn use_up(&self, log_bytes: u64) {
        if log_bytes > 0 {
            self.log_bytes.fetch_sub(log_bytes, Ordering::Release);
        }
    }
}

/// Returns the reservation for logging so many blocks, in bytes.
pub(super) fn bytes_of(blocks: u64) -> u64 {
    blocks * Reservation::item_bytes(BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests;
