//! Mounts: the tree of a superblock, attached to a dentry of another tree.
//!
//! # Counting
//!
//! Open files and working directories each count one user of their mount. While the mount is
//! attached, the count is per CPU and no thread checks whether it is zero (Piggin 2009, "mnt
//! count"). Detaching closes the count: it becomes one exact number under a lock, and the last user
//! frees the mount ([`PerCpuRef`]).
//!
//! # Writers
//!
//! A change within an RCU section, such as any change of names in memory, only reads the flags: a
//! remount to read-only first [announces itself](RemountFlags::count_sections) and waits for a
//! grace period. Then all such changes are over that have not seen the announcement, and the others
//! are counted, as are those that last longer than a section. The announcement stays: few file
//! systems are ever made read-only.
//!
//! A second per-CPU count contains the counted changes in progress; the opening of a file for
//! writing is a change, too. A counted change raises the count and then reads the flags; a remount
//! sets a hold bit next to the flags ([`mount_flags`](crate::objects::remount_flags)) and then sums
//! the counts. At least one of the two sees the other. A change that sees the hold remains counted,
//! and waits for the lock that the remount holds while it checks for writers (`mnt_write_hold`).
//! Under that lock it reads the flags again, which now are the decision of the remount: unchanged,
//! if the mount was busy, and the change proceeds; or read-only, and the change is subtracted from
//! the part that it was added to. So a remount that finds the mount busy refuses no change. While
//! the remount sums, only changes that were added before the hold are subtracted from any part. So
//! the sum is never less than the number of changes that are still in progress. It may include
//! changes that wait. Then the remount is busy because of a change that began after it, and that
//! change proceeds immediately.
//!
//! A waiting thread may be in an RCU section and hold locks up to that of an inode; under
//! `mnt_write_hold`, the remount waits only for the locks of the lists of open files. It holds that
//! lock for the check only: while the driver writes everything, changes are already refused (as in
//! Linux), even if the driver then fails.
//!
//! A file that is opened for writing enters the superblock's lists
//! ([`file_list`](crate::file::file_list)) before its opening ends as a change, and leaves them
//! when it is closed. So a remount walks the lists after the sum. A file that moves to a private
//! list is first counted, in one number that the remount reads after the walk. That number is no
//! per-CPU count, because files are added to it and subtracted at any time and on any CPU, which a
//! sum could see in the wrong order.
//!
//! A change in progress runs inside an RCU section or holds a use of the mount. Either one protects
//! the mount, its entry in the list of its superblock, and the superblock.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use rustix::io::Errno;
use vfscale_sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence, fence_after_rmw};
use vfscale_sync::lock::Mutex;
use vfscale_sync::percpu::PerCpuCounter;
use vfscale_sync::percpu_ref::PerCpuRef;
use vfscale_sync::rcu::{self, Guard, Rcu};
use vfscale_sync::table::Hashed;

use crate::base::lock_classes::{MountCount, TaskFs};
use crate::base::types::MountFlags;
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::inode::{Inode, InodePtr};
use crate::objects::remount_flags::{RemountFlags, Verdict};
use crate::objects::super_ref::SuperRef;

/// A mount. Made by a namespace, freed a grace period after its last user.
pub(crate) struct Mount {
    id: u64,
    /// Dropped before `sb`, which owns its memory.
    root: DentryRef,
    sb: SuperRef,
    /// The path that it is attached to; both null when it is detached. Written in the namespace's
    /// write section.
    parent: AtomicPtr<Mount>,
    mountpoint: AtomicPtr<Dentry>,
    flags: RemountFlags,
    /// Marked by `umount(EXPIRE)`, cleared by use.
    expired: AtomicBool,
    users: PerCpuRef<MountCount>,
    writers: PerCpuCounter,
    /// The number of files that are open for writing and on a private list. In one part: exact at
    /// any time.
    unlisted: PerCpuCounter,
}

// SAFETY: the pointers are atomic, and the objects behind them are held as the fields describe.
unsafe impl Send for Mount {}
// SAFETY: the pointers are atomic, and the objects behind them are held as the fields describe.
unsafe impl Sync for Mount {}

