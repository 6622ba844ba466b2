//! Detaching mounts, from one mountpoint and from the mounts that share with it.
//!
//! An unmount from a shared mount also unmounts the mounts at the same mountpoint on its peers and
//! slaves. But a mount stays if a mount that stays is attached to it at another dentry than its
//! root. A mount that covers the root of an unmounted one moves to the mountpoint of that one. The
//! set of unmounted mounts is the greatest that fulfils these rules; compare
//! `Documentation/filesystems/propagate_umount.txt` of the kernel.

use std::collections::HashSet;
use std::ptr::NonNull;

use rustix::io::Errno;
use vfscale_sync::rcu::Guard;

use crate::mount::propagation::MountId;
use crate::mount::topology::{MountTopology, Step};
use crate::mount::vfs_shared::VfsShared;
use crate::objects::dcache::dentry::Dentry;
use crate::objects::vfsmount::{Mount, OwnedMount, Path};

/// Mounts that were removed from the trees, and their former mountpoints, which are dropped first.
pub(crate) struct Detached {
    places: Vec<Path>,
    mounts: Vec<OwnedMount>,
}

impl Detached {
    /// Drops the uses of the trees: unused mounts are freed after a grace period. The caller holds
    /// no lock.
    pub(crate) fn release(self) {
        drop(self.places);
        drop(self.mounts);
    }
}

impl VfsShared {
    /// Returns the mounts at the mountpoint of `mount` on the mounts that its parent propagates to.
    fn peer_mounts<'g>(
        &self,
        trees: &MountTopology,
        mount: &Mount,
        guard: &'g Guard,
    ) -> Vec<&'g Mount> {
        let Some((parent, mountpoint)) = mount.attached_at(guard) else { return Vec::new() };
        let receivers = trees.groups.receivers(parent.id());
        let on = receivers.iter().flat_map(|group| &group.mounts);
        on.filter_map(|id| self.find_mount(trees.mount(*id)?, mountpoint, guard)).collect()
    }

    /// Returns the mounts that are unmounted together with a childless mount and must not be in
    /// use: propagated mounts that are childless, too, except for a mount that covers their root.
    /// Propagation alone would not unmount others.
    pub(crate) fn victims<'g>(
        &self,
        trees: &MountTopology,
        mount: &Mount,
        guard: &'g Guard,
    ) -> Vec<&'g Mount> {
        let is_leaf = |mount: &&Mount| {
            let mut children = trees.children(mount.id());
            let Some(one) = children.next() else { return true };
            let covers = |child| is_covered_by(mount, child, guard);
            children.next().is_none() && trees.mount(one).is_some_and(covers)
        };
        self.peer_mounts(trees, mount, guard).into_iter().filter(is_leaf).collect()
    }

    /// Detaches `top` and all mounts below it from the trees, and with `propagate` the mounts that
    /// this unmounts by propagation. Fails with `EBUSY` if `is_busy` returns true, which is called
    /// when walks can no longer cross to them.
    pub(crate) fn umount_tree(
        &self,
        trees: &mut MountTopology,
        top: &Mount,
        propagate: bool,
        is_busy: impl FnOnce() -> bool,
        guard: &Guard,
    ) -> Result<Detached, Errno> {
        let below = trees.below(top.id());
        let mut goes: Vec<MountId> = below.clone();
        if propagate {
            goes.extend(self.propagated(trees, &below, guard));
        }
        let going: HashSet<MountId> = goes.iter().copied().collect();
        let mut come = Vec::new();
        let mut leave = Vec::new();
        for mount in goes.iter().filter_map(|id| trees.mount(*id)) {
            leave.push(Step::Detach(NonNull::from(mount)));
            for upper in trees.children(mount.id()).filter(|id| !going.contains(id)) {
                let Some(upper) = trees.mount(upper) else { continue };
                let (parent, mountpoint) = survivor(mount, &going, guard)?;
                leave.push(Step::Detach(NonNull::from(upper)));
                let (mount, parent) = (NonNull::from(upper), NonNull::from(parent));
                come.push(Step::Attach { mount, parent, mountpoint: mountpoint.to_ref(guard) });
            }
        }
        // A mount that takes another's mountpoint is attached after that one is detached.
        leave.append(&mut come);
        let places = self.change(trees, leave, is_busy, guard)?;
        let mounts: Vec<OwnedMount> = goes.into_iter().filter_map(|id| trees.remove(id)).collect();
        mounts.iter().for_each(|mount| mount.set_detached());
        Ok(Detached { places, mounts })
    }

    /// Returns the mounts that are unmounted together with `set`, which includes all mounts on its
    /// members.
    fn propagated(&self, trees: &MountTopology, set: &[MountId], guard: &Guard) -> Vec<MountId> {
        let set_of: HashSet<MountId> = set.iter().copied().collect();
        let mut candidates: HashSet<MountId> = HashSet::new();
        for id in set {
            let Some(mount) = trees.mount(*id) else { continue };
            candidates.extend(self.peer_mounts(trees, mount, guard).into_iter().map(Mount::id));
        }
        candidates.retain(|id| !set_of.contains(id));
        let covers = |child: MountId, on: &Mount| {
            trees.mount(child).is_some_and(|child| is_covered_by(on, child, guard))
        };
        // The mounts on candidates that stay themselves. Each one prevents the unmount of its
        // parent, and so of all ancestors, except an ancestor whose root is covered on that path.
        let mut kept: Vec<MountId> = Vec::new();
        for id in &candidates {
            let stays = |child: &MountId| !candidates.contains(child) && !set_of.contains(child);
            kept.extend(trees.children(*id).filter(stays));
        }
        let mut seen: HashSet<MountId> = HashSet::new();
        for id in kept {
            let mut at = id;
            while seen.insert(at) {
                let parent = trees.mount(at).and_then(|mount| mount.attached_at(guard));
                let Some((parent, _)) = parent else { break };
                if !candidates.contains(&parent.id()) && !seen.contains(&parent.id()) {
                    break;
                }
                if !covers(at, parent) {
                    candidates.remove(&parent.id());
                }
                at = parent.id();
            }
        }
        let mut goes: Vec<MountId> = candidates.into_iter().collect();
        // In the order of mounting, so the result is deterministic.
        goes.sort_unstable();
        goes
    }
}

/// Returns whether `child` is mounted on the root of `mount`.
fn is_covered_by(mount: &Mount, child: &Mount, guard: &Guard) -> bool {
    child
        .attached_at(guard)
        .is_some_and(|(on, dentry)| std::ptr::eq(on, mount) && std::ptr::eq(dentry, mount.root()))
}

/// Returns the mountpoint for a mount that covers the root of `gone`: that of `gone`, or of the
/// nearest ancestor that stays.
fn survivor<'g>(
    gone: &Mount,
    going: &HashSet<MountId>,
    guard: &'g Guard,
) -> Result<(&'g Mount, &'g Dentry), Errno> {
    let (mut parent, mut mountpoint) = gone.attached_at(guard).ok_or(Errno::INVAL)?;
    while going.contains(&parent.id()) {
        (parent, mountpoint) = parent.attached_at(guard).ok_or(Errno::INVAL)?;
    }
    Ok((parent, mountpoint))
}
