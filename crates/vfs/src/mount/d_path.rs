//! From a dentry back to its path.
//!
//! The climb walks from child to parent under RCU, and reads each name and parent together, under
//! the sequence count of their dentry. At the top it checks all these counts once more. If they are
//! unchanged, the path was valid at the moment between the last read and the first check; otherwise
//! the climb starts again. So only a change of a name on the path disturbs it; moves of other
//! directories write no memory that it reads. After a few failed attempts it prevents all moves of
//! directories, as a blocking reader of `rename_lock`, of which any number run concurrently (Long
//! 2013). If a directory is already moving at that time, the climb waits for it when it reaches it,
//! because its count is odd. Then only the first dentry may still move, if it is a file, and its
//! name and parent are still read together.
//!
//! # Why the path is consistent
//!
//! Every change of a dentry's name or parent ([`Dentry::set_moved`]) runs in a write section of its
//! count: a rename, an exchange, a driver's own move. A removed or replaced dentry retains both,
//! but its count changes anyway, which costs another attempt. If both reads of its count are equal,
//! the name and parent of a dentry were valid from the first read to the second. All first reads
//! end before the second reads begin, and at that moment all names and parents were valid. If a
//! thread saw one move end before another began, a climb sees them in that order. The mount tree
//! has one count, for the whole climb.
//!
//! Whether the last name was removed is read between the first reads and the second ones, so at a
//! moment at which the path was valid (in Linux: under `rename_lock`). While no directory can move,
//! it is read before and after the climb: a name that is there after it was there before, and one
//! that was gone before it changes no more.

use vfscale_sync::rcu::Guard;

use crate::mount::vfs_shared::VfsShared;
use crate::objects::dcache::climb::Climb;
use crate::objects::dcache::dentry::Dentry;
use crate::objects::vfsmount::{Mount, PathRef};

/// The number of retrying reads before a blocking one.
const ATTEMPTS: u32 = 3;

/// A path, as all of it was at one moment.
pub(crate) struct Told {
    pub(crate) path: Vec<u8>,
    pub(crate) top: Top,
    /// Whether its last name was removed.
    pub(crate) is_deleted: bool,
}

/// The top end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Top {
    /// The task's root.
    Root,
    /// Another directory: the path can't be reached from the root.
    Unreachable,
    /// A directory that the mount does not show, because a directory was moved there: no name on
    /// the path can be reached.
    Outside,
}

impl<'g> Climb<'g> {
    /// Restarts the climb, from a path up to `root`. The caller prevents moves of directories, or
    /// discards the result if it [has changed](Self::has_changed).
    fn climb_to(&mut self, root: PathRef<'g>, place: PathRef<'g>, guard: &'g Guard) -> Top {
        self.climb_up(place, |mount, dentry| root.is_same(mount, dentry), guard)
    }

    /// Restarts the climb, from a path up to the first place for which `is_root` returns true, as
    /// [`climb_to`](Self::climb_to).
    fn climb_up(
        &mut self,
        PathRef { mut mount, mut dentry }: PathRef<'g>,
        is_root: impl Fn(&Mount, &Dentry) -> bool,
        guard: &'g Guard,
    ) -> Top {
        self.0.clear();
        loop {
            let is_top = |at: &Dentry| is_root(mount, at) || std::ptr::eq(at, mount.root());
            dentry = self.climb(dentry, is_top, guard);
            if is_root(mount, dentry) {
                return Top::Root;
            }
            if !std::ptr::eq(dentry, mount.root()) {
                return Top::Outside;
            }
            let Some((parent, mountpoint)) = mount.attached_at(guard) else {
                return Top::Unreachable;
            };
            (mount, dentry) = (parent, mountpoint);
        }
    }

    /// Returns the path; the path of the top itself, which has no name, is `/`.
    fn path(&self, top: Top) -> Vec<u8> {
        if self.0.is_empty() || top == Top::Outside {
            return b"/".to_vec();
        }
        let mut path = Vec::with_capacity(self.0.iter().map(|step| 1 + step.name.len()).sum());
        for step in self.0.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(step.name);
        }
        path
    }
}

/// Returns the path of `mount`'s root as seen from `root`, if it can be reached from there. The
/// caller prevents changes of the mount tree and moves of directories.
pub(crate) fn mount_point(mount: &Mount, root: PathRef<'_>, guard: &Guard) -> Option<Vec<u8>> {
    let mut climb = Climb::new();
    let top = climb.climb_to(root, PathRef { mount, dentry: mount.root() }, guard);
    (top == Top::Root).then(|| climb.path(top))
}

/// Returns the path of a dentry within its file system, followed by `//deleted` if it was removed.
/// The caller prevents moves of directories.
pub(crate) fn dentry_path(dentry: &Dentry, guard: &Guard) -> Vec<u8> {
    let mut climb = Climb::new();
    let (_, is_deleted) = unless_removed(dentry, || {
        climb.0.clear();
        climb.climb(dentry, |_| false, guard);
    });
    let mut path = climb.path(Top::Root);
    if is_deleted {
        path.extend_from_slice(b"//deleted");
    }
    path
}

/// Climbs from `dentry`, again if it was removed meanwhile. Returns the result of the climb, and
/// whether the dentry was removed before it. The caller prevents moves of directories.
fn unless_removed<T>(dentry: &Dentry, mut climb: impl FnMut() -> T) -> (T, bool) {
    loop {
        let was_deleted = dentry.is_unhashed();
        let climbed = climb();
        if dentry.is_unhashed() == was_deleted {
            return (climbed, was_deleted);
        }
    }
}

/// Returns the path of a file from the top of its mount tree, for a message: after a few attempts
/// to read it at one moment, the last result. Waits for nobody.
pub(crate) fn current_path(place: PathRef<'_>, guard: &Guard) -> Vec<u8> {
    let mut climb = Climb::new();
    let mut top = Top::Root;
    for _ in 0..ATTEMPTS {
        top = climb.climb_up(place, |_, _| false, guard);
        if !climb.has_changed() {
            break;
        }
    }
    climb.path(top)
}

/// Returns a consistent path, as seen from `root`.
pub(crate) fn stable_path(
    ns: &VfsShared,
    place: PathRef<'_>,
    root: PathRef<'_>,
    guard: &Guard,
) -> Told {
    let _tree = ns.lock_mounts();
    let attempts = if ns.scaling().path_retry() { ATTEMPTS } else { 0 };
    let mut climb = Climb::new();
    for _ in 0..attempts {
        let mounts = ns.seq().begin();
        let top = climb.climb_to(root, place, guard);
        let is_deleted = place.dentry.is_unhashed();
        if !climb.has_changed() && !ns.seq().retry(mounts) {
            return Told { path: climb.path(top), top, is_deleted };
        }
    }
    let _names = ns.rename_lock().read();
    loop {
        let mounts = ns.seq().begin();
        let (top, is_deleted) = unless_removed(place.dentry, || climb.climb_to(root, place, guard));
        if !ns.seq().retry(mounts) {
            return Told { path: climb.path(top), top, is_deleted };
        }
    }
}
