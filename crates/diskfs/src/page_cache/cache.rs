//! The part of the page cache that the files of a volume share: the number of pages, and the files
//! from which pages are reclaimed.

use std::sync::{Arc, Weak};

use vfscale_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::{Mutex, lock_class};

use super::budget::{CachedFile, DirtyLimit, PageRoom, SCAN};
use super::units::READ_PAGES_MAX;
use crate::base::batched_parts::BatchedParts;
use crate::base::fault::Fault;
use crate::base::reserve::ReservePages;

lock_class! {
    /// One thread at a time reads a megabyte of a file.
    pub FillLock = ("i_fill", 28850) sleeping;
}

const FILL_LOCKS: usize = 64;
/// The most unstable pages that a CPU counts in its own shard: 256 KiB.
const UNSTABLE_BATCH_MAX: u64 = 64;
/// The number of caches in one room at which their shards hide as many pages as those of one.
const SHARED_CACHES: u64 = 16;

/// The pages of all files of a volume, in room of its own or in that of a
/// [`CacheBudget`](super::CacheBudget). `Send` and `Sync`.
///
/// A clock drops pages: it scans file after file, and page after page in each, and drops clean
/// pages that were not used since its last scan.
///
/// The fields that every write reads are not on cache lines that some writes store to (Chinner
/// 2020, patch 1).
#[derive(Debug)]
#[repr(C, align(128))]
pub struct PageCache {
    fill: Box<[Mutex<(), FillLock>]>,
    room: Arc<PageRoom>,
    /// Reserves storage for each unstable page, if the device needs that.
    reserving: Option<Arc<dyn ReservePages>>,
    /// Pages that are dirty or being written back: for each CPU the difference that it has not
    /// added to the sum yet.
    unstable_parts: BatchedParts,
    /// How many threads hold writers to few dirty pages, and how many pages these are.
    low: AtomicU64,
    pages_low: AtomicU64,
    written: CachePadded<WrittenCounts>,
}

/// Written now and then.
#[derive(Debug)]
struct WrittenCounts {
    /// The sum of unstable pages, without the parts.
    unstable: AtomicI64,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = {
    use std::mem::offset_of;
    // No pair of lines has fields of both kinds.
    assert!(offset_of!(PageCache, written) >= 128 && offset_of!(PageCache, written) % 128 == 0);
    assert!(offset_of!(PageCache, unstable_parts) < offset_of!(PageCache, written));
};

impl PageCache {
    /// Creates a cache of `bytes` bytes, at least 16 pages, with per-CPU accounts of `slots` slots.
    #[cfg(test)]
    pub fn new(bytes: u64, slots: usize) -> Arc<Self> {
        Self::alone(bytes, slots, None)
    }

    /// Creates a cache in room of its own; see [`in_room`](Self::in_room).
    pub(crate) fn alone(
        bytes: u64,
        slots: usize,
        reserving: Option<Arc<dyn ReservePages>>,
    ) -> Arc<Self> {
        let slots = slots.max(1);
        Self::in_room(Arc::new(PageRoom::new(bytes, slots, false)), slots, reserving)
    }

    /// Creates a cache in `room`, with per-CPU accounts of `slots` slots. With
    /// `reserving`, storage for its unstable pages is reserved.
    pub(crate) fn in_room(
        room: Arc<PageRoom>,
        slots: usize,
        reserving: Option<Arc<dyn ReservePages>>,
    ) -> Arc<Self> {
        let slots = slots.max(1);
        // All of them together hide a 64th of the pages.
        let caches = if room.is_shared { SHARED_CACHES } else { 1 };
        let batch = (room.pages_max / 64 / slots as u64 / caches).min(UNSTABLE_BATCH_MAX);
        room.join();
        Arc::new(Self {
            fill: (0..FILL_LOCKS).map(|_| Mutex::default()).collect(),
            room,
            reserving,
            unstable_parts: BatchedParts::new(slots, batch),
            low: AtomicU64::new(0),
            pages_low: AtomicU64::new(0),
            written: CachePadded::new(WrittenCounts { unstable: AtomicI64::new(0) }),
        })
    }

    /// Returns the most pages.
    pub fn pages_max(&self) -> u64 {
        self.room.pages_max
    }

    /// Returns the number of pages, of all volumes that share the room.
    pub fn pages(&self) -> u64 {
        self.room.pages.used()
    }

    /// Returns the number of pages that are dirty or being written back. Adds up the counts of all
    /// CPUs.
    pub fn unstable(&self) -> u64 {
        let all = self.written.unstable.load(Ordering::Relaxed) + self.unstable_parts.sum();
        u64::try_from(all).unwrap_or(0)
    }

    /// Returns whether more pages are unstable than `limit` leaves for this volume: by the
    /// approximate sum, unless the shards may make a difference.
    fn has_unstable(&self, limit: DirtyLimit) -> bool {
        let sum = self.written.unstable.load(Ordering::Relaxed);
        let limit = self.room.limit_of_one(limit, sum);
        let hidden = self.unstable_parts.most();
        u64::try_from(sum + hidden).is_ok_and(|most| most > limit) && self.unstable() > limit
    }

    /// Returns whether enough is dirty for write-back to begin.
    pub fn is_dirty(&self) -> bool {
        self.has_unstable(self.room.dirty())
    }

