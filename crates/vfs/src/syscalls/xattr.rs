//! The calls on extended attributes and access control lists.
//!
//! Both are stored in the inode's extra part and are read under RCU. Access lists change together
//! with the mode, and a change of the data removes file capabilities, so these change under the
//! inode's lock. For other attributes it suffices that one thread at a time changes their set. The
//! set has its own lock (`xattrs`), so setting an attribute does not contend with writers of the
//! file. Memory is charged to the file system before it is allocated.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path as StdPath;

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};

use crate::base::error::{Named, Outcome, Result, check_fork};
use crate::base::types::{AtFlags, Capabilities, XattrFlags};
use crate::file::synchronous::sync_change;
use crate::namei::lookup::run_lookups;
use crate::namei::walk::{Fail, Lookup, Walk, WalkPos};
use crate::objects::fsnotify::queue::FileChange;
use crate::objects::inode::{Inode, InodeExtra};
use crate::objects::inode_xattrs::EXTRA_BYTES;
use crate::objects::permission::permission;
use crate::objects::setattr::{More, Plan};
use crate::objects::super_block::is_for_space;
use crate::objects::vfsmount::{Path, WriteAccess};
use crate::security::acl::{Acl, Inherited};
use crate::security::cred::Credentials;
use crate::security::xattr::{
    AclNames, XattrName, XattrNamespace, XattrOp, XattrSet, XattrSubject, xattr_permission,
};
use crate::syscalls::posix::Calls;
use crate::syscalls::with_inode::Done;
use crate::task::task_struct::{At, DirFd, Task, bytes, lookup_flags};

/// Charges the extra part of an inode, unless it is charged. The caller holds a reference, or is
/// changing attributes.
fn charge_extra(inode: &Inode, extra: &InodeExtra) -> Outcome<()> {
    if !extra.is_charged() {
        inode.sb().accounting().charge(EXTRA_BYTES)?;
        if !extra.set_charged() {
            // Another thread set the first attribute concurrently, and its charge counts.
            inode.sb().accounting().uncharge(EXTRA_BYTES);
        }
    }
    Ok(())
}

/// Charges growth before the attributes grow.
fn charge(inode: &Inode, delta: i64) -> Outcome<()> {
    if delta > 0 { inode.sb().accounting().charge(delta as u64) } else { Ok(()) }
}

/// Uncharges shrinkage after the attributes shrank.
fn uncharge(inode: &Inode, delta: i64) {
    if delta < 0 {
        inode.sb().accounting().uncharge(delta.unsigned_abs());
    }
}

/// Sets the inherited lists of a new file.
pub(crate) fn set_inherited_acls(
    inode: &Inode,
    inherited: Inherited,
    guard: &Guard,
) -> Outcome<()> {
    replace_acl(inode, false, inherited.access, guard)?;
    replace_acl(inode, true, inherited.default, guard)
}

fn replace_acl(inode: &Inode, is_default: bool, acl: Option<Acl>, guard: &Guard) -> Outcome<()> {
    if acl.is_none() && inode.extra(guard).is_none() {
        return Ok(());
    }
    let extra = inode.extra_or_init(guard);
    charge_extra(inode, extra)?;
    let slot = if is_default { &extra.acl_default } else { &extra.acl_access };
    let bytes = |acl: Option<&Acl>| acl.map_or(0, Acl::bytes) as i64;
    let delta = bytes(acl.as_ref()) - bytes(slot.read(guard));
    charge(inode, delta)?;
    if is_default && acl.is_some() {
        inode.note_acl_default();
    }
    slot.replace(acl, guard);
    uncharge(inode, delta);
    Ok(())
}

