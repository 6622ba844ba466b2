//! Dentries: names, and the tree they form.
//!
//! A dentry joins a name in a directory to an inode. Directories have exactly one, and their dentry
//! carries the table of their children; so the dentries of a superblock are its tree.
//!
//! # References
//!
//! The count ([`Lockref`]) holds one for the name itself while the dentry is linked into its
//! parent's table ("hashed"), and one for each [`DentryRef`]: open files, working directories,
//! mounts. RCU walks take none. A child does not count against its parent: a directory that has
//! children can't be removed, and a name that is removed while somebody still uses it takes a
//! reference to its parent at that moment (`HOLDS_PARENT`), so that its path can still be told.
//! Creating and removing files therefore writes nothing that belongs to the directory but the
//! bucket of the name.
//!
//! A count that several CPUs change in turn is promoted to per-CPU parts ("hot"), so that opening
//! one file from everywhere scales; see [`Lockref`]. A superblock has only so many hot dentries
//! ([`hot`](crate::objects::dcache::sharded_counts)); the oldest is demoted for a new one, and
//! removing the name demotes as well.
//!
//! # What changes under which lock
//!
//! Parent, name and the `UNHASHED` flag change under the bucket lock of the name (both locks, when
//! it moves) and inside a write section of `seq`. RCU walks read them and then check `seq`. The
//! bytes of a name never change: a rename puts a new name in place, and the old one is freed after
//! a grace period. The inode never changes.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use vfscale_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use vfscale_sync::lockref::{Lockref, LockrefGuard, Put, SpreadPtr};
use vfscale_sync::percpu_list::{Linked, PerCpuLinks};
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::seqcount::{SeqCount, SeqWrite};
use vfscale_sync::table::{Bucket, Hashed, RcuTable};

use crate::base::lock_classes::Children;
use crate::objects::dcache::aliases::AliasLinks;
use crate::objects::dcache::name::{self, Name};
use crate::objects::driver::Found;
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;
use crate::objects::super_ref::Collecting;

/// The longest name in bytes.
pub const NAME_MAX: usize = 255;

/// The binary logarithm of the number of buckets that a new directory has on several CPUs: two of
/// its names meet in a line once in 16 times.
const FIRST_BITS: u32 = 4;

/// The memory of the children table that a new directory has at most, in bytes.
pub const FIRST_TABLE_BYTES: usize = 64 << FIRST_BITS;

/// Names up to this length live in the dentry.
const INLINE_MAX: usize = 63;

/// Not linked into its parent's table: removed, or never named.
const UNHASHED: u32 = 1;
/// Owns a reference to its parent.
const HOLDS_PARENT: u32 = 2;
/// Something is mounted on it.
const MOUNTED: u32 = 4;
/// Of a file that has no name and no place in any tree.
const PSEUDO: u32 = 1 << 16;
/// The same, and yet in the table of the root, as it was before that patch.
const ATTACHED: u32 = 1 << 17;
/// The driver says that there is no such name.
const NEGATIVE: u32 = 8;
/// No walk has come by since it was made, or since the shrinker was here.
const COLD: u32 = 16;
/// The driver is asked each time whether it is still right.
const CHECKED: u32 = 32;
/// Nothing may be mounted on it: its name is about to be removed.
const CANT_MOUNT: u32 = 128;
/// It is about to leave its directory for another, where the driver has it already perhaps.
const MOVING: u32 = 256;
/// A directory that may have names which are not in its table: only the driver knows them all.
const PARTIAL: u32 = 64;

/// Of what is not among the dentries of an inode.
const ELSEWHERE: u32 = PSEUDO | NEGATIVE;

/// What a walk that finds the dentry has to look into.
const SPECIAL: u32 = MOUNTED | NEGATIVE | COLD | CHECKED;

/// A length byte and that many bytes; written when the dentry is where it stays, for an array in a
/// value that is to be moved there would be made elsewhere, and copied.
#[repr(C, align(64))]
struct InlineName(MaybeUninit<[u8; INLINE_MAX + 1]>);

