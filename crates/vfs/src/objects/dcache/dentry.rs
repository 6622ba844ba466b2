//! Dentries: names, and the tree they form. Counterpart of `struct dentry` in Linux.
//!
//! A dentry joins a name in a directory to an inode. Directories have exactly one, and their dentry
//! holds the table of their children; so the dentries of a superblock are its tree.
//!
//! # References
//!
//! The count ([`Lockref`]) contains one for the name itself while the dentry is linked into its
//! parent's table ("hashed"), and one for each [`DentryRef`]: open files, working directories,
//! mounts. RCU walks take none. A child does not count against its parent: a directory that has
//! children can't be removed. A removed name that is still in use takes a reference to its parent
//! at its removal (`HOLDS_PARENT`), because a caller may still ask for its path. So creation and
//! removal of files write no memory of the directory except the bucket of the name.
//!
//! A count that several CPUs change alternately is promoted to per-CPU parts ("hot"). Then opens of
//! one file by all CPUs scale; see [`Lockref`]. A superblock has a limited number of hot dentries
//! ([`sharded_counts`](crate::objects::dcache::sharded_counts)); where there are too many, one is
//! seldom demoted for another, and removal of the name demotes as well.
//!
//! # Locks
//!
//! Parent, name and the `UNHASHED` flag change under the bucket lock of the name (both locks, when
//! it moves) and inside a write section of `seq`. RCU walks read them and then check `seq`. The
//! bytes of a name never change: a rename stores a new name elsewhere, and the old one is freed
//! after a grace period. The inode never changes.

mod inline_name;
mod make;

use std::ptr::NonNull;

use vfscale_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use vfscale_sync::lock::assert_held;
use vfscale_sync::lockref::{Lockref, LockrefGuard, Put, SpreadPtr};
use vfscale_sync::percpu_list::{Linked, PerCpuLinks};
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::seqcount::{SeqCount, SeqWrite};
use vfscale_sync::table::{Hashed, RcuTable};

use crate::base::lock_classes::Children;
use crate::objects::dcache::aliases::AliasLinks;
use crate::objects::dcache::name::{self, Name};
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;
use crate::objects::super_ref::Collecting;
use inline_name::InlineName;

/// Size of a file from which on its space, when it is removed, should not wait for anything but a
/// grace period. For less, the queue that all CPUs share is too dear.
const LARGE: u64 = 1 << 20;

/// Not linked into its parent's table: removed, or never named.
const UNHASHED: u32 = 1;
/// Holds a reference to its parent.
const HOLDS_PARENT: u32 = 2;
/// Is a mount point.
const MOUNTED: u32 = 4;
/// Has neither a name nor a position in any tree.
const PSEUDO: u32 = 1 << 16;
/// Pseudo dentry in the table of the root, if the patch for pseudo dentries is disabled.
const ATTACHED: u32 = 1 << 17;
/// Negative: the driver reported that the name does not exist.
const NEGATIVE: u32 = 8;
/// No walk has used it since it was created, or since the shrinker last passed.
const COLD: u32 = 16;
/// At each use, a walk asks the driver whether it is still valid.
const CHECKED: u32 = 32;
/// Mounts on it are forbidden: its name is about to be removed.
const CANT_MOUNT: u32 = 128;
/// Is about to move to another directory; the driver may already have moved it.
const MOVING: u32 = 256;
/// A directory that may have names which are not in its table: only the driver has all of them.
const PARTIAL: u32 = 64;

/// Flags of dentries that are not on the list of an inode.
const UNLISTED: u32 = PSEUDO | NEGATIVE;

/// Flags that a walk must examine further.
const SPECIAL: u32 = MOUNTED | NEGATIVE | COLD | CHECKED;

/// The count, on a separate cache line, with fields that are written even more rarely.
#[repr(C, align(64))]
struct DentryCounts {
    lockref: Lockref,
    /// Written when the dentry is created and freed, and by the shrinker.
    lru: PerCpuLinks<Dentry>,
    /// Written when another dentry of a file with several is added or removed.
    aliases: AliasLinks,
    /// Slot in the ring of hot dentries, while it is hot. Changes under `d_lock`.
    hot_slot: AtomicU32,
}

