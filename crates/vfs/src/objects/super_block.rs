//! Superblocks: one mounted instance of a driver, with the memory of its dentries and inodes.
//! Counterpart of `struct super_block` in Linux.
//!
//! A superblock owns the slabs that its dentries and inodes are allocated from, and the root
//! dentry. Its mounts hold it; every open file, working directory and walk that reaches into it
//! holds a mount, so a superblock always outlives its inodes. When the last mount drops its
//! reference, the tree is taken down (`take_down`), children before parents.

mod inodes;
mod remounts;

use std::fmt;
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64 as StdAtomicU64, Ordering as StdOrdering};

use rustix::io::Errno;
use vfscale_sync::atomic::thread::Thread;
use vfscale_sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use vfscale_sync::lock::{Mutex, MutexGuard};
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::seqrwlock::SeqRwLock;
use vfscale_sync::shared::SharedList;
use vfscale_sync::slab::Slab;

use self::inodes::InodeTable;
use self::remounts::Remounts;
use crate::base::limits::{Quotas, SharedQuotas};
use crate::base::lock_classes::{DcacheLock, FilesLock, InodeWaiters, RenameLock};
use crate::base::types::{MountFlags, StatFs};
use crate::locks::LockGraph;
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::dcache::lru::Lru;
use crate::objects::dcache::name::Name;
use crate::objects::dcache::sharded_counts::ShardedRing;
use crate::objects::driver::{DirOps, FileSystem, NameAccounting, Names, NoAccounting, Reclaimed};
use crate::objects::file_description::{OpenFile, SharedFile};
use crate::objects::fsnotify::marks::WatchCounts;
use crate::objects::in_lookup::{Key, KeyGuard, KeyLocks};
use crate::objects::inode::{Inode, InodeInit};
use crate::objects::remount_flags::RemountFlags;
use crate::objects::super_ref::{Owners, SuperRef};
use vfscale_sync::scaling::Scaling;

/// The bytes that an object owns from which on its memory must not wait for an idle CPU.
const LARGE_BYTES: u64 = 4096;

/// The next device number. Device numbers mean nothing outside the library.
static NEXT_DEV: StdAtomicU64 = StdAtomicU64::new(0x7600);

/// A mounted instance of a driver.
pub struct SuperBlock {
    fs: Arc<dyn FileSystem>,
    dev: u64,
    scaling: Scaling,
    /// Taken for every change of a name. Present only if the patch that locks each bucket is
    /// disabled.
    dcache_lock: Option<Mutex<(), DcacheLock>>,
    dentries: Slab<Dentry>,
    inodes: InodeTable,
    root: AtomicPtr<Dentry>,
    lock_graph: Arc<LockGraph>,
    quotas: SharedQuotas,
    /// Shared with a driver that makes the superblock read-only by itself.
    flags: Arc<RemountFlags>,
    watches: WatchCounts,
    /// Its open files, except those that have moved to a private list.
    files: SharedList<OpenFile, FilesLock>,
    /// Dentries whose count is sharded over CPUs.
    hot: ShardedRing,
    owners: Owners,
    /// Whether it ends, and no thread can find any object of it any more.
    is_alone: AtomicBool,
    /// Whether a file may be immutable or only appended to. Never reset.
    has_immutable: AtomicBool,
    /// Fields that calls write, apart from those above, which all calls read (Chinner 2020, patch
    /// 1).
    written: CachePadded<SuperWritten>,
    /// Caches and locks for a backed driver.
    cache: Option<Box<Cache>>,
}

/// Fields of a superblock that are written while it is in use, and are not per CPU.
struct SuperWritten {
    /// Number of open files that have moved to private lists.
    private_files: AtomicIsize,
    /// Its mounts, and the locks of their remounts.
    remounts: Remounts,
}

/// State for a backed driver, for which the dcache is only a cache.
struct Cache {
    lru: Lru,
    /// Names that the driver is looking up or changing.
    in_lookup: KeyLocks,
    /// Numbers for which inodes are being created.
    numbers: KeyLocks,
    /// Threads that wait for the end of an eviction, and their number.
    evict_waiters: Mutex<Vec<Thread>, InodeWaiters>,
    evict_waiter_count: AtomicUsize,
    /// The inode of all negative dentries. Null until the superblock is at its final address,
    /// because an inode points to its superblock.
    no_inode: AtomicPtr<Inode>,
    /// The `rename_lock` of all mount trees that the superblock may be in.
    rename_lock: Arc<CachePadded<SeqRwLock<RenameLock>>>,
}