impl InlineName {
    fn bytes(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
}

/// The count, on a line of its own, with what is written more rarely still.
#[repr(C, align(64))]
struct Written {
    lockref: Lockref,
    /// Written when the dentry is made and freed, and by the shrinker.
    lru: PerCpuLinks<Dentry>,
    /// Written when another dentry of a file with several comes or goes.
    aliases: AliasLinks,
    /// Where it is among the hot ones, while it is one. Changes under `d_lock`.
    hot_place: AtomicU32,
}

impl std::ops::Deref for Written {
    type Target = Lockref;
    #[inline]
    fn deref(&self) -> &Lockref {
        &self.lockref
    }
}

/// A directory entry.
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
    // A second line, read by every walk that compares names; never written.
    inline: InlineName,
    // The line that taking references writes.
    lockref: Written,
}

// SAFETY: fields are atomic or never written after `new`; what pointers point to is kept by
// references or by RCU, as the module's page says.
unsafe impl Send for Dentry {}
// SAFETY: as above.
unsafe impl Sync for Dentry {}

/// What a new dentry begins with.
#[derive(Clone, Copy)]
struct Begin {
    flags: u32,
    hash: u64,
    references: u32,
}

/// What to do, with no lock held, after a name was removed.
#[must_use]
pub(crate) enum Removed<'g> {
    /// Somebody still uses the dentry.
    InUse,
    /// Nobody does.
    Last(&'g Dentry),
}

impl Dentry {
    /// It takes over a reference to the inode, unless it stands for none
    /// ([`put_inode`](Self::put_inode)).
    fn alloc(
        sb: &SuperBlock,
        parent: *mut Dentry,
        name: &[u8],
        inode: NonNull<Inode>,
        begin: Begin,
    ) -> NonNull<Dentry> {
        let is_inline = name.len() <= INLINE_MAX;
        let lockref = Lockref::with_locked_changes(begin.references, !sb.scaling().lockref());
        let mut raw = sb.dentries().alloc_with(|| Dentry {
            seq: SeqCount::new(),
            flags: AtomicU32::new(begin.flags),
            hash: AtomicU64::new(begin.hash),
            parent: AtomicPtr::new(parent),
            inode,
            name: AtomicPtr::new(std::ptr::null_mut()),
            children: RcuTable::new(),
            spread: SpreadPtr::new(),
            inline: InlineName(MaybeUninit::uninit()),
            lockref: Written {
                lockref,
                lru: PerCpuLinks::new(),
                aliases: AliasLinks::new(),
                hot_place: AtomicU32::new(0),
            },
        });
        // SAFETY: just allocated, and nobody else has it yet.
        let stored = unsafe { raw.as_mut() }.inline.0.write([0; INLINE_MAX + 1]);
        if is_inline {
            stored[0] = name.len() as u8;
            stored[1..=name.len()].copy_from_slice(name);
        }
        // SAFETY: as above.
        let dentry = unsafe { raw.as_ref() };
        let stored = if is_inline { dentry.inline.bytes().cast_mut() } else { heap_name(name) };
        dentry.name.store(stored, Ordering::Relaxed);
        if dentry.inode().is_dir() {
            if sb.is_backed() {
                dentry.flags.fetch_or(PARTIAL, Ordering::Relaxed);
            } else {
                // Or the first name would write the line of the directory's dentry, which walks
                // read; and names that several CPUs make in a new directory should not meet in one
                // line.
                let several = sb.scaling().dcache_hash() && sb.slots() > 1;
                dentry.children.prepare(if several { FIRST_BITS } else { 0 });
            }
        }
        if begin.flags & ELSEWHERE == 0 {
            dentry.inode().enter_alias(dentry);
        }
        raw
    }

    /// Makes the root of a superblock, which owns the one reference it begins with.
    pub(crate) fn new_root(sb: &SuperBlock, inode: InodeRef) -> NonNull<Dentry> {
        let begin = Begin { flags: 0, hash: 0, references: 1 };
        let raw = Dentry::alloc(sb, std::ptr::null_mut(), b"", inode.into_raw(), begin);
        // SAFETY: just allocated.
        let root = unsafe { raw.as_ref() };
        root.parent.store(raw.as_ptr(), Ordering::Release);
        raw
    }

