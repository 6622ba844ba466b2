//! Inodes: the attributes and data of files, apart from their names. Counterpart of `struct inode`
//! in Linux.
//!
//! An inode is allocated from its superblock's slab. Counted references hold it: one for each
//! dentry that points to it, and any [`InodeRef`]. When the last one is dropped, the driver evicts
//! the inode, and its memory is reused after a grace period. So an RCU walk that still sees it
//! reads stale but valid fields. `inode/evict.rs` describes the changes that such a walk may make.
//!
//! # Protection of the fields
//!
//! | fields | written under |
//! | --- | --- |
//! | mode, owner, flags, size, data | the inode's lock, exclusively; existing data also shared: see `inode/rwsem.rs` |
//! | nlink | atomically: see `inode/nlink.rs` |
//! | times | atomically, without a lock, and only when the clock has advanced |
//! | `DEAD` | every bucket lock of the directory's children table |
//! | extended attributes | a separate lock; access control lists the inode's, exclusively |
//! | loss of the last name | before the name is counted out; never reset |
//!
//! Readers take no lock.
//!
//! # Cache lines
//!
//! Fields are grouped on cache lines by their writers (asserted below): identity, which every walk
//! reads and hardly anything writes; permissions; data and times; and lock and counts. So walks
//! through a directory share no line with changes of it, nor do reads of a file share one with
//! links to it. The first line has a copy of the mode's type and of its bits beyond permissions,
//! which a change of permissions does not write: walks with the right to search any directory,
//! creation in a directory and writes to a file need no more of the mode. With this layout an inode
//! takes 256 bytes; packed as densely as possible it would take 192.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::OnceLock;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use vfscale_sync::lock::{Mutex, MutexGuard, assert_held};
use vfscale_sync::percpu_list::{Linked, PerCpuLinks};
use vfscale_sync::rcu::{Guard, RcuOption};
use vfscale_sync::sharded_rwlock::{ReaderParts, ShardedRwLock};
use vfscale_sync::table::Hashed;

use crate::base::lock_classes::{InodeAliases, InodeData, Xattrs};
use crate::base::time;
use crate::base::types::{FileType, InodeFlags, Timestamp};
use crate::locks::FileLocks;
use crate::objects::dcache::aliases::AliasHead;
use crate::objects::driver::XattrPair;
use crate::objects::fsnotify::marks::InodeMarks;
use crate::objects::inode_ext::InodeExt;
use crate::objects::seals::Seals;
use crate::objects::seq_file::Text;
use crate::objects::super_block::SuperBlock;
use crate::security::acl::Acl;
use crate::security::xattr::{XattrName, XattrNamespace, XattrSet};

mod evict;
mod flags;
mod inode_ref;
mod nlink;
mod private;
mod rwsem;
mod times;

pub use inode_ref::InodeRef;
pub use nlink::LINK_MAX;
use private::Private;

/// The type in a mode.
const TYPE: u32 = 0o170000;
/// Bits of a mode that are no permissions: the set-id bits and the sticky bit.
const SPECIAL: u32 = 0o7000;
/// The driver is backed.
const BACKED: u32 = 1 << 16;
/// Created by [`Calls::memfd_create`](crate::Calls::memfd_create), and has seals.
const SEALABLE: u32 = 1 << 17;
/// May have a default access control list.
const INHERITS: u32 = 1 << 18;
/// May have file capabilities.
const CAPABLE: u32 = 1 << 19;
/// The lock is sharded over the CPUs.
const SHARED: u32 = 1 << 20;
/// Changes are durable when their calls return: one of the inode flags, see `inode/flags.rs`.
const SYNC: u32 = 1 << 25;

pub(crate) const DEAD: u32 = 1;
const HASHED: u32 = 2;
/// Created without a name, and may be given one.
const LINKABLE: u32 = 4;
/// The cache has a reference to it; see [`crate::objects::icache`].
const CACHED: u32 = 16;
/// No call has used it since it was created, or since the shrinker last passed.
const COLD: u32 = 32;

