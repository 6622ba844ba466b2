//! The inodes of a superblock: making, finding and evicting them.

use std::convert::Infallible;
use std::ptr::NonNull;

use vfscale_sync::atomic::{Ordering, thread};
use vfscale_sync::cpu;
use vfscale_sync::lock::{Mutex, MutexGuard};
use vfscale_sync::percpu::IdAlloc;
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::slab::Slab;
use vfscale_sync::table::RcuTable;

use super::{Cache, SuperBlock, slab};
use crate::base::lock_classes::{InodeHash, InodeLock};
use crate::objects::driver::DirOps;
use crate::objects::icache::InodeList;
use crate::objects::in_lookup::Key;
use crate::objects::inode::{Inode, InodeInit, InodeRef};
use crate::objects::inode_xattrs::extra_bytes;
use vfscale_sync::scaling::Scaling;

/// State of an inode number.
enum Seen {
    Used(InodeRef),
    Evicting,
    Nothing,
}

/// First inode number for a driver's files; the root has 1.
const INO_FIRST: u64 = 2;

/// The inodes of a superblock.
pub(super) struct InodeTable {
    pub(super) memory: Slab<Inode>,
    ids: IdAlloc,
    hash: RcuTable<Inode, InodeHash>,
    /// All of them; `None` if no thread ever looks for one.
    list: Option<InodeList>,
    /// Taken for every use of the hash. Present only if the patch that locks each bucket is
    /// disabled.
    lock: Option<Mutex<(), InodeLock>>,
}

impl InodeTable {
    pub(super) fn new(scaling: &Scaling, is_backed: bool) -> InodeTable {
        InodeTable {
            memory: slab(scaling.slots(), scaling.inode_count()),
            ids: IdAlloc::new(INO_FIRST, scaling.ino_alloc_slots()),
            hash: RcuTable::new(),
            list: InodeList::new(scaling, is_backed),
            lock: (!scaling.inode_hash()).then(|| Mutex::new(())),
        }
    }
}

