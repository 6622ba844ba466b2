//! Path walks.
//!
//! # Two kinds of walks
//!
//! A walk first runs under RCU. It reads children tables, names, inodes and mounts without writing
//! to shared memory, and remembers the sequence counts of the current dentry and of the mount tree.
//! Each step finds the child, reads it, and then checks that the parent directory was neither moved
//! nor removed before the read ended. If a check fails, the walk starts again. After a few attempts
//! it becomes a reference walk, which holds a reference to every directory it passes and looks
//! names up under their bucket lock, so renames cannot prevent it from reaching the end.
//!
//! The result of a walk is valid for the rest of the RCU section (memory stays). [`Walk::keep`]
//! takes references, and checks once more, to use it beyond.
//!
//! The walk follows `openat2(2)` and `path_resolution(7)`.

use bitflags::bitflags;
use rustix::io::Errno;
use vfscale_sync::rcu::Guard;

use crate::base::error::Stop;
use crate::base::types::{Access, MountFlags, ResolveFlags};
use crate::mount::vfs_shared::VfsShared;
use crate::namei::dir_ops::BackedName;
use crate::namei::lookup::{Deferred, DriverChange, DriverLookup, WalkStop};
use crate::objects::dcache::climb::Climb;
use crate::objects::dcache::dentry::Dentry;
use crate::objects::dcache::name::NAME_MAX;
use crate::objects::dcache::name::{self, Name};
use crate::objects::inode::Inode;
use crate::objects::permission::permission;
use crate::objects::vfsmount::{Mount, MountRef, Path, PathRef, WriteAccess};
use crate::security::cred::Credentials;

/// The longest path in bytes, with the closing NUL that the library does not have.
pub const PATH_MAX: usize = 4096;

/// The most symbolic links one walk follows.
pub const SYMLINKS_MAX: u32 = 40;

/// RCU walks that may fail before a reference walk begins.
const RCU_ATTEMPTS: u32 = 3;

bitflags! {
    /// The flags of a walk.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Lookup: u32 {
        /// Follow a symbolic link at the end.
        const FOLLOW = 1;
        /// The end must be a directory.
        const DIRECTORY = 2;
        /// The empty path denotes the start itself.
        const EMPTY = 4;
        const NO_XDEV = 8;
        const NO_SYMLINKS = 16;
        const BENEATH = 32;
        const IN_ROOT = 64;
        /// Only names in the dcache; the walk defers no lookup to a driver.
        const CACHED = 128;
    }
}

impl Lookup {
    pub(crate) fn resolve(flags: ResolveFlags) -> Lookup {
        let mut lookup = Lookup::empty();
        lookup.set(Lookup::NO_XDEV, flags.contains(ResolveFlags::NO_XDEV));
        lookup.set(Lookup::NO_SYMLINKS, flags.contains(ResolveFlags::NO_SYMLINKS));
        lookup.set(Lookup::BENEATH, flags.contains(ResolveFlags::BENEATH));
        lookup.set(Lookup::IN_ROOT, flags.contains(ResolveFlags::IN_ROOT));
        lookup.set(Lookup::CACHED, flags.contains(ResolveFlags::CACHED));
        lookup
    }

    /// The flags of a scoped walk, which must not leave its start.
    pub(crate) const SCOPED: Lookup = Lookup::BENEATH.union(Lookup::IN_ROOT);
}

/// The mark of a walk that a change invalidated and that must start again.
pub(crate) struct Retry;

/// The reason why a walk stopped.
pub(crate) enum Fail {
    /// A change invalidated the walk, which must start again.
    Retry,
    Errno(Errno),
    /// The call must first do deferred work, with nothing held.
    Deferred(Box<Deferred>),
}

impl From<Errno> for Fail {
    fn from(errno: Errno) -> Fail {
        Fail::Errno(errno)
    }
}

impl From<Retry> for Fail {
    #[inline]
    fn from(_: Retry) -> Fail {
        Fail::Retry
    }
}

impl From<WalkStop> for Fail {
    fn from(stop: WalkStop) -> Fail {
        match stop {
            Stop::Errno(errno) => Fail::Errno(errno),
            Stop::Deferred(deferred) => Fail::Deferred(deferred),
        }
    }
}

