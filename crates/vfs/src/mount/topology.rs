//! All mount trees of a program, and changes of them.
//!
//! Walks read the attachment of a mount, and the mounts on it, from the mount and from a hash,
//! without a lock. The state that only changes of the trees need is in [`MountTopology`], plain
//! data under `namespace_sem`: all mounts and their trees, the mounts on each mount, and the peer
//! groups.
//!
//! A change is first planned, which may fail. Then [`VfsShared::change`] makes it in one write
//! section of `mount_seq`, which cannot fail unless a mount is busy: walks see the whole change or
//! none of it, for any number of mounts.
//!
//! # References
//!
//! The trees hold each listed mount by one use. A mount holds its mountpoint, but not its parent,
//! which stays listed while any mount is attached to it.

use std::collections::HashMap;
use std::ptr::NonNull;

use rustix::io::Errno;
use vfscale_sync::atomic::{Ordering, fence};
use vfscale_sync::rcu::Guard;

use crate::mount::namespace::VfsShared;
use crate::mount::propagation::{MountId, PeerGroups};
use crate::mount::vfsmount::{Mount, MountRef, OwnedMount, Path};
use crate::objects::dcache::dentry::{Dentry, DentryRef};

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
    children: Vec<MountId>,
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

    /// Returns the mounts on a mount.
    pub(crate) fn children(&self, id: MountId) -> &[MountId] {
        self.nodes.get(&id).map_or(&[], |node| &node.children)
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
        self.nodes.insert(id, Node { mount, tree, children: Vec::new() });
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
            found.extend_from_slice(self.children(found[at]));
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

    fn note_attached(&mut self, child: MountId, parent: MountId) {
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.children.push(child);
        }
    }

    fn note_detached(&mut self, child: MountId, parent: MountId, mountpoint: &Dentry) {
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.children.retain(|other| *other != child);
        }
        self.note_mountpoint(mountpoint, -1);
    }

    /// Adds `change` to the count of each mountpoint to which the steps attach a mount.
    fn note_mountpoints(&mut self, steps: &[Step], change: i32) {
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

impl VfsShared {
    /// Makes a change of the trees, in one write section of `mount_seq`, unless `is_busy`, called
    /// in that section, returns true: then `EBUSY`. Returns the former mountpoints of the detached
    /// mounts, which the caller drops after it unlocks the trees.
    pub(crate) fn change(
        &self,
        trees: &mut MountTopology,
        steps: Vec<Step>,
        is_busy: impl FnOnce() -> bool,
        guard: &Guard,
    ) -> Result<Vec<Path>, Errno> {
        let mut left = Vec::with_capacity(steps.len());
        // Counted first, so a mountpoint that one mount leaves and another one takes stays claimed.
        trees.note_mountpoints(&steps, 1);
        let crossings = self.lock_crossings();
        let section = self.seq().write();
        // A thread that counts a use after this fence sees that the section was entered.
        fence(Ordering::SeqCst);
        if is_busy() {
            trees.note_mountpoints(&steps, -1);
            return Err(Errno::BUSY);
        }
        for step in steps {
            match step {
                Step::Attach { mount, parent, mountpoint } => {
                    self.attach(trees, mount, parent, mountpoint, guard);
                }
                Step::Detach(mount) => {
                    // SAFETY: the trees hold the mount until after the change.
                    let mount = unsafe { mount.as_ref() };
                    left.extend(self.detach(trees, mount, guard));
                }
            }
        }
        drop(section);
        drop(crossings);
        Ok(left)
    }

    fn attach(
        &self,
        trees: &mut MountTopology,
        raw: NonNull<Mount>,
        parent: NonNull<Mount>,
        mountpoint: DentryRef,
        guard: &Guard,
    ) {
        // SAFETY: the trees hold both mounts.
        let (mount, parent) = unsafe { (raw.as_ref(), parent.as_ref()) };
        trees.note_attached(mount.id(), parent.id());
        let mut bucket = self.crossing_table().lock(Mount::place_hash(parent, &*mountpoint), guard);
        mount.attach(parent, mountpoint);
        // SAFETY: the mount leaves the table when it is detached, and is freed a grace period
        // later.
        unsafe { bucket.insert(raw) };
    }

    fn detach(&self, trees: &mut MountTopology, mount: &Mount, guard: &Guard) -> Option<Path> {
        let (parent, mountpoint) = mount.attached_at(guard)?;
        // The returned path holds the parent, whose superblock owns the mountpoint's memory.
        let parent = MountRef::new(parent);
        self.crossing_table().lock(Mount::place_hash(&*parent, mountpoint), guard).remove(mount);
        let dentry = mount.unattach()?;
        trees.note_detached(mount.id(), parent.id(), &dentry);
        Some(Path::new(parent, dentry))
    }
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
        let _dcache = parent.sb().lock_dcache();
        let _bucket = parent.children().lock(dentry.hash(), guard);
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