/// Flags that belong to the superblock; the others are the mount's.
pub(crate) const SUPER_FLAGS: MountFlags = MountFlags::RDONLY;

/// Normalizes the requested options of a mount. Exactly one rule for access times holds, `RELATIME`
/// by default; a remount that requests none retains those of `before`.
pub(crate) fn normal_flags(asked: MountFlags, before: Option<MountFlags>) -> MountFlags {
    const RULES: MountFlags = MountFlags::ACCESS_TIMES;
    let others = asked.difference(RULES);
    let rules = asked & RULES;
    if rules.is_empty()
        && let Some(before) = before
    {
        return others | before & RULES;
    }
    let rule = if rules.contains(MountFlags::STRICTATIME) {
        MountFlags::STRICTATIME
    } else if rules.contains(MountFlags::NOATIME) {
        MountFlags::NOATIME
    } else {
        MountFlags::RELATIME
    };
    others | rules & MountFlags::NODIRATIME | rule
}

impl Mount {
    /// Makes a mount that is not yet attached, with one user: the caller.
    pub(crate) fn alloc(id: u64, sb: SuperRef, root: DentryRef, flags: MountFlags) -> OwnedMount {
        let slots = sb.scaling().mount_count_slots();
        // As before the patch `mount-count`.
        let counts_all = slots == 1;
        let flags =
            if counts_all { RemountFlags::new_counted(flags) } else { RemountFlags::new(flags) };
        let mount = Box::new(Mount {
            id,
            root,
            parent: AtomicPtr::new(std::ptr::null_mut()),
            mountpoint: AtomicPtr::new(std::ptr::null_mut()),
            flags,
            expired: AtomicBool::new(false),
            users: PerCpuRef::new(slots),
            writers: PerCpuCounter::new(slots),
            unlisted: PerCpuCounter::new(1),
            sb,
        });
        let raw = NonNull::from(Box::leak(mount));
        // SAFETY: just allocated.
        unsafe { raw.as_ref() }.sb.add_mount(raw);
        OwnedMount(raw)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    #[inline]
    pub(crate) fn sb(&self) -> &SuperRef {
        &self.sb
    }

    #[inline]
    pub(crate) fn root(&self) -> &Dentry {
        &self.root
    }

    pub(crate) fn root_ref(&self) -> DentryRef {
        self.root.clone()
    }

    #[inline]
    pub(crate) fn flags(&self) -> MountFlags {
        self.flags.get()
    }

    /// Returns the mount and dentry that it is attached at.
    #[inline]
    pub(crate) fn attached_at<'g>(&self, _guard: &'g Guard) -> Option<(&'g Mount, &'g Dentry)> {
        let parent = NonNull::new(self.parent.load(Ordering::Acquire))?;
        let mountpoint = NonNull::new(self.mountpoint.load(Ordering::Acquire))?;
        // SAFETY: both are held while attached, and freed a grace period after that.
        unsafe { Some((parent.as_ref(), mountpoint.as_ref())) }
    }

    /// Returns whether it is mounted on a dentry, through any mount.
    pub(crate) fn is_on(&self, dentry: &Dentry, guard: &Guard) -> bool {
        self.attached_at(guard).is_some_and(|(_, mountpoint)| std::ptr::eq(mountpoint, dentry))
    }

    /// Attaches it; the caller is in the namespace's write section and passes a reference to the
    /// mountpoint.
    pub(crate) fn attach(&self, parent: &Mount, mountpoint: DentryRef) {
        self.parent.store(std::ptr::from_ref(parent).cast_mut(), Ordering::Release);
        self.mountpoint.store(mountpoint.into_raw().as_ptr(), Ordering::Release);
    }

    /// Detaches it from its mountpoint, whose reference is returned; the caller is in the
    /// namespace's write section and drops it outside.
    pub(crate) fn unattach(&self) -> Option<DentryRef> {
        self.parent.store(std::ptr::null_mut(), Ordering::Release);
        let mountpoint = self.mountpoint.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: `attach` stored a counted reference.
        NonNull::new(mountpoint).map(|raw| unsafe { DentryRef::from_raw(raw) })
    }

