//! Attributes: `stat`, `access`, `chmod`, `chown`, `utimensat`, `truncate`, `statfs`.

use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::lock::assert_held;
use vfscale_sync::rcu::{self, Guard};

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::base::lock_classes::InodeData;
use crate::base::types::{
    Access, AtFlags, Capabilities, FileType, Mode, MountFlags, SetTime, Stat, StatFs, StatMask,
    Timestamp,
};
use crate::file::open_file::File;
use crate::file::stat::{fill, fill_some};
use crate::file::synchronous::sync_change;
use crate::file::truncate;
use crate::namei::lookup::{run_lookup, run_lookups};
use crate::namei::walk::{Fail, Lookup, Walk, WalkPos};
use crate::objects::dcache::dentry::Dentry;
use crate::objects::fsnotify::queue::FileChange;
use crate::objects::inode::Inode;
use crate::objects::memfd_seals;
use crate::objects::permission::permission;
use crate::objects::setattr::{More, Plan};
use crate::objects::vfsmount::Mount;
use crate::security::cred::Credentials;
use crate::syscalls::posix::Calls;
use crate::syscalls::with_inode::Done;
use crate::task::task_struct::{At, Task, bytes, lookup_flags};

mod kept_times;

impl File {
    /// Returns the attributes of the file that `mask` requests; see [`Calls::statx`].
    pub fn statx(&self, mask: StatMask) -> Result<Stat> {
        check_fork().named("statx")?;
        let path = self.path();
        Ok(fill_some(path.mount(), path.dentry(), self.inode(), mask))
    }
}

/// A change of attributes.
#[derive(Clone, Copy)]
enum Change {
    Mode(u32),
    Owner(Option<u32>, Option<u32>),
    Times([SetTime; 2]),
    /// All times, of a caller that keeps them.
    KeptTimes([SetTime; 2], Timestamp),
}

impl Calls<'_> {
    /// Returns the attributes of `path`. `flags`: `SYMLINK_NOFOLLOW`, `EMPTY_PATH`.
    ///
    /// Takes no lock and no reference, and writes nothing that other threads read.
    ///
    /// # Errors
    /// As `statx(2)`.
    #[inline]
    pub fn fstatat(&self, at: At<'_>, path: impl AsRef<StdPath>, flags: AtFlags) -> Result<Stat> {
        let path = path.as_ref();
        self.task.stat_inner(at, bytes(path), flags, fill).on("stat", path)
    }

    /// Returns the attributes of `path` that `mask` requests. The others are 0, except file system,
    /// inode number, type, device and mount, which are always returned.
    ///
    /// Takes no lock and no reference, and writes nothing that other threads read, unless `mask`
    /// requests the times of the last change: after each change, the first reader of the times
    /// marks them in the inode as read.
    ///
    /// # Errors
    /// As `statx(2)`.
    pub fn statx(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        flags: AtFlags,
        mask: StatMask,
    ) -> Result<Stat> {
        let path = path.as_ref();
        let fill =
            |mount: &Mount, dentry: &Dentry, inode: &Inode| fill_some(mount, dentry, inode, mask);
        self.task.stat_inner(at, bytes(path), flags, fill).on("statx", path)
    }

    /// Returns the state of the file system of `path`.
    ///
    /// # Errors
    /// As `statfs(2)`.
    pub fn statfs(&self, at: At<'_>, path: impl AsRef<StdPath>) -> Result<StatFs> {
        let path = path.as_ref();
        let mut lookup = Lookup::FOLLOW;
        lookup.set(Lookup::EMPTY, !matches!(at, At::Cwd));
        self.task
            .resolve(at, bytes(path), lookup)
            .map(|place| place.mount().sb().statfs(place.mount().flags()))
            .on("statfs", path)
    }

    /// Checks whether the real user may access `path` (with `EACCESS`, the effective one). An empty
    /// `want` only checks that it exists. `flags`: `EACCESS`, `SYMLINK_NOFOLLOW`, `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `faccessat2(2)`.
    pub fn faccessat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        want: Access,
        flags: AtFlags,
    ) -> Result<()> {
        let path = path.as_ref();
        self.task.access_inner(at, bytes(path), want, flags).on("faccessat", path)
    }

    /// Changes the permission bits of `path`. `flags`: `SYMLINK_NOFOLLOW` (links themselves have
    /// none: `EOPNOTSUPP`), `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `fchmodat2(2)`.
    pub fn fchmodat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        mode: impl Into<Mode>,
        flags: AtFlags,
    ) -> Result<()> {
        let change = Change::Mode(mode.into().bits() & 0o7777);
        self.task.change(at, path.as_ref(), flags, "fchmodat", change)
    }

    /// Changes owner, group, or both of `path`. `flags`: `SYMLINK_NOFOLLOW`, `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `fchownat(2)`.
    pub fn fchownat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        uid: Option<u32>,
        gid: Option<u32>,
        flags: AtFlags,
    ) -> Result<()> {
        self.task.change(at, path.as_ref(), flags, "fchownat", Change::Owner(uid, gid))
    }

    /// Sets the times of last access and last change of `path`. `flags`: `SYMLINK_NOFOLLOW`,
    /// `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `utimensat(2)`.
    pub fn utimensat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        times: [SetTime; 2],
        flags: AtFlags,
    ) -> Result<()> {
        if times == [SetTime::Omit; 2] {
            return Ok(());
        }
        self.task.change(at, path.as_ref(), flags, "utimensat", Change::Times(times))
    }

    /// Truncates or extends the file `path` to `size` bytes.
    ///
    /// # Errors
    /// As `truncate(2)`.
    pub fn truncate(&self, path: impl AsRef<StdPath>, size: u64) -> Result<()> {
        let path = path.as_ref();
        let truncate = || {
            if size > i64::MAX as u64 {
                return Err(Errno::INVAL);
            }
            self.task.change_inode(
                (At::Cwd, path, Lookup::FOLLOW),
                &FileChange::Modified,
                |walk, pos| {
                    walk.validate(pos)?;
                    may_truncate(pos.inode(), walk.cred(), walk.guard())?;
                    walk.want_write(pos)
                },
                |walk, pos| {
                    let keep_ids = truncate::preserved_ids(walk.cred(), pos.inode());
                    let is_done = truncate::truncate_in_section(pos.inode(), size, keep_ids)?;
                    Ok(if is_done { Done::Yes } else { Done::No })
                },
                |inode| {
                    let keep_ids = {
                        let guard = rcu::pin();
                        truncate::preserved_ids(self.task.cred(&guard), inode)
                    };
                    let truncate = || truncate::truncate_inode(inode, size, keep_ids, false);
                    inode.sb().with_space(truncate)
                },
            )
        };
        truncate().on("truncate", path)
    }
}

