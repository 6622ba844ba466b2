//! Short writes over existing bytes, which may run concurrently: see `inode/rwsem.rs`.

use std::io::IoSlice;

use vfscale_sync::rcu;

use crate::base::types::OFlags;
use crate::file::open_file::{File, keeps_privileges};
use crate::objects::driver::OVERWRITE_MAX;
use crate::objects::inode::Inode;
use crate::objects::memfd_seals;

impl File {
    /// Overwrites data concurrently with other threads, if several CPUs write the file. Returns the
    /// number of bytes. Returns `None`, without effect, if one CPU writes the file, or if the write
    /// must change more than existing data.
    #[inline(never)]
    pub(crate) fn overwrite(
        &self,
        inode: &Inode,
        offset: u64,
        bufs: &[IoSlice<'_>],
    ) -> Option<usize> {
        let buf = self.sharable(bufs)?;
        let _section = rcu::pin();
        let _sharing = inode.share()?;
        let end = offset.checked_add(buf.len() as u64)?;
        let is_allowed =
            end <= inode.size() && memfd_seals::check_write(inode, offset, buf.len()).is_ok();
        if !is_allowed || !keeps_privileges(inode, self.mode()) {
            return None;
        }
        inode.touch();
        inode.sb().fs().overwrite(inode, offset, buf).then_some(buf.len())
    }

    /// Returns the bytes of a write that may run concurrently with others, if existing data is
    /// overwritten.
    pub(crate) fn sharable<'a>(&self, bufs: &'a [IoSlice<'_>]) -> Option<&'a [u8]> {
        match bufs {
            [buf] if (1..=OVERWRITE_MAX).contains(&buf.len()) => {
                (!self.flags().contains(OFlags::APPEND)).then_some(buf)
            }
            _ => None,
        }
    }
}