    /// Makes the count exact, so the last put frees the mount. The caller then drops the use that
    /// `alloc` counted.
    pub(crate) fn set_detached(&self) {
        self.users.close();
    }

    /// Returns the number of users at some moment during the call.
    pub(crate) fn users(&self) -> i64 {
        fence(Ordering::SeqCst);
        self.users.users()
    }

    /// Marks it as expired; returns whether it already was.
    pub(crate) fn expire(&self) -> bool {
        self.expired.swap(true, Ordering::AcqRel)
    }

    /// Counts a user. The caller holds a use, or checks afterwards that the mount is still
    /// attached.
    #[inline]
    pub(crate) fn get(&self) {
        self.users.get();
        if self.expired.load(Ordering::Relaxed) {
            self.expired.store(false, Ordering::Relaxed);
        }
    }

    /// Counts a user of a mount that was found under RCU, unless the last use of a detached mount
    /// was dropped. The caller checks afterwards that an attached mount is still attached.
    #[inline]
    fn get_not_dead(&self) -> bool {
        let got = self.users.get_not_dead();
        if got && self.expired.load(Ordering::Relaxed) {
            self.expired.store(false, Ordering::Relaxed);
        }
        got
    }

    /// Drops a use; the last one of a detached mount frees it after a grace period. The caller is
    /// in no RCU section and holds no lock, or is in a section.
    #[inline]
    pub(crate) fn put(&self) {
        if self.users.put() {
            self.free();
        }
    }

    #[cold]
    fn free(&self) {
        // Called before the memory is passed to the deferred work, while the mount still exists.
        self.sb.leave_mount();
        let raw = NonNull::from(self).as_ptr() as usize;
        rcu::pin().defer(move || {
            // SAFETY: no user is left, and none can appear, because the mount is attached nowhere;
            // walks that still saw it ended within the grace period.
            let mount = unsafe { Box::from_raw(raw as *mut Mount) };
            // Not earlier: a remount must find a change that a walk has announced.
            mount.sb.remove_mount(NonNull::from(&*mount));
        });
    }

    /// Returns whether writes are currently refused.
    #[inline]
    pub(crate) fn is_readonly(&self) -> bool {
        (self.flags() | self.sb.flags()).contains(MountFlags::RDONLY)
    }

    /// Permits a change that ends within the present RCU section, or refuses it with `EROFS`.
    /// Returns whether it is counted. Waits while a remount checks for writers.
    #[inline]
    fn want_write_in_section(&self) -> Result<bool, Errno> {
        match self.flags.verdict(self.sb.remount_flags()) {
            Verdict::Writable => Ok(false),
            Verdict::ReadOnly => Err(Errno::ROFS),
            Verdict::Counted | Verdict::Held => self.count_write(),
        }
    }

    /// Counts a change that ends within an RCU section, as [`want_write`](Self::want_write) does.
    /// Returns true.
    #[cold]
    fn count_write(&self) -> Result<bool, Errno> {
        self.want_write().map(|()| true)
    }

    /// Counts a change, or refuses it with `EROFS`. Waits while a remount checks for writers.
    fn want_write(&self) -> Result<(), Errno> {
        let is_writable = || {
            fence_after_rmw();
            match self.flags.verdict(self.sb.remount_flags()) {
                Verdict::Writable | Verdict::Counted => true,
                Verdict::ReadOnly => false,
                Verdict::Held => self.is_writable_after_hold(),
            }
        };
        if self.writers.add_if(1, is_writable) { Ok(()) } else { Err(Errno::ROFS) }
    }

    /// Waits for the decision of a remount that checks for writers, and returns whether changes are
    /// then allowed. The caller is counted as a change, so no later remount decides without it.
    #[cold]
    fn is_writable_after_hold(&self) -> bool {
        let _nobody_looks = self.sb.lock_write_hold();
        !self.is_readonly()
    }

    /// Counts a file that is open for writing and about to leave the superblock's list, until
    /// [`drop_unlisted`](Self::drop_unlisted).
    pub(crate) fn count_unlisted(&self) {
        self.unlisted.add(1);
    }

    pub(crate) fn drop_unlisted(&self) {
        self.unlisted.add(-1);
    }

