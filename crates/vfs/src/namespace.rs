//! The mount tree, and what its users share.
//!
//! The tree changes under `namespace_sem`, inside a write section of `mount_seq`. Walks cross mounts by
//! looking up (mount, dentry) in a hash without a lock, under RCU, and check `mount_seq` before they
//! keep what they found. Counting a use of a mount is: raise the count, then check `mount_seq`; an
//! unmount is: enter the write section, then sum the counts. So a walk that overlaps an unmount either
//! is counted or starts again.

use std::ptr::NonNull;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
use vfscale_sync::brlock::{BrLock, BrReadGuard, BrWriteGuard};
use vfscale_sync::lock::{Mutex, MutexGuard};
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::seqcount::SeqCount;
use vfscale_sync::seqrwlock::SeqRwLock;
use vfscale_sync::table::RcuTable;

use crate::cred::Credentials;
use crate::dentry::Dentry;
use crate::driver::FileSystem;
use crate::locks::LockGraph;
use crate::mount::{Mount, MountRef, Path, SUPER_FLAGS, normal_flags};
use crate::mountinfo::MountInfo;
use crate::pseudo::{INTERNAL_FLAGS, Pseudo};
use crate::ranks::{DirectoryMove, MountHash, NamespaceSem, RenameLock, VfsmountLock};
use crate::scaling::Scaling;
use crate::super_block::SuperBlock;
use crate::task::Task;
use crate::types::{MountFlags, UmountFlags};

/// Grace periods that the end of a tree takes, with some to spare.
const GRACE_PERIODS: u32 = 32;

/// A tree of mounted file systems, and the way to it: [`Task`]s.
///
/// Cheap to clone; `Send` and `Sync`. The file systems in it go when the last clone, task and open
/// file is gone.
#[derive(Clone)]
pub struct Vfs(Arc<Namespace>);

pub(crate) struct Namespace {
    root: AtomicPtr<Mount>,
    mounts: RcuTable<Mount, MountHash>,
    mount_seq: SeqCount,
    /// Every attached mount, parents before children.
    attached: Mutex<Vec<NonNull<Mount>>, NamespaceSem>,
    rename_lock: SeqRwLock<RenameLock>,
    lock_graph: Arc<LockGraph>,
    directory_move: Mutex<(), DirectoryMove>,
    /// What walks take to cross a mount, if they are to take anything.
    vfsmount_lock: Option<BrLock<VfsmountLock>>,
    scaling: Scaling,
    /// What no path leads to.
    pseudo: Pseudo,
    next_mount: AtomicU64,
    next_task: AtomicU64,
}

// SAFETY: the pointers are to mounts, which are `Sync` and kept while they are listed.
unsafe impl Send for Namespace {}
// SAFETY: as above.
unsafe impl Sync for Namespace {}

impl Vfs {
    /// Mounts `root` as the root of a new tree.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(root: Arc<dyn FileSystem>) -> Result<Vfs, Errno> {
        Vfs::with_scaling(root, Scaling::default())
    }

    /// As [`new`](Self::new), with structures that are spread as `scaling` says, also those of the
    /// file systems that will be mounted in the tree.
    ///
    /// # Errors
    /// What the driver says.
    pub fn with_scaling(root: Arc<dyn FileSystem>, scaling: Scaling) -> Result<Vfs, Errno> {
        let vfsmount_slots = scaling.vfsmount_lock_slots();
        let namespace = Namespace {
            root: AtomicPtr::new(std::ptr::null_mut()),
            mounts: RcuTable::new(),
            mount_seq: SeqCount::new(),
            attached: Mutex::new(Vec::new()),
            rename_lock: SeqRwLock::with_exclusive_readers(!scaling.seqrwlock()),
            lock_graph: Arc::new(LockGraph::new()),
            directory_move: Mutex::new(()),
            vfsmount_lock: (vfsmount_slots > 0).then(|| BrLock::new(vfsmount_slots)),
            scaling,
            pseudo: Pseudo::default(),
            next_mount: AtomicU64::new(1),
            next_task: AtomicU64::new(1),
        };
        let mount = namespace.new_mount(root, MountFlags::empty())?;
        namespace.root.store(mount.as_ptr(), Ordering::Release);
        namespace.attached.lock().push(mount);
        Ok(Vfs(Arc::new(namespace)))
    }

    /// A task at the root of the tree, with all rights.
    pub fn task(&self) -> Task {
        self.task_as(Credentials::root())
    }

    /// A task at the root of the tree, with these rights.
    pub fn task_as(&self, credentials: Credentials) -> Task {
        Task::new(self.clone(), credentials)
    }

    /// How its structures are spread.
    pub fn scaling(&self) -> &Scaling {
        &self.0.scaling
    }

    pub(crate) fn ns(&self) -> &Namespace {
        &self.0
    }
}

