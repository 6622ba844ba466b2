//! The data of files: what of it is in memory, and how it comes from the device and goes there.
//!
//! # Purpose
//!
//! A [`FileData`] belongs to each file that was read or written. It keeps pages of 4 KiB, which all
//! files of a volume share one budget for ([`PageCache`]). Writing changes pages and sets space
//! aside; where the data will lie is decided when it is written back, so that much of it lies in
//! one piece, and what is gone before never costs a block. What a file needs of its volume is a
//! [`Store`].
//!
//! # Who is where at the same time
//!
//! | call | holds |
//! | --- | --- |
//! | [`read`](FileData::read), and reading ahead | of what it does not find in memory: `invalidate_lock` as a reader, the lock of its megabyte |
//! | [`write`](FileData::write) | the VFS's lock of the inode |
//! | [`write_back`](FileData::write_back) | `i_writeback`, for one piece of at most four megabytes at a time |
//! | [`set_size`](FileData::set_size) to less, punching, zeroing | the VFS's lock, `i_writeback`, `invalidate_lock` as the writer |
//! | [`allocate`](FileData::allocate) | the VFS's lock, `i_writeback` |
//! | dropping clean pages | nothing |
//!
//! In this order; then the volume's transactions, the lock of the extents, and those below it.
//! `i_pages`, of the pages in memory, is a leaf: with it bytes of at most 64 pages are copied, and
//! nothing is waited for. A page is written to, or put in full, with it held, so that each read of
//! a page sees a write to it wholly or not at all. What is costly about new pages is done before,
//! and once for all of a call that lie in one chunk of 64 (`pages`): space is set aside, memory is
//! taken, and filled.
//!
//! # Why nothing gets lost
//!
//! 1. **A page that is written to while it is being written back.** Write-back takes the mark
//!    *dirty* from a page together with its memory, with `i_pages` held, and hands that memory to
//!    the device; whoever writes to the page from then on has to take other memory for it, and
//!    marks it again. So the device gets what was there at one moment, and what came later will be
//!    written again. One thread at a time writes a file back (`i_writeback`), so that older bytes
//!    never reach the device after newer ones.
//! 2. **A clean page that is dropped.** Pages that are dirty or being written back are not. A page
//!    stops being written back when its transaction has been committed: whoever does not find it
//!    finds its block.
//! 3. **Reading against writing.** Who misses a page reads its block without `i_pages`, and puts it
//!    in afterwards if there is none by then. It could be out of date only if meanwhile the page
//!    came, was written back and dropped again: dropping a page that was ever written counts up
//!    `Pages::dropped_written`, and a count that has changed keeps what was read out of the cache.
//!    (The reader may have it all the same: it began before the write did.)
//! 4. **Reading against cutting.** Who misses a page holds `invalidate_lock` from before it looks
//!    into memory until it has put the page in; whoever takes blocks away holds it as the writer
//!    until the blocks and the pages are both gone. So no block is read that belongs to somebody
//!    else by then, and no page stays behind of a block that is gone.
//! 5. **Write-back against cutting.** Both hold `i_writeback`, so none is under way.
//! 6. **Memory that runs out.** Reading does without the cache then. A writer writes files back
//!    itself, which needs no lock that a writer of another file holds, and no page.
//!
//! # Why no old bytes ever come back
//!
//! The size on the device says where the bytes of the file end there, whatever the block holds
//! behind it, and these rules keep it so:
//!
//! * Bytes of a page behind the end of the file are zero in memory.
//! * A file is written back in ascending order, and the size on the device goes up in the same
//!   transaction as blocks come, over nothing but bytes that have been written and holes: up to the
//!   first page that is dirty by then, and to no more than the size was before the pages were
//!   copied. So blocks with bytes never lie behind the size on the device; unwritten ones may.
//! * A file that grows out of the middle of a block that has bytes makes that page dirty, zeros
//!   behind the old end included; so the size on the device passes it only after they were written.
//! * Data reach the device before the transaction that leads to them is durable: the store marks
//!   them, and the log flushes the device first.
//! * Blocks that are set aside are unwritten until something was written there.
//!
//! # Errors of the device
//!
//! What can't be read fails the call. Of what can't be written back, pieces are halved until the
//! pages are found that the device does not take. For a page that has no block yet another one is
//! tried, and the bad one is left out for now (`bad_blocks`). A page that is left is given up, as
//! otherwise it would stay in memory for ever: it is dropped, so that the file reads as what is on
//! the device (a hole if it had no block there), its space is given back, and the store is told
//! ([`Store::write_failed`]), so that each open file is told of it once, by its next call that
//! makes the file durable.

mod cache;
mod dirty;
mod extend;
mod mapping;
mod pages;
mod punch;
mod read;
mod seek;
mod store;
mod write;
mod write_back;

use std::sync::{Arc, Weak};

use vfscale_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vfscale_sync::page::PAGE_SIZE;
use vfscale_sync::{Mutex, RwLock, lock_class};

pub use cache::PageCache;
pub use dirty::DirtyFiles;
pub use mapping::Mapping;
pub use store::{Change, Cut, Store};

use pages::Pages;

