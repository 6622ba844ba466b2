//! The time of the last access, under the options of the mount and of the superblock, and the flags
//! of the inode.

use crate::base::types::MountFlags;
use crate::objects::inode::Inode;
use crate::objects::vfsmount::{Mount, WriteAccess};

/// Stores the time of an access if the options of the mount and the flags of the inode require it.
#[inline]
pub(crate) fn touch_atime(mount: &Mount, inode: &Inode) {
    let flags = mount.flags() | inode.sb().flags();
    let never = MountFlags::NOATIME | MountFlags::RDONLY;
    if flags.intersects(never) || (flags.contains(MountFlags::NODIRATIME) && inode.is_dir()) {
        return;
    }
    if let Some(now) = inode.next_atime(flags.contains(MountFlags::STRICTATIME))
        && !inode.keeps_atime()
        // Announced like other changes, so a remount waits for it.
        && let Ok(_write) = WriteAccess::new(mount)
    {
        inode.accessed(now);
    }
}
