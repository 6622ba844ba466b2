//! Delayed changes of inodes: which inodes are free and which are orphans, in memory first. As the
//! delayed items of btrfs, but for the inode chunks of a group.
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
//!
//! # When changes are delayed
//!
//! When the [list](DelayedList) of groups is open, and the log space that is set aside is less than
//! a share of the log.
//!
//! [`ChangeList::follow`]: vfscale_journal::ChangeList::follow

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use vfscale_journal::{DelayedList, Reservation};
use vfscale_sync::atomic::{AtomicU64, Ordering};

use crate::base::ranks::DelayedGroupsLock;
use crate::buffer::Buffer;
use crate::format::BLOCK_BYTES;

/// The share of the log that may be set aside for delayed changes.
const LOG_SHARE: u64 = 16;

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

/// The delayed changes of one transaction in one group, not noted yet.
#[derive(Debug, Default)]
pub(super) struct DelayedUpdate {
    /// The changed chunks, as they are after the transaction.
    pub(super) masks: SmallVec<[(u64, Masks); 1]>,
    /// Freed inodes: the chunk, and a mask.
    pub(super) freed: SmallVec<[(u64, u64); 1]>,
    /// By how much the numbers of free inodes and of orphans change.
    pub(super) free_inodes: i64,
    pub(super) orphans: i64,
    /// Number of blocks for which log space is to be set aside.
    pub(super) blocks: u64,
    /// The blocks that writing the records takes, but for those that are held already.
    pub(super) held: Vec<Arc<Buffer>>,
}

impl DelayedUpdate {
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
}

impl DelayedGroups {
    /// Permits transactions to delay changes of inodes, on a volume with a log of `log_bytes`
    /// bytes: each push of that log closes the [list](Self::list), has
    /// [`Groups::write_delayed`](super::Groups::write_delayed) called for all groups on it, and
    /// opens it again.
    pub(crate) fn open(&self, log_bytes: u64) {
        self.log_bytes_max.store(log_bytes / LOG_SHARE, Ordering::Relaxed);
        self.list.open();
    }

    /// Returns whether a transaction that holds the lock of a group may delay its changes.
    pub(super) fn is_open(&self) -> bool {
        let has_log =
            || self.log_bytes.load(Ordering::Relaxed) < self.log_bytes_max.load(Ordering::Relaxed);
        self.list.is_open() && has_log()
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