impl SuperBlock {
    /// Locks uses of the inode hash, in addition to the lock of the bucket, if the patch for bucket
    /// locks is disabled.
    fn lock_inodes(&self) -> Option<MutexGuard<'_, (), InodeLock>> {
        self.inodes.lock.as_ref().map(Mutex::lock)
    }

    /// Locks the inode list and the inode numbers, if one lock protects them together with the
    /// inode hash. Called only where there is a list. The caller has not locked the hash.
    fn lock_all_inodes(&self) -> Option<MutexGuard<'_, (), InodeLock>> {
        if self.scaling.one_inode_lock() { self.lock_inodes() } else { None }
    }

    /// Returns the slab of its inodes.
    #[inline]
    pub(crate) fn inode_memory(&self) -> &Slab<Inode> {
        &self.inodes.memory
    }

    /// Creates an inode with the next free number (the root gets 1); for drivers.
    pub fn new_inode(&self, init: InodeInit) -> InodeRef {
        if let Some(list) = &self.inodes.list {
            return self.new_listed_inode(list, init);
        }
        let cpu = cpu::current();
        let raw = Inode::alloc(self, cpu, self.next_ino(cpu), init);
        // SAFETY: `Inode::alloc` counts one reference, ours.
        unsafe { InodeRef::from_raw(raw) }
    }

    /// Creates an inode like [`new_inode`](Self::new_inode), and adds it to the inode list.
    #[cold]
    #[inline(never)]
    fn new_listed_inode(&self, list: &InodeList, init: InodeInit) -> InodeRef {
        let _inodes = self.lock_all_inodes();
        let cpu = cpu::current();
        let raw = Inode::alloc(self, cpu, self.next_ino(cpu), init);
        // SAFETY: it is new, and `evict` removes it before its memory is freed.
        unsafe { list.insert(raw) };
        // SAFETY: `Inode::alloc` counts one reference, ours.
        unsafe { InodeRef::from_raw(raw) }
    }

    /// Returns the next free inode number; the root's is 1.
    #[inline]
    fn next_ino(&self, cpu: u32) -> u64 {
        if self.root.load(Ordering::Relaxed).is_null() { 1 } else { self.inodes.ids.next(cpu) }
    }

    /// Returns the lists of its inodes; `None` if no thread ever looks for one.
    pub(crate) fn inode_list(&self) -> Option<&InodeList> {
        self.inodes.list.as_ref()
    }

    /// Lists an inode that is about to be hashed by number. Gives the cache a reference to it
    /// unless the driver caches no inodes.
    fn cache_inode(&self, inode: &Inode) {
        if self.dir_ops().is_some_and(DirOps::caches_inodes) {
            inode.set_cached();
        }
        if let Some(list) = &self.inodes.list {
            // SAFETY: it is new, and `evict` removes it before its memory is freed.
            unsafe { list.insert(NonNull::from(inode)) };
        }
    }

    /// Returns the number of inodes that are referenced or cached; exact while none is added or
    /// removed. Takes the locks of all slots of their slab, one after the other.
    pub fn inodes_in_use(&self) -> usize {
        self.inodes.memory.in_use()
    }

    /// Frees the inode of negative dentries, and checks that no inode is left. No dentry is.
    pub(crate) fn end_inodes(&self, guard: &Guard) {
        if let Some(no_inode) = self.cache.as_deref().and_then(Cache::take_no_inode) {
            // SAFETY: no dentry is left that points to it.
            unsafe { self.free_in(&self.inodes.memory, no_inode, 0, guard) };
        }
        self.check_no_inodes();
    }

    /// Enters an inode into the hash for lookups of file handles (lazily: few files ever have a
    /// handle). The caller holds a reference to it, or to one of its dentries. When this returns,
    /// the inode can be found by its number, whichever thread has entered it: it is marked after
    /// the insertion.
    pub(crate) fn hash_inode(&self, inode: &Inode, guard: &Guard) {
        if inode.is_hashed() {
            return;
        }
        let _inodes = self.lock_inodes();
        let mut bucket = self.inodes.hash.lock(Self::ino_hash(inode.ino()), guard);
        if !inode.is_hashed() {
            // SAFETY: `evict` removes it before the inode's memory is freed, which waits for a
            // grace period.
            unsafe { bucket.insert(NonNull::from(inode)) };
            inode.set_hashed();
        }
    }

    /// Finds an inode by number, without a reference.
    pub(crate) fn peek_inode<'g>(&'g self, ino: u64, guard: &'g Guard) -> Option<&'g Inode> {
        let _inodes = self.lock_inodes();
        // An inode whose last reference was dropped may still be hashed, next to a newer one with
        // its number.
        let is_it = |inode: &Inode| inode.ino() == ino && inode.is_used();
        self.inodes.hash.find(Self::ino_hash(ino), guard, is_it)
    }

    /// Finds an inode by number, with a reference taken.
    pub(crate) fn find_inode(&self, ino: u64, guard: &Guard) -> Option<InodeRef> {
        loop {
            let inode = self.peek_inode(ino, guard)?;
            if inode.get_not_zero() {
                inode.warm();
                // SAFETY: the reference was just counted.
                return Some(unsafe { InodeRef::from_raw(NonNull::from(inode)) });
            }
        }
    }

    /// Returns the inode with this number, created by `make` unless it exists; for drivers that
    /// number their inodes themselves, from 1 on. There is at most one referenced inode of a
    /// number.
    ///
    /// If the last reference to one was just dropped, waits until the driver's
    /// [`evict`](crate::objects::driver::FileSystem::evict) has returned. If another thread is
    /// creating one, waits for that. So `make` finds the state that the driver stored when it
    /// evicted the previous inode. (With a driver without `DirOps` no call waits, and the result of
    /// `make` may be discarded.) The caller is in no RCU section and holds no lock that eviction
    /// takes.
    pub fn iget(&self, ino: u64, make: impl FnOnce() -> InodeInit) -> InodeRef {
        match self.try_iget(ino, || Ok::<_, Infallible>(make())) {
            Ok(inode) => inode,
            Err(never) => match never {},
        }
    }

    /// Does what [`iget`](Self::iget) does for a number that may be freed and reused concurrently:
    /// `make` checks whether it is still the number of the caller's object. An inode that is
    /// referenced already is returned without a call of `make`.
    ///
    /// # Errors
    /// Returns the error of `make`: there is no such inode.
    pub fn try_iget<E>(
        &self,
        ino: u64,
        make: impl FnOnce() -> std::result::Result<InodeInit, E>,
    ) -> std::result::Result<InodeRef, E> {
        if let Some(found) = self.find_inode(ino, &rcu::pin()) {
            return Ok(found);
        }
        let key = Key::of_number(ino);
        let _serialized = self.cache.as_ref().map(|cache| cache.numbers.lock(key));
        loop {
            match self.find_or_wait(ino) {
                Seen::Used(found) => return Ok(found),
                Seen::Evicting => thread::park(),
                Seen::Nothing => break,
            }
        }
        let init = make()?;
        let guard = rcu::pin();
        let raw = Inode::alloc(self, cpu::current(), ino, init);
        // SAFETY: just allocated, with one reference, ours.
        let made = unsafe { raw.as_ref() };
        made.set_hashed();
        let _inodes = self.lock_inodes();
        let mut bucket = self.inodes.hash.lock(Self::ino_hash(ino), &guard);
        let is_it = |inode: &Inode| inode.ino() == ino && inode.get_not_zero();
        let raw = match bucket.find(Self::ino_hash(ino), is_it) {
            Some(found) => {
                // SAFETY: no other thread has seen it.
                unsafe { self.inodes.memory.free_rcu(raw, &guard) };
                NonNull::from(found)
            }
            None => {
                self.cache_inode(made);
                // SAFETY: `evict` removes it before its memory is freed, which waits for a grace
                // period.
                unsafe { bucket.insert(raw) };
                raw
            }
        };
        // SAFETY: the reference was counted by `Inode::alloc`, or just now.
        Ok(unsafe { InodeRef::from_raw(raw) })
    }

    /// Looks for an inode by number. If that inode is being evicted, the evicting thread unparks
    /// this one when the eviction is complete (or before).
    fn find_or_wait(&self, ino: u64) -> Seen {
        let guard = rcu::pin();
        let _inodes = self.lock_inodes();
        // An evicting thread removes the inode after all that it does with the driver, and other
        // threads that would insert one wait for this one.
        let is_it = |inode: &Inode| inode.ino() == ino;
        if self.inodes.hash.find(Self::ino_hash(ino), &guard, is_it).is_none() {
            return Seen::Nothing;
        }
        let bucket = self.inodes.hash.lock(Self::ino_hash(ino), &guard);
        let Some(found) = bucket.find(Self::ino_hash(ino), is_it) else {
            return Seen::Nothing;
        };
        if found.get_not_zero() {
            // SAFETY: the reference was just counted.
            return Seen::Used(unsafe { InodeRef::from_raw(NonNull::from(found)) });
        }
        if let Some(cache) = &self.cache {
            // Under the bucket's lock: the evicting thread takes that lock to remove the inode
            // before it checks for waiters.
            let mut waiters = cache.evict_waiters.lock();
            waiters.push(thread::current());
            cache.evict_waiter_count.store(waiters.len(), Ordering::Relaxed);
        }
        Seen::Evicting
    }

    /// Frees the data of an inode whose last reference was dropped, now, and its memory after a
    /// grace period.
    pub(crate) fn evict(&self, inode: &Inode, guard: &Guard) {
        if let Some(cache) = &self.cache {
            return self.evict_backed(cache, inode, guard);
        }
        if inode.is_hashed() {
            self.unhash_inode(inode, guard);
        }
        if let Some(extra) = inode.last_extra(guard) {
            extra.close();
            self.accounting().uncharge(extra_bytes(extra, guard));
        }
        if inode.is_shared() {
            self.accounting().uncharge(inode.sharers_bytes());
        }
        let locked = inode.lock_last_data();
        self.fs.evict(inode);
        drop(locked);
        self.free_inode(inode, guard);
    }

    /// Frees the memory of an inode that was evicted.
    #[inline]
    fn free_inode(&self, inode: &Inode, guard: &Guard) {
        if let Some(list) = &self.inodes.list {
            self.unlist_inode(list, inode);
        }
        let owned = inode.extra(guard).map_or(0, |extra| extra_bytes(extra, guard));
        // SAFETY: the count is zero and never rises again (`get_not_zero`); only RCU readers that
        // began before still see it.
        unsafe { self.free_in(&self.inodes.memory, NonNull::from(inode), owned, guard) };
    }

    /// Removes an inode from the inode list.
    #[inline(never)]
    fn unlist_inode(&self, list: &InodeList, inode: &Inode) {
        let _inodes = self.lock_all_inodes();
        list.remove(inode);
    }

    /// Evicts an inode of a backed driver: the inode stays hashed until the driver has evicted it.
    #[cold]
    fn evict_backed(&self, cache: &Cache, inode: &Inode, guard: &Guard) {
        self.fs.evict(inode);
        if inode.is_hashed() {
            self.unhash_inode(inode, guard);
        }
        cache.wake_waiters();
        self.free_inode(inode, guard);
    }

    /// Removes an inode from the inode hash.
    #[cold]
    fn unhash_inode(&self, inode: &Inode, guard: &Guard) {
        let _inodes = self.lock_inodes();
        self.inodes.hash.lock(Self::ino_hash(inode.ino()), guard).remove(inode);
    }
}
