//! The mount trees of a program, and the calls that change them.
//!
//! A [`Vfs`] is one tree: a mount namespace. All trees that were copied from one another are a
//! `VfsShared`: they have superblocks in common, so they have `rename_lock` in common, and mounts
//! of one may share with mounts of another.
//!
//! The trees change under `namespace_sem`, inside a write section of `mount_seq`
//! (`mount/change.rs`). Walks cross mounts by looking up (mount, dentry) in a hash without a lock,
//! under RCU, and check `mount_seq` before they keep what they found. Counting a use of a mount is:
//! raise the count, then check `mount_seq`; an unmount is: enter the write section, then sum the
//! counts, then detach, all in one section. So a walk that overlaps an unmount either is counted or
//! starts again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use vfscale_sync::fork::{self, Owned};
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::reclaim;

use crate::base::error::check_fork;
use crate::base::limits::{Limits, Usage};
use crate::base::types::{MountFlags, UmountFlags};
use crate::mount::attach::NewTree;
use crate::mount::fs_struct::FsStruct;
use crate::mount::mountinfo::MountInfo;
use crate::mount::propagation::MountId;
use crate::mount::topology::MountTopology;
use crate::mount::umount::Detached;
use crate::mount::vfs_shared::VfsShared;
use crate::objects::dcache::dentry::Dentry;
use crate::objects::driver::{FileSystem, StorageCounts};
use crate::objects::vfsmount::{Mount, MountRef, Path, PathRef};
use vfscale_sync::scaling::Scaling;

/// An upper bound of the number of grace periods that the end of a tree takes.
const GRACE_PERIODS: u32 = 32;

/// A tree of mounted file systems, which [`Task`](crate::Task)s access.
///
/// Cheap to clone; `Send` and `Sync`. Its file systems end with the last clone, task and open file.
/// [`unshare_mounts`](crate::Calls::unshare_mounts) makes another tree, a new mount namespace, with
/// the same file systems.
///
/// ```
/// # mod vfscale { pub use vfscale_vfs::*; }
/// use vfscale::{Credentials, Result, Vfs};
///
/// fn use_tree(vfs: &Vfs) -> Result<()> {
///     vfs.task().create_dir("/home")?;
///     let user = vfs.task_as(Credentials::user(1000, 1000));
///     assert!(user.create_dir("/etc").is_err());
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Vfs(Owned<Arc<Namespace>>);

/// The users of a tree; see [`Vfs::users`].
///
/// ```
/// # fn example(vfs: &vfscale_vfs::Vfs) {
/// let users = vfs.users();
/// println!("{} tasks, {} open files", users.tasks, users.open_files);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Users {
    /// Tasks, and clones of the [`Vfs`]. Another tree that was copied from it counts as one, for
    /// any number of tasks.
    pub tasks: usize,
    /// Open files of the root file system, each counted once for any number of descriptors.
    pub open_files: usize,
}

impl Users {
    /// Returns whether there is no user.
    pub fn is_none(self) -> bool {
        self == Users::default()
    }
}

/// A [`Vfs`] that may have ended. Cheap to clone; `Send` and `Sync`.
///
/// ```
/// # fn example(vfs: vfscale_vfs::Vfs) {
/// let weak = vfs.downgrade();
/// drop(vfs);
/// assert!(weak.upgrade().is_none());
/// # }
/// ```
#[derive(Clone)]
pub struct WeakVfs(Weak<Namespace>);

impl WeakVfs {
    /// Returns the tree, if it still exists.
    pub fn upgrade(&self) -> Option<Vfs> {
        self.0.upgrade().map(|tree| Vfs(Owned::new(tree)))
    }
}

/// The numbers of objects; see [`Vfs::counts`].
///
/// ```
/// # fn example(vfs: &vfscale_vfs::Vfs) {
/// let counts = vfs.counts();
/// println!("{counts:?}");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Dentries, in use or cached.
    pub dentries: usize,
    /// The dentries that can be dropped when unused.
    pub unused_dentries: usize,
    /// The negative dentries, of names that don't exist.
    pub negative_dentries: usize,
    /// Inodes, in use or cached.
    pub inodes: usize,
    /// The unused inodes.
    pub unused_inodes: usize,
    /// Open files, each counted once for any number of descriptors.
    pub open_files: usize,
}

