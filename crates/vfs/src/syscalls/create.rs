//! Creation of files: `mkdir`, `mknod`, `symlink`, `link`, and `open` with `O_CREAT`.
//!
//! A new name needs only the lock of its bucket in the directory's children table, so two names are
//! made concurrently unless they share a bucket. Removing the directory takes every bucket, and
//! then marks the directory dead; a creator checks that mark under the bucket lock before it
//! inserts a name.

use std::path::Path as StdPath;
use std::ptr::NonNull;

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};
use vfscale_sync::table::Bucket;

use crate::base::error::{Named, Outcome, Result};
use crate::base::lock_classes::Children;
use crate::base::types::{Access, AtFlags, Capabilities, FileType, InodeFlags, Mode};
use crate::file::synchronous::sync_names;
use crate::namei::dir_ops::{self, BackedName};
use crate::namei::lookup::{Deferred, DriverChange, look_up, run_changes, run_lookups};
use crate::namei::walk::{Fail, Last, Lookup, PATH_MAX, Walk, WalkPos};
use crate::objects::dcache::children::NameGuard;
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::dcache::name::Name;
use crate::objects::driver::{NewInode, Reclaimed, XattrPair};
use crate::objects::fsnotify::{self, Place};
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::permission::permission;
use crate::objects::super_block::{again_for_space, is_for_space};
use crate::objects::vfsmount::{Path, WriteAccess};
use crate::security::acl::{self, Acl, Inherited};
use crate::security::cred::Credentials;
use crate::security::xattr::{POSIX_ACL_ACCESS, POSIX_ACL_DEFAULT};
use crate::syscalls::posix::Calls;
use crate::task::task_struct::{At, Task, bytes, lookup_flags};

/// The arguments of `mknod` for a new file.
pub(crate) struct MknodArgs<'a> {
    /// Type and permission bits, before the umask.
    pub(crate) mode: u32,
    pub(crate) rdev: u64,
    pub(crate) target: Option<&'a [u8]>,
}

/// A whiteout of overlay file systems: a character device 0:0 without permissions.
pub(super) const WHITEOUT: MknodArgs<'static> =
    MknodArgs { mode: 0o020_000, rdev: 0, target: None };

/// The attributes that a new file gets from its directory and its creator.
struct Inheritance {
    gid: u32,
    inherited: Inherited,
    flags: InodeFlags,
}

/// Computes group, mode, ACLs and flags of a new file. Files in a set-gid directory inherit its
/// group, and directories also the bit; a default ACL replaces the umask.
#[inline]
fn heritage(dir: &Inode, mode: u32, cred: &Credentials, umask: u32, guard: &Guard) -> Inheritance {
    let is_dir = mode & 0o170000 == 0o040000;
    let set_gid = dir.special_bits() & 0o2000 != 0;
    let gid = if set_gid { dir.gid() } else { cred.gid };
    let mut mode = mode;
    if set_gid && is_dir {
        mode |= 0o2000;
    } else if set_gid
        && mode & 0o2010 == 0o2010
        && !cred.in_group(gid)
        && !cred.has(Capabilities::FSETID)
    {
        mode &= !0o2000;
    }
    let default = dir.acl_default(guard);
    let mut flags = dir.flags();
    if !flags.is_empty() {
        flags = flags.inherited(mode);
    }
    Inheritance { gid, inherited: acl::inherit(default, mode, umask), flags }
}

/// Makes the inode of a new file.
pub(super) fn make_inode(
    dir: &Inode,
    what: &MknodArgs<'_>,
    name_len: usize,
    cred: &Credentials,
    umask: u32,
    guard: &Guard,
) -> Outcome<InodeRef> {
    let Inheritance { gid, inherited, flags } = heritage(dir, what.mode, cred, umask, guard);
    let new = NewInode {
        mode: inherited.mode,
        uid: cred.uid,
        gid,
        rdev: what.rdev,
        target: what.target,
        flags,
        name_len,
        xattrs: &[],
    };
    let sb = dir.sb();
    let inode = sb.accounting().create(sb, &new)?;
    if !flags.is_empty() {
        inode.set_flags(flags);
    }
    if inherited.access.is_some() || inherited.default.is_some() {
        let acls = crate::syscalls::xattr::set_inherited_acls(&inode, inherited, guard);
        acls.inspect_err(|_| unname(&inode, name_len))?;
    }
    Ok(inode)
}

