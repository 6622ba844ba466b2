//! Dentries that could be dropped, in the order of their use, and who drops them.
//!
//! # Which dentries
//!
//! A dentry that the driver can be asked for again. They are on a list from the moment they are
//! made to that at which they are freed, whether somebody uses them or not: being used is looked at
//! when it matters, by the shrinker ("lazy LRU", seed 004). So neither opening a file nor closing
//! it, nor a walk, writes anything that belongs to a list. Where names live in the dcache there is
//! nothing to drop, and no list.
//!
//! # Order
//!
//! A list for each CPU ([`PerCpuList`]), the newest at the front. The shrinker takes from the back
//! what has not been walked to since it last came by (`COLD`), and puts the rest to the front,
//! marked. The mark is the kernel's referenced bit the other way round: it is set by the shrinker
//! and taken off by the first walk that comes by, so that a walk writes to a dentry once at most
//! between two visits of the shrinker. A dentry whose count is spread over CPUs is gathered first,
//! and dropped at the next visit. A dentry is born with the mark, so that a walk over a million
//! files leaves in the order it came.
//!
//! Names that do not exist have lists of their own, with a bound of their own: asking for names
//! that are not there must not push out those that are.
//!
//! # When
//!
//! Hits pay nothing. A miss, which has just asked the driver, drops a few dentries when the limit
//! is reached, so that there is neither a thread nor a moment at which everything stops. It holds
//! no lock but those of the one name that it drops, each of which it tries to find unused, so no
//! lookup waits for it: lookups take no locks.
//!
//! # Who else may be there
//!
//! The shrinker sees a dentry on its list, under the list's lock, and drops it later, under the
//! locks of its name and its children. In between it may be dropped by somebody else: the RCU
//! section that began before keeps its memory, and the table says whether it is still there. A
//! reference taken meanwhile makes the exchange fail that marks it dead; a walk under RCU that has
//! found it sees its sequence count change.

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

/// What a superblock's cached dentries and inodes may occupy, in bytes, unless its driver or owner
/// says otherwise.
pub const CACHE_LIMIT_DEFAULT: usize = 128 << 20;

/// One in so many of the dentries that fit may stand for a name that is not there.
const NEGATIVE_SHARE: usize = 8;

/// After so many comings a CPU's list looks whether the limit is reached; by a multiple of that the
/// limit may be passed.
const CHECK_EVERY: usize = 32;

/// Objects that are looked at under one lock of a list.
const BATCH: usize = 32;

/// How many objects are looked at for each that is to be dropped, and at least: if nearly all are
/// in use, a miss does not go through the whole list.
const LOOKS_PER_DROP: usize = 8;
const LOOKS_MIN: usize = 1024;

/// What a dentry costs, and what an inode costs: each with its place in a table, whose buckets are
/// between half and wholly full.
const DENTRY_BYTES: usize = size_of::<Dentry>() + PLACE_BYTES;
const INODE_BYTES: usize = size_of::<Inode>() + PLACE_BYTES;
const PLACE_BYTES: usize = 32;

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

    /// The list of dentries that stand for a file, or of those that don't.
    pub(crate) fn list(&self, negative: bool) -> &PerCpuList<Dentry, DcacheLru> {
        if negative { &self.negative } else { &self.used }
    }
}

/// What can be on a list of things that may be dropped.
pub(crate) trait Droppable: Linked {
    /// Marks it, and says whether it had the mark already and seems to be unused.
    fn may_be_dropped(&self) -> bool;

    /// Itself, for as long as an RCU section lasts that began before it was found on its list.
    fn during<'g>(&self, guard: &'g Guard) -> &'g Self;

    /// Drops it, if it is still there and unused.
    fn drop_unused(&self, guard: &Guard) -> bool;
}