impl Calls<'_> {
    /// Returns the value of an extended attribute. `flags`: `SYMLINK_NOFOLLOW`, `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `getxattr(2)`.
    pub fn getxattrat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        name: impl AsRef<OsStr>,
        flags: AtFlags,
    ) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let get = || {
            let name = checked(flags, name.as_ref())?;
            self.task
                .with_inode(at, path, flags, |inode, cred, guard| get(inode, name, cred, guard))
        };
        get().on("getxattr", path)
    }

    /// Sets an extended attribute. `flags`: `SYMLINK_NOFOLLOW`, `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `setxattr(2)`.
    pub fn setxattrat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        how: XattrFlags,
        flags: AtFlags,
    ) -> Result<()> {
        let path = path.as_ref();
        let set = || {
            if !(XattrFlags::CREATE | XattrFlags::REPLACE).contains(how) {
                return Err(Errno::INVAL);
            }
            let name = checked(flags, name.as_ref())?;
            if value.len() > crate::security::xattr::XATTR_VALUE_BYTES_MAX {
                return Err(Errno::TOOBIG);
            }
            self.task.with_inode_writable(
                at,
                path,
                flags,
                needs_lock(name),
                |inode, cred, guard, held| set(inode, (name, value), how, cred, guard, held),
                |inode, cred, guard| plan_set(inode, name, value, how, cred, guard),
            )
        };
        set().on("setxattr", path)
    }

    /// Returns the names of the extended attributes that the task may see. `flags`:
    /// `SYMLINK_NOFOLLOW`, `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `listxattr(2)`.
    pub fn listxattrat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        flags: AtFlags,
    ) -> Result<Vec<OsString>> {
        let path = path.as_ref();
        let list = || self.task.with_inode(at, path, flags, list);
        list().on("listxattr", path)
    }

    /// Removes an extended attribute. `flags`: `SYMLINK_NOFOLLOW`, `EMPTY_PATH`.
    ///
    /// # Errors
    /// As `removexattr(2)`.
    pub fn removexattrat(
        &self,
        at: At<'_>,
        path: impl AsRef<StdPath>,
        name: impl AsRef<OsStr>,
        flags: AtFlags,
    ) -> Result<()> {
        let path = path.as_ref();
        let remove = || {
            let name = checked(flags, name.as_ref())?;
            self.task.with_inode_writable(
                at,
                path,
                flags,
                needs_lock(name),
                |inode, cred, guard, _| remove(inode, name, cred, guard),
                |inode, cred, guard| plan_removal(inode, name, cred, guard),
            )
        };
        remove().on("removexattr", path)
    }
}

impl Task {
    /// Resolves the file of a call. A descriptor without a path must not be `O_PATH`, as in Linux;
    /// a handle may be, because it has no path through `/proc/self/fd`.
    fn xattr_place(&self, at: At<'_>, path: &StdPath, flags: AtFlags) -> Outcome<Path> {
        check_fork()?;
        let lookup = xattr_lookup(flags)?;
        if bytes(path).is_empty() && lookup.contains(Lookup::EMPTY) && matches!(at, At::Fd(_)) {
            return match self.base(at) {
                DirFd::File(file) if !file.is_path() => Ok(file.path().clone()),
                _ => Err(Errno::BADF),
            };
        }
        self.resolve(at, bytes(path), lookup)
    }

    fn with_inode<T>(
        &self,
        at: At<'_>,
        path: &StdPath,
        flags: AtFlags,
        body: impl Fn(&Inode, &Credentials, &Guard) -> Outcome<T>,
    ) -> Outcome<T> {
        if bytes(path).is_empty() && flags.contains(AtFlags::EMPTY_PATH) {
            let place = self.xattr_place(at, path, flags)?;
            let guard = rcu::pin();
            return body(place.dentry().inode(), self.cred(&guard), &guard);
        }
        let lookup = xattr_lookup(flags)?;
        let base = self.base(at);
        // The attributes stay for the RCU section, so no reference is taken.
        run_lookups(|| {
            let guard = rcu::pin();
            self.walk(&base, bytes(path), lookup, &guard, |walk| {
                let pos = walk.lookup()?;
                let found = body(pos.inode(), walk.cred(), walk.guard());
                walk.validate(pos)?;
                Ok(found?)
            })
        })
    }

