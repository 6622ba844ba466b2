//! The time of the last access, as the options of the mount and of the super block say.

use crate::base::types::MountFlags;
use crate::objects::inode::Inode;
use crate::objects::vfsmount::{Mount, WriteAccess};

/// Keeps the time of an access, as the mount's options say.
#[inline]
pub(crate) fn touch_atime(mount: &Mount, inode: &Inode) {
    let flags = mount.flags() | inode.sb().flags();
    let never = MountFlags::NOATIME | MountFlags::RDONLY;
    if flags.intersects(never) || (flags.contains(MountFlags::NODIRATIME) && inode.is_dir()) {
        return;
    }
    if let Some(now) = inode.next_atime(flags.contains(MountFlags::STRICTATIME))
        // A remount waits for it as for other changes.
        && let Ok(_write) = WriteAccess::new(mount)
    {
        inode.accessed(now);
    }
}
