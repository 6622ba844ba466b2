//! Creation of dentries.

use std::ptr::NonNull;

use vfscale_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use vfscale_sync::lock::assert_held;
use vfscale_sync::lockref::{Lockref, SpreadPtr};
use vfscale_sync::percpu_list::PerCpuLinks;
use vfscale_sync::rcu::Guard;
use vfscale_sync::seqcount::SeqCount;
use vfscale_sync::table::{Bucket, RcuTable};

use super::{
    ATTACHED, CHECKED, COLD, Dentry, DentryCounts, DentryRef, HOLDS_PARENT, InlineName, NEGATIVE,
    PARTIAL, PSEUDO, UNHASHED, UNLISTED,
};
use crate::base::lock_classes::Children;
use crate::objects::dcache::aliases::AliasLinks;
use crate::objects::dcache::name::{self, Name};
use crate::objects::driver::{FIRST_TABLE_BITS, Found};
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;

/// Initial values of a new dentry.
#[derive(Clone, Copy)]
struct DentryInit {
    flags: u32,
    hash: u64,
    references: u32,
}

impl Dentry {
    /// Allocates a dentry. It takes over a reference to the inode, unless it is negative
    /// ([`put_inode`](Self::put_inode)).
    fn alloc(
        sb: &SuperBlock,
        parent: *mut Dentry,
        name: &[u8],
        inode: NonNull<Inode>,
        init: DentryInit,
    ) -> NonNull<Dentry> {
        let lockref = Lockref::with_locked_changes(init.references, !sb.scaling().lockref());
        let mut raw = sb.dentries().alloc_at(vfscale_sync::cpu::current(), || Dentry {
            seq: SeqCount::new(),
            flags: AtomicU32::new(init.flags),
            hash: AtomicU64::new(init.hash),
            parent: AtomicPtr::new(parent),
            inode,
            name: AtomicPtr::new(std::ptr::null_mut()),
            children: RcuTable::new(),
            spread: SpreadPtr::new(),
            inline: InlineName::uninit(),
            lockref: DentryCounts {
                lockref,
                lru: PerCpuLinks::new(),
                aliases: AliasLinks::new(),
                hot_slot: AtomicU32::new(0),
            },
        });
        // SAFETY: just allocated, and no other thread has seen it.
        let is_inline = unsafe { raw.as_mut() }.inline.set(name);
        // SAFETY: just allocated, and no other thread has seen it.
        let dentry = unsafe { raw.as_ref() };
        let stored = if is_inline { dentry.inline.bytes() } else { name::heap_name(name) };
        dentry.name.store(stored, Ordering::Relaxed);
        if dentry.inode().is_dir() {
            if sb.is_backed() {
                dentry.flags.fetch_or(PARTIAL, Ordering::Relaxed);
            } else {
                // Otherwise the first name would write the line of the directory's dentry, which
                // walks read; and names that several CPUs create in a new directory should not
                // share a line.
                let several = sb.scaling().dcache_hash() && sb.slots() > 1;
                dentry.children.prepare(if several { FIRST_TABLE_BITS } else { 0 });
            }
        }
        if init.flags & UNLISTED == 0 {
            dentry.inode().enter_alias(dentry);
        }
        raw
    }

    /// Creates the root of a superblock, which owns the initial reference.
    pub(crate) fn new_root(sb: &SuperBlock, inode: InodeRef) -> NonNull<Dentry> {
        let init = DentryInit { flags: 0, hash: 0, references: 1 };
        let raw = Dentry::alloc(sb, std::ptr::null_mut(), b"", inode.into_raw(), init);
        // SAFETY: just allocated.
        let root = unsafe { raw.as_ref() };
        root.parent.store(raw.as_ptr(), Ordering::Release);
        raw
    }

    /// Creates a dentry below `parent`, which the caller inserts under `hash` next. It begins with
    /// two references: that of the name, and the one returned.
    pub(crate) fn new_child(parent: &Dentry, name: &[u8], hash: u64, inode: InodeRef) -> DentryRef {
        assert_held::<Children>();
        let parent_raw = std::ptr::from_ref(parent).cast_mut();
        let init = DentryInit { flags: 0, hash, references: 2 };
        DentryRef(Dentry::alloc(parent.sb(), parent_raw, name, inode.into_raw(), init))
    }