/// The attributes of a new inode of a backed driver, as in [`make_inode`], valid beyond the RCU
/// section.
pub(crate) struct NewInodeAttrs {
    mode: u32,
    uid: u32,
    gid: u32,
    flags: InodeFlags,
    xattrs: Vec<XattrPair>,
}

impl NewInodeAttrs {
    #[cold]
    pub(crate) fn new(
        dir: &Inode,
        mode: u32,
        cred: &Credentials,
        umask: u32,
        guard: &Guard,
    ) -> NewInodeAttrs {
        let Inheritance { gid, inherited, flags } = heritage(dir, mode, cred, umask, guard);
        let Inherited { mode, access, default } = inherited;
        let lists = [(POSIX_ACL_ACCESS, access), (POSIX_ACL_DEFAULT, default)];
        let pair = |(name, list): (&[u8], Option<Acl>)| -> Option<XattrPair> {
            let list = list?;
            Some((name.into(), list.to_xattr().into()))
        };
        NewInodeAttrs {
            mode,
            uid: cred.uid,
            gid,
            flags,
            xattrs: lists.into_iter().filter_map(pair).collect(),
        }
    }

    pub(crate) fn inode<'a>(&'a self, what: &MknodArgs<'a>, name_len: usize) -> NewInode<'a> {
        let NewInodeAttrs { mode, uid, gid, flags, ref xattrs } = *self;
        NewInode { mode, uid, gid, rdev: what.rdev, target: what.target, flags, name_len, xattrs }
    }
}

/// Uncharges the name that the driver charged for `inode`, because the name is not made.
pub(super) fn unname(inode: &Inode, name_len: usize) {
    if name_len > 0 {
        inode.sb().accounting().unlinked(inode, name_len);
    }
}

/// Makes a file in `dir`, and returns a reference to its dentry. The caller has announced a write
/// to the mount, and has checked that the task may write to the directory.
///
/// # Errors
/// `EEXIST`, `ENOENT` if the directory was removed, and the errors of the driver.
pub(crate) fn make(
    dir: &Dentry,
    name: &Name<'_>,
    what: &MknodArgs<'_>,
    cred: &Credentials,
    umask: u32,
    guard: &Guard,
) -> Outcome<DentryRef> {
    let mut bucket = dir.lock_name(name.hash(), guard);
    if dir.inode().is_dead() {
        return Err(Errno::NOENT);
    }
    if bucket.find(name.hash(), |child| child.is_named(name, guard)).is_some() {
        return Err(Errno::EXIST);
    }
    let inode = make_inode(dir.inode(), what, name.len(), cred, umask, guard)?;
    if inode.is_dir() {
        dir.link_directory().inspect_err(|_| unname(&inode, name.len()))?;
    }
    let dentry = insert(&mut bucket, dir, name, inode);
    fsnotify::name_made(Place { dir, name: name.bytes() }, dentry.inode(), guard);
    drop(bucket);
    dir.inode().touch();
    Ok(dentry)
}

/// Inserts a new dentry into its bucket.
fn insert(
    bucket: &mut Bucket<'_, Dentry, Children>,
    dir: &Dentry,
    name: &Name<'_>,
    inode: InodeRef,
) -> DentryRef {
    let dentry = Dentry::new_child(dir, name.bytes(), bucket.free_hash(name.hash()), inode);
    // SAFETY: the name's reference prevents the end of the dentry until its removal from the table,
    // and its memory is freed no earlier than a grace period after that.
    unsafe { bucket.insert(dentry.as_raw()) };
    dentry
}

