//! Marks: which inodes are watched, and by whom. Counterpart of `struct fsnotify_mark` in Linux.

use std::sync::Arc;

use vfscale_sync::atomic::{AtomicUsize, Ordering};
use vfscale_sync::lock::Mutex;
use vfscale_sync::rcu::{Guard, RcuOption};

use crate::base::lock_classes::InodeMarksLock;
use crate::objects::fsnotify::queue::{EventQueue, WatchId};

/// A watcher's interest in an inode.
pub(crate) struct Mark {
    pub(crate) id: WatchId,
    /// Whether it concerns all directories below as well.
    pub(crate) is_tree: bool,
    pub(crate) queue: Arc<EventQueue>,
}

/// The marks of an inode, which are read under RCU.
pub(crate) struct InodeMarks {
    list: RcuOption<Box<[Arc<Mark>]>>,
    /// Serialises changes of `list`.
    changing: Mutex<(), InodeMarksLock>,
}

impl InodeMarks {
    pub(crate) fn new() -> InodeMarks {
        InodeMarks { list: RcuOption::none(), changing: Mutex::new(()) }
    }

    pub(crate) fn read<'g>(&'g self, guard: &'g Guard) -> &'g [Arc<Mark>] {
        self.list.read(guard).map_or(&[], |list| list)
    }

    /// Changes the list. The caller holds no lock.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Vec<Arc<Mark>>), guard: &Guard) {
        let _changing = self.changing.lock();
        let mut list = self.read(guard).to_vec();
        change(&mut list);
        self.list.replace((!list.is_empty()).then(|| list.into()), guard);
    }
}

/// The number of marks in a superblock, and of those of whole trees.
pub(crate) struct WatchCounts {
    marks: AtomicUsize,
    trees: AtomicUsize,
}

impl WatchCounts {
    pub(crate) fn new() -> WatchCounts {
        WatchCounts { marks: AtomicUsize::new(0), trees: AtomicUsize::new(0) }
    }

    /// Returns whether it has a mark. A change that follows the end of `add_mark` sees that mark.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.marks.load(Ordering::Relaxed) != 0
    }

    /// Counts a mark that is about to be added.
    pub(crate) fn count_in(&self, mark: &Mark) {
        self.trees.fetch_add(usize::from(mark.is_tree), Ordering::Relaxed);
        self.marks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a mark out that was removed.
    pub(crate) fn count_out(&self, mark: &Mark) {
        self.marks.fetch_sub(1, Ordering::Relaxed);
        self.trees.fetch_sub(usize::from(mark.is_tree), Ordering::Relaxed);
    }

    pub(crate) fn has_trees(&self) -> bool {
        self.trees.load(Ordering::Relaxed) != 0
    }
}