/// An inode. Counterpart of `struct inode` in Linux.
#[repr(C, align(64))]
pub struct Inode {
    // Identity.
    sb: NonNull<SuperBlock>,
    ino: u64,
    /// `TYPE` and `SPECIAL` of the mode, `BACKED`, `SEALABLE`, `INHERITS`, `CAPABLE`, `SHARED`, and
    /// the inode flags: see `inode/flags.rs`.
    kind: AtomicU32,
    generation: u32,
    rdev: u64,
    btime: Timestamp,
    /// Extension for a pipe, a fifo that was opened, or a file of text that is generated when it is
    /// read; for the seals of a memfd; and for the sharded count of a directory's subdirectories.
    stream: OnceLock<Box<InodeExt>>,
    /// Per-CPU parts of the lock for shared holders, once several CPUs share it.
    sharers: ReaderParts,
    access: AccessLine,
    data: DataLine,
    usage: UseLine,
}

/// Permissions of an inode.
#[repr(C, align(64))]
struct AccessLine {
    mode: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
    /// Whether it has lost its last name, or is about to; see `inode/evict.rs`. Not used for
    /// directories, which are `DEAD` instead.
    nameless: AtomicBool,
    extra: RcuOption<InodeExtra>,
}

/// Data and times of an inode.
#[repr(C, align(64))]
struct DataLine {
    size: AtomicU64,
    /// `DEAD`, which is checked where a directory's times change, and rarely used flags.
    flags: AtomicU32,
    /// Change times that a reader has seen, and exact stamps in progress; see `inode/times.rs`.
    stamps: AtomicU32,
    private: Private,
    atime: AtomicI64,
    mtime: AtomicI64,
    ctime: AtomicI64,
}

/// Fields that are written by changes of the inode, of its names, and of its neighbours in a list.
#[repr(C, align(64))]
struct UseLine {
    lock: ShardedRwLock<InodeData>,
    nlink: AtomicU32,
    count: AtomicU32,
    alias_lock: Mutex<(), InodeAliases>,
    blocks: AtomicU64,
    /// Its dentries.
    aliases: AliasHead,
    /// Links on the superblock's list of inodes.
    links: PerCpuLinks<Inode>,
}

// The atomics of model checkers are larger.
#[cfg(not(any(loom, shuttle)))]
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Inode, access) == 64, "the identity of an inode fits one line");
    assert!(offset_of!(Inode, data) == 128);
    assert!(offset_of!(Inode, usage) == 192);
    assert!(size_of::<Inode>() == 256, "another line would cost every file 64 bytes");
};

/// Rarely used part of an inode, allocated when it is first needed.
pub(crate) struct InodeExtra {
    /// Extended attributes other than access control lists, if there were ever any.
    xattrs: RcuOption<XattrSet>,
    /// Serialises changes of `xattrs`.
    changing: Mutex<(), Xattrs>,
    pub(crate) acl_access: RcuOption<Acl>,
    pub(crate) acl_default: RcuOption<Acl>,
    pub(crate) locks: FileLocks,
    pub(crate) marks: InodeMarks,
    charged: AtomicBool,
    /// Whether its charge has been returned. Written with `changing` held.
    closed: AtomicBool,
}

