//! Room for pages: for those of one volume, or of several, which share it.
//!
//! # Fairness
//!
//! One clock goes around the files of all volumes. So a volume that nobody uses gives its pages
//! back to those that are used.
//!
//! Dirty pages can't be dropped, and a device that does not answer writes none. Therefore a volume
//! may have dirty pages up to the limit for all, less what others have, but always its *share*:
//! half of the limit, divided by the volumes. All of them together have at most one and a half
//! times the limit, three quarters of the room. So no volume takes the room that another one needs
//! to go on, whatever its device does.
//!
//! # A volume's own limits
//!
//! A fork of a branch has to write all that is dirty in it, and so has a sync. In a shared room,
//! which may be much larger than what one volume needs, write-back of a volume therefore begins at
//! [`DIRTY_OF_ONE`], and its writers wait for it at [`TOO_DIRTY_OF_ONE`], if the limits for all
//! allow it that much. The kernel has a limit for each backing device beside its limit for all.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use vfscale_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use vfscale_sync::percpu::{Budget, CachePadded};
use vfscale_sync::{Mutex, cpu, lock_class};

use super::units::PAGE;
use crate::base::shared_limit::SharedLimit;

lock_class! {
    /// The files that have pages, in the order in which they will be scanned.
    pub ClockLock = ("page_clock", 31130);
}

/// The number of pages of a file that the clock scans before it advances to the next file.
pub(super) const SCAN: u64 = 512;
/// The most dirty pages of a volume in a shared room before write-back begins: 2 MiB.
const DIRTY_OF_ONE: u64 = 512;
/// The most dirty pages of such a volume before its writers wait: 8 MiB.
const TOO_DIRTY_OF_ONE: u64 = 2048;
/// The fewest pages of a cache.
const PAGES_MIN: u64 = 16;
/// The bytes of the part for metadata per unused inode in memory.
const NODE_BYTES: u64 = 1024;
/// The bytes of a block of metadata.
const BLOCK_BYTES: u64 = 4096;

/// A file with pages in the cache, as the clock sees it.
pub(crate) trait CachedFile: fmt::Debug + Send + Sync {
    /// Drops up to `want` clean pages, of the next [`SCAN`] ones, and puts the file back into the
    /// clock if it has pages left. Returns how many were dropped.
    fn evict(&self, want: u64) -> u64;
}

/// How many pages may be dirty.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirtyLimit {
    /// Of all volumes in a room.
    of_all: u64,
    /// Of one of them.
    of_one: u64,
}

impl DirtyLimit {
    /// Returns this limit, with at most `pages` pages for one volume.
    pub(super) fn at_most(self, pages: u64) -> Self {
        Self { of_one: self.of_one.min(pages), ..self }
    }
}

/// The room for pages, and the clock that drops them. `Send` and `Sync`.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct PageRoom {
    /// The most pages.
    pub(super) pages_max: u64,
    /// Whether the caches of several volumes may share it.
    pub(super) is_shared: bool,
    pub(super) pages: Budget,
    written: CachePadded<RoomCounts>,
    /// On a line of its own: each file that gets its first page locks it, and each write reads the
    /// counts.
    clock: CachePadded<Mutex<VecDeque<Weak<dyn CachedFile>>, ClockLock>>,
}

/// Written now and then.
#[derive(Debug)]
struct RoomCounts {
    /// Pages of all volumes that are dirty or being written back, as far as the caches have added
    /// them up; only if it is shared.
    unstable: AtomicI64,
    /// Number of caches.
    caches: AtomicU64,
}

impl PageRoom {
    /// Creates room for `bytes` bytes, at least 16 pages, with per-CPU accounts of `slots` slots.
    pub(super) fn new(bytes: u64, slots: usize, is_shared: bool) -> Self {
        let pages_max = (bytes / PAGE).max(PAGES_MIN);
        Self {
            pages_max,
            is_shared,
            pages: Budget::new(pages_max, slots),
            written: CachePadded::new(RoomCounts {
                unstable: AtomicI64::new(0),
                caches: AtomicU64::new(0),
            }),
            clock: CachePadded::new(Mutex::default()),
        }
    }

