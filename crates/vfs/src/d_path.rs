//! From a dentry back to its path.
//!
//! The walk goes from child to parent under RCU. Only moving a directory changes the path of what is
//! below it, and that happens under `rename_lock`: the walk runs as a retrying reader of it, and after
//! some failed attempts as a blocking reader, of which any number run at once (seeds 000 and 002).
//! The name and parent of the first dentry, which may be a file and so move without `rename_lock`, are
//! read together under its own sequence count. So the result was true at some moment of the call.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::io::Errno;
use vfscale_sync::rcu::{self, Guard};

use crate::dentry::Dentry;
use crate::error::{Named, Result};
use crate::file::File;
use crate::mount::{Mount, Spot};
use crate::namei::PATH_MAX;
use crate::namespace::Forest;
use crate::task::Task;

/// Retrying reads before a blocking one.
const ATTEMPTS: u32 = 3;

/// Whether `dentry` is `top` or below it, in one superblock. Exact while directories don't move;
/// otherwise true of some moment.
pub(crate) fn is_below(dentry: &Dentry, top: &Dentry, guard: &Guard) -> bool {
    let mut dentry = dentry;
    loop {
        if std::ptr::eq(dentry, top) {
            return true;
        }
        if dentry.is_root() {
            return false;
        }
        dentry = dentry.parent(guard);
    }
}

/// How a path ended at the top.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    /// At the task's root.
    Root,
    /// Somewhere else: it can't be reached from the root.
    Unreachable,
}

/// A path, built from its end.
struct Prepend {
    reversed: Vec<u8>,
}

impl Prepend {
    fn push(&mut self, bytes: &[u8]) {
        self.reversed.extend(bytes.iter().rev());
    }

    /// Puts names in front, from that of `dentry` up to, and without, the first dentry that is a root of
    /// its file system or of which `is_top` says that the way ends there. Returns that one.
    fn climb<'g>(
        &mut self,
        dentry: &'g Dentry,
        is_top: impl Fn(&Dentry) -> bool,
        guard: &'g Guard,
    ) -> &'g Dentry {
        let mut at = dentry;
        while !is_top(at) && !at.is_root() {
            let (name, parent) = name_and_parent(at, guard);
            self.push(name);
            self.push(b"/");
            at = parent;
        }
        at
    }

    /// The path; that of the top itself, which has no name, is `/`.
    fn finish(mut self) -> Vec<u8> {
        if self.reversed.is_empty() {
            self.push(b"/");
        }
        self.reversed.reverse();
        self.reversed
    }
}

/// The name and parent of a dentry, read together.
pub(crate) fn name_and_parent<'g>(dentry: &'g Dentry, guard: &'g Guard) -> (&'g [u8], &'g Dentry) {
    loop {
        let seq = dentry.seq().begin();
        let both = (dentry.name(guard), dentry.parent(guard));
        if !dentry.seq().retry(seq) {
            return both;
        }
    }
}

/// Walks from `path` up to `root`; the caller makes sure that no directory moves meanwhile, or throws
/// the result away.
fn prepend_path(
    Spot { mut mount, mut dentry }: Spot<'_>,
    root: Spot<'_>,
    guard: &Guard,
) -> (Vec<u8>, Top) {
    let mut out = Prepend { reversed: Vec::with_capacity(128) };
    let top = loop {
        let is_top = |at: &Dentry| root.is_same(mount, at) || std::ptr::eq(at, mount.root());
        dentry = out.climb(dentry, is_top, guard);
        if root.is_same(mount, dentry) {
            break Top::Root;
        }
        if !std::ptr::eq(dentry, mount.root()) {
            // It was moved out of what the mount shows, so that no name of it is seen from there.
            out.reversed.clear();
            break Top::Unreachable;
        }
        let Some((parent, mountpoint)) = mount.attached_at(guard) else {
            break Top::Unreachable;
        };
        (mount, dentry) = (parent, mountpoint);
    };
    (out.finish(), top)
}

