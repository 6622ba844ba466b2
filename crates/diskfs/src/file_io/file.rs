//! One regular file: its pages, and the store that they are read from and written back to.

use std::ops::Deref;
use std::sync::Arc;

use vfscale_sync::atomic::Ordering;
use vfscale_sync::lock::assert_held;

use super::store::{Event, Store};
use crate::page_cache::{FilePages, InvalidateLock, RemovedPages, WriteBackLock};

/// A regular file, made for a call. See the [module](super). `P` refers to its pages: a reference
/// of its own, or that of the caller.
#[derive(Debug)]
pub struct RegularFile<S, P = Arc<FilePages>> {
    pub(super) pages: P,
    pub(super) store: S,
}

impl<S: Store, P: Deref<Target = FilePages>> RegularFile<S, P> {
    /// Creates the file of `pages` and `store`.
    pub fn new(pages: P, store: S) -> Self {
        Self { pages, store }
    }

    /// Returns its pages.
    pub fn pages(&self) -> &FilePages {
        &self.pages
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.pages.size()
    }

    /// Returns whether pages or the size are to be written back.
    #[cfg(test)]
    pub fn is_dirty(&self) -> bool {
        self.store.disk_size() < self.size() || self.pages.read().unstable_pages() > 0
    }

    /// Queues the file for write-back.
    pub(super) fn set_dirty(&self) {
        self.store.tell(Event::Dirty(&self.pages));
    }

    /// Drops all pages, dirty or not, and returns the space reserved for them: the file is freed,
    /// and has no user any more. Waits for a write-back under way.
    pub fn discard(&self) {
        let writing = self.pages.writing_back.lock();
        let invalidate = self.pages.invalidate.write();
        self.drop_pages(0, u64::MAX);
        self.pages.size.store(0, Ordering::Release);
        drop(invalidate);
        drop(writing);
    }

    /// Drops the pages `from` to `to`.
    pub(super) fn drop_pages(&self, from: u64, to: u64) {
        assert_held::<WriteBackLock>();
        assert_held::<InvalidateLock>();
        let mut pages = self.pages.write();
        let removed = pages.remove(from, to);
        drop(pages);
        self.release(&removed);
    }

    /// Returns what removed pages had: their room, and the space that was reserved for them.
    pub(super) fn release(&self, removed: &RemovedPages) {
        self.pages.cache.remove_unstable(removed.unstable);
        self.pages.cache.return_pages(removed.pages);
        self.unreserve(removed.reserved);
    }

    pub(super) fn unreserve(&self, blocks: u64) {
        if blocks > 0 {
            self.pages.delayed.fetch_sub(blocks, Ordering::Relaxed);
            self.store.unreserve(blocks);
        }
    }
}