lock_class! {
    /// That one thread at a time writes a file back, or cuts it.
    pub WriteBackLock = ("i_writeback", 28700) sleeping;
}
lock_class! {
    /// Reading of blocks against their removal.
    pub InvalidateLock = ("invalidate_lock", 28800) sleeping;
}
lock_class! {
    /// That one thread at a time reads a megabyte of a file.
    pub FillLock = ("i_fill", 28850) sleeping;
}
lock_class! {
    /// The pages of a file.
    pub PagesLock = ("i_pages", 31110);
}
lock_class! {
    /// Which files have pages, in the order in which they are asked for some.
    pub ClockLock = ("page_clock", 31130);
}
lock_class! {
    /// Which files have something to be written back.
    pub DirtyFilesLock = ("b_dirty", 31140);
}

/// The size of a page, for offsets.
pub(crate) const PAGE: u64 = PAGE_SIZE as u64;

/// The most pages that are read in one go: a megabyte.
pub(crate) const PIECE_PAGES: u64 = 256;

/// The most pages that are written back with one transaction: four megabytes. A device gets them in
/// requests of one, several at once.
pub(crate) const WRITE_PAGES: u64 = 4 * PIECE_PAGES;

/// The data of a file. See the [module](self). `Send` and `Sync`.
#[derive(Debug)]
pub struct FileData {
    /// Itself, for the clock.
    this: Weak<FileData>,
    cache: Arc<PageCache>,
    /// How long the file is. The size on the device follows.
    size: AtomicU64,
    /// Pages that have space set aside for their blocks.
    delayed: AtomicU64,
    pages: RwLock<Pages, PagesLock>,
    writing_back: Mutex<(), WriteBackLock>,
    invalidate: RwLock<(), InvalidateLock>,
    /// Whether it is among the files that are to be written back.
    is_queued: AtomicBool,
    /// Whether it was cut to nothing lately, and whether it is among the files with new data since.
    is_renewed: AtomicBool,
    is_renewed_queued: AtomicBool,
    /// Whether it is in the clock.
    has_pages: AtomicBool,
    /// Behind what was read last, in pages, and how many pages are read ahead.
    read_end: AtomicU64,
    read_ahead: AtomicU32,
    /// Behind what was asked for ahead, and where the reader has to come before more is.
    ahead_to: AtomicU64,
    ahead_mark: AtomicU64,
}

impl FileData {
    /// Creates the data of a file that has `size` bytes on the device.
    #[must_use]
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
            read_end: AtomicU64::new(0),
            read_ahead: AtomicU32::new(0),
            ahead_to: AtomicU64::new(0),
            ahead_mark: AtomicU64::new(u64::MAX),
        })
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Returns the number of pages that wait for a block. `stat` counts them as blocks.
    #[must_use]
    pub fn delayed_blocks(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    /// Returns whether there is something to write back: pages, or the size.
    #[must_use]
    pub fn is_dirty(&self, store: &impl Store) -> bool {
        store.disk_size() < self.size() || self.pages.read().unstable_pages() > 0
    }

    /// Returns whether nothing would be lost with it: it has no page, and nothing to write back.
    #[must_use]
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

    /// Notes that it was taken off the list of renewed files, and will be written back.
    pub(crate) fn unqueue_renewed(&self) {
        self.is_renewed_queued.store(false, Ordering::Release);
    }

    /// Drops all pages, dirty or not, and returns the space reserved for them: the file is freed,
    /// and has no user any more. Waits for a write-back under way.
    pub fn discard(&self, store: &impl Store) {
        let writing = self.writing_back.lock();
        let invalidate = self.invalidate.write();
        self.drop_pages(store, 0, u64::MAX);
        self.size.store(0, Ordering::Release);
        drop(invalidate);
        drop(writing);
    }

    /// Drops the pages `from` to `to`. The caller holds `i_writeback` and `invalidate_lock`.
    fn drop_pages(&self, store: &impl Store, from: u64, to: u64) {
        let mut pages = self.pages.write();
        let gone = pages.remove(from, to);
        drop(pages);
        self.cache.give_unstable(gone.unstable);
        self.cache.give_pages(gone.pages);
        self.unreserve(store, gone.reserved);
    }

    fn unreserve(&self, store: &impl Store, blocks: u64) {
        if blocks > 0 {
            self.delayed.fetch_sub(blocks, Ordering::Relaxed);
            store.unreserve(blocks);
        }
    }
}

impl Drop for FileData {
    fn drop(&mut self) {
        let pages = self.pages.get_mut();
        self.cache.give_unstable(pages.unstable_pages());
        self.cache.give_pages(pages.len());
    }
}

/// Returns the page that has the byte at `offset`.
pub(crate) fn page_of(offset: u64) -> u64 {
    offset / PAGE
}

/// Returns the offset at which a page begins.
pub(crate) fn offset_of(page: u64) -> u64 {
    page.saturating_mul(PAGE)
}

/// Returns the number of pages of `size` bytes.
pub(crate) fn pages_of(size: u64) -> u64 {
    size.div_ceil(PAGE)
}

#[cfg(test)]
pub(crate) mod tests;