    /// Makes a dentry below `parent`, which the caller, who holds the bucket lock, inserts under
    /// `hash` next. It begins with two references: that of the name, and the one returned.
    pub(crate) fn new_child(parent: &Dentry, name: &[u8], hash: u64, inode: InodeRef) -> DentryRef {
        let parent_raw = std::ptr::from_ref(parent).cast_mut();
        let begin = Begin { flags: 0, hash, references: 2 };
        DentryRef(Dentry::alloc(parent.sb(), parent_raw, name, inode.into_raw(), begin))
    }

    /// Puts a dentry for what a driver has found, or not found, under a name into its bucket, and
    /// on the list of what can be dropped: it has the reference of the name and no other. Returns
    /// how many are on the list that it is on.
    pub(crate) fn insert_cached(
        bucket: &mut Bucket<'_, Dentry, Children>,
        parent: &Dentry,
        name: &Name<'_>,
        found: Found,
    ) -> usize {
        let sb = parent.sb();
        let parent = std::ptr::from_ref(parent).cast_mut();
        let hash = bucket.free_hash(name.hash());
        let mut flags = COLD;
        if found.check {
            flags |= CHECKED;
        }
        let inode = found.inode.map_or_else(
            || {
                flags |= NEGATIVE;
                sb.no_inode()
            },
            InodeRef::into_raw,
        );
        let begin = Begin { flags, hash, references: 1 };
        let raw = Dentry::alloc(sb, parent, name.bytes(), inode, begin);
        // SAFETY: the name's reference keeps the dentry until it is removed from the table, and its
        // memory stays for a grace period after that. It leaves its list before it is freed, and
        // nobody can take it out of the table before it is on that list, since the bucket is
        // locked.
        unsafe {
            bucket.insert(raw);
            sb.lru().map_or(0, |lru| lru.list(flags & NEGATIVE != 0).insert(raw))
        }
    }

    /// Puts a dentry for a name that a driver has just made into its bucket, and on the list of
    /// what can be dropped. It has the reference of the name, and the one returned, beside how many
    /// are on that list.
    pub(crate) fn insert_made(
        bucket: &mut Bucket<'_, Dentry, Children>,
        parent: &Dentry,
        name: &Name<'_>,
        inode: InodeRef,
    ) -> (DentryRef, usize) {
        let hash = bucket.free_hash(name.hash());
        let dentry = Dentry::new_child(parent, name.bytes(), hash, inode);
        if dentry.inode().is_dir() {
            // As in `alloc`; but not for every directory that the driver is asked for. It has one
            // line, for on a volume the CPUs meet elsewhere all the same.
            dentry.children.prepare(0);
        }
        // SAFETY: as in `insert_cached`.
        let listed = unsafe {
            bucket.insert(dentry.0);
            parent.sb().lru().map_or(0, |lru| lru.list(false).insert(dentry.0))
        };
        (dentry, listed)
    }

    /// A dentry for a file without a name (`O_TMPFILE`), owned by the reference returned.
    pub(crate) fn new_unnamed(parent: &Dentry, inode: InodeRef, guard: &Guard) -> DentryRef {
        let name = format!("#{}", inode.ino());
        let parent_raw = std::ptr::from_ref(parent).cast_mut();
        parent.get(guard);
        let begin = Begin { flags: UNHASHED | HOLDS_PARENT, hash: 0, references: 1 };
        DentryRef(Dentry::alloc(parent.sb(), parent_raw, name.as_bytes(), inode.into_raw(), begin))
    }

    /// A dentry for a file that no path leads to, owned by the reference returned. It has no
    /// parent.
    pub(crate) fn new_pseudo(sb: &SuperBlock, name: &[u8], inode: InodeRef) -> DentryRef {
        let begin = Begin { flags: UNHASHED | PSEUDO, hash: 0, references: 1 };
        let raw = Dentry::alloc(sb, std::ptr::null_mut(), name, inode.into_raw(), begin);
        // SAFETY: just allocated.
        unsafe { raw.as_ref() }.parent.store(raw.as_ptr(), Ordering::Release);
        DentryRef(raw)
    }