impl std::ops::Deref for DentryCounts {
    type Target = Lockref;
    #[inline]
    fn deref(&self) -> &Lockref {
        &self.lockref
    }
}

/// A directory entry. Counterpart of `struct dentry` in Linux.
#[repr(C, align(64))]
pub struct Dentry {
    // One line, read by every walk.
    seq: SeqCount,
    flags: AtomicU32,
    hash: AtomicU64,
    parent: AtomicPtr<Dentry>,
    inode: NonNull<Inode>,
    name: AtomicPtr<u8>,
    children: RcuTable<Dentry, Children>,
    spread: SpreadPtr,
    // A second line, read by every walk that compares names; written by the first rename at most.
    inline: InlineName,
    // The line that changes of the reference count write.
    lockref: DentryCounts,
}

// SAFETY: fields are atomic or never written after `new`; references or RCU prevent the end of the
// objects behind all pointers, as the module's page describes.
unsafe impl Send for Dentry {}
// SAFETY: fields are atomic or never written after `new`; references or RCU prevent the end of the
// objects behind all pointers, as the module's page describes.
unsafe impl Sync for Dentry {}

/// Result of a name's removal, which the caller handles after it releases all locks.
#[must_use]
pub(crate) enum Removed<'g> {
    /// The dentry is still referenced.
    InUse,
    /// There is no other reference.
    Last(&'g Dentry),
}

