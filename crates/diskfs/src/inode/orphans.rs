//! Which inodes are orphans, in memory.
//!
//! # Purpose
//!
//! An orphan is an inode that the next mount has to look after if this one does not come to it: its
//! last name is gone, or it is being cut in several transactions. On disk that is a bit in the
//! record of its chunk. Here it is a place on a list, and the inode knows its place itself: whether
//! it is an orphan already is asked before any lock is taken, and mostly that is all (Jan Kara's
//! patches, seed 001). A file that is cut within one transaction never becomes one.
//!
//! Where the seed has one list for the file system, here each CPU slot has one, as Kara's later
//! orphan file has a block for each; and since on disk nothing connects two orphans, putting one on
//! or taking one off changes nothing that another one has, but the group that both are in.
//!
//! # Invariants
//!
//! * An inode is on a list exactly if the last transaction that was committed has left it an
//!   orphan. So it is put on and taken off by the commit, once nothing can fail any more but the
//!   log, and what fails leaves the list as it was.
//! * An inode's place changes only with the inode locked: whoever holds it knows it without another
//!   lock. At a mount, when nobody uses any inode, the place is taken for what the disk has.
//! * A list holds its nodes, so that no node of an orphan is given up, and read again without its
//!   place.
//!
//! # Before the patch
//!
//! One list, and one lock that is held across the whole of it: while somebody asks whether an inode
//! is on the list, and by a commit that changes the list from before it changes the groups on disk,
//! where it may read and wait for the group, until the list is changed.
//!
//! # Locks
//!
//! `orphan_list`, that of one slot, is a leaf, held for one entry. `s_orphan_lock`, before the
//! patch, comes before the locks of groups.

use std::fmt;
use std::sync::Arc;

use vfscale_sync::percpu::PerCpu;
use vfscale_sync::{Mutex, MutexGuard};

use crate::base::numbers::NumberMap;
use crate::base::ranks::{OrphanLock, OrphanSlot};
use crate::inode::incore::Node;

/// The orphans of a volume that is open. `Send` and `Sync`.
pub struct OrphanList {
    lists: PerCpu<Mutex<NumberMap<Arc<Node>>, OrphanSlot>>,
    /// Only before the patch.
    whole: Option<Mutex<(), OrphanLock>>,
}

/// The lock of all orphans, where there is one.
pub(crate) type WholeGuard<'l> = Option<MutexGuard<'l, (), OrphanLock>>;

impl OrphanList {
    /// Nothing, in `lists` lists; 0 for one with the lock of before the patch.
    #[must_use]
    pub fn new(lists: usize) -> Self {
        let whole = (lists == 0).then(|| Mutex::new(()));
        Self { lists: PerCpu::new(lists, |_| Mutex::new(NumberMap::default())), whole }
    }

    /// Whether an inode is an orphan. Exact for who holds it locked.
    #[must_use]
    pub fn has(&self, node: &Node) -> bool {
        let _whole = self.lock_whole();
        node.orphan_slot().is_some()
    }

    /// Before the patch: locks all orphans, for who is about to change some. Sleeps.
    pub(crate) fn lock_whole(&self) -> WholeGuard<'_> {
        self.whole.as_ref().map(|whole| whole.lock())
    }

    /// An inode is an orphan, or is none any more. The caller holds the inode locked, and [all
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

    /// The disk has this orphan: somebody looks after it from now on. For a mount, before the inode
    /// is used.
    pub fn found(&self, node: &Arc<Node>) {
        let _locked = node.lock();
        let _whole = self.lock_whole();
        self.set(node, true);
    }

    /// How many orphans there are. What changes meanwhile may be seen or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots().iter().sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many lists there are.
    #[must_use]
    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    /// How many each list has.
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