/// Makes a file without a name.
pub(crate) fn make_unnamed(
    dir: &Dentry,
    mode: u32,
    cred: &Credentials,
    umask: u32,
    linkable: bool,
    guard: &Guard,
) -> Outcome<DentryRef> {
    if dir.inode().is_dead() {
        return Err(Errno::NOENT);
    }
    let what = MknodArgs { mode, rdev: 0, target: None };
    let inode = make_inode(dir.inode(), &what, 0, cred, umask, guard)?;
    inode.clear_nlink();
    if linkable {
        inode.set_linkable();
    }
    Ok(Dentry::new_unnamed(dir, inode, guard))
}

/// The directory for a new name.
struct CreateTarget<'g> {
    dir: WalkPos<'g>,
    write: WriteAccess<'g>,
}

/// Walks to the directory for a new name, with errors in the order of Linux: an existing name
/// before a read-only mount, and that before a missing permission. If the walk has to stop at the
/// name, `unknown` may do better.
fn target_for<'g>(
    walk: &mut Walk<'g>,
    is_dir: bool,
    unknown: impl FnOnce(&Walk<'g>, Fail) -> Fail,
) -> std::result::Result<CreateTarget<'g>, Fail> {
    let Last::Name(slash) = walk.walk_to_last()? else {
        return Err(Errno::EXIST.into());
    };
    let dir = walk.cur();
    let write = match walk.want_write(dir) {
        Err(Fail::Retry) => return Err(Fail::Retry),
        other => other,
    };
    // A lookup in a removed directory finds no name, so this precedes all other rules.
    if dir.inode().is_dead() {
        return Err(Errno::NOENT.into());
    }
    match walk.child(walk.name()) {
        Ok(None) => {}
        Ok(Some(_)) => return Err(Errno::EXIST.into()),
        Err(missed) if slash && !is_dir => return Err(missed),
        Err(missed) => return Err(unknown(walk, missed)),
    }
    if slash && !is_dir {
        return Err(Errno::NOENT.into());
    }
    Ok(CreateTarget { dir, write: write? })
}

/// Has the backed driver make the last name of a walk without a lookup before, if that is where the
/// walk stopped (`missed`), if the driver can, and if nothing that `may_make` checks forbids it.
/// Otherwise the lookup comes first, since an existing name precedes all other errors.
#[cold]
pub(crate) fn defer_unknown<'g>(
    walk: &Walk<'g>,
    missed: Fail,
    may_make: impl FnOnce() -> std::result::Result<(), Fail>,
) -> Fail {
    let Fail::Deferred(deferred) = missed else { return missed };
    let dir = walk.cur();
    let can = dir.dentry.sb().dir_ops().is_some_and(|ops| ops.create_finds_names());
    let may = || {
        let write = walk.want_write(dir)?;
        may_make().map(|()| write)
    };
    match *deferred {
        Deferred::Lookup(missing) if can && let Ok(write) = may() => {
            let at = missing.into_unknown();
            let write = write.keep(at.dir().mount_ref());
            DriverChange::Name(at, write).into()
        }
        other => Fail::Deferred(Box::new(other)),
    }
}

/// Defers the creation of a name to the backed driver.
#[cold]
pub(crate) fn defer_new<'g>(walk: &Walk<'g>, dir: WalkPos<'g>, write: WriteAccess<'g>) -> Fail {
    let name = walk.name();
    match walk.find_backed(dir, name).and_then(|found| walk.keep_name(dir, name, found)) {
        Ok(at) => {
            let write = write.keep(at.dir().mount_ref());
            DriverChange::Name(at, write).into()
        }
        Err(fail) => fail,
    }
}

pub(crate) fn may_create<'g>(walk: &Walk<'g>, dir: WalkPos<'g>) -> std::result::Result<(), Fail> {
    Ok(permission(dir.inode(), walk.cred(), Access::WRITE | Access::EXEC, walk.guard())?)
}