/// One mount tree.
pub(crate) struct Namespace {
    /// Its number among the trees that share a [`VfsShared`].
    id: u64,
    root: MountRef,
    vfs_shared: Arc<VfsShared>,
    /// Dropped last.
    _push: PushGracePeriods,
}

/// Drives grace periods when a tree ends: its mounts are freed several grace periods later, and the
/// program may make no further call. The reclaim thread drives them: mounts, then superblocks, then
/// the memory of their files. Without that thread, this value does when it is dropped.
struct PushGracePeriods;

impl Drop for PushGracePeriods {
    fn drop(&mut self) {
        rcu::run_due();
        if !reclaim::attend() {
            for _ in 1..GRACE_PERIODS {
                rcu::run_due();
            }
        }
    }
}

impl Vfs {
    /// Creates a tree with `root` as its root.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn new(root: Arc<dyn FileSystem>) -> Result<Vfs, Errno> {
        Vfs::with_scaling(root, Scaling::default())
    }

    /// Creates a tree as [`new`](Self::new), with scaling settings, which also apply to the file
    /// systems that will be mounted in it.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn with_scaling(root: Arc<dyn FileSystem>, scaling: Scaling) -> Result<Vfs, Errno> {
        Vfs::with_limits(root, scaling, Limits::default())
    }

    /// Creates a tree as [`with_scaling`](Self::with_scaling), with limits of the memory that it
    /// uses apart from the data of files.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn with_limits(
        root: Arc<dyn FileSystem>,
        scaling: Scaling,
        limits: Limits,
    ) -> Result<Vfs, Errno> {
        check_fork()?;
        fork::watch();
        let vfs_shared = Arc::new(VfsShared::new(scaling, limits));
        let mount = vfs_shared.new_mount(root, MountFlags::empty())?;
        let namespace = Namespace::new(&vfs_shared, MountRef::new(&mount));
        vfs_shared.trees.lock().insert(mount, namespace.id);
        Ok(Vfs(Owned::new(Arc::new(namespace))))
    }

    /// Returns the scaling settings.
    pub fn scaling(&self) -> &Scaling {
        self.ns().scaling()
    }

    /// Sets the tree's driver for files of memory
    /// ([`Calls::memfd_create`](crate::Calls::memfd_create)). `make` makes one for the first of
    /// them, which serves no other file system; again if two calls are the first.
    ///
    /// # Errors
    /// `EBUSY` if the tree has one.
    pub fn set_memory_driver(
        &self,
        make: impl Fn() -> Arc<dyn FileSystem> + Send + Sync + 'static,
    ) -> Result<(), Errno> {
        self.ns().pseudo().set_memory_driver(Box::new(make))
    }

    /// Returns a weak reference to the tree.
    pub fn downgrade(&self) -> WeakVfs {
        WeakVfs(Arc::downgrade(&self.0))
    }

    /// Counts the objects of all mounted and internal file systems. Each number is exact while no
    /// object of its kind is made or freed. Takes the locks of all slots, one after the other;
    /// other calls maintain no counters for this.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        let internal = self.ns().pseudo().super_blocks();
        for sb in self.ns().super_blocks().into_iter().chain(internal) {
            counts.dentries += sb.dentries().in_use();
            if let Some(lru) = sb.lru() {
                counts.negative_dentries += lru.list(true).len();
                counts.unused_dentries += lru.list(false).len() + lru.list(true).len();
            }
            counts.inodes += sb.inodes_in_use();
            counts.unused_inodes += sb.unused_inodes();
            counts.open_files += sb.files().len() + sb.private_files();
        }
        counts
    }

    /// Returns the use of the log and the cache of the root file system. Takes short locks of all
    /// CPUs; meant for statistics.
    pub fn storage_counts(&self) -> StorageCounts {
        self.0.root.sb().fs().storage_counts()
    }

    /// Counts the other users of the tree and of its root file system. Counts tasks first: without
    /// tasks, no file can be opened afterwards, unless through a [`WeakVfs`].
    pub fn users(&self) -> Users {
        let tasks = Arc::strong_count(&self.0) - 1;
        self.0.users(tasks)
    }

    /// Ends the tree, if this is its only user: its file systems are unmounted when this returns.
    ///
    /// # Errors
    /// The tree, if there are other [`users`](Self::users); the child of a fork can't end it.
    pub fn end(self) -> Result<(), Vfs> {
        if fork::is_child() || !self.users().is_none() {
            return Err(self);
        }
        match Arc::try_unwrap(self.0.into_inner()) {
            Ok(tree) if tree.users(0).is_none() => Ok(()),
            // A thread upgraded a `WeakVfs` first.
            Ok(tree) => Err(Vfs(Owned::new(Arc::new(tree)))),
            Err(tree) => Err(Vfs(Owned::new(tree))),
        }
    }

    /// Returns the state that it shares with the trees that were copied from each other.
    #[inline]
    pub(crate) fn ns(&self) -> &VfsShared {
        &self.0.vfs_shared
    }

    pub(crate) fn tree(&self) -> &Namespace {
        &self.0
    }
}