impl From<DriverChange> for Fail {
    #[cold]
    fn from(change: DriverChange) -> Fail {
        Fail::Deferred(Box::new(Deferred::Change(change)))
    }
}

/// A path (mount and dentry), seen under RCU. Counterpart of the current `path` in
/// `struct nameidata`.
#[derive(Clone, Copy)]
pub(crate) struct WalkPos<'g> {
    pub(crate) mount: &'g Mount,
    pub(crate) dentry: &'g Dentry,
    /// The dentry's sequence count for which the path was valid.
    pub(crate) seq: u32,
}

impl<'g> WalkPos<'g> {
    fn of(spot: PathRef<'g>) -> WalkPos<'g> {
        WalkPos { mount: spot.mount, dentry: spot.dentry, seq: spot.dentry.seq().begin() }
    }

    #[inline]
    pub(crate) fn inode(&self) -> &'g Inode {
        self.dentry.inode()
    }

    /// Returns whether the dentry was moved or removed since.
    #[inline]
    pub(crate) fn is_stale(&self) -> bool {
        self.dentry.seq().retry(self.seq)
    }
}

/// The last component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// A name, and whether slashes follow it.
    Name(bool),
    Dot,
    DotDot,
    /// No component: the path was `/` or ended at the start.
    Root,
}

/// The start of a walk.
#[derive(Clone, Copy)]
pub(crate) struct Start<'g> {
    pub(crate) ns: &'g VfsShared,
    pub(crate) cred: &'g Credentials,
    pub(crate) root: PathRef<'g>,
    pub(crate) base: PathRef<'g>,
    pub(crate) flags: Lookup,
}

/// A walk in progress. Counterpart of `struct nameidata` in Linux.
pub(crate) struct Walk<'g> {
    start: Start<'g>,
    guard: &'g Guard,
    /// The directory of `/`, which `..` does not leave.
    root: PathRef<'g>,
    cur: WalkPos<'g>,
    /// The last component that [`walk_to_last`](Self::walk_to_last) has reached.
    last: Last,
    /// The last component, if it is a name. Callers borrow it, because copying data that was stored
    /// just before takes longer than reading parts of it.
    name: Name<'g>,
    /// The rest of the innermost symbolic link, or of the path itself.
    text: &'g [u8],
    /// The rests of the enclosing links and of the path, the innermost last.
    outer: Vec<&'g [u8]>,
    mount_seq: u32,
    links: u32,
    /// Whether Linux would have looked up the root already, which it does when it first needs it.
    root_known: bool,
    /// In a reference walk: the references to `cur`.
    held: Option<Path>,
    by_ref: bool,
}

/// The result of a lookup, in parts: a `Result` of an `Option` of a [`WalkPos`] stores its tags in
/// the niche of a pointer, and compilers copy it in pieces, which takes longer than the lookup.
struct Child<'g> {
    fail: Option<Fail>,
    dentry: Option<&'g Dentry>,
    mount: &'g Mount,
    seq: u32,
}

/// Runs `body` on a walk over `path`, repeatedly until no change invalidates it.
///
/// `start` returns the start of each attempt: another thread of the task may have changed the
/// working directory, and the old one may be removed. `body` may run several times; it must leave
/// no side effect when it fails with [`Fail::Retry`].
#[inline]
pub(crate) fn walk<'g, T>(
    start: impl Fn() -> Start<'g>,
    path: &'g [u8],
    guard: &'g Guard,
    mut body: impl FnMut(&mut Walk<'g>) -> Result<T, Fail>,
) -> Result<T, WalkStop> {
    if path.len() >= PATH_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    if name::has_nul(path) {
        return Err(Errno::INVAL.into());
    }
    let mut attempts = 0;
    loop {
        let start = start();
        if path.is_empty() && !start.flags.contains(Lookup::EMPTY) {
            return Err(Errno::NOENT.into());
        }
        let mut walk = Walk::new(start, path, guard, attempts >= RCU_ATTEMPTS);
        walk.begin(path)?;
        if walk.hold().is_ok() {
            match body(&mut walk) {
                Ok(value) => return Ok(value),
                Err(Fail::Errno(errno)) => return Err(Stop::Errno(errno)),
                Err(Fail::Deferred(deferred)) => return Err(Stop::Deferred(deferred)),
                Err(Fail::Retry) => {}
            }
        }
        attempts += 1;
        drop(walk);
        if attempts > RCU_ATTEMPTS {
            vfscale_sync::atomic::thread::yield_now();
        }
    }
}

