//! A limit that the caches of several volumes share.
//!
//! Each cache counts what it has. When all of them have more than the limit, the thread that has
//! added something takes from one cache after the other, whichever volumes they belong to. Caches
//! drop first what was not used since they were asked last, so a volume that nobody uses gives back
//! what it has, and volumes that are used keep what they use.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use vfscale_sync::atomic::{AtomicI64, Ordering};
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::{Mutex, cpu, lock_class};

use super::batched_parts::BatchedParts;

lock_class! {
    /// The caches that share a limit, in the order in which they will be asked.
    pub SharedCaches = ("shared_caches", 30950);
}

/// The most objects that a CPU adds up before the common count gets them.
const BATCH_MAX: u64 = 32;
/// The part of the limit that all CPUs together may have added up.
const BATCHES_SHARE: u64 = 16;
/// The most objects that a cache is asked for at a time.
const DROPPED_MAX: usize = 64;
/// The most caches that a call asks.
const CACHES_MAX: usize = 16;

/// The most shards that a cache looks at in a row without dropping anything: thousands of caches
/// may have nothing but objects in use. The next call goes on behind them.
pub(crate) const SHARDS_IN_VAIN: usize = 8;

/// A cache that shares its limit with others.
pub(crate) trait SharedCache: Send + Sync {
    /// Drops up to `most` objects that are not in use and were not used since the last call.
    /// Returns how many. Looks at a part of the cache only, if it finds none. Waits for no I/O.
    fn drop_unused(&self, most: usize) -> usize;
}

/// The number of objects in the caches that share it, and the most there should be. `Send` and
/// `Sync`.
pub(crate) struct SharedLimit {
    most: i64,
    parts: BatchedParts,
    count: CachePadded<AtomicI64>,
    caches: Mutex<VecDeque<Weak<dyn SharedCache>>, SharedCaches>,
}

impl SharedLimit {
    /// Creates a limit of `most` objects.
    pub(crate) fn new(most: u64) -> Self {
        let slots = cpu::most_slots() as usize;
        let batch = BATCH_MAX.min(most / (BATCHES_SHARE * slots as u64));
        Self {
            most: i64::try_from(most).unwrap_or(i64::MAX),
            parts: BatchedParts::new(slots, batch),
            count: CachePadded::new(AtomicI64::new(0)),
            caches: Mutex::default(),
        }
    }

    /// Adds a cache.
    pub(crate) fn join(&self, cache: Weak<dyn SharedCache>) {
        self.caches.lock().push_back(cache);
    }

    /// Returns the number of objects.
    pub(crate) fn count(&self) -> u64 {
        u64::try_from(self.count.load(Ordering::Relaxed) + self.parts.sum()).unwrap_or(0)
    }

    /// Adds to the number of objects that a cache had `before` and has `now`.
    pub(crate) fn changed(&self, before: usize, now: usize) {
        if before == now {
            return;
        }
        if let Some(all) = self.parts.add(now as i64 - before as i64) {
            self.count.fetch_add(all, Ordering::Relaxed);
        }
    }

    /// Drops objects of the caches, if there are too many. The caller holds no lock of a cache.
    pub(crate) fn trim(&self) {
        for _ in 0..CACHES_MAX {
            let over = self.count.load(Ordering::Relaxed) - self.most;
            let Some(most) = usize::try_from(over).ok().filter(|over| *over > 0) else { return };
            let Some(cache) = self.next() else { return };
            // The count changes in the cache.
            cache.drop_unused(most.min(DROPPED_MAX));
        }
    }

    /// Returns the cache that is to be asked next.
    fn next(&self) -> Option<Arc<dyn SharedCache>> {
        let mut caches = self.caches.lock();
        while let Some(cache) = caches.pop_front() {
            if let Some(found) = cache.upgrade() {
                caches.push_back(cache);
                return Some(found);
            }
        }
        None
    }
}

impl fmt::Debug for SharedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimit")
            .field("most", &self.most)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