impl Namespace {
    pub(crate) fn seq(&self) -> &SeqCount {
        &self.mount_seq
    }

    pub(crate) fn rename_lock(&self) -> &SeqRwLock<RenameLock> {
        &self.rename_lock
    }

    /// Keeps the mount tree as it is, if `vfsmount_lock` is used at all.
    #[inline]
    pub(crate) fn lock_mounts(&self) -> Option<BrReadGuard<'_, VfsmountLock>> {
        self.vfsmount_lock.as_ref().map(BrLock::read)
    }

    /// Keeps walks from crossing mounts, if `vfsmount_lock` is used at all.
    fn lock_crossings(&self) -> Option<BrWriteGuard<'_, VfsmountLock>> {
        self.vfsmount_lock.as_ref().map(BrLock::write)
    }

    pub(crate) fn lock_directory_move(&self) -> MutexGuard<'_, (), DirectoryMove> {
        self.directory_move.lock()
    }

    pub(crate) fn next_task(&self) -> u64 {
        self.next_task.fetch_add(1, Ordering::Relaxed)
    }

    /// The root of the tree.
    pub(crate) fn root_path(&self) -> Path {
        // SAFETY: set by `Vfs::new`; the namespace holds the mount until it is dropped.
        let mount = unsafe { &*self.root.load(Ordering::Acquire) };
        Path::new(MountRef::new(mount), mount.root_ref())
    }

    fn new_mount(
        &self,
        fs: Arc<dyn FileSystem>,
        flags: MountFlags,
    ) -> Result<NonNull<Mount>, Errno> {
        let sb = SuperBlock::new(fs, self.lock_graph.clone(), self.scaling)?;
        if flags.intersects(SUPER_FLAGS) {
            sb.remount(flags & SUPER_FLAGS)?;
        }
        let root = sb.root_ref();
        Ok(self.clone_mount(sb, root, normal_flags(flags, None)))
    }

    /// The file systems that no path leads to.
    pub(crate) fn pseudo(&self) -> &Pseudo {
        &self.pseudo
    }

    /// A mount of a new superblock that is attached nowhere. Whoever has this use detaches it, as it were, before
    /// giving it up.
    pub(crate) fn internal_mount(&self, fs: Arc<dyn FileSystem>) -> Result<MountRef, Errno> {
        let sb = SuperBlock::new(fs, self.lock_graph.clone(), self.scaling.of_internal())?;
        let root = sb.root_ref();
        let raw = self.clone_mount(sb, root, INTERNAL_FLAGS);
        // SAFETY: `clone_mount` has counted this use for us.
        Ok(unsafe { MountRef::from_raw(raw) })
    }

    /// A mount with one use counted: the namespace's (or the caller's, until it is attached).
    fn clone_mount(
        &self,
        sb: Arc<SuperBlock>,
        root: crate::dentry::DentryRef,
        flags: MountFlags,
    ) -> NonNull<Mount> {
        let id = self.next_mount.fetch_add(1, Ordering::Relaxed);
        Mount::alloc(id, sb, root, flags)
    }

    /// What is mounted on `dentry`, seen through `mount`.
    #[inline]
    pub(crate) fn mounted_on<'g>(
        &self,
        mount: &Mount,
        dentry: &Dentry,
        guard: &'g Guard,
    ) -> Option<&'g Mount> {
        let hash = Mount::place_hash(mount, dentry);
        let _tree = self.lock_mounts();
        let found = self.mounts.find(hash, guard, |m| {
            m.attached_at(guard)
                .is_some_and(|(p, d)| std::ptr::eq(p, mount) && std::ptr::eq(d, dentry))
        })?;
        // SAFETY: a mount found in the table is freed a grace period after it left it.
        Some(unsafe { NonNull::from(found).as_ref() })
    }

    /// Attaches `mount` on top of whatever is at `target`.
    fn attach(
        &self,
        attached: &mut Vec<NonNull<Mount>>,
        raw: NonNull<Mount>,
        target: &Path,
        guard: &Guard,
    ) -> Result<(), Errno> {
        let mut place = target.clone();
        while let Some(upper) = self.mounted_on(place.mount(), place.dentry(), guard) {
            place = Path::new(MountRef::new(upper), upper.root_ref());
        }
        // SAFETY: the caller holds the mount.
        let mount = unsafe { raw.as_ref() };
        if place.dentry().inode().is_dir() != mount.root().inode().is_dir() {
            return Err(Errno::NOTDIR);
        }
        // SAFETY: listed mounts are held by the namespace.
        if !attached.iter().any(|m| unsafe { m.as_ref() }.id() == place.mount().id()) {
            return Err(Errno::NOENT);
        }
        claim_mountpoint(place.dentry(), guard)?;
        let hash = Mount::place_hash(place.mount(), place.dentry());
        let crossings = self.lock_crossings();
        let mut bucket = self.mounts.lock(hash, guard);
        let section = self.mount_seq.write();
        mount.attach(place.mount(), place.dentry_ref());
        // SAFETY: it leaves the table when it is detached, and is freed a grace period later.
        unsafe { bucket.insert(raw) };
        drop(section);
        drop(bucket);
        drop(crossings);
        attached.push(raw);
        Ok(())
    }

    /// Takes `mount` off its place; returns the reference to its mountpoint.
    fn detach(
        &self,
        attached: &mut Vec<NonNull<Mount>>,
        mount: &Mount,
        guard: &Guard,
    ) -> Option<Path> {
        let (parent, mountpoint) = mount.attached_at(guard)?;
        let parent = MountRef::new(parent);
        let hash = Mount::place_hash(&*parent, mountpoint);
        {
            let _crossings = self.lock_crossings();
            let mut bucket = self.mounts.lock(hash, guard);
            let _section = self.mount_seq.write();
            bucket.remove(mount);
        }
        attached.retain(|m| *m != NonNull::from(mount));
        let dentry = mount.unattach()?;
        let still = attached.iter().any(|m| {
            // SAFETY: listed mounts are held by the namespace.
            unsafe { m.as_ref() }.attached_at(guard).is_some_and(|(_, d)| std::ptr::eq(d, &*dentry))
        });
        if !still {
            dentry.set_mounted(false);
        }
        Some(Path::new(parent, dentry))
    }

    /// Mounts a new superblock of `fs` at `target`.
    pub(crate) fn mount(
        &self,
        fs: Arc<dyn FileSystem>,
        target: &Path,
        flags: MountFlags,
    ) -> Result<(), Errno> {
        Self::check_target(&self.attached.lock(), target)?;
        let raw = self.new_mount(fs, flags)?;
        self.attach_or_free(vec![(raw, target.clone())])
    }

    /// Attaches new mounts, each at its place; frees them all when one can't be attached.
    fn attach_or_free(&self, new: Vec<(NonNull<Mount>, Path)>) -> Result<(), Errno> {
        let guard = rcu::pin();
        let mut attached = self.attached.lock();
        let before = attached.len();
        let mut result = Ok(());
        for (raw, target) in &new {
            result = self.attach(&mut attached, *raw, target, &guard);
            if result.is_err() {
                break;
            }
        }
        let mut undone = Vec::new();
        if result.is_err() {
            for raw in attached.split_off(before) {
                // SAFETY: the namespace holds it.
                undone.extend(self.detach(&mut attached, unsafe { raw.as_ref() }, &guard));
            }
        }
        drop(attached);
        if result.is_err() {
            for (raw, _) in &new {
                // SAFETY: its own use is still counted, and `release` gives it up.
                unsafe { release(*raw) };
            }
        }
        drop((undone, new));
        result
    }

    /// The superblocks that are mounted, each once.
    pub(crate) fn super_blocks(&self) -> Vec<Arc<SuperBlock>> {
        let _guard = rcu::pin();
        let attached = self.attached.lock();
        let mut all: Vec<Arc<SuperBlock>> = Vec::new();
        for mount in attached.iter() {
            // SAFETY: listed mounts are held by the namespace.
            let sb = unsafe { mount.as_ref() }.sb();
            if !all.iter().any(|known| Arc::ptr_eq(known, sb)) {
                all.push(Arc::clone(sb));
            }
        }
        all
    }

    /// The mounts that can be reached from `root`, in the order in which they were made.
    pub(crate) fn mount_infos(&self, root: &Path, guard: &Guard) -> Vec<MountInfo> {
        let attached = self.attached.lock();
        let _names = self.rename_lock.read();
        let info = |raw: &NonNull<Mount>| {
            // SAFETY: listed mounts are held by the namespace.
            let mount = unsafe { raw.as_ref() };
            let mount_point = crate::d_path::mount_point(mount, root, guard)?;
            let parent = mount.attached_at(guard).map_or(mount, |(parent, _)| parent);
            Some(MountInfo::of(mount, parent.id(), mount_point, guard))
        };
        let mut infos: Vec<MountInfo> = attached.iter().filter_map(info).collect();
        infos.sort_by_key(|info| info.id);
        infos
    }

    /// Nothing is mounted on what was taken off the tree or has no name any more, whatever else is wrong.
    fn check_target(attached: &[NonNull<Mount>], target: &Path) -> Result<(), Errno> {
        let is_there =
            !target.dentry().is_unhashed() && attached.contains(&NonNull::from(target.mount()));
        if is_there { Ok(()) } else { Err(Errno::NOENT) }
    }

    /// Makes `source` visible at `target` too; with `recursive`, what is mounted below it as well.
    pub(crate) fn bind(&self, source: &Path, target: &Path, recursive: bool) -> Result<(), Errno> {
        {
            let attached = self.attached.lock();
            Self::check_target(&attached, target)?;
            // What was taken off the tree does not come back by a bind.
            if !attached.contains(&NonNull::from(source.mount())) {
                return Err(Errno::INVAL);
            }
        }
        if source.dentry().inode().is_dir() != target.dentry().inode().is_dir() {
            return Err(Errno::NOTDIR);
        }
        let top = self.clone_mount(
            source.mount().sb().clone(),
            source.dentry_ref(),
            source.mount().flags(),
        );
        let mut copies = vec![(top, target.clone())];
        if recursive {
            self.copy_below(source, top, &mut copies);
        }
        self.attach_or_free(copies)
    }

    /// Copies the mounts below `source`, each to be attached to the copy of its parent.
    fn copy_below(
        &self,
        source: &Path,
        top: NonNull<Mount>,
        copies: &mut Vec<(NonNull<Mount>, Path)>,
    ) {
        let guard = rcu::pin();
        let attached = self.attached.lock();
        let mut known = vec![(NonNull::from(source.mount()), top)];
        for raw in attached.iter() {
            // SAFETY: listed mounts are held by the namespace.
            let mount = unsafe { raw.as_ref() };
            let Some((parent, mountpoint)) = mount.attached_at(&guard) else { continue };
            let copy = known.iter().find(|(old, _)| std::ptr::eq(old.as_ptr(), parent));
            let Some(&(_, parent_copy)) = copy else { continue };
            let at_top = std::ptr::eq(parent, source.mount());
            if at_top && !crate::d_path::is_below(mountpoint, source.dentry(), &guard) {
                continue;
            }
            let copy = self.clone_mount(mount.sb().clone(), mount.root_ref(), mount.flags());
            // SAFETY: made by this call, and not freed yet.
            let parent_copy = MountRef::new(unsafe { parent_copy.as_ref() });
            copies.push((copy, Path::new(parent_copy, mountpoint.to_ref(&guard))));
            known.push((*raw, copy));
        }
    }

    /// Moves the mount whose root `source` is to `target`.
    pub(crate) fn move_mount(&self, source: &Path, target: &Path) -> Result<(), Errno> {
        let guard = rcu::pin();
        let mut attached = self.attached.lock();
        let mount = source.mount();
        if !std::ptr::eq(mount.root(), source.dentry()) {
            return Err(Errno::INVAL);
        }
        Self::check_target(&attached, target)?;
        if mount.root().inode().is_dir() != target.dentry().inode().is_dir() {
            return Err(Errno::INVAL);
        }
        let mut above = Some(target.mount());
        while let Some(m) = above {
            if std::ptr::eq(m, mount) {
                return Err(Errno::LOOP);
            }
            above = m.attached_at(&guard).map(|(parent, _)| parent);
        }
        let Some(old) = self.detach(&mut attached, mount, &guard) else {
            return Err(Errno::INVAL);
        };
        let raw = NonNull::from(mount);
        let result = self.attach(&mut attached, raw, target, &guard);
        if result.is_err() {
            self.attach(&mut attached, raw, &old, &guard)?;
        }
        drop(attached);
        drop(old);
        result
    }

    /// Ends the mount whose root `target` is. Waits for a grace period.
    pub(crate) fn umount(&self, target: Path, flags: UmountFlags) -> Result<(), Errno> {
        let detached = match self.detach_for_umount(&target, flags) {
            Err(Errno::BUSY) => {
                // A task that has left it gives its use up after a grace period.
                rcu::synchronize();
                self.detach_for_umount(&target, flags)?
            }
            other => other?,
        };
        drop(target);
        drop(detached.places);
        for raw in detached.mounts {
            // SAFETY: the namespace's own use, which `release` gives up.
            unsafe { release(raw) };
        }
        // The superblock is freed behind a grace period; the caller may expect it to be gone.
        rcu::synchronize();
        Ok(())
    }

    /// Takes the mount whose root `target` is, and with `DETACH` those below it, off the tree.
    fn detach_for_umount(&self, target: &Path, flags: UmountFlags) -> Result<Detached, Errno> {
        let guard = rcu::pin();
        let mut attached = self.attached.lock();
        let mount = target.mount();
        if !std::ptr::eq(mount.root(), target.dentry()) {
            return Err(Errno::INVAL);
        }
        if mount.attached_at(&guard).is_none() {
            let is_root = std::ptr::eq(mount, self.root.load(Ordering::Acquire));
            return Err(if is_root { Errno::BUSY } else { Errno::INVAL });
        }
        let below = mounts_below(&attached, mount, &guard);
        if !flags.contains(UmountFlags::DETACH) {
            // The namespace's use and that of `target`.
            if below.len() > 1 || self.is_used(mount, 2) {
                return Err(Errno::BUSY);
            }
            if flags.contains(UmountFlags::EXPIRE) && !mount.expire() {
                return Err(Errno::AGAIN);
            }
        }
        Ok(self.detach_all(&mut attached, &below, &guard))
    }

    /// Whether more than `expected` uses of `mount` are counted. Walks that count one meanwhile see
    /// that `mount_seq` has changed, and give it back.
    fn is_used(&self, mount: &Mount, expected: i64) -> bool {
        let _crossings = self.lock_crossings();
        let _section = self.mount_seq.write();
        fence(Ordering::SeqCst);
        mount.users() > expected
    }

    fn detach_all(
        &self,
        attached: &mut Vec<NonNull<Mount>>,
        mounts: &[NonNull<Mount>],
        guard: &Guard,
    ) -> Detached {
        let mut places = Vec::new();
        for raw in mounts.iter().rev() {
            // SAFETY: listed mounts are held by the namespace.
            let mount = unsafe { raw.as_ref() };
            places.extend(self.detach(attached, mount, guard));
            mount.set_detached();
        }
        Detached { mounts: mounts.to_vec(), places }
    }
}