/// Drops up to `want` objects of a list, the CPU's own first, and looks at `enough` of each slot at
/// most. Returns how many.
pub(crate) fn drop_from<T: Droppable, C: LockClass>(
    list: &PerCpuList<T, C>,
    want: usize,
    enough: usize,
) -> usize {
    let own = cpu::current() as usize;
    let mut dropped = 0;
    for slot in 0..list.slots() {
        let slot = (own + slot) % list.slots();
        // Each may be looked at twice: once to see that it was in use, once to see that it is not.
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

/// Looks at up to `max` objects from the back of a list, and returns how many, and up to `want` of
/// them that nobody has used since the last look.
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
            // It was there for the dentry's sake.
            Droppable::drop_unused(inode, guard);
        }
        dropped
    }
}

/// Drops up to `want` dentries of a list. Returns how many.
fn drop_dentries(list: &PerCpuList<Dentry, DcacheLru>, want: usize) -> usize {
    drop_from(list, want, want.saturating_mul(LOOKS_PER_DROP).max(LOOKS_MIN))
}

/// Drops a dentry, if it is still there, nobody has come by, and nothing is below it.
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

/// Drops what is below a directory and nobody uses (the kernel's `shrink_dcache_parent`),
/// directories after all that is in them; returns how many dentries. Each is dropped in an RCU
/// section of its own, so that nothing waits for the end of a large tree. The caller holds no lock.
fn shrink_below(top: DentryRef) -> usize {
    let mut dropped = 0;
    // Each directory, with the hash from which on its children are still to come.
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

/// Drops a dentry, if nobody uses it or comes by just now.
fn drop_cold(dentry: &Dentry, guard: &Guard) -> bool {
    dentry.cool();
    dentry.may_be_unused() && Droppable::drop_unused(dentry, guard)
}

impl SuperBlock {
    /// Sets what cached dentries and inodes may occupy, in bytes. Those that are in use don't go,
    /// so that it may be more while they are. Takes effect with the next miss, or
    /// [`shrink`](Self::shrink). Does nothing where names live in the dcache: there all of them are
    /// in use.
    pub fn set_cache_limit(&self, bytes: usize) {
        if let Some(lru) = self.lru() {
            lru.limit.store(bytes, Ordering::Relaxed);
        }
    }

    /// What dentries and inodes occupy, in bytes. Exact while none comes or goes; what waits for
    /// the end of a grace period does not count. Takes the locks of all slots of their slabs, one
    /// after the other.
    pub fn cache_bytes(&self) -> usize {
        self.dentries().in_use() * DENTRY_BYTES + self.inodes_in_use() * INODE_BYTES
    }

    /// Drops about `bytes` of dentries and inodes that nobody uses: names that don't exist before
    /// those that do, inodes without a dentry before those that have one, which go with it, and of
    /// each kind the ones that were used least recently first. Returns the number of dentries
    /// dropped. Never blocks a lookup. The caller holds no lock.
    pub fn shrink(&self, bytes: usize) -> usize {
        let Some(lru) = self.lru() else { return 0 };
        let mut dropped = drop_dentries(&lru.negative, bytes.div_ceil(DENTRY_BYTES));
        let mut left = bytes.saturating_sub(dropped * DENTRY_BYTES);
        // A directory can go when all that is below it has gone, which takes another round.
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

    /// Takes a dentry that is about to be freed off the list that it is on, if any.
    pub(crate) fn forget_dentry(&self, dentry: &Dentry) {
        if dentry.links().is_listed()
            && let Some(lru) = self.lru()
        {
            lru.list(dentry.is_negative()).remove(dentry);
        }
    }

    /// A list has `listed` dentries now: sometimes looks whether there are too many.
    pub(crate) fn shrink_sometimes(&self, listed: usize) {
        if listed.is_multiple_of(CHECK_EVERY)
            && let Some(lru) = self.lru()
        {
            self.shrink_to_limit(lru);
        }
    }

    /// Drops what the dcache has below `dir` and nobody uses; see [`Task::drop_cached`]. Returns
    /// how many dentries that are.
    pub(crate) fn shrink_below(&self, dir: DentryRef) -> usize {
        if self.lru().is_some() { shrink_below(dir) } else { 0 }
    }

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
