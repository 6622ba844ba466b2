//! Superblocks: one mounted instance of a driver, with the memory of its dentries and inodes.
//!
//! A superblock owns the slabs that its dentries and inodes live in and the root dentry. It is kept
//! by its mounts; every open file, working directory and walk that reaches into it holds a mount,
//! so that a superblock always outlives its inodes. When the last mount lets go, the tree is taken
//! down (`take_down`), children before parents.

use std::convert::Infallible;
use std::fmt;
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64 as StdAtomicU64, Ordering as StdOrdering};

use rustix::io::Errno;
use vfscale_sync::atomic::thread::{self, Thread};
use vfscale_sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use vfscale_sync::lock::{Mutex, MutexGuard};
use vfscale_sync::percpu::{Apart, IdAlloc};
use vfscale_sync::percpu_arc::PerCpuArc;
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::seqrwlock::SeqRwLock;
use vfscale_sync::shared::SharedList;
use vfscale_sync::slab::Slab;
use vfscale_sync::table::RcuTable;

use crate::base::limits::{Quotas, SharedQuotas};
use crate::base::lock_classes::{
    DcacheLock, FilesLock, InodeHash, InodeLock, InodeWaiters, RenameLock, SuperMounts,
    SuperRemount, WriteHold,
};
use crate::base::scaling::Scaling;
use crate::base::types::{MountFlags, StatFs};
use crate::file::open_file::{OpenFile, SharedFile};
use crate::locks::LockGraph;
use crate::mount::vfsmount::Mount;
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::dcache::lru::Lru;
use crate::objects::dcache::name::Name;
use crate::objects::dcache::sharded_counts::ShardedRing;
use crate::objects::driver::{DirOps, FileSystem};
use crate::objects::icache::InodeList;
use crate::objects::in_lookup::{Key, KeyGuard, KeyLocks};
use crate::objects::inode::{Inode, InodeInit, InodeRef};
use crate::objects::remount_flags::RemountFlags;
use crate::objects::super_ref::{Owners, SuperRef};

/// Stands for all moves of directories between directories, where names have their keys: no dentry
/// is there.
const MOVES: Key = (0, 0);

/// The first inode number that a driver's files get; the root has 1.
const INO_FIRST: u64 = 2;

/// Device numbers are handed out from here; they mean nothing outside the library.
static NEXT_DEV: StdAtomicU64 = StdAtomicU64::new(0x7600);

/// A mounted instance of a driver.
pub struct SuperBlock {
    fs: Arc<dyn FileSystem>,
    dev: u64,
    scaling: Scaling,
    /// Taken for every change of a name, and for every use of the inode hash: only where there was
    /// no lock for each bucket yet.
    dcache_lock: Option<Mutex<(), DcacheLock>>,
    inode_lock: Option<Mutex<(), InodeLock>>,
    dentries: Slab<Dentry>,
    inodes: Slab<Inode>,
    root: AtomicPtr<Dentry>,
    lock_graph: Arc<LockGraph>,
    quotas: SharedQuotas,
    /// Shared with a driver that makes it read-only by itself.
    flags: Arc<RemountFlags>,
    ids: IdAlloc,
    inode_hash: RcuTable<Inode, InodeHash>,
    /// Its inodes; none where nobody ever looks for one.
    inode_list: Option<InodeList>,
    /// Every open file of it, but those that have moved to a private list.
    files: SharedList<OpenFile, FilesLock>,
    /// Dentries whose count is spread over CPUs.
    hot: ShardedRing,
    owners: Owners,
    /// It ends, and nobody can find anything of it any more.
    is_alone: AtomicBool,
    /// What calls write, apart from the above, which all of them read (seed 003, patch 1).
    written: Apart<Written>,
    /// Where the driver keeps directories: what that takes.
    cache: Option<Box<Cache>>,
}