    /// Applies `body` to an inode, with its lock held if `locks`; for a backed driver applies the
    /// result of `plan`.
    ///
    /// A change without a lock needs no reference either: `body` first runs in the RCU section of
    /// the walk, and returns whether it could make the change there.
    fn with_inode_writable<'a>(
        &self,
        at: At<'_>,
        path: &StdPath,
        flags: AtFlags,
        locks: bool,
        body: impl Fn(&Inode, &Credentials, &Guard, RefHeld) -> Outcome<Done>,
        plan: impl Fn(&Inode, &Credentials, &Guard) -> Outcome<Option<Plan<'a>>>,
    ) -> Outcome<()> {
        let by_reference = |inode: &Inode| {
            inode.sb().with_space(|| {
                if inode.is_backed() {
                    let _locked = inode.lock();
                    let plan = {
                        let guard = rcu::pin();
                        plan(inode, self.cred(&guard), &guard)?
                    };
                    return plan.map_or(Ok(()), |mut plan| plan.store(inode));
                }
                let _locked = locks.then(|| inode.lock());
                let guard = rcu::pin();
                body(inode, self.cred(&guard), &guard, RefHeld::Yes).map(drop)
            })?;
            sync_change(inode)
        };
        if bytes(path).is_empty() && flags.contains(AtFlags::EMPTY_PATH) {
            let place = self.xattr_place(at, path, flags)?;
            let _write = WriteAccess::new(place.mount())?;
            return by_reference(place.dentry().inode());
        }
        let in_section = |walk: &Walk<'_>, pos: WalkPos<'_>| {
            walk.validate(pos)?;
            if locks {
                return Ok(Done::No);
            }
            match body(pos.inode(), walk.cred(), walk.guard(), RefHeld::No) {
                // Waiting for space means waiting for the end of RCU sections such as this one.
                Err(errno) if is_for_space(errno) => Ok(Done::No),
                other => other.map_err(Fail::from),
            }
        };
        self.change_inode(
            (at, path, xattr_lookup(flags)?),
            &FileChange::Attributes,
            |walk, pos| walk.want_write(pos),
            in_section,
            by_reference,
        )
    }
}

/// Marks whether the caller of a change holds a reference to the inode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RefHeld {
    Yes,
    No,
}

/// Checks the flags, whose errors take precedence, and then the name.
fn checked(flags: AtFlags, name: &OsStr) -> Outcome<XattrName<'_>> {
    xattr_lookup(flags)?;
    XattrName::new(name.as_bytes())
}

/// Returns whether an attribute depends on the mode or the data, so its change needs the inode's
/// lock.
fn needs_lock(name: XattrName<'_>) -> bool {
    is_default_acl(name).is_some() || name == XattrName::CAPABILITY
}

fn xattr_lookup(flags: AtFlags) -> Outcome<Lookup> {
    lookup_flags(flags, true, AtFlags::SYMLINK_NOFOLLOW)
}

fn allow(
    inode: &Inode,
    name: XattrName<'_>,
    op: XattrOp<'_>,
    cred: &Credentials,
    guard: &Guard,
) -> Outcome<()> {
    // The rules read only the file type in `mode`, not the permission bits.
    let mode = inode.kind_bits();
    let subject = XattrSubject { mode, owner: cred.owns(inode), caps: cred.caps };
    if op != XattrOp::Get && inode.is_immutable_or_append() {
        if name == XattrName::CAPABILITY {
            // Their form is checked before the flags of the inode.
            xattr_permission(name, op, &subject)?;
        }
        return Err(Errno::PERM);
    }
    let also = xattr_permission(name, op, &subject)?;
    if also.is_empty() { Ok(()) } else { permission(inode, cred, also, guard) }
}

fn get(inode: &Inode, name: XattrName<'_>, cred: &Credentials, guard: &Guard) -> Outcome<Vec<u8>> {
    allow(inode, name, XattrOp::Get, cred, guard)?;
    let extra = inode.extra(guard);
    let acl = match name.namespace() {
        XattrNamespace::AclAccess => extra.and_then(|extra| extra.acl_access.read(guard)),
        XattrNamespace::AclDefault => extra.and_then(|extra| extra.acl_default.read(guard)),
        _ => {
            name.supported()?;
            let set = extra.and_then(|extra| extra.xattrs(guard)).ok_or(Errno::NODATA)?;
            return set.get(name).map(<[u8]>::to_vec);
        }
    };
    Ok(acl.ok_or(Errno::NODATA)?.to_xattr())
}