    /// The same, but in the table of the root, where nobody looks for it: as it was before that
    /// patch.
    pub(crate) fn new_attached(
        sb: &SuperBlock,
        name: &[u8],
        hash: u64,
        inode: InodeRef,
        guard: &Guard,
    ) -> DentryRef {
        let root = sb.root();
        let _dcache = sb.lock_dcache();
        let mut bucket = root.children().lock(hash, guard);
        let hash = bucket.free_hash(hash);
        let begin = Begin { flags: UNHASHED | PSEUDO | ATTACHED, hash, references: 1 };
        let parent = std::ptr::from_ref(root).cast_mut();
        let dentry = DentryRef(Dentry::alloc(sb, parent, name, inode.into_raw(), begin));
        // SAFETY: `kill` takes it out before its memory is given back, which takes a grace period.
        unsafe { bucket.insert(dentry.as_raw()) };
        dentry
    }

    /// The dentry of a directory, if it has one in the tree.
    pub(crate) fn of_dir<'g>(dir: &Inode, guard: &'g Guard) -> Option<&'g Dentry> {
        dir.aliases(guard).find(|dentry| !dentry.is_unhashed())
    }

    /// A dentry of an inode that has a name (the kernel's `d_find_alias`).
    pub(crate) fn named(inode: &Inode, guard: &Guard) -> Option<DentryRef> {
        inode.aliases(guard).filter(|dentry| !dentry.is_unhashed()).find_map(|dentry| {
            dentry.warm();
            dentry.try_ref(guard)
        })
    }

    /// A dentry for an inode that was found by number: one that has a name, one whose name is gone,
    /// or if the dcache has neither a disconnected one. A directory has one place, so that a
    /// disconnected one would be a second: `None` for one that the dcache has lost.
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
        // SAFETY: the dentry owns a reference to its inode until it is freed, or it has what stands
        // for no inode, which lives as long as the superblock.
        unsafe { self.inode.as_ref() }
    }

    /// Gives the reference to its inode back, when it is freed.
    fn put_inode(&self, guard: &Guard) {
        if !self.is_negative() {
            self.inode().put(guard);
        }
    }

    #[inline]
    pub(crate) fn sb(&self) -> &SuperBlock {
        self.inode().sb()
    }

    /// Its links on the list of its inode's dentries.
    pub(crate) fn aliases(&self) -> &AliasLinks {
        &self.lockref.aliases
    }

    /// Whether it is not among its inode's dentries.
    fn is_elsewhere(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & ELSEWHERE != 0
    }

    #[inline]
    pub(crate) fn seq(&self) -> &SeqCount {
        &self.seq
    }

    #[inline]
    pub(crate) fn children(&self) -> &RcuTable<Dentry, Children> {
        &self.children
    }

    /// The directory it is in; itself for a root.
    #[inline]
    pub(crate) fn parent<'g>(&self, _guard: &'g Guard) -> &'g Dentry {
        // SAFETY: a linked dentry's parent has it as a child, so it isn't removed; an unlinked one
        // owns a reference. A parent left behind by a move stays for the grace period.
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

    /// Its name at the moment.
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

    /// Whether no path leads to it.
    pub(crate) fn is_pseudo(&self) -> bool {
        self.flags.load(Ordering::Acquire) & PSEUDO != 0
    }

    #[inline]
    pub(crate) fn is_mounted(&self) -> bool {
        self.flags.load(Ordering::Acquire) & MOUNTED != 0
    }

    /// Whether a walk has to look closer: see [`warm`](Self::warm),
    /// [`is_current`](Self::is_current), [`is_negative`](Self::is_negative),
    /// [`is_mounted`](Self::is_mounted).
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.flags.load(Ordering::Acquire) & SPECIAL != 0
    }

    /// Whether it stands for a name that does not exist.
    #[inline]
    pub(crate) fn is_negative(&self) -> bool {
        self.flags.load(Ordering::Acquire) & NEGATIVE != 0
    }

    /// Whether a name that is not in its table may exist all the same.
    #[inline]
    pub(crate) fn is_partial(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & PARTIAL != 0
    }

    /// Notes that it is in use: the referenced bit of seed 004's lazy LRU, the other way round, so
    /// that it is written by the first walk only after the shrinker was here.
    pub(crate) fn warm(&self) {
        if self.flags.load(Ordering::Relaxed) & COLD != 0 {
            self.flags.fetch_and(!COLD, Ordering::Relaxed);
        }
    }

    /// Notes that the shrinker was here. Whether it was here before, and nobody else since.
    pub(crate) fn cool(&self) -> bool {
        let was = self.flags.load(Ordering::Relaxed) & COLD != 0;
        if !was {
            self.flags.fetch_or(COLD, Ordering::Relaxed);
        }
        was
    }

    /// Whether the driver stands by what it said about this name, where it wants to be asked.
    pub(crate) fn is_current(&self, dir: &Inode, name: &Name<'_>) -> bool {
        let flags = self.flags.load(Ordering::Acquire);
        if flags & CHECKED == 0 || flags & MOUNTED != 0 {
            return true;
        }
        let inode = (flags & NEGATIVE == 0).then(|| self.inode());
        let directories = self.sb().fs().dir_ops();
        directories.is_none_or(|names| names.is_current(dir, name.bytes(), inode))
    }

    /// The driver is asked about it each time, or no more.
    pub(crate) fn set_checked(&self, check: bool) {
        if check {
            self.flags.fetch_or(CHECKED, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!CHECKED, Ordering::Relaxed);
        }
    }

    /// Ends the name of a dentry that nobody refers to, is mounted on, or has walked to since
    /// [`cool`](Self::cool); the caller holds the bucket lock of its name and, if it is a
    /// directory, all of its own buckets, which are empty. It is for the caller to take it out of
    /// the table, and then to call [`finish_removal`] with the result. `None` if it is to stay.
    pub(crate) fn set_dropped<'g>(&'g self, _guard: &'g Guard) -> Option<Removed<'g>> {
        let flags = self.flags.load(Ordering::Acquire);
        if flags & COLD == 0 || flags & MOUNTED != 0 || !self.lockref.mark_dead_if_last() {
            return None;
        }
        let _section = self.seq.write();
        self.flags.fetch_or(UNHASHED, Ordering::Release);
        Some(Removed::Last(self))
    }

    /// The dentry, for as long as an RCU section lasts that began before.
    pub(crate) fn borrowed<'g>(&self, _guard: &'g Guard) -> &'g Dentry {
        // SAFETY: it is there now, within the section, and dentries are freed a grace period after
        // they can't be reached any more.
        unsafe { &*std::ptr::from_ref(self) }
    }

    /// Whether its count is spread over CPUs, just now.
    pub(crate) fn is_hot(&self) -> bool {
        self.lockref.is_spread()
    }

    /// Whether nobody but its name refers to it, as far as can be told: of a count that is spread
    /// over CPUs nothing can. No more than a hint.
    pub(crate) fn may_be_unused(&self) -> bool {
        self.is_hot() || self.lockref.count() == 1
    }

    /// Gathers its count if that is spread, so that it can be told whether it is unused when the
    /// grace period is over. Returns whether it was.
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

    /// Whether nothing may be mounted on it. Changes under the bucket lock of its name.
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

    /// Whether it is about to leave its directory. Changes while its name is locked, if a driver
    /// keeps the directory.
    pub(crate) fn is_moving(&self) -> bool {
        self.flags.load(Ordering::Acquire) & MOVING != 0
    }

    /// Sets or clears that; whether it was set before.
    pub(crate) fn set_moving(&self, moving: bool) -> bool {
        let before = if moving {
            self.flags.fetch_or(MOVING, Ordering::AcqRel)
        } else {
            self.flags.fetch_and(!MOVING, Ordering::AcqRel)
        };
        before & MOVING != 0
    }

    /// Whether this is its name.
    #[inline(always)]
    pub(crate) fn is_named(&self, name: &Name<'_>, guard: &Guard) -> bool {
        let stored = self.name.load(Ordering::Acquire);
        // SAFETY: a stored name has eight bytes at least, which are never written again and freed
        // after a grace period.
        let head = unsafe { stored.cast::<[u8; 8]>().read() };
        name.is_stored(u64::from_le_bytes(head), || self.name(guard))
    }

    /// Finds a child without a lock, with the value of its `seq` that the match holds for.
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

    /// Whether it has had its name all the time since [`find`](Self::find) found it with this value
    /// of its `seq`. A search may meet one that has just been taken out of its table, whose name
    /// and parent are what they were.
    #[inline]
    pub(crate) fn has_kept_name(&self, seq: u32) -> bool {
        !self.is_unhashed() && !self.seq.retry(seq)
    }

    /// The hash it is linked under.
    #[inline]
    pub(crate) fn hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }

    /// Takes a reference; the caller has one, or knows that the name or a bucket lock keeps the
    /// dentry.
    #[inline]
    pub(crate) fn get(&self, guard: &Guard) {
        self.lockref.get(&self.spread, guard);
    }

    /// Takes a reference to what may just be going.
    #[inline]
    pub(crate) fn try_ref(&self, guard: &Guard) -> Option<DentryRef> {
        self.lockref.get_not_dead(&self.spread, guard).then(|| DentryRef(NonNull::from(self)))
    }

    /// As [`try_ref`](Self::try_ref), for a dentry that is known to stay.
    pub(crate) fn to_ref(&self, guard: &Guard) -> DentryRef {
        self.get(guard);
        DentryRef(NonNull::from(self))
    }

    /// Gives a reference back; the last one frees.
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

    #[cold]
    fn promote(&self, guard: &Guard) {
        let sb = self.sb();
        if !sb.hot().has_places() {
            return;
        }
        let victim = {
            let mut lock = self.lockref.lock();
            let may_be_hot = !lock.is_dead() && !self.is_unhashed();
            // A count that is spread already, or is being collected, can't be.
            if !may_be_hot || !Lockref::spread(&mut lock, &self.spread, sb.slots()) {
                return;
            }
            let (place, victim) = sb.hot().enter(self);
            self.lockref.hot_place.store(place, Ordering::Relaxed);
            victim
        };
        if let Some(victim) = victim {
            // SAFETY: it was in the ring a moment ago, so it was not collected before this RCU
            // section began, and its memory stays until the section ends.
            let victim = unsafe { victim.as_ref() };
            let mut lock = victim.lockref.lock();
            victim.demote(&mut lock, guard);
        }
    }

    /// Back to one counter; returns whether the count was spread.
    fn demote(&self, lock: &mut LockrefGuard<'_>, guard: &Guard) -> bool {
        if !Lockref::begin_collect(lock, &self.spread, guard) {
            return false;
        }
        let sb = self.sb();
        sb.hot().leave(self, self.lockref.hot_place.load(Ordering::Relaxed));
        let keep = Collecting::new(sb);
        let raw = NonNull::from(self).as_ptr() as usize;
        guard.defer(move || {
            let guard = rcu::pin();
            // SAFETY: the bias that `begin_collect` left keeps the dentry, `keep` its superblock.
            let dentry = unsafe { &*(raw as *const Dentry) };
            // SAFETY: the collection was begun before this was deferred, which runs once.
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

    /// Marks the name as removed; the caller holds its bucket lock and has taken it out of
    /// `parent`'s table. The caller passes the result to [`finish_removal`] when all locks are
    /// released.
    ///
    /// `count_out` counts the name out of the inode. It runs when lookups see that the name is
    /// gone, and before the name gives up its reference: after that, the last user may close the
    /// file and evict it.
    pub(crate) fn set_removed<'g>(
        &'g self,
        parent: &Dentry,
        count_out: impl FnOnce(),
        guard: &'g Guard,
    ) -> Removed<'g> {
        if self.lockref.mark_dead_if_last() {
            // Nobody has a reference, so nobody mounts on it: the flags are ours. A move that has
            // found it may mark it; whether that remains does not matter to what is gone and has
            // nothing below.
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
        Removed::InUse
    }

    /// Gives it another parent and name, inside a write section of its `seq`; the caller holds both
    /// bucket locks, has taken it out of the old table and inserts it into the new one under `hash`
    /// next.
    pub(crate) fn set_moved(
        &self,
        _section: &SeqWrite<'_>,
        parent: &Dentry,
        name: Option<&[u8]>,
        hash: u64,
        guard: &Guard,
    ) {
        if let Some(name) = name {
            let old = self.name.swap(heap_name(name), Ordering::AcqRel);
            self.retire_name(old, guard);
        }
        self.hash.store(hash, Ordering::Relaxed);
        self.parent.store(std::ptr::from_ref(parent).cast_mut(), Ordering::Release);
    }

    fn owns_name(&self, name: *mut u8) -> bool {
        !name.is_null() && !std::ptr::eq(name, self.inline.bytes())
    }

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
            // SAFETY: the dentry is freed after a grace period; nobody reads its name any more.
            unsafe { free_name(name) };
        }
    }
}