/// What of a superblock is written while it is in use, and not for each CPU.
struct Written {
    /// How many open files have moved to private lists.
    private_files: AtomicIsize,
    /// Every mount of it, attached or not, until the grace period after its last use is over.
    mounts: Mutex<Vec<NonNull<Mount>>, SuperMounts>,
    /// How many of them somebody uses.
    mounts_used: AtomicUsize,
    /// Held while it, or a mount of it, is remounted.
    remounts: Mutex<(), SuperRemount>,
    /// Held while a remount looks who writes; see the page of `mount`.
    write_hold: Mutex<(), WriteHold>,
}

/// What a superblock has whose directories the driver keeps, of which the dcache is but a cache.
struct Cache {
    lru: Lru,
    /// The names that the driver is being asked for, or changes.
    in_lookup: KeyLocks,
    /// The numbers for which inodes are being made.
    numbers: KeyLocks,
    /// Who waits for an inode to have gone, and how many that are.
    going: Mutex<Vec<Thread>, InodeWaiters>,
    waiting: AtomicUsize,
    /// The inode that dentries of names that don't exist have. Null until the superblock is where
    /// it stays: an inode points to it.
    no_inode: AtomicPtr<Inode>,
    /// The one of all mount trees that the superblock may be in.
    rename_lock: Arc<Apart<SeqRwLock<RenameLock>>>,
}

// SAFETY: the pointers are to mounts and dentries, which are `Sync` and kept while they are listed.
unsafe impl Send for SuperBlock {}
// SAFETY: as above.
unsafe impl Sync for SuperBlock {}

impl SuperBlock {
    /// Sets up a superblock for `fs`, with its root.
    pub(crate) fn set_up(
        fs: Arc<dyn FileSystem>,
        (lock_graph, quotas): (Arc<LockGraph>, SharedQuotas),
        rename_lock: &Arc<Apart<SeqRwLock<RenameLock>>>,
        scaling: Scaling,
    ) -> Result<SuperRef, Errno> {
        let dev = NEXT_DEV.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let slots = scaling.slots();
        let is_backed = fs.dir_ops().is_some();
        let inode_list = InodeList::new(&scaling, is_backed);
        let sb = SuperRef::new(Box::new(SuperBlock {
            fs,
            dev,
            scaling,
            dcache_lock: (!scaling.dcache_hash()).then(|| Mutex::new(())),
            inode_lock: (!scaling.inode_hash()).then(|| Mutex::new(())),
            dentries: Slab::new(slots),
            inodes: Slab::new(slots),
            root: AtomicPtr::new(std::ptr::null_mut()),
            lock_graph,
            flags: Arc::new(RemountFlags::new(MountFlags::empty())),
            ids: IdAlloc::new(INO_FIRST, scaling.ino_alloc_slots()),
            inode_hash: RcuTable::new(),
            inode_list,
            files: SharedList::bounded(scaling.files_lock_slots(), &quotas.files),
            quotas,
            hot: ShardedRing::new(slots),
            owners: Owners::new(slots),
            is_alone: AtomicBool::new(false),
            written: Apart(Written {
                private_files: AtomicIsize::new(0),
                mounts: Mutex::new(Vec::new()),
                mounts_used: AtomicUsize::new(0),
                remounts: Mutex::new(()),
                write_hold: Mutex::new(()),
            }),
            cache: is_backed.then(|| Box::new(Cache::new(&scaling, rename_lock.clone()))),
        }));
        // What points to it is made from here on, when it has its place, and nobody writes to it as
        // a whole.
        if let Some(cache) = &sb.cache {
            if !sb.is_writable() {
                sb.flags.set(MountFlags::RDONLY);
            }
            let no_inode = Inode::alloc(&sb, &sb.inodes, 0, InodeInit::default());
            cache.no_inode.store(no_inode.as_ptr(), Ordering::Release);
        }
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

    /// Does what needs space, as [`again_for_space`] does. The caller holds nothing.
    #[inline]
    pub(crate) fn with_space<T>(&self, call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match call() {
            Err(Errno::NOSPC) => again_for_space(|| self.fs.reclaim(), call),
            other => other,
        }
    }

    /// Makes what was changed durable; on a file system that is read-only that is nothing. Waits
    /// for a remount that has forbidden changes already, and still makes them durable. The caller
    /// holds nothing.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        let is_readonly = || self.flags().contains(MountFlags::RDONLY);
        if is_readonly() {
            drop(self.lock_remounts());
            // It may have failed.
            if is_readonly() {
                return Ok(());
            }
        }
        self.fs.sync_fs()
    }

