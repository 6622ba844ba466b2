//! Superblocks: one mounted instance of a driver, with the memory of its dentries and inodes.
//!
//! A superblock owns the slabs that its dentries and inodes live in and the root dentry. It is kept by
//! its mounts; every open file, working directory and walk that reaches into it holds a mount, so that
//! a superblock always outlives its inodes. When the last mount lets go, the tree is taken down,
//! children before parents.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as StdAtomicU64;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use vfscale_sync::percpu::{IdAlloc, PerCpuCounter};
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::seqrwlock::SeqRwLock;
use vfscale_sync::slab::Slab;
use vfscale_sync::table::RcuTable;

use crate::dentry::{self, Dentry};
use crate::driver::FileSystem;
use crate::inode::{Inode, InodeInit, InodeRef};
use crate::ranks::{InodeHash, RenameLock};
use crate::types::{MountFlags, StatFs};

/// The first inode number that a driver's files get; the root has 1.
const INO_FIRST: u64 = 2;

/// Device numbers are handed out from here; they mean nothing outside the library.
static NEXT_DEV: StdAtomicU64 = StdAtomicU64::new(0x7600);

/// A mounted instance of a driver.
pub struct SuperBlock {
    fs: Arc<dyn FileSystem>,
    dev: u64,
    hash_key: u64,
    slots: usize,
    dentries: Slab<Dentry>,
    inodes: Slab<Inode>,
    root: AtomicPtr<Dentry>,
    rename_lock: Arc<SeqRwLock<RenameLock>>,
    flags: AtomicU32,
    ids: IdAlloc,
    inode_hash: RcuTable<Inode, InodeHash>,
    /// Opens for writing and changes under way; a read-only remount waits for none of them, but
    /// refuses while there is one.
    writers: PerCpuCounter,
}