/// Ends what [`Dentry::set_removed`] began; the caller holds no lock.
pub(crate) fn finish_removal(removed: Removed<'_>, guard: &Guard) {
    if let Removed::Last(dentry) = removed {
        kill(dentry, guard);
    }
}

/// Frees a dentry that is marked dead, and its parents as far as they were waiting for it.
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
        if !dentry.is_elsewhere() {
            dentry.inode().leave_alias(dentry, guard);
        }
        sb.forget_dentry(dentry);
        dentry.put_inode(guard);
        // SAFETY: marked dead with no reference left, and out of every table; RCU walks that still
        // see it are waited for.
        unsafe { sb.dentries().free_rcu(NonNull::from(dentry), guard) };
        if let Some(parent) = parent
            && let Put::Last(mut lock) = parent.lockref.put(&parent.spread, guard)
        {
            lock.mark_dead();
            next = Some(parent);
        }
    }
}

/// Frees a dentry of a superblock that ends, as [`SuperBlock::free_dentry`] does; `is_name` says
/// whether it is a name in a directory.
///
/// # Safety
/// It was linked in the tree of `sb`, nobody can reach it any more but RCU walks that the
/// superblock waits for, what was below it is gone, and its parent is not.
pub(crate) unsafe fn take_down(
    sb: &SuperBlock,
    raw: NonNull<Dentry>,
    is_name: bool,
    guard: &Guard,
) {
    // SAFETY: says the caller.
    let dentry = unsafe { raw.as_ref() };
    if is_name && sb.fs().dir_ops().is_none() {
        sb.fs().unlinked(dentry.inode(), dentry.name(guard).len());
    }
    if !dentry.is_elsewhere() {
        dentry.inode().leave_alias(dentry, guard);
    }
    sb.forget_dentry(dentry);
    dentry.put_inode(guard);
    // SAFETY: says the caller.
    unsafe { sb.free_dentry(raw, guard) };
}