    #[inline]
    fn drop_write(&self) {
        self.writers.add(-1);
    }

    /// Returns whether changes are in progress. Called before the walk of the lists of open files.
    pub(crate) fn has_changes(&self) -> bool {
        self.writers.sum() > 0
    }

    /// Returns whether a file is open for writing on a private list. Called after the walk of the
    /// superblock's lists.
    pub(crate) fn has_unlisted(&self) -> bool {
        self.unlisted.sum() > 0
    }

    /// Returns whether changes are in progress or files are open for writing. Called while writers
    /// are held.
    fn is_written(&self) -> bool {
        let is_open = || {
            let mut found = false;
            self.sb.files().each(|file| {
                found = file.writes_to(self);
                if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            found
        };
        self.has_changes() || is_open() || self.has_unlisted()
    }

    /// Sets the superblock's part of `flags`, and then all of them on this mount, with no other
    /// remount of either in between. Read-only under the conditions of [`SuperBlock::remount`]. A
    /// reader that sees only the superblock read-only treats the mount as read-only, too.
    pub(crate) fn remount(&self, flags: MountFlags) -> Result<(), Errno> {
        self.sb.remount_and(flags & SUPER_FLAGS, || {
            self.flags.set(flags);
        })
    }

    /// Sets this mount's own flags; read-only only while no file is open for writing through it,
    /// the first time after a grace period. The caller is in no RCU section and holds no lock.
    pub(crate) fn set_flags(&self, flags: MountFlags) -> Result<(), Errno> {
        let is_readonly = |flags: MountFlags| flags.contains(MountFlags::RDONLY);
        if is_readonly(flags) {
            self.flags.count_sections();
        }
        let _one = self.sb.lock_remounts();
        let before = self.flags();
        if is_readonly(flags) && !is_readonly(before) {
            let _looks = self.sb.lock_write_hold();
            self.flags.hold();
            let is_written = self.is_written();
            self.flags.set(if is_written { before } else { flags });
            return if is_written { Err(Errno::BUSY) } else { Ok(()) };
        }
        self.flags.set(flags);
        Ok(())
    }

    /// Returns the hash of a mountpoint.
    #[inline]
    pub(crate) fn place_hash(parent: *const Mount, mountpoint: *const Dentry) -> u64 {
        let mixed = (parent as usize as u64).rotate_left(29) ^ (mountpoint as usize as u64);
        vfscale_sync::hash::fibonacci(mixed) >> 1
    }
}

impl Hashed for Mount {
    fn table_hash(&self) -> u64 {
        Mount::place_hash(
            self.parent.load(Ordering::Relaxed),
            self.mountpoint.load(Ordering::Relaxed),
        )
    }
}

/// A counted use of a mount.
pub(crate) struct MountRef(NonNull<Mount>);

// SAFETY: `Mount` is `Sync`, and the count is atomic.
unsafe impl Send for MountRef {}
// SAFETY: `Mount` is `Sync`, and the count is atomic.
unsafe impl Sync for MountRef {}

impl MountRef {
    /// Counts another use of a mount, whose existence the caller guarantees.
    #[inline]
    pub(crate) fn new(mount: &Mount) -> MountRef {
        mount.get();
        MountRef(NonNull::from(mount))
    }

    /// Counts a use of a mount that may be ending; see [`Mount::get_not_dead`].
    #[inline]
    pub(crate) fn try_new(mount: &Mount) -> Option<MountRef> {
        mount.get_not_dead().then(|| MountRef(NonNull::from(mount)))
    }

    /// Returns the mount for the RCU section, independent of this reference.
    #[inline]
    pub(crate) fn borrow<'g>(&self, _guard: &'g Guard) -> &'g Mount {
        // SAFETY: the mount is in use now, and is freed a grace period after the last use.
        unsafe { self.0.as_ref() }
    }
}