    /// The device number that `stat` shows for its files.
    pub fn dev(&self) -> u64 {
        self.dev
    }

    /// How its structures are spread.
    pub fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// The number of slots that those of its structures have which no patch is about.
    pub fn slots(&self) -> usize {
        self.scaling.slots()
    }

    /// What changes of names take besides the locks of their buckets, before there were those.
    #[inline]
    pub(crate) fn lock_dcache(&self) -> Option<MutexGuard<'_, (), DcacheLock>> {
        self.dcache_lock.as_ref().map(Mutex::lock)
    }

    /// What uses of the inode hash take besides the locks of its buckets, before there were those.
    fn lock_inodes(&self) -> Option<MutexGuard<'_, (), InodeLock>> {
        self.inode_lock.as_ref().map(Mutex::lock)
    }

    /// Which task waits for which, for the locks of files.
    pub(crate) fn lock_graph(&self) -> &Arc<LockGraph> {
        &self.lock_graph
    }

    /// The counts of what is taken of the limits of the tree.
    pub(crate) fn quotas(&self) -> &PerCpuArc<Quotas> {
        &self.quotas
    }

    /// The dentries that can be dropped; none where names live in the dcache.
    pub(crate) fn lru(&self) -> Option<&Lru> {
        self.cache.as_ref().map(|cache| &cache.lru)
    }

    /// Keeps others from asking the driver for this name, and from changing it. Sleeps while
    /// somebody else does; the caller holds nothing.
    pub(crate) fn lock_name(&self, dir: &Dentry, name: &Name<'_>) -> Option<KeyGuard<'_>> {
        self.cache.as_ref().map(|cache| cache.in_lookup.lock(name_key(dir, name)))
    }

    /// The same for two names, which may be one.
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

    /// Keeps out other moves of directories to other directories, so that no two of them make a
    /// loop. Sleeps while there is one; the caller holds nothing, and locks names after that.
    pub(crate) fn lock_moves(&self) -> Option<KeyGuard<'_>> {
        self.cache.as_ref().map(|cache| cache.in_lookup.lock(MOVES))
    }

    /// The same, for who has a name locked and so may not sleep. `None` if there is such a move
    /// just now.
    pub(crate) fn try_lock_moves(&self) -> Option<KeyGuard<'_>> {
        self.cache.as_ref()?.in_lookup.try_lock(MOVES)
    }

    /// As [`lock_name`](Self::lock_name), for who may not sleep. `None` if somebody else has it.
    pub(crate) fn try_lock_name(&self, dir: &Dentry, name: &Name<'_>) -> Option<KeyGuard<'_>> {
        self.cache.as_ref()?.in_lookup.try_lock(name_key(dir, name))
    }

    /// Under what directories move in the dcache, for the driver's own moves.
    pub(crate) fn rename_lock(&self) -> Option<&SeqRwLock<RenameLock>> {
        self.cache.as_ref().map(|cache| &**cache.rename_lock)
    }

    /// Whether the driver keeps directories itself.
    #[inline]
    pub(crate) fn is_backed(&self) -> bool {
        self.cache.is_some()
    }

    /// Whether its names can be changed at all.
    fn is_writable(&self) -> bool {
        self.fs.dir_ops().is_none_or(DirOps::is_writable)
    }

    /// What a dentry has that stands for no inode. It lives as long as the superblock and so as any
    /// dentry: those that have it don't count, or all CPUs would.
    pub(crate) fn no_inode(&self) -> NonNull<Inode> {
        let cache = self.cache.as_ref().expect("only drivers with directories find nothing");
        NonNull::new(cache.no_inode.load(Ordering::Acquire)).expect("made when it was set up")
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

    /// Makes an inode with the next free number (the root gets 1); for drivers.
    pub fn new_inode(&self, init: InodeInit) -> InodeRef {
        let first = self.root.load(Ordering::Relaxed).is_null();
        let ino = if first { 1 } else { self.ids.next() };
        let raw = Inode::alloc(self, &self.inodes, ino, init);
        self.list_inode(raw);
        // SAFETY: `Inode::alloc` counts one reference, ours.
        unsafe { InodeRef::from_raw(raw) }
    }

    /// Its inodes; none where nobody ever looks for one.
    pub(crate) fn inode_list(&self) -> Option<&InodeList> {
        self.inode_list.as_ref()
    }

    /// Puts an inode on their list that is about to be found by number, and lets it stay when
    /// nobody uses it if the driver doesn't mind.
    fn cache_inode(&self, inode: &Inode) {
        if self.fs.dir_ops().is_some_and(DirOps::caches_inodes) {
            inode.set_cached();
        }
        self.list_inode(NonNull::from(inode));
    }

    /// Puts an inode that has just been made on their list.
    #[inline]
    fn list_inode(&self, inode: NonNull<Inode>) {
        if let Some(list) = &self.inode_list {
            // SAFETY: it is new, and `evict` removes it before its memory is given back.
            unsafe { list.insert(inode) };
        }
    }

    /// Inodes that somebody refers to or that are kept for whoever comes; exact while none comes or
    /// goes. Takes the locks of all slots of their slab, one after the other.
    pub fn inodes_in_use(&self) -> usize {
        self.inodes.in_use()
    }

    /// Bytes of memory that its dentries and inodes occupy.
    pub fn resident_bytes(&self) -> usize {
        self.dentries.bytes() + self.inodes.bytes()
    }

    pub(crate) fn flags(&self) -> MountFlags {
        self.flags.get()
    }

    /// What makes it read-only, for a driver whose file system can't be relied on any more.
    pub fn read_only_switch(&self) -> ReadOnlySwitch {
        ReadOnlySwitch(Arc::clone(&self.flags))
    }

    /// The lists of its open files.
    pub(crate) fn files(&self) -> &SharedList<OpenFile, FilesLock> {
        &self.files
    }

    /// Open files on private lists.
    pub(crate) fn private_files(&self) -> usize {
        usize::try_from(self.written.private_files.load(StdOrdering::Relaxed)).unwrap_or(0)
    }

    /// Another file has moved to a private list, or ended there.
    pub(crate) fn count_private(&self, files: isize) {
        self.written.private_files.fetch_add(files, StdOrdering::Relaxed);
    }

    /// Opens a file: it is on the list of its superblock from now on. Gives it back if too many
    /// files are open.
    #[inline]
    #[expect(clippy::result_large_err, reason = "inlined, and seldom made")]
    pub(crate) fn open_file(file: OpenFile) -> Result<SharedFile, OpenFile> {
        let sb: *const SuperBlock = &raw const **file.path().mount().sb();
        // SAFETY: the file keeps a mount, which keeps the superblock, until it is dropped.
        unsafe { (*sb).files.insert(file) }
    }

    /// Whether closing a file would change something, on any of its mounts: one that is open for
    /// writing, or has no name left and goes when it is closed.
    fn has_open_writers(&self) -> bool {
        let mut found = false;
        self.files.each(|file| {
            found = file.is_for_writing() || file.inode().is_unlinked();
            if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        found
    }

    /// Changes the superblock's flags, and the driver with them; to read-only only while nothing is
    /// open for writing on any of its mounts, and no open file is without a name. Blocks for the
    /// driver's I/O.
    pub(crate) fn remount(&self, flags: MountFlags) -> Result<(), Errno> {
        self.remount_and(flags, || ())
    }

    /// As [`remount`](Self::remount), and does what follows from it before another remount begins.
    pub(crate) fn remount_and(&self, flags: MountFlags, then: impl FnOnce()) -> Result<(), Errno> {
        if !self.is_writable() && !flags.contains(MountFlags::RDONLY) {
            return Err(Errno::ROFS);
        }
        let _turn = self.lock_remounts();
        let before = self.flags();
        let is_readonly = |flags: MountFlags| flags.contains(MountFlags::RDONLY);
        // Whoever may change something finds the driver ready for it.
        if is_readonly(before) && !is_readonly(flags) {
            self.fs.set_read_only(false)?;
        }
        self.set_flags(flags)?;
        if !is_readonly(before)
            && is_readonly(flags)
            && let Err(errno) = self.fs.set_read_only(true)
        {
            self.flags.set(before);
            return Err(errno);
        }
        then();
        Ok(())
    }

    /// Changes the flags, or leaves them if changes under way or open files are against it.
    fn set_flags(&self, flags: MountFlags) -> Result<(), Errno> {
        let is_readonly = |flags: MountFlags| flags.contains(MountFlags::RDONLY);
        let before = self.flags();
        if is_readonly(flags) && !is_readonly(before) {
            let mounts = self.written.mounts.lock();
            let _looks = self.lock_write_hold();
            self.flags.hold();
            // SAFETY: a mount leaves the list, under its lock, before it is freed.
            let any = |has: fn(&Mount) -> bool| mounts.iter().any(|m| has(unsafe { m.as_ref() }));
            // See the page of `mount` for why in this order.
            let busy =
                any(Mount::has_changes) || self.has_open_writers() || any(Mount::has_unlisted);
            self.flags.set(if busy { before } else { flags });
            return if busy { Err(Errno::BUSY) } else { Ok(()) };
        }
        self.flags.set(flags);
        Ok(())
    }

    /// The flags, as a writer asks them.
    #[inline]
    pub(crate) fn kept_flags(&self) -> &RemountFlags {
        &self.flags
    }

    /// Keeps remounts of the superblock and its mounts from looking who writes; or waits for one
    /// that looks.
    pub(crate) fn lock_write_hold(&self) -> impl Drop + '_ {
        self.written.write_hold.lock()
    }

    /// Keeps other remounts out, of the superblock and of its mounts: one that fails takes its
    /// flags back, which another must neither see nor undo.
    pub(crate) fn lock_remounts(&self) -> impl Drop + '_ {
        self.written.remounts.lock()
    }

    /// Lists a mount that has just been made, and is in use. Another one is made only of one that
    /// is in use.
    pub(crate) fn add_mount(&self, mount: NonNull<Mount>) {
        self.written.mounts_used.fetch_add(1, Ordering::Relaxed);
        self.written.mounts.lock().push(mount);
    }

    /// The last use of a mount was given back. The driver is told of the end of the last one, at
    /// once: what comes behind grace periods may take as long as anybody's walk.
    pub(crate) fn leave_mount(&self) {
        if self.written.mounts_used.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.fs.unmounted();
        }
    }

    pub(crate) fn remove_mount(&self, mount: NonNull<Mount>) {
        self.written.mounts.lock().retain(|m| *m != mount);
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn mount_count(&self) -> usize {
        self.written.mounts.lock().len()
    }

    /// Who keeps it.
    pub(crate) fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Its dentries whose count is spread over CPUs.
    pub(crate) fn hot(&self) -> &ShardedRing {
        &self.hot
    }

    pub(crate) fn statfs(&self, flags: MountFlags) -> StatFs {
        StatFs { fsid: self.dev, flags: flags | self.flags(), ..self.fs.statfs(self) }
    }

    pub(crate) fn ino_hash(ino: u64) -> u64 {
        // Fibonacci hashing; the table wants the spread in the top bits, and 63 of them.
        vfscale_sync::hash::fibonacci(ino) >> 1
    }

    /// Enters an inode into the hash that file handles are looked up in (lazily: few files ever
    /// have a handle). The caller has a reference to it, or to one of its dentries. It is found by
    /// its number when this returns, whoever has entered it: it is marked once it is there.
    pub(crate) fn hash_inode(&self, inode: &Inode, guard: &Guard) {
        if inode.is_hashed() {
            return;
        }
        let _inodes = self.lock_inodes();
        let mut bucket = self.inode_hash.lock(Self::ino_hash(inode.ino()), guard);
        if !inode.is_hashed() {
            // SAFETY: `evict` removes it before the inode's memory is given back, which waits for a
            // grace period.
            unsafe { bucket.insert(NonNull::from(inode)) };
            inode.set_hashed();
        }
    }

    /// Finds an inode by number, without a reference.
    pub(crate) fn peek_inode<'g>(&'g self, ino: u64, guard: &'g Guard) -> Option<&'g Inode> {
        let _inodes = self.lock_inodes();
        // One whose last reference is gone may still be there, beside another of the same number.
        let is_it = |inode: &Inode| inode.ino() == ino && inode.is_used();
        self.inode_hash.find(Self::ino_hash(ino), guard, is_it)
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

    /// The inode with this number, made by `make` unless somebody has it already; for drivers that
    /// number their inodes themselves, from 1 on. While anybody has it, there is one inode of a
    /// number.
    ///
    /// If the last user of one has just gone, waits until the driver's
    /// [`evict`](crate::objects::driver::FileSystem::evict) has returned; and while another thread
    /// makes one, for that. So `make` finds what the driver has stored as the last inode left it.
    /// (Where names live in the dcache, nobody waits for anything, and `make` may be called in
    /// vain.) The caller is in no RCU section and holds no lock that evicting takes.
    pub fn iget(&self, ino: u64, make: impl FnOnce() -> InodeInit) -> InodeRef {
        match self.try_iget(ino, || Ok::<_, Infallible>(make())) {
            Ok(inode) => inode,
            Err(never) => match never {},
        }
    }

    /// Does what [`iget`](Self::iget) does for a number that nothing keeps from being freed and
    /// used again: `make` looks whether it still is what the caller takes it for. An inode that
    /// somebody has already is returned without asking.
    ///
    /// # Errors
    /// That of `make`: there is no such inode.
    pub fn try_iget<E>(
        &self,
        ino: u64,
        make: impl FnOnce() -> std::result::Result<InodeInit, E>,
    ) -> std::result::Result<InodeRef, E> {
        if let Some(found) = self.find_inode(ino, &rcu::pin()) {
            return Ok(found);
        }
        let key = (ino as usize, Self::ino_hash(ino) << 1);
        let _turn = self.cache.as_ref().map(|cache| cache.numbers.lock(key));
        loop {
            match self.find_or_wait(ino) {
                Seen::Used(found) => return Ok(found),
                Seen::Going => thread::park(),
                Seen::Nothing => break,
            }
        }
        let init = make()?;
        let guard = rcu::pin();
        let raw = Inode::alloc(self, &self.inodes, ino, init);
        // SAFETY: just allocated, with one reference, ours.
        let made = unsafe { raw.as_ref() };
        made.set_hashed();
        let _inodes = self.lock_inodes();
        let mut bucket = self.inode_hash.lock(Self::ino_hash(ino), &guard);
        let is_it = |inode: &Inode| inode.ino() == ino && inode.get_not_zero();
        let raw = match bucket.find(Self::ino_hash(ino), is_it) {
            Some(found) => {
                // SAFETY: nobody else has seen it.
                unsafe { self.inodes.free_rcu(raw, &guard) };
                NonNull::from(found)
            }
            None => {
                self.cache_inode(made);
                // SAFETY: `evict` removes it before its memory is given back, which waits for a
                // grace period.
                unsafe { bucket.insert(raw) };
                raw
            }
        };
        // SAFETY: the reference was counted by `Inode::alloc`, or just now.
        Ok(unsafe { InodeRef::from_raw(raw) })
    }

    /// Looks for an inode by number. If one is there that is going, this thread will be unparked
    /// when it has gone (or before).
    fn find_or_wait(&self, ino: u64) -> Seen {
        let guard = rcu::pin();
        let _inodes = self.lock_inodes();
        let bucket = self.inode_hash.lock(Self::ino_hash(ino), &guard);
        let Some(found) = bucket.find(Self::ino_hash(ino), |inode| inode.ino() == ino) else {
            return Seen::Nothing;
        };
        if found.get_not_zero() {
            // SAFETY: the reference was just counted.
            return Seen::Used(unsafe { InodeRef::from_raw(NonNull::from(found)) });
        }
        if let Some(cache) = &self.cache {
            // Under the bucket's lock, which is taken to remove the inode before it is looked who
            // waits.
            let mut going = cache.going.lock();
            going.push(thread::current());
            cache.waiting.store(going.len(), Ordering::Relaxed);
        }
        Seen::Going
    }

    /// The last reference is gone: frees the inode's data now, its memory after a grace period.
    pub(crate) fn evict(&self, inode: &Inode, guard: &Guard) {
        if let Some(cache) = &self.cache {
            return self.evict_kept(cache, inode, guard);
        }
        if inode.is_hashed() {
            self.unhash_inode(inode, guard);
        }
        if let Some(extra) = inode.last_extra(guard) {
            extra.close();
            self.fs.uncharge(crate::objects::inode_xattrs::extra_bytes(extra, guard));
        }
        if inode.is_shared() {
            self.fs.uncharge(inode.sharers_bytes());
        }
        let locked = inode.lock_last_data();
        self.fs.evict(inode);
        drop(locked);
        self.free_inode(inode, guard);
    }

    /// Gives the memory of an inode back that was evicted.
    #[inline]
    fn free_inode(&self, inode: &Inode, guard: &Guard) {
        if let Some(list) = &self.inode_list {
            list.remove(inode);
        }
        // SAFETY: the count is zero and never rises again (`get_not_zero`); only RCU readers that
        // began before still see it.
        unsafe { self.free_in(&self.inodes, NonNull::from(inode), guard) };
    }

    /// Frees a dentry when the superblock ends.
    ///
    /// # Safety
    /// It is one of this superblock, and only RCU readers still see it that began before its last
    /// use ended.
    pub(crate) unsafe fn free_dentry(&self, dentry: NonNull<Dentry>, guard: &Guard) {
        // SAFETY: says the caller.
        unsafe { self.free_in(&self.dentries, dentry, guard) };
    }

    /// Gives memory back: after a grace period, or at once when one has passed since the last use
    /// of all.
    ///
    /// # Safety
    /// As for [`Slab::free_rcu`]; nobody has found it since the last use of the superblock ended.
    #[inline]
    unsafe fn free_in<T: Send>(&self, slab: &Slab<T>, object: NonNull<T>, guard: &Guard) {
        // SAFETY: says the caller. Whoever began before that last use ended has ended too, if the
        // flag is set.
        unsafe {
            if self.is_alone() {
                slab.free(object);
            } else {
                slab.free_rcu(object, guard);
            }
        }
    }

    /// The root, unless the driver could not find one.
    pub(crate) fn root_raw(&self) -> Option<NonNull<Dentry>> {
        NonNull::new(self.root.load(Ordering::Acquire))
    }

    /// Whether it ends, and nobody finds anything of it any more: an inode that is evicted is
    /// dropped as soon as [`evict`](FileSystem::evict) has returned, and with it what the driver
    /// has there.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    /// Begins the end of a superblock that has no use any more: tells the driver, if it has had a
    /// root. `is_alone` says that a grace period has passed since the last use.
    pub(crate) fn begin_end(&self, is_alone: bool, had_root: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
        if had_root {
            let _section = rcu::pin();
            self.fs.put_super();
        }
    }

    /// Frees what stands for no inode, and makes sure that no inode is left. No dentry is.
    pub(crate) fn end_inodes(&self, guard: &Guard) {
        if let Some(no_inode) = self.cache.as_deref().and_then(Cache::take_no_inode) {
            // SAFETY: no dentry is left that has it.
            unsafe { self.free_in(&self.inodes, no_inode, guard) };
        }
        self.check_no_inodes();
    }

    /// The same where the driver keeps directories: the inode is found until the driver has done
    /// with it.
    #[cold]
    fn evict_kept(&self, cache: &Cache, inode: &Inode, guard: &Guard) {
        self.fs.evict(inode);
        if inode.is_hashed() {
            self.unhash_inode(inode, guard);
        }
        cache.wake_waiters();
        self.free_inode(inode, guard);
    }

    #[cold]
    fn unhash_inode(&self, inode: &Inode, guard: &Guard) {
        let _inodes = self.lock_inodes();
        self.inode_hash.lock(Self::ino_hash(inode.ino()), guard).remove(inode);
    }
}

/// How often a call is tried again for which space came back that others took first.
const SPACE_TRIES: u32 = 16;

/// Does again what has failed for want of space, as long as `reclaim` finds some on its way back.
/// The caller holds nothing, and a failed call leaves nothing behind.
///
/// The call is tried once more also if nothing was on its way any more: whatever was may have come
/// for somebody else who waited, between the first attempt and the question.
#[cold]
pub(crate) fn again_for_space<T>(
    reclaim: impl Fn() -> bool,
    call: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    for _ in 0..SPACE_TRIES {
        let has_come = reclaim();
        match call() {
            Err(Errno::NOSPC) if has_come => {}
            other => return other,
        }
    }
    call()
}

/// Makes a superblock read-only, whoever is writing: what is under way fails in the driver, if
/// anywhere. `Send` and `Sync`.
pub struct ReadOnlySwitch(Arc<RemountFlags>);

impl ReadOnlySwitch {
    /// Makes it read-only, until a remount that the driver permits
    /// ([`set_read_only`](FileSystem::set_read_only)). A remount that fails at the same time may
    /// undo it, so a driver does it whenever a call finds it to be needed. Never blocks.
    pub fn set(&self) {
        self.0.forbid();
    }
}

impl fmt::Debug for ReadOnlySwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadOnlySwitch").field(&self.0.get()).finish()
    }
}

