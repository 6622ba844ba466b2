//! Cached dentries in the order of their use, and the shrinker that drops them.
//!
//! # Which dentries
//!
//! A cached dentry is one that the driver can look up again. It is on a list from its creation
//! until it is freed, in use or not: the shrinker checks for use when it matters ("lazy LRU",
//! Piggin 2009). So no open, close or walk writes to a list. With a driver without `DirOps` no
//! dentry can be dropped, and there is no list.
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
//! Negative dentries have separate lists, with a separate limit: lookups of names that don't exist
//! must not evict names that do.
//!
//! # When
//!
//! Hits have no extra cost. A miss, which has just called the driver, drops a few dentries when the
//! limit is reached. So there is no background thread, and no pause for all threads. A miss holds
//! only the locks of the one name that it drops, and it only drops a name that it finds unused. No
//! lookup waits for it: lookups take no locks.
//!
//! # Concurrent drops
//!
//! The shrinker sees a dentry on its list, under the list's lock, and drops it later, under the
//! locks of its name and its children. In between another thread may drop it: the RCU section that
//! began before protects its memory, and the table shows whether it is still linked. If another
//! thread takes a reference during that time, the exchange that marks the dentry dead fails. An RCU
//! walk that has found the dentry sees its sequence count change.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;
use vfscale_sync::cpu;
use vfscale_sync::lock::LockClass;
use vfscale_sync::percpu_list::{Age, Linked, PerCpuList};
use vfscale_sync::rcu::{self, Guard};

use crate::base::lock_classes::DcacheLru;
use crate::objects::dcache::children::LockedName;
use crate::objects::dcache::dentry::{self, Dentry, DentryRef};
use crate::objects::icache::InodeList;
use crate::objects::inode::Inode;
use crate::objects::super_block::SuperBlock;
#[cfg(doc)]
use crate::task::task_struct::Task;

/// Default limit of the memory of a superblock's cached dentries and inodes, in bytes.
pub const CACHE_LIMIT_DEFAULT: usize = 128 << 20;

/// Negative dentries may take one in this many of the dentries that fit.
const NEGATIVE_SHARE: usize = 8;

/// Number of insertions into a CPU's list between two checks of the limit. The limit may be
/// exceeded by a multiple of this number.
const CHECK_EVERY: usize = 32;

/// Number of objects that are looked at under one lock of a list.
const BATCH: usize = 32;

/// Number of objects looked at for each that is to be dropped, and the minimum. They bound the
/// search of a miss when nearly all objects are in use.
const LOOKS_PER_DROP: usize = 8;
const LOOKS_MIN: usize = 1024;

/// Memory of a dentry and of an inode, each with its slot in a table, whose buckets are between
/// half full and full.
const DENTRY_BYTES: usize = size_of::<Dentry>() + SLOT_BYTES;
const INODE_BYTES: usize = size_of::<Inode>() + SLOT_BYTES;
const SLOT_BYTES: usize = 32;

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
}

/// An object on a list that the shrinker may drop.
pub(crate) trait Droppable: Linked {
    /// Marks it. Returns whether it had the mark already and seems to be unused.
    fn may_be_dropped(&self) -> bool;

    /// Returns the object, for the rest of an RCU section that began before it was found on its
    /// list.
    fn during<'g>(&self, guard: &'g Guard) -> &'g Self;

    /// Drops it, if it is still listed and unused.
    fn drop_unused(&self, guard: &Guard) -> bool;
}

/// Drops up to `want` objects of a list, this CPU's slot first, and looks at no more than `enough`
/// objects of each slot. Returns the number of dropped objects.
pub(crate) fn drop_from<T: Droppable, C: LockClass>(
    list: &PerCpuList<T, C>,
    want: usize,
    enough: usize,
) -> usize {
    let own = cpu::current() as usize;
    let mut dropped = 0;
    for slot in 0..list.slots() {
        let slot = (own + slot) % list.slots();
        // Each may be looked at twice: a first look marks it, a second one finds it unused.
        let mut left = (2 * list.slot_len(slot)).min(enough);
        while dropped < want && left > 0 {
            let guard = rcu::pin();
            let (looked, unused) = find_unused(list, slot, left.min(BATCH), want - dropped, &guard);
            left = if looked == 0 { 0 } else { left - looked };
            dropped += unused.into_iter().filter(|object| object.drop_unused(&guard)).count();
        }
    }
    dropped
}

/// Looks at up to `max` objects from the back of a list. Returns the number of those looked at, and
/// up to `want` of them that were not used since the last look.
fn find_unused<'g, T: Droppable, C: LockClass>(
    list: &PerCpuList<T, C>,
    slot: usize,
    max: usize,
    want: usize,
    guard: &'g Guard,
) -> (usize, SmallVec<[&'g T; BATCH]>) {
    let mut unused = SmallVec::new();
    let looked = list.age(slot, max, |object| {
        if unused.len() == want {
            return Age::Stop;
        }
        if object.may_be_dropped() {
            unused.push(object.during(guard));
        }
        Age::Young
    });
    (looked, unused)
}

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
    let _dcache = dentry.sb().lock_dcache();
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
    /// so they may exceed it. Takes effect with the next miss, or [`shrink`](Self::shrink). Does
    /// nothing with a driver without `DirOps`, whose dentries are all in use.
    pub fn set_cache_limit(&self, bytes: usize) {
        if let Some(lru) = self.lru() {
            lru.limit.store(bytes, Ordering::Relaxed);
        }
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
        let mut dropped = drop_dentries(&lru.negative, bytes.div_ceil(DENTRY_BYTES));
        let mut left = bytes.saturating_sub(dropped * DENTRY_BYTES);
        // A directory can be dropped after all of its children, which takes another round.
        while left > 0 {
            let evict = |list: &InodeList| list.shrink(left.div_ceil(INODE_BYTES));
            let inodes = self.inode_list().map_or(0, evict);
            left = left.saturating_sub(inodes * INODE_BYTES);
            let gone = drop_dentries(&lru.used, left.div_ceil(DENTRY_BYTES + INODE_BYTES));
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

    /// Checks the limit after some insertions; a list has `listed` dentries now.
    pub(crate) fn shrink_sometimes(&self, listed: usize) {
        if listed.is_multiple_of(CHECK_EVERY)
            && let Some(lru) = self.lru()
        {
            self.shrink_to_limit(lru);
        }
    }

    /// Drops unused dentries below `dir`; see [`Task::drop_cached`]. Returns their number.
    pub(crate) fn shrink_below(&self, dir: DentryRef) -> usize {
        if self.lru().is_some() { shrink_below(dir) } else { 0 }
    }

    /// Drops negative dentries above their limit, then dentries and inodes above the memory limit,
    /// and a few more of each.
    #[cold]
    fn shrink_to_limit(&self, lru: &Lru) {
        let limit = lru.limit.load(Ordering::Relaxed);
        let negative_max = limit / NEGATIVE_SHARE / DENTRY_BYTES;
        let too_many = lru.negative.len().saturating_sub(negative_max);
        if too_many > 0 {
            drop_dentries(&lru.negative, too_many + CHECK_EVERY);
        }
        let over = self.cache_bytes().saturating_sub(limit);
        if over > 0 {
            self.shrink(over + CHECK_EVERY * (DENTRY_BYTES + INODE_BYTES));
        }
    }
}