    /// Returns whether so much is dirty that writers have to wait for write-back.
    pub fn is_too_dirty(&self) -> bool {
        let most = self.room.too_dirty();
        let is_low = self.low.load(Ordering::Relaxed) != 0;
        self.has_unstable(if is_low {
            most.at_most(self.pages_low.load(Ordering::Relaxed))
        } else {
            most
        })
    }

    /// Makes writers wait for write-back when more than `pages` pages are dirty, while the result
    /// is held.
    pub(crate) fn lower_dirty(&self, pages: u64) -> LowDirty<'_> {
        self.pages_low.store(pages, Ordering::Relaxed);
        self.low.fetch_add(1, Ordering::Relaxed);
        LowDirty(self)
    }

    /// Returns the number of pages that a writer may request together: at least one.
    pub(crate) fn batch(&self) -> u64 {
        (self.room.pages_max / 8 / self.room.caches()).max(1)
    }

    /// Takes room for `pages` more pages, and drops others if needed. Returns false if no room is
    /// left.
    pub(crate) fn take_pages(&self, pages: u64) -> bool {
        if self.room.pages.take(pages) {
            return true;
        }
        // Some more than that, so the next calls need not reclaim as well.
        self.reclaim(pages + READ_PAGES_MAX.min(self.room.pages_max / 8));
        self.room.pages.take(pages)
    }

    pub(crate) fn return_pages(&self, pages: u64) {
        if pages > 0 {
            self.room.pages.give(pages);
        }
    }

    pub(super) fn add_unstable(&self, pages: u64) {
        self.change_unstable(pages as i64);
    }

    pub(crate) fn remove_unstable(&self, pages: u64) {
        self.change_unstable(-(pages as i64));
        self.unreserve(pages);
    }

    /// Reserves storage on the device for pages that are about to become unstable; those that do
    /// are to be [kept](PageCredit::keep). With `is_urgent` also from what is kept for removals.
    /// May block for the I/O.
    ///
    /// # Errors
    /// [`Fault::NoSpace`], and those of the device.
    pub(crate) fn reserve(&self, pages: u64, is_urgent: bool) -> Result<PageCredit<'_>, Fault> {
        let pages = if let Some(reserving) = self.reserving() {
            reserving.reserve_pages(pages, is_urgent)?;
            pages
        } else {
            0
        };
        Ok(PageCredit { cache: self, pages })
    }

    fn unreserve(&self, pages: u64) {
        if let Some(reserving) = self.reserving().filter(|_| pages > 0) {
            reserving.unreserve_pages(pages);
        }
    }

    /// Returns what reserves storage, if the device needs that now.
    fn reserving(&self) -> Option<&dyn ReservePages> {
        self.reserving.as_deref().filter(|reserving| reserving.is_on())
    }

    /// Adds to the count of this CPU, and adds that to the sum when it becomes too large.
    fn change_unstable(&self, pages: i64) {
        if pages == 0 {
            return;
        }
        if let Some(all) = self.unstable_parts.add(pages) {
            self.written.unstable.fetch_add(all, Ordering::Relaxed);
            self.room.add_unstable(all);
        }
    }

    /// Returns the lock under which a megabyte of a file is read. Files may share one.
    pub(crate) fn fill_lock(&self, file: &impl CachedFile, index: u64) -> &Mutex<(), FillLock> {
        let file = std::ptr::from_ref(file).addr() as u64 >> 6;
        let mixed = vfscale_sync::hash::fibonacci(file ^ (index / READ_PAGES_MAX));
        &self.fill[(mixed >> 32) as usize % self.fill.len()]
    }

    /// Adds a file that has pages to the clock, which it is not in.
    pub(super) fn add_to_clock(&self, file: Weak<dyn CachedFile>) {
        self.room.clock().lock().push_back(file);
    }

    /// Drops up to `want` clean pages, of all volumes that share the room. Returns the number.
    pub fn reclaim(&self, want: u64) -> u64 {
        let mut dropped = 0;
        // Twice around: pages that were used survive the first round only.
        let mut left = 2 * self.room.clock().lock().len()
            + self.room.pages_max as usize / SCAN as usize * 2
            + 2;
        while dropped < want && left > 0 {
            left -= 1;
            let Some(entry) = self.room.clock().lock().pop_front() else { break };
            let Some(file) = entry.upgrade() else { continue };
            dropped += file.evict(want - dropped);
        }
        dropped
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.room.leave(self.written.unstable.load(Ordering::Relaxed));
    }
}

/// Storage on the device for pages that are about to become unstable.
#[derive(Debug)]
pub(crate) struct PageCredit<'c> {
    cache: &'c PageCache,
    pages: u64,
}

impl PageCredit<'_> {
    /// Notes that `pages` of them are unstable from now on, and gives back the rest.
    pub(crate) fn keep(mut self, pages: u64) {
        self.pages = self.pages.saturating_sub(pages);
        self.cache.add_unstable(pages);
    }
}

impl Drop for PageCredit<'_> {
    fn drop(&mut self) {
        self.cache.unreserve(self.pages);
    }
}

/// Writers wait for write-back when few pages are dirty, until this is dropped.
#[derive(Debug)]
#[must_use = "the limit is raised when this is dropped"]
pub struct LowDirty<'c>(&'c PageCache);

impl Drop for LowDirty<'_> {
    fn drop(&mut self) {
        self.0.low.fetch_sub(1, Ordering::Relaxed);
    }
}
