//! The calls that change the mount tree. All need `CAP_SYS_ADMIN`.

use std::path::Path as StdPath;
use std::sync::Arc;

use rustix::io::Errno;
use vfscale_sync::rcu;

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::base::types::{Capabilities, FstrimRange, MountFlags, Propagation, UmountFlags};
use crate::mount::mountinfo::MountInfo;
use crate::namei::lookup::run_lookups;
use crate::namei::walk::{Lookup, PATH_MAX};
use crate::objects::driver::FileSystem;
use crate::objects::vfsmount::{Path, WriteAccess, normal_flags};
use crate::syscalls::posix::Calls;
use crate::task::task_struct::{At, Task, bytes};

impl Calls<'_> {
    /// Mounts `fs` at `target`.
    ///
    /// # Errors
    /// The errors of a walk; `EPERM`; `ENOTDIR` if one of target and root is a directory and the
    /// other is not; the errors of the driver.
    pub fn mount(
        &self,
        fs: Arc<dyn FileSystem>,
        target: impl AsRef<StdPath>,
        flags: MountFlags,
    ) -> Result<()> {
        let target = target.as_ref();
        let mount = || {
            let place = self.task.place(target)?;
            self.task.may_mount()?;
            self.task.vfs().tree().mount(fs, &place, flags)
        };
        mount().on("mount", target)
    }

    /// Makes the file or directory at `source` visible at `target` too; with `recursive`, together
    /// with the mounts below it.
    ///
    /// # Errors
    /// As [`mount`](Self::mount).
    pub fn bind(
        &self,
        source: impl AsRef<StdPath>,
        target: impl AsRef<StdPath>,
        recursive: bool,
    ) -> Result<()> {
        let target = target.as_ref();
        let bind = || {
            check_source(source.as_ref())?;
            let place = self.task.place(target)?;
            self.task.may_mount()?;
            let source = self.task.place(source.as_ref())?;
            self.task.vfs().tree().bind(&source, &place, recursive)
        };
        bind().on("mount", target)
    }

    /// Moves the mount at `source` to `target`.
    ///
    /// # Errors
    /// As [`mount`](Self::mount); `EINVAL` if `source` is no mount or the root; `ELOOP` if `target`
    /// is below it.
    pub fn move_mount(
        &self,
        source: impl AsRef<StdPath>,
        target: impl AsRef<StdPath>,
    ) -> Result<()> {
        let target = target.as_ref();
        let move_mount = || {
            check_source(source.as_ref())?;
            let place = self.task.place(target)?;
            self.task.may_mount()?;
            let source = self.task.place(source.as_ref())?;
            self.task.vfs().tree().move_mount(&source, &place)
        };
        move_mount().on("move_mount", target)
    }

    /// Unmounts the topmost mount at `path`, also if it was mounted over a working directory or
    /// root that `path` names as `.`, `..` or `/`. Waits for the end of walks that still see the
    /// mount; with `DETACH`, open files and working directories in it remain usable.
    ///
    /// # Errors
    /// `EPERM`; `EINVAL` if `path` is no mount; `EBUSY` if it is in use, and for the root; `EAGAIN`
    /// for the first `EXPIRE`.
    pub fn umount(&self, path: impl AsRef<StdPath>, flags: UmountFlags) -> Result<()> {
        let path = path.as_ref();
        let umount = || {
            if !UmountFlags::all().contains(flags) {
                return Err(Errno::INVAL);
            }
            let place = self.task.topmost_place(path, !flags.contains(UmountFlags::NOFOLLOW))?;
            self.task.may_mount()?;
            let others = UmountFlags::FORCE | UmountFlags::DETACH;
            if flags.contains(UmountFlags::EXPIRE) && flags.intersects(others) {
                return Err(Errno::INVAL);
            }
            let is_own_root = || {
                let guard = rcu::pin();
                std::ptr::eq(self.task.root(&guard).mount, place.mount())
            };
            if flags.contains(UmountFlags::EXPIRE) && is_own_root() {
                return Err(Errno::INVAL);
            }
            self.task.vfs().tree().umount(place, flags)
        };
        umount().on("umount2", path)
    }

    /// Sets the flags of the mount at `path`, and `RDONLY` also of its superblock. When the
    /// superblock has become read-only, all changes are durable, and a volume is in the state of a
    /// closed one. Blocks for the I/O, and the first time for `RDONLY` until all RCU sections of
    /// the process have ended that are in progress at the call.
    ///
    /// # Errors
    /// `EPERM`; `EINVAL` if `path` is no mount; `EBUSY` for `RDONLY` while a file is open for
    /// writing; `EIO` and the like if a write to the device failed.
    pub fn remount(&self, path: impl AsRef<StdPath>, flags: MountFlags) -> Result<()> {
        let path = path.as_ref();
        let remount = || {
            let place = self.task.mount_root(path)?;
            let flags = normal_flags(flags, Some(place.mount().flags()));
            place.mount().remount(flags)
        };
        remount().on("mount", path)
    }

    /// Sets the flags of the mount at `path` only, not of its superblock.
    ///
    /// # Errors
    /// As [`remount`](Self::remount).
    pub fn remount_bind(&self, path: impl AsRef<StdPath>, flags: MountFlags) -> Result<()> {
        let path = path.as_ref();
        let remount =
            |place: Path| place.mount().set_flags(normal_flags(flags, Some(place.mount().flags())));
        self.task.mount_root(path).and_then(remount).on("mount", path)
    }

    /// Grows the file system of `path` while it is in use to `bytes`, rounded down to a valid size.
    /// Returns its durable size in bytes. May block.
    ///
    /// # Errors
    /// The errors of a walk; `EPERM`; `EOPNOTSUPP` if the file system has no fixed size; `EINVAL`
    /// if it is already larger, `EFBIG` if it cannot be that large; `EROFS`, `ENOSPC`, `EIO`.
    pub fn grow_fs(&self, at: At<'_>, path: impl AsRef<StdPath>, bytes: u64) -> Result<u64> {
        let path = path.as_ref();
        let grow = || {
            let place = self.task.resolve(
                at,
                crate::task::task_struct::bytes(path),
                Lookup::FOLLOW | Lookup::EMPTY,
            )?;
            self.task.may_mount()?;
            // A concurrent remount to read-only counts this call as a writer.
            let _write = WriteAccess::new(place.mount())?;
            place.mount().sb().fs().grow_fs(bytes)
        };
        grow().on("grow_fs", path)
    }

    /// Discards the free blocks of the file system of `path` in a range, as the `ioctl` `FITRIM`
    /// does. Returns the number of bytes that were discarded. Blocks for the I/O; other calls
    /// continue.
    ///
    /// # Errors
    /// The errors of a walk; `EPERM`; `EOPNOTSUPP` if the file system or its device can't do that;
    /// `EINVAL` for a range outside of it, or of less than a block; `EROFS`, `EIO`.
    pub fn trim_fs(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        range: FstrimRange,
    ) -> Result<u64> {
        let path = path.as_ref();
        let trim = || {
            let place = self.task.resolve(at, bytes(path), Lookup::FOLLOW | Lookup::EMPTY)?;
            self.task.may_mount()?;
            // A concurrent remount to read-only counts this call as a writer.
            let _write = WriteAccess::new(place.mount())?;
            place.mount().sb().fs().trim_fs(range)
        };
        trim().on("trim_fs", path)
    }

    /// Drops the unused dentries below `path`, negative and recently used ones included, of the
    /// file system of `path`. Returns their number; 0 for a driver without directories. Later walks
    /// look them up again.
    ///
    /// # Errors
    /// The errors of a walk; `EPERM` without `CAP_SYS_ADMIN`.
    pub fn drop_cached(&self, at: At<'_>, path: impl AsRef<StdPath>) -> Result<usize> {
        let path = path.as_ref();
        let drop_cached = || {
            let flags = Lookup::FOLLOW | Lookup::EMPTY;
            let place = self.task.resolve(at, crate::task::task_struct::bytes(path), flags)?;
            self.task.may_mount()?;
            Ok(place.mount().sb().shrink_below(place.dentry_ref()))
        };
        drop_cached().on("drop_cached", path)
    }

    /// Sets the propagation of the mount at `path`, and with `recursive` of the mounts below it.
    ///
    /// # Errors
    /// The errors of a walk; `EPERM`; `EINVAL` if `path` is no mount.
    pub fn set_propagation(
        &self,
        path: impl AsRef<StdPath>,
        propagation: Propagation,
        recursive: bool,
    ) -> Result<()> {
        let path = path.as_ref();
        let change = || {
            let place = self.task.place(path)?;
            self.task.may_mount()?;
            self.task.ns().set_propagation(&place, propagation, recursive)
        };
        change().on("mount", path)
    }

    /// Forks a task, as [`fork`](crate::Task::fork), into a copy of the mount tree. Later mounts in
    /// one tree do not appear in the other, unless a mount is shared
    /// ([`set_propagation`](Self::set_propagation)). Like `clone(2)` with `CLONE_NEWNS`; root and
    /// working directory are the corresponding ones of the copy, open files stay in the old tree.
    /// Both trees share the file systems. The copy ends with the last task and clone of its
    /// [`Vfs`](crate::Vfs).
    ///
    /// # Errors
    /// `EPERM`.
    ///
    /// ```
    /// # use vfscale_vfs::{Propagation, Task};
    /// # fn example(task: &Task) -> vfscale_vfs::Result<()> {
    /// let sandbox = task.posix().unshare_mounts()?;
    /// sandbox.posix().set_propagation("/", Propagation::Private, true)?;
    /// sandbox.posix().bind("/srv/build", "/mnt", false)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn unshare_mounts(&self) -> Result<Task> {
        check_fork().named("unshare")?;
        self.task.may_mount().named("unshare")?;
        Ok(self.task.fork_unshared())
    }
}