    /// Inserts a dentry for the result of a driver's lookup into its bucket, and into the list of
    /// droppable dentries. It has the reference of the name and no other. Returns whether that list
    /// has reported that it has grown.
    pub(crate) fn insert_cached(
        bucket: &mut Bucket<'_, Dentry, Children>,
        parent: &Dentry,
        name: &Name<'_>,
        found: Found,
    ) -> bool {
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
        let init = DentryInit { flags, hash, references: 1 };
        let raw = Dentry::alloc(sb, parent, name.bytes(), inode, init);
        // SAFETY: the name's reference protects the dentry until it is removed from the table, and
        // its memory is freed a grace period after that. It leaves its list before it is freed, and
        // no thread can remove it from the table before it is on that list, because the bucket is
        // locked.
        unsafe {
            bucket.insert(raw);
            sb.lru().is_some_and(|lru| lru.list(flags & NEGATIVE != 0).insert(raw))
        }
    }

    /// Inserts a dentry for a name that a driver has just created into its bucket, and into the
    /// list of droppable dentries. It has the reference of the name, and the one returned. Also
    /// returns whether that list has reported that it has grown.
    pub(crate) fn insert_made(
        bucket: &mut Bucket<'_, Dentry, Children>,
        parent: &Dentry,
        name: &Name<'_>,
        inode: InodeRef,
    ) -> (DentryRef, bool) {
        let hash = bucket.free_hash(name.hash());
        let dentry = Dentry::new_child(parent, name.bytes(), hash, inode);
        if dentry.inode().is_dir() {
            // Prepared as in `alloc`, but not for every directory that the driver looks up. The
            // table has one line, because on a volume CPUs contend for other lines anyway.
            dentry.children.prepare(0);
        }
        // SAFETY: the name's reference protects the dentry until it is removed from the table; it
        // leaves its list before it is freed, and the locked bucket prevents its removal before it
        // is listed.
        let reported = unsafe {
            bucket.insert(dentry.0);
            parent.sb().lru().is_some_and(|lru| lru.list(false).insert(dentry.0))
        };
        (dentry, reported)
    }

    /// Creates a dentry for a file without a name (`O_TMPFILE`), held by the returned reference.
    pub(crate) fn new_unnamed(parent: &Dentry, inode: InodeRef, guard: &Guard) -> DentryRef {
        let name = format!("#{}", inode.ino());
        let parent_raw = std::ptr::from_ref(parent).cast_mut();
        parent.get(guard);
        let init = DentryInit { flags: UNHASHED | HOLDS_PARENT, hash: 0, references: 1 };
        DentryRef(Dentry::alloc(parent.sb(), parent_raw, name.as_bytes(), inode.into_raw(), init))
    }

    /// Creates a dentry for a file that no path leads to, held by the returned reference. It has no
    /// parent.
    pub(crate) fn new_pseudo(sb: &SuperBlock, name: &[u8], inode: InodeRef) -> DentryRef {
        let init = DentryInit { flags: UNHASHED | PSEUDO, hash: 0, references: 1 };
        let raw = Dentry::alloc(sb, std::ptr::null_mut(), name, inode.into_raw(), init);
        // SAFETY: just allocated.
        unsafe { raw.as_ref() }.parent.store(raw.as_ptr(), Ordering::Release);
        DentryRef(raw)
    }

    /// Creates a pseudo dentry in the table of the root, where no lookup expects it, if the patch
    /// for pseudo dentries is disabled.
    pub(crate) fn new_attached(
        sb: &SuperBlock,
        name: &[u8],
        hash: u64,
        inode: InodeRef,
        guard: &Guard,
    ) -> DentryRef {
        let root = sb.root();
        let mut bucket = root.lock_name(hash, guard);
        let hash = bucket.free_hash(hash);
        let init = DentryInit { flags: UNHASHED | PSEUDO | ATTACHED, hash, references: 1 };
        let parent = std::ptr::from_ref(root).cast_mut();
        let dentry = DentryRef(Dentry::alloc(sb, parent, name, inode.into_raw(), init));
        // SAFETY: `kill` removes it before its memory is freed, which takes a grace period.
        unsafe { bucket.insert(dentry.as_raw()) };
        dentry
    }
}
