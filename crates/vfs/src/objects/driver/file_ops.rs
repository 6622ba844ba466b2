//! Operations on the data and the attributes of one inode.

use rustix::io::Errno;
use vfscale_sync::errseq::ErrorSeq;
use vfscale_sync::rcu::Guard;

use crate::base::types::{FallocateFlags, InodeFlags};
use crate::objects::driver::AttrChange;
use crate::objects::inode::Inode;

/// The most bytes of a write that may run concurrently with others to the same file: a block of a
/// database. Longer writes gain less, and would exclude others from more of the file.
pub const OVERWRITE_MAX: usize = 16 << 10;

/// Operations on the data and the attributes of one inode.
///
/// Counterpart of `struct file_operations`, and of `setattr` and `get_link` of
/// `struct inode_operations` in Linux.
pub trait FileOps {
    /// Reads from `offset` into `buf`, to the end of the file at most; holes read as zeros.
    ///
    /// # Errors
    /// Errors of the device.
    fn read_at(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize, Errno>;

    /// Writes `buf` at `offset` and extends the file if needed; `offset + buf.len()` is at most
    /// [`size_max`](crate::FileSystem::size_max). Returns less than `buf.len()` if space ran out.
    ///
    /// # Errors
    /// `ENOSPC` if no byte could be written. By default `EROFS`.
    fn write_at(&self, inode: &Inode, offset: u64, buf: &[u8]) -> Result<usize, Errno> {
        let _ = (inode, offset, buf);
        Err(Errno::ROFS)
    }

    /// Writes `buf`, at most [`OVERWRITE_MAX`] bytes, over existing data at `offset`, within the
    /// size, concurrently with other calls of this method. Calls that write the same bytes exclude
    /// each other, for all of these bytes together.
    ///
    /// Returns false, with nothing done, if that needs space, or for any other reason: the VFS then
    /// calls [`write_at`](Self::write_at). Not called for backed drivers. By default false.
    fn overwrite(&self, inode: &Inode, offset: u64, buf: &[u8]) -> bool {
        let _ = (inode, offset, buf);
        false
    }

    /// Returns whether a file of `size` bytes may own space beyond its end: preallocated space, or
    /// the rest of its last block. The caller does not hold the inode's lock. By default true.
    fn has_space_beyond(&self, inode: &Inode, size: u64) -> bool {
        let _ = (inode, size);
        true
    }

    /// Truncates the file to `size`, or extends it with a hole.
    ///
    /// # Errors
    /// `ENOSPC`. By default `EROFS`.
    fn set_size(&self, inode: &Inode, size: u64) -> Result<(), Errno> {
        let _ = (inode, size);
        Err(Errno::ROFS)
    }

    /// Allocates or frees space as `fallocate(2)`: no flags, `KEEP_SIZE`, `PUNCH_HOLE | KEEP_SIZE`,
    /// `ZERO_RANGE`. The VFS has checked `offset + len` against
    /// [`size_max`](crate::FileSystem::size_max); `len` is not 0.
    ///
    /// # Errors
    /// `ENOSPC` with nothing allocated, `EOPNOTSUPP` for other modes.
    fn fallocate(
        &self,
        inode: &Inode,
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let _ = (inode, mode, offset, len);
        Err(Errno::OPNOTSUPP)
    }

    /// Returns the first offset at or after `offset` that holds data.
    ///
    /// # Errors
    /// `ENXIO` if there is none, or `offset` is at or past the end. By default `ENXIO`.
    fn seek_data(&self, inode: &Inode, offset: u64) -> Result<u64, Errno> {
        let _ = (inode, offset);
        Err(Errno::NXIO)
    }

    /// Returns the first offset at or after `offset` in a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// `ENXIO` if `offset` is at or past the end. By default `ENXIO`.
    fn seek_hole(&self, inode: &Inode, offset: u64) -> Result<u64, Errno> {
        let _ = (inode, offset);
        Err(Errno::NXIO)
    }

    /// Returns the errors of write-back of `inode`, for a backed driver that writes back. The
    /// driver retains each error until every open file has reported it. Must not block. By default
    /// `None`.
    fn write_errors<'a>(&'a self, inode: &'a Inode) -> Option<&'a ErrorSeq> {
        let _ = inode;
        None
    }

    /// Makes data (and, unless `data_only`, attributes) durable, as far as the driver can.
    ///
    /// # Errors
    /// `EIO` if this call failed. [`write_errors`](Self::write_errors) has earlier errors.
    fn sync(&self, inode: &Inode, data_only: bool) -> Result<(), Errno> {
        let _ = (inode, data_only);
        Ok(())
    }

    /// Returns the inode flags that the driver stores. Without any, calls on flags fail with
    /// `ENOTTY`. A driver without `DirOps` need not do anything for them. Always the same answer;
    /// by default none.
    fn inode_flags(&self) -> InodeFlags {
        InodeFlags::empty()
    }

    /// Stores a change of attributes in one transaction. The VFS has checked the change, and shows
    /// it after this returns. Called for backed drivers only. May block.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO` and similar, with nothing changed.
    fn set_attr(&self, inode: &Inode, change: &AttrChange<'_>) -> Result<(), Errno> {
        let _ = (inode, change);
        Ok(())
    }

    /// Returns the whole text of a file whose text is made when it is read
    /// ([`InodeInit::text`](crate::inode::InodeInit)). The caller holds nothing; may block.
    ///
    /// # Errors
    /// Any error that reading the file is to return.
    fn text(&self, inode: &Inode) -> Result<Vec<u8>, Errno> {
        let _ = inode;
        Err(Errno::INVAL)
    }

    /// Returns the target of a symbolic link. Must not block: the driver holds it in memory with
    /// the inode.
    ///
    /// # Errors
    /// By default `EINVAL`.
    fn get_link<'g>(&self, inode: &'g Inode, guard: &'g Guard) -> Result<&'g [u8], Errno> {
        let _ = (inode, guard);
        Err(Errno::INVAL)
    }
}