// SAFETY: the pointers are to mounts and dentries, which are `Sync` and are not freed while they
// are listed.
unsafe impl Send for SuperBlock {}
// SAFETY: the pointers are to mounts and dentries, which are `Sync` and are not freed while they
// are listed.
unsafe impl Sync for SuperBlock {}

impl SuperBlock {
    /// Sets up a superblock for `fs`, with its root.
    pub(crate) fn set_up(
        fs: Arc<dyn FileSystem>,
        (lock_graph, quotas): (Arc<LockGraph>, SharedQuotas),
        rename_lock: &Arc<CachePadded<SeqRwLock<RenameLock>>>,
        scaling: Scaling,
    ) -> Result<SuperRef, Errno> {
        let dev = NEXT_DEV.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let slots = scaling.slots();
        let is_backed = matches!(fs.names(), Names::Backed(_));
        let sb = SuperRef::new(Box::new(SuperBlock {
            fs,
            dev,
            scaling,
            dcache_lock: (!scaling.dcache_hash()).then(|| Mutex::new(())),
            dentries: slab(slots, scaling.dentry_count()),
            inodes: InodeTable::new(&scaling, is_backed),
            root: AtomicPtr::new(std::ptr::null_mut()),
            lock_graph,
            flags: Arc::new(RemountFlags::new(MountFlags::empty())),
            watches: WatchCounts::new(),
            files: SharedList::bounded(scaling.files_lock_slots(), &quotas.files),
            quotas,
            hot: ShardedRing::new(scaling.lockref_parts()),
            owners: Owners::new(slots),
            is_alone: AtomicBool::new(false),
            has_immutable: AtomicBool::new(false),
            written: CachePadded::new(SuperWritten {
                private_files: AtomicIsize::new(0),
                remounts: Remounts::new(),
            }),
            cache: is_backed.then(|| Box::new(Cache::new(&scaling, rename_lock.clone()))),
        }));
        // Objects that point to the superblock are created from here on, when it has its final
        // address and is no longer written as a whole.
        if let Some(cache) = &sb.cache {
            if !sb.is_writable() {
                sb.flags.set(MountFlags::RDONLY);
            }
            let no_inode = Inode::alloc(&sb, vfscale_sync::cpu::current(), 0, InodeInit::default());
            cache.no_inode.store(no_inode.as_ptr(), Ordering::Release);
        }
        let inode = sb.fs.fill_super(&sb)?;
        let root = Dentry::new_root(&sb, inode);
        sb.root.store(root.as_ptr(), Ordering::Release);
        Ok(sb)
    }

    /// Returns the driver.
    #[inline]
    pub fn fs(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Returns the directory operations of a backed driver.
    #[inline]
    pub(crate) fn dir_ops(&self) -> Option<&dyn DirOps> {
        match self.fs.names() {
            Names::Backed(ops) => Some(ops),
            Names::Cached(_) => None,
        }
    }

    /// Returns the accounting of names and of attributes that the VFS stores.
    #[inline]
    pub(crate) fn accounting(&self) -> &dyn NameAccounting {
        match self.fs.names() {
            Names::Backed(_) => &NoAccounting,
            Names::Cached(accounting) => accounting,
        }
    }

    /// Makes a call that needs space, and repeats it as [`again_for_space`] does. The caller holds
    /// no lock.
    #[inline]
    pub(crate) fn with_space<T>(&self, call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match call() {
            Err(errno) if is_for_space(errno) => again_for_space(|| self.fs.reclaim(), call),
            other => other,
        }
    }

    /// Makes all changes durable; on a read-only file system there are none. Waits for a remount
    /// that has forbidden changes already, and still makes them durable. The caller holds no lock.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        let is_readonly = || self.flags().contains(MountFlags::RDONLY);
        if is_readonly() {
            drop(self.lock_remounts());
            // The remount may have failed.
            if is_readonly() {
                return Ok(());
            }
        }
        self.fs.sync_fs()
    }

    /// Returns the device number that `stat` shows for its files.
    pub fn dev(&self) -> u64 {
        self.dev
    }

    /// Returns the scaling settings.
    pub fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// Returns the number of slots for sharded structures that no patch controls.
    pub fn slots(&self) -> usize {
        self.scaling.slots()
    }