impl Calls<'_> {
    /// Makes a directory.
    ///
    /// # Errors
    /// As `mkdirat(2)`.
    pub fn mkdirat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        mode: impl Into<Mode>,
    ) -> Result<()> {
        let (path, mode) = (path.as_ref(), mode.into());
        let mode = FileType::Directory.as_raw_mode() | (mode.bits() & 0o1777);
        let what = MknodArgs { mode, rdev: 0, target: None };
        self.task.make_at(at, bytes(path), &what).on("mkdirat", path)
    }

    /// Makes a regular file, fifo, socket or device node.
    ///
    /// # Errors
    /// As `mknodat(2)`.
    pub fn mknodat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        file_type: FileType,
        mode: impl Into<Mode>,
        rdev: u64,
    ) -> Result<()> {
        let (path, mode) = (path.as_ref(), mode.into());
        let make = || {
            let is_device = matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice);
            match file_type {
                FileType::Directory => return Err(Errno::PERM),
                FileType::Symlink | FileType::Unknown => return Err(Errno::INVAL),
                _ => {}
            }
            let mode = file_type.as_raw_mode() | (mode.bits() & 0o7777);
            let rdev = if is_device { rdev } else { 0 };
            self.task.make_at(at, bytes(path), &MknodArgs { mode, rdev, target: None })
        };
        make().on("mknodat", path)
    }

    /// Makes a symbolic link at `path` that holds `target`. (Linux has the target first.)
    ///
    /// # Errors
    /// As `symlinkat(2)`.
    pub fn symlinkat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        target: impl AsRef<StdPath>,
    ) -> Result<()> {
        let (target, path) = (bytes(target.as_ref()), path.as_ref());
        let make = || {
            if target.is_empty() {
                return Err(Errno::NOENT);
            }
            if target.len() >= PATH_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            if target.contains(&0) {
                return Err(Errno::INVAL);
            }
            let mode = FileType::Symlink.as_raw_mode() | 0o777;
            self.task.make_at(at, bytes(path), &MknodArgs { mode, rdev: 0, target: Some(target) })
        };
        make().on("symlinkat", path)
    }

    /// Adds a name to a file. `flags`: `SYMLINK_FOLLOW`, `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `linkat(2)`; the error names both paths.
    pub fn linkat(
        &self,
        old_at: At<'_>,
        old: impl AsRef<StdPath>,
        new_at: At<'_>,
        new: impl AsRef<StdPath>,
        flags: AtFlags,
    ) -> Result<()> {
        let (old, new) = (old.as_ref(), new.as_ref());
        let link = || {
            if !(AtFlags::SYMLINK_FOLLOW | AtFlags::EMPTY_PATH).contains(flags) {
                return Err(Errno::INVAL);
            }
            let lookup = lookup_flags(flags, false, AtFlags::SYMLINK_FOLLOW)?;
            let source = self.task.resolve(old_at, bytes(old), lookup)?;
            let base = self.task.base(new_at);
            let call = || {
                let guard = rcu::pin();
                self.task.walk(&base, bytes(new), Lookup::empty(), &guard, |walk| {
                    let looked_up = |_: &Walk<'_>, missed| missed;
                    let CreateTarget { dir, write } = target_for(walk, false, looked_up)?;
                    if !std::ptr::eq(dir.mount, source.mount()) {
                        return Err(Errno::XDEV.into());
                    }
                    may_link(source.dentry().inode(), walk.cred(), &guard)?;
                    may_create(walk, dir)?;
                    let inode = source.dentry().inode();
                    if inode.is_immutable_or_append() || inode.is_dir() {
                        return Err(Errno::PERM.into());
                    }
                    if dir.dentry.is_partial() {
                        return Err(defer_new(walk, dir, write));
                    }
                    link_inode(source.dentry(), dir.dentry, walk.name(), &guard)?;
                    drop(write);
                    Ok(())
                })
            };
            run_changes(call, |change| match change {
                DriverChange::Name(at, _write) => dir_ops::link(&source, &at),
                _ => Ok(None),
            })
        };
        let linked = self.task.with_space_at(new_at, bytes(new), Lookup::empty(), link);
        linked.between("linkat", old, new)
    }
}