impl Dentry {
    /// Returns the dentry of a directory, if it has one in the tree.
    pub(crate) fn of_dir<'g>(dir: &Inode, guard: &'g Guard) -> Option<&'g Dentry> {
        dir.aliases(guard).find(|dentry| !dentry.is_unhashed())
    }

    /// Returns a dentry of an inode that has a name (`d_find_alias` in Linux).
    pub(crate) fn named(inode: &Inode, guard: &Guard) -> Option<DentryRef> {
        inode.aliases(guard).filter(|dentry| !dentry.is_unhashed()).find_map(|dentry| {
            dentry.warm();
            dentry.try_ref(guard)
        })
    }

    /// Returns a dentry for an inode that was found by number: one with a name, one whose name was
    /// removed, or a disconnected one if the dcache has neither. `None` for a directory that is not
    /// in the dcache: it has one position in the tree, and a disconnected dentry would be a second
    /// one.
    pub(crate) fn for_inode(inode: InodeRef, root: &Dentry, guard: &Guard) -> Option<DentryRef> {
        let nameless = || inode.aliases(guard).find_map(|dentry| dentry.try_ref(guard));
        let known = Dentry::named(&inode, guard).or_else(nameless);
        if known.is_some() || inode.is_dir() {
            return known;
        }
        Some(Dentry::new_unnamed(root, inode, guard))
    }

    #[inline]
    pub(crate) fn inode(&self) -> &Inode {
        // SAFETY: the dentry owns a reference to its inode until it is freed, or points to the
        // inode of negative dentries, which exists as long as the superblock.
        unsafe { self.inode.as_ref() }
    }

    /// Drops the reference to its inode, when the dentry is freed.
    fn put_inode(&self, guard: &Guard) {
        if !self.is_negative() {
            self.inode().put(guard);
        }
    }

    #[inline]
    pub(crate) fn sb(&self) -> &SuperBlock {
        self.inode().sb()
    }

    /// Returns its links on the list of its inode's dentries.
    pub(crate) fn aliases(&self) -> &AliasLinks {
        &self.lockref.aliases
    }

    /// Returns whether it is missing from the list of its inode's dentries.
    fn is_unlisted(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & UNLISTED != 0
    }

    #[inline]
    pub(crate) fn seq(&self) -> &SeqCount {
        &self.seq
    }

    #[inline]
    pub(crate) fn children(&self) -> &RcuTable<Dentry, Children> {
        &self.children
    }

    /// Returns the directory that contains it; itself for a root.
    #[inline]
    pub(crate) fn parent<'g>(&self, _guard: &'g Guard) -> &'g Dentry {
        // SAFETY: a linked dentry's parent has it as a child, so the parent isn't removed; an
        // unlinked one owns a reference. A former parent, before a move, is not freed within the
        // grace period.
        unsafe { &*self.parent.load(Ordering::Acquire) }
    }

    #[inline]
    pub(crate) fn is_child_of(&self, parent: &Dentry) -> bool {
        std::ptr::eq(self.parent.load(Ordering::Acquire), parent)
    }

    #[inline]
    pub(crate) fn is_root(&self) -> bool {
        self.is_child_of(self)
    }

    /// Returns its current name.
    #[inline]
    pub(crate) fn name<'g>(&'g self, _guard: &'g Guard) -> &'g [u8] {
        let name = self.name.load(Ordering::Acquire);
        // SAFETY: a length byte and that many bytes, never written again, freed after a grace
        // period.
        unsafe { std::slice::from_raw_parts(name.add(1), usize::from(*name)) }
    }

    #[inline]
    pub(crate) fn is_unhashed(&self) -> bool {
        self.flags.load(Ordering::Acquire) & UNHASHED != 0
    }

    /// Returns whether no path leads to it.
    pub(crate) fn is_pseudo(&self) -> bool {
        self.flags.load(Ordering::Acquire) & PSEUDO != 0
    }

    #[inline]
    pub(crate) fn is_mounted(&self) -> bool {
        self.flags.load(Ordering::Acquire) & MOUNTED != 0
    }

    /// Returns whether a walk must examine it further: see [`warm`](Self::warm),
    /// [`is_current`](Self::is_current), [`is_negative`](Self::is_negative),
    /// [`is_mounted`](Self::is_mounted).
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.flags.load(Ordering::Acquire) & SPECIAL != 0
    }

    /// Returns whether it is negative: its name does not exist.
    #[inline]
    pub(crate) fn is_negative(&self) -> bool {
        self.flags.load(Ordering::Acquire) & NEGATIVE != 0
    }

    /// Returns whether names that are not in its table may exist nevertheless.
    #[inline]
    pub(crate) fn is_partial(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & PARTIAL != 0
    }

    /// Notes that it is in use: the inverse of the referenced bit of a lazy LRU (Piggin 2009), so
    /// only the first walk after a pass of the shrinker writes it.
    pub(crate) fn warm(&self) {
        if self.flags.load(Ordering::Relaxed) & COLD != 0 {
            self.flags.fetch_and(!COLD, Ordering::Relaxed);
        }
    }

    /// Notes that the shrinker passed. Returns whether it passed before, with no use since.
    pub(crate) fn cool(&self) -> bool {
        let was = self.flags.load(Ordering::Relaxed) & COLD != 0;
        if !was {
            self.flags.fetch_or(COLD, Ordering::Relaxed);
        }
        was
    }

    /// Returns whether the driver confirms its last lookup of this name, if that lookup requested a
    /// check.
    pub(crate) fn is_current(&self, dir: &Inode, name: &Name<'_>) -> bool {
        let flags = self.flags.load(Ordering::Acquire);
        if flags & CHECKED == 0 || flags & MOUNTED != 0 {
            return true;
        }
        let inode = (flags & NEGATIVE == 0).then(|| self.inode());
        let directories = self.sb().dir_ops();
        directories.is_none_or(|names| names.is_current(dir, name.bytes(), inode))
    }

    /// Sets whether the driver is called to check it at each use.
    pub(crate) fn set_checked(&self, check: bool) {
        if check {
            self.flags.fetch_or(CHECKED, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!CHECKED, Ordering::Relaxed);
        }
    }

    /// Ends the name of a dentry that is not referenced, not a mount point, and has not been used
    /// by a walk since [`cool`](Self::cool). A directory's own buckets are empty, and locked, too.
    /// The caller then removes it from the table, and passes the result to [`finish_removal`].
    /// `None` if the dentry must not be dropped.
    pub(crate) fn set_dropped<'g>(&'g self, _guard: &'g Guard) -> Option<Removed<'g>> {
        assert_held::<Children>();
        let flags = self.flags.load(Ordering::Acquire);
        if flags & COLD == 0 || flags & MOUNTED != 0 || !self.lockref.mark_dead_if_last() {
            return None;
        }
        let _section = self.seq.write();
        self.flags.fetch_or(UNHASHED, Ordering::Release);
        Some(Removed::Last(self))
    }

    /// Returns the dentry, for the rest of an RCU section that began before.
    pub(crate) fn borrowed<'g>(&self, _guard: &'g Guard) -> &'g Dentry {
        // SAFETY: it is not freed now, within the section, and dentries are freed a grace period
        // after they can't be reached any more.
        unsafe { &*std::ptr::from_ref(self) }
    }

    /// Returns whether its count is currently sharded over CPUs.
    pub(crate) fn is_hot(&self) -> bool {
        self.lockref.is_spread()
    }

    /// Returns whether only its name seems to refer to it; true for a sharded count, whose value is
    /// unknown. Only a hint.
    pub(crate) fn may_be_unused(&self) -> bool {
        self.is_hot() || self.lockref.count() == 1
    }

    /// Collects its count if it is sharded, so the value is exact after the grace period. Returns
    /// whether it was sharded.
    pub(crate) fn demote_unused(&self, guard: &Guard) -> bool {
        self.is_hot() && self.demote(&mut self.lockref.lock(), guard)
    }

    pub(crate) fn set_mounted(&self, mounted: bool) {
        if mounted {
            self.flags.fetch_or(MOUNTED, Ordering::AcqRel);
        } else {
            self.flags.fetch_and(!MOUNTED, Ordering::AcqRel);
        }
    }

    /// Returns whether nothing may be mounted on it. Changes under the bucket lock of its name.
    pub(crate) fn cant_mount(&self) -> bool {
        self.flags.load(Ordering::Acquire) & CANT_MOUNT != 0
    }

    pub(crate) fn set_cant_mount(&self, cant_mount: bool) {
        if cant_mount {
            self.flags.fetch_or(CANT_MOUNT, Ordering::AcqRel);
        } else {
            self.flags.fetch_and(!CANT_MOUNT, Ordering::AcqRel);
        }
    }

    /// Returns whether it is about to leave its directory. With a backed driver, this changes while
    /// its name is locked.
    pub(crate) fn is_moving(&self) -> bool {
        self.flags.load(Ordering::Acquire) & MOVING != 0
    }

    /// Sets or clears the moving flag; returns the previous value.
    pub(crate) fn set_moving(&self, moving: bool) -> bool {
        let before = if moving {
            self.flags.fetch_or(MOVING, Ordering::AcqRel)
        } else {
            self.flags.fetch_and(!MOVING, Ordering::AcqRel)
        };
        before & MOVING != 0
    }

    /// Returns whether `name` is its name.
    #[inline(always)]
    pub(crate) fn is_named(&self, name: &Name<'_>, guard: &Guard) -> bool {
        let stored = self.name.load(Ordering::Acquire);
        // SAFETY: a stored name has at least eight bytes, which are never written again and freed
        // after a grace period.
        let head = unsafe { stored.cast::<[u8; 8]>().read() };
        name.is_stored(u64::from_le_bytes(head), || self.name(guard))
    }

    /// Finds a child without a lock. Returns it with the value of its `seq` for which the match is
    /// valid.
    #[inline(always)]
    pub(crate) fn find<'g>(
        &'g self,
        name: &Name<'_>,
        guard: &'g Guard,
    ) -> Option<(&'g Dentry, u32)> {
        let mut seq = 0;
        let found = self.children.find(name.hash(), guard, |child| {
            seq = child.seq.begin();
            child.is_child_of(self) && child.is_named(name, guard)
        })?;
        Some((found, seq))
    }

    /// Returns whether its name has not changed since [`find`](Self::find) found it with this value
    /// of its `seq`. A search may find a dentry that was just removed from its table, with
    /// unchanged name and parent.
    #[inline]
    pub(crate) fn has_same_name(&self, seq: u32) -> bool {
        !self.is_unhashed() && !self.seq.retry(seq)
    }

    /// Returns the hash that it is linked under.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }

    /// Takes a reference; the caller holds one, or the name's reference or a bucket lock protects
    /// the dentry.
    #[inline]
    pub(crate) fn get(&self, guard: &Guard) {
        self.lockref.get(&self.spread, guard);
    }

    /// Takes a reference unless the dentry is dead.
    #[inline]
    pub(crate) fn try_ref(&self, guard: &Guard) -> Option<DentryRef> {
        self.lockref.get_not_dead(&self.spread, guard).then(|| DentryRef(NonNull::from(self)))
    }

    /// Takes a reference. The caller guarantees that the dentry is not dead.
    pub(crate) fn to_ref(&self, guard: &Guard) -> DentryRef {
        self.get(guard);
        DentryRef(NonNull::from(self))
    }

    /// Drops a reference; the last one frees.
    #[inline]
    pub(crate) fn put(&self, guard: &Guard) {
        match self.lockref.put(&self.spread, guard) {
            Put::Done => {}
            Put::Contended => self.promote(guard),
            Put::Last(mut lock) => {
                lock.mark_dead();
                drop(lock);
                kill(self, guard);
            }
        }
    }

    /// Shards the count over CPUs, unless it is dead or unhashed, if the ring has a slot for it.
    /// Demotes the dentry that occupied that slot.
    #[cold]
    fn promote(&self, guard: &Guard) {
        let sb = self.sb();
        if !sb.hot().has_slots() {
            return;
        }
        let Some(slot) = sb.hot().request() else { return };
        let victim = {
            let mut lock = self.lockref.lock();
            let may_be_hot = !lock.is_dead() && !self.is_unhashed();
            // A count that is sharded already, or is being collected, can't be sharded.
            if !may_be_hot || !Lockref::spread(&mut lock, &self.spread, sb.slots()) {
                return;
            }
            self.lockref.hot_slot.store(slot, Ordering::Relaxed);
            sb.hot().enter(self, slot)
        };
        if let Some(victim) = victim {
            // SAFETY: it was in the ring a moment ago, so it was not collected before this RCU
            // section began, and its memory is not freed until the section ends.
            let victim = unsafe { victim.as_ref() };
            let mut lock = victim.lockref.lock();
            victim.demote(&mut lock, guard);
        }
    }

    /// Collapses the sharded count into one counter; returns whether the count was sharded.
    fn demote(&self, lock: &mut LockrefGuard<'_>, guard: &Guard) -> bool {
        if !Lockref::begin_collect(lock, &self.spread, guard) {
            return false;
        }
        let sb = self.sb();
        sb.hot().leave(self, self.lockref.hot_slot.load(Ordering::Relaxed));
        let keep = Collecting::new(sb);
        let raw = NonNull::from(self).as_ptr() as usize;
        guard.defer(move || {
            let guard = rcu::pin();
            // SAFETY: the bias that `begin_collect` left prevents the end of the dentry, `keep`
            // that of its superblock.
            let dentry = unsafe { &*(raw as *const Dentry) };
            // SAFETY: the collection was begun before this closure was deferred, and it runs once.
            match unsafe { dentry.lockref.finish_collect(&dentry.spread, &guard) } {
                Put::Last(mut lock) => {
                    lock.mark_dead();
                    drop(lock);
                    kill(dentry, &guard);
                }
                Put::Done | Put::Contended => {}
            }
            drop(keep);
        });
        true
    }

    /// Marks the name as removed, which is in `parent`'s table no longer. The caller passes
    /// the result to [`finish_removal`] when all locks are released.
    ///
    /// `count_out` counts the name out of the inode. It runs when lookups see that the name is
    /// removed, and before the name drops its reference: after that, the last user may close the
    /// file and evict the inode.
    pub(crate) fn set_removed<'g>(
        &'g self,
        parent: &Dentry,
        count_out: impl FnOnce(),
        guard: &'g Guard,
    ) -> Removed<'g> {
        assert_held::<Children>();
        if self.lockref.mark_dead_if_last() {
            // No reference exists, so no thread mounts on it, and this thread owns the flags. A
            // move that found it may mark it; that mark does not matter, because the dentry is
            // removed and has no children.
            let _section = self.seq.write();
            let flags = self.flags.load(Ordering::Relaxed);
            self.flags.store(flags | UNHASHED, Ordering::Release);
            count_out();
            return Removed::Last(self);
        }
        {
            let _section = self.seq.write();
            self.flags.fetch_or(UNHASHED, Ordering::Release);
            count_out();
        }
        let mut lock = self.lockref.lock();
        let hot = lock.is_spread();
        if !hot && lock.count() == 1 {
            lock.mark_dead();
            return Removed::Last(self);
        }
        parent.get(guard);
        self.flags.fetch_or(HOLDS_PARENT, Ordering::Release);
        if hot {
            self.demote(&mut lock, guard);
        }
        lock.dec();
        drop(lock);
        if hot && self.inode().size() >= LARGE {
            // This thread may free nothing more.
            guard.hand_over();
        }
        Removed::InUse
    }

    /// Sets another parent and name, inside a write section of its `seq`. The caller has removed
    /// it from the old table, and inserts it into the new one under `hash` next.
    pub(crate) fn set_moved(
        &self,
        _section: &SeqWrite<'_>,
        parent: &Dentry,
        name: Option<&[u8]>,
        hash: u64,
        guard: &Guard,
    ) {
        assert_held::<Children>();
        if let Some(name) = name {
            // The locks exclude other writers of the name, so no exchange is needed.
            let old = self.name.load(Ordering::Relaxed);
            let new = self.inline.second(old, name).unwrap_or_else(|| name::heap_name(name));
            self.name.store(new, Ordering::Release);
            self.retire_name(old, guard);
        }
        self.hash.store(hash, Ordering::Relaxed);
        self.parent.store(std::ptr::from_ref(parent).cast_mut(), Ordering::Release);
    }

    /// Returns whether `name` is heap memory that the dentry owns.
    fn owns_name(&self, name: *mut u8) -> bool {
        !name.is_null() && !self.inline.contains(name)
    }

    /// Frees a replaced name after a grace period, if it is heap memory.
    fn retire_name(&self, old: *mut u8, guard: &Guard) {
        if self.owns_name(old) {
            let old = old as usize;
            // SAFETY: it was just replaced, so only readers that began before still use it.
            guard.defer(move || unsafe { free_name(old as *mut u8) });
        }
    }
}