impl InodeExtra {
    fn new() -> InodeExtra {
        InodeExtra {
            xattrs: RcuOption::none(),
            changing: Mutex::new(()),
            acl_access: RcuOption::none(),
            acl_default: RcuOption::none(),
            locks: FileLocks::new(),
            marks: InodeMarks::new(),
            charged: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// Creates the extra part with attributes that a driver has stored.
    pub(crate) fn stored(pairs: &[XattrPair]) -> InodeExtra {
        let list = |value| Acl::from_xattr(value).ok().flatten().map(RcuOption::some);
        let mut extra = InodeExtra::new();
        let mut set = XattrSet::new();
        for (name, value) in pairs {
            let Ok(name) = XattrName::new(name) else { continue };
            match name.namespace() {
                XattrNamespace::AclAccess => extra.acl_access = list(value).unwrap_or_default(),
                XattrNamespace::AclDefault => extra.acl_default = list(value).unwrap_or_default(),
                _ => drop(set.restore(name, value)),
            }
        }
        extra.xattrs = RcuOption::some(set);
        extra
    }

    /// Returns the attributes other than access control lists, if there were ever any.
    pub(crate) fn xattrs<'g>(&'g self, guard: &'g Guard) -> Option<&'g XattrSet> {
        self.xattrs.read(guard)
    }

    /// Changes those attributes: `change` works on a copy of the set, which replaces the set unless
    /// `change` fails. So readers of attributes write nothing. Blocks while other threads change
    /// them. `None` if the inode was evicted, which can't happen to a caller that holds a
    /// reference.
    pub(crate) fn change_xattrs<T>(
        &self,
        guard: &Guard,
        change: impl FnOnce(&mut XattrSet) -> Result<T, Errno>,
    ) -> Result<Option<T>, Errno> {
        let _one = self.changing.lock();
        if self.closed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut set = self.xattrs.read(guard).cloned().unwrap_or_default();
        let changed = change(&mut set)?;
        self.xattrs.replace(Some(set), guard);
        Ok(Some(changed))
    }

    /// Prevents further changes, because the inode is being evicted. Blocks while other threads
    /// change attributes.
    pub(crate) fn close(&self) {
        let _one = self.changing.lock();
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the file system was charged for this part.
    pub(crate) fn is_charged(&self) -> bool {
        self.charged.load(Ordering::Relaxed)
    }

    /// Notes that the file system was charged; returns false if another thread has already noted
    /// it.
    pub(crate) fn set_charged(&self) -> bool {
        !self.charged.swap(true, Ordering::Relaxed)
    }
}

// SAFETY: every field is atomic, locked, or never written after `new`; `sb` outlives its inodes.
unsafe impl Send for Inode {}
// SAFETY: every field is atomic, locked, or never written after `new`; `sb` outlives its inodes.
unsafe impl Sync for Inode {}

/// Initial values of an inode for [`SuperBlock::new_inode`].
#[derive(Default)]
pub struct InodeInit {
    /// Type and permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device of a device node.
    pub rdev: u64,
    /// The number of links to begin with.
    pub nlink: u32,
    /// Number of earlier uses of the inode number.
    pub generation: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space it occupies, in units of 512 bytes.
    pub blocks: u64,
    /// Its times; `None` for the current time.
    pub times: Option<InodeTimes>,
    /// Its flags.
    pub flags: InodeFlags,
    /// Its extended attributes, including access control lists in that form. Malformed ones are
    /// omitted: a driver checks them first.
    pub xattrs: Vec<XattrPair>,
    /// Whether its contents are generated when it is read, by
    /// [`FileOps::text`](crate::objects::driver::FileOps::text); its size is 0.
    pub text: bool,
    /// The driver's part.
    pub private: Option<Box<dyn Any + Send + Sync>>,
}

/// The times of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeTimes {
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}

impl InodeTimes {
    /// Returns the times of an inode that is created at `now`.
    pub fn all(now: Timestamp) -> InodeTimes {
        InodeTimes { atime: now, mtime: now, ctime: now, btime: now }
    }
}

impl Inode {
    /// Allocates an inode in place, with one reference, from the slot of a CPU.
    #[inline]
    pub(crate) fn alloc(sb: &SuperBlock, cpu: u32, ino: u64, init: InodeInit) -> NonNull<Inode> {
        // In two steps: the compiler would build a value that is borrowed before it is complete on
        // the stack, and copy it.
        let mut raw = sb.inode_memory().alloc_at(cpu, || Inode::new(sb, ino, &init));
        // SAFETY: just allocated, and no other thread has seen it.
        unsafe { raw.as_mut() }.equip(init);
        raw
    }

    #[inline(always)]
    fn new(sb: &SuperBlock, ino: u64, init: &InodeInit) -> Inode {
        let times = init.times.unwrap_or_else(|| InodeTimes::all(time::to_store(time::now())));
        let mut kind = init.mode & (TYPE | SPECIAL);
        if sb.is_backed() {
            kind |= BACKED;
        }
        Inode {
            sb: NonNull::from(sb),
            ino,
            kind: AtomicU32::new(kind),
            generation: init.generation,
            rdev: init.rdev,
            btime: times.btime,
            stream: OnceLock::new(),
            sharers: ReaderParts::new(),
            access: AccessLine {
                mode: AtomicU32::new(init.mode),
                uid: AtomicU32::new(init.uid),
                gid: AtomicU32::new(init.gid),
                nameless: AtomicBool::new(false),
                extra: RcuOption::none(),
            },
            data: DataLine {
                size: AtomicU64::new(init.size),
                flags: AtomicU32::new(0),
                stamps: AtomicU32::new(0),
                private: Private::none(),
                atime: AtomicI64::new(times.atime.0),
                mtime: AtomicI64::new(times.mtime.0),
                ctime: AtomicI64::new(times.ctime.0),
            },
            usage: UseLine {
                lock: ShardedRwLock::new(),
                nlink: AtomicU32::new(init.nlink),
                count: AtomicU32::new(1),
                alias_lock: Mutex::new(()),
                blocks: AtomicU64::new(init.blocks),
                aliases: AliasHead::new(),
                links: PerCpuLinks::new(),
            },
        }
    }

    /// Initializes the rare parts of a new inode.
    #[inline(always)]
    fn equip(&mut self, init: InodeInit) {
        if !init.xattrs.is_empty() {
            // Both may be present; a reader of the flags checks the attributes themselves.
            self.kind.fetch_or(INHERITS | CAPABLE, Ordering::Relaxed);
            self.access.extra = RcuOption::some(InodeExtra::stored(&init.xattrs));
        }
        if !init.flags.is_empty() {
            self.set_flags(init.flags);
        }
        if init.text {
            self.stream = OnceLock::from(Box::new(InodeExt::Text(Text::default())));
        }
        if let Some(part) = init.private {
            self.data.private = Private::boxed(part);
        }
    }

    /// Returns the superblock it belongs to.
    #[inline]
    pub fn sb(&self) -> &SuperBlock {
        // SAFETY: a superblock frees its inodes before itself.
        unsafe { self.sb.as_ref() }
    }

    /// Returns the inode number.
    #[inline]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Returns the number of earlier uses of the inode number.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the head of its list of dentries; see [`crate::objects::dcache::aliases`].
    #[inline]
    pub(crate) fn alias_head(&self) -> &AliasHead {
        &self.usage.aliases
    }

    /// Locks the list of its dentries, which changes under this lock if there are several.
    pub(crate) fn lock_aliases(&self) -> MutexGuard<'_, (), InodeAliases> {
        self.usage.alias_lock.lock()
    }

    /// Returns type and permission bits.
    #[inline]
    pub fn mode(&self) -> u32 {
        self.access.mode.load(Ordering::Relaxed)
    }

    /// Returns the type.
    #[inline]
    pub fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.kind.load(Ordering::Relaxed) & TYPE)
    }

    /// Returns whether it is a directory.
    #[inline]
    pub fn is_dir(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & TYPE == 0o040000
    }

    /// Returns whether it is a symbolic link.
    #[inline]
    pub fn is_symlink(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & TYPE == 0o120000
    }

    /// Returns whether it is a regular file.
    #[inline]
    pub fn is_file(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & TYPE == 0o100000
    }

    /// Returns the mode without permissions.
    #[inline]
    pub(crate) fn kind_bits(&self) -> u32 {
        self.kind.load(Ordering::Relaxed) & (TYPE | SPECIAL)
    }

    /// Returns the bits of the mode that are no permissions: set-user-id, set-group-id and sticky.
    #[inline]
    pub(crate) fn special_bits(&self) -> u32 {
        self.kind.load(Ordering::Relaxed) & SPECIAL
    }

    /// Returns the owner.
    #[inline]
    pub fn uid(&self) -> u32 {
        self.access.uid.load(Ordering::Relaxed)
    }

    /// Returns the group.
    #[inline]
    pub fn gid(&self) -> u32 {
        self.access.gid.load(Ordering::Relaxed)
    }

    /// Returns the device of a device node.
    pub fn rdev(&self) -> u64 {
        self.rdev
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.data.size.load(Ordering::Acquire)
    }

    /// Sets the length. Drivers call this where the VFS holds the inode's lock.
    pub fn set_size(&self, size: u64) {
        assert_held::<InodeData>();
        self.data.size.store(size, Ordering::Release);
    }

    /// Returns the occupied space, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.usage.blocks.load(Ordering::Relaxed)
    }

    /// Adds `delta` units of 512 bytes to the occupied space.
    pub fn add_blocks(&self, delta: i64) {
        self.usage.blocks.fetch_add(delta as u64, Ordering::Relaxed);
    }

    /// Sets the occupied space, in units of 512 bytes.
    pub fn set_blocks(&self, blocks: u64) {
        self.usage.blocks.store(blocks, Ordering::Relaxed);
    }

    /// Sets the mode, and its copy in `kind`.
    pub(crate) fn set_mode(&self, mode: u32) {
        assert_held::<InodeData>();
        if self.access.mode.load(Ordering::Relaxed) == mode {
            return;
        }
        self.access.mode.store(mode, Ordering::Release);
        // Not written if it would not change.
        let changed = (self.kind.load(Ordering::Relaxed) ^ mode) & SPECIAL;
        if changed != 0 {
            self.kind.fetch_xor(changed, Ordering::Relaxed);
        }
    }

    /// Sets the owner. Drivers call this for inodes whose owner is decided elsewhere.
    pub fn set_owner(&self, uid: u32, gid: u32) {
        self.access.uid.store(uid, Ordering::Release);
        self.access.gid.store(gid, Ordering::Release);
    }

    /// Returns whether it is a removed directory, in which every creation fails.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.data.flags.load(Ordering::Acquire) & DEAD != 0
    }

    pub(crate) fn mark_dead(&self) {
        self.data.flags.fetch_or(DEAD, Ordering::AcqRel);
    }

    /// Returns whether the driver is backed. Such a driver is called before attributes change and
    /// may block then, so the caller may be in no RCU section and hold no lock but this inode's.
    #[inline]
    pub(crate) fn is_backed(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & BACKED != 0
    }

    /// Returns whether it can be sealed.
    #[inline]
    pub(crate) fn is_sealable(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & SEALABLE != 0
    }

    /// Attaches seals, before any other thread sees the inode.
    pub(crate) fn set_seals(&self, seals: Seals) {
        self.ext_or_init(|| InodeExt::Memory(seals));
        self.kind.fetch_or(SEALABLE, Ordering::Relaxed);
    }

    /// Returns whether a write needs no further check: the driver has no `DirOps`, there are no
    /// seals, the lock is not sharded, and writes need not be durable.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.kind.load(Ordering::Relaxed) & (BACKED | SEALABLE | SHARED | SYNC) == 0
    }

    /// Notes that it is in the inode hash. The caller has locked its bucket there, or has exclusive
    /// access.
    pub(crate) fn set_hashed(&self) {
        self.data.flags.fetch_or(HASHED, Ordering::Release);
    }

    /// Returns whether it is in the inode hash. Exact for a caller that holds the last reference:
    /// the thread that inserted it held one too.
    pub(crate) fn is_hashed(&self) -> bool {
        self.data.flags.load(Ordering::Acquire) & HASHED != 0
    }

    /// Returns the driver's part, if it is a `T`.
    #[inline]
    pub fn private<T: Any>(&self) -> Option<&T> {
        self.data.private.get()
    }

    /// Returns the driver's part, created by `make` if there is none yet; `None` if it is no `T`. A
    /// part of up to 16 bytes is stored in the inode. If several threads create it at the same
    /// time, all but one of their values are dropped.
    pub fn private_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.data.private.get_or_init(make)
    }

    /// Returns the extension, if it has been created.
    pub(crate) fn stream(&self) -> Option<&InodeExt> {
        self.stream.get().map(|stream| &**stream)
    }

    /// Returns the extension, created by `make` if there is none yet.
    pub(crate) fn ext_or_init(&self, make: impl FnOnce() -> InodeExt) -> &InodeExt {
        self.stream.get_or_init(|| Box::new(make()))
    }

    #[inline]
    pub(crate) fn extra<'g>(&'g self, guard: &'g Guard) -> Option<&'g InodeExtra> {
        self.access.extra.read(guard)
    }

    /// Returns the access control list that new objects in a directory inherit. If there has never
    /// been one, this reads nothing that a change of permissions writes.
    #[inline]
    pub(crate) fn acl_default<'g>(&'g self, guard: &'g Guard) -> Option<&'g Acl> {
        if self.kind.load(Ordering::Acquire) & INHERITS == 0 {
            return None;
        }
        self.extra(guard)?.acl_default.read(guard)
    }

    /// Returns whether it may have file capabilities. Every write checks this, so the flag is
    /// separate from the other attributes and changes of them don't slow writes down.
    #[inline]
    pub(crate) fn may_be_capable(&self) -> bool {
        self.kind.load(Ordering::Acquire) & CAPABLE != 0
    }

    /// Notes that an attribute of this name is about to be set.
    pub(crate) fn note_xattr(&self, name: XattrName<'_>) {
        if name == XattrName::CAPABILITY {
            self.kind.fetch_or(CAPABLE, Ordering::Release);
        }
    }

    /// Notes that a default access control list is about to be set.
    pub(crate) fn note_acl_default(&self) {
        self.kind.fetch_or(INHERITS, Ordering::Release);
    }

    /// Returns whether it has an extra part. Only a hint, unless stated otherwise.
    #[inline]
    pub(crate) fn has_extra(&self) -> bool {
        !self.access.extra.is_none()
    }

    /// Returns the extra part, created if there is none yet.
    pub(crate) fn extra_or_init<'g>(&'g self, guard: &'g Guard) -> &'g InodeExtra {
        match self.access.extra.read(guard) {
            Some(extra) => extra,
            None => self.access.extra.init(InodeExtra::new(), guard),
        }
    }

    /// Returns another counted reference. The caller holds one.
    pub(crate) fn to_ref(&self) -> InodeRef {
        self.get();
        InodeRef(NonNull::from(self))
    }

    #[inline]
    pub(crate) fn get(&self) {
        self.usage.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether there is any reference. Only a hint for a caller that holds none.
    pub(crate) fn is_used(&self) -> bool {
        self.usage.count.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of references.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn references(&self) -> u32 {
        self.usage.count.load(Ordering::Relaxed)
    }

    /// Takes a reference unless the last one was dropped.
    pub(crate) fn get_not_zero(&self) -> bool {
        self.usage
            .count
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| (n != 0).then(|| n + 1))
            .is_ok()
    }

    /// Drops a reference; evicts with the last one.
    pub(crate) fn put(&self, guard: &Guard) {
        // Only a holder creates further references, except for lookups in the inode hash. So the
        // only reference to an inode that was never hashed need not be counted down.
        let alone = self.usage.count.load(Ordering::Acquire) == 1 && !self.is_hashed();
        if alone {
            return self.sb().evict(self, guard);
        }
        match self.usage.count.fetch_sub(1, Ordering::AcqRel) {
            1 => self.sb().evict(self, guard),
            // The cache does not retain an inode without a name.
            2 if self.is_cached() && self.is_unlinked() && self.take_unused() => {
                self.sb().evict(self, guard);
            }
            _ => {}
        }
    }

    /// Counts a reference for the cache, before any other thread sees the inode.
    pub(crate) fn set_cached(&self) {
        self.usage.count.store(2, Ordering::Relaxed);
        self.data.flags.fetch_or(CACHED | COLD, Ordering::Relaxed);
    }

    #[inline]
    fn is_cached(&self) -> bool {
        self.data.flags.load(Ordering::Relaxed) & CACHED != 0
    }

    /// Returns whether only the cache holds a reference. Only a hint.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_cached() && self.usage.count.load(Ordering::Relaxed) == 1
    }

    /// Drops the cache's reference if it is the last one. Then the caller evicts the inode, and no
    /// other thread finds it any more.
    pub(crate) fn take_unused(&self) -> bool {
        self.is_cached()
            && self.usage.count.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Notes a use of it, if the shrinker has passed since the last one.
    pub(crate) fn warm(&self) {
        if self.data.flags.load(Ordering::Relaxed) & COLD != 0 {
            self.data.flags.fetch_and(!COLD, Ordering::Relaxed);
        }
    }

    /// Notes that the shrinker passed. Returns whether it passed before, with no use since.
    pub(crate) fn cool(&self) -> bool {
        let was = self.data.flags.load(Ordering::Relaxed) & COLD != 0;
        if !was {
            self.data.flags.fetch_or(COLD, Ordering::Relaxed);
        }
        was
    }

    /// Returns the inode, for the rest of an RCU section that began before.
    pub(crate) fn borrowed<'g>(&self, _guard: &'g Guard) -> &'g Inode {
        // SAFETY: it is not freed now, within the section, and inodes are freed a grace period
        // after they can't be found any more.
        unsafe { &*std::ptr::from_ref(self) }
    }
}

impl Linked for Inode {
    #[inline]
    fn links(&self) -> &PerCpuLinks<Inode> {
        &self.usage.links
    }
}

impl Hashed for Inode {
    fn table_hash(&self) -> u64 {
        SuperBlock::ino_hash(self.ino)
    }
}

/// A pointer to an inode to which another object holds a reference.
pub(crate) struct InodePtr(NonNull<Inode>);

// SAFETY: `Inode` is `Sync`.
unsafe impl Send for InodePtr {}
// SAFETY: `Inode` is `Sync`.
unsafe impl Sync for InodePtr {}

impl InodePtr {
    #[inline]
    pub(crate) fn new(inode: &Inode) -> InodePtr {
        InodePtr(NonNull::from(inode))
    }

    /// Returns the inode.
    ///
    /// # Safety
    /// There is a reference to the inode, or was at some time in the RCU section.
    #[inline]
    pub(crate) unsafe fn as_ref(&self) -> &Inode {
        // SAFETY: a reference exists or existed in this RCU section; the memory is freed a grace
        // period after the last one is dropped.
        unsafe { self.0.as_ref() }
    }
}
