//! Changes that are durable when their calls return, because of a flag of an inode.

use rustix::io::Errno;

use crate::objects::inode::Inode;

/// Makes a change of an inode durable, if it has [`InodeFlags::SYNC`]. Blocks for the I/O; the
/// caller holds no lock of an inode and no name.
///
/// # Errors
/// `EIO`: the change is made, but may not be durable.
///
/// [`InodeFlags::SYNC`]: crate::types::InodeFlags::SYNC
#[inline]
pub(crate) fn sync_change(inode: &Inode) -> Result<(), Errno> {
    if inode.is_sync() { inode.sb().fs().sync(inode, false) } else { Ok(()) }
}

/// Makes a change of a name in `dir` durable, if the directory has [`InodeFlags::DIRSYNC`] or
/// `SYNC`; see [`sync_change`].
///
/// # Errors
/// As [`sync_change`].
///
/// [`InodeFlags::DIRSYNC`]: crate::types::InodeFlags::DIRSYNC
#[inline]
pub(crate) fn sync_names(dir: &Inode) -> Result<(), Errno> {
    if dir.is_dirsync() { dir.sb().fs().sync(dir, false) } else { Ok(()) }
}
