//! The shrinker of dentries and inodes, which drops those that were not used for a while; see
//! [`crate::objects::dcache::lru`] for their order.
//!
//! # When
//!
//! Hits pay nothing. A miss, which has just called the driver, drops a few dentries when the limit
//! is reached. Whether it is, one miss in 32 of a CPU reads from totals to which the list of each
//! CPU adds in steps of 32 ([`PerCpuList::approximate_len`]); it takes no lock of another CPU. So
//! there is no background thread, and no moment at which everything stops. A miss holds no lock but
//! those of the one name that it drops, and it only drops a name that it finds unused. No lookup
//! waits for it: lookups take no locks.
//!
//! # Concurrent drops
//!
//! The shrinker sees a dentry on its list, under the list's lock, and drops it later, under the
//! locks of its name and its children. In between another thread may drop it: the RCU section that
//! began before protects its memory, and the table tells whether it is still linked. If another
//! thread takes a reference during that time, the exchange that marks the dentry dead fails. An RCU
//! walk that has found the dentry sees its sequence count change.

use std::ops::ControlFlow;

use vfscale_sync::percpu_list::{Linked, PerCpuList, REPORT};
use vfscale_sync::rcu::{self, Guard};

use crate::base::lock_classes::DcacheLru;
use crate::objects::dcache::children::LockedName;
use crate::objects::dcache::dentry::{self, Dentry, DentryRef};
use crate::objects::dcache::lru::Lru;
use crate::objects::icache::InodeList;
use crate::objects::inode::Inode;
use crate::objects::shrinker::{Droppable, drop_from};
use crate::objects::super_block::SuperBlock;
#[cfg(doc)]
use crate::task::task_struct::Task;

/// Negative dentries may take one in this many of the dentries that fit.
const NEGATIVE_SHARE: usize = 8;

/// Number of objects that a drop frees beyond the excess, so the next one is not needed at once.
const RESERVE: usize = REPORT;

/// Number of objects looked at for each that is to be dropped, and the minimum. They bound the
/// search of a miss when nearly all objects are in use.
const LOOKS_PER_DROP: usize = 8;
const LOOKS_MIN: usize = 1024;

/// Memory of a dentry and of an inode, each with its slot in a table, whose buckets are between
/// half full and full.
const DENTRY_BYTES: usize = size_of::<Dentry>() + SLOT_BYTES;
const INODE_BYTES: usize = size_of::<Inode>() + SLOT_BYTES;
const SLOT_BYTES: usize = 32;

impl Droppable for Dentry {
    fn may_be_dropped(&self) -> bool {
        self.cool() && self.may_be_unused()
    }

    fn during<'g>(&self, guard: &'g Guard) -> &'g Dentry {
        self.borrowed(guard)
    }

    fn drop_unused(&self, guard: &Guard) -> bool {
        let inode = self.inode().borrowed(guard);
        let dropped = drop_unused(self, guard);
        if dropped && inode.may_be_dropped() {
            // The inode was cached only because of the dentry.
            Droppable::drop_unused(inode, guard);
        }
        dropped
    }
}

/// Drops up to `want` dentries of a list. Returns their number.
fn drop_dentries(list: &PerCpuList<Dentry, DcacheLru>, want: usize) -> usize {
    drop_from(list, want, want.saturating_mul(LOOKS_PER_DROP).max(LOOKS_MIN))
}

/// Drops a dentry, if it is still linked, no walk has used it, and it has no children.
fn drop_unused(dentry: &Dentry, guard: &Guard) -> bool {
    if !dentry.children().is_empty() || dentry.demote_unused(guard) {
        return false;
    }
    let parent = dentry.parent(guard);
    let Some(mut locks) = LockedName::lock(dentry, parent, guard) else { return false };
    if !locks.is_leaf() {
        return false;
    }
    let Some(removed) = dentry.set_dropped(guard) else { return false };
    locks.remove(dentry);
    drop(locks);
    dentry::finish_removal(removed, guard);
    true
}

/// Drops unused dentries below a directory (`shrink_dcache_parent` in Linux), children before their
/// directory. Returns their number. Each is dropped in a separate RCU section, so a large tree
/// delays no grace period. The caller holds no lock.
fn shrink_below(top: DentryRef) -> usize {
    let mut dropped = 0;
    // Each directory, with the hash from which on its children remain to be visited.
    let mut stack = vec![(top, 0)];
    while let Some((dir, from)) = stack.last_mut() {
        let guard = rcu::pin();
        let mut next = None;
        dir.children().scan(*from, &guard, |child| {
            next = Some(child.borrowed(&guard));
            ControlFlow::Break(())
        });
        let Some(child) = next else {
            let dir = dir.borrow(&guard);
            stack.pop();
            dropped += usize::from(!stack.is_empty() && drop_cold(dir, &guard));
            continue;
        };
        *from = child.hash() + 1;
        if child.children().is_empty() {
            dropped += usize::from(drop_cold(child, &guard));
        } else if let Some(child) = child.try_ref(&guard) {
            stack.push((child, 0));
        }
    }
    dropped
}

