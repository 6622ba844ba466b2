//! The directories of a volume with [delayed names](crate::inode::delayed_names).

use std::sync::Arc;

use vfscale_journal::DelayedList;
use vfscale_sync::atomic::{AtomicBool, Ordering};
use vfscale_sync::cpu;
use vfscale_sync::percpu::Budget;

use crate::base::ranks::DelayedDirsLock;
use crate::inode::delayed_names::DelayedNames;
use crate::inode::incore::Node;

/// The share of the log that may be set aside for delayed names.
const LOG_SHARE: u64 = 4;

/// The directories of a volume with delayed names.
#[derive(Debug)]
pub(crate) struct DelayedDirs {
    pub(super) list: DelayedList<Arc<Node>, DelayedDirsLock>,
    /// The log space that may be set aside, in bytes of items.
    log: Budget,
    /// Whether too little of it was left at the last attempt to take some.
    is_full: AtomicBool,
    /// The heat of a directory at which its names are delayed.
    heat: u32,
}

impl DelayedDirs {
    /// Creates an empty list for a volume with a log of `log_bytes` bytes. Nothing is delayed
    /// before the list is opened.
    pub(super) fn new(log_bytes: u64, heat: u32) -> Self {
        let log = Budget::new(log_bytes / LOG_SHARE, cpu::most_slots() as usize);
        Self { list: DelayedList::default(), log, is_full: AtomicBool::new(false), heat }
    }

    /// Permits transactions to delay names, on a volume whose pushes write them.
    pub(super) fn open(&self) {
        self.list.open();
    }

    /// Returns whether transactions may delay names of a directory now.
    pub(crate) fn is_for(&self, dir: &Node) -> bool {
        // Read by all, written when it changes.
        let has_log = || !self.is_full.load(Ordering::Relaxed);
        dir.names_if_hot(self.heat).is_some() && has_log() && self.list.is_open()
    }

    /// Notes that the context has ended, with so many items.
    pub(super) fn ended(&self, items: usize) {
        self.list.ended(items);
    }

    /// Lists a directory. The caller has noted a delayed change of it, and is about to commit it.
    pub(super) fn add(&self, dir: &Arc<Node>, names: &DelayedNames) {
        self.list.add_once(names.is_listed(), || Arc::clone(dir));
    }

    /// Takes log space for delayed names, in bytes of items. Returns false if there is too little.
    pub(super) fn take_log(&self, item_bytes: u64) -> bool {
        let is_taken = self.log.take(item_bytes);
        self.set_full(!is_taken);
        is_taken
    }

    /// Returns the log space that is set aside, in bytes of items.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log.used_exactly()
    }

    /// Returns the log space that may still be set aside, in bytes of items.
    #[cfg(test)]
    pub(crate) fn left(&self) -> u64 {
        self.log.total() - self.log.used_exactly()
    }

    /// Gives back the log space of a directory whose names were written, in bytes of items.
    pub(super) fn give_folded(&self, item_bytes: u64) {
        self.log.give(item_bytes);
        self.set_full(false);
    }

    fn set_full(&self, is_full: bool) {
        if self.is_full.load(Ordering::Relaxed) != is_full {
            self.is_full.store(is_full, Ordering::Relaxed);
        }
    }

    /// Gives back log space, in bytes of items.
    pub(super) fn give_log(&self, item_bytes: u64) {
        self.log.give(item_bytes);
    }
}