/// A counted reference to a dentry.
pub(crate) struct DentryRef(NonNull<Dentry>);

// SAFETY: `Dentry` is `Sync`, and the count is atomic.
unsafe impl Send for DentryRef {}
// SAFETY: as above.
unsafe impl Sync for DentryRef {}

impl DentryRef {
    /// Takes over a reference that is counted already.
    ///
    /// # Safety
    /// The caller owns that reference and gives it up.
    pub(crate) unsafe fn from_raw(raw: NonNull<Dentry>) -> DentryRef {
        DentryRef(raw)
    }

    pub(crate) fn as_raw(&self) -> NonNull<Dentry> {
        self.0
    }

    /// Gives the reference up without counting it down.
    pub(crate) fn into_raw(self) -> NonNull<Dentry> {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    /// The dentry, for as long as an RCU section lasts, whatever becomes of this reference.
    #[inline]
    pub(crate) fn borrow<'g>(&self, _guard: &'g Guard) -> &'g Dentry {
        // SAFETY: it is referenced now, and is freed a grace period after the last reference.
        unsafe { self.0.as_ref() }
    }
}

impl std::ops::Deref for DentryRef {
    type Target = Dentry;
    #[inline]
    fn deref(&self) -> &Dentry {
        // SAFETY: the counted reference keeps the dentry.
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

/// A stored name in memory of its own: a length byte and that many bytes, and zeros up to eight.
fn heap_name(name: &[u8]) -> *mut u8 {
    debug_assert!(name.len() <= NAME_MAX);
    let mut bytes = Vec::with_capacity(name::stored_len(name.len()));
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name);
    bytes.resize(name::stored_len(name.len()), 0);
    Box::into_raw(bytes.into_boxed_slice()).cast()
}

/// # Safety
/// `name` came from [`heap_name`], and nobody uses it any more.
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

/// Takes a dentry that [`new_dentry`] has made a child of the root out of its table. The caller
/// holds no lock.
pub(crate) fn detach_pseudo(dentry: &Dentry, guard: &Guard) {
    let parent = dentry.parent(guard);
    let _dcache = parent.sb().lock_dcache();
    parent.children().lock(dentry.hash(), guard).remove(dentry);
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
