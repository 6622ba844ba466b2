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
//! * Log space is set aside for the header of the group, and a leaf for each chunk. Writing a
//!   record in place takes no other block. Hence a chunk that becomes empty, and may have to be
//!   removed from its tree, is not delayed.
//!
//! # When changes are delayed
//!
//! Not from the beginning of a push to the switch of the context, so that the push ends. Not by the
//! first transactions after a context of few items, as when every call is followed by a sync: each
//! push would write the bits of one or two calls, one group after the other, which the calls
//! themselves write in parallel. Not while the log space that is set aside exceeds a share of the
//! log.
//!
//! [`ChangeList::follow`]: vfscale_journal::ChangeList::follow

use std::collections::BTreeMap;

use smallvec::SmallVec;
use vfscale_journal::Reservation;
use vfscale_sync::Mutex;
use vfscale_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::base::ranks::DelayedGroups;
use crate::format::BLOCK_BYTES;

/// A context with fewer items than this is small.
const ITEMS_MIN: usize = 16;
/// Number of transactions that write their changes themselves after a small context.
const DIRECT: u32 = 16;
/// All transactions write their changes themselves.
const CLOSED: u32 = u32::MAX;
/// The share of the log that may be set aside for delayed changes.
const LOG_SHARE: u64 = 16;

/// Masks of the inodes of a chunk: the free ones, and the orphans.
pub(super) type Masks = (u64, u64);

/// The part of a group that its lock protects, besides its trees.
#[derive(Debug, Default)]
pub(super) struct GroupState {
    pub(super) delayed: DelayedChunks,
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
#[derive(Debug)]
pub(super) struct DelayedList {
    /// Number of transactions that have to write their changes themselves, before others may delay
    /// them; or [`CLOSED`].
    direct: AtomicU32,
    /// Number of groups that are listed, or that the push is writing.
    count: AtomicUsize,
    list: Mutex<Vec<u32>, DelayedGroups>,
    /// The log space that is set aside in all groups, and its limit, in bytes.
    log_bytes: AtomicU64,
    log_bytes_max: AtomicU64,
}

impl Default for DelayedList {
    fn default() -> Self {
        Self {
            direct: AtomicU32::new(CLOSED),
            count: AtomicUsize::new(0),
            list: Mutex::default(),
            log_bytes: AtomicU64::new(0),
            log_bytes_max: AtomicU64::new(0),
        }
    }
}

impl DelayedList {
    /// Permits transactions to delay changes, on a volume with a log of `log_bytes` bytes whose
    /// pushes write them.
    pub(super) fn open(&self, log_bytes: u64) {
        self.log_bytes_max.store(log_bytes / LOG_SHARE, Ordering::Relaxed);
        self.direct.store(0, Ordering::Release);
    }

    /// Returns whether a transaction that holds the lock of a group may delay its changes; counts
    /// it if not.
    pub(super) fn is_open(&self) -> bool {
        let direct = self.direct.load(Ordering::Acquire);
        if direct != 0 {
            if direct != CLOSED {
                // If another thread has changed it, this transaction need not count.
                let counted = direct - 1;
                let (ok, failed) = (Ordering::Release, Ordering::Relaxed);
                let _ = self.direct.compare_exchange(direct, counted, ok, failed);
            }
            return false;
        }
        self.log_bytes.load(Ordering::Relaxed) < self.log_bytes_max.load(Ordering::Relaxed)
    }

    /// Ends the delaying until [`ended`](Self::ended).
    pub(super) fn close(&self) {
        self.direct.store(CLOSED, Ordering::Release);
    }

    /// Returns whether a group may have delayed changes. Exact while no commit is in progress.
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Notes that the context has ended, with so many items.
    pub(super) fn ended(&self, items: usize) {
        let is_small = (1..ITEMS_MIN).contains(&items);
        self.direct.store(if is_small { DIRECT } else { 0 }, Ordering::Release);
    }

    /// Lists a group. The caller holds its lock, and is about to commit its first delayed change.
    pub(super) fn add(&self, group: u32) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.list.lock().push(group);
    }

    /// Takes a group off the list; it counts until [`written`](Self::written).
    pub(super) fn take(&self) -> Option<u32> {
        self.list.lock().pop()
    }

    /// Notes that a group that was [taken](Self::take) has no more delayed changes.
    pub(super) fn written(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
    }

    /// Counts log space that is set aside. Most changes need none, and write nothing here.
    pub(super) fn set_aside(&self, log_bytes: u64) {
        if log_bytes > 0 {
            self.log_bytes.fetch_add(log_bytes, Ordering::Relaxed);
        }
    }

    /// Counts log space that is used.
    pub(super) fn use_up(&self, log_bytes: u64) {
        if log_bytes > 0 {
            self.log_bytes.fetch_sub(log_bytes, Ordering::Relaxed);
        }
    }
}

/// Returns the reservation for logging so many blocks, in bytes.
pub(super) fn bytes_of(blocks: u64) -> u64 {
    blocks * Reservation::item_bytes(BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests;