impl Namespace {
    fn new(vfs_shared: &Arc<VfsShared>, root: MountRef) -> Namespace {
        let id = vfs_shared.next_tree();
        Namespace { id, root, vfs_shared: Arc::clone(vfs_shared), _push: PushGracePeriods }
    }

    fn users(&self, tasks: usize) -> Users {
        // Each tree owns one reference.
        let others = Arc::strong_count(&self.vfs_shared) - 1;
        let sb = self.root.sb();
        Users { tasks: tasks + others, open_files: sb.files().len() + sb.private_files() }
    }

    /// Returns the root of the tree.
    pub(crate) fn root_path(&self) -> Path {
        Path::new(self.root.clone(), self.root.root_ref())
    }

    fn has(&self, trees: &MountTopology, mount: &Mount) -> bool {
        trees.tree_of(mount) == Some(self.id)
    }

    /// Returns whether a mount is currently in this tree.
    pub(crate) fn contains(&self, mount: &Mount) -> bool {
        self.has(&self.vfs_shared.trees.lock(), mount)
    }

    /// Returns whether a mount is the root of this tree, or below it. Takes no lock: if mounts move
    /// concurrently, the answer may be inconsistent.
    pub(crate) fn leads_to(&self, mount: &Mount, guard: &Guard) -> bool {
        let mut at = mount;
        while let Some((parent, _)) = at.attached_at(guard) {
            at = parent;
        }
        std::ptr::eq(at, &*self.root)
    }

    /// Copies the tree. The copies propagate as binds of the mounts would. Also returns the paths
    /// of `fs` in the copy, if they are in this tree.
    pub(crate) fn copy(&self, fs: &FsStruct) -> (Vfs, FsStruct) {
        let guard = rcu::pin();
        let mut trees = self.vfs_shared.trees.lock();
        let whole = (&*self.root, self.root.root_ref());
        let branch = NewTree::copy_of(&self.vfs_shared, &trees, whole, true, true, &guard);
        let namespace = Namespace::new(&self.vfs_shared, MountRef::new(branch.root()));
        let copies: HashMap<MountId, MountRef> = branch.copies_of().collect();
        self.vfs_shared.plant(&mut trees, branch, namespace.id, &guard);
        drop(trees);
        let there = |path: &Path| {
            let copy = copies.get(&path.mount().id());
            copy.map_or_else(|| path.clone(), |m| Path::new(m.clone(), path.dentry_ref()))
        };
        let fs = FsStruct { root: there(&fs.root), cwd: there(&fs.cwd) };
        (Vfs(Owned::new(Arc::new(namespace))), fs)
    }

    /// Returns the mounts of the tree that can be reached from `root`, in the order of their
    /// creation.
    pub(crate) fn mount_infos(&self, root: PathRef<'_>, guard: &Guard) -> Vec<MountInfo> {
        let trees = self.vfs_shared.trees.lock();
        let _names = self.vfs_shared.rename_lock().read();
        let shown = |mount: &&Mount| crate::mount::d_path::mount_point(mount, root, guard);
        let point_of = |mount| Some((mount, shown(&mount)?));
        let own = trees.mounts().filter(|mount| self.has(&trees, mount));
        let mut reachable: Vec<(&Mount, Vec<u8>)> = own.filter_map(point_of).collect();
        reachable.sort_by_key(|(mount, _)| mount.id());
        let ids: HashSet<MountId> = reachable.iter().map(|(mount, _)| mount.id()).collect();
        let info = |(mount, point): (&Mount, Vec<u8>)| {
            let parent = mount.attached_at(guard).map_or(mount, |(parent, _)| parent);
            let mut info = MountInfo::of(mount, parent.id(), point, guard);
            info.set_sharing(&trees.groups, |peer| ids.contains(&peer));
            info
        };
        reachable.into_iter().map(info).collect()
    }

