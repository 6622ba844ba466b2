//! Accounting of names and inodes that the dcache alone stores.

use rustix::io::Errno;

use crate::objects::driver::NewInode;
use crate::objects::inode::{Inode, InodeRef};
use crate::objects::super_block::SuperBlock;

/// Accounting for a driver without [`DirOps`](crate::driver::DirOps), whose names only the dcache
/// stores.
///
/// The VFS makes and removes names itself, and notifies the driver, which can charge them or
/// refuse.
pub trait NameAccounting {
    /// Makes an inode with one link (a directory two, a file without a name none).
    ///
    /// # Errors
    /// `ENOSPC` if it does not fit. By default `EROFS`.
    fn create(&self, sb: &SuperBlock, new: &NewInode<'_>) -> Result<InodeRef, Errno> {
        let _ = (sb, new);
        Err(Errno::ROFS)
    }

    /// Charges another name of `inode`, of `name_len` bytes, before it is made.
    ///
    /// # Errors
    /// `ENOSPC`, `EMLINK`. By default `EROFS`.
    fn link(&self, inode: &Inode, name_len: usize) -> Result<(), Errno> {
        let _ = (inode, name_len);
        Err(Errno::ROFS)
    }

    /// Uncharges a name of `inode`, of `name_len` bytes, after its removal.
    fn unlinked(&self, inode: &Inode, name_len: usize) {
        let _ = (inode, name_len);
    }

    /// Charges the new length in bytes of a name of `inode`, before a rename.
    ///
    /// # Errors
    /// `ENOSPC`, but not for a name that gets no longer.
    fn renamed(&self, inode: &Inode, old_len: usize, new_len: usize) -> Result<(), Errno> {
        let _ = (inode, old_len, new_len);
        Ok(())
    }

    /// Charges `bytes` for extended attributes and ACLs that the VFS stores with an inode. A backed
    /// driver stores these in [`FileOps::set_attr`](crate::driver::FileOps::set_attr).
    ///
    /// # Errors
    /// `ENOSPC`. By default `EOPNOTSUPP`.
    fn charge(&self, bytes: u64) -> Result<(), Errno> {
        let _ = bytes;
        Err(Errno::OPNOTSUPP)
    }

    /// Returns `bytes` that [`charge`](Self::charge) took.
    fn uncharge(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// The accounting of a backed driver, which charges for names and attributes itself.
pub(crate) struct NoAccounting;

impl NameAccounting for NoAccounting {}