impl SuperBlock {
    /// Sets up a superblock for `fs`, with its root.
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        rename_lock: Arc<SeqRwLock<RenameLock>>,
        slots: usize,
    ) -> Result<Arc<SuperBlock>, Errno> {
        let dev = NEXT_DEV.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let sb = Arc::new(SuperBlock {
            fs,
            dev,
            hash_key: dentry::new_hash_key(),
            slots,
            dentries: Slab::new(slots),
            inodes: Slab::new(slots),
            root: AtomicPtr::new(std::ptr::null_mut()),
            rename_lock,
            flags: AtomicU32::new(0),
            ids: IdAlloc::new(INO_FIRST, slots),
            inode_hash: RcuTable::new(),
            writers: PerCpuCounter::new(slots),
        });
        let inode = sb.fs.fill_super(&sb)?;
        let root = Dentry::new_root(&sb, inode);
        sb.root.store(root.as_ptr(), Ordering::Release);
        Ok(sb)
    }

    /// The driver.
    #[inline]
    pub fn fs(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// The device number that `stat` shows for its files.
    pub fn dev(&self) -> u64 {
        self.dev
    }

    /// The number of slots its per-CPU structures have.
    pub fn slots(&self) -> usize {
        self.slots
    }

    #[inline]
    pub(crate) fn hash_key(&self) -> u64 {
        self.hash_key
    }

    pub(crate) fn rename_lock(&self) -> &SeqRwLock<RenameLock> {
        &self.rename_lock
    }

    pub(crate) fn dentries(&self) -> &Slab<Dentry> {
        &self.dentries
    }

    pub(crate) fn root(&self) -> &Dentry {
        // SAFETY: set by `new`, freed by `drop`; never changed in between.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    /// Makes an inode with the next free number (the root gets 1); for drivers.
    pub fn new_inode(&self, init: InodeInit) -> InodeRef {
        let first = self.root.load(Ordering::Relaxed).is_null();
        let ino = if first { 1 } else { self.ids.next() };
        let raw = self.inodes.alloc(Inode::new(self, ino, init));
        // SAFETY: `Inode::new` counts one reference, ours.
        unsafe { InodeRef::from_raw(raw) }
    }

    /// Bytes of memory that its dentries and inodes occupy.
    pub fn resident_bytes(&self) -> usize {
        self.dentries.bytes() + self.inodes.bytes()
    }

    pub(crate) fn flags(&self) -> MountFlags {
        MountFlags::from_bits_retain(self.flags.load(Ordering::SeqCst))
    }

    /// Announces a change; a superblock that is read-only refuses with `EROFS`.
    ///
    /// The count goes up before the flag is read, and a remount sets the flag before it sums the
    /// counts, so that one of the two sees the other.
    #[inline]
    pub(crate) fn want_write(&self) -> Result<(), Errno> {
        self.writers.add(1);
        vfscale_sync::atomic::fence(Ordering::SeqCst);
        if self.flags().contains(MountFlags::RDONLY) {
            self.writers.add(-1);
            return Err(Errno::ROFS);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn drop_write(&self) {
        self.writers.add(-1);
    }

    /// Changes the superblock's flags; to read-only only while nothing is open for writing.
    pub(crate) fn remount(&self, flags: MountFlags) -> Result<(), Errno> {
        let before = self.flags.swap(flags.bits(), Ordering::SeqCst);
        vfscale_sync::atomic::fence(Ordering::SeqCst);
        let was_writable = before & MountFlags::RDONLY.bits() == 0;
        if flags.contains(MountFlags::RDONLY) && was_writable && self.writers.sum() > 0 {
            self.flags.store(before, Ordering::SeqCst);
            return Err(Errno::BUSY);
        }
        Ok(())
    }

    pub(crate) fn statfs(&self, flags: MountFlags) -> StatFs {
        StatFs { fsid: self.dev, flags: flags | self.flags(), ..self.fs.statfs() }
    }

    pub(crate) fn ino_hash(ino: u64) -> u64 {
        // Fibonacci hashing; the table wants the spread in the top bits, and 63 of them.
        ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1
    }

    /// Enters an inode into the hash that file handles are looked up in (lazily: few files ever
    /// have a handle).
    pub(crate) fn hash_inode(&self, inode: &Inode, guard: &Guard) {
        if inode.claim_hashed() {
            let mut bucket = self.inode_hash.lock(Self::ino_hash(inode.ino()), guard);
            // SAFETY: `evict` removes it before the inode's memory is given back, which waits for a
            // grace period.
            unsafe { bucket.insert(NonNull::from(inode)) };
        }
    }

    /// Finds an inode by number, with a reference taken.
    pub(crate) fn find_inode(&self, ino: u64, guard: &Guard) -> Option<InodeRef> {
        let inode = self.inode_hash.find(Self::ino_hash(ino), guard, |i| i.ino() == ino)?;
        if !inode.get_not_zero() {
            return None;
        }
        // SAFETY: the reference was just counted.
        Some(unsafe { InodeRef::from_raw(NonNull::from(inode)) })
    }

    /// The last reference is gone: frees the inode's data now, its memory after a grace period.
    pub(crate) fn evict(&self, inode: &Inode, guard: &Guard) {
        if inode.is_hashed() {
            self.inode_hash.lock(Self::ino_hash(inode.ino()), guard).remove(inode);
        }
        if let Some(extra) = inode.extra(guard) {
            self.fs.uncharge(crate::attr::extra_bytes(extra, guard));
        }
        self.fs.evict(inode);
        // SAFETY: the count is zero and never rises again (`get_not_zero`); only RCU readers that
        // began before still see it.
        unsafe { self.inodes.free_rcu(NonNull::from(inode), guard) };
    }
}

impl Drop for SuperBlock {
    fn drop(&mut self) {
        let root = *self.root.get_mut();
        if let Some(root) = NonNull::new(root) {
            let guard = rcu::pin();
            dentry::take_down(root, &guard);
        }
    }
}