    /// Returns whether a dentry is a mountpoint in this tree.
    pub(crate) fn has_mountpoint(&self, dentry: &Dentry, guard: &Guard) -> bool {
        let trees = self.vfs_shared.trees.lock();
        trees.mounts().any(|mount| self.has(&trees, mount) && mount.is_on(dentry, guard))
    }

    /// Detaches the mounts on a dentry in other trees, before a call removes its name; `EBUSY` if
    /// this tree has a mount on it.
    pub(crate) fn detach_elsewhere(&self, dentry: &Dentry, guard: &Guard) -> Result<(), Errno> {
        let mut trees = self.vfs_shared.trees.lock();
        let on: Vec<&Mount> = trees.mounts().filter(|mount| mount.is_on(dentry, guard)).collect();
        if on.iter().any(|mount| self.has(&trees, mount)) {
            return Err(Errno::BUSY);
        }
        let on: Vec<MountId> = on.into_iter().map(Mount::id).collect();
        let mut detached = Vec::new();
        for id in on {
            // The mount may have been below one that was detached before.
            let Some(mount) = trees.mount(id).map(MountRef::new) else { continue };
            detached.push(self.vfs_shared.umount_tree(
                &mut trees,
                &mount,
                false,
                || false,
                guard,
            )?);
        }
        drop(trees);
        detached.into_iter().for_each(Detached::release);
        Ok(())
    }

    /// Mounts a new superblock of `fs` at `target`.
    pub(crate) fn mount(
        &self,
        fs: Arc<dyn FileSystem>,
        target: &Path,
        flags: MountFlags,
    ) -> Result<(), Errno> {
        self.check_target(&self.vfs_shared.trees.lock(), target)?;
        let mount = self.vfs_shared.new_mount(fs, flags)?;
        let guard = rcu::pin();
        let mut trees = self.vfs_shared.trees.lock();
        let place = self.place_at(&trees, target, &guard)?;
        if place.dentry().inode().is_dir() != mount.root().inode().is_dir() {
            return Err(Errno::NOTDIR);
        }
        let done = self.vfs_shared.attach_tree(&mut trees, NewTree::of_new(mount), &place, &guard);
        drop(trees);
        done.map(drop)
    }

    /// Refuses a mountpoint that was detached, was removed, or is in another tree.
    fn check_target(&self, trees: &MountTopology, target: &Path) -> Result<(), Errno> {
        match trees.tree_of(target.mount()) {
            _ if target.dentry().is_unhashed() => Err(Errno::NOENT),
            None => Err(Errno::NOENT),
            Some(tree) if tree != self.id => Err(Errno::INVAL),
            Some(_) => Ok(()),
        }
    }

    /// Returns the path for a new mount at `target`.
    fn place_at(&self, trees: &MountTopology, target: &Path, guard: &Guard) -> Result<Path, Errno> {
        self.check_target(trees, target)?;
        Ok(self.vfs_shared.topmost(target, guard))
    }

    /// Makes `source` visible at `target` too; with `recursive`, together with the mounts below it.
    pub(crate) fn bind(&self, source: &Path, target: &Path, recursive: bool) -> Result<(), Errno> {
        let guard = rcu::pin();
        let mut trees = self.vfs_shared.trees.lock();
        let place = self.place_at(&trees, target, &guard)?;
        let mount = source.mount();
        // A bind cannot attach a detached mount again.
        if !self.has(&trees, mount) || trees.groups.sharing(mount.id()).unbindable {
            return Err(Errno::INVAL);
        }
        if source.dentry().inode().is_dir() != place.dentry().inode().is_dir() {
            return Err(Errno::NOTDIR);
        }
        let branch = {
            // Prevents moves of directories, so the list of mounts below the source is consistent.
            let _names = self.vfs_shared.rename_lock().read();
            let part = (mount, source.dentry_ref());
            NewTree::copy_of(&self.vfs_shared, &trees, part, recursive, false, &guard)
        };
        let done = self.vfs_shared.attach_tree(&mut trees, branch, &place, &guard);
        drop(trees);
        done.map(drop)
    }