/// Drops a dentry, if it is unused and no walk uses it during this call.
fn drop_cold(dentry: &Dentry, guard: &Guard) -> bool {
    dentry.cool();
    dentry.may_be_unused() && Droppable::drop_unused(dentry, guard)
}

impl SuperBlock {
    /// Sets the memory limit of cached dentries and inodes, in bytes. Those in use are not dropped,
    /// so they may exceed it, and so may 32 of each kind for each CPU. Takes effect within the next
    /// 32 misses of a CPU, or with [`shrink`](Self::shrink). Does nothing with a driver without
    /// `DirOps`, whose dentries are all in use.
    pub fn set_cache_limit(&self, bytes: usize) {
        if let Some(lru) = self.lru() {
            lru.set_limit(bytes);
        }
    }

    /// Returns about the memory of the dentries and inodes that the lists have, in bytes. Takes no
    /// lock.
    fn approximate_bytes(&self, lru: &Lru) -> usize {
        let dentries = lru.list(false).approximate_len() + lru.list(true).approximate_len();
        let inodes = self.inode_list().map_or(0, InodeList::approximate_len);
        dentries * DENTRY_BYTES + inodes * INODE_BYTES
    }

    /// Returns the memory of dentries and inodes, in bytes. Exact while none is added or removed;
    /// memory that waits for the end of a grace period does not count. Takes the locks of all slots
    /// of their slabs, one after the other.
    pub fn cache_bytes(&self) -> usize {
        self.dentries().in_use() * DENTRY_BYTES + self.inodes_in_use() * INODE_BYTES
    }

    /// Drops about `bytes` of unused dentries and inodes: negative dentries before others, inodes
    /// without a dentry before dentries together with their inodes, and of each kind the least
    /// recently used first. Returns the number of dentries dropped. Never blocks a lookup. The
    /// caller holds no lock.
    pub fn shrink(&self, bytes: usize) -> usize {
        let Some(lru) = self.lru() else { return 0 };
        let mut dropped = drop_dentries(lru.list(true), bytes.div_ceil(DENTRY_BYTES));
        let mut left = bytes.saturating_sub(dropped * DENTRY_BYTES);
        // A directory can be dropped after all of its children, which takes another round.
        while left > 0 {
            let evict = |list: &InodeList| list.shrink(left.div_ceil(INODE_BYTES));
            let inodes = self.inode_list().map_or(0, evict);
            left = left.saturating_sub(inodes * INODE_BYTES);
            let gone = drop_dentries(lru.list(false), left.div_ceil(DENTRY_BYTES + INODE_BYTES));
            left = left.saturating_sub(gone * (DENTRY_BYTES + INODE_BYTES));
            dropped += gone;
            if gone == 0 && inodes == 0 {
                break;
            }
        }
        dropped
    }

    /// Removes a dentry that is about to be freed from its list, if it is on one.
    pub(crate) fn forget_dentry(&self, dentry: &Dentry) {
        if dentry.links().is_listed()
            && let Some(lru) = self.lru()
        {
            lru.list(dentry.is_negative()).remove(dentry);
        }
    }

    /// Checks the limit if the insertion of a dentry has reported that its list has grown.
    pub(crate) fn shrink_sometimes(&self, reported: bool) {
        if reported && let Some(lru) = self.lru() {
            self.shrink_to_limit(lru);
        }
    }

    /// Drops unused dentries below `dir`; see
    /// [`drop_cached`](crate::Calls::drop_cached). Returns their number.
    pub(crate) fn shrink_below(&self, dir: DentryRef) -> usize {
        if self.lru().is_some() { shrink_below(dir) } else { 0 }
    }

    /// Drops negative dentries above their limit, then dentries and inodes above the memory limit,
    /// and a few more of each.
    #[cold]
    fn shrink_to_limit(&self, lru: &Lru) {
        let limit = lru.limit();
        let negative_max = limit / NEGATIVE_SHARE / DENTRY_BYTES;
        let too_many = lru.list(true).approximate_len().saturating_sub(negative_max);
        if too_many > 0 {
            drop_dentries(lru.list(true), too_many + RESERVE);
        }
        let over = self.approximate_bytes(lru).saturating_sub(limit);
        if over > 0 {
            self.shrink(over + RESERVE * (DENTRY_BYTES + INODE_BYTES));
        }
    }
}