impl Task {
    #[inline]
    fn stat_inner(
        &self,
        at: At<'_>,
        path: &[u8],
        flags: AtFlags,
        fill: impl Fn(&Mount, &Dentry, &Inode) -> Stat,
    ) -> Outcome<Stat> {
        let allowed = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let lookup = lookup_flags(flags, true, allowed)?;
        let base = self.base(at);
        loop {
            // Written in place: returning it through `run_lookups` would copy it several times.
            let mut stat = Stat::default();
            let guard = rcu::pin();
            let walked = self.walk(&base, path, lookup, &guard, |walk| {
                let pos = walk.lookup()?;
                stat = fill(pos.mount, pos.dentry, pos.inode());
                Ok(walk.validate(pos)?)
            });
            drop(guard);
            match walked {
                Ok(()) => return Ok(stat),
                Err(stop) => run_lookup(stop)?,
            }
        }
    }

    fn access_inner(&self, at: At<'_>, path: &[u8], want: Access, flags: AtFlags) -> Outcome<()> {
        let allowed = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EACCESS;
        let lookup = lookup_flags(flags, true, allowed)?;
        let base = self.base(at);
        run_lookups(|| {
            let guard = rcu::pin();
            let own = self.cred(&guard);
            let real;
            let cred = if flags.contains(AtFlags::EACCESS) {
                own
            } else {
                real = own.real();
                &real
            };
            self.walk_as(cred, &base, path, lookup, &guard, |walk| {
                let pos = walk.lookup()?;
                let verdict = may_access(walk, pos, want);
                walk.validate(pos)?;
                Ok(verdict?)
            })
        })
    }

    fn change(
        &self,
        at: At<'_>,
        path: &StdPath,
        flags: AtFlags,
        call: &'static str,
        change: Change,
    ) -> Result<()> {
        let apply = || {
            let lookup = lookup_flags(flags, true, AtFlags::SYMLINK_NOFOLLOW)?;
            self.change_inode(
                (at, path, lookup),
                &FileChange::Attributes,
                |walk, pos| walk.want_write(pos),
                |walk, pos| change_in_section(walk, pos, change),
                |inode| {
                    inode.sb().with_space(|| self.change_by_reference(inode, change))?;
                    sync_change(inode)
                },
            )
        };
        apply().on(call, path)
    }

