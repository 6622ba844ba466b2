//! The positions of all mounts in the trees of a program.
//!
//! What walks need of a mount (where it is attached, what is attached where) they read from the
//! mount and from a hash, without a lock. What only changes of the trees need is in
//! [`MountTopology`], plain data under `namespace_sem`: which mounts there are and in which tree,
//! what is mounted on each, and who shares with whom.
//!
//! A change is planned first, which may fail, and then made in one write section of `mount_seq`
//! ([`VfsShared::change`](crate::mount::vfs_shared::VfsShared::change)), which can't: walks see all
//! of it or nothing, however many mounts it concerns.
//!
//! # Who holds what
//!
//! A listed mount is held by one use, that of the trees. It holds its mountpoint, but not its
//! parent, which is listed as long as anything is mounted on it.

use std::collections::HashMap;
use std::ptr::NonNull;

use rustix::io::Errno;
use vfscale_sync::rcu::Guard;

use crate::mount::ordered_set::OrderedSet;
use crate::mount::propagation::{MountId, PeerGroups};
use crate::objects::dcache::dentry::{Dentry, DentryRef};
use crate::objects::vfsmount::{Mount, OwnedMount};

/// The maximum number of mounts of one tree (Linux: `fs.mount-max`).
pub(crate) const MOUNTS_MAX: usize = 100_000;

/// The mount trees; see the [module](self).
#[derive(Default)]
pub(crate) struct MountTopology {
    nodes: HashMap<MountId, Node>,
    /// The number of mounts on each mountpoint, in any tree, by the dentry's address.
    mountpoints: HashMap<usize, i32>,
    /// The number of mounts of each tree, by the tree's number.
    sizes: HashMap<u64, usize>,
    pub(crate) groups: PeerGroups,
}

struct Node {
    mount: OwnedMount,
    tree: u64,
    /// The mounts on it, in the order of mounting.
    children: OrderedSet<MountId>,
}

impl MountTopology {
    /// Returns a listed mount.
    pub(crate) fn mount(&self, id: MountId) -> Option<&Mount> {
        self.nodes.get(&id).map(|node| &*node.mount)
    }

    /// Returns the number of the tree of a mount; `None` if it was detached.
    pub(crate) fn tree_of(&self, mount: &Mount) -> Option<u64> {
        self.nodes.get(&mount.id()).map(|node| node.tree)
    }

    /// Returns the mounts on a mount, in the order of mounting.
    pub(crate) fn children(&self, id: MountId) -> impl Iterator<Item = MountId> + '_ {
        self.nodes.get(&id).into_iter().flat_map(|node| node.children.iter())
    }

    /// Returns every mount of every tree, in no order.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = &Mount> {
        self.nodes.values().map(|node| &*node.mount)
    }

    /// Returns the number of mounts of a tree.
    pub(crate) fn size(&self, tree: u64) -> usize {
        self.sizes.get(&tree).copied().unwrap_or(0)
    }

    /// Lists a mount.
    pub(crate) fn insert(&mut self, mount: OwnedMount, tree: u64) {
        let id = mount.id();
        self.nodes.insert(id, Node { mount, tree, children: OrderedSet::default() });
        *self.sizes.entry(tree).or_default() += 1;
    }

    /// Removes a mount without children from the list and from its group.
    pub(crate) fn remove(&mut self, id: MountId) -> Option<OwnedMount> {
        let node = self.nodes.remove(&id)?;
        self.groups.leave(id);
        if let Some(size) = self.sizes.get_mut(&node.tree) {
            *size -= 1;
            if *size == 0 {
                self.sizes.remove(&node.tree);
            }
        }
        Some(node.mount)
    }

    /// Lists `top` and all mounts below it, parents first.
    pub(crate) fn below(&self, top: MountId) -> Vec<MountId> {
        let mut found = vec![top];
        let mut at = 0;
        while at < found.len() {
            found.extend(self.children(found[at]));
            at += 1;
        }
        found
    }

    /// Returns whether a dentry is a mountpoint in no tree.
    fn is_free(&self, dentry: &Dentry) -> bool {
        !self.mountpoints.contains_key(&key(dentry))
    }

    /// Undoes [`claim_mountpoint`], unless a mount was attached to the dentry.
    pub(crate) fn unclaim(&self, dentry: &Dentry) {
        if self.is_free(dentry) {
            dentry.set_mounted(false);
        }
    }

    pub(super) fn note_attached(&mut self, child: MountId, parent: MountId) {
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.children.insert(child);
        }
    }

    pub(super) fn note_detached(&mut self, child: MountId, parent: MountId, mountpoint: &Dentry) {
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.children.remove(child);
        }
        self.note_mountpoint(mountpoint, -1);
    }

    /// Adds `change` to the count of each mountpoint to which the steps attach a mount.
    pub(super) fn note_mountpoints(&mut self, steps: &[Step], change: i32) {
        for step in steps {
            if let Step::Attach { mountpoint, .. } = step {
                self.note_mountpoint(mountpoint, change);
            }
        }
    }

    fn note_mountpoint(&mut self, dentry: &Dentry, change: i32) {
        let count = self.mountpoints.entry(key(dentry)).or_default();
        *count += change;
        if *count == 0 {
            self.mountpoints.remove(&key(dentry));
            dentry.set_mounted(false);
        }
    }
}

fn key(dentry: &Dentry) -> usize {
    std::ptr::from_ref(dentry) as usize
}

/// One step of a change. All mounts are listed, or about to be removed from the list.
pub(crate) enum Step {
    /// Attaches a mount that is attached nowhere. The mountpoint was claimed.
    Attach { mount: NonNull<Mount>, parent: NonNull<Mount>, mountpoint: DentryRef },
    /// Detaches a mount.
    Detach(NonNull<Mount>),
}

/// Marks a dentry as a mountpoint. Fails with `ENOENT` if its name was removed, and with `EBUSY`
/// while a backed driver is removing it.
pub(crate) fn claim_mountpoint(dentry: &Dentry, guard: &Guard) -> Result<(), Errno> {
    if dentry.is_root() {
        dentry.set_mounted(true);
        return Ok(());
    }
    loop {
        let parent = dentry.parent(guard);
        let _name = parent.lock_name(dentry.hash(), guard);
        if dentry.is_unhashed() {
            return Err(Errno::NOENT);
        }
        if dentry.is_child_of(parent) {
            if dentry.cant_mount() {
                return Err(Errno::BUSY);
            }
            dentry.set_mounted(true);
            return Ok(());
        }
    }
}