impl Linked for Dentry {
    fn links(&self) -> &PerCpuLinks<Dentry> {
        &self.lockref.lru
    }
}

impl Hashed for Dentry {
    #[inline]
    fn table_hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }
}

impl Drop for Dentry {
    fn drop(&mut self) {
        let name = *self.name.get_mut();
        if self.owns_name(name) {
            // SAFETY: the dentry is freed after a grace period; no thread reads its name any more.
            unsafe { free_name(name) };
        }
    }
}

/// Ends a removal that [`Dentry::set_removed`] began; the caller holds no lock.
pub(crate) fn finish_removal(removed: Removed<'_>, guard: &Guard) {
    if let Removed::Last(dentry) = removed {
        kill(dentry, guard);
    }
}

/// Frees a dentry that is marked dead, and then each parent whose last reference that drops.
fn kill(dentry: &Dentry, guard: &Guard) {
    let mut next = Some(dentry);
    while let Some(dentry) = next {
        next = None;
        let sb = dentry.sb();
        let flags = dentry.flags.load(Ordering::Acquire);
        let parent = (flags & HOLDS_PARENT != 0).then(|| dentry.parent(guard));
        if flags & ATTACHED != 0 {
            detach_pseudo(dentry, guard);
        }
        if !dentry.is_unlisted() {
            dentry.inode().leave_alias(dentry, guard);
        }
        sb.forget_dentry(dentry);
        dentry.put_inode(guard);
        // SAFETY: marked dead with no reference left, and removed from every table; RCU walks that
        // still see it are waited for.
        unsafe { sb.dentries().free_rcu(NonNull::from(dentry), guard) };
        if let Some(parent) = parent
            && let Put::Last(mut lock) = parent.lockref.put(&parent.spread, guard)
        {
            lock.mark_dead();
            next = Some(parent);
        }
    }
}

