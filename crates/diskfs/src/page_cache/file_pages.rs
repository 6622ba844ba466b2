//! The pages of one file, its size, and the locks of both.

use std::sync::{Arc, Weak};

use vfscale_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vfscale_sync::lock::{RwLockReadGuard, RwLockWriteGuard};
use vfscale_sync::{Mutex, RwLock, lock_class};

use super::budget::{CachedFile, SCAN};
use super::cache::PageCache;
use super::pages::Pages;

lock_class! {
    /// One thread at a time writes a file back, or truncates it.
    pub WriteBackLock = ("i_writeback", 28700) sleeping;
    /// Reading of blocks against their removal.
    pub InvalidateLock = ("invalidate_lock", 28800) sleeping;
    /// The pages of a file.
    pub PagesLock = ("i_pages", 31110);
}

/// How often a reader tries beside writers that overwrite, before it keeps them off.
const TRIES: u32 = 3;

/// The pages of a file. See the [module](super). `Send` and `Sync`.
///
/// The fields that readers change come first, and those that writers change last, with the locks
/// between them: so a reader and a writer rarely share a cache line.
#[derive(Debug)]
#[repr(C)]
pub struct FilePages {
    /// The page behind the last read, and the number of pages to read ahead.
    pub(crate) read_end: AtomicU64,
    pub(crate) read_ahead: AtomicU32,
    /// The page behind the last read-ahead request, and the page that the reader has to reach
    /// before the next request.
    pub(crate) ahead_to: AtomicU64,
    pub(crate) ahead_mark: AtomicU64,
    /// Itself, for the clock.
    this: Weak<FilePages>,
    pub(crate) cache: Arc<PageCache>,
    /// The size of the file. Write-back stores it on the device later.
    pub(crate) size: AtomicU64,
    /// The number of pages with reserved space for their blocks.
    pub(crate) delayed: AtomicU64,
    pages: RwLock<Pages, PagesLock>,
    pub(crate) writing_back: Mutex<(), WriteBackLock>,
    pub(crate) invalidate: RwLock<(), InvalidateLock>,
    /// Whether it is queued for write-back.
    is_queued: AtomicBool,
    /// Whether it was truncated to nothing lately, and whether it is queued among the renewed
    /// files.
    is_renewed: AtomicBool,
    is_renewed_queued: AtomicBool,
    /// Whether it is in the clock.
    has_pages: AtomicBool,
    /// The end of the last write, and the first page that the sequential writer has filled since
    /// the last request for write-behind. Changed under the inode's lock.
    pub(crate) write_end: AtomicU64,
    pub(crate) behind_from: AtomicU64,
}

impl FilePages {
    /// Creates the data of a file that has `size` bytes on the device.
    pub fn new(cache: &Arc<PageCache>, size: u64) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            cache: Arc::clone(cache),
            size: AtomicU64::new(size),
            delayed: AtomicU64::new(0),
            pages: RwLock::new(Pages::default()),
            writing_back: Mutex::new(()),
            invalidate: RwLock::new(()),
            is_queued: AtomicBool::new(false),
            is_renewed: AtomicBool::new(false),
            is_renewed_queued: AtomicBool::new(false),
            has_pages: AtomicBool::new(false),
            write_end: AtomicU64::new(0),
            behind_from: AtomicU64::new(0),
            read_end: AtomicU64::new(0),
            read_ahead: AtomicU32::new(0),
            ahead_to: AtomicU64::new(0),
            ahead_mark: AtomicU64::new(u64::MAX),
        })
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Locks the pages for reading.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Pages, PagesLock> {
        self.pages.read()
    }

    /// Locks the pages for changing them.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Pages, PagesLock> {
        self.pages.write()
    }

    /// Copies bytes of pages in memory from `within` of page `index` on, up to the first that is
    /// not, and to the end of its chunk at most. Returns how many. Of each page it sees all or
    /// nothing of a write.
    pub(crate) fn copy(&self, index: u64, within: usize, into: &mut [u8]) -> usize {
        let try_once = |_| self.read().read(index, within, into);
        match (0..TRIES).find_map(try_once) {
            Some(done) => done,
            // While the pages are locked, no thread overwrites any.
            None => self.write().read(index, within, into).unwrap_or(0),
        }
    }

    /// Returns the number of pages that wait for a block. `stat` counts them as blocks.
    pub fn delayed_blocks(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    /// Returns whether this can be dropped without loss: it has no page, and is not queued.
    pub fn is_idle(&self) -> bool {
        self.pages.read().is_empty() && !self.is_queued.load(Ordering::Acquire)
    }

    /// Marks the file as queued for write-back. Returns true if it was not marked.
    pub(crate) fn set_queued(&self) -> bool {
        !self.is_queued.swap(true, Ordering::AcqRel)
    }

    /// Notes that it was taken off the list and will be written back, so a thread that makes it
    /// dirty from now on queues it again.
    pub(crate) fn clear_queued(&self) {
        self.is_queued.store(false, Ordering::Release);
    }

    /// Sets whether the file was truncated to zero lately: the next bytes replace its old ones.
    pub(crate) fn set_renewed(&self, is_renewed: bool) {
        if self.is_renewed() != is_renewed {
            self.is_renewed.store(is_renewed, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_renewed(&self) -> bool {
        self.is_renewed.load(Ordering::Relaxed)
    }

    /// Marks the file as queued among the files with new data. Returns true if it was not.
    pub(crate) fn queue_renewed(&self) -> bool {
        !self.is_renewed_queued.swap(true, Ordering::AcqRel)
    }

    /// Notes that it was taken off the list of renewed files. Returns true if it is to be written
    /// back, and false if it has [grown too large](Self::end_renewal) since it was queued.
    pub(crate) fn unqueue_renewed(&self) -> bool {
        self.is_renewed_queued.swap(false, Ordering::AcqRel)
    }

    /// Notes that the file is no longer one that others wait for.
    pub(crate) fn end_renewal(&self) {
        self.set_renewed(false);
        self.unqueue_renewed();
    }

    /// Adds the file to the clock, unless it is in the clock already. The file has a page.
    pub(crate) fn join_clock(&self) {
        if !self.has_pages.swap(true, Ordering::AcqRel) {
            self.cache.add_to_clock(self.this.clone());
        }
    }
}

impl CachedFile for FilePages {
    fn evict(&self, want: u64) -> u64 {
        let mut pages = self.pages.write();
        let removed = pages.evict(want, SCAN);
        if pages.is_empty() {
            // With the pages' lock held: a thread that puts one in later finds this done.
            self.has_pages.store(false, Ordering::Release);
        } else {
            self.cache.add_to_clock(self.this.clone());
        }
        drop(pages);
        self.cache.return_pages(removed.pages);
        removed.pages
    }
}

impl Drop for FilePages {
    fn drop(&mut self) {
        let pages = self.pages.get_mut();
        self.cache.remove_unstable(pages.unstable_pages());
        self.cache.return_pages(pages.len());
    }
}