impl std::ops::Deref for MountRef {
    type Target = Mount;
    #[inline]
    fn deref(&self) -> &Mount {
        // SAFETY: the counted use holds the mount.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for MountRef {
    fn clone(&self) -> MountRef {
        MountRef::new(self)
    }
}

impl Drop for MountRef {
    #[inline]
    fn drop(&mut self) {
        self.put();
    }
}

/// The first use of a mount, which belongs to the trees while the mount is listed. When it is
/// dropped, the count becomes exact, and the last user frees the mount.
pub(crate) struct OwnedMount(NonNull<Mount>);

// SAFETY: `Mount` is `Sync`, and the count is atomic.
unsafe impl Send for OwnedMount {}
// SAFETY: `Mount` is `Sync`, and the count is atomic.
unsafe impl Sync for OwnedMount {}

impl OwnedMount {
    pub(crate) fn as_raw(&self) -> NonNull<Mount> {
        self.0
    }
}

impl std::ops::Deref for OwnedMount {
    type Target = Mount;
    fn deref(&self) -> &Mount {
        // SAFETY: the use holds the mount.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for OwnedMount {
    fn drop(&mut self) {
        self.set_detached();
        self.put();
    }
}

/// A change in progress on a mount, which prevents a remount from making it read-only.
pub(crate) struct WriteAccess<'a> {
    mount: &'a Mount,
    /// Whether it is counted; otherwise it ends within an RCU section.
    is_counted: bool,
}

impl<'a> WriteAccess<'a> {
    /// Announces a change, or refuses with `EROFS`.
    pub(crate) fn new(mount: &'a Mount) -> Result<WriteAccess<'a>, Errno> {
        mount.want_write()?;
        Ok(WriteAccess { mount, is_counted: true })
    }

    /// Announces a change that ends within the RCU section, or is [kept](Self::keep) beyond it, or
    /// refuses with `EROFS`.
    #[inline]
    pub(crate) fn in_section(
        mount: &'a Mount,
        _guard: &'a Guard,
    ) -> Result<WriteAccess<'a>, Errno> {
        let is_counted = mount.want_write_in_section()?;
        Ok(WriteAccess { mount, is_counted })
    }
}

impl Drop for WriteAccess<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_counted {
            self.mount.drop_write();
        }
    }
}

impl WriteAccess<'_> {
    /// Converts to a write access that lasts beyond the RCU section, because it holds a use of the
    /// mount.
    pub(crate) fn keep(self, mount: MountRef) -> Writing {
        debug_assert!(std::ptr::eq(self.mount, &raw const *mount));
        if !self.is_counted {
            // Still in the section, for whose end a remount waits before it looks for writers.
            mount.writers.add(1);
        }
        std::mem::forget(self);
        Writing(mount)
    }
}

/// A change in progress on a mount, of which it holds a use; see [`WriteAccess`].
pub(crate) struct Writing(MountRef);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.drop_write();
    }
}

/// A path: a dentry as seen through a mount, both held. Counterpart of `struct path` in Linux.
pub(crate) struct Path {
    /// Dropped before the mount, which holds the dentry's memory.
    dentry: DentryRef,
    mount: MountRef,
}

impl Path {
    #[inline]
    pub(crate) fn new(mount: MountRef, dentry: DentryRef) -> Path {
        Path { dentry, mount }
    }

    #[inline]
    pub(crate) fn dentry(&self) -> &Dentry {
        &self.dentry
    }

    #[inline]
    pub(crate) fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Takes another reference to the dentry.
    pub(crate) fn dentry_ref(&self) -> DentryRef {
        self.dentry.clone()
    }

    /// Counts another use of the mount.
    pub(crate) fn mount_ref(&self) -> MountRef {
        self.mount.clone()
    }

    /// Returns its use of the mount.
    pub(crate) fn into_mount(self) -> MountRef {
        self.mount
    }

    /// Returns mount and dentry for the RCU section.
    #[inline]
    pub(crate) fn borrow<'g>(&self, guard: &'g Guard) -> PathRef<'g> {
        PathRef { mount: self.mount.borrow(guard), dentry: self.dentry.borrow(guard) }
    }
}

/// The path of an open file. The pointer to the inode saves a read of the dentry, whose cache lines
/// a rename or a removal of the name writes.
pub(crate) struct FilePath {
    path: Path,
    inode: InodePtr,
}

