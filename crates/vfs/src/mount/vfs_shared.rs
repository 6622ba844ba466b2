//! The state that mount trees share which were copied from each other.
//!
//! Walks read the mount hash and `mount_seq` from here, and check them as the page of
//! [`namespace`](crate::mount::namespace) says. Calls that change the trees lock
//! [`MountTopology`], plain data behind `namespace_sem`.

use std::collections::HashSet;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicU64, Ordering};
use vfscale_sync::brlock::{BrLock, BrReadGuard, BrWriteGuard};
use vfscale_sync::lock::Mutex;
use vfscale_sync::percpu::CachePadded;
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::seqcount::SeqCount;
use vfscale_sync::seqrwlock::SeqRwLock;
use vfscale_sync::shared::Bound;
use vfscale_sync::table::RcuTable;

use crate::base::limits::{Limits, Quotas, SharedQuotas};
use crate::base::lock_classes::{DirectoryMove, MountHash, NamespaceSem, RenameLock, VfsmountLock};
use crate::base::types::{MountFlags, Propagation};
use crate::locks::LockGraph;
use crate::mount::pseudo_fs::{INTERNAL_FLAGS, Pseudo};
use crate::mount::topology::MountTopology;
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::driver::FileSystem;
use crate::objects::super_block::SuperBlock;
use crate::objects::super_ref::SuperRef;
use crate::objects::vfsmount::{Mount, OwnedMount, Path, SUPER_FLAGS, normal_flags};
use vfscale_sync::scaling::Scaling;

/// The state that mount trees which were copied from each other share. Fields that are written at
/// times share no cache line with fields that walks read.
pub(crate) struct VfsShared {
    /// The mount hash, for walks.
    crossings: RcuTable<Mount, MountHash>,
    mount_seq: SeqCount,
    pub(super) trees: CachePadded<Mutex<MountTopology, NamespaceSem>>,
    rename_lock: Arc<CachePadded<SeqRwLock<RenameLock>>>,
    lock_graph: Arc<LockGraph>,
    quotas: SharedQuotas,
    /// The quotas' bound on open files, which every open checks.
    files: Arc<Bound>,
    directory_move: BrLock<DirectoryMove>,
    /// The lock that crossings of mounts take, if any.
    vfsmount_lock: Option<BrLock<VfsmountLock>>,
    scaling: Scaling,
    /// The internal mounts, which no path reaches.
    pseudo: Pseudo,
    next: CachePadded<NextNumbers>,
}

/// The next number of a mount, of a tree, and of a task.
struct NextNumbers {
    mount: AtomicU64,
    tree: AtomicU64,
    task: AtomicU64,
}

/// Number of attempts of a call whose open files other threads may take into reserve first.
const FILE_TRIES: u32 = 16;

impl VfsShared {
    /// Creates the state of trees that share nothing with others.
    pub(super) fn new(scaling: Scaling, limits: Limits) -> VfsShared {
        let vfsmount_slots = scaling.vfsmount_lock_slots();
        let quotas = Quotas::new(limits, scaling.slots());
        VfsShared {
            crossings: RcuTable::new(),
            mount_seq: SeqCount::new(),
            trees: CachePadded::new(Mutex::new(MountTopology::default())),
            rename_lock: Arc::new(CachePadded::new(SeqRwLock::with_exclusive(
                !scaling.seqrwlock(),
                !scaling.dir_moves(),
            ))),
            lock_graph: Arc::new(LockGraph::new()),
            files: Arc::clone(&quotas.files),
            quotas,
            directory_move: BrLock::new(if scaling.dir_moves() { scaling.slots() } else { 1 }),
            vfsmount_lock: (vfsmount_slots > 0).then(|| BrLock::new(vfsmount_slots)),
            scaling,
            pseudo: Pseudo::default(),
            next: CachePadded::new(NextNumbers {
                mount: AtomicU64::new(1),
                tree: AtomicU64::new(1),
                task: AtomicU64::new(1),
            }),
        }
    }

    #[inline]
    pub(crate) fn seq(&self) -> &SeqCount {
        &self.mount_seq
    }