    /// Applies a change of attributes to an inode that the caller holds a reference to. A backed
    /// driver stores it first.
    #[cold]
    fn change_by_reference(&self, inode: &Inode, change: Change) -> Outcome<()> {
        let _locked = inode.lock();
        let guard = rcu::pin();
        let mut plan = plan(inode, self.cred(&guard), change, &guard)?;
        if inode.is_backed() {
            drop(guard);
            return plan.store(inode);
        }
        plan.apply(inode, &guard);
        Ok(())
    }
}

/// Checks that `cred` may truncate the file by its path.
fn may_truncate(inode: &Inode, cred: &Credentials, guard: &Guard) -> Outcome<()> {
    match inode.file_type() {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR),
        _ => return Err(Errno::INVAL),
    }
    // A read-only file system is reported before the permission, a read-only mount after it.
    if inode.sb().flags().contains(MountFlags::RDONLY) {
        return Err(Errno::ROFS);
    }
    permission(inode, cred, Access::WRITE, guard)?;
    if inode.is_append() { Err(Errno::PERM) } else { Ok(()) }
}

/// Applies a change of attributes to an inode of a driver without directories, in the RCU section
/// of the walk, unless the change needs a reference to the inode.
///
/// Setting the mode that it already has takes no lock. A change of the inode itself takes no
/// reference: the memory of the inode stays for the RCU section, and a change of an inode that has
/// lost its last name is harmless. Two changes need a reference: one that has to wait for the lock,
/// because the holder may take long, and one of an access control list, which has memory of its own
/// that must not be attached to an evicted inode.
fn change_in_section(
    walk: &Walk<'_>,
    pos: WalkPos<'_>,
    change: Change,
) -> std::result::Result<Done, Fail> {
    let (inode, guard) = (pos.inode(), walk.guard());
    walk.validate(pos)?;
    if has_that_mode(inode, walk.cred(), change, guard)? {
        inode.touch_ctime();
        return Ok(Done::Yes);
    }
    let Some(_locked) = inode.try_lock() else { return Ok(Done::No) };
    let mut plan = plan(inode, walk.cred(), change, guard)?;
    if plan.more.is_some() {
        return Ok(Done::No);
    }
    plan.apply(inode, guard);
    Ok(Done::Yes)
}

/// Returns whether a change of the mode, which `cred` may make, has no effect. Takes no lock: it
/// reads the owner before and after the mode, so both were valid at one moment.
fn has_that_mode(
    inode: &Inode,
    cred: &Credentials,
    change: Change,
    guard: &Guard,
) -> Outcome<bool> {
    let Change::Mode(mode) = change else { return Ok(false) };
    let plan = set_mode(inode, cred, mode, guard)?;
    Ok(plan.mode == Some(inode.mode()) && plan.more.is_none() && cred.owns(inode))
}

/// Checks the rights that `access` requests for a path.
fn may_access(walk: &Walk<'_>, pos: WalkPos<'_>, want: Access) -> Outcome<()> {
    let inode = pos.inode();
    let flags = pos.mount.flags() | inode.sb().flags();
    if want.contains(Access::EXEC) && inode.is_file() && flags.contains(MountFlags::NOEXEC) {
        return Err(Errno::ACCESS);
    }
    let special = !matches!(
        inode.file_type(),
        FileType::RegularFile | FileType::Directory | FileType::Symlink
    );
    let writes = want.contains(Access::WRITE) && !special;
    // A read-only file system is reported before the permission, a read-only mount after it.
    if writes && inode.sb().flags().contains(MountFlags::RDONLY) {
        return Err(Errno::ROFS);
    }
    permission(inode, walk.cred(), want, walk.guard())?;
    if writes && flags.contains(MountFlags::RDONLY) { Err(Errno::ROFS) } else { Ok(()) }
}