fn set(
    inode: &Inode,
    (name, value): (XattrName<'_>, &[u8]),
    how: XattrFlags,
    cred: &Credentials,
    guard: &Guard,
    held: RefHeld,
) -> Outcome<Done> {
    match name.namespace() {
        XattrNamespace::AclAccess => return set_acl(inode, name, false, value, cred, guard),
        XattrNamespace::AclDefault => return set_acl(inode, name, true, value, cred, guard),
        _ => allow(inode, name, XattrOp::Set(value), cred, guard)?,
    }
    name.supported()?;
    if has_value(inode, name, value, how, guard)? {
        inode.touch_ctime();
        return Ok(Done::Yes);
    }
    let extra = inode.extra_or_init(guard);
    if held == RefHeld::No && inode.may_be_evicted() {
        return Ok(Done::No);
    }
    let changed = extra.change_xattrs(guard, |set| {
        charge_extra(inode, extra)?;
        let delta = set.set_cost(name, value, how)?;
        charge(inode, delta)?;
        inode.note_xattr(name);
        set.set(name, value, how)?;
        uncharge(inode, delta);
        Ok(())
    })?;
    if changed.is_none() {
        return Ok(Done::No);
    }
    inode.touch_ctime();
    Ok(Done::Yes)
}

/// Checks that an attribute may be set, and returns whether it already has that value. Takes no
/// lock, because readers see a consistent snapshot of all attributes.
fn has_value(
    inode: &Inode,
    name: XattrName<'_>,
    value: &[u8],
    how: XattrFlags,
    guard: &Guard,
) -> Outcome<bool> {
    let set = inode.extra(guard).and_then(|extra| extra.xattrs(guard)).unwrap_or(&NONE);
    set.set_cost(name, value, how)?;
    Ok(set.get(name).is_ok_and(|old| old == value))
}

/// Sets an access or default list. An access list that the mode can express becomes part of the
/// mode.
fn set_acl(
    inode: &Inode,
    name: XattrName<'_>,
    is_default: bool,
    value: &[u8],
    cred: &Credentials,
    guard: &Guard,
) -> Outcome<Done> {
    let acl = acl_to_set(inode, name, value, cred, guard)?;
    apply_acl(inode, is_default, acl, cred, guard)
}

/// Returns the list to set, if the caller may set it; `None` removes.
fn acl_to_set(
    inode: &Inode,
    name: XattrName<'_>,
    value: &[u8],
    cred: &Credentials,
    guard: &Guard,
) -> Outcome<Option<Acl>> {
    let unchecked = crate::security::acl::UncheckedAcl::from_xattr(value)?;
    allow(inode, name, XattrOp::Set(value), cred, guard)?;
    unchecked.map(crate::security::acl::UncheckedAcl::validate).transpose()
}

/// Plans setting an attribute that a driver stores; `None` if nothing changes.
fn plan_set<'a>(
    inode: &Inode,
    name: XattrName<'a>,
    value: &'a [u8],
    how: XattrFlags,
    cred: &Credentials,
    guard: &Guard,
) -> Outcome<Option<Plan<'a>>> {
    if let Some(is_default) = is_default_acl(name) {
        let acl = acl_to_set(inode, name, value, cred, guard)?;
        return plan_acl(inode, is_default, acl, cred);
    }
    allow(inode, name, XattrOp::Set(value), cred, guard)?;
    name.supported()?;
    // Checks the flags.
    has_value(inode, name, value, how, guard)?;
    Ok(Some(Plan::of(More { xattr: Some((name, Some(value))), ..More::default() })))
}

