//! The orphans of a volume, in memory. Counterpart of the orphan list of ext4.
//!
//! # Purpose
//!
//! An orphan is an inode that the next mount has to process if this one does not: it has lost its
//! last name, or it is being truncated in several transactions. On disk that is a bit in the record
//! of its chunk. In memory the inode has a mark: whether it is an orphan already is checked before
//! any lock is taken, and mostly no more is needed (Kara 2014). A file that is truncated within one
//! transaction never becomes an orphan.
//!
//! Kara's patches have one list for the file system, and Kara's later orphan file has blocks for
//! each CPU. On disk nothing connects two orphans here, and nobody goes through all of them in
//! memory. So there is no list, but a count with a part for each CPU slot: adding or removing an
//! orphan changes nothing that it shares with another, except the group if both are in the same
//! one, and takes no lock.
//!
//! # Invariants
//!
//! * An inode has the mark exactly if the last committed transaction has left it an orphan. Hence
//!   the commit sets and removes it, once nothing can fail any more but the log, and a failed
//!   transaction leaves the mark unchanged.
//! * The mark of an inode changes only while the inode is locked: a thread that holds the lock
//!   reads it without another lock. A mount sets it from the disk, before the inodes are used.
//! * The node of an orphan [stays in the table](crate::icache::table) of inodes. Hence it is not
//!   evicted, and read again without its mark.
//!
//! # Without Kara's patches
//!
//! One count, and one lock that covers all of it. It is held while a thread checks whether an inode
//! is an orphan. A commit that changes that holds it from before it changes the groups on disk,
//! where it may read and wait for the group, until the mark is changed.
//!
//! # Locks
//!
//! `s_orphan_lock`, used without the patches, precedes the locks of groups.

use std::fmt;
use std::sync::Arc;

use vfscale_sync::percpu::PerCpuCounter;
use vfscale_sync::{Mutex, MutexGuard};

use crate::base::ranks::OrphanLock;
use crate::inode::incore::Node;

/// The orphans of an open volume. `Send` and `Sync`.
pub struct VolumeOrphans {
    count: PerCpuCounter,
    /// The lock of all orphans; only without Kara's patches.
    whole: Option<Mutex<(), OrphanLock>>,
}

/// The guard of the lock of all orphans, if there is one.
pub(crate) type WholeGuard<'l> = Option<MutexGuard<'l, (), OrphanLock>>;

impl VolumeOrphans {
    /// Creates a count of no orphans in `parts` parts; with 0, in one part, with the lock used
    /// without Kara's patches.
    #[must_use]
    pub fn new(parts: usize) -> Self {
        let whole = (parts == 0).then(|| Mutex::new(()));
        Self { count: PerCpuCounter::new(parts.max(1)), whole }
    }

    /// Returns whether an inode is an orphan. Exact if the caller holds the inode locked.
    #[must_use]
    pub fn has(&self, node: &Node) -> bool {
        let _whole = self.lock_whole();
        node.is_orphan()
    }

    /// Locks all orphans before some of them are changed, without Kara's patches. Sleeps.
    pub(crate) fn lock_whole(&self) -> WholeGuard<'_> {
        self.whole.as_ref().map(|whole| whole.lock())
    }

    /// Adds an inode to the orphans or removes it, with [all orphans](Self::lock_whole) locked.
    pub(crate) fn set(&self, _: &WholeGuard<'_>, node: &Node, is_orphan: bool) {
        if node.is_orphan() != is_orphan {
            node.set_orphan(is_orphan);
            self.count.add(if is_orphan { 1 } else { -1 });
        }
    }

    /// Adds an orphan that was found on disk. Called by a mount, before the inode is used.
    pub fn found(&self, node: &Arc<Node>) {
        let _locked = node.lock();
        self.set(&self.lock_whole(), node, true);
    }

    /// Returns the number of orphans. Changes that are made during the call may be seen or not.
    #[must_use]
    pub fn len(&self) -> usize {
        // A sum that misses an orphan but not its removal may be negative.
        usize::try_from(self.count.sum()).unwrap_or(0)
    }

    /// Returns whether there are no orphans.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of parts of the count.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.count.parts().len()
    }
}

impl fmt::Debug for VolumeOrphans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeOrphans").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