    /// Moves the mount whose root `source` is to `target`.
    pub(crate) fn move_mount(&self, source: &Path, target: &Path) -> Result<(), Errno> {
        let guard = rcu::pin();
        let mount = source.mount();
        let is_root = std::ptr::eq(mount.root(), source.dentry());
        let same_kind = mount.root().inode().is_dir() == target.dentry().inode().is_dir();
        if !is_root || !same_kind {
            return Err(Errno::INVAL);
        }
        let mut trees = self.vfs_shared.trees.lock();
        let is_gone = trees.tree_of(target.mount()).is_none();
        if is_gone || target.dentry().is_unhashed() {
            return Err(Errno::NOENT);
        }
        let place = self.vfs_shared.topmost(target, &guard);
        let all = trees.below(mount.id());
        let into_itself = all.contains(&place.mount().id());
        let parent = mount.attached_at(&guard).map(|(parent, _)| parent.id());
        let both_here = self.has(&trees, mount) && self.has(&trees, place.mount());
        if !both_here || parent.is_some_and(|parent| trees.groups.is_shared(parent)) {
            return Err(Errno::INVAL);
        }
        let unbindable = all.iter().any(|id| trees.groups.sharing(*id).unbindable);
        if trees.groups.is_shared(place.mount().id()) && unbindable {
            return Err(Errno::INVAL);
        }
        if into_itself {
            return Err(Errno::LOOP);
        }
        if parent.is_none() {
            return Err(Errno::INVAL);
        }
        let branch = NewTree::of_attached(&trees, mount, &guard);
        let done = self.vfs_shared.attach_tree(&mut trees, branch, &place, &guard);
        drop(trees);
        done.map(drop)
    }

    /// Unmounts the mount whose root is `target`. Waits for a grace period, and for the end of the
    /// superblock if it has no other user.
    pub(crate) fn umount(&self, target: Path, flags: UmountFlags) -> Result<(), Errno> {
        let detached = match self.detach_for_umount(&target, flags) {
            Err(Errno::BUSY) => {
                // A task that left the mount may drop its use in work deferred to a grace period.
                rcu::synchronize();
                self.detach_for_umount(&target, flags)?
            }
            other => other?,
        };
        let dev = target.mount().sb().dev();
        drop(target);
        detached.release();
        // The superblock ends after a grace period, on another thread; the caller may rely on its
        // end.
        rcu::synchronize();
        reclaim::wait_for(dev);
        Ok(())
    }

    /// Detaches the mount whose root is `target` from the tree, with `DETACH` together with the
    /// mounts below it, and the mounts that this unmounts by propagation.
    fn detach_for_umount(&self, target: &Path, flags: UmountFlags) -> Result<Detached, Errno> {
        let guard = rcu::pin();
        let mut trees = self.vfs_shared.trees.lock();
        let mount = target.mount();
        if !std::ptr::eq(mount.root(), target.dentry()) || !self.has(&trees, mount) {
            return Err(Errno::INVAL);
        }
        if mount.attached_at(&guard).is_none() {
            return Err(Errno::BUSY);
        }
        if flags.contains(UmountFlags::DETACH) {
            return self.vfs_shared.umount_tree(&mut trees, mount, true, || false, &guard);
        }
        // The use of the trees, and the use of `target`.
        let is_used = || mount.users() > 2;
        if trees.children(mount.id()).next().is_some() {
            return Err(Errno::BUSY);
        }
        if flags.contains(UmountFlags::EXPIRE) {
            if is_used() {
                return Err(Errno::BUSY);
            }
            if !mount.expire() {
                return Err(Errno::AGAIN);
            }
        }
        let others = self.vfs_shared.victims(&trees, mount, &guard);
        let is_busy = || is_used() || others.iter().any(|other| other.users() > 1);
        self.vfs_shared.umount_tree(&mut trees, mount, true, is_busy, &guard)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let all = {
            let guard = rcu::pin();
            let mut trees = self.vfs_shared.trees.lock();
            // Detaches the mounts of this tree only, without propagation.
            self.vfs_shared.umount_tree(&mut trees, &self.root, false, || false, &guard)
        };
        // Released outside of a section, because drivers are notified.
        if let Ok(all) = all {
            all.release();
        }
    }
}

impl Vfs {
    /// Returns the limits of the tree and of the trees copied from it.
    pub fn limits(&self) -> Limits {
        *self.ns().quotas().limits()
    }

    /// Returns the used part of the limits; [`counts`](Self::counts) returns the number of open
    /// files. Each number is exact while no resource of its kind is charged or uncharged.
    pub fn usage(&self) -> Usage {
        self.ns().quotas().usage()
    }
}