impl<'g> Walk<'g> {
    /// Creates a walk; separate from [`begin`](Self::begin), so the value is constructed in place.
    #[inline]
    fn new(start: Start<'g>, path: &'g [u8], guard: &'g Guard, by_ref: bool) -> Walk<'g> {
        let mount_seq = start.ns.seq().begin();
        let scoped = start.flags.intersects(Lookup::SCOPED);
        let root = if scoped { start.base } else { start.root };
        let from = if path.first() == Some(&b'/') { root } else { start.base };
        Walk {
            start,
            guard,
            root,
            cur: WalkPos::of(from),
            last: Last::Root,
            name: Name::EMPTY,
            text: name::skip_slashes(path),
            outer: Vec::new(),
            mount_seq,
            links: 0,
            root_known: scoped || path.first() == Some(&b'/'),
            held: None,
            by_ref,
        }
    }

    /// Checks the start.
    #[inline]
    fn begin(&self, path: &[u8]) -> Result<(), Errno> {
        if path.first() == Some(&b'/') {
            if self.start.flags.contains(Lookup::BENEATH) {
                return Err(Errno::XDEV);
            }
            if !self.cur.inode().is_dir() {
                return Err(Errno::NOTDIR);
            }
        }
        Ok(())
    }

    pub(crate) fn guard(&self) -> &'g Guard {
        self.guard
    }