/// Mounts that were taken out of the tree: their uses by the namespace, and the places they were at.
struct Detached {
    mounts: Vec<NonNull<Mount>>,
    places: Vec<Path>,
}

/// `top` and the mounts below it, parents first.
fn mounts_below(attached: &[NonNull<Mount>], top: &Mount, guard: &Guard) -> Vec<NonNull<Mount>> {
    let mut found = vec![NonNull::from(top)];
    for raw in attached {
        // SAFETY: listed mounts are held by the namespace.
        let parent = unsafe { raw.as_ref() }.attached_at(guard).map(|(parent, _)| parent);
        if parent.is_some_and(|p| found.contains(&NonNull::from(p))) && !found.contains(raw) {
            found.push(*raw);
        }
    }
    found
}

/// Gives up the use that [`Namespace::clone_mount`] counted, and that an unattached mount is owned by.
///
/// # Safety
/// The caller owns that use.
unsafe fn release(raw: NonNull<Mount>) {
    // SAFETY: the use keeps it until `put`.
    let mount = unsafe { raw.as_ref() };
    mount.set_detached();
    mount.put();
}

/// Marks a dentry as a mountpoint, unless its name is just being removed.
fn claim_mountpoint(dentry: &Dentry, guard: &Guard) -> Result<(), Errno> {
    if dentry.is_root() {
        dentry.set_mounted(true);
        return Ok(());
    }
    loop {
        let parent = dentry.parent(guard);
        let _dcache = parent.sb().lock_dcache();
        let _bucket = parent.children().lock(dentry.hash(), guard);
        if dentry.is_unhashed() {
            return Err(Errno::NOENT);
        }
        if dentry.is_child_of(parent) {
            dentry.set_mounted(true);
            return Ok(());
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let guard = rcu::pin();
        let mounts = std::mem::take(self.attached.get_mut());
        let mut places = Vec::new();
        for raw in mounts.iter().rev() {
            // SAFETY: listed mounts are held by the namespace.
            let mount = unsafe { raw.as_ref() };
            mount.set_detached();
            places.extend(mount.unattach());
        }
        // They keep dentries of superblocks that the mounts keep.
        drop(places);
        self.pseudo.release();
        for raw in mounts {
            // SAFETY: the namespace's own use.
            unsafe { release(raw) };
        }
        drop(guard);
        // What was mounted is freed a few grace periods from now. Nobody may ever call again, so push
        // them on: mounts, then superblocks, then the memory of their files.
        for _ in 0..GRACE_PERIODS {
            rcu::pin().flush();
        }
    }
}
