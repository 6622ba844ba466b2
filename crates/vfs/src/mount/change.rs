//! Changes of the mount trees: all steps of one in one write section of `mount_seq`.

use std::ptr::NonNull;

use rustix::io::Errno;
use vfscale_sync::atomic::{Ordering, fence};
use vfscale_sync::rcu::Guard;

use crate::mount::topology::{MountTopology, Step};
use crate::mount::vfs_shared::VfsShared;
use crate::objects::dcache::dentry::DentryRef;
use crate::objects::vfsmount::{Mount, MountRef, Path};

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