/// What is to be seen under an inode number.
enum Seen {
    Used(InodeRef),
    Going,
    Nothing,
}

impl Cache {
    fn new(scaling: &Scaling, rename_lock: Arc<Apart<SeqRwLock<RenameLock>>>) -> Cache {
        Cache {
            lru: Lru::new(scaling.lru_slots()),
            in_lookup: KeyLocks::new(),
            numbers: KeyLocks::new(),
            going: Mutex::new(Vec::new()),
            waiting: AtomicUsize::new(0),
            no_inode: AtomicPtr::new(std::ptr::null_mut()),
            rename_lock,
        }
    }

    /// For the end of the superblock, which may not have come as far as to have one.
    fn take_no_inode(&self) -> Option<NonNull<Inode>> {
        NonNull::new(self.no_inode.swap(std::ptr::null_mut(), Ordering::AcqRel))
    }

    /// An inode has gone: whoever waits for one looks again.
    fn wake_waiters(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let woken = {
            let mut going = self.going.lock();
            self.waiting.store(0, Ordering::Relaxed);
            std::mem::take(&mut *going)
        };
        woken.iter().for_each(Thread::unpark);
    }
}

/// What stands for a name among what is locked.
fn name_key(dir: &Dentry, name: &Name<'_>) -> Key {
    (std::ptr::from_ref(dir).addr(), name.hash())
}