    pub(crate) fn cred(&self) -> &'g Credentials {
        self.start.cred
    }

    /// Returns the last component, after [`walk_to_last`](Self::walk_to_last) has found a name.
    #[inline]
    pub(crate) fn name(&self) -> &Name<'g> {
        &self.name
    }

    /// Returns the current path of the walk.
    pub(crate) fn cur(&self) -> WalkPos<'g> {
        self.cur
    }

    /// Takes references to the current path, in a reference walk.
    #[inline]
    fn hold(&mut self) -> Result<(), Retry> {
        if self.by_ref { self.hold_cur() } else { Ok(()) }
    }

    #[cold]
    fn hold_cur(&mut self) -> Result<(), Retry> {
        let dentry = self.cur.dentry.try_ref(self.guard).ok_or(Retry)?;
        self.held = Some(Path::new(self.hold_mount(self.cur.mount)?, dentry));
        Ok(())
    }

    /// Counts a use of a mount that was found under RCU.
    #[inline]
    pub(crate) fn hold_mount(&self, mount: &'g Mount) -> Result<MountRef, Retry> {
        let held = MountRef::try_new(mount).ok_or(Retry)?;
        vfscale_sync::atomic::fence_after_rmw();
        if self.start.ns.seq().retry(self.mount_seq) { Err(Retry) } else { Ok(held) }
    }

    /// Announces a write at `pos`, for at most the RCU section. The walk must start again if the
    /// mount tree has changed since it found the mount.
    #[inline]
    pub(crate) fn want_write(&self, pos: WalkPos<'g>) -> Result<WriteAccess<'g>, Fail> {
        let write = WriteAccess::in_section(pos.mount, self.guard);
        if self.start.ns.seq().retry(self.mount_seq) {
            return Err(Fail::Retry);
        }
        Ok(write?)
    }

    /// Takes references to a path, for use beyond the RCU section.
    #[inline]
    pub(crate) fn keep(&self, pos: WalkPos<'g>) -> Result<Path, Fail> {
        let mount = self.hold_mount(pos.mount)?;
        let dentry = pos.dentry.try_ref(self.guard).ok_or(Fail::Retry)?;
        if pos.is_stale() {
            return Err(Fail::Retry);
        }
        Ok(Path::new(mount, dentry))
    }

    /// Checks that `pos` was valid during all reads of it.
    #[inline]
    pub(crate) fn validate(&self, pos: WalkPos<'g>) -> Result<(), Retry> {
        if pos.is_stale() || self.start.ns.seq().retry(self.mount_seq) {
            return Err(Retry);
        }
        Ok(())
    }

    /// Walks to the end.
    #[inline]
    pub(crate) fn lookup(&mut self) -> Result<WalkPos<'g>, Fail> {
        self.walk_to_end()?;
        Ok(self.cur)
    }

    fn walk_to_end(&mut self) -> Result<(), Fail> {
        let follow = self.start.flags.contains(Lookup::FOLLOW);
        loop {
            self.advance_to_last()?;
            match self.last {
                Last::Root | Last::Dot => break,
                Last::DotDot => self.up()?,
                Last::Name(slash) => {
                    let WalkPos { mount, dentry, seq } =
                        self.existing_child(self.cur, &self.name)?;
                    if dentry.inode().is_symlink() && (follow || slash) {
                        self.follow_last(WalkPos { mount, dentry, seq }, slash)?;
                        continue;
                    }
                    if slash && !dentry.inode().is_dir() {
                        return Err(Fail::Errno(Errno::NOTDIR));
                    }
                    self.go(WalkPos { mount, dentry, seq })?;
                }
            }
            break;
        }
        if self.start.flags.contains(Lookup::DIRECTORY) && !self.cur.inode().is_dir() {
            return Err(Fail::Errno(Errno::NOTDIR));
        }
        Ok(())
    }

    /// Walks up to the last component, and returns it. `cur` is then the directory of that
    /// component, and may be searched.
    #[inline]
    pub(crate) fn walk_to_last(&mut self) -> Result<Last, Fail> {
        self.advance_to_last()?;
        Ok(self.last)
    }

    fn advance_to_last(&mut self) -> Result<(), Fail> {
        // A copy of `self.cur` in registers: each step depends on the result of the one before, and
        // would wait longer for it through memory. Paths are split into parts for the same reason.
        let (mount, dentry, seq) = (self.cur.mount, self.cur.dentry, self.cur.seq);
        let mut cur = WalkPos { mount, dentry, seq };
        loop {
            if self.text.is_empty() && !self.next_text() {
                self.last = Last::Root;
                return Ok(());
            }
            let after = self.name.split_off(self.text);
            self.text = name::skip_slashes(after);
            let mut slash = !after.is_empty();
            let mut is_last = self.text.is_empty();
            if is_last && !self.outer.is_empty() {
                (slash, is_last) = self.end_of_link(slash);
            }
            self.may_search(cur)?;
            let dots = self.name.is_dots();
            if is_last {
                self.last = match self.name.len() {
                    1 if dots => Last::Dot,
                    2 if dots => Last::DotDot,
                    _ => Last::Name(slash),
                };
                return Ok(());
            }
            if !dots {
                let WalkPos { mount, dentry, seq } = self.existing_child(cur, &self.name)?;
                if dentry.inode().is_symlink() {
                    self.follow(WalkPos { mount, dentry, seq })?;
                    cur = self.cur;
                } else {
                    cur = WalkPos { mount, dentry, seq };
                    self.go(cur)?;
                }
            } else if self.name.len() == 2 {
                self.up()?;
                cur = self.cur;
            }
        }
    }

    /// Continues with the rest around the link that ended. Returns false if nothing is left.
    #[cold]
    fn next_text(&mut self) -> bool {
        while self.text.is_empty() {
            match self.outer.pop() {
                Some(text) => self.text = name::skip_slashes(text),
                None => return false,
            }
        }
        true
    }

    /// Returns, for the last name of a link, whether slashes follow (slashes after the link count),
    /// and whether it is the last name of the path.
    #[cold]
    fn end_of_link(&mut self, slash: bool) -> (bool, bool) {
        let is_last = self.outer.iter().all(|text| name::skip_slashes(text).is_empty());
        let outer_slash = is_last && self.outer.iter().any(|text| !text.is_empty());
        if is_last {
            self.outer.clear();
        }
        (slash || outer_slash, is_last)
    }

    #[inline]
    fn may_search(&self, dir: WalkPos<'g>) -> Result<(), Errno> {
        let inode = dir.inode();
        if !inode.is_dir() {
            return Err(Errno::NOTDIR);
        }
        permission(inode, self.start.cred, Access::EXEC, self.guard)
    }

    #[inline]
    pub(crate) fn go(&mut self, child: WalkPos<'g>) -> Result<(), Retry> {
        self.cur = child;
        self.hold()
    }

    /// Looks up a name in `cur`, and crosses mounts on it; `None` if there is no such name.
    #[inline]
    pub(crate) fn child(&self, name: &Name<'_>) -> Result<Option<WalkPos<'g>>, Fail> {
        let Child { fail, dentry, mount, seq } = self.look_up(self.cur, name);
        match (fail, dentry) {
            (Some(fail), _) => Err(fail),
            (None, Some(dentry)) => Ok(Some(WalkPos { mount, dentry, seq })),
            (None, None) => Ok(None),
        }
    }

    /// Looks up a name, as [`child`](Self::child), but fails with `ENOENT` if there is no such
    /// name. `cur` is the current path.
    #[inline(always)]
    fn existing_child(&self, cur: WalkPos<'g>, name: &Name<'_>) -> Result<WalkPos<'g>, Fail> {
        let Child { fail, dentry, mount, seq } = self.look_up(cur, name);
        match (fail, dentry) {
            (Some(fail), _) => Err(fail),
            (None, Some(dentry)) => Ok(WalkPos { mount, dentry, seq }),
            (None, None) => Err(Fail::Errno(Errno::NOENT)),
        }
    }

    /// Looks up a name, and returns the result in parts. `cur` is the current path.
    #[inline(always)]
    fn look_up(&self, cur: WalkPos<'g>, name: &Name<'_>) -> Child<'g> {
        let mount = cur.mount;
        let found = if self.by_ref {
            self.find_locked(cur.dentry, name)
        } else {
            let found = cur.dentry.find(name, self.guard);
            // The answer was read from this directory if the directory was not moved.
            if cur.is_stale() {
                return Child { fail: Some(Fail::Retry), dentry: None, mount, seq: 0 };
            }
            found
        };
        let Some((dentry, seq)) = found else {
            let fail = check_length(cur.inode(), name.len()).err().map(Fail::Errno);
            let fail = match fail {
                None if cur.dentry.is_partial() => Some(self.miss(self.cur, name)),
                other => other,
            };
            return Child { fail, dentry: None, mount, seq: 0 };
        };
        if dentry.is_special() {
            return match self.special(WalkPos { mount, dentry, seq }, name) {
                Ok(Some(WalkPos { mount, dentry, seq })) => {
                    Child { fail: None, dentry: Some(dentry), mount, seq }
                }
                Ok(None) => Child { fail: None, dentry: None, mount, seq: 0 },
                Err(fail) => Child { fail: Some(fail), dentry: None, mount, seq: 0 },
            };
        }
        Child { fail: None, dentry: Some(dentry), mount, seq }
    }

    /// Resolves a dentry that needs more than its name: one of a backed driver, or a mountpoint.
    /// `None` if it is negative.
    #[cold]
    fn special(&self, pos: WalkPos<'g>, name: &Name<'_>) -> Result<Option<WalkPos<'g>>, Fail> {
        pos.dentry.warm();
        if !pos.dentry.is_current(self.cur.inode(), name) {
            return Err(self.miss(self.cur, name));
        }
        if pos.dentry.is_negative() {
            return Ok(None);
        }
        self.cross_down(pos).map(Some)
    }

    /// Finds the dentry, possibly negative, of a name in a directory of a backed driver, without
    /// crossing mounts. The name is not too long.
    pub(crate) fn find_backed(
        &self,
        dir: WalkPos<'g>,
        name: &Name<'_>,
    ) -> Result<&'g Dentry, Fail> {
        let found = if self.by_ref {
            self.find_locked(dir.dentry, name)
        } else {
            dir.dentry.find(name, self.guard)
        };
        if !self.by_ref && dir.is_stale() {
            return Err(Fail::Retry);
        }
        let Some((dentry, _)) = found else { return Err(self.miss(dir, name)) };
        dentry.warm();
        if dentry.is_current(dir.inode(), name) { Ok(dentry) } else { Err(self.miss(dir, name)) }
    }

    /// Takes references to a name in a directory of a backed driver, and to the dentry found there.
    pub(crate) fn keep_name(
        &self,
        dir: WalkPos<'g>,
        name: &Name<'_>,
        found: &'g Dentry,
    ) -> Result<BackedName, Fail> {
        let found = found.try_ref(self.guard).ok_or(Fail::Retry)?;
        Ok(BackedName::new(self.keep(dir)?, name, found))
    }

    /// Defers the lookup of the name in `dir` to the driver, after the call has released
    /// everything.
    #[cold]
    fn miss(&self, dir: WalkPos<'g>, name: &Name<'_>) -> Fail {
        if dir.dentry.is_unhashed() {
            // A lookup in a removed directory finds no name. But if the shrinker just dropped the
            // dentry of an existing directory, the walk must start again.
            let was_taken = dir.is_stale() || dir.dentry.try_ref(self.guard).is_none();
            return if was_taken && !self.by_ref { Fail::Retry } else { Fail::Errno(Errno::NOENT) };
        }
        if self.start.flags.contains(Lookup::CACHED) {
            return Fail::Errno(Errno::AGAIN);
        }
        match self.keep(dir) {
            Ok(dir) => Fail::Deferred(Box::new(Deferred::Lookup(DriverLookup::new(dir, name)))),
            Err(fail) => fail,
        }
    }

    /// Looks up a name under the lock of its bucket, so it waits for changes of the bucket.
    #[cold]
    fn find_locked(&self, dir: &'g Dentry, name: &Name<'_>) -> Option<(&'g Dentry, u32)> {
        let bucket = dir.lock_name(name.hash(), self.guard);
        let child = bucket.find(name.hash(), |child| child.is_named(name, self.guard))?;
        Some((child, child.seq().begin()))
    }

    /// Returns whether `dentry`, a name in the directory at `dir`, is a mountpoint as seen through
    /// the mount of `dir`. Takes no lock.
    #[inline]
    pub(crate) fn is_mountpoint(&self, dir: WalkPos<'g>, dentry: &Dentry) -> bool {
        dentry.is_mounted() && self.start.ns.mounted_on(dir.mount, dentry, self.guard).is_some()
    }

    /// Crosses mounts at `pos` to the root of the topmost one.
    #[cold]
    pub(crate) fn cross_down(&self, mut pos: WalkPos<'g>) -> Result<WalkPos<'g>, Fail> {
        while pos.dentry.is_mounted() {
            let found = self.start.ns.mounted_on(pos.mount, pos.dentry, self.guard);
            if self.start.ns.seq().retry(self.mount_seq) {
                return Err(Fail::Retry);
            }
            let Some(mount) = found else { break };
            if self.start.flags.contains(Lookup::NO_XDEV) {
                return Err(Fail::Errno(Errno::XDEV));
            }
            let dentry: &'g Dentry = mount.root();
            pos = WalkPos { mount, dentry, seq: dentry.seq().begin() };
        }
        Ok(pos)
    }

    /// Walks over `..`.
    pub(crate) fn up(&mut self) -> Result<(), Fail> {
        let scoped = self.start.flags.intersects(Lookup::SCOPED);
        self.root_known = true;
        let mut pos = self.cur;
        loop {
            if self.root.is_same(pos.mount, pos.dentry) {
                if self.start.flags.contains(Lookup::BENEATH) {
                    return Err(Fail::Errno(Errno::XDEV));
                }
                return self.up_in_root(pos);
            }
            if !std::ptr::eq(pos.dentry, pos.mount.root()) {
                break;
            }
            let Some((mount, dentry)) = pos.mount.attached_at(self.guard) else {
                return self.up_in_root(pos);
            };
            if self.start.flags.contains(Lookup::NO_XDEV) {
                return Err(Fail::Errno(Errno::XDEV));
            }
            pos = WalkPos { mount, dentry, seq: dentry.seq().begin() };
        }
        if self.start.ns.seq().retry(self.mount_seq) {
            return Err(Fail::Retry);
        }
        let parent = pos.dentry.parent(self.guard);
        let above = WalkPos { mount: pos.mount, dentry: parent, seq: parent.seq().begin() };
        let is_shown = pos.mount.root().is_root() || self.is_shown(above)?;
        if pos.is_stale() {
            return Err(Fail::Retry);
        }
        if !is_shown {
            return Err(Fail::Errno(Errno::NOENT));
        }
        if scoped && !self.is_beneath(above) {
            // The start, or the current directory, was moved out of the other's subtree.
            return Err(Fail::Retry);
        }
        let above = if parent.is_mounted() { self.cross_down(above)? } else { above };
        Ok(self.go(above)?)
    }

    /// Returns whether a mount of only a part of its file system shows the directory `above`. A
    /// directory that was moved out of that part may still be a working directory, and its parent
    /// would lead the walk out of that part. (Linux: `path_connected`.)
    #[cold]
    fn is_shown(&self, above: WalkPos<'g>) -> Result<bool, Fail> {
        let top = above.mount.root();
        // A reference walk must reach its end, however many directories move.
        let _still = self.by_ref.then(|| self.start.ns.rename_lock().read());
        let mut climb = Climb::new();
        let end = climb.climb(above.dentry, |at| std::ptr::eq(at, top), self.guard);
        if climb.has_changed() { Err(Fail::Retry) } else { Ok(std::ptr::eq(end, top)) }
    }

    /// Walks over `..` at the root: stays there, but crosses mounts on it.
    fn up_in_root(&mut self, pos: WalkPos<'g>) -> Result<(), Fail> {
        let pos = if pos.dentry.is_mounted() { self.cross_down(pos)? } else { pos };
        Ok(self.go(pos)?)
    }

    /// Returns whether a scoped walk is still below its start.
    fn is_beneath(&self, pos: WalkPos<'g>) -> bool {
        let mut pos = (pos.mount, pos.dentry);
        loop {
            if self.root.is_same(pos.0, pos.1) {
                return true;
            }
            if std::ptr::eq(pos.1, pos.0.root()) {
                match pos.0.attached_at(self.guard) {
                    Some(place) => pos = place,
                    None => return false,
                }
            } else if pos.1.is_root() {
                return false;
            } else {
                pos.1 = pos.1.parent(self.guard);
            }
        }
    }

    /// Continues in the symbolic link `link`, which is a child of `cur`.
    pub(crate) fn follow(&mut self, link: WalkPos<'g>) -> Result<(), Fail> {
        self.links += 1;
        let forbidden = self.start.flags.contains(Lookup::NO_SYMLINKS)
            || link.mount.flags().contains(MountFlags::NOSYMFOLLOW);
        if self.links > SYMLINKS_MAX || forbidden {
            return Err(Fail::Errno(Errno::LOOP));
        }
        let inode = link.inode();
        let target = inode.sb().fs().get_link(inode, self.guard)?;
        if link.is_stale() {
            return Err(Fail::Retry);
        }
        crate::mount::atime::touch_atime(link.mount, inode);
        if target.is_empty() {
            return Err(Fail::Errno(Errno::NOENT));
        }
        if target[0] == b'/' {
            if self.start.flags.contains(Lookup::BENEATH) {
                return Err(Fail::Errno(Errno::XDEV));
            }
            // Linux compares the mounts before it looks the root up, so a link to `/` leaves the
            // mount unless the root was needed before.
            let leaves = !self.root_known || !std::ptr::eq(self.root.mount, self.cur.mount);
            if leaves && self.start.flags.contains(Lookup::NO_XDEV) {
                return Err(Fail::Errno(Errno::XDEV));
            }
            self.root_known = true;
            self.go(WalkPos::of(self.root))?;
        }
        if !self.text.is_empty() {
            self.outer.push(self.text);
        }
        self.text = name::skip_slashes(target);
        Ok(())
    }

    /// Continues in the link as the last component, with the slashes that followed it.
    pub(crate) fn follow_last(&mut self, link: WalkPos<'g>, slash: bool) -> Result<(), Fail> {
        if slash {
            self.outer.insert(0, b"/");
        }
        self.follow(link)
    }
}

/// Checks the length of a name. In a removed directory, where every lookup fails, a name that is
/// too long fails with `ENOENT` like any other.
#[inline]
pub(crate) fn check_length(dir: &Inode, name_len: usize) -> Result<(), Errno> {
    if name_len <= NAME_MAX {
        return Ok(());
    }
    Err(if dir.is_dead() { Errno::NOENT } else { Errno::NAMETOOLONG })
}
