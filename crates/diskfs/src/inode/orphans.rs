//! The orphans of a volume, in memory. Counterpart of the orphan list of ext4.
//!
//! # Purpose
//!
//! An orphan is an inode that the next mount has to process if this one does not: it has lost its
//! last name, or it is being truncated in several transactions. On disk that is a bit in the record
//! of its chunk. In memory the inode is on a list, and stores the number of its list itself:
//! whether it is an orphan already is checked before any lock is taken, and mostly no more is
//! needed (Kara 2014). A file that is truncated within one transaction never becomes an orphan.
//!
//! Kara's patches have one list for the file system. Here each CPU slot has a list, like the blocks
//! of Kara's later orphan file. On disk nothing connects two orphans. Hence adding or removing one
//! changes nothing that it shares with another, except the group if both are in the same one.
//!
//! # Invariants
//!
//! * An inode is on a list exactly if the last committed transaction has left it an orphan. Hence
//!   the commit adds and removes it, once nothing can fail any more but the log, and a failed
//!   transaction leaves the list unchanged.
//! * The list number of an inode changes only while the inode is locked: a thread that holds the
//!   lock reads the number without another lock. A mount sets it from the disk, before the inodes
//!   are used.
//! * A list owns references to its nodes. Hence the node of an orphan is not evicted, and read
//!   again without its list number.
//!
//! # Without Kara's patches
//!
//! One list, and one lock that covers all of it. It is held while a thread checks whether an inode
//! is on the list. A commit that changes the list holds it from before it changes the groups on
//! disk, where it may read and wait for the group, until the list is changed.
//!
//! # Locks
//!
//! `orphan_list`, the lock of one slot, is a leaf, held for one entry. `s_orphan_lock`, used
//! without the patches, precedes the locks of groups.

use std::fmt;
use std::sync::Arc;

use vfscale_sync::percpu::PerCpu;
use vfscale_sync::{Mutex, MutexGuard};

use crate::base::numbers::NumberMap;
use crate::base::ranks::{OrphanLock, OrphanSlot};
use crate::inode::incore::Node;

/// The orphans of an open volume. `Send` and `Sync`.
pub struct OrphanList {
    lists: PerCpu<Mutex<NumberMap<Arc<Node>>, OrphanSlot>>,
    /// The lock of all orphans; only without Kara's patches.
    whole: Option<Mutex<(), OrphanLock>>,
}

/// The guard of the lock of all orphans, if there is one.
pub(crate) type WholeGuard<'l> = Option<MutexGuard<'l, (), OrphanLock>>;

impl OrphanList {
    /// Creates `lists` empty lists; with 0, one list with the lock used without Kara's patches.
    #[must_use]
    pub fn new(lists: usize) -> Self {
        let whole = (lists == 0).then(|| Mutex::new(()));
        Self { lists: PerCpu::new(lists, |_| Mutex::new(NumberMap::default())), whole }
    }

    /// Returns whether an inode is an orphan. Exact if the caller holds the inode locked.
    #[must_use]
    pub fn has(&self, node: &Node) -> bool {
        let _whole = self.lock_whole();
        node.orphan_slot().is_some()
    }

    /// Locks all orphans before some of them are changed, without Kara's patches. Sleeps.
    pub(crate) fn lock_whole(&self) -> WholeGuard<'_> {
        self.whole.as_ref().map(|whole| whole.lock())
    }

    /// Adds an inode to the orphans or removes it. The caller holds the inode locked, and [all
    /// orphans](Self::lock_whole).
    pub(crate) fn set(&self, node: &Arc<Node>, is_orphan: bool) {
        match (node.orphan_slot(), is_orphan) {
            (None, true) => {
                let slot = self.lists.this_slot();
                let Some(list) = self.lists.get(slot) else { return };
                list.lock().insert(node.ino(), Arc::clone(node));
                node.set_orphan_slot(Some(slot));
            }
            (Some(slot), false) => {
                node.set_orphan_slot(None);
                let Some(list) = self.lists.get(slot) else { return };
                let removed = list.lock().remove(&node.ino());
                drop(removed);
            }
            _ => {}
        }
    }

    /// Adds an orphan that was found on disk. Called by a mount, before the inode is used.
    pub fn found(&self, node: &Arc<Node>) {
        let _locked = node.lock();
        let _whole = self.lock_whole();
        self.set(node, true);
    }

    /// Returns the number of orphans. Changes that are made during the call may be seen or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots().iter().sum()
    }

    /// Returns whether there are no orphans.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of lists.
    #[must_use]
    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    /// Returns the length of each list.
    #[must_use]
    pub fn slots(&self) -> Vec<usize> {
        self.lists.iter().map(|list| list.lock().len()).collect()
    }
}

impl fmt::Debug for OrphanList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrphanList").field("slots", &self.slots()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