    pub(super) fn clock(&self) -> &Mutex<VecDeque<Weak<dyn CachedFile>>, ClockLock> {
        &self.clock
    }

    /// Adds a cache.
    pub(super) fn join(&self) {
        self.written.caches.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a cache with this sum of unstable pages.
    pub(super) fn leave(&self, unstable: i64) {
        self.add_unstable(-unstable);
        self.written.caches.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of caches, at least one.
    pub(super) fn caches(&self) -> u64 {
        if self.is_shared { self.written.caches.load(Ordering::Relaxed).max(1) } else { 1 }
    }

    /// Adds to the sum of unstable pages, if that is needed.
    pub(super) fn add_unstable(&self, pages: i64) {
        if self.is_shared {
            self.written.unstable.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// Returns how much may be dirty before write-back begins.
    pub(super) fn dirty(&self) -> DirtyLimit {
        self.limit(self.pages_max / 8, DIRTY_OF_ONE)
    }

    /// Returns how much may be dirty before writers wait.
    pub(super) fn too_dirty(&self) -> DirtyLimit {
        self.limit(self.pages_max / 2, TOO_DIRTY_OF_ONE)
    }

    fn limit(&self, of_all: u64, of_one: u64) -> DirtyLimit {
        DirtyLimit { of_all, of_one: if self.is_shared { of_one } else { of_all } }
    }

    /// Returns how many unstable pages a cache may have that has added up `own` of them.
    pub(super) fn limit_of_one(&self, limit: DirtyLimit, own: i64) -> u64 {
        let DirtyLimit { of_all, of_one } = limit;
        if !self.is_shared {
            return of_one.min(of_all);
        }
        let others = self.written.unstable.load(Ordering::Relaxed) - own;
        let left = of_all.saturating_sub(u64::try_from(others).unwrap_or(0));
        left.max(of_all / (2 * self.caches())).min(of_one)
    }
}

/// The memory for the caches of several volumes: their data, and their metadata. `Send` and `Sync`.
///
/// Volumes that are opened with one budget take from it what they use, and give back what they have
/// not used for a while when another one needs it. Changed metadata is not part of it: each volume
/// has its own limit for that.
#[derive(Debug)]
pub struct CacheBudget {
    bytes: u64,
    of_metadata: u64,
    pages: Arc<PageRoom>,
    blocks: Arc<SharedLimit>,
    nodes: Arc<SharedLimit>,
}

impl CacheBudget {
    /// Creates a budget of `bytes` bytes: three quarters for data and a quarter for metadata.
    pub fn new(bytes: u64) -> Arc<Self> {
        let (of_metadata, slots) = (bytes / 4, cpu::most_slots() as usize);
        Arc::new(Self {
            bytes,
            of_metadata,
            pages: Arc::new(PageRoom::new(bytes - of_metadata, slots, true)),
            blocks: Arc::new(SharedLimit::new(of_metadata / BLOCK_BYTES)),
            nodes: Arc::new(SharedLimit::new(of_metadata / NODE_BYTES)),
        })
    }

    /// Returns its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how much of it is used: bytes of data, and of blocks of metadata. More blocks than
    /// its share are there only while they are in use.
    pub fn used(&self) -> (u64, u64) {
        (self.pages.pages.used() * PAGE, self.blocks.count() * BLOCK_BYTES)
    }

    /// Returns the bytes of the part for metadata.
    pub(crate) fn of_metadata(&self) -> u64 {
        self.of_metadata
    }

    pub(crate) fn pages(&self) -> &Arc<PageRoom> {
        &self.pages
    }

    pub(crate) fn blocks(&self) -> &Arc<SharedLimit> {
        &self.blocks
    }

    pub(crate) fn nodes(&self) -> &Arc<SharedLimit> {
        &self.nodes
    }
}

#[cfg(test)]
mod tests;