/// Plans a change, if `cred` may make it.
#[inline]
fn plan(
    inode: &Inode,
    cred: &Credentials,
    change: Change,
    guard: &Guard,
) -> Outcome<Plan<'static>> {
    assert_held::<InodeData>();
    match change {
        Change::Mode(mode) => set_mode(inode, cred, mode, guard),
        Change::Owner(uid, gid) => set_owner(inode, cred, uid, gid),
        Change::Times(times) => set_times(inode, cred, times, guard),
        Change::KeptTimes(times, ctime) => {
            may_keep_times(cred)?;
            Ok(Plan { ctime: Some(ctime), ..times_plan(inode, times) })
        }
    }
}

fn set_mode(inode: &Inode, cred: &Credentials, mode: u32, guard: &Guard) -> Outcome<Plan<'static>> {
    if inode.is_symlink() {
        return Err(Errno::OPNOTSUPP);
    }
    if inode.is_immutable_or_append() || !cred.owns(inode) {
        return Err(Errno::PERM);
    }
    let mut mode = mode;
    // A caller outside the group cannot grant the group's rights to others.
    if !cred.in_group(inode.gid()) && !cred.has(Capabilities::FSETID) {
        mode &= !0o2000;
    }
    memfd_seals::check_mode(inode, mode)?;
    let list = inode.extra(guard).and_then(|extra| extra.acl_access.read(guard));
    Ok(Plan {
        mode: Some(inode.mode() & !0o7777 | mode),
        more: list
            .map(|list| Box::new(More { access: Some(Some(list.chmod(mode))), ..More::default() })),
        ..Plan::default()
    })
}

fn set_owner(
    inode: &Inode,
    cred: &Credentials,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Outcome<Plan<'static>> {
    if inode.is_immutable_or_append() && (uid.is_some() || gid.is_some()) {
        return Err(Errno::PERM);
    }
    let privileged = cred.has(Capabilities::CHOWN);
    let owner = cred.uid == inode.uid();
    if uid.is_some_and(|uid| !(privileged || owner && uid == inode.uid())) {
        return Err(Errno::PERM);
    }
    let may_give = |gid| owner && (cred.in_group(gid) || gid == inode.gid());
    if gid.is_some_and(|gid| !privileged && !may_give(gid)) {
        return Err(Errno::PERM);
    }
    let mode = inode.mode();
    let mut plan = Plan { uid, gid, ..Plan::default() };
    if !inode.is_dir() {
        // Every change of owner clears the set-id bits, even a privileged one, and one to the
        // current owner.
        let mut gone = mode & 0o4000;
        let keeps_sgid = mode & 0o2010 == 0o2000
            && (cred.in_group(inode.gid()) || cred.has(Capabilities::FSETID));
        if mode & 0o2010 == 0o2010 || !keeps_sgid {
            gone |= mode & 0o2000;
        }
        // Clearing them changes the mode, which only the owner may do.
        if mode & gone != 0 && !cred.owns(inode) {
            return Err(Errno::PERM);
        }
        // If the mode changes, the rule for the set-group-id bit is that of the new group.
        let new_gid = gid.unwrap_or(inode.gid());
        if mode & gone != 0 && !cred.in_group(new_gid) && !cred.has(Capabilities::FSETID) {
            gone |= mode & 0o2000;
        }
        plan.mode = Some(mode & !gone);
        plan.no_capabilities = true;
    }
    Ok(plan)
}

fn set_times(
    inode: &Inode,
    cred: &Credentials,
    times: [SetTime; 2],
    guard: &Guard,
) -> Outcome<Plan<'static>> {
    let now = times == [SetTime::Now; 2];
    if inode.is_immutable() || (inode.is_append() && !now) {
        return Err(Errno::PERM);
    }
    if now {
        // The right to write the data includes setting the times to now.
        if !cred.owns(inode) {
            permission(inode, cred, Access::WRITE, guard)?;
        }
    } else if !cred.owns(inode) {
        return Err(Errno::PERM);
    }
    Ok(times_plan(inode, times))
}

/// Checks that a caller may keep the times of any file; see [`kept_times`].
fn may_keep_times(cred: &Credentials) -> Outcome<()> {
    if cred.has(Capabilities::SYS_ADMIN) { Ok(()) } else { Err(Errno::PERM) }
}

fn times_plan(inode: &Inode, times: [SetTime; 2]) -> Plan<'static> {
    let now = inode.change_time();
    let value = |time| -> Option<Timestamp> {
        match time {
            SetTime::Omit => None,
            SetTime::Now => Some(now),
            SetTime::At(time) => Some(time),
        }
    };
    Plan { atime: value(times[0]), mtime: value(times[1]), ..Plan::default() }
}