    #[inline]
    pub(crate) fn rename_lock(&self) -> &SeqRwLock<RenameLock> {
        &self.rename_lock
    }

    pub(crate) fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    pub(crate) fn crossing_table(&self) -> &RcuTable<Mount, MountHash> {
        &self.crossings
    }

    /// Prevents changes of the mount trees, if `vfsmount_lock` is used at all.
    #[inline]
    pub(crate) fn lock_mounts(&self) -> Option<BrReadGuard<'_, VfsmountLock>> {
        self.vfsmount_lock.as_ref().map(BrLock::read)
    }

    /// Prevents walks from crossing mounts, if `vfsmount_lock` is used at all.
    pub(crate) fn lock_crossings(&self) -> Option<BrWriteGuard<'_, VfsmountLock>> {
        self.vfsmount_lock.as_ref().map(BrLock::write)
    }

    /// Returns the lock of moves of directories to other parents.
    pub(crate) fn directory_move(&self) -> &BrLock<DirectoryMove> {
        &self.directory_move
    }

    /// Returns the number of a new tree.
    pub(super) fn next_tree(&self) -> u64 {
        self.next.tree.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn next_task(&self) -> u64 {
        self.next.task.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the accounting of the limits.
    #[inline]
    pub(crate) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Returns the bound of open files.
    #[inline]
    pub(crate) fn files(&self) -> &Bound {
        &self.files
    }

    /// Returns the internal file systems, which no path reaches.
    pub(crate) fn pseudo(&self) -> &Pseudo {
        &self.pseudo
    }

    /// Returns the mount for pipes, which the first call makes.
    pub(crate) fn pipe_mount(&self) -> Result<&Mount, Errno> {
        self.pseudo.pipes(|driver| self.internal_mount(driver))
    }

    /// Returns the mount for sockets, which the first call makes.
    pub(crate) fn socket_mount(&self) -> Result<&Mount, Errno> {
        self.pseudo.sockets(|driver| self.internal_mount(driver))
    }

    /// Returns the mount for files of memory, which the first call makes.
    ///
    /// # Errors
    /// `ENOSYS` if the tree has no driver for them.
    pub(crate) fn memory_mount(&self) -> Result<&Mount, Errno> {
        self.pseudo.memory(|driver| self.internal_mount(driver))
    }

    /// Creates a mount of a new superblock, in no tree.
    fn internal_mount(&self, fs: Arc<dyn FileSystem>) -> Result<OwnedMount, Errno> {
        let sb = self.new_super(fs, self.scaling.of_internal())?;
        let root = sb.root_ref();
        Ok(self.clone_mount(sb, root, INTERNAL_FLAGS))
    }

    /// Creates a superblock without a mount.
    pub(crate) fn new_super(
        &self,
        fs: Arc<dyn FileSystem>,
        scaling: Scaling,
    ) -> Result<SuperRef, Errno> {
        let shared = (Arc::clone(&self.lock_graph), Arc::clone(&self.quotas));
        SuperBlock::set_up(fs, shared, &self.rename_lock, scaling)
    }

    /// Creates a mount of a new superblock with the options of a user, in no tree.
    pub(super) fn new_mount(
        &self,
        fs: Arc<dyn FileSystem>,
        flags: MountFlags,
    ) -> Result<OwnedMount, Errno> {
        let sb = self.new_super(fs, self.scaling)?;
        if flags.intersects(SUPER_FLAGS) {
            sb.remount(flags & SUPER_FLAGS)?;
        }
        let root = sb.root_ref();
        Ok(self.clone_mount(sb, root, normal_flags(flags, None)))
    }

    /// Creates a mount that is in no tree yet.
    pub(crate) fn clone_mount(
        &self,
        sb: SuperRef,
        root: DentryRef,
        flags: MountFlags,
    ) -> OwnedMount {
        let id = self.next.mount.fetch_add(1, Ordering::Relaxed);
        Mount::alloc(id, sb, root, flags)
    }

    /// Returns the mount on `dentry` as seen through `mount`.
    #[inline]
    pub(crate) fn mounted_on<'g>(
        &self,
        mount: &Mount,
        dentry: &Dentry,
        guard: &'g Guard,
    ) -> Option<&'g Mount> {
        let _tree = self.lock_mounts();
        self.find_mount(mount, dentry, guard)
    }

    /// Finds a mount as [`mounted_on`](Self::mounted_on), for callers that prevent changes of the
    /// trees, or check afterwards.
    #[inline]
    pub(crate) fn find_mount<'g>(
        &self,
        mount: &Mount,
        dentry: &Dentry,
        guard: &'g Guard,
    ) -> Option<&'g Mount> {
        let hash = Mount::place_hash(mount, dentry);
        let found = self.crossings.find(hash, guard, |m| {
            m.attached_at(guard)
                .is_some_and(|(p, d)| std::ptr::eq(p, mount) && std::ptr::eq(d, dentry))
        })?;
        // SAFETY: a mount found in the table is freed a grace period after it leaves the table.
        Some(unsafe { std::ptr::NonNull::from(found).as_ref() })
    }

    /// Sets the propagation of the mount whose root is `place`, and with `recursive` of those below
    /// it.
    pub(crate) fn set_propagation(
        &self,
        place: &Path,
        propagation: Propagation,
        recursive: bool,
    ) -> Result<(), Errno> {
        let mut trees = self.trees.lock();
        let mount = place.mount();
        let is_root = std::ptr::eq(mount.root(), place.dentry());
        // A mount of another tree, reached through an open directory, is allowed.
        if !is_root || trees.tree_of(mount).is_none() {
            return Err(Errno::INVAL);
        }
        let mut all = trees.below(mount.id());
        if !recursive {
            all.truncate(1);
        }
        for id in all {
            match propagation {
                Propagation::Shared => drop(trees.groups.make_shared(id)),
                Propagation::Slave => trees.groups.make_slave(id),
                Propagation::Private => trees.groups.make_private(id, false),
                Propagation::Unbindable => trees.groups.make_private(id, true),
            }
        }
        Ok(())
    }

    /// Returns the mounted superblocks, each once.
    pub(crate) fn super_blocks(&self) -> Vec<SuperRef> {
        let _guard = rcu::pin();
        let trees = self.trees.lock();
        let mut known = HashSet::new();
        let supers = trees.mounts().map(Mount::sb);
        supers.filter(|sb| known.insert(std::ptr::from_ref(&***sb))).cloned().collect()
    }

    /// Checks that another file can be opened, before a call does any work for it. The caller holds
    /// no lock.
    ///
    /// # Errors
    /// `ENFILE`. Another thread may take the last slot afterwards; then opening fails with this
    /// error.
    #[inline]
    pub(crate) fn room_for_file(&self) -> Result<(), Errno> {
        if self.files().is_low() { self.make_room_for_file() } else { Ok(()) }
    }

    /// Makes open files, again if there was no room for one while others held units in reserve: the
    /// list of another CPU, which this thread has left meanwhile or another thread has filled. The
    /// caller holds no lock, and a failed call leaves no side effect.
    ///
    /// # Errors
    /// `ENFILE`, and the errors of the call.
    pub(crate) fn with_room_for_files<T>(
        &self,
        make: impl Fn() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.room_for_file()?;
        for _ in 1..FILE_TRIES {
            match make() {
                Err(Errno::NFILE) => self.make_room_for_file()?,
                made => return made,
            }
        }
        make()
    }

    /// Reclaims the units that the lists of open files hold in reserve, if no others are left. The
    /// caller holds no lock.
    ///
    /// # Errors
    /// `ENFILE` if the lists hold none.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room_for_file(&self) -> Result<(), Errno> {
        let files = self.files();
        if files.has_room() {
            return Ok(());
        }
        for sb in self.super_blocks().into_iter().chain(self.pseudo().super_blocks()) {
            sb.files().trim();
        }
        if files.has_room() { Ok(()) } else { Err(Errno::NFILE) }
    }
}