/// The path of `mount`'s root seen from `root`, if it can be reached from there. The caller keeps the
/// mount tree as it is, and directories where they are.
pub(crate) fn mount_point(mount: &Mount, root: Spot<'_>, guard: &Guard) -> Option<Vec<u8>> {
    let (bytes, top) = prepend_path(Spot { mount, dentry: mount.root() }, root, guard);
    (top == Top::Root).then_some(bytes)
}

/// The path of a dentry within its file system, with `//deleted` behind it if it is gone. The caller keeps
/// directories where they are.
pub(crate) fn dentry_path(dentry: &Dentry, guard: &Guard) -> Vec<u8> {
    let mut out = Prepend { reversed: Vec::new() };
    if dentry.is_unhashed() {
        out.push(b"//deleted");
    }
    out.climb(dentry, |_| false, guard);
    out.finish()
}

/// Runs [`prepend_path`] so that what it saw was true at one moment.
fn stable_path(ns: &Forest, path: Spot<'_>, root: Spot<'_>, guard: &Guard) -> (Vec<u8>, Top) {
    let _tree = ns.lock_mounts();
    // Before the patch nobody retried: the writer's side was the only one to be sure on.
    let attempts = if ns.rename_lock().has_exclusive_readers() { 0 } else { ATTEMPTS };
    for _ in 0..attempts {
        let mounts = ns.seq().begin();
        let names = ns.rename_lock().begin();
        let result = prepend_path(path, root, guard);
        if !ns.rename_lock().retry(names) && !ns.seq().retry(mounts) {
            return result;
        }
    }
    let _names = ns.rename_lock().read();
    loop {
        let mounts = ns.seq().begin();
        let result = prepend_path(path, root, guard);
        if !ns.seq().retry(mounts) {
            return result;
        }
    }
}

impl Task {
    /// The path of the working directory.
    ///
    /// # Errors
    /// `ENOENT` if it has been removed, `ENAMETOOLONG`. A directory that can't be reached from the root
    /// has `(unreachable)` before its path.
    pub fn getcwd(&self) -> Result<PathBuf> {
        let getcwd = || {
            let guard = rcu::pin();
            let fs = self.fs(&guard);
            if fs.cwd.dentry.is_unhashed() {
                return Err(Errno::NOENT);
            }
            let (bytes, top) = stable_path(self.ns(), fs.cwd, fs.root, &guard);
            let path = match top {
                Top::Root => bytes,
                Top::Unreachable => [b"(unreachable)".as_slice(), &bytes].concat(),
            };
            if path.len() >= PATH_MAX { Err(Errno::NAMETOOLONG) } else { Ok(path) }
        };
        getcwd().map(|bytes| PathBuf::from(OsString::from_vec(bytes))).named("getcwd")
    }

    /// The path an open file has now, seen from the task's root; with ` (deleted)` behind it if the
    /// name is gone. A pipe is called `pipe:[N]` after its inode number, a socket `socket:[N]`, a file of
    /// memory `/memfd:name (deleted)`.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    pub fn path_of(&self, file: &File) -> Result<PathBuf> {
        let path_of = || {
            let guard = rcu::pin();
            if file.path().dentry().is_pseudo() {
                return Ok(crate::pseudo::path(file.path().dentry(), &guard));
            }
            let deleted = file.path().dentry().is_unhashed();
            let place = file.path().borrow(&guard);
            let (mut bytes, _) = stable_path(self.ns(), place, self.root(&guard), &guard);
            if deleted {
                bytes.extend_from_slice(b" (deleted)");
            }
            if bytes.len() >= PATH_MAX { Err(Errno::NAMETOOLONG) } else { Ok(bytes) }
        };
        path_of().map(|bytes| PathBuf::from(OsString::from_vec(bytes))).named("readlink")
    }
}