/// Frees a dentry of a superblock that ends, as [`SuperBlock::free_dentry`] does; `is_name`:
/// whether it is a name in a directory.
///
/// # Safety
/// It was linked in the tree of `sb`, only RCU walks that the superblock waits for can still reach
/// it, its children are freed, and its parent is not.
pub(crate) unsafe fn take_down(
    sb: &SuperBlock,
    raw: NonNull<Dentry>,
    is_name: bool,
    guard: &Guard,
) {
    // SAFETY: the caller guarantees it.
    let dentry = unsafe { raw.as_ref() };
    if is_name && sb.dir_ops().is_none() {
        sb.accounting().unlinked(dentry.inode(), dentry.name(guard).len());
    }
    if !dentry.is_unlisted() {
        dentry.inode().leave_alias(dentry, guard);
    }
    sb.forget_dentry(dentry);
    dentry.put_inode(guard);
    // SAFETY: the caller guarantees it.
    unsafe { sb.free_dentry(raw, guard) };
}

/// A counted reference to a dentry.
pub(crate) struct DentryRef(NonNull<Dentry>);

// SAFETY: `Dentry` is `Sync`, and the count is atomic.
unsafe impl Send for DentryRef {}
// SAFETY: `Dentry` is `Sync`, and the count is atomic.
unsafe impl Sync for DentryRef {}