impl Task {
    /// Runs a call that makes or changes the name at `path`, again if it fails for lack of space
    /// while freed space is about to become available. The caller holds nothing, and a failed call
    /// leaves no side effect.
    #[inline]
    pub(crate) fn with_space_at<T>(
        &self,
        at: At<'_>,
        path: &[u8],
        lookup: Lookup,
        call: impl Fn() -> Outcome<T>,
    ) -> Outcome<T> {
        match call() {
            Err(errno) if is_for_space(errno) => {
                again_for_space(|| self.reclaim_at(at, path, lookup), call)
            }
            other => other,
        }
    }

    /// Waits for space that is about to become available in the file system of the new `path`.
    /// Returns false if no space will.
    #[cold]
    pub(crate) fn reclaim_at(&self, at: At<'_>, path: &[u8], lookup: Lookup) -> Reclaimed {
        let place = || {
            let base = self.base(at);
            run_lookups(|| {
                let guard = rcu::pin();
                self.walk(&base, path, lookup, &guard, |walk| {
                    while let Last::Name(slash) = walk.walk_to_last()? {
                        match walk.child(walk.name())? {
                            Some(child)
                                if lookup.contains(Lookup::FOLLOW)
                                    && child.inode().is_symlink() =>
                            {
                                walk.follow_last(child, slash)?;
                            }
                            _ => break,
                        }
                    }
                    walk.keep(walk.cur())
                })
            })
        };
        place().map(|place| place.dentry().inode().sb().fs().reclaim()).unwrap_or_default()
    }

    fn make_at(&self, at: At<'_>, path: &[u8], what: &MknodArgs<'_>) -> Outcome<()> {
        self.with_space_at(at, path, Lookup::empty(), || self.try_make_at(at, path, what))
    }

    fn try_make_at(&self, at: At<'_>, path: &[u8], what: &MknodArgs<'_>) -> Outcome<()> {
        let is_dir = what.mode & 0o170000 == 0o040000;
        let base = self.base(at);
        let call = || {
            let guard = rcu::pin();
            self.walk(&base, path, Lookup::empty(), &guard, |walk| {
                let may_make = |walk: &Walk<'_>| {
                    may_create(walk, walk.cur())?;
                    Ok(check_device(what, walk.cred())?)
                };
                let unknown =
                    |walk: &Walk<'_>, missed| defer_unknown(walk, missed, || may_make(walk));
                let CreateTarget { dir, write } = target_for(walk, is_dir, unknown)?;
                may_make(walk)?;
                if dir.dentry.is_partial() {
                    return Err(defer_new(walk, dir, write));
                }
                make(dir.dentry, walk.name(), what, walk.cred(), self.mask(), &guard)?;
                drop(write);
                Ok(())
            })
        };
        run_changes(call, |change| match change {
            DriverChange::Name(at, _write) => Ok(make_backed(self, &at, what)?.map(drop)),
            _ => Ok(None),
        })
    }
}

/// Checks that `cred` may make a device node: it needs a privilege, except for the character device
/// 0, a whiteout of overlay file systems.
fn check_device(what: &MknodArgs<'_>, cred: &Credentials) -> Outcome<()> {
    let file_type = FileType::from_raw_mode(what.mode);
    let is_device = matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice);
    let is_whiteout = file_type == FileType::CharacterDevice && what.rdev == 0;
    if is_device && !is_whiteout && !cred.has(Capabilities::MKNOD) {
        Err(Errno::PERM)
    } else {
        Ok(())
    }
}