impl Task {
    fn may_mount(&self) -> Outcome<()> {
        let guard = rcu::pin();
        if self.cred(&guard).has(Capabilities::SYS_ADMIN) { Ok(()) } else { Err(Errno::PERM) }
    }

    fn place(&self, path: &StdPath) -> Outcome<Path> {
        self.resolve(At::Cwd, bytes(path), Lookup::FOLLOW)
    }

    /// Returns the root of the topmost mount at `path`. A walk that ends in a name reaches it
    /// anyway; one that ends in `.`, `..` or the root stays below mounts over that path.
    fn topmost_place(&self, path: &StdPath, follow: bool) -> Outcome<Path> {
        let mut lookup = Lookup::empty();
        lookup.set(Lookup::FOLLOW, follow);
        let base = self.base(At::Cwd);
        run_lookups(|| {
            let guard = rcu::pin();
            self.walk(&base, bytes(path), lookup, &guard, |walk| {
                let pos = walk.lookup()?;
                let pos = walk.cross_down(pos)?;
                walk.keep(pos)
            })
        })
    }

    fn mount_root(&self, path: &StdPath) -> Outcome<Path> {
        let place = self.place(path)?;
        self.may_mount()?;
        let mount = place.mount();
        let is_root = std::ptr::eq(mount.root(), place.dentry());
        if is_root && self.vfs().tree().contains(mount) { Ok(place) } else { Err(Errno::INVAL) }
    }
}

/// Refuses a source that is too long for a path, before the target is looked up.
fn check_source(source: &StdPath) -> Outcome<()> {
    if bytes(source).len() >= PATH_MAX { Err(Errno::NAMETOOLONG) } else { Ok(()) }
}

impl Calls<'_> {
    /// Returns the mounts of the task's tree that can be reached from its root, in the order of
    /// their creation. Mounts that are covered by another mount are included.
    ///
    /// Takes `namespace_sem`, so the entries are consistent.
    ///
    /// ```
    /// # fn example(task: &vfscale_vfs::Task) {
    /// for mount in task.posix().mounts() {
    ///     println!("{}", mount.mountinfo());
    /// }
    /// # }
    /// ```
    pub fn mounts(&self) -> Vec<MountInfo> {
        if check_fork().is_err() {
            return Vec::new();
        }
        let guard = rcu::pin();
        self.task.vfs().tree().mount_infos(self.task.root(&guard), &guard)
    }
}