impl DentryRef {
    /// Takes over a reference that is counted already.
    ///
    /// # Safety
    /// The caller owns that reference and passes it on.
    pub(crate) unsafe fn from_raw(raw: NonNull<Dentry>) -> DentryRef {
        DentryRef(raw)
    }

    pub(crate) fn as_raw(&self) -> NonNull<Dentry> {
        self.0
    }

    /// Passes the reference on without counting it down.
    pub(crate) fn into_raw(self) -> NonNull<Dentry> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    /// Returns the dentry, for the rest of an RCU section, which may outlive this reference.
    #[inline]
    pub(crate) fn borrow<'g>(&self, _guard: &'g Guard) -> &'g Dentry {
        // SAFETY: it is referenced now, and is freed a grace period after the last reference is
        // dropped.
        unsafe { self.0.as_ref() }
    }
}

impl std::ops::Deref for DentryRef {
    type Target = Dentry;
    #[inline]
    fn deref(&self) -> &Dentry {
        // SAFETY: the counted reference prevents the end of the dentry.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for DentryRef {
    fn clone(&self) -> DentryRef {
        self.to_ref(&rcu::pin())
    }
}

impl Drop for DentryRef {
    #[inline]
    fn drop(&mut self) {
        if !self.lockref.put_simple() {
            self.put(&rcu::pin());
        }
    }
}

/// Frees the memory of a stored name.
///
/// # Safety
/// `name` came from [`heap_name`], and no thread uses it any more.
unsafe fn free_name(name: *mut u8) {
    // SAFETY: `heap_name` made a boxed slice of this length.
    unsafe {
        let len = name::stored_len(usize::from(*name));
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(name, len)));
    }
}

// The atomics of model checkers are larger.
#[cfg(not(any(loom, shuttle)))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Dentry>() == 192);
    assert!(offset_of!(Dentry, inline) == 64, "what walks read fits one line");
    assert!(offset_of!(Dentry, lockref) == 128, "counting references writes a line of its own");
};

/// Removes a dentry that [`Dentry::new_attached`] has made a child of the root from its table. The
/// caller holds no lock.
pub(crate) fn detach_pseudo(dentry: &Dentry, guard: &Guard) {
    let parent = dentry.parent(guard);
    parent.lock_name(dentry.hash(), guard).remove(dentry);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