/// Checks that `cred` may add a name to `inode`. A caller that does not own the file may do so only
/// for a regular file without set-id bits that it may read and write (`fs.protected_hardlinks`, on
/// by default in Linux).
fn may_link(inode: &Inode, cred: &Credentials, guard: &Guard) -> Outcome<()> {
    if cred.owns(inode) {
        return Ok(());
    }
    let mode = inode.mode();
    let set_id = mode & 0o4000 != 0 || mode & 0o2010 == 0o2010;
    let plain = inode.is_file() && !set_id;
    let both = Access::READ | Access::WRITE;
    if plain && permission(inode, cred, both, guard).is_ok() { Ok(()) } else { Err(Errno::PERM) }
}

fn link_inode(source: &Dentry, dir: &Dentry, name: &Name<'_>, guard: &Guard) -> Outcome<()> {
    let inode = source.inode();
    let mut bucket = dir.lock_name(name.hash(), guard);
    if dir.inode().is_dead() {
        return Err(Errno::NOENT);
    }
    if bucket.find(name.hash(), |child| child.is_named(name, guard)).is_some() {
        return Err(Errno::EXIST);
    }
    inode.sb().accounting().link(inode, name.len())?;
    if let Err(errno) = inode.add_link() {
        inode.sb().accounting().unlinked(inode, name.len());
        return Err(errno);
    }
    inode.get();
    // SAFETY: the reference was just counted.
    let inode_ref = unsafe { InodeRef::from_raw(NonNull::from(inode)) };
    let dentry = insert(&mut bucket, dir, name, inode_ref);
    fsnotify::name_made(Place { dir, name: name.bytes() }, inode, guard);
    drop_outside(dentry, bucket);
    inode.touch_ctime();
    dir.inode().touch();
    Ok(())
}

/// Drops a reference after the lock, because dropping the last one may do work.
fn drop_outside(dentry: DentryRef, bucket: NameGuard<'_>) {
    drop(bucket);
    drop(dentry);
}

/// Makes a file of a backed driver. Returns a reference to its dentry, or `None` if the walk must
/// be repeated.
///
/// # Errors
/// The errors of the driver.
pub(crate) fn make_backed(
    task: &Task,
    at: &BackedName,
    what: &MknodArgs<'_>,
) -> Outcome<Option<DentryRef>> {
    let directories = at.dir_ops()?;
    let turn = at.lock();
    let birth = {
        let guard = rcu::pin();
        if !at.is_current(&guard) {
            return Ok(None);
        }
        NewInodeAttrs::new(at.dir_inode(), what.mode, task.cred(&guard), task.mask(), &guard)
    };
    let new = birth.inode(what, at.bytes().len());
    let inode = match directories.create(at.dir_inode(), at.bytes(), &new) {
        Ok(inode) => inode,
        Err(errno) if at.found().is_some() => return Err(errno),
        Err(errno) => {
            drop(turn);
            look_up(at.dir().dentry(), &at.name())?;
            // An existing name precedes all other errors. The repeated walk has the answer.
            let exists = errno == Errno::EXIST || at.exists(&rcu::pin());
            return if exists { Ok(None) } else { Err(errno) };
        }
    };
    let made = at.enter(inode);
    drop(turn);
    sync_names(at.dir_inode())?;
    Ok(Some(made))
}

/// Makes a file without a name of a backed driver, in `dir`.
///
/// # Errors
/// The errors of the driver; `ENOENT` if the directory was removed.
pub(crate) fn make_backed_unnamed(
    task: &Task,
    dir: &Path,
    mode: u32,
    linkable: bool,
) -> Outcome<DentryRef> {
    let inode = dir.dentry().inode();
    let what = MknodArgs { mode, rdev: 0, target: None };
    let birth = {
        let guard = rcu::pin();
        if inode.is_dead() {
            return Err(Errno::NOENT);
        }
        NewInodeAttrs::new(inode, mode, task.cred(&guard), task.mask(), &guard)
    };
    let new: NewInode<'_> = birth.inode(&what, 0);
    let directories = inode.sb().dir_ops().ok_or(Errno::ROFS)?;
    let made = directories.create_unnamed(inode, &new)?;
    if linkable {
        made.set_linkable();
    }
    Ok(Dentry::new_unnamed(dir.dentry(), made, &rcu::pin()))
}