/// Plans removing an attribute that a driver stores; `None` if nothing changes.
fn plan_removal<'a>(
    inode: &Inode,
    name: XattrName<'a>,
    cred: &Credentials,
    guard: &Guard,
) -> Outcome<Option<Plan<'a>>> {
    allow(inode, name, XattrOp::Remove, cred, guard)?;
    if let Some(is_default) = is_default_acl(name) {
        return plan_acl(inode, is_default, None, cred);
    }
    name.supported()?;
    let set = inode.extra(guard).and_then(|extra| extra.xattrs(guard));
    set.ok_or(Errno::NODATA)?.get(name)?;
    Ok(Some(Plan::of(More { xattr: Some((name, None)), ..More::default() })))
}

/// Returns whether a name is that of the default list, or `None` if it is no access control list.
fn is_default_acl(name: XattrName<'_>) -> Option<bool> {
    match name.namespace() {
        XattrNamespace::AclAccess => Some(false),
        XattrNamespace::AclDefault => Some(true),
        _ => None,
    }
}

/// Plans setting or removing a list. An access list that the mode can express becomes part of the
/// mode. A default list is for directories only; removing it from other files changes nothing.
fn plan_acl(
    inode: &Inode,
    is_default: bool,
    acl: Option<Acl>,
    cred: &Credentials,
) -> Outcome<Option<Plan<'static>>> {
    if is_default && !inode.is_dir() {
        return if acl.is_some() { Err(Errno::ACCESS) } else { Ok(None) };
    }
    if is_default {
        return Ok(Some(Plan::of(More { default: Some(acl), ..More::default() })));
    }
    let (mode, kept) = access_list(inode, acl, cred);
    let more = More { access: Some(kept), ..More::default() };
    Ok(Some(Plan { mode: Some(mode), ..Plan::of(more) }))
}

/// Returns the new mode, and the access list if the mode cannot express it.
fn access_list(inode: &Inode, acl: Option<Acl>, cred: &Credentials) -> (u32, Option<Acl>) {
    let mut mode = inode.mode();
    let mut kept = None;
    if let Some(acl) = acl {
        let equivalent = acl.equiv_mode(mode);
        mode = equivalent.mode;
        kept = equivalent.needs_acl.then_some(acl);
    }
    if !cred.in_group(inode.gid()) && !cred.has(Capabilities::FSETID) {
        mode &= !0o2000;
    }
    (mode, kept)
}

fn apply_acl(
    inode: &Inode,
    is_default: bool,
    acl: Option<Acl>,
    cred: &Credentials,
    guard: &Guard,
) -> Outcome<Done> {
    if is_default {
        if !inode.is_dir() {
            return if acl.is_some() { Err(Errno::ACCESS) } else { Ok(Done::Yes) };
        }
        replace_acl(inode, true, acl, guard)?;
    } else {
        let (mode, kept) = access_list(inode, acl, cred);
        replace_acl(inode, false, kept, guard)?;
        inode.set_mode(mode);
    }
    inode.touch_ctime();
    Ok(Done::Yes)
}

/// The attributes of an inode that never had any.
static NONE: XattrSet = XattrSet::new();

fn list(inode: &Inode, cred: &Credentials, guard: &Guard) -> Outcome<Vec<OsString>> {
    let Some(extra) = inode.extra(guard) else { return Ok(Vec::new()) };
    let acls =
        AclNames { access: !extra.acl_access.is_none(), default: !extra.acl_default.is_none() };
    let packed = extra.xattrs(guard).unwrap_or(&NONE).list(acls, cred.caps)?;
    let names = packed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
}

fn remove(inode: &Inode, name: XattrName<'_>, cred: &Credentials, guard: &Guard) -> Outcome<Done> {
    allow(inode, name, XattrOp::Remove, cred, guard)?;
    match name.namespace() {
        XattrNamespace::AclAccess => return apply_acl(inode, false, None, cred, guard),
        XattrNamespace::AclDefault => return apply_acl(inode, true, None, cred, guard),
        _ => {}
    }
    name.supported()?;
    let extra = inode.extra(guard).ok_or(Errno::NODATA)?;
    let Some(freed) = extra.change_xattrs(guard, |set| set.remove(name))? else {
        return Ok(Done::No);
    };
    inode.sb().accounting().uncharge(freed);
    inode.touch_ctime();
    Ok(Done::Yes)
}