impl FilePath {
    pub(crate) fn new(path: Path) -> FilePath {
        FilePath { inode: InodePtr::new(path.dentry().inode()), path }
    }

    #[inline]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    #[inline]
    pub(crate) fn inode(&self) -> &Inode {
        // SAFETY: the path's dentry, which never changes, owns a reference to the inode.
        unsafe { self.inode.as_ref() }
    }
}

/// A path as seen in an RCU section. It is not valid beyond the section. Within the section the
/// last use of the mount or the last reference to the dentry may already be dropped, so taking a
/// new one may fail.
#[derive(Clone, Copy)]
pub(crate) struct PathRef<'g> {
    pub(crate) mount: &'g Mount,
    pub(crate) dentry: &'g Dentry,
}

impl PathRef<'_> {
    #[inline]
    pub(crate) fn is_same(&self, mount: &Mount, dentry: &Dentry) -> bool {
        std::ptr::eq(self.mount, mount) && std::ptr::eq(self.dentry, dentry)
    }
}

/// A path that walks start from and that changes at times: a task's root or working directory.
///
/// A reference to the dentry and a use of the mount are owned under a lock; walks read separate
/// pointers. A change replaces the pointers first and then drops the old reference and use
/// immediately. So the mount is no longer busy when the call returns, and no thread must drive a
/// grace period. A walk that has read the old pointers may use them until its RCU section ends,
/// because mounts and dentries are freed a grace period after the last use or reference. When the
/// walk tries to take a reference, the objects may be dead. Then it reads the pointers again, and
/// gets other ones: they were replaced before the last reference was dropped.
pub(crate) struct RcuPath {
    pointers: Rcu<Pointers>,
    owned: Mutex<Path, TaskFs>,
}

/// The parts of a [`Path`] that another value owns.
#[derive(Clone, Copy)]
struct Pointers {
    mount: NonNull<Mount>,
    dentry: NonNull<Dentry>,
}

// SAFETY: `Mount` and `Dentry` are `Sync`.
unsafe impl Send for Pointers {}
// SAFETY: `Mount` and `Dentry` are `Sync`.
unsafe impl Sync for Pointers {}

impl RcuPath {
    pub(crate) fn new(path: Path) -> RcuPath {
        RcuPath { pointers: Rcu::new(Pointers::of(&path)), owned: Mutex::new(path) }
    }

    /// Returns the current path, for the RCU section.
    #[inline]
    pub(crate) fn spot<'g>(&'g self, guard: &'g Guard) -> PathRef<'g> {
        let pointers = self.pointers.read(guard);
        // SAFETY: the mount and the dentry were owned when the pointers were read, within the
        // section: they are dropped after the pointers were replaced, or with `self`, which is
        // borrowed. They are freed a grace period after that.
        unsafe { PathRef { mount: pointers.mount.as_ref(), dentry: pointers.dentry.as_ref() } }
    }

    /// Returns a value that differs after every change, within an RCU section.
    #[inline]
    pub(crate) fn version<'g>(&'g self, guard: &'g Guard) -> *const () {
        std::ptr::from_ref(self.pointers.read(guard)).cast()
    }

    /// Takes a reference to the path, and counts a use of its mount.
    pub(crate) fn get(&self) -> Path {
        let _guard = rcu::pin();
        self.owned.lock().clone()
    }

    /// Changes to another path; writes nothing if the paths are equal.
    pub(crate) fn replace(&self, path: Path) {
        let guard = rcu::pin();
        if self.spot(&guard).is_same(path.mount(), path.dentry()) {
            return;
        }
        let mut owned = self.owned.lock();
        let left = std::mem::replace(&mut *owned, path);
        self.pointers.replace(Pointers::of(&owned), &guard);
        drop(owned);
        // Not earlier: a walk that finds the old objects dead reads the pointers again, and must
        // get new ones.
        drop(left);
    }
}

impl Pointers {
    fn of(path: &Path) -> Pointers {
        Pointers { mount: path.mount.0, dentry: path.dentry.as_raw() }
    }
}

impl Clone for Path {
    fn clone(&self) -> Path {
        let _guard = rcu::pin();
        Path { dentry: self.dentry.clone(), mount: self.mount.clone() }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
