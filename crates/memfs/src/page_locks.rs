//! Page locks: overwrites of the same page exclude each other.
//!
//! # Purpose
//!
//! Overwriting threads hold the inode's lock shared, so they need a lock per page. A table of the
//! file system has these locks, found by the page's file and index. It is allocated by the first
//! overwrite. Consecutive pages have consecutive locks, each on cache lines of its own. Two writes
//! therefore contend if they write to the same page, and otherwise only by a hash collision.
//!
//! # Order
//!
//! A write locks all its pages before it changes the first. So of two writes with several pages in
//! common, one precedes the other in all of them. The locks are taken in ascending order of their
//! indices in the table.

use std::sync::OnceLock;

use vfscale_sync::lock_class;
use vfscale_sync::page::PAGE_SIZE;
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::{Mutex, MutexGuard};
use vfscale_vfs::driver::OVERWRITE_MAX;

lock_class! {
    /// The bytes of one page, between overwrites.
    pub PageLock = ("page_lock", 75);
}

/// Maximum number of pages that an overwrite touches.
pub(crate) const PAGES_MAX: usize = OVERWRITE_MAX / PAGE_SIZE + 1;

/// Number of locks per CPU. Two overwrites of one page each collide with a probability of one in
/// this number times the CPUs. So if each CPU overwrites a page, one of them meets any other with
/// a probability of at most one in this number.
const PER_CPU: usize = 64;

/// A lock that some pages share.
type Shard = CachePadded<Mutex<(), PageLock>>;

/// The locks of the pages of an overwrite, held by this thread.
pub(crate) type PageGuards<'a> = [Option<MutexGuard<'a, (), PageLock>>; PAGES_MAX];

/// The table of page locks of a file system.
pub(crate) struct PageLocks {
    locks: OnceLock<Box<[Shard]>>,
    /// Number of locks: a power of two, greater than [`PAGES_MAX`].
    len: usize,
}

impl PageLocks {
    /// Creates a table for `slots` CPUs.
    pub(crate) fn new(slots: usize) -> PageLocks {
        PageLocks { locks: OnceLock::new(), len: (slots.max(1) * PER_CPU).next_power_of_two() }
    }

    /// Locks `count` pages (at most [`PAGES_MAX`]) of a file from page `first` on. Blocks.
    pub(crate) fn lock(&self, ino: u64, first: u64, count: usize) -> PageGuards<'_> {
        let locks =
            self.locks.get_or_init(|| (0..self.len).map(|_| CachePadded::default()).collect());
        let lock = |index: usize| locks[index].lock_nested();
        let left = self.len - (first as usize & (self.len - 1));
        if left >= count {
            let mut indices = self.indices(ino, first, count);
            return std::array::from_fn(|_| indices.next().map(lock));
        }
        // Pages of two laps may have locks in common.
        let laps = [(first, left), (first + left as u64, count - left)];
        let mut indices: Vec<usize> =
            laps.into_iter().flat_map(|(first, count)| self.indices(ino, first, count)).collect();
        indices.sort_unstable();
        indices.dedup();
        let mut indices = indices.into_iter();
        std::array::from_fn(|_| indices.next().map(lock))
    }

    /// Returns the indices of the locks of pages of one lap, in ascending order.
    fn indices(&self, ino: u64, first: u64, count: usize) -> impl Iterator<Item = usize> {
        let lap = first >> self.len.trailing_zeros();
        let begin = hash(ino ^ hash(lap)).wrapping_add(first) as usize & (self.len - 1);
        // Indices past the end of the table wrap around to its beginning; they are the lowest.
        let wrapped = (begin + count).saturating_sub(self.len);
        (0..wrapped).chain(begin..begin + count - wrapped)
    }
}

/// Hashes the number of an inode or a lap, so that the locks of files created one after the other
/// are far apart.
fn hash(number: u64) -> u64 {
    vfscale_sync::hash::fibonacci(number) >> 48
}

#[cfg(test)]
mod tests;