    /// Locks changes of names, before the lock of the bucket, if the patch for bucket locks is
    /// disabled. For [`Dentry::lock_name`] and [`Dentry::lock_names`].
    #[inline]
    pub(crate) fn lock_dcache(&self) -> Option<MutexGuard<'_, (), DcacheLock>> {
        self.dcache_lock.as_ref().map(Mutex::lock)
    }

    /// Returns the graph of tasks that wait for file locks of other tasks.
    pub(crate) fn lock_graph(&self) -> &Arc<LockGraph> {
        &self.lock_graph
    }

    /// Returns the usage counts of the tree's limits.
    pub(crate) fn quotas(&self) -> &PerCpuArc<Quotas> {
        &self.quotas
    }

    /// Returns the lists of dentries that can be dropped; `None` with a driver without `DirOps`.
    pub(crate) fn lru(&self) -> Option<&Lru> {
        self.cache.as_ref().map(|cache| &cache.lru)
    }

    /// Locks a name against lookups by the driver and against changes. Sleeps while another thread
    /// holds it; the caller holds no lock.
    pub(crate) fn lock_name(&self, dir: &Dentry, name: &Name<'_>) -> Option<KeyGuard<'_>> {
        self.cache.as_ref().map(|cache| cache.in_lookup.lock(name_key(dir, name)))
    }

    /// Checks in debug builds that a name is [locked](Self::lock_name), if the driver has names.
    #[inline]
    pub(crate) fn assert_locked(&self, dir: &Dentry, name: &Name<'_>) {
        let is_locked = |cache: &Cache| cache.in_lookup.is_locked(name_key(dir, name));
        debug_assert!(self.cache.as_deref().is_none_or(is_locked), "the name is not locked");
    }

    /// Locks two names, which may be one, as [`lock_name`](Self::lock_name) does.
    pub(crate) fn lock_names(
        &self,
        one: (&Dentry, &Name<'_>),
        other: (&Dentry, &Name<'_>),
    ) -> Option<(KeyGuard<'_>, Option<KeyGuard<'_>>)> {
        let (one, other) = (name_key(one.0, one.1), name_key(other.0, other.1));
        let (first, second) = (one.min(other), one.max(other));
        self.cache.as_ref().map(|cache| {
            let first_guard = cache.in_lookup.lock(first);
            (first_guard, (first != second).then(|| cache.in_lookup.lock(second)))
        })
    }

    /// Locks out other moves of directories to other directories, because two concurrent ones could
    /// form a loop. Sleeps while there is one; the caller holds no lock, and locks names after
    /// that.
    pub(crate) fn lock_moves(&self) -> Option<KeyGuard<'_>> {
        self.cache.as_ref().map(|cache| cache.in_lookup.lock(Key::MOVES))
    }

    /// Does what [`lock_moves`](Self::lock_moves) does, for a caller that has a name locked and so
    /// must not sleep. `None` if another thread holds the lock.
    pub(crate) fn try_lock_moves(&self) -> Option<KeyGuard<'_>> {
        self.cache.as_ref()?.in_lookup.try_lock(Key::MOVES)
    }

    /// Does what [`lock_name`](Self::lock_name) does, for a caller that must not sleep. `None` if
    /// another thread holds the lock.
    pub(crate) fn try_lock_name(&self, dir: &Dentry, name: &Name<'_>) -> Option<KeyGuard<'_>> {
        self.cache.as_ref()?.in_lookup.try_lock(name_key(dir, name))
    }

    /// Returns the lock for moves of directories in the dcache, for the driver's own moves.
    pub(crate) fn rename_lock(&self) -> Option<&SeqRwLock<RenameLock>> {
        self.cache.as_ref().map(|cache| &**cache.rename_lock)
    }

    /// Returns the number of its watches.
    #[inline]
    pub(crate) fn watches(&self) -> &WatchCounts {
        &self.watches
    }

    /// Returns whether the driver is backed.
    #[inline]
    pub(crate) fn is_backed(&self) -> bool {
        self.cache.is_some()
    }

    /// Returns whether its names can be changed at all.
    fn is_writable(&self) -> bool {
        self.dir_ops().is_none_or(DirOps::is_writable)
    }

    /// Returns the inode of negative dentries. It exists as long as the superblock, and so as long
    /// as any dentry. Negative dentries don't count references to it, because all CPUs would write
    /// that count.
    pub(crate) fn no_inode(&self) -> NonNull<Inode> {
        let cache = self.cache.as_ref().expect("only a backed driver has negative dentries");
        NonNull::new(cache.no_inode.load(Ordering::Acquire)).expect("created by `set_up`")
    }

    pub(crate) fn dentries(&self) -> &Slab<Dentry> {
        &self.dentries
    }

    pub(crate) fn root_ref(&self) -> DentryRef {
        self.root().to_ref(&rcu::pin())
    }

    pub(crate) fn root(&self) -> &Dentry {
        // SAFETY: set by `set_up`, freed when the superblock ends; never changed in between.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    /// Returns the bytes of memory that its dentries and inodes occupy.
    pub fn resident_bytes(&self) -> usize {
        self.dentries.bytes() + self.inodes.memory.bytes()
    }

    pub(crate) fn flags(&self) -> MountFlags {
        self.flags.get()
    }

    /// Returns a switch that makes it read-only, for a driver whose file system is no longer
    /// reliable.
    pub fn read_only_switch(&self) -> ReadOnlySwitch {
        ReadOnlySwitch(Arc::clone(&self.flags))
    }

    /// Returns the lists of its open files.
    pub(crate) fn files(&self) -> &SharedList<OpenFile, FilesLock> {
        &self.files
    }

    /// Returns the number of open files on private lists.
    pub(crate) fn private_files(&self) -> usize {
        usize::try_from(self.written.private_files.load(StdOrdering::Relaxed)).unwrap_or(0)
    }

    /// Counts files that have moved to a private list, or (negative) were closed there.
    pub(crate) fn count_private(&self, files: isize) {
        self.written.private_files.fetch_add(files, StdOrdering::Relaxed);
    }

    /// Opens a file: adds it to the list of its superblock. Returns it as the error if too many
    /// files are open.
    #[inline]
    #[expect(clippy::result_large_err, reason = "inlined, and rare")]
    pub(crate) fn open_file(file: OpenFile) -> Result<SharedFile, OpenFile> {
        let sb: *const SuperBlock = &raw const **file.path().mount().sb();
        // SAFETY: the file holds a mount, which holds the superblock, until it is dropped.
        unsafe { (*sb).files.insert(file) }
    }

    /// Returns whether an open file, on any of its mounts, may still cause a change: one that is
    /// open for writing, or has no name left and is freed when it is closed.
    fn has_open_writers(&self) -> bool {
        let mut found = false;
        self.files.each(|file| {
            found = file.is_for_writing() || file.inode().is_unlinked();
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    /// Returns its reference counts.
    pub(crate) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Returns its dentries whose count is sharded over CPUs.
    pub(crate) fn hot(&self) -> &ShardedRing {
        &self.hot
    }

    pub(crate) fn statfs(&self, flags: MountFlags) -> StatFs {
        StatFs { fsid: self.dev, flags: flags | self.flags(), ..self.fs.statfs(self) }
    }

    /// Returns the hash of an inode number.
    pub(crate) fn ino_hash(ino: u64) -> u64 {
        // Fibonacci hashing; the table uses the top bits, and 63 of them.
        vfscale_sync::hash::fibonacci(ino) >> 1
    }

    /// Frees a dentry when the superblock ends.
    ///
    /// # Safety
    /// It is one of this superblock, and only RCU readers that began before its last use ended
    /// still see it.
    pub(crate) unsafe fn free_dentry(&self, dentry: NonNull<Dentry>, guard: &Guard) {
        // SAFETY: the caller guarantees it.
        unsafe { self.free_in(&self.dentries, dentry, 0, guard) };
    }

    /// Frees an object that owns `owned` more bytes: after a grace period, or immediately if one
    /// has passed since the last use of the superblock.
    ///
    /// # Safety
    /// The conditions of [`Slab::free_rcu`] hold, and no thread has found the object since the last
    /// use of the superblock ended.
    #[inline]
    unsafe fn free_in<T: Send>(
        &self,
        slab: &Slab<T>,
        object: NonNull<T>,
        owned: u64,
        guard: &Guard,
    ) {
        // SAFETY: the caller guarantees it. If the flag is set, all sections that began before that
        // last use ended have ended too.
        unsafe {
            if self.is_alone() {
                slab.free(object);
            } else if owned >= LARGE_BYTES {
                slab.free_rcu_large(object, guard);
            } else {
                slab.free_rcu(object, guard);
            }
        }
    }

    /// Returns the root, unless the driver could not find one.
    pub(crate) fn root_raw(&self) -> Option<NonNull<Dentry>> {
        NonNull::new(self.root.load(Ordering::Acquire))
    }

    /// Returns whether the superblock ends and no thread finds any object of it any more. Then an
    /// evicted inode is dropped as soon as [`evict`](FileSystem::evict) has returned, together with
    /// the driver's part of it.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    /// Notes that a file may be immutable or only appended to: for a driver that stores such files,
    /// when it makes the root.
    pub fn note_immutable(&self) {
        self.has_immutable.store(true, Ordering::Relaxed);
    }

    /// Returns whether a file may be, or have been, immutable or only appended to.
    pub(crate) fn has_immutable(&self) -> bool {
        self.has_immutable.load(Ordering::Relaxed)
    }

    /// Begins the end of an unused superblock: notifies the driver, if the superblock had a root.
    /// `is_alone` means that a grace period has passed since the last use.
    pub(crate) fn begin_end(&self, is_alone: bool, had_root: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
        if had_root {
            let _section = rcu::pin();
            self.fs.put_super();
        }
    }
}

/// Returns whether an error says that there was too little space: of the file system, or of what
/// this part of it may take.
pub fn is_for_space(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

/// Number of attempts of a call whose freed space other threads may take first.
const SPACE_TRIES: u32 = 16;

/// Repeats a call that has failed for lack of space, as long as `reclaim` frees some, or freed
/// space was not available during the call: it may have become so between the call and `reclaim`.
/// So a call fails only if there was too little, including the space that other threads had freed.
/// The caller holds no lock, and a failed call leaves no side effect.
#[cold]
pub(crate) fn again_for_space<T>(
    reclaim: impl Fn() -> Reclaimed,
    call: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut before = reclaim();
    for _ in 0..SPACE_TRIES {
        let refused = match call() {
            Err(errno) if is_for_space(errno) => errno,
            other => return other,
        };
        let now = reclaim();
        if !now.has_freed && now.changes == before.changes {
            return Err(refused);
        }
        before = now;
    }
    call()
}

/// A switch that makes a superblock read-only in spite of writers: changes in progress may fail in
/// the driver. `Send` and `Sync`.
pub struct ReadOnlySwitch(Arc<RemountFlags>);

impl ReadOnlySwitch {
    /// Makes it read-only, until a remount that the driver permits
    /// ([`set_read_only`](FileSystem::set_read_only)). A concurrent remount that fails may undo it,
    /// so a driver calls this each time a call finds it necessary. Never blocks.
    pub fn set(&self) {
        self.0.forbid();
    }
}

impl fmt::Debug for ReadOnlySwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadOnlySwitch").field(&self.0.get()).finish()
    }
}

impl Cache {
    fn new(scaling: &Scaling, rename_lock: Arc<CachePadded<SeqRwLock<RenameLock>>>) -> Cache {
        Cache {
            lru: Lru::new(scaling.lru_slots()),
            in_lookup: KeyLocks::new(),
            numbers: KeyLocks::new(),
            evict_waiters: Mutex::new(Vec::new()),
            evict_waiter_count: AtomicUsize::new(0),
            no_inode: AtomicPtr::new(std::ptr::null_mut()),
            rename_lock,
        }
    }

    /// Takes the inode of negative dentries, at the end of the superblock. `None` if the set-up
    /// failed before it was created.
    fn take_no_inode(&self) -> Option<NonNull<Inode>> {
        NonNull::new(self.no_inode.swap(std::ptr::null_mut(), Ordering::AcqRel))
    }

    /// Wakes all threads that wait for an eviction; each looks again.
    fn wake_waiters(&self) {
        if self.evict_waiter_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let woken = {
            let mut waiters = self.evict_waiters.lock();
            self.evict_waiter_count.store(0, Ordering::Relaxed);
            std::mem::take(&mut *waiters)
        };
        woken.iter().for_each(Thread::unpark);
    }
}

/// Creates the memory of dentries or inodes, which counts what is in use on each CPU, or in one
/// word.
fn slab<T: Send + 'static>(slots: usize, counts_per_cpu: bool) -> Slab<T> {
    if counts_per_cpu { Slab::new(slots) } else { Slab::with_one_count(slots) }
}

/// Returns the key of a name for [`KeyLocks`].
fn name_key(dir: &Dentry, name: &Name<'_>) -> Key {
    Key::of_name(std::ptr::from_ref(dir).addr(), name.hash())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
