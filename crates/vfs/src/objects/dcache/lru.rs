//! Cached dentries in the order of their use: the lists that the shrinker
//! ([`crate::objects::dcache::shrink`]) drops them from.
//!
//! # Which dentries
//!
//! A cached dentry is one that the driver can look up again. It is on a list from its creation
//! until it is freed, in use or not: the shrinker checks for use when it matters ("lazy LRU",
//! Piggin 2009). So neither opening a file nor closing it, nor a walk, writes anything that belongs
//! to a list. With a driver without `DirOps` there is nothing to drop, and no list.
//!
//! # Order
//!
//! There is a list for each CPU ([`PerCpuList`]), with the newest dentry at the front. The shrinker
//! drops dentries from the back that no walk has used since it last passed (`COLD`), and moves the
//! rest to the front, marked. The mark is the inverse of the referenced bit in Linux: the shrinker
//! sets it, and the first walk that passes clears it. So a walk writes to a dentry at most once
//! between two passes of the shrinker. The sharded count of a dentry is collected first, and the
//! dentry is dropped at the next pass. A new dentry has the mark, so the dentries of a walk over a
//! million files are dropped in the order of their creation.
//!
//! Negative dentries have lists of their own, with a limit of their own: lookups of names that
//! don't exist must not evict names that do.

use std::sync::atomic::{AtomicUsize, Ordering};

use vfscale_sync::percpu_list::PerCpuList;

use crate::base::lock_classes::DcacheLru;
use crate::objects::dcache::dentry::Dentry;

/// Default limit of the memory of a superblock's cached dentries and inodes, in bytes.
pub const CACHE_LIMIT_DEFAULT: usize = 128 << 20;

/// The dentries of a superblock that can be dropped.
pub(crate) struct Lru {
    used: PerCpuList<Dentry, DcacheLru>,
    negative: PerCpuList<Dentry, DcacheLru>,
    limit: AtomicUsize,
}

impl Lru {
    pub(crate) fn new(slots: usize) -> Lru {
        Lru {
            used: PerCpuList::new(slots),
            negative: PerCpuList::new(slots),
            limit: AtomicUsize::new(CACHE_LIMIT_DEFAULT),
        }
    }

    /// Returns the list of negative dentries, or of all others.
    pub(crate) fn list(&self, negative: bool) -> &PerCpuList<Dentry, DcacheLru> {
        if negative { &self.negative } else { &self.used }
    }

    /// Returns the memory limit of dentries and inodes, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets that limit.
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }
}
